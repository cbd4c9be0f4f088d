//! Slurm against its emulator in every API version, and against a real one in the lab.

mod accounts;
mod behaviour;
mod chaos;
mod comments;
mod conformance;
mod doubts;
mod ends;
mod forgotten;
mod lab;
mod lives;
mod owners;
mod shapes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bridge_adapters::slurm::{Slurm, SlurmConfig};
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialSource, Credentials, StaticCredentials};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, Hold, HoldAnswer, Outcome, ResourceManager, Sighting, Tracked};
use bridge_core::plan::{Script, Submission};
use bridge_testkit::conformance::{Sample, Subject};
use bridge_testkit::faults::{FaultPlan, Operation};
use bridge_testkit::slurm::{Emulator, EmulatorOptions};
use serde_json::{Value, json};

/// How long anything may take before a test fails: a bound for what hangs, not for what is slow.
const PATIENCE: Duration = Duration::from_mins(5);
/// How late the accounting of an emulated cluster may tell of an end: a job that slurmctld has lost is given up after this.
const LATE_END: Duration = Duration::from_secs(5);
/// Older than any job of a test.
const AGES: Duration = Duration::from_hours(1);

/// An emulated cluster and an adapter for it.
struct Cluster {
    emulator: Emulator,
    manager: Slurm,
    folder: PathBuf,
    name: String,
}

fn credentials(user: &str, token: &str) -> Arc<dyn CredentialSource> {
    let pairs = [("username", user), ("token", token)];
    Arc::new(StaticCredentials(Credentials::from_pairs(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())))))
}

fn adapter(url: &str, folder: &Path, credentials: Arc<dyn CredentialSource>) -> Slurm {
    adapter_with(SlurmConfig { end_told_within: LATE_END, ..SlurmConfig::new(url) }, folder, credentials)
}

fn adapter_with(config: SlurmConfig, folder: &Path, credentials: Arc<dyn CredentialSource>) -> Slurm {
    let config = SlurmConfig { shared_folders: vec![folder.to_owned()], ..config };
    Slurm::new(config, credentials, Arc::new(SystemClock::new())).unwrap()
}

impl Cluster {
    /// One API version, named in the URL.
    async fn of_version(version: u16) -> Self {
        let options = EmulatorOptions { versions: vec![version], ..EmulatorOptions::default() };
        Self::with(options, Some(version)).await
    }

    async fn with(options: EmulatorOptions, version: Option<u16>) -> Self {
        let options = EmulatorOptions {
            cpus: 64,
            kill_wait: Duration::from_millis(300),
            outage_answer: Duration::from_millis(50),
            ..options
        };
        let emulator = Emulator::start(options).await.unwrap();
        let folder = emulator.folder().canonicalize().unwrap();
        let url = version.map_or_else(|| emulator.url(), |version| emulator.versioned_url(version));
        let manager = adapter(&url, &folder, credentials("alice", "alice-token"));
        let name = version.map_or_else(|| "slurm".to_owned(), |version| format!("slurm v0.0.{version}"));
        Self { emulator, manager, folder, name }
    }

    fn submission(&self, script: &str, properties: Value) -> Submission {
        let mut submission = submission(script, properties);
        let folder = json!(self.folder.display().to_string());
        submission.properties.entry("currentWorkingDir".to_owned()).or_insert(folder);
        submission
    }

    /// Submits and releases.
    async fn start(&self, submission: &Submission) -> Tracked {
        start(&self.manager, submission).await
    }

    async fn ended(&self, job: &Tracked) -> (Outcome, Facts) {
        ended(&self.manager, job).await
    }
}

fn fresh_token() -> SubmitToken {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    SubmitToken::derive(&format!("test{}x{number}", std::process::id()), 1)
}

fn submission(script: &str, properties: Value) -> Submission {
    let Value::Object(properties) = properties else { panic!("a map of properties") };
    Submission {
        token: fresh_token(),
        name: "sample".to_owned(),
        script: Script::Text(format!("#!/bin/sh\n{script}\n")),
        metadata: String::new(),
        parameters: String::new(),
        properties: properties.into_iter().collect::<BTreeMap<_, _>>(),
        inputs: Vec::new(),
    }
}

fn tracked(id: &RemoteId, token: &SubmitToken) -> Tracked {
    Tracked { id: id.clone(), token: token.clone(), verify: false, cancelling: false }
}

async fn start(manager: &Slurm, submission: &Submission) -> Tracked {
    let submitted = manager.submit(submission).await.unwrap();
    let job = tracked(&submitted.id, &submission.token);
    assert_eq!(Hold::release(manager, &job).await.unwrap(), HoldAnswer::Done);
    job
}

async fn look(manager: &Slurm, job: &Tracked) -> Sighting {
    manager.poll(std::slice::from_ref(job)).await.unwrap().remove(&job.id).expect("the job was asked about")
}

/// Waits until a look at the job shows what is wanted.
async fn until<T>(manager: &Slurm, job: &Tracked, wanted: impl Fn(&Sighting) -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let seen = look(manager, job).await;
        if let Some(found) = wanted(&seen) {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "the job stays {seen:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ended(manager: &Slurm, job: &Tracked) -> (Outcome, Facts) {
    until(manager, job, |seen| match seen {
        Sighting::Ended(outcome, facts) => Some((outcome.clone(), facts.clone())),
        _ => None,
    })
    .await
}

/// What a call gives that was too quick to have waited for a slurmctld that is down: only then are a rejected token and an
/// outage told apart. A call that the machine held up is made again.
async fn answered_quickly<T>(mut call: impl AsyncFnMut() -> T) -> T {
    const QUICK: Duration = Duration::from_secs(5);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let begun = tokio::time::Instant::now();
        let answer = call().await;
        if begun.elapsed() < QUICK {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "no answer came within {QUICK:?}");
    }
}

#[async_trait]
impl Subject for Cluster {
    fn name(&self) -> &str {
        &self.name
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.manager
    }

    fn submission(&self, sample: &Sample, token: &SubmitToken) -> Option<Submission> {
        sample_submission(sample, token, &self.folder)
    }

    fn max_wait(&self) -> Duration {
        PATIENCE
    }

    fn faults(&self) -> Option<&FaultPlan> {
        Some(self.emulator.faults())
    }

    fn requests_of(&self, operation: Operation) -> Vec<Operation> {
        match operation {
            Operation::Find | Operation::Logs => vec![Operation::Poll],
            Operation::Cancel => vec![Operation::Poll, Operation::Cancel],
            Operation::Hold => vec![Operation::Poll, Operation::Hold],
            other => vec![other],
        }
    }

    fn separates_stderr(&self) -> bool {
        true
    }

    async fn purge(&self, id: &RemoteId) -> bool {
        self.emulator.purge(id.as_str().parse().unwrap(), true)
    }

    async fn add_twin(&self, token: &SubmitToken) -> Option<RemoteId> {
        Some(RemoteId::new(self.emulator.add_held_job(token.as_str()).to_string()))
    }

    fn secrets(&self) -> Vec<String> {
        vec!["alice-token".to_owned()]
    }
}

/// What makes Slurm do what the sample says.
fn sample_submission(sample: &Sample, token: &SubmitToken, folder: &Path) -> Option<Submission> {
    let mut job = match sample {
        Sample::Queues => Sample::Runs.shell_submission(token)?,
        Sample::Refused => Sample::Succeeds.shell_submission(token)?,
        Sample::CopiesInput(_) | Sample::Writes(..) => return None,
        other => other.shell_submission(token)?,
    };
    let mut properties = json!({
        "currentWorkingDir": folder.display().to_string(),
        "OutputFileName": "out-%j.txt",
        "ErrorFileName": "err-%j.txt",
    });
    match sample {
        Sample::Queues => properties["begin"] = json!("now+1hour"),
        Sample::Refused => properties["Queue"] = json!("nosuchpartition"),
        _ => {}
    }
    let Value::Object(properties) = properties else { return None };
    job.properties = properties.into_iter().collect();
    Some(job)
}
