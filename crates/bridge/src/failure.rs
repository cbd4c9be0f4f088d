//! Why a command could not do what it was asked, and the exit codes that say so.

use std::fmt;

use bridge_api::JobStatus;
use bridge_api::reader::Problem;

/// The job was asked for wrongly; nothing was run.
pub const BAD_INPUT: u8 = 2;
/// The job has not ended, and this command no longer waits for it.
pub const NOT_ENDED: u8 = 124;
/// This command could not go on; the job stays as it is.
pub const TROUBLE: u8 = 126;

/// A command's failure: what people read, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What happened, to what, what to do; one entry for each fault.
    pub messages: Vec<String>,
}

impl Failure {
    /// The user has to change something.
    pub fn input(message: impl Into<String>) -> Self {
        Self { code: BAD_INPUT, messages: vec![message.into()] }
    }

    /// All that is wrong with the files.
    #[must_use]
    pub fn problems(problems: &[Problem]) -> Self {
        Self { code: BAD_INPUT, messages: problems.iter().map(ToString::to_string).collect() }
    }

    /// Something around us does not work.
    pub fn trouble(message: impl Into<String>) -> Self {
        Self { code: TROUBLE, messages: vec![message.into()] }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for message in &self.messages {
            writeln!(f, "error: {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// How one job left this command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobExit {
    /// It ended, with this word and code.
    Ended(JobStatus, u8),
    /// Left to the remote system, as it was asked for.
    Detached,
    /// It goes on, or waits, without us.
    NotEnded,
    /// We could not go on with it.
    Trouble,
}

impl JobExit {
    fn rank(self) -> (u8, u8) {
        match self {
            Self::Ended(JobStatus::Done, code) => (0, code),
            Self::Detached => (0, 0),
            Self::Ended(JobStatus::Killed, code) => (1, code),
            Self::Ended(JobStatus::Failed, code) => (2, code),
            Self::Ended(_, code) => (3, code),
            Self::NotEnded => (4, NOT_ENDED),
            Self::Trouble => (5, TROUBLE),
        }
    }

    /// The exit code for one job.
    #[must_use]
    pub fn code(self) -> u8 {
        self.rank().1
    }
}

/// The exit code for several jobs: that of the one that fared worst.
pub fn worst(exits: impl IntoIterator<Item = JobExit>) -> u8 {
    exits.into_iter().map(JobExit::rank).max().map_or(0, |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_job_decides() {
        let done = JobExit::Ended(JobStatus::Done, 0);
        let failed = JobExit::Ended(JobStatus::Failed, 7);
        let killed = JobExit::Ended(JobStatus::Killed, 130);
        let unknown = JobExit::Ended(JobStatus::Unknown, 125);
        assert_eq!(worst([]), 0);
        assert_eq!(worst([done, JobExit::Detached]), 0);
        assert_eq!(worst([done, killed]), 130);
        assert_eq!(worst([killed, failed, done]), 7);
        assert_eq!(worst([failed, JobExit::Ended(JobStatus::Failed, 9)]), 9);
        assert_eq!(worst([failed, unknown, killed]), 125);
        assert_eq!(worst([unknown, JobExit::NotEnded]), NOT_ENDED);
        assert_eq!(worst([JobExit::NotEnded, JobExit::Trouble]), TROUBLE);
    }
}
