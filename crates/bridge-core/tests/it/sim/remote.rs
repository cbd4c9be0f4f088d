//! A simulated remote system with a perfect memory of what really happened, whatever it tells.

use std::collections::BTreeMap;

use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, Found, Guarantee, HoldAnswer, Outcome, Phase, Sighting, Tracked, Verdict};

use super::rng::Rng;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Held,
    Queued,
    Running,
    Ended(Outcome),
}

#[derive(Debug, Clone)]
pub(super) struct RemoteJob {
    pub(super) id: u64,
    pub(super) token: String,
    /// When its submission arrived.
    pub(super) landed: u64,
    pub(super) stage: Stage,
    /// Left the held state at some time, or was never held: it could have run.
    pub(super) released: bool,
    /// When the next thing happens to it by itself.
    pub(super) next_at: u64,
    /// What its script will do.
    pub(super) fate: Outcome,
    /// Lost or purged: the remote system no longer knows it.
    pub(super) forgotten: bool,
}

#[derive(Debug)]
pub(super) struct Remote {
    pub(super) guarantee: Guarantee,
    /// The truth, forgotten jobs included; in order of submission.
    pub(super) jobs: Vec<RemoteJob>,
    next_id: u64,
    failing_attempts: u64,
    longest_run: u64,
}

pub(super) fn outcome(verdict: Verdict, exit_code: Option<i32>, reason: &str) -> Outcome {
    Outcome { verdict, exit_code, signal: None, reason: reason.to_owned(), message: String::new() }
}

impl Remote {
    pub(super) fn new(guarantee: Guarantee, rng: &mut Rng) -> Self {
        Self {
            guarantee,
            jobs: Vec::new(),
            next_id: 100,
            failing_attempts: rng.below(4),
            longest_run: if rng.chance(50) { 5_000 } else { 120_000 },
        }
    }

    fn known(&mut self, id: &RemoteId) -> Option<&mut RemoteJob> {
        let id: u64 = id.as_str().parse().ok()?;
        self.jobs.iter_mut().find(|job| job.id == id && !job.forgotten)
    }

    fn ours(&mut self, job: &Tracked) -> Option<&mut RemoteJob> {
        let token = job.token.as_str().to_owned();
        self.known(&job.id).filter(|found| found.token == token)
    }

    /// Lets time pass for all jobs.
    pub(super) fn advance(&mut self, now: u64, rng: &mut Rng) {
        for job in &mut self.jobs {
            while !job.forgotten && job.next_at <= now {
                match job.stage {
                    Stage::Queued => {
                        job.stage = Stage::Running;
                        job.next_at += rng.between(10, self.longest_run);
                    }
                    Stage::Running => job.stage = Stage::Ended(job.fate.clone()),
                    Stage::Held | Stage::Ended(_) => break,
                }
            }
        }
    }

    pub(super) fn submit(&mut self, token: &SubmitToken, now: u64, rng: &mut Rng) -> RemoteId {
        if self.guarantee == Guarantee::OwnKey
            && let Some(job) = self.jobs.iter().find(|job| job.token == token.as_str() && !job.forgotten)
        {
            return RemoteId::new(job.id.to_string());
        }
        let attempt: u64 = token.as_str().rsplit('-').next().unwrap().parse().unwrap();
        let fate = if attempt <= self.failing_attempts {
            outcome(Verdict::Failed, Some(3), "FAILED")
        } else {
            outcome(Verdict::Succeeded, Some(0), "COMPLETED")
        };
        let held = self.guarantee == Guarantee::TwoPhase;
        self.next_id += 1;
        self.jobs.push(RemoteJob {
            id: self.next_id,
            token: token.as_str().to_owned(),
            landed: now,
            stage: if held { Stage::Held } else { Stage::Queued },
            released: !held,
            next_at: if held { u64::MAX } else { now + rng.below(30_000) },
            fate,
            forgotten: false,
        });
        RemoteId::new(self.next_id.to_string())
    }

    pub(super) fn find(&self, token: &SubmitToken) -> Found {
        let ids: Vec<RemoteId> = self
            .jobs
            .iter()
            .filter(|job| job.token == token.as_str() && !job.forgotten)
            .map(|job| RemoteId::new(job.id.to_string()))
            .collect();
        if ids.is_empty() { Found::Absent } else { Found::Jobs(ids) }
    }

    pub(super) fn release(&mut self, tracked: &Tracked, now: u64, rng: &mut Rng) -> HoldAnswer {
        match self.ours(tracked) {
            None => HoldAnswer::Gone,
            Some(job) if job.stage == Stage::Held => {
                job.stage = Stage::Queued;
                job.released = true;
                job.next_at = now + rng.below(30_000);
                HoldAnswer::Done
            }
            Some(job) if matches!(job.stage, Stage::Ended(_)) => HoldAnswer::TooLate,
            Some(_) => HoldAnswer::Done,
        }
    }

    pub(super) fn hold(&mut self, tracked: &Tracked) -> HoldAnswer {
        match self.ours(tracked) {
            None => HoldAnswer::Gone,
            Some(job) if matches!(job.stage, Stage::Queued | Stage::Held) => {
                job.stage = Stage::Held;
                job.next_at = u64::MAX;
                HoldAnswer::Done
            }
            Some(_) => HoldAnswer::TooLate,
        }
    }

    pub(super) fn cancel(&mut self, tracked: &Tracked) {
        if let Some(job) = self.ours(tracked)
            && !matches!(job.stage, Stage::Ended(_))
        {
            job.stage = Stage::Ended(outcome(Verdict::Cancelled, None, "CANCELLED"));
        }
    }

    pub(super) fn poll(&mut self, jobs: &[Tracked]) -> BTreeMap<RemoteId, Sighting> {
        jobs.iter()
            .map(|tracked| {
                let sighting = match self.ours(tracked).map(|job| job.stage.clone()) {
                    None => Sighting::Gone,
                    Some(Stage::Held) => Sighting::Alive(Phase::Held, Facts::default()),
                    Some(Stage::Queued) => {
                        Sighting::Alive(Phase::Queued { reason: Some("Priority".to_owned()) }, Facts::default())
                    }
                    Some(Stage::Running) => Sighting::Alive(Phase::Running, Facts::default()),
                    Some(Stage::Ended(outcome)) => Sighting::Ended(outcome, Facts::default()),
                };
                (tracked.id.clone(), sighting)
            })
            .collect()
    }

    /// Forgets one live or ended job and gives its id to a stranger's, as slurmctld does after a crash.
    pub(super) fn lose_one(&mut self, may: impl Fn(&RemoteJob) -> bool, rng: &mut Rng) -> Option<u64> {
        let candidates: Vec<usize> = (0..self.jobs.len())
            .filter(|index| {
                !self.jobs[*index].forgotten && self.jobs[*index].token != "stranger" && may(&self.jobs[*index])
            })
            .collect();
        let index = *candidates.get(usize::try_from(rng.below(candidates.len() as u64)).unwrap())?;
        self.jobs[index].forgotten = true;
        let id = self.jobs[index].id;
        if rng.chance(60) {
            self.jobs.push(RemoteJob {
                id,
                token: "stranger".to_owned(),
                landed: 0,
                stage: Stage::Running,
                released: true,
                next_at: u64::MAX,
                fate: outcome(Verdict::Succeeded, Some(0), "COMPLETED"),
                forgotten: false,
            });
        }
        Some(id)
    }
}
