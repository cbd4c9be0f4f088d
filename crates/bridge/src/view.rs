//! A job as programs see it; the shape is documented in `docs/cli.md` and does not change.

use bridge_core::record::JobRecord;
use bridge_core::status::StatusView;
use jiff::Timestamp;
use serde::Serialize;

use crate::state::JobFile;

/// A job. Every field is always there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Its namespace, if the file names one.
    pub namespace: Option<String>,
    /// The run of the job.
    pub run: String,
    /// The manager's word.
    pub manager: &'static str,
    /// The remote system.
    pub url: String,
    /// SUBMITTED, PENDING, RUNNING, SUSPENDED, DONE, FAILED, KILLED or UNKNOWN.
    pub status: &'static str,
    /// Whether the status is final.
    pub ended: bool,
    /// One word: why it ended so, or what keeps it.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The newest id on the remote system.
    pub job_id: Option<String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// When it was first handed over.
    pub submitted: Option<Timestamp>,
    /// When it started, in the remote system's time.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub completed: Option<Timestamp>,
    /// The job's own exit code, where the manager tells it.
    pub exit_code: Option<i32>,
    /// The exit code of a command that stands for this job.
    pub process_exit_code: u8,
}

impl JobView {
    /// A job by its file and its record.
    #[must_use]
    pub fn of(job: &JobFile, record: &JobRecord) -> Self {
        let view = StatusView::of(record);
        let process_exit_code = view.process_exit_code();
        Self {
            name: job.plan.key.name.clone(),
            namespace: Some(job.plan.key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            run: job.run.clone(),
            manager: job.plan.target.manager.as_str(),
            url: job.plan.target.url.clone(),
            status: view.status.as_str(),
            ended: view.status.is_final(),
            reason: view.reason,
            message: view.message,
            job_id: view.job_id,
            attempt: record.attempt,
            submitted: view.submitted,
            started: view.started,
            completed: view.completed,
            exit_code: view.exit_code,
            process_exit_code,
        }
    }

    /// The name with its namespace, if there is one.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}
