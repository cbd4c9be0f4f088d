//! A resource manager that lives in memory: all three guarantees, deterministic, with a fault plan.
//!
//! What a job does is its script, one line:
//!
//! | script | the job |
//! |---|---|
//! | `succeed`, or anything unknown | ends well |
//! | `fail CODE` | ends with this code |
//! | `run` / `queue` | runs / stays queued until it is cancelled |
//! | `print LINES` | prints `line 1` … and ends well |
//! | `complain TEXT` | prints to standard error and ends well |
//! | `say TEXT` | prints and runs until it is cancelled |
//! | `copy NAME` | prints the input of this name and ends well |
//! | `write NAME=TEXT` | writes a file and ends well |
//! | `refuse` | is not taken |
//!
//! Its state is worked out from the time whenever someone asks, so time costs nothing, however many jobs there are.
//! Time is that of a [`Clock`], or moves only by [`MemoryManager::step`].

mod act;
mod facets;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::clock::Clock;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    ErrorKind, Files, Found, Guarantee, Hold, Limits, LoadProbe, Logs, ManagerError, Preview, ResourceManager, Result,
    Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::plan::{Script, Submission};
use jiff::Timestamp;

use crate::faults::{Fault, FaultPlan, Operation};
use act::Act;
use state::{Now, State};

/// The manager's name in messages.
const MANAGER: &str = "memory";

/// How far [`MemoryManager::step`] moves the time.
const STEP: Duration = Duration::from_secs(1);

/// The manager. Clones are clients of the same remote system.
#[derive(Clone)]
pub struct MemoryManager {
    guarantee: Guarantee,
    limits: Limits,
    /// `hold` is `Some` by the guarantee; the other facets by this.
    with_facets: bool,
    faults: FaultPlan,
    clock: Option<Arc<dyn Clock>>,
    state: Arc<Mutex<State>>,
}

impl MemoryManager {
    /// A remote system that keeps this guarantee, whose time moves only by [`step`](Self::step).
    #[must_use]
    pub fn new(guarantee: Guarantee) -> Self {
        Self {
            guarantee,
            limits: Limits { poll_batch: 1000, concurrent_submits: 16 },
            with_facets: true,
            faults: FaultPlan::new(),
            clock: None,
            state: Arc::default(),
        }
    }

    /// Follows a clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Refuses polls of more jobs than this, and asks for no more submissions at once than that.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long jobs wait and run; both one step if not said otherwise.
    #[must_use]
    pub fn with_times(self, queued: Duration, running: Duration) -> Self {
        self.state().set_times(queued, running);
        self
    }

    /// Without logs, files and load.
    #[must_use]
    pub fn without_facets(mut self) -> Self {
        self.with_facets = false;
        self
    }

    /// What goes wrong, and how many requests there were.
    #[must_use]
    pub fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    /// Moves the time on.
    pub fn step(&self) {
        self.state().step(STEP);
    }

    /// Forgets a job, accounting included. Returns whether there was one.
    #[must_use]
    pub fn purge(&self, id: &RemoteId) -> bool {
        self.state().remove(id)
    }

    /// Forgets a job and gives its id to a stranger's. Returns whether there was one.
    #[must_use]
    pub fn give_away(&self, id: &RemoteId) -> bool {
        let now = self.now();
        self.state().give_away(id, now)
    }

    /// Adds a job that carries the token, without a request.
    #[must_use]
    pub fn add_twin(&self, token: &SubmitToken) -> RemoteId {
        let now = self.now();
        let held = self.guarantee == Guarantee::TwoPhase;
        self.state().add(token.clone(), Act::Runs, held, now)
    }

    /// From now on `find` cannot tell, for this reason; or can again.
    pub fn forget_how_to_find(&self, reason: Option<&str>) {
        self.state().cannot_tell = reason.map(str::to_owned);
    }

    /// How many jobs with this token were ever let go, purged ones included: more than one is a job run twice.
    #[must_use]
    pub fn released(&self, token: &SubmitToken) -> u32 {
        self.state().released(token)
    }

    /// The token of the job that has this id now.
    #[must_use]
    pub fn token_of(&self, id: &RemoteId) -> Option<SubmitToken> {
        self.state().token_of(id)
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().len()
    }

    /// Whether there are no jobs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked while holding it was a test, which has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        match &self.clock {
            Some(clock) => {
                let now = clock.now();
                Now { mono: now.mono, wall: now.wall }
            }
            None => self.state().stepped(),
        }
    }

    /// Makes a request: `work` is done if the fault, if any, lets it happen.
    async fn request<T>(&self, operation: Operation, work: impl FnOnce(&mut State, Now) -> T) -> Result<T> {
        let fault = self.faults.take(operation);
        if let Some(Fault::Delay(delay)) = fault {
            tokio::time::sleep(delay).await;
        }
        let now = self.now();
        let takes_effect = fault.as_ref().is_none_or(Fault::takes_effect);
        let done = takes_effect.then(|| work(&mut self.state(), now));
        match (fault.and_then(|fault| fault.as_error(MANAGER, operation)), done) {
            (None, Some(done)) => Ok(done),
            (Some(error), _) => Err(error),
            (None, None) => Err(ManagerError::new(MANAGER, operation.as_str(), ErrorKind::Unreachable, "no answer")),
        }
    }
}

impl fmt::Debug for MemoryManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryManager")
            .field("guarantee", &self.guarantee)
            .field("jobs", &self.len())
            .finish_non_exhaustive()
    }
}

fn act_of(job: &Submission, operation: &'static str) -> Result<Act> {
    let (Script::Text(text) | Script::Remote(text)) = &job.script;
    Act::parse(text).ok_or_else(|| {
        let message = format!("job {} asks to be refused; write another script", job.name);
        ManagerError::new(MANAGER, operation, ErrorKind::Refused, message)
    })
}

#[async_trait]
impl ResourceManager for MemoryManager {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    fn preview(&self, job: &Submission) -> Result<Preview> {
        act_of(job, "preview")?;
        let (Script::Text(body) | Script::Remote(body)) = &job.script;
        Ok(Preview { request: format!("memory submit {}", job.name), body: body.clone(), notes: Vec::new() })
    }

    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        let guarantee = self.guarantee;
        let submitted = self
            .request(Operation::Submit, |state, now| {
                let act = act_of(job, Operation::Submit.as_str())?;
                let known = state.find(&job.token).first().cloned();
                Ok(match known.filter(|_| guarantee == Guarantee::OwnKey) {
                    Some(id) => id,
                    None => state.add(job.token.clone(), act, guarantee == Guarantee::TwoPhase, now),
                })
            })
            .await;
        match submitted {
            Ok(Ok(id)) => Ok(Submitted::from(id)),
            Ok(Err(refused)) => Err(SubmitError::NotSubmitted(refused)),
            // Only an answer that can be understood says that nothing was submitted.
            Err(error) if matches!(error.kind, ErrorKind::RateLimited | ErrorKind::Credential) => {
                Err(SubmitError::NotSubmitted(error))
            }
            Err(error) => Err(SubmitError::Unknown(error)),
        }
    }

    async fn find(&self, token: &SubmitToken, _since: Timestamp) -> Result<Found> {
        self.request(Operation::Find, |state, _| {
            if let Some(reason) = &state.cannot_tell {
                return Found::CannotTell(reason.clone());
            }
            match state.find(token) {
                [] => Found::Absent,
                ids => Found::Jobs(ids.to_vec()),
            }
        })
        .await
    }

    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        if jobs.len() > self.limits.poll_batch {
            let message = format!("asked about {} jobs; {} at once are the limit", jobs.len(), self.limits.poll_batch);
            return Err(ManagerError::new(MANAGER, "poll", ErrorKind::Refused, message));
        }
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.request(Operation::Poll, |state, now| {
            jobs.iter().map(|job| (job.id.clone(), state.sighting(job, now))).collect()
        })
        .await
    }

    async fn cancel(&self, job: &Tracked) -> Result<()> {
        self.request(Operation::Cancel, |state, now| state.cancel(job, now)).await
    }

    fn hold(&self) -> Option<&dyn Hold> {
        (self.guarantee == Guarantee::TwoPhase).then_some(self)
    }

    fn logs(&self) -> Option<&dyn Logs> {
        self.with_facets.then_some(self)
    }

    fn files(&self) -> Option<&dyn Files> {
        self.with_facets.then_some(self)
    }

    fn load(&self) -> Option<&dyn LoadProbe> {
        self.with_facets.then_some(self)
    }
}
