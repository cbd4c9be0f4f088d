//! `bridge forget`: jobs that have ended leave no trace here.

use std::path::Path;

use bridge_adapters::local::{Config, LocalManager};
use bridge_core::clock::{Clock as _, SystemClock};
use bridge_core::plan::ManagerKind;
use bridge_core::status::StatusView;

use super::block_on;
use super::run::lock;
use crate::cli::ForgetArguments;
use crate::failure::Failure;
use crate::secrets::process_environment;
use crate::state::{JobFolder, Remembered, StateFolder};

/// Forgets the jobs. With one that has not ended, those before it are forgotten and it stays.
pub fn run(arguments: &ForgetArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let folders = match arguments.older_than {
        Some(age) => {
            let ended_by = SystemClock::new().now().wall.saturating_sub(age).unwrap_or(jiff::Timestamp::MIN);
            let mut old = state.jobs()?;
            // One that cannot be read is left alone: `bridge list` tells what is the matter with it.
            old.retain(|folder| folder.remembered().is_ok_and(|job| job.is_some_and(|job| ended(&job, ended_by))));
            old
        }
        None => arguments.names.iter().map(|name| state.find(name)).collect::<Result<_, _>>()?,
    };
    let local = LocalManager::new(Config::new(state.local()));
    for folder in folders {
        forget(&folder, &local)?;
        eprintln!("{}: forgotten", folder.key());
    }
    Ok(0)
}

fn ended(job: &Remembered, by: jiff::Timestamp) -> bool {
    let record = job.record.as_ref().filter(|record| record.ending().is_some());
    record.is_some_and(|record| record.times.finished.is_some_and(|finished| finished <= by))
}

fn forget(folder: &JobFolder, local: &LocalManager) -> Result<(), Failure> {
    let key = folder.key();
    let lock = lock(folder)?;
    // Only now nobody else can begin it again.
    let Some(Remembered { job, record }) = folder.remembered()? else { return folder.forget(&lock) };
    if record.as_ref().is_none_or(|record| record.ending().is_none()) {
        let status = record.as_ref().map_or("PENDING", |record| StatusView::of(record).status.as_str());
        return Err(Failure::input(format!(
            "job {key} has not ended ({status}), so it is not forgotten; end it first with: bridge kill {key}"
        )));
    }
    if job.plan.target.manager == ManagerKind::Local {
        block_on(async {
            for run in job.earlier.iter().chain([&job.run]) {
                local.remove_all(run).await.map_err(|error| Failure::trouble(format!("job {key}: {error}")))?;
            }
            Ok(())
        })??;
    }
    folder.forget(&lock)
}
