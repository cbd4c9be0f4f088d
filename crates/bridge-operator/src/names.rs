//! Names of the objects that belong to a job.
//!
//! Controller pods of other people compute the first two themselves, so nothing here is ever shortened.

/// The job's `ConfigMap`: the contract between the operator and the controller pod.
#[must_use]
pub fn config_map(job: &str) -> String {
    format!("{job}-bridge-cm")
}

/// The controller pod.
#[must_use]
pub fn pod(job: &str) -> String {
    format!("{job}-bridge-pod")
}

/// Service account, Role and `RoleBinding` of the controller pod.
#[must_use]
pub fn access(job: &str) -> String {
    format!("{job}-bridge")
}

/// The one container of the controller pod. Not derived from the job: `<job>-bridge-cont` would pass 63 characters.
pub const CONTAINER: &str = "bridge";

/// Where the Secret with the credentials is mounted.
pub const CREDENTIALS: &str = "/credentials";
/// Where the Secret of the object store is mounted.
pub const S3_CREDENTIALS: &str = "/s3credentials";
/// A writable folder.
pub const DOWNLOADS: &str = "/downloads";
/// Another one.
pub const TMP: &str = "/tmp";

/// Environment of every controller pod, foreign ones included.
pub mod env {
    /// The namespace.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// The job's name.
    pub const JOB_NAME: &str = "JOBNAME";
    /// Ours only: who signs the record; no other pod ever has the same.
    pub const POD_UID: &str = "BRIDGE_POD_UID";
    /// Ours only: the `ConfigMap` this pod was made for.
    pub const CONFIG_MAP_UID: &str = "BRIDGE_CONFIG_MAP_UID";
    /// Ours only: seconds between SIGTERM and SIGKILL.
    pub const GRACE_SECONDS: &str = "BRIDGE_GRACE_SECONDS";
}
