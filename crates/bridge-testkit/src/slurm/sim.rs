//! The emulated cluster as a program: `bridge-sim slurm`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Emulator, EmulatorOptions};

/// A Slurm cluster that is none: its jobs run as processes of this machine, as the user who started it.
#[derive(Debug, clap::Args)]
pub struct SimArgs {
    /// Address and port to listen on.
    #[arg(long, default_value = "127.0.0.1:6820")]
    listen: SocketAddr,
    /// API versions to offer, by the number after v0.0.
    #[arg(long, value_delimiter = ',', default_values_t = [40, 41, 42])]
    versions: Vec<u16>,
    /// Folder for scripts and for the output of jobs without a working directory; a temporary one if not given.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// How many tasks run at the same time.
    #[arg(long, default_value_t = 16)]
    cpus: u32,
    /// Seconds for which an ended job is remembered outside of accounting.
    #[arg(long, default_value_t = 300)]
    min_job_age: u64,
    /// Offer accounting (slurmdbd).
    #[arg(long)]
    accounting: bool,
    /// The user's name.
    #[arg(long, default_value = "alice")]
    user: String,
    /// The user's token, from the environment: arguments are visible to everybody on the machine.
    #[arg(env = "BRIDGE_SIM_SLURM_TOKEN", hide = true, hide_env_values = true, default_value = "alice-token")]
    token: String,
}

/// Runs the cluster until the process is interrupted.
pub async fn run(args: SimArgs) -> anyhow::Result<()> {
    let SimArgs { listen, versions, folder, cpus, min_job_age, accounting, user, token } = args;
    let emulator = Emulator::start(EmulatorOptions {
        listen,
        versions,
        users: BTreeMap::from([(user.clone(), token)]),
        folder,
        cpus,
        min_job_age: Duration::from_secs(min_job_age),
        accounting,
        ..EmulatorOptions::default()
    })
    .await?;
    tracing::info!(url = emulator.url(), user, folder = %emulator.folder().display(), "the emulated cluster is up");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
