//! What slurmctld has forgotten in a crash, as accounting remembers it.
//!
//! slurmctld writes down what it knows every few seconds. Killed in between, it comes back with a job held whose
//! release, start and even end it has forgotten. slurmdbd is told of a start at once, and of a held job never.

use bridge_core::manager::{HoldAnswer, Phase, Result, Sighting, Tracked};

use super::map::{Standing, WaitingTasks, is_held_on_request, standing};
use super::wire::JobInfo;
use super::{Slurm, number};

pub(super) const STARTED: &str = "it has started before, says accounting; slurmctld has forgotten that and holds it: release it \
                       there only if it may run again";
const ENDED: &str = "slurmctld has forgotten that and holds the job: cancel it there";

impl Slurm {
    /// What to answer instead of releasing a job: it is not held, or Slurm holds it because it could not start it a second
    /// time, or it was released before. `None` if it is to be released.
    pub(super) async fn not_to_release(
        &self,
        operation: &'static str,
        job: &Tracked,
        records: &[JobInfo],
    ) -> Result<Option<HoldAnswer>> {
        if !records.iter().any(|record| matches!(standing(record), Standing::Alive(Phase::Held, _))) {
            return Ok(Some(HoldAnswer::Done));
        }
        if !records.iter().any(is_held_on_request) {
            return Ok(Some(HoldAnswer::TooLate));
        }
        let past = self.forgotten(operation, job, records).await?;
        Ok((!past.is_empty()).then_some(HoldAnswer::TooLate))
    }

    /// A held job as it is in truth.
    pub(super) async fn recalled(
        &self,
        operation: &'static str,
        job: &Tracked,
        records: &[JobInfo],
        seen: Sighting,
    ) -> Result<Sighting> {
        let past = self.forgotten(operation, job, records).await?;
        // Of an array others may never have started.
        let are_all =
            records.first().is_some_and(|record| !is_array(record) || WaitingTasks::of(record).are_all(past.len()));
        let end = if are_all { self.accounted_end(&past, job) } else { None };
        Ok(match (end, seen) {
            (Some(Sighting::Ended(mut outcome, facts)), _) => {
                outcome.message = format!("{}; {ENDED}", outcome.message);
                Sighting::Ended(outcome, facts)
            }
            (_, Sighting::Alive(phase, mut facts)) if !past.is_empty() => {
                facts.note = Some(STARTED.to_owned());
                Sighting::Alive(phase, facts)
            }
            (_, seen) => seen,
        })
    }

    /// What accounting knows of a start of the job, if slurmctld takes it for one that was never released.
    async fn forgotten(&self, operation: &'static str, job: &Tracked, records: &[JobInfo]) -> Result<Vec<JobInfo>> {
        let (Some(id), [record]) = (number(&job.id), records) else { return Ok(Vec::new()) };
        // A job that slurmctld itself has put back into the queue has rightly started before.
        let is_fresh = record.restart_cnt.positive().is_none();
        // A task of an array that has a record of its own has started, or others beside it have.
        let is_split = is_array(record) && record.array_task_id.0.is_some();
        if !is_fresh || is_split || !is_held_on_request(record) {
            return Ok(Vec::new());
        }
        let waiting = WaitingTasks::of(record);
        let accounted = self.api.accounted(operation, id).await.map_err(|error| error.into_error(operation))?;
        let started = accounted.unwrap_or_default().into_iter().filter(|past| {
            let submitted = record.submit_time.positive();
            let is_same = submitted.is_none_or(|submitted| past.submit_time.0 == Some(submitted));
            // Of an array that was held half-way, the tasks that started before rightly did.
            let waits = !is_array(record) || past.array_task_id.0.is_none_or(|task| waiting.may_hold(task));
            past.root() == Some(id) && has_started(past, record) && is_same && waits
        });
        let trail = self.memory.trail(id, &job.token);
        Ok(self.own_accounts(job, started.collect(), &trail).await)
    }
}

fn is_array(record: &JobInfo) -> bool {
    record.array_job_id.positive().is_some()
}

/// Whether a job's account tells of a start, and not only of the one that is planned.
fn has_started(past: &JobInfo, record: &JobInfo) -> bool {
    let is_pending = past.job_state.0.iter().any(|word| word.eq_ignore_ascii_case("PENDING"));
    // Accounts that show a job as pending for some time after its start do show the start.
    let planned = [record.start_time.positive(), past.eligible_time.positive()];
    let start = past.start_time.positive().filter(|start| !planned.contains(&Some(*start)));
    !is_pending || start.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What accounting said of one job at a time, and what slurmctld took for its start.
    fn started(state: &str, [start, eligible]: [i64; 2], planned: i64) -> bool {
        let number = |value: i64| serde_json::from_value(value.into()).unwrap();
        let words = serde_json::from_value(state.into()).unwrap();
        let record = JobInfo { start_time: number(planned), ..JobInfo::default() };
        let times = (number(start), number(eligible));
        has_started(
            &JobInfo { job_state: words, start_time: times.0, eligible_time: times.1, ..JobInfo::default() },
            &record,
        )
    }

    #[test]
    fn a_start_is_told_from_a_planned_one_as_22_05_shows_them() {
        assert!(started("PENDING", [1_794_751_094, 0], 0), "v0.0.38, right after the start");
        assert!(started("RUNNING", [1_794_754_550, 1_794_754_550], 0), "v0.0.36");
        assert!(started("RUNNING", [0, 0], 0), "times are wiped when a running job is held");
        assert!(started("COMPLETED", [0, 0], 0));
        assert!(!started("PENDING", [0, 0], 0));
        assert!(!started("PENDING", [0, 1_794_758_134], 1_794_758_134), "v0.0.38, begins later");
        assert!(!started("PENDING", [1_794_758_126, 1_794_758_126], 1_794_758_126), "v0.0.36, begins later");
    }
}
