//! Data that a job moves itself.

use bridge_core::ids::SubmitToken;
use bridge_core::manager::{Carrier, CarrierLimits, ErrorKind, ManagerError, Result};
use bridge_core::plan::{Script, Submission};
use bridge_core::staging::Cargo;
use jiff::Timestamp;
use serde_json::Value;

use super::{MANAGER, Slurm, properties, sbatch, script, wrapper};
use crate::carrying;

/// The word in a job's comment that says that the exit codes of the wrapper may be met.
const MARK: &str = "bridge-data";
/// URLs that end earlier, in seconds, do so with their session token.
const SHORTENED: i64 = 6 * 24 * 3600;
/// What slurmctld takes by default (`max_script_size`).
const LARGEST_SCRIPT: usize = 4 * 1024 * 1024;

impl Carrier for Slurm {
    fn limits(&self) -> CarrierLimits {
        CarrierLimits { largest_output: carrying::LARGEST, only_files: false }
    }

    fn load(&self, mut job: Submission, cargo: &Cargo) -> Result<Submission> {
        if !cargo.outputs.is_empty()
            && let Some(place) = array_of(&job)
        {
            return Err(refused(format!(
                "{place}: the tasks of an array would send their outputs to the same objects; leave spec.s3upload \
                 out, or submit a job for each task"
            )));
        }
        let runnable = script::runnable(&job.script, Vec::new(), &job.token, self.api.likely_version());
        let text = match (&job.script, runnable.map_err(refused)?) {
            (Script::Text(_), runnable) => runnable.text,
            (Script::Remote(path), _) => {
                format!("#!/bin/sh\nexec '{}' \"$@\"\n", path.trim().replace('\'', "'\\''"))
            }
        };
        let wrapped = wrapper::wrap(&text, cargo, &job.token);
        if wrapped.len() > LARGEST_SCRIPT {
            let files = cargo.inputs.len() + cargo.outputs.len();
            return Err(refused(format!(
                "the script with the URLs of {files} files has {} KiB, and Slurm takes {}; put files together",
                wrapped.len() / 1024,
                LARGEST_SCRIPT / 1024
            )));
        }
        job.script = Script::Text(wrapped);
        mark(&mut job);
        Ok(job)
    }
}

/// Where an array is asked for.
fn array_of(job: &Submission) -> Option<String> {
    let is_array = |name: &str| properties::find(name).is_some_and(|choice| choice.name == "array");
    let asked = |value: &Value| !(value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty()));
    if let Some((name, _)) = job.properties.iter().find(|(name, value)| is_array(name) && asked(value)) {
        return Some(format!("job property `{name}`"));
    }
    let Script::Text(text) = &job.script else { return None };
    // What cannot be read, the submission itself will refuse.
    let directives = sbatch::directives(text).unwrap_or_default();
    directives.iter().find(|own| is_array(&own.name)).map(|own| format!("#SBATCH --array in line {}", own.line))
}

/// The mark goes in front of the user's own comment.
fn mark(job: &mut Submission) {
    let is_comment = |name: &str| properties::find(name).is_some_and(|choice| choice.name == "comment");
    let own =
        job.properties.iter().find(|(name, _)| is_comment(name)).map(|(name, value)| (name.clone(), value.clone()));
    let directive = match &job.script {
        Script::Text(text) => {
            sbatch::directives(text).unwrap_or_default().into_iter().rfind(|own| is_comment(&own.name))
        }
        Script::Remote(_) => None,
    };
    let (name, text) = match (own, directive.and_then(|own| own.value)) {
        (Some((name, Value::String(text))), _) => (name, text),
        // Not a text: what is wrong with it is said when the job is described.
        (Some(_), _) => return,
        (None, text) => ("comment".to_owned(), text.unwrap_or_default()),
    };
    job.properties.insert(name, Value::String(format!("{MARK} {text}").trim_end().to_owned()));
}

/// What the user is to know if the job may go on after the URLs of its data have ended.
pub(super) fn outlives(job: &Submission, limit: Option<&Value>, now: Timestamp) -> Option<String> {
    let Script::Text(text) = &job.script else { return None };
    let end = wrapper::end_of_urls(text)?;
    let left = end.as_second().saturating_sub(now.as_second());
    let minutes = limit.and_then(|limit| limit.as_i64().or_else(|| limit.get("number")?.as_i64()));
    let may_run = match minutes {
        Some(minutes) if minutes.saturating_mul(60) >= left => format!("may run for {minutes} minutes"),
        // Without a session token they live for a week, which is all that can be had.
        None if left < SHORTENED => "has no time limit".to_owned(),
        _ => return None,
    };
    Some(format!(
        "the URLs for its data end at {end}, and the job {may_run}: what it has not fetched or sent by then does not \
         arrive; use keys without a session token, or a shorter time limit"
    ))
}

/// What an exit code means, if the job with this comment moves its own data.
pub(super) fn meaning(comment: &str, code: Option<i32>) -> Option<(&'static str, &'static str)> {
    let mut from_token = comment.split_whitespace().skip_while(|word| SubmitToken::parse(word).is_none());
    let marked = from_token.nth(1) == Some(MARK);
    code.filter(|_| marked).and_then(carrying::meaning)
}

fn refused(message: String) -> ManagerError {
    ManagerError::new(MANAGER, "submit", ErrorKind::Refused, message)
}
