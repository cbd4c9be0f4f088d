//! The state machine of one job: total, pure, and the only place where a job's fate is decided.
//!
//! # Expected flow
//! [`Machine::observe`] takes the wishes in, [`Machine::effect`] says what to do next, [`Machine::apply`] takes the
//! answer. Whenever one of them reports a change, the record is saved **before** the next effect is executed.
//!
//! # Guarantees
//! - At most one remote job of an attempt is ever released, whatever crashes, is lost, or runs twice.
//! - A finished job never moves; late messages change nothing.
//! - Nothing is submitted after a wish to end was saved.
//!
//! # Assumptions
//! Faults cease in the end; [`Found::Absent`](crate::manager::Found::Absent) is truthful; a save succeeds for one holder only.

mod apply;
mod effect;
mod sweep;
mod trouble;

use std::time::Duration;

pub use apply::{Event, Swept};
pub use effect::Effect;
use jiff::{SignedDuration, Timestamp};

use crate::clock::Instant;
use crate::ids::RemoteId;
use crate::manager::{Guarantee, Outcome, Phase, Verdict};
use crate::record::{After, Attempt, Cause, Ending, JobRecord, JobState, NotSubmitted, PAST_KEPT};

/// What is wished from outside, at this moment. A wish is a level: it holds as long as it is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// End it.
    pub kill: bool,
    /// End it because its object is being deleted.
    pub delete: bool,
    /// Hold it back.
    pub suspend: bool,
}

/// What holds for this job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How its manager keeps a submission from happening twice.
    pub guarantee: Guarantee,
    /// The manager can hold a queued job back.
    pub can_hold: bool,
    /// Data has to be brought, and that takes time worth showing.
    pub stages_in: bool,
    /// Outputs have to be sent.
    pub stages_out: bool,
    /// How many failed attempts are followed by another.
    pub backoff_limit: u32,
    /// How long it may take from its submission on.
    pub deadline: Option<Duration>,
    /// Time between two looks.
    pub poll_interval: Duration,
    /// Times that users do not set.
    pub tuning: Tuning,
}

impl Rules {
    /// For a job without data to move, with one attempt and no deadline.
    #[must_use]
    pub fn plain(guarantee: Guarantee, poll_interval: Duration) -> Self {
        Self {
            guarantee,
            can_hold: guarantee == Guarantee::TwoPhase,
            stages_in: false,
            stages_out: false,
            backoff_limit: 0,
            deadline: None,
            poll_interval,
            tuning: Tuning::default(),
        }
    }
}

/// Times that users do not set; tests shorten them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// A submission is sent only within this time after its intent was saved, and its timeout lies inside.
    pub send_window: Duration,
    /// How long a submission that is ready may wait to be sent, e.g. for a manager that is away. What it carries ages:
    /// URLs for its data end, and inputs are replaced.
    pub staged_for: Duration,
    /// How long after a first look a late request may still land. Longer than the send window.
    pub settle: Duration,
    /// How long after its end every remote system surely still knows a job.
    pub remembers: Duration,
    /// How long a job may be missing before it counts as lost.
    pub missing_grace: Duration,
    /// How long sending outputs is tried after a first failure.
    pub stage_out_limit: Duration,
    /// Pause before the second attempt; doubles with each further one.
    pub attempt_pause: Duration,
    /// The longest pause between attempts.
    pub attempt_pause_max: Duration,
    /// Pause after a first error; doubles.
    pub error_pause: Duration,
    /// The longest pause after errors.
    pub error_pause_max: Duration,
    /// Time between two looks at a job whose end was asked for.
    pub cancel_poll: Duration,
    /// How long after a cancel that had no effect it is repeated.
    pub cancel_repeat: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            send_window: seconds(30),
            staged_for: seconds(900),
            settle: seconds(60),
            remembers: seconds(120),
            missing_grace: seconds(60),
            stage_out_limit: seconds(3600),
            attempt_pause: seconds(10),
            attempt_pause_max: seconds(360),
            error_pause: seconds(1),
            error_pause_max: seconds(60),
            cancel_poll: seconds(2),
            cancel_repeat: seconds(30),
        }
    }
}

/// What one process knows beside the record; gone after a crash, and nothing may depend on it being there.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts that this process knows or does not")]
struct Memory {
    /// This process saved the intent at that moment and has sent nothing since.
    fresh: Option<Duration>,
    /// Since when the submission is ready to be sent.
    staged: Option<Duration>,
    /// First look for a submission that may be under way.
    first_look: Option<Duration>,
    /// The last submission was surely refused or not delivered, so that nothing can land late.
    surely_absent: bool,
    /// The last submission was not taken, for a reason that may pass.
    turned_away: bool,
    /// It was not taken because the manager, which is there and has nothing of it, takes no more for now.
    full: bool,
    /// Why nothing is submitted any more, although an earlier submission may have arrived.
    given_up: Option<NotSubmitted>,
    /// Last submission without a known answer.
    unknown_send: Option<Duration>,
    /// Nobody has sent a release for the prepared id.
    never_released: bool,
    /// When the id was heard of.
    adopted_at: Option<Duration>,
    /// Strays were seen: remove them now.
    sweep_now: bool,
    /// Sweeps at the end whose result the manager could not tell.
    blind_sweeps: u32,
    /// Sweeps at the end that failed in a row.
    failed_sweeps: u32,
    /// First sighting as gone in an unbroken row.
    gone_since: Option<Duration>,
    /// When the call under way was decided on. Its answer may tell of any time since, however late it is heard.
    asked_at: Duration,
    /// The row of sightings is broken: verify the token beside the id.
    chain_broken: bool,
    /// The last cancel that was accepted.
    cancelled_at: Option<Duration>,
    /// When sending the outputs is given up; known from the first failure on.
    stage_out_until: Option<Duration>,
    /// Errors in a row.
    errors: u32,
    /// Nothing is tried before.
    pause_until: Option<Duration>,
    /// The next look.
    next_poll: Option<Duration>,
    /// The latest wish is to hold the job back.
    wish_suspend: bool,
    /// Holding it back came too late: the next look decides.
    hold_too_late: bool,
}

/// A job's record together with what this process knows of it.
#[derive(Debug, Clone)]
pub struct Machine {
    record: JobRecord,
    memory: Memory,
}

impl Machine {
    /// A job nobody has worked on.
    #[must_use]
    pub fn begin(record: JobRecord) -> Self {
        Self { record, memory: Memory::default() }
    }

    /// A job another process, or an earlier life of this one, has worked on: it looks before it acts.
    #[must_use]
    pub fn recover(mut record: JobRecord, holder: &str) -> Self {
        holder.clone_into(&mut record.holder);
        if matches!(record.state, JobState::Submitting { .. }) {
            record.doubt = true;
        }
        Self { record, memory: Memory { chain_broken: true, ..Memory::default() } }
    }

    /// The record as it must be saved before the next effect.
    #[must_use]
    pub fn record(&self) -> &JobRecord {
        &self.record
    }

    /// Over, and saved or about to be.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.record.state, JobState::Finished { .. })
    }

    /// The record is about to be saved. The window for acting on an intent counts from here, not from the answer: the
    /// answer may be heard long after another process took over.
    pub fn saving(&mut self, requests: u64, now: Instant) {
        self.record.seq += 1;
        self.record.counters.requests = self.record.counters.requests.max(requests);
        if self.memory.fresh.is_some() {
            self.memory.fresh = Some(now.mono);
        }
    }

    /// A call is being made.
    pub fn asking(&mut self, now: Instant) {
        self.memory.asked_at = now.mono;
    }

    /// Whether a stored record says all that this one says.
    #[must_use]
    pub fn is_saved_as(&self, stored: &JobRecord) -> bool {
        JobRecord { seq: self.record.seq, counters: self.record.counters, ..stored.clone() } == self.record
    }

    /// Takes the wishes and the deadline in. Returns whether the record changed.
    pub fn observe(&mut self, wishes: Wishes, rules: &Rules, now: Instant) -> bool {
        if self.is_finished() {
            return false;
        }
        self.memory.wish_suspend = wishes.suspend;
        if self.record.doubt && self.memory.unknown_send.is_none() {
            // Another process may have sent something right before this one took over.
            self.memory.unknown_send = Some(now.mono);
        }
        let mut changed = self.observe_end(wishes, now, rules);
        changed |= self.observe_suspension(wishes, rules, now);
        changed
    }

    fn observe_end(&mut self, wishes: Wishes, now: Instant, rules: &Rules) -> bool {
        let asked_for = if wishes.delete {
            Some(Cause::Delete)
        } else if wishes.kill {
            Some(Cause::Kill)
        } else if self.deadline_passed(rules, now) {
            Some(Cause::Deadline)
        } else {
            None
        };
        let mut changed = false;
        if let Some(cause) = asked_for {
            let takes_over = matches!(self.record.cause, None | Some(Cause::Suspend))
                || (cause == Cause::Delete && self.record.cause != Some(Cause::Delete));
            if takes_over && !matches!(self.record.state, JobState::Sweeping { then: After::Finish { .. } }) {
                self.record.cause = Some(cause);
                changed = true;
            }
        }
        changed | self.enforce_cause(now)
    }

    /// Moves a job that is to end on its way, as far as that needs no remote call.
    fn enforce_cause(&mut self, now: Instant) -> bool {
        let Some(cause) = self.record.cause else { return false };
        if cause == Cause::Suspend {
            return false;
        }
        match &self.record.state {
            JobState::Accepted { .. } | JobState::StagingIn if self.record.remade_for.is_some() => {
                self.intend(now);
                true
            }
            JobState::Accepted { .. } | JobState::StagingIn => {
                self.finish(Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause } }, now);
                true
            }
            JobState::Submitting { .. } if self.memory.fresh.is_some() && !self.record.doubt => {
                self.finish(Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause } }, now);
                true
            }
            JobState::Submitting { .. } => {
                // An earlier submission may have arrived: looking for it takes the place of sending another.
                self.memory.fresh = None;
                false
            }
            JobState::Prepared { .. } | JobState::Active { .. } => {
                self.start_cancelling(now);
                true
            }
            JobState::StagingOut { id, outcome, .. } if cause == Cause::Delete => {
                let ending = Ending::Ran { id: id.clone(), outcome: outcome.clone() };
                self.finish(ending, now);
                true
            }
            JobState::Cancelling { .. }
            | JobState::StagingOut { .. }
            | JobState::Sweeping { .. }
            | JobState::Finished { .. } => false,
        }
    }

    fn observe_suspension(&mut self, wishes: Wishes, rules: &Rules, now: Instant) -> bool {
        if self.is_finished() || matches!(self.record.cause, Some(Cause::Kill | Cause::Delete | Cause::Deadline)) {
            return false;
        }
        if !wishes.suspend {
            return self.observe_resumption();
        }
        let mut changed = false;
        if !self.record.suspended {
            self.record.suspended = true;
            changed = true;
        }
        match &self.record.state {
            // Nothing was sent: the intent is taken back.
            JobState::Submitting { .. } if self.memory.fresh.is_some() && !self.record.doubt => {
                self.record.state = JobState::Accepted { not_before: None };
                self.memory.fresh = None;
                true
            }
            JobState::Submitting { .. } => {
                self.memory.fresh = None;
                changed
            }
            JobState::Active { phase, .. } => {
                let can_wait_there = match phase {
                    Phase::Queued { .. } => rules.can_hold,
                    Phase::Held => true,
                    Phase::Running | Phase::Suspended => false,
                };
                if can_wait_there {
                    if rules.can_hold && !self.record.was_suspended {
                        self.record.was_suspended = true;
                        changed = true;
                    }
                    changed
                } else {
                    self.record.cause = Some(Cause::Suspend);
                    self.start_cancelling(now);
                    true
                }
            }
            _ => changed,
        }
    }

    fn observe_resumption(&mut self) -> bool {
        if !self.record.suspended {
            return false;
        }
        // A job we hold remotely stays "suspended" until its release has been answered.
        let held_by_us =
            matches!(&self.record.state, JobState::Active { phase: Phase::Held, .. }) && self.record.was_suspended;
        if held_by_us {
            return false;
        }
        self.record.suspended = false;
        true
    }

    fn deadline_passed(&self, rules: &Rules, now: Instant) -> bool {
        let (Some(from), Some(limit)) = (self.record.times.active, rules.deadline) else { return false };
        let over = now.wall.duration_since(from) >= SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        over && !self.record.suspended
            && !matches!(
                self.record.state,
                JobState::StagingOut { .. } | JobState::Sweeping { then: After::Finish { .. } }
            )
    }

    /// When the deadline ends, for whoever has to wake up then.
    #[must_use]
    pub fn deadline(&self, rules: &Rules) -> Option<Timestamp> {
        let limit = SignedDuration::try_from(rules.deadline?).ok()?;
        self.record.times.active?.checked_add(limit).ok()
    }

    fn start_cancelling(&mut self, now: Instant) {
        let (id, maybe_ran) = match &self.record.state {
            JobState::Prepared { id } => (id.clone(), !self.memory.never_released),
            JobState::Active { id, .. } => (id.clone(), true),
            _ => return,
        };
        self.memory.cancelled_at = None;
        self.memory.pause_until = None;
        self.record.state = JobState::Cancelling { id, since: now.wall, maybe_ran };
    }

    /// A new intent, to be saved and then acted on.
    fn intend(&mut self, now: Instant) {
        let (since, sends) = match (&self.record.state, self.record.remade_for) {
            (JobState::Submitting { since, .. }, _) => (*since, true),
            // The record that was lost may have known of a submission of this very attempt.
            (_, Some(lost)) => (lost, false),
            (_, None) => (now.wall, true),
        };
        self.record.doubt |= !sends;
        self.record.state = JobState::Submitting { token: self.record.token(), since, intent: now.wall };
        self.memory.fresh = sends.then_some(now.mono);
        self.memory.first_look = None;
        self.memory.surely_absent = false;
        self.memory.full = false;
        self.memory.given_up = None;
    }

    /// The id is known; it is saved before anything else is done with it.
    fn adopt(&mut self, id: RemoteId, rules: &Rules, now: Instant) {
        if self.record.times.submitted.is_none() {
            self.record.times.submitted = Some(match &self.record.state {
                JobState::Submitting { intent, .. } => *intent,
                _ => now.wall,
            });
        }
        if self.record.times.active.is_none() {
            self.record.times.active = Some(now.wall);
        }
        if rules.guarantee == Guarantee::OwnKey {
            // The manager itself refuses a second one: there can be no strays.
            self.record.doubt = false;
        }
        self.memory = Memory {
            sweep_now: self.memory.sweep_now,
            unknown_send: self.memory.unknown_send,
            wish_suspend: self.memory.wish_suspend,
            adopted_at: Some(now.mono),
            ..Memory::default()
        };
        self.record.trouble = None;
        if rules.guarantee == Guarantee::TwoPhase {
            // No record ever held this id, so nobody can have released it.
            self.memory.never_released = self.record.remade_for.is_none();
            self.record.state = JobState::Prepared { id };
        } else {
            self.record.state = JobState::Active { id, phase: Phase::Queued { reason: None }, missing: None };
        }
    }

    /// The manager has told the end of the current attempt.
    fn ended(&mut self, id: RemoteId, outcome: Outcome, rules: &Rules, now: Instant) {
        let requeue = self.record.cause == Some(Cause::Suspend) && outcome.verdict == Verdict::Cancelled;
        // The record that was lost may have begun a further attempt, which has to be found even if the job is to end.
        let may_go_on = matches!(self.record.cause, None | Some(Cause::Suspend)) || self.record.remade_for.is_some();
        let retry = outcome.verdict == Verdict::Failed && may_go_on && self.record.failures < rules.backoff_limit;
        if requeue || retry {
            let not_before = if retry {
                self.record.failures += 1;
                now.wall.checked_add(attempt_pause(self.record.failures, &rules.tuning)).ok()
            } else {
                self.record.times.active = None;
                None
            };
            self.keep_past(id, outcome);
            self.record.cause = None;
            let then = After::Again { not_before };
            if self.record.doubt {
                self.record.state = JobState::Sweeping { then };
                self.memory = Memory {
                    unknown_send: self.memory.unknown_send,
                    wish_suspend: self.memory.wish_suspend,
                    ..Memory::default()
                };
            } else {
                self.begin_again(not_before);
            }
        } else if rules.stages_out && self.record.cause != Some(Cause::Delete) {
            self.record.state = JobState::StagingOut { id, outcome, since: now.wall, failing: None };
            self.memory.pause_until = None;
        } else {
            self.finish(Ending::Ran { id, outcome }, now);
        }
    }

    fn keep_past(&mut self, id: RemoteId, outcome: Outcome) {
        self.record.past.push(Attempt { attempt: self.record.attempt, id, outcome });
        let surplus = self.record.past.len().saturating_sub(PAST_KEPT);
        self.record.past.drain(..surplus);
    }

    fn begin_again(&mut self, not_before: Option<Timestamp>) {
        self.record.attempt += 1;
        self.record.doubt = false;
        self.record.was_suspended = false;
        self.record.facts = crate::manager::Facts::default();
        self.record.state = JobState::Accepted { not_before };
        self.memory = Memory { wish_suspend: self.memory.wish_suspend, ..Memory::default() };
    }

    fn finish(&mut self, ending: Ending, now: Instant) {
        self.record.trouble = None;
        self.record.progress.clear();
        if self.record.doubt {
            self.memory = Memory {
                unknown_send: self.memory.unknown_send,
                wish_suspend: self.memory.wish_suspend,
                ..Memory::default()
            };
            self.record.state = JobState::Sweeping { then: After::Finish { ending } };
        } else {
            self.record.times.finished = Some(now.wall);
            self.record.state = JobState::Finished { ending };
        }
    }
}

fn attempt_pause(failures: u32, tuning: &Tuning) -> SignedDuration {
    let doubled =
        tuning.attempt_pause.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    SignedDuration::try_from(doubled.min(tuning.attempt_pause_max)).unwrap_or(SignedDuration::MAX)
}
