//! What the adapter of one Ray cluster must be told.

use std::time::Duration;

/// Where a Ray cluster is, and the bounds of what is asked of it.
#[derive(Debug, Clone)]
pub struct Config {
    /// `resourceURL`: the dashboard's address, such as `http://ray-head:8265`; a path before `/api` is kept.
    pub url: String,
    /// How long one request may take.
    pub timeout: Duration,
    /// How long the upload of a large package may take.
    pub upload_timeout: Duration,
    /// How long a look at the log waits for new output before it says that there is none.
    pub log_wait: Duration,
    /// The most bytes of script and inputs of one job.
    pub package_bytes: usize,
    /// The most bytes of inputs of all jobs that are not submitted yet.
    pub staged_bytes: usize,
    /// The most logs that are followed at the same time; a further one takes the place of the one idle longest.
    pub followed_logs: usize,
}

impl Config {
    /// Usual bounds.
    pub fn new(url: impl Into<String>) -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            url: url.into(),
            // Within the time in which a submission may be sent at all.
            timeout: Duration::from_secs(20),
            upload_timeout: Duration::from_mins(1),
            log_wait: Duration::from_secs(1),
            // Ray's dashboard takes 100 MiB.
            package_bytes: 32 * MIB,
            staged_bytes: 64 * MIB,
            followed_logs: 64,
        }
    }
}
