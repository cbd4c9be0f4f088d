//! Asking slurmdbd, and finding out whether there is one.
//!
//! Without accounting a job that slurmctld has purged is gone, and nobody can tell whether a held job has started before.
//! So one answer that there is no such address is not believed: a gateway's replica may have given it, or a server that
//! was upgraded since the version was agreed on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::classify::What;
use super::client::{Api, CallError, RECHECK_AFTER, is_recent, lock};
use super::wire::{AccountedEntry, JobInfo};

/// What is known of a cluster's accounting.
#[derive(Debug, Default)]
pub(super) struct Accounting {
    /// It has answered this process: where it was once, it is out of order and not absent.
    has_answered: AtomicBool,
    found_absent: Mutex<Option<Instant>>,
    /// Since when its address is not there although the server says that it is.
    missing_since: Mutex<Option<Instant>>,
    failed_at: Mutex<Option<Instant>>,
    /// Many jobs may be asked about at the same time; one of them finds out.
    finding_out: tokio::sync::Mutex<()>,
}

impl Accounting {
    /// Whether there is none, so that asking costs nothing.
    pub(super) fn is_absent(&self) -> bool {
        is_recent(&self.found_absent)
    }

    /// Whether it failed within this time.
    pub(super) fn has_failed_within(&self, time: Duration) -> bool {
        lock(&self.failed_at).is_some_and(|at| at.elapsed() < time)
    }

    /// After its address was not there twice: whether there is none. `described` is what the server says of itself.
    fn is_believed_absent(&self, described: Option<bool>) -> bool {
        if self.has_answered.load(Ordering::Relaxed) {
            return false;
        }
        // A gateway may hand on the description and not the address.
        described != Some(true) || lock(&self.missing_since).get_or_insert_with(Instant::now).elapsed() >= RECHECK_AFTER
    }

    fn remember(&self, answer: &Result<Option<Vec<JobInfo>>, CallError>) {
        match answer {
            Ok(Some(_)) => {
                self.has_answered.store(true, Ordering::Relaxed);
                *lock(&self.missing_since) = None;
            }
            Ok(None) => *lock(&self.found_absent) = Some(Instant::now()),
            Err(_) => *lock(&self.failed_at) = Some(Instant::now()),
        }
    }
}

impl Api {
    /// What accounting knows of a job; `None` if there is no accounting.
    pub(super) async fn accounted(&self, operation: &'static str, id: i64) -> Result<Option<Vec<JobInfo>>, CallError> {
        if self.accounting.is_absent() {
            return Ok(None);
        }
        let mut answer = self.ask_accounting(operation, id).await;
        if matches!(&answer, Err(error) if error.is(What::NoSuchAddress)) {
            let _one = self.accounting.finding_out.lock().await;
            if self.accounting.is_absent() {
                return Ok(None);
            }
            answer = match self.ask_accounting(operation, id).await {
                Err(error) if error.is(What::NoSuchAddress) => {
                    let is_absent = self.accounting.is_believed_absent(self.describes_accounting());
                    if is_absent { Ok(None) } else { Err(error) }
                }
                other => other,
            };
        }
        self.accounting.remember(&answer);
        answer
    }

    async fn ask_accounting(&self, operation: &'static str, id: i64) -> Result<Option<Vec<JobInfo>>, CallError> {
        match self.records_of::<AccountedEntry>(operation, "slurmdb", id).await {
            Err(error) if says_no_accounting(&error) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// The plugin is loaded although the cluster keeps no accounts.
fn says_no_accounting(error: &CallError) -> bool {
    let CallError::Trouble(trouble) = error else { return false };
    let text = trouble.message.to_ascii_lowercase();
    text.contains("accounting storage is disabled") || text.contains("accounting_storage/none")
}
