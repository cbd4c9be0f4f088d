//! Counting requests by operation, so that their cost on the remote system can be reported.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Requests to one remote system, by operation.
#[derive(Debug, Default)]
pub struct Counters {
    operations: Mutex<BTreeMap<&'static str, OperationCount>>,
}

/// Requests of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationCount {
    /// Sent, retries included.
    pub requests: u64,
    /// Without an answer, or with one of status 400 and above.
    pub failures: u64,
    /// Bytes of answers read.
    pub bytes_received: u64,
}

impl Counters {
    /// All operations so far.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<&'static str, OperationCount> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All requests so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.snapshot().values().map(|count| count.requests).sum()
    }

    pub(super) fn sent(&self, operation: &'static str) {
        self.change(operation, |count| count.requests += 1);
    }

    pub(super) fn failed(&self, operation: &'static str) {
        self.change(operation, |count| count.failures += 1);
    }

    pub(super) fn received(&self, operation: &'static str, bytes: usize) {
        self.change(operation, |count| count.bytes_received += bytes as u64);
    }

    fn change(&self, operation: &'static str, by: impl FnOnce(&mut OperationCount)) {
        by(self.operations.lock().unwrap_or_else(PoisonError::into_inner).entry(operation).or_default());
    }
}
