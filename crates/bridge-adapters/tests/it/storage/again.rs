//! A second look at what a job sent: after a crash of ours, and after a run of the job that was broken off.

use std::time::Duration;

use bridge_core::plan::Submission;
use bridge_core::staging::{Output, StagingError};
use bytes::Bytes;
use serde_json::json;

use super::Scene;
use super::carry::{Node, until};

const DENIED: (u16, &str) = (403, "AccessDenied");
const MANIFEST: &str = "/results/hello/manifest.json";

fn keys(outputs: &[Output]) -> Vec<&str> {
    outputs.iter().map(|output| output.key.as_str()).collect()
}

/// A job that has run, and a crash of ours that let everything but the manifest arrive.
async fn crashed_before_the_manifest(node: &Node) {
    node.scene.server.door().refuse("PUT", MANIFEST, DENIED, 1);
    let error = node.take(0).await.unwrap_err();
    assert!(!error.is_final, "{error}");
    assert!(!node.scene.server.object_path("results", "hello/manifest.json").exists());
}

#[tokio::test]
async fn a_crash_before_the_manifest_loses_nothing_of_what_we_send() {
    let mut scene = Scene::new().await.files(&["large", "small"]);
    scene.desk.stdout = Bytes::from_static(b"hello\n");
    scene.desk.files.insert("large".to_owned(), Bytes::from(vec![7; 9_000_000]));
    scene.desk.files.insert("small".to_owned(), Bytes::from_static(b"small"));
    // The first is written after the large file; what crashes is the last.
    let door = scene.server.door();
    door.refuse("PUT", "/results/hello/small", DENIED, 1);
    assert!(!scene.take().await.unwrap_err().is_final);
    assert_eq!(scene.manifest()["complete"], false);
    door.refuse("PUT", MANIFEST, DENIED, 1);
    assert!(!scene.take().await.unwrap_err().is_final);
    assert_eq!(scene.stored("hello/small"), b"small");
    assert_eq!(scene.manifest()["complete"], false);

    let outputs = scene.take().await.unwrap();
    let names = ["script", "stdout", "stderr", "large", "small"];
    assert_eq!(keys(&outputs), names.map(|name| format!("hello/{name}")));
    let manifest = scene.manifest();
    assert_eq!(manifest["complete"], true);
    let listed = manifest["files"].as_array().unwrap();
    for (output, entry) in outputs.iter().zip(listed) {
        let content = scene.stored(&output.key);
        assert_eq!((output.size, &output.checksum), (content.len() as u64, &super::sha256(&content)));
        assert_eq!((&entry["key"], &entry["checksum"]), (&json!(output.key), &json!(output.checksum)));
    }
    assert_eq!(listed.len(), outputs.len());
    assert_eq!(door.puts("/results/hello/large"), 2, "two parts, once");
    assert_eq!(door.puts("/results/hello/stdout"), 1);
    assert_eq!(door.puts("/results/hello/small"), 2, "refused once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_manifest_loses_nothing_of_what_a_job_sent() {
    let mut node = Node::new("#!/bin/sh\necho out\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    node.run_into_one_file(&submission).await;
    crashed_before_the_manifest(&node).await;
    let outputs = node.take(0).await.unwrap();
    assert_eq!(keys(&outputs), ["hello/script", "hello/stdout", "hello/result"]);
    assert_eq!((&node.scene.manifest()["complete"], &node.scene.manifest()["missing"]), (&json!(true), &json!(null)));
}

/// The manifest is written and the job's own account removed, and then we crash before we could save that.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_manifest_makes_complete_outputs_no_less_complete() {
    let mut node = Node::new("#!/bin/sh\necho out\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    // Only the account tells that there is no error output to wait for.
    node.run_into_one_file(&submission).await;
    let first = node.take(0).await.unwrap();
    let (manifest, door) = (node.scene.stored("hello/manifest.json"), node.scene.server.door());
    let before = door.seen().len();

    door.refuse("GET", MANIFEST, DENIED, 1);
    let error = node.take(0).await.unwrap_err();
    assert!(!error.is_final, "what cannot be read now may say that all is well: {error}");

    assert_eq!(node.take(0).await.unwrap(), first);
    assert_eq!(node.scene.stored("hello/manifest.json"), manifest);
    assert!(door.seen()[before..].iter().all(|request| request.method != "PUT"), "{:?}", door.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_manifest_still_tells_what_is_missing() {
    let mut node = Node::new("#!/bin/sh\necho out\n").await;
    node.scene = node.scene.files(&["never"]);
    let submission = node.bring().await.unwrap();
    node.run_into_one_file(&submission).await;
    let first = node.take(0).await.unwrap_err();
    assert!(first.is_final && first.message.contains("the job did not write it"), "{first}");
    let second = node.take(0).await.unwrap_err();
    assert!(second.is_final && second.message.contains("results:hello/never"), "{second}");
    assert!(!second.message.contains("reported nothing"), "{second}");
    assert_eq!(second.sent, first.sent);
    assert_eq!(node.scene.manifest()["missing"], json!(["never"]));
}

/// What an attempt before this one left under the same names, complete, is not the result of this one.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_an_earlier_attempt_is_not_taken_for_ours() {
    let mut node = Node::new("#!/bin/sh\necho out\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    node.run_into_one_file(&submission).await;
    node.take(0).await.unwrap();
    node.scene.token = bridge_core::ids::SubmitToken::derive(&node.scene.plan.uid, 2);
    let error = node.take(1).await.unwrap_err();
    assert!(error.is_final && error.message.contains("the job reported nothing"), "{error}");
    assert_eq!(keys(&error.sent), ["hello/script"]);
}

/// Slurm runs a job again under the same id when its node fails: with the same script, and so the same URLs.
const REQUEUED: &str = "#!/bin/sh\nif [ -e go-on ]; then\n    echo new | tee result\nelif [ -e first ]; then\n    \
                        echo $$ > second\n    while :; do sleep 0.1; done\nelse\n    : > first\n    echo old | tee result\nfi\n";

/// A job whose first run sent everything and whose second is killed with its node, before it sends anything.
async fn broken_off() -> (Node, Submission) {
    let mut node = Node::new(REQUEUED).await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    assert_eq!(node.scene.stored("hello/result"), b"old\n");
    let mut second = node.start(&submission, &[]);
    let script = until("the second run", || node.read("second").trim().parse::<i32>().ok()).await;
    for process in [i32::try_from(second.id()).unwrap(), script] {
        let process = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }
    second.wait().unwrap();
    (node, submission)
}

/// Does not wait for the end of the job's account, as long as that takes.
async fn take_later(node: &Node, code: i32) -> Result<Vec<Output>, StagingError> {
    let account = format!("/results/hello/.bridge/{}", node.scene.token);
    let asked = || {
        let seen = node.scene.server.door().seen();
        seen.iter().any(|request| request.method == "GET" && request.path == account).then_some(())
    };
    let time_passes = async {
        until("a look at the account", asked).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(46)).await;
        tokio::time::resume();
    };
    tokio::join!(node.take(code), time_passes).0
}

#[tokio::test]
async fn what_a_broken_off_run_sent_is_not_taken_for_the_results_of_the_next() {
    let (node, _) = broken_off().await;
    let error = take_later(&node, 137).await.unwrap_err();
    assert!(error.is_final, "{error}");
    assert!(error.message.contains("the job was ended before it had sent everything"), "{error}");
    for name in ["stdout", "stderr", "result"] {
        let told = format!("\"results:hello/{name}\" is there, but may be of a run that was broken off before");
        assert!(error.message.contains(&told), "{error}");
    }
    assert_eq!(node.scene.manifest()["missing"], json!(["stdout", "stderr", "result"]));
    let again = node.take(137).await.unwrap_err();
    assert!(again.is_final && again.message.contains("results:hello/result"), "{again}");
}

/// The second run never reached the store, so that the account of the first is still there, and complete.
#[tokio::test]
async fn the_account_of_an_earlier_run_does_not_vouch_for_a_later_one() {
    let mut node = Node::new("#!/bin/sh\necho out\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    let error = take_later(&node, 4).await.unwrap_err();
    assert!(error.is_final && error.message.contains("another exit code than the job"), "{error}");
    assert!(error.message.contains("\"results:hello/result\" is there, but may be of a run"), "{error}");
}

#[tokio::test]
async fn a_run_that_comes_to_its_end_counts_whatever_was_broken_off_before() {
    let (node, submission) = broken_off().await;
    std::fs::write(node.file("go-on"), "").unwrap();
    let mut third = node.start(&submission, &[]);
    assert_eq!(until("its end", || third.try_wait().unwrap()).await.code(), Some(0), "{}", node.said());
    let outputs = node.take(0).await.unwrap();
    assert_eq!(keys(&outputs), ["hello/script", "hello/stdout", "hello/stderr", "hello/result"]);
    assert_eq!(node.scene.stored("hello/result"), b"new\n");
    assert_eq!(node.scene.stored("hello/stdout"), b"new\n");
    assert_eq!(node.scene.manifest()["missing"], json!(null));
}

/// A gateway on the way that has lost sight of the store says 404 of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_gateway_says_is_missing_is_not_given_up() {
    let mut node = Node::new("#!/bin/sh\necho out\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    let account = format!("/results/hello/.bridge/{}", node.scene.token);
    let door = node.scene.server.door();
    let by_gateway = (404, "");
    door.refuse("GET", &account, by_gateway, 1);
    let error = node.take(0).await.unwrap_err();
    assert!(!error.is_final && error.message.contains("status 404"), "{error}");

    for method in ["HEAD", "GET"] {
        door.refuse(method, "/results/hello/result", by_gateway, 1);
    }
    let error = node.take(0).await.unwrap_err();
    assert!(!error.is_final && error.message.contains("results:hello/result"), "{error}");

    door.refuse("HEAD", "/results/hello/result", by_gateway, 1);
    let outputs = node.take(0).await.unwrap();
    assert_eq!(keys(&outputs), ["hello/script", "hello/stdout", "hello/stderr", "hello/result"]);
    assert_eq!(node.scene.manifest()["complete"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_itself_says_is_missing_is_missing() {
    let mut node = Node::new("#!/bin/sh\necho out\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    std::fs::remove_file(node.scene.server.object_path("results", "hello/result")).unwrap();
    let error = node.take(0).await.unwrap_err();
    assert!(error.is_final && error.message.contains("it is not there"), "{error}");
}

/// Each attempt has an account of its own, and only the last is read.
#[tokio::test(flavor = "multi_thread")]
async fn the_accounts_of_earlier_attempts_are_removed_with_the_last() {
    let mut node = Node::new("#!/bin/sh\necho out\n").await;
    let uid = node.scene.plan.uid.clone();
    let other = "hello/.bridge/bridge-4567-1";
    node.scene.store("results", other, b"start\n");
    let mut accounts = Vec::new();
    for attempt in 1..=3 {
        node.scene.token = bridge_core::ids::SubmitToken::derive(&uid, attempt);
        let submission = node.bring().await.unwrap();
        assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
        let account = node.scene.server.object_path("results", &format!("hello/.bridge/{}", node.scene.token));
        assert!(account.exists());
        accounts.push(account);
    }
    node.take(0).await.unwrap();
    assert!(accounts.iter().all(|account| !account.exists()), "{accounts:?}");
    assert!(node.scene.server.object_path("results", other).exists(), "it is another job's");
}

/// A policy of its own keeps one object from being looked at.
#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_may_not_be_looked_at_keeps_back_no_other() {
    let mut node = Node::new("#!/bin/sh\necho out\necho a > a\necho b > b\necho c > c\n").await;
    node.scene = node.scene.files(&["a", "b", "c"]);
    let submission = node.bring().await.unwrap();
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    let door = node.scene.server.door();
    for method in ["HEAD", "GET"] {
        door.refuse(method, "/results/hello/b", DENIED, usize::MAX);
    }
    let error = node.take(0).await.unwrap_err();
    assert!(!error.is_final && error.message.contains("results:hello/b"), "{error}");
    assert_eq!(keys(&error.sent), ["script", "stdout", "stderr", "a", "c"].map(|name| format!("hello/{name}")));
    let manifest = node.scene.manifest();
    assert_eq!((&manifest["complete"], &manifest["missing"]), (&json!(false), &json!(["b"])));

    // What the store answers to nobody is asked for no further.
    door.refuse("PUT", MANIFEST, DENIED, usize::MAX);
    for name in ["stdout", "stderr", "a"] {
        door.refuse("HEAD", &format!("/results/hello/{name}"), DENIED, usize::MAX);
    }
    let looked_at_c = || door.seen().iter().filter(|one| one.method == "HEAD" && one.path.ends_with("/c")).count();
    let before = looked_at_c();
    let error = node.take(0).await.unwrap_err();
    assert!(!error.is_final, "{error}");
    assert_eq!((keys(&error.sent), looked_at_c()), (vec!["hello/script"], before));
}

#[tokio::test]
async fn a_large_object_that_could_not_be_looked_at_once_is_not_sent_again() {
    let mut scene = Scene::new().await.files(&["large", "small"]);
    scene.desk.files.insert("large".to_owned(), Bytes::from(vec![7; 9_000_000]));
    scene.desk.files.insert("small".to_owned(), Bytes::from_static(b"small"));
    let door = scene.server.door();
    door.refuse("PUT", "/results/hello/small", DENIED, 1);
    assert!(!scene.take().await.unwrap_err().is_final);
    // As often as it is asked in one try.
    door.refuse("HEAD", "/results/hello/large", (503, "SlowDown"), 5);
    let error = scene.take().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("results:hello/large"), "{error}");
    assert_eq!(keys(&error.sent), ["script", "stdout", "stderr", "small"].map(|name| format!("hello/{name}")));
    let outputs = scene.take().await.unwrap();
    assert_eq!(outputs.len(), 5);
    assert_eq!(door.puts("/results/hello/large"), 2, "two parts, once");
    let listed = scene.manifest()["files"].as_array().unwrap().len();
    assert_eq!((&scene.manifest()["complete"], listed), (&json!(true), 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_the_store_never_takes_is_not_waited_for() {
    for (refusal, is_final) in [((400, "InvalidArgument"), true), (DENIED, false)] {
        let node = Node::new("#!/bin/sh\necho out\n").await;
        let submission = node.bring().await.unwrap();
        assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
        node.scene.server.door().refuse("PUT", "/results/hello/script", refusal, usize::MAX);
        let error = node.take(0).await.unwrap_err();
        assert_eq!(error.is_final, is_final, "{error}");
        assert_eq!(keys(&error.sent), ["hello/stdout", "hello/stderr"]);
        assert_eq!(node.scene.manifest()["complete"], is_final);
    }
}
