//! The driver without I/O: which call is due for which job, and what its answer means.
//!
//! # Guarantees
//! - Per job one thing at a time, and nothing is done for a job whose record is not saved.
//! - Looks at the jobs of one target share requests: a round costs ⌈jobs / batch⌉ requests.
//! - An answer that comes after its call was given up changes nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::call::{Action, Answer, Call, Leaving, Slot, TargetId, Ticket};
use crate::clock::Instant;
use crate::manager::Limits;
use crate::record::JobRecord;
use crate::state::{Effect, Event, Machine, Rules, Wishes};
use crate::store::{LoadError, Revision, SaveError, Stored};

/// How long the wall clock is trusted when waiting for one of its moments.
const WALL_TRUST: Duration = Duration::from_secs(30);
/// Pause after the store did not answer; doubles up to the limit.
const STORE_PAUSE: Duration = Duration::from_millis(500);
const STORE_PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) target: TargetId,
    pub(super) rules: Rules,
    pub(super) wishes: Wishes,
    pub(super) machine: Machine,
    pub(super) revision: Option<Revision>,
    pub(super) unsaved: bool,
    pub(super) reload: bool,
    pub(super) leaving: Option<Leaving>,
    pub(super) store_pause: Option<Duration>,
    pub(super) store_until: Duration,
    pub(super) timer: Option<Duration>,
    pub(super) calls: u64,
    pub(super) in_flight: Option<Ticket>,
    pub(super) abortable: bool,
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) limits: Limits,
    pub(super) submits: usize,
    pub(super) waiting: VecDeque<Slot>,
    pub(super) watched: BTreeMap<Slot, Duration>,
    pub(super) round: VecDeque<Slot>,
    pub(super) polling: bool,
    pub(super) next_round: Duration,
    pub(super) round_at: Option<Duration>,
}

/// Schedules everything; does nothing itself.
#[derive(Debug)]
pub struct Engine {
    pub(super) entries: BTreeMap<Slot, Entry>,
    pub(super) targets: BTreeMap<TargetId, Target>,
    pub(super) ready: BTreeSet<Slot>,
    pub(super) timers: BinaryHeap<Reverse<(Duration, Slot)>>,
    pub(super) rounds: BinaryHeap<Reverse<(Duration, TargetId)>>,
    pub(super) tickets: BTreeMap<Ticket, Option<Slot>>,
    pub(super) next: u64,
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// An engine without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            targets: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BinaryHeap::new(),
            rounds: BinaryHeap::new(),
            tickets: BTreeMap::new(),
            next: 1,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds a remote system.
    pub fn add_target(&mut self, limits: Limits) -> TargetId {
        let id = self.number();
        let target = Target {
            limits: Limits {
                poll_batch: limits.poll_batch.max(1),
                concurrent_submits: limits.concurrent_submits.max(1),
            },
            submits: 0,
            waiting: VecDeque::new(),
            watched: BTreeMap::new(),
            round: VecDeque::new(),
            polling: false,
            next_round: Duration::ZERO,
            round_at: None,
        };
        self.targets.insert(id, target);
        id
    }

    /// Adds a job: a new one with its first record, or one that another life of this or another process left.
    pub fn add_job(
        &mut self,
        target: TargetId,
        rules: Rules,
        wishes: Wishes,
        holder: &str,
        stored: Result<Stored, JobRecord>,
    ) -> Slot {
        let slot = self.number();
        let (machine, revision, unsaved) = match stored {
            // Taking over is saved before anything is asked of the remote system: from then on the other holder is fenced.
            Ok(Stored { record, revision }) => {
                let over = record.ending().is_some();
                (Machine::recover(record, holder), Some(revision), !over)
            }
            Err(record) => (Machine::begin(record), None, false),
        };
        let entry = Entry {
            target,
            rules,
            wishes,
            machine,
            revision,
            unsaved,
            reload: false,
            leaving: None,
            store_pause: None,
            store_until: Duration::ZERO,
            timer: None,
            calls: 0,
            in_flight: None,
            abortable: false,
        };
        self.entries.insert(slot, entry);
        self.ready.insert(slot);
        slot
    }

    /// What is wished of a job from now on.
    pub fn wish(&mut self, slot: Slot, wishes: Wishes) {
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.wishes = wishes;
            self.ready.insert(slot);
        }
    }

    /// What holds for a job from now on.
    pub fn set_rules(&mut self, slot: Slot, rules: Rules) {
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.rules = rules;
            self.ready.insert(slot);
        }
    }

    /// A job's record as this engine has it.
    #[must_use]
    pub fn record(&self, slot: Slot) -> Option<&JobRecord> {
        self.entries.get(&slot).map(|entry| entry.machine.record())
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No jobs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When [`step`](Self::step) has something to do at the latest, on the monotonic clock.
    #[must_use]
    pub fn next_wake(&self, now: Instant) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(now.mono);
        }
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let round = self.rounds.peek().map(|Reverse((at, _))| *at);
        [timer, round].into_iter().flatten().min()
    }

    /// All calls that are due.
    pub fn step(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(Reverse((at, _))) = self.timers.peek() {
            if *at > now.mono {
                break;
            }
            if let Some(Reverse((at, slot))) = self.timers.pop()
                && let Some(entry) = self.entries.get_mut(&slot)
                && entry.timer == Some(at)
            {
                entry.timer = None;
                self.ready.insert(slot);
            }
        }
        while let Some(slot) = self.ready.pop_first() {
            self.advance(slot, now, &mut actions);
        }
        while let Some(Reverse((at, _))) = self.rounds.peek() {
            if *at > now.mono {
                break;
            }
            if let Some(Reverse((at, id))) = self.rounds.pop()
                && let Some(target) = self.targets.get_mut(&id)
                && target.round_at == Some(at)
            {
                target.round_at = None;
                self.begin_round(id, now, &mut actions);
            }
        }
        actions
    }

    /// Takes a call's answer in. Follow with [`step`](Self::step).
    pub fn answer(&mut self, ticket: Ticket, answer: Answer, now: Instant) {
        let Some(owner) = self.tickets.remove(&ticket) else { return };
        if let Answer::Polled(target, events) = answer {
            for (slot, event) in events {
                self.take(slot, ticket, event, now);
            }
            self.poll_over(target, now);
            return;
        }
        let Some(slot) = owner else { return };
        match answer {
            Answer::Saved(result) => self.saved(slot, ticket, result, now),
            Answer::Loaded(result) => self.loaded(slot, ticket, result, now),
            Answer::Job(event) => self.take(slot, ticket, event, now),
            Answer::Polled(..) => {}
        }
    }

    fn take(&mut self, slot: Slot, ticket: Ticket, event: Event, now: Instant) {
        let Some(entry) = self.entries.get_mut(&slot) else { return };
        if entry.in_flight != Some(ticket) {
            return;
        }
        entry.in_flight = None;
        entry.abortable = false;
        if matches!(event, Event::Submit(..) | Event::NotSent)
            && let Some(target) = self.targets.get_mut(&entry.target)
        {
            target.submits = target.submits.saturating_sub(1);
            if let Some(next) = target.waiting.pop_front() {
                self.ready.insert(next);
            }
        }
        entry.unsaved |= entry.machine.apply(event, &entry.rules, now);
        self.ready.insert(slot);
    }

    fn saved(&mut self, slot: Slot, ticket: Ticket, result: Result<Revision, SaveError>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&slot) else { return };
        if entry.in_flight != Some(ticket) {
            return;
        }
        entry.in_flight = None;
        match result {
            Ok(revision) => {
                entry.revision = Some(revision);
                entry.unsaved = false;
                entry.store_pause = None;
                self.ready.insert(slot);
            }
            Err(SaveError::Conflict) => {
                entry.reload = true;
                self.ready.insert(slot);
            }
            Err(SaveError::Unavailable { .. }) => self.pause_store(slot, now),
        }
    }

    fn loaded(&mut self, slot: Slot, ticket: Ticket, result: Result<Option<Stored>, LoadError>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&slot) else { return };
        if entry.in_flight != Some(ticket) {
            return;
        }
        entry.in_flight = None;
        match result {
            // The holder is this very process: others' keys beside the record changed, or a reply to a save was lost.
            Ok(Some(stored)) if stored.record.holder == entry.machine.record().holder => {
                entry.revision = Some(stored.revision);
                entry.reload = false;
                if entry.machine.is_saved_as(&stored.record) {
                    entry.unsaved = false;
                    entry.store_pause = None;
                }
                self.ready.insert(slot);
            }
            Ok(_) => {
                entry.leaving = Some(Leaving::Fenced);
                self.ready.insert(slot);
            }
            Err(LoadError::Unusable { source, .. }) => {
                entry.leaving = Some(Leaving::Unusable(source.to_string()));
                self.ready.insert(slot);
            }
            Err(LoadError::Unavailable { .. }) => self.pause_store(slot, now),
        }
    }

    fn pause_store(&mut self, slot: Slot, now: Instant) {
        let Some(entry) = self.entries.get_mut(&slot) else { return };
        let pause = entry.store_pause.map_or(STORE_PAUSE, |pause| (pause * 2).min(STORE_PAUSE_MAX));
        entry.store_pause = Some(pause);
        entry.store_until = now.mono + pause;
        self.wake(slot, now.mono + pause);
    }

    /// Brings one job as far as it goes without an answer.
    fn advance(&mut self, slot: Slot, now: Instant, actions: &mut Vec<Action>) {
        loop {
            let Some(entry) = self.entries.get_mut(&slot) else { return };
            if let Some(why) = entry.leaving.take() {
                self.leave(slot, why, actions);
                return;
            }
            if let Some(ticket) = entry.in_flight {
                let ending = entry.wishes.kill || entry.wishes.delete;
                if entry.abortable && ending {
                    entry.in_flight = None;
                    entry.abortable = false;
                    self.tickets.remove(&ticket);
                    let own = self.number();
                    actions.push(Action { ticket: own, call: Call::Abort { call: ticket } });
                    continue;
                }
                return;
            }
            if entry.store_until > now.mono {
                return;
            }
            if entry.reload {
                let call = Call::Reload { slot };
                self.start(slot, call, now, actions);
                return;
            }
            entry.unsaved |= entry.machine.observe(entry.wishes, &entry.rules, now);
            if entry.unsaved {
                entry.machine.saving(entry.calls, now);
                let record = Arc::new(entry.machine.record().clone());
                let expected = entry.revision.clone();
                self.start(slot, Call::Save { slot, record, expected }, now, actions);
                return;
            }
            if entry.machine.is_finished() {
                let record = Arc::new(entry.machine.record().clone());
                self.leave(slot, Leaving::Finished(record), actions);
                return;
            }
            let effect = entry.machine.effect(&entry.rules, now);
            if !self.execute(slot, effect, now, actions) {
                return;
            }
        }
    }

    /// Turns an effect into a call or a timer. Returns whether the job can go on at once.
    fn execute(&mut self, slot: Slot, effect: Effect, now: Instant, actions: &mut Vec<Action>) -> bool {
        let Some(entry) = self.entries.get_mut(&slot) else { return false };
        let target_id = entry.target;
        if let Some(target) = self.targets.get_mut(&target_id) {
            target.watched.remove(&slot);
        }
        match effect {
            Effect::Rest => self.wake_at_deadline(slot, now),
            Effect::Wait(at) => {
                self.wake(slot, at);
                self.wake_at_deadline(slot, now);
            }
            Effect::WaitUntil(moment) => {
                let left = Duration::try_from(moment.duration_since(now.wall)).unwrap_or_default();
                self.wake(slot, now.mono + left.min(WALL_TRUST));
            }
            Effect::BeginStageIn => {
                entry.unsaved |= entry.machine.apply(Event::StagingStarts, &entry.rules, now);
                return true;
            }
            Effect::Intend => {
                entry.unsaved |= entry.machine.apply(Event::Intend, &entry.rules, now);
                return true;
            }
            Effect::Poll { at, .. } => {
                if let Some(target) = self.targets.get_mut(&target_id) {
                    target.watched.insert(slot, at);
                    let at = at.max(target.next_round);
                    self.round_due(target_id, at);
                }
                self.wake_at_deadline(slot, now);
            }
            Effect::Submit { token, until } => {
                let Some(target) = self.targets.get_mut(&target_id) else { return false };
                if target.submits >= target.limits.concurrent_submits {
                    target.waiting.push_back(slot);
                    return false;
                }
                target.submits += 1;
                self.start(slot, Call::Submit { slot, token, until }, now, actions);
            }
            Effect::StageIn { token } => {
                entry.abortable = true;
                self.start(slot, Call::StageIn { slot, token }, now, actions);
            }
            Effect::StageOut { id, token, outcome } => {
                entry.abortable = entry.wishes.delete;
                self.start(slot, Call::StageOut { slot, token, id, outcome }, now, actions);
            }
            Effect::Find { token, since } => self.start(slot, Call::Find { slot, token, since }, now, actions),
            Effect::Release(job) => self.start(slot, Call::Release { slot, job }, now, actions),
            Effect::Hold(job) => self.start(slot, Call::Hold { slot, job }, now, actions),
            Effect::Cancel(job) => self.start(slot, Call::Cancel { slot, job }, now, actions),
            Effect::Sweep { token, keep, since } => {
                self.start(slot, Call::Sweep { slot, token, keep, since }, now, actions);
            }
        }
        false
    }

    fn start(&mut self, slot: Slot, call: Call, now: Instant, actions: &mut Vec<Action>) {
        let ticket = self.number();
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.in_flight = Some(ticket);
            entry.machine.asking(now);
            let remote = !matches!(call, Call::Save { .. } | Call::Reload { .. });
            entry.calls += u64::from(remote);
        }
        self.tickets.insert(ticket, Some(slot));
        actions.push(Action { ticket, call });
    }

    /// One timer a job: the earliest of those asked for decides again about the others.
    fn wake(&mut self, slot: Slot, at: Duration) {
        if let Some(entry) = self.entries.get_mut(&slot)
            && entry.timer.is_none_or(|earlier| at < earlier)
        {
            entry.timer = Some(at);
            self.timers.push(Reverse((at, slot)));
        }
    }

    fn wake_at_deadline(&mut self, slot: Slot, now: Instant) {
        let Some(entry) = self.entries.get(&slot) else { return };
        if let Some(deadline) = entry.machine.deadline(&entry.rules) {
            let left = Duration::try_from(deadline.duration_since(now.wall)).unwrap_or_default();
            if !left.is_zero() {
                self.wake(slot, now.mono + left.min(WALL_TRUST));
            }
        }
    }

    fn leave(&mut self, slot: Slot, why: Leaving, actions: &mut Vec<Action>) {
        if let Some(entry) = self.entries.remove(&slot)
            && let Some(target) = self.targets.get_mut(&entry.target)
        {
            target.watched.remove(&slot);
            target.waiting.retain(|waiting| *waiting != slot);
        }
        let ticket = self.number();
        actions.push(Action { ticket, call: Call::Leave { slot, why } });
    }
}
