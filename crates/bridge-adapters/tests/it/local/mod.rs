//! The local manager: conformance, and what becomes of a job when processes are killed at the worst moment.
//!
//! This binary plays three parts. Called by `cargo test` it tests; called as a supervisor, in the folder of a job, its
//! test `supervisor` supervises that job; called with [`RUNNER`] set, its test `runner` submits a job and waits, to be
//! killed.

mod behaviour;
mod crashes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bridge_adapters::local::{Config, LocalManager};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, Found, Outcome, ResourceManager, Sighting, Tracked};
use bridge_core::plan::{Script, Submission};
use bridge_testkit::conformance::{self, Sample, Subject};
use serde_json::{Map, Value};

const RUNNER: &str = "BRIDGE_TEST_RUNNER";
/// How long anything may take before a test fails: a bound for what hangs, not for what is slow.
const PATIENCE: Duration = Duration::from_mins(5);

#[test]
fn supervisor() {
    if Path::new("job.json").exists() {
        bridge_adapters::local::supervise().unwrap();
    }
}

/// The part of a runner that is killed: submits `<root>/script` under the token, says so, and waits.
#[tokio::test]
async fn runner() {
    let Some(root) = std::env::var_os(RUNNER).map(PathBuf::from) else { return };
    let token = SubmitToken::parse(&std::env::var("BRIDGE_TEST_TOKEN").unwrap()).unwrap();
    let script = std::fs::read_to_string(root.join("script")).unwrap();
    let mut config = config(&root);
    if let Some(program) = std::env::var_os("BRIDGE_TEST_SUPERVISOR") {
        config.supervisor.0 = PathBuf::from(program);
    }
    let job = Submission { token, ..submission(&script) };
    LocalManager::new(config).submit(&job).await.unwrap();
    std::fs::write(root.join(format!("submitted-{}", std::process::id())), "").unwrap();
    tokio::time::sleep(PATIENCE).await;
}

fn config(root: &Path) -> Config {
    let own = std::env::current_exe().unwrap();
    let arguments = ["--exact", "local::supervisor", "--nocapture", "--test-threads=1"].map(Into::into).to_vec();
    Config { supervisor: (own, arguments), grace: Duration::from_secs(1), ..Config::new(root.join("jobs")) }
}

/// Tests run side by side and tell their processes apart by the token.
fn fresh_token() -> SubmitToken {
    use std::hash::BuildHasher;
    SubmitToken::derive(&format!("{:016x}", std::hash::RandomState::new().hash_one(())), 1)
}

fn submission(script: &str) -> Submission {
    Submission {
        token: fresh_token(),
        name: "hello".to_owned(),
        script: Script::Text(script.to_owned()),
        metadata: String::new(),
        parameters: String::new(),
        properties: BTreeMap::new(),
        inputs: Vec::new(),
    }
}

fn with_properties(script: &str, properties: Value) -> Submission {
    let properties: Map<String, Value> = serde_json::from_value(properties).unwrap();
    Submission { properties: properties.into_iter().collect(), ..submission(script) }
}

fn tracked(token: &SubmitToken) -> Tracked {
    Tracked { id: RemoteId::new(token.as_str()), token: token.clone(), verify: true, cancelling: false }
}

/// A folder for jobs and the manager over it.
struct Machine {
    folder: tempfile::TempDir,
    manager: LocalManager,
}

impl Machine {
    fn new() -> Self {
        Self::with_grace(Duration::from_secs(1))
    }

    /// One on which a cancelled job has this long to end by itself.
    fn with_grace(grace: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manager = LocalManager::new(Config { grace, ..config(folder.path()) });
        Self { folder, manager }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn submit(&self, job: &Submission) -> Tracked {
        let submitted = self.manager.submit(job).await.unwrap();
        Tracked { id: submitted.id, ..tracked(&job.token) }
    }

    async fn look(&self, job: &Tracked) -> Sighting {
        self.manager.poll(std::slice::from_ref(job)).await.unwrap().remove(&job.id).unwrap()
    }

    async fn ended(&self, job: &Tracked) -> (Outcome, Facts) {
        until("the end of the job", async || match self.look(job).await {
            Sighting::Ended(outcome, facts) => Some((outcome, facts)),
            Sighting::Alive(..) => None,
            seen => panic!("job {} is {seen:?}", job.id),
        })
        .await
    }

    async fn find(&self, token: &SubmitToken) -> Found {
        self.manager.find(token, jiff::Timestamp::UNIX_EPOCH).await.unwrap()
    }

    /// Waits until the job has written a file.
    async fn written(&self, name: &str) -> String {
        until(name, async || std::fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'))).await
    }

    /// Starts a process that submits the script in `<root>/script`.
    fn start_runner(&self, token: &SubmitToken) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "local::runner", "--nocapture"])
            .env(RUNNER, self.folder.path())
            .env("BRIDGE_TEST_TOKEN", token.as_str())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The numbers of the living processes that have the token in their environment.
fn processes(token: &SubmitToken) -> Vec<u32> {
    let wanted = format!("BRIDGE_TOKEN={token}");
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &u32| {
            let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
        })
        .collect()
}

async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[async_trait]
impl Subject for Machine {
    fn name(&self) -> &'static str {
        "local"
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.manager
    }

    fn submission(&self, sample: &Sample, token: &SubmitToken) -> Option<Submission> {
        if *sample == Sample::Refused {
            return Some(Submission {
                token: token.clone(),
                ..with_properties("true", serde_json::json!({"Tasks": 4}))
            });
        }
        sample.shell_submission(token)
    }

    fn max_wait(&self) -> Duration {
        PATIENCE
    }

    fn separates_stderr(&self) -> bool {
        true
    }

    async fn purge(&self, id: &RemoteId) -> bool {
        self.manager.remove(&SubmitToken::parse(id.as_str()).unwrap()).await.unwrap();
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    let report = conformance::run(&Machine::new()).await;
    assert!(report.is_ok(), "{report}");
    // What cannot be on this machine: a second job under a token, a queue, holding, faults of a network.
    let skipped = report.skipped();
    for facet in ["logs_", "files_", "load_", "cancel_ends_a_running", "purged_"] {
        assert!(!skipped.iter().any(|case| case.contains(facet)), "{skipped:?}");
    }
}
