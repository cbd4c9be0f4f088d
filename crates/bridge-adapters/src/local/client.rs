//! One job's folder: how it is made, started, looked at and ended. All of it blocks.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bridge_core::ids::SubmitToken;

use super::config::Config;
use super::folder::{make_once, read_json, sync_folder, write_json};
use super::process;
use super::wire::{
    ALIVE, CANCEL, END, EXIT, EndFile, JOB, JOB_FOLDER, JobFile, LOCK, MARK_VARIABLE, NEW_JOB_FOLDER, OLD_JOB_FOLDER,
    SCRIPT, START, SUPERVISOR_LOG, StartFile, TOKEN_VARIABLE, WORK,
};

/// How long someone else may hold a token's lock: a submission takes milliseconds, so longer means a stopped process.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// How long a supervisor may take to start.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// How often locks and starts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The folder of one token.
#[derive(Debug, Clone)]
pub(super) struct JobFolder {
    path: PathBuf,
    token: String,
}

/// What a folder shows.
#[derive(Debug)]
pub(super) enum Seen {
    /// There is no job, and none can come of what is there.
    Nothing,
    /// It was started and has not ended.
    Running { job: JobFile, start: StartFile, orphaned: bool },
    /// It ended. No end: its supervisor was killed or the machine went down.
    Ended { job: JobFile, start: StartFile, end: Option<EndFile> },
}

/// Why nothing was started.
#[derive(Debug)]
pub(super) enum StartError {
    /// Surely nothing runs.
    NotStarted(io::Error),
    /// Nobody knows.
    Unknown(io::Error),
}

impl JobFolder {
    /// `None` for a token that is not one of ours: its text becomes a path.
    pub(super) fn new(root: &Path, token: &str) -> Option<Self> {
        SubmitToken::parse(token)?;
        Some(Self { path: root.join(token), token: token.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn work(&self) -> PathBuf {
        self.path.join(WORK)
    }

    pub(super) fn script(&self) -> PathBuf {
        self.control().join(SCRIPT)
    }

    fn control(&self) -> PathBuf {
        self.path.join(JOB_FOLDER)
    }

    /// Makes the folder and the one the job works in.
    pub(super) fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.work())
    }

    /// Starts the job, unless it was started before.
    /// Returns the supervisor, which is a child of this process and to be waited for some time.
    pub(super) fn start(
        &self,
        config: &Config,
        job: &JobFile,
        script: Option<&str>,
    ) -> Result<Option<Child>, StartError> {
        let not_started = StartError::NotStarted;
        self.create().map_err(not_started)?;
        let _lock = self.lock().map_err(not_started)?;
        // A folder that another submitter left before its supervisor started is not ours to go on with: its supervisor
        // may still be on its way. Called off, it never runs, and we begin anew.
        if self.call_off().map_err(not_started)? == CallOff::Started {
            return Ok(None);
        }
        self.prepare(job, script).map_err(not_started)?;
        let mut supervisor = self.spawn(config, &job.mark).map_err(not_started)?;
        let Err(trouble) = self.await_start(&mut supervisor) else { return Ok(Some(supervisor)) };
        match self.call_off() {
            Ok(CallOff::Started) => Ok(Some(supervisor)),
            Ok(CallOff::NeverRuns) => {
                supervisor.kill().and_then(|()| supervisor.wait()).ok();
                Err(StartError::NotStarted(trouble))
            }
            Err(error) => Err(StartError::Unknown(error)),
        }
    }

    /// Whether the job was started. One that was only prepared is called off: once we said that there is none, no late
    /// supervisor of a submitter that was killed may make it untrue.
    pub(super) fn find(&self) -> io::Result<bool> {
        if !self.path.try_exists()? {
            return Ok(false);
        }
        let _lock = self.lock()?;
        Ok(self.call_off()? == CallOff::Started)
    }

    /// What is there now.
    pub(super) fn look(&self, boot: &str) -> io::Result<Seen> {
        let control = self.control();
        let Some(start) = read_json::<StartFile>(&control, START)? else { return Ok(Seen::Nothing) };
        let StartFile::Started { boot: started_in, .. } = &start else { return Ok(Seen::Nothing) };
        let Some(job) = read_json::<JobFile>(&control, JOB)? else { return Ok(Seen::Nothing) };
        if let Some(end) = read_json(&control, END)? {
            return Ok(Seen::Ended { job, start, end: Some(end) });
        }
        if self.is_supervised()? {
            return Ok(Seen::Running { job, start, orphaned: false });
        }
        // Its last act may have come between our two looks.
        if let Some(end) = read_json(&control, END)? {
            return Ok(Seen::Ended { job, start, end: Some(end) });
        }
        if started_in == boot && !process::members(&job.mark, None)?.is_empty() {
            return Ok(Seen::Running { job, start, orphaned: true });
        }
        let end = read_json(&control, EXIT)?;
        Ok(Seen::Ended { job, start, end })
    }

    /// Asks for the end. The supervisor sees to it; if that is gone, each call does a step of it.
    pub(super) fn cancel(&self, boot: &str) -> io::Result<()> {
        let Seen::Running { job, orphaned, .. } = self.look(boot)? else { return Ok(()) };
        let mark = self.control().join(CANCEL);
        let first = match File::create_new(&mark) {
            Ok(file) => file.sync_all().map(|()| true)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        if !orphaned {
            return Ok(());
        }
        let members = process::members(&job.mark, None)?;
        let asked_for = std::fs::metadata(&mark)?.modified()?.elapsed().unwrap_or_default();
        if !first && asked_for >= Duration::from_millis(job.grace_millis) {
            process::kill(&members)
        } else {
            process::terminate(&members)
        }
    }

    /// Whether an end was asked for.
    pub(super) fn is_cancelled(&self) -> bool {
        self.control().join(CANCEL).exists()
    }

    /// Deletes everything of an ended job. Returns `false` if it has not ended.
    pub(super) fn remove(&self, boot: &str) -> io::Result<bool> {
        if !self.path.try_exists()? {
            return Ok(true);
        }
        let _lock = self.lock()?;
        self.call_off()?;
        if matches!(self.look(boot)?, Seen::Running { .. }) {
            return Ok(false);
        }
        std::fs::remove_dir_all(&self.path)?;
        Ok(true)
    }

    /// Keeps other processes from submitting or looking for this token. Freed when its holder dies.
    fn lock(&self) -> io::Result<File> {
        let path = self.path.join(LOCK);
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            match file.try_lock() {
                // Removing a job removes its lock: then the one that was waited for is no longer the one at the path.
                Ok(()) => match std::fs::metadata(&path) {
                    Ok(now) if now.ino() == file.metadata()?.ino() => return Ok(file),
                    _ => self.create()?,
                },
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if Instant::now() >= deadline {
                let message = format!("another process has held {} for {LOCK_PATIENCE:?}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Sees to it that what was prepared and not started never starts. Only under the lock.
    fn call_off(&self) -> io::Result<CallOff> {
        let control = self.control();
        if !control.try_exists()? {
            return Ok(CallOff::NeverRuns);
        }
        if make_once(&control, START, &StartFile::CalledOff)? {
            return Ok(CallOff::NeverRuns);
        }
        Ok(match read_json(&control, START)? {
            Some(StartFile::Started { .. }) => CallOff::Started,
            Some(StartFile::CalledOff) | None => CallOff::NeverRuns,
        })
    }

    /// Puts the control folder in place, complete. Only under the lock, and only if an older one was called off.
    fn prepare(&self, job: &JobFile, script: Option<&str>) -> io::Result<()> {
        let (new, old, control) = (self.path.join(NEW_JOB_FOLDER), self.path.join(OLD_JOB_FOLDER), self.control());
        remove_if_there(&new)?;
        remove_if_there(&old)?;
        DirBuilder::new().mode(0o700).create(&new)?;
        if let Some(text) = script {
            let mut file = File::options().write(true).create_new(true).mode(0o700).open(new.join(SCRIPT))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        File::options().write(true).create_new(true).mode(0o600).open(new.join(ALIVE))?;
        write_json(&new, JOB, job)?;
        if control.try_exists()? {
            // Moved before its mark is deleted; `supervise` relies on this order.
            std::fs::rename(&control, &old)?;
        }
        std::fs::rename(&new, &control)?;
        sync_folder(&self.path)?;
        remove_if_there(&old)
    }

    fn spawn(&self, config: &Config, mark: &str) -> io::Result<Child> {
        let control = self.control();
        let (program, arguments) = &config.supervisor;
        Command::new(program)
            .arg0("bridge")
            .args(arguments)
            .current_dir(&control)
            .env_clear()
            .envs(config.environment.iter().map(|(name, value)| (name, value)))
            .env(TOKEN_VARIABLE, &self.token)
            // Also on the supervisor: between its fork and the script's exec, the script shows this environment.
            .env(MARK_VARIABLE, mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(control.join(SUPERVISOR_LOG))?)
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot run the supervisor {}: {error}", program.display()))
            })
    }

    fn await_start(&self, supervisor: &mut Child) -> io::Result<()> {
        let control = self.control();
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            // Looked at first: one that started the job and ended since has done what it should.
            let status = supervisor.try_wait()?;
            if control.join(START).exists() {
                return Ok(());
            }
            if let Some(status) = status {
                let log = std::fs::read(control.join(SUPERVISOR_LOG)).unwrap_or_default();
                let log: String = String::from_utf8_lossy(&log).trim().chars().take(500).collect();
                return Err(io::Error::other(format!("the supervisor ended ({status}) before the job: {log}")));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::other(format!("the supervisor did not start within {START_PATIENCE:?}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether the supervisor lives. It locks before it marks the start, so an open lock after a start means its death,
    /// whatever became of its number.
    fn is_supervised(&self) -> io::Result<bool> {
        let alive = match File::open(self.control().join(ALIVE)) {
            Ok(alive) => alive,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        // Shared, so that those who look do not see each other.
        match alive.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// What calling off came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOff {
    /// Too late: it was started.
    Started,
    /// Nothing of what is there ever runs.
    NeverRuns,
}

/// The tokens that have a folder.
pub(super) fn tokens(root: &Path) -> io::Result<Vec<SubmitToken>> {
    let entries = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut tokens = Vec::new();
    for entry in entries {
        tokens.extend(entry?.file_name().to_str().and_then(SubmitToken::parse));
    }
    Ok(tokens)
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
