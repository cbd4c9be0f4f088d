//! What was seen of each job, so that an unchanged state need not be asked about in detail again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bridge_core::ids::SubmitToken;
use bridge_core::manager::{Phase, Sighting, Verdict};
use tokio::time::Instant;

use super::lookup::Lookup;
use super::map::EndedTasks;
use super::ours::Trail;

/// How long a reason for waiting is taken as still true.
const REASON_LASTS: Duration = Duration::from_mins(1);
/// How long other details are: an id that was lost and given away between two looks shows the same state.
const DETAILS_LAST: Duration = Duration::from_mins(10);
/// How long a job that nobody asks about is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);
/// How long it is remembered since when a job does not end by its accounts: longer than anybody waits for its end.
const UNENDED_AT_MOST: Duration = Duration::from_hours(48);
/// Jobs that are remembered without looking for forgotten ones.
const SWEEP_ABOVE: usize = 1024;

/// What was seen of each job.
#[derive(Debug, Default)]
pub(super) struct Memory {
    jobs: Mutex<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    /// By token too: slurmctld may give the id of a job that it has lost to another one of ours.
    seen: HashMap<(i64, SubmitToken), Seen>,
    /// Since when accounting, and nobody else, shows a job as not ended.
    unended: HashMap<(i64, SubmitToken), Instant>,
    /// When accounting was last asked about a job.
    asked_accounting: HashMap<(i64, SubmitToken), Instant>,
    /// How many tasks arrays were submitted with, and when.
    submitted: HashMap<(i64, SubmitToken), (u64, Instant)>,
    sweep_at: usize,
    sweep_asked_at: usize,
}

#[derive(Debug)]
struct Seen {
    look: Look,
    at: Instant,
    asked: Instant,
}

/// A job's state as one text, whatever the order of its words.
pub(super) fn state_key(words: &[String]) -> String {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.sort_unstable();
    words.join("+")
}

impl Memory {
    /// What was seen, if the state is still the same and its details are not out of date.
    pub(super) fn unchanged(&self, id: i64, token: &SubmitToken, state: &str) -> Option<Sighting> {
        let mut jobs = self.lock();
        let seen = jobs
            .seen
            .get_mut(&(id, token.clone()))
            .filter(|seen| !seen.look.is_group && !seen.look.doubted && seen.look.state == state)?;
        let is_waiting = matches!(seen.look.sighting, Sighting::Alive(Phase::Queued { .. } | Phase::Held, _));
        if seen.at.elapsed() > if is_waiting { REASON_LASTS } else { DETAILS_LAST } {
            return None;
        }
        seen.asked = Instant::now();
        Some(seen.look.sighting.clone())
    }

    /// Ended tasks of an array that slurmctld may have forgotten.
    pub(super) fn tasks(&self, id: i64, token: &SubmitToken) -> EndedTasks {
        let jobs = self.lock();
        jobs.seen.get(&(id, token.clone())).map(|seen| seen.look.tasks.clone()).unwrap_or_default()
    }

    /// An array of so many tasks was submitted.
    pub(super) fn submitted(&self, id: i64, token: &SubmitToken, tasks: u64) {
        self.lock().submitted.insert((id, token.clone()), (tasks, Instant::now()));
    }

    /// Whether so many ended tasks are surely all of an array.
    pub(super) fn are_all(&self, id: i64, token: &SubmitToken, ended: usize) -> bool {
        self.lock().submitted.get(&(id, token.clone())).is_some_and(|(tasks, _)| ended as u64 >= *tasks)
    }

    /// How many tasks a job was seen to have.
    pub(super) fn known_tasks(&self, id: i64, token: &SubmitToken) -> u64 {
        self.lock().seen.get(&(id, token.clone())).map_or(0, |seen| seen.look.known_tasks)
    }

    /// The end of all of an array that slurmctld knew, seen while accounting could not be asked about the rest.
    pub(super) fn end_seen(&self, id: i64, token: &SubmitToken) -> Option<Sighting> {
        let jobs = self.lock();
        let Look { sighting, tasks, known_tasks, .. } = &jobs.seen.get(&(id, token.clone()))?.look;
        let Sighting::Ended(outcome, _) = sighting else { return None };
        // That some have succeeded does not tell that all have.
        let may_be_worse = outcome.verdict == Verdict::Succeeded && (tasks.len() as u64) < *known_tasks;
        (!may_be_worse).then(|| sighting.clone())
    }

    /// What was seen of the job, to tell it from another one of the same id.
    pub(super) fn trail(&self, id: i64, token: &SubmitToken) -> Trail {
        self.lock().seen.get(&(id, token.clone())).map(|seen| seen.look.trail.clone()).unwrap_or_default()
    }

    /// Whether the job was seen beyond its hold, or whether that is still to be found out.
    pub(super) fn was_let_go_or_doubted(&self, id: i64, token: &SubmitToken) -> bool {
        let jobs = self.lock();
        let seen = jobs.seen.get(&(id, token.clone()));
        seen.is_some_and(|seen| seen.look.doubted || !seen.look.is_held())
    }

    /// Whether the job was seen beyond its hold.
    pub(super) fn was_let_go(&self, id: i64, token: &SubmitToken) -> bool {
        self.lock().seen.get(&(id, token.clone())).is_some_and(|seen| !seen.look.is_held())
    }

    /// What was found out about a job that is still held.
    pub(super) fn note_of_held(&self, id: i64, token: &SubmitToken) -> Option<String> {
        let jobs = self.lock();
        match &jobs.seen.get(&(id, token.clone()))?.look.sighting {
            Sighting::Alive(Phase::Held, facts) => facts.note.clone(),
            _ => None,
        }
    }

    /// Keeps what was seen.
    pub(super) fn keep(&self, id: i64, token: &SubmitToken, look: Look) {
        let now = Instant::now();
        let mut jobs = self.lock();
        let seen = Seen { look, at: now, asked: now };
        jobs.unended.remove(&(id, token.clone()));
        jobs.seen.insert((id, token.clone()), seen);
        if jobs.seen.len() > jobs.sweep_at.max(SWEEP_ABOVE) {
            jobs.seen.retain(|_, seen| seen.asked.elapsed() < FORGOTTEN_AFTER);
            jobs.unended.retain(|_, since| since.elapsed() < UNENDED_AT_MOST);
            let Jobs { submitted, seen, .. } = &mut *jobs;
            submitted.retain(|job, (_, at)| seen.contains_key(job) || at.elapsed() < FORGOTTEN_AFTER);
            // The next sweep comes when as many have been added again, so that its cost stays small per job.
            jobs.sweep_at = jobs.seen.len() * 2;
        }
    }

    /// For how long accounting, and nobody else, has shown a job as not ended.
    pub(super) fn unended_for(&self, id: i64, token: &SubmitToken) -> Duration {
        self.lock().unended.entry((id, token.clone())).or_insert_with(Instant::now).elapsed()
    }

    /// Puts those first whom accounting was asked about longest ago or never: of more than can be asked about in one round
    /// the same ones must not come first in each.
    pub(super) fn longest_unasked_first(&self, lookups: &mut [Lookup<'_>]) {
        let jobs = self.lock();
        lookups.sort_by_key(|lookup| jobs.asked_accounting.get(&(lookup.id, lookup.job.token.clone())).copied());
    }

    /// Accounting is asked about the job now.
    pub(super) fn asks_accounting(&self, id: i64, token: &SubmitToken) {
        let now = Instant::now();
        let mut jobs = self.lock();
        if let Some(seen) = jobs.seen.get_mut(&(id, token.clone())) {
            seen.asked = now;
        }
        jobs.asked_accounting.insert((id, token.clone()), now);
        if jobs.asked_accounting.len() > jobs.sweep_asked_at.max(SWEEP_ABOVE) {
            jobs.asked_accounting.retain(|_, asked| asked.elapsed() < FORGOTTEN_AFTER);
            jobs.sweep_asked_at = jobs.asked_accounting.len() * 2;
        }
    }

    /// Forgets a job that is gone or has ended.
    pub(super) fn forget(&self, id: i64, token: &SubmitToken) {
        let mut jobs = self.lock();
        jobs.asked_accounting.remove(&(id, token.clone()));
        jobs.submitted.remove(&(id, token.clone()));
        jobs.seen.remove(&(id, token.clone()));
        jobs.unended.remove(&(id, token.clone()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One look at a job.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub state: String,
    pub sighting: Sighting,
    pub is_group: bool,
    /// How many tasks it has, those included that ended before.
    pub known_tasks: u64,
    pub trail: Trail,
    pub tasks: EndedTasks,
    /// It is held, and whether it has run is to be found out.
    pub doubted: bool,
}

impl Look {
    fn is_held(&self) -> bool {
        matches!(self.sighting, Sighting::Alive(Phase::Held, _))
    }
}
