//! One Driver drives many jobs against the in-memory manager.
//!
//! Prints requests per poll round, bytes per job, the process's peak memory, and submissions per second beside a loop that
//! makes the same calls on the same manager with nothing around them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bridge_core::clock::{Clock, SystemClock};
use bridge_core::driver::{Driver, Leaving, NewJob, Observer};
use bridge_core::ids::{JobKey, SubmitToken};
use bridge_core::manager::{Guarantee, Limits, ResourceManager, Tracked};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, Target, TextSource};
use bridge_core::record::JobRecord;
use bridge_core::staging::{NoStaging, submission_without_objects};
use bridge_core::state::{Rules, Wishes};
use bridge_core::store::MemStore;
use bridge_testkit::faults::Operation;
use bridge_testkit::memory::MemoryManager;
use tokio::sync::Notify;

const BATCH: usize = 100_000;
const POLL: Duration = Duration::from_secs(2);
/// Long enough that all jobs are in the remote system's hands at once for several rounds.
const RUNNING: Duration = Duration::from_secs(20);

struct Counting {
    submitted: AtomicUsize,
    ended: AtomicUsize,
    failed: AtomicUsize,
    changed: Notify,
}

impl Observer for Counting {
    fn saved(&self, _key: &JobKey, record: &JobRecord) {
        if record.id().is_some() && record.times.submitted.is_some() && record.facts.started.is_none() {
            self.submitted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn left(&self, _key: &JobKey, why: &Leaving) {
        if !matches!(why, Leaving::Finished(_)) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn stumbled(&self, _key: &JobKey, _what: &str) {}
}

fn plan(number: usize) -> JobPlan {
    JobPlan {
        key: JobKey::new("bench", format!("job-{number}")),
        uid: format!("{number:032x}"),
        target: Target { manager: ManagerKind::Local, url: "memory:".to_owned(), secret: None },
        poll_seconds: 2,
        script: ScriptSource::Inline("succeed".to_owned()),
        metadata: TextSource::Inline(String::new()),
        parameters: TextSource::Inline(String::new()),
        inputs: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        storage: None,
        upload: None,
        notes: Vec::new(),
    }
}

/// A field of `/proc/self/status` in KiB.
fn memory(field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("this benchmark needs /proc")?;
    let line = status.lines().find(|line| line.starts_with(field)).context("no such field in /proc/self/status")?;
    let number = line.split_whitespace().nth(1).context("no number in /proc/self/status")?;
    Ok(number.parse()?)
}

async fn bare_rate(jobs: usize, clock: &Arc<dyn Clock>) -> anyhow::Result<f64> {
    let manager = MemoryManager::new(Guarantee::TwoPhase).with_clock(Arc::clone(clock));
    let hold = manager.hold().context("the in-memory manager can hold")?;
    let start = Instant::now();
    for number in 0..jobs {
        let plan = plan(number);
        let token = SubmitToken::derive(&plan.uid, 1);
        let submission = submission_without_objects(&plan, &token).context("nothing is staged")?;
        let id = manager.submit(&submission).await?.id;
        hold.release(&Tracked { id, token, verify: false, cancelling: false }).await?;
    }
    Ok(f64::from(u32::try_from(jobs)?) / start.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let jobs: usize =
        std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse()).context("usage: driver [jobs]")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let bare = bare_rate(jobs, &clock).await?;

    let manager = MemoryManager::new(Guarantee::TwoPhase)
        .with_clock(Arc::clone(&clock))
        .with_limits(Limits { poll_batch: BATCH, concurrent_submits: 64 })
        .with_times(Duration::ZERO, RUNNING);
    let counting = Arc::new(Counting {
        submitted: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
        changed: Notify::new(),
    });
    let (driver, handle) = Driver::new(Arc::clone(&clock), "bench", Arc::clone(&counting) as Arc<dyn Observer>);
    let running = tokio::spawn(driver.run());
    let shared: Arc<dyn ResourceManager> = Arc::new(manager.clone());
    let before = memory("VmRSS")?;
    let store = Arc::new(MemStore::default());
    let start = Instant::now();
    for number in 0..jobs {
        let rules = Rules::plain(Guarantee::TwoPhase, POLL);
        handle
            .add(NewJob {
                plan: Arc::new(plan(number)),
                rules,
                wishes: Wishes::default(),
                manager: Arc::clone(&shared),
                staging: Arc::new(NoStaging),
                store: Arc::clone(&store) as _,
            })
            .await?;
    }
    let requests = manager.faults();
    while requests.requests(Operation::Release) < jobs as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rate = f64::from(u32::try_from(jobs)?) / start.elapsed().as_secs_f64();
    let with_jobs = memory("VmRSS")?;

    // Whole rounds while every job runs.
    let polls_before = requests.requests(Operation::Poll);
    let watched_from = Instant::now();
    tokio::time::sleep(POLL * 4).await;
    let polls = requests.requests(Operation::Poll) - polls_before;
    let rounds = watched_from.elapsed().as_secs_f64() / POLL.as_secs_f64();

    while counting.ended.load(Ordering::Relaxed) < jobs {
        counting.changed.notified().await;
    }
    handle.stop();
    running.await?;
    if counting.failed.load(Ordering::Relaxed) > 0 {
        bail!("{} jobs did not end", counting.failed.load(Ordering::Relaxed));
    }
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let (polls, per_job) = (polls as f64, ((with_jobs.saturating_sub(before)) * 1024) as f64 / jobs as f64);
    println!("jobs driven by one Driver            {jobs}");
    println!(
        "poll requests per round              {:.2}  ({polls} requests in {rounds:.1} rounds of {jobs} jobs)",
        polls / rounds
    );
    println!(
        "submissions per second               {rate:.0}  ({:.0} % of a bare loop's {bare:.0}; each submission is submit, save, release, save)",
        100.0 * rate / bare
    );
    println!("bytes per job, manager and store too {per_job:.0}");
    println!("peak memory                          {:.1} MiB", f64::from(u32::try_from(memory("VmHWM")?)?) / 1024.0);
    Ok(())
}
