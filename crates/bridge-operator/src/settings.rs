//! What the person who installs the operator decides.

use std::net::SocketAddr;
use std::time::Duration;

use bridge_core::plan::ImagePattern;

/// The operator's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespaces to watch; all if empty.
    pub namespaces: Vec<String>,
    /// Image of our worker: the operator's own.
    pub worker_image: String,
    /// Images that are replaced by our worker.
    pub replace_image: Vec<ImagePattern>,
    /// How many jobs are worked on at a time.
    pub concurrency: u16,
    /// Where health and metrics are served.
    pub listen: SocketAddr,
    /// The Lease that keeps two operators from working at once; none for a single one.
    pub lease: Option<LeaseSettings>,
}

/// The Lease of the acting operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are: the pod's name.
    pub identity: String,
    /// How long a leader that fell silent still counts as one.
    pub duration: Duration,
}
