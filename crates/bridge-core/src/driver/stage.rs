//! Data on its way, in a task that outlives the call that began it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::ids::{JobKey, RemoteId, SubmitToken};
use crate::manager::{Outcome, ResourceManager};
use crate::plan::{JobPlan, Submission};
use crate::staging::{Output, Progress, Staging, StagingError};

/// What a stage came to.
#[derive(Debug)]
pub(super) enum Staged {
    In(Result<Submission, StagingError>),
    Out(RemoteId, Result<Vec<Output>, StagingError>),
}

/// What waiting for a stage came to.
#[derive(Debug)]
pub(super) enum Waited {
    Over(Staged),
    GoesOn(Progress),
}

/// A stage under way; it ends when this is dropped.
pub(super) struct Stage {
    /// Whose data, and which way; another stage is another errand.
    errand: (SubmitToken, Option<RemoteId>),
    key: JobKey,
    staging: Arc<dyn Staging>,
    task: JoinHandle<Staged>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("errand", &self.errand).finish_non_exhaustive()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stage {
    /// Goes on with bringing the data, or begins.
    pub(super) fn bring(
        begun: Option<Self>,
        token: SubmitToken,
        plan: &Arc<JobPlan>,
        manager: &Arc<dyn ResourceManager>,
        staging: &Arc<dyn Staging>,
    ) -> Self {
        let errand = (token.clone(), None);
        Self::go_on(begun, errand, &plan.key, staging, {
            let (plan, manager, staging) = (Arc::clone(plan), Arc::clone(manager), Arc::clone(staging));
            async move { Staged::In(staging.stage_in(&plan, &token, &*manager).await) }
        })
    }

    /// Goes on with sending the outputs, or begins.
    pub(super) fn take(
        begun: Option<Self>,
        (token, id, outcome): (SubmitToken, RemoteId, Outcome),
        plan: &Arc<JobPlan>,
        manager: &Arc<dyn ResourceManager>,
        staging: &Arc<dyn Staging>,
    ) -> Self {
        let errand = (token.clone(), Some(id.clone()));
        Self::go_on(begun, errand, &plan.key, staging, {
            let (plan, manager, staging) = (Arc::clone(plan), Arc::clone(manager), Arc::clone(staging));
            async move {
                let sent = staging.stage_out(&plan, &token, &id, &outcome, &*manager).await;
                Staged::Out(id, sent)
            }
        })
    }

    fn go_on(
        begun: Option<Self>,
        errand: (SubmitToken, Option<RemoteId>),
        key: &JobKey,
        staging: &Arc<dyn Staging>,
        work: impl Future<Output = Staged> + Send + 'static,
    ) -> Self {
        match begun.filter(|stage| stage.errand == errand) {
            Some(stage) => stage,
            None => Self { errand, key: key.clone(), staging: Arc::clone(staging), task: tokio::spawn(work) },
        }
    }

    /// Its end, or how far it is if that takes longer than `patience`.
    pub(super) async fn wait(&mut self, patience: Duration) -> Waited {
        loop {
            match tokio::time::timeout(patience, &mut self.task).await {
                Ok(Ok(staged)) => return Waited::Over(staged),
                Ok(Err(lost)) => {
                    let error = StagingError::passing(format!("moving its data broke off: {lost}"));
                    return Waited::Over(match &self.errand.1 {
                        None => Staged::In(Err(error)),
                        Some(id) => Staged::Out(id.clone(), Err(error)),
                    });
                }
                Err(_) => {
                    if let Some(progress) = self.staging.progress(&self.key) {
                        return Waited::GoesOn(progress);
                    }
                }
            }
        }
    }
}
