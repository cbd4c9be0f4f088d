//! The lab's Ray.

use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use super::{LabError, Values};

/// A Ray cluster whose API asks for a token.
#[derive(Clone, Debug)]
pub struct Ray {
    /// Of its dashboard and its jobs API.
    pub url: Url,
    /// What it wants as `Authorization: Bearer`.
    pub token: SecretString,
    /// Of the user that its jobs run as, at the same path for them.
    pub home: PathBuf,
}

impl Ray {
    pub(super) fn new(values: &Values) -> Result<Self, LabError> {
        Ok(Self {
            url: values.parse("BRIDGE_LAB_RAY_URL")?,
            token: SecretString::from(values.get("BRIDGE_LAB_RAY_TOKEN")?),
            home: PathBuf::from(values.get("BRIDGE_LAB_RAY_HOME")?),
        })
    }
}
