//! Numbers for Prometheus. Every label has a bounded set of values.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_api::{JobStatus, ResourceManager};
use bridge_core::record::Counters;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    status: &'static str,
    manager: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ManagerLabels {
    manager: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    category: &'static str,
}

/// A job by namespace and name.
pub type Key = (String, String);

#[derive(Debug, Clone, Copy)]
struct JobNumbers {
    status: Option<JobStatus>,
    manager: Option<ResourceManager>,
    counted: Counters,
}

#[derive(Debug)]
struct Inner {
    jobs: Mutex<BTreeMap<Key, JobNumbers>>,
    by_state: Family<JobLabels, Gauge>,
    reconcile: Histogram,
    errors: Family<ErrorLabels, Counter>,
    pods: Counter,
    requests: Family<ManagerLabels, Counter>,
    submissions: Family<ManagerLabels, Counter>,
    prevented: Family<ManagerLabels, Counter>,
    leader: Gauge,
    registry: Registry,
}

/// The operator's numbers.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("bridge");
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The running program", Info::new(version));
        let by_state = Family::<JobLabels, Gauge>::default();
        registry.register("jobs", "BridgeJobs by status and manager", by_state.clone());
        let reconcile = Histogram::new(exponential_buckets(0.002, 2.5, 10));
        registry.register("reconcile_duration_seconds", "Time of one pass over a BridgeJob", reconcile.clone());
        let errors = Family::<ErrorLabels, Counter>::default();
        registry.register("reconcile_errors", "Passes that failed, by category", errors.clone());
        let pods = Counter::default();
        registry.register("pods_made", "Controller pods made", pods.clone());
        let requests = Family::<ManagerLabels, Counter>::default();
        registry.register("remote_requests", "Requests of workers to remote systems", requests.clone());
        let submissions = Family::<ManagerLabels, Counter>::default();
        registry.register("submissions", "Submissions sent by workers", submissions.clone());
        let prevented = Family::<ManagerLabels, Counter>::default();
        registry.register("duplicates_prevented", "Submissions that a look made unnecessary", prevented.clone());
        let leader = Gauge::default();
        registry.register("leader", "1 while this instance acts", leader.clone());
        Self(Arc::new(Inner {
            jobs: Mutex::default(),
            by_state,
            reconcile,
            errors,
            pods,
            requests,
            submissions,
            prevented,
            leader,
            registry,
        }))
    }

    /// One pass took this long.
    pub fn reconciled(&self, took: Duration) {
        self.0.reconcile.observe(took.as_secs_f64());
    }

    /// One pass failed.
    pub fn failed(&self, category: &'static str) {
        self.0.errors.get_or_create(&ErrorLabels { category }).inc();
    }

    /// A pod was made.
    pub fn pod_made(&self) {
        self.0.pods.inc();
    }

    /// Whether this instance acts.
    pub fn set_leader(&self, leads: bool) {
        self.0.leader.set(leads.into());
    }

    /// Where a job stands, and what its worker has counted. What was counted before this process first saw the job is
    /// left out: an earlier process has shown it.
    pub fn job(
        &self,
        key: Key,
        status: Option<JobStatus>,
        manager: Option<ResourceManager>,
        counted: Option<Counters>,
    ) {
        let mut jobs = self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = jobs.get(&key).map(|job| job.counted);
        let base = known.or(counted).unwrap_or_default();
        let now = counted.unwrap_or(base);
        let labels = ManagerLabels { manager: word(manager) };
        for (family, before, after) in [
            (&self.0.requests, base.requests, now.requests),
            (&self.0.submissions, base.submissions, now.submissions),
            (&self.0.prevented, base.duplicates_prevented, now.duplicates_prevented),
        ] {
            if after > before {
                family.get_or_create(&labels).inc_by(after - before);
            }
        }
        jobs.insert(key, JobNumbers { status, manager, counted: now });
    }

    /// A job is gone.
    pub fn forget(&self, key: &Key) {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// The numbers as text; jobs that are no longer `there` are forgotten.
    #[must_use]
    pub fn text(&self, there: impl Fn(&Key) -> bool) -> String {
        {
            let mut jobs = self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.retain(|key, _| there(key));
            self.0.by_state.clear();
            for job in jobs.values() {
                let status = job.status.map_or("NONE", JobStatus::as_str);
                self.0.by_state.get_or_create(&JobLabels { status, manager: word(job.manager) }).inc();
            }
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode(&mut text, &self.0.registry);
        text
    }
}

fn word(manager: Option<ResourceManager>) -> &'static str {
    manager.map_or("other", ResourceManager::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(requests: u64) -> Counters {
        Counters { requests, submissions: 1, duplicates_prevented: 0 }
    }

    #[test]
    fn what_workers_counted_is_added_once() {
        let metrics = Metrics::new();
        let key = || ("ns".to_owned(), "a".to_owned());
        let slurm = Some(ResourceManager::Slurm);
        metrics.job(key(), Some(JobStatus::Running), slurm, None);
        metrics.job(key(), Some(JobStatus::Running), slurm, Some(counters(3)));
        metrics.job(key(), Some(JobStatus::Running), slurm, Some(counters(5)));
        metrics.job(("ns".to_owned(), "old".to_owned()), Some(JobStatus::Done), slurm, Some(counters(900)));
        let text = metrics.text(|_| true);
        assert!(text.contains(r#"bridge_remote_requests_total{manager="slurm"} 5"#), "{text}");
        assert!(text.contains(r#"bridge_jobs{status="RUNNING",manager="slurm"} 1"#), "{text}");
        let text = metrics.text(|key| key.1 != "a");
        assert!(!text.contains("RUNNING"), "{text}");
    }
}
