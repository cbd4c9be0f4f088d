//! Where credentials come from. They are read when needed, never kept in a plan or a record.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

/// The keys of a Secret that remote systems use.
pub mod keys {
    /// The user's name on the remote system.
    pub const USERNAME: &str = "username";
    /// Its password; for Slurm the JWT.
    pub const PASSWORD: &str = "password";
    /// A bearer token.
    pub const TOKEN: &str = "token";
    /// PEM of the authorities that sign the remote system's certificate.
    pub const CA: &str = "ca.crt";
    /// Prefix of the URLs that may be sent this credential.
    pub const ALLOWED_URL: &str = "allowedURL";
    /// S3 access key.
    pub const ACCESS_KEY: &str = "accesskey";
    /// S3 secret key.
    pub const SECRET_KEY: &str = "secretkey";
    /// S3 session token.
    pub const SESSION_TOKEN: &str = "sessiontoken";
}

/// The content of one Secret.
#[derive(Clone, Default)]
pub struct Credentials {
    values: BTreeMap<String, SecretString>,
}

impl Credentials {
    /// From keys and values; white space around a value, such as the newline of a file, is dropped.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            values: pairs.into_iter().map(|(key, value)| (key, SecretString::from(value.trim().to_owned()))).collect(),
        }
    }

    /// The value of a key, unless it is absent or empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(ExposeSecret::expose_secret).filter(|value| !value.is_empty())
    }

    /// Whether two readings hold the same.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.values.len() == other.values.len()
            && self.values.iter().all(|(key, value)| {
                other.values.get(key).is_some_and(|theirs| theirs.expose_secret() == value.expose_secret())
            })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// Reads one Secret, again and again, because it may be rotated while a job runs.
#[async_trait]
pub trait CredentialSource: fmt::Debug + Send + Sync {
    /// The content now.
    async fn read(&self) -> Result<Credentials, CredentialError>;
}

/// Why a credential could not be read; never holds a part of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CredentialError(pub String);

/// Credentials that were given once: tests, and systems that need none.
#[derive(Debug, Clone, Default)]
pub struct StaticCredentials(pub Credentials);

#[async_trait]
impl CredentialSource for StaticCredentials {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        Ok(self.0.clone())
    }
}
