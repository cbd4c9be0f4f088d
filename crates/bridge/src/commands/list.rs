//! `bridge list`: the jobs that were run from here.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use bridge_core::manager::{Sighting, Tracked};
use bridge_core::record::{JobRecord, JobState};
use serde_json::json;

use super::block_on;
use super::crd::print;
use super::reopen::reopen;
use crate::cli::{Format, ListArguments};
use crate::failure::Failure;
use crate::secrets::process_environment;
use crate::state::{JobFile, Remembered, StateFolder};
use crate::view::JobView;

/// The widest message of a table.
const MESSAGE_WIDTH: usize = 60;

/// How long a remote system may take to tell how a job is that nobody watches.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Lists the jobs.
pub fn run(arguments: &ListArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let mut jobs = Vec::new();
    let mut damaged = Vec::new();
    for folder in state.jobs()? {
        match folder.remembered() {
            Ok(Some(remembered)) => jobs.push((remembered, folder.is_watched())),
            Ok(None) => {}
            Err(failure) => damaged.extend(failure.messages),
        }
    }
    let rows = block_on(futures::future::join_all(jobs.iter().map(|(job, watched)| row(&state, job, *watched))))?;
    match arguments.output {
        Format::Text => print(&table(&rows))?,
        Format::Json => print(&format!("{:#}\n", as_json(&rows)))?,
    };
    // One damaged job does not hide the others.
    if damaged.is_empty() { Ok(0) } else { Err(Failure { code: crate::failure::BAD_INPUT, messages: damaged }) }
}

async fn row(state: &StateFolder, remembered: &Remembered, watched: bool) -> (JobView, bool) {
    let Remembered { job, record } = remembered;
    let Some(record) = record else { return (JobView::of(job, &JobRecord::new(job.run.clone(), "")), watched) };
    let mut view = JobView::of(job, record);
    if view.ended || watched {
        return (view, watched);
    }
    let looked = tokio::time::timeout(LOOK_LIMIT, look(state, job, record)).await.ok().flatten();
    view.message = match looked {
        Some(Sighting::Alive(phase, facts)) => {
            // Only for show: whoever goes on with the job keeps its record.
            let mut seen = record.clone();
            seen.facts.merge(facts);
            if let JobState::Active { phase: known, .. } = &mut seen.state {
                *known = phase;
            }
            view = JobView::of(job, &seen);
            format!("{}; nobody watches it", view.message)
        }
        Some(Sighting::Ended(outcome, _)) => {
            format!("ended ({}) while nobody watched; run its file again to keep that", outcome.reason)
        }
        Some(Sighting::Gone) => "its remote system does not know it; run its file again".to_owned(),
        Some(Sighting::Unaccounted { why }) => format!("as last seen, nobody watches it: {}; {why}", view.message),
        None => format!("as last seen, nobody watches it: {}", view.message),
    };
    (view, watched)
}

/// How a job is now. Changes nothing.
async fn look(state: &StateFolder, job: &JobFile, record: &JobRecord) -> Option<Sighting> {
    let id = record.id()?.clone();
    let tracked = Tracked { id: id.clone(), token: record.token(), verify: true, cancelling: false };
    let manager = reopen(state, job, &[]).ok()?.manager;
    manager.poll(std::slice::from_ref(&tracked)).await.ok()?.remove(&id)
}

/// The jobs, and whether someone watches each, for programs.
pub(super) fn as_json(rows: &[(JobView, bool)]) -> serde_json::Value {
    let jobs: Vec<serde_json::Value> = rows
        .iter()
        .map(|(view, watched)| {
            let mut value = json!(view);
            value["watched"] = json!(watched);
            value
        })
        .collect();
    json!({ "jobs": jobs })
}

/// The jobs, and whether someone watches each, for people.
pub(super) fn table(rows: &[(JobView, bool)]) -> String {
    if rows.is_empty() {
        return "no jobs\n".to_owned();
    }
    let header = ["NAME", "STATUS", "MANAGER", "JOB ID", "SUBMITTED", "MESSAGE"].map(str::to_owned);
    let lines = rows.iter().map(|(view, _)| {
        let message: String = view.message.replace(char::is_control, " ");
        let message = if message.chars().count() > MESSAGE_WIDTH {
            message.chars().take(MESSAGE_WIDTH - 1).chain(['…']).collect()
        } else {
            message
        };
        [
            view.title(),
            view.status.to_owned(),
            view.manager.to_owned(),
            view.job_id.clone().unwrap_or_else(|| "-".to_owned()),
            view.submitted.map_or_else(|| "-".to_owned(), |time| format!("{time:.0}")),
            message,
        ]
    });
    let lines: Vec<[String; 6]> = std::iter::once(header).chain(lines).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(row, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}
