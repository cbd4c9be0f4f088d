//! Drives stand-alone jobs to their ends, shows their output, and hears signals and wishes on the way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::clock::SystemClock;

use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob, Observer};
use bridge_core::ids::{JobKey, RemoteId};
use bridge_core::manager::{Phase, ResourceManager, Tracked};
use bridge_core::record::{JobRecord, JobState};
use bridge_core::staging::Staging;
use bridge_core::state::{Rules, Wishes};
use bridge_core::status::StatusView;
use bridge_core::store::LoadError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cli::OnSignal;
use crate::failure::{Failure, JobExit};
use crate::screen::Shown;
use crate::signals::Signals;
use crate::state::{JobFile, JobFolder, Lock};
use crate::tail;
use crate::view::JobView;

/// How often a wish of another process is looked for, and the progress is drawn.
const TICK: Duration = Duration::from_millis(500);

/// A job to drive.
pub struct Driven {
    /// Where it is remembered.
    pub folder: JobFolder,
    /// Ours as long as this lives.
    pub lock: Lock,
    /// What is run.
    pub job: JobFile,
    /// What holds for it.
    pub rules: Rules,
    /// What is wished of it.
    pub wishes: Wishes,
    /// Its remote system.
    pub manager: Arc<dyn ResourceManager>,
    /// Moves its data.
    pub staging: Arc<dyn Staging>,
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").field("key", self.folder.key()).finish_non_exhaustive()
    }
}

/// How jobs are driven.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Leave each job as soon as it is in the remote system's hands.
    pub detach: bool,
    /// What a first signal means.
    pub on_signal: OnSignal,
    /// Show the jobs' output.
    pub follow: bool,
}

enum Seen {
    Saved(JobKey, Box<JobRecord>),
    Left(JobKey, Leaving),
    Stumbled(JobKey, String),
}

struct Tell(mpsc::UnboundedSender<Seen>);

impl Observer for Tell {
    fn saved(&self, key: &JobKey, record: &JobRecord) {
        let _ = self.0.send(Seen::Saved(key.clone(), Box::new(record.clone())));
    }

    fn left(&self, key: &JobKey, why: &Leaving) {
        let _ = self.0.send(Seen::Left(key.clone(), why.clone()));
    }

    fn stumbled(&self, key: &JobKey, what: &str) {
        let _ = self.0.send(Seen::Stumbled(key.clone(), what.to_owned()));
    }
}

/// Drives the jobs until each has ended, or is left as the manner says.
pub async fn drive(
    jobs: Vec<Driven>,
    manner: Manner,
    screen: mpsc::Sender<Shown>,
    signals: Signals,
) -> Result<BTreeMap<JobKey, JobExit>, Failure> {
    let (sender, events) = mpsc::unbounded_channel();
    let holder = crate::commands::unique_name("runner").map_err(|error| Failure::trouble(error.to_string()))?;
    let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), holder, Arc::new(Tell(sender)));
    let driving = tokio::spawn(driver.run());

    let mut watch =
        Watch { jobs: BTreeMap::new(), handle: handle.clone(), manner, screen: screen.clone(), ends: JoinSet::new() };
    for job in jobs {
        watch.add(job).await?;
    }
    let wishes = watch.jobs.iter().map(|(key, job)| (key.clone(), job.driven.wishes)).collect();
    let at_once = leave_on_signal(signals, handle.clone(), wishes, manner, screen.clone());
    let left = tokio::select! {
        () = watch.run(events) => false,
        () = at_once => true,
    };
    handle.stop();
    if left {
        for job in watch.jobs.values().filter(|job| job.settled(manner).is_none()) {
            let note = format!(
                "{}: left; run its file again to go on with it, or: bridge kill {}",
                job.driven.folder.key(),
                job.driven.folder.key()
            );
            let _ = screen.try_send(Shown::Note(note));
        }
    } else {
        // What is under way is saved before the locks are given back.
        driving.await.ok();
    }
    let exits = watch.jobs.iter().map(|(key, job)| (key.clone(), job.settled(manner).unwrap_or(JobExit::NotEnded)));
    Ok(exits.collect())
}

/// Ends when the jobs are to be left at once.
async fn leave_on_signal(
    mut signals: Signals,
    handle: DriverHandle,
    wishes: BTreeMap<JobKey, Wishes>,
    manner: Manner,
    screen: mpsc::Sender<Shown>,
) {
    signals.next().await;
    if manner.detach || manner.on_signal == OnSignal::Detach {
        return;
    }
    for (key, wishes) in &wishes {
        handle.wish(key, Wishes { kill: true, ..*wishes });
    }
    let _ = screen.try_send(Shown::Note(
        "cancelling, and waiting for the confirmation; a second signal leaves at once".to_owned(),
    ));
    signals.next().await;
}

struct Job {
    driven: Driven,
    record: Option<JobRecord>,
    left: Option<Leaving>,
    tail: Option<(RemoteId, watch::Sender<bool>, tokio::task::JoinHandle<()>)>,
    complaint: Option<String>,
}

impl Job {
    /// How the job leaves this command, once that is known.
    fn settled(&self, manner: Manner) -> Option<JobExit> {
        match &self.left {
            Some(Leaving::Finished(record)) => Some(exit_of(record)),
            Some(Leaving::Fenced | Leaving::Unusable(_)) => Some(JobExit::Trouble),
            None => {
                let record = self.record.as_ref()?;
                if manner.detach && is_handed_over(record) {
                    Some(JobExit::Detached)
                } else if rests(record) {
                    Some(JobExit::NotEnded)
                } else {
                    None
                }
            }
        }
    }
}

/// The exit code that stands for an ended job.
#[must_use]
pub fn exit_of(record: &JobRecord) -> JobExit {
    let view = StatusView::of(record);
    JobExit::Ended(view.status, view.process_exit_code())
}

fn is_handed_over(record: &JobRecord) -> bool {
    matches!(record.state, JobState::Active { .. } | JobState::StagingOut { .. })
}

/// Suspended, and nothing will happen until the file says otherwise.
fn rests(record: &JobRecord) -> bool {
    record.suspended
        && matches!(
            record.state,
            JobState::Accepted { .. } | JobState::Prepared { .. } | JobState::Active { phase: Phase::Held, .. }
        )
}

struct Watch {
    jobs: BTreeMap<JobKey, Job>,
    handle: DriverHandle,
    manner: Manner,
    screen: mpsc::Sender<Shown>,
    /// Ended jobs whose output is still being read.
    ends: JoinSet<()>,
}

impl Watch {
    async fn add(&mut self, driven: Driven) -> Result<(), Failure> {
        let key = driven.folder.key().clone();
        let new = NewJob {
            plan: Arc::new(driven.job.plan.clone()),
            rules: driven.rules.clone(),
            wishes: driven.wishes,
            manager: Arc::clone(&driven.manager),
            staging: Arc::clone(&driven.staging),
            store: driven.folder.store(&driven.job.run),
        };
        self.handle.add(new).await.map_err(|error| match error {
            LoadError::Unusable { source, .. } => Failure::input(format!("job {key}: {source}")),
            LoadError::Unavailable { message } => Failure::trouble(message),
        })?;
        self.jobs.insert(key, Job { driven, record: None, left: None, tail: None, complaint: None });
        Ok(())
    }

    async fn run(&mut self, mut events: mpsc::UnboundedReceiver<Seen>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.jobs.values().any(|job| job.settled(self.manner).is_none()) {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.take(event).await,
                    None => break,
                },
                _ = tick.tick() => self.look_around(),
            }
        }
        for job in self.jobs.values() {
            if let (None, Some(record)) = (&job.left, &job.record) {
                self.say_left(job, record).await;
            }
        }
        while self.ends.join_next().await.is_some() {}
    }

    async fn say_left(&self, job: &Job, record: &JobRecord) {
        let key = job.driven.folder.key();
        let note = if rests(record) {
            format!("{key}: suspended; write suspend: false and run the file again")
        } else {
            format!(
                "{key}: runs on as job {}; bridge logs -f {key} shows its output",
                record.latest_id().map_or("?", RemoteId::as_str)
            )
        };
        let _ = self.screen.send(Shown::Note(note)).await;
    }

    fn look_around(&mut self) {
        let _ = self.screen.try_send(Shown::Tick);
        for (key, job) in &mut self.jobs {
            if !job.driven.wishes.kill && job.left.is_none() && job.driven.folder.end_was_asked_for(&job.driven.job.run)
            {
                job.driven.wishes.kill = true;
                self.handle.wish(key, job.driven.wishes);
            }
        }
    }

    async fn take(&mut self, event: Seen) {
        match event {
            Seen::Saved(key, record) => {
                let Some(job) = self.jobs.get_mut(&key) else { return };
                job.complaint = None;
                let view = JobView::of(&job.driven.job, &record);
                if !view.ended {
                    let _ = self.screen.send(Shown::Status(Box::new(view))).await;
                }
                if self.manner.follow && !self.manner.detach {
                    follow(job, &record, &self.screen, &mut self.ends);
                }
                job.record = Some(*record);
            }
            Seen::Left(key, why) => {
                let Some(job) = self.jobs.get_mut(&key) else { return };
                let last = match &why {
                    Leaving::Finished(record) => Shown::End(Box::new(JobView::of(&job.driven.job, record))),
                    Leaving::Fenced => Shown::Note(format!("{key}: another process goes on with this job")),
                    Leaving::Unusable(message) => {
                        Shown::Note(format!("{key}: its saved state cannot be used: {message}"))
                    }
                };
                job.left = Some(why);
                let screen = self.screen.clone();
                let tail = job.tail.take();
                // Its output comes first, and must not hold up the other jobs.
                self.ends.spawn(async move {
                    if let Some((_, ended, reading)) = tail {
                        ended.send_replace(true);
                        reading.await.ok();
                    }
                    let _ = screen.send(last).await;
                });
            }
            Seen::Stumbled(key, message) => {
                let Some(job) = self.jobs.get_mut(&key) else { return };
                if job.complaint.as_ref() != Some(&message) {
                    job.complaint = Some(message.clone());
                    let _ = self.screen.send(Shown::Note(format!("{key}: {message}; trying again"))).await;
                }
            }
        }
    }
}

/// Reads the output of the attempt that runs, and lets go of the one before.
fn follow(job: &mut Job, record: &JobRecord, screen: &mpsc::Sender<Shown>, ends: &mut JoinSet<()>) {
    // A job that is held has not begun.
    let id = record.id().filter(|_| !matches!(record.state, JobState::Prepared { .. }));
    if job.tail.as_ref().map(|(id, ..)| id) == id {
        return;
    }
    if let Some((_, ended, reading)) = job.tail.take() {
        ended.send_replace(true);
        ends.spawn(async move {
            reading.await.ok();
        });
    }
    let Some(id) = id.cloned() else { return };
    let tracked = Tracked { id: id.clone(), token: record.token(), verify: false, cancelling: false };
    let (ended, end) = watch::channel(false);
    let reading = show_output(&job.driven.job, Arc::clone(&job.driven.manager), tracked, end, screen.clone());
    job.tail = Some((id, ended, tokio::spawn(reading)));
}

/// Shows a job's output to its end.
pub fn show_output(
    job: &JobFile,
    manager: Arc<dyn ResourceManager>,
    tracked: Tracked,
    ended: watch::Receiver<bool>,
    screen: mpsc::Sender<Shown>,
) -> impl Future<Output = ()> + Send + 'static {
    let key = job.plan.key.clone();
    let name = (key.name.clone(), Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty()));
    let pauses = tail::pauses(job.plan.target.manager);
    let (sender, mut pieces) = mpsc::channel::<tail::Piece>(4);
    async move {
        let reading = tail::tail(manager, tracked, pauses, ended, sender);
        let showing = async {
            while let Some(tail::Piece { stream, data }) = pieces.recv().await {
                let _ = screen.send(Shown::Output { name: name.clone(), stream, data }).await;
            }
        };
        let (read, ()) = tokio::join!(reading, showing);
        if let Err(error) = read {
            let note = format!("{key}: its output could not be read: {}", error.message);
            let _ = screen.send(Shown::Note(note)).await;
        }
    }
}
