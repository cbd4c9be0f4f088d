//! What all cases share: fresh tokens, submitting, looking, waiting by condition.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bridge_core::clock::{Clock, SystemClock};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, Found, Guarantee, Outcome, ResourceManager, Sighting, Tracked};
use bridge_core::plan::Submission;
use jiff::Timestamp;

use super::subject::{Sample, Subject};

/// A run of the suite.
pub(super) struct Context<'a> {
    pub(super) subject: &'a dyn Subject,
    clock: SystemClock,
    run: u64,
    tokens: AtomicU32,
}

/// Returns from a case as skipped if the subject cannot arrange something.
macro_rules! or_skip {
    ($option:expr, $($missing:tt)+) => {
        match $option {
            Some(value) => value,
            None => return Ok($crate::conformance::Done::Skipped(format!($($missing)+))),
        }
    };
}
pub(super) use or_skip;

impl<'a> Context<'a> {
    pub(super) fn new(subject: &'a dyn Subject) -> Self {
        // Differs from run to run, so that the suite can be run again on a system that remembers.
        let run = std::hash::RandomState::new().hash_one("conformance");
        Self { subject, clock: SystemClock::new(), run, tokens: AtomicU32::new(0) }
    }

    pub(super) fn manager(&self) -> &'a dyn ResourceManager {
        self.subject.manager()
    }

    /// A token that no job carries.
    pub(super) fn token(&self) -> SubmitToken {
        self.token_of_attempt(1)
    }

    pub(super) fn token_of_attempt(&self, attempt: u32) -> SubmitToken {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        SubmitToken::derive(&format!("c{:016x}n{number}", self.run), attempt)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// A submission with a fresh token.
    pub(super) fn sample(&self, sample: &Sample) -> Option<Submission> {
        self.subject.submission(sample, &self.token())
    }

    /// Hands a job over, held where the manager holds.
    pub(super) async fn submit(&self, submission: &Submission) -> Result<Tracked> {
        let submitted = self.manager().submit(submission).await.context("submit")?;
        Ok(tracked(submitted.id, &submission.token))
    }

    /// Hands a job over and lets it go.
    pub(super) async fn launch(&self, submission: &Submission) -> Result<Tracked> {
        let job = self.submit(submission).await?;
        if self.manager().guarantee() == Guarantee::TwoPhase {
            let hold = self.manager().hold().ok_or_else(|| anyhow!("two phases without the facet `hold`"))?;
            hold.release(&job).await.context("release")?;
        }
        Ok(job)
    }

    /// One look at one job.
    pub(super) async fn look(&self, job: &Tracked) -> Result<Sighting> {
        let mut seen = self.manager().poll(std::slice::from_ref(job)).await.context("poll")?;
        seen.remove(&job.id).ok_or_else(|| anyhow!("poll left out the one job {} it was asked about", job.id))
    }

    /// Looks until the job has ended.
    pub(super) async fn ended(&self, job: &Tracked) -> Result<(Outcome, Facts)> {
        self.until(&format!("the end of job {}", job.id), async || match self.look(job).await? {
            Sighting::Alive(..) => Ok(None),
            Sighting::Ended(outcome, facts) => Ok(Some((outcome, facts))),
            Sighting::Gone => bail!("job {} is gone before its end was seen", job.id),
            Sighting::Unaccounted { why } => bail!("the manager does not know job {}: {why}", job.id),
        })
        .await
    }

    /// Looks until the job has left the queue.
    pub(super) async fn running(&self, job: &Tracked) -> Result<()> {
        self.until(&format!("the start of job {}", job.id), async || match self.look(job).await? {
            Sighting::Alive(bridge_core::manager::Phase::Running, _) => Ok(Some(())),
            Sighting::Alive(..) => Ok(None),
            other => bail!("job {} should run until it is cancelled, and is {other:?}", job.id),
        })
        .await
    }

    /// Ends a job that was only needed for a while.
    pub(super) async fn put_away(&self, job: &Tracked) -> Result<()> {
        let job = Tracked { cancelling: true, ..job.clone() };
        self.manager().cancel(&job).await.context("cancel")?;
        self.ended(&job).await.map(drop)
    }

    /// The ids that carry the token.
    pub(super) async fn find(&self, token: &SubmitToken, since: Timestamp) -> Result<Vec<RemoteId>> {
        match self.manager().find(token, since).await.context("find")? {
            Found::Jobs(ids) => {
                ensure!(!ids.is_empty(), "`Jobs` must not be empty: that is `Absent`");
                Ok(ids)
            }
            Found::Absent => Ok(Vec::new()),
            Found::CannotTell(why) if self.manager().guarantee() == Guarantee::LookUp => Err(CannotTell(why).into()),
            Found::CannotTell(why) => bail!("the manager cannot tell, which its guarantee does not allow: {why}"),
        }
    }

    /// Tries until there is something, or the subject's patience is over.
    pub(super) async fn until<T, F>(&self, what: &str, mut attempt: F) -> Result<T>
    where
        F: AsyncFnMut() -> Result<Option<T>>,
    {
        let limit = self.subject.max_wait();
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            self.subject.step().await;
            if let Some(value) = attempt().await? {
                return Ok(value);
            }
            ensure!(tokio::time::Instant::now() < deadline, "waited {limit:?} in vain for {what}");
            tokio::time::sleep(self.subject.look_again_after()).await;
        }
    }

    /// Whether a text that users may see is free of secrets.
    pub(super) fn ensure_no_secret(&self, what: &str, text: &str) -> Result<()> {
        for (number, secret) in self.subject.secrets().iter().enumerate() {
            ensure!(!text.contains(secret.as_str()), "{what} shows secret number {number}");
        }
        Ok(())
    }
}

/// An honest answer of a manager that only looks up: a case that needs more is skipped.
#[derive(Debug, thiserror::Error)]
#[error("the manager cannot tell: {0}")]
pub(super) struct CannotTell(String);

pub(super) fn tracked(id: RemoteId, token: &SubmitToken) -> Tracked {
    Tracked { id, token: token.clone(), verify: true, cancelling: false }
}

/// An error with all its causes, as it may reach a user.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
