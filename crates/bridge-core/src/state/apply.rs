//! What an answer changes.

use std::time::Duration;

use bridge_api::conditions as reasons;
use jiff::{SignedDuration, Timestamp};

use super::{Machine, Rules};
use crate::clock::Instant;
use crate::ids::{RemoteId, SubmitToken};
use crate::manager::{
    ErrorKind, Facts, Found, Guarantee, HoldAnswer, ManagerError, Outcome, Phase, Sighting, SubmitError, Submitted,
    Verdict,
};
use crate::record::{Ending, JobState, NotSubmitted, OUTPUTS_LISTED, Outputs};
use crate::staging::{Output, Progress, StagingError};

/// The longest text of ours or of a manager that goes into a record.
const TEXT_LIMIT: usize = 2048;

/// An answer to an effect. One that no longer fits the state changes nothing.
#[derive(Debug)]
pub enum Event {
    /// Bringing the data begins.
    StagingStarts,
    /// The data is there and the submission ready, or not.
    StagedIn(Result<(), StagingError>),
    /// The intent to submit is to be saved.
    Intend,
    /// Nothing was sent: the window passed unused, or the submission was not ready.
    NotSent,
    /// The answer to a submission.
    Submit(SubmitToken, Result<Submitted, SubmitError>),
    /// The answer to a look.
    Find(SubmitToken, Result<Found, ManagerError>),
    /// The answer to a release.
    Release(RemoteId, Result<HoldAnswer, ManagerError>),
    /// The answer to a hold.
    Hold(RemoteId, Result<HoldAnswer, ManagerError>),
    /// The job was looked at. `None`: the manager left it out of its answer.
    Poll(RemoteId, Result<Option<Sighting>, ManagerError>),
    /// The answer to a cancel.
    Cancel(RemoteId, Result<(), ManagerError>),
    /// A stage is under way and goes on.
    Moved(Progress),
    /// The outputs were sent, or not.
    StagedOut(RemoteId, Result<Vec<Output>, StagingError>),
    /// Strays were looked for and cancelled, or not.
    Sweep(SubmitToken, Result<Swept, ManagerError>),
}

/// What a look for strays came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// There is none any more; so many were cancelled.
    Clean(usize),
    /// The manager cannot tell whether there are any.
    CannotTell(String),
}

impl Machine {
    /// Takes an answer in. Returns whether the record changed and must be saved before the next effect.
    pub fn apply(&mut self, event: Event, rules: &Rules, now: Instant) -> bool {
        let before = self.record.clone();
        match event {
            Event::StagingStarts => {
                if matches!(self.record.state, JobState::Accepted { .. }) {
                    self.record.state = JobState::StagingIn;
                }
            }
            Event::StagedIn(result) => self.staged_in(result, rules, now),
            Event::Intend => {
                let may = matches!(
                    self.record.state,
                    JobState::Accepted { .. } | JobState::StagingIn | JobState::Submitting { .. }
                );
                let unsent = !matches!(self.record.state, JobState::Submitting { .. })
                    || self.memory.fresh.is_some()
                    || self.memory.full;
                if may && unsent && self.record.cause.is_none() && !self.record.suspended {
                    self.intend(now);
                }
            }
            Event::NotSent => self.memory.staged = None,
            Event::Submit(token, result) => self.submitted(&token, result, rules, now),
            Event::Find(token, result) => self.found(&token, result, rules, now),
            Event::Release(id, result) => self.released(&id, result, rules, now),
            Event::Hold(id, result) => self.held(&id, result, rules, now),
            Event::Poll(id, result) => self.polled(&id, result, rules, now),
            Event::Cancel(id, result) => self.cancelled(&id, result, rules, now),
            Event::Moved(progress) => {
                if matches!(self.record.state, JobState::StagingIn | JobState::StagingOut { .. }) {
                    self.record.progress = progress.to_string();
                }
            }
            Event::StagedOut(id, result) => self.staged_out(&id, result, rules, now),
            Event::Sweep(token, result) => self.swept(&token, result, rules, now),
        }
        let changed = self.record != before;
        self.note_failing(now);
        changed
    }

    /// Since when outputs fail to be sent is worth no write of its own: failures that last are told soon, and it goes
    /// along.
    fn note_failing(&mut self, now: Instant) {
        if let JobState::StagingOut { failing, .. } = &mut self.record.state
            && self.memory.stage_out_until.is_some()
        {
            failing.get_or_insert(now.wall);
        }
    }

    /// The memory of the counters alone never forces a save.
    fn staged_in(&mut self, result: Result<(), StagingError>, rules: &Rules, now: Instant) {
        if !matches!(self.record.state, JobState::Accepted { .. } | JobState::StagingIn | JobState::Submitting { .. }) {
            return;
        }
        self.record.progress.clear();
        match result {
            Ok(()) => {
                self.memory.staged = Some(now.mono);
                self.came_nearer();
            }
            Err(error) if error.is_final => {
                self.not_to_be_submitted(NotSubmitted::StageIn { message: bounded(error.message) }, now);
            }
            Err(error) => self.stage_went_wrong("StageInFailed", error.message, rules, now),
        }
    }

    /// There will be no further submission of this attempt. One before it may have arrived, and is looked for first.
    fn not_to_be_submitted(&mut self, reason: NotSubmitted, now: Instant) {
        match self.record.state {
            JobState::Submitting { .. } if self.record.doubt => {}
            JobState::Submitting { .. } => return self.finish(Ending::NeverSubmitted { reason }, now),
            _ if self.record.remade_for.is_some() => self.intend(now),
            // It was looked for when it was held back; what arrived later is swept.
            _ => return self.finish(Ending::NeverSubmitted { reason }, now),
        }
        self.memory.fresh = None;
        self.memory.given_up = Some(reason);
    }

    fn submitted(&mut self, token: &SubmitToken, result: Result<Submitted, SubmitError>, rules: &Rules, now: Instant) {
        if !matches!(&self.record.state, JobState::Submitting { token: ours, .. } if ours == token) {
            return;
        }
        self.record.counters.submissions += 1;
        self.memory.fresh = None;
        match result {
            Ok(Submitted { id, warnings }) => {
                if !warnings.is_empty() {
                    self.record.note = bounded(warnings.join("; "));
                }
                self.adopt(id, rules, now);
            }
            Err(SubmitError::NotSubmitted(error)) if error.kind.is_final() => {
                self.not_to_be_submitted(NotSubmitted::Refused { message: bounded(error.message) }, now);
            }
            Err(SubmitError::NotSubmitted(error)) => {
                // A look, which is only a read, tells when the manager is back; only then is a new intent written.
                self.memory.surely_absent = !self.record.doubt;
                self.memory.full = error.kind == ErrorKind::RateLimited && !self.record.doubt;
                self.memory.turned_away = true;
                self.manager_error(&error, rules, now);
            }
            Err(SubmitError::Unknown(error)) => {
                self.record.doubt = true;
                self.memory.turned_away = false;
                self.memory.unknown_send = Some(now.mono);
                self.manager_error(&error, rules, now);
            }
        }
    }

    fn found(&mut self, token: &SubmitToken, result: Result<Found, ManagerError>, rules: &Rules, now: Instant) {
        if !matches!(&self.record.state, JobState::Submitting { token: ours, .. } if ours == token)
            || self.memory.fresh.is_some()
        {
            return;
        }
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.manager_error(&error, rules, now),
        };
        self.came_nearer();
        let asked = self.memory.asked_at;
        let first_look = *self.memory.first_look.get_or_insert(now.mono);
        let settled_at = first_look + rules.tuning.settle;
        let settled = asked >= settled_at || self.memory.surely_absent;
        match found {
            Found::Jobs(ids) => {
                let Some(id) = lowest(&ids) else { return };
                self.memory.sweep_now = ids.len() > 1;
                self.record.doubt |= ids.len() > 1;
                self.record.counters.duplicates_prevented += 1;
                self.adopt(id, rules, now);
            }
            Found::CannotTell(why) => {
                if settled {
                    let token = token.clone();
                    self.record.doubt = false;
                    self.finish(Ending::SubmissionUnknown { token, why: bounded(why) }, now);
                } else {
                    self.memory.pause_until = Some(settled_at);
                }
            }
            Found::Absent if self.may_be_forgotten(rules, now) => {
                let why =
                    "the job's record was lost, and the remote system may have forgotten a job that has ended since";
                self.record.doubt = false;
                self.finish(Ending::SubmissionUnknown { token: token.clone(), why: why.to_owned() }, now);
            }
            Found::Absent => {
                let gives_up = self.record.cause.is_some() || self.record.suspended || self.memory.given_up.is_some();
                let must_settle = rules.guarantee == Guarantee::LookUp || gives_up;
                if must_settle && !settled {
                    self.memory.pause_until = Some(settled_at);
                } else if let Some(cause) = self.record.cause {
                    self.finish(Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause } }, now);
                } else if self.record.suspended {
                    self.record.state = JobState::Accepted { not_before: None };
                } else if let Some(reason) = self.memory.given_up.take() {
                    self.finish(Ending::NeverSubmitted { reason }, now);
                } else {
                    // What was never submitted had no further attempts.
                    self.record.remade_for = None;
                    self.intend(now);
                }
            }
        }
    }

    /// A job that was released may have ended and be forgotten. A manager that holds jobs until their id is saved says
    /// "absent" of such a one as well, and only the record could tell the difference.
    fn may_be_forgotten(&self, rules: &Rules, now: Instant) -> bool {
        rules.guarantee == Guarantee::TwoPhase
            && self.record.remade_for.is_some_and(|lost| {
                let memory = SignedDuration::try_from(rules.tuning.remembers).unwrap_or(SignedDuration::MAX);
                now.wall.duration_since(lost) >= memory
            })
    }

    fn released(&mut self, id: &RemoteId, result: Result<HoldAnswer, ManagerError>, rules: &Rules, now: Instant) {
        if self.record.id() != Some(id) {
            return;
        }
        match (&self.record.state, result) {
            (JobState::Prepared { .. } | JobState::Active { .. }, Err(error)) => {
                self.memory.never_released = false;
                // The remote system may have crashed, and may have given the id to another job since.
                self.memory.chain_broken = true;
                self.manager_error(&error, rules, now);
            }
            (JobState::Prepared { .. }, Ok(HoldAnswer::Gone)) => {
                self.went_well();
                if self.memory.never_released {
                    self.memory.never_released = false;
                    self.submit_lost_again(now);
                } else {
                    self.gone(id, rules, now);
                }
            }
            (
                JobState::Prepared { .. } | JobState::Active { .. },
                Ok(answer @ (HoldAnswer::Done | HoldAnswer::TooLate)),
            ) => {
                self.went_well();
                self.memory.never_released = false;
                self.memory.chain_broken = answer == HoldAnswer::TooLate;
                // A hold that is seen from here on is not ours to lift: the remote system may have forgotten this release,
                // and the job may have run.
                self.record.was_suspended = false;
                self.memory.next_poll = Some(now.mono + first_look_after(rules));
                self.record.state =
                    JobState::Active { id: id.clone(), phase: Phase::Queued { reason: None }, missing: None };
            }
            (JobState::Active { .. }, Ok(HoldAnswer::Gone)) => self.gone(id, rules, now),
            _ => {}
        }
    }

    /// The remote system forgot a job that was held and never released: the same attempt is submitted again.
    fn submit_lost_again(&mut self, now: Instant) {
        if self.record.suspended {
            self.record.state = JobState::Accepted { not_before: None };
        } else {
            let staged = self.memory.staged;
            self.intend(now);
            self.memory.staged = staged;
        }
    }

    fn held(&mut self, id: &RemoteId, result: Result<HoldAnswer, ManagerError>, rules: &Rules, now: Instant) {
        let JobState::Active { id: ours, phase, .. } = &mut self.record.state else { return };
        if ours != id {
            return;
        }
        match result {
            Ok(HoldAnswer::Done) => {
                *phase = Phase::Held;
                self.went_well();
            }
            Ok(HoldAnswer::TooLate) => {
                // The next look tells whether it runs, and then it is cancelled and queued again.
                self.went_well();
                self.memory.next_poll = None;
                self.memory.hold_too_late = true;
            }
            Ok(HoldAnswer::Gone) => self.gone(id, rules, now),
            Err(error) => self.manager_error(&error, rules, now),
        }
    }

    fn polled(&mut self, id: &RemoteId, result: Result<Option<Sighting>, ManagerError>, rules: &Rules, now: Instant) {
        let watched = matches!(
            self.record.state,
            JobState::Prepared { .. } | JobState::Active { .. } | JobState::Cancelling { .. }
        );
        if !watched || self.record.id() != Some(id) {
            return;
        }
        match result {
            Ok(Some(Sighting::Alive(phase, facts))) => {
                self.went_well();
                self.seen_alive(id, phase, facts, rules, now);
            }
            Ok(Some(Sighting::Ended(outcome, facts))) => {
                self.went_well();
                self.record.facts.merge(facts);
                self.ended(id.clone(), bounded_outcome(outcome), rules, now);
            }
            Ok(Some(Sighting::Gone)) => {
                self.went_well();
                self.gone(id, rules, now);
            }
            Ok(Some(Sighting::Unaccounted { why })) => {
                self.went_wrong(reasons::ACCOUNTING_UNREACHABLE, why, None, rules, now);
                self.not_seen();
            }
            Ok(None) => self.memory.next_poll = Some(now.mono + rules.poll_interval),
            Err(error) => {
                self.manager_error(&error, rules, now);
                self.not_seen();
            }
        }
    }

    fn not_seen(&mut self) {
        self.memory.chain_broken = true;
        self.memory.gone_since = None;
        // Later looks go on sharing one request with those of other jobs; only single calls pause.
        self.memory.next_poll = self.memory.pause_until.take();
    }

    fn seen_alive(&mut self, id: &RemoteId, phase: Phase, facts: Facts, rules: &Rules, now: Instant) {
        self.memory.gone_since = None;
        self.memory.chain_broken = false;
        self.memory.hold_too_late = false;
        self.record.facts.merge(facts);
        let interval = match &self.record.state {
            JobState::Cancelling { .. } => rules.poll_interval.min(rules.tuning.cancel_poll),
            _ => rules.poll_interval,
        };
        self.memory.next_poll = Some(now.mono + interval);
        match &mut self.record.state {
            JobState::Active { phase: seen, missing, .. } => {
                *seen = phase;
                *missing = None;
            }
            // Someone let it go: a predecessor before it could save that, or the user.
            JobState::Prepared { .. } if phase != Phase::Held => {
                self.memory.never_released = false;
                self.record.state = JobState::Active { id: id.clone(), phase, missing: None };
            }
            _ => {}
        }
    }

    fn gone(&mut self, id: &RemoteId, rules: &Rules, now: Instant) {
        self.memory.chain_broken = true;
        let asked = self.memory.asked_at;
        // From the latest moment the first answer can tell of, to the earliest this one can.
        let since = *self.memory.gone_since.get_or_insert(now.mono);
        if asked < since + rules.tuning.missing_grace {
            if let JobState::Active { missing, .. } = &mut self.record.state {
                missing.get_or_insert(now.wall);
            }
            let soon = rules.poll_interval.min(rules.tuning.missing_grace / 4);
            self.memory.next_poll = Some(now.mono + soon);
            if matches!(self.record.state, JobState::Prepared { .. }) {
                self.memory.pause_until = Some(now.mono + soon);
            }
            return;
        }
        match &self.record.state {
            JobState::Cancelling { maybe_ran: false, .. } => {
                let outcome = Outcome {
                    verdict: Verdict::Cancelled,
                    exit_code: None,
                    signal: None,
                    reason: "NeverReleased".to_owned(),
                    message: "it was held from its submission on and never ran".to_owned(),
                };
                self.ended(id.clone(), outcome, rules, now);
            }
            JobState::Prepared { .. } if self.memory.never_released => self.submit_lost_again(now),
            _ => self.finish(Ending::Lost { id: id.clone() }, now),
        }
    }

    fn cancelled(&mut self, id: &RemoteId, result: Result<(), ManagerError>, rules: &Rules, now: Instant) {
        if !matches!(&self.record.state, JobState::Cancelling { id: ours, .. } if ours == id) {
            return;
        }
        match result {
            Ok(()) => {
                self.went_well();
                self.memory.cancelled_at = Some(now.mono);
                self.memory.next_poll = None;
            }
            Err(error) => self.manager_error(&error, rules, now),
        }
    }

    fn staged_out(&mut self, id: &RemoteId, result: Result<Vec<Output>, StagingError>, rules: &Rules, now: Instant) {
        let JobState::StagingOut { id: ours, outcome, failing, .. } = &self.record.state else { return };
        if ours != id {
            return;
        }
        let ending = Ending::Ran { id: id.clone(), outcome: outcome.clone() };
        let failing = failing.unwrap_or(now.wall);
        self.record.progress.clear();
        match result {
            Ok(mut files) => {
                let total = files.len() as u64;
                files.truncate(OUTPUTS_LISTED);
                self.record.outputs = Some(Outputs { staged: true, message: String::new(), files, total });
                self.finish(ending, now);
            }
            Err(error) if error.is_final || self.gives_up_outputs(failing, rules, now) => {
                let message = bounded(error.message);
                let mut files = error.sent;
                let total = files.len() as u64;
                files.truncate(OUTPUTS_LISTED);
                self.record.outputs = Some(Outputs { staged: false, message, files, total });
                self.finish(ending, now);
            }
            Err(error) => self.stage_went_wrong("StageOutFailed", error.message, rules, now),
        }
    }

    /// The wall clock tells what earlier processes have spent, once; from then on it may jump as it likes.
    fn gives_up_outputs(&mut self, failing: Timestamp, rules: &Rules, now: Instant) -> bool {
        let spent = Duration::try_from(now.wall.duration_since(failing)).unwrap_or_default();
        let left = rules.tuning.stage_out_limit.saturating_sub(spent);
        now.mono >= *self.memory.stage_out_until.get_or_insert(now.mono + left)
    }
}

/// A job that was just let go is worth a look soon, even if the user asked for few looks.
fn first_look_after(rules: &Rules) -> Duration {
    rules.poll_interval.min(rules.tuning.cancel_poll)
}

/// The oldest of several jobs with the same token.
fn lowest(ids: &[RemoteId]) -> Option<RemoteId> {
    ids.iter().min_by_key(|id| (id.as_str().parse::<u64>().unwrap_or(u64::MAX), id.as_str())).cloned()
}

pub(super) fn bounded(mut text: String) -> String {
    if text.len() > TEXT_LIMIT {
        let end = (0..=TEXT_LIMIT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

fn bounded_outcome(outcome: Outcome) -> Outcome {
    Outcome { reason: bounded(outcome.reason), message: bounded(outcome.message), ..outcome }
}
