//! From a submission to what Ray is sent, and from what Ray says to what it means.

use std::collections::BTreeMap;

use bridge_core::manager::{Capacity, ErrorKind, Facts, ManagerError, Outcome, Phase, QueueLoad, Sighting, Verdict};
use bridge_core::plan::{Script, Submission};
use bytes::Bytes;
use jiff::Timestamp;
use url::Url;

use super::package::Entry;
use super::properties::Properties;
use super::wire::{JobDetails, LoadReport, SubmitRequest, shorten};
use super::{MANAGER, carrier, entrypoint, environment, stage};
use crate::carrying;

/// A submission, thought through. Its working folder is added when the inputs are there.
#[derive(Debug, PartialEq)]
pub(super) struct Launch {
    pub(super) request: SubmitRequest,
    pub(super) packaged: bool,
    pub(super) notes: Vec<String>,
}

/// The longest message of an outcome; the status has room for more beside it.
const LONGEST_MESSAGE: usize = 1_500;

/// Names of what we put into a job's `metadata`.
const META_JOB: &str = "bridge_job";
/// Says that the exit codes of a job that moves its own data may be met; [`super::wire::Marks`] reads it.
const META_DATA: &str = "bridge_data";
const CARRIED: &str = "carried";

/// Decides what is sent.
pub(super) fn launch(job: &Submission, operation: &'static str) -> Result<Launch, ManagerError> {
    read(job).map_err(|message| ManagerError::new(MANAGER, operation, ErrorKind::Refused, message))
}

fn read(job: &Submission) -> Result<Launch, String> {
    let Properties { resources, mut metadata, mut notes } = Properties::read(&job.properties)?;
    let packaged = matches!(job.script, Script::Text(_)) || !job.inputs.is_empty();
    let entrypoint = entrypoint::entrypoint(&job.script, &job.parameters)?;
    let runtime_env = environment::runtime_env(&job.metadata, packaged)?;
    job.inputs.iter().try_for_each(|name| stage::check_name(name))?;
    let exposed = environment::tell_tale_variables(&runtime_env);
    if !exposed.is_empty() {
        notes.push(format!(
            "Ray shows the values of env_vars to everyone who may look at jobs; {} should not be there",
            exposed.join(", ")
        ));
    }
    if metadata.contains_key(META_DATA) {
        return Err(format!("jobproperties.metadata.{META_DATA} has a meaning of its own here; use another name"));
    }
    metadata.insert(META_JOB.to_owned(), job.name.clone());
    if carrier::carries(&job.script) {
        metadata.insert(META_DATA.to_owned(), CARRIED.to_owned());
    }
    let submission_id = job.token.as_str().to_owned();
    let request = SubmitRequest { entrypoint, submission_id, runtime_env, metadata, resources };
    Ok(Launch { request, packaged, notes })
}

/// The script as a file of the working folder.
pub(super) fn script_entry(script: &Script) -> Option<Entry> {
    match script {
        Script::Text(text) => {
            let content = vec![Bytes::copy_from_slice(text.as_bytes())];
            Some(Entry { name: entrypoint::SCRIPT_NAME.to_owned(), content })
        }
        Script::Remote(_) => None,
    }
}

/// Whether nothing more will happen to a job.
pub(super) fn is_ended(job: &JobDetails) -> bool {
    matches!(job.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED")
}

/// What a poll tells of a job.
pub(super) fn sighting(job: &JobDetails, cancelling: bool) -> Sighting {
    let host = job.driver_agent_http_address.as_deref().and_then(host);
    // Ray's start time is when it took the job. One that never came to a node has not started.
    let started = host.as_ref().and(job.start_time).and_then(moment);
    let facts = Facts { started, ended: job.end_time.and_then(moment), node: host, ..Facts::default() };
    match job.status.as_str() {
        "PENDING" => {
            let note = cancelling.then(|| STOPPED_AND_PENDING.to_owned());
            Sighting::Alive(Phase::Queued { reason: waiting_for(&job.message) }, Facts { note, ..facts })
        }
        "RUNNING" => Sighting::Alive(Phase::Running, facts),
        "SUCCEEDED" => {
            let message = String::new();
            Sighting::Ended(outcome(Verdict::Succeeded, "SUCCEEDED", job, message), facts)
        }
        "STOPPED" => Sighting::Ended(outcome(Verdict::Cancelled, "STOPPED", job, first_line(&job.message)), facts),
        "FAILED" => Sighting::Ended(failure(job, cancelling), facts),
        // A newer Ray may have more words; the job is there, and that is all we know.
        other => {
            let note = Some(format!("Ray says {:?}, which is not known here", shorten(other, 100)));
            Sighting::Alive(Phase::Running, Facts { note, ..facts })
        }
    }
}

const STOPPED_AND_PENDING: &str = "its end was asked for; Ray does not stop a job before it has started, so it stays \
     PENDING until its resources or environment are there or Ray gives up waiting \
     (RAY_JOB_START_TIMEOUT_SECONDS, 15 minutes unless set otherwise)";

const START_TIMEOUT: &str = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT";

fn failure(job: &JobDetails, cancelling: bool) -> Outcome {
    let reason = job.error_type.as_deref().unwrap_or("FAILED");
    // The only end of a stopped job that never started.
    if cancelling && reason == START_TIMEOUT {
        return outcome(Verdict::Cancelled, reason, job, "stopped before it had started".to_owned());
    }
    let message = failure_message(&job.message);
    let carries =
        job.metadata.as_ref().is_some_and(|marks| marks.bridge_data.as_ref().is_some_and(|data| data == CARRIED));
    // The others are codes of the user's own.
    let of_carrier = |code: &i32| carries && [carrying::EXPIRED, carrying::NO_PLACE].contains(code);
    match job.driver_exit_code.filter(of_carrier).and_then(carrying::meaning) {
        Some((word, sentence)) => outcome(Verdict::Failed, word, job, format!("{sentence}; {message}")),
        None => outcome(Verdict::Failed, reason, job, message),
    }
}

fn outcome(verdict: Verdict, reason: &str, job: &JobDetails, message: String) -> Outcome {
    let code = job.driver_exit_code;
    Outcome {
        verdict,
        exit_code: code.filter(|code| *code >= 0),
        // As Python tells it: minus the signal's number.
        signal: code.filter(|code| *code < 0).map(i32::wrapping_neg),
        reason: shorten(reason, 100),
        message,
    }
}

/// What went wrong first, then the end of the output or of the traceback, where the cause is.
fn failure_message(message: &str) -> String {
    const FAILED_COMMAND: &str = ", last available logs (truncated to";
    let (head, rest) = message.split_once('\n').unwrap_or((message, ""));
    let head = head.split_once(FAILED_COMMAND).map_or(head, |(head, _)| head).trim();
    let rest = rest.trim_end();
    if rest.is_empty() {
        return shorten(head, LONGEST_MESSAGE);
    }
    let head = shorten(head, 300);
    let from = rest.ceil_char_boundary(rest.len().saturating_sub(LONGEST_MESSAGE - 300));
    // Whole lines, if the cut leaves any.
    let tail = match rest[from..].split_once('\n') {
        Some((_, lines)) if from > 0 && !lines.is_empty() => lines,
        _ => &rest[from..],
    };
    format!("{head}; its last words:\n{tail}")
}

fn first_line(text: &str) -> String {
    shorten(text.lines().next().unwrap_or_default(), 300)
}

/// A word for Ray's sentence about why a job has not started.
fn waiting_for(message: &str) -> Option<String> {
    let reason = if message.contains("resources (") {
        "Resources"
    } else if message.contains("runtime environment") {
        "RuntimeEnvironment"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

fn moment(milliseconds: i64) -> Option<Timestamp> {
    // 0 is "not yet" in some versions.
    (milliseconds > 0).then(|| Timestamp::from_millisecond(milliseconds).ok()).flatten()
}

fn host(address: &str) -> Option<String> {
    Url::parse(address).ok()?.host_str().map(|host| shorten(host, 100))
}

/// The whole cluster as one queue.
pub(super) fn load(report: &LoadReport) -> QueueLoad {
    let (used, total) = report.usage.get("CPU").copied().unwrap_or_default();
    let total_cpus = whole(total);
    let allocated = whole(used.ceil()).min(total_cpus);
    let cpus = Capacity { idle: total_cpus - allocated, allocated, total: total_cpus };
    let is_busy = |resources: &&BTreeMap<String, (f64, f64)>| resources.values().any(|(used, _)| *used > 0.0);
    let total = count(report.usage_by_node.len());
    let busy = count(report.usage_by_node.values().filter(is_busy).count());
    let nodes = Capacity { idle: total - busy, allocated: busy, total };
    let pending_jobs = report.resource_demand.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    QueueLoad { name: MANAGER.to_owned(), nodes, cpus, pending_jobs }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such a cast stays within bounds by itself")]
fn whole(amount: f64) -> u64 {
    amount.max(0.0) as u64
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
