//! The Ray Jobs REST API as it is on the wire. See `testdata/` for what a real Ray sent.

use std::collections::BTreeMap;

use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The body of `POST /api/jobs/`. A field that Ray does not know is an error to it, so none is sent without need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SubmitRequest {
    pub(super) entrypoint: String,
    pub(super) submission_id: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) runtime_env: Map<String, Value>,
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) resources: Resources,
}

/// What the entrypoint itself needs, beside what its tasks and actors ask for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Resources {
    #[serde(rename = "entrypoint_num_cpus", skip_serializing_if = "Option::is_none")]
    pub(super) cpus: Option<serde_json::Number>,
    #[serde(rename = "entrypoint_num_gpus", skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<serde_json::Number>,
    #[serde(rename = "entrypoint_memory", skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<u64>,
    #[serde(rename = "entrypoint_resources", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) custom: BTreeMap<String, serde_json::Number>,
    #[serde(rename = "entrypoint_label_selector", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
}

/// The answer to `POST /api/jobs/`.
#[derive(Debug, Deserialize)]
pub(super) struct SubmitAnswer {
    pub(super) submission_id: String,
}

/// The answer to `POST /api/jobs/<id>/stop`.
#[derive(Debug, Deserialize)]
pub(super) struct StopAnswer {
    pub(super) stopped: bool,
}

/// One job, as `GET /api/jobs/<id>` and the list tell it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct JobDetails {
    /// Absent for drivers that were not submitted as jobs.
    pub(super) submission_id: Option<String>,
    pub(super) status: String,
    #[serde(default, deserialize_with = "excerpt")]
    pub(super) message: String,
    #[serde(default)]
    pub(super) error_type: Option<String>,
    /// Milliseconds; the moment Ray took the job, also when it waits for hours.
    #[serde(default)]
    pub(super) start_time: Option<i64>,
    #[serde(default)]
    pub(super) end_time: Option<i64>,
    #[serde(default)]
    pub(super) driver_agent_http_address: Option<String>,
    #[serde(default)]
    pub(super) driver_exit_code: Option<i32>,
    #[serde(default)]
    pub(super) metadata: Option<Marks>,
}

/// What we have put into a job's `metadata` and want to know again; the rest may be large and is the user's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Marks {
    /// What [`super::map`] has put there in jobs that move their own data.
    #[serde(default)]
    pub(super) bridge_data: Option<Value>,
}

/// The answer to `GET /api/version`.
#[derive(Debug, Deserialize)]
pub(super) struct Version {
    /// `session_2026-11-15_07-53-11_379766_9750`: when the head was started, in its own time zone.
    #[serde(default)]
    pub(super) session_name: String,
}

/// The answer to `GET /timezone`.
#[derive(Debug, Deserialize)]
pub(super) struct TimeZone {
    /// `+00:00`
    pub(super) offset: String,
}

/// The answer to `GET /api/cluster_status`.
#[derive(Debug, Deserialize)]
pub(super) struct ClusterStatus {
    pub(super) data: ClusterData,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterData {
    pub(super) cluster_status: Option<ClusterReport>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterReport {
    pub(super) load_metrics_report: LoadReport,
}

/// Each pair is what is used and what there is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoadReport {
    pub(super) usage: BTreeMap<String, (f64, f64)>,
    /// What waits: the resources wanted, and how many tasks or actors want them.
    #[serde(default)]
    pub(super) resource_demand: Vec<(BTreeMap<String, f64>, u64)>,
    #[serde(default)]
    pub(super) usage_by_node: BTreeMap<String, BTreeMap<String, (f64, f64)>>,
}

/// The most characters of a message that are kept: Ray puts up to 20,000 characters of output into it, for each job.
const LONGEST_MESSAGE: usize = 3_000;

/// A text's beginning and end, within a bound.
fn excerpt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(shorten(&text, LONGEST_MESSAGE))
}

/// The beginning and the end of a text that is longer than the bound.
pub(super) fn shorten(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(longest / 4);
    let tail = text.ceil_char_boundary(text.len() - (longest - longest / 4));
    format!("{} … {}", &text[..head], &text[tail..])
}

/// Reads a list of all jobs and keeps the wanted ones, so that a cluster full of others' jobs costs no memory.
pub(super) fn read_list(body: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Listed, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let listed = Keep(wanted).deserialize(&mut reader)?;
    reader.end()?;
    Ok(listed)
}

/// What a list holds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Listed {
    pub(super) jobs: Vec<JobDetails>,
    /// How many jobs there were, others' included.
    pub(super) total: usize,
}

struct Keep<W>(W);

impl<'de, W: Fn(&str) -> bool> DeserializeSeed<'de> for Keep<W> {
    type Value = Listed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Listed, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, W: Fn(&str) -> bool> Visitor<'de> for Keep<W> {
    type Value = Listed;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of jobs")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut jobs: S) -> Result<Listed, S::Error> {
        let mut listed = Listed::default();
        while let Some(job) = jobs.next_element::<JobDetails>()? {
            listed.total += 1;
            if job.submission_id.as_deref().is_some_and(&self.0) {
                listed.jobs.push(job);
            }
        }
        Ok(listed)
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
