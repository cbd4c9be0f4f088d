//! Data in and out, against an S3 server in this process that checks signatures.

mod again;
mod away;
mod bring;
mod carry;
mod desk;
mod lab;
mod moto;
mod on_node;
mod ray_carry;
mod reach;
mod take;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{Credentials, StaticCredentials};
use bridge_core::ids::{JobKey, RemoteId, SubmitToken};
use bridge_core::manager::{Outcome, Verdict};
use bridge_core::plan::{
    JobPlan, ManagerKind, ObjectRef, ScriptSource, SecretRef, StoragePlan, Target, TextSource, UploadPlan,
};
use bridge_core::staging::{Output, Staging, StagingError};
use bridge_testkit::s3::S3Server;

use desk::Desk;

/// A store, a manager and a job.
struct Scene {
    server: S3Server,
    desk: Desk,
    plan: JobPlan,
    token: SubmitToken,
}

fn object(bucket: &str, key: &str) -> ObjectRef {
    ObjectRef { bucket: bucket.to_owned(), key: key.to_owned() }
}

fn credentials(server: &S3Server) -> Vec<(String, String)> {
    use secrecy::ExposeSecret as _;
    let keys = server.keys();
    vec![
        ("accesskey".to_owned(), keys.access_key.clone()),
        ("secretkey".to_owned(), keys.secret_key.expose_secret().to_owned()),
    ]
}

fn staging_with(pairs: Vec<(String, String)>) -> S3Staging {
    let keys = StaticCredentials(Credentials::from_pairs(pairs));
    S3Staging::new(Arc::new(keys), Arc::new(SystemClock::new()))
}

impl Scene {
    async fn new() -> Self {
        let server = S3Server::start().await.unwrap();
        let storage = StoragePlan {
            secret: SecretRef("s3-keys".to_owned()),
            endpoint: server.address().to_string(),
            secure: false,
            region: None,
            virtual_host: false,
            remote_endpoint: None,
        };
        let plan = JobPlan {
            key: JobKey::new("", "hello"),
            uid: "0123".to_owned(),
            target: Target { manager: ManagerKind::Local, url: "local:".to_owned(), secret: None },
            poll_seconds: 1,
            script: ScriptSource::Inline("#!/bin/sh\necho hello\n".to_owned()),
            metadata: TextSource::Inline(String::new()),
            parameters: TextSource::Inline(String::new()),
            inputs: Vec::new(),
            properties: BTreeMap::new(),
            storage: Some(storage),
            upload: Some(UploadPlan { bucket: "results".to_owned(), prefix: "hello".to_owned(), files: Vec::new() }),
            notes: Vec::new(),
        };
        let token = SubmitToken::derive(&plan.uid, 1);
        Self { server, desk: Desk::default(), plan, token }
    }

    fn files(mut self, files: &[&str]) -> Self {
        self.plan.upload.as_mut().unwrap().files = files.iter().map(|file| (*file).to_owned()).collect();
        self
    }

    fn staging(&self) -> S3Staging {
        staging_with(credentials(&self.server))
    }

    /// Puts an object into the store without asking it.
    fn store(&self, bucket: &str, key: &str, content: &[u8]) {
        let path = self.server.object_path(bucket, key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn stored(&self, key: &str) -> Vec<u8> {
        let path = self.server.object_path("results", key);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn manifest(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stored("hello/manifest.json")).unwrap()
    }

    async fn take(&self) -> Result<Vec<Output>, StagingError> {
        self.take_with(&self.staging()).await
    }

    async fn take_with(&self, staging: &S3Staging) -> Result<Vec<Output>, StagingError> {
        let outcome = Outcome {
            verdict: Verdict::Succeeded,
            exit_code: Some(0),
            signal: None,
            reason: String::new(),
            message: String::new(),
        };
        staging.stage_out(&self.plan, &self.token, &RemoteId::new("7"), &outcome, &self.desk).await
    }
}

fn sha256(content: &[u8]) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(content);
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
