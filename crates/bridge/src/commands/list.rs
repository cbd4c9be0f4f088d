//! `bridge list`: the jobs that were run from here.

use std::fmt::Write as _;
use std::path::Path;

use bridge_core::record::JobRecord;
use serde_json::json;

use super::crd::print;
use crate::cli::{Format, ListArguments};
use crate::failure::Failure;
use crate::secrets::process_environment;
use crate::state::StateFolder;
use crate::view::JobView;

/// The widest message of a table.
const MESSAGE_WIDTH: usize = 60;

/// Lists the jobs.
pub fn run(arguments: &ListArguments, state_dir: Option<&Path>) -> Result<u8, Failure> {
    let state = StateFolder::locate(state_dir, &process_environment)?;
    let mut rows = Vec::new();
    let mut damaged = Vec::new();
    for folder in state.jobs()? {
        match folder.remembered() {
            Ok(Some(remembered)) => {
                let run = &remembered.job.run;
                let record = remembered.record.clone().unwrap_or_else(|| JobRecord::new(run.clone(), ""));
                rows.push((JobView::of(&remembered.job, &record), folder.is_watched()));
            }
            Ok(None) => {}
            Err(failure) => damaged.extend(failure.messages),
        }
    }
    match arguments.output {
        Format::Text => print(&table(&rows))?,
        Format::Json => print(&format!("{:#}\n", as_json(&rows)))?,
    };
    // One damaged job does not hide the others.
    if damaged.is_empty() { Ok(0) } else { Err(Failure { code: crate::failure::BAD_INPUT, messages: damaged }) }
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
    let lines = rows.iter().map(|(view, watched)| {
        let left = if view.ended || *watched { "" } else { "as last seen, nobody watches it: " };
        let message: String = format!("{left}{}", view.message).replace(char::is_control, " ");
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
