//! The files of a command: jobs, and the Secrets beside them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bridge_api::reader::{self, Document, JobDocument, Problem, SecretDocument};

use crate::failure::Failure;

/// What the files hold.
#[derive(Debug, Default)]
pub struct Input {
    /// The jobs, in their order.
    pub jobs: Vec<JobDocument>,
    /// The Secrets, each with its file.
    pub secrets: Vec<(PathBuf, SecretDocument)>,
    /// What the reader changed or left out.
    pub notes: Vec<Problem>,
}

/// The name by which standard input is given.
pub const STDIN: &str = "-";

/// Reads all files, or says everything that is wrong with them.
pub fn read(files: &[PathBuf]) -> Result<Input, Failure> {
    let mut texts = Vec::new();
    let mut problems = Vec::new();
    for path in files {
        match bytes_of(path) {
            Ok(bytes) => texts.push((path.clone(), bytes)),
            Err(message) => problems.push(problem(path, message)),
        }
    }
    if files.iter().filter(|path| path.as_os_str() == STDIN).count() > 1 {
        return Err(Failure::input("standard input (-) is given twice; give it once"));
    }
    let mut input = Input::default();
    for (path, bytes) in &texts {
        let reading = reader::read(&shown(path), bytes);
        problems.extend(reading.problems);
        input.notes.extend(reading.notes);
        for document in reading.documents {
            match document {
                Document::Job(job) => input.jobs.push(*job),
                Document::Secret(secret) => input.secrets.push((path.clone(), secret)),
            }
        }
    }
    problems.extend(twice(&input.jobs));
    if problems.is_empty() && input.jobs.is_empty() {
        let names: Vec<String> = files.iter().map(|path| shown(path)).collect();
        return Err(Failure::input(format!(
            "{}: no BridgeJob in here; write one (apiVersion: {}, kind: {})",
            names.join(", "),
            bridge_api::names::API_VERSION,
            bridge_api::names::KIND
        )));
    }
    if problems.is_empty() { Ok(input) } else { Err(Failure::problems(&problems)) }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; check its name".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a folder; name the files in it".to_owned(),
        std::io::ErrorKind::PermissionDenied => "may not be read by this user; change its permissions".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    if path.as_os_str() == STDIN {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(cannot)?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(cannot)
}

fn shown(path: &Path) -> String {
    if path.as_os_str() == STDIN { "standard input".to_owned() } else { path.display().to_string() }
}

fn problem(path: &Path, message: String) -> Problem {
    Problem { file: shown(path), at: None, path: String::new(), message }
}

/// Within one file the reader has looked; here it is about several.
fn twice(jobs: &[JobDocument]) -> Vec<Problem> {
    let mut first: BTreeMap<(String, String), &JobDocument> = BTreeMap::new();
    let mut problems = Vec::new();
    for document in jobs {
        let metadata = &document.job.metadata;
        let key = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        if let Some(other) = first.insert(key.clone(), document).filter(|other| other.file != document.file) {
            let line = other.places.at("metadata.name").map(|mark| format!(":{}", mark.line)).unwrap_or_default();
            problems.push(Problem {
                file: document.file.clone(),
                at: document.places.at("metadata.name"),
                path: "metadata.name".to_owned(),
                message: format!(
                    "a second BridgeJob named \"{}\" (the first is in {}{line}); give it another name",
                    key.1, other.file
                ),
            });
        }
    }
    problems
}
