//! The files of a job's folder, which the manager and the supervisor read of each other.
//!
//! ```text
//! <root>/<token>/lock           held while someone submits or looks for this token
//!                work/          the job's folder, with its inputs
//!                stdout, stderr
//!                job/           appears complete, by a rename
//!                    job.json   what is to be run
//!                    script
//!                    alive      locked by the supervisor as long as it lives
//!                    start.json appears once, by a link: who supervises, or that nobody ever may
//!                    cancel     its end was asked for
//!                    exit.json  how the script ended
//!                    end.json   the same, when nothing of the job is left
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(super) const LOCK: &str = "lock";
pub(super) const WORK: &str = "work";
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
pub(super) const JOB_FOLDER: &str = "job";
pub(super) const NEW_JOB_FOLDER: &str = "job.new";
pub(super) const OLD_JOB_FOLDER: &str = "job.old";

pub(super) const JOB: &str = "job.json";
pub(super) const SCRIPT: &str = "script";
pub(super) const ALIVE: &str = "alive";
pub(super) const START: &str = "start.json";
pub(super) const CANCEL: &str = "cancel";
pub(super) const EXIT: &str = "exit.json";
pub(super) const END: &str = "end.json";
pub(super) const SUPERVISOR_LOG: &str = "supervisor.log";

/// The variable by which a job knows its token.
pub(super) const TOKEN_VARIABLE: &str = "BRIDGE_TOKEN";

/// The variable by which processes of a job are known.
pub(super) const MARK_VARIABLE: &str = "BRIDGE_LOCAL_MARK";

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobFile {
    pub(super) token: String,
    pub(super) name: String,
    /// What its processes carry in their environment. Not the token: copies of a folder, or the folders of two users,
    /// may hold the same one.
    pub(super) mark: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Variables beside those that all jobs get.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
    /// The longest run; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit_millis: Option<u64>,
    pub(super) grace_millis: u64,
}

/// Who supervises. Made once, by whoever comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub(super) enum StartFile {
    /// A supervisor, which runs the script right after this.
    #[serde(rename_all = "camelCase")]
    Started {
        supervisor: i32,
        /// Processes of another boot are not ours, whatever their numbers.
        boot: String,
        at: Timestamp,
    },
    /// Nobody ever may: this submission was given up before it started.
    CalledOff,
}

/// How the script ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<i32>,
    pub(super) ended: Timestamp,
    /// What we did to it before it ended.
    pub(super) cause: EndCause,
    /// Why it could not be started; else "".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

/// What we did to a job before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum EndCause {
    /// Nothing.
    Itself,
    /// A signal, because its end was asked for.
    Cancelled,
    /// A signal, because its time was over.
    TimedOut,
    /// It could not be started.
    NotStarted,
}
