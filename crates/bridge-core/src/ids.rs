//! Names of jobs: ours, the remote system's, and the token that ties the two together.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A job's id on the remote system, as the remote system writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RemoteId(String);

impl RemoteId {
    /// Takes the id as the remote system gave it.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RemoteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The mark that a submission carries on the remote system, so that it can be found again after a lost reply.
///
/// One attempt of one object has exactly one token, whoever computes it and however often.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubmitToken(String);

impl SubmitToken {
    /// Derives the token from the object's UID (or a saved run id) and the attempt's number.
    #[must_use]
    pub fn derive(uid: &str, attempt: u32) -> Self {
        // Only characters that every manager takes in a name: Ray's submission_id, Slurm's comment, a quantum tag.
        let uid: String = uid.chars().filter(char::is_ascii_alphanumeric).collect();
        Self(format!("bridge-{}-{attempt}", uid.to_ascii_lowercase()))
    }

    /// The tokens of the attempts before this one, the latest first.
    pub fn earlier(&self) -> impl Iterator<Item = Self> {
        let (stem, attempt) = self.0.rsplit_once('-').unwrap_or((&self.0, ""));
        let attempt: u32 = attempt.parse().unwrap_or_default();
        (1..attempt).rev().map(move |attempt| Self(format!("{stem}-{attempt}")))
    }

    /// Reads a token that was found on a remote system.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (uid, attempt) = text.strip_prefix("bridge-")?.rsplit_once('-')?;
        let well_formed =
            !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric()) && attempt.parse::<u32>().is_ok();
        well_formed.then(|| Self(text.to_owned()))
    }

    /// The token's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SubmitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a job's record is kept: a namespace (empty outside Kubernetes) and a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// The namespace, or "" where there is none.
    pub namespace: String,
    /// The job's name.
    pub name: String,
}

impl JobKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_keeps_attempts_apart() {
        let first = SubmitToken::derive("7C1E-90ab", 1);
        assert_eq!(first.as_str(), "bridge-7c1e90ab-1");
        assert_eq!(SubmitToken::parse(first.as_str()), Some(first.clone()));
        assert_ne!(first, SubmitToken::derive("7C1E-90ab", 2));
        assert_eq!(first.earlier().count(), 0);
        let third = SubmitToken::derive("7C1E-90ab", 3);
        assert_eq!(third.earlier().collect::<Vec<_>>(), [SubmitToken::derive("7C1E-90ab", 2), first]);
        assert_eq!(SubmitToken::parse("bridge-x"), None);
        assert_eq!(SubmitToken::parse("my comment"), None);
    }
}
