//! The small process that runs one job, waits for it, and writes down how it ended. It outlives the runner.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bridge_core::clock::{Clock, SystemClock};

use super::folder::{make_once, read_json, write_json};
use super::process;
use super::wire::{ALIVE, CANCEL, END, EXIT, EndCause, EndFile, JOB, JOB_FOLDER, JobFile, START, StartFile};

/// How often a cancel is looked for: what a user waits at most before SIGTERM is sent.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long processes that even SIGKILL does not end, such as those of another user, hold up the end of the job.
const UNKILLABLE: Duration = Duration::from_secs(5);

/// Runs the job whose control folder is the working folder, unless it was started or called off before.
///
/// This is what the hidden command behind [`Config::supervisor`](super::Config) does, before anything else: it needs no
/// runtime, and makes its process the leader of a session of its own.
pub fn supervise() -> io::Result<()> {
    // The folder may be renamed while we start; the working folder stays with it.
    let here = Path::new(".");
    rustix::process::setsid()?;
    let clock = SystemClock::new();
    let Some(_alive) = lock_alive(here)? else { return Ok(()) };
    let start = StartFile::Started {
        supervisor: i32::try_from(std::process::id()).unwrap_or(0),
        boot: process::boot_id()?,
        at: clock.now().wall,
    };
    // From here on the job counts as started: if we die before the script runs, it never will.
    if !make_once(here, START, &start)? || !is_current(here)? {
        return Ok(());
    }
    let job: JobFile = read_json(here, JOB)?.ok_or_else(|| io::Error::other("job.json is missing"))?;
    let end = match spawn(&job) {
        Ok(child) => {
            let end = watch(&job, here, child, &clock)?;
            write_down(here, EXIT, &end)?;
            clear_away(&job);
            end
        }
        Err(error) => EndFile {
            exit_code: None,
            signal: None,
            ended: clock.now().wall,
            cause: EndCause::NotStarted,
            message: error.to_string(),
        },
    };
    write_down(here, END, &end)
}

/// Writes how it ended, however long it takes: on a full disk the job counts as running until there is room.
fn write_down(here: &Path, name: &str, end: &EndFile) -> io::Result<()> {
    loop {
        match write_json(here, name, end) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(Duration::from_secs(1)),
            // Written, or the folder was deleted and nobody will ever ask.
            done => return done,
        }
    }
}

/// Takes the lock that shows that we live. `None` if the job was started or called off already.
fn lock_alive(here: &Path) -> io::Result<Option<File>> {
    let alive = File::options().read(true).write(true).open(here.join(ALIVE))?;
    loop {
        if here.join(START).exists() {
            return Ok(None);
        }
        match alive.try_lock() {
            Ok(()) => return Ok(Some(alive)),
            // Someone looks whether we live, for an instant; or another supervisor starts, which shows above.
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Whether this is still the job's folder. A folder that was called off is moved away before its files are deleted, so
/// a mark that we could only set because the old one was deleted is found out here.
fn is_current(here: &Path) -> io::Result<bool> {
    let current = match std::fs::metadata(here.join("..").join(JOB_FOLDER)) {
        Ok(current) => current,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let own = std::fs::metadata(here)?;
    Ok((own.dev(), own.ino()) == (current.dev(), current.ino()))
}

fn spawn(job: &JobFile) -> io::Result<Child> {
    let explain = |what: String| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let open = |path: &Path| {
        // Emptied, because the output is this job's; then appended to, because the script may open it as well.
        let emptied = File::create(path).and_then(|_| File::options().append(true).open(path));
        emptied.map_err(explain(format!("cannot write its output to {}", path.display())))
    };
    let (program, arguments) = job.command.split_first().ok_or_else(|| io::Error::other("it has no command"))?;
    let stdout = open(&job.stdout)?;
    let stderr = if job.stderr == job.stdout { stdout.try_clone()? } else { open(&job.stderr)? };
    if !job.folder.is_dir() {
        return Err(io::Error::other(format!("its working folder {} is not there", job.folder.display())));
    }
    Command::new(program)
        .args(arguments)
        .current_dir(&job.folder)
        .env("PWD", &job.folder)
        .envs(&job.environment)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn()
        .map_err(explain(format!("cannot run {program}")))
}

/// Waits for the script's end; sees to it that it comes when it was asked for or the time is over.
fn watch(job: &JobFile, here: &Path, mut child: Child, clock: &SystemClock) -> io::Result<EndFile> {
    let started = Instant::now();
    let limit = job.limit_millis.map(|limit| started + Duration::from_millis(limit));
    let (sender, exits) = channel();
    std::thread::spawn(move || sender.send(child.wait()));
    loop {
        if let Some(status) = exited(&exits, LOOK_EVERY)? {
            return Ok(end_of(status, EndCause::Itself, clock));
        }
        let cause = if here.join(CANCEL).exists() {
            EndCause::Cancelled
        } else if limit.is_some_and(|limit| Instant::now() >= limit) {
            EndCause::TimedOut
        } else {
            continue;
        };
        // It may have ended by itself since the last look, and then that is the truth.
        if let Some(status) = exited(&exits, Duration::ZERO)? {
            return Ok(end_of(status, EndCause::Itself, clock));
        }
        return Ok(end_of(end_by_force(job, &exits)?, cause, clock));
    }
}

fn end_by_force(job: &JobFile, exits: &Receiver<io::Result<ExitStatus>>) -> io::Result<ExitStatus> {
    let mut force = Force::new(job);
    loop {
        force.apply();
        if let Some(status) = exited(exits, LOOK_EVERY)? {
            return Ok(status);
        }
    }
}

/// Ends what the script left behind, so that an ended job neither runs nor writes any more.
fn clear_away(job: &JobFile) {
    let mut force = Force::new(job);
    while force.apply() != Some(0) && Instant::now() < force.grace + UNKILLABLE {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// SIGTERM once, then SIGKILL as often as it takes.
struct Force<'a> {
    job: &'a JobFile,
    grace: Instant,
    asked: bool,
}

impl<'a> Force<'a> {
    fn new(job: &'a JobFile) -> Self {
        Self { job, grace: Instant::now() + Duration::from_millis(job.grace_millis), asked: false }
    }

    /// Does what is due. Returns how many processes it was due to, if they could be listed.
    fn apply(&mut self) -> Option<usize> {
        let members = members(self.job).ok()?;
        // Errors are those of processes that we may not signal; they must not keep the job's end from being told.
        if Instant::now() >= self.grace {
            process::kill(&members).ok();
        } else if !self.asked {
            process::terminate(&members).ok();
            self.asked = true;
        }
        Some(members.len())
    }
}

fn members(job: &JobFile) -> io::Result<Vec<process::Member>> {
    process::members(&job.mark, i32::try_from(std::process::id()).ok())
}

fn exited(exits: &Receiver<io::Result<ExitStatus>>, wait: Duration) -> io::Result<Option<ExitStatus>> {
    match exits.recv_timeout(wait) {
        Ok(status) => status.map(Some),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("nobody waits for the script any more")),
    }
}

fn end_of(status: ExitStatus, cause: EndCause, clock: &SystemClock) -> EndFile {
    EndFile {
        exit_code: status.code(),
        signal: status.signal(),
        ended: clock.now().wall,
        cause,
        message: String::new(),
    }
}
