//! Outputs that cannot be sent: tried again with growing pauses, for an hour.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_api::JobStatus;
use bridge_core::clock::{self, Clock};
use bridge_core::driver::{Driver, NewJob};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Outcome, ResourceManager, Verdict};
use bridge_core::plan::{JobPlan, Submission};
use bridge_core::record::{JobRecord, JobState};
use bridge_core::staging::{Output, Staging, StagingError, submission_without_objects};
use bridge_core::state::{Event, Machine, Rules};
use bridge_core::status::StatusView;
use bridge_core::store::{JobStore, MemStore};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::progress::{Tell, job};

/// A store that is away until a moment, if there is one.
#[derive(Debug)]
struct Away {
    until: Option<Instant>,
    tries: Mutex<Vec<Instant>>,
}

impl Away {
    fn for_time(time: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { until: time.map(|time| Instant::now() + time), tries: Mutex::default() })
    }

    fn pauses(&self) -> Vec<Duration> {
        self.tries.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

fn sent(key: &str) -> Output {
    Output { bucket: "b".to_owned(), key: key.to_owned(), size: 1, checksum: "sha256:00".to_owned() }
}

#[async_trait]
impl Staging for Away {
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        _: &dyn ResourceManager,
    ) -> Result<Submission, StagingError> {
        submission_without_objects(plan, token).ok_or_else(|| StagingError::lasting("no"))
    }
    async fn stage_out(
        &self,
        _: &JobPlan,
        _: &SubmitToken,
        _: &RemoteId,
        _: &Outcome,
        _: &dyn ResourceManager,
    ) -> Result<Vec<Output>, StagingError> {
        self.tries.lock().unwrap().push(Instant::now());
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Ok(vec![sent("hello/script"), sent("hello/stdout")]);
        }
        let why = if self.tries.lock().unwrap().len() < 10 { "away" } else { "denied" };
        let message = format!("writing \"b:hello/stdout\": {why}");
        Err(StagingError { sent: vec![sent("hello/script")], ..StagingError::passing(message) })
    }
}

/// A process's clock whose wall follows tokio's paused time, over all processes of a test.
struct Clocks {
    started: Instant,
    epoch: Instant,
}

impl Clocks {
    fn of_process(epoch: Instant) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), epoch })
    }
}

impl Clock for Clocks {
    fn now(&self) -> clock::Instant {
        let wall = START.parse::<Timestamp>().unwrap() + SignedDuration::try_from(self.epoch.elapsed()).unwrap();
        clock::Instant { wall, mono: self.started.elapsed() }
    }
}

const START: &str = "2026-01-02T00:00:00Z";

/// All that was told of a job until its end, or until its process is killed.
async fn life(staging: &Arc<Away>, store: &Arc<MemStore>, epoch: Instant, killed_after: Duration) -> Vec<StatusView> {
    static PROCESSES: AtomicU64 = AtomicU64::new(0);
    let holder = format!("process-{}", PROCESSES.fetch_add(1, Ordering::Relaxed));
    let (sender, mut told) = mpsc::unbounded_channel();
    let (driver, handle) = Driver::new(Clocks::of_process(epoch), holder, Arc::new(Tell(sender)));
    let running = tokio::spawn(driver.run());
    let job = job(Arc::clone(staging) as Arc<dyn Staging>);
    handle.add(NewJob { store: Arc::clone(store) as Arc<dyn JobStore>, ..job }).await.unwrap();
    let mut views = Vec::new();
    let killed_at = Instant::now() + killed_after;
    while let Ok(Some(Some(record))) = tokio::time::timeout_at(killed_at, told.recv()).await {
        views.push(StatusView::of(&record));
        if let JobState::Finished { .. } = record.state {
            let outputs = record.outputs.as_ref().unwrap();
            assert_eq!(
                (outputs.staged, outputs.files.len()),
                (staging.until.is_some(), if outputs.staged { 2 } else { 1 })
            );
            assert_eq!(outputs.message.contains("b:hello/stdout"), !outputs.staged);
        }
    }
    running.abort();
    views
}

async fn whole_life(staging: &Arc<Away>) -> Vec<StatusView> {
    life(staging, &Arc::default(), Instant::now(), Duration::from_hours(24)).await
}

#[tokio::test(start_paused = true)]
async fn outputs_that_cannot_be_sent_are_tried_for_an_hour_and_then_the_job_has_its_own_outcome() {
    let away = Away::for_time(None);
    let begin = Instant::now();
    let views = whole_life(&away).await;
    let took = begin.elapsed();
    assert!((3600..3700).contains(&took.as_secs()), "{took:?}");
    let pauses = away.pauses();
    assert!(pauses[..5].windows(2).all(|pair| pair[1] > pair[0]), "they grow: {pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(61)), "up to a minute: {pauses:?}");
    let told = |why: &str| views.iter().any(|view| view.status == JobStatus::Running && view.message.ends_with(why));
    assert!(told("\": away") && told("\": denied"), "the newest reason is told");
    let waiting = views.iter().find(|view| view.reason == "StageOutFailed").unwrap();
    assert_eq!(waiting.status, JobStatus::Running);
    assert!(waiting.message.contains("sending its outputs; since ") && waiting.message.contains("b:hello/stdout"));
    assert!(views.len() < 15, "what does not change is not written: {}", views.len());
    let last = views.last().unwrap();
    assert_eq!((last.status, last.exit_code), (JobStatus::Done, Some(0)));
    assert!(last.message.contains("its outputs were not sent: writing \"b:hello/stdout\""), "{}", last.message);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_gets_the_outputs() {
    let away = Away::for_time(Some(Duration::from_secs(300)));
    let views = whole_life(&away).await;
    let last = views.last().unwrap();
    assert_eq!(last.status, JobStatus::Done);
    assert!(!last.message.contains("not sent"), "{}", last.message);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_killed_again_and_again_tries_for_the_same_hour() {
    let (away, store, epoch) = (Away::for_time(None), Arc::default(), Instant::now());
    let mut lives = Vec::new();
    for minutes in [25, 25, 60] {
        lives.push(life(&away, &store, epoch, Duration::from_mins(minutes)).await);
    }
    let took = *away.tries.lock().unwrap().last().unwrap() - epoch;
    assert!((3600..3700).contains(&took.as_secs()), "{took:?}");
    let ends = lives.iter().map(|views| views.last().unwrap().status).collect::<Vec<_>>();
    assert_eq!(ends, [JobStatus::Running, JobStatus::Running, JobStatus::Done]);
    let writes = lives.iter().map(Vec::len).collect::<Vec<_>>();
    assert!(writes[1] <= 3, "taking over, and the reason if it is another: {writes:?}");
    let last = lives[2].last().unwrap();
    assert!(last.message.contains("its outputs were not sent: writing \"b:hello/stdout\""), "{}", last.message);
}

/// A job whose outputs fail to be sent, in one process after another.
struct Failing {
    machine: Machine,
    saved: JobRecord,
    rules: Rules,
    now: clock::Instant,
    writes: u32,
}

impl Failing {
    fn begin() -> Self {
        let wall = START.parse().unwrap();
        let outcome = Outcome {
            verdict: Verdict::Succeeded,
            exit_code: Some(0),
            signal: None,
            reason: "DONE".to_owned(),
            message: String::new(),
        };
        let mut record = JobRecord::new("abc", "first");
        record.state = JobState::StagingOut { id: RemoteId::new("1"), outcome, since: wall, failing: None };
        let rules = job(Away::for_time(None)).rules;
        let now = clock::Instant { wall, mono: Duration::from_hours(9) };
        Self { machine: Machine::recover(record.clone(), "first"), saved: record, rules, now, writes: 0 }
    }

    fn later(mut self, minutes: u32) -> Self {
        self.now.mono += Duration::from_mins(minutes.into());
        self.now.wall += SignedDuration::from_mins(minutes.into());
        self
    }

    fn clock_jumps(mut self, minutes: i64) -> Self {
        self.now.wall += SignedDuration::from_mins(minutes);
        self
    }

    /// All tries of a short time fail. Only what the machine wants to have written is kept.
    fn fails(mut self) -> Self {
        for _ in 0..3 {
            let error = StagingError::passing("away");
            if self.machine.apply(Event::StagedOut(RemoteId::new("1"), Err(error)), &self.rules, self.now) {
                self.saved = self.machine.record().clone();
                self.writes += 1;
            }
        }
        self
    }

    /// Its process is killed; the next one knows what was saved, and its monotonic clock begins at nothing.
    fn restarts(mut self) -> Self {
        self.machine = Machine::recover(self.saved.clone(), "next");
        self.now.mono = Duration::ZERO;
        self
    }

    fn is_over(&self) -> bool {
        self.saved.ending().is_some() && self.saved.outputs.as_ref().is_some_and(|outputs| !outputs.staged)
    }
}

#[test]
fn the_hour_counts_from_the_first_failure_over_all_processes() {
    // Long before the first failure the store took what it was sent: large files take their time.
    let failing = Failing::begin().later(300).fails();
    assert_eq!(failing.writes, 1, "the reason, and since when it goes along");
    let failing = failing.later(50).restarts().fails();
    assert!(!failing.is_over());
    assert!(!failing.later(9).fails().is_over());
    let failing = Failing::begin().later(300).fails().later(50).restarts().fails().later(10).fails();
    assert!(failing.is_over(), "{:?}", failing.saved);
    assert_eq!(failing.writes, 2, "and the end");
    let failing = Failing::begin().fails().later(50).restarts().later(50).restarts().fails();
    assert!(failing.is_over(), "a process that failed nothing has spent time as well: {:?}", failing.saved);
}

#[test]
fn a_wall_clock_that_jumps_neither_ends_nor_prolongs_the_hour_of_one_process() {
    assert!(!Failing::begin().fails().clock_jumps(600).later(50).fails().is_over());
    assert!(Failing::begin().fails().clock_jumps(-600).later(60).fails().is_over());
    let set_back = Failing::begin().fails().clock_jumps(-600).restarts().fails();
    assert!(!set_back.is_over());
    assert!(set_back.later(60).fails().is_over(), "an hour at most");
}
