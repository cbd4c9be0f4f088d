//! What a job sends, and under which names.

use bridge_core::manager::LogStream;
use bridge_core::plan::{ManagerKind, ObjectRef, UploadPlan};
use bridge_core::staging::{StagingError, glob};

use super::base_name;

pub(super) const SCRIPT: &str = "script";
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
pub(super) const LOGS: &str = "logs";
pub(super) const MANIFEST: &str = "manifest.json";
/// Where a carrying job tells what it sent; removed when it was read.
pub(super) const REPORT_FOLDER: &str = ".bridge";

/// The standard outputs of a manager's jobs, by their object names.
pub(super) fn standard_outputs(kind: ManagerKind) -> &'static [(&'static str, LogStream)] {
    match kind {
        // Ray mixes both, and existing pipelines look for this name.
        ManagerKind::Ray | ManagerKind::Quantum => &[(LOGS, LogStream::Stdout)],
        ManagerKind::Slurm | ManagerKind::Lsf | ManagerKind::Local => {
            &[(STDOUT, LogStream::Stdout), (STDERR, LogStream::Stderr)]
        }
    }
}

/// The object of an output.
pub(super) fn object(upload: &UploadPlan, name: &str) -> ObjectRef {
    ObjectRef { bucket: upload.bucket.clone(), key: format!("{}/{name}", upload.prefix) }
}

/// Refuses files whose objects would replace ours.
pub(super) fn check_names(upload: &UploadPlan) -> Result<(), StagingError> {
    let taken = |file: &&String| !glob::is_pattern(file) && is_ours(base_name(file));
    match upload.files.iter().find(taken) {
        None => Ok(()),
        Some(file) => Err(StagingError::lasting(format!(
            "spec.s3upload.files: {file:?} would be sent to {:?}, which has another meaning there; rename the file",
            format!("{}:{}/{}", upload.bucket, upload.prefix, base_name(file))
        ))),
    }
}

/// Whether a name among the outputs has a meaning.
pub(super) fn is_ours(name: &str) -> bool {
    [SCRIPT, STDOUT, STDERR, LOGS, MANIFEST, REPORT_FOLDER].contains(&name)
}
