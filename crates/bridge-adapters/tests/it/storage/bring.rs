//! Before a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials};
use bridge_core::plan::{ManagerKind, Script, ScriptSource, TextSource};
use bridge_core::staging::{Staging, StagingError};
use tokio::sync::Semaphore;

use super::{Scene, credentials, object, staging_with};

impl Scene {
    pub(super) async fn bring(&self) -> Result<bridge_core::plan::Submission, StagingError> {
        self.staging().stage_in(&self.plan, &self.token, &self.desk).await
    }
}

#[tokio::test]
async fn script_texts_and_inputs_come_from_several_buckets() {
    let mut scene = Scene::new().await;
    scene.store("scripts", "a folder/skript ä.sh", b"#!/bin/sh\necho from s3\n");
    scene.store("texts", "meta", b"x=1");
    scene.store("texts", "deep/er/parameters", b"[\"a\"]");
    scene.store("data", "x/one file.csv", b"1,2,3");
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    scene.store("more", "größe.bin", &large);
    scene.plan.script = ScriptSource::Object(object("scripts", "a folder/skript ä.sh"));
    scene.plan.metadata = TextSource::Object(object("texts", "meta"));
    scene.plan.parameters = TextSource::Object(object("texts", "deep/er/parameters"));
    scene.plan.inputs = vec![object("data", "x/one file.csv"), object("more", "größe.bin")];

    let submission = scene.bring().await.unwrap();
    assert_eq!(submission.script, Script::Text("#!/bin/sh\necho from s3\n".to_owned()));
    assert_eq!((submission.metadata.as_str(), submission.parameters.as_str()), ("x=1", "[\"a\"]"));
    assert_eq!(submission.inputs, ["one file.csv", "größe.bin"]);
    assert_eq!(submission.token, scene.token);
    let inputs = scene.desk.inputs.lock().unwrap();
    assert_eq!(inputs["one file.csv"].as_ref(), b"1,2,3");
    assert_eq!(inputs["größe.bin"].as_ref(), large);
}

#[tokio::test]
async fn what_is_not_there_or_not_fit_ends_the_stage_and_is_named() {
    let mut scene = Scene::new().await;
    scene.server.create_bucket("data").unwrap();
    scene.store("data", "binary", &[0xff, 0xfe, 0x00]);
    scene.store("data", "large", &vec![b'x'; 300 * 1024]);
    let table = [
        ("data", "missing", "there is no such object"),
        ("nowhere", "x", "\"nowhere:x\""),
        ("data", "binary", "is not UTF-8 text"),
        ("data", "large", "256 KiB are allowed"),
        ("data", "a//b", "cannot be used"),
    ];
    for (bucket, key, hint) in table {
        scene.plan.script = ScriptSource::Object(object(bucket, key));
        let error = scene.bring().await.unwrap_err();
        assert!(error.is_final, "{error}");
        assert!(error.message.contains(&format!("{bucket}:{key}")) && error.message.contains(hint), "{error}");
    }
}

#[tokio::test]
async fn wrong_keys_are_told_without_them_and_may_be_mended() {
    let mut scene = Scene::new().await;
    scene.store("data", "script", b"#!/bin/sh\n");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    let mut wrong = credentials(&scene.server);
    wrong[1].1 = "not-the-secret-key".to_owned();
    wrong.push(("sessiontoken".to_owned(), "a-secret-session-token".to_owned()));
    let error = staging_with(wrong).stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap_err();
    assert!(!error.is_final && error.message.contains("\"s3-keys\""), "{error}");
    assert!(error.message.contains("data:script"), "{error}");
    for secret in ["not-the-secret-key", "a-secret-session-token"] {
        assert!(!error.message.contains(secret), "{error}");
    }
    for (key, value, hint) in [
        ("secretkey", "", "`secretkey` is missing"),
        ("secretkey", "two\nlines", "`secretkey` holds characters"),
        ("allowedURL", "https://elsewhere.example/", "outside of the Secret's `allowedURL`"),
        ("ca.crt", "nonsense", "`ca.crt` holds no PEM certificate"),
    ] {
        let mut pairs = credentials(&scene.server);
        pairs.retain(|(name, _)| name != key);
        pairs.push((key.to_owned(), value.to_owned()));
        let error = staging_with(pairs).stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap_err();
        assert!(!error.is_final && error.message.contains(hint), "{error}");
        assert!(!error.message.contains("test-secret-key"), "{error}");
    }
}

/// Wrong keys first, the right ones from the second reading on.
#[derive(Debug)]
struct Rotated {
    pairs: Vec<(String, String)>,
    reads: AtomicUsize,
}

#[async_trait]
impl CredentialSource for Rotated {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let mut pairs = self.pairs.clone();
        if self.reads.fetch_add(1, Ordering::Relaxed) == 0 {
            "the-old-one".clone_into(&mut pairs[1].1);
        }
        Ok(Credentials::from_pairs(pairs))
    }
}

#[tokio::test]
async fn keys_that_were_rotated_are_read_again_once() {
    let mut scene = Scene::new().await;
    scene.store("data", "script", b"#!/bin/sh\n");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    let rotated = Arc::new(Rotated { pairs: credentials(&scene.server), reads: AtomicUsize::new(0) });
    let staging = S3Staging::new(Arc::clone(&rotated) as _, Arc::new(SystemClock::new()));
    staging.stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap();
    assert_eq!(rotated.reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_store_that_is_away_is_asked_only_when_it_is_needed() {
    let mut scene = Scene::new().await;
    scene.plan.storage.as_mut().unwrap().endpoint = "127.0.0.1:1".to_owned();
    assert!(scene.bring().await.is_ok(), "there is nothing to bring");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    let error = scene.bring().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("127.0.0.1:1"), "{error}");
    let error = scene.take().await.unwrap_err();
    assert!(!error.is_final && error.message.contains("127.0.0.1:1"), "{error}");
}

#[tokio::test]
async fn ray_scripts_are_told_where_their_outputs_may_go() {
    let mut scene = Scene::new().await;
    scene.plan.target.manager = ManagerKind::Ray;
    scene.plan.parameters = TextSource::Inline(r#"{"iterations": 3, "s3_prefix": "mine/"}"#.to_owned());
    let submission = scene.bring().await.unwrap();
    let kwargs: serde_json::Value = serde_json::from_str(&submission.parameters).unwrap();
    let expected = serde_json::json!({
        "iterations": 3, "s3_prefix": "mine/", "s3_secret": "s3-keys", "s3_bucket": "results",
        "s3_endpoint": scene.server.address().to_string(), "s3_secure": "false",
    });
    assert_eq!(kwargs, expected);
    scene.plan.parameters = TextSource::Inline("a,b".to_owned());
    assert_eq!(scene.bring().await.unwrap().parameters, "a,b");
}

#[tokio::test]
async fn a_file_that_would_replace_ours_is_refused_before_anything_runs() {
    for name in ["stdout", "d/manifest.json", "logs"] {
        let scene = Scene::new().await.files(&[name]);
        let error = scene.bring().await.unwrap_err();
        assert!(error.is_final && error.message.contains(name) && error.message.contains("results:hello/"), "{error}");
    }
}

#[tokio::test]
async fn progress_is_told_while_inputs_come() {
    let mut scene = Scene::new().await;
    scene.store("data", "small", b"12345");
    scene.store("data", "slow", &vec![7; 1_000_000]);
    scene.plan.inputs = vec![object("data", "small"), object("data", "slow")];
    let gate = Arc::new(Semaphore::new(0));
    scene.desk.stuck = Some(("slow".to_owned(), Arc::clone(&gate)));
    let staging = scene.staging();
    let watch = async {
        let progress = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let progress = staging.progress(&scene.plan.key);
                if let Some(progress) = progress.filter(|progress| progress.files == 1 && progress.bytes > 5) {
                    return progress;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let progress = progress.await.unwrap();
        gate.add_permits(Semaphore::MAX_PERMITS);
        progress
    };
    let (brought, progress) = tokio::join!(staging.stage_in(&scene.plan, &scene.token, &scene.desk), watch);
    assert_eq!(brought.unwrap().inputs, ["small", "slow"]);
    assert_eq!((progress.total, progress.of), (Some(1_000_005), 2));
    assert!(progress.bytes < 1_000_005, "{progress:?}");
}
