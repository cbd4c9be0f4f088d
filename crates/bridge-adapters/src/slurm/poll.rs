//! Looking at many jobs with few requests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, ManagerError, Phase, Result, Sighting, Tracked};
use futures::StreamExt;
use tokio::time::Instant;

use super::forgotten::STARTED;
use super::lookup::{AT_ONCE, About, Glimpse, Lookup, submissions};
use super::map::{known_tasks, sighting};
use super::memory::{Look, state_key};
use super::wire::{JobInfo, JobState};
use super::{Slurm, Sorted, number};

const OPERATION: &str = "poll";
/// Up to here each job is asked about by itself, without asking for states first.
const FEW: usize = 3;
/// The most jobs that are asked about one by one, whatever that costs: requests are not free for others either.
const MOST_SINGLY: usize = 8;
/// From here on a round does not take more than two requests.
const MANY: usize = 100;

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

/// What slurmctld tells of some jobs, and of which it tells nothing although it tells of others.
#[derive(Default)]
struct Records {
    of: HashMap<i64, Vec<JobInfo>>,
    unread: HashMap<i64, ManagerError>,
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
        let Some(Records { mut of, unread }) = self.records(&wanted, jobs.len()).await? else { return Ok(seen) };

        let mut lookups = Vec::new();
        for Wanted { id, job } in wanted {
            if let Some(error) = unread.get(&id) {
                seen.insert(job.id.clone(), not_read(job, error));
                continue;
            }
            let Sorted { own, others } = self.sorted(id, job, of.remove(&id).unwrap_or_default());
            if !own.is_empty() {
                match self.look(id, job, own) {
                    Looked::Known(sighting) => drop(seen.insert(job.id.clone(), sighting)),
                    Looked::Open(about) => lookups.push(Lookup { id, job, about }),
                }
            } else if let Some(why) = self.unproven(id, job, &others).await {
                seen.insert(job.id.clone(), Sighting::Unaccounted { why });
            } else {
                // Purged after its end, or lost; an id that was given to another's job is no better.
                lookups.push(Lookup { id, job, about: About::Missing { others: submissions(&others) } });
            }
        }
        self.look_up(lookups, &mut seen).await;
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
    async fn records(&self, wanted: &[Wanted<'_>], all: usize) -> Result<Option<Records>> {
        let started = Instant::now();
        let singly = wanted.len() == 1
            || (wanted.len() <= MOST_SINGLY && all < MANY && self.costs.one_by_one_is_cheaper(wanted.len()));
        if singly {
            let ids: Vec<i64> = wanted.iter().map(|wanted| wanted.id).collect();
            let asked = ids.into_iter().map(|id| async move { (id, self.api.job(OPERATION, id).await) });
            let answers: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
            let mut records = Records::default();
            for (id, answer) in answers {
                match answer.map_err(|error| error.into_error(OPERATION)) {
                    Ok(of) => drop(records.of.insert(id, of)),
                    Err(error) if error.kind == ErrorKind::Protocol => drop(records.unread.insert(id, error)),
                    // Who is to come back later, or to sign in again, must not ask on as if all were well.
                    Err(error) => return Err(error),
                }
            }
            if records.of.is_empty() {
                // No answer about any: trouble of the cluster, not of these jobs.
                return records.unread.into_values().next().map_or(Ok(None), Err);
            }
            if records.unread.is_empty() {
                Costs::learn(&self.costs.one, started.elapsed(), wanted.len());
            }
            return Ok(Some(records));
        }
        let ids: HashSet<i64> = wanted.iter().map(|wanted| wanted.id).collect();
        let jobs = self.api.jobs(OPERATION, move |job| job.root().is_some_and(|root| ids.contains(&root))).await;
        let Some(jobs) = jobs.map_err(|error| error.into_error(OPERATION))? else { return Ok(None) };
        Costs::learn(&self.costs.all, started.elapsed(), 1);
        let mut records = Records::default();
        for job in jobs {
            if let Some(root) = job.root() {
                records.of.entry(root).or_default().push(job);
            }
        }
        Ok(Some(records))
    }

    /// What the records of one job say, without asking anybody else; remembers it.
    fn look(&self, id: i64, job: &Tracked, own: Vec<JobInfo>) -> Looked {
        let is_group = own.len() > 1 || own.iter().any(|record| record.array_job_id.positive().is_some());
        let state = own.first().map(|first| state_key(&first.job_state.0)).unwrap_or_default();
        let trail = self.memory.trail(id, &job.token).followed_by(&own);
        let mut tasks = self.memory.tasks(id, &job.token);
        let mut found = sighting(&own, &mut tasks).unwrap_or(Sighting::Gone);
        if let Sighting::Alive(Phase::Held, facts) = &mut found {
            // Accounting told it once; all else is what slurmctld says now.
            let known = self.memory.note_of_held(id, &job.token).filter(|note| note == STARTED);
            facts.note = known.or_else(|| facts.note.take());
        }
        let doubted = matches!(found, Sighting::Alive(Phase::Held, _))
            && (job.verify || self.memory.was_let_go_or_doubted(id, &job.token));
        // Tasks that ended long before the last one may be forgotten by slurmctld; accounting has them all.
        let lacks_tasks =
            is_group && matches!(found, Sighting::Ended(..)) && !self.memory.are_all(id, &job.token, tasks.len());
        let mut known_tasks = known_tasks(&own, &tasks);
        if lacks_tasks {
            known_tasks = known_tasks.max(self.memory.known_tasks(id, &job.token));
        }
        let look = Look { state, sighting: found, is_group, known_tasks, trail, tasks, doubted };
        if lacks_tasks {
            self.memory.keep(id, &job.token, look.clone());
            return Looked::Open(About::EndedArray(Glimpse { own, look }));
        }
        let found = look.sighting.clone();
        self.conclude(id, job, look.clone());
        if doubted { Looked::Open(About::Held(Glimpse { own, look })) } else { Looked::Known(found) }
    }

    /// Remembers what was found out of a job until it has ended.
    pub(super) fn conclude(&self, id: i64, job: &Tracked, look: Look) {
        if matches!(look.sighting, Sighting::Ended(..)) {
            self.memory.forget(id, &job.token);
        } else {
            self.memory.keep(id, &job.token, look);
        }
    }
}

/// What one look shows.
enum Looked {
    Known(Sighting),
    /// Only accounting can tell.
    Open(About),
}

/// slurmctld answers, and not about this one. Its trouble is not that of the jobs beside it.
fn not_read(job: &Tracked, error: &ManagerError) -> Sighting {
    let why = format!(
        "slurmctld tells of other jobs, and its answer about job {} cannot be read: {}; it is asked again",
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
