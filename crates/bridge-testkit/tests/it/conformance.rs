//! The suite itself: each way in which an adapter can do harm is found by the case that is there for it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    Found, Guarantee, Hold, Limits, LogChunk, LogCursor, LogStream, Logs, Phase, Preview, ResourceManager, Result,
    Sighting, SubmitError, Submitted, Tracked, Verdict,
};
use bridge_core::plan::Submission;
use bridge_testkit::conformance::{self, Sample, Subject};
use bridge_testkit::faults::FaultPlan;
use bridge_testkit::memory::MemoryManager;
use jiff::Timestamp;

use crate::memory::Memory;

/// What an adapter does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    TakesALostReplyForNotSubmitted,
    TakesAnErrorForAbsent,
    TakesAnErrorForGone,
    IgnoresTheTokenInPoll,
    IgnoresTheTokenInCancel,
    LeavesJobsOutOfPolls,
    FailsToCancelTheUnknown,
    ReleasesOnSubmit,
    PromisesAHoldThatIsNotThere,
    SaysCancelledWhenItSucceeded,
    ShowsASecret,
    ForgetsEndedJobs,
    EndsOutputEarly,
}

#[derive(Debug)]
struct Broken {
    defect: Defect,
    inner: MemoryManager,
}

impl Broken {
    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// The same job under the token that it really has.
    fn owner(&self, job: &Tracked) -> Tracked {
        let token = self.inner.token_of(&job.id).unwrap_or_else(|| job.token.clone());
        Tracked { token, ..job.clone() }
    }
}

#[async_trait]
impl ResourceManager for Broken {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn preview(&self, job: &Submission) -> Result<Preview> {
        let mut preview = self.inner.preview(job)?;
        if self.has(Defect::ShowsASecret) {
            preview.request.push_str(" --password hunter2");
        }
        Ok(preview)
    }

    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        match self.inner.submit(job).await {
            Err(SubmitError::Unknown(error)) if self.has(Defect::TakesALostReplyForNotSubmitted) => {
                Err(SubmitError::NotSubmitted(error))
            }
            Ok(submitted) if self.has(Defect::ReleasesOnSubmit) => {
                let tracked =
                    Tracked { id: submitted.id.clone(), token: job.token.clone(), verify: true, cancelling: false };
                ResourceManager::hold(&self.inner).unwrap().release(&tracked).await.map_err(SubmitError::Unknown)?;
                Ok(submitted)
            }
            other => other,
        }
    }

    async fn find(&self, token: &SubmitToken, since: Timestamp) -> Result<Found> {
        match self.inner.find(token, since).await {
            Err(_) if self.has(Defect::TakesAnErrorForAbsent) => Ok(Found::Absent),
            Ok(Found::Jobs(ids)) if self.has(Defect::ForgetsEndedJobs) => {
                let tracked =
                    |id: &RemoteId| Tracked { id: id.clone(), token: token.clone(), verify: true, cancelling: false };
                let seen = self.inner.poll(&ids.iter().map(tracked).collect::<Vec<_>>()).await?;
                let alive = ids.into_iter().filter(|id| matches!(seen.get(id), Some(Sighting::Alive(..))));
                let alive: Vec<RemoteId> = alive.collect();
                Ok(if alive.is_empty() { Found::Absent } else { Found::Jobs(alive) })
            }
            other => other,
        }
    }

    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        let mut asked = jobs.to_vec();
        if self.has(Defect::IgnoresTheTokenInPoll) {
            for job in &mut asked {
                *job = self.owner(job);
            }
        }
        let seen = self.inner.poll(&asked).await;
        if seen.is_err() && self.has(Defect::TakesAnErrorForGone) {
            return Ok(jobs.iter().map(|job| (job.id.clone(), Sighting::Gone)).collect());
        }
        let mut seen = seen?;
        if self.has(Defect::LeavesJobsOutOfPolls) && jobs.len() > 1 {
            seen.pop_last();
        }
        for job in jobs {
            if let Some(Sighting::Ended(outcome, _)) = seen.get_mut(&job.id)
                && self.has(Defect::SaysCancelledWhenItSucceeded)
                && job.cancelling
            {
                outcome.verdict = Verdict::Cancelled;
            }
        }
        Ok(seen)
    }

    async fn cancel(&self, job: &Tracked) -> Result<()> {
        if self.has(Defect::IgnoresTheTokenInCancel) {
            return self.inner.cancel(&self.owner(job)).await;
        }
        let gone = self.inner.token_of(&job.id).is_none();
        if gone && self.has(Defect::FailsToCancelTheUnknown) {
            let message = "no such job";
            let kind = bridge_core::manager::ErrorKind::Refused;
            return Err(bridge_core::manager::ManagerError::new("broken", "cancel", kind, message));
        }
        self.inner.cancel(job).await
    }

    fn hold(&self) -> Option<&dyn Hold> {
        ResourceManager::hold(&self.inner).filter(|_| !self.has(Defect::PromisesAHoldThatIsNotThere))
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }
}

#[async_trait]
impl Logs for Broken {
    async fn read(&self, job: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk> {
        let chunk = self.inner.logs().unwrap().read(job, stream, cursor).await?;
        let running = matches!(
            self.inner.poll(std::slice::from_ref(job)).await?.get(&job.id),
            Some(Sighting::Alive(Phase::Running, _))
        );
        let end = chunk.end || (running && self.has(Defect::EndsOutputEarly));
        Ok(LogChunk { end, ..chunk })
    }
}

/// The samples of the in-memory manager, through a broken adapter.
struct Subjected {
    samples: Memory,
    broken: Broken,
}

#[async_trait]
impl Subject for Subjected {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.broken
    }

    fn submission(&self, sample: &Sample, token: &SubmitToken) -> Option<Submission> {
        self.samples.submission(sample, token)
    }

    fn max_wait(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn look_again_after(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn step(&self) {
        self.samples.step().await;
    }

    fn faults(&self) -> Option<&FaultPlan> {
        self.samples.faults()
    }

    fn secrets(&self) -> Vec<String> {
        vec!["hunter2".to_owned()]
    }
}

#[tokio::test]
async fn every_defect_is_found_by_the_case_that_is_there_for_it() {
    let expected = [
        (Defect::TakesALostReplyForNotSubmitted, "lost_reply_on_submit_is_unknown_and_found"),
        (Defect::TakesAnErrorForAbsent, "failed_find_is_never_absent"),
        (Defect::TakesAnErrorForGone, "failed_poll_is_an_error_never_gone"),
        (Defect::IgnoresTheTokenInPoll, "anothers_job_under_our_id_is_gone_and_untouched"),
        (Defect::IgnoresTheTokenInCancel, "anothers_job_under_our_id_is_gone_and_untouched"),
        (Defect::LeavesJobsOutOfPolls, "polls_many"),
        (Defect::FailsToCancelTheUnknown, "cancel_of_an_unknown_job_succeeds"),
        (Defect::ReleasesOnSubmit, "submitted_job_waits_for_its_release"),
        (Defect::PromisesAHoldThatIsNotThere, "two_phases_need_the_facet_hold"),
        (Defect::SaysCancelledWhenItSucceeded, "cancel_of_an_ended_job_changes_nothing"),
        (Defect::ShowsASecret, "preview_sends_nothing_and_shows_no_secret"),
        (Defect::ForgetsEndedJobs, "find_sees_an_ended_job"),
        (Defect::EndsOutputEarly, "logs_are_seen_while_the_job_runs"),
    ];
    for (defect, case) in expected {
        let inner = MemoryManager::new(Guarantee::TwoPhase);
        let subject = Subjected { samples: Memory::new("samples", inner.clone()), broken: Broken { defect, inner } };
        let report = conformance::run(&subject).await;
        assert!(report.failed().contains(&case), "{defect:?} was not found by {case}: {report}");
    }
}

#[tokio::test]
async fn a_manager_that_cannot_look_up_is_not_blamed_for_it() {
    let manager = MemoryManager::new(Guarantee::LookUp);
    manager.forget_how_to_find(Some("no memory"));
    let report = conformance::run(&Memory::new("forgetful", manager)).await;
    assert!(report.is_ok(), "{report}");
    assert!(report.skipped().contains(&"find_sees_an_ended_job"));
}
