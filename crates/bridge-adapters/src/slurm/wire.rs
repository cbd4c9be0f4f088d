//! What slurmrestd says and wants to hear, and how that differs between its API versions.
//!
//! Answers of all versions are read by one set of types: a number may come bare, boxed, as text or as null, a state as
//! a word or as a list of words. Fields that are not needed are skipped without being stored.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::flexible::list_or_nothing;
pub(super) use super::flexible::{Number, Text, Words};

/// A version of slurmrestd's API, `v0.0.<number>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion(u16);

impl ApiVersion {
    /// The oldest version that is spoken.
    pub const OLDEST: Self = Self(36);
    /// The newest version that is spoken.
    pub const NEWEST: Self = Self(45);

    /// Reads `v0.0.38`. Versions that are not spoken are read, too; see [`is_spoken`](Self::is_spoken).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("v0.0.")?.parse().ok().map(Self)
    }

    /// Whether this version is spoken.
    #[must_use]
    pub fn is_spoken(self) -> bool {
        (Self::OLDEST..=Self::NEWEST).contains(&self)
    }

    /// All versions that are spoken, the newest first.
    pub fn spoken() -> impl Iterator<Item = Self> {
        (Self::OLDEST.0..=Self::NEWEST.0).rev().map(Self)
    }

    /// The number after `v0.0.`.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// Numbers go boxed, lists as lists, the environment as `K=V`: the data parsers, since v0.0.39. Before them a
    /// description took the options of `sbatch`, and a field that it did not know was refused.
    #[must_use]
    pub fn has_data_parser(self) -> bool {
        self.0 >= 39
    }

    /// The script is a field of the job instead of standing beside it.
    #[must_use]
    pub fn script_in_job(self) -> bool {
        self.0 >= 41
    }

    /// A change of a job that does not repeat its name gives it another one.
    #[must_use]
    pub fn forgets_names(self) -> bool {
        self.0 <= 36
    }

    /// `GET /jobs/state/` may be there; an older server of the same API version lacks it.
    #[must_use]
    pub fn may_have_job_states(self) -> bool {
        self.0 >= 40
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v0.0.{}", self.0)
    }
}

/// One entry of `errors`; 22.05 uses three names for the number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ApiError {
    error: Text,
    description: Text,
    error_number: Number,
    error_code: Number,
    errno: Number,
}

impl ApiError {
    /// Slurm's number for it.
    #[must_use]
    pub(super) fn number(&self) -> Option<i64> {
        self.error_number.0.or(self.error_code.0).or(self.errno.0)
    }

    /// What it says.
    #[must_use]
    pub(super) fn text(&self) -> String {
        match (self.error.get(), self.description.get()) {
            (Some(error), Some(description)) if !description.contains(error) => format!("{description}: {error}"),
            (_, Some(text)) | (Some(text), None) => text.to_owned(),
            (None, None) => "no text".to_owned(),
        }
    }
}

/// What every answer has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Envelope {
    /// What went wrong.
    #[serde(deserialize_with = "list_or_nothing")]
    pub(super) errors: Vec<ApiError>,
    /// What was ignored or is odd.
    #[serde(deserialize_with = "list_or_nothing")]
    pub(super) warnings: Vec<ApiError>,
    /// Results of a cancellation, one per job.
    #[serde(deserialize_with = "list_or_nothing")]
    pub(super) status: Vec<KillStatus>,
    /// The id of a submitted job.
    pub(super) job_id: Number,
    /// What the site's submit filter tells the user.
    pub(super) job_submit_user_msg: Text,
}

/// One entry of a cancellation's `status`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct KillStatus {
    /// The error, code 0 if there is none.
    pub(super) error: KillError,
}

/// The error of one cancellation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct KillError {
    /// Slurm's number.
    pub(super) code: Number,
    /// Its text.
    pub(super) string: Text,
}

/// A job as slurmctld tells it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are Slurm's own")]
pub(super) struct JobInfo {
    pub(super) job_id: Number,
    pub(super) array_job_id: Number,
    pub(super) array_task_id: Number,
    pub(super) array_task_string: Text,
    pub(super) het_job_id: Number,
    pub(super) job_state: Words,
    pub(super) state_reason: Text,
    pub(super) state_description: Text,
    pub(super) exit_code: ExitCode,
    pub(super) comment: Text,
    pub(super) extra: Text,
    pub(super) name: Text,
    pub(super) user_name: Text,
    pub(super) user_id: Number,
    pub(super) partition: Text,
    pub(super) nodes: Text,
    pub(super) batch_host: Text,
    pub(super) submit_time: Number,
    pub(super) eligible_time: Number,
    pub(super) start_time: Number,
    pub(super) end_time: Number,
    pub(super) restart_cnt: Number,
    pub(super) standard_output: Text,
    pub(super) standard_error: Text,
    pub(super) stdout_expanded: Text,
    pub(super) stderr_expanded: Text,
    pub(super) current_working_directory: Text,
}

impl JobInfo {
    /// The id under which it was submitted: an array's tasks and a heterogeneous job's parts have ids of their own.
    #[must_use]
    pub(super) fn root(&self) -> Option<i64> {
        self.array_job_id.positive().or_else(|| self.het_job_id.positive()).or_else(|| self.job_id.positive())
    }
}

/// An exit code: a wait status (to v0.0.38), or taken apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExitCode {
    /// The code, if it ended by itself.
    pub(super) code: Option<i32>,
    /// The signal, if it was ended by one.
    pub(super) signal: Option<i32>,
}

impl ExitCode {
    /// From what `wait` returns.
    #[must_use]
    pub(super) fn from_wait_status(status: i64) -> Self {
        let small = |number: i64| i32::try_from(number).ok();
        if !(0..=0xffff).contains(&status) {
            // "Not set" is written as a number near 2^32.
            return Self::default();
        }
        match (status >> 8, status & 0x7f) {
            (code, 0) => Self { code: small(code), signal: None },
            (_, signal) => Self { code: None, signal: small(signal) },
        }
    }
}

impl<'de> Deserialize<'de> for ExitCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Forms {
            Apart(Apart),
            Other(Number),
        }
        #[derive(Deserialize)]
        struct Apart {
            return_code: Number,
            #[serde(default)]
            signal: Signal,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Signal {
            id: Number,
            signal_id: Number,
        }
        Ok(match Forms::deserialize(deserializer)? {
            Forms::Apart(Apart { return_code, signal }) => {
                let small = |number: Number| number.0.and_then(|number| i32::try_from(number).ok());
                let signal = small(signal.id).or_else(|| small(signal.signal_id)).filter(|signal| *signal > 0);
                Self { code: if signal.is_some() { None } else { small(return_code) }, signal }
            }
            Forms::Other(Number(Some(status))) => Self::from_wait_status(status),
            Forms::Other(Number(None)) => Self::default(),
        })
    }
}

/// `GET /jobs/state/`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobStates {
    /// One entry per job or array task.
    #[serde(deserialize_with = "list_or_nothing")]
    pub(super) jobs: Vec<JobState>,
}

/// The state of one job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobState {
    /// `12`, or `14_0` for a task of an array whose own id is 14.
    pub(super) job_id: Text,
    /// Its state and flags.
    pub(super) state: Words,
}

/// A job as slurmdbd tells it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AccountedJob {
    job_id: Number,
    array: AccountedArray,
    het: AccountedArray,
    comment: AccountedComment,
    extra: Text,
    name: Text,
    user: Text,
    partition: Text,
    nodes: Text,
    state: AccountedState,
    exit_code: ExitCode,
    time: AccountedTime,
    stdout_expanded: Text,
    stderr_expanded: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AccountedArray {
    job_id: Number,
    task_id: Number,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AccountedComment {
    job: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AccountedState {
    current: Words,
    reason: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AccountedTime {
    submission: Number,
    eligible: Number,
    start: Number,
    end: Number,
}

impl From<AccountedJob> for JobInfo {
    fn from(job: AccountedJob) -> Self {
        Self {
            job_id: job.job_id,
            array_job_id: job.array.job_id,
            array_task_id: job.array.task_id,
            het_job_id: job.het.job_id,
            job_state: job.state.current,
            state_reason: job.state.reason,
            exit_code: job.exit_code,
            comment: job.comment.job,
            extra: job.extra,
            name: job.name,
            user_name: job.user,
            partition: job.partition,
            nodes: job.nodes,
            submit_time: job.time.submission,
            eligible_time: job.time.eligible,
            start_time: job.time.start,
            end_time: job.time.end,
            stdout_expanded: job.stdout_expanded,
            stderr_expanded: job.stderr_expanded,
            ..Self::default()
        }
    }
}

/// One entry of `GET /slurmdb/…/job/{id}`. One that cannot be read hides no other.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct AccountedEntry(Value);

impl From<AccountedEntry> for Option<JobInfo> {
    fn from(entry: AccountedEntry) -> Self {
        serde_json::from_value::<AccountedJob>(entry.0).ok().map(JobInfo::from)
    }
}

/// `GET /openapi/v3`, of which only the paths matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpenApi {
    #[serde(deserialize_with = "keys_only")]
    paths: std::collections::BTreeSet<String>,
}

/// The keys of a map, its values skipped.
fn keys_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<std::collections::BTreeSet<String>, D::Error> {
    struct Keys;
    impl<'de> serde::de::Visitor<'de> for Keys {
        type Value = std::collections::BTreeSet<String>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut keys = Self::Value::new();
            while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                keys.insert(key);
            }
            Ok(keys)
        }
    }
    deserializer.deserialize_map(Keys)
}

impl OpenApi {
    /// The API versions that the server offers.
    #[must_use]
    pub(super) fn versions(&self) -> std::collections::BTreeSet<ApiVersion> {
        let version = |path: &String| ApiVersion::parse(path.split('/').skip_while(|part| *part != "slurm").nth(1)?);
        self.paths.iter().filter_map(version).collect()
    }

    /// Whether the server has addresses for accounting, in whatever version.
    #[must_use]
    pub(super) fn has_accounting(&self) -> bool {
        self.paths.iter().any(|path| path.split('/').any(|part| part == "slurmdb"))
    }
}

/// `GET /partitions`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Partitions {
    /// All partitions.
    #[serde(deserialize_with = "list_or_nothing")]
    pub(super) partitions: Vec<Partition>,
}

/// A partition; its nodes come as a text or inside an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Partition {
    /// Its name.
    pub(super) name: Text,
    nodes: Value,
    total_nodes: Number,
    total_cpus: Number,
    cpus: Value,
}

impl Partition {
    /// The names of its nodes, as a host list.
    #[must_use]
    pub(super) fn node_names(&self) -> &str {
        self.nodes.as_str().or_else(|| self.nodes.get("configured")?.as_str()).unwrap_or_default()
    }

    /// How many nodes it has.
    #[must_use]
    pub(super) fn total_nodes(&self) -> u64 {
        unsigned(self.total_nodes).or_else(|| self.nodes.get("total")?.as_u64()).unwrap_or_default()
    }

    /// How many CPUs it has.
    #[must_use]
    pub(super) fn total_cpus(&self) -> u64 {
        unsigned(self.total_cpus).or_else(|| self.cpus.get("total")?.as_u64()).unwrap_or_default()
    }
}

/// `GET /nodes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Nodes {
    /// All nodes.
    #[serde(deserialize_with = "list_or_nothing")]
    pub(super) nodes: Vec<Node>,
}

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    /// Its name.
    pub(super) name: Text,
    /// Its state and flags.
    pub(super) state: Words,
    /// Where v0.0.37 and v0.0.38 put the flags.
    pub(super) state_flags: Words,
    /// The partitions it is in; not told by v0.0.36.
    pub(super) partitions: Words,
    /// Its CPUs.
    pub(super) cpus: Number,
    /// CPUs in use; not told by v0.0.36.
    pub(super) alloc_cpus: Number,
}

fn unsigned(number: Number) -> Option<u64> {
    number.0.and_then(|number| u64::try_from(number).ok())
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
