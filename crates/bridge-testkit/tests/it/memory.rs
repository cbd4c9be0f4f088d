//! The in-memory manager keeps to the suite under each guarantee, and does the bad things it is there for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::clock::{Clock, Instant};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    ErrorKind, Facts, Found, Guarantee, HoldAnswer, Limits, Phase, ResourceManager, Sighting, SubmitError, Tracked,
};
use bridge_core::plan::{Script, Submission};
use bridge_testkit::conformance::{self, Sample, Subject};
use bridge_testkit::faults::{Fault, FaultPlan, Operation};
use bridge_testkit::memory::MemoryManager;
use jiff::Timestamp;

const EVER: Timestamp = Timestamp::UNIX_EPOCH;

fn submission(token: &SubmitToken, script: &str) -> Submission {
    Submission {
        token: token.clone(),
        name: "memory".to_owned(),
        script: Script::Text(script.to_owned()),
        metadata: String::new(),
        parameters: String::new(),
        properties: BTreeMap::new(),
        inputs: Vec::new(),
    }
}

fn tracked(id: RemoteId, token: &SubmitToken) -> Tracked {
    Tracked { id, token: token.clone(), verify: true, cancelling: false }
}

async fn look(manager: &MemoryManager, job: &Tracked) -> Sighting {
    manager.poll(std::slice::from_ref(job)).await.unwrap().remove(&job.id).unwrap()
}

/// The in-memory manager with its samples.
pub(crate) struct Memory {
    name: &'static str,
    manager: MemoryManager,
}

impl Memory {
    pub(crate) fn new(name: &'static str, manager: MemoryManager) -> Self {
        Self { name, manager }
    }
}

#[async_trait]
impl Subject for Memory {
    fn name(&self) -> &str {
        self.name
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.manager
    }

    fn submission(&self, sample: &Sample, token: &SubmitToken) -> Option<Submission> {
        let script = match sample {
            Sample::Succeeds => "succeed".to_owned(),
            Sample::Fails(code) => format!("fail {code}"),
            Sample::Runs => "run".to_owned(),
            Sample::Queues => "queue".to_owned(),
            Sample::Prints(lines) => format!("print {lines}"),
            Sample::PrintsToStderr(line) => format!("complain {line}"),
            Sample::PrintsAndRuns(line) => format!("say {line}"),
            Sample::CopiesInput(name) => format!("copy {name}"),
            Sample::Writes(name, content) => format!("write {name}={content}"),
            Sample::Refused => "refuse".to_owned(),
        };
        Some(submission(token, &script))
    }

    fn look_again_after(&self) -> Duration {
        Duration::ZERO
    }

    async fn step(&self) {
        self.manager.step();
    }

    fn faults(&self) -> Option<&FaultPlan> {
        Some(self.manager.faults())
    }

    fn separates_stderr(&self) -> bool {
        true
    }

    async fn purge(&self, id: &RemoteId) -> bool {
        self.manager.purge(id)
    }

    async fn add_twin(&self, token: &SubmitToken) -> Option<RemoteId> {
        Some(self.manager.add_twin(token))
    }
}

async fn conforms(name: &'static str, guarantee: Guarantee, skipped: &[&str]) {
    let report = conformance::run(&Memory::new(name, MemoryManager::new(guarantee))).await;
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.skipped(), skipped);
}

#[tokio::test]
async fn two_phases_conform_in_every_case() {
    conforms("memory, two phases", Guarantee::TwoPhase, &[]).await;
}

#[tokio::test]
async fn own_key_and_look_up_conform() {
    let held = [
        "cancel_before_the_release_ends_a_held_job",
        "submitted_job_waits_for_its_release",
        "release_twice_succeeds",
        "hold_keeps_a_queued_job_back",
        "hold_of_a_running_job_is_too_late",
        "hold_and_release_of_an_unknown_job_say_gone",
        "release_does_not_touch_anothers_job",
    ];
    conforms("memory, own key", Guarantee::OwnKey, &held).await;
    conforms("memory, look up", Guarantee::LookUp, &held).await;
}

#[tokio::test]
async fn an_id_given_away_is_gone_and_the_stranger_is_left_alone() {
    let manager = MemoryManager::new(Guarantee::OwnKey);
    let token = SubmitToken::derive("lost", 1);
    let id = manager.submit(&submission(&token, "run")).await.unwrap().id;
    assert!(manager.give_away(&id));
    let job = tracked(id.clone(), &token);
    assert_eq!(look(&manager, &job).await, Sighting::Gone);
    manager.cancel(&job).await.unwrap();
    let stranger = tracked(id, &SubmitToken::derive("stranger", 1));
    assert!(matches!(look(&manager, &stranger).await, Sighting::Alive(..)));
    assert_eq!(manager.find(&token, EVER).await.unwrap(), Found::Absent);
}

#[tokio::test]
async fn releases_are_counted_even_of_jobs_that_are_gone() {
    let manager = MemoryManager::new(Guarantee::TwoPhase);
    let token = SubmitToken::derive("twice", 1);
    for _ in 0..2 {
        let job = tracked(manager.submit(&submission(&token, "succeed")).await.unwrap().id, &token);
        assert_eq!(look(&manager, &job).await, Sighting::Alive(Phase::Held, Facts::default()));
        assert_eq!(manager.hold().unwrap().release(&job).await.unwrap(), HoldAnswer::Done);
        assert!(manager.purge(&job.id));
    }
    assert_eq!((manager.released(&token), manager.len()), (2, 0));
}

#[tokio::test]
async fn what_cannot_be_found_is_said_so() {
    let manager = MemoryManager::new(Guarantee::LookUp);
    manager.forget_how_to_find(Some("only the last hour is kept"));
    let token = SubmitToken::derive("hour", 1);
    manager.faults().next(Operation::Submit, Fault::LostReply);
    assert!(matches!(manager.submit(&submission(&token, "run")).await, Err(SubmitError::Unknown(_))));
    assert_eq!(manager.find(&token, EVER).await.unwrap(), Found::CannotTell("only the last hour is kept".to_owned()));
}

#[derive(Default)]
struct ManualClock(Mutex<Duration>);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant { wall: EVER, mono: *self.0.lock().unwrap() }
    }
}

#[tokio::test]
async fn jobs_follow_a_clock() {
    let clock = Arc::new(ManualClock::default());
    let times = (Duration::from_secs(10), Duration::from_secs(100));
    let manager = MemoryManager::new(Guarantee::OwnKey).with_clock(clock.clone()).with_times(times.0, times.1);
    let token = SubmitToken::derive("clock", 1);
    let job = tracked(manager.submit(&submission(&token, "succeed")).await.unwrap().id, &token);
    let mut seen = Vec::new();
    for second in [0, 9, 10, 109, 110] {
        *clock.0.lock().unwrap() = Duration::from_secs(second);
        seen.push(match look(&manager, &job).await {
            Sighting::Alive(Phase::Queued { .. }, _) => "queued",
            Sighting::Alive(Phase::Running, _) => "running",
            Sighting::Ended(..) => "ended",
            _ => "else",
        });
    }
    assert_eq!(seen, ["queued", "queued", "running", "running", "ended"]);
}

#[tokio::test]
async fn ten_thousand_jobs_are_polled_in_ten_requests() {
    let manager =
        MemoryManager::new(Guarantee::OwnKey).with_limits(Limits { poll_batch: 1000, concurrent_submits: 16 });
    let mut jobs = Vec::new();
    for number in 0..10_000 {
        let token = SubmitToken::derive("many", number);
        jobs.push(tracked(manager.submit(&submission(&token, "succeed")).await.unwrap().id, &token));
    }
    manager.step();
    manager.step();
    let mut ended = 0;
    for batch in jobs.chunks(1000) {
        let seen = manager.poll(batch).await.unwrap();
        ended += seen.values().filter(|sighting| matches!(sighting, Sighting::Ended(..))).count();
    }
    assert_eq!((ended, manager.faults().requests(Operation::Poll)), (10_000, 10));
    assert_eq!(manager.poll(&jobs).await.unwrap_err().kind, ErrorKind::Refused);
}
