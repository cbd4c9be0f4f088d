//! What the suite must be told about a manager before it can be put to the test.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::ResourceManager;
use bridge_core::plan::{Script, Submission};

use crate::faults::{FaultPlan, Operation};

/// A manager under test, with a remote system behind it that really runs, or plays, the sample jobs.
///
/// Only the first three functions have to be written; the others widen what is tested.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The manager's name in the report, e.g. `slurm`.
    fn name(&self) -> &str;

    /// The manager. Every call gives a client of the same remote system.
    fn manager(&self) -> &dyn ResourceManager;

    /// The submission that makes the remote system do what the sample says, or `None` if it cannot be made to.
    fn submission(&self, sample: &Sample, token: &SubmitToken) -> Option<Submission>;

    /// How long anything may take before it counts as failed.
    fn max_wait(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How long to wait between two looks.
    fn look_again_after(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// How many cases may run side by side.
    fn side_by_side(&self) -> usize {
        4
    }

    /// How many jobs `polls_many` submits.
    fn many(&self) -> usize {
        50
    }

    /// Called before each look; moves the time of a remote system that does not move by itself.
    async fn step(&self) {}

    /// The remote system's faults, if it can have any. Cases that use them run one at a time.
    fn faults(&self) -> Option<&FaultPlan> {
        None
    }

    /// The requests by which the adapter carries out an operation, as its emulator counts them. Where `find` and
    /// `poll` use the same request, both answer with that one.
    fn requests_of(&self, operation: Operation) -> Vec<Operation> {
        vec![operation]
    }

    /// An id in the form of this manager that no job has.
    fn unknown_id(&self) -> RemoteId {
        RemoteId::new("900000001")
    }

    /// Whether the manager tells exit codes.
    fn tells_exit_code(&self) -> bool {
        true
    }

    /// Whether standard error is a stream of its own.
    fn separates_stderr(&self) -> bool {
        false
    }

    /// Makes the remote system, accounting included, forget an ended job. `false`: it cannot be made to.
    async fn purge(&self, _id: &RemoteId) -> bool {
        false
    }

    /// Adds one more job with this token behind the adapter's back. `None`: that cannot be done.
    async fn add_twin(&self, _token: &SubmitToken) -> Option<RemoteId> {
        None
    }

    /// Texts that must not appear in any preview, error or debug output.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a sample job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sample {
    /// Ends well and soon.
    Succeeds,
    /// Ends soon with this exit code.
    Fails(i32),
    /// Runs until it is cancelled.
    Runs,
    /// Stays queued until it is cancelled.
    Queues,
    /// Prints `line 1` … `line N` to standard output and ends well.
    Prints(u32),
    /// Prints this line to standard error and ends well.
    PrintsToStderr(&'static str),
    /// Prints this line to standard output, then runs until it is cancelled.
    PrintsAndRuns(&'static str),
    /// Copies the input of this name, put by `Files::put`, to standard output and ends well.
    CopiesInput(&'static str),
    /// Writes this text to a file of this name, fetched by `Files::get`, and ends well.
    Writes(&'static str, &'static str),
    /// Something that this manager does not take.
    Refused,
}

impl Sample {
    /// A POSIX shell script that does what the sample says, for managers that run scripts; `None` for the samples that
    /// only the manager itself can arrange.
    #[must_use]
    pub fn shell_script(&self) -> Option<String> {
        let body = match self {
            Self::Succeeds => "exit 0".to_owned(),
            Self::Fails(code) => format!("exit {code}"),
            // Many short sleeps: a shell that only forwards a signal between commands ends soon all the same.
            Self::Runs => "while :; do sleep 0.2; done".to_owned(),
            Self::Prints(lines) => {
                format!("i=1; while [ \"$i\" -le {lines} ]; do echo \"line $i\"; i=$((i+1)); done")
            }
            Self::PrintsToStderr(line) => format!("echo '{line}' >&2"),
            Self::PrintsAndRuns(line) => format!("echo '{line}'; while :; do sleep 0.2; done"),
            Self::CopiesInput(name) => format!("cat './{name}'"),
            Self::Writes(name, content) => format!("printf '%s' '{content}' > './{name}'"),
            Self::Queues | Self::Refused => return None,
        };
        Some(format!("#!/bin/sh\n{body}\n"))
    }

    /// A submission that runs [`shell_script`](Self::shell_script) and has nothing else.
    #[must_use]
    pub fn shell_submission(&self, token: &SubmitToken) -> Option<Submission> {
        let inputs = match self {
            Self::CopiesInput(name) => vec![(*name).to_owned()],
            _ => Vec::new(),
        };
        Some(Submission {
            token: token.clone(),
            name: "conformance".to_owned(),
            script: Script::Text(self.shell_script()?),
            metadata: String::new(),
            parameters: String::new(),
            properties: BTreeMap::new(),
            inputs,
        })
    }
}
