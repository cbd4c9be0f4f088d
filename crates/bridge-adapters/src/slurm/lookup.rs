//! What only accounting can tell of a job: how it ended, which of its tasks slurmctld has forgotten, whether it has run.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bridge_core::ids::RemoteId;
use bridge_core::manager::{Result, Sighting, Tracked};
use tokio::time::Instant;

use super::map::{self, carries, sighting};
use super::memory::Look;
use super::ours::Trail;
use super::wire::JobInfo;
use super::{Slurm, number};

const OPERATION: &str = "poll";
pub(super) const AT_ONCE: usize = 8;
/// How long questions to accounting are asked in one round: the answer about all other jobs waits for them. Jobs that
/// are left have their turn in a later one.
const ROUND_LASTS: Duration = Duration::from_secs(2);
/// How long the end of a job is waited for that was to be ended: whoever asked for that waits, too, and if slurmctld has
/// lost the job, no end is ever told.
const CANCELLED_TOLD_WITHIN: Duration = Duration::from_mins(5);

/// A job that accounting is to be asked about.
pub(super) struct Lookup<'a> {
    pub(super) id: i64,
    pub(super) job: &'a Tracked,
    pub(super) about: About,
}

/// What accounting is asked.
pub(super) enum About {
    /// slurmctld does not know it under its id.
    Missing {
        /// When the jobs were submitted that have its id now: accounting without comments would show them as ours.
        others: HashSet<i64>,
    },
    /// All tasks of an array that slurmctld still knows have ended.
    EndedArray(Glimpse),
    /// It is held, and has perhaps run before.
    Held(Glimpse),
}

/// What slurmctld's records show of a job.
pub(super) struct Glimpse {
    pub(super) own: Vec<JobInfo>,
    pub(super) look: Look,
}

pub(super) fn submissions(records: &[JobInfo]) -> HashSet<i64> {
    records.iter().filter_map(|record| record.submit_time.positive()).collect()
}

impl Slurm {
    /// Asks accounting, side by side, because it may be slow to fail; those that have waited longest for an answer first.
    pub(super) async fn look_up(&self, mut lookups: Vec<Lookup<'_>>, seen: &mut BTreeMap<RemoteId, Sighting>) {
        self.memory.longest_unasked_first(&mut lookups);
        let begun = Instant::now();
        let mut waiting = lookups.into_iter();
        let mut unanswered = Vec::new();
        // What all of the last ones met; those that are not asked wait for the same.
        let mut trouble = None;
        while trouble.is_none() && (begun.elapsed() < ROUND_LASTS || self.api.accounting.is_absent()) {
            let asked: Vec<_> = waiting.by_ref().take(AT_ONCE).map(|lookup| self.asked(lookup)).collect();
            if asked.is_empty() {
                break;
            }
            let mut is_answered = false;
            for (lookup, answer) in futures::future::join_all(asked).await {
                match answer {
                    Ok(sighting) => {
                        is_answered = true;
                        seen.insert(lookup.job.id.clone(), sighting.clone());
                        self.found_out(lookup, &sighting);
                    }
                    Err(error) => unanswered.push((lookup, error.message)),
                }
            }
            trouble = unanswered.last().filter(|_| !is_answered).map(|(_, error)| error.clone());
        }
        for lookup in waiting {
            match (&trouble, lookup) {
                (Some(error), lookup) => unanswered.push((lookup, error.clone())),
                (None, Lookup { job, about: About::Held(Glimpse { look, .. }), .. }) => {
                    seen.insert(job.id.clone(), look.sighting);
                }
                // Left out, it counts as not asked.
                (None, _) => {}
            }
        }
        let held = || unanswered.iter().filter(|(lookup, _)| matches!(lookup.about, About::Held(_)));
        if let Some((_, error)) = held().next() {
            tracing::warn!(%error, jobs = held().count(), "whether held jobs have started is looked up later");
        }
        for (Lookup { job, about, .. }, error) in unanswered {
            seen.insert(job.id.clone(), without_answer(job, about, &error));
        }
    }

    async fn asked<'a>(&self, mut lookup: Lookup<'a>) -> (Lookup<'a>, Result<Sighting>) {
        if !self.api.accounting.is_absent() {
            self.memory.asks_accounting(lookup.id, &lookup.job.token);
        }
        let answer = self.answered(&mut lookup).await;
        (lookup, answer)
    }

    async fn answered(&self, lookup: &mut Lookup<'_>) -> Result<Sighting> {
        let Lookup { id, job, about } = lookup;
        match about {
            About::Missing { others } => self.accounted_sighting(*id, job, others).await,
            About::EndedArray(glimpse) => self.with_forgotten_tasks(*id, job, glimpse).await,
            About::Held(Glimpse { own, look }) => self.recalled(OPERATION, job, own, look.sighting.clone()).await,
        }
    }

    fn found_out(&self, Lookup { id, job, about }: Lookup<'_>, sighting: &Sighting) {
        match about {
            // What is known of one that is missing tells it from others until it is given up.
            About::Missing { .. } if !matches!(sighting, Sighting::Ended(..)) => {}
            About::Missing { .. } => self.memory.forget(id, &job.token),
            About::EndedArray(Glimpse { look, .. }) | About::Held(Glimpse { look, .. }) => {
                self.conclude(id, job, Look { sighting: sighting.clone(), doubted: false, ..look });
            }
        }
    }

    /// An array that has ended as far as slurmctld knows, with the tasks that it has forgotten.
    async fn with_forgotten_tasks(&self, id: i64, job: &Tracked, glimpse: &mut Glimpse) -> Result<Sighting> {
        let accounted = self.api.accounted(OPERATION, id).await.map_err(|error| error.into_error(OPERATION))?;
        let Glimpse { own, look } = glimpse;
        let accounted = self.own_accounts(job, accounted.unwrap_or_default(), &look.trail).await;
        // Accounting lags behind and may still show a task as the array it was split from.
        let shown: HashSet<Option<i64>> = own.iter().map(|record| record.array_task_id.0).collect();
        let ids: HashSet<Option<i64>> = own.iter().map(|record| record.job_id.0).collect();
        let is_new = |record: &JobInfo| {
            !shown.contains(&record.array_task_id.0)
                && !ids.contains(&record.job_id.0)
                && !map::is_overruled(record, &look.tasks)
        };
        own.extend(accounted.into_iter().filter(is_new));
        Ok(sighting(own, &mut look.tasks).unwrap_or(Sighting::Gone))
    }

    /// What accounting tells of a job that slurmctld does not know.
    async fn accounted_sighting(&self, id: i64, job: &Tracked, others: &HashSet<i64>) -> Result<Sighting> {
        let accounted = self.api.accounted(OPERATION, id).await.map_err(|error| error.into_error(OPERATION))?;
        // An id is given away only when slurmctld has lost its job.
        let seen_before = || self.memory.end_seen(id, &job.token).filter(|_| others.is_empty());
        let gone = || seen_before().unwrap_or(Sighting::Gone);
        let Some(records) = accounted else { return Ok(gone()) };
        let of_others = |record: &JobInfo| record.submit_time.0.is_some_and(|time| others.contains(&time));
        let records = records.into_iter().filter(|record| carries(record, &job.token) || !of_others(record)).collect();
        let own = self.own_accounts(job, records, &self.memory.trail(id, &job.token)).await;
        if let Some(end) = self.accounted_end(&own, job) {
            return Ok(end);
        }
        // What slurmctld itself has forgotten does not run, but slurmdbd may be told late: of its end, or, when it comes
        // back from an outage, of the job at all.
        let patience = self.config.end_told_within;
        let told_late = !own.is_empty()
            || (self.memory.was_let_go(id, &job.token) && self.api.accounting.has_failed_within(patience));
        // Of a job that slurmctld has lost nobody tells accounting the end.
        if !told_late || !others.is_empty() {
            return Ok(gone());
        }
        let patience = if job.cancelling { patience.min(CANCELLED_TOLD_WITHIN) } else { patience };
        let is_late = self.memory.unended_for(id, &job.token) < patience;
        Ok(if is_late { not_told_yet(job) } else { gone() })
    }

    /// The end of a job by its accounts, if they have it.
    pub(super) fn accounted_end(&self, own: &[JobInfo], job: &Tracked) -> Option<Sighting> {
        let id = number(&job.id)?;
        let mut tasks = self.memory.tasks(id, &job.token);
        let known = self.memory.known_tasks(id, &job.token);
        match map::accounted(own, &mut tasks, known)? {
            Sighting::Ended(mut outcome, facts) => {
                let message = std::mem::take(&mut outcome.message);
                format!("{message} (from accounting)").trim_start().clone_into(&mut outcome.message);
                Some(Sighting::Ended(outcome, facts))
            }
            _ => None,
        }
    }

    /// Those of an id's accounts that are of this job, of each task the newest run.
    pub(super) async fn own_accounts(&self, job: &Tracked, records: Vec<JobInfo>, trail: &Trail) -> Vec<JobInfo> {
        trail.accounts(records, &job.token, self.api.user().await.as_deref())
    }
}

/// What is told of a job while accounting cannot be asked.
fn without_answer(job: &Tracked, about: About, error: &str) -> Sighting {
    match about {
        About::Missing { .. } => unaccounted(job, error),
        // One that failed may be among those that only accounting knows.
        About::EndedArray(_) => tasks_unaccounted(job, error),
        About::Held(Glimpse { look, .. }) => look.sighting,
    }
}

fn not_told_yet(job: &Tracked) -> Sighting {
    let why = format!(
        "slurmctld no longer knows job {}, and its accounting does not know its end yet; slurmdbd may be working off what it \
         missed, or slurmctld has lost the job: the cluster's operators see that in `sacctmgr show runawayjobs`",
        job.id
    );
    Sighting::Unaccounted { why }
}

fn tasks_unaccounted(job: &Tracked, error: &str) -> Sighting {
    let why = format!(
        "the tasks of job {} that slurmctld still knows have ended, and its accounting, which knows the others, cannot be \
         asked: {}; the end is told as soon as slurmdbd answers, so have the cluster's operators see to it",
        job.id, error
    );
    Sighting::Unaccounted { why }
}

/// Nobody may take "accounting is down" for "gone", and the user of this one job must know what it waits for.
fn unaccounted(job: &Tracked, error: &str) -> Sighting {
    let why = format!(
        "slurmctld no longer knows job {}, and its accounting, which may know how it ended, cannot be asked: {}; the end \
         is read there as soon as slurmdbd answers, so have the cluster's operators see to it",
        job.id, error
    );
    Sighting::Unaccounted { why }
}
