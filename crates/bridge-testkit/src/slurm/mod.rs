//! A Slurm cluster behind slurmrestd that is none: the wire format of each API version, jobs whose scripts really run
//! as processes of this machine, and faults by plan.
//!
//! What it shows per version follows recorded answers of real servers; where those have a trap, it has the trap, too.

mod answers;
mod cluster;
mod fields;
mod job;
mod routes;
mod run;
mod sim;
mod submit;
mod templates;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::faults::FaultPlan;

use self::cluster::Cluster;
pub use self::cluster::Run;
pub use self::sim::{SimArgs, run as simulate};

/// How an emulated cluster is.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "sites differ in each by itself")]
pub struct EmulatorOptions {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The API versions it offers, by the number after `v0.0.`.
    pub versions: Vec<u16>,
    /// Whether it tells which versions it offers; a gateway may hand on `/slurm` only.
    pub describes_itself: bool,
    /// Its users and their tokens.
    pub users: BTreeMap<String, String>,
    /// Where scripts and, without a working directory, output files go. A temporary folder if there is none.
    pub folder: Option<PathBuf>,
    /// How many tasks run at the same time.
    pub cpus: u32,
    /// How long an ended job is remembered outside of accounting.
    pub min_job_age: Duration,
    /// Whether there is accounting.
    pub accounting: bool,
    /// Whether accounting stores comments, which many sites do not have it do.
    pub accounting_stores_comments: bool,
    /// How many jobs a user may have that have not ended.
    pub max_submit_jobs: Option<usize>,
    /// Whether `extra` is read as constraints (`SchedulerParameters=extra_constraints`), so that no other text is taken.
    pub extra_constraints: bool,
    /// How long a minute of a time limit lasts.
    pub minute: Duration,
    /// How long a cancelled job has between SIGTERM and SIGKILL.
    pub kill_wait: Duration,
    /// How long it takes to answer while slurmctld is down.
    pub outage_answer: Duration,
    /// What goes wrong, and when.
    pub faults: FaultPlan,
}

impl Default for EmulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            versions: vec![40, 41, 42],
            describes_itself: true,
            users: BTreeMap::from([("alice".to_owned(), "alice-token".to_owned())]),
            folder: None,
            cpus: 16,
            min_job_age: Duration::from_mins(5),
            accounting: false,
            accounting_stores_comments: true,
            max_submit_jobs: None,
            extra_constraints: false,
            minute: Duration::from_mins(1),
            kill_wait: Duration::from_secs(2),
            outage_answer: Duration::from_secs(9),
            faults: FaultPlan::new(),
        }
    }
}

/// An emulated cluster. Dropping it ends its server and its jobs.
#[derive(Debug)]
pub struct Emulator {
    cluster: Arc<Cluster>,
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
    folder: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Emulator {
    /// Starts a cluster.
    pub async fn start(options: EmulatorOptions) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(options.listen).await.with_context(|| format!("cannot listen on {}", options.listen))?;
        let address = listener.local_addr().context("the listener has no address")?;
        let temporary = options.folder.is_none().then(tempfile::tempdir).transpose().context("no temporary folder")?;
        let folder = match (&options.folder, &temporary) {
            (Some(folder), _) => folder.clone(),
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => std::env::temp_dir(),
        };
        let folder = std::path::absolute(folder).context("the folder has no absolute path")?;
        tokio::fs::create_dir_all(&folder).await.with_context(|| format!("cannot make {}", folder.display()))?;
        let cluster = Arc::new(Cluster::new(options, folder.clone()));
        let server = routes::router(Arc::clone(&cluster));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, server).await {
                tracing::error!(%error, "the emulated slurmrestd ended");
            }
        });
        let scheduling = tokio::spawn(run::schedule(Arc::clone(&cluster)));
        Ok(Self { cluster, address, tasks: vec![serving, scheduling], folder, _temporary: temporary })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL without an API version.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its URL with an API version.
    #[must_use]
    pub fn versioned_url(&self, version: u16) -> String {
        format!("http://{}/slurm/v0.0.{version}", self.address)
    }

    /// Where its scripts are, and output files of jobs without a working directory.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// What goes wrong, and when.
    #[must_use]
    pub fn faults(&self) -> &FaultPlan {
        &self.cluster.options.faults
    }

    /// Each start of a script so far, with the comment of its job.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        self.cluster.runs()
    }

    /// How many scripts run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.cluster.lock().jobs.values().filter(|job| job.state == job::State::Running).count()
    }

    /// The ids of all jobs that are remembered.
    #[must_use]
    pub fn job_ids(&self) -> Vec<u32> {
        self.cluster.lock().jobs.keys().copied().collect()
    }

    /// Offers other API versions from now on, as after an upgrade.
    pub fn offer(&self, versions: &[u16]) {
        self.cluster.lock().versions = versions.to_vec();
    }

    /// Changes a user's token; the old one is no longer accepted.
    pub fn set_token(&self, user: &str, token: &str) {
        self.cluster.lock().users.insert(user.to_owned(), token.to_owned());
    }

    /// Ends slurmctld; slurmrestd goes on and answers as it does then. What runs goes on running.
    pub fn stop_controller(&self) {
        self.cluster.lock().controller_is_up = false;
    }

    /// Starts slurmctld again.
    pub fn start_controller(&self) {
        self.cluster.lock().controller_is_up = true;
    }

    /// Answers the next questions for all jobs with 304 and nothing else, as a cache in between may.
    pub fn claim_unchanged(&self, times: u32) {
        self.cluster.lock().claims_unchanged = times;
    }

    /// Ends slurmdbd; slurmrestd goes on and answers as it does then.
    pub fn stop_accounting(&self) {
        self.cluster.lock().accounting_is_up = false;
    }

    /// Starts slurmdbd again.
    pub fn start_accounting(&self) {
        self.cluster.lock().accounting_is_up = true;
    }

    /// Forgets the jobs that were submitted within this time, as a slurmctld that is killed does. Their ids are given
    /// to the next jobs.
    pub fn lose_jobs_younger_than(&self, age: Duration) {
        self.cluster.lose_younger_than(age);
    }

    /// Forgets that a job was released, and all that followed, as a slurmctld that is killed does; its accounts do not.
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn forget_release(&self, id: u32) -> bool {
        self.cluster.forget_release(id)
    }

    /// Forgets an ended job, and its account if there are accounts. Whether there was one.
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn purge(&self, id: u32, account_too: bool) -> bool {
        self.cluster.purge(id, account_too)
    }

    /// Forgets an ended job whose end slurmdbd has not been told of: its account shows it as running until
    /// [`tell_ends`](Self::tell_ends).
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn purge_untold(&self, id: u32) -> bool {
        let is_known = self.cluster.purge(id, false);
        let mut state = self.cluster.lock();
        state.accounts.iter_mut().filter(|job| job.id == id).for_each(|job| job.is_untold = true);
        is_known
    }

    /// Forgets an ended job of which slurmdbd has not been told at all until [`tell_ends`](Self::tell_ends).
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn purge_unheard_of(&self, id: u32) -> bool {
        let is_known = self.cluster.purge(id, false);
        let mut state = self.cluster.lock();
        state.accounts.iter_mut().filter(|job| job.id == id).for_each(|job| job.is_unheard_of = true);
        is_known
    }

    /// slurmdbd has worked off what it missed.
    pub fn tell_ends(&self) {
        let mut state = self.cluster.lock();
        state.accounts.iter_mut().for_each(|job| (job.is_untold, job.is_unheard_of) = (false, false));
    }

    /// slurmdbd takes so long for each answer.
    pub fn delay_accounting(&self, delay: Duration) {
        self.cluster.lock().accounting.delay = delay;
    }

    /// Answers the next questions to slurmdbd as if there were no such address, as one replica behind a gateway may.
    pub fn hide_accounting(&self, times: u32) {
        self.cluster.lock().accounting.unfound = times;
    }

    /// How many questions to slurmdbd there were, and how many at the same time at most.
    #[must_use]
    pub fn accounting_requests(&self) -> (u64, u64) {
        let state = self.cluster.lock();
        (state.accounting.all, state.accounting.most_at_once)
    }

    /// Adds a held job of the first user behind everybody's back.
    #[must_use]
    pub fn add_held_job(&self, comment: &str) -> u32 {
        let user = self.cluster.lock().users.keys().next().cloned().unwrap_or_default();
        self.add_held_job_of(&user, comment)
    }

    /// Adds a held job of any user behind everybody's back.
    #[must_use]
    pub fn add_held_job_of(&self, user: &str, comment: &str) -> u32 {
        self.cluster.add_held(user, comment)
    }

    /// Puts a running job back into the queue under the same id, as an administrator's requeue does.
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn requeue(&self, id: u32) -> bool {
        self.cluster.requeue(id, "REQUEUED")
    }

    /// Puts a running job back into the queue for one that matters more; its accounts tell that.
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn preempt(&self, id: u32) -> bool {
        self.cluster.requeue(id, "PREEMPTED")
    }

    /// Changes a job's comment, as its user or the site's submit filter may.
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn set_comment(&self, id: u32, comment: &str) -> bool {
        let mut state = self.cluster.lock();
        let job = state.jobs.get_mut(&id);
        job.map(|job| comment.clone_into(&mut job.comment)).is_some()
    }

    /// Sets a job's state to any word, for states that no script can reach.
    #[allow(clippy::must_use_candidate, reason = "most callers know that the job is there")]
    pub fn set_state(&self, id: u32, words: &[&str], reason: &str) -> bool {
        self.cluster.force(id, words, reason)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.cluster.end_all();
    }
}
