//! The jobs of an emulated head, and how they really run.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use bridge_core::clock::{Clock, SystemClock};
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use super::Options;

/// What was submitted.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) entrypoint: String,
    pub(super) submission_id: Option<String>,
    pub(super) runtime_env: Option<Map<String, Value>>,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) cpus: f64,
}

/// How far a job has come.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) status: &'static str,
    pub(super) message: String,
    pub(super) error_type: Option<&'static str>,
    pub(super) start_time: i64,
    pub(super) end_time: Option<i64>,
    pub(super) has_node: bool,
    pub(super) exit_code: Option<i32>,
}

impl Progress {
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.status, "SUCCEEDED" | "FAILED" | "STOPPED")
    }
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) request: Request,
    pub(super) log: PathBuf,
    progress: Mutex<Progress>,
    stop: Notify,
    give_up: Notify,
    /// The group of its processes, while it runs.
    group: Mutex<Option<Pid>>,
}

const WAITS_FOR_ENVIRONMENT: &str =
    "Job has not started yet. It may be waiting for the runtime environment to be set up.";
const WAITS_FOR_RESOURCES: &str = "Job has not started yet. It may be waiting for resources (CPUs, GPUs, memory, \
                                   custom resources) to become available.";

fn now() -> i64 {
    SystemClock::new().now().wall.as_millisecond()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    pub(super) fn new(id: String, request: Request, log: PathBuf, options: &Options) -> Self {
        let message = if request.cpus > options.cpus { WAITS_FOR_RESOURCES } else { WAITS_FOR_ENVIRONMENT };
        let progress = Progress {
            status: "PENDING",
            message: message.to_owned(),
            error_type: None,
            start_time: now(),
            end_time: None,
            has_node: false,
            exit_code: None,
        };
        Self {
            id,
            request,
            log,
            progress: Mutex::new(progress),
            stop: Notify::new(),
            give_up: Notify::new(),
            group: Mutex::new(None),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Asks for the end; whether there was anything to end.
    pub(super) fn stop(&self) -> bool {
        let ended = self.progress().is_ended();
        if !ended {
            self.stop.notify_one();
        }
        !ended
    }

    /// As if it had waited for as long as a job may.
    pub(super) fn give_up_waiting(&self) {
        self.give_up.notify_one();
    }

    /// Ends its processes at once, as the end of a head does.
    pub(super) fn kill(&self) {
        if let Some(group) = *lock(&self.group) {
            kill_process_group(group, Signal::KILL).ok();
        }
    }

    fn end(&self, status: &'static str, message: String, error_type: Option<&'static str>, exit_code: Option<i32>) {
        let mut progress = lock(&self.progress);
        progress.status = status;
        progress.message = message;
        progress.error_type = error_type;
        progress.exit_code = exit_code;
        progress.end_time = Some(now());
    }

    /// Runs it to its end. `package`: its working folder, if it is one that was uploaded.
    pub(super) async fn run(self: Arc<Self>, options: Options, folder: PathBuf, package: Option<Bytes>) {
        if self.request.cpus > options.cpus {
            // A stop is heard only by what has started.
            tokio::select! {
                () = tokio::time::sleep(options.start_timeout) => {}
                () = self.give_up.notified() => {}
            }
            let message = format!(
                "Job supervisor actor failed to start within {:?} seconds. This timeout can be configured by setting the \
                 environment variable RAY_JOB_START_TIMEOUT_SECONDS.",
                options.start_timeout.as_secs_f32()
            );
            return self.end("FAILED", message, Some("JOB_SUPERVISOR_ACTOR_START_TIMEOUT"), None);
        }
        tokio::time::sleep(options.start_delay).await;
        let work = match self.working_folder(&folder, package).await {
            Ok(work) => work,
            Err((message, kind)) => return self.end("FAILED", message, Some(kind), None),
        };
        match self.start(&folder, &work) {
            Ok(child) => self.watch(child, &options).await,
            Err(error) => self.end("FAILED", format!("{error:#}"), Some("JOB_SUPERVISOR_ACTOR_START_FAILURE"), None),
        }
    }

    async fn working_folder(&self, folder: &Path, package: Option<Bytes>) -> Result<PathBuf, (String, &'static str)> {
        const SETUP: &str = "RUNTIME_ENV_SETUP_FAILURE";
        let wanted = self.request.runtime_env.as_ref().and_then(|environment| environment.get("working_dir"));
        let Some(uri) = wanted.and_then(Value::as_str) else { return Ok(folder.to_owned()) };
        let failed = |why: &str| {
            let message = format!(
                "runtime_env setup failed: Failed to set up runtime environment.\nCould not create the actor because its \
                 associated runtime env failed to be created.\n{why}\n"
            );
            (message, SETUP)
        };
        let Some(name) = uri.strip_prefix("gcs://") else {
            let message = format!(
                "Failed to start supervisor actor {}: '{uri} is not a valid path.'. Full traceback:\nValueError: {uri} is \
                 not a valid path.\n",
                self.id
            );
            return Err((message, "JOB_SUPERVISOR_ACTOR_START_FAILURE"));
        };
        let package = package.ok_or_else(|| failed(&format!("OSError: Failed to download {uri}")))?;
        let place = folder.join("working_dir_files").join(name.trim_end_matches(".zip"));
        unpack(&place, &package).await.map_err(|error| failed(&format!("{error:#}")))?;
        Ok(place)
    }

    fn start(&self, folder: &Path, work: &Path) -> Result<Child> {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let time = SystemClock::new().now().wall.strftime("%Y-%m-%d %H:%M:%S,000").to_string();
        writeln!(log, "{time}\tINFO job_manager.py:581 -- Runtime env is setting up.")?;
        writeln!(log, "Running entrypoint for job {}: {}", self.id, self.request.entrypoint)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &self.request.entrypoint])
            .current_dir(work)
            .env("PATH", format!("{}:{path}", folder.join("bin").display()))
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        let variables = self.request.runtime_env.as_ref().and_then(|environment| environment.get("env_vars"));
        for (name, value) in variables.and_then(Value::as_object).into_iter().flatten() {
            command.env(name, value.as_str().unwrap_or_default());
        }
        let child = command.spawn().context("the entrypoint cannot be started")?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        *lock(&self.group) = group;
        let mut progress = lock(&self.progress);
        progress.status = "RUNNING";
        progress.has_node = true;
        "Job is currently running.".clone_into(&mut progress.message);
        Ok(child)
    }

    async fn watch(&self, mut child: Child, options: &Options) {
        let stopped = tokio::select! {
            () = self.stop.notified() => true,
            _ = child.wait() => false,
        };
        if stopped {
            if let Some(group) = *lock(&self.group) {
                kill_process_group(group, Signal::TERM).ok();
            }
            if tokio::time::timeout(options.stop_wait, child.wait()).await.is_err() {
                self.kill();
            }
        }
        let status = child.wait().await;
        // What the entrypoint left behind ends with it.
        self.kill();
        lock(&self.group).take();
        if stopped {
            return self.end("STOPPED", "Job was intentionally stopped.".to_owned(), None, None);
        }
        let code = status.ok().and_then(|status| status.code().or_else(|| status.signal().map(i32::wrapping_neg)));
        match code {
            Some(0) => self.end("SUCCEEDED", "Job finished successfully.".to_owned(), None, Some(0)),
            code => {
                let code = code.unwrap_or(-1);
                let log = std::fs::read(&self.log).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                let lines: Vec<&str> = log.split_inclusive('\n').collect();
                let last = lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().concat();
                let message = format!(
                    "Job entrypoint command failed with exit code {code}, last available logs (truncated to 20,000 \
                     chars):\n{last}"
                );
                self.end("FAILED", message, Some("JOB_ENTRYPOINT_COMMAND_ERROR"), Some(code));
            }
        }
    }
}

/// Unpacks a package as Ray does, with Python, once for each name.
async fn unpack(place: &Path, package: &Bytes) -> Result<()> {
    if place.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(place.parent().unwrap_or(place))?;
    let draft = tempfile::tempdir_in(place.parent().unwrap_or(place))?;
    let file = draft.path().join("package.zip");
    let content = draft.path().join("content");
    tokio::fs::write(&file, package).await?;
    let python = Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(&content).output().await;
    let python = python.context("python3 cannot be started")?;
    anyhow::ensure!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    // Another job with the same package may have been faster.
    if std::fs::rename(&content, place).is_err() {
        anyhow::ensure!(place.is_dir(), "the package cannot be put in its place");
    }
    Ok(())
}
