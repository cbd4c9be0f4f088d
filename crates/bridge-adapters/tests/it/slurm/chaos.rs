//! slurmctld, slurmrestd and our own worker are killed at random moments, again and again: no job runs twice, and none
//! is lost that slurmctld itself kept.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Mutex;

use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob, Observer};
use bridge_core::ids::JobKey;
use bridge_core::manager::{Found, Guarantee, Phase, Verdict};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, Target, TextSource};
use bridge_core::record::{Ending, JobRecord, JobState};
use bridge_core::staging::NoStaging;
use bridge_core::state::{Rules, Tuning, Wishes};
use bridge_core::store::{JobStore, MemStore};
use bridge_testkit::lab::{self, Lab};
use jiff::Timestamp;
use secrecy::ExposeSecret;

use super::*;

const JOBS: usize = 50;
/// How long the killing goes on.
const TURMOIL: Duration = Duration::from_secs(45);
/// How long the rest may take in peace.
const PEACE: Duration = Duration::from_mins(3);

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
    runtime: Option<tokio::runtime::Runtime>,
    handle: DriverHandle,
    manager: Arc<dyn ResourceManager>,
    survivors: Arc<Survivors>,
}

impl Worker {
    fn start(number: usize, url: &str, home: &Path, user: &str, token: &str, survivors: &Arc<Survivors>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let manager: Arc<dyn ResourceManager> = Arc::new(adapter(url, home, credentials(user, token)));
        let observer = Arc::clone(survivors) as Arc<dyn Observer>;
        let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), format!("worker-{number}"), observer);
        runtime.spawn(driver.run());
        Self { runtime: Some(runtime), handle, manager, survivors: Arc::clone(survivors) }
    }

    fn add(&self, plan: &Arc<JobPlan>) {
        let rules = Rules {
            guarantee: Guarantee::TwoPhase,
            can_hold: true,
            stages_in: false,
            stages_out: false,
            backoff_limit: 0,
            deadline: None,
            poll_interval: Duration::from_millis(500),
            tuning: Tuning {
                missing_grace: Duration::from_secs(10),
                error_pause: Duration::from_millis(200),
                error_pause_max: Duration::from_secs(2),
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
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move { handle.add(job).await });
        }
    }

    /// As `kill -9` does: everything stops where it is.
    fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn plan(number: usize, url: &str, home: &Path) -> Arc<JobPlan> {
    let script = format!("#!/bin/sh\necho \"$SLURM_JOB_ID $(date +%T.%N)\" >> runs-{number}\nsleep 2\n");
    let folder = json!(home.display().to_string());
    Arc::new(JobPlan {
        key: JobKey::new("", format!("job-{number}")),
        uid: format!("chaos{number}"),
        target: Target { manager: ManagerKind::Slurm, url: url.to_owned(), secret: None },
        poll_seconds: 1,
        script: ScriptSource::Inline(script),
        metadata: TextSource::Inline(String::new()),
        parameters: TextSource::Inline(String::new()),
        inputs: Vec::new(),
        // Without this Slurm itself would run a job again whose start it has forgotten.
        properties: BTreeMap::from([("currentWorkingDir".to_owned(), folder), ("requeue".to_owned(), json!("false"))]),
        storage: None,
        upload: None,
        notes: Vec::new(),
    })
}

/// Kills one of the cluster's programs and starts it again.
async fn kill_part(lab: &Lab, folder: &Path, part: &str) {
    let text = std::fs::read_to_string(folder.join("slurm/run").join(format!("{part}.pid"))).unwrap();
    let id = text.split_whitespace().next().unwrap().to_owned();
    tokio::process::Command::new("kill").args(["-KILL", &id]).status().await.unwrap();
    // A slurmctld that has forgotten the start of a job starts it again, finds it running, and drains the node.
    let resuming = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = lab.run("exec", &["slurm", "scontrol", "update", "nodename=node1", "state=resume"]).await;
        }
    };
    tokio::select! {
        up = lab.must("up", &["slurm"]) => { up.unwrap(); }
        () = resuming => {}
    }
}

/// Does what a user does about jobs that are held although they were released, because slurmctld has forgotten that:
/// nothing but the user's own knowledge tells whether they have run, so the bridge leaves them held.
async fn free_forgotten(lab: &Lab, home: &Path, plans: &[Arc<JobPlan>], survivors: &Survivors) -> usize {
    let mut freed = 0;
    for (number, plan) in plans.iter().enumerate() {
        let record = survivors.store.read(&plan.key).unwrap().unwrap().record;
        if let JobState::Active { id, phase: Phase::Held, .. } = record.state {
            let has_run = home.join(format!("runs-{number}")).exists();
            let command: &[&str] = if has_run { &["scancel"] } else { &["scontrol", "release"] };
            lab.must("exec", &[&["slurm"], command, &[id.as_str()]].concat()).await.unwrap();
            freed += 1;
        }
    }
    freed
}

async fn folder(lab: &Lab) -> PathBuf {
    let values = lab.must("env", &["--plain"]).await.unwrap();
    values.lines().find_map(|line| line.strip_prefix("BRIDGE_LAB_FOLDER=")).unwrap().into()
}

/// A number below `end`.
fn random(end: u64) -> u64 {
    RandomState::new().hash_one(0) % end
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes of random kills, and one run was seen in which jobs did not end, why is not known: run by bench/slurm-chaos"]
async fn nothing_runs_twice_and_nothing_is_lost_whoever_is_killed() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let lab = Lab::own("chaos");
    let slurm: lab::Slurm = lab.slurm().await.unwrap();
    let folder = folder(&lab).await;
    let (url, home) = (slurm.url.to_string(), slurm.home.clone());
    let token = slurm.token(3600).await.unwrap().expose_secret().to_owned();
    let survivors = Arc::new(Survivors::default());
    let start = |number: usize| Worker::start(number, &url, &home, &slurm.user, &token, &survivors);

    let mut workers = 1;
    let mut worker = start(workers);
    let mut plans: Vec<Arc<JobPlan>> = Vec::new();
    let mut kills: BTreeMap<&str, u32> = BTreeMap::new();
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < TURMOIL {
        for _ in 0..3 {
            if plans.len() < JOBS {
                let plan = plan(plans.len(), &url, &home);
                worker.add(&plan);
                plans.push(plan);
            }
        }
        tokio::time::sleep(Duration::from_millis(100 + random(900))).await;
        let victim = ["worker", "worker", "slurmrestd", "slurmctld"][usize::try_from(random(4)).unwrap()];
        *kills.entry(victim).or_default() += 1;
        if victim == "worker" {
            worker.kill();
            workers += 1;
            worker = start(workers);
            for plan in &plans {
                worker.add(plan);
            }
        } else {
            kill_part(&lab, &folder, victim).await;
        }
    }
    while plans.len() < JOBS {
        let plan = plan(plans.len(), &url, &home);
        worker.add(&plan);
        plans.push(plan);
    }
    let deadline = tokio::time::Instant::now() + PEACE;
    let mut forgotten = 0;
    while survivors.finished.lock().unwrap().len() < JOBS {
        let open = || {
            let finished = survivors.finished.lock().unwrap();
            let open = plans.iter().filter(|plan| !finished.contains_key(&plan.key));
            open.map(|plan| format!("{:?}", survivors.store.read(&plan.key))).collect::<Vec<_>>().join("\n")
        };
        assert!(tokio::time::Instant::now() < deadline, "after {kills:?} these do not end:\n{}", open());
        // Jobs that ended while slurmctld was away run for ever in its eyes until the node tells it what it has.
        lab.must("exec", &["slurm", "scontrol", "reconfigure"]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        forgotten += free_forgotten(&lab, &home, &plans, &survivors).await;
    }

    let finished = survivors.finished.lock().unwrap().clone();
    let manager = adapter(&url, &home, credentials(&slurm.user, &token));
    let (mut done, mut lost, mut failed, mut held) = (0, 0, 0, 0);
    for (number, plan) in plans.iter().enumerate() {
        let runs = std::fs::read_to_string(home.join(format!("runs-{number}"))).unwrap_or_default();
        let times = runs.lines().count();
        match &finished[&plan.key] {
            Ending::Ran { outcome, .. } if outcome.verdict == Verdict::Succeeded => {
                assert_eq!(times, 1, "job {number} succeeded and ran:\n{runs}");
                done += 1;
            }
            // slurmctld forgets what it took in the two seconds before it is killed; that is said, not guessed away.
            Ending::Lost { .. } => {
                assert!(times <= 1, "job {number} is lost and ran:\n{runs}");
                lost += 1;
            }
            Ending::Ran { outcome, .. } if outcome.verdict == Verdict::Cancelled && times == 1 => {}
            // Ended by Slurm itself, which found it running when it meant to start it.
            Ending::Ran { outcome, .. } if outcome.verdict == Verdict::Failed => {
                assert!(times <= 1, "job {number} failed and ran:\n{runs}");
                println!("job {number}: {}", outcome.message);
                failed += 1;
            }
            other => panic!("job {number} ended as {other:?} and ran:\n{runs}"),
        }
        let mark = SubmitToken::derive(&plan.uid, 1);
        if let Found::Jobs(ids) = manager.find(&mark, Timestamp::UNIX_EPOCH).await.unwrap() {
            for id in ids {
                match look(&manager, &tracked(&id, &mark)).await {
                    Sighting::Ended(..) => {}
                    // Raised from the dead by a slurmctld that has forgotten its release and its end; it never runs.
                    Sighting::Alive(Phase::Held, _) => held += 1,
                    seen => panic!("job {number} left {id}: {seen:?}"),
                }
            }
        }
    }
    println!("killed {kills:?}: {done} of {JOBS} jobs done once, {lost} forgotten by slurmctld and said so");
    println!("{failed} ended by slurmctld, {forgotten} whose release it forgot, {held} raised from the dead, held");
    assert!(done > JOBS / 2, "the cluster was too unwell to show anything");
    worker.kill();
    lab.down().await.unwrap();
}
