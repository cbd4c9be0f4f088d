//! The `BridgeJob` resource: what a user asks for.

#![allow(unreachable_pub, reason = "`KubeSchema` copies each struct, with its `pub`, into a function")]
#![allow(clippy::doc_markdown, reason = "these comments are what `kubectl explain` shows")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::schema::{MAX_SCRIPT, MAX_TEXT};
use crate::{BridgeJobStatus, JobProperties, rules, schema};

/// What the job is and where it runs.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "bridgejob.ibm.com",
    version = "v1alpha1",
    kind = "BridgeJob",
    plural = "bridgejobs",
    singular = "bridgejob",
    namespaced,
    status = "BridgeJobStatus",
    derive = "PartialEq",
    doc = "A job on a system outside of Kubernetes (Slurm, LSF, Ray, a quantum service), submitted, watched and ended from here.",
    shortname = "bj",
    shortname = "bjob",
    category = "all",
    category = "bridge",
    selectable = ".status.jobstatus",
    selectable = ".status.manager",
    validation = rules::NAME_LENGTH.rule(),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.jobstatus", description = "State of the job"),
    printcolumn(name = "Manager", type_ = "string", json_path = ".status.manager", description = "Resource manager that runs it"),
    printcolumn(name = "Job ID", type_ = "string", json_path = ".status.jobid", description = "Id in the resource manager"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.resourceURL", description = "The remote system", priority = 1),
    printcolumn(name = "Queue", type_ = "string", json_path = ".status.queue", description = "Queue or partition", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", description = "What happens or happened", priority = 1)
)]
#[x_kube(
    validation = rules::FIXED_RESOURCE_URL.rule(),
    validation = rules::FIXED_RESOURCE_SECRET.rule(),
    validation = rules::FIXED_IMAGE.rule(),
    validation = rules::FIXED_PULL_POLICY.rule(),
    validation = rules::FIXED_JOB_DATA.rule(),
    validation = rules::FIXED_S3_STORAGE.rule(),
    validation = rules::FIXED_S3_UPLOAD.rule(),
    validation = rules::FIXED_MANAGER.rule(),
    validation = rules::FIXED_POD_TEMPLATE.rule(),
    validation = rules::KILL_IS_FINAL.rule(),
    validation = rules::SECRET_NEEDED.rule(),
    validation = rules::SCRIPT_NEEDS_S3.rule(),
    validation = rules::EXTRA_NEEDS_S3.rule(),
    validation = rules::DATA_NEEDS_S3.rule(),
    validation = rules::UPLOAD_NEEDS_S3.rule()
)]
pub struct BridgeJobSpec {
    /// Address of the remote system's HTTP API.
    #[serde(rename = "resourceURL")]
    #[schemars(schema_with = "schema::non_empty::<2048>")]
    pub resource_url: String,

    /// Secret of this namespace with the credentials for `resourceURL`: keys `username` and `password`, or `token`;
    /// optional `ca.crt` and `allowedURL` (a URL prefix that the credentials may be sent to). Ray and local jobs may
    /// leave it out.
    #[serde(rename = "resourcesecret", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<253>")]
    pub resource_secret: Option<String>,

    /// The resource manager behind `resourceURL`: slurm, lsf, ray, quantum or local. Left out, it is found from the
    /// form of the URL, then from the name of the image.
    #[serde(rename = "resourceManager", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<ResourceManager>")]
    pub resource_manager: Option<ResourceManager>,

    /// Image of the controller pod. Left out, it is the operator's own worker; an image of your own gets the job in
    /// its ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<1024>")]
    pub image: Option<String>,

    /// When the image is pulled: Always, IfNotPresent or Never.
    #[serde(rename = "imagepullpolicy", default)]
    pub image_pull_policy: PullPolicy,

    /// Seconds between two looks at the remote job.
    #[serde(rename = "updateinterval", default = "default_update_interval")]
    #[schemars(schema_with = "schema::int::<1>")]
    pub update_interval: u32,

    /// `true` ends the remote job; it cannot be taken back. Set at creation, nothing is ever submitted.
    #[serde(default)]
    pub kill: bool,

    /// The script, its parameters and its data.
    #[serde(rename = "jobdata")]
    pub job_data: JobData,

    /// Properties for the resource manager (queue, tasks, names of the output files, …): JSON text of an object, or a
    /// map.
    #[serde(rename = "jobproperties", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::properties")]
    pub job_properties: Option<JobProperties>,

    /// The S3 store that inputs come from and outputs go to: all of it or none.
    #[serde(rename = "s3storage", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<S3Storage>")]
    pub s3_storage: Option<S3Storage>,

    /// What is uploaded to `s3storage` when the job has ended, under `<bucket>/<name of the BridgeJob>/`.
    #[serde(rename = "s3upload", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<S3Upload>")]
    pub s3_upload: Option<S3Upload>,

    /// `true` keeps the job from running. At creation nothing is made; a queued job is held where the manager can;
    /// otherwise it is cancelled, and queued again when this becomes `false`.
    #[serde(default)]
    pub suspend: bool,

    /// How often a job that FAILED is run again. KILLED, UNKNOWN, a refused submission and a deadline never are.
    #[serde(rename = "backoffLimit", default)]
    #[schemars(schema_with = "schema::int::<0>")]
    pub backoff_limit: u32,

    /// Seconds from the first submission, over all attempts, after which the job is ended as FAILED.
    #[serde(rename = "activeDeadlineSeconds", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int::<1>")]
    pub active_deadline_seconds: Option<u32>,

    /// Seconds after its end at which the BridgeJob is deleted, also if it was never submitted. Left out, it stays.
    #[serde(rename = "ttlSecondsAfterFinished", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int::<0>")]
    pub ttl_seconds_after_finished: Option<u32>,

    /// What deleting the BridgeJob does to a remote job that still runs: Cancel ends it first, Orphan leaves it.
    #[serde(rename = "deletionPolicy", default)]
    pub deletion_policy: DeletionPolicy,

    /// What the controller pod gets beyond the operator's defaults.
    #[serde(rename = "podTemplate", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::of::<PodTemplate>")]
    pub pod_template: Option<PodTemplate>,
}

fn default_update_interval() -> u32 {
    20
}

fn yes() -> bool {
    true
}

/// People write `cpu: 1`, the API server keeps it as a number, and the Kubernetes types take only text.
fn resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ResourceRequirements>, D::Error> {
    let Some(mut value) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    for amounts in ["requests", "limits"] {
        for (_, amount) in value.get_mut(amounts).and_then(Value::as_object_mut).into_iter().flatten() {
            if amount.is_number() {
                *amount = Value::String(amount.to_string());
            }
        }
    }
    serde_json::from_value(value).map(Some).map_err(D::Error::custom)
}

/// The script, its parameters and its data.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[x_kube(validation = rules::ONE_SCRIPT.rule(), validation = rules::TOTAL_SIZE.rule())]
pub struct JobData {
    /// The script: a path or name on the remote system, the text itself, or `bucket:object`, as `scriptlocation` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<MAX_SCRIPT>")]
    pub jobscript: Option<String>,

    /// Another spelling of `jobscript`; write one of them.
    #[serde(rename = "jobScript", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<MAX_SCRIPT>")]
    pub job_script: Option<String>,

    /// Where the script is: remote, inline or s3.
    #[serde(rename = "scriptlocation", default)]
    pub script_location: ScriptLocation,

    /// Where `scriptmetadata` and `jobparameters` are: inline or s3.
    #[serde(rename = "scriptextralocation", default)]
    pub script_extra_location: ExtraLocation,

    /// Data about the script (Ray: runtime environment, Quantum: the program's description), inline or `bucket:object`.
    #[serde(rename = "scriptmetadata", default)]
    #[schemars(schema_with = "schema::text::<MAX_TEXT>")]
    pub script_metadata: String,

    /// Parameters of the script, inline or `bucket:object`.
    #[serde(rename = "jobparameters", default)]
    #[schemars(schema_with = "schema::text::<MAX_TEXT>")]
    pub job_parameters: String,

    /// Files the job needs, comma separated `bucket:object`; `scriptextralocation` does not matter here.
    #[serde(rename = "additionaldata", default)]
    #[schemars(schema_with = "schema::text::<MAX_TEXT>")]
    pub additional_data: String,
}

/// Where a script is.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScriptLocation {
    /// On the remote system.
    #[default]
    Remote,
    /// In the field itself.
    Inline,
    /// In S3, as `bucket:object`.
    S3,
}

/// Where script metadata and parameters are.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExtraLocation {
    /// In the fields themselves.
    #[default]
    Inline,
    /// In S3, as `bucket:object`.
    S3,
}

/// An S3 store and how to reach it.
#[derive(KubeSchema, Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[x_kube(validation = rules::S3_COMPLETE.rule(), validation = rules::ENDPOINT_BARE.rule())]
pub struct S3Storage {
    /// Secret of this namespace with `accesskey` and `secretkey`; optional `sessiontoken` and `ca.crt`.
    #[serde(rename = "s3secret", default)]
    #[schemars(schema_with = "schema::text::<253>")]
    pub s3_secret: String,

    /// Bare `host[:port]`.
    #[serde(default)]
    #[schemars(schema_with = "schema::text::<512>")]
    pub endpoint: String,

    /// `true` is https, `false` is http.
    #[serde(default = "yes")]
    pub secure: bool,

    /// Region that requests are signed for. Left out, it is `us-east-1`, which other stores than AWS take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<64>")]
    pub region: Option<String>,

    /// How a bucket is named in requests: path (`https://host/bucket`) or virtual (`https://bucket.host`).
    #[serde(default)]
    pub addressing: Addressing,

    /// `host[:port]` under which compute nodes reach the same store; presigned URLs are signed for it. Left out, it is
    /// `endpoint`.
    #[serde(rename = "remoteEndpoint", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text::<512>")]
    pub remote_endpoint: Option<String>,
}

/// How a bucket is named in requests; the words are those of the AWS tools (`addressing_style`).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Addressing {
    /// `https://host/bucket`, which every store understands.
    #[default]
    Path,
    /// `https://bucket.host`, which AWS wants for new buckets.
    Virtual,
}

/// What is uploaded when the job has ended.
#[derive(KubeSchema, Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[x_kube(validation = rules::UPLOAD_BUCKET.rule())]
pub struct S3Upload {
    /// Bucket that outputs go to; made if it is missing.
    #[schemars(schema_with = "schema::text::<255>")]
    pub bucket: String,

    /// Files on the remote system to upload besides the standard outputs, comma separated.
    #[serde(default)]
    #[schemars(schema_with = "schema::text::<MAX_TEXT>")]
    pub files: String,
}

/// The systems that jobs run on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResourceManager {
    /// Slurm through slurmrestd.
    Slurm,
    /// IBM Spectrum LSF through its Application Center.
    Lsf,
    /// A Ray cluster through its job API.
    Ray,
    /// A quantum service.
    Quantum,
    /// This machine.
    Local,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
pub enum PullPolicy {
    /// Before every start.
    Always,
    /// Only if the node lacks it.
    #[default]
    IfNotPresent,
    /// Not at all.
    Never,
}

/// What deleting a `BridgeJob` does to its remote job.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The remote job is cancelled and its end awaited.
    #[default]
    Cancel,
    /// The remote job goes on, unwatched.
    Orphan,
}

/// What the controller pod gets beyond the operator's defaults.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PodTemplate {
    /// More labels of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,

    /// More annotations of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    pub annotations: BTreeMap<String, String>,

    /// Labels that the pod's node must have.
    #[serde(rename = "nodeSelector", default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of nodes that the pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// Requests and limits of the container, in place of the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "resources")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Secrets for pulling the image.
    #[serde(rename = "imagePullSecrets", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::image_pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Environment variables with literal values; not NAMESPACE, JOBNAME or BRIDGE_*.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::env")]
    pub env: Vec<EnvVar>,
}

/// An environment variable with a literal value.
#[derive(KubeSchema, Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[x_kube(validation = rules::ENV_RESERVED.rule())]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(schema_with = "schema::non_empty::<256>")]
    pub name: String,

    /// Its value.
    #[serde(default)]
    #[schemars(schema_with = "schema::text::<4096>")]
    pub value: String,
}
