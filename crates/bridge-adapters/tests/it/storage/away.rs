//! A store that is away, or refuses, while a job moves its data.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_adapters::ray::{Config, RayManager};
use bridge_core::credentials::StaticCredentials;
use bridge_core::plan::{ManagerKind, Script, ScriptSource, Submission};
use bridge_core::staging::Staging as _;
use bridge_testkit::s3::S3Server;
use tokio::net::TcpListener;

use super::carry::{Node, TOOLS, as_ray_runs, has, only, until};
use super::{Scene, object};

/// Waits for the test before it ends.
const WAITS: &str = "#!/bin/sh\necho out\necho result > result\n: > ready\nwhile [ ! -e go ]; do sleep 0.1; done\n";

/// The same server on the same port, with the same objects, but not at the same time.
async fn open_again(port: u16, root: &Path) -> S3Server {
    let listener = loop {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    S3Server::on(listener, root, bridge_testkit::s3::S3Keys::new("test-access-key", "test-secret-key")).unwrap()
}

/// A job whose store can be taken away and brought back. Its folder outlives it.
async fn on_a_store_of_its_own(scene: &mut Scene, root: &Path) -> u16 {
    scene.server = open_again(0, root).await;
    scene.plan.storage.as_mut().unwrap().endpoint = scene.server.address().to_string();
    scene.server.address().port()
}

fn with_clients(node: &mut Node, client: &str) {
    node.path = Some(only(node.folder.path(), &[TOOLS.as_slice(), &[client, "cat"]].concat()));
}

/// What may be lost on failures, in seconds.
pub(super) fn patience(submission: &mut Submission, seconds: u32) {
    let Script::Text(text) = &mut submission.script else { panic!() };
    for (word, mark) in [("bridge_patience", "="), ("PATIENCE", " = ")] {
        let from = format!("\n{word}{mark}300\n");
        *text = text.replace(&from, &format!("\n{word}{mark}{seconds}\n"));
    }
    assert!(!text.contains("=300\n") && !text.contains("= 300\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_restarts_when_a_job_ends_costs_no_results() {
    for client in ["curl", "wget"] {
        if !has(client) {
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let mut node = Node::new(WAITS).await;
        node.scene = node.scene.files(&["result"]);
        let port = on_a_store_of_its_own(&mut node.scene, root.path()).await;
        with_clients(&mut node, client);
        let submission = node.bring().await.unwrap();
        let child = node.start(&submission, &[]);
        until("the script", || node.file("ready").exists().then_some(())).await;
        // Another takes its place, so that nothing listens there.
        node.scene.server = S3Server::start().await.unwrap();
        std::fs::write(node.file("go"), "").unwrap();
        until("a failure", || node.said().contains("it is asked again").then_some(())).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        node.scene.server = open_again(port, root.path()).await;
        assert_eq!(node.ended(child).await.code(), Some(0), "{client}: {}", node.said());
        assert_eq!(node.take(0).await.unwrap().len(), 4, "{client}");
        assert_eq!(node.scene.stored("hello/result"), b"result\n");
        assert_eq!(node.said().matches("it is asked again").count(), 1, "{}", node.said());
        assert!(!node.said().contains("X-Amz"), "{}", node.said());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_tried_again_and_a_refusal_is_not() {
    for client in ["curl", "wget"] {
        if !has(client) {
            continue;
        }
        let mut node = Node::new("#!/bin/sh\necho a > one\necho a > two\n").await;
        node.scene = node.scene.files(&["one", "two"]);
        node.scene.store("data", "in", b"x");
        node.scene.plan.inputs = vec![object("data", "in")];
        with_clients(&mut node, client);
        let submission = node.bring().await.unwrap();
        let door = node.scene.server.door();
        door.refuse("GET", "/data/in", (503, "SlowDown"), 1);
        door.refuse("PUT", "/results/hello/stdout", (429, "TooManyRequests"), 1);
        door.refuse("PUT", "/results/hello/stderr", (408, "RequestTimeout"), 1);
        door.refuse("PUT", "/results/hello/one", (403, "AccessDenied"), usize::MAX);
        assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{client}: {}", node.said());
        let error = node.take(0).await.unwrap_err();
        assert!(error.is_final && error.message.contains("the job could not send it (status-403)"), "{error}");
        assert_eq!(error.sent.len(), 4, "{client}: {:?}", error.sent);
        let puts = ["stdout", "stderr", "one", "two"].map(|name| door.puts(&format!("/results/hello/{name}")));
        assert_eq!(puts, [2, 2, 1, 1], "{client}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_always_fails_does_not_cost_the_files_after_it() {
    for (shell, client) in [(&["dash"] as &[_], "curl"), (&["bash", "--posix"], "wget"), (&["busybox", "sh"], "curl")] {
        if !has(shell[0]) || !has(client) {
            continue;
        }
        let mut node = Node::new("#!/bin/sh\nfor n in one two three; do echo $n > $n; done\n").await;
        node.scene = node.scene.files(&["one", "two", "three"]);
        node.shell = shell;
        node.path = Some(only(node.folder.path(), &[TOOLS.as_slice(), &[shell[0], client]].concat()));
        let mut submission = node.bring().await.unwrap();
        patience(&mut submission, 10);
        let door = node.scene.server.door();
        door.refuse("PUT", "/results/hello/stdout", (503, "SlowDown"), 1);
        door.refuse("PUT", "/results/hello/one", (503, "SlowDown"), usize::MAX);
        door.refuse("PUT", "/results/hello/two", (503, "SlowDown"), 1);
        assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{shell:?}: {}", node.said());
        let error = node.take(0).await.unwrap_err();
        assert!(error.is_final && error.message.contains("the job could not send it (status-503)"), "{error}");
        let sent: Vec<&str> = error.sent.iter().map(|output| output.key.as_str()).collect();
        assert_eq!(
            sent,
            ["script", "stdout", "stderr", "two", "three"].map(|name| format!("hello/{name}")),
            "{shell:?}"
        );
        let puts = ["stdout", "stderr", "two", "three"].map(|name| door.puts(&format!("/results/hello/{name}")));
        assert_eq!(puts, [2, 1, 2, 1], "{shell:?}: {}", node.said());
    }
}

/// It takes the data and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_says_nothing_keeps_a_job_for_a_bounded_time() {
    for client in ["curl", "wget"] {
        if !has(client) {
            continue;
        }
        let names: Vec<String> = (0..30).map(|number| format!("file-{number}")).collect();
        let listed: Vec<&str> = names.iter().map(String::as_str).collect();
        let script =
            "#!/bin/sh\n: > ready\nwhile [ ! -e go ]; do sleep 0.1; done\nfor n in $(seq 0 29); do : > file-$n; done\n";
        let mut node = Node::new(script).await;
        node.scene = node.scene.files(&listed);
        node.path = Some(only(node.folder.path(), &[TOOLS.as_slice(), &[client, "cat", "seq"]].concat()));
        let mut submission = node.bring().await.unwrap();
        patience(&mut submission, 4);
        let Script::Text(text) = &mut submission.script else { panic!() };
        *text = text.replace("    bridge_allow 60\n", "    bridge_allow 2\n");
        let child = node.start(&submission, &[]);
        until("the script", || node.file("ready").exists().then_some(())).await;
        node.scene.server.door().close_for("/results/hello");
        std::fs::write(node.file("go"), "").unwrap();
        let began = Instant::now();
        assert_eq!(node.ended(child).await.code(), Some(0), "{client}: {}", node.said());
        assert!(began.elapsed() < Duration::from_secs(20), "{client}: {:?}", began.elapsed());
        assert_eq!(node.said().matches("could not be sent (given-up)").count(), 30 + 2, "{client}: {}", node.said());
    }
}

/// Slurm kills what is left of a cancelled job after half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_does_not_wait_long_for_a_store_that_is_away() {
    let root = tempfile::tempdir().unwrap();
    let mut node = Node::new(WAITS).await;
    node.scene = node.scene.files(&["result"]);
    on_a_store_of_its_own(&mut node.scene, root.path()).await;
    let submission = node.bring().await.unwrap();
    let child = node.start(&submission, &[]);
    until("the script", || node.file("ready").exists().then_some(())).await;
    node.scene.server = S3Server::start().await.unwrap();
    let wrapper = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let began = Instant::now();
    rustix::process::kill_process(wrapper, rustix::process::Signal::TERM).unwrap();
    assert_eq!(node.ended(child).await.code(), Some(143), "{}", node.said());
    assert!(began.elapsed() < Duration::from_secs(29), "{:?}", began.elapsed());
}

/// Slurm's signal at a time limit reaches the transfer as well, which may have gone on for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_a_signal_ends_is_made_again() {
    if !has("setsid") {
        return;
    }
    let mut node = Node::new("#!/bin/sh\necho result > result\n").await;
    node.scene = node.scene.files(&["result"]);
    node.shell = &["setsid", "sh"];
    let submission = node.bring().await.unwrap();
    let door = node.scene.server.door();
    door.close_for("/results/hello/result");
    let child = node.start(&submission, &[]);
    until("the transfer", || (door.puts("/results/hello/result") > 0).then_some(())).await;
    // Longer than what a cancelled job may lose.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let group = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
    door.open();
    assert_eq!(node.ended(child).await.code(), Some(0), "{}", node.said());
    assert_eq!(node.take(0).await.unwrap().len(), 4, "{}", node.said());
    assert_eq!(node.scene.stored("hello/result"), b"result\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ray_job_waits_for_its_store_as_well() {
    if !has("python3") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut scene = Scene::new().await.files(&["one", "two"]);
    let port = on_a_store_of_its_own(&mut scene, root.path()).await;
    scene.plan.target.manager = ManagerKind::Ray;
    let user = "import os, time\nopen('ready', 'w')\nwhile not os.path.exists('go'): time.sleep(0.05)\n\
                for name in ('one', 'two'): open(name, 'w').write(name)\n";
    scene.plan.script = ScriptSource::Inline(user.to_owned());
    let ray = RayManager::new(Config::new("http://127.0.0.1:1"), Arc::new(StaticCredentials::default())).unwrap();
    let mut submission = scene.staging().stage_in(&scene.plan, &scene.token, &ray).await.unwrap();
    for is_back in [true, false] {
        if !is_back {
            patience(&mut submission, 3);
        }
        let folder = tempfile::tempdir().unwrap();
        let Script::Text(text) = &submission.script else { panic!() };
        let text = if is_back { text.clone() } else { text.replace("patience.allow(60)", "patience.allow(1)") };
        std::fs::write(folder.path().join("script.py"), text).unwrap();
        let child = as_ray_runs(folder.path(), &[]).spawn().unwrap();
        until("the script", || folder.path().join("ready").exists().then_some(())).await;
        scene.server = S3Server::start().await.unwrap();
        let began = Instant::now();
        std::fs::write(folder.path().join("go"), "").unwrap();
        if is_back {
            tokio::time::sleep(Duration::from_secs(3)).await;
            scene.server = open_again(port, root.path()).await;
            scene.server.door().refuse("PUT", "/results/hello/two", (429, "TooManyRequests"), 1);
        }
        let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        if is_back {
            assert_eq!((scene.stored("hello/one"), scene.stored("hello/two")), (b"one".to_vec(), b"two".to_vec()));
            let report = String::from_utf8(scene.stored(&format!("hello/.bridge/{}", scene.token))).unwrap();
            assert!(report.ends_with("end 0\n"), "{report}");
        } else {
            assert!(said.contains("one could not be sent (ConnectionRefusedError)"), "{said}");
            assert!(said.contains("two could not be sent (ConnectionRefusedError)"), "{said}");
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
    }
}
