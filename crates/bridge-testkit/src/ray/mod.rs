//! A Ray head that speaks the Jobs REST API of Ray 2.60 and really runs entrypoints, as processes of this machine.
//!
//! Differences to a real one, on purpose: a job starts at once, nothing is installed (`pip` and the like are taken and
//! left out), and only CPUs are counted, against what the cluster has, not against what is free.

mod api;
mod jobs;
mod tail;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bridge_core::clock::{Clock, SystemClock};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::faults::FaultPlan;
use jobs::Job;

/// How the emulated cluster behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The token that every request must carry; `None`: authentication is disabled.
    pub token: Option<String>,
    /// The CPUs of the cluster: a job that wants more stays PENDING.
    pub cpus: f64,
    /// How long a job may stay PENDING (`RAY_JOB_START_TIMEOUT_SECONDS`).
    pub start_timeout: Duration,
    /// How long a job takes to start.
    pub start_delay: Duration,
    /// How long a stopped job has before it is killed.
    pub stop_wait: Duration,
    /// How often a log is looked at for its websocket.
    pub tail_interval: Duration,
    /// Whether websockets are served; a proxy may keep them out.
    pub websockets: bool,
}

impl Default for Options {
    /// As Ray is, but faster.
    fn default() -> Self {
        Self {
            token: None,
            cpus: 4.0,
            start_timeout: Duration::from_mins(15),
            start_delay: Duration::ZERO,
            stop_wait: Duration::from_secs(3),
            tail_interval: Duration::from_millis(100),
            websockets: true,
        }
    }
}

/// An emulated head on a port of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct RayServer {
    url: String,
    head: Head,
    server: JoinHandle<()>,
}

impl RayServer {
    /// Starts a head on a free port of the loopback address.
    pub async fn start(options: Options, faults: FaultPlan) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let head = Head::new(options, faults)?;
        let router = api::router(head.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.ok();
        });
        Ok(Self { url, head, server })
    }

    /// Its address, for `resourceURL`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks for another token from now on.
    pub fn set_token(&self, token: Option<&str>) {
        self.head.lock().token = token.map(str::to_owned);
    }

    /// Starts the head again: it forgets all jobs and packages, and their processes end.
    pub fn restart(&self) {
        let mut state = self.head.lock();
        state.jobs.values().for_each(|job| job.kill());
        state.jobs.clear();
        state.packages.clear();
        state.session = session_name();
    }

    /// Lets the time for which jobs may stay PENDING end now, for those that wait.
    pub fn give_up_waiting(&self) {
        self.head.lock().jobs.values().for_each(|job| job.give_up_waiting());
    }

    /// Forgets one job, as `DELETE` does.
    #[must_use]
    pub fn forget(&self, id: &str) -> bool {
        self.head.lock().jobs.remove(id).is_some()
    }

    /// How many jobs it knows.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.head.lock().jobs.len()
    }

    /// How many packages it keeps, and their bytes.
    #[must_use]
    pub fn packages(&self) -> (usize, usize) {
        let state = self.head.lock();
        (state.packages.len(), state.packages.values().map(Bytes::len).sum())
    }

    /// Every `Authorization` header that came, in its order; "" for a request without one.
    #[must_use]
    pub fn authorizations(&self) -> Vec<String> {
        self.head.lock().authorizations.clone()
    }
}

impl Drop for RayServer {
    fn drop(&mut self) {
        self.server.abort();
        self.head.lock().jobs.values().for_each(|job| job.kill());
    }
}

/// The head's state; clones share it.
#[derive(Debug, Clone)]
struct Head {
    options: Options,
    faults: FaultPlan,
    folder: Arc<tempfile::TempDir>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    session: String,
    token: Option<String>,
    jobs: BTreeMap<String, Arc<Job>>,
    packages: BTreeMap<String, Bytes>,
    authorizations: Vec<String>,
}

/// Only the last ones are of interest to a test.
const MOST_AUTHORIZATIONS: usize = 10_000;

impl Head {
    fn new(options: Options, faults: FaultPlan) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for logs and working folders")?;
        std::fs::create_dir(folder.path().join("logs"))?;
        make_python(&folder.path().join("bin"))?;
        let state = State {
            session: session_name(),
            token: options.token.clone(),
            jobs: BTreeMap::new(),
            packages: BTreeMap::new(),
            authorizations: Vec::new(),
        };
        Ok(Self { options, faults, folder: Arc::new(folder), state: Arc::new(Mutex::new(state)) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn job(&self, id: &str) -> Option<Arc<Job>> {
        self.lock().jobs.get(id).cloned()
    }

    fn log_file(&self, id: &str) -> PathBuf {
        // Ids are anything; a path is not.
        let name: Vec<String> = id.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.folder.path().join("logs").join(format!("job-driver-{}.log", name.concat()))
    }
}

/// `python`, which entrypoints call, is `python3` on many machines.
///
/// A link, no script: a file that this process writes cannot be executed while a child that another thread starts at the
/// same moment holds it open.
fn make_python(folder: &Path) -> Result<()> {
    std::fs::create_dir(folder)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|place| place.join("python3"));
    if let Some(program) = programs.find(|program| program.is_file()) {
        std::os::unix::fs::symlink(program, folder.join("python"))?;
    }
    Ok(())
}

fn session_name() -> String {
    format!("session_{}", SystemClock::new().now().wall.strftime("%Y-%m-%d_%H-%M-%S_%6f_1"))
}

/// The arguments of `bridge-sim ray`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// CPUs of the cluster.
    #[arg(long, default_value_t = 4.0)]
    cpus: f64,
    /// The token to ask for, from the environment: arguments are visible to everybody on the machine.
    #[arg(env = "BRIDGE_SIM_RAY_TOKEN", hide = true, hide_env_values = true)]
    token: Option<String>,
}

/// Serves until the process ends.
pub async fn run(args: Args) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let options = Options { token: args.token, cpus: args.cpus, ..Options::default() };
    let head = Head::new(options, FaultPlan::new())?;
    axum::serve(listener, api::router(head)).await.context("the server failed")
}

#[cfg(test)]
mod tests;
