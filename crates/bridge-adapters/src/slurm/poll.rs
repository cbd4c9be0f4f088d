//! Looking at many jobs with few requests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bridge_core::ids::RemoteId;
use bridge_core::manager::{ManagerError, Phase, Result, Sighting, Tracked};
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::map::{carries, sighting};
use super::memory::{Look, state_key};
use super::ours::Trail;
use super::wire::{JobInfo, JobState};
use super::{Slurm, Sorted, number};

const OPERATION: &str = "poll";
/// Up to here each job is asked about by itself, without asking for states first.
const FEW: usize = 3;
/// The most jobs that are asked about one by one, whatever that costs: requests are not free for others either.
const MOST_SINGLY: usize = 8;
/// From here on a round does not take more than two requests.
const MANY: usize = 100;
const AT_ONCE: usize = 8;
/// The most questions to accounting in one round; jobs beyond it are looked up in the next.
const MOST_LOOKUPS: usize = 16;

/// What one job and what all jobs cost to ask about, as measured: where the break-even lies depends on the cluster.
#[derive(Debug)]
pub(super) struct Costs {
    one: AtomicU64,
    all: AtomicU64,
}

impl Default for Costs {
    fn default() -> Self {
        // Microseconds on an idle small cluster; the first rounds replace them.
        Self { one: AtomicU64::new(2_000), all: AtomicU64::new(20_000) }
    }
}

impl Costs {
    fn one_by_one_is_cheaper(&self, jobs: usize) -> bool {
        self.one.load(Ordering::Relaxed).saturating_mul(jobs as u64) <= self.all.load(Ordering::Relaxed)
    }

    fn learn(average: &AtomicU64, took: Duration, jobs: usize) {
        let new = u64::try_from(took.as_micros()).unwrap_or(u64::MAX) / jobs.max(1) as u64;
        let old = average.load(Ordering::Relaxed);
        average.store(old / 2 + new / 2, Ordering::Relaxed);
    }
}

struct Wanted<'a> {
    id: i64,
    job: &'a Tracked,
}

/// A job that slurmctld does not know under its id.
struct Missing<'a> {
    id: i64,
    job: &'a Tracked,
    /// When the jobs were submitted that have its id now: accounting without comments would show them as ours.
    others: HashSet<i64>,
}

fn submissions(records: &[JobInfo]) -> HashSet<i64> {
    records.iter().filter_map(|record| record.submit_time.positive()).collect()
}

impl Slurm {
    pub(super) async fn poll_all(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        let mut seen = BTreeMap::new();
        let mut wanted = Vec::with_capacity(jobs.len());
        for job in jobs {
            match number(&job.id) {
                Some(id) => wanted.push(Wanted { id, job }),
                None => {
                    seen.insert(job.id.clone(), Sighting::Gone);
                }
            }
        }
        let wanted = self.changed(wanted, &mut seen).await?;
        if wanted.is_empty() {
            return Ok(seen);
        }
        let Some(mut records) = self.records(&wanted, jobs.len()).await? else { return Ok(seen) };

        let mut missing = Vec::new();
        let mut lookups = MOST_LOOKUPS;
        for Wanted { id, job } in wanted {
            let Sorted { own, others } = self.sorted(id, job, records.remove(&id).unwrap_or_default());
            let sighting = match self.look(id, job, own, &mut lookups).await {
                Some(sighting) => Some(sighting),
                None => self.unproven(id, job, &others).await.map(|why| Sighting::Unaccounted { why }),
            };
            match sighting {
                Some(sighting) => {
                    seen.insert(job.id.clone(), sighting);
                }
                // Purged after its end, or lost; an id that was given to another's job is no better.
                None => missing.push(Missing { id, job, others: submissions(&others) }),
            }
        }
        self.ask_accounting(missing, lookups, &mut seen).await;
        Ok(seen)
    }

    /// The jobs whose details are needed; what is known of the others is put into `seen`.
    async fn changed<'a>(
        &self,
        wanted: Vec<Wanted<'a>>,
        seen: &mut BTreeMap<RemoteId, Sighting>,
    ) -> Result<Vec<Wanted<'a>>> {
        if wanted.len() <= FEW {
            return Ok(wanted);
        }
        let ids: Vec<i64> = wanted.iter().map(|wanted| wanted.id).collect();
        let states = self.api.states(OPERATION, &ids).await.map_err(|error| error.into_error(OPERATION))?;
        let Some(states) = states else { return Ok(wanted) };
        let states: HashMap<String, String> =
            states.jobs.into_iter().map(|JobState { job_id, state }| (job_id.0, state_key(&state.0))).collect();
        let mut changed = Vec::new();
        for one in wanted {
            let known = states
                .get(one.job.id.as_str())
                .filter(|_| !one.job.verify)
                .and_then(|state| self.memory.unchanged(one.id, &one.job.token, state));
            match known {
                Some(sighting) => {
                    seen.insert(one.job.id.clone(), sighting);
                }
                None => changed.push(one),
            }
        }
        Ok(changed)
    }

    /// The records of the jobs by id; `None` if the server says that nothing has changed.
    async fn records(&self, wanted: &[Wanted<'_>], all: usize) -> Result<Option<HashMap<i64, Vec<JobInfo>>>> {
        let started = Instant::now();
        let singly = wanted.len() == 1
            || (wanted.len() <= MOST_SINGLY && all < MANY && self.costs.one_by_one_is_cheaper(wanted.len()));
        if singly {
            let ids: Vec<i64> = wanted.iter().map(|wanted| wanted.id).collect();
            let asked = ids.into_iter().map(|id| async move {
                let records = self.api.job(OPERATION, id).await?;
                Ok((id, records))
            });
            let records = futures::stream::iter(asked).buffer_unordered(AT_ONCE).try_collect::<HashMap<_, _>>().await;
            let mut records = records.map_err(|error: super::CallError| error.into_error(OPERATION))?;
            Costs::learn(&self.costs.one, started.elapsed(), wanted.len());
            for (id, records) in &mut records {
                records.retain(|record| record.root() == Some(*id));
            }
            return Ok(Some(records));
        }
        let ids: HashSet<i64> = wanted.iter().map(|wanted| wanted.id).collect();
        let jobs = self.api.jobs(OPERATION, move |job| job.root().is_some_and(|root| ids.contains(&root))).await;
        let Some(jobs) = jobs.map_err(|error| error.into_error(OPERATION))? else { return Ok(None) };
        Costs::learn(&self.costs.all, started.elapsed(), 1);
        let mut records: HashMap<i64, Vec<JobInfo>> = HashMap::new();
        for job in jobs {
            if let Some(root) = job.root() {
                records.entry(root).or_default().push(job);
            }
        }
        Ok(Some(records))
    }

    /// What the records of one job say; remembers it.
    async fn look(&self, id: i64, job: &Tracked, mut own: Vec<JobInfo>, lookups: &mut usize) -> Option<Sighting> {
        let first = own.first()?;
        let is_group = own.len() > 1 || first.array_job_id.positive().is_some();
        let state = state_key(&first.job_state.0);
        let trail = self.memory.trail(id, &job.token).followed_by(&own);
        let mut tasks = self.memory.tasks(id, &job.token);
        let mut found = sighting(&own, &mut tasks)?;
        if is_group && matches!(found, Sighting::Ended(..)) {
            // Tasks that ended long before the last one may be forgotten by slurmctld; accounting has them all.
            match self.api.accounted(OPERATION, id).await {
                Ok(accounted) => {
                    let mut accounted = accounted.unwrap_or_default();
                    accounted.retain(|record| record.root() == Some(id));
                    let accounted = self.own_accounts(job, accounted, &trail).await;
                    // Accounting lags behind and may still show a task as the array it was split from.
                    let shown: HashSet<Option<i64>> = own.iter().map(|record| record.array_task_id.0).collect();
                    let ids: HashSet<Option<i64>> = own.iter().map(|record| record.job_id.0).collect();
                    own.extend(
                        accounted.into_iter().filter(|record| {
                            !shown.contains(&record.array_task_id.0) && !ids.contains(&record.job_id.0)
                        }),
                    );
                    found = sighting(&own, &mut tasks)?;
                }
                // One that failed may be among those that only accounting knows.
                Err(error) => found = tasks_unaccounted(job, &error.into_error(OPERATION)),
            }
        }
        let mut doubted = matches!(found, Sighting::Alive(Phase::Held, _))
            && (job.verify || self.memory.was_let_go_or_doubted(id, &job.token));
        if doubted && *lookups > 0 {
            *lookups -= 1;
            match self.recalled(OPERATION, job, &own, found.clone()).await {
                Ok(recalled) => (found, doubted) = (recalled, false),
                Err(error) => tracing::warn!(%error, "whether a held job has started is looked up later"),
            }
        } else if let Sighting::Alive(Phase::Held, facts) = &mut found {
            facts.note = facts.note.take().or_else(|| self.memory.note_of_held(id, &job.token));
        }
        if matches!(found, Sighting::Ended(..)) {
            self.memory.forget(id, &job.token);
        } else {
            let look = Look { state, sighting: found.clone(), is_group, trail, tasks, doubted };
            self.memory.keep(id, &job.token, look);
        }
        Some(found)
    }

    /// Jobs that slurmctld does not know: ended and purged, or gone.
    async fn ask_accounting(
        &self,
        mut missing: Vec<Missing<'_>>,
        lookups: usize,
        seen: &mut BTreeMap<RemoteId, Sighting>,
    ) {
        let later = missing.split_off(lookups.min(missing.len()));
        // Side by side, because the answer about all other jobs waits for an accounting that may be slow to fail.
        let asked: Vec<_> = missing
            .into_iter()
            .map(|missing| async move {
                let answer = self.accounted_sighting(&missing).await;
                (missing, answer)
            })
            .collect();
        let answers: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        let (mut answered, mut trouble) = (false, None);
        for (Missing { id, job, .. }, answer) in answers {
            let sighting = match answer {
                Ok(sighting) => {
                    answered = true;
                    // What is known of one that is missing tells it from others until it is given up.
                    if matches!(sighting, Sighting::Ended(..)) {
                        self.memory.forget(id, &job.token);
                    }
                    sighting
                }
                Err(error) => unaccounted(job, trouble.insert(error)),
            };
            seen.insert(job.id.clone(), sighting);
        }
        // Those beyond the bound have their turn in a later round; while nothing is answered, they wait for the same.
        if let Some(error) = trouble.filter(|_| !answered) {
            seen.extend(later.into_iter().map(|Missing { job, .. }| (job.id.clone(), unaccounted(job, &error))));
        }
    }

    async fn accounted_sighting(&self, missing: &Missing<'_>) -> Result<Sighting> {
        let Missing { id, job, others } = missing;
        let id = *id;
        let accounted = self.api.accounted(OPERATION, id).await.map_err(|error| error.into_error(OPERATION))?;
        let Some(records) = accounted else { return Ok(Sighting::Gone) };
        let of_others = |record: &JobInfo| record.submit_time.0.is_some_and(|time| others.contains(&time));
        let records = records.into_iter().filter(|record| record.root() == Some(id));
        let records = records.filter(|record| carries(record, &job.token) || !of_others(record)).collect();
        let own = self.own_accounts(job, records, &self.memory.trail(id, &job.token)).await;
        // An id is given away only when slurmctld has lost its job, and then nobody tells accounting of an end.
        if own.is_empty() || !others.is_empty() {
            return Ok(self.accounted_end(&own, job).unwrap_or(Sighting::Gone));
        }
        // What slurmctld itself has forgotten does not run, but slurmdbd may be told of its end late.
        Ok(self.accounted_end(&own, job).unwrap_or_else(|| {
            if self.memory.unended_for(id, &job.token) < self.config.end_told_within {
                not_told_yet(job)
            } else {
                Sighting::Gone
            }
        }))
    }

    /// The end of a job by its accounts, if they have it.
    pub(super) fn accounted_end(&self, own: &[JobInfo], job: &Tracked) -> Option<Sighting> {
        let mut tasks = self.memory.tasks(number(&job.id)?, &job.token);
        match sighting(own, &mut tasks)? {
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

fn not_told_yet(job: &Tracked) -> Sighting {
    let why = format!(
        "slurmctld no longer knows job {}, and its accounting does not know its end yet; slurmdbd may be working off what it \
         missed, or slurmctld has lost the job: the cluster's operators see that in `sacctmgr show runawayjobs`",
        job.id
    );
    Sighting::Unaccounted { why }
}

fn tasks_unaccounted(job: &Tracked, error: &ManagerError) -> Sighting {
    let why = format!(
        "the tasks of job {} that slurmctld still knows have ended, and its accounting, which knows the others, cannot be \
         asked: {}; the end is told as soon as slurmdbd answers, so have the cluster's operators see to it",
        job.id, error.message
    );
    Sighting::Unaccounted { why }
}

/// Nobody may take "accounting is down" for "gone", and the user of this one job must know what it waits for.
fn unaccounted(job: &Tracked, error: &ManagerError) -> Sighting {
    let why = format!(
        "slurmctld no longer knows job {}, and its accounting, which may know how it ended, cannot be asked: {}; the end \
         is read there as soon as slurmdbd answers, so have the cluster's operators see to it",
        job.id, error.message
    );
    Sighting::Unaccounted { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_break_even_lies_is_measured() {
        let costs = Costs::default();
        assert!(costs.one_by_one_is_cheaper(MOST_SINGLY), "an idle cluster answers for one job at once");
        for _ in 0..20 {
            Costs::learn(&costs.one, Duration::from_millis(40), 4);
            Costs::learn(&costs.all, Duration::from_millis(50), 1);
        }
        assert!(costs.one_by_one_is_cheaper(4) && !costs.one_by_one_is_cheaper(6), "{costs:?}");
        for _ in 0..20 {
            Costs::learn(&costs.all, Duration::from_millis(500), 1);
        }
        assert!(costs.one_by_one_is_cheaper(MOST_SINGLY), "a crowded cluster tells of all its jobs slowly: {costs:?}");
    }
}
