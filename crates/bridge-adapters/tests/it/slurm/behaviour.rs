//! What only Slurm does.

use std::sync::Mutex;

use bridge_core::credentials::CredentialError;
use bridge_core::manager::{ErrorKind, Found, LogCursor, LogStream, Logs, ManagerError, Phase, SubmitError, Verdict};
use jiff::Timestamp;

use super::*;
use crate::programs;

async fn cluster(options: EmulatorOptions) -> Cluster {
    Cluster::with(options, None).await
}

fn is_running(seen: &Sighting) -> Option<()> {
    matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_common_version_is_spoken_and_again_after_an_upgrade() {
    let cluster = cluster(EmulatorOptions { versions: vec![36, 38, 99], ..EmulatorOptions::default() }).await;
    let job = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
    until(&cluster.manager, &job, is_running).await;
    cluster.emulator.offer(&[44, 45, 46]);
    assert!(matches!(look(&cluster.manager, &job).await, Sighting::Alive(Phase::Running, _)));
    let second = cluster.start(&cluster.submission("exit 3", json!({}))).await;
    assert_eq!(cluster.ended(&second).await.0.exit_code, Some(3));
    cluster.manager.cancel(&job).await.unwrap();
    assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Cancelled);

    cluster.emulator.offer(&[46, 47]);
    let error = cluster.manager.poll(&[job]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.message.contains("offers v0.0.46, v0.0.47"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_in_the_url_that_nobody_knows_is_no_obstacle() {
    let emulator =
        Cluster::with(EmulatorOptions { versions: vec![41, 47], ..EmulatorOptions::default() }, Some(47)).await;
    let job = emulator.start(&emulator.submission("true", json!({}))).await;
    assert_eq!(emulator.ended(&job).await.0.verdict, Verdict::Succeeded);
    // Retired by the server since the URL was written.
    let retired = Cluster::with(EmulatorOptions { versions: vec![42], ..EmulatorOptions::default() }, Some(39)).await;
    let job = retired.start(&retired.submission("true", json!({}))).await;
    assert_eq!(retired.ended(&job).await.0.verdict, Verdict::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_found_behind_a_gateway_that_hides_the_servers_description() {
    for versions in [vec![37, 38], vec![43, 44, 46]] {
        let options = EmulatorOptions { versions, describes_itself: false, ..EmulatorOptions::default() };
        let cluster = cluster(options).await;
        let job = cluster.start(&cluster.submission("exit 3", json!({}))).await;
        assert_eq!(cluster.ended(&job).await.0.exit_code, Some(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_neither_gone_nor_absent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/slurm/v0.0.38", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(async || axum::http::StatusCode::NOT_MODIFIED);
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let manager = adapter(&url, Path::new("/"), credentials("alice", "alice-token"));
    let jobs: Vec<Tracked> =
        (1..=20).map(|number| tracked(&RemoteId::new(number.to_string()), &fresh_token())).collect();
    assert_eq!(manager.poll(&jobs).await.unwrap(), BTreeMap::new(), "no news of any job");
    let found = manager.find(&fresh_token(), Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(matches!(found, Found::CannotTell(_)), "{found:?}");
    server.abort();
}

/// A Secret that can be changed.
#[derive(Debug)]
struct Changing(Mutex<Vec<(&'static str, String)>>);

impl Changing {
    fn with_token(token: &str) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![("username", "alice".to_owned()), ("token", token.to_owned())])))
    }
}

#[async_trait]
impl CredentialSource for Changing {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        Ok(Credentials::from_pairs(
            self.0.lock().unwrap().iter().map(|(key, value)| ((*key).to_owned(), value.clone())),
        ))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_survives_the_rotation_of_its_token() {
    for version in [36, 38, 40, 45] {
        let cluster = Cluster::of_version(version).await;
        let secret = Changing::with_token("alice-token");
        let url = cluster.emulator.versioned_url(version);
        let manager = adapter(&url, &cluster.folder, Arc::clone(&secret) as Arc<dyn CredentialSource>);
        let job = start(&manager, &cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        until(&manager, &job, is_running).await;

        cluster.emulator.set_token("alice", "new-token");
        let error = answered_quickly(async || manager.poll(std::slice::from_ref(&job)).await.unwrap_err()).await;
        assert_eq!(error.kind, ErrorKind::Credential, "v0.0.{version}: {error}");
        assert!(error.message.contains("token"), "{error}");
        let another = cluster.submission("true", json!({}));
        let refused = answered_quickly(async || manager.submit(&another).await.unwrap_err()).await;
        let (SubmitError::NotSubmitted(error) | SubmitError::Unknown(error)) = refused;
        assert_eq!(error.kind, ErrorKind::Credential, "v0.0.{version}: {error}");

        secret.0.lock().unwrap()[1].1 = "new-token".to_owned();
        assert!(matches!(look(&manager, &job).await, Sighting::Alive(Phase::Running, _)), "v0.0.{version}");
        manager.cancel(&job).await.unwrap();
        assert_eq!(ended(&manager, &job).await.0.verdict, Verdict::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_key_of_the_secret_is_named() {
    let cluster = Cluster::of_version(38).await;
    let secret = Changing::with_token("");
    let manager = adapter(&cluster.emulator.url(), &cluster.folder, secret);
    let error = manager.poll(&[tracked(&RemoteId::new("1"), &fresh_token())]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Credential);
    assert_eq!(error.message, "the Secret has no key `token` or `password`; add it");
    let SubmitError::NotSubmitted(error) = manager.submit(&submission("true", json!({}))).await.unwrap_err() else {
        panic!("nothing was sent");
    };
    assert_eq!(error.kind, ErrorKind::Credential);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slurmctld_that_is_down_is_waited_for() {
    for version in [38, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        until(&cluster.manager, &job, is_running).await;
        cluster.emulator.stop_controller();
        let error = cluster.manager.poll(std::slice::from_ref(&job)).await.unwrap_err();
        assert!(!error.kind.is_final(), "v0.0.{version}: {error}");
        assert!(cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.is_err());
        assert!(cluster.manager.cancel(&job).await.is_err());
        let submission = cluster.submission("true", json!({}));
        let SubmitError::NotSubmitted(error) = cluster.manager.submit(&submission).await.unwrap_err() else {
            panic!("slurmctld refused the connection: nothing was submitted");
        };
        assert_eq!(error.kind, ErrorKind::Unreachable, "v0.0.{version}: {error}");
        cluster.emulator.start_controller();
        assert!(matches!(look(&cluster.manager, &job).await, Sighting::Alive(Phase::Running, _)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_slurmctld_lost_and_gave_away_is_never_taken_for_ours() {
    for version in [38, 42] {
        let cluster = Cluster::of_version(version).await;
        let lost = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        until(&cluster.manager, &lost, is_running).await;
        cluster.emulator.lose_jobs_younger_than(AGES);
        let other = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        assert_eq!(other.id, lost.id, "the id was given away");
        until(&cluster.manager, &other, is_running).await;
        assert_eq!(look(&cluster.manager, &lost).await, Sighting::Gone, "v0.0.{version}");
        cluster.manager.cancel(&lost).await.unwrap();
        let asked = Tracked { verify: true, ..lost.clone() };
        assert_eq!(Hold::release(&cluster.manager, &asked).await.unwrap(), HoldAnswer::Gone);
        assert_eq!(Hold::hold(&cluster.manager, &lost).await.unwrap(), HoldAnswer::Gone);
        assert!(matches!(look(&cluster.manager, &other).await, Sighting::Alive(Phase::Running, _)), "left alone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_purged_job_is_read_from_accounting() {
    for (version, code) in [(38, None), (42, Some(3))] {
        for stores_comments in [true, false] {
            let options = EmulatorOptions {
                versions: vec![version],
                accounting: true,
                accounting_stores_comments: stores_comments,
                ..EmulatorOptions::default()
            };
            let cluster = Cluster::with(options, Some(version)).await;
            let job = cluster.start(&cluster.submission("exit 3", json!({}))).await;
            assert_eq!(cluster.ended(&job).await.0.exit_code, Some(3));
            assert!(cluster.emulator.purge(job.id.as_str().parse().unwrap(), false));
            let (outcome, _) = cluster.ended(&job).await;
            assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, code), "v0.0.{version}");
            assert!(outcome.message.ends_with("(from accounting)"), "{}", outcome.message);
            let another = tracked(&job.id, &fresh_token());
            if stores_comments {
                assert_eq!(look(&cluster.manager, &another).await, Sighting::Gone, "another's token");
            }
            assert!(cluster.emulator.job_ids().is_empty());
            let unknown = tracked(&RemoteId::new("4711"), &fresh_token());
            assert_eq!(look(&cluster.manager, &unknown).await, Sighting::Gone);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounting_without_comments_does_not_show_another_job_under_a_lost_id_as_ours() {
    for version in [38, 42] {
        let options = EmulatorOptions {
            versions: vec![version],
            accounting: true,
            accounting_stores_comments: false,
            ..EmulatorOptions::default()
        };
        let cluster = Cluster::with(options, Some(version)).await;
        let lost = cluster.start(&cluster.submission("sleep 100", json!({}))).await;
        cluster.emulator.stop_controller();
        cluster.emulator.lose_jobs_younger_than(AGES);
        cluster.emulator.start_controller();
        let other = cluster.start(&cluster.submission("true", json!({}))).await;
        assert_eq!(lost.id, other.id, "slurmctld gives a lost id away again");
        assert_eq!(cluster.ended(&other).await.0.verdict, Verdict::Succeeded);
        let lost = Tracked { verify: true, ..lost };
        assert_eq!(look(&cluster.manager, &lost).await, Sighting::Gone, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_gone_only_after_accounting_was_asked() {
    let cluster = cluster(EmulatorOptions { accounting: true, ..EmulatorOptions::default() }).await;
    let job = cluster.start(&cluster.submission("true", json!({}))).await;
    cluster.ended(&job).await;
    cluster.emulator.purge(job.id.as_str().parse().unwrap(), true);
    // slurmctld answers that it knows no such job, then accounting does not answer.
    cluster.emulator.faults().nth(Operation::Poll, 2, bridge_testkit::faults::Fault::ServerError);
    let seen = look(&cluster.manager, &job).await;
    assert!(matches!(seen, Sighting::Unaccounted { .. }), "{seen:?}");
    assert_eq!(look(&cluster.manager, &job).await, Sighting::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_accounting_a_purged_job_says_so_and_the_others_are_seen() {
    for version in [36, 38, 42] {
        let options = EmulatorOptions { versions: vec![version], accounting: true, ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, Some(version)).await;
        let runs = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        until(&cluster.manager, &runs, is_running).await;
        let mut jobs = vec![runs.clone()];
        // More than are looked up in one round.
        for _ in 0..20 {
            let job = cluster.start(&cluster.submission("exit 3", json!({}))).await;
            cluster.ended(&job).await;
            assert!(cluster.emulator.purge(job.id.as_str().parse().unwrap(), false));
            jobs.push(job);
        }
        cluster.emulator.stop_accounting();
        let seen = cluster.manager.poll(&jobs).await.unwrap();
        assert!(matches!(seen[&runs.id], Sighting::Alive(Phase::Running, _)), "v0.0.{version}: {:?}", seen[&runs.id]);
        for job in &jobs[1..] {
            let Sighting::Unaccounted { why } = &seen[&job.id] else { panic!("v0.0.{version}: {:?}", seen[&job.id]) };
            assert!(why.starts_with(&format!("slurmctld no longer knows job {},", job.id)), "{why}");
            assert!(why.contains("Unable to connect to database; is slurmdbd running?"), "{why}");
        }
        cluster.emulator.start_accounting();
        let mut open = jobs[1..].to_vec();
        while !open.is_empty() {
            let seen = cluster.manager.poll(&open).await.unwrap();
            assert!(!seen.is_empty(), "v0.0.{version}: some are looked up in each round");
            assert!(seen.values().all(|seen| matches!(seen, Sighting::Ended(..))), "v0.0.{version}: {seen:?}");
            open.retain(|job| !seen.contains_key(&job.id));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_job_goes_back_to_the_queue_under_the_same_id() {
    for version in [38, 42] {
        let cluster = Cluster::of_version(version).await;
        // The second run takes longer than a job has between SIGTERM and SIGKILL, which are meant for the first.
        let script = "echo run >> runs; [ $(wc -l < runs) -ge 2 ] || while :; do sleep 0.1; done; sleep 0.6";
        let job = cluster.start(&cluster.submission(script, json!({}))).await;
        until(&cluster.manager, &job, is_running).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        // The shell makes the file some time before it writes the line.
        while std::fs::read_to_string(cluster.folder.join("runs")).unwrap_or_default() != "run\n" {
            assert!(tokio::time::Instant::now() < deadline, "the first run has not begun");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(cluster.emulator.requeue(job.id.as_str().parse().unwrap()));
        let (outcome, _) = cluster.ended(&job).await;
        assert_eq!(outcome.verdict, Verdict::Succeeded, "v0.0.{version}: {}", outcome.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_are_one_job_whose_tasks_are_counted() {
    for version in [36, 38, 40, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let properties = json!({"array": "0-3%2", "OutputFileName": "%A_%a.out"});
        let job = cluster.submission("echo task $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID", properties);
        let job = cluster.start(&job).await;
        let (outcome, facts) = cluster.ended(&job).await;
        assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, Some(1)), "v0.0.{version}");
        assert!(outcome.message.starts_with("4 of 4 tasks done, 3 failed; task 1: FAILED"), "{}", outcome.message);
        assert!(facts.started.is_some() && facts.ended.is_some());
        let output = std::fs::read_to_string(cluster.folder.join(format!("{}_2.out", job.id))).unwrap();
        assert_eq!(output, "task 2\n");

        let endless = cluster.submission("while :; do sleep 0.1; done", json!({"array": "1-3"}));
        let endless = cluster.start(&endless).await;
        until(&cluster.manager, &endless, is_running).await;
        cluster.manager.cancel(&endless).await.unwrap();
        let (outcome, _) = cluster.ended(&endless).await;
        assert_eq!(outcome.verdict, Verdict::Cancelled, "v0.0.{version}: {}", outcome.message);
        assert_eq!(cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap(), Found::Jobs(vec![job.id]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_variables_and_limits_reach_the_job() {
    for version in [36, 38, 39, 40, 41, 43, 45] {
        let options = EmulatorOptions {
            versions: vec![version],
            minute: Duration::from_millis(200),
            ..EmulatorOptions::default()
        };
        let cluster = Cluster::with(options, Some(version)).await;
        let properties = json!({
            "envPath": "/usr/bin:/bin", "environment": {"COLOUR": "blue"}, "OutputFileName": "%x-%j.txt",
            "slurmJobName": "named"
        });
        let mut job = cluster.submission("echo \"$COLOUR $PATH $# $1 $2\"; echo oops >&2", properties);
        job.parameters = r#"["--steps", "1 0"]"#.to_owned();
        let job = cluster.start(&job).await;
        let (_, facts) = cluster.ended(&job).await;
        let path = cluster.folder.join(format!("named-{}.txt", job.id));
        assert_eq!(facts.stdout.as_deref(), path.to_str(), "v0.0.{version}");
        assert_eq!(facts.stderr, facts.stdout, "v0.0.{version}");
        assert_eq!(facts.queue.as_deref(), Some("debug"));
        assert_eq!(facts.node.as_deref(), Some("localhost"));
        let output = std::fs::read_to_string(path).unwrap();
        assert_eq!(output, "blue /usr/bin:/bin 2 --steps 1 0\noops\n", "v0.0.{version}");

        let slow = cluster.start(&cluster.submission("while :; do sleep 0.05; done", json!({"runlimit": "1"}))).await;
        let (outcome, _) = cluster.ended(&slow).await;
        assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Failed, "TIMEOUT"), "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_stays_the_users() {
    for version in [36, 38, 45] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.submission("true", json!({"slurmJobName": "mine", "OutputFileName": "%x.txt"}));
        let job = cluster.start(&job).await;
        cluster.ended(&job).await;
        assert!(cluster.folder.join("mine.txt").exists(), "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_on_the_cluster_is_run_through_its_own_interpreter() {
    let cluster = Cluster::of_version(42).await;
    let script = cluster.folder.join("its own.sh");
    programs::write(&script, "#!/bin/sh\necho \"own $1\"\n");
    let mut job = cluster.submission("", json!({"OutputFileName": "remote.txt"}));
    job.script = Script::Remote(script.display().to_string());
    job.parameters = "one, two".to_owned();
    let submitted = cluster.manager.submit(&job).await.unwrap();
    assert!(submitted.warnings.iter().any(|note| note.contains("#SBATCH lines cannot be seen")), "{submitted:?}");
    let job = tracked(&submitted.id, &job.token);
    Hold::release(&cluster.manager, &job).await.unwrap();
    assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Succeeded);
    assert_eq!(std::fs::read_to_string(cluster.folder.join("remote.txt")).unwrap(), "own one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_are_seen_with_two_requests() {
    for version in [38, 42] {
        let cluster = Cluster::of_version(version).await;
        let jobs: Vec<Tracked> = (0..1000)
            .map(|_| {
                let token = fresh_token();
                let id = cluster.emulator.add_held_job(token.as_str());
                tracked(&RemoteId::new(id.to_string()), &token)
            })
            .collect();
        let counters = cluster.manager.counters();
        for round in 0..3 {
            let before = counters.snapshot().get("poll").map_or(0, |count| count.requests);
            let seen = cluster.manager.poll(&jobs).await.unwrap();
            assert_eq!(seen.len(), 1000);
            assert!(seen.values().all(|seen| matches!(seen, Sighting::Alive(Phase::Held, _))));
            let requests = counters.snapshot()["poll"].requests - before;
            assert!(requests <= 2, "{requests} requests in round {round} of v0.0.{version}");
            // What has not changed needs no details on a server that can tell states alone.
            assert!(version == 38 || round == 0 || requests == 1, "{requests} requests in round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_states_and_reasons_are_told() {
    let cluster = Cluster::of_version(42).await;
    let job = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
    until(&cluster.manager, &job, is_running).await;
    let id: u32 = job.id.as_str().parse().unwrap();
    let table: &[(&[&str], &str, Option<Phase>)] = &[
        (
            &["PENDING"],
            "QOSMaxJobsPerUserLimit",
            Some(Phase::Queued { reason: Some("QOSMaxJobsPerUserLimit".to_owned()) }),
        ),
        (&["PENDING", "REQUEUED"], "BeginTime", Some(Phase::Queued { reason: Some("BeginTime".to_owned()) })),
        (&["REQUEUE_HOLD"], "JobHeldAdmin", Some(Phase::Held)),
        (&["SUSPENDED"], "None", Some(Phase::Suspended)),
        (&["NEW_WORD"], "None", Some(Phase::Running)),
        (&["NODE_FAIL"], "NodeDown", None),
        (&["RUNNING"], "None", Some(Phase::Running)),
    ];
    for (words, reason, expected) in table {
        cluster.emulator.set_state(id, words, reason);
        match look(&cluster.manager, &job).await {
            Sighting::Alive(phase, _) => assert_eq!(Some(phase), *expected, "{words:?}"),
            Sighting::Ended(outcome, _) => {
                assert_eq!((None, outcome.verdict), (expected.clone(), Verdict::Failed), "{words:?}");
                assert_eq!(
                    (outcome.reason.as_str(), outcome.message.as_str()),
                    ("NODE_FAIL", "NodeDown, exit code unknown")
                );
            }
            seen => panic!("{words:?}: {seen:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_outside_of_the_shared_folders_is_never_read() {
    let cluster = Cluster::of_version(42).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "hush").unwrap();
    std::os::unix::fs::symlink(secret.path(), cluster.folder.join("link.txt")).unwrap();
    let outside = secret.path().display().to_string();
    let around = format!("{}/../{}", cluster.folder.display(), secret.path().file_name().unwrap().to_str().unwrap());
    for path in [outside, around, "link.txt".to_owned(), "/dev/null".to_owned()] {
        let job = cluster.submission("while :; do sleep 0.1; done", json!({"OutputFileName": path}));
        let submitted = cluster.manager.submit(&job).await.unwrap();
        let job = tracked(&submitted.id, &job.token);
        let answer = Logs::read(&cluster.manager, &job, LogStream::Stdout, LogCursor::default()).await;
        let ManagerError { kind, message, .. } = answer.unwrap_err();
        assert_eq!(kind, ErrorKind::Unsupported, "{message}");
        assert!(message.contains("cannot be read from here"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_leaves_one_job_that_runs_once() {
    for version in [38, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.submission("true", json!({}));
        cluster.emulator.faults().next(Operation::Submit, bridge_testkit::faults::Fault::LostReply);
        assert!(matches!(cluster.manager.submit(&job).await, Err(SubmitError::Unknown(_))));
        // Whoever goes on without looking makes a second one, which is held as well.
        let second = cluster.manager.submit(&job).await.unwrap().id;
        let Found::Jobs(ids) = cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap() else { panic!() };
        assert_eq!((ids.len(), &ids[1]), (2, &second), "the lowest id comes first");
        cluster.manager.cancel(&tracked(&second, &job.token)).await.unwrap();
        let kept = tracked(&ids[0], &job.token);
        Hold::release(&cluster.manager, &kept).await.unwrap();
        assert_eq!(cluster.ended(&kept).await.0.verdict, Verdict::Succeeded);
        assert_eq!(cluster.emulator.runs().len(), 1, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_where_the_secret_does_not_allow_it() {
    let cluster = Cluster::of_version(42).await;
    let secret = Changing::with_token("alice-token");
    secret.0.lock().unwrap().push(("allowedURL", format!("{}/slurm/v0.0.41", cluster.emulator.url())));
    let manager = adapter(&cluster.emulator.versioned_url(42), &cluster.folder, secret);
    let SubmitError::NotSubmitted(error) = manager.submit(&cluster.submission("true", json!({}))).await.unwrap_err()
    else {
        panic!("nothing was sent");
    };
    assert_eq!(error.kind, ErrorKind::Credential);
    assert!(error.message.contains("allowedURL"), "{error}");
    assert_eq!(cluster.emulator.faults().total(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priority_does_not_let_a_job_run_before_its_release() {
    for version in [36, 38, 39, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let answer = cluster.manager.submit(&cluster.submission("true", json!({"priority": 100}))).await;
        let Err(SubmitError::NotSubmitted(error)) = answer else { panic!("v0.0.{version}: {answer:?}") };
        assert_eq!(error.kind, ErrorKind::Refused, "v0.0.{version}: {error}");
        assert!(error.message.contains("use `nice`"), "v0.0.{version}: {error}");
        assert!(cluster.emulator.job_ids().is_empty(), "v0.0.{version}");
        let polite = cluster.manager.submit(&cluster.submission("true", json!({"nice": 100}))).await.unwrap();
        assert_eq!(cluster.emulator.job_ids(), [polite.id.as_str().parse::<u32>().unwrap()], "v0.0.{version}");
        assert!(cluster.emulator.runs().is_empty(), "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_no_final_refusal() {
    for version in [36, 38, 42, 45] {
        let options =
            EmulatorOptions { versions: vec![version], max_submit_jobs: Some(1), ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, Some(version)).await;
        let first = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        let second = cluster.submission("true", json!({}));
        let Err(SubmitError::NotSubmitted(error)) = cluster.manager.submit(&second).await else { panic!("it is full") };
        assert!(!error.kind.is_final(), "v0.0.{version}: {error}");
        assert!(error.message.contains("job submit limit"), "v0.0.{version}: {error}");
        cluster.manager.cancel(&first).await.unwrap();
        cluster.ended(&first).await;
        cluster.manager.submit(&second).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_reads_extra_as_constraints_gets_the_token_in_the_comment_alone() {
    for version in [40, 42, 45] {
        let options =
            EmulatorOptions { versions: vec![version], extra_constraints: true, ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, Some(version)).await;
        let requests = || cluster.manager.counters().snapshot().get("submit").map_or(0, |count| count.requests);
        let first = cluster.start(&cluster.submission("true", json!({}))).await;
        assert_eq!(requests(), 2, "v0.0.{version}");
        let second = cluster.start(&cluster.submission("true", json!({"extra": "rack=3"}))).await;
        assert_eq!(requests(), 3, "v0.0.{version}: it is remembered, and the user's own stays");
        for job in [&first, &second] {
            assert_eq!(cluster.ended(job).await.0.verdict, Verdict::Succeeded, "v0.0.{version}");
            let found = cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap();
            assert_eq!(found, Found::Jobs(vec![job.id.clone()]), "v0.0.{version}");
        }
        let answer = cluster.manager.submit(&cluster.submission("true", json!({"extra": "mine"}))).await;
        let Err(SubmitError::NotSubmitted(error)) = answer else { panic!("v0.0.{version}: {answer:?}") };
        assert_eq!(error.kind, ErrorKind::Refused, "v0.0.{version}: {error}");
        assert!(error.message.contains("Invalid extra constraints"), "v0.0.{version}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_all_jobs_may_take_its_time() {
    let cluster = Cluster::of_version(38).await;
    let job = cluster.start(&cluster.submission("true", json!({}))).await;
    cluster.ended(&job).await;
    let config = SlurmConfig {
        timeout: Duration::from_millis(500),
        listing_timeout: PATIENCE,
        ..SlurmConfig::new(cluster.emulator.versioned_url(38))
    };
    let manager = Slurm::new(config, credentials("alice", "alice-token"), Arc::new(SystemClock::new())).unwrap();
    let slow = bridge_testkit::faults::Fault::Delay(Duration::from_secs(2));
    cluster.emulator.faults().next(Operation::Poll, slow);
    let found = manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(found, Found::Jobs(vec![job.id.clone()]));
}
