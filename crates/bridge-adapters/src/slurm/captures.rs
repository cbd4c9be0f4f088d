//! Recorded answers of real servers, for tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::http::Answer;

/// One recorded request and its answer.
#[derive(Debug, Deserialize)]
pub(super) struct Capture {
    pub(super) request: Request,
    pub(super) status: u16,
    pub(super) seconds: f64,
    pub(super) body: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
}

impl Capture {
    /// The answer as it came over the wire.
    pub(super) fn answer(&self) -> Answer {
        let body = match &self.body {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Answer::recorded(self.status, body)
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// All captures: by server and API version, by name.
pub(super) fn all() -> &'static BTreeMap<&'static str, BTreeMap<String, Capture>> {
    static ALL: LazyLock<BTreeMap<&'static str, BTreeMap<String, Capture>>> = LazyLock::new(load);
    &ALL
}

fn load() -> BTreeMap<&'static str, BTreeMap<String, Capture>> {
    macro_rules! files {
        ($($name:literal),*) => {
            [$(($name, include_str!(concat!("testdata/", $name, ".json")))),*]
        };
    }
    files!(
        "22.05-v0.0.36",
        "22.05-v0.0.38",
        "22.05-v0.0.38-slurmdbd",
        "24.11-v0.0.40",
        "24.11-v0.0.42",
        "24.11-v0.0.42-slurmdbd",
        "26.05-v0.0.45"
    )
    .into_iter()
    .map(|(name, text)| (name, serde_json::from_str(text).unwrap()))
    .collect()
}
