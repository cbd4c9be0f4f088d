//! Carries out what was decided. Creations are plain POSTs and every other change names the UID it means: server-side apply
//! would silently make a deleted `ConfigMap` again without its state.

use bridge_api::{BridgeJob, names as api};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

use super::build::Blueprint;
use super::decide::{Planned, Step};
use super::plan::Runs;
use super::seen::ANNOTATION_POD_MADE;
use crate::names;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// An object of an earlier life under the same name has to go first, or the object changed since it was seen.
    #[error("{0}")]
    NotYet(String),
    /// The cluster does not want it: a quota, an admission rule, a namespace that is being deleted.
    #[error("{what} was refused by the cluster: {message}")]
    Refused {
        /// What was to be made.
        what: String,
        /// In the cluster's words.
        message: String,
        /// It was the `ConfigMap`, so there is none.
        map: bool,
    },
    /// The API does not answer, or not in a way that says what is wrong.
    #[error("{what}")]
    Api {
        /// What was being done.
        what: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
}

impl ApplyError {
    /// A bounded word for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotYet(_) => "conflict",
            Self::Refused { .. } => "refused",
            Self::Api { .. } => "api",
        }
    }

    fn from(what: impl Into<String>, source: kube::Error) -> Self {
        let what = what.into();
        match source {
            kube::Error::Api(status) if matches!(status.code, 403 | 422 | 400) => {
                Self::Refused { what, message: status.message.clone(), map: false }
            }
            kube::Error::Api(status) if status.code == 409 => Self::NotYet(format!("{what}: {}", status.message)),
            source => Self::Api { what, source },
        }
    }

    /// Whether a failed creation surely made nothing. After a timeout, also one behind the API server, nobody knows.
    fn surely_made_nothing(&self) -> bool {
        match self {
            Self::NotYet(_) | Self::Refused { .. } => true,
            Self::Api { source: kube::Error::Api(status), .. } => made_nothing(status),
            Self::Api { .. } => false,
        }
    }
}

fn made_nothing(status: &Status) -> bool {
    (400..500).contains(&status.code) && status.code != 408
        || status.code == 500 && status.message.contains("calling webhook")
}

/// Carries out steps for one job.
pub struct Applier<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// The job.
    pub job: &'a BridgeJob,
    /// What was decided about it; needed wherever something is made.
    pub planned: Option<&'a Planned>,
    /// Image of our worker.
    pub worker_image: &'a str,
}

impl std::fmt::Debug for Applier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("job", &self.job.metadata.name).finish_non_exhaustive()
    }
}

impl Applier<'_> {
    /// Carries them out in order; the first that fails ends the pass.
    pub async fn apply(&self, steps: &[Step]) -> Result<(), ApplyError> {
        let mut made: Option<String> = None;
        let mut marked = false;
        for step in steps {
            match step {
                Step::MakeMap { told, pod_made } => made = self.make_map(told, *pod_made).await?,
                Step::ReleaseMap { uid, resource_version } => self.release_map(uid, Some(resource_version)).await?,
                Step::DeleteMap { uid } => self.delete_map(uid).await?,
                Step::SetKeys { uid, data, resource_version } => {
                    let mut metadata = json!({ "uid": uid });
                    if let Some(version) = resource_version {
                        metadata["resourceVersion"] = json!(version);
                    }
                    self.patch_map(json!({ "metadata": metadata, "data": data })).await?;
                }
                Step::MarkPodMade { uid, at } => {
                    let uid = self.uid_of(uid.as_ref(), made.as_ref())?;
                    // All that can fail before the pod is asked for comes before the mark.
                    self.make_access(&uid).await?;
                    self.mark_pod_made(&uid, Some(&at.to_string())).await?;
                    marked = true;
                }
                Step::MakePod { uid, restarts } => {
                    let uid = self.uid_of(uid.as_ref(), made.as_ref())?;
                    let result = self.make_pod(&uid, *restarts, marked).await;
                    if marked && result.as_ref().is_err_and(ApplyError::surely_made_nothing) {
                        // A later one is the first.
                        self.mark_pod_made(&uid, None).await?;
                    }
                    result?;
                }
                Step::DeletePod { uid, force } => self.delete_pod(uid, *force).await?,
                Step::LetGo => self.let_go().await?,
                Step::DeleteJob => self.delete_job().await?,
            }
        }
        Ok(())
    }

    fn uid_of(&self, given: Option<&String>, made: Option<&String>) -> Result<String, ApplyError> {
        given
            .or(made)
            .cloned()
            .ok_or_else(|| ApplyError::NotYet(format!("ConfigMap {} is not there yet", self.map_name())))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.job.namespace().unwrap_or_default())
    }

    fn map_name(&self) -> String {
        names::config_map(&self.job.name_any())
    }

    fn blueprint(&self) -> Result<Blueprint<'_>, ApplyError> {
        let planned = self.planned.ok_or_else(|| ApplyError::NotYet("the job has no plan".to_owned()))?;
        Ok(Blueprint { job: self.job, runs: &planned.runs, manager: planned.manager, worker_image: self.worker_image })
    }

    async fn make_map(
        &self,
        told: &crate::keys::Data,
        pod_made: Option<Timestamp>,
    ) -> Result<Option<String>, ApplyError> {
        let map = self.blueprint()?.config_map(told.clone(), pod_made);
        self.post_map(&map, &PostParams::default()).await
    }

    /// Whether the cluster would take the job's `ConfigMap` now. Nothing is made.
    pub async fn try_map(&self) -> Result<(), ApplyError> {
        let map = self.blueprint()?.config_map(crate::keys::Data::new(), None);
        match self.post_map(&map, &PostParams { dry_run: true, ..PostParams::default() }).await {
            // Something in its way cannot be tried without doing it.
            Err(ApplyError::Refused { message, .. }) if message.contains("dry run") => Ok(()),
            tried => tried.map(drop),
        }
    }

    async fn post_map(&self, map: &ConfigMap, params: &PostParams) -> Result<Option<String>, ApplyError> {
        let what = format!("making ConfigMap {}", self.map_name());
        let error = match self.api::<ConfigMap>().create(params, map).await {
            Ok(made) => return Ok(made.uid()),
            Err(error) => ApplyError::from(what.clone(), error),
        };
        Err(match error {
            ApplyError::Refused { message, .. } => ApplyError::Refused { what, message, map: true },
            ApplyError::Api { source: kube::Error::Api(status), .. } if made_nothing(&status) => {
                ApplyError::Refused { what, message: status.message.clone(), map: true }
            }
            error => error,
        })
    }

    async fn patch_map(&self, patch: serde_json::Value) -> Result<(), ApplyError> {
        let result =
            self.api::<ConfigMap>().patch(&self.map_name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        result.map(drop).map_err(|error| ApplyError::from(format!("changing ConfigMap {}", self.map_name()), error))
    }

    async fn mark_pod_made(&self, uid: &str, at: Option<&str>) -> Result<(), ApplyError> {
        let annotations = json!({ ANNOTATION_POD_MADE: at });
        self.patch_map(json!({ "metadata": { "uid": uid, "annotations": annotations } })).await
    }

    /// Takes our finalizer off, and only ours. With the revision, because the list is replaced as a whole.
    async fn release_map(&self, uid: &str, resource_version: Option<&str>) -> Result<(), ApplyError> {
        let name = self.map_name();
        let there = self.api::<ConfigMap>().get_metadata_opt(&name).await;
        let there = there.map_err(|error| ApplyError::from(format!("reading ConfigMap {name}"), error))?;
        let Some(there) = there.filter(|map| map.metadata.uid.as_deref() == Some(uid)) else { return Ok(()) };
        let left: Vec<&String> =
            there.finalizers().iter().filter(|finalizer| *finalizer != api::FINALIZER_RECORD).collect();
        if left.len() == there.finalizers().len() {
            return Ok(());
        }
        let version = resource_version.map(str::to_owned).or_else(|| there.resource_version());
        self.patch_map(json!({ "metadata": { "uid": uid, "resourceVersion": version, "finalizers": left } })).await
    }

    async fn delete_map(&self, uid: &str) -> Result<(), ApplyError> {
        // First without the finalizer, then gone at once: a worker that is told to stop must not see a ConfigMap that is
        // being deleted, because that would mean to cancel.
        match self.release_map(uid, None).await {
            Err(ApplyError::Api { source, .. }) if is_not_found(&source) => return Ok(()),
            released => released?,
        }
        gone(self.api::<ConfigMap>().delete(&self.map_name(), &precisely(uid)).await)
            .map_err(|error| ApplyError::from(format!("deleting ConfigMap {}", self.map_name()), error))
    }

    async fn make_pod(&self, map_uid: &str, restarts: u32, has_access: bool) -> Result<(), ApplyError> {
        let blueprint = self.blueprint()?;
        let pod = blueprint.pod(map_uid, restarts);
        if matches!(blueprint.runs, Runs::Foreign { .. }) {
            if !has_access {
                self.make_access(map_uid).await?;
            }
            return self.post_pod(map_uid, &pod).await.map(drop);
        }
        self.make_role(&blueprint, map_uid).await?;
        let binding = blueprint.role_binding(map_uid);
        // Our worker waits until it has its rights, so it need not wait to be made.
        let (bound, made) =
            tokio::join!(self.ensure::<RoleBinding>("RoleBinding", map_uid, &binding), self.post_pod(map_uid, &pod));
        if let (Err(_), Ok(uid)) = (&bound, &made) {
            // Nobody would give this one its rights any more; the next one begins with them.
            self.delete_pod(uid, false).await?;
        }
        bound?;
        made.map(drop)
    }

    /// Makes the pod; its UID. One that is there for this `ConfigMap` is the one: the answer to its making was lost.
    async fn post_pod(&self, map_uid: &str, pod: &Pod) -> Result<String, ApplyError> {
        let (pods, name) = (self.api::<Pod>(), pod.name_any());
        let refused = match pods.create(&PostParams::default(), pod).await {
            Ok(made) => return Ok(made.uid().unwrap_or_default()),
            Err(error) => error,
        };
        if matches!(&refused, kube::Error::Api(status) if status.code == 409) {
            let there = pods.get_metadata_opt(&name).await;
            let there = there.map_err(|error| ApplyError::from(format!("reading pod {name}"), error))?;
            if let Some(there) = there.filter(|pod| belongs_to(&pod.metadata, map_uid)) {
                return Ok(there.uid().unwrap_or_default());
            }
        }
        Err(ApplyError::from(format!("making pod {name}"), refused))
    }

    /// Makes all that gives the pod its rights.
    async fn make_access(&self, map_uid: &str) -> Result<(), ApplyError> {
        let blueprint = self.blueprint()?;
        self.make_role(&blueprint, map_uid).await?;
        self.ensure::<RoleBinding>("RoleBinding", map_uid, &blueprint.role_binding(map_uid)).await
    }

    /// Before it is bound: whoever binds a role is asked whether he holds its rights, and for that it must be there.
    async fn make_role(&self, blueprint: &Blueprint<'_>, map_uid: &str) -> Result<(), ApplyError> {
        let (account, role) = (blueprint.service_account(map_uid), blueprint.role(map_uid));
        // All calls are let run to their ends: a second one must not be given up because a first one failed.
        let (account, role) = tokio::join!(
            self.ensure("service account", map_uid, &account),
            self.ensure::<Role>("Role", map_uid, &role),
        );
        account.and(role)
    }

    /// Makes an object unless it is there. One that belonged to an earlier `ConfigMap` is about to be collected: it would
    /// be taken away from under the pod.
    async fn ensure<K>(&self, kind: &str, map_uid: &str, object: &K) -> Result<(), ApplyError>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let (api, name) = (self.api::<K>(), object.name_any());
        match api.create(&PostParams::default(), object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = api.get_metadata_opt(&name).await;
                let there = there.map_err(|error| ApplyError::from(format!("reading {kind} {name}"), error))?;
                let Some(there) = there.map(|object| object.metadata) else {
                    return Err(ApplyError::NotYet(format!("{kind} {name} is just gone")));
                };
                if belongs_to(&there, map_uid) {
                    return Ok(());
                }
                // What has an owner of ours goes with it; nobody but a person takes away anything else.
                let managed = there.labels.as_ref().and_then(|labels| labels.get(api::LABEL_MANAGED_BY));
                let owned = there.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
                if there.deletion_timestamp.is_some() || owned && managed.is_some_and(|by| by == api::MANAGED_BY) {
                    return Err(ApplyError::NotYet(format!("{kind} {name} of an earlier life has to go first")));
                }
                Err(ApplyError::Refused {
                    what: format!("making {kind} {name}"),
                    message: format!(
                        "it is there already and is not this job's; delete it (kubectl delete \
                         serviceaccount,role,rolebinding {name})"
                    ),
                    map: false,
                })
            }
            Err(error) => Err(ApplyError::from(format!("making {kind} {name}"), error)),
        }
    }

    async fn delete_pod(&self, uid: &str, force: bool) -> Result<(), ApplyError> {
        let name = names::pod(&self.job.name_any());
        let params = if force { precisely(uid).grace_period(0) } else { precisely(uid) };
        gone(self.api::<Pod>().delete(&name, &params).await)
            .map_err(|error| ApplyError::from(format!("deleting pod {name}"), error))
    }

    async fn let_go(&self) -> Result<(), ApplyError> {
        let left: Vec<&String> =
            self.job.finalizers().iter().filter(|finalizer| *finalizer != api::FINALIZER_CANCEL).collect();
        if left.len() == self.job.finalizers().len() {
            return Ok(());
        }
        // With the revision, because the list is replaced as a whole.
        let patch = json!({ "metadata": {
            "uid": self.job.metadata.uid,
            "resourceVersion": self.job.metadata.resource_version,
            "finalizers": left,
        } });
        let jobs = self.api::<BridgeJob>();
        match jobs.patch_metadata(&self.job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(ApplyError::from("letting go of the BridgeJob", error)),
        }
    }

    async fn delete_job(&self) -> Result<(), ApplyError> {
        let uid = self.job.uid().unwrap_or_default();
        gone(self.api::<BridgeJob>().delete(&self.job.name_any(), &precisely(&uid)).await)
            .map_err(|error| ApplyError::from("deleting the BridgeJob, whose time after its end is over", error))
    }
}

fn belongs_to(object: &ObjectMeta, map_uid: &str) -> bool {
    object.deletion_timestamp.is_none() && object.owner_references.iter().flatten().any(|owner| owner.uid == map_uid)
}

/// Deletes the object with this UID and no other of the same name.
fn precisely(uid: &str) -> DeleteParams {
    DeleteParams::background().preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None })
}

/// What is gone already, or was replaced by another of the same name, needs no deleting.
fn gone<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests;
