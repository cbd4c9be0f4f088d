//! The controller pod's Kubernetes side: the plan from the `ConfigMap`, the record in it, wishes, and the end of the pod.
//!
//! # Expected flow
//! Read the `ConfigMap`, plan, drive the one job until it has ended, leave with its exit code. It needs nothing but the
//! `ConfigMap` and two environment variables, so a pipeline can run it as well as an operator.

mod credentials;
mod events;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bridge_api::{BridgeJob, names as api};
use bridge_core::clock::Clock;
use bridge_core::credentials::CredentialSource;
use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob};
use bridge_core::ids::JobKey;
use bridge_core::manager::{ResourceManager, Tracked};
use bridge_core::plan::{self, ImageRules, JobPlan, PlanError, Resolved, Target};
use bridge_core::record::{Ending, JobRecord, JobState, NotSubmitted};
use bridge_core::staging::Staging;
use bridge_core::state::Wishes;
use bridge_core::status::StatusView;
use bridge_core::store::{JobStore, LoadError, SaveError};
pub use credentials::MountedSecret;
use events::{Seen, Teller};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, watch};

use crate::keys::{self, Data};
use crate::names;
use crate::store::{ConfigMapStore, Keeper, PATIENCE};

/// How long a binding that was just made may take to be effective.
const BINDING_PATIENCE: Duration = Duration::from_secs(30);
/// How long a worker that is told to stop waits for the word that its job is to end. A namespace that is being deleted
/// stops pods first, and only then does the operator learn why; if its leader has just died, a Lease must run out before.
/// Afterwards nobody could make a pod there to cancel the job.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// How long the end of the output is waited for.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(20);

/// What only the whole program knows.
#[async_trait]
pub trait Parts: Send + Sync + 'static {
    /// The manager of a target. Nothing is sent.
    fn manager(
        &self,
        target: &Target,
        credentials: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Arc<dyn ResourceManager>, PlanError>;

    /// What moves a plan's data.
    fn staging(
        &self,
        plan: &JobPlan,
        credentials: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Arc<dyn Staging>, PlanError>;

    /// Shows a line about the job's state.
    fn say(&self, line: &str);

    /// Shows the job's output until it is over.
    async fn follow(&self, manager: Arc<dyn ResourceManager>, job: Tracked, ended: watch::Receiver<bool>);
}

/// Who this worker is.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The namespace.
    pub namespace: String,
    /// The job's name.
    pub job: String,
    /// Who signs the record; no other process, before or after, may use it.
    pub holder: String,
    /// The `ConfigMap` this pod was made for; an operator sets it.
    pub config_map_uid: Option<String>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Where the Secret is mounted.
    pub credentials: PathBuf,
    /// Where the object store's Secret is mounted.
    pub s3_credentials: PathBuf,
}

/// How the worker leaves its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEnd {
    /// Over.
    Ended(Box<StatusView>),
    /// Another pod works on it.
    Fenced,
    /// Told to stop; the job goes on and will be found again.
    Left,
}

/// Why the worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No access to the `ConfigMap`.
    #[error(
        "ConfigMap {name} in namespace {namespace} may not be read; the pod's service account needs get, list, watch, update and patch on it"
    )]
    Forbidden {
        /// The `ConfigMap`.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// No `ConfigMap`.
    #[error("there is no ConfigMap {name} in namespace {namespace}; make it before the pod")]
    Missing {
        /// The `ConfigMap`.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The job was begun, and this program cannot go on with it.
    #[error("this program cannot go on with the job: {0}")]
    Unusable(String),
}

/// What a `ConfigMap` says, as a job.
struct Described {
    job: BridgeJob,
    keeper: Keeper,
    map_uid: String,
}

/// Works until the job has ended, another pod took over, or `stop` counts up.
pub async fn run<P: Parts>(
    client: Client,
    settings: WorkerSettings,
    parts: Arc<P>,
    clock: Arc<dyn Clock>,
    mut stop: watch::Receiver<u32>,
) -> Result<WorkerEnd, WorkerError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &settings.namespace);
    let map = tokio::select! {
        map = read_first(&maps, &settings) => map?,
        () = told_to_stop(&mut stop) => return Ok(WorkerEnd::Left),
    };
    let key = JobKey::new(&settings.namespace, &settings.job);
    let uid = map.uid().unwrap_or_default();
    if settings.config_map_uid.as_ref().is_some_and(|expected| *expected != uid) {
        return Ok(WorkerEnd::Fenced);
    }
    if map.labels().get(api::LABEL_WORKER).is_some_and(|kind| kind == "foreign") {
        // Its pod keeps no record, so nobody but that pod can know what it has submitted.
        return Err(WorkerError::Unusable("its ConfigMap belongs to a pod of an image of one's own".to_owned()));
    }
    let operated = settings.config_map_uid.is_some() || map.labels().contains_key(api::LABEL_JOB_UID);
    let keeper = if operated { Keeper::Operator } else { Keeper::Nobody };
    let store: Arc<dyn JobStore> = Arc::new(ConfigMapStore::new(client, &key, uid.clone(), keeper));
    let root = map.labels().get(api::LABEL_JOB_UID).cloned().unwrap_or_else(|| uid.clone());
    let data = map.data.clone().unwrap_or_default();
    let begun = describe(&data, &key, &settings).and_then(|job| equip(job, root, &settings, &*parts));
    let (job, equipment) = match begun {
        Ok(begun) => begun,
        Err(problems) => {
            parts.say(&problems);
            return refuse(&*store, &key, &map, &problems, &settings.holder, &*clock).await;
        }
    };
    let described = Described { job, keeper, map_uid: uid };
    let worker = Worker { settings, maps, parts, key, described, equipment };
    worker.drive(store, clock, stop).await
}

/// Everything the driver needs for the job.
struct Equipment {
    plan: Arc<JobPlan>,
    manager: Arc<dyn ResourceManager>,
    staging: Arc<dyn Staging>,
}

fn describe(data: &Data, key: &JobKey, settings: &WorkerSettings) -> Result<BridgeJob, String> {
    let mut spec = keys::read(data).map_err(|error| error.to_string())?;
    // A pipeline mounts the Secret and need not name it.
    if spec.secret().is_none() && settings.credentials.is_dir() {
        spec.resource_secret = Some("credentials".to_owned());
    }
    let mut job = BridgeJob::new(&key.name, spec);
    job.metadata.namespace = Some(key.namespace.clone());
    Ok(job)
}

fn equip(
    job: BridgeJob,
    root: String,
    settings: &WorkerSettings,
    parts: &dyn Parts,
) -> Result<(BridgeJob, Equipment), String> {
    let lines = |errors: Vec<PlanError>| {
        errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; ")
    };
    let resolved = Resolved { uid: root, images: ImageRules::standalone() };
    let planned = plan::plan(&job, &resolved).map_err(lines)?;
    let plan = planned.into_plan().ok_or_else(|| "its image is not ours".to_owned())?;
    let mounted = |folder: &PathBuf| -> Arc<dyn CredentialSource> { Arc::new(MountedSecret::new(folder)) };
    let credentials = plan.target.secret.is_some().then(|| mounted(&settings.credentials));
    let manager = parts.manager(&plan.target, credentials).map_err(|error| lines(vec![error]))?;
    let s3 = plan.storage.is_some().then(|| mounted(&settings.s3_credentials));
    let staging = parts.staging(&plan, s3).map_err(|error| lines(vec![error]))?;
    Ok((job, Equipment { plan: Arc::new(plan), manager, staging }))
}

/// Reads the `ConfigMap` for the first time. A binding may not be effective yet, and the API may be away.
async fn read_first(maps: &Api<ConfigMap>, settings: &WorkerSettings) -> Result<ConfigMap, WorkerError> {
    let name = names::config_map(&settings.job);
    let namespace = settings.namespace.clone();
    let began = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        let patient = began.elapsed() < BINDING_PATIENCE;
        match tokio::time::timeout(PATIENCE, maps.get_opt(&name)).await {
            Ok(Ok(Some(map))) => return Ok(map),
            Ok(Ok(None)) if settings.config_map_uid.is_none() && patient => {}
            Ok(Ok(None)) => return Err(WorkerError::Missing { name, namespace }),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
                if !patient {
                    return Err(WorkerError::Forbidden { name, namespace });
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "the API server does not answer; trying again"),
            Err(_) => tracing::warn!("the API server does not answer in time; trying again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// Ends a job that cannot be worked on, if nothing was done for it yet.
async fn refuse(
    store: &dyn JobStore,
    key: &JobKey,
    map: &ConfigMap,
    problem: &str,
    holder: &str,
    clock: &dyn Clock,
) -> Result<WorkerEnd, WorkerError> {
    let has_record = map.data.as_ref().is_some_and(|data| keys::get(data, keys::STATE).is_some());
    if has_record {
        return Err(WorkerError::Unusable(problem.to_owned()));
    }
    let root = map.labels().get(api::LABEL_JOB_UID).cloned().or_else(|| map.uid()).unwrap_or_default();
    let mut record = JobRecord::new(root, holder);
    record.seq = 1;
    record.times.finished = Some(clock.now().wall);
    let reason = NotSubmitted::Refused { message: problem.to_owned() };
    record.state = JobState::Finished { ending: Ending::NeverSubmitted { reason } };
    match store.save(key, &record, None).await {
        Ok(_) => Ok(WorkerEnd::Ended(Box::new(StatusView::of(&record)))),
        Err(SaveError::Conflict) => Ok(WorkerEnd::Fenced),
        Err(SaveError::Unavailable { message }) => Err(WorkerError::Unusable(message)),
    }
}

async fn told_to_stop(stop: &mut watch::Receiver<u32>) {
    if stop.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct Worker<P> {
    settings: WorkerSettings,
    maps: Api<ConfigMap>,
    parts: Arc<P>,
    key: JobKey,
    described: Described,
    equipment: Equipment,
}

impl<P: Parts> Worker<P> {
    async fn drive(
        mut self,
        store: Arc<dyn JobStore>,
        clock: Arc<dyn Clock>,
        mut stop: watch::Receiver<u32>,
    ) -> Result<WorkerEnd, WorkerError> {
        let (sender, mut seen) = mpsc::unbounded_channel();
        let (driver, handle) = Driver::new(clock, self.settings.holder.clone(), Arc::new(Teller(sender)));
        let driving = tokio::spawn(driver.run());
        self.add(&handle, store).await?;
        let name = names::config_map(&self.key.name);
        let mut changes = watcher::watch_object(self.maps.clone(), &name).default_backoff().boxed();
        let mut output = Output::new(Arc::clone(&self.parts), Arc::clone(&self.equipment.manager));
        let mut leaving: Option<tokio::time::Instant> = None;
        let end = loop {
            let out_of_time = async {
                match leaving {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = seen.recv() => match event {
                    Some(Seen::Saved(record)) => output.saved(&record),
                    Some(Seen::Stumbled(what)) => tracing::warn!("{what}"),
                    Some(Seen::Left(Leaving::Finished(record))) => {
                        output.finish().await;
                        break Ok(WorkerEnd::Ended(Box::new(StatusView::of(&record))));
                    }
                    Some(Seen::Left(Leaving::Fenced)) => break Ok(WorkerEnd::Fenced),
                    Some(Seen::Left(Leaving::Unusable(why))) => break Err(WorkerError::Unusable(why)),
                    None => break Ok(WorkerEnd::Left),
                },
                change = changes.next() => match change {
                    Some(Ok(Some(map))) => {
                        let ends = self.hear(&handle, &map);
                        if ends && leaving.is_some() {
                            leaving = Some(tokio::time::Instant::now() + self.settings.grace);
                        }
                    }
                    Some(Err(error)) => tracing::debug!(%error, "the watch of the ConfigMap broke off"),
                    Some(Ok(None)) | None => {}
                },
                () = told_to_stop(&mut stop) => {
                    if leaving.is_some() && self.described.keeper == Keeper::Nobody {
                        break Ok(WorkerEnd::Left);
                    }
                    let patience = match self.stop_asked(&handle).await {
                        Stopping::Cancel => self.settings.grace,
                        Stopping::Listen => LAST_WORDS,
                        Stopping::Leave => break Ok(WorkerEnd::Left),
                    };
                    leaving = Some(tokio::time::Instant::now() + patience);
                }
                () = out_of_time => break Ok(WorkerEnd::Left),
            }
        };
        handle.stop();
        driving.abort();
        end
    }

    async fn add(&self, handle: &DriverHandle, store: Arc<dyn JobStore>) -> Result<(), WorkerError> {
        let mut pause = Duration::from_millis(200);
        loop {
            let job = NewJob {
                plan: Arc::clone(&self.equipment.plan),
                rules: plan::rules_for(&self.described.job.spec, &*self.equipment.manager, &self.equipment.plan),
                wishes: wishes(&self.described.job, false),
                manager: Arc::clone(&self.equipment.manager),
                staging: Arc::clone(&self.equipment.staging),
                store: Arc::clone(&store),
            };
            match handle.add(job).await {
                Ok(()) => return Ok(()),
                Err(LoadError::Unusable { source, .. }) => return Err(WorkerError::Unusable(source.to_string())),
                Err(LoadError::Unavailable { message }) => tracing::warn!("{message}"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    /// Takes in what the `ConfigMap` says now. Returns whether the job is to end.
    fn hear(&mut self, handle: &DriverHandle, map: &ConfigMap) -> bool {
        if map.uid().as_deref() != Some(self.described.map_uid.as_str()) {
            return false;
        }
        let data = map.data.clone().unwrap_or_default();
        // What may change is only taken from a ConfigMap that still makes sense.
        if let Ok(spec) = keys::read(&data) {
            let job = &mut self.described.job;
            job.spec.kill |= spec.kill;
            job.spec.suspend = spec.suspend;
            job.spec.backoff_limit = spec.backoff_limit;
            job.spec.active_deadline_seconds = spec.active_deadline_seconds;
            let mut plan = (*self.equipment.plan).clone();
            if spec.update_interval != job.spec.update_interval {
                job.spec.update_interval = spec.update_interval;
                plan.poll_seconds = spec.update_interval;
            }
            self.equipment.plan = Arc::new(plan);
            let rules = plan::rules_for(&job.spec, &*self.equipment.manager, &self.equipment.plan);
            handle.set_rules(&self.key, rules);
        }
        let wishes = wishes(&self.described.job, keys::is_true(&data, keys::DELETE));
        handle.wish(&self.key, wishes);
        wishes.kill || wishes.delete
    }

    /// SIGTERM.
    async fn stop_asked(&mut self, handle: &DriverHandle) -> Stopping {
        if self.described.keeper == Keeper::Nobody {
            self.parts.say("told to stop: cancelling the job");
            self.described.job.spec.kill = true;
            handle.wish(&self.key, wishes(&self.described.job, false));
            return Stopping::Cancel;
        }
        let name = names::config_map(&self.key.name);
        let read = tokio::time::timeout(Duration::from_secs(5), self.maps.get_opt(&name)).await;
        let map = match read {
            Ok(Ok(Some(map))) if map.uid().as_deref() == Some(self.described.map_uid.as_str()) => map,
            // Deleted by hand, or orphaned on purpose: a successor looks for the job, or nobody shall.
            Ok(Ok(_)) => return Stopping::Leave,
            Ok(Err(_)) | Err(_) => return Stopping::Listen,
        };
        if map.metadata.deletion_timestamp.is_some() {
            self.parts.say("told to stop while the job is being deleted: cancelling it");
            self.described.job.spec.kill = true;
            handle.wish(&self.key, wishes(&self.described.job, true));
            return Stopping::Cancel;
        }
        if self.hear(handle, &map) { Stopping::Cancel } else { Stopping::Listen }
    }
}

/// What SIGTERM means for the job.
enum Stopping {
    /// It ends, within the grace period.
    Cancel,
    /// It goes on, unless word comes at the last moment that it is to end.
    Listen,
    /// It goes on.
    Leave,
}

fn wishes(job: &BridgeJob, delete: bool) -> Wishes {
    Wishes { kill: job.spec.kill, delete, suspend: job.spec.suspend }
}

/// The job's output, or lines about its state where the manager cannot give it.
struct Output<P> {
    parts: Arc<P>,
    manager: Arc<dyn ResourceManager>,
    said: String,
    reading: Option<(String, watch::Sender<bool>, tokio::task::JoinHandle<()>)>,
}

impl<P: Parts> Output<P> {
    fn new(parts: Arc<P>, manager: Arc<dyn ResourceManager>) -> Self {
        Self { parts, manager, said: String::new(), reading: None }
    }

    fn saved(&mut self, record: &JobRecord) {
        let view = StatusView::of(record);
        let id = view.job_id.as_ref().map(|id| format!(" job {id}")).unwrap_or_default();
        let line = format!("{}{id}: {}", view.status, view.message);
        if line != self.said {
            self.parts.say(&line);
            self.said = line;
        }
        let readable = matches!(record.state, JobState::Active { .. } | JobState::Cancelling { .. });
        let Some(id) = record.id().filter(|_| readable && self.manager.logs().is_some()) else { return };
        if self.reading.as_ref().is_some_and(|(reading, ..)| reading == id.as_str()) {
            return;
        }
        let job = Tracked { id: id.clone(), token: record.token(), verify: false, cancelling: false };
        let (ended, is_ended) = watch::channel(false);
        let (parts, manager) = (Arc::clone(&self.parts), Arc::clone(&self.manager));
        let task = tokio::spawn(async move { parts.follow(manager, job, is_ended).await });
        if let Some((_, before, _)) = self.reading.replace((id.to_string(), ended, task)) {
            before.send_replace(true);
        }
    }

    async fn finish(&mut self) {
        if let Some((_, ended, task)) = self.reading.take() {
            ended.send_replace(true);
            if tokio::time::timeout(OUTPUT_PATIENCE, task).await.is_err() {
                tracing::warn!("the end of the job's output could not be read");
            }
        }
    }
}
