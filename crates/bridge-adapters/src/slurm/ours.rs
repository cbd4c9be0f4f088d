//! Which of the records under a job's id are of the job.
//!
//! slurmctld gives the id of a job that it has lost to the next one, so an id alone proves nothing; the token does. Where
//! the token is gone, because comments are not stored or were changed, the time of submission stands in for it, if it was
//! seen together with the token before.

use std::collections::{BTreeMap, BTreeSet};

use bridge_core::ids::SubmitToken;

use super::map::{carries, token_of};
use super::owner::Owner;
use super::wire::JobInfo;

/// What was seen of a job while it was surely this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trail {
    owner: Owner,
    /// The first submission, and those of the last look: each requeue is a submission of its own, and of an array only
    /// the tasks that were put back into the queue get another one.
    submissions: BTreeSet<i64>,
}

/// Whose a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Ours,
    Anothers,
    /// It does not carry the token, and nothing that was seen before tells.
    CannotTell,
}

impl Trail {
    /// The trail after another look, at these records of the job.
    pub(super) fn followed_by(&self, own: &[JobInfo]) -> Self {
        let first = self.submissions.first().copied();
        let now = own.iter().filter_map(|record| record.submit_time.positive());
        let owner = own.first().map_or_else(|| self.owner.clone(), Owner::of);
        Self { owner, submissions: first.into_iter().chain(now).collect() }
    }

    /// Whose a record is that slurmctld has under the job's id.
    pub(super) fn whose(&self, record: &JobInfo, token: &SubmitToken) -> Whose {
        if Owner::of(record).differs_from(&self.owner) {
            return Whose::Anothers;
        }
        if carries(record, token) {
            return Whose::Ours;
        }
        let submitted = record.submit_time.positive();
        match (self.submissions.last(), submitted) {
            _ if token_of(record).is_some() => Whose::Anothers,
            (None, _) | (_, None) => Whose::CannotTell,
            (Some(_), Some(submitted)) if self.submissions.contains(&submitted) => Whose::Ours,
            // It may be ours, put back into the queue since; a job that was given a lost id is new.
            (Some(last), Some(submitted)) if submitted > *last && record.restart_cnt.positive().is_some() => {
                Whose::CannotTell
            }
            (Some(_), Some(_)) => Whose::Anothers,
        }
    }

    /// Of all accounts of an id those that are of the job: of each task the newest run.
    ///
    /// A requeued job has an account of each run. Many sites do not store comments, and none does before a run ends; then
    /// an account is ours if its submission is one of ours, or if it follows such a one. `user` is whose jobs we submit.
    pub(super) fn accounts(&self, records: Vec<JobInfo>, token: &SubmitToken, user: Option<&str>) -> Vec<JobInfo> {
        let proves = |record: &JobInfo| self.whose(record, token) == Whose::Ours && carries(record, token);
        let marked = records.iter().filter(|record| proves(record)).filter_map(|record| record.submit_time.positive());
        let known: BTreeSet<i64> = self.submissions.iter().copied().chain(marked).collect();
        let ours = user.map(Owner::named).unwrap_or_default();
        let is_users = |record: &JobInfo| {
            let owner = Owner::of(record);
            let is_by_name = owner.is_named() && ours.is_named() && !owner.differs_from(&ours);
            is_by_name
                || user.is_some_and(|user| record.user_name.0 == user)
                || (self.owner.is_named() && !owner.differs_from(&self.owner))
        };
        let may_be = |record: &JobInfo| {
            let says_nothing = record.comment.get().is_none() && record.extra.get().is_none();
            let is_silent = if known.is_empty() { says_nothing } else { token_of(record).is_none() };
            proves(record) || (is_silent && is_users(record))
        };
        let mut tasks: BTreeMap<Option<i64>, Vec<JobInfo>> = BTreeMap::new();
        for record in records.into_iter().filter(may_be) {
            // Each task has an id of its own, whatever its accounts call it at the time.
            tasks.entry(record.job_id.0).or_default().push(record);
        }
        let mut runs: Vec<Vec<JobInfo>> = tasks.into_values().collect();
        for runs in &mut runs {
            runs.sort_by_key(|run| run.submit_time.0);
        }
        if known.is_empty() {
            return sole_submission(runs);
        }
        let known = runs.iter().fold(known, |known, runs| with_earlier(known, runs));
        runs.into_iter().filter_map(|runs| newest_from(runs, &known)).collect()
    }
}

/// The known submissions and those they follow: only the tasks that were put back into the queue have later ones than the
/// array.
fn with_earlier(mut known: BTreeSet<i64>, runs: &[JobInfo]) -> BTreeSet<i64> {
    for pair in runs.windows(2).rev() {
        let [run, next] = pair else { continue };
        if next.submit_time.0.is_some_and(|time| known.contains(&time)) && follows(run, next) {
            known.extend(run.submit_time.positive());
        }
    }
    known
}

/// The newest run that follows from one of the known submissions.
fn newest_from(mut runs: Vec<JobInfo>, known: &BTreeSet<i64>) -> Option<JobInfo> {
    let is_known = |run: &JobInfo| run.submit_time.0.is_some_and(|time| known.contains(&time));
    let mut newest = runs.iter().rposition(is_known)?;
    while runs.get(newest + 1).is_some_and(|next| follows(&runs[newest], next)) {
        newest += 1;
    }
    Some(runs.swap_remove(newest))
}

/// The newest runs, if all accounts are of one submission and of what followed it. Two submissions under one id:
/// slurmctld lost one of them, and nothing tells which is ours.
fn sole_submission(runs: Vec<Vec<JobInfo>>) -> Vec<JobInfo> {
    let is_one = runs.iter().all(|runs| runs.windows(2).all(|pair| matches!(pair, [run, next] if follows(run, next))));
    let firsts: BTreeSet<Option<i64>> =
        runs.iter().filter_map(|runs| runs.first()).map(|run| run.submit_time.0).collect();
    if !is_one || firsts.len() > 1 {
        return Vec::new();
    }
    runs.into_iter().filter_map(|mut runs| runs.pop()).collect()
}

/// Whether a run is the one after another of the same job: slurmctld ends the account of a run before it puts the job back
/// into the queue, and never ends that of a job it has lost.
fn follows(run: &JobInfo, next: &JobInfo) -> bool {
    let has_ended = run.end_time.positive().zip(next.submit_time.positive());
    has_ended.is_some_and(|(end, submitted)| end <= submitted) && run.name.0 == next.name.0
}

#[cfg(test)]
#[path = "ours_tests.rs"]
mod tests;
