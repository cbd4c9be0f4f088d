//! Where records are kept. Every save is a compare-and-set, so that of two holders only one can go on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::ids::JobKey;
use crate::record::{JobRecord, RecordError};

/// What a store gives for a record it keeps, and wants back with the next save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(pub String);

/// A record and its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The record.
    pub record: JobRecord,
    /// Its revision.
    pub revision: Revision,
}

/// Keeps records.
#[async_trait]
pub trait JobStore: fmt::Debug + Send + Sync {
    /// The record, if there is one.
    async fn load(&self, key: &JobKey) -> Result<Option<Stored>, LoadError>;

    /// Keeps the record if `expected` is still the newest revision (`None`: if there is no record yet).
    /// When it returns `Ok`, the record survives a crash of this process and of the machine.
    async fn save(&self, key: &JobKey, record: &JobRecord, expected: Option<&Revision>) -> Result<Revision, SaveError>;
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is there and cannot be used; trying again does not help.
    #[error("job {key}: its saved state cannot be used")]
    Unusable {
        /// The job.
        key: JobKey,
        /// Why.
        #[source]
        source: RecordError,
    },
    /// The store does not answer.
    #[error("{message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Something else was saved meanwhile: read again.
    #[error("the job's saved state was changed by someone else")]
    Conflict,
    /// The store does not answer; nobody knows whether it was saved.
    #[error("{message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
}

/// A store in memory.
#[derive(Debug, Clone, Default)]
pub struct MemStore {
    // Encoded, so that what is kept is exactly what a real store would keep.
    records: Arc<Mutex<BTreeMap<JobKey, (u64, String)>>>,
}

impl MemStore {
    /// Reads at once.
    pub fn read(&self, key: &JobKey) -> Result<Option<Stored>, LoadError> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((revision, text)) = records.get(key) else { return Ok(None) };
        let record = JobRecord::decode(text).map_err(|source| LoadError::Unusable { key: key.clone(), source })?;
        Ok(Some(Stored { record, revision: Revision(revision.to_string()) }))
    }

    /// Saves at once.
    pub fn write(&self, key: &JobKey, record: &JobRecord, expected: Option<&Revision>) -> Result<Revision, SaveError> {
        let text = record.encode().map_err(|error| SaveError::Unavailable { message: error.to_string() })?;
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let current = records.get(key).map(|(revision, _)| *revision);
        if current.map(|revision| revision.to_string()) != expected.map(|revision| revision.0.clone()) {
            return Err(SaveError::Conflict);
        }
        let next = current.unwrap_or(0) + 1;
        records.insert(key.clone(), (next, text));
        Ok(Revision(next.to_string()))
    }
}

#[async_trait]
impl JobStore for MemStore {
    async fn load(&self, key: &JobKey) -> Result<Option<Stored>, LoadError> {
        self.read(key)
    }

    async fn save(&self, key: &JobKey, record: &JobRecord, expected: Option<&Revision>) -> Result<Revision, SaveError> {
        self.write(key, record, expected)
    }
}
