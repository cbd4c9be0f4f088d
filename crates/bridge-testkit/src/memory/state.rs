//! The remote system: its jobs, and where they stand at a moment.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, HoldAnswer, Outcome, Phase, Sighting, Tracked, Verdict};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::STEP;
use super::act::Act;

/// A moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) mono: Duration,
    pub(super) wall: Timestamp,
}

impl Now {
    /// What the wall clock showed at a moment of the past.
    fn wall_at(self, moment: Duration) -> Option<Timestamp> {
        let ago = SignedDuration::try_from(self.mono.saturating_sub(moment)).ok()?;
        self.wall.checked_sub(ago).ok()
    }
}

#[derive(Debug)]
pub(super) struct State {
    next_id: u64,
    jobs: BTreeMap<u64, Job>,
    tokens: HashMap<SubmitToken, Ids>,
    files: BTreeMap<(SubmitToken, String), Bytes>,
    stepped: Duration,
    queued: Duration,
    running: Duration,
    pub(super) cannot_tell: Option<String>,
}

/// The jobs that carry a token.
#[derive(Debug, Default)]
struct Ids {
    ids: Vec<RemoteId>,
    released: u32,
}

#[derive(Debug)]
struct Job {
    token: SubmitToken,
    act: Act,
    /// Since when it may run; `None`: held.
    eligible: Option<Duration>,
    cancelled: Option<Duration>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Held,
    Queued,
    Running { since: Duration },
    Ended { started: Option<Duration>, at: Duration, cancelled: bool },
}

impl Default for State {
    fn default() -> Self {
        Self {
            next_id: 1,
            jobs: BTreeMap::new(),
            tokens: HashMap::new(),
            files: BTreeMap::new(),
            stepped: Duration::ZERO,
            queued: STEP,
            running: STEP,
            cannot_tell: None,
        }
    }
}

impl State {
    pub(super) fn set_times(&mut self, queued: Duration, running: Duration) {
        (self.queued, self.running) = (queued, running);
    }

    pub(super) fn step(&mut self, by: Duration) {
        self.stepped += by;
    }

    /// The time that moves by steps. It begins in 2026, so that shown times look like times.
    pub(super) fn stepped(&self) -> Now {
        let begin = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
        let wall = SignedDuration::try_from(self.stepped).ok().and_then(|gone| begin.checked_add(gone).ok());
        Now { mono: self.stepped, wall: wall.unwrap_or(begin) }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn add(&mut self, token: SubmitToken, act: Act, held: bool, now: Now) -> RemoteId {
        let number = self.next_id;
        self.next_id += 1;
        let id = RemoteId::new(number.to_string());
        let entry = self.tokens.entry(token.clone()).or_default();
        entry.ids.push(id.clone());
        entry.released += u32::from(!held);
        self.jobs.insert(number, Job { token, act, eligible: (!held).then_some(now.mono), cancelled: None });
        id
    }

    pub(super) fn find(&self, token: &SubmitToken) -> &[RemoteId] {
        self.tokens.get(token).map_or(&[], |entry| entry.ids.as_slice())
    }

    pub(super) fn released(&self, token: &SubmitToken) -> u32 {
        self.tokens.get(token).map_or(0, |entry| entry.released)
    }

    pub(super) fn token_of(&self, id: &RemoteId) -> Option<SubmitToken> {
        Some(self.jobs.get(&number(id)?)?.token.clone())
    }

    pub(super) fn remove(&mut self, id: &RemoteId) -> bool {
        let Some(job) = number(id).and_then(|number| self.jobs.remove(&number)) else { return false };
        if let Some(entry) = self.tokens.get_mut(&job.token) {
            entry.ids.retain(|known| known != id);
        }
        true
    }

    pub(super) fn give_away(&mut self, id: &RemoteId, now: Now) -> bool {
        let Some(number) = number(id).filter(|_| self.remove(id)) else { return false };
        let stranger = SubmitToken::derive("stranger", u32::try_from(number).unwrap_or(u32::MAX));
        let job = Job { token: stranger.clone(), act: Act::Runs, eligible: Some(now.mono), cancelled: None };
        self.jobs.insert(number, job);
        self.tokens.entry(stranger).or_default().ids.push(id.clone());
        true
    }

    /// The job, if it is the one that is meant.
    fn job(&self, tracked: &Tracked) -> Option<&Job> {
        self.jobs.get(&number(&tracked.id)?).filter(|job| job.token == tracked.token)
    }

    fn job_mut(&mut self, tracked: &Tracked) -> Option<&mut Job> {
        self.jobs.get_mut(&number(&tracked.id)?).filter(|job| job.token == tracked.token)
    }

    pub(super) fn act_and_stage(&self, tracked: &Tracked, now: Now) -> Option<(&Act, Stage)> {
        let job = self.job(tracked)?;
        Some((&job.act, self.stage(job, now)))
    }

    /// How many jobs wait and run.
    pub(super) fn queue_and_running(&self, now: Now) -> (u64, u64) {
        self.jobs.values().fold((0, 0), |(waiting, running), job| match self.stage(job, now) {
            Stage::Held | Stage::Queued => (waiting + 1, running),
            Stage::Running { .. } => (waiting, running + 1),
            Stage::Ended { .. } => (waiting, running),
        })
    }

    fn stage(&self, job: &Job, now: Now) -> Stage {
        let moment = job.cancelled.unwrap_or(now.mono);
        let start = job
            .eligible
            .map(|eligible| eligible + self.queued)
            .filter(|start| *start <= moment && job.act != Act::Queues);
        let end = start.map(|start| start + self.running).filter(|end| *end <= moment && !job.act.is_endless());
        match (job.eligible, start, end) {
            (_, started, Some(at)) => Stage::Ended { started, at, cancelled: false },
            (_, started, None) if job.cancelled.is_some() => Stage::Ended { started, at: moment, cancelled: true },
            (_, Some(since), None) => Stage::Running { since },
            (Some(_), None, None) => Stage::Queued,
            (None, None, None) => Stage::Held,
        }
    }

    pub(super) fn sighting(&self, tracked: &Tracked, now: Now) -> Sighting {
        let Some((act, stage)) = self.act_and_stage(tracked, now) else { return Sighting::Gone };
        let facts = |started: Option<Duration>, ended: Option<Duration>| Facts {
            started: started.and_then(|moment| now.wall_at(moment)),
            ended: ended.and_then(|moment| now.wall_at(moment)),
            ..Facts::default()
        };
        match stage {
            Stage::Held => Sighting::Alive(Phase::Held, Facts::default()),
            Stage::Queued => Sighting::Alive(Phase::Queued { reason: Some("Resources".to_owned()) }, Facts::default()),
            Stage::Running { since } => Sighting::Alive(Phase::Running, facts(Some(since), None)),
            Stage::Ended { started, at, cancelled } => {
                Sighting::Ended(outcome(act, cancelled), facts(started, Some(at)))
            }
        }
    }

    /// Ends a job that has not ended.
    pub(super) fn cancel(&mut self, tracked: &Tracked, now: Now) {
        if let Some(job) = self.job_mut(tracked) {
            job.cancelled.get_or_insert(now.mono);
        }
    }

    pub(super) fn release(&mut self, tracked: &Tracked, now: Now) -> HoldAnswer {
        let Some((_, stage)) = self.act_and_stage(tracked, now) else { return HoldAnswer::Gone };
        if stage == Stage::Held {
            if let Some(job) = self.job_mut(tracked) {
                job.eligible = Some(now.mono);
            }
            if let Some(entry) = self.tokens.get_mut(&tracked.token) {
                entry.released += 1;
            }
        }
        HoldAnswer::Done
    }

    pub(super) fn hold(&mut self, tracked: &Tracked, now: Now) -> HoldAnswer {
        match self.act_and_stage(tracked, now) {
            None => return HoldAnswer::Gone,
            Some((_, Stage::Running { .. } | Stage::Ended { .. })) => return HoldAnswer::TooLate,
            Some((_, Stage::Held)) => return HoldAnswer::Done,
            Some((_, Stage::Queued)) => {}
        }
        if let Some(job) = self.job_mut(tracked) {
            job.eligible = None;
        }
        if let Some(entry) = self.tokens.get_mut(&tracked.token) {
            // It never ran: letting it go again is no second run.
            entry.released = entry.released.saturating_sub(1);
        }
        HoldAnswer::Done
    }

    pub(super) fn put(&mut self, token: SubmitToken, name: String, content: Bytes) {
        self.files.insert((token, name), content);
    }

    pub(super) fn file(&self, token: &SubmitToken, name: &str) -> Option<Bytes> {
        self.files.get(&(token.clone(), name.to_owned())).cloned()
    }
}

fn number(id: &RemoteId) -> Option<u64> {
    id.as_str().parse().ok()
}

fn outcome(act: &Act, cancelled: bool) -> Outcome {
    let code = act.exit_code();
    let (verdict, exit_code, reason) = match (cancelled, code) {
        (true, _) => (Verdict::Cancelled, None, "CANCELLED"),
        (false, 0) => (Verdict::Succeeded, Some(0), "COMPLETED"),
        (false, code) => (Verdict::Failed, Some(code), "FAILED"),
    };
    Outcome { verdict, exit_code, signal: None, reason: reason.to_owned(), message: String::new() }
}
