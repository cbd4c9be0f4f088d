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

use crate::clock::Instant;
use crate::ids::{RemoteId, SubmitToken};
use crate::manager::{Limits, Outcome, Tracked};
use crate::record::JobRecord;
use crate::state::{Effect, Event, Machine, Rules, Wishes};
use crate::store::{LoadError, Revision, SaveError, Stored};

/// One job of this engine.
pub type Slot = u64;
/// One call under way.
pub type Ticket = u64;
/// One remote system as one user sees it.
pub type TargetId = u64;

/// The least time between two rounds of looks at one target.
const ROUND_GAP: Duration = Duration::from_secs(1);
/// How long the wall clock is trusted when waiting for one of its moments.
const WALL_TRUST: Duration = Duration::from_secs(30);
/// Pause after the store did not answer; doubles up to the limit.
const STORE_PAUSE: Duration = Duration::from_millis(500);
const STORE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A call that is to be made. Its answer comes back through [`Engine::answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Names the call.
    pub ticket: Ticket,
    /// What to do.
    pub call: Call,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Save the record.
    Save {
        /// The job.
        slot: Slot,
        /// What to save.
        record: Arc<JobRecord>,
        /// What must be there now.
        expected: Option<Revision>,
    },
    /// Read the record again, because a save was refused.
    Reload {
        /// The job.
        slot: Slot,
    },
    /// Bring the job's data and keep the submission ready.
    StageIn {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
    },
    /// Submit, unless it is later than `until`.
    Submit {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// Last moment to send, monotonic.
        until: Duration,
    },
    /// Look for lost submissions.
    Find {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// From when on.
        since: jiff::Timestamp,
    },
    /// Let a held job go.
    Release {
        /// The job.
        slot: Slot,
        /// Its remote side.
        job: Tracked,
    },
    /// Hold a queued job back.
    Hold {
        /// The job.
        slot: Slot,
        /// Its remote side.
        job: Tracked,
    },
    /// Ask for a job's end.
    Cancel {
        /// The job.
        slot: Slot,
        /// Its remote side.
        job: Tracked,
    },
    /// Look at many jobs.
    Poll {
        /// The remote system.
        target: TargetId,
        /// Jobs and their remote sides.
        jobs: Vec<(Slot, Tracked)>,
    },
    /// Send a job's outputs.
    StageOut {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// The remote id.
        id: RemoteId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Cancel strays.
    Sweep {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// The one that is ours.
        keep: Option<RemoteId>,
        /// From when on to look.
        since: jiff::Timestamp,
    },
    /// Give up this call, which moves data; its answer is no longer needed.
    Abort {
        /// The call.
        call: Ticket,
    },
    /// Nothing more will be done for this job.
    Leave {
        /// The job.
        slot: Slot,
        /// Why.
        why: Leaving,
    },
}

/// Why the engine lets go of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaving {
    /// It is over and saved.
    Finished(Arc<JobRecord>),
    /// Another holder took over, or its record is gone.
    Fenced,
    /// Its record cannot be read any more.
    Unusable(String),
}

/// The answer to a call.
#[derive(Debug)]
pub enum Answer {
    /// To [`Call::Save`].
    Saved(Result<Revision, SaveError>),
    /// To [`Call::Reload`].
    Loaded(Result<Option<Stored>, LoadError>),
    /// To a call about one job.
    Job(Event),
    /// To [`Call::Poll`]: an event for each job that was asked about.
    Polled(TargetId, Vec<(Slot, Event)>),
}

#[derive(Debug)]
struct Entry {
    target: TargetId,
    rules: Rules,
    wishes: Wishes,
    machine: Machine,
    revision: Option<Revision>,
    unsaved: bool,
    reload: bool,
    leaving: Option<Leaving>,
    store_pause: Option<Duration>,
    store_until: Duration,
    timer: Option<Duration>,
    calls: u64,
    in_flight: Option<Ticket>,
    abortable: bool,
}

#[derive(Debug)]
struct Target {
    limits: Limits,
    submits: usize,
    waiting: VecDeque<Slot>,
    watched: BTreeMap<Slot, Duration>,
    round: VecDeque<Slot>,
    polling: bool,
    next_round: Duration,
    round_at: Option<Duration>,
}

/// Schedules everything; does nothing itself.
#[derive(Debug)]
pub struct Engine {
    entries: BTreeMap<Slot, Entry>,
    targets: BTreeMap<TargetId, Target>,
    ready: BTreeSet<Slot>,
    timers: BinaryHeap<Reverse<(Duration, Slot)>>,
    rounds: BinaryHeap<Reverse<(Duration, TargetId)>>,
    tickets: BTreeMap<Ticket, Option<Slot>>,
    next: u64,
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

    fn number(&mut self) -> u64 {
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

    fn poll_over(&mut self, target: TargetId, now: Instant) {
        if let Some(target_state) = self.targets.get_mut(&target) {
            target_state.polling = false;
            let at = if target_state.round.is_empty() { target_state.next_round } else { now.mono };
            self.round_due(target, at);
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
                entry.machine.saved(now);
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
                    entry.machine.saved(now);
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
                self.start(slot, call, actions);
                return;
            }
            entry.unsaved |= entry.machine.observe(entry.wishes, &entry.rules, now);
            if entry.unsaved {
                entry.machine.number_save(entry.calls);
                let record = Arc::new(entry.machine.record().clone());
                let expected = entry.revision.clone();
                self.start(slot, Call::Save { slot, record, expected }, actions);
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
                self.start(slot, Call::Submit { slot, token, until }, actions);
            }
            Effect::StageIn { token } => {
                entry.abortable = true;
                self.start(slot, Call::StageIn { slot, token }, actions);
            }
            Effect::StageOut { id, token, outcome } => {
                entry.abortable = entry.wishes.delete;
                self.start(slot, Call::StageOut { slot, token, id, outcome }, actions);
            }
            Effect::Find { token, since } => self.start(slot, Call::Find { slot, token, since }, actions),
            Effect::Release(job) => self.start(slot, Call::Release { slot, job }, actions),
            Effect::Hold(job) => self.start(slot, Call::Hold { slot, job }, actions),
            Effect::Cancel(job) => self.start(slot, Call::Cancel { slot, job }, actions),
            Effect::Sweep { token, keep, since } => {
                self.start(slot, Call::Sweep { slot, token, keep, since }, actions);
            }
        }
        false
    }

    fn start(&mut self, slot: Slot, call: Call, actions: &mut Vec<Action>) {
        let ticket = self.number();
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.in_flight = Some(ticket);
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

    fn round_due(&mut self, target: TargetId, at: Duration) {
        if let Some(state) = self.targets.get_mut(&target)
            && state.round_at.is_none_or(|earlier| at < earlier)
        {
            state.round_at = Some(at);
            self.rounds.push(Reverse((at, target)));
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

    fn begin_round(&mut self, target_id: TargetId, now: Instant, actions: &mut Vec<Action>) {
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
        while jobs.len() < target.limits.poll_batch
            && let Some(slot) = target.round.pop_front()
        {
            if target.watched.remove(&slot).is_none() {
                continue;
            }
            let Some(entry) = self.entries.get(&slot) else { continue };
            if entry.in_flight.is_some() || entry.unsaved {
                continue;
            }
            match entry.machine.effect(&entry.rules, now) {
                Effect::Poll { job, .. } => jobs.push((slot, job)),
                // Something more urgent has become due while it waited for the round.
                _ => {
                    self.ready.insert(slot);
                }
            }
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
                entry.calls += 1;
            }
        }
        self.tickets.insert(ticket, None);
        actions.push(Action { ticket, call: Call::Poll { target: target_id, jobs } });
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
