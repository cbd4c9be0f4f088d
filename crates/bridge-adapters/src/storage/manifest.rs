//! `manifest.json`: what a job sent.

use bridge_core::manager::Outcome;
use bridge_core::staging::Output;
use serde::{Deserialize, Serialize};

/// The most that is read of an older one.
pub(super) const LARGEST: usize = 16 * 1024 * 1024;

/// What a job sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Manifest {
    /// The job's name.
    pub(super) job: String,
    /// Its id on the remote system.
    pub(super) id: String,
    /// The attempt that sent it.
    pub(super) token: String,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    /// Nothing more will come.
    pub(super) complete: bool,
    /// What a reader should know of what arrived.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) remarks: Vec<String>,
    /// What arrived.
    pub(super) files: Vec<Entry>,
    /// Listed files that the job did not write, or that could not be sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<String>,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    /// The object's key.
    pub(super) key: String,
    /// Bytes.
    pub(super) size: u64,
    /// `sha256:<hex>`.
    pub(super) checksum: String,
    /// The store's own mark of this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
}

impl Manifest {
    /// The checksum of an object, if it is the one that was sent.
    pub(super) fn checksum_of(&self, key: &str, etag: Option<&str>) -> Option<&str> {
        let entry = self.files.iter().find(|entry| entry.key == key)?;
        let same = entry.etag.is_some() && entry.etag.as_deref() == etag;
        same.then(|| entry.checksum.strip_prefix("sha256:")).flatten()
    }

    /// Together with what an earlier try of the same job has sent and this one has not found again yet: the checksum of a
    /// large object stands nowhere else, and without it the object would be sent once more.
    pub(super) fn with_earlier(&self, before: &Self) -> Self {
        let mut both = self.clone();
        if before.token == self.token {
            let is_new = |entry: &&Entry| self.files.iter().all(|own| own.key != entry.key);
            both.files.extend(before.files.iter().filter(is_new).cloned());
        }
        both
    }

    /// The files as they stand in the job's status.
    pub(super) fn outputs(&self, bucket: &str) -> Vec<Output> {
        let output = |entry: &Entry| Output {
            bucket: bucket.to_owned(),
            key: entry.key.clone(),
            size: entry.size,
            checksum: entry.checksum.clone(),
        };
        self.files.iter().map(output).collect()
    }
}
