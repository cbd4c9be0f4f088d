//! What only Ray can do to us, on the emulator and with answers that a real Ray gave.

use bridge_core::manager::{ErrorKind, Files, Found, LoadProbe, Phase, SubmitError, Verdict};
use bridge_testkit::faults::Fault;
use bytes::Bytes;
use futures::StreamExt;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn script_parameters_environment_and_inputs_reach_the_job() {
    let cluster = Cluster::start().await;
    let script = "import os, sys\nprint(sys.argv[1:], os.environ['LEVEL'], open('data/in put.txt').read(), sorted(os.listdir('.')))\n";
    let mut job = python("script", script);
    job.parameters = r#"{"iterations": "15", "quote": "it's $HOME `id`"}"#.to_owned();
    job.metadata = r#"{"pip": {"emoji": "2.14.1"}, "env": {"LEVEL": 3}}"#.to_owned();
    job.inputs = vec!["data/in put.txt".to_owned()];
    let content =
        futures::stream::iter([Ok(Bytes::from_static(b"he")), Ok(Bytes::from_static("llö".as_bytes()))]).boxed();
    assert_eq!(cluster.manager.put(&job.token, "data/in put.txt", content).await.unwrap(), 6);

    let preview = cluster.manager.preview(&job).unwrap();
    assert!(preview.request.ends_with("/api/jobs/"), "{}", preview.request);
    assert!(preview.body.contains("emoji==2.14.1") && preview.body.contains("gcs://_ray_pkg_"), "{}", preview.body);
    assert_eq!(cluster.server.packages(), (0, 0), "a preview sends nothing");

    let tracked = submit(&cluster.manager, &job).await;
    let (outcome, facts) = ended(&cluster.manager, &tracked).await;
    let log = logs::whole(&cluster.manager, &tracked).await;
    assert_eq!(outcome.verdict, Verdict::Succeeded, "{outcome:?} {log}");
    let expected = r#"['--kwargs', 'iterations=15', "quote=it's $HOME `id`"] 3 hellö ['data', 'script.py']"#;
    assert!(log.contains(expected), "{log}");
    assert!(facts.node.is_some() && facts.started.is_some());
    assert_eq!(cluster.server.packages().0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_is_large_goes_in_pieces_and_once() {
    let cluster = Cluster::start().await;
    let mut job = python("large", "import os; print(os.path.getsize('big'))");
    job.inputs = vec!["big".to_owned()];
    let pieces = (0..5).map(|_| Ok(Bytes::from(vec![b'x'; 1024 * 1024])));
    cluster.manager.put(&job.token, "big", futures::stream::iter(pieces.collect::<Vec<_>>()).boxed()).await.unwrap();
    cluster.faults.next(Operation::Submit, Fault::Reset);
    assert!(matches!(cluster.manager.submit(&job).await, Err(SubmitError::Unknown(_))));
    let tracked = submit(&cluster.manager, &job).await;
    assert_eq!(ended(&cluster.manager, &tracked).await.0.verdict, Verdict::Succeeded);
    assert!(logs::whole(&cluster.manager, &tracked).await.contains("5242880"));
    // Question, upload; then the question alone.
    assert_eq!(cluster.faults.requests(Operation::Put), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_fails_leaves_no_job_and_may_be_repeated() {
    let cluster = Cluster::start().await;
    let job = python("upload", "print(1)");
    for fault in Fault::WITHOUT_ANSWER {
        cluster.faults.always(Operation::Put, fault.clone());
        let Err(SubmitError::NotSubmitted(error)) = cluster.manager.submit(&job).await else {
            panic!("after {fault:?} nothing was submitted")
        };
        cluster.faults.clear();
        assert!(!error.kind.is_final(), "{fault:?}: {error}");
        assert_eq!(cluster.server.jobs(), 0);
    }
    submit(&cluster.manager, &job).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_a_dead_process_held_are_asked_for_again() {
    let cluster = Cluster::start().await;
    let mut job = python("restart", "print(1)");
    job.inputs = vec!["a".to_owned()];
    let Err(SubmitError::NotSubmitted(error)) = cluster.manager.submit(&job).await else {
        panic!("it lacks its input")
    };
    assert!(error.kind == ErrorKind::Unreachable && error.message.contains("\"a\""), "{error}");
    assert_eq!(cluster.server.jobs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_job_that_waits_says_so_and_ends_as_cancelled() {
    let cluster = Cluster::patient().await;
    let job = with_properties(command("waits", "true"), &json!({"entrypoint_num_cpus": 500}));
    let tracked = submit(&cluster.manager, &job).await;
    let Sighting::Alive(Phase::Queued { reason }, facts) = look(&cluster.manager, &tracked).await else {
        panic!("it waits")
    };
    assert_eq!((reason.as_deref(), facts.note), (Some("Resources"), None));
    cluster.manager.cancel(&tracked).await.unwrap();
    let cancelling = Tracked { cancelling: true, ..tracked };
    let Sighting::Alive(Phase::Queued { .. }, facts) = look(&cluster.manager, &cancelling).await else {
        panic!("it waits")
    };
    assert!(facts.note.unwrap().contains("RAY_JOB_START_TIMEOUT_SECONDS"));
    cluster.server.give_up_waiting();
    let (outcome, facts) = ended(&cluster.manager, &cancelling).await;
    assert_eq!((outcome.verdict, facts.started), (Verdict::Cancelled, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_was_started_again_has_forgotten() {
    let cluster = Cluster::start().await;
    let job = command("forgotten", "sleep 60");
    let intended = now();
    let tracked = submit(&cluster.manager, &job).await;
    // Sessions are named by the second.
    until("another second", async || (now().duration_since(intended).as_secs() >= 3).then_some(())).await;
    cluster.server.restart();
    assert_eq!(look(&cluster.manager, &tracked).await, Sighting::Gone);
    cluster.manager.cancel(&tracked).await.unwrap();
    let found = cluster.manager.find(&job.token, intended).await.unwrap();
    let Found::CannotTell(why) = found else { panic!("the old head may have run it: {found:?}") };
    assert!(why.contains("started again"), "{why}");
    // What was intended after the start would be known.
    assert_eq!(cluster.manager.find(&SubmitToken::derive("new", 1), now()).await.unwrap(), Found::Absent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_sent_only_to_a_server_that_asks() {
    const PASSWORD: &str = "the-dummy";
    let secret = Secret::new(&[("username", "user"), ("password", PASSWORD)]);
    let open = Cluster::with(quick(), &secret).await;
    let tracked = submit(&open.manager, &python("open", "print(1)")).await;
    ended(&open.manager, &tracked).await;
    logs::whole(&open.manager, &tracked).await;
    assert!(open.server.authorizations().iter().all(String::is_empty), "nobody asked for it");

    let asking = Cluster::with(Options { token: Some(PASSWORD.to_owned()), ..quick() }, &secret).await;
    let tracked = submit(&asking.manager, &python("asking", "print(1)")).await;
    ended(&asking.manager, &tracked).await;
    assert!(logs::whole(&asking.manager, &tracked).await.contains("\n1\n"));
    let sent = asking.server.authorizations();
    assert_eq!(sent.iter().filter(|sent| sent.is_empty()).count(), 1, "asked once: {sent:?}");
    assert!(sent.iter().skip(1).all(|sent| *sent == format!("Bearer {PASSWORD}")));

    let wrong = Cluster::with(Options { token: Some("other".to_owned()), ..quick() }, &secret).await;
    let Err(SubmitError::NotSubmitted(error)) = wrong.manager.submit(&command("wrong", "true")).await else { panic!() };
    assert!(error.kind == ErrorKind::Credential && error.message.contains("`token`"), "{error}");
    assert!(!format!("{error:?}").contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_renewed_is_read_again() {
    let secret = Secret::new(&[("token", "old")]);
    let cluster = Cluster::with(Options { token: Some("old".to_owned()), ..quick() }, &secret).await;
    let tracked = submit(&cluster.manager, &command("renewed", "sleep 60")).await;
    cluster.server.set_token(Some("new"));
    let error = cluster.manager.poll(std::slice::from_ref(&tracked)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Credential, "{error}");
    secret.set(&[("token", "new")]);
    assert!(matches!(look(&cluster.manager, &tracked).await, Sighting::Alive(..)));
    submit(&cluster.manager, &python("renewed2", "print(1)")).await;
    secret.set(&[("token", "gone")]);
    cluster.server.set_token(Some("newer"));
    secret.set(&[("token", "newer")]);
    // A POST, too, is sent again: 403 says that nothing was done.
    submit(&cluster.manager, &command("renewed3", "true")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn few_jobs_are_asked_about_one_by_one_and_many_at_once() {
    let cluster = Cluster::start().await;
    let mut jobs = Vec::new();
    for number in 0..40 {
        jobs.push(
            submit(
                &cluster.manager,
                &with_properties(command(&format!("n{number}"), "true"), &json!({"entrypoint_num_cpus": 500})),
            )
            .await,
        );
    }
    let requests = async |jobs: &[Tracked]| {
        let before = cluster.faults.requests(Operation::Poll);
        assert_eq!(cluster.manager.poll(jobs).await.unwrap().len(), jobs.len());
        cluster.faults.requests(Operation::Poll) - before
    };
    assert_eq!(requests(&jobs).await, 1);
    assert_eq!(requests(&jobs[..3]).await, 3);
    assert_eq!(requests(&jobs[..5]).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn load_counts_what_waits() {
    let cluster = Cluster::patient().await;
    submit(&cluster.manager, &with_properties(command("waits", "true"), &json!({"num_cpus": 500}))).await;
    let running =
        submit(&cluster.manager, &with_properties(command("runs", "sleep 60"), &json!({"num_cpus": 1}))).await;
    until("the start", async || {
        matches!(look(&cluster.manager, &running).await, Sighting::Alive(Phase::Running, _)).then_some(())
    })
    .await;
    let load = LoadProbe::load(&cluster.manager).await.unwrap().remove(0);
    assert_eq!((load.cpus.idle, load.cpus.allocated, load.cpus.total, load.pending_jobs), (3, 1, 4, 1));
}
