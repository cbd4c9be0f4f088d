//! `bridge logs`: a job's output, whether a runner watches it or not. Changes nothing.

use std::path::Path;
use std::time::Duration;

use bridge_core::manager::{ResourceManager, Sighting, Tracked};
use bridge_core::plan::ManagerKind;
use bridge_core::record::{JobRecord, JobState};
use tokio::sync::watch;

use super::block_on;
use super::reopen::reopen;
use super::run::absolute;
use crate::cli::{Format, LogsArguments};
use crate::drive::show_output;
use crate::failure::Failure;
use crate::screen::{Screen, Shown, Style};
use crate::secrets::process_environment;
use crate::state::{JobFile, JobFolder, Remembered, StateFolder};

/// How often the record is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Shows the output.
pub fn run(arguments: &LogsArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let folder = state.find(&arguments.name)?;
    let never = || Failure::input(format!("job {} was never run; there is no output", folder.key()));
    let Remembered { mut job, record } = folder.remembered()?.ok_or_else(never)?;
    job.shared.extend(absolute(&arguments.shared.folders)?);
    let reopened = reopen(&state, &job, &arguments.secrets.folders)?;
    if reopened.manager.logs().is_none() {
        return Err(Failure::input(format!(
            "job {}: {} cannot show output; look for it where the job writes it",
            folder.key(),
            job.plan.target.manager
        )));
    }
    block_on(async {
        let screen = Screen::open(Style { format: Format::Text, quiet: false, several: false });
        let shown = show(&folder, &job, record, &reopened.manager, arguments.follow, &screen).await;
        screen.close().await;
        shown.map(|()| 0)
    })?
}

async fn show(
    folder: &JobFolder,
    job: &JobFile,
    mut record: Option<JobRecord>,
    manager: &std::sync::Arc<dyn ResourceManager>,
    follow: bool,
    screen: &Screen,
) -> Result<(), Failure> {
    loop {
        let begun = record.as_ref().and_then(begun);
        let over = record.as_ref().is_some_and(|record| record.ending().is_some());
        if let Some(tracked) = begun {
            let (ended, end) = watch::channel(!follow || over);
            let output = show_output(job, std::sync::Arc::clone(manager), tracked.clone(), end, screen.sender());
            if !follow || over {
                output.await;
                return Ok(());
            }
            let attempt = record.as_ref().map(|record| record.attempt);
            tokio::select! {
                () = output => {}
                () = wait_for_end(folder, job, attempt, manager, &tracked, &ended) => {}
            }
            // Another attempt may follow.
            record = next_attempt(folder, job, attempt).await?;
            if record.is_none() {
                return Ok(());
            }
            continue;
        }
        if !follow || over {
            let note = format!("{}: nothing was submitted, so there is no output", folder.key());
            let _ = screen.sender().send(Shown::Note(note)).await;
            return Ok(());
        }
        if !folder.is_watched() {
            return Err(Failure::input(format!(
                "job {} was not submitted yet, and no runner is at it; run its file: bridge run {}",
                folder.key(),
                job.file
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        record = folder.record(&job.run)?;
    }
}

/// The remote side of the attempt that runs or ran last.
fn begun(record: &JobRecord) -> Option<Tracked> {
    if matches!(record.state, JobState::Prepared { .. }) {
        return None;
    }
    let id = record.id()?.clone();
    Some(Tracked { id, token: record.token(), verify: true, cancelling: false })
}

/// Sets `ended` when the attempt is over, by the record if a runner keeps it, else by a look of our own; never returns
/// before the output itself was read to its end.
async fn wait_for_end(
    folder: &JobFolder,
    job: &JobFile,
    attempt: Option<u32>,
    manager: &std::sync::Arc<dyn ResourceManager>,
    tracked: &Tracked,
    ended: &watch::Sender<bool>,
) {
    let own_looks = match job.plan.target.manager {
        ManagerKind::Local => Duration::from_secs(1),
        _ => Duration::from_secs(job.plan.poll_seconds.max(5).into()),
    };
    loop {
        let over = if folder.is_watched() {
            tokio::time::sleep(LOOK_EVERY).await;
            let record = folder.record(&job.run).ok().flatten();
            record.is_some_and(|record| {
                record.ending().is_some()
                    || Some(record.attempt) != attempt
                    || matches!(record.state, JobState::StagingOut { .. })
            })
        } else {
            tokio::time::sleep(own_looks).await;
            let seen = manager.poll(std::slice::from_ref(tracked)).await.ok();
            seen.and_then(|mut seen| seen.remove(&tracked.id))
                .is_some_and(|sighting| matches!(sighting, Sighting::Ended(..) | Sighting::Gone))
        };
        if over {
            ended.send_replace(true);
            return std::future::pending().await;
        }
    }
}

/// The record when a further attempt has begun; `None` when there will be none, or nobody is there to begin it.
async fn next_attempt(folder: &JobFolder, job: &JobFile, last: Option<u32>) -> Result<Option<JobRecord>, Failure> {
    loop {
        let Some(record) = folder.record(&job.run)? else { return Ok(None) };
        if Some(record.attempt) != last {
            return Ok(Some(record));
        }
        if record.ending().is_some() || !folder.is_watched() {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
