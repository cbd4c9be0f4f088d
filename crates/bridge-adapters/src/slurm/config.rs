//! Where a Slurm cluster is and how it is talked to.

use std::path::PathBuf;
use std::time::Duration;

use super::wire::ApiVersion;

/// Where a Slurm cluster is and how it is talked to.
#[derive(Debug, Clone)]
pub struct SlurmConfig {
    /// `resourceURL`: of slurmrestd, with or without `/slurm/v0.0.<number>`.
    pub url: String,
    /// How long one request may take. slurmrestd answers after up to 20 seconds while slurmctld is down.
    pub timeout: Duration,
    /// How long the list of all jobs may take to begin, and each piece of it after the one before: slurmrestd sends the
    /// first byte when it has put the whole list together, which for a hundred thousand jobs takes a minute.
    pub listing_timeout: Duration,
    /// The most requests under way at the same time.
    pub requests_at_once: usize,
    /// How long accounting may show a job as not ended that slurmctld no longer knows, before the job counts as gone:
    /// slurmdbd works off what it missed in an outage, which may take hours.
    pub end_told_within: Duration,
    /// Folders that this process and the compute nodes share: output files below them can be shown.
    ///
    /// Empty by default, because the path of an output file is chosen by the job's author, who must not be able to
    /// read this process's own files with it.
    pub shared_folders: Vec<PathBuf>,
}

impl SlurmConfig {
    /// The usual settings for a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            timeout: Duration::from_secs(30),
            listing_timeout: Duration::from_mins(2),
            requests_at_once: 16,
            end_told_within: Duration::from_hours(6),
            shared_folders: Vec::new(),
        }
    }
}

/// A URL's part before `/slurm`, and the API version it names.
pub(super) fn split_url(url: &str) -> (String, Option<ApiVersion>) {
    let plain = url.split(['?', '#']).next().unwrap_or_default().trim().trim_end_matches('/');
    let (root, version) = match plain.rsplit_once('/') {
        Some((before, last)) => match ApiVersion::parse(last) {
            Some(version) => (before, Some(version)),
            None => (plain, None),
        },
        None => (plain, None),
    };
    let root = root.trim_end_matches('/');
    let root = root.strip_suffix("/slurm").or_else(|| root.strip_suffix("/slurmdb")).unwrap_or(root);
    (root.to_owned(), version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_name_the_version_or_not() {
        let version = ApiVersion::parse("v0.0.38");
        let table = [
            ("http://h:6820", "http://h:6820", None),
            ("http://h:6820/", "http://h:6820", None),
            ("http://h:6820/slurm", "http://h:6820", None),
            ("http://h:6820/slurm/v0.0.38", "http://h:6820", version),
            ("http://h:6820/slurm/v0.0.38/", "http://h:6820", version),
            ("https://gate/hpc/slurm/v0.0.38//", "https://gate/hpc", version),
            ("https://gate/hpc/slurmdb/v0.0.38", "https://gate/hpc", version),
            ("https://gate/slurm-one", "https://gate/slurm-one", None),
            ("https://gate/hpc/slurm/v0.0.99?x=1", "https://gate/hpc", ApiVersion::parse("v0.0.99")),
        ];
        for (url, root, version) in table {
            assert_eq!(split_url(url), (root.to_owned(), version), "{url}");
        }
    }
}
