//! The calls of a process, as they reach the store and the remote system, or do not.

use std::sync::Arc;

use bridge_core::driver::{Action, Answer, Call, Slot};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{ErrorKind, Found, Guarantee, ManagerError, Sighting, SubmitError, Submitted, Tracked};
use bridge_core::record::JobRecord;
use bridge_core::staging::{Output, Progress, StagingError};
use bridge_core::state::{Event, Swept};
use bridge_core::store::{LoadError, Revision, SaveError};

use super::faults::outage;
use super::{Delivery, Happening, World, key};

impl World {
    pub(super) fn make_call(&mut self, number: u64, action: Action) {
        let ticket = action.ticket;
        match action.call {
            Call::Save { record, expected, .. } => self.save(number, ticket, &record, expected.as_ref()),
            Call::Reload { .. } => {
                let loaded = if self.faults && self.rng.chance(10) {
                    Err(LoadError::Unavailable { message: "the store does not answer".to_owned() })
                } else {
                    self.store.read(&key())
                };
                self.answer_soon(number, ticket, Answer::Loaded(loaded));
            }
            Call::StageIn { .. } | Call::StageOut { .. } if self.rng.chance(10) => {
                let progress = Progress { bytes: self.rng.between(0, 9), total: None, files: 0, of: 1 };
                self.answer_soon(number, ticket, Answer::Job(Event::Moved(progress)));
            }
            Call::StageIn { .. } => {
                let staged = if self.faults && self.rng.chance(10) {
                    Err(StagingError { is_final: self.rng.chance(20), ..StagingError::passing("no such object") })
                } else {
                    Ok(())
                };
                self.answer_soon(number, ticket, Answer::Job(Event::StagedIn(staged)));
            }
            Call::StageOut { id, .. } => {
                let sent = if self.faults && self.rng.chance(20) {
                    Err(StagingError { is_final: self.rng.chance(20), ..StagingError::passing("no such bucket") })
                } else {
                    Ok(vec![Output { bucket: "b".into(), key: "k".into(), size: 1, checksum: "sha256:00".into() }])
                };
                self.answer_soon(number, ticket, Answer::Job(Event::StagedOut(id, sent)));
            }
            Call::Submit { slot, token, until } => self.submit(number, ticket, Call::Submit { slot, token, until }),
            Call::Find { token, .. } => {
                let found = self.disturbed("find").map_or_else(|| Ok(self.find(&token)), Err);
                self.answer_soon(number, ticket, Answer::Job(Event::Find(token, found)));
            }
            Call::Release { job, .. } => {
                let lost_before = self.disturbed("release");
                let answer = match lost_before {
                    Some(error) if self.rng.chance(50) => Err(error),
                    disturbed => {
                        let answer = self.remote.release(&job, self.now, &mut self.rng);
                        disturbed.map_or(Ok(answer), Err)
                    }
                };
                self.answer_soon(number, ticket, Answer::Job(Event::Release(job.id, answer)));
            }
            Call::Hold { job, .. } => {
                let answer = self.disturbed("hold").map_or_else(|| Ok(self.remote.hold(&job)), Err);
                self.answer_soon(number, ticket, Answer::Job(Event::Hold(job.id, answer)));
            }
            Call::Cancel { job, .. } => {
                let disturbed = self.disturbed("cancel");
                if disturbed.is_none() || self.rng.chance(50) {
                    self.remote.cancel(&job);
                }
                self.answer_soon(number, ticket, Answer::Job(Event::Cancel(job.id, disturbed.map_or(Ok(()), Err))));
            }
            Call::Poll { target, jobs } => self.poll(number, ticket, target, jobs),
            Call::Sweep { token, keep, .. } => {
                let swept = match self.disturbed("sweep") {
                    Some(error) => Err(error),
                    None => Ok(self.sweep(&token, keep.as_ref())),
                };
                self.answer_soon(number, ticket, Answer::Job(Event::Sweep(token, swept)));
            }
            Call::Abort { .. } | Call::Leave { .. } => {}
        }
    }

    fn find(&mut self, token: &SubmitToken) -> Found {
        if self.options.absent_lies {
            return Found::Absent;
        }
        if self.remote.guarantee == Guarantee::LookUp && self.faults && self.rng.chance(3) {
            return Found::CannotTell("the list is too long".to_owned());
        }
        self.remote.find(token)
    }

    fn sweep(&mut self, token: &SubmitToken, keep: Option<&RemoteId>) -> Swept {
        if self.faults && self.rng.chance(15) {
            return Swept::CannotTell("the list is too long".to_owned());
        }
        let Found::Jobs(ids) = self.remote.find(token) else { return Swept::Clean(0) };
        let strays: Vec<_> = ids.into_iter().filter(|id| Some(id) != keep).collect();
        for id in &strays {
            let tracked = Tracked { id: id.clone(), token: token.clone(), verify: true, cancelling: true };
            self.remote.cancel(&tracked);
            self.summary.strays_removed += 1;
        }
        Swept::Clean(strays.len())
    }

    fn save(&mut self, number: u64, ticket: u64, record: &Arc<JobRecord>, expected: Option<&Revision>) {
        let fault = if self.faults && self.rng.chance(8) { self.rng.between(1, 2) } else { 0 };
        let unavailable = || SaveError::Unavailable { message: "the store does not answer".to_owned() };
        let result = if fault == 1 {
            Err(unavailable())
        } else {
            let before = self.store.read(&key()).ok().flatten().map(|stored| stored.record);
            let result = self.store.write(&key(), record, expected);
            if result.is_ok() {
                self.checks.saved(before.as_ref(), record, &self.remote);
            }
            if fault == 2 { Err(unavailable()) } else { result }
        };
        self.answer_soon(number, ticket, Answer::Saved(result));
    }

    fn submit(&mut self, number: u64, ticket: u64, call: Call) {
        let Call::Submit { token, until, .. } = &call else { return };
        let left = u64::try_from(until.as_millis()).unwrap().saturating_sub(self.now);
        if left == 0 {
            return self.answer_soon(number, ticket, Answer::Job(Event::NotSent));
        }
        let token = token.clone();
        if self.faults && self.rng.chance(10) {
            let refused = self.rng.chance(20);
            let kind = if refused { ErrorKind::Refused } else { ErrorKind::Unreachable };
            let error = ManagerError::new("sim", "submit", kind, "not taken");
            let event = Event::Submit(token, Err(SubmitError::NotSubmitted(error)));
            return self.answer_soon(number, ticket, Answer::Job(event));
        }
        let (travel, delivery) = if self.faults && self.rng.chance(35) {
            self.summary.lost_replies += 1;
            let longest = if self.late_landings { left + 200_000 } else { left.saturating_sub(1) };
            (self.rng.below(longest.max(1)), Delivery::ReplyLost)
        } else {
            (self.rng.below(20).min(left.saturating_sub(1)), Delivery::Answered)
        };
        let twice = self.faults && self.rng.chance(3) && self.remote.guarantee != Guarantee::LookUp;
        if twice {
            // Nothing on our side can know of a request that the network delivered twice.
            self.unseen_strays |= self.remote.guarantee == Guarantee::TwoPhase;
            let action = Action { ticket, call: call.clone() };
            self.plan(travel, Happening::Land(number, action, Delivery::ReplyLost));
        }
        if delivery == Delivery::ReplyLost {
            let error = SubmitError::Unknown(outage("submit"));
            let heard_after = self.rng.below(left.max(1));
            self.plan(heard_after, Happening::Reply(number, ticket, Answer::Job(Event::Submit(token, Err(error)))));
        }
        self.plan(travel, Happening::Land(number, Action { ticket, call }, delivery));
    }

    pub(super) fn land(&mut self, number: u64, action: &Action, delivery: Delivery) {
        let Call::Submit { token, .. } = &action.call else { return };
        let id = self.remote.submit(token, self.now, &mut self.rng);
        self.tell(|| format!("the submission of process {number} arrives as job {id}"));
        if delivery == Delivery::Answered {
            let event = Event::Submit(token.clone(), Ok(Submitted::from(id)));
            self.answer_soon(number, action.ticket, Answer::Job(event));
        }
    }

    fn poll(&mut self, number: u64, ticket: u64, target: u64, jobs: Vec<(Slot, Tracked)>) {
        let disturbed = self.disturbed("poll").is_some();
        let (slots, tracked): (Vec<Slot>, Vec<Tracked>) = jobs.into_iter().unzip();
        let mut sightings = self.remote.poll(&tracked);
        if self.gaps.contains(&self.now) {
            for sighting in sightings.values_mut() {
                *sighting = Sighting::Gone;
            }
        }
        for sighting in sightings.values_mut() {
            if *sighting == Sighting::Gone && self.faults && self.rng.chance(30) {
                *sighting = Sighting::Unaccounted { why: "accounting is down".to_owned() };
            }
        }
        let events = slots
            .into_iter()
            .zip(tracked)
            .map(|(slot, job)| {
                let seen = if disturbed { Err(outage("poll")) } else { Ok(sightings.remove(&job.id)) };
                (slot, Event::Poll(job.id, seen))
            })
            .collect();
        self.answer_soon(number, ticket, Answer::Polled(target, events));
    }
}
