//! Records in a job's `ConfigMap`: under [`keys::STATE`], with the contract's keys beside it.
//!
//! # Guarantees
//! A save carries the UID and the revision of the `ConfigMap` it means, so it can neither overwrite another's nor make one
//! that was deleted again without its state. A call without an answer ends all the same: nobody knows then whether a save
//! arrived, and whoever repeats it meets its own revision.

#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::ids::JobKey;
use bridge_core::record::JobRecord;
use bridge_core::status::StatusView;
use bridge_core::store::{JobStore, LoadError, Revision, SaveError, Stored};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::keys::{self, Data};
use crate::names;

/// How long an answer is waited for. A connection that broke without a word would keep a job from going on for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The revision of a record whose `ConfigMap` is gone.
const GONE: &str = "gone";

/// Whether anybody makes the `ConfigMap` again when it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// An operator does: whoever finds its own gone was replaced.
    Operator,
    /// Nobody: the record lives on in memory, and so does the watch over the job.
    Nobody,
}

/// Keeps one job's record in its `ConfigMap`.
pub struct ConfigMapStore {
    api: Api<ConfigMap>,
    name: String,
    uid: String,
    keeper: Keeper,
    last: Mutex<Option<JobRecord>>,
}

impl std::fmt::Debug for ConfigMapStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigMapStore").field("name", &self.name).field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl ConfigMapStore {
    /// A store in the `ConfigMap` with this UID and no other.
    #[must_use]
    pub fn new(client: Client, key: &JobKey, uid: impl Into<String>, keeper: Keeper) -> Self {
        Self {
            api: Api::namespaced(client, &key.namespace),
            name: names::config_map(&key.name),
            uid: uid.into(),
            keeper,
            last: Mutex::new(None),
        }
    }

    async fn get(&self) -> Result<Option<ConfigMap>, String> {
        let unread = |why: String| format!("ConfigMap {} could not be read: {why}", self.name);
        let map =
            answer(self.api.get_opt(&self.name)).await.map_err(&unread)?.map_err(|error| unread(error.to_string()));
        Ok(map?.filter(|map| map.uid().as_deref() == Some(self.uid.as_str())))
    }

    fn remember(&self, record: &JobRecord) {
        if self.keeper == Keeper::Nobody {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        }
    }

    fn remembered(&self) -> Option<JobRecord> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a save means when the `ConfigMap` is gone.
    fn save_gone(&self, record: &JobRecord) -> Result<Revision, SaveError> {
        match self.keeper {
            Keeper::Operator => Err(SaveError::Conflict),
            Keeper::Nobody => {
                self.remember(record);
                Ok(Revision(GONE.to_owned()))
            }
        }
    }
}

#[async_trait]
impl JobStore for ConfigMapStore {
    async fn load(&self, key: &JobKey) -> Result<Option<Stored>, LoadError> {
        let Some(map) = self.get().await.map_err(|message| LoadError::Unavailable { message })? else {
            return Ok(self.remembered().map(|record| Stored { record, revision: Revision(GONE.to_owned()) }));
        };
        let revision = Revision(map.resource_version().unwrap_or_default());
        let data = map.data.unwrap_or_default();
        let Some(text) = keys::get(&data, keys::STATE) else { return Ok(None) };
        let record = JobRecord::decode(text).map_err(|source| LoadError::Unusable { key: key.clone(), source })?;
        Ok(Some(Stored { record, revision }))
    }

    async fn save(
        &self,
        _key: &JobKey,
        record: &JobRecord,
        expected: Option<&Revision>,
    ) -> Result<Revision, SaveError> {
        let unavailable = |message: String| SaveError::Unavailable { message };
        let revision = match expected {
            Some(Revision(revision)) if revision == GONE => return self.save_gone(record),
            Some(Revision(revision)) => revision.clone(),
            None => {
                let Some(map) = self.get().await.map_err(unavailable)? else { return self.save_gone(record) };
                if keys::get(map.data.as_ref().unwrap_or(&Data::new()), keys::STATE).is_some() {
                    return Err(SaveError::Conflict);
                }
                map.resource_version().unwrap_or_default()
            }
        };
        let data = written(record).map_err(|error| unavailable(error.to_string()))?;
        let patch = json!({ "metadata": { "uid": self.uid, "resourceVersion": revision }, "data": data });
        let unwritten = |why: String| unavailable(format!("ConfigMap {} could not be written: {why}", self.name));
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match answer(self.api.patch(&self.name, &params, &patch)).await.map_err(&unwritten)? {
            Ok(map) => {
                self.remember(record);
                Ok(Revision(map.resource_version().unwrap_or_default()))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Err(SaveError::Conflict),
            Err(kube::Error::Api(status)) if status.code == 404 => self.save_gone(record),
            Err(error) => Err(unwritten(error.to_string())),
        }
    }
}

/// Waits for an answer, but not for ever.
async fn answer<T>(call: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, call).await.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))
}

/// The record and what it means in the contract's keys. A key once written is never cleared.
pub fn written(record: &JobRecord) -> Result<Data, bridge_core::record::RecordError> {
    let view = StatusView::of(record);
    let mut data = Data::from([(keys::STATE.to_owned(), record.encode()?)]);
    let mut put = |key: String, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            data.insert(key, value);
        }
    };
    let status = |key: &str| format!("{}{key}", keys::PREFIX);
    put(keys::ID.to_owned(), view.job_id);
    put(status(keys::STATUS), Some(view.status.as_str().to_owned()));
    put(status(keys::MESSAGE), Some(view.message));
    put(status(keys::SUBMIT_TIME), view.submitted.map(|time| time.to_string()));
    put(status(keys::START_TIME), view.started.map(|time| time.to_string()));
    put(status(keys::END_TIME), view.completed.map(|time| time.to_string()));
    Ok(data)
}
