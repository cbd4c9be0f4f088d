//! The driver's I/O: executes the engine's calls as tasks and brings their answers back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::call::{Action, Answer, Call, Leaving, Slot, TargetId, Ticket};
use super::engine::Engine;
use super::stage::{Stage, Staged, Waited};
use crate::clock::Clock;
use crate::ids::{JobKey, RemoteId, SubmitToken};
use crate::manager::{ErrorKind, Found, HoldAnswer, ManagerError, ResourceManager, SubmitError, Tracked};
use crate::plan::{JobPlan, Submission, Target};
use crate::record::JobRecord;
use crate::staging::Staging;
use crate::state::{Event, Rules, Swept, Wishes};
use crate::store::{JobStore, LoadError, Stored};

/// How long a stopping driver waits for answers. Shorter than the grace Kubernetes gives a pod.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How often a job's status tells how far its data has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Told what happens; must not block.
pub trait Observer: Send + Sync {
    /// A record was saved.
    fn saved(&self, key: &JobKey, record: &JobRecord);
    /// Nothing more will be done for a job.
    fn left(&self, key: &JobKey, why: &Leaving);
    /// A store or a remote system did not answer; for logs.
    fn stumbled(&self, key: &JobKey, what: &str);
}

/// A job to drive.
pub struct NewJob {
    /// What was decided about it.
    pub plan: Arc<JobPlan>,
    /// What holds for it.
    pub rules: Rules,
    /// What is wished of it now.
    pub wishes: Wishes,
    /// Its remote system. Jobs with equal [`Target`]s share the first one given.
    pub manager: Arc<dyn ResourceManager>,
    /// Moves its data.
    pub staging: Arc<dyn Staging>,
    /// Keeps its record.
    pub store: Arc<dyn JobStore>,
}

impl fmt::Debug for NewJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJob").field("key", &self.plan.key).finish_non_exhaustive()
    }
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each call under way, moved once")]
enum Command {
    Add(Box<NewJob>, oneshot::Sender<Result<(), LoadError>>),
    Loaded(Box<NewJob>, Option<Stored>),
    Wish(JobKey, Wishes),
    Rules(JobKey, Box<Rules>),
    Answer(Ticket, Answer),
    Staged(Slot, Box<Submission>),
    GoesOn(Slot, Stage),
    Stop,
}

/// Talks to a running [`Driver`].
#[derive(Debug, Clone)]
pub struct DriverHandle {
    commands: mpsc::UnboundedSender<Command>,
}

impl DriverHandle {
    /// Hands a job to the driver. An error says why its saved record cannot be used.
    pub async fn add(&self, job: NewJob) -> Result<(), LoadError> {
        let (reply, answer) = oneshot::channel();
        let stopped = || LoadError::Unavailable { message: "the driver has stopped".to_owned() };
        self.commands.send(Command::Add(Box::new(job), reply)).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// What is wished of a job from now on.
    pub fn wish(&self, key: &JobKey, wishes: Wishes) {
        let _ = self.commands.send(Command::Wish(key.clone(), wishes));
    }

    /// What holds for a job from now on.
    pub fn set_rules(&self, key: &JobKey, rules: Rules) {
        let _ = self.commands.send(Command::Rules(key.clone(), Box::new(rules)));
    }

    /// Begins nothing more, waits a while for answers under way and saves what they tell. The jobs stay as they are on
    /// the remote systems.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }
}

struct Job {
    plan: Arc<JobPlan>,
    manager: Arc<dyn ResourceManager>,
    staging: Arc<dyn Staging>,
    store: Arc<dyn JobStore>,
    submission: Option<Arc<Submission>>,
    /// Data that moves while its record is being saved.
    stage: Option<Stage>,
}

/// Drives many jobs on many remote systems.
pub struct Driver {
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    holder: String,
    engine: Engine,
    jobs: BTreeMap<Slot, Job>,
    slots: BTreeMap<JobKey, Slot>,
    targets: BTreeMap<Target, (TargetId, Arc<dyn ResourceManager>)>,
    managers: BTreeMap<TargetId, Arc<dyn ResourceManager>>,
    commands: mpsc::UnboundedReceiver<Command>,
    sender: mpsc::UnboundedSender<Command>,
    data_calls: BTreeMap<Ticket, AbortHandle>,
    under_way: BTreeSet<Ticket>,
    stop_by: Option<Duration>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("holder", &self.holder).field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Driver {
    /// A driver that signs its records with `holder`, which no other process, before or after, may use.
    pub fn new(clock: Arc<dyn Clock>, holder: impl Into<String>, observer: Arc<dyn Observer>) -> (Self, DriverHandle) {
        let (sender, commands) = mpsc::unbounded_channel();
        let driver = Self {
            clock,
            observer,
            holder: holder.into(),
            engine: Engine::new(),
            jobs: BTreeMap::new(),
            slots: BTreeMap::new(),
            targets: BTreeMap::new(),
            managers: BTreeMap::new(),
            commands,
            sender: sender.clone(),
            data_calls: BTreeMap::new(),
            under_way: BTreeSet::new(),
            stop_by: None,
        };
        (driver, DriverHandle { commands: sender })
    }

    /// Runs until stopped.
    pub async fn run(mut self) {
        loop {
            let now = self.clock.now();
            for action in self.engine.step(now) {
                self.execute(action);
            }
            let now = self.clock.now();
            if self.stop_by.is_some_and(|by| now.mono >= by || self.under_way.is_empty()) {
                return;
            }
            let wake = self.engine.next_wake(now).into_iter().chain(self.stop_by).min();
            let command = match wake.map(|at| at.saturating_sub(now.mono)) {
                Some(wait) => match tokio::time::timeout(wait, self.commands.recv()).await {
                    Ok(command) => command,
                    Err(_) => continue,
                },
                None => self.commands.recv().await,
            };
            let Some(command) = command else { return };
            self.obey(command);
            // Answers tend to come in crowds; one step for all of them keeps rounds whole.
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add(job, reply) => {
                let commands = self.sender.clone();
                tokio::spawn(async move {
                    match job.store.load(&job.plan.key).await {
                        Ok(stored) => {
                            let _ = commands.send(Command::Loaded(job, stored));
                            let _ = reply.send(Ok(()));
                        }
                        Err(error) => {
                            let _ = reply.send(Err(error));
                        }
                    }
                });
            }
            Command::Loaded(job, stored) => self.add(*job, stored),
            Command::Wish(key, wishes) => {
                if let Some(slot) = self.slots.get(&key) {
                    self.engine.wish(*slot, wishes);
                }
            }
            Command::Rules(key, rules) => {
                if let Some(slot) = self.slots.get(&key) {
                    self.engine.set_rules(*slot, *rules);
                }
            }
            Command::Answer(ticket, answer) => {
                self.data_calls.remove(&ticket);
                self.under_way.remove(&ticket);
                self.engine.answer(ticket, answer, self.clock.now());
            }
            Command::Staged(slot, submission) => {
                if let Some(job) = self.jobs.get_mut(&slot) {
                    job.submission = Some(Arc::new(*submission));
                }
            }
            Command::GoesOn(slot, stage) => {
                if let Some(job) = self.jobs.get_mut(&slot) {
                    job.stage = Some(stage);
                }
            }
            Command::Stop => {
                for (ticket, call) in std::mem::take(&mut self.data_calls) {
                    call.abort();
                    self.under_way.remove(&ticket);
                }
                let by = self.clock.now().mono + STOP_GRACE;
                self.stop_by.get_or_insert(by);
            }
        }
    }

    fn add(&mut self, job: NewJob, stored: Option<Stored>) {
        let NewJob { plan, rules, wishes, manager, staging, store } = job;
        if self.slots.contains_key(&plan.key) {
            return;
        }
        let (target, manager) = if let Some((id, shared)) = self.targets.get(&plan.target) {
            (*id, Arc::clone(shared))
        } else {
            let id = self.engine.add_target(manager.limits());
            self.targets.insert(plan.target.clone(), (id, Arc::clone(&manager)));
            self.managers.insert(id, Arc::clone(&manager));
            (id, manager)
        };
        let begun = stored.ok_or_else(|| JobRecord::new(plan.uid.clone(), self.holder.clone()));
        let slot = self.engine.add_job(target, rules, wishes, &self.holder, begun);
        self.slots.insert(plan.key.clone(), slot);
        self.jobs.insert(slot, Job { plan, manager, staging, store, submission: None, stage: None });
    }

    fn execute(&mut self, action: Action) {
        let Action { ticket, call } = action;
        let begins = !matches!(call, Call::Save { .. } | Call::Reload { .. } | Call::Leave { .. } | Call::Abort { .. });
        if begins && self.stop_by.is_some() {
            return;
        }
        match call {
            Call::Save { slot, record, expected } => {
                let Some(job) = self.jobs.get_mut(&slot) else { return };
                if record.id().is_some() {
                    // In the remote system's hands its script is needed no longer.
                    job.submission = None;
                }
                let (store, key, observer) = (Arc::clone(&job.store), job.plan.key.clone(), Arc::clone(&self.observer));
                self.spawn(ticket, async move {
                    let result = store.save(&key, &record, expected.as_ref()).await;
                    match &result {
                        Ok(_) => observer.saved(&key, &record),
                        Err(error) => observer.stumbled(&key, &error.to_string()),
                    }
                    Answer::Saved(result)
                });
            }
            Call::Reload { slot } => {
                let Some(job) = self.jobs.get(&slot) else { return };
                let (store, key) = (Arc::clone(&job.store), job.plan.key.clone());
                self.spawn(ticket, async move { Answer::Loaded(store.load(&key).await) });
            }
            Call::StageIn { slot, token } => {
                let Some(job) = self.jobs.get_mut(&slot) else { return };
                let stage = Stage::bring(job.stage.take(), token, &job.plan, &job.manager, &job.staging);
                self.watch(ticket, slot, stage);
            }
            Call::Submit { slot, token, until } => self.submit(ticket, slot, token, until),
            Call::Find { slot, token, since } => {
                self.call(ticket, slot, |manager| async move {
                    let found = manager.find(&token, since).await;
                    Event::Find(token, found)
                });
            }
            Call::Release { slot, job } => {
                self.call(ticket, slot, |manager| async move {
                    let answer = hold_or_release(&*manager, &job, Wanted::Released).await;
                    Event::Release(job.id, answer)
                });
            }
            Call::Hold { slot, job } => {
                self.call(ticket, slot, |manager| async move {
                    let answer = hold_or_release(&*manager, &job, Wanted::Held).await;
                    Event::Hold(job.id, answer)
                });
            }
            Call::Cancel { slot, job } => {
                self.call(ticket, slot, |manager| async move {
                    let answer = manager.cancel(&job).await;
                    Event::Cancel(job.id, answer)
                });
            }
            Call::Sweep { slot, token, keep, since } => {
                self.call(ticket, slot, |manager| async move {
                    let strays = cancel_strays(&*manager, &token, keep.as_ref(), since).await;
                    Event::Sweep(token, strays)
                });
            }
            Call::Poll { target, jobs } => self.poll(ticket, target, jobs),
            Call::StageOut { slot, token, id, outcome } => {
                let Some(job) = self.jobs.get_mut(&slot) else { return };
                let errand = (token, id, outcome);
                let stage = Stage::take(job.stage.take(), errand, &job.plan, &job.manager, &job.staging);
                self.watch(ticket, slot, stage);
            }
            Call::Abort { call } => {
                self.under_way.remove(&call);
                if let Some(handle) = self.data_calls.remove(&call) {
                    handle.abort();
                }
            }
            Call::Leave { slot, why } => {
                if let Some(job) = self.jobs.remove(&slot) {
                    self.slots.remove(&job.plan.key);
                    self.observer.left(&job.plan.key, &why);
                }
            }
        }
    }

    /// Waits for a stage, but not for ever without a word: the record must be free to tell how far it has come.
    fn watch(&mut self, ticket: Ticket, slot: Slot, mut stage: Stage) {
        let commands = self.sender.clone();
        let handle = self.spawn(ticket, async move {
            match stage.wait(PROGRESS_EVERY).await {
                Waited::Over(Staged::In(staged)) => {
                    let staged = staged.map(|submission| {
                        let _ = commands.send(Command::Staged(slot, Box::new(submission)));
                    });
                    Answer::Job(Event::StagedIn(staged))
                }
                Waited::Over(Staged::Out(id, sent)) => Answer::Job(Event::StagedOut(id, sent)),
                Waited::GoesOn(progress) => {
                    let _ = commands.send(Command::GoesOn(slot, stage));
                    Answer::Job(Event::Moved(progress))
                }
            }
        });
        self.data_calls.insert(ticket, handle);
    }

    fn submit(&mut self, ticket: Ticket, slot: Slot, token: SubmitToken, until: Duration) {
        let Some(job) = self.jobs.get(&slot) else { return };
        let Some(submission) = job.submission.clone().filter(|submission| submission.token == token) else {
            self.engine.answer(ticket, Answer::Job(Event::NotSent), self.clock.now());
            return;
        };
        let clock = Arc::clone(&self.clock);
        self.call(ticket, slot, |manager| async move {
            let left = until.saturating_sub(clock.now().mono);
            if left.is_zero() {
                return Event::NotSent;
            }
            let result = match tokio::time::timeout(left, manager.submit(&submission)).await {
                Ok(result) => result,
                Err(_) => Err(SubmitError::Unknown(ManagerError::new(
                    "driver",
                    "submit",
                    ErrorKind::Unreachable,
                    "no answer within the time in which a submission may be sent",
                ))),
            };
            Event::Submit(token, result)
        });
    }

    fn poll(&mut self, ticket: Ticket, target: TargetId, jobs: Vec<(Slot, Tracked)>) {
        let Some(manager) = self.managers.get(&target).map(Arc::clone) else { return };
        self.spawn(ticket, async move {
            let (slots, tracked): (Vec<Slot>, Vec<Tracked>) = jobs.into_iter().unzip();
            let events = match manager.poll(&tracked).await {
                Ok(mut sightings) => slots
                    .into_iter()
                    .zip(tracked)
                    .map(|(slot, job)| {
                        let sighting = sightings.remove(&job.id);
                        (slot, Event::Poll(job.id, Ok(sighting)))
                    })
                    .collect(),
                Err(error) => slots
                    .into_iter()
                    .zip(tracked)
                    .map(|(slot, job)| (slot, Event::Poll(job.id, Err(repeated(&error)))))
                    .collect(),
            };
            Answer::Polled(target, events)
        });
    }

    fn call<F, Fut>(&mut self, ticket: Ticket, slot: Slot, call: F)
    where
        F: FnOnce(Arc<dyn ResourceManager>) -> Fut,
        Fut: Future<Output = Event> + Send + 'static,
    {
        let Some(job) = self.jobs.get_mut(&slot) else { return };
        // The job has gone another way since its data began to move.
        job.stage = None;
        let event = call(Arc::clone(&job.manager));
        self.spawn(ticket, async move { Answer::Job(event.await) });
    }

    fn spawn(&mut self, ticket: Ticket, call: impl Future<Output = Answer> + Send + 'static) -> AbortHandle {
        self.under_way.insert(ticket);
        let commands = self.sender.clone();
        let task = tokio::spawn(async move {
            let answer = call.await;
            let _ = commands.send(Command::Answer(ticket, answer));
        });
        task.abort_handle()
    }
}

enum Wanted {
    Held,
    Released,
}

async fn hold_or_release(
    manager: &dyn ResourceManager,
    job: &Tracked,
    wanted: Wanted,
) -> Result<HoldAnswer, ManagerError> {
    let Some(hold) = manager.hold() else {
        return Err(ManagerError::new("driver", "hold", ErrorKind::Unsupported, "this manager cannot hold jobs"));
    };
    match wanted {
        Wanted::Held => hold.hold(job).await,
        Wanted::Released => hold.release(job).await,
    }
}

async fn cancel_strays(
    manager: &dyn ResourceManager,
    token: &SubmitToken,
    keep: Option<&RemoteId>,
    since: jiff::Timestamp,
) -> Result<Swept, ManagerError> {
    let ids = match manager.find(token, since).await? {
        Found::Jobs(ids) => ids,
        Found::Absent => Vec::new(),
        Found::CannotTell(why) => return Ok(Swept::CannotTell(why)),
    };
    let mut cancelled = 0;
    for id in ids.into_iter().filter(|id| Some(id) != keep) {
        manager.cancel(&Tracked { id, token: token.clone(), verify: true, cancelling: true }).await?;
        cancelled += 1;
    }
    Ok(Swept::Clean(cancelled))
}

/// One failed request is news for every job it asked about.
fn repeated(error: &ManagerError) -> ManagerError {
    ManagerError {
        manager: error.manager,
        operation: error.operation,
        kind: error.kind,
        message: error.message.clone(),
        retry_after: error.retry_after,
        source: None,
    }
}
