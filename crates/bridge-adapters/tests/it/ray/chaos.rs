//! Whole lives through the driver, on a cluster that answers badly one time in four, with workers that are killed in the
//! middle of everything: no job runs twice, and none is lost.

use std::path::Path;

use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob, Observer};
use bridge_core::ids::JobKey;
use bridge_core::manager::{Guarantee, Verdict};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, Target, TextSource};
use bridge_core::record::{Ending, JobRecord, JobState};
use bridge_core::staging::NoStaging;
use bridge_core::state::{Rules, Tuning, Wishes};
use bridge_core::store::{JobStore, MemStore};
use bridge_testkit::faults::Fault;

use super::*;

const JOBS: usize = 24;

/// Records that outlive every worker, and what became of the jobs.
#[derive(Default)]
struct Survivors {
    store: Arc<MemStore>,
    finished: Mutex<BTreeMap<JobKey, Ending>>,
}

impl Observer for Survivors {
    fn saved(&self, key: &JobKey, record: &JobRecord) {
        if let JobState::Finished { ending } = &record.state {
            self.finished.lock().unwrap().insert(key.clone(), ending.clone());
        }
    }
    fn left(&self, _: &JobKey, _: &Leaving) {}
    fn stumbled(&self, _: &JobKey, _: &str) {}
}

/// A worker with threads of its own, so that it can be killed in the middle of anything.
struct Worker {
    runtime: tokio::runtime::Runtime,
    handle: DriverHandle,
    manager: Arc<dyn ResourceManager>,
    survivors: Arc<Survivors>,
}

impl Worker {
    fn start(number: usize, url: &str, survivors: &Arc<Survivors>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let manager = Arc::new(manager_at(url, &Secret::new(&[("token", TOKEN)])));
        let observer = Arc::clone(survivors) as Arc<dyn Observer>;
        let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), format!("worker-{number}"), observer);
        runtime.spawn(driver.run());
        Self { runtime, handle, manager, survivors: Arc::clone(survivors) }
    }

    fn add(&self, plan: &Arc<JobPlan>) {
        let rules = Rules {
            guarantee: Guarantee::OwnKey,
            can_hold: false,
            stages_in: false,
            stages_out: false,
            backoff_limit: 0,
            deadline: None,
            poll_interval: Duration::from_millis(100),
            tuning: Tuning {
                error_pause: Duration::from_millis(50),
                error_pause_max: Duration::from_millis(500),
                ..Tuning::default()
            },
        };
        let job = NewJob {
            plan: Arc::clone(plan),
            rules,
            wishes: Wishes::default(),
            manager: Arc::clone(&self.manager),
            staging: Arc::new(NoStaging),
            store: Arc::clone(&self.survivors.store) as Arc<dyn JobStore>,
        };
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.add(job).await });
    }

    /// As `kill -9` does: everything stops where it is.
    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

fn plan(number: usize, url: &str, folder: &Path) -> Arc<JobPlan> {
    let runs = folder.join(format!("runs-{number}")).display().to_string();
    let script = format!("echo run >> {runs}; sleep 0.3");
    // Every second one has a package to upload.
    let script = if number.is_multiple_of(2) {
        ScriptSource::Remote(script)
    } else {
        ScriptSource::Inline(format!("#!/bin/sh\n{script}\n"))
    };
    Arc::new(JobPlan {
        key: JobKey::new("", format!("job-{number}")),
        uid: format!("chaos{number}"),
        target: Target { manager: ManagerKind::Ray, url: url.to_owned(), secret: None },
        poll_seconds: 1,
        script,
        metadata: TextSource::Inline(String::new()),
        parameters: TextSource::Inline(String::new()),
        inputs: Vec::new(),
        properties: BTreeMap::new(),
        storage: None,
        upload: None,
        notes: Vec::new(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_twice_and_nothing_is_lost_whatever_fails() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().unwrap();
    let survivors = Arc::new(Survivors::default());
    let faults =
        [&Fault::WITHOUT_ANSWER[..], &[Fault::Unauthorized, Fault::Delay(Duration::from_millis(100))]].concat();
    cluster.faults.by_chance(7, 25, faults);
    let plans: Vec<_> = (0..JOBS).map(|number| plan(number, cluster.server.url(), folder.path())).collect();
    for round in 0..8 {
        let worker = Worker::start(round, cluster.server.url(), &survivors);
        plans.iter().take((round + 1) * JOBS / 8).for_each(|plan| worker.add(plan));
        // The moment does not matter, as long as it is another one each time.
        tokio::time::sleep(Duration::from_millis(150 + 70 * u64::try_from(round).unwrap())).await;
        worker.kill();
    }
    let last = Worker::start(8, cluster.server.url(), &survivors);
    for plan in &plans {
        last.add(plan);
    }
    until("the end of all jobs", async || (survivors.finished.lock().unwrap().len() == JOBS).then_some(())).await;
    last.kill();
    let requests = cluster.faults.total();
    cluster.faults.clear();

    for (number, plan) in plans.iter().enumerate() {
        let ending = survivors.finished.lock().unwrap()[&plan.key].clone();
        let Ending::Ran { outcome, .. } = &ending else { panic!("job {number} ended as {ending:?}") };
        assert_eq!(outcome.verdict, Verdict::Succeeded, "job {number}: {outcome:?}");
        let runs = std::fs::read_to_string(folder.path().join(format!("runs-{number}"))).unwrap();
        assert_eq!(runs, "run\n", "job {number}");
    }
    assert_eq!(cluster.server.jobs(), JOBS);
    println!("{JOBS} jobs, {requests} requests, one in four of them failed, 8 workers killed: each ran once");
}
