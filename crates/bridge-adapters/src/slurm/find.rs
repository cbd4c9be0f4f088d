//! Looking for jobs by their tokens, with one list for all that are looked for at the same time.
//!
//! The list is that of the whole cluster. After an outage hundreds of jobs may be looked for, and none may be told of a
//! list that was asked for before its own question: the job may have arrived in between.

use std::collections::HashSet;
use std::sync::Mutex;

use bridge_core::ids::SubmitToken;
use bridge_core::manager::{ManagerError, Result};
use tokio::sync::oneshot;

use super::Slurm;
use super::client::lock;
use super::map::{carries, carries_any};
use super::wire::JobInfo;

const OPERATION: &str = "find";

/// The jobs of a list that carry a token; `None` if the server says that nothing has changed.
type Listed = Result<Option<Vec<JobInfo>>>;

/// What is looked for.
#[derive(Debug, Default)]
pub(super) struct Finds {
    /// For these the list has not been asked for yet.
    waiting: Mutex<Vec<Asked>>,
    /// Whoever has it asks for the list, for all that wait.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Asked {
    token: SubmitToken,
    answer: oneshot::Sender<Listed>,
}

impl Slurm {
    /// All jobs that carry the token now.
    pub(super) async fn carrying(&self, token: &SubmitToken) -> Listed {
        loop {
            let (answer, mut told) = oneshot::channel();
            lock(&self.finds.waiting).push(Asked { token: token.clone(), answer });
            let turn = tokio::select! {
                biased;
                answer = &mut told => match answer {
                    Ok(answer) => return answer,
                    // Whoever asked has given up.
                    Err(_) => continue,
                },
                turn = self.finds.turn.lock() => turn,
            };
            match told.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Closed) => continue,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let mut asked = std::mem::take(&mut *lock(&self.finds.waiting));
            asked.retain(|asked| !asked.answer.is_closed());
            let tokens: HashSet<SubmitToken> = asked.iter().map(|asked| asked.token.clone()).collect();
            let listed = self.api.jobs(OPERATION, move |job| carries_any(job, &tokens)).await;
            let listed = listed.map_err(|error| error.into_error(OPERATION));
            for Asked { token, answer } in asked {
                // Nobody may be waiting any more.
                let _ = answer.send(part(&listed, &token));
            }
            drop(turn);
            return listed.map(|jobs| jobs.map(|jobs| of(&jobs, token)));
        }
    }
}

fn part(listed: &Listed, token: &SubmitToken) -> Listed {
    match listed {
        Ok(jobs) => Ok(jobs.as_ref().map(|jobs| of(jobs, token))),
        Err(error) => {
            let mut same = ManagerError::new(error.manager, error.operation, error.kind, error.message.clone());
            same.retry_after = error.retry_after;
            Err(same)
        }
    }
}

fn of(jobs: &[JobInfo], token: &SubmitToken) -> Vec<JobInfo> {
    jobs.iter().filter(|job| carries(job, token)).cloned().collect()
}
