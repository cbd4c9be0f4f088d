//! What a record means in the words of the contract; the same for a terminal, a ConfigMap and a BridgeJob's status.

use bridge_api::{JobStatus, conditions as reasons};
use jiff::Timestamp;

use crate::manager::{Outcome, Phase, Verdict};
use crate::record::{After, Cause, Ending, JobRecord, JobState, NotSubmitted};

/// The longest message.
pub const MESSAGE_LIMIT: usize = 4096;

/// A record in the words of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusView {
    /// The contract's word.
    pub status: JobStatus,
    /// A bounded word: why it ended so, or what keeps it.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The newest remote id.
    pub job_id: Option<String>,
    /// The exit code, where the manager tells it.
    pub exit_code: Option<i32>,
    /// First handed over.
    pub submitted: Option<Timestamp>,
    /// Started, in the manager's time.
    pub started: Option<Timestamp>,
    /// Ended, in the manager's time if it tells.
    pub completed: Option<Timestamp>,
}

impl StatusView {
    /// Reads a record.
    #[must_use]
    pub fn of(record: &JobRecord) -> Self {
        let (status, reason, message) = words(record);
        let outcome = outcome(record);
        let over = record.ending().is_some();
        Self {
            status,
            reason,
            message: clip(message),
            job_id: record.latest_id().map(ToString::to_string),
            exit_code: outcome.and_then(|outcome| outcome.exit_code),
            submitted: record.times.submitted,
            started: record.facts.started,
            completed: if over { record.facts.ended.or(record.times.finished) } else { None },
        }
    }

    /// The exit code of a command that stands for this job (table in `docs/exit-codes.md`).
    #[must_use]
    pub fn process_exit_code(&self) -> u8 {
        match self.status {
            JobStatus::Done => 0,
            JobStatus::Failed => match self.exit_code.and_then(|code| u8::try_from(code).ok()) {
                Some(code) if code != 0 => code,
                _ => 1,
            },
            JobStatus::Killed => 130,
            JobStatus::Unknown => 125,
            JobStatus::Submitted | JobStatus::Pending | JobStatus::Running | JobStatus::Suspended => 124,
        }
    }
}

fn words(record: &JobRecord) -> (JobStatus, String, String) {
    let doing = match &record.state {
        JobState::Finished { ending } | JobState::Sweeping { then: After::Finish { ending } } => {
            let (status, reason, message) = ending_words(record, ending);
            if record.ending().is_some() {
                return (status, reason, with_strays(record, with_outputs(record, message)));
            }
            (
                JobStatus::Running,
                "Sweeping".to_owned(),
                format!("{message}; looking for submissions whose reply was lost"),
            )
        }
        JobState::Accepted { .. } if record.suspended => {
            (JobStatus::Suspended, "Suspended".to_owned(), "not submitted while `suspend` is true".to_owned())
        }
        JobState::Accepted { not_before: Some(moment) } => (
            JobStatus::Pending,
            "Retrying".to_owned(),
            format!("attempt {} begins at {moment}{}", record.attempt, last_failure(record)),
        ),
        JobState::Accepted { not_before: None } | JobState::Sweeping { then: After::Again { .. } } => {
            (JobStatus::Pending, "Accepted".to_owned(), "not submitted yet".to_owned())
        }
        JobState::StagingIn => {
            (JobStatus::Pending, "StagingIn".to_owned(), format!("bringing its data{}", moved(record)))
        }
        JobState::Submitting { .. } => (JobStatus::Pending, "Submitting".to_owned(), "being submitted".to_owned()),
        JobState::Prepared { .. } if record.suspended => {
            (JobStatus::Suspended, "Suspended".to_owned(), "held on the remote system".to_owned())
        }
        JobState::Prepared { .. } => {
            (JobStatus::Submitted, "Submitted".to_owned(), "accepted, about to be released".to_owned())
        }
        JobState::Active { missing: Some(since), .. } => (
            JobStatus::Running,
            "Missing".to_owned(),
            format!("the remote system has not known this job since {since}; looking again"),
        ),
        JobState::Active { phase, .. } => phase_words(record, phase),
        JobState::Cancelling { .. } => {
            (JobStatus::Running, "Cancelling".to_owned(), format!("its end was asked for{}", because(record.cause)))
        }
        JobState::StagingOut { outcome, .. } => (
            JobStatus::Running,
            "StagingOut".to_owned(),
            format!("{}; sending its outputs{}", outcome_words(outcome), moved(record)),
        ),
    };
    let (status, reason, message) = doing;
    match &record.trouble {
        Some(trouble) => {
            (status, trouble.reason.clone(), format!("{message}; since {}: {}", trouble.since, trouble.message))
        }
        None => (status, reason, message),
    }
}

fn moved(record: &JobRecord) -> String {
    if record.progress.is_empty() { String::new() } else { format!(": {}", record.progress) }
}

fn phase_words(record: &JobRecord, phase: &Phase) -> (JobStatus, String, String) {
    let remarks: Vec<&str> = record
        .facts
        .note
        .iter()
        .chain(Some(&record.note).filter(|note| !note.is_empty()))
        .map(String::as_str)
        .collect();
    let note = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
    match phase {
        Phase::Queued { reason } => {
            let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            (JobStatus::Pending, "Queued".to_owned(), format!("waiting in the queue{why}{note}"))
        }
        Phase::Held if record.suspended => {
            (JobStatus::Suspended, "Suspended".to_owned(), format!("held on the remote system{note}"))
        }
        Phase::Held => {
            const HELD: &str = "held on the remote system, by its user or operator, or because the remote system forgot its \
                                release in a crash; release it there to let it go on";
            (JobStatus::Suspended, "Held".to_owned(), format!("{HELD}{note}"))
        }
        Phase::Running => (JobStatus::Running, "Running".to_owned(), format!("running{note}")),
        Phase::Suspended => {
            (JobStatus::Suspended, "Suspended".to_owned(), format!("suspended on the remote system{note}"))
        }
    }
}

fn ending_words(record: &JobRecord, ending: &Ending) -> (JobStatus, String, String) {
    match ending {
        Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause } } => {
            let (status, reason) = cause_words(*cause);
            let what =
                if record.past.is_empty() { "ended before it was submitted" } else { "ended before its next attempt" };
            (status, reason.to_owned(), format!("{what}{}{}", because(Some(*cause)), last_failure(record)))
        }
        Ending::NeverSubmitted { reason: NotSubmitted::Refused { message } } => (
            JobStatus::Failed,
            reasons::SUBMISSION_REFUSED.to_owned(),
            format!("refused by the remote system: {message}"),
        ),
        Ending::NeverSubmitted { reason: NotSubmitted::StageIn { message } } => (
            JobStatus::Failed,
            reasons::STAGE_IN_FAILED.to_owned(),
            format!("its data could not be brought: {message}"),
        ),
        Ending::Ran { outcome, .. } => match outcome.verdict {
            Verdict::Succeeded => (JobStatus::Done, or_word(&outcome.reason, "Completed"), outcome_words(outcome)),
            Verdict::Failed => {
                let attempts =
                    if record.attempt > 1 { format!(" in attempt {}", record.attempt) } else { String::new() };
                (JobStatus::Failed, or_word(&outcome.reason, "Failed"), format!("{}{attempts}", outcome_words(outcome)))
            }
            Verdict::Cancelled => {
                let (status, reason) = record.cause.map_or((JobStatus::Killed, reasons::KILLED), cause_words);
                let who = if record.cause.is_none() { " on the remote system" } else { "" };
                (status, reason.to_owned(), format!("{}{who}{}", outcome_words(outcome), because(record.cause)))
            }
        },
        Ending::Lost { id } => (
            JobStatus::Unknown,
            reasons::LOST.to_owned(),
            format!(
                "neither the remote system nor its accounting knows job {id} any more, as after a restart that lost its memory; it was submitted once and is not submitted again"
            ),
        ),
        Ending::SubmissionUnknown { token, why } => (
            JobStatus::Unknown,
            reasons::SUBMISSION_UNKNOWN.to_owned(),
            format!(
                "nobody can tell whether the submission arrived ({why}); look for {token} on the remote system; it is not submitted again"
            ),
        ),
    }
}

fn cause_words(cause: Cause) -> (JobStatus, &'static str) {
    match cause {
        Cause::Deadline => (JobStatus::Failed, reasons::DEADLINE_EXCEEDED),
        Cause::Kill | Cause::Suspend | Cause::Delete => (JobStatus::Killed, reasons::KILLED),
    }
}

fn because(cause: Option<Cause>) -> &'static str {
    match cause {
        None => "",
        Some(Cause::Kill) => " because `kill` was set",
        Some(Cause::Deadline) => " because `activeDeadlineSeconds` passed",
        Some(Cause::Delete) => " because its object is being deleted",
        Some(Cause::Suspend) => " because `suspend` was set; it is queued again afterwards",
    }
}

fn outcome(record: &JobRecord) -> Option<&Outcome> {
    match &record.state {
        JobState::StagingOut { outcome, .. }
        | JobState::Finished { ending: Ending::Ran { outcome, .. } }
        | JobState::Sweeping { then: After::Finish { ending: Ending::Ran { outcome, .. } } } => Some(outcome),
        _ => None,
    }
}

fn outcome_words(outcome: &Outcome) -> String {
    let mut text = match outcome.verdict {
        Verdict::Succeeded => "completed".to_owned(),
        Verdict::Failed => "failed".to_owned(),
        Verdict::Cancelled => "cancelled".to_owned(),
    };
    let details: Vec<String> = [
        (!outcome.reason.is_empty()).then(|| outcome.reason.clone()),
        outcome.exit_code.map(|code| format!("exit code {code}")),
        outcome.signal.map(|signal| format!("signal {signal}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !details.is_empty() {
        text.push_str(" (");
        text.push_str(&details.join(", "));
        text.push(')');
    }
    if !outcome.message.is_empty() {
        text.push_str(": ");
        text.push_str(&outcome.message);
    }
    text
}

fn last_failure(record: &JobRecord) -> String {
    record
        .past
        .last()
        .map(|past| format!("; attempt {} (job {}) {}", past.attempt, past.id, outcome_words(&past.outcome)))
        .unwrap_or_default()
}

fn with_outputs(record: &JobRecord, message: String) -> String {
    match &record.outputs {
        Some(outputs) if !outputs.staged => format!("{message}; its outputs were not sent: {}", outputs.message),
        _ => message,
    }
}

fn with_strays(record: &JobRecord, message: String) -> String {
    if record.unswept.is_empty() { message } else { format!("{message}; {}", record.unswept) }
}

fn or_word(word: &str, otherwise: &str) -> String {
    if word.is_empty() { otherwise.to_owned() } else { word.to_owned() }
}

fn clip(mut text: String) -> String {
    if text.len() > MESSAGE_LIMIT {
        let end = (0..=MESSAGE_LIMIT - 3).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
