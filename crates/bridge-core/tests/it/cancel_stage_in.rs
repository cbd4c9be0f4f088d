//! A job that is to end while its data is brought: that is obeyed at once, and nothing is submitted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bridge_api::JobStatus;
use bridge_core::clock::{Instant, SystemClock};
use bridge_core::driver::{Answer, Call, Driver, Engine, NewJob};
use bridge_core::ids::{JobKey, RemoteId, SubmitToken};
use bridge_core::manager::{
    Found, Guarantee, Limits, Outcome, Preview, ResourceManager, Result, Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::plan::{JobPlan, Submission};
use bridge_core::record::{Cause, Ending, JobRecord, JobState, NotSubmitted};
use bridge_core::staging::{Output, Progress, Staging, StagingError, submission_without_objects};
use bridge_core::state::{Event, Wishes};
use bridge_core::status::StatusView;
use bridge_core::store::Revision;
use tokio::sync::{Notify, mpsc};

use crate::progress::{Tell, job};

const KILL: Wishes = Wishes { kill: true, delete: false, suspend: false };
const DELETE: Wishes = Wishes { kill: false, delete: true, suspend: false };

/// Takes whatever it is given, and counts it.
#[derive(Debug, Default)]
struct Counting {
    asked: AtomicUsize,
}

#[async_trait]
impl ResourceManager for Counting {
    fn limits(&self) -> Limits {
        Limits { poll_batch: 10, concurrent_submits: 1 }
    }
    fn guarantee(&self) -> Guarantee {
        Guarantee::OwnKey
    }
    fn preview(&self, _: &Submission) -> Result<Preview> {
        unimplemented!()
    }
    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(RemoteId::new(job.token.as_str()).into())
    }
    async fn find(&self, _: &SubmitToken, _: jiff::Timestamp) -> Result<Found> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(Found::Absent)
    }
    async fn poll(&self, _: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        Ok(BTreeMap::new())
    }
    async fn cancel(&self, _: &Tracked) -> Result<()> {
        Ok(())
    }
}

/// What bringing the data is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It takes so long that nobody waits for its end.
    Endless,
    /// The store is away.
    Failing,
}

#[derive(Debug)]
struct Bringing {
    way: Way,
    begun: Notify,
    under_way: AtomicUsize,
}

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Staging for Bringing {
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        _: &dyn ResourceManager,
    ) -> std::result::Result<Submission, StagingError> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let _counted = UnderWay(&self.under_way);
        self.begun.notify_one();
        if self.way == Way::Failing {
            return Err(StagingError::passing("away"));
        }
        tokio::time::sleep(Duration::from_hours(1)).await;
        submission_without_objects(plan, token).ok_or_else(|| StagingError::lasting("no"))
    }
    async fn stage_out(
        &self,
        _: &JobPlan,
        _: &SubmitToken,
        _: &RemoteId,
        _: &Outcome,
        _: &dyn ResourceManager,
    ) -> std::result::Result<Vec<Output>, StagingError> {
        panic!("there is nothing to send")
    }
    fn progress(&self, _: &JobKey) -> Option<Progress> {
        Some(Progress { bytes: 1, total: None, files: 0, of: 1 })
    }
}

/// The end of a job of which `wishes` are made so long after its data began to come.
async fn end_after(way: Way, after: Duration, wishes: Wishes) -> JobRecord {
    let (sender, mut told) = mpsc::unbounded_channel();
    let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), "one", Arc::new(Tell(sender)));
    let running = tokio::spawn(driver.run());
    let (manager, staging) = (
        Arc::new(Counting::default()),
        Arc::new(Bringing { way, begun: Notify::new(), under_way: AtomicUsize::new(0) }),
    );
    let job = job(Arc::clone(&staging) as Arc<dyn Staging>);
    let key = job.plan.key.clone();
    handle.add(NewJob { manager: Arc::clone(&manager) as Arc<dyn ResourceManager>, ..job }).await.unwrap();
    staging.begun.notified().await;
    tokio::time::sleep(after).await;
    handle.wish(&key, wishes);
    let asked_at = tokio::time::Instant::now();
    let mut last = None;
    while let Some(Some(record)) = told.recv().await {
        last = Some(record);
    }
    assert!(asked_at.elapsed() < Duration::from_secs(1), "it took {:?}", asked_at.elapsed());
    assert_eq!(staging.under_way.load(Ordering::Relaxed), 0, "nothing moves any more");
    assert_eq!(manager.asked.load(Ordering::Relaxed), 0, "nothing was submitted, and nothing had to be looked for");
    handle.stop();
    running.await.unwrap();
    last.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_killed_while_its_data_is_brought_ends_at_once_and_was_never_submitted() {
    // At its beginning, while it is told how far it is, long after; and in the pause after a failure.
    let moments = [(Way::Endless, 0), (Way::Endless, 10_000), (Way::Endless, 10_001), (Way::Endless, 1_234_567)];
    for (way, after) in moments.into_iter().chain([(Way::Failing, 0), (Way::Failing, 120_123)]) {
        for (wishes, cause) in [(KILL, Cause::Kill), (DELETE, Cause::Delete)] {
            let record = end_after(way, Duration::from_millis(after), wishes).await;
            let expected = Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause } };
            assert_eq!(record.ending(), Some(&expected), "{way:?} {after} ms");
            assert_eq!(StatusView::of(&record).status, JobStatus::Killed, "{way:?} {after} ms");
            assert!(record.progress.is_empty() && record.trouble.is_none(), "{record:?}");
            assert_eq!(record.counters.submissions, 0);
        }
    }
}

/// An engine whose job has its data on the way, and the ticket of that.
fn bringing() -> (Engine, u64, u64, Instant) {
    let mut engine = Engine::new();
    let now = Instant { wall: "2026-01-02T00:00:00Z".parse().unwrap(), mono: Duration::from_secs(100) };
    let target = engine.add_target(Limits { poll_batch: 1, concurrent_submits: 1 });
    let staging = Bringing { way: Way::Endless, begun: Notify::new(), under_way: AtomicUsize::new(0) };
    let rules = job(Arc::new(staging)).rules;
    let slot = engine.add_job(target, rules, Wishes::default(), "one", Err(JobRecord::new("uid", "one")));
    let mut actions = engine.step(now);
    while let [action] = actions.as_slice() {
        match &action.call {
            Call::Save { .. } => {
                engine.answer(action.ticket, Answer::Saved(Ok(Revision("1".to_owned()))), now);
                actions = engine.step(now);
            }
            Call::StageIn { .. } => return (engine, slot, action.ticket, now),
            call => panic!("{call:?}"),
        }
    }
    panic!("{actions:?}")
}

/// All calls that follow, each save being answered.
fn calls(engine: &mut Engine, now: Instant) -> Vec<Call> {
    let mut calls = Vec::new();
    for _ in 0..10 {
        for action in engine.step(now) {
            if matches!(action.call, Call::Save { .. }) {
                engine.answer(action.ticket, Answer::Saved(Ok(Revision("2".to_owned()))), now);
            }
            calls.push(action.call);
        }
    }
    calls
}

#[test]
fn data_that_arrives_together_with_the_wish_to_end_is_not_submitted() {
    for data_first in [true, false] {
        let (mut engine, slot, ticket, now) = bringing();
        if data_first {
            engine.answer(ticket, Answer::Job(Event::StagedIn(Ok(()))), now);
            engine.wish(slot, KILL);
        } else {
            engine.wish(slot, KILL);
            engine.answer(ticket, Answer::Job(Event::StagedIn(Ok(()))), now);
        }
        let calls = calls(&mut engine, now);
        assert!(matches!(calls.as_slice(), [Call::Save { .. }, Call::Leave { .. }]), "{data_first} {calls:?}");
    }
}

#[test]
fn data_that_arrives_after_its_call_was_given_up_changes_nothing() {
    let (mut engine, slot, ticket, now) = bringing();
    engine.wish(slot, KILL);
    let actions = engine.step(now);
    let [abort, save] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(matches!(abort.call, Call::Abort { call } if call == ticket), "{abort:?}");
    let Call::Save { record, .. } = &save.call else { panic!("{save:?}") };
    assert!(matches!(record.state, JobState::Finished { .. }), "{record:?}");
    engine.answer(ticket, Answer::Job(Event::StagedIn(Ok(()))), now);
    assert!(calls(&mut engine, now).is_empty(), "its end is being saved");
    engine.answer(save.ticket, Answer::Saved(Ok(Revision("2".to_owned()))), now);
    let calls = calls(&mut engine, now);
    assert!(matches!(calls.as_slice(), [Call::Leave { .. }]), "{calls:?}");
}
