//! What users of the local manager rely on beyond what all managers do.

use bridge_adapters::local::LocalManager;
use bridge_core::manager::{ErrorKind, ResourceManager, Sighting, SubmitError, Verdict};
use bridge_core::plan::Submission;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;

use super::{Machine, PATIENCE, config, processes, submission, tracked, until, with_properties};

#[tokio::test]
async fn a_job_sees_a_short_environment_and_its_own_folder() {
    let machine = Machine::new();
    let job =
        machine.submit(&with_properties("env; pwd; echo \"args: $*\"", json!({"envPath": "/usr/bin:/bin"}))).await;
    let (outcome, facts) = machine.ended(&job).await;
    assert_eq!(outcome.verdict, Verdict::Succeeded);
    assert!(facts.started.unwrap() <= facts.ended.unwrap());
    assert!(facts.node.is_some());
    let output = std::fs::read_to_string(facts.stdout.unwrap()).unwrap();
    let variables: Vec<&str> = output.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let known = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "PWD", "JOBNAME"];
    // The last three are made by some shells.
    let others = ["BRIDGE_TOKEN", "BRIDGE_LOCAL_MARK", "_", "SHLVL", "OLDPWD"];
    for variable in variables {
        assert!(known.contains(&variable) || others.contains(&variable), "{variable} reached the job");
    }
    assert!(output.contains("JOBNAME=hello\n") && output.contains(&format!("BRIDGE_TOKEN={}\n", job.token)));
    assert!(output.contains("PATH=/usr/bin:/bin\n"));
    assert!(output.contains(&format!("/{}/work\n", job.token)), "{output}");
}

#[tokio::test]
async fn inputs_and_outputs_are_in_the_folder_that_was_asked_for() {
    let machine = Machine::new();
    let folder = machine.path("my folder");
    std::fs::create_dir(&folder).unwrap();
    let properties = json!({"currentWorkingDir": folder, "OutputFileName": "all.txt", "ErrorFileName": "all.txt"});
    let job = Submission {
        parameters: "one, two words".to_owned(),
        inputs: vec!["in.txt".to_owned()],
        ..with_properties("cat in.txt; echo \"$1:$2\"; echo error >&2; pwd; echo made > made.txt", properties)
    };
    let content = futures::stream::iter([Ok(Bytes::from("input\n"))]).boxed();
    machine.manager.files().unwrap().put(&job.token, "in.txt", content).await.unwrap();
    let job = machine.submit(&job).await;
    machine.ended(&job).await;
    let all = std::fs::read_to_string(folder.join("all.txt")).unwrap();
    assert_eq!(all, format!("input\none:two words\nerror\n{}\n", folder.display()));
    assert!(machine.manager.files().unwrap().get(&job, "made.txt").await.unwrap().is_some());
}

#[tokio::test]
async fn outputs_are_listed_by_pattern_in_all_folders() {
    let machine = Machine::new();
    let script =
        "mkdir -p a/b; echo 1 > a/b/x.out; echo 22 > a/y.out; echo > z.log; ln -s .. a/loop; ln -s ../z.log a/l.out";
    let job = machine.submit(&submission(script)).await;
    machine.ended(&job).await;
    let files = machine.manager.files().unwrap();
    let found = async |pattern: &str| -> Vec<(String, u64)> {
        let listing = files.matching(&job, pattern).await.unwrap();
        assert!(listing.unread.is_empty(), "{listing:?}");
        listing.files.into_iter().map(|entry| (entry.name, entry.size)).collect()
    };
    let expect =
        |names: &[(&str, u64)]| names.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect::<Vec<_>>();
    assert_eq!(found("**/*.out").await, expect(&[("a/b/x.out", 2), ("a/l.out", 1), ("a/y.out", 3)]));
    assert_eq!(found("a/*.out").await, expect(&[("a/l.out", 1), ("a/y.out", 3)]));
    assert_eq!(found("*.log").await, expect(&[("z.log", 1)]));
    assert_eq!(found("no/such/*").await, expect(&[]));
    assert_eq!(found("a/b/x.out").await, expect(&[("a/b/x.out", 2)]));
    assert_eq!(found("a/b").await, expect(&[]));
    assert_eq!(found("z.log/none").await, expect(&[]));
    assert_eq!(files.matching(&job, "../*").await.unwrap_err().kind, ErrorKind::Refused);
}

#[tokio::test]
async fn a_job_that_ignores_sigterm_is_killed_after_the_grace() {
    let machine = Machine::new();
    let job = machine.submit(&submission("trap '' TERM; echo ready > ready; while :; do sleep 0.1; done")).await;
    machine.written(&format!("jobs/{}/work/ready", job.token)).await;
    machine.manager.cancel(&job).await.unwrap();
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!((outcome.verdict, outcome.signal), (Verdict::Cancelled, Some(9)));
}

#[tokio::test]
async fn a_job_that_cleans_up_on_sigterm_is_cancelled_with_its_code() {
    let machine = Machine::with_grace(PATIENCE);
    let script = "trap 'echo cleaned > cleaned; exit 7' TERM; echo ready > ready; while :; do sleep 0.1; done";
    let job = machine.submit(&submission(script)).await;
    machine.written(&format!("jobs/{}/work/ready", job.token)).await;
    machine.manager.cancel(&job).await.unwrap();
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Cancelled, Some(7)));
    assert!(machine.path(&format!("jobs/{}/work/cleaned", job.token)).exists());
}

#[tokio::test]
async fn a_stopped_job_hears_of_its_cancel() {
    let machine = Machine::new();
    let job = machine.submit(&submission("echo ready > ready; kill -STOP $$; exit 0")).await;
    machine.written(&format!("jobs/{}/work/ready", job.token)).await;
    machine.manager.cancel(&job).await.unwrap();
    assert_eq!(machine.ended(&job).await.0.verdict, Verdict::Cancelled);
}

#[tokio::test]
async fn a_job_over_its_limit_times_out() {
    let machine = Machine::new();
    let job = machine.submit(&with_properties("while :; do sleep 0.1; done", json!({"runlimit": "0.005"}))).await;
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Failed, "TIMEOUT"));
}

#[tokio::test]
async fn what_a_job_leaves_running_ends_with_it() {
    let machine = Machine::new();
    // One in another process group, one in another session: neither gets a signal sent to the script's group.
    let job = machine.submit(&submission("sleep 600 & setsid sleep 600 & timeout 600 sleep 600 & exit 0")).await;
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!(outcome.verdict, Verdict::Succeeded);
    until("the processes' end", async || processes(&job.token).is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_signal_from_elsewhere_is_a_failure() {
    let machine = Machine::new();
    let job = machine.submit(&submission("kill -KILL $$")).await;
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!((outcome.verdict, outcome.signal, outcome.exit_code), (Verdict::Failed, Some(9), None));
}

#[tokio::test]
async fn a_job_that_cannot_start_says_why() {
    let machine = Machine::new();
    let job = machine.submit(&with_properties("true", json!({"OutputFileName": "/no/such/folder/out"}))).await;
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Failed, "NOT_STARTED"));
    assert!(outcome.message.contains("/no/such/folder/out"), "{}", outcome.message);
}

#[tokio::test]
async fn a_running_job_is_not_removed_and_an_ended_one_is() {
    let machine = Machine::new();
    let job = machine.submit(&submission("while :; do sleep 0.1; done")).await;
    let error = machine.manager.remove(&job.token).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    machine.manager.cancel(&job).await.unwrap();
    machine.ended(&job).await;
    machine.manager.remove(&job.token).await.unwrap();
    assert_eq!(std::fs::read_dir(machine.path("jobs")).unwrap().count(), 0);
    machine.manager.remove(&job.token).await.unwrap();
}

#[tokio::test]
async fn a_supervisor_that_does_not_run_means_not_submitted() {
    let machine = Machine::new();
    let job = submission("true");
    for program in ["/no/such/program", "/bin/false"] {
        let mut config = config(machine.folder.path());
        config.supervisor.0 = program.into();
        match LocalManager::new(config).submit(&job).await {
            Err(SubmitError::NotSubmitted(error)) => assert!(!error.kind.is_final(), "{error}"),
            other => panic!("{program}: {other:?}"),
        }
        assert_eq!(machine.find(&job.token).await, bridge_core::manager::Found::Absent);
    }
    let job = machine.submit(&job).await;
    assert_eq!(machine.ended(&job).await.0.verdict, Verdict::Succeeded);
}

#[tokio::test]
async fn damaged_files_are_an_error_and_never_gone() {
    let machine = Machine::new();
    let job = machine.submit(&submission("true")).await;
    machine.ended(&job).await;
    for name in ["end.json", "start.json"] {
        std::fs::write(machine.path(&format!("jobs/{}/job/{name}", job.token)), "{").unwrap();
        let error = machine.manager.poll(std::slice::from_ref(&job)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.message.contains(name), "{error}");
    }
    assert!(machine.manager.find(&job.token, jiff::Timestamp::UNIX_EPOCH).await.is_err());
}

#[tokio::test]
async fn a_token_that_is_a_path_reaches_nothing() {
    let machine = Machine::new();
    let token: bridge_core::ids::SubmitToken = serde_json::from_str("\"../escape\"").unwrap();
    assert_eq!(machine.look(&tracked(&token)).await, Sighting::Gone);
    machine.manager.cancel(&tracked(&token)).await.unwrap();
    let job = Submission { token, ..submission("true") };
    assert!(matches!(machine.manager.submit(&job).await, Err(SubmitError::NotSubmitted(_))));
}

#[tokio::test]
async fn output_is_followed_while_it_is_written() {
    let machine = Machine::new();
    let job = machine.submit(&submission("echo one; until [ -e go ]; do sleep 0.05; done; echo two")).await;
    let logs = machine.manager.logs().unwrap();
    let stdout = bridge_core::manager::LogStream::Stdout;
    let first = until("the first line", async || {
        let chunk = logs.read(&job, stdout, bridge_core::manager::LogCursor::default()).await.unwrap();
        assert!(!chunk.end);
        (!chunk.data.is_empty()).then_some(chunk)
    })
    .await;
    assert_eq!(first.data, "one\n");
    std::fs::write(machine.path(&format!("jobs/{}/work/go", job.token)), "").unwrap();
    let mut rest = Vec::new();
    let mut cursor = first.next;
    until("the end of the output", async || {
        let chunk = logs.read(&job, stdout, cursor).await.unwrap();
        rest.extend_from_slice(&chunk.data);
        cursor = chunk.next;
        chunk.end.then_some(())
    })
    .await;
    assert_eq!(rest, b"two\n");
    assert_eq!(machine.ended(&job).await.0.verdict, Verdict::Succeeded);
}
