//! The record of one run, in a file.

use std::path::PathBuf;

use async_trait::async_trait;
use bridge_core::ids::JobKey;
use bridge_core::record::JobRecord;
use bridge_core::store::{JobStore, LoadError, Revision, SaveError, Stored};

use super::files;

/// Keeps the record of one run. Whoever uses it holds the job's lock; the comparison is a second fence.
#[derive(Debug, Clone)]
pub struct FolderStore {
    path: PathBuf,
    run: String,
}

impl FolderStore {
    pub(super) fn new(path: PathBuf, run: impl Into<String>) -> Self {
        Self { path, run: run.into() }
    }

    fn read(&self, key: &JobKey) -> Result<Option<Stored>, LoadError> {
        let unavailable = |error: std::io::Error| LoadError::Unavailable {
            message: format!("the record {} cannot be read: {error}", self.path.display()),
        };
        let Some(text) = files::read(&self.path).map_err(unavailable)? else { return Ok(None) };
        let record = JobRecord::decode(&text).map_err(|source| LoadError::Unusable { key: key.clone(), source })?;
        if record.uid != self.run {
            return Ok(None);
        }
        let revision = revision(&record);
        Ok(Some(Stored { record, revision }))
    }

    fn write(&self, key: &JobKey, record: &JobRecord, expected: Option<&Revision>) -> Result<Revision, SaveError> {
        let unavailable = |message: String| SaveError::Unavailable { message };
        let current = self.read(key).map_err(|error| unavailable(error.to_string()))?;
        if current.map(|stored| stored.revision).as_ref() != expected {
            return Err(SaveError::Conflict);
        }
        let text = record.encode().map_err(|error| unavailable(error.to_string()))?;
        files::write(&self.path, text.as_bytes())
            .map_err(|error| unavailable(format!("the record {} cannot be saved: {error}", self.path.display())))?;
        Ok(revision(record))
    }
}

/// A holder numbers its saves, and no two holders have the same name.
fn revision(record: &JobRecord) -> Revision {
    Revision(format!("{}@{}", record.seq, record.holder))
}

#[async_trait]
impl JobStore for FolderStore {
    async fn load(&self, key: &JobKey) -> Result<Option<Stored>, LoadError> {
        let (store, key) = (self.clone(), key.clone());
        let loaded = tokio::task::spawn_blocking(move || store.read(&key)).await;
        loaded.unwrap_or_else(|lost| Err(LoadError::Unavailable { message: lost.to_string() }))
    }

    async fn save(&self, key: &JobKey, record: &JobRecord, expected: Option<&Revision>) -> Result<Revision, SaveError> {
        let (store, key, record, expected) = (self.clone(), key.clone(), record.clone(), expected.cloned());
        let saved = tokio::task::spawn_blocking(move || store.write(&key, &record, expected.as_ref())).await;
        saved.unwrap_or_else(|lost| Err(SaveError::Unavailable { message: lost.to_string() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_writers_one_goes_on_and_other_runs_are_not_seen() {
        let folder = tempfile::tempdir().unwrap();
        let key = JobKey::new("", "job");
        let store = FolderStore::new(folder.path().join("record.json"), "run1");
        assert!(store.read(&key).unwrap().is_none());
        let mut record = JobRecord::new("run1", "one");
        let first = store.write(&key, &record, None).unwrap();
        assert!(matches!(store.write(&key, &record, None), Err(SaveError::Conflict)));
        record.seq = 1;
        record.holder = "two".to_owned();
        store.write(&key, &record, Some(&first)).unwrap();
        record.holder = "one".to_owned();
        assert!(matches!(store.write(&key, &record, Some(&first)), Err(SaveError::Conflict)));
        assert_eq!(store.read(&key).unwrap().unwrap().record.holder, "two");
        assert!(FolderStore::new(folder.path().join("record.json"), "run2").read(&key).unwrap().is_none());
    }
}
