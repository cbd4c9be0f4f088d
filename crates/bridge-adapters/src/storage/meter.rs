//! Counts what is moved, for those who watch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::ids::JobKey;
use bridge_core::staging::Progress;

/// What one stage of one job has moved.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: AtomicU64,
    /// 0 where it is not known.
    total: AtomicU64,
    files: AtomicU64,
    of: AtomicU64,
}

impl Meter {
    pub(super) fn expect(&self, files: usize, bytes: Option<u64>) {
        self.of.store(files as u64, Ordering::Relaxed);
        self.total.store(bytes.unwrap_or_default(), Ordering::Relaxed);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn file_done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    fn progress(&self) -> Progress {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let total = Some(read(&self.total)).filter(|total| *total > 0);
        Progress { bytes: read(&self.bytes), total, files: read(&self.files), of: read(&self.of) }
    }
}

/// The stages that are under way.
#[derive(Debug, Default)]
pub(super) struct Meters(Mutex<BTreeMap<JobKey, Arc<Meter>>>);

/// A stage that is counted as long as this lives.
#[derive(Debug)]
pub(super) struct Counted<'a> {
    meters: &'a Meters,
    key: JobKey,
    pub(super) meter: Arc<Meter>,
}

impl Meters {
    pub(super) fn begin(&self, key: &JobKey) -> Counted<'_> {
        let meter = Arc::new(Meter::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), Arc::clone(&meter));
        Counted { meters: self, key: key.clone(), meter }
    }

    pub(super) fn progress(&self, key: &JobKey) -> Option<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(|meter| meter.progress())
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut meters = self.meters.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A stage that began meanwhile has a meter of its own.
        if meters.get(&self.key).is_some_and(|meter| Arc::ptr_eq(meter, &self.meter)) {
            meters.remove(&self.key);
        }
    }
}
