//! What a `BridgeJob` means, whichever of the allowed ways it was written.

use serde_json::{Map, Value};

use crate::{BridgeJobSpec, JobData, PodTemplate, PropertiesError, PullPolicy, ResourceManager, S3Storage, S3Upload};

impl BridgeJobSpec {
    /// The script, in either spelling; empty if there is none.
    #[must_use]
    pub fn script(&self) -> &str {
        self.job_data.script()
    }

    /// `jobproperties` as a map, whichever way they were written.
    pub fn properties(&self) -> Result<Map<String, Value>, PropertiesError> {
        self.job_properties.as_ref().map_or_else(|| Ok(Map::new()), crate::JobProperties::parse)
    }

    /// The S3 store; one with empty names is none.
    #[must_use]
    pub fn s3(&self) -> Option<&S3Storage> {
        self.s3_storage.as_ref().filter(|s3| !s3.s3_secret.is_empty())
    }

    /// The upload; one without a bucket is none.
    #[must_use]
    pub fn upload(&self) -> Option<&S3Upload> {
        self.s3_upload.as_ref().filter(|upload| !upload.bucket.is_empty())
    }

    /// The Secret with credentials; an empty name is none.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        self.resource_secret.as_deref().filter(|name| !name.is_empty())
    }

    /// The image of the controller pod; an empty name is none.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref().filter(|name| !name.is_empty())
    }

    /// The pod template, or one that changes nothing.
    #[must_use]
    pub fn pod_template(&self) -> PodTemplate {
        self.pod_template.clone().unwrap_or_default()
    }
}

impl JobData {
    /// The script, in either spelling; empty if there is none.
    #[must_use]
    pub fn script(&self) -> &str {
        match (self.jobscript.as_deref(), self.job_script.as_deref()) {
            (Some(script), _) if !script.is_empty() => script,
            (_, other) => other.unwrap_or_default(),
        }
    }
}

impl ResourceManager {
    /// All of them, in the order they are listed to people.
    pub const ALL: [Self; 5] = [Self::Slurm, Self::Lsf, Self::Ray, Self::Quantum, Self::Local];

    /// The word in `resourceManager` and in `status.manager`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Lsf => "lsf",
            Self::Ray => "ray",
            Self::Quantum => "quantum",
            Self::Local => "local",
        }
    }

    /// Whether its jobs can do without `resourcesecret`.
    #[must_use]
    pub const fn works_without_secret(self) -> bool {
        matches!(self, Self::Ray | Self::Local)
    }
}

impl std::fmt::Display for ResourceManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ResourceManager {
    type Err = UnknownManager;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|manager| manager.as_str() == word).ok_or_else(|| UnknownManager(word.to_owned()))
    }
}

/// A word that names no resource manager.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown resource manager \"{0}\"; write one of: slurm, lsf, ray, quantum, local")]
pub struct UnknownManager(String);

impl PullPolicy {
    /// The word in a pod's `imagePullPolicy`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl crate::JobStatus {
    /// The word in `status.jobstatus`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Suspended => "SUSPENDED",
            Self::Done => "DONE",
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl std::fmt::Display for crate::JobStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl crate::ScriptLocation {
    /// The word in `scriptlocation`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Remote => "remote",
            Self::Inline => "inline",
            Self::S3 => "s3",
        }
    }
}

impl crate::ExtraLocation {
    /// The word in `scriptextralocation`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::S3 => "s3",
        }
    }
}

/// The entries of a comma separated list; spaces around a comma and empty entries mean nothing.
pub fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// `bucket:object`, as scripts, parameters and data in S3 are named.
#[must_use]
pub fn split_object(name: &str) -> Option<(&str, &str)> {
    let (bucket, key) = name.trim().split_once(':')?;
    let bucket_ok = !bucket.is_empty() && !bucket.contains(|c: char| c == '/' || c.is_whitespace());
    let key_ok = key.starts_with(|c: char| c != '/' && !c.is_whitespace());
    (bucket_ok && key_ok).then_some((bucket, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_any_spacing() {
        assert_eq!(split_list("a, b,c ,, d").collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(split_list(" ").count(), 0);
    }

    #[test]
    fn objects_have_a_bucket_and_a_key() {
        assert_eq!(split_object("mys3bucket:slurmbatch.sh"), Some(("mys3bucket", "slurmbatch.sh")));
        assert_eq!(split_object("b:dir/file:2"), Some(("b", "dir/file:2")));
        for other in ["/home/x", "plain", ":key", "bucket:", "https://host/x", "a b:c"] {
            assert_eq!(split_object(other), None, "{other}");
        }
    }

    #[test]
    fn words_are_those_of_serde() {
        for manager in ResourceManager::ALL {
            assert_eq!(serde_json::to_value(manager).unwrap(), manager.as_str());
            assert_eq!(manager.as_str().parse(), Ok(manager));
        }
    }
}
