//! The look for strays at a job's end, where the manager cannot tell whether there are any.

use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Guarantee, ManagerError, Outcome, Verdict};
use bridge_core::record::{After, Ending, JobRecord, JobState};
use bridge_core::state::{Effect, Event, Machine, Rules, Swept, Wishes};
use bridge_core::status::StatusView;

/// A job that has ended and may have left a stray.
struct Ended {
    machine: Machine,
    rules: Rules,
    now: Instant,
}

impl Ended {
    fn in_doubt() -> Self {
        let outcome = Outcome {
            verdict: Verdict::Succeeded,
            exit_code: Some(0),
            signal: None,
            reason: "COMPLETED".to_owned(),
            message: String::new(),
        };
        let mut record = JobRecord::new("uid", "before");
        record.doubt = true;
        let ending = Ending::Ran { id: RemoteId::new("7"), outcome };
        record.state = JobState::Sweeping { then: After::Finish { ending } };
        let rules = Rules::plain(Guarantee::TwoPhase, Duration::from_secs(20));
        let now = Instant { mono: Duration::from_secs(1000), wall: "2026-01-02T00:00:00Z".parse().unwrap() };
        let mut machine = Machine::recover(record, "worker");
        machine.observe(Wishes::default(), &rules, now);
        Self { machine, rules, now }
    }

    /// Sweeps with these answers, as often as asked. How many sweeps there were, and how long they took.
    fn sweep(&mut self, mut answer: impl FnMut(usize) -> Swept) -> (usize, Duration) {
        self.try_sweep(|number| Ok(answer(number)))
    }

    fn try_sweep(&mut self, mut answer: impl FnMut(usize) -> Result<Swept, ManagerError>) -> (usize, Duration) {
        let (mut sweeps, mut first) = (0, None);
        while !self.machine.is_finished() {
            match self.machine.effect(&self.rules, self.now) {
                Effect::Wait(until) => {
                    let wait = until.saturating_sub(self.now.mono);
                    self.now.mono += wait;
                    self.now.wall += wait;
                }
                Effect::Sweep { token, keep, .. } => {
                    assert_eq!(keep, Some(RemoteId::new("7")));
                    first.get_or_insert(self.now.mono);
                    self.machine.apply(Event::Sweep(token, answer(sweeps)), &self.rules, self.now);
                    sweeps += 1;
                }
                other => panic!("{other:?}"),
            }
            assert!(sweeps < 100, "it sweeps for ever");
        }
        (sweeps, self.now.mono.saturating_sub(first.unwrap()))
    }
}

fn cannot_tell() -> Swept {
    Swept::CannotTell("nothing has changed".to_owned())
}

#[test]
fn a_manager_that_cannot_tell_of_strays_is_asked_again() {
    let mut job = Ended::in_doubt();
    let (sweeps, _) = job.sweep(|number| if number < 3 { cannot_tell() } else { Swept::Clean(1) });
    assert_eq!(sweeps, 4);
    let record = job.machine.record();
    assert_eq!((record.counters.duplicates_prevented, record.unswept.as_str()), (1, ""));
    assert_eq!(record.trouble, None);
}

#[test]
fn a_manager_that_never_can_tell_does_not_keep_the_job_from_its_end() {
    let mut job = Ended::in_doubt();
    let (sweeps, took) = job.sweep(|_| cannot_tell());
    assert_eq!(sweeps, 6);
    assert!((15..=31).contains(&took.as_secs()), "{took:?}");
    let record = job.machine.record();
    let message = StatusView::of(record).message;
    assert!(message.starts_with("completed (COMPLETED, exit code 0); a submission whose reply was lost"), "{message}");
    assert!(message.contains(record.token().as_str()) && message.contains("nothing has changed"), "{message}");
    assert_eq!(record.trouble, None);
}

fn fails() -> ManagerError {
    ManagerError::new("slurm", "find", ErrorKind::Unreachable, "the list did not come within 120 s")
}

#[test]
fn an_outage_is_waited_out_and_one_that_lasts_does_not_keep_the_job_from_its_end() {
    let mut job = Ended::in_doubt();
    let (sweeps, took) = job.try_sweep(|number| if number < 30 { Err(fails()) } else { Ok(Swept::Clean(1)) });
    assert!(sweeps == 31 && took > Duration::from_mins(10), "{sweeps} {took:?}");
    assert_eq!(job.machine.record().unswept, "");

    let mut job = Ended::in_doubt();
    let (_, took) = job.try_sweep(|_| Err(fails()));
    assert!((40..=80).contains(&(took.as_secs() / 60)), "{took:?}");
    let record = job.machine.record();
    let message = StatusView::of(record).message;
    assert!(message.starts_with("completed (COMPLETED, exit code 0); a submission whose reply was lost"), "{message}");
    assert!(message.contains(record.token().as_str()) && message.contains("within 120 s"), "{message}");
    assert_eq!(record.trouble, None);
}

#[test]
fn what_keeps_it_is_told_meanwhile() {
    let mut job = Ended::in_doubt();
    let mut told = Vec::new();
    while !job.machine.is_finished() {
        match job.machine.effect(&job.rules, job.now) {
            Effect::Wait(until) => job.now.mono = until,
            Effect::Sweep { token, .. } => {
                job.machine.apply(Event::Sweep(token, Ok(cannot_tell())), &job.rules, job.now);
                told.push(StatusView::of(job.machine.record()).reason);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, ["Sweeping", "Sweeping", "ProtocolError", "ProtocolError", "ProtocolError", "COMPLETED"]);
}
