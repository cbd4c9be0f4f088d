//! One pass over one job: read, decide, report, apply.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_api::{BridgeJob, BridgeJobStatus, conditions as terms, names as api};
use bridge_core::clock::Clock;
use bridge_core::plan::ImageRules;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::apply::{Applier, ApplyError};
use super::decide::{Decision, Input, Planned, Problem, Step, cannot_cancel, decide};
use super::plan::{Runs, plan};
use super::report::{Context, Report, is_final};
use super::seen::{PodPhase, SeenMap, SeenPod};
use super::{dereference, report};
use crate::events::{News, Publisher, news};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::names;

/// States on the way to the queue follow each other within milliseconds; the status shows the last of them.
const SETTLE: Duration = Duration::from_millis(300);
/// Pause after the API did not answer.
const API_PAUSE: Duration = Duration::from_secs(5);
/// A pass that takes longer hangs; its calls have no limit of their own.
const PASS_LIMIT: Duration = Duration::from_secs(60);
/// How long after its end a job's objects are still looked at.
const LINGER_SECONDS: i64 = 120;

/// Why a pass broke off; it is made again.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Something could not be read.
    #[error("{what} could not be read")]
    Read {
        /// What.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The status or a finalizer could not be written.
    #[error("the BridgeJob could not be written")]
    Write(#[source] kube::Error),
    /// A step failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The API took too long.
    #[error("the API server did not answer within {} s", PASS_LIMIT.as_secs())]
    Hangs,
}

impl PassError {
    /// A bounded word for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Read { source: kube::Error::SerdeError(_), .. } => "malformed",
            Self::Read { .. } => "read",
            Self::Write(_) => "write",
            Self::Apply(error) => error.category(),
            Self::Hangs => "timeout",
        }
    }

    fn read(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Read { what, source }
    }
}

/// Works on jobs.
pub struct Reconciler {
    /// The cluster.
    pub client: Client,
    /// Which images mean our worker.
    pub images: ImageRules,
    /// Image of our worker.
    pub worker_image: String,
    /// Tells people.
    pub publisher: Publisher,
    /// Tells machines.
    pub metrics: Metrics,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Whether this instance is still the one that acts; none for a single one.
    pub leadership: Option<Leadership>,
    /// Since when a job's status waits for being written.
    pub settling: Mutex<HashMap<String, tokio::time::Instant>>,
}

impl std::fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconciler").finish_non_exhaustive()
    }
}

/// What was read of a job's objects.
struct Gathered {
    planned: Result<Planned, Problem>,
    references: Result<(), Problem>,
    map: Option<SeenMap>,
    pod: Option<SeenPod>,
    namespace_ending: bool,
}

/// What became of a status.
enum Written {
    /// It is written, if it told anything new, and people may hear of this.
    Told(Vec<News>),
    /// It waits so long for more to tell.
    HeldBack(Duration),
}

impl Reconciler {
    /// One pass, for the controller's loop.
    pub async fn reconcile(job: Arc<PartialObjectMeta<BridgeJob>>, this: Arc<Self>) -> Result<Action, PassError> {
        let started = tokio::time::Instant::now();
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let passed = tokio::time::timeout(PASS_LIMIT, this.pass(&namespace, &name)).await;
        let result = match passed.unwrap_or(Err(PassError::Hangs)) {
            Ok(None) => {
                this.settling().remove(&job.uid().unwrap_or_default());
                this.metrics.forget(&(namespace, name));
                Ok(Action::await_change())
            }
            Ok(Some(action)) => Ok(action),
            Err(error) => Err(error),
        };
        this.metrics.reconciled(started.elapsed());
        result
    }

    /// What follows a pass that failed.
    #[allow(clippy::needless_pass_by_value, reason = "the controller calls it with these")]
    pub fn on_error(job: Arc<PartialObjectMeta<BridgeJob>>, error: &PassError, this: Arc<Self>) -> Action {
        this.metrics.failed(error.category());
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let cause = std::error::Error::source(error).map(brief).unwrap_or_default();
        match error {
            PassError::Apply(ApplyError::NotYet(_)) => {
                tracing::debug!(namespace, name, %error, "not yet");
                Action::requeue(Duration::from_secs(1))
            }
            PassError::Write(kube::Error::Api(status)) if status.code == 409 => Action::requeue(SETTLE),
            // Only a change of the object helps, and that wakes the loop.
            PassError::Read { source: kube::Error::SerdeError(_), .. } => {
                tracing::warn!(namespace, name, cause, "this BridgeJob cannot be understood and is left alone");
                Action::await_change()
            }
            _ => {
                tracing::warn!(namespace, name, %error, cause, "a pass failed and is made again");
                Action::requeue(API_PAUSE)
            }
        }
    }

    /// One pass; `None` if there is no such job any more.
    async fn pass(&self, namespace: &str, name: &str) -> Result<Option<Action>, PassError> {
        let jobs: Api<BridgeJob> = Api::namespaced(self.client.clone(), namespace);
        let Some(mut job) = jobs.get_opt(name).await.map_err(PassError::read("the BridgeJob"))? else {
            return Ok(None);
        };
        let deleting = job.metadata.deletion_timestamp.is_some();
        if deleting && !job.finalizers().iter().any(|finalizer| finalizer == api::FINALIZER_CANCEL) {
            return Ok(Some(Action::await_change()));
        }
        let seen = self.gather(&job, namespace).await?;
        let decision = decide(&Input {
            job: &job,
            planned: &seen.planned,
            references: &seen.references,
            map: seen.map.as_ref(),
            pod: seen.pod.as_ref(),
            namespace_ending: seen.namespace_ending,
            now: self.clock.now().wall,
        });
        let Decision { status, steps, mut again } = decision;
        let begins = job.status.as_ref().is_none_or(|status| status.handover.is_none());
        if !steps.is_empty() && self.leadership.as_ref().is_some_and(|leadership| !leadership.holds()) {
            return Err(ApplyError::NotYet("the Lease was not renewed in time".to_owned()).into());
        }
        if steps.iter().any(|step| matches!(step, Step::MakeMap { .. })) {
            self.add_finalizer(&jobs, &mut job).await?;
        }
        let news = match self.write(&jobs, &mut job, status, &seen, false).await? {
            Written::Told(news) => news,
            Written::HeldBack(wait) => {
                again = Some(again.map_or(wait, |other| other.min(wait)));
                Vec::new()
            }
        };
        self.count(&job, &seen);
        let applier = self.applier(&job, seen.planned.as_ref().ok());
        if !steps.is_empty() && self.leadership.as_ref().is_some_and(|leadership| !leadership.holds()) {
            return Err(ApplyError::NotYet("the Lease was not renewed in time".to_owned()).into());
        }
        // Nobody's pod waits for the news.
        let (result, ()) = tokio::join!(applier.apply(&steps), self.publisher.publish(&job, news));
        match result {
            Ok(()) => {
                if steps.iter().any(|step| matches!(step, Step::MakePod { .. })) {
                    self.metrics.pod_made();
                }
            }
            Err(ApplyError::Refused { what, message, map }) => {
                self.metrics.failed("refused");
                let message = refusal(&what, &message);
                let nothing_made = begins && map && seen.map.is_none();
                again = Some(self.refused(&jobs, &mut job, &message, nothing_made, &seen).await?);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Some(again.map_or_else(Action::await_change, Action::requeue)))
    }

    async fn gather(&self, job: &BridgeJob, namespace: &str) -> Result<Gathered, PassError> {
        let deleting = job.metadata.deletion_timestamp.is_some();
        let status = job.status.clone().unwrap_or_default();
        let over = is_final(&status);
        let settled = status.handover.as_ref().map(|handover| handover.foreign);
        let mut planned = plan(job, &self.images, settled);
        let now = self.clock.now().wall;
        let long_over = over
            && !deleting
            && report::ended_at(&status).is_none_or(|end| now.as_second() - end.as_second() > LINGER_SECONDS);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let (map_name, pod_name) = (names::config_map(&job.name_any()), names::pod(&job.name_any()));
        // Someone who deletes its ConfigMap by hand waits for us.
        let kept = async {
            let map = maps.get_metadata_opt(&map_name).await.map_err(PassError::read("the job's ConfigMap"))?;
            Ok::<_, PassError>(map.is_none_or(|map| map.metadata.deletion_timestamp.is_none()))
        };
        if long_over && kept.await? {
            return Ok(Gathered { planned, references: Ok(()), map: None, pod: None, namespace_ending: false });
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // A job that nobody has begun needs all that it refers to; for others that is known only with its pod.
        let begins = status.handover.is_none() && !over && !deleting;
        let early = async {
            match &planned {
                Ok(planned) if begins => Some(self.beginning(job, namespace, planned).await),
                _ => None,
            }
        };
        // The pod first: what a pod that has ended wrote before is in the map then.
        let found = async {
            let pod = pods.get_opt(&pod_name).await;
            (maps.get_opt(&map_name).await, pod)
        };
        let ((map, pod), early) = tokio::join!(found, early);
        let map = map.map_err(PassError::read("the job's ConfigMap"))?.map(|map| SeenMap::of(map, job));
        let uid = job.uid().unwrap_or_default();
        let pod = pod.map_err(PassError::read("the job's pod"))?.map(|pod| SeenPod::of(&pod, &uid));
        if let Some(map) = map.as_ref().filter(|map| map.ours && settled != Some(map.foreign)) {
            planned = plan(job, &self.images, Some(map.foreign));
        }
        let needs_pod = pod.as_ref().is_none_or(|pod| matches!(pod.phase, PodPhase::Ended { .. }))
            || map.as_ref().is_none_or(|map| map.deleting);
        let leaving = pod.as_ref().is_some_and(|pod| pod.deletion.is_some())
            || map.as_ref().is_some_and(|map| map.ours && map.deleting);
        let namespace_ending = !over && (leaving || (deleting && needs_pod)) && self.namespace_ending(namespace).await;
        let references = match (early, &planned) {
            (Some(references), _) => references,
            (None, Ok(planned)) if needs_pod && !over => {
                dereference::references(&self.client, namespace, &planned.needs).await
            }
            _ => Ok(Ok(())),
        };
        let references = references.map_err(PassError::read("a Secret of the job"))?;
        Ok(Gathered { planned, references, map, pod, namespace_ending })
    }

    /// Whether a job that nobody has begun could be: all that it refers to is there, and the cluster takes what is made.
    async fn beginning(
        &self,
        job: &BridgeJob,
        namespace: &str,
        planned: &Planned,
    ) -> Result<Result<(), Problem>, kube::Error> {
        let references = dereference::references(&self.client, namespace, &planned.needs).await?;
        let refused = |ready: &bridge_api::Condition| {
            ready.type_ == terms::READY && ready.status == "False" && ready.reason == terms::WORKER_STARTING
        };
        if references.is_err() || !job.status.iter().flat_map(|status| &status.conditions).any(refused) {
            return Ok(references);
        }
        // A try without any effect: the hand-over would have to be marked and taken back each time.
        match self.applier(job, Some(planned)).try_map().await {
            Err(ApplyError::Refused { what, message, .. }) => {
                Ok(Err(Problem { reason: terms::WORKER_STARTING, message: refusal(&what, &message) }))
            }
            Err(ApplyError::Api { source, .. }) => Err(source),
            Ok(()) | Err(ApplyError::NotYet(_)) => Ok(Ok(())),
        }
    }

    fn applier<'a>(&'a self, job: &'a BridgeJob, planned: Option<&'a Planned>) -> Applier<'a> {
        Applier { client: &self.client, job, planned, worker_image: &self.worker_image }
    }

    async fn namespace_ending(&self, namespace: &str) -> bool {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if let Ok(found) = namespaces.get_metadata_opt(namespace).await {
            return found.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some());
        }
        // An operator that may only see some namespaces cannot look; but nothing can be made in one that ends.
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let mut probe = ConfigMap::default();
        probe.metadata.generate_name = Some("bridge-probe-".to_owned());
        let tried = maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &probe).await;
        matches!(tried, Err(kube::Error::Api(status)) if status.message.contains("being terminated"))
    }

    /// Before anything is made: from then on the job cannot vanish without its remote side having been cancelled.
    async fn add_finalizer(&self, jobs: &Api<BridgeJob>, job: &mut BridgeJob) -> Result<(), PassError> {
        let mut finalizers = job.finalizers().to_vec();
        if finalizers.iter().any(|finalizer| finalizer == api::FINALIZER_CANCEL) {
            return Ok(());
        }
        finalizers.push(api::FINALIZER_CANCEL.to_owned());
        let patch = json!({ "metadata": {
            "uid": job.metadata.uid,
            "resourceVersion": job.metadata.resource_version,
            "finalizers": finalizers,
        } });
        let patched = jobs.patch_metadata(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        job.metadata = patched.map_err(PassError::Write)?.metadata;
        Ok(())
    }

    /// Writes the status if it changed.
    async fn write(
        &self,
        jobs: &Api<BridgeJob>,
        job: &mut BridgeJob,
        status: BridgeJobStatus,
        seen: &Gathered,
        at_once: bool,
    ) -> Result<Written, PassError> {
        let uid = job.uid().unwrap_or_default();
        let deleting = job.metadata.deletion_timestamp.is_some();
        if !says_more(job.status.as_ref(), &status, deleting) {
            self.settling().remove(&uid);
            return Ok(Written::Told(Vec::new()));
        }
        if !at_once && !is_urgent(job.status.as_ref(), &status) {
            let since = *self.settling().entry(uid.clone()).or_insert_with(tokio::time::Instant::now);
            let left = SETTLE.saturating_sub(since.elapsed());
            if !left.is_zero() {
                return Ok(Written::HeldBack(left));
            }
        }
        self.settling().remove(&uid);
        let before = job.status.take();
        let mut news = news(before.as_ref(), &status);
        let handed_over = status.handover.is_some() && before.as_ref().is_none_or(|before| before.handover.is_none());
        if handed_over && let Ok(Planned { runs: Runs::Worker { replaced: Some(note) }, .. }) = &seen.planned {
            news.push(News { warning: false, reason: "ImageReplaced".to_owned(), note: note.clone() });
        }
        job.status = Some(status);
        // With the revision: a stale leader's write, or one over a change nobody has looked at, is refused.
        let written = jobs.replace_status(&job.name_any(), &PostParams::default(), job).await;
        *job = written.map_err(PassError::Write)?;
        Ok(Written::Told(news))
    }

    fn settling(&self) -> std::sync::MutexGuard<'_, HashMap<String, tokio::time::Instant>> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster does not let us make something: told to the user, and tried again.
    async fn refused(
        &self,
        jobs: &Api<BridgeJob>,
        job: &mut BridgeJob,
        message: &str,
        nothing_made: bool,
        seen: &Gathered,
    ) -> Result<Duration, PassError> {
        let context = Context { generation: job.metadata.generation, now: self.clock.now().wall };
        let mut report = Report::on(job.status.as_ref(), context);
        if nothing_made {
            report.take_back();
        }
        if job.metadata.deletion_timestamp.is_some() {
            let id = job.status.as_ref().and_then(|status| status.jobid.as_deref());
            report.cancel_blocked(&cannot_cancel(job, id, message));
        } else {
            report.worker(terms::WORKER_STARTING, message);
            report.condition(terms::READY, report::Holds::False, terms::WORKER_STARTING, message);
        }
        // Not held back: the next pass comes to the same point before that would be over.
        if let Written::Told(news) = self.write(jobs, job, report.finish(), seen, true).await? {
            self.publisher.publish(job, news).await;
        }
        Ok(Duration::from_secs(10))
    }

    fn count(&self, job: &BridgeJob, seen: &Gathered) {
        let status = job.status.as_ref();
        let counters = seen.map.as_ref().and_then(|map| map.record().ok().flatten()).map(|record| record.counters);
        self.metrics.job(
            (job.namespace().unwrap_or_default(), job.name_any()),
            status.and_then(|status| status.jobstatus),
            status.and_then(|status| status.manager),
            counters,
        );
    }
}

fn refusal(what: &str, why: &str) -> String {
    format!("{what} was refused by the cluster: {why}; it is tried again")
}

/// An API error in its own words; its `Display` shows the whole object.
fn brief(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => format!("{} ({})", status.message, status.code),
        _ => error.to_string(),
    }
}

/// Whether the new status tells anything. The sequence number and the UID of our own worker's `ConfigMap` alone do not, and
/// go along with the next change; nor does the generation of an object that goes.
fn says_more(before: Option<&BridgeJobStatus>, after: &BridgeJobStatus, deleting: bool) -> bool {
    let Some(before) = before else { return *after != BridgeJobStatus::default() };
    let mut same = after.clone();
    same.record_seq = before.record_seq;
    if deleting {
        same.observed_generation = before.observed_generation;
    }
    if let (Some(new), Some(old)) = (&mut same.handover, &before.handover)
        && !new.foreign
    {
        new.config_map_uid.clone_from(&old.config_map_uid);
    }
    same != *before
}

/// Ends, hand-overs and what a person has to act on are written at once.
fn is_urgent(before: Option<&BridgeJobStatus>, after: &BridgeJobStatus) -> bool {
    let Some(before) = before else { return true };
    // A foreign pod is made only after its ConfigMap is known; see `decide`.
    let marks = |status: &BridgeJobStatus| {
        status.handover.as_ref().map(|handover| handover.config_map_uid.clone().filter(|_| handover.foreign))
    };
    let ready = |status: &BridgeJobStatus| {
        status.conditions.iter().find(|condition| condition.type_ == terms::READY).map(|ready| ready.status.clone())
    };
    is_final(after) || marks(before) != marks(after) || ready(before) != ready(after)
}
