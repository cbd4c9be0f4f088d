//! Removes what is left of jobs whose `BridgeJob` was taken away by force, with its finalizer.
//!
//! The worker is told to cancel first; what has ended, or never began, is deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_api::{BridgeJob, names as api};
use bridge_core::record::JobRecord;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::Notify;

use crate::job::seen::{PodPhase, SeenPod};
use crate::{keys, names};

const PERIOD: Duration = Duration::from_mins(5);
/// What takes longer hangs: calls have no limit of their own.
const LIMIT: Duration = Duration::from_mins(2);
/// A deletion that is under way removes both objects within moments.
const PATIENCE: Duration = Duration::from_secs(5);

/// Jobs that are gone and may have left something behind, by namespace and name.
#[derive(Debug, Default)]
pub struct Suspects {
    jobs: Mutex<BTreeSet<(String, String)>>,
    wake: Notify,
}

impl Suspects {
    /// One more.
    pub fn add(&self, namespace: String, job: String) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).insert((namespace, job));
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut self.jobs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Looks for `ConfigMap`s without a job.
pub struct Sweeper {
    client: Client,
    namespace: Option<String>,
    jobs: Store<PartialObjectMeta<BridgeJob>>,
    suspects: Arc<Suspects>,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// A sweeper for one namespace, or for all.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: Option<String>,
        jobs: Store<PartialObjectMeta<BridgeJob>>,
        suspects: Arc<Suspects>,
    ) -> Self {
        Self { client, namespace, jobs, suspects }
    }

    /// Sweeps now and then, and looks at each suspect; never returns.
    pub async fn run(self) {
        if self.jobs.wait_until_ready().await.is_err() {
            std::future::pending::<()>().await;
        }
        let mut due = tokio::time::Instant::now();
        loop {
            if tokio::time::Instant::now() >= due {
                match tokio::time::timeout(LIMIT, self.sweep()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "the sweep broke off"),
                    Err(_) => tracing::debug!("the sweep hung"),
                }
                due = tokio::time::Instant::now() + PERIOD;
            }
            if tokio::time::timeout_at(due, self.suspects.wake.notified()).await.is_ok() {
                tokio::time::sleep(PATIENCE).await;
                self.look_at_suspects().await;
            }
        }
    }

    async fn look_at_suspects(&self) {
        for (namespace, job) in self.suspects.take() {
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
            let looking = async {
                match maps.get_metadata_opt(&names::config_map(&job)).await? {
                    Some(map) => self.look_at(&map).await,
                    None => Ok(()),
                }
            };
            let looked = tokio::time::timeout(LIMIT, looking).await;
            if !matches!(looked, Ok(Ok(()))) {
                tracing::debug!(namespace, job, ?looked, "what is left of a job could not be looked at");
                self.suspects.add(namespace, job);
            }
        }
    }

    async fn sweep(&self) -> Result<(), kube::Error> {
        let maps: Api<ConfigMap> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let mut params =
            ListParams::default().labels(&format!("{}={}", api::LABEL_MANAGED_BY, api::MANAGED_BY)).limit(250);
        loop {
            let page = maps.list_metadata(&params).await?;
            for map in &page.items {
                if let Err(error) = self.look_at(map).await {
                    tracing::debug!(%error, "a ConfigMap could not be swept");
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    async fn look_at(&self, map: &PartialObjectMeta<ConfigMap>) -> Result<(), kube::Error> {
        let labels = map.labels();
        let (Some(job), Some(uid), Some(namespace)) =
            (labels.get(api::LABEL_JOB), labels.get(api::LABEL_JOB_UID), map.namespace())
        else {
            return Ok(());
        };
        let known = self.jobs.get(&ObjectRef::new(job).within(&namespace));
        if known.is_some_and(|known| known.metadata.uid.as_ref() == Some(uid)) {
            return Ok(());
        }
        // The cache may be behind; only the API knows.
        let jobs: Api<BridgeJob> = Api::namespaced(self.client.clone(), &namespace);
        let there = jobs.get_metadata_opt(job).await?;
        if there.is_some_and(|there| there.metadata.uid.as_ref() == Some(uid)) {
            return Ok(());
        }
        self.remove(&namespace, job, map).await
    }

    async fn remove(&self, namespace: &str, job: &str, meta: &PartialObjectMeta<ConfigMap>) -> Result<(), kube::Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let name = names::config_map(job);
        let Some(map) = maps.get_opt(&name).await?.filter(|map| map.uid() == meta.uid()) else { return Ok(()) };
        let (uid, data) = (map.uid().unwrap_or_default(), map.data.clone().unwrap_or_default());
        let foreign = map.labels().get(api::LABEL_WORKER).is_some_and(|kind| kind == "foreign");
        // A foreign pod keeps no record: its job is over when it is.
        let over = !foreign
            && keys::get(&data, keys::STATE)
                .is_none_or(|state| JobRecord::decode(state).is_ok_and(|record| record.ending().is_some()));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.get_opt(&names::pod(job)).await?.map(|pod| SeenPod::of(&pod, ""));
        let works =
            pod.is_some_and(|pod| pod.owner.as_ref() == Some(&uid) && !matches!(pod.phase, PodPhase::Ended { .. }));
        if works && !over {
            if !keys::is_true(&data, keys::KILL) {
                tracing::info!(namespace, job, "its BridgeJob is gone: the remote job is cancelled");
                let mut wishes = json!({ keys::KILL: "true" });
                if !foreign {
                    wishes[keys::DELETE] = json!("true");
                }
                let patch = json!({ "metadata": { "uid": uid }, "data": wishes });
                maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            return Ok(());
        }
        let told_to_end = foreign && keys::is_true(&data, keys::KILL);
        if !over && !told_to_end {
            let id = keys::get(&data, keys::ID).unwrap_or("unknown");
            let url = keys::get(&data, keys::RESOURCE_URL).unwrap_or_default();
            tracing::warn!(namespace, job, id, url, "its BridgeJob and its pod are gone: the remote job is left alone");
        }
        let left: Vec<&String> =
            map.finalizers().iter().filter(|finalizer| *finalizer != api::FINALIZER_RECORD).collect();
        let patch =
            json!({ "metadata": { "uid": uid, "resourceVersion": map.resource_version(), "finalizers": left } });
        maps.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        let exactly = Preconditions { uid: Some(uid), resource_version: None };
        match maps.delete(&name, &DeleteParams::background().preconditions(exactly)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
