//! The plan: everything that was decided about a job before anything is done.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{JobKey, SubmitToken};

/// Which kind of remote system.
pub use bridge_api::ResourceManager as ManagerKind;

/// A Secret by name; never its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretRef(pub String);

/// A remote system as one user sees it. Jobs with equal targets share a client and its polls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its kind.
    pub manager: ManagerKind,
    /// `resourceURL`, as the user wrote it.
    pub url: String,
    /// Where the credentials are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
}

/// Everything decided about a job; holds references to Secrets, never their content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobPlan {
    /// Where its record is.
    pub key: JobKey,
    /// The root of its tokens: the object's UID, or a saved run id.
    pub uid: String,
    /// The remote system.
    pub target: Target,
    /// Seconds between looks at the job.
    pub poll_seconds: u32,
    /// What is run.
    pub script: ScriptSource,
    /// `scriptmetadata`, given or to be fetched.
    pub metadata: TextSource,
    /// `jobparameters`, given or to be fetched.
    pub parameters: TextSource,
    /// Objects that are brought to the job.
    #[serde(default)]
    pub inputs: Vec<ObjectRef>,
    /// `jobproperties`, each value as written.
    #[serde(default)]
    pub properties: BTreeMap<String, Value>,
    /// The object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StoragePlan>,
    /// What is sent to the object store at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadPlan>,
    /// Remarks for the user, such as an image that was replaced by our worker.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Where the script comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScriptSource {
    /// Its text.
    Inline(String),
    /// Something that is there already: a path, an entrypoint, a program's name.
    Remote(String),
    /// An object.
    Object(ObjectRef),
}

/// A text that is given or fetched before the submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TextSource {
    /// The text; "" if there is none.
    Inline(String),
    /// An object.
    Object(ObjectRef),
}

/// `bucket:object/with/slashes`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The bucket.
    pub bucket: String,
    /// The object's key.
    pub key: String,
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.bucket, self.key)
    }
}

/// The object store of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoragePlan {
    /// Its credentials.
    pub secret: SecretRef,
    /// `host[:port]`.
    pub endpoint: String,
    /// https or http.
    pub secure: bool,
    /// The region to sign for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Bucket as a host name instead of a path.
    #[serde(default)]
    pub virtual_host: bool,
    /// `host[:port]` under which compute nodes reach the same store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_endpoint: Option<String>,
}

/// What is sent to the object store at the end, under `<bucket>/<prefix>/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadPlan {
    /// The bucket; made if it is not there.
    pub bucket: String,
    /// The job's name.
    pub prefix: String,
    /// Listed files.
    #[serde(default)]
    pub files: Vec<String>,
}

/// What an adapter is handed: all texts fetched, one attempt's token set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The mark it must carry on the remote system.
    pub token: SubmitToken,
    /// The BridgeJob's name; a job's name on the remote system where the user gave none.
    pub name: String,
    /// What is run.
    pub script: Script,
    /// `scriptmetadata`; "" if there is none.
    pub metadata: String,
    /// `jobparameters`; "" if there are none.
    pub parameters: String,
    /// `jobproperties`.
    pub properties: BTreeMap<String, Value>,
    /// Base names of the files that were put beside the job by [`Files::put`](crate::manager::Files::put).
    pub inputs: Vec<String>,
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// Its text.
    Text(String),
    /// Something that is there already.
    Remote(String),
}
