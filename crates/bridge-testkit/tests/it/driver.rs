//! The Driver as a whole, under paused time, against the in-memory manager.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_api::JobStatus;
use bridge_core::clock::{Clock, Instant};
use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob, Observer};
use bridge_core::ids::{JobKey, SubmitToken};
use bridge_core::manager::{Guarantee, ResourceManager};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, Target, TextSource};
use bridge_core::record::{JobRecord, JobState};
use bridge_core::staging::NoStaging;
use bridge_core::state::{Rules, Wishes};
use bridge_core::status::StatusView;
use bridge_core::store::MemStore;
use bridge_testkit::faults::{Fault, Operation};
use bridge_testkit::memory::MemoryManager;
use tokio::sync::watch;

/// Both clocks follow tokio's paused time.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Instant {
        let mono = self.0.elapsed();
        let wall = jiff::Timestamp::from_second(1_800_000_000).unwrap() + mono;
        Instant { wall, mono }
    }
}

/// What happened, for tests to wait on.
struct Story {
    saves: Mutex<Vec<JobRecord>>,
    left: watch::Sender<BTreeMap<String, Leaving>>,
    latest: watch::Sender<Option<JobRecord>>,
}

impl Observer for Story {
    fn saved(&self, _key: &JobKey, record: &JobRecord) {
        self.saves.lock().unwrap().push(record.clone());
        self.latest.send_replace(Some(record.clone()));
    }

    fn left(&self, key: &JobKey, why: &Leaving) {
        self.left.send_modify(|left| {
            left.insert(key.name.clone(), why.clone());
        });
    }

    fn stumbled(&self, _key: &JobKey, _what: &str) {}
}

struct Stage {
    clock: Arc<dyn Clock>,
    manager: MemoryManager,
    store: Arc<MemStore>,
    rules: Rules,
    processes: u32,
}

struct Process {
    handle: DriverHandle,
    story: Arc<Story>,
    running: tokio::task::JoinHandle<()>,
}

impl Stage {
    fn new(guarantee: Guarantee) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(PausedClock(tokio::time::Instant::now()));
        let manager = MemoryManager::new(guarantee)
            .with_clock(Arc::clone(&clock))
            .with_times(Duration::from_secs(5), Duration::from_secs(30));
        let rules = Rules::plain(guarantee, Duration::from_secs(10));
        assert_eq!(rules.can_hold, manager.hold().is_some());
        Self { clock, manager, store: Arc::default(), rules, processes: 0 }
    }

    /// A new process, as after a restart.
    fn process(&mut self) -> Process {
        self.processes += 1;
        let (left, _) = watch::channel(BTreeMap::new());
        let (latest, _) = watch::channel(None);
        let story = Arc::new(Story { saves: Mutex::default(), left, latest });
        let holder = format!("process-{}", self.processes);
        let (driver, handle) = Driver::new(Arc::clone(&self.clock), holder, Arc::clone(&story) as Arc<dyn Observer>);
        Process { handle, story, running: tokio::spawn(driver.run()) }
    }

    fn job(&self, name: &str, script: &str, wishes: Wishes) -> NewJob {
        let plan = JobPlan {
            key: JobKey::new("", name),
            uid: format!("uid{name}"),
            target: Target { manager: ManagerKind::Local, url: "memory:".to_owned(), secret: None },
            poll_seconds: 10,
            script: ScriptSource::Inline(script.to_owned()),
            metadata: TextSource::Inline(String::new()),
            parameters: TextSource::Inline(String::new()),
            inputs: Vec::new(),
            properties: BTreeMap::new(),
            storage: None,
            upload: None,
            notes: Vec::new(),
        };
        NewJob {
            plan: Arc::new(plan),
            rules: self.rules.clone(),
            wishes,
            manager: Arc::new(self.manager.clone()),
            staging: Arc::new(NoStaging),
            store: Arc::clone(&self.store) as _,
        }
    }

    fn record(&self, name: &str) -> JobRecord {
        self.store.read(&JobKey::new("", name)).unwrap().unwrap().record
    }

    fn released(&self, name: &str, attempt: u32) -> u32 {
        self.manager.released(&SubmitToken::derive(&format!("uid{name}"), attempt))
    }
}

impl Process {
    async fn end(&self, name: &str) -> Leaving {
        let mut left = self.story.left.subscribe();
        let found = tokio::time::timeout(Duration::from_secs(86_400), left.wait_for(|left| left.contains_key(name)));
        found.await.expect("the job did not end within a day").unwrap()[name].clone()
    }

    async fn until(&self, what: impl Fn(&JobRecord) -> bool) {
        let mut latest = self.story.latest.subscribe();
        let found = tokio::time::timeout(
            Duration::from_secs(86_400),
            latest.wait_for(|record| record.as_ref().is_some_and(&what)),
        );
        found.await.expect("it did not happen within a day").unwrap();
    }

    /// Killed: nothing it had under way is heard of again.
    async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }

    fn saves(&self) -> Vec<JobRecord> {
        self.story.saves.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_once_and_its_intent_and_id_are_saved_first() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let process = stage.process();
    process.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    assert!(matches!(process.end("one").await, Leaving::Finished(_)));
    let states: Vec<&'static str> = process
        .saves()
        .iter()
        .map(|record| match record.state {
            JobState::Submitting { .. } => "submitting",
            JobState::Prepared { .. } => "prepared",
            JobState::Active { .. } => "active",
            JobState::Finished { .. } => "finished",
            _ => "other",
        })
        .collect();
    assert_eq!(states[..3], ["submitting", "prepared", "active"]);
    assert_eq!(states.last(), Some(&"finished"));
    assert!(states.len() <= 6, "{states:?} {:#?}: each save is a write to Kubernetes", process.saves());
    assert_eq!(stage.released("one", 1), 1);
    let view = StatusView::of(&stage.record("one"));
    assert_eq!((view.status, view.process_exit_code()), (JobStatus::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_and_a_restart_make_one_job() {
    for guarantee in [Guarantee::TwoPhase, Guarantee::OwnKey, Guarantee::LookUp] {
        let mut stage = Stage::new(guarantee);
        stage.manager.faults().next(Operation::Submit, Fault::LostReply);
        let first = stage.process();
        first.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
        first.until(|record| record.doubt).await;
        first.kill().await;
        let second = stage.process();
        second.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
        assert!(matches!(second.end("one").await, Leaving::Finished(_)), "{guarantee:?}");
        let record = stage.record("one");
        assert_eq!(StatusView::of(&record).status, JobStatus::Done, "{guarantee:?}");
        assert_eq!((stage.released("one", 1), stage.manager.len()), (1, 1), "{guarantee:?}");
        assert_eq!(record.counters.duplicates_prevented, 1, "{guarantee:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_before_the_start_asks_nothing_of_the_remote_system() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let process = stage.process();
    let kill = Wishes { kill: true, ..Wishes::default() };
    process.handle.add(stage.job("one", "run", kill)).await.unwrap();
    process.end("one").await;
    assert_eq!(stage.manager.faults().total(), 0);
    assert_eq!(StatusView::of(&stage.record("one")).status, JobStatus::Killed);
}

#[tokio::test(start_paused = true)]
async fn a_running_job_is_killed_and_the_remote_system_confirms() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let process = stage.process();
    process.handle.add(stage.job("one", "run", Wishes::default())).await.unwrap();
    process.until(|record| record.facts.started.is_some()).await;
    // The first cancel does not get through; the wish stays.
    stage.manager.faults().next(Operation::Cancel, Fault::ServerError);
    process.handle.wish(&JobKey::new("", "one"), Wishes { kill: true, ..Wishes::default() });
    process.end("one").await;
    let view = StatusView::of(&stage.record("one"));
    assert_eq!((view.status, view.process_exit_code()), (JobStatus::Killed, 130));
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_are_repeated_up_to_the_limit_each_with_its_own_token() {
    let mut stage = Stage::new(Guarantee::OwnKey);
    stage.rules.backoff_limit = 2;
    let process = stage.process();
    process.handle.add(stage.job("one", "fail 3", Wishes::default())).await.unwrap();
    process.end("one").await;
    let record = stage.record("one");
    let view = StatusView::of(&record);
    assert_eq!((view.status, view.exit_code, record.attempt, record.past.len()), (JobStatus::Failed, Some(3), 3, 2));
    for attempt in 1..=3 {
        assert_eq!(stage.released("one", attempt), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_job_fails_with_the_managers_words_and_is_not_tried_again() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    stage.rules.backoff_limit = 5;
    let process = stage.process();
    process.handle.add(stage.job("one", "refuse", Wishes::default())).await.unwrap();
    process.end("one").await;
    let view = StatusView::of(&stage.record("one"));
    assert_eq!((view.status, view.reason.as_str()), (JobStatus::Failed, "SubmissionRefused"));
    assert_eq!(stage.manager.faults().requests(Operation::Submit), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queued_job_is_held_while_suspended_and_goes_on_under_the_same_id() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    stage.manager = stage.manager.with_times(Duration::from_secs(60), Duration::from_secs(30));
    let key = JobKey::new("", "one");
    let process = stage.process();
    process.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    process.until(|record| matches!(record.state, JobState::Active { .. })).await;
    process.handle.wish(&key, Wishes { suspend: true, ..Wishes::default() });
    process.until(|record| StatusView::of(record).status == JobStatus::Suspended).await;
    let held = stage.record("one").id().cloned();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(StatusView::of(&stage.record("one")).status, JobStatus::Suspended, "it does not start while held");
    process.handle.wish(&key, Wishes::default());
    process.end("one").await;
    let record = stage.record("one");
    assert_eq!((StatusView::of(&record).status, record.id().cloned(), record.attempt), (JobStatus::Done, held, 1));
}

#[tokio::test(start_paused = true)]
async fn a_running_job_is_cancelled_while_suspended_and_queued_again_without_counting() {
    let mut stage = Stage::new(Guarantee::OwnKey);
    let key = JobKey::new("", "one");
    let process = stage.process();
    process.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    process.until(|record| record.facts.started.is_some()).await;
    process.handle.wish(&key, Wishes { suspend: true, ..Wishes::default() });
    process.until(|record| record.attempt == 2).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(stage.manager.len(), 1, "nothing is submitted while suspended");
    process.handle.wish(&key, Wishes::default());
    process.end("one").await;
    let record = stage.record("one");
    assert_eq!((StatusView::of(&record).status, record.attempt, record.failures), (JobStatus::Done, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_job_and_says_so() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    stage.rules.deadline = Some(Duration::from_secs(120));
    let process = stage.process();
    process.handle.add(stage.job("one", "run", Wishes::default())).await.unwrap();
    process.end("one").await;
    let record = stage.record("one");
    let view = StatusView::of(&record);
    assert_eq!((view.status, view.reason.as_str()), (JobStatus::Failed, "DeadlineExceeded"));
    let took = record.times.finished.unwrap().duration_since(record.times.active.unwrap()).as_secs();
    assert!((120..130).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_told_once_and_costs_no_writes() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let process = stage.process();
    process.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    process.until(|record| matches!(record.state, JobState::Active { .. })).await;
    stage.manager.faults().outage(Fault::Reset);
    process.until(|record| record.trouble.is_some()).await;
    let told = process.saves().len();
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    assert_eq!(process.saves().len(), told, "nothing changed, nothing is written");
    stage.manager.faults().clear();
    process.end("one").await;
    let record = stage.record("one");
    assert_eq!((StatusView::of(&record).status, record.trouble), (JobStatus::Done, None));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_down_at_the_start_costs_no_writes_either() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    stage.manager.faults().outage(Fault::ServerError);
    let process = stage.process();
    process.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    process.until(|record| record.trouble.is_some()).await;
    let told = process.saves().len();
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    assert_eq!(process.saves().len(), told);
    stage.manager.faults().clear();
    process.end("one").await;
    assert_eq!(stage.released("one", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn the_second_holder_goes_on_and_the_first_leaves() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let first = stage.process();
    first.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    first.until(|record| matches!(record.state, JobState::Active { .. })).await;
    let second = stage.process();
    second.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    assert!(matches!(second.end("one").await, Leaving::Finished(_)));
    assert_eq!(first.end("one").await, Leaving::Fenced);
    assert_eq!(stage.released("one", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn an_id_given_to_a_stranger_is_lost_not_followed() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let process = stage.process();
    process.handle.add(stage.job("one", "run", Wishes::default())).await.unwrap();
    process.until(|record| record.facts.started.is_some()).await;
    let id = stage.record("one").id().cloned().unwrap();
    assert!(stage.manager.give_away(&id));
    process.end("one").await;
    let view = StatusView::of(&stage.record("one"));
    assert_eq!((view.status, view.reason.as_str()), (JobStatus::Unknown, "Lost"));
}

#[tokio::test(start_paused = true)]
async fn many_jobs_share_their_polls() {
    let mut stage = Stage::new(Guarantee::OwnKey);
    stage.manager = stage.manager.with_times(Duration::from_secs(5), Duration::from_secs(3600));
    let process = stage.process();
    for number in 0..200 {
        process.handle.add(stage.job(&format!("job-{number}"), "succeed", Wishes::default())).await.unwrap();
        tokio::time::sleep(Duration::from_millis(37)).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = stage.manager.faults().requests(Operation::Poll);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let polls = stage.manager.faults().requests(Operation::Poll) - before;
    assert!((55..=70).contains(&polls), "{polls} polls in 60 intervals for 200 jobs");
    for number in 0..200 {
        process.end(&format!("job-{number}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_leaves_the_job_to_a_successor() {
    let mut stage = Stage::new(Guarantee::TwoPhase);
    let first = stage.process();
    first.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    first.until(|record| matches!(record.state, JobState::Active { .. })).await;
    first.handle.stop();
    first.running.await.unwrap();
    let second = stage.process();
    second.handle.add(stage.job("one", "succeed", Wishes::default())).await.unwrap();
    second.end("one").await;
    assert_eq!((stage.released("one", 1), stage.manager.len()), (1, 1));
    assert_eq!(StatusView::of(&stage.record("one")).status, JobStatus::Done);
}
