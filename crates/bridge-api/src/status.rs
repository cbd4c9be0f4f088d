//! The status of a `BridgeJob`: what is known about the remote job.

#![allow(unreachable_pub, reason = "`KubeSchema` copies each struct, with its `pub`, into a function")]
#![allow(clippy::doc_markdown, reason = "these comments are what `kubectl explain` shows")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ResourceManager;
use crate::schema::{self, MAX_MESSAGE};

/// What is known about the remote job; written by the operator alone.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BridgeJobStatus {
    /// The state in the form that `kubectl wait` understands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// SUBMITTED, PENDING, RUNNING or SUSPENDED, and in the end one of DONE, FAILED, KILLED and UNKNOWN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<JobStatus>")]
    pub jobstatus: Option<JobStatus>,

    /// What happens, or why the job ended so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<MAX_MESSAGE>")]
    pub message: Option<String>,

    /// One word for machines: why the job is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<256>")]
    pub reason: Option<String>,

    /// When the job was first submitted (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub submittime: Option<Time>,

    /// When the job started to run, as the remote system says (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub starttime: Option<Time>,

    /// When the job ended, as the remote system says (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completiontime: Option<Time>,

    /// Id of the job in the remote system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<512>")]
    pub jobid: Option<String>,

    /// The resource manager that runs the job; absent for images of your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<ResourceManager>")]
    pub manager: Option<ResourceManager>,

    /// Queue or partition the job is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<512>")]
    pub queue: Option<String>,

    /// How many attempts were made, the current one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int::<0>")]
    pub attempts: Option<u32>,

    /// Exit code of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::exit_code")]
    pub exitcode: Option<i32>,

    /// Node or nodes the job runs or ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<1024>")]
    pub node: Option<String>,

    /// Where the remote system keeps the standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<4096>")]
    pub stdout: Option<String>,

    /// Where the remote system keeps the standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<4096>")]
    pub stderr: Option<String>,

    /// Objects that were uploaded, the first 64 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::outputs")]
    pub outputs: Vec<Output>,

    /// How many objects were uploaded.
    #[serde(rename = "outputsTotal", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int::<0>")]
    pub outputs_total: Option<u32>,

    /// The `metadata.generation` this status was computed from.
    #[serde(rename = "observedGeneration", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::long::<0>")]
    pub observed_generation: Option<i64>,

    /// Written before the job's ConfigMap is first made: from then on the job may have been submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<Handover>")]
    pub handover: Option<Handover>,

    /// What a controller pod of one's own wrote last as its status, in both spellings of the key.
    #[serde(rename = "podWords", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<PodWords>")]
    pub pod_words: Option<PodWords>,

    /// Sequence number of the worker's record that this status mirrors; only a larger one changes it.
    #[serde(rename = "recordSeq", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::long::<0>")]
    pub record_seq: Option<i64>,
}

/// The state of a job in one word.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// Handed to the remote system, or about to be.
    Submitted,
    /// Waits in the remote system's queue.
    Pending,
    /// Runs, or its outputs are being staged.
    Running,
    /// Held or stopped, by the user or by the remote system.
    Suspended,
    /// Ended well.
    Done,
    /// Ended badly, or was never submitted because of an error.
    Failed,
    /// Ended by `kill`.
    Killed,
    /// Nobody can say any more.
    Unknown,
}

impl JobStatus {
    /// The four states that never change again.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Killed | Self::Unknown)
    }
}

/// The mark that a job may have been submitted.
#[derive(KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Handover {
    /// When the job was handed over (RFC 3339).
    #[schemars(schema_with = "schema::time")]
    pub time: Time,

    /// UID of the ConfigMap the job was handed over in, once it is known.
    #[serde(rename = "configMapUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<64>")]
    pub config_map_uid: Option<String>,

    /// Whether a pod of an image of one's own has the job; settings of the operator that change later do not matter.
    #[serde(default)]
    pub foreign: bool,
}

/// Two spellings of one key: the one that changed later counts.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct PodWords {
    /// Value of `status.jobStatus`.
    #[serde(default)]
    #[schemars(schema_with = "schema::text::<256>")]
    pub prefixed: String,

    /// Value of `jobStatus`.
    #[serde(default)]
    #[schemars(schema_with = "schema::text::<256>")]
    pub plain: String,

    /// Whether `jobStatus` changed later.
    #[serde(rename = "plainCounts", default)]
    pub plain_counts: bool,
}

/// An uploaded object.
#[derive(KubeSchema, Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Output {
    /// Key of the object in the bucket.
    #[schemars(schema_with = "schema::non_empty::<1024>")]
    pub name: String,

    /// Bucket the object is in.
    #[schemars(schema_with = "schema::non_empty::<255>")]
    pub bucket: String,

    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::long::<0>")]
    pub size: Option<u64>,

    /// Checksum with its algorithm, as in `sha256:9f86…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<256>")]
    pub checksum: Option<String>,
}
