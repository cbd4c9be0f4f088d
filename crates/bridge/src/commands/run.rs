//! `bridge run`: jobs of files, from here to their ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bridge_api::reader::Problem;
use bridge_core::clock::{Clock as _, SystemClock};
use bridge_core::plan::rules_for;
use bridge_core::record::JobRecord;
use bridge_core::state::Wishes;
use bridge_core::status::StatusView;

use super::prepare::{Prepared, prepare};
use super::{block_on, random_id, unique_name};
use crate::cli::RunArguments;
use crate::content::{content, difference};
use crate::drive::{Driven, Manner, drive, exit_of};
use crate::failure::{Failure, JobExit, worst};
use crate::input;
use crate::registry::Registry;
use crate::screen::{Screen, Shown, Style};
use crate::secrets::process_environment;
use crate::signals::Signals;
use crate::state::{FORMAT, JobFile, JobFolder, Lock, LockError, Remembered, StateFolder};
use crate::view::JobView;

/// How long a lock is tried for: `bridge list` has it for an instant.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Runs the jobs of the files.
pub fn run(arguments: &RunArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let mut files = input::read(&arguments.files)?;
    let notes = std::mem::take(&mut files.notes);
    let shared = absolute(&arguments.shared.folders)?;
    let registry = Registry::new(state.local()).sharing(&shared);
    let prepared = prepare(files, &arguments.secrets.folders, &process_environment, registry)?;
    let (admitted, ended) = admit(&state, prepared, &Asked { again: arguments.again, shared })?;

    let several = admitted.len() + ended.len() > 1;
    let style = Style { format: arguments.output, quiet: arguments.quiet, several };
    let manner = Manner { detach: arguments.detach, on_signal: arguments.on_signal, follow: true };
    block_on(async {
        let signals = Signals::listen().map_err(|error| Failure::trouble(format!("signals: {error}")))?;
        let screen = Screen::open(style);
        let sender = screen.sender();
        for note in notes {
            let _ = sender.send(Shown::Note(format!("note: {note}"))).await;
        }
        let mut exits: Vec<JobExit> = Vec::new();
        for (job, record) in ended {
            exits.push(exit_of(&record));
            let key = &job.plan.key;
            let _ = sender.send(Shown::End(Box::new(JobView::of(&job, &record)))).await;
            let hint = format!(
                "{key}: it ended before and is not run again; --again runs it once more, bridge logs {key} shows its output"
            );
            let _ = sender.send(Shown::Note(hint)).await;
        }
        // The screen closes when its last sender is gone.
        let driven = if admitted.is_empty() {
            drop(sender);
            Ok(BTreeMap::new())
        } else {
            drive(admitted, manner, sender, signals).await
        };
        match driven {
            Ok(more) => {
                exits.extend(more.into_values());
                // Whoever was told to leave at once does not wait for a slow reader either.
                if exits.contains(&JobExit::NotEnded) {
                    tokio::time::timeout(Duration::from_secs(1), screen.close()).await.ok();
                } else {
                    screen.close().await;
                }
                Ok(worst(exits))
            }
            Err(failure) => Err(failure),
        }
    })?
}

/// What the arguments say about all jobs.
struct Asked {
    again: bool,
    shared: Vec<PathBuf>,
}

/// The folders, so that they mean the same to later commands.
pub(super) fn absolute(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let one = |folder: &PathBuf| {
        std::path::absolute(folder)
            .map_err(|error| Failure::input(format!("--shared-folder {}: {error}", folder.display())))
    };
    folders.iter().map(one).collect()
}

/// What is to be done with a job.
enum Admission {
    /// It is new, or runs once more, after these runs.
    Begin(Vec<String>),
    /// It was begun before and goes on.
    GoOn(Box<JobFile>, Option<Box<JobRecord>>),
    /// It ended before.
    Over(Box<JobFile>, Box<JobRecord>),
}

type Ended = Vec<(JobFile, JobRecord)>;

/// Takes all jobs for this process, or none: whatever is wrong with one of them, nothing is run.
fn admit(state: &StateFolder, prepared: Vec<Prepared>, asked: &Asked) -> Result<(Vec<Driven>, Ended), Failure> {
    let there = state.check()?;
    let mut problems = Vec::new();
    for job in &prepared {
        // Before anything is made: a job that was never run, and never could be, leaves no trace.
        let is_new = !there || state.job(&job.plan.key).remembered()?.is_none();
        problems.extend(faults(job, is_new || asked.again));
    }
    if !problems.is_empty() {
        return Err(Failure::problems(&problems));
    }
    state.prepare()?;
    let mut taken = Vec::new();
    for job in prepared {
        let folder = state.job(&job.plan.key);
        let lock = lock(&folder)?;
        let admission = decide(&folder, &job, asked.again)?;
        taken.push((job, folder, lock, admission));
    }
    let mut driven = Vec::new();
    let mut ended = Vec::new();
    for (job, folder, lock, admission) in taken {
        match admission {
            Admission::Over(file, record) => ended.push((*file, *record)),
            Admission::Begin(earlier) => {
                let file = begin(&folder, &lock, &job, asked, earlier)?;
                driven.extend(drivable(job, folder, lock, file));
            }
            Admission::GoOn(file, record) => {
                let file = go_on(&folder, &lock, &job, asked, *file, record.as_deref())?;
                driven.extend(drivable(job, folder, lock, file));
            }
        }
    }
    Ok((driven, ended))
}

/// What keeps a job from being run here.
fn faults(job: &Prepared, begins: bool) -> Vec<Problem> {
    let staging = job.staging.as_ref().err().cloned();
    let refused = if begins { job.check_submission().err() } else { None };
    staging.iter().chain(&refused).map(|error| job.problem(error)).collect()
}

fn drivable(job: Prepared, folder: JobFolder, lock: Lock, file: JobFile) -> Option<Driven> {
    let rules = rules_for(&job.document.job.spec, &*job.manager, &file.plan);
    let spec = &file.spec;
    let kill = spec.kill || folder.end_was_asked_for(&file.run);
    let wishes = Wishes { kill, delete: false, suspend: spec.suspend };
    // `admit` has looked at it.
    let staging = job.staging.ok()?;
    Some(Driven { folder, lock, job: file, rules, wishes, manager: job.manager, staging })
}

pub(super) fn lock(folder: &JobFolder) -> Result<Lock, Failure> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match folder.lock() {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { .. }) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(locked(folder, &error)),
        }
    }
}

/// Why a job cannot be taken.
#[must_use]
pub fn locked(folder: &JobFolder, error: &LockError) -> Failure {
    let key = folder.key();
    match error {
        LockError::Held { by } => {
            let by = by.as_ref().map(|pid| format!(" (process {pid})")).unwrap_or_default();
            Failure::trouble(format!(
                "job {key} is being run by another process{by}; watch it with: bridge logs -f {key}, end it with: bridge kill {key}"
            ))
        }
        LockError::Io(error) => Failure::input(format!(
            "the state of job {key} cannot be locked: {error}; check its permissions, or give another --state-dir"
        )),
    }
}

fn decide(folder: &JobFolder, job: &Prepared, again: bool) -> Result<Admission, Failure> {
    let Some(Remembered { job: file, record }) = folder.remembered()? else {
        return Ok(Admission::Begin(Vec::new()));
    };
    let key = folder.key();
    let over = record.as_ref().is_some_and(|record| record.ending().is_some());
    let status = record.as_ref().map_or("PENDING", |record| StatusView::of(record).status.as_str());
    let change = difference(&content(&file.spec), &content(&job.document.job.spec));
    match (over, again, change.as_str()) {
        (true, true, _) => Ok(Admission::Begin(file.earlier.into_iter().chain([file.run]).collect())),
        (true, false, "") => {
            let record = record.unwrap_or_else(|| JobRecord::new(file.run.clone(), ""));
            Ok(Admission::Over(Box::new(file), Box::new(record)))
        }
        (true, false, change) => Err(Failure::input(format!(
            "{}: job {key} was run before with other content:\n{change}to run the new content, say --again; to keep both, \
             give one of them another name",
            job.document.file
        ))),
        (false, true, _) => Err(Failure::input(format!(
            "job {key} has not ended ({status}), so it cannot be run again; end it first with: bridge kill {key}"
        ))),
        (false, false, "") => Ok(Admission::GoOn(Box::new(file), record.map(Box::new))),
        (false, false, change) => Err(Failure::input(format!(
            "{}: job {key} has not ended ({status}) and was begun with other content:\n{change}wait for it with the file as it \
             was, or end it with: bridge kill {key}, and then say --again",
            job.document.file
        ))),
    }
}

fn begin(
    folder: &JobFolder,
    lock: &Lock,
    job: &Prepared,
    asked: &Asked,
    earlier: Vec<String>,
) -> Result<JobFile, Failure> {
    let cannot = |error: std::io::Error| Failure::trouble(format!("/dev/urandom cannot be read: {error}"));
    let run = random_id().map_err(cannot)?;
    let mut plan = job.plan.clone();
    plan.uid.clone_from(&run);
    let file = JobFile {
        format: FORMAT,
        run: run.clone(),
        created: SystemClock::new().now().wall,
        file: job.document.file.clone(),
        spec: job.document.job.spec.clone(),
        plan,
        secrets: job.origins(),
        shared: asked.shared.clone(),
        earlier,
    };
    let record = JobRecord::new(run, unique_name("begin").map_err(cannot)?);
    folder.begin(lock, &file, &record)?;
    Ok(file)
}

/// What was decided stays; what may change is taken from the file.
fn go_on(
    folder: &JobFolder,
    lock: &Lock,
    job: &Prepared,
    asked: &Asked,
    mut file: JobFile,
    record: Option<&JobRecord>,
) -> Result<JobFile, Failure> {
    let killed = file.spec.kill;
    file.spec = job.document.job.spec.clone();
    // A kill cannot be taken back.
    file.spec.kill |= killed;
    file.plan.poll_seconds = job.plan.poll_seconds;
    file.secrets = job.origins();
    file.shared.clone_from(&asked.shared);
    folder.update(lock, &file)?;
    if record.is_none() {
        // The record is gone, and nobody knows what was done: whoever goes on looks first.
        let holder = unique_name("begin").map_err(|error| Failure::trouble(error.to_string()))?;
        let lost = JobRecord::handed_over(file.run.clone(), holder, 1, file.created);
        folder.restore(lock, &lost)?;
    }
    Ok(file)
}
