//! One job's folder.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_api::BridgeJobSpec;
use bridge_core::ids::JobKey;
use bridge_core::plan::JobPlan;
use bridge_core::record::{JobRecord, RecordError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{FolderStore, files};
use crate::failure::Failure;
use crate::secrets::Origin;

/// The newest form of the state folder that this program reads, and the one it writes.
pub const FORMAT: u32 = 1;

const JOB: &str = "job.json";
const KILL: &str = "kill";
const LOCK: &str = "lock";
pub(super) const RECORD: &str = "record.json";

/// What is run, as it was decided when its run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobFile {
    /// The form of this file, see [`FORMAT`].
    pub format: u32,
    /// Names this run of the job; the root of its tokens.
    pub run: String,
    /// When the run was asked for.
    pub created: Timestamp,
    /// The file it came from.
    pub file: String,
    /// What the user wrote.
    pub spec: BridgeJobSpec,
    /// What was decided.
    pub plan: JobPlan,
    /// Where its Secrets were found; never their content.
    #[serde(default)]
    pub secrets: BTreeMap<String, Origin>,
    /// Folders that this machine and the compute nodes share.
    #[serde(default)]
    pub shared: Vec<PathBuf>,
    /// Earlier runs of the job, of which files may be left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

/// As much of a file of any program as says which program can read it.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

/// A job's folder.
#[derive(Debug, Clone)]
pub struct JobFolder {
    key: JobKey,
    path: PathBuf,
}

/// A job that was run before.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// What is run.
    pub job: JobFile,
    /// Its record; `None` if it was lost, or its run has only just begun.
    pub record: Option<JobRecord>,
}

/// Locked as long as it lives, and no longer than its process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a job could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it.
    Held {
        /// Its process id, if it is known.
        by: Option<String>,
    },
    /// The file system does not let us.
    Io(io::Error),
}

impl JobFolder {
    pub(super) fn new(key: JobKey, path: PathBuf) -> Self {
        Self { key, path }
    }

    /// The job.
    #[must_use]
    pub fn key(&self) -> &JobKey {
        &self.key
    }

    /// Takes the job for this process.
    pub fn lock(&self) -> Result<Lock, LockError> {
        let mut file = self.lock_file().map_err(LockError::Io)?;
        match file.try_lock() {
            // Whoever forgot the job took the lock's file away with it.
            Ok(()) if !self.is_lock_file(&file) => Err(LockError::Held { by: None }),
            Ok(()) => {
                // Only for the message that another runner shows.
                let note = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
                note.map_err(LockError::Io)?;
                Ok(Lock { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                let known = file.read_to_string(&mut by).is_ok() && !by.trim().is_empty();
                Err(LockError::Held { by: known.then(|| by.trim().to_owned()) })
            }
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        files::make_private_folder(&self.path)?;
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(self.path.join(LOCK))
    }

    fn is_lock_file(&self, file: &File) -> bool {
        let there = std::fs::metadata(self.path.join(LOCK));
        file.metadata().ok().zip(there.ok()).is_some_and(|(ours, there)| ours.ino() == there.ino())
    }

    /// Forgets the job. Whoever comes next begins anew.
    pub fn forget(&self, _lock: &Lock) -> Result<(), Failure> {
        // First what makes it a job: it is never seen without its record, which would make the next runner look for it.
        let removed = match std::fs::remove_file(self.path.join(JOB)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed.and_then(|()| std::fs::remove_dir_all(&self.path)).map_err(|error| {
            Failure::trouble(format!(
                "the state of job {} cannot be removed: {}: {error}",
                self.key,
                self.path.display()
            ))
        })
    }

    /// Whether a runner has the job now.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let Ok(file) = File::open(self.path.join(LOCK)) else { return false };
        // Shared, and only for an instant: a runner that starts right now tries more than once.
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// What is known of the job; `None` if it was never run.
    pub fn remembered(&self) -> Result<Option<Remembered>, Failure> {
        let path = self.path.join(JOB);
        let Some(text) = files::read(&path).map_err(|error| self.damaged(&path, &error.to_string()))? else {
            return Ok(None);
        };
        let unreadable = |error: serde_json::Error| self.damaged(&path, &error.to_string());
        let Versioned { format } = serde_json::from_str(&text).map_err(unreadable)?;
        if format > FORMAT {
            return Err(self.too_new(&path, format));
        }
        let job: JobFile = serde_json::from_str(&text).map_err(unreadable)?;
        if job.plan.key != self.key || job.plan.uid != job.run {
            return Err(self.damaged(&path, "it belongs to another job"));
        }
        let record = self.record(&job.run)?;
        Ok(Some(Remembered { job, record }))
    }

    /// The record of a run; `None` if there is none, or it is that of an earlier run.
    pub fn record(&self, run: &str) -> Result<Option<JobRecord>, Failure> {
        let path = self.path.join(RECORD);
        let Some(text) = files::read(&path).map_err(|error| self.damaged(&path, &error.to_string()))? else {
            return Ok(None);
        };
        match JobRecord::decode(&text) {
            Ok(record) => Ok(Some(record).filter(|record| record.uid == run)),
            Err(RecordError::TooNew { found }) => Err(self.too_new(&path, found)),
            Err(RecordError::Unreadable(error)) => Err(self.damaged(&path, &error.to_string())),
        }
    }

    /// Begins a run. From here on it is known, so what is submitted for it can be found again.
    pub fn begin(&self, lock: &Lock, job: &JobFile, record: &JobRecord) -> Result<(), Failure> {
        self.keep(job)?;
        self.restore(lock, record)
    }

    /// Keeps what may change while a job runs.
    pub fn update(&self, _lock: &Lock, job: &JobFile) -> Result<(), Failure> {
        self.keep(job)
    }

    /// Puts a record in the place of one that is gone.
    pub fn restore(&self, _lock: &Lock, record: &JobRecord) -> Result<(), Failure> {
        let text = record.encode().map_err(|error| Failure::trouble(error.to_string()))?;
        files::write(&self.path.join(RECORD), text.as_bytes()).map_err(|error| self.cannot_write(&error))
    }

    fn keep(&self, job: &JobFile) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(job).map_err(|error| Failure::trouble(error.to_string()))?;
        files::write(&self.path.join(JOB), &text).map_err(|error| self.cannot_write(&error))
    }

    /// Keeps the wish to end this run.
    pub fn ask_for_end(&self, run: &str) -> Result<(), Failure> {
        files::write(&self.path.join(KILL), run.as_bytes()).map_err(|error| self.cannot_write(&error))
    }

    /// Whether the end of this run was asked for.
    #[must_use]
    pub fn end_was_asked_for(&self, run: &str) -> bool {
        // A mark for an earlier run means nothing; one that cannot be read is looked at again soon.
        files::read(&self.path.join(KILL)).ok().flatten().is_some_and(|text| text.trim() == run)
    }

    /// Keeps the record of this run.
    #[must_use]
    pub fn store(&self, run: &str) -> Arc<FolderStore> {
        Arc::new(FolderStore::new(self.path.join(RECORD), run))
    }

    fn damaged(&self, path: &Path, why: &str) -> Failure {
        Failure::input(format!(
            "the state of job {} is damaged: {}: {why}; restore the file, or move the folder {} away if the job is not \
             wanted any more (it may still run on its remote system)",
            self.key,
            path.display(),
            self.path.display()
        ))
    }

    fn too_new(&self, path: &Path, found: u32) -> Failure {
        Failure::input(format!(
            "the state of job {} was written by a newer program: {} has format {found}, this program knows up to \
             {FORMAT}; use the newer program",
            self.key,
            path.display()
        ))
    }

    fn cannot_write(&self, error: &io::Error) -> Failure {
        Failure::trouble(format!("the state of job {} cannot be saved in {}: {error}", self.key, self.path.display()))
    }
}
