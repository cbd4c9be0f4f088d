//! Processes: what they do when they are asked, and what they hear.

use std::fmt::Write as _;

use bridge_core::driver::{Action, Answer, Call, Engine, Leaving, Slot};
use bridge_core::manager::Limits;
use bridge_core::record::JobRecord;
use bridge_core::state::Wishes;

use super::{Happening, World, key};

pub(super) struct Process {
    pub(super) engine: Engine,
    pub(super) slot: Slot,
    pub(super) wishes_seen: Wishes,
    pub(super) paused_until: u64,
    pub(super) stepped_at: Option<u64>,
}

impl World {
    /// A process comes up and takes the job over from whatever is saved.
    pub(super) fn start_process(&mut self) {
        self.next_process += 1;
        let number = self.next_process;
        let holder = format!("process-{number}");
        let Ok(stored) = self.store.read(&key()) else { return };
        let mut engine = Engine::new();
        let target = engine.add_target(Limits { poll_batch: 100, concurrent_submits: 2 });
        let begun = stored.ok_or_else(|| JobRecord::new("3f2a-11", holder.clone()));
        let slot = engine.add_job(target, self.rules.clone(), self.wishes, &holder, begun);
        let process = Process { engine, slot, wishes_seen: self.wishes, paused_until: 0, stepped_at: None };
        self.processes.insert(number, process);
        self.tell(|| format!("process {number} starts"));
        self.plan(0, Happening::Step(number));
    }

    pub(super) fn step(&mut self, number: u64) {
        let now = self.instant();
        let wishes = self.wishes;
        let Some(process) = self.processes.get_mut(&number) else { return };
        if process.paused_until > self.now {
            let wait = process.paused_until - self.now;
            self.plan(wait, Happening::Step(number));
            return;
        }
        if process.wishes_seen != wishes {
            process.wishes_seen = wishes;
            process.engine.wish(process.slot, wishes);
        }
        let actions = process.engine.step(now);
        let record = process.engine.record(process.slot).cloned();
        for action in actions {
            if let Some(record) = &record {
                self.checks.before_call(record, &action.call);
            }
            if let Call::Leave { why, .. } = &action.call {
                self.leave(number, why);
                return;
            }
            let delay = if self.rng.chance(80) { self.rng.below(50) } else { self.rng.below(2_000) };
            self.plan(delay, Happening::Send(number, action));
        }
        let Some(process) = self.processes.get_mut(&number) else { return };
        if let Some(at) = process.engine.next_wake(now) {
            let at = u64::try_from(at.as_millis()).unwrap() + 1;
            if process.stepped_at != Some(at) {
                process.stepped_at = Some(at);
                let wait = at.saturating_sub(self.now);
                self.plan(wait, Happening::Step(number));
            }
        }
    }

    fn leave(&mut self, number: u64, why: &Leaving) {
        self.tell(|| format!("process {number} leaves: {why:?}"));
        if *why == Leaving::Fenced {
            self.summary.fenced += 1;
        }
        self.processes.remove(&number);
        if self.processes.is_empty() && *why == Leaving::Fenced {
            self.plan(1_000, Happening::SecondProcess);
        }
    }

    pub(super) fn send(&mut self, number: u64, action: Action) {
        let Some(process) = self.processes.get(&number) else { return };
        if process.paused_until > self.now {
            let wait = process.paused_until - self.now;
            self.plan(wait, Happening::Send(number, action));
            return;
        }
        self.tell(|| format!("process {number} sends {:?}", action.call));
        // Killed right after a call took effect, before its answer: the hardest moment of each step.
        let killed_after = self.faults && self.rng.chance(2);
        let stopped_after = self.faults && self.rng.chance(2);
        self.make_call(number, action);
        if stopped_after {
            let until = self.now + self.rng.between(20_000, 100_000);
            if let Some(process) = self.processes.get_mut(&number) {
                process.paused_until = until;
            }
            // Someone takes the silent process for dead.
            self.plan(5_000, Happening::SecondProcess);
        }
        if killed_after {
            self.kill_process(number);
            if self.rng.chance(30) {
                self.lose_job();
            }
        }
    }

    pub(super) fn answer_soon(&mut self, number: u64, ticket: u64, answer: Answer) {
        let delay = if self.rng.chance(85) { self.rng.below(20) } else { self.rng.below(5_000) };
        self.plan(delay, Happening::Reply(number, ticket, answer));
    }

    pub(super) fn reply(&mut self, number: u64, ticket: u64, answer: Answer) {
        let now = self.instant();
        let Some(process) = self.processes.get_mut(&number) else { return };
        if process.paused_until > self.now {
            let wait = process.paused_until - self.now;
            self.plan(wait, Happening::Reply(number, ticket, answer));
            return;
        }
        if self.options.trace {
            let _ = writeln!(self.story, "{:>9} ms  process {number} hears {answer:?}", self.now);
        }
        process.engine.answer(ticket, answer, now);
        self.step(number);
    }
}
