//! Bringing data to a job before it starts and its results away after its end.

mod cargo;
pub mod glob;
mod progress;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::{JobKey, RemoteId, SubmitToken};
use crate::manager::{Outcome, ResourceManager};
use crate::plan::{JobPlan, Script, ScriptSource, Submission, TextSource};

pub use cargo::{Cargo, Incoming, Outgoing, OutgoingSource, SignedUrl};
pub use progress::Progress;

/// Moves a job's data. Both calls may be repeated after a crash.
#[async_trait]
pub trait Staging: Send + Sync {
    /// Fetches the texts, puts the inputs beside the job, and says what is to be submitted.
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        manager: &dyn ResourceManager,
    ) -> Result<Submission, StagingError>;

    /// Sends the outputs of an ended job.
    async fn stage_out(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        id: &RemoteId,
        outcome: &Outcome,
        manager: &dyn ResourceManager,
    ) -> Result<Vec<Output>, StagingError>;

    /// How far the stage that is under way for a job has come; `None` where that is not known.
    fn progress(&self, _key: &JobKey) -> Option<Progress> {
        None
    }
}

/// Whether data has to be moved at all; a job without any skips both stages.
#[must_use]
pub fn has_outputs(plan: &JobPlan) -> bool {
    plan.upload.is_some()
}

/// One file that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The bucket.
    pub bucket: String,
    /// The object's key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// `sha256:<hex>`.
    pub checksum: String,
}

/// Why data could not be moved.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StagingError {
    /// What happened, to which bucket and object, and what to do.
    pub message: String,
    /// Trying again cannot help.
    pub is_final: bool,
    /// What arrived all the same.
    pub sent: Vec<Output>,
}

impl StagingError {
    /// Trouble that may pass.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: false, sent: Vec::new() }
    }

    /// Trouble that stays.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: true, sent: Vec::new() }
    }
}

/// Staging for jobs that bring everything with them.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStaging;

#[async_trait]
impl Staging for NoStaging {
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        _manager: &dyn ResourceManager,
    ) -> Result<Submission, StagingError> {
        submission_without_objects(plan, token).ok_or_else(|| {
            StagingError::lasting(format!(
                "job {}: its data is in an object store, which this command cannot reach",
                plan.key
            ))
        })
    }

    async fn stage_out(
        &self,
        plan: &JobPlan,
        _token: &SubmitToken,
        _id: &RemoteId,
        _outcome: &Outcome,
        _manager: &dyn ResourceManager,
    ) -> Result<Vec<Output>, StagingError> {
        Err(StagingError::lasting(format!(
            "job {}: its outputs go to an object store, which this command cannot reach",
            plan.key
        )))
    }
}

/// The submission of a job none of whose parts lies in an object store.
#[must_use]
pub fn submission_without_objects(plan: &JobPlan, token: &SubmitToken) -> Option<Submission> {
    let script = match &plan.script {
        ScriptSource::Inline(text) => Script::Text(text.clone()),
        ScriptSource::Remote(path) => Script::Remote(path.clone()),
        ScriptSource::Object(_) => return None,
    };
    let (TextSource::Inline(metadata), TextSource::Inline(parameters)) = (&plan.metadata, &plan.parameters) else {
        return None;
    };
    plan.inputs.is_empty().then(|| Submission {
        token: token.clone(),
        name: plan.key.name.clone(),
        script,
        metadata: metadata.clone(),
        parameters: parameters.clone(),
        properties: plan.properties.clone(),
        inputs: Vec::new(),
    })
}
