//! Data in and out through S3, for every manager.
//!
//! See `docs/staging.md` for what goes where, what is verified and what a crash leaves behind.

mod bring;
mod carried;
mod client;
mod error;
mod items;
mod keys;
mod manifest;
mod meter;
mod send;
mod take;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bridge_core::clock::Clock;
use bridge_core::credentials::CredentialSource;
use bridge_core::ids::{JobKey, RemoteId, SubmitToken};
use bridge_core::manager::{Outcome, ResourceManager, Tracked};
use bridge_core::plan::{JobPlan, Submission};
use bridge_core::staging::{Output, Progress, Staging, StagingError};

use client::Store;
use error::StorageError;
use meter::Meters;

/// Moves the data of jobs whose object store one Secret opens.
pub struct S3Staging {
    keys: Arc<dyn CredentialSource>,
    clock: Arc<dyn Clock>,
    meters: Meters,
}

impl fmt::Debug for S3Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Staging").finish_non_exhaustive()
    }
}

impl S3Staging {
    /// The Secret has the keys `accesskey` and `secretkey`, and perhaps `sessiontoken`, `expiration`, `ca.crt` and
    /// `allowedURL`. It is read when it is needed.
    #[must_use]
    pub fn new(keys: Arc<dyn CredentialSource>, clock: Arc<dyn Clock>) -> Self {
        Self { keys, clock, meters: Meters::default() }
    }

    async fn open(&self, plan: &JobPlan) -> Result<Store, StagingError> {
        let storage = plan.storage.as_ref().ok_or_else(|| {
            StagingError::lasting(format!("job {}: no object store is given; add spec.s3storage", plan.key))
        })?;
        Store::open(storage, Arc::clone(&self.keys)).await.map_err(StorageError::before_job)
    }
}

#[async_trait]
impl Staging for S3Staging {
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        manager: &dyn ResourceManager,
    ) -> Result<Submission, StagingError> {
        let counted = self.meters.begin(&plan.key);
        self.bring(plan, token, manager, &counted.meter).await
    }

    async fn stage_out(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        id: &RemoteId,
        outcome: &Outcome,
        manager: &dyn ResourceManager,
    ) -> Result<Vec<Output>, StagingError> {
        let Some(upload) = &plan.upload else { return Ok(Vec::new()) };
        let counted = self.meters.begin(&plan.key);
        let store = self.open(plan).await?;
        let job = Tracked { id: id.clone(), token: token.clone(), verify: true, cancelling: false };
        let errand = take::Errand { plan, upload, job: &job, outcome, manager, store: &store, meter: &counted.meter };
        match bring::carrier_of(plan, manager) {
            Some(carrier) if !carrier.limits().only_files => errand.collect().await,
            carrier => errand.take(carrier.is_some()).await,
        }
    }

    fn progress(&self, key: &JobKey) -> Option<Progress> {
        self.meters.progress(key)
    }
}

/// What follows the last slash.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}
