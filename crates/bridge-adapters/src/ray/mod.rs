#![doc = include_str!("docs.md")]

mod carrier;
mod client;
mod config;
mod decode;
mod entrypoint;
mod environment;
mod logs;
mod map;
mod package;
mod properties;
mod session;
mod stage;
mod tail;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bridge_core::clock::{Clock, SystemClock};
use bridge_core::credentials::CredentialSource;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    ByteStream, Carrier, ErrorKind, Files, Found, Guarantee, Limits, LoadProbe, Logs, ManagerError, Preview, QueueLoad,
    ResourceManager, Result, Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::plan::Submission;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;

use crate::http::{Counters, HttpError};
use client::{PostError, Posted, RayClient};
pub use config::Config;
use logs::Readers;
use package::Package;
use stage::Stage;

/// The manager's name in messages.
const MANAGER: &str = "ray";

/// The most jobs that are asked about one by one; beyond it, one list of all jobs is cheaper.
const FEW: usize = 4;

/// How many jobs of a list cost a head as much as one question: 0.25 ms each, against 4 ms (measured on Ray 2.60).
const LISTED_PER_QUESTION: usize = 16;

/// The most questions under way at once.
const SIDE_BY_SIDE: usize = 8;

/// Jobs of one Ray cluster, by its Jobs REST API.
#[derive(Debug)]
pub struct RayManager {
    client: RayClient,
    stage: Stage,
    readers: Readers,
    clock: SystemClock,
    /// How many jobs the last list held.
    listed: AtomicUsize,
}

impl RayManager {
    /// A manager for the cluster at the configured address. Nothing is sent or read yet.
    pub fn new(config: Config, source: Arc<dyn CredentialSource>) -> std::result::Result<Self, HttpError> {
        let stage = Stage::new(config.package_bytes, config.staged_bytes);
        let client = RayClient::new(config, source)?;
        let (readers, clock, listed) = (Readers::default(), SystemClock::new(), AtomicUsize::new(0));
        Ok(Self { client, stage, readers, clock, listed })
    }

    /// Counts of the requests so far.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.client.http().counters()
    }

    /// The working folder of a job as a package; `None` if it brings no files.
    fn package(&self, job: &Submission, launch: &map::Launch) -> Result<Option<Package>> {
        const OPERATION: &str = "submit";
        if !launch.packaged {
            return Ok(None);
        }
        let mut entries = self.stage.entries(&job.token, &job.inputs).map_err(|missing| {
            // They were in the memory of a process that is gone; the next staging brings them again.
            let message = format!("the input {missing:?} is not here; it is brought again");
            ManagerError::new(MANAGER, OPERATION, ErrorKind::Unreachable, message)
        })?;
        entries.extend(map::script_entry(&job.script));
        let too_large = || {
            let limit = self.client.config().package_bytes / (1024 * 1024);
            let message =
                format!("script and inputs are larger than {limit} MiB; let the script fetch large data itself");
            ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message)
        };
        let package = Package::new(&job.token, &entries).ok_or_else(too_large)?;
        // What the format adds must not make an allowed input too large.
        if package.size > self.client.config().package_bytes.saturating_add(1024 * 1024) {
            return Err(too_large());
        }
        Ok(Some(package))
    }

    /// Asks about each job.
    async fn poll_each(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        let questions = jobs.iter().map(|job| async move {
            let details = self.client.job("poll", job.id.as_str()).await?;
            Ok((job.id.clone(), seen(job, details.as_ref())))
        });
        let questions: Vec<_> = questions.map(Box::pin).collect();
        futures::stream::iter(questions).buffer_unordered(SIDE_BY_SIDE).try_collect().await
    }

    /// Asks about all jobs of the cluster.
    async fn poll_list(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        let wanted: BTreeMap<&str, &Tracked> = jobs.iter().map(|job| (job.id.as_str(), job)).collect();
        let Some(listed) = self.client.list("poll", |id| wanted.contains_key(id)).await? else {
            // The cluster's list is larger than what is read here. That does not change soon.
            self.listed.store(usize::MAX, Ordering::Relaxed);
            return self.poll_each(jobs).await;
        };
        self.listed.store(listed.total, Ordering::Relaxed);
        let details: BTreeMap<&str, _> =
            listed.jobs.iter().filter_map(|job| Some((job.submission_id.as_deref()?, job))).collect();
        Ok(jobs.iter().map(|job| (job.id.clone(), seen(job, details.get(job.id.as_str()).copied()))).collect())
    }
}

/// What is known of a job that is ours only if its id is our token.
fn seen(job: &Tracked, details: Option<&wire::JobDetails>) -> Sighting {
    let ours = details.filter(|details| details.submission_id.as_deref() == Some(job.token.as_str()));
    ours.map_or(Sighting::Gone, |details| map::sighting(details, job.cancelling))
}

#[async_trait]
impl ResourceManager for RayManager {
    fn limits(&self) -> Limits {
        Limits { poll_batch: 10_000, concurrent_submits: 8 }
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::OwnKey
    }

    fn preview(&self, job: &Submission) -> Result<Preview> {
        let mut launch = map::launch(job, "preview")?;
        let mut notes = std::mem::take(&mut launch.notes);
        if launch.packaged {
            let files: Vec<String> =
                job.inputs.iter().cloned().chain(map::script_entry(&job.script).map(|script| script.name)).collect();
            notes.push(format!("working folder: a package of {}", files.join(", ")));
            // Inputs that are not brought yet are not in the name that it will have.
            let uri = self
                .package(job, &launch)
                .ok()
                .flatten()
                .map_or_else(|| "gcs://_ray_pkg_….zip".to_owned(), |package| package.uri());
            launch.request.runtime_env.insert("working_dir".to_owned(), uri.into());
        }
        let body = serde_json::to_string_pretty(&launch.request).map_err(|error| {
            ManagerError::new(MANAGER, "preview", ErrorKind::Protocol, "the request cannot be written as JSON")
                .with_source(error)
        })?;
        Ok(Preview { request: format!("POST {}", self.client.jobs_url()), body, notes })
    }

    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        let surely_not = SubmitError::NotSubmitted;
        let mut launch = map::launch(job, "submit").map_err(surely_not)?;
        if let Some(package) = self.package(job, &launch).map_err(surely_not)? {
            self.client.upload(&package).await.map_err(surely_not)?;
            launch.request.runtime_env.insert("working_dir".to_owned(), package.uri().into());
        }
        let posted = self.client.submit(&launch.request).await.map_err(|error| match error {
            PostError::Surely(error) => SubmitError::NotSubmitted(error),
            PostError::Perhaps(error) => SubmitError::Unknown(error),
        })?;
        if let Posted::Exists = posted {
            // Someone was faster, perhaps we ourselves in another life; a look makes sure.
            let there = self.client.job("submit", job.token.as_str()).await.map_err(SubmitError::Unknown)?;
            if there.is_none() {
                let message = format!("Ray says that job {} exists, and does not know it", job.token);
                return Err(SubmitError::Unknown(ManagerError::new(MANAGER, "submit", ErrorKind::Protocol, message)));
            }
        }
        self.stage.drop(&job.token);
        Ok(Submitted { id: RemoteId::new(job.token.as_str()), warnings: launch.notes })
    }

    async fn find(&self, token: &SubmitToken, since: Timestamp) -> Result<Found> {
        const OPERATION: &str = "find";
        if self.client.job(OPERATION, token.as_str()).await?.is_some() {
            self.stage.drop(token);
            return Ok(Found::Jobs(vec![RemoteId::new(token.as_str())]));
        }
        let memory = self.client.memory(OPERATION, || self.clock.now().wall).await?;
        match memory {
            Some((began, skew)) if !session::covers(began, since, skew) => Ok(Found::CannotTell(format!(
                "the Ray head was started again at {began} and has forgotten what was submitted before"
            ))),
            _ => Ok(Found::Absent),
        }
    }

    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        let listed = self.listed.load(Ordering::Relaxed);
        if jobs.len() <= FEW || jobs.len().saturating_mul(LISTED_PER_QUESTION) < listed {
            self.poll_each(jobs).await
        } else {
            self.poll_list(jobs).await
        }
    }

    async fn cancel(&self, job: &Tracked) -> Result<()> {
        // The token is the id, so another's job is seen without a question.
        if job.id.as_str() != job.token.as_str() {
            return Ok(());
        }
        if let Some(answer) = self.client.stop(job.id.as_str()).await? {
            tracing::debug!(job = %job.id, stopped = answer.stopped, "asked Ray to stop a job");
        }
        Ok(())
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }

    fn carrier(&self) -> Option<&dyn Carrier> {
        Some(self)
    }

    fn load(&self) -> Option<&dyn LoadProbe> {
        Some(self)
    }
}

#[async_trait]
impl Files for RayManager {
    async fn put(&self, token: &SubmitToken, name: &str, content: ByteStream) -> Result<u64> {
        self.stage.put(token, name, content).await
    }

    async fn get(&self, _job: &Tracked, _name: &str) -> Result<Option<ByteStream>> {
        let message = "Ray hands out no files of a job; let the script send its results, or write them to its output";
        Err(ManagerError::new(MANAGER, "get", ErrorKind::Unsupported, message))
    }
}

#[async_trait]
impl LoadProbe for RayManager {
    async fn load(&self) -> Result<Vec<QueueLoad>> {
        let status = self.client.cluster_status().await?;
        let report = status.data.cluster_status.ok_or_else(|| {
            let message = "Ray tells nothing about the load of the cluster yet; it does when its autoscaler has run";
            ManagerError::new(MANAGER, "load", ErrorKind::Unreachable, message)
        })?;
        Ok(vec![map::load(&report.load_metrics_report)])
    }
}
