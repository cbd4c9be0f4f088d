//! A job whose record was lost: what the lost one may have done is looked for, in every attempt.

use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{Facts, Found, Guarantee, HoldAnswer, Outcome, Phase, Sighting, Submitted, Verdict};
use bridge_core::record::{Ending, JobRecord, JobState};
use bridge_core::state::{Effect, Event, Machine, Rules, Swept, Wishes};
use jiff::Timestamp;

const NOW: &str = "2026-01-02T00:00:00Z";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

struct Life {
    machine: Machine,
    rules: Rules,
    now: Instant,
    wishes: Wishes,
}

impl Life {
    fn of(record: JobRecord) -> Self {
        let rules = Rules { backoff_limit: 3, ..Rules::plain(Guarantee::TwoPhase, Duration::from_secs(20)) };
        let now = Instant { mono: Duration::from_secs(1000), wall: NOW.parse().unwrap() };
        Self { machine: Machine::recover(record, "worker"), rules, now, wishes: Wishes::default() }
    }

    /// The first attempt was found, has failed, and a second one is due.
    fn after_a_failed_attempt(kill: bool, handed_over: &str) -> Self {
        let record = JobRecord::handed_over("uid", "operator", 1, handed_over.parse().unwrap());
        let mut life = Self::of(record);
        let Effect::Find { token, .. } = life.next() else { panic!("it looks first") };
        life.answer(Event::Find(token, Ok(Found::Jobs(vec![RemoteId::new("1")]))));
        let Effect::Release(job) = life.next() else { panic!("it may be held still") };
        life.answer(Event::Release(job.id, Ok(HoldAnswer::TooLate)));
        life.wishes.kill = kill;
        let (Effect::Poll { job, .. } | Effect::Cancel(job)) = life.next() else { panic!("it is looked at") };
        let outcome = Outcome {
            verdict: Verdict::Failed,
            exit_code: Some(1),
            signal: None,
            reason: "FAILED".to_owned(),
            message: String::new(),
        };
        life.answer(Event::Poll(job.id, Ok(Some(Sighting::Ended(outcome, Facts::default())))));
        life.later(120);
        let Effect::Sweep { token, .. } = life.next() else { panic!("its strays are looked for") };
        life.answer(Event::Sweep(token, Ok(Swept::Clean(0))));
        life.later(120);
        life
    }

    fn later(&mut self, seconds: i64) {
        self.now.mono += Duration::from_secs(seconds.unsigned_abs());
        self.now.wall += jiff::SignedDuration::from_secs(seconds);
    }

    /// What is done next in the remote system.
    fn next(&mut self) -> Effect {
        for _ in 0..1000 {
            self.machine.observe(self.wishes, &self.rules, self.now);
            match self.machine.effect(&self.rules, self.now) {
                Effect::StageIn { .. } => self.answer(Event::StagedIn(Ok(()))),
                Effect::Intend => {
                    self.answer(Event::Intend);
                    self.machine.saving(0, self.now);
                }
                Effect::Wait(_) => self.later(1),
                effect => {
                    self.machine.asking(self.now);
                    return effect;
                }
            }
        }
        panic!("it turns in circles: {:?}", self.machine.record())
    }

    fn answer(&mut self, event: Event) {
        self.machine.apply(event, &self.rules, self.now);
    }
}

#[test]
fn a_further_attempt_is_looked_for_before_it_is_made() {
    let mut life = Life::after_a_failed_attempt(false, LONG_AGO);
    assert_eq!(life.machine.record().attempt, 2);
    let Effect::Find { token, since } = life.next() else { panic!("the second attempt may be there already") };
    assert_eq!((&token, since), (&life.machine.record().token(), LONG_AGO.parse::<Timestamp>().unwrap()));
    life.answer(Event::Find(token, Ok(Found::Jobs(vec![RemoteId::new("2")]))));
    assert_eq!(life.machine.record().id(), Some(&RemoteId::new("2")));
    assert_eq!(life.machine.record().counters.submissions, 0);
}

#[test]
fn a_further_attempt_that_is_surely_not_there_is_made() {
    let mut life = Life::after_a_failed_attempt(false, NOW);
    life.rules.tuning.remembers = Duration::from_secs(3600);
    let Effect::Find { token, .. } = life.next() else { panic!("it looks first") };
    life.answer(Event::Find(token, Ok(Found::Absent)));
    let Effect::Submit { token, .. } = life.next() else { panic!("there is none") };
    let submitted = Submitted { id: RemoteId::new("2"), warnings: Vec::new() };
    life.answer(Event::Submit(token, Ok(submitted)));
    assert_eq!(life.machine.record().state, JobState::Prepared { id: RemoteId::new("2") });
}

#[test]
fn a_job_that_is_to_end_leaves_no_further_attempt_behind() {
    let mut life = Life::after_a_failed_attempt(true, LONG_AGO);
    let Effect::Find { token, .. } = life.next() else { panic!("a second attempt may run") };
    life.answer(Event::Find(token, Ok(Found::Jobs(vec![RemoteId::new("2")]))));
    let Effect::Cancel(job) = life.next() else { panic!("it is to end") };
    assert_eq!(job.id, RemoteId::new("2"));
}

#[test]
fn a_job_that_is_to_end_and_has_no_further_attempt_ends() {
    let mut life = Life::after_a_failed_attempt(true, NOW);
    life.rules.tuning.remembers = Duration::from_secs(3600);
    for _ in 0..2 {
        let Effect::Find { token, .. } = life.next() else { panic!("a second attempt may run") };
        life.answer(Event::Find(token, Ok(Found::Absent)));
    }
    let Effect::Sweep { token, .. } = life.next() else { panic!("a last look") };
    life.answer(Event::Sweep(token, Ok(Swept::Clean(0))));
    assert!(matches!(life.machine.record().ending(), Some(Ending::NeverSubmitted { .. })));
}

#[test]
fn what_the_remote_system_may_have_forgotten_is_not_submitted_again() {
    let mut life = Life::after_a_failed_attempt(false, LONG_AGO);
    let Effect::Find { token, .. } = life.next() else { panic!("it looks first") };
    life.answer(Event::Find(token, Ok(Found::Absent)));
    assert!(matches!(life.machine.record().ending(), Some(Ending::SubmissionUnknown { .. })));
}

/// A remote system that forgets the release of a job that was suspended shows it as held again; it may have run.
#[test]
fn a_hold_that_comes_back_after_its_release_is_not_lifted_again() {
    let mut record = JobRecord::new("uid", "before");
    record.state = JobState::Active { id: RemoteId::new("1"), phase: Phase::Held, missing: None };
    (record.suspended, record.was_suspended) = (true, true);
    let mut life = Life::of(record);
    let Effect::Release(job) = life.next() else { panic!("`suspend` was lifted") };
    assert!(job.verify, "another may have released it");
    life.answer(Event::Release(job.id, Ok(HoldAnswer::Done)));
    for _ in 0..3 {
        life.later(30);
        let Effect::Poll { job, .. } = life.next() else { panic!("it is watched and left alone") };
        life.answer(Event::Poll(job.id, Ok(Some(Sighting::Alive(Phase::Held, Facts::default())))));
    }
}
