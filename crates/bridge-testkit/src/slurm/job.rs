//! A job of the emulated cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

/// A job, or the tasks of an array that have not started.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) id: u32,
    pub(super) array: Option<Array>,
    pub(super) user: String,
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) extra: String,
    pub(super) partition: String,
    pub(super) script: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
    pub(super) output: String,
    pub(super) error: String,
    pub(super) tasks: u32,
    pub(super) time_limit: Option<u64>,
    pub(super) begin: Option<Timestamp>,
    pub(super) held: bool,
    pub(super) state: State,
    /// Words that a test has set in place of the state's own.
    pub(super) forced: Option<(Vec<String>, String)>,
    /// Why it ends, once its end was asked for.
    pub(super) ending: Option<&'static str>,
    pub(super) ending_since: Option<tokio::time::Instant>,
    /// What accounting calls the run that ends because the job goes back into the queue.
    pub(super) requeued_as: &'static str,
    pub(super) process: Option<u32>,
    pub(super) restarts: u32,
    pub(super) submitted: Timestamp,
    pub(super) submitted_at: tokio::time::Instant,
    pub(super) started: Option<Timestamp>,
    pub(super) started_at: Option<tokio::time::Instant>,
    pub(super) ended: Option<Timestamp>,
    pub(super) ended_at: Option<tokio::time::Instant>,
    /// Accounting does not know its end yet.
    pub(super) is_untold: bool,
    /// Accounting does not know of it at all yet.
    pub(super) is_unheard_of: bool,
}

/// Where a job stands in an array.
#[derive(Debug, Clone)]
pub(super) struct Array {
    /// The id of the whole.
    pub(super) root: u32,
    /// The number of this task, once it has started.
    pub(super) task: Option<u32>,
    /// Tasks that have not started.
    pub(super) waiting: Vec<u32>,
    /// How many may run at the same time; 0 is no limit.
    pub(super) limit: u32,
}

impl Array {
    /// The tasks that this part of it stands for.
    pub(super) fn tasks(&self) -> impl Iterator<Item = u32> + '_ {
        self.task.into_iter().chain(self.waiting.iter().copied())
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Pending(&'static str),
    Running,
    /// Its word, and what `wait` returned.
    Ended(&'static str, i32),
}

impl Job {
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended(..))
    }

    /// Its state as words, base first, and the reason.
    pub(super) fn words(&self) -> (Vec<String>, String) {
        if let Some((words, reason)) = &self.forced {
            return (words.clone(), reason.clone());
        }
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match (self.state, self.ending) {
            (State::Pending(_), _) if self.held => (own(&["PENDING"]), "JobHeldUser".to_owned()),
            (State::Pending(reason), _) => (own(&["PENDING"]), reason.to_owned()),
            (State::Running, Some(ending)) => (own(&[ending, "COMPLETING"]), "None".to_owned()),
            (State::Running, None) => (own(&["RUNNING"]), "None".to_owned()),
            (State::Ended(word, status), _) => {
                let reason = match (word, status) {
                    ("FAILED", status) if status & 0x7f != 0 => "RaisedSignal",
                    ("FAILED", _) => "NonZeroExitCode",
                    ("TIMEOUT", _) => "TimeLimit",
                    _ => "None",
                };
                (own(&[word]), reason.to_owned())
            }
        }
    }

    /// A number for its user: any, but always the same.
    pub(super) fn user_number(&self) -> i64 {
        self.user.bytes().fold(1001, |number, byte| (number * 31 + i64::from(byte)) % 60_000)
    }

    /// What `wait` returned; 0 before the end.
    pub(super) fn wait_status(&self) -> i32 {
        match self.state {
            State::Ended(_, status) => status,
            _ => 0,
        }
    }

    /// A path of an output file with its patterns filled in.
    pub(super) fn path(&self, pattern: &str) -> PathBuf {
        let (root, task) = match &self.array {
            Some(array) => (array.root, array.task.map(|task| task.to_string()).unwrap_or_default()),
            None => (self.id, String::new()),
        };
        let default = if self.array.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" };
        let pattern = if pattern.is_empty() { default } else { pattern };
        let filled = pattern
            .replace("%j", &self.id.to_string())
            .replace("%A", &root.to_string())
            .replace("%a", &task)
            .replace("%x", &self.name)
            .replace("%u", &self.user)
            .replace("%N", "localhost");
        self.folder.join(filled)
    }
}
