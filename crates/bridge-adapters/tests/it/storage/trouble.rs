//! A store that refuses, stumbles or gives back something else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials};
use bridge_core::plan::ScriptSource;
use bridge_core::staging::{Output, Staging as _};
use bridge_testkit::s3::Request;
use bytes::Bytes;

use super::carry::Node;
use super::{Scene, credentials, object, sha256};

const DENIED: (u16, &str) = (403, "AccessDenied");

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_is_sent_again_and_no_other() {
    let mut scene = Scene::new().await.files(&["large"]);
    let content: Bytes = (0..12_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    scene.desk.files.insert("large".to_owned(), content.clone());
    scene.server.door().refuse("PUT", "/results/hello/large", (503, "SlowDown"), 2);
    scene.server.door().refuse("PUT", "/results/hello/stdout", (500, "InternalError"), 1);
    let outputs = scene.take().await.unwrap();
    assert_eq!(outputs.last().unwrap().checksum, sha256(&content));
    assert!(scene.stored("hello/large") == content);
    assert_eq!(scene.server.door().puts("/results/hello/large"), 3 + 2, "three parts, two of them twice");
    assert_eq!(scene.server.door().puts("/results/hello/stdout"), 2);
}

/// A Secret whose session token someone renews.
#[derive(Debug)]
struct Secret {
    pairs: Vec<(String, String)>,
    token: Mutex<&'static str>,
    reads: AtomicUsize,
}

#[async_trait]
impl CredentialSource for Secret {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let token = ("sessiontoken".to_owned(), (*self.token.lock().unwrap()).to_owned());
        Ok(Credentials::from_pairs(self.pairs.iter().cloned().chain([token])))
    }
}

/// Sends outputs. When so many requests are on their way at the same time, their token ends and there is another.
async fn renewed_while_on_their_way(scene: &Scene, path: &str, together: usize) -> (Vec<Output>, usize) {
    let secret =
        Arc::new(Secret { pairs: credentials(&scene.server), token: Mutex::new("old"), reads: AtomicUsize::new(0) });
    let staging = S3Staging::new(Arc::clone(&secret) as _, Arc::new(SystemClock::new()));
    let door = scene.server.door();
    door.close_for(path);
    let renew = async {
        let waiting = || door.seen().iter().filter(|one| one.method == "PUT" && one.path.contains(path)).count();
        while waiting() < together {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        *secret.token.lock().unwrap() = "new";
        door.end_token("old");
        secret.reads.store(0, Ordering::Relaxed);
        door.open();
    };
    let both = async { tokio::join!(scene.take_with(&staging), renew).0 };
    let outputs = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    (outputs.unwrap(), secret.reads.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_in_the_middle_of_an_upload_is_replaced_and_the_upload_goes_on() {
    let mut scene = Scene::new().await.files(&["large"]);
    let content: Bytes = (0..17_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    scene.desk.files.insert("large".to_owned(), content.clone());
    let (_, reads) = renewed_while_on_their_way(&scene, "/results/hello/large", 3).await;
    assert!(scene.stored("hello/large") == content);
    assert_eq!(scene.server.door().puts("/results/hello/large"), 4 + 3, "four parts, those that were refused twice");
    let begun = |request: &&Request| request.method == "POST" && request.path == "/results/hello/large";
    assert_eq!(scene.server.door().seen().iter().filter(begun).count(), 2, "one beginning, one end");
    assert_eq!(reads, 1, "the first that was refused reads the Secret for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_that_meet_the_end_of_a_token_together_all_arrive() {
    let names = ["small-1", "small-2", "small-3", "small-4"];
    let mut scene = Scene::new().await.files(&names);
    for name in names {
        scene.desk.files.insert(name.to_owned(), Bytes::from(format!("content of {name}")));
    }
    let (outputs, reads) = renewed_while_on_their_way(&scene, "/results/hello/small-", 4).await;
    assert_eq!((outputs.len(), reads), (3 + 4, 1));
    for name in names {
        assert_eq!(scene.stored(&format!("hello/{name}")), format!("content of {name}").as_bytes());
        assert_eq!(scene.server.door().puts(&format!("/results/hello/{name}")), 2);
    }
}

/// Other keys at each reading.
#[derive(Debug)]
struct Restless {
    pairs: Vec<(String, String)>,
    reads: AtomicUsize,
}

#[async_trait]
impl CredentialSource for Restless {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let token = format!("token-{}", self.reads.fetch_add(1, Ordering::Relaxed));
        Ok(Credentials::from_pairs(self.pairs.iter().cloned().chain([("sessiontoken".to_owned(), token)])))
    }
}

#[tokio::test]
async fn a_store_that_refuses_all_keys_is_not_asked_for_ever() {
    let mut scene = Scene::new().await;
    scene.store("data", "script", b"#!/bin/sh\n");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    scene.server.door().refuse("GET", "/data/script", (403, "AccessDenied"), usize::MAX);
    let keys = Restless { pairs: credentials(&scene.server), reads: AtomicUsize::new(0) };
    let staging = S3Staging::new(Arc::new(keys), Arc::new(SystemClock::new()));
    let error = staging.stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap_err();
    assert!(!error.is_final && error.message.contains("AccessDenied"), "{error}");
    assert_eq!(scene.server.door().seen().len(), 1 + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_keys_may_not_do_is_told_and_may_be_granted() {
    let mut scene = Scene::new().await.files(&["large"]);
    scene.store("data", "script", b"#!/bin/sh\n");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    scene.server.door().refuse("GET", "/data/script", DENIED, 1);
    let error = scene.bring().await.unwrap_err();
    assert!(!error.is_final, "{error}");
    for hint in ["data:script", "\"s3-keys\"", "AccessDenied"] {
        assert!(error.message.contains(hint), "{hint}: {error}");
    }
    scene.bring().await.unwrap();

    for (content, (method, path, named)) in [
        ("PUT", "/results/hello/stdout", "results:hello/stdout"),
        ("POST", "/results/hello/large", "results:hello/large"),
        ("PUT", "/results/hello/large", "results:hello/large"),
    ]
    .into_iter()
    .enumerate()
    {
        // What was sent while another object was refused would not be sent again.
        scene.desk.files.insert("large".to_owned(), Bytes::from(vec![u8::try_from(content).unwrap(); 12_000_000]));
        scene.server.door().refuse(method, path, DENIED, 1);
        let error = scene.take().await.unwrap_err();
        assert!(!error.is_final && error.message.contains("AccessDenied"), "{error}");
        assert!(error.message.contains(named), "{error}");
    }
    assert_eq!(scene.take().await.unwrap().len(), 4);
}

/// Someone else's object, which no listing can be read past. A Ray script that writes to `{s3_prefix}/{name}` leaves one
/// with two slashes; the server in this process has only names that a file can have.
#[tokio::test]
async fn a_strange_name_among_the_results_keeps_nothing_from_being_sent() {
    let mut scene = Scene::new().await.files(&["file"]);
    scene.desk.files.insert("file".to_owned(), Bytes::from_static(b"result"));
    scene.store("results", "hello/odd\tname", b"of the job's own making");
    assert_eq!(scene.take().await.unwrap().len(), 4);
    assert_eq!(scene.stored("hello/file"), b"result");
    let seen = scene.server.door().seen();
    let of_file: Vec<_> = seen.iter().filter(|one| one.path == "/results/hello/file").map(|one| &one.method).collect();
    assert_eq!(of_file, ["HEAD", "PUT"], "the listing told nothing");
    scene.take().await.unwrap();
    assert_eq!(scene.server.door().puts("/results/hello/file"), 1, "what is there is still found, one by one");
}

#[tokio::test]
async fn keys_that_may_not_list_still_send_everything() {
    let mut scene = Scene::new().await.files(&["file", "large"]);
    scene.desk.files.insert("file".to_owned(), Bytes::from_static(b"result"));
    scene.desk.files.insert("large".to_owned(), Bytes::from(vec![7; 9_000_000]));
    let door = scene.server.door();
    door.refuse("GET", "/results", DENIED, usize::MAX);
    assert_eq!(scene.take().await.unwrap().len(), 5);
    scene.take().await.unwrap();
    let listings = door.seen().iter().filter(|one| one.method == "GET" && one.path == "/results").count();
    assert!(listings >= 2, "{:?}", door.seen());
    assert_eq!((door.puts("/results/hello/file"), door.puts("/results/hello/large")), (1, 2), "in two parts, once");

    // Nor read: then what is there cannot be known, and is sent again.
    for name in ["manifest.json", "script", "stdout", "stderr", "file", "large"] {
        for method in ["GET", "HEAD"] {
            door.refuse(method, &format!("/results/hello/{name}"), DENIED, usize::MAX);
        }
    }
    assert_eq!(scene.take().await.unwrap().len(), 5);
    assert_eq!((door.puts("/results/hello/file"), door.puts("/results/hello/large")), (2, 4));
}

/// Somebody deleted the bucket and makes it again; a gateway that has just started knows no buckets yet.
#[tokio::test]
async fn a_place_that_is_missing_after_a_job_is_waited_for() {
    let mut scene = Scene::new().await.files(&["file", "large"]);
    for (content, (method, path, answer)) in [
        ("PUT", "/results/hello/file", (404, "NoSuchBucket")),
        ("PUT", "/results/hello/file", (404, "")),
        ("POST", "/results/hello/large", (404, "NoSuchBucket")),
        ("PUT", "/results/hello/large", (404, "")),
        ("PUT", "/results/hello/manifest.json", (404, "")),
    ]
    .into_iter()
    .enumerate()
    {
        // What was sent while another object was refused would not be sent again.
        let content = u8::try_from(content).unwrap();
        scene.desk.files.insert("file".to_owned(), Bytes::from(vec![content; 6]));
        scene.desk.files.insert("large".to_owned(), Bytes::from(vec![content; 9_000_000]));
        scene.server.door().refuse(method, path, answer, 1);
        let error = scene.take().await.unwrap_err();
        assert!(!error.is_final && error.message.contains("writing \"results:hello/"), "{answer:?}: {error}");
        assert!(!error.message.contains("put it there"), "{answer:?}: {error}");
    }
    assert_eq!(scene.take().await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_bucket_that_someone_else_makes_at_the_same_time_is_there_only_when_it_is() {
    let scene = Scene::new().await;
    let door = scene.server.door();
    door.refuse("PUT", "/results", (409, "OperationAborted"), 1);
    let error = scene.take().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("OperationAborted"), "{error}");
    assert_eq!(door.puts("/results/hello/script"), 0);
    for code in ["BucketAlreadyOwnedByYou", "BucketAlreadyExists"] {
        door.refuse("HEAD", "/results", (404, ""), 1);
        door.refuse("PUT", "/results", (409, code), 1);
        scene.take().await.unwrap();
    }
    assert_eq!(door.puts("/results"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_changed_is_not_taken() {
    let mut scene = Scene::new().await.files(&["file"]);
    scene.desk.files.insert("file".to_owned(), Bytes::from_static(b"what was sent"));
    scene.take().await.unwrap();
    scene.plan.inputs = vec![object("results", "hello/file")];
    scene.bring().await.unwrap();
    assert_eq!(scene.desk.inputs.lock().unwrap()["file"].as_ref(), b"what was sent");
    // Under the server's nose, so that it still tells the old checksum.
    std::fs::write(scene.server.object_path("results", "hello/file"), "what was Sent").unwrap();
    let error = scene.bring().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("results:hello/file"), "{error}");
    assert!(error.message.contains("does not match its checksum"), "{error}");
}

/// More than a quota or a proxy lets through, or under a policy of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_the_store_does_not_take_keeps_back_no_other() {
    for answer in [(403, "QuotaExceeded"), (413, ""), (500, "InternalError")] {
        let mut scene = Scene::new().await.files(&["large", "one", "two", "three"]);
        scene.desk.files.insert("large".to_owned(), Bytes::from(vec![7; 9_000_000]));
        for name in ["one", "two", "three"] {
            scene.desk.files.insert(name.to_owned(), Bytes::from_static(b"small"));
        }
        scene.server.door().refuse("PUT", "/results/hello/large", answer, usize::MAX);
        let error = scene.take().await.unwrap_err();
        assert!(!error.is_final && error.message.contains("results:hello/large"), "{answer:?}: {error}");
        for name in ["one", "two", "three"] {
            assert_eq!(scene.stored(&format!("hello/{name}")), b"small");
        }
        assert_eq!(error.sent.len(), 3 + 3, "{answer:?}");
        assert_eq!(scene.manifest()["complete"], false);
        assert_eq!(scene.manifest()["missing"], serde_json::json!(["large"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_nothing_is_not_asked_for_each_object() {
    let names: Vec<String> = (0..20).map(|number| format!("file-{number:02}")).collect();
    let listed: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut scene = Scene::new().await.files(&listed);
    for name in &names {
        scene.desk.files.insert(name.clone(), Bytes::from_static(b"small"));
    }
    let door = scene.server.door();
    let standard = ["script", "stdout", "stderr"];
    for name in listed.iter().chain(&standard) {
        door.refuse("PUT", &format!("/results/hello/{name}"), DENIED, usize::MAX);
    }
    door.refuse("PUT", "/results/hello/manifest.json", DENIED, 1);
    let error = scene.take().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("AccessDenied"), "{error}");
    assert_eq!(door.puts("/results/hello/file-19"), 0);

    // It takes something: then each object is worth a try.
    let error = scene.take().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("and 18 more"), "{error}");
    assert!(door.puts("/results/hello/file-19") > 0);
}

/// Keys that were narrowed after the job, or a policy on the name.
#[tokio::test]
async fn a_script_that_cannot_be_kept_beside_the_outputs_keeps_none_of_them_back() {
    for (method, path) in [("GET", "/data/script"), ("PUT", "/results/hello/script")] {
        let mut scene = Scene::new().await.files(&["file"]);
        scene.store("data", "script", b"#!/bin/sh\n");
        scene.plan.script = ScriptSource::Object(object("data", "script"));
        scene.desk.stdout = Bytes::from_static(b"out");
        scene.desk.files.insert("file".to_owned(), Bytes::from_static(b"result"));
        scene.bring().await.unwrap();
        scene.server.door().refuse(method, path, DENIED, usize::MAX);
        let error = scene.take().await.unwrap_err();
        let named = if method == "GET" { "data:script" } else { "results:hello/script" };
        assert!(!error.is_final && error.message.contains(named), "{error}");
        assert_eq!((scene.stored("hello/stdout"), scene.stored("hello/file")), (b"out".to_vec(), b"result".to_vec()));
        assert_eq!((error.sent.len(), &scene.manifest()["missing"]), (3, &serde_json::json!(["script"])));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_cannot_be_kept_beside_what_a_job_sent_keeps_none_of_it_back() {
    for (method, path) in [("GET", "/data/script"), ("PUT", "/results/hello/script")] {
        let mut node = Node::new("").await;
        node.scene = node.scene.files(&["result"]);
        node.scene.store("data", "script", b"#!/bin/sh\necho out\necho result > result\n");
        node.scene.plan.script = ScriptSource::Object(object("data", "script"));
        let submission = node.bring().await.unwrap();
        assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
        let door = node.scene.server.door();
        door.refuse(method, path, DENIED, 2);
        for _ in 0..2 {
            let error = node.take(0).await.unwrap_err();
            assert!(!error.is_final && error.message.contains("the script could not be kept"), "{error}");
            assert_eq!(error.sent.len(), 3);
            let manifest = node.scene.manifest();
            assert_eq!((&manifest["complete"], &manifest["missing"]), (&false.into(), &serde_json::json!(["script"])));
        }
        let read_back = |one: &&Request| one.method == "GET" && one.path == "/results/hello/result";
        assert_eq!(door.seen().iter().filter(read_back).count(), 1, "what was compared is known");
        assert_eq!(node.take(0).await.unwrap().len(), 4);
        assert_eq!(node.scene.manifest()["complete"], true);
    }
}
