//! `bridge kill`: the end of jobs, confirmed by their remote systems.

use std::path::Path;
use std::time::Duration;

use bridge_core::plan::rules_for;
use bridge_core::record::JobRecord;
use bridge_core::state::Wishes;
use tokio::sync::mpsc;

use super::block_on;
use super::reopen::reopen;
use super::run::locked;
use crate::cli::{KillArguments, OnSignal};
use crate::drive::{Driven, Manner, drive, exit_of};
use crate::failure::{Failure, JobExit, worst};
use crate::screen::{Screen, Shown, Style};
use crate::secrets::process_environment;
use crate::signals::Signals;
use crate::state::{JobFile, JobFolder, LockError, StateFolder};
use crate::view::JobView;

/// How often another runner's progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Ends the jobs.
pub fn run(arguments: &KillArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let mut jobs = Vec::new();
    for name in &arguments.names {
        let folder = state.find(name)?;
        let remembered = folder.remembered()?.ok_or_else(|| never_run(&folder))?;
        jobs.push((folder, remembered));
    }
    let style = Style { format: arguments.output, quiet: false, several: false };
    block_on(async {
        let screen = Screen::open(style);
        let mut exits = Vec::new();
        for (folder, remembered) in jobs {
            // The wish is kept before anything else, for whoever has the job now or later.
            if remembered.record.as_ref().is_none_or(|record| record.ending().is_none()) {
                folder.ask_for_end(&remembered.job.run)?;
            }
            exits.push(end(&state, &folder, remembered.job, arguments, screen.sender()).await?);
        }
        screen.close().await;
        Ok(worst(exits))
    })?
}

fn never_run(folder: &JobFolder) -> Failure {
    Failure::input(format!("job {} was never run; bridge list shows those that were", folder.key()))
}

/// That a job no longer runs is what was asked for, however it ended; that nobody knows is not.
fn exit_of_kill(record: &JobRecord) -> JobExit {
    match exit_of(record) {
        JobExit::Ended(bridge_api::JobStatus::Unknown, code) => JobExit::Ended(bridge_api::JobStatus::Unknown, code),
        _ => JobExit::Ended(bridge_api::JobStatus::Done, 0),
    }
}

async fn end(
    state: &StateFolder,
    folder: &JobFolder,
    job: JobFile,
    arguments: &KillArguments,
    screen: mpsc::Sender<Shown>,
) -> Result<JobExit, Failure> {
    let mut said = false;
    loop {
        let record = folder.record(&job.run)?;
        if let Some(record) = record.as_ref().filter(|record| record.ending().is_some()) {
            let _ = screen.send(Shown::End(Box::new(JobView::of(&job, record)))).await;
            return Ok(exit_of_kill(record));
        }
        match folder.lock() {
            Ok(lock) => {
                let reopened = reopen(state, &job, &arguments.secrets.folders)?;
                let staging =
                    reopened.staging.map_err(|error| Failure::input(format!("job {}: {error}", folder.key())))?;
                let rules = rules_for(&job.spec, &*reopened.manager, &job.plan);
                if record.is_none() {
                    let holder = super::unique_name("kill").map_err(|error| Failure::trouble(error.to_string()))?;
                    folder.restore(&lock, &JobRecord::handed_over(job.run.clone(), holder, 1, job.created))?;
                }
                let wishes = Wishes { kill: true, delete: false, suspend: false };
                let run = job.run.clone();
                let driven =
                    Driven { folder: folder.clone(), lock, job, rules, wishes, manager: reopened.manager, staging };
                // A signal leaves; the wish is kept.
                let manner = Manner { detach: false, on_signal: OnSignal::Detach, follow: false };
                let signals = Signals::listen().map_err(|error| Failure::trouble(format!("signals: {error}")))?;
                let exits = drive(vec![driven], manner, screen, signals).await?;
                return match folder.record(&run)?.filter(|record| record.ending().is_some()) {
                    Some(record) => Ok(exit_of_kill(&record)),
                    None => Ok(exits.into_values().next().unwrap_or(JobExit::NotEnded)),
                };
            }
            Err(LockError::Held { by }) => {
                if !said {
                    said = true;
                    let by = by.map(|pid| format!(" (process {pid})")).unwrap_or_default();
                    let note =
                        format!("{}: its runner{by} was asked to end it; waiting for the confirmation", folder.key());
                    let _ = screen.send(Shown::Note(note)).await;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(error @ LockError::Io(_)) => return Err(locked(folder, &error)),
        }
    }
}
