//! What a remote system must be able to do, and how its answers are told.
//!
//! # Guarantees an adapter gives
//! - [`ResourceManager::submit`] says [`SubmitError::NotSubmitted`] only when the remote system surely has no such job
//!   and never will from this request. A timeout, a reset or an unreadable answer is [`SubmitError::Unknown`].
//! - [`Sighting::Gone`] only after the manager's accounting has been asked as well. Unreachable is an error, never `Gone`;
//!   where the manager answers and only its accounting does not, that is [`Sighting::Unaccounted`].
//! - A job whose token differs from the one in [`Tracked`] is never ours: it is reported as `Gone`, not touched by
//!   `cancel`, `hold` or `release`.
//! - [`Found::Absent`] only if the manager's memory covers all time since the intent was saved.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{RemoteId, SubmitToken};
use crate::plan::Submission;
use crate::staging::Cargo;

/// A manager's answer or why there is none.
pub type Result<T> = std::result::Result<T, ManagerError>;

/// A remote system that runs jobs.
#[async_trait]
pub trait ResourceManager: fmt::Debug + Send + Sync {
    /// How much may be asked at once.
    fn limits(&self) -> Limits;

    /// How this manager keeps a submission from happening twice.
    fn guarantee(&self) -> Guarantee;

    /// What [`submit`](Self::submit) would send, secrets left out. Nothing is sent.
    fn preview(&self, job: &Submission) -> Result<Preview>;

    /// Hands the job over; under [`Guarantee::TwoPhase`] it arrives held.
    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError>;

    /// Looks for all jobs that carry the token; asked after a lost reply.
    async fn find(&self, token: &SubmitToken, since: Timestamp) -> Result<Found>;

    /// The state of each of the jobs; a job that is left out of the answer counts as not asked. No two of the jobs have
    /// the same id.
    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>>;

    /// Asks for the job's end. Idempotent; ending an ended or unknown job succeeds; `poll` sees the end.
    async fn cancel(&self, job: &Tracked) -> Result<()>;

    /// Two-phase submission and suspension before the start.
    fn hold(&self) -> Option<&dyn Hold> {
        None
    }

    /// Output while the job runs.
    fn logs(&self) -> Option<&dyn Logs> {
        None
    }

    /// Files put beside and fetched from a job.
    fn files(&self) -> Option<&dyn Files> {
        None
    }

    /// Data that jobs move themselves, for managers without files.
    fn carrier(&self) -> Option<&dyn Carrier> {
        None
    }

    /// How busy the remote system is.
    fn load(&self) -> Option<&dyn LoadProbe> {
        None
    }
}

/// Bounds of what may be asked of a manager at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most jobs in one [`ResourceManager::poll`].
    pub poll_batch: usize,
    /// The most submissions under way at the same time.
    pub concurrent_submits: usize,
}

/// How a manager keeps one attempt from running twice (see `docs/architecture.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// Submitted held, the id saved, then released: what was never saved never runs. Needs [`ResourceManager::hold`].
    TwoPhase,
    /// The manager refuses a second submission with the same token.
    OwnKey,
    /// Neither: look up by token, and only after a late request can no longer land.
    LookUp,
}

/// What would be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// One line: method and address, or the command.
    pub request: String,
    /// The body, or "".
    pub body: String,
    /// Remarks for the user, such as a directive that cannot be seen from here.
    pub notes: Vec<String>,
}

/// A submission that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The remote id.
    pub id: RemoteId,
    /// Remarks of the manager that the user should see; bounded by the adapter.
    pub warnings: Vec<String>,
}

impl From<RemoteId> for Submitted {
    fn from(id: RemoteId) -> Self {
        Self { id, warnings: Vec::new() }
    }
}

/// A job the manager is asked about: the id alone is not enough, because a manager may lose an id and give it away again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// The remote id.
    pub id: RemoteId,
    /// The token that the job must carry to be ours.
    pub token: SubmitToken,
    /// The token must be looked at this time, because the chain of sightings was broken: another process goes on, an
    /// error or a gap came between. An adapter may verify more often than asked.
    pub verify: bool,
    /// Its end has been asked for, for managers whose records do not tell a cancelled job from a failed one.
    pub cancelling: bool,
}

/// The answer to [`ResourceManager::find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// These jobs carry the token; never empty.
    Jobs(Vec<RemoteId>),
    /// There is none, and the manager would know.
    Absent,
    /// The manager's memory does not reach back far enough, or it cannot be searched.
    CannotTell(String),
}

/// The answer to [`ResourceManager::poll`] for one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// Not ended yet.
    Alive(Phase, Facts),
    /// Ended.
    Ended(Outcome, Facts),
    /// Neither the manager nor its accounting knows this job.
    Gone,
    /// The manager answers and does not know this job for sure, and its accounting, which may, cannot be asked now or has
    /// not been told yet: trouble of this one job, and no word about its end.
    Unaccounted {
        /// What happened and what to do; bounded by the adapter.
        why: String,
    },
}

/// Where a job that has not ended stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Phase {
    /// Waiting for its turn; the reason is the manager's own word.
    Queued {
        /// Why it waits, e.g. `Resources`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Held back by a user or by us.
    Held,
    /// On the machines.
    Running,
    /// Stopped on the machines for the time being.
    Suspended,
}

/// How a job ended, in the manager's truth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Success, failure or cancelled.
    pub verdict: Verdict,
    /// The exit code, where the manager tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The manager's own word for the end, e.g. `OUT_OF_MEMORY`; short.
    #[serde(default)]
    pub reason: String,
    /// What else the user should know; bounded by the adapter.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The three ways to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It did what it was asked.
    Succeeded,
    /// It failed by itself.
    Failed,
    /// Someone ended it.
    Cancelled,
}

/// What a manager tells about a job beside its state. Only what is known is `Some`; a known value is never cleared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The queue or partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Where its standard output is, on the remote system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Where its standard error is, on the remote system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// A remark such as "3 of 10 array tasks done".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Facts {
    /// Takes over what `newer` knows; what it does not know stays, but a remark is of its moment. Returns whether anything
    /// changed.
    pub fn merge(&mut self, newer: Self) -> bool {
        fn take<T: PartialEq>(into: &mut Option<T>, from: Option<T>) -> bool {
            let changes = from.is_some() && *into != from;
            if changes {
                *into = from;
            }
            changes
        }
        let Self { started, ended, queue, node, stdout, stderr, note } = newer;
        let remark_changed = self.note != note;
        self.note = note;
        [
            remark_changed,
            take(&mut self.started, started),
            take(&mut self.ended, ended),
            take(&mut self.queue, queue),
            take(&mut self.node, node),
            take(&mut self.stdout, stdout),
            take(&mut self.stderr, stderr),
        ]
        .contains(&true)
    }
}

/// Holding a job back before it starts.
#[async_trait]
pub trait Hold: Send + Sync {
    /// Lets a held job go. Releasing a job that was released or has ended already succeeds.
    async fn release(&self, job: &Tracked) -> Result<HoldAnswer>;
    /// Holds a queued job back. A job that runs already is [`HoldAnswer::TooLate`].
    async fn hold(&self, job: &Tracked) -> Result<HoldAnswer>;
}

/// The answer to holding or releasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldAnswer {
    /// It is so now.
    Done,
    /// The job runs or has ended; or it is held and not to be released, because it has run already or someone else
    /// holds it. A look tells which.
    TooLate,
    /// The manager knows no such job of ours.
    Gone,
}

/// Output while the job runs.
#[async_trait]
pub trait Logs: Send + Sync {
    /// Output from the cursor on; an empty chunk means none yet. Output once read is never given again for a larger cursor.
    async fn read(&self, job: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk>;
}

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogStream {
    /// Standard output; also the only stream of managers that mix both.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A place in an output: bytes from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogCursor(pub u64);

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// The bytes.
    pub data: Bytes,
    /// Where to go on.
    pub next: LogCursor,
    /// Nothing will follow.
    pub end: bool,
}

/// Files beside a job.
#[async_trait]
pub trait Files: Send + Sync {
    /// Puts a file where the job with this token will find it; called before its submission. Replaces an older one.
    async fn put(&self, token: &SubmitToken, name: &str, content: ByteStream) -> Result<u64>;
    /// Reads a file the job wrote. `None` if there is no such file.
    async fn get(&self, job: &Tracked, name: &str) -> Result<Option<ByteStream>>;
    /// The files the job wrote that match a pattern of [`glob`](crate::staging::glob); none if there is no such file.
    /// [`ErrorKind::Unsupported`] where the manager cannot list files.
    async fn matching(&self, _job: &Tracked, pattern: &str) -> Result<Listing> {
        let message = format!("files cannot be listed here, so {pattern:?} cannot be looked for; write exact names");
        Err(ManagerError::new("files", "list", ErrorKind::Unsupported, message))
    }
}

/// The files that match a pattern, as far as they may be looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their names.
    pub files: Vec<FileEntry>,
    /// Folders, or files, that could match or hold what does, but may not be looked at.
    pub unread: Vec<String>,
}

/// A file the job wrote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileEntry {
    /// Its name, as [`Files::get`] takes it.
    pub name: String,
    /// Bytes.
    pub size: u64,
}

/// Makes a job that fetches its inputs and sends its outputs by itself, through URLs that carry their own signatures.
pub trait Carrier: Send + Sync {
    /// What a job that is to carry this must keep to.
    fn limits(&self) -> CarrierLimits;
    /// The job with all that it needs to move the data.
    fn load(&self, job: Submission, cargo: &Cargo) -> Result<Submission>;
}

/// What a job can move by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarrierLimits {
    /// The largest file that can be sent, in bytes.
    pub largest_output: u64,
    /// The job sends listed files only; its inputs and its output have ways of their own.
    pub only_files: bool,
}

/// A file's content in pieces, so that no file is ever in memory as a whole.
pub type ByteStream = futures::stream::BoxStream<'static, std::io::Result<Bytes>>;

/// How busy the remote system is.
#[async_trait]
pub trait LoadProbe: Send + Sync {
    /// The load of each queue.
    async fn load(&self) -> Result<Vec<QueueLoad>>;
}

/// The load of one queue or partition.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueLoad {
    /// The queue's name.
    pub name: String,
    /// Nodes by state.
    pub nodes: Capacity,
    /// CPUs by state.
    pub cpus: Capacity,
    /// Jobs that wait.
    pub pending_jobs: u64,
}

/// How much there is of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Capacity {
    /// Free.
    pub idle: u64,
    /// In use.
    pub allocated: u64,
    /// All, including what is down.
    pub total: u64,
}

/// Whether a submission that failed may have arrived all the same.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The remote system surely has no such job.
    #[error("not submitted")]
    NotSubmitted(#[source] ManagerError),
    /// Nobody knows.
    #[error("nobody knows whether it was submitted")]
    Unknown(#[source] ManagerError),
}

/// What went wrong between us and a remote system.
#[derive(Debug, thiserror::Error)]
#[error("{manager}: {operation}: {message}")]
pub struct ManagerError {
    /// The manager's name, e.g. `slurm`.
    pub manager: &'static str,
    /// What was being done, e.g. `submit`.
    pub operation: &'static str,
    /// What kind of trouble.
    pub kind: ErrorKind,
    /// What happened, to what, and what to do; never a secret.
    pub message: String,
    /// When the manager said to come back.
    pub retry_after: Option<Duration>,
    /// The underlying error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ManagerError {
    /// An error without an underlying one.
    pub fn new(manager: &'static str, operation: &'static str, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { manager, operation, kind, message: message.into(), retry_after: None, source: None }
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// Kinds of trouble, and with them whether to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The manager does not want this, and will not want it later: final.
    Refused,
    /// Not reached, or it is not well: try again.
    Unreachable,
    /// Too many requests: try again later.
    RateLimited,
    /// The credential is missing, wrong or expired: read it again, try again.
    Credential,
    /// The answer cannot be understood: try again, tell the user.
    Protocol,
    /// This manager cannot do this: final.
    Unsupported,
}

impl ErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Refused | Self::Unsupported)
    }

    /// A bounded word for metrics and conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "Refused",
            Self::Unreachable => "Unreachable",
            Self::RateLimited => "RateLimited",
            Self::Credential => "Unauthorized",
            Self::Protocol => "ProtocolError",
            Self::Unsupported => "Unsupported",
        }
    }
}
