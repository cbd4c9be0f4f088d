//! Rounds of looks: the jobs of one target share requests.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use super::call::{Action, Call, TargetId};
use super::engine::Engine;
use crate::clock::Instant;
use crate::state::Effect;

/// The least time between two rounds of looks at one target.
const ROUND_GAP: Duration = Duration::from_secs(1);

impl Engine {
    /// A batch was answered: the next batch of the round may go.
    pub(super) fn poll_over(&mut self, target: TargetId, now: Instant) {
        if let Some(target_state) = self.targets.get_mut(&target) {
            target_state.polling = false;
            let at = if target_state.round.is_empty() { target_state.next_round } else { now.mono };
            self.round_due(target, at);
        }
    }

    pub(super) fn round_due(&mut self, target: TargetId, at: Duration) {
        if let Some(state) = self.targets.get_mut(&target)
            && state.round_at.is_none_or(|earlier| at < earlier)
        {
            state.round_at = Some(at);
            self.rounds.push(Reverse((at, target)));
        }
    }

    pub(super) fn begin_round(&mut self, target_id: TargetId, now: Instant, actions: &mut Vec<Action>) {
        let Some(target) = self.targets.get_mut(&target_id) else { return };
        if target.polling {
            return;
        }
        if target.round.is_empty() {
            if now.mono < target.next_round {
                let at = target.next_round;
                self.round_due(target_id, at);
                return;
            }
            if !target.watched.values().any(|at| *at <= now.mono) {
                if let Some(at) = target.watched.values().min() {
                    let at = (*at).max(target.next_round);
                    self.round_due(target_id, at);
                }
                return;
            }
            // Looks that are due soon come along, so that jobs submitted at different times end up in one request.
            for (slot, at) in &target.watched {
                let interval = self.entries.get(slot).map_or(Duration::ZERO, |entry| entry.rules.poll_interval);
                if *at <= now.mono + interval / 2 {
                    target.round.push_back(*slot);
                }
            }
            target.next_round = now.mono + ROUND_GAP;
        }
        let mut jobs = Vec::new();
        let (mut asked, mut later) = (BTreeSet::new(), Vec::new());
        while jobs.len() < target.limits.poll_batch
            && let Some(slot) = target.round.pop_front()
        {
            let Some(due) = target.watched.remove(&slot) else { continue };
            let Some(entry) = self.entries.get(&slot) else { continue };
            if entry.in_flight.is_some() || entry.unsaved {
                continue;
            }
            match entry.machine.effect(&entry.rules, now) {
                // An answer tells jobs apart by their ids alone. A remote system that has lost a job gives its id to
                // another one, which may be ours as well: each gets an answer of its own.
                Effect::Poll { job, .. } if asked.contains(&job.id) => later.push((slot, due)),
                Effect::Poll { job, .. } => {
                    asked.insert(job.id.clone());
                    jobs.push((slot, job));
                }
                // Something more urgent has become due while it waited for the round.
                _ => {
                    self.ready.insert(slot);
                }
            }
        }
        for (slot, due) in later {
            target.watched.insert(slot, due);
            target.round.push_front(slot);
        }
        if jobs.is_empty() {
            if !target.watched.is_empty() || !target.round.is_empty() {
                let next = target.next_round;
                self.round_due(target_id, next);
            }
            return;
        }
        target.polling = true;
        let ticket = self.number();
        for (slot, _) in &jobs {
            if let Some(entry) = self.entries.get_mut(slot) {
                entry.in_flight = Some(ticket);
                entry.machine.asking(now);
                entry.calls += 1;
            }
        }
        self.tickets.insert(ticket, None);
        actions.push(Action { ticket, call: Call::Poll { target: target_id, jobs } });
    }
}
