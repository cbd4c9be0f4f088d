//! `bridge worker`

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::CredentialSource;
use bridge_core::manager::{LogStream, ResourceManager, Tracked};
use bridge_core::plan::{JobPlan, ManagerKind, PlanError, Target};
use bridge_core::staging::Staging;
use bridge_operator::worker::{self, Parts, WorkerEnd, WorkerSettings};
use tokio::sync::{mpsc, watch};

use super::cluster;
use crate::cli::WorkerArguments;
use crate::failure::Failure;
use crate::registry::Registry;
use crate::signals::Signals;
use crate::tail;

/// Another pod works on the job.
const REPLACED: u8 = 75;
/// Told to stop; the job goes on.
const LEFT: u8 = 143;

/// Drives the one job until it has ended; the exit code is its own.
pub fn run(arguments: WorkerArguments) -> Result<u8, Failure> {
    let WorkerArguments { namespace, job, pod_uid, config_map_uid, grace_seconds, credentials, s3_credentials } =
        arguments;
    let holder = match pod_uid {
        Some(uid) => format!("pod-{uid}"),
        None => super::unique_name("worker").map_err(|error| Failure::trouble(error.to_string()))?,
    };
    let settings = WorkerSettings {
        namespace,
        job,
        holder,
        config_map_uid,
        // Some of it is needed for the process's own end.
        grace: Duration::from_secs(grace_seconds.saturating_sub(3).max(1)),
        credentials,
        s3_credentials,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::trouble(format!("the runtime cannot be started: {error}")))?;
    let end = runtime.block_on(async {
        let client = cluster::client(None).await?;
        let (stop, stopped) = watch::channel(0);
        let mut signals = Signals::listen().map_err(|error| Failure::trouble(error.to_string()))?;
        tokio::spawn(async move {
            loop {
                signals.next().await;
                stop.send_modify(|count| *count += 1);
            }
        });
        let parts = Arc::new(Composed { registry: Mutex::new(Registry::new("/tmp/local")) });
        worker::run(client, settings, parts, Arc::new(SystemClock::new()), stopped)
            .await
            .map_err(|error| Failure::trouble(error.to_string()))
    })?;
    // Calls under way are not waited for: whoever goes on looks first.
    runtime.shutdown_background();
    Ok(match end {
        WorkerEnd::Ended(view) => view.process_exit_code(),
        WorkerEnd::Fenced => {
            say("another pod works on this job");
            REPLACED
        }
        WorkerEnd::Left => {
            say("told to stop; the job goes on and will be found again");
            LEFT
        }
    })
}

struct Composed {
    registry: Mutex<Registry>,
}

#[async_trait]
impl Parts for Composed {
    fn manager(
        &self,
        target: &Target,
        credentials: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Arc<dyn ResourceManager>, PlanError> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).manager(target, credentials)
    }

    fn staging(
        &self,
        plan: &JobPlan,
        credentials: Option<Arc<dyn CredentialSource>>,
    ) -> Result<Arc<dyn Staging>, PlanError> {
        match credentials {
            Some(keys) => Ok(Arc::new(S3Staging::new(keys, Arc::new(SystemClock::new())))),
            None => self.registry.lock().unwrap_or_else(PoisonError::into_inner).staging(plan),
        }
    }

    fn say(&self, line: &str) {
        say(line);
    }

    async fn follow(&self, manager: Arc<dyn ResourceManager>, job: Tracked, ended: watch::Receiver<bool>) {
        let (sender, mut pieces) = mpsc::channel(16);
        let reading = tail::tail(manager, job, tail::pauses(ManagerKind::Slurm), ended, sender);
        let showing = async {
            while let Some(piece) = pieces.recv().await {
                // A closed standard output is no reason to let go of the job.
                match piece.stream {
                    LogStream::Stdout => std::io::stdout().write_all(&piece.data).ok(),
                    LogStream::Stderr => std::io::stderr().write_all(&piece.data).ok(),
                };
            }
        };
        let (read, ()) = tokio::join!(reading, showing);
        if let Err(error) = read {
            tracing::warn!(%error, "the job's output could not be read to its end");
        }
    }
}

/// Lines about the job go to standard error where its output goes to standard output; `kubectl logs` shows both.
fn say(line: &str) {
    eprintln!("bridge: {line}");
}
