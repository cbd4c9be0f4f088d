//! What goes wrong in a life, and when.

use bridge_core::driver::Call;
use bridge_core::manager::{ErrorKind, Guarantee, ManagerError};
use bridge_core::state::{Tuning, Wishes};

use super::super::remote::Stage;
use super::{Happening, World, key};

const FAULTS_CEASE: u64 = 20 * 60_000;

pub(super) fn outage(operation: &'static str) -> ManagerError {
    ManagerError::new("sim", operation, ErrorKind::Unreachable, "the remote system does not answer")
}

impl World {
    pub(super) fn draw_faults(&mut self) {
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

    pub(super) fn crash(&mut self) {
        if let Some(number) = self.processes.keys().next().copied() {
            self.kill_process(number);
        }
    }

    pub(super) fn kill_process(&mut self, number: u64) {
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

    pub(super) fn lose_job(&mut self) {
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
        // Nor one that forgets it while whoever had the job before may still send: until then its key is all that keeps
        // a second request from being a second job.
        let window = u64::try_from(Tuning::default().send_window.as_millis()).unwrap();
        let key_needed = self.remote.guarantee == Guarantee::OwnKey;
        let now = self.now;
        let lost = self.remote.lose_one(
            |job| {
                (two_phase && job.stage == Stage::Held && !job.released)
                    || saved.as_ref().is_some_and(|id| id.as_str() == job.id.to_string())
                        && (!key_needed || now >= job.landed + window)
            },
            &mut self.rng,
        );
        if let Some(id) = lost {
            self.tell(|| format!("the remote system forgets job {id}"));
        }
    }

    pub(super) fn disturbed(&mut self, operation: &'static str) -> Option<ManagerError> {
        (self.faults && self.rng.chance(15)).then(|| {
            self.summary.lost_replies += 1;
            outage(operation)
        })
    }
}
