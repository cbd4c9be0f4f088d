//! What the command line takes.

#![allow(clippy::doc_markdown, reason = "shown as help, where backticks are noise")]

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
    /// Forget jobs that were run from here and have ended; folders of local jobs are deleted with all that is in them
    Forget(ForgetArguments),
    /// Create the BridgeJobs of files in a cluster
    ///
    /// The files are checked before anything is sent. Both API groups of the seeds are taken.
    Submit(SubmitArguments),
    /// List the BridgeJobs of a cluster
    Get(GetArguments),
    /// Show all that is known of a BridgeJob of a cluster, its conditions and Events
    Describe(DescribeArguments),
    /// Wait until BridgeJobs of a cluster have ended, and end with their exit code
    Wait(WaitArguments),
    /// Run the operator: one controller pod for each BridgeJob of the cluster
    Operator(OperatorArguments),
    /// Run the controller pod of one job, described by its ConfigMap
    ///
    /// Needs the environment variables NAMESPACE and JOBNAME, and the Secrets mounted at /credentials and
    /// /s3credentials.
    Worker(WorkerArguments),
    /// Print all that a cluster needs to run the operator, for kubectl apply
    Manifest(ManifestArguments),
    /// Print the CustomResourceDefinition of a BridgeJob
    Crd(CrdArguments),
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

    /// Where output can be read.
    #[command(flatten)]
    pub shared: SharedArguments,

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

/// Folders that this machine and remote systems share.
#[derive(Debug, Clone, Default, Args)]
pub struct SharedArguments {
    /// Show output files of Slurm jobs that lie in this folder, which the compute nodes share; may be given several times
    #[arg(id = "shared", long = "shared-folder", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
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

/// `bridge crd`
#[derive(Debug, Args)]
pub struct CrdArguments {
    /// Print the reference of all fields instead, as Markdown
    #[arg(long)]
    pub reference: bool,
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

    /// Which cluster, if the job is in one.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Where secrets are.
    #[command(flatten)]
    pub secrets: SecretArguments,

    /// Where output can be read.
    #[command(flatten)]
    pub shared: SharedArguments,
}

/// `bridge kill`
#[derive(Debug, Args)]
pub struct KillArguments {
    /// The jobs, as name or namespace/name
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Which cluster, if the job is in one.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Where secrets are.
    #[command(flatten)]
    pub secrets: SecretArguments,

    /// How to write: text, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `bridge forget`
#[derive(Debug, Args)]
pub struct ForgetArguments {
    /// The jobs, as name or namespace/name
    #[arg(required_unless_present = "older_than", value_name = "NAME")]
    pub names: Vec<String>,

    /// All jobs that ended so long ago, such as 12h or 30d (s, m, h, d)
    #[arg(long, value_name = "TIME", conflicts_with = "names", value_parser = age)]
    pub older_than: Option<jiff::SignedDuration>,
}

fn age(text: &str) -> Result<jiff::SignedDuration, String> {
    let wrong = || "write a number and s, m, h or d, such as 12h or 30d".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let number: u32 = text.strip_suffix(unit).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    Ok(jiff::SignedDuration::from_secs(i64::from(number) * seconds))
}

/// Which cluster, and where in it.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArguments {
    /// Namespace in the cluster [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ClusterArguments {
    /// Whether any of them was given: `logs` and `kill` then mean a job of the cluster.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.namespace.is_some() || self.context.is_some()
    }
}

/// `bridge submit`
#[derive(Debug, Args)]
pub struct SubmitArguments {
    /// YAML or JSON files with BridgeJobs; - is standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Wait until the jobs have ended, and end with their exit code
    #[arg(short, long)]
    pub wait: bool,

    /// How to write: text, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `bridge get`
#[derive(Debug, Args)]
pub struct GetArguments {
    /// The jobs [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// How to write
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `bridge describe`
#[derive(Debug, Args)]
pub struct DescribeArguments {
    /// The job
    pub name: String,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `bridge wait`
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The jobs
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Wait no longer than so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// How to write: text, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `bridge manifest`
#[derive(Debug, Args)]
pub struct ManifestArguments {
    /// Image of the operator and of its controller pods
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Namespace of the operator
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// How many instances; one acts, the others stand by
    #[arg(long, value_name = "NUMBER")]
    pub replicas: Option<u32>,

    /// Look after the jobs of this namespace only, with rights there only; may be given several times [default: all]
    #[arg(long = "watch", value_name = "NAMESPACE", value_delimiter = ',')]
    pub watched: Vec<String>,
}

/// `bridge operator`
#[derive(Debug, Args)]
pub struct OperatorArguments {
    /// Watch this namespace; may be given several times [default: all]
    #[arg(short, long = "namespace", value_name = "NAMESPACE", env = "BRIDGE_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,

    /// Image of the controller pods: this very program
    #[arg(long, value_name = "IMAGE", env = "BRIDGE_WORKER_IMAGE")]
    pub worker_image: String,

    /// Run our worker in place of images that match, such as */slurm-pod:*; may be given several times
    #[arg(long = "replace-image", value_name = "PATTERN")]
    pub replace_images: Vec<String>,

    /// How many BridgeJobs are worked on at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,

    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub listen: std::net::SocketAddr,

    /// Namespace of the Lease that keeps several instances from acting at once; without it there must be only one
    #[arg(long, value_name = "NAMESPACE", env = "BRIDGE_LEASE_NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "bridge-operator")]
    pub lease_name: String,

    /// Seconds after which another instance takes over from one that fell silent
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(5..))]
    pub lease_seconds: u16,

    /// The name of this instance [default: the host's name]
    #[arg(long, value_name = "NAME", env = "BRIDGE_POD_NAME")]
    pub identity: Option<String>,
}

/// `bridge worker`
#[derive(Debug, Args)]
pub struct WorkerArguments {
    /// The job's namespace
    #[arg(long, value_name = "NAMESPACE", env = "NAMESPACE")]
    pub namespace: String,

    /// The job's name
    #[arg(long, value_name = "NAME", env = "JOBNAME")]
    pub job: String,

    /// UID of the pod; set by the operator
    #[arg(long, hide = true, env = "BRIDGE_POD_UID")]
    pub pod_uid: Option<String>,

    /// UID of the ConfigMap; set by the operator
    #[arg(long, hide = true, env = "BRIDGE_CONFIG_MAP_UID")]
    pub config_map_uid: Option<String>,

    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", env = "BRIDGE_GRACE_SECONDS", default_value_t = 30)]
    pub grace_seconds: u64,

    /// Where the Secret with the credentials is mounted
    #[arg(long, value_name = "FOLDER", default_value = "/credentials", value_hint = ValueHint::DirPath)]
    pub credentials: PathBuf,

    /// Where the Secret of the object store is mounted
    #[arg(long, value_name = "FOLDER", default_value = "/s3credentials", value_hint = ValueHint::DirPath)]
    pub s3_credentials: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("90s"), Ok(jiff::SignedDuration::from_secs(90)));
        assert_eq!(age("30d"), Ok(jiff::SignedDuration::from_hours(720)));
        assert_eq!(age("4294967295d").map(|age| age.is_positive()), Ok(true));
        for wrong in ["", "d", "30", "-1d", "1w", "1 d", "1ü"] {
            age(wrong).unwrap_err();
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
