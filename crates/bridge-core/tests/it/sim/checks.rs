//! What must hold at every moment and at the end of every life.

use std::collections::BTreeMap;

use bridge_core::driver::Call;
use bridge_core::manager::Verdict;
use bridge_core::record::{Cause, Ending, JobRecord, JobState};
use bridge_core::status::StatusView;

use super::remote::{Remote, Stage};
use super::summary::Summary;

#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) problem: Option<String>,
}

impl Checks {
    fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// A process that knows of a wish to end neither submits nor releases.
    pub(super) fn before_call(&mut self, record: &JobRecord, call: &Call) {
        let ending = matches!(record.cause, Some(Cause::Kill | Cause::Delete | Cause::Deadline));
        if ending && matches!(call, Call::Submit { .. } | Call::Release { .. }) {
            self.fail(format!("{call:?} after {:?} was known", record.cause));
        }
        if matches!(call, Call::Submit { .. }) && !matches!(record.state, JobState::Submitting { .. }) {
            self.fail(format!("{call:?} without a saved intent"));
        }
    }

    pub(super) fn saved(&mut self, before: Option<&JobRecord>, after: &JobRecord, remote: &Remote) {
        if after.encode().ok().and_then(|text| JobRecord::decode(&text).ok()).as_ref() != Some(after) {
            self.fail("the stored form does not read back as it was".to_owned());
        }
        let Some(before) = before else { return };
        if before.ending().is_some() {
            self.fail(format!("a finished job moved: {:?} became {:?}", before.state, after.state));
        }
        if after.seq <= before.seq {
            self.fail(format!("seq went from {} to {}", before.seq, after.seq));
        }
        if let Some(id) = before.id() {
            let kept = after.id() == Some(id) || after.past.iter().any(|attempt| attempt.id == *id);
            let lost_while_held =
                remote.jobs.iter().any(|job| job.id.to_string() == id.as_str() && job.forgotten && !job.released);
            if !kept && !lost_while_held {
                self.fail(format!("id {id} was forgotten: {:?} became {:?}", before.state, after.state));
            }
        }
        if before.cause.is_some_and(|cause| cause != Cause::Suspend) && after.cause.is_none() {
            self.fail(format!("the wish to end was forgotten: {:?}", before.cause));
        }
    }

    pub(super) fn at_the_end(
        record: &JobRecord,
        remote: &Remote,
        unseen_strays: bool,
        summary: &mut Summary,
    ) -> Option<String> {
        let Some(ending) = record.ending() else {
            return Some("the job did not end".to_owned());
        };
        let mut released: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for job in remote.jobs.iter().filter(|job| job.released && job.token != "stranger") {
            released.entry(&job.token).or_default().push(job.id);
        }
        if let Some((token, ids)) = released.iter().find(|(_, ids)| ids.len() > 1) {
            return Some(format!("{token} ran more than once: jobs {ids:?}"));
        }
        let alive: Vec<u64> = remote
            .jobs
            .iter()
            .filter(|job| job.token != "stranger" && !job.forgotten && !matches!(job.stage, Stage::Ended(_)))
            .filter(|job| job.released || !unseen_strays)
            .map(|job| job.id)
            .collect();
        let told_unknown = matches!(ending, Ending::SubmissionUnknown { .. });
        if !alive.is_empty() && !told_unknown {
            return Some(format!("jobs {alive:?} were left behind"));
        }
        if remote.jobs.iter().any(|job| job.token == "stranger" && matches!(job.stage, Stage::Ended(_))) {
            return Some("a stranger's job was ended".to_owned());
        }
        if let Some(problem) = untrue(record, ending, remote) {
            return Some(problem);
        }
        count(record, summary);
        None
    }
}

/// The end must be the remote system's truth.
fn untrue(record: &JobRecord, ending: &Ending, remote: &Remote) -> Option<String> {
    let truth =
        |id: &str| remote.jobs.iter().find(|job| job.id.to_string() == id && job.token == record.token().as_str());
    match ending {
        Ending::Ran { id, outcome } if outcome.reason == "NeverReleased" => {
            let job = truth(id.as_str())?;
            job.released.then(|| format!("job {id} was let go, yet its end says it never was"))
        }
        Ending::Ran { id, outcome } => match truth(id.as_str()) {
            None => Some(format!("job {id} never existed")),
            Some(job) if job.stage == Stage::Ended(outcome.clone()) => None,
            Some(job) => Some(format!("job {id} is {:?} in truth, its end says {outcome:?}", job.stage)),
        },
        Ending::Lost { id } => match truth(id.as_str()) {
            Some(job) if job.forgotten => None,
            other => Some(format!("job {id} counts as lost, in truth it is {other:?}")),
        },
        Ending::NeverSubmitted { reason } => {
            let ran = remote.jobs.iter().find(|job| job.token == record.token().as_str() && job.released);
            ran.map(|job| format!("{reason:?}, yet job {} ran", job.id))
        }
        Ending::SubmissionUnknown { .. } => None,
    }
}

fn count(record: &JobRecord, summary: &mut Summary) {
    use bridge_api::JobStatus;
    match StatusView::of(record).status {
        JobStatus::Done => summary.done += 1,
        JobStatus::Failed => summary.failed += 1,
        JobStatus::Killed => summary.killed += 1,
        _ => summary.unknown += 1,
    }
    for attempt in &record.past {
        match attempt.outcome.verdict {
            Verdict::Failed => summary.retried += 1,
            _ => summary.requeued += 1,
        }
    }
}
