//! What the command line takes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

/// Jobs on Slurm, LSF, Ray, quantum services and this machine, described by one kind of file.
#[derive(Debug, Parser)]
#[command(name = "bridge", version, propagate_version = true)]
pub struct Cli {
    /// Folder that remembers stand-alone jobs [default: $XDG_STATE_HOME/bridge or ~/.local/state/bridge]
    #[arg(long, global = true, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the jobs of files, show their output, and end with their exit code
    ///
    /// Running the same file again goes on with the same job; a job is never submitted twice.
    Run(RunArguments),
    /// Show what running files would do; nothing is sent and nothing is saved
    Plan(PlanArguments),
    /// List the jobs that were run from here
    List(ListArguments),
    /// Show the output of a job
    Logs(LogsArguments),
    /// End jobs, and wait until their remote systems confirm it
    Kill(KillArguments),
    /// Print the CustomResourceDefinition of a BridgeJob
    Crd,
    /// Print a completion script
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How results are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs; the shape is in docs/cli.md.
    Json,
}

/// What SIGINT and SIGTERM mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OnSignal {
    /// Cancel the jobs and wait for the confirmation.
    #[default]
    Cancel,
    /// Leave the jobs running.
    Detach,
}

/// `bridge run`
#[derive(Debug, Args)]
pub struct RunArguments {
    /// YAML or JSON files with BridgeJobs, and Secrets beside them; - is standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// Where secrets are.
    #[command(flatten)]
    pub secrets: SecretArguments,

    /// Run jobs that have ended once more, also with changed content
    #[arg(long)]
    pub again: bool,

    /// Hand the jobs over and leave them running
    #[arg(long)]
    pub detach: bool,

    /// What SIGINT and SIGTERM do; a second one always leaves at once
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub on_signal: OnSignal,

    /// How to write: text, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,

    /// Show only the output of the jobs, and errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Where the Secrets that jobs name come from; their content is never an argument.
#[derive(Debug, Clone, Default, Args)]
pub struct SecretArguments {
    /// Take a Secret from a folder with a file for each key; may be given several times
    #[arg(long = "secret", value_name = "NAME=FOLDER", value_hint = ValueHint::DirPath)]
    pub folders: Vec<String>,
}

/// `bridge plan`
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// YAML or JSON files with BridgeJobs, and Secrets beside them; - is standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// Where secrets are.
    #[command(flatten)]
    pub secrets: SecretArguments,

    /// How to write
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `bridge list`
#[derive(Debug, Args)]
pub struct ListArguments {
    /// How to write
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `bridge logs`
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// The job, as name or namespace/name
    pub name: String,

    /// Go on until the job ends
    #[arg(short, long)]
    pub follow: bool,

    /// Where secrets are.
    #[command(flatten)]
    pub secrets: SecretArguments,
}

/// `bridge kill`
#[derive(Debug, Args)]
pub struct KillArguments {
    /// The jobs, as name or namespace/name
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Where secrets are.
    #[command(flatten)]
    pub secrets: SecretArguments,

    /// How to write: text, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
