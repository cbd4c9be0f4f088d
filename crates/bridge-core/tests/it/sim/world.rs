//! The world of one life: time, processes, store and remote system, with a plan of faults drawn from the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::driver::{Action, Answer, Call, Engine, Leaving, Slot};
use bridge_core::ids::JobKey;
use bridge_core::manager::{
    ErrorKind, Found, Guarantee, Limits, ManagerError, Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::record::JobRecord;
use bridge_core::staging::{Output, Progress, StagingError};
use bridge_core::state::{Event, Rules, Tuning, Wishes};
use bridge_core::store::{LoadError, MemStore, SaveError};
use jiff::Timestamp;

use super::checks::Checks;
use super::remote::{Remote, Stage};
use super::rng::Rng;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) trace: bool,
    pub(super) only: Option<Guarantee>,
    pub(super) absent_lies: bool,
    pub(super) no_settling: bool,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Summary {
    pub(super) crashes: u64,
    pub(super) fenced: u64,
    pub(super) lost_replies: u64,
    pub(super) strays_removed: u64,
    pub(super) retried: u64,
    pub(super) requeued: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) killed: u64,
    pub(super) unknown: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        let Self { crashes, fenced, lost_replies, strays_removed, retried, requeued, done, failed, killed, unknown } =
            other;
        self.crashes += crashes;
        self.fenced += fenced;
        self.lost_replies += lost_replies;
        self.strays_removed += strays_removed;
        self.retried += retried;
        self.requeued += requeued;
        self.done += done;
        self.failed += failed;
        self.killed += killed;
        self.unknown += unknown;
    }
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a few of them per life")]
enum Happening {
    /// A process looks at what is due.
    Step(u64),
    /// A process makes a call; a crash before this moment means it was never made.
    Send(u64, Action),
    /// A submission that left its process earlier arrives.
    Land(u64, Action, Delivery),
    /// An answer arrives at a process.
    Reply(u64, u64, Answer),
    Crash,
    Pause,
    SecondProcess,
    ClockJump,
    LoseJob,
    Wish(Wishes),
    FaultsCease,
}

/// What the sender of a submission will hear of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Answered,
    ReplyLost,
}

struct Process {
    engine: Engine,
    slot: Slot,
    wishes_seen: Wishes,
    paused_until: u64,
    stepped_at: Option<u64>,
}

pub(super) struct World {
    rng: Rng,
    options: Options,
    now: u64,
    wall_offset: i64,
    faults: bool,
    late_landings: bool,
    unseen_strays: bool,
    /// Its queue has dropped ended jobs, its accounting does not show them yet.
    gaps: std::ops::Range<u64>,
    remote: Remote,
    store: MemStore,
    rules: Rules,
    wishes: Wishes,
    processes: BTreeMap<u64, Process>,
    next_process: u64,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next_happening: u64,
    checks: Checks,
    summary: Summary,
    story: String,
}

const KEY: &str = "job";
const FAULTS_CEASE: u64 = 20 * 60_000;
const HORIZON: u64 = 12 * 3_600_000;

fn key() -> JobKey {
    JobKey::new("", KEY)
}

fn outage(operation: &'static str) -> ManagerError {
    ManagerError::new("sim", operation, ErrorKind::Unreachable, "the remote system does not answer")
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = Rng::new(seed);
        let drawn = [Guarantee::TwoPhase, Guarantee::TwoPhase, Guarantee::OwnKey, Guarantee::LookUp]
            [usize::try_from(rng.below(4)).unwrap()];
        let guarantee = options.only.unwrap_or(drawn);
        let tuning = if options.no_settling {
            Tuning { settle: Duration::ZERO, ..Tuning::default() }
        } else {
            Tuning::default()
        };
        let rules = Rules {
            guarantee,
            can_hold: guarantee == Guarantee::TwoPhase,
            stages_in: rng.chance(20),
            stages_out: rng.chance(20),
            backoff_limit: u32::try_from(rng.below(3)).unwrap(),
            deadline: rng.chance(15).then(|| Duration::from_secs(rng.between(1, 400))),
            poll_interval: Duration::from_secs(rng.between(1, 30)),
            tuning,
        };
        let late_landings = guarantee == Guarantee::TwoPhase && rng.chance(10);
        let remote = Remote::new(guarantee, &mut rng);
        let gap_from = rng.below(150_000);
        let gaps = gap_from..gap_from + if rng.chance(40) { rng.below(40_000) } else { 0 };
        Self {
            gaps,
            remote,
            options,
            now: 0,
            wall_offset: 0,
            faults: true,
            late_landings,
            unseen_strays: late_landings,
            store: MemStore::default(),
            rules,
            wishes: Wishes { kill: rng.chance(2), delete: false, suspend: rng.chance(5) },
            processes: BTreeMap::new(),
            next_process: 0,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next_happening: 0,
            checks: Checks::default(),
            summary: Summary::default(),
            story: String::new(),
            rng,
        }
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.options.trace {
            let _ = writeln!(self.story, "{:>9} ms  {}", self.now, text());
        }
    }

    fn instant(&self) -> Instant {
        let wall = 1_800_000_000_000_i64 + i64::try_from(self.now).unwrap() + self.wall_offset;
        Instant { wall: Timestamp::from_millisecond(wall).unwrap(), mono: Duration::from_millis(self.now) }
    }

    fn plan(&mut self, after: u64, happening: Happening) {
        self.next_happening += 1;
        self.happenings.insert(self.next_happening, happening);
        self.agenda.push(Reverse((self.now + after, self.next_happening)));
    }

    pub(super) fn run(mut self) -> Result<Summary, String> {
        self.draw_faults();
        self.start_process();
        while let Some(Reverse((at, number))) = self.agenda.pop() {
            if at > HORIZON {
                return Err(self.failure("the job has not ended hours after all faults ceased"));
            }
            self.now = self.now.max(at);
            self.remote.advance(self.now, &mut self.rng);
            let Some(happening) = self.happenings.remove(&number) else { continue };
            self.happen(happening);
            if let Some(problem) = self.checks.problem.take() {
                return Err(self.failure(&problem));
            }
            if !self.faults && self.processes.is_empty() {
                break;
            }
        }
        let stored = self.store.read(&key()).map_err(|error| self.failure(&error.to_string()))?;
        let Some(stored) = stored else { return Err(self.failure("nothing was ever saved")) };
        // Requests that were under way when the job ended land after it.
        let mut left: Vec<Reverse<(u64, u64)>> = self.agenda.drain().collect();
        left.sort_by_key(|Reverse(moment)| *moment);
        for Reverse((_, number)) in left {
            if let Some(Happening::Land(process, action, delivery)) = self.happenings.remove(&number) {
                self.land(process, &action, delivery);
            }
        }
        let problem = Checks::at_the_end(&stored.record, &self.remote, self.unseen_strays, &mut self.summary);
        match problem {
            Some(problem) => Err(self.failure(&problem)),
            None => Ok(self.summary),
        }
    }

    fn failure(&self, problem: &str) -> String {
        let record = self.store.read(&key()).ok().flatten().map(|stored| stored.record);
        format!(
            "{problem}\nrules: {:?}\nrecord: {record:#?}\nremote: {:#?}\n{}",
            self.rules, self.remote.jobs, self.story
        )
    }

    fn draw_faults(&mut self) {
        for _ in 0..self.rng.below(5) {
            let at = self.rng.below(300_000);
            self.plan(at, Happening::Crash);
        }
        for _ in 0..self.rng.below(3) {
            let at = self.rng.below(300_000);
            self.plan(at, Happening::SecondProcess);
        }
        for _ in 0..self.rng.below(3) {
            let at = self.rng.below(300_000);
            self.plan(at, Happening::Pause);
        }
        if self.rng.chance(20) {
            let at = self.rng.below(300_000);
            self.plan(at, Happening::ClockJump);
        }
        if self.rng.chance(25) {
            let at = self.rng.below(200_000);
            self.plan(at, Happening::LoseJob);
        }
        if self.wishes.suspend || self.rng.chance(25) {
            let at = self.rng.below(150_000);
            let back = at + self.rng.below(200_000);
            self.plan(at, Happening::Wish(Wishes { suspend: true, ..Wishes::default() }));
            self.plan(back, Happening::Wish(Wishes::default()));
        }
        if self.rng.chance(40) {
            let at = self.rng.below(200_000);
            let delete = self.rng.chance(30);
            self.plan(at, Happening::Wish(Wishes { kill: !delete, delete, suspend: false }));
        }
        self.plan(FAULTS_CEASE, Happening::FaultsCease);
    }

    /// A process comes up and takes the job over from whatever is saved.
    fn start_process(&mut self) {
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

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step(process) => self.step(process),
            Happening::Send(process, action) => self.send(process, action),
            Happening::Land(process, action, delivery) => self.land(process, &action, delivery),
            Happening::Reply(process, ticket, answer) => self.reply(process, ticket, answer),
            Happening::Crash => self.crash(),
            Happening::Pause => {
                let until = self.now + self.rng.below(100_000);
                if let Some((number, process)) = self.processes.iter_mut().next() {
                    process.paused_until = until;
                    let number = *number;
                    self.tell(|| format!("process {number} is stopped until {until}"));
                }
            }
            Happening::SecondProcess => self.start_process(),
            Happening::ClockJump => {
                let hours = i64::try_from(self.rng.below(5)).unwrap() - 2;
                self.wall_offset += hours * 1_800_000;
                self.tell(|| format!("the wall clock jumps by {hours} half hours"));
            }
            Happening::LoseJob => self.lose_job(),
            Happening::Wish(wishes) => {
                // An end once wished for is not taken back: `kill` cannot be unset.
                let Wishes { kill, delete, suspend } = wishes;
                self.wishes = Wishes { kill: self.wishes.kill || kill, delete: self.wishes.delete || delete, suspend };
                self.tell(|| format!("wishes are now {wishes:?}"));
                let numbers: Vec<u64> = self.processes.keys().copied().collect();
                for number in numbers {
                    let delay = self.rng.below(3_000);
                    self.plan(delay, Happening::Step(number));
                }
            }
            Happening::FaultsCease => {
                self.tell(|| "faults cease".to_owned());
                self.faults = false;
                self.wishes.suspend = false;
                // What is stopped goes on or is gone; one healthy process remains in charge.
                let oldest: Vec<u64> = self.processes.keys().copied().collect();
                for number in oldest {
                    self.processes.remove(&number);
                }
                self.start_process();
            }
        }
    }

    fn crash(&mut self) {
        if let Some(number) = self.processes.keys().next().copied() {
            self.kill_process(number);
        }
    }

    fn kill_process(&mut self, number: u64) {
        if self.processes.remove(&number).is_none() {
            return;
        }
        self.summary.crashes += 1;
        self.tell(|| format!("process {number} is killed"));
        if self.processes.is_empty() {
            let pause = self.rng.below(120_000);
            self.plan(pause, Happening::SecondProcess);
        }
    }

    fn lose_job(&mut self) {
        // Only a manager with two phases may forget a job it never told anyone to run; the others forget only what
        // is in a saved record, because their `Absent` has to be truthful.
        let saved = self.store.read(&key()).ok().flatten().and_then(|stored| stored.record.id().cloned());
        let two_phase = self.remote.guarantee == Guarantee::TwoPhase;
        let on_its_way = self.happenings.values().any(|happening| match happening {
            Happening::Land(..) => true,
            Happening::Send(_, action) => matches!(action.call, Call::Submit { .. }),
            _ => false,
        });
        if !two_phase && on_its_way {
            // A manager that forgets its key while a request with that key is on its way cannot be helped.
            return;
        }
        let lost = self.remote.lose_one(
            |job| {
                (two_phase && job.stage == Stage::Held && !job.released)
                    || saved.as_ref().is_some_and(|id| id.as_str() == job.id.to_string())
            },
            &mut self.rng,
        );
        if let Some(id) = lost {
            self.tell(|| format!("the remote system forgets job {id}"));
        }
    }

    fn step(&mut self, number: u64) {
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

    fn send(&mut self, number: u64, action: Action) {
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

    fn make_call(&mut self, number: u64, action: Action) {
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

    fn disturbed(&mut self, operation: &'static str) -> Option<ManagerError> {
        (self.faults && self.rng.chance(15)).then(|| {
            self.summary.lost_replies += 1;
            outage(operation)
        })
    }

    fn find(&mut self, token: &bridge_core::ids::SubmitToken) -> Found {
        if self.options.absent_lies {
            return Found::Absent;
        }
        if self.remote.guarantee == Guarantee::LookUp && self.faults && self.rng.chance(3) {
            return Found::CannotTell("the list is too long".to_owned());
        }
        self.remote.find(token)
    }

    fn sweep(&mut self, token: &bridge_core::ids::SubmitToken, keep: Option<&bridge_core::ids::RemoteId>) -> usize {
        let Found::Jobs(ids) = self.remote.find(token) else { return 0 };
        let strays: Vec<_> = ids.into_iter().filter(|id| Some(id) != keep).collect();
        for id in &strays {
            let tracked = Tracked { id: id.clone(), token: token.clone(), verify: true, cancelling: true };
            self.remote.cancel(&tracked);
            self.summary.strays_removed += 1;
        }
        strays.len()
    }

    fn save(
        &mut self,
        number: u64,
        ticket: u64,
        record: &Arc<JobRecord>,
        expected: Option<&bridge_core::store::Revision>,
    ) {
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

    fn land(&mut self, number: u64, action: &Action, delivery: Delivery) {
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

    fn answer_soon(&mut self, number: u64, ticket: u64, answer: Answer) {
        let delay = if self.rng.chance(85) { self.rng.below(20) } else { self.rng.below(5_000) };
        self.plan(delay, Happening::Reply(number, ticket, answer));
    }

    fn reply(&mut self, number: u64, ticket: u64, answer: Answer) {
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
