//! Ray: conformance, and what only Ray can do to us.

mod behaviour;
mod chaos;
mod lab;
mod logs;
mod replay;
mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bridge_adapters::ray::{Config, RayManager};
use bridge_core::clock::{Clock, SystemClock};
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, Outcome, ResourceManager, Sighting, Tracked};
use bridge_core::plan::{Script, Submission};
use bridge_testkit::conformance::{self, Sample, Subject};
use bridge_testkit::faults::{FaultPlan, Operation};
use bridge_testkit::ray::{Options, RayServer};
use jiff::Timestamp;
use serde_json::{Value, json};

/// How long anything may take before a test fails: a bound for what hangs, not for what is slow.
const PATIENCE: Duration = Duration::from_mins(10);
const TOKEN: &str = "a-token-that-nobody-may-see";

/// A Secret that a test can change.
#[derive(Clone, Default)]
struct Secret(Arc<Mutex<Vec<(String, String)>>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    fn new(pairs: &[(&str, &str)]) -> Self {
        let secret = Self::default();
        secret.set(pairs);
        secret
    }

    fn set(&self, pairs: &[(&str, &str)]) {
        *self.0.lock().unwrap() = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    }
}

#[async_trait]
impl CredentialSource for Secret {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        Ok(Credentials::from_pairs(self.0.lock().unwrap().clone()))
    }
}

/// Patient: a test has one machine with much else to do, and a request may take longer than in production.
fn manager_at(url: &str, secret: &Secret) -> RayManager {
    let config = Config { timeout: Duration::from_mins(2), ..Config::new(url) };
    RayManager::new(config, Arc::new(secret.clone())).unwrap()
}

/// An emulated cluster and the manager of it.
struct Cluster {
    server: RayServer,
    faults: FaultPlan,
    manager: RayManager,
}

impl Cluster {
    async fn start() -> Self {
        Self::with_token(quick()).await
    }

    /// One on which a job that waits does so for as long as a test takes.
    async fn patient() -> Self {
        Self::with_token(Options { start_timeout: Options::default().start_timeout, ..quick() }).await
    }

    async fn with_token(options: Options) -> Self {
        Self::with(Options { token: Some(TOKEN.to_owned()), ..options }, &Secret::new(&[("token", TOKEN)])).await
    }

    async fn with(options: Options, secret: &Secret) -> Self {
        let faults = FaultPlan::new();
        let server = RayServer::start(options, faults.clone()).await.unwrap();
        let manager = manager_at(server.url(), secret);
        Self { server, faults, manager }
    }
}

/// An emulated cluster that does not try a test's patience.
fn quick() -> Options {
    Options {
        start_timeout: Duration::from_secs(1),
        stop_wait: Duration::from_millis(500),
        tail_interval: Duration::from_millis(50),
        ..Options::default()
    }
}

fn submission(uid: &str, script: Script) -> Submission {
    Submission {
        token: SubmitToken::derive(uid, 1),
        name: "counter".to_owned(),
        script,
        metadata: String::new(),
        parameters: String::new(),
        properties: BTreeMap::new(),
        inputs: Vec::new(),
    }
}

fn python(uid: &str, script: &str) -> Submission {
    submission(uid, Script::Text(script.to_owned()))
}

fn command(uid: &str, entrypoint: &str) -> Submission {
    submission(uid, Script::Remote(entrypoint.to_owned()))
}

fn with_properties(job: Submission, properties: &Value) -> Submission {
    Submission { properties: serde_json::from_value(properties.clone()).unwrap(), ..job }
}

fn tracked(token: &SubmitToken) -> Tracked {
    Tracked { id: RemoteId::new(token.as_str()), token: token.clone(), verify: true, cancelling: false }
}

fn now() -> Timestamp {
    SystemClock::new().now().wall
}

async fn submit(manager: &RayManager, job: &Submission) -> Tracked {
    let submitted = manager.submit(job).await.unwrap();
    assert_eq!(submitted.id.as_str(), job.token.as_str());
    tracked(&job.token)
}

async fn look(manager: &RayManager, job: &Tracked) -> Sighting {
    manager.poll(std::slice::from_ref(job)).await.unwrap().remove(&job.id).unwrap()
}

async fn ended(manager: &RayManager, job: &Tracked) -> (Outcome, Facts) {
    until("the end of the job", async || match look(manager, job).await {
        Sighting::Ended(outcome, facts) => Some((outcome, facts)),
        Sighting::Alive(..) => None,
        seen => panic!("job {} is {seen:?}", job.id),
    })
    .await
}

async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn sample(sample: &Sample, token: &SubmitToken) -> Option<Submission> {
    let job = |properties: Value| {
        let job = Submission { token: token.clone(), ..command("x", "true") };
        Some(with_properties(job, &properties))
    };
    match sample {
        Sample::Queues => job(json!({"entrypoint_num_cpus": 500})),
        Sample::Refused => job(json!({"Tasks": 4})),
        // Ray hands out no files.
        Sample::Writes(..) => None,
        other => other.shell_submission(token),
    }
}

#[async_trait]
impl Subject for Cluster {
    fn name(&self) -> &'static str {
        "ray"
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.manager
    }

    fn submission(&self, wanted: &Sample, token: &SubmitToken) -> Option<Submission> {
        sample(wanted, token)
    }

    fn max_wait(&self) -> Duration {
        PATIENCE
    }

    fn faults(&self) -> Option<&FaultPlan> {
        Some(&self.faults)
    }

    fn requests_of(&self, operation: Operation) -> Vec<Operation> {
        match operation {
            // Both ask for one job.
            Operation::Find | Operation::Poll => vec![Operation::Poll],
            other => vec![other],
        }
    }

    async fn purge(&self, id: &RemoteId) -> bool {
        self.server.forget(id.as_str())
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned()]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    let cluster = Cluster::start().await;
    let report = conformance::run(&cluster).await;
    assert!(report.is_ok(), "{report}");
    // What Ray does not have: a second job under a token, holding, files of a job, a stream for errors.
    let skipped = report.skipped();
    for case in
        ["files_reach_the_job", "logs_are", "load_", "cancel_ends_a_queued_job", "purged_", "failed_", "refused_"]
    {
        assert!(!skipped.iter().any(|skipped| skipped.contains(case)), "{skipped:?}");
    }
}
