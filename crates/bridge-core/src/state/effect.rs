//! What is to be done next.

use std::time::Duration;

use jiff::Timestamp;

use super::{Machine, Rules};
use crate::clock::Instant;
use crate::ids::{RemoteId, SubmitToken};
use crate::manager::{Guarantee, Outcome, Phase, Tracked};
use crate::record::{After, Cause, JobState};

/// What is to be done next; executed only when the record it follows from is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nothing until a wish changes.
    Rest,
    /// Nothing before this moment of the monotonic clock.
    Wait(Duration),
    /// Nothing before this moment of the wall clock.
    WaitUntil(Timestamp),
    /// Save that data is being brought.
    BeginStageIn,
    /// Bring the data and make the submission ready.
    StageIn {
        /// The attempt's token.
        token: SubmitToken,
    },
    /// Save the intent to submit.
    Intend,
    /// Submit; must not be sent after `until` on the monotonic clock.
    Submit {
        /// The attempt's token.
        token: SubmitToken,
        /// Last moment to send.
        until: Duration,
    },
    /// Look for submissions whose reply was lost.
    Find {
        /// The attempt's token.
        token: SubmitToken,
        /// When the first intent was saved.
        since: Timestamp,
    },
    /// Let the held job go.
    Release(Tracked),
    /// Hold the queued job back.
    Hold(Tracked),
    /// Look at it, not before `at` on the monotonic clock unless others are looked at anyway.
    Poll {
        /// The job.
        job: Tracked,
        /// When the look is due.
        at: Duration,
    },
    /// Ask for its end.
    Cancel(Tracked),
    /// Send its outputs.
    StageOut {
        /// The remote id.
        id: RemoteId,
        /// The attempt's token.
        token: SubmitToken,
        /// How it ended.
        outcome: Outcome,
    },
    /// Cancel everything that carries the token, except `keep`.
    Sweep {
        /// The attempt's token.
        token: SubmitToken,
        /// The one that is ours.
        keep: Option<RemoteId>,
        /// From when on to look.
        since: Timestamp,
    },
}

/// How long an id is taken as that of the job that was just submitted.
const FRESH: Duration = Duration::from_secs(5);

impl Machine {
    /// What is to be done next. Pure: asking twice gives the same answer.
    #[must_use]
    pub fn effect(&self, rules: &Rules, now: Instant) -> Effect {
        if let Some(until) = self.memory.pause_until.filter(|until| *until > now.mono) {
            return Effect::Wait(until);
        }
        let token = self.record.token();
        match &self.record.state {
            JobState::Accepted { .. } | JobState::StagingIn if self.record.suspended => Effect::Rest,
            JobState::Accepted { not_before: Some(moment) } if *moment > now.wall => Effect::WaitUntil(*moment),
            JobState::Accepted { .. } if rules.stages_in => Effect::BeginStageIn,
            JobState::Accepted { .. } | JobState::StagingIn => {
                if self.is_staged(rules, now) {
                    Effect::Intend
                } else {
                    Effect::StageIn { token }
                }
            }
            JobState::Submitting { since, .. } => self.effect_submitting(token, *since, rules, now),
            JobState::Prepared { id } => self.effect_prepared(id, rules, now),
            JobState::Active { id, phase, .. } => self.effect_active(id, phase, rules, now),
            JobState::Cancelling { id, .. } => {
                let repeat = self.memory.cancelled_at.is_none_or(|at| now.mono >= at + rules.tuning.cancel_repeat);
                if repeat { Effect::Cancel(self.tracked(id)) } else { self.poll(id, now) }
            }
            JobState::StagingOut { id, outcome, .. } => {
                Effect::StageOut { id: id.clone(), token, outcome: outcome.clone() }
            }
            JobState::Sweeping { then } => {
                // A request that was under way when its reply was lost must have landed before the last look.
                let settled = self.memory.unknown_send.map(|sent| sent + rules.tuning.settle);
                match settled {
                    Some(moment) if moment > now.mono => Effect::Wait(moment),
                    _ => Effect::Sweep { token, keep: kept(then, self), since: self.sweep_since(now) },
                }
            }
            JobState::Finished { .. } => Effect::Rest,
        }
    }

    fn is_staged(&self, rules: &Rules, now: Instant) -> bool {
        self.memory.staged.is_some_and(|at| now.mono < at + rules.tuning.staged_for)
    }

    fn sweep_since(&self, now: Instant) -> Timestamp {
        self.record.times.submitted.unwrap_or(now.wall)
    }

    fn effect_submitting(&self, token: SubmitToken, since: Timestamp, rules: &Rules, now: Instant) -> Effect {
        let Some(saved_at) = self.memory.fresh else {
            // A look costs a full queue more than a submission that it turns away, and tells nothing new.
            let goes_on = self.record.cause.is_none() && !self.record.suspended;
            return if self.memory.full && goes_on { Effect::Intend } else { Effect::Find { token, since } };
        };
        if !self.is_staged(rules, now) {
            return Effect::StageIn { token };
        }
        let until = saved_at + rules.tuning.send_window;
        if now.mono < until { Effect::Submit { token, until } } else { Effect::Intend }
    }

    fn effect_prepared(&self, id: &RemoteId, rules: &Rules, now: Instant) -> Effect {
        if self.memory.sweep_now {
            return Effect::Sweep { token: self.record.token(), keep: Some(id.clone()), since: self.sweep_since(now) };
        }
        if self.record.suspended || rules.guarantee != Guarantee::TwoPhase {
            return self.poll(id, now);
        }
        Effect::Release(self.to_release(id, now))
    }

    fn effect_active(&self, id: &RemoteId, phase: &Phase, rules: &Rules, now: Instant) -> Effect {
        if self.memory.sweep_now {
            return Effect::Sweep { token: self.record.token(), keep: Some(id.clone()), since: self.sweep_since(now) };
        }
        if rules.can_hold {
            let held = *phase == Phase::Held;
            if self.wish_holds() && !self.memory.hold_too_late && matches!(phase, Phase::Queued { .. }) {
                return Effect::Hold(self.tracked(id));
            }
            if held && self.record.was_suspended && !self.wish_holds() {
                return Effect::Release(self.to_release(id, now));
            }
        }
        self.poll(id, now)
    }

    fn poll(&self, id: &RemoteId, now: Instant) -> Effect {
        Effect::Poll { job: self.tracked(id), at: self.memory.next_poll.unwrap_or(now.mono) }
    }

    /// A job that may have been released before, or whose id is not fresh from its submission, is verified first.
    fn to_release(&self, id: &RemoteId, now: Instant) -> Tracked {
        let is_fresh = self.memory.never_released && self.memory.adopted_at.is_some_and(|at| now.mono < at + FRESH);
        let job = self.tracked(id);
        Tracked { verify: job.verify || !is_fresh, ..job }
    }

    pub(super) fn tracked(&self, id: &RemoteId) -> Tracked {
        Tracked {
            id: id.clone(),
            token: self.record.token(),
            verify: self.memory.chain_broken,
            cancelling: self.record.cause.is_some() && matches!(self.record.state, JobState::Cancelling { .. }),
        }
    }

    /// The latest wish is to hold the job back, and no wish to end it stands against that.
    fn wish_holds(&self) -> bool {
        self.memory.wish_suspend && matches!(self.record.cause, None | Some(Cause::Suspend))
    }
}

fn kept(then: &After, machine: &Machine) -> Option<RemoteId> {
    match then {
        After::Finish { ending } => ending.id().cloned(),
        After::Again { .. } => machine.record.past.last().map(|attempt| attempt.id.clone()),
    }
}
