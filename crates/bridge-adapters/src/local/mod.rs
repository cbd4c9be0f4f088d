#![doc = include_str!("docs.md")]

mod client;
mod config;
mod files;
mod folder;
mod logs;
mod map;
mod process;
mod supervise;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    Capacity, ErrorKind, Files, Found, Guarantee, Limits, LoadProbe, Logs, ManagerError, Preview, QueueLoad,
    ResourceManager, Result, Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::plan::Submission;
use jiff::Timestamp;

use client::{JobFolder, Seen, StartError};
pub use config::{Config, SUPERVISE};
pub use supervise::supervise;

/// The manager's name in messages.
const MANAGER: &str = "local";

/// Jobs as processes on this machine.
#[derive(Debug, Clone)]
pub struct LocalManager {
    config: Arc<Config>,
    node: Option<String>,
    /// Supervisors that are children of this process: they are waited for in passing, so that none stays as a zombie.
    children: Arc<Mutex<Vec<Child>>>,
}

impl LocalManager {
    /// A manager over the folder of the configuration, which is made when the first job comes.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config), node: process::host_name(), children: Arc::default() }
    }

    /// Deletes the folders of all attempts of an ended job, see [`remove`](Self::remove).
    pub async fn remove_all(&self, uid: &str) -> Result<()> {
        let root = self.config.root.clone();
        let of_uid = |token: &SubmitToken| {
            let attempt = token.as_str().rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            attempt.is_some_and(|attempt| SubmitToken::derive(uid, attempt) == *token)
        };
        let tokens = blocking("remove", move || client::tokens(&root)).await?;
        for token in tokens.iter().filter(|token| of_uid(token)) {
            self.remove(token).await?;
        }
        Ok(())
    }

    /// Deletes the folder of an ended job with all its files. A job that runs is refused; one that is not there is fine.
    pub async fn remove(&self, token: &SubmitToken) -> Result<()> {
        const OPERATION: &str = "remove";
        let Some(folder) = self.folder(token.as_str()) else { return Ok(()) };
        let path = folder.path().display().to_string();
        let removed = blocking(OPERATION, move || folder.remove(&process::boot_id()?)).await?;
        if removed {
            return Ok(());
        }
        let message = format!("the job in {path} still runs; cancel it first");
        Err(ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message))
    }

    fn folder(&self, token: &str) -> Option<JobFolder> {
        JobFolder::new(&self.config.root, token)
    }

    /// The folder of a job, if the id and the token belong together.
    fn folder_of(&self, job: &Tracked) -> Option<JobFolder> {
        // The token is the id: another's job under our id is seen without a look at the disk.
        self.folder(job.token.as_str()).filter(|_| job.id.as_str() == job.token.as_str())
    }

    fn reap(&self, new: Option<Child>) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.extend(new);
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn launch(&self, job: &Submission, operation: &'static str) -> Result<(JobFolder, map::Launch)> {
        let folder = self.folder(job.token.as_str()).ok_or_else(|| {
            let message = format!("the token \"{}\" is not one of ours", job.token);
            ManagerError::new(MANAGER, operation, ErrorKind::Refused, message)
        })?;
        let launch = map::launch(&self.config, &folder, job, operation)?;
        Ok((folder, launch))
    }
}

#[async_trait]
impl ResourceManager for LocalManager {
    fn limits(&self) -> Limits {
        Limits { poll_batch: 10_000, concurrent_submits: 8 }
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::OwnKey
    }

    fn preview(&self, job: &Submission) -> Result<Preview> {
        let (_, launch) = self.launch(job, "preview")?;
        let mut notes = launch.notes;
        notes.push(format!("working folder: {}", launch.job.folder.display()));
        notes.push(format!("standard output: {}", launch.job.stdout.display()));
        notes.push(format!("standard error: {}", launch.job.stderr.display()));
        Ok(Preview { request: command_line(&launch.job.command), body: launch.script.unwrap_or_default(), notes })
    }

    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        const OPERATION: &str = "submit";
        let (folder, launch) = self.launch(job, OPERATION).map_err(SubmitError::NotSubmitted)?;
        let warnings = launch.notes.clone();
        let (config, inputs) = (self.config.clone(), job.inputs.clone());
        let started = tokio::task::spawn_blocking(move || {
            if let Some(place) = &launch.copy_inputs_to {
                files::copy_inputs(&folder.work(), &inputs, place).map_err(StartError::NotStarted)?;
            }
            folder.start(&config, &launch.job, launch.script.as_deref())
        });
        // A task that was lost may have come to the point where it started the job.
        let started = started.await.unwrap_or_else(|lost| Err(StartError::Unknown(io::Error::other(lost))));
        match started {
            Ok(child) => {
                self.reap(child);
                Ok(Submitted { id: RemoteId::new(job.token.as_str()), warnings })
            }
            Err(StartError::NotStarted(error)) => Err(SubmitError::NotSubmitted(trouble(OPERATION, &error))),
            Err(StartError::Unknown(error)) => Err(SubmitError::Unknown(trouble(OPERATION, &error))),
        }
    }

    async fn find(&self, token: &SubmitToken, _since: Timestamp) -> Result<Found> {
        let Some(folder) = self.folder(token.as_str()) else { return Ok(Found::Absent) };
        let there = blocking("find", move || folder.find()).await?;
        Ok(if there { Found::Jobs(vec![RemoteId::new(token.as_str())]) } else { Found::Absent })
    }

    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        self.reap(None);
        let asked: Vec<(RemoteId, Option<JobFolder>)> =
            jobs.iter().map(|job| (job.id.clone(), self.folder_of(job))).collect();
        let node = self.node.clone();
        blocking("poll", move || {
            let boot = process::boot_id()?;
            let look = |(id, folder): (RemoteId, Option<JobFolder>)| {
                let sighting = match folder {
                    Some(folder) => map::sighting(folder.look(&boot)?, folder.is_cancelled(), node.as_ref()),
                    None => Sighting::Gone,
                };
                Ok((id, sighting))
            };
            asked.into_iter().map(look).collect()
        })
        .await
    }

    async fn cancel(&self, job: &Tracked) -> Result<()> {
        let Some(folder) = self.folder_of(job) else { return Ok(()) };
        blocking("cancel", move || folder.cancel(&process::boot_id()?)).await
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }

    fn load(&self) -> Option<&dyn LoadProbe> {
        Some(self)
    }
}

#[async_trait]
impl LoadProbe for LocalManager {
    async fn load(&self) -> Result<Vec<QueueLoad>> {
        let config = self.config.clone();
        let running = blocking("load", move || count_running(&config)).await?;
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| u64::try_from(cpus.get()).unwrap_or(1));
        let busy = running.min(cpus);
        let nodes = Capacity { idle: u64::from(running == 0), allocated: u64::from(running > 0), total: 1 };
        let cpus = Capacity { idle: cpus - busy, allocated: busy, total: cpus };
        Ok(vec![QueueLoad { name: MANAGER.to_owned(), nodes, cpus, pending_jobs: 0 }])
    }
}

fn count_running(config: &Config) -> io::Result<u64> {
    let boot = process::boot_id()?;
    let entries = match std::fs::read_dir(&config.root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut running = 0;
    for entry in entries {
        let name = entry?.file_name();
        // One job whose files are damaged does not keep the others from being counted.
        let folder = name.to_str().and_then(|token| JobFolder::new(&config.root, token));
        let seen = folder.and_then(|folder| folder.look(&boot).ok());
        running += u64::from(matches!(seen, Some(Seen::Running { .. })));
    }
    Ok(running)
}

/// The command as a user would type it.
fn command_line(command: &[String]) -> String {
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|char| char.is_alphanumeric() || "-_./:=+,@%".contains(char));
    let quoted = command
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Does what blocks where blocking is allowed.
async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|lost| Err(io::Error::other(lost))).map_err(|error| trouble(operation, &error))
}

/// What an error of this machine's files and processes means.
fn trouble(operation: &'static str, error: &io::Error) -> ManagerError {
    let kind = match error.kind() {
        io::ErrorKind::InvalidData => ErrorKind::Protocol,
        // Nobody gives us a right while a new job waits for it. One that runs is not given up for that.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            if matches!(operation, "submit" | "put") =>
        {
            ErrorKind::Refused
        }
        _ => ErrorKind::Unreachable,
    };
    // The text says it all; as a source it would be printed twice.
    ManagerError::new(MANAGER, operation, kind, error.to_string())
}
