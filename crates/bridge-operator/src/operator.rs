//! The operator as a whole: health, the Lease, the loop over all jobs, the sweep of what was left behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_api::{BridgeJob, names as api};
use bridge_core::clock::Clock;
use bridge_core::plan::ImageRules;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PartialObjectMeta};
use kube::runtime::controller::{Config, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

use crate::events::Publisher;
use crate::health::{self, Pages};
use crate::job::controller::Reconciler;
use crate::lease::Candidate;
use crate::metrics::{Key, Metrics};
use crate::settings::Settings;
use crate::sweep::{Suspects, Sweeper};

const NOT_INSTALLED: &str =
    "the CustomResourceDefinition bridgejobs.bridgejob.ibm.com is not installed; apply deploy/crd.yaml";
/// How long the API server may take to tell whether the definition is there.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

type JobMeta = PartialObjectMeta<BridgeJob>;

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The pages could not be served.
    #[error("health and metrics could not be served on {0}")]
    Listen(std::net::SocketAddr, #[source] std::io::Error),
    /// Another instance acts; a restart makes this one a stand-by.
    #[error("the Lease was lost; another instance acts now")]
    LeaseLost,
}

/// Runs until `stop` says so.
pub async fn run(
    client: Client,
    settings: Settings,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) -> Result<(), OperatorError> {
    let metrics = Metrics::new();
    let stores: Arc<Mutex<Vec<Store<JobMeta>>>> = Arc::default();
    let pages = Arc::new(OperatorPages { metrics: metrics.clone(), stores: Arc::clone(&stores) });
    let (ready, readiness) = watch::channel(Some("starting".to_owned()));
    let listen = settings.listen;
    let served = tokio::spawn(health::serve(listen, pages, readiness, stopped(stop.clone())));
    let mut work = std::pin::pin!(act(client, settings, clock, metrics, stores, ready, stop));
    tokio::select! {
        result = &mut work => result,
        served = served => match served {
            Ok(Err(error)) => Err(OperatorError::Listen(listen, error)),
            // Its end was asked for. The passes that are under way come to theirs, and the Lease is given back.
            _ => work.await,
        },
    }
}

/// Resolves when the process is to stop.
pub async fn stopped(mut stop: watch::Receiver<bool>) {
    // The sender is gone only at the end of the process.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn act(
    client: Client,
    settings: Settings,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    stores: Arc<Mutex<Vec<Store<JobMeta>>>>,
    ready: watch::Sender<Option<String>>,
    stop: watch::Receiver<bool>,
) -> Result<(), OperatorError> {
    tokio::select! {
        () = wait_for_definition(&client, &settings.namespaces, &ready) => {}
        () = stopped(stop.clone()) => return Ok(()),
    }
    ready.send_replace(None);
    let now = || clock.now().wall;
    let mut candidate = settings.lease.clone().map(|lease| Candidate::new(client.clone(), lease));
    if let Some(candidate) = &mut candidate {
        tracing::info!("waiting for the Lease");
        tokio::select! {
            () = candidate.win(now) => {}
            () = stopped(stop.clone()) => return Ok(()),
        }
    }
    tracing::info!("acting");
    metrics.set_leader(true);
    let reconciler = Arc::new(Reconciler {
        leadership: candidate.as_ref().map(Candidate::leadership),
        images: ImageRules::cluster(settings.worker_image.clone(), settings.replace_image.clone()),
        worker_image: settings.worker_image.clone(),
        publisher: Publisher::new(client.clone(), settings.lease.as_ref().map(|lease| lease.identity.clone())),
        metrics: metrics.clone(),
        clock: Arc::clone(&clock),
        settling: Mutex::new(HashMap::new()),
        client: client.clone(),
    });
    let work = control(&client, &settings, &reconciler, &stores, &stop);
    let lost = async {
        match &mut candidate {
            Some(candidate) => candidate.keep(now).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        () = work => Ok(()),
        () = lost => Err(OperatorError::LeaseLost),
    };
    metrics.set_leader(false);
    if result.is_ok()
        && let Some(candidate) = candidate
    {
        candidate.resign().await;
    }
    result
}

/// Installing things in any order must work, so a missing definition is waited for.
async fn wait_for_definition(client: &Client, namespaces: &[String], ready: &watch::Sender<Option<String>>) {
    loop {
        let mut obstacle: Option<String> = None;
        // One that is gone, with our rights in it, must not keep us from the others.
        for namespace in scopes(namespaces) {
            let jobs = scope::<BridgeJob>(client, namespace);
            let params = ListParams::default().limit(1);
            let found = match tokio::time::timeout(ANSWER_LIMIT, jobs.list_metadata(&params)).await {
                Ok(Ok(_)) => return,
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => NOT_INSTALLED.to_owned(),
                Ok(Err(error)) => format!("BridgeJobs cannot be listed: {error}"),
                Err(_) => format!("the API server did not answer within {} s", ANSWER_LIMIT.as_secs()),
            };
            obstacle = obstacle.filter(|known| known == NOT_INSTALLED).or(Some(found));
        }
        if ready.send_replace(obstacle.clone()) != obstacle {
            tracing::warn!("{}", obstacle.unwrap_or_default());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// All namespaces, or those that are watched.
fn scopes(namespaces: &[String]) -> Vec<Option<&String>> {
    if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(Some).collect() }
}

/// One loop for all namespaces, or one for each that is watched.
async fn control(
    client: &Client,
    settings: &Settings,
    reconciler: &Arc<Reconciler>,
    stores: &Mutex<Vec<Store<JobMeta>>>,
    stop: &watch::Receiver<bool>,
) {
    let loops = scopes(&settings.namespaces).into_iter().map(|namespace| {
        let (reader, writer) = reflector::store();
        if let Ok(mut stores) = stores.lock() {
            stores.push(reader.clone());
        }
        let suspects = Arc::new(Suspects::default());
        let sweeper = Sweeper::new(client.clone(), namespace.cloned(), reader.clone(), Arc::clone(&suspects));
        let control = control_one(client, namespace, settings.concurrency, reconciler, reader, writer, suspects, stop);
        async move {
            tokio::select! {
                () = control => {}
                () = sweeper.run() => {}
            }
        }
    });
    futures::future::join_all(loops).await;
}

#[allow(clippy::too_many_arguments, reason = "one call, all of it wiring")]
async fn control_one(
    client: &Client,
    namespace: Option<&String>,
    concurrency: u16,
    reconciler: &Arc<Reconciler>,
    reader: Store<JobMeta>,
    writer: reflector::store::Writer<JobMeta>,
    suspects: Arc<Suspects>,
    stop: &watch::Receiver<bool>,
) {
    // Metadata only: memory stays small however long the scripts are, one object that cannot be understood stops nothing,
    // and each pass reads what is there now.
    let jobs = watcher(scope::<JobMeta>(client, namespace), watcher::Config::default())
        .default_backoff()
        .modify(|job| {
            job.metadata.managed_fields = None;
            job.metadata.annotations.get_or_insert_default().remove("kubectl.kubernetes.io/last-applied-configuration");
        })
        .reflect(writer)
        .inspect_ok({
            let suspects = Arc::clone(&suspects);
            move |event| {
                // One that was taken away by force leaves its ConfigMap, and nothing else may ever tell of that.
                if let watcher::Event::Delete(job) = event {
                    suspects.add(job.namespace().unwrap_or_default(), job.name_any());
                }
            }
        })
        .applied_objects()
        .predicate_filter(changed, kube::runtime::PredicateConfig::default());
    let made =
        watcher::Config::default().labels(&format!("{}={}", api::LABEL_MANAGED_BY, api::MANAGED_BY)).page_size(250);
    let maps = watcher(scope::<PartialObjectMeta<ConfigMap>>(client, namespace), made.clone())
        .default_backoff()
        .touched_objects();
    let pods = watcher(scope::<PartialObjectMeta<Pod>>(client, namespace), made).default_backoff().touched_objects();
    let known = reader.clone();
    let controller = Controller::for_stream(jobs, reader)
        .with_config(Config::default().concurrency(concurrency))
        .graceful_shutdown_on(stopped(stop.clone()))
        .watches_stream(maps, move |map| {
            let job = job_of(map.namespace(), map.labels());
            if let Some(gone) = job.as_ref().filter(|job| known.get(job).is_none()) {
                suspects.add(gone.namespace.clone().unwrap_or_default(), gone.name.clone());
            }
            job
        })
        .watches_stream(pods, |pod| job_of(pod.namespace(), pod.labels()));
    controller
        .run(Reconciler::reconcile, Reconciler::on_error, Arc::clone(reconciler))
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::debug!(%error, "in the controller's loop");
            }
        })
        .await;
}

fn scope<K>(client: &Client, namespace: Option<&String>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn job_of(
    namespace: Option<String>,
    labels: &std::collections::BTreeMap<String, String>,
) -> Option<ObjectRef<JobMeta>> {
    let name = labels.get(api::LABEL_JOB)?;
    Some(ObjectRef::new(name).within(&namespace?))
}

/// What of a job's metadata needs a pass: not our own writes of the status.
#[allow(clippy::unnecessary_wraps, reason = "a predicate of kube is of this form")]
fn changed(job: &JobMeta) -> Option<u64> {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    let meta = &job.metadata;
    meta.generation.hash(&mut hasher);
    meta.deletion_timestamp.as_ref().map(|time| time.0).hash(&mut hasher);
    meta.finalizers.hash(&mut hasher);
    meta.annotations.as_ref().and_then(|all| all.get(api::ANNOTATION_ABANDON)).hash(&mut hasher);
    Some(hasher.finish())
}

#[derive(Debug)]
struct OperatorPages {
    metrics: Metrics,
    stores: Arc<Mutex<Vec<Store<JobMeta>>>>,
}

impl Pages for OperatorPages {
    fn metrics(&self) -> String {
        let stores = self.stores.lock().map(|stores| stores.clone()).unwrap_or_default();
        self.metrics.text(|(namespace, name): &Key| {
            let job = ObjectRef::new(name).within(namespace);
            stores.iter().any(|store| store.get(&job).is_some())
        })
    }
}
