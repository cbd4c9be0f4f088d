//! Before a job.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials};
use bridge_core::driver::{Driver, Leaving, NewJob, Observer};
use bridge_core::ids::JobKey;
use bridge_core::manager::Guarantee;
use bridge_core::plan::{ManagerKind, Script, ScriptSource, TextSource};
use bridge_core::record::JobRecord;
use bridge_core::staging::{Staging, StagingError};
use bridge_core::state::{Rules, Wishes};
use bridge_core::status::StatusView;
use bridge_core::store::MemStore;
use tokio::sync::{Semaphore, mpsc};

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

/// Hands out records as they are saved, and closes when the job is left.
struct Saved(Mutex<Option<mpsc::UnboundedSender<JobRecord>>>);

impl Observer for Saved {
    fn saved(&self, _: &JobKey, record: &JobRecord) {
        if let Some(sender) = &*self.0.lock().unwrap() {
            sender.send(record.clone()).ok();
        }
    }
    fn left(&self, _: &JobKey, _: &Leaving) {
        self.0.lock().unwrap().take();
    }
    fn stumbled(&self, _: &JobKey, _: &str) {}
}

/// The manager here takes no submissions: one would end the test.
#[tokio::test]
async fn a_job_that_is_killed_while_its_inputs_come_fetches_no_more_and_is_never_submitted() {
    let mut scene = Scene::new().await;
    scene.store("data", "slow", &vec![7; 3_000_000]);
    scene.plan.inputs = vec![object("data", "slow")];
    let never = Arc::new(Semaphore::new(0));
    scene.desk.stuck = Some(("slow".to_owned(), never));
    let (desk, staging) = (Arc::new(std::mem::take(&mut scene.desk)), Arc::new(scene.staging()));
    let (sender, mut saved) = mpsc::unbounded_channel();
    let observer = Arc::new(Saved(Mutex::new(Some(sender))));
    let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), "one", observer);
    tokio::spawn(driver.run());
    let key = scene.plan.key.clone();
    let rules = Rules { stages_in: true, stages_out: true, ..Rules::plain(Guarantee::OwnKey, Duration::from_secs(1)) };
    let job = NewJob {
        plan: Arc::new(scene.plan.clone()),
        rules,
        wishes: Wishes::default(),
        manager: Arc::clone(&desk) as _,
        staging: Arc::clone(&staging) as _,
        store: Arc::new(MemStore::default()),
    };
    handle.add(job).await.unwrap();
    let life = async {
        while staging.progress(&key).is_none_or(|progress| progress.bytes == 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        handle.wish(&key, Wishes { kill: true, ..Wishes::default() });
        let mut last = None;
        while let Some(record) = saved.recv().await {
            last = Some(record);
        }
        last.unwrap()
    };
    let record = tokio::time::timeout(Duration::from_secs(60), life).await.unwrap();
    assert_eq!(StatusView::of(&record).status, bridge_api::JobStatus::Killed, "{record:?}");
    assert_eq!((record.id(), record.counters.submissions), (None, 0));
    assert!(desk.inputs.lock().unwrap().is_empty());
    // The transfer ends with its task, which may be a moment after the record says so.
    let over = async {
        while staging.progress(&key).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), over).await.unwrap();
}

/// Other programs keep a checksum under the same name, in a form of their own.
#[tokio::test]
async fn what_others_call_a_checksum_keeps_no_input_back() {
    let mut scene = Scene::new().await;
    scene.server.create_bucket("data").unwrap();
    let in_capitals = super::sha256(b"capitals").replace("sha256:", "").to_uppercase();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (name, sha256) in [("base64", "AbC="), ("capitals", &in_capitals)] {
        let (server, path) = (&scene.server, format!("/data/{name}"));
        let url = server.keys().presign("PUT", &server.endpoint(), &path, jiff::Timestamp::now(), 60);
        let answer = http.put(url).header("x-amz-meta-sha256", sha256).body(name).send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        scene.plan.inputs.push(object("data", name));
    }
    scene.bring().await.unwrap();
    assert_eq!(scene.desk.inputs.lock().unwrap()["capitals"].as_ref(), b"capitals");

    std::fs::write(scene.server.object_path("data", "capitals"), "CAPITALS").unwrap();
    let error = scene.bring().await.unwrap_err();
    assert!(error.message.contains("does not match its checksum"), "{error}");
}
