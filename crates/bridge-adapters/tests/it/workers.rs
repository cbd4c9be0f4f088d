//! Workers that are killed in the middle of anything, and the records that outlive them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_core::clock::SystemClock;
use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob, Observer};
use bridge_core::ids::JobKey;
use bridge_core::manager::ResourceManager;
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, Target, TextSource};
use bridge_core::record::{Ending, JobRecord, JobState};
use bridge_core::staging::NoStaging;
use bridge_core::state::{Rules, Wishes};
use bridge_core::store::{JobStore, MemStore};
use serde_json::Value;

/// Longer than anything that a worker does without a pause.
const LAST_BREATH: Duration = Duration::from_secs(30);

/// What outlives every worker.
#[derive(Default)]
pub(crate) struct Survivors {
    store: Arc<MemStore>,
    fenced: Mutex<Vec<String>>,
}

impl Survivors {
    pub(crate) fn record(&self, key: &JobKey) -> Option<JobRecord> {
        self.store.read(key).unwrap().map(|stored| stored.record)
    }

    pub(crate) fn ending(&self, key: &JobKey) -> Option<Ending> {
        match self.record(key)?.state {
            JobState::Finished { ending } => Some(ending),
            _ => None,
        }
    }

    /// Jobs that a worker gave up because of another one. Never more than one is alive, so there is none.
    pub(crate) fn fenced(&self) -> Vec<String> {
        self.fenced.lock().unwrap().clone()
    }
}

impl Observer for Survivors {
    fn saved(&self, _: &JobKey, _: &JobRecord) {}
    fn left(&self, key: &JobKey, why: &Leaving) {
        if !matches!(why, Leaving::Finished(_)) {
            self.fenced.lock().unwrap().push(format!("{key}: {why:?}"));
        }
    }
    fn stumbled(&self, _: &JobKey, _: &str) {}
}

/// A worker with threads of its own.
pub(crate) struct Worker {
    runtime: tokio::runtime::Runtime,
    handle: DriverHandle,
    manager: Arc<dyn ResourceManager>,
    survivors: Arc<Survivors>,
}

impl Worker {
    pub(crate) fn start(number: usize, manager: Arc<dyn ResourceManager>, survivors: &Arc<Survivors>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let observer = Arc::clone(survivors) as Arc<dyn Observer>;
        let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), format!("worker-{number}"), observer);
        runtime.spawn(driver.run());
        Self { runtime, handle, manager, survivors: Arc::clone(survivors) }
    }

    pub(crate) fn add(&self, plan: &Arc<JobPlan>, rules: &Rules) {
        let job = NewJob {
            plan: Arc::clone(plan),
            rules: rules.clone(),
            wishes: Wishes::default(),
            manager: Arc::clone(&self.manager),
            staging: Arc::new(NoStaging),
            store: Arc::clone(&self.survivors.store) as Arc<dyn JobStore>,
        };
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.add(job).await });
    }

    /// As `kill -9` does: everything stops where it is, and nothing is done after this has returned.
    pub(crate) async fn kill(self) {
        tokio::task::spawn_blocking(move || self.runtime.shutdown_timeout(LAST_BREATH)).await.unwrap();
    }
}

/// A job without data to move.
pub(crate) fn plan(
    number: usize,
    (manager, url): (ManagerKind, &str),
    script: ScriptSource,
    properties: BTreeMap<String, Value>,
) -> Arc<JobPlan> {
    Arc::new(JobPlan {
        key: JobKey::new("", format!("job-{number}")),
        uid: format!("chaos{number}"),
        target: Target { manager, url: url.to_owned(), secret: None },
        poll_seconds: 1,
        script,
        metadata: TextSource::Inline(String::new()),
        parameters: TextSource::Inline(String::new()),
        inputs: Vec::new(),
        properties,
        storage: None,
        upload: None,
        notes: Vec::new(),
    })
}
