//! After a job.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::manager::ErrorKind;
use bridge_core::plan::{ManagerKind, ScriptSource};
use bridge_core::staging::Staging as _;
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{Scene, object, sha256};

const PATIENCE: Duration = Duration::from_secs(60);

fn pattern(size: usize) -> Bytes {
    (0..size).map(|at| u8::try_from(at * 31 % 253).unwrap()).collect()
}

#[tokio::test]
async fn outputs_script_and_files_are_sent_to_a_bucket_that_is_made() {
    let odd = "we'ird \"n\" +%20&#?=;.txt";
    let mut scene = Scene::new().await.files(&["out/ergebnis ä.csv", "plots/*.png", "empty", "we'ird*"]);
    scene.desk.files.insert(odd.to_owned(), Bytes::from_static(b"odd"));
    scene.desk.stdout = pattern(200_000);
    scene.desk.stderr = Bytes::from_static(b"careful\n");
    scene.desk.files.insert("out/ergebnis ä.csv".to_owned(), Bytes::from_static(b"1;2"));
    scene.desk.files.insert("plots/a.png".to_owned(), pattern(70_000));
    scene.desk.files.insert("plots/b.png".to_owned(), Bytes::from_static(b"b"));
    scene.desk.files.insert("plots/c.txt".to_owned(), Bytes::from_static(b"c"));
    scene.desk.files.insert("empty".to_owned(), Bytes::new());

    let outputs = scene.take().await.unwrap();
    let keys: Vec<&str> = outputs.iter().map(|output| output.key.as_str()).collect();
    let names = ["script", "stdout", "stderr", "ergebnis ä.csv", "a.png", "b.png", "empty", odd];
    assert_eq!(keys, names.map(|name| format!("hello/{name}")));
    assert_eq!(scene.stored("hello/script"), b"#!/bin/sh\necho hello\n");
    assert_eq!(scene.stored("hello/stdout"), scene.desk.stdout);
    assert_eq!(scene.stored("hello/ergebnis ä.csv"), b"1;2");
    for output in &outputs {
        let content = scene.stored(&output.key);
        assert_eq!((output.bucket.as_str(), output.size), ("results", content.len() as u64));
        assert_eq!(output.checksum, sha256(&content));
    }
    let manifest = scene.manifest();
    assert_eq!(manifest["complete"], true);
    assert_eq!((&manifest["job"], &manifest["id"]), (&"hello".into(), &"7".into()));
    assert_eq!(manifest["outcome"]["exitCode"], 0);
    assert_eq!(manifest["files"].as_array().unwrap().len(), 8);
    assert_eq!(manifest["files"][4]["checksum"], sha256(&pattern(70_000)));
}

#[tokio::test]
async fn a_file_of_any_size_arrives_whole() {
    let mut scene = Scene::new().await.files(&["exact", "more", "many"]);
    let part = 8 * 1024 * 1024;
    for (name, size) in [("exact", part), ("more", part + 1), ("many", 2 * part + 12345)] {
        scene.desk.files.insert(name.to_owned(), pattern(size));
    }
    let outputs = scene.take().await.unwrap();
    for (name, content) in &scene.desk.files {
        assert!(scene.stored(&format!("hello/{name}")) == *content, "{name}");
        let output = outputs.iter().find(|output| output.key.ends_with(name.as_str())).unwrap();
        assert_eq!((output.size, &output.checksum), (content.len() as u64, &sha256(content)));
    }
}

#[tokio::test]
async fn what_the_job_did_not_write_is_named_and_the_rest_is_sent() {
    let mut scene = Scene::new().await.files(&["there", "not-there", "*.h5", "d/twin", "e/twin*"]);
    for name in ["there", "d/twin", "e/twin"] {
        scene.desk.files.insert(name.to_owned(), Bytes::from_static(b"x"));
    }
    let error = scene.take().await.unwrap_err();
    assert!(error.is_final, "{error}");
    for hint in ["\"not-there\"", "results:hello/not-there", "\"*.h5\"", "\"e/twin\"", "results:hello/twin"] {
        assert!(error.message.contains(hint), "{hint}: {error}");
    }
    let sent: Vec<&str> = error.sent.iter().map(|output| output.key.as_str()).collect();
    assert_eq!(sent, ["hello/script", "hello/stdout", "hello/stderr", "hello/there", "hello/twin"]);
    assert_eq!(scene.manifest()["missing"], serde_json::json!(["*.h5", "e/twin", "not-there"]));
}

#[tokio::test]
async fn a_folder_that_may_not_be_read_is_named_and_the_rest_is_sent() {
    let mut scene = Scene::new().await.files(&["*.csv", "exact"]);
    for name in ["a.csv", "exact"] {
        scene.desk.files.insert(name.to_owned(), Bytes::from_static(b"x"));
    }
    scene.desk.unread = vec!["private".to_owned(), "secret".to_owned()];
    let error = scene.take().await.unwrap_err();
    assert!(error.is_final && error.message.contains("\"private\" and 1 more may not be read"), "{error}");
    let sent: Vec<&str> = error.sent.iter().map(|output| output.key.as_str()).collect();
    assert_eq!(sent, ["hello/script", "hello/stdout", "hello/stderr", "hello/a.csv", "hello/exact"]);
}

#[tokio::test]
async fn after_a_crash_only_what_is_missing_is_sent() {
    let part = 8 * 1024 * 1024;
    let names: Vec<String> = (0..20).map(|number| format!("file-{number:02}")).collect();
    let listed: Vec<&str> = ["large"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut scene = Scene::new().await.files(&listed);
    scene.desk.files.insert("large".to_owned(), pattern(part + 100));
    for name in &names {
        scene.desk.files.insert(name.clone(), Bytes::from(format!("content of {name}")));
    }
    let gate = Arc::new(Semaphore::new(0));
    scene.desk.stuck = Some(("file-10".to_owned(), Arc::clone(&gate)));
    // Four are on their way at a time, in order: this one begins when the ten before the stuck one are done.
    let beyond_gate = scene.server.object_path("results", "hello/file-13");
    let scene = Arc::new(scene);
    let first = tokio::spawn({
        let scene = Arc::clone(&scene);
        async move { scene.take().await }
    });
    tokio::time::timeout(PATIENCE, async {
        while !beyond_gate.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());

    let puts = |name: &str| scene.server.door().puts(&format!("/results/hello/{name}"));
    let sent_first: Vec<&str> = ["stdout", "large"].into_iter().chain(names[..10].iter().map(String::as_str)).collect();
    for name in &sent_first {
        assert_eq!(puts(name), if *name == "large" { 2 } else { 1 }, "{name}");
    }
    assert!(!scene.server.object_path("results", "hello/file-10").exists());
    gate.add_permits(Semaphore::MAX_PERMITS);
    // One of those that arrived is another's by now.
    let server = &scene.server;
    let url = server.keys().presign("PUT", &server.endpoint(), "/results/hello/file-03", jiff::Timestamp::now(), 60);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    assert!(http.put(url).body("content of file-XX").send().await.unwrap().status().is_success());
    let outputs = scene.take().await.unwrap();
    assert_eq!(outputs.len(), 3 + 21);
    for name in sent_first {
        // The other's and ours, where another's was; the large file has two parts.
        let expected = if name == "file-03" { 1 + 2 } else { 1 + usize::from(name == "large") };
        assert_eq!(puts(name), expected, "{name}");
    }
    assert_eq!(scene.stored("hello/file-03"), b"content of file-03");
    assert_eq!(scene.stored("hello/file-19"), b"content of file-19");
    assert_eq!(scene.manifest()["complete"], true);
}

#[tokio::test]
async fn progress_is_told_while_data_moves() {
    let mut scene = Scene::new().await.files(&["slow"]);
    scene.desk.files.insert("slow".to_owned(), pattern(300_000));
    let gate = Arc::new(Semaphore::new(0));
    scene.desk.stuck = Some(("slow".to_owned(), Arc::clone(&gate)));
    let staging = scene.staging();
    assert_eq!(staging.progress(&scene.plan.key), None);
    let watch = async {
        tokio::time::timeout(PATIENCE, async {
            loop {
                let progress = staging.progress(&scene.plan.key);
                if progress.is_some_and(|progress| progress.files == 3) {
                    return progress.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .unwrap()
    };
    let (sent, progress) = tokio::join!(scene.take_with(&staging), async {
        let progress = watch.await;
        gate.add_permits(Semaphore::MAX_PERMITS);
        progress
    });
    sent.unwrap();
    assert_eq!(progress.of, 4);
    assert_eq!(staging.progress(&scene.plan.key), None, "it is over");
}

#[tokio::test]
async fn ray_has_one_log_and_a_remote_script_has_no_text() {
    let mut scene = Scene::new().await;
    scene.plan.target.manager = ManagerKind::Ray;
    scene.plan.script = ScriptSource::Remote("python x.py".to_owned());
    scene.desk.stdout = Bytes::from_static(b"log\n");
    let outputs = scene.take().await.unwrap();
    assert_eq!(outputs.iter().map(|output| output.key.as_str()).collect::<Vec<_>>(), ["hello/logs"]);
    assert_eq!(scene.stored("hello/logs"), b"log\n");
}

#[tokio::test]
async fn a_script_from_the_store_is_kept_beside_the_outputs_and_its_loss_harms_nothing() {
    let mut scene = Scene::new().await;
    scene.store("data", "script", b"#!/bin/sh\ntrue\n");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    assert_eq!(scene.take().await.unwrap().len(), 3);
    assert_eq!(scene.stored("hello/script"), b"#!/bin/sh\ntrue\n");
    // Nobody knows whether it is what ran.
    let remark = scene.manifest()["remarks"][0].to_string();
    assert!(remark.contains("data:script") && remark.contains("after the job had ended"), "{remark}");
    std::fs::remove_file(scene.server.object_path("data", "script")).unwrap();
    assert_eq!(scene.take().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_log_that_can_never_be_read_is_not_waited_for() {
    for (kind, is_final) in [(ErrorKind::Refused, true), (ErrorKind::Unreachable, false)] {
        let mut scene = Scene::new().await.files(&["file"]);
        scene.plan.target.manager = ManagerKind::Ray;
        scene.desk.unreadable = Some(kind);
        scene.desk.files.insert("file".to_owned(), Bytes::from_static(b"result"));
        let error = scene.take().await.unwrap_err();
        assert_eq!(error.is_final, is_final, "{error}");
        assert!(error.message.contains("results:hello/logs") && error.message.contains("not text"), "{error}");
        assert_eq!(scene.stored("hello/file"), b"result");
        let manifest = scene.manifest();
        assert_eq!((&manifest["complete"], &manifest["missing"][0]), (&is_final.into(), &"logs".into()));
    }
}
