//! Why the lab could not give a test what it asked for.

use std::io;
use std::path::PathBuf;
use std::process::Output;

/// What to do when the lab is not to be had: the end of every message.
const ADVICE: &str = "run `lab/install` and `lab/up` by hand to see why (it needs root on Debian 12), or set BRIDGE_LAB=off to leave the lab's tests out";

/// Why the lab could not give a test what it asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A command of the lab could not even be started.
    #[error("{} could not be run; {ADVICE}", program.display())]
    NotRun {
        /// The command's file.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A command of the lab failed.
    #[error("`lab/{command}` failed; {ADVICE}. It said:\n{output}")]
    Failed {
        /// The command and its arguments.
        command: String,
        /// What it wrote to standard error.
        output: String,
    },
    /// The lab is up but does not say how to reach something.
    #[error("`lab/env` does not tell {name} ({why}); {ADVICE}")]
    NoValue {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The cluster could not be used.
    #[error("the cluster of {} cannot be used; {ADVICE}", kubeconfig.display())]
    Cluster {
        /// How it was to be reached.
        kubeconfig: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A folder of the lab could not be changed.
    #[error("the lab's {} could not be made; {ADVICE}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl LabError {
    pub(super) fn failed(command: &str, arguments: &[&str], output: &Output) -> Self {
        let command = [&[command], arguments].concat().join(" ");
        let output = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Self::Failed { command, output }
    }
}
