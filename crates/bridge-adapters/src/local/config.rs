//! Where local jobs live and how they are started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Variables that a job inherits. Anything else of the runner's environment may be a secret and stays out.
const INHERITED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The word after the program's name that makes it supervise a job; see [`supervise`](super::supervise).
pub const SUPERVISE: &str = "local-supervise";

/// How local jobs are run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder that holds one folder a job. Its file system must know hard links and `flock`.
    pub root: PathBuf,
    /// The program that supervises a job, and the arguments before the job's folder.
    pub supervisor: (PathBuf, Vec<OsString>),
    /// How long a job may take to end by itself after SIGTERM before it gets SIGKILL.
    pub grace: Duration,
    /// The environment of all jobs.
    pub environment: Vec<(OsString, OsString)>,
}

impl Config {
    /// The running program supervises, by its hidden command [`SUPERVISE`]; jobs inherit a short list of variables.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let environment =
            INHERITED.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect();
        Self {
            root: root.into(),
            // Not `current_exe()`: that path is gone when the program was upgraded while it ran.
            supervisor: (PathBuf::from("/proc/self/exe"), vec![OsString::from(SUPERVISE)]),
            grace: Duration::from_secs(10),
            environment,
        }
    }
}
