//! A store that refuses, stumbles or gives back something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials};
use bridge_core::plan::ScriptSource;
use bridge_testkit::s3::Request;
use bytes::Bytes;

use super::{Scene, credentials, object, sha256};

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

/// A session token that is renewed before each reading.
#[derive(Debug)]
struct Renewed {
    pairs: Vec<(String, String)>,
    reads: AtomicUsize,
}

#[async_trait]
impl CredentialSource for Renewed {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let token = format!("token-{}", self.reads.fetch_add(1, Ordering::Relaxed));
        Ok(Credentials::from_pairs(self.pairs.iter().cloned().chain([("sessiontoken".to_owned(), token)])))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_in_the_middle_of_an_upload_is_replaced_and_the_upload_goes_on() {
    let mut scene = Scene::new().await.files(&["large"]);
    let content: Bytes = (0..17_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    scene.desk.files.insert("large".to_owned(), content.clone());
    let keys = Renewed { pairs: credentials(&scene.server), reads: AtomicUsize::new(0) };
    let staging = S3Staging::new(Arc::new(keys), Arc::new(SystemClock::new()));
    // Parts that are on their way at the same time meet it at the same time.
    scene.server.door().refuse("PUT", "/results/hello/large", (400, "ExpiredToken"), 2);
    scene.take_with(&staging).await.unwrap();
    assert!(scene.stored("hello/large") == content);
    assert_eq!(scene.server.door().puts("/results/hello/large"), 4 + 2);
    let begun = |request: &&Request| request.method == "POST" && request.path == "/results/hello/large";
    assert_eq!(scene.server.door().seen().iter().filter(begun).count(), 2, "one beginning, one end");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_keys_may_not_do_is_told_and_may_be_granted() {
    const DENIED: (u16, &str) = (403, "AccessDenied");
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

    scene.desk.files.insert("large".to_owned(), Bytes::from(vec![7; 12_000_000]));
    for (method, path, named) in [
        ("PUT", "/results/hello/stdout", "results:hello/stdout"),
        ("POST", "/results/hello/large", "results:hello/large"),
        ("PUT", "/results/hello/large", "results:hello/large"),
    ] {
        scene.server.door().refuse(method, path, DENIED, 1);
        let error = scene.take().await.unwrap_err();
        assert!(!error.is_final && error.message.contains("AccessDenied"), "{error}");
        assert!(error.message.contains(named), "{error}");
    }
    assert_eq!(scene.take().await.unwrap().len(), 4);
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
