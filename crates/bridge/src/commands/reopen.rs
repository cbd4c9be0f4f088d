//! A job that was run before, with its manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_core::manager::ResourceManager;
use bridge_core::plan::{PlanError, secrets_of};
use bridge_core::staging::Staging;

use super::prepare::{credentials_of, storage_keys_of};
use crate::failure::Failure;
use crate::registry::Registry;
use crate::secrets::{SecretBook, process_environment};
use crate::state::{JobFile, StateFolder};

/// What acts for a job.
pub struct Reopened {
    /// Its remote system.
    pub manager: Arc<dyn ResourceManager>,
    /// Moves its data.
    pub staging: Result<Arc<dyn Staging>, PlanError>,
}

/// Finds a job's Secrets where they were before, and makes its manager.
pub fn reopen(state: &StateFolder, job: &JobFile, secret_folders: &[String]) -> Result<Reopened, Failure> {
    let book = SecretBook::reopen(secret_folders, &job.secrets, &process_environment)?;
    let key = &job.plan.key;
    let refuse = |error: PlanError| Failure::input(format!("job {key}: {error}"));
    let mut secrets = BTreeMap::new();
    for need in secrets_of(&job.plan) {
        let found = book.find(&key.namespace, &need).map_err(refuse)?;
        secrets.insert(need.secret.0.clone(), found);
    }
    let mut registry = Registry::new(state.local()).sharing(&job.shared);
    let manager = registry.manager(&job.plan.target, credentials_of(&job.plan, &secrets)).map_err(refuse)?;
    let staging = registry.storage(&job.plan, storage_keys_of(&job.plan, &secrets));
    Ok(Reopened { manager, staging })
}
