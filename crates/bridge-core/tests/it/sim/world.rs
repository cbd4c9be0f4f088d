//! The world of one life: time, processes, store and remote system, with a plan of faults drawn from the seed.

mod calls;
mod faults;
mod process;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::driver::{Action, Answer};
use bridge_core::ids::JobKey;
use bridge_core::manager::Guarantee;
use bridge_core::state::{Rules, Tuning, Wishes};
use bridge_core::store::MemStore;
use jiff::Timestamp;

use super::checks::Checks;
use super::remote::Remote;
use super::rng::Rng;
use super::summary::Summary;
use process::Process;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) trace: bool,
    pub(super) only: Option<Guarantee>,
    pub(super) absent_lies: bool,
    pub(super) no_settling: bool,
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
const HORIZON: u64 = 12 * 3_600_000;

fn key() -> JobKey {
    JobKey::new("", KEY)
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
}
