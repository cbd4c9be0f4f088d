//! Missing buckets, against a server that treats them as the real service does. It is installed by `lab/s3/moto.sh`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bridge_core::plan::ScriptSource;
use bridge_core::staging::Staging as _;

use super::carry::until;
use super::{Scene, object};

struct Moto {
    process: Child,
    address: String,
    http: reqwest::Client,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    /// `None`, said on standard error, if it is not installed or the lab is off.
    async fn start(test: &str) -> Option<Self> {
        if std::env::var_os("BRIDGE_LAB").is_some_and(|value| value == "off") {
            bridge_testkit::lab::skip(test, "BRIDGE_LAB=off");
            return None;
        }
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../lab/s3/moto.sh");
        let program = Command::new(script).output().unwrap();
        assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
        let program = String::from_utf8(program.stdout).unwrap();
        // It chooses its port, listens and then tells it: a port that was found free may be another's a moment later.
        let said = tempfile::NamedTempFile::new().unwrap();
        let process = Command::new(program.trim())
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::null())
            .stderr(said.reopen().unwrap())
            .spawn()
            .unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut moto = Self { process, address: String::new(), http };
        let address = || {
            let log = std::fs::read_to_string(said.path()).unwrap();
            let (_, rest) = log.split_once("Running on http://")?;
            rest.split_once('\n').map(|(address, _)| address.trim().to_owned())
        };
        moto.address = until("moto's address", address).await;
        Some(moto)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    async fn read(&self, path: &str) -> (u16, String) {
        let answer = self.http.get(self.url(path)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    fn scene(&self, mut scene: Scene) -> Scene {
        scene.plan.storage.as_mut().unwrap().endpoint.clone_from(&self.address);
        scene
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_bucket_that_is_missing_is_made_in_its_region() {
    let Some(moto) = Moto::start("storage::moto::an_upload_bucket_that_is_missing_is_made_in_its_region").await else {
        return;
    };
    for region in [None, Some("eu-central-1")] {
        let bucket = format!("made-{}", region.unwrap_or("anywhere"));
        assert_eq!(moto.read(&format!("{bucket}/")).await.0, 404);
        let mut scene = moto.scene(Scene::new().await);
        scene.plan.storage.as_mut().unwrap().region = region.map(str::to_owned);
        scene.plan.upload.as_mut().unwrap().bucket.clone_from(&bucket);
        scene.desk.stdout = bytes::Bytes::from_static(b"hello\n");
        for round in 0..2 {
            let outputs = scene.take().await.unwrap_or_else(|error| panic!("{region:?} {round}: {error}"));
            assert_eq!(outputs.len(), 3);
        }
        let (endpoint, path) = (moto.url("").trim_end_matches('/').to_owned(), format!("/{bucket}/hello/stdout"));
        let url = scene.server.keys().presign("GET", &endpoint, &path, jiff::Timestamp::now(), 60);
        assert_eq!(moto.http.get(url).send().await.unwrap().text().await.unwrap(), "hello\n");
        if let Some(region) = region {
            assert!(moto.read(&format!("{bucket}/?location")).await.1.contains(region));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_bucket_and_a_missing_object_are_told_apart() {
    let Some(moto) = Moto::start("storage::moto::a_missing_bucket_and_a_missing_object_are_told_apart").await else {
        return;
    };
    let mut scene = moto.scene(Scene::new().await);
    assert!(moto.http.put(moto.url("there")).send().await.unwrap().status().is_success());
    for (bucket, hint) in [("nowhere", "the bucket \"nowhere\" does not exist"), ("there", "there is no such object")] {
        scene.plan.script = ScriptSource::Object(object(bucket, "a/script"));
        let error = scene.staging().stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap_err();
        assert!(error.is_final && error.message.contains(hint), "{error}");
        assert!(error.message.contains(&format!("{bucket}:a/script")), "{error}");
        scene.plan.script = ScriptSource::Inline("#!/bin/sh\n".to_owned());
        scene.plan.inputs = vec![object(bucket, "a/file")];
        let error = scene.staging().stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap_err();
        assert!(error.is_final && error.message.contains(hint), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_and_its_checksum_survive_a_second_try() {
    let Some(moto) = Moto::start("storage::moto::a_large_file_and_its_checksum_survive_a_second_try").await else {
        return;
    };
    let mut scene = moto.scene(Scene::new().await.files(&["large ä.bin"]));
    let content: bytes::Bytes = (0..20_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    scene.desk.files.insert("large ä.bin".to_owned(), content.clone());
    let first = scene.take().await.unwrap();
    let stamp =
        |(_, text): (u16, String)| text.split("<LastModified>").map(|part| part[..20].to_owned()).collect::<Vec<_>>();
    let before = stamp(moto.read("results/?prefix=hello/large").await);
    assert_eq!(first.last().unwrap().checksum, super::sha256(&content));
    let second = scene.take().await.unwrap();
    assert_eq!(first, second);
    assert_eq!(stamp(moto.read("results/?prefix=hello/large").await), before, "it was not sent again");
}
