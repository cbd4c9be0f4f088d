//! From what is known to the status of a `BridgeJob`. Pure: the controller writes the result, and only if it differs.

use bridge_api::conditions as terms;
use bridge_api::{BridgeJobStatus, Condition, JobStatus, Output, ResourceManager, Time};
use bridge_core::record::{Ending, JobRecord, JobState, NotSubmitted};
use bridge_core::status::StatusView;
use jiff::Timestamp;

use crate::foreign::{self, Meaning, Told};

/// What every report needs.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// `metadata.generation` the report is made for.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Holds {
    fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Holds {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// A status in the making.
#[derive(Debug, Clone)]
pub struct Report {
    status: BridgeJobStatus,
    before: Vec<Condition>,
    context: Context,
}

impl Report {
    /// Goes on from the status that is there.
    #[must_use]
    pub fn on(before: Option<&BridgeJobStatus>, context: Context) -> Self {
        let mut status = before.cloned().unwrap_or_default();
        status.observed_generation = context.generation;
        Self { before: status.conditions.clone(), status, context }
    }

    /// The result.
    #[must_use]
    pub fn finish(self) -> BridgeJobStatus {
        self.status
    }

    /// The status as it stands.
    #[must_use]
    pub fn status(&self) -> &BridgeJobStatus {
        &self.status
    }

    /// Everything the job refers to is there.
    pub fn ready(&mut self, manager: Option<ResourceManager>) -> &mut Self {
        self.status.manager = manager.or(self.status.manager);
        self.condition(terms::READY, Holds::True, terms::RESOLVED, "all that the job refers to is there")
    }

    /// Something is missing; what, and what to do.
    pub fn not_ready(&mut self, reason: &'static str, message: &str) -> &mut Self {
        if self.status.handover.is_none() {
            self.word(JobStatus::Pending, reason, message);
        }
        self.condition(terms::READY, Holds::False, reason, message)
    }

    /// The mark that must be there before the `ConfigMap` is.
    pub fn hand_over(&mut self, foreign: bool) -> &mut Self {
        let time = Time(self.context.now);
        self.status.handover = Some(bridge_api::Handover { time, config_map_uid: None, foreign });
        self.word(JobStatus::Pending, terms::WORKER_STARTING, "the controller pod is being made");
        self.condition(terms::SUBMITTED, Holds::False, terms::WAITING, "the controller pod has to start first")
    }

    /// The `ConfigMap` was surely not made, so nothing was handed over.
    pub fn take_back(&mut self) -> &mut Self {
        self.status.handover = None;
        self
    }

    /// The `ConfigMap` is there.
    pub fn config_map(&mut self, uid: &str) -> &mut Self {
        if let Some(handover) = &mut self.status.handover {
            handover.config_map_uid = Some(uid.to_owned());
        }
        self
    }

    /// Held back before anything was made.
    pub fn suspended_before_start(&mut self) -> &mut Self {
        self.word(JobStatus::Suspended, terms::SUSPENDED_BY_USER, "nothing is made while `suspend` is true");
        self.condition(terms::SUSPENDED, Holds::True, terms::SUSPENDED_BY_USER, "`suspend` is true")
    }

    /// `suspend` was lifted.
    pub fn resumed(&mut self) -> &mut Self {
        if holds(&self.status, terms::SUSPENDED) {
            self.condition(terms::SUSPENDED, Holds::False, terms::RESUMED, "`suspend` is false");
        }
        self
    }

    /// Over without anything having been handed over.
    pub fn never_started(&mut self, status: JobStatus, reason: &'static str, message: &str) -> &mut Self {
        self.condition(terms::SUBMITTED, Holds::False, terms::NEVER_SUBMITTED, "nothing was submitted");
        self.end(status, reason, message, Some(self.context.now))
    }

    /// A remark on the controller pod, as long as the job itself has told nothing more important.
    pub fn worker(&mut self, reason: &'static str, message: &str) -> &mut Self {
        if self.status.jobstatus.is_none_or(|word| !word.is_final()) {
            let word = self.status.jobstatus.unwrap_or(JobStatus::Pending);
            self.word(word, reason, message);
        }
        self
    }

    /// Whether the last that was told is why the controller pod does not run.
    #[must_use]
    pub fn told_of_no_more_than_the_pod(&self) -> bool {
        let reason = self.status.reason.as_deref();
        reason == Some(terms::WORKER_STARTING) || reason == Some(terms::WORKER_FAILED)
    }

    /// Deleting cannot go on by itself.
    pub fn cancel_blocked(&mut self, message: &str) -> &mut Self {
        self.status.reason = Some(terms::CANCEL_BLOCKED.to_owned());
        self.status.message = Some(clip(message));
        self.condition(terms::READY, Holds::False, terms::CANCEL_BLOCKED, message)
    }

    /// What our worker saved. Only a growing sequence number changes anything, and nothing changes what is final.
    pub fn record(&mut self, record: &JobRecord) -> &mut Self {
        let seq = i64::try_from(record.seq).unwrap_or(i64::MAX);
        if is_final(&self.status) || self.status.record_seq.is_some_and(|seen| seq <= seen) {
            return self;
        }
        self.status.record_seq = Some(seq);
        let view = StatusView::of(record);
        self.word(view.status, &view.reason, &view.message);
        let set = |into: &mut Option<Time>, from: Option<Timestamp>| {
            if let Some(time) = from {
                *into = Some(Time(time));
            }
        };
        set(&mut self.status.submittime, view.submitted);
        set(&mut self.status.starttime, view.started);
        set(&mut self.status.completiontime, view.completed);
        let status = &mut self.status;
        if status.attempts != Some(record.attempt) {
            status.exitcode = None;
        }
        status.jobid = bounded::<512>(view.job_id.as_ref()).or_else(|| status.jobid.take());
        status.exitcode = view.exit_code.or(status.exitcode);
        status.attempts = Some(record.attempt);
        let facts = &record.facts;
        status.queue = bounded::<512>(facts.queue.as_ref()).or_else(|| status.queue.take());
        status.node = bounded::<1024>(facts.node.as_ref()).or_else(|| status.node.take());
        status.stdout = bounded::<4096>(facts.stdout.as_ref()).or_else(|| status.stdout.take());
        status.stderr = bounded::<4096>(facts.stderr.as_ref()).or_else(|| status.stderr.take());
        self.submitted(record);
        self.reachable(record);
        self.suspension(record);
        self.outputs(record);
        if view.status.is_final() {
            self.end(view.status, &view.reason, &view.message, None);
        }
        self
    }

    fn submitted(&mut self, record: &JobRecord) {
        let (holds, reason, message) = match (&record.state, record.id()) {
            (_, Some(id)) => (Holds::True, terms::ACCEPTED, format!("the remote system knows it as {id}")),
            (JobState::Finished { ending }, None) => match ending {
                Ending::NeverSubmitted { reason: NotSubmitted::Refused { message } } => {
                    (Holds::False, terms::SUBMISSION_REFUSED, message.clone())
                }
                Ending::NeverSubmitted { reason: NotSubmitted::StageIn { message } } => {
                    (Holds::False, terms::STAGE_IN_FAILED, message.clone())
                }
                Ending::SubmissionUnknown { token, why } => {
                    (Holds::Unknown, terms::SUBMISSION_UNKNOWN, format!("look for {token}: {why}"))
                }
                _ => (Holds::False, terms::NEVER_SUBMITTED, "it ended before it was submitted".to_owned()),
            },
            (JobState::Submitting { .. }, None) => {
                (Holds::Unknown, terms::WAITING, "a submission may be under way".to_owned())
            }
            _ => (Holds::False, terms::WAITING, "it is not submitted yet".to_owned()),
        };
        self.condition(terms::SUBMITTED, holds, reason, &message);
    }

    fn reachable(&mut self, record: &JobRecord) {
        match &record.trouble {
            Some(trouble) => {
                self.condition(terms::REACHABLE, Holds::False, &trouble.reason, &trouble.message);
            }
            None if record.latest_id().is_some() => {
                self.condition(terms::REACHABLE, Holds::True, terms::ANSWERS, "the remote system answers");
            }
            None => {}
        }
    }

    fn suspension(&mut self, record: &JobRecord) {
        if record.suspended {
            self.condition(terms::SUSPENDED, Holds::True, terms::SUSPENDED_BY_USER, "`suspend` is true");
        } else {
            self.resumed();
        }
    }

    fn outputs(&mut self, record: &JobRecord) {
        let Some(outputs) = &record.outputs else { return };
        let (reason, message) = if outputs.staged {
            (terms::STAGED, format!("{} objects were uploaded", outputs.total))
        } else {
            (terms::STAGE_OUT_FAILED, outputs.message.clone())
        };
        self.condition(terms::OUTPUTS_STAGED, outputs.staged.into(), reason, &message);
        self.status.outputs = outputs
            .files
            .iter()
            .take(bridge_api::schema::MAX_OUTPUTS)
            .map(|file| Output {
                name: file.key.clone(),
                bucket: file.bucket.clone(),
                size: Some(file.size),
                checksum: Some(file.checksum.clone()),
            })
            .collect();
        self.status.outputs_total = Some(u32::try_from(outputs.total).unwrap_or(u32::MAX));
    }

    /// What a foreign pod has told so far; it ends only with its pod.
    pub fn told(&mut self, told: &Told) -> &mut Self {
        if is_final(&self.status) {
            return self;
        }
        let set = |into: &mut Option<Time>, from: Option<Timestamp>| {
            if let Some(time) = from {
                *into = Some(Time(time));
            }
        };
        set(&mut self.status.submittime, told.submitted);
        set(&mut self.status.starttime, told.started);
        set(&mut self.status.completiontime, told.ended);
        if let Some(id) = bounded::<512>(told.id.as_ref()) {
            self.status.jobid = Some(id.clone());
            self.condition(
                terms::SUBMITTED,
                Holds::True,
                terms::ACCEPTED,
                &format!("the remote system knows it as {id}"),
            );
        }
        if told.words.is_some() {
            self.status.pod_words.clone_from(&told.words);
        }
        if let Some(word) = &told.word {
            let (status, said) = match foreign::meaning(word) {
                Meaning::Alive(status) => (status, None),
                // Some pods say the last word before the end and go on.
                _ => (JobStatus::Running, Some(word)),
            };
            let message = match (&told.message, said) {
                (Some(message), _) => message.clone(),
                (None, Some(word)) => format!("the controller pod says {word}"),
                (None, None) => String::new(),
            };
            self.word(status, "Reported", &message);
        } else if let Some(message) = &told.message {
            self.status.message = Some(clip(message));
        }
        self
    }

    /// `suspend` of a job whose pod knows nothing of it.
    pub fn cannot_suspend(&mut self) -> &mut Self {
        let message = "a pod of an image of one's own cannot be told to suspend its job; `suspend` holds back only what was not begun";
        self.condition(terms::SUSPENDED, Holds::False, terms::UNSUPPORTED, message)
    }

    /// A foreign job is over; `overdue`: because of its deadline.
    pub fn foreign_end(&mut self, told: &Told, status: JobStatus, message: &str, overdue: bool) -> &mut Self {
        self.told(told);
        if overdue && status == JobStatus::Killed {
            let message = format!("`activeDeadlineSeconds` had passed; {message}");
            return self.end(JobStatus::Failed, terms::DEADLINE_EXCEEDED, &message, told.ended);
        }
        let reason = match status {
            JobStatus::Done => terms::SUCCEEDED,
            JobStatus::Killed => terms::KILLED,
            JobStatus::Unknown if told.id.is_none() => terms::SUBMISSION_UNKNOWN,
            JobStatus::Unknown => terms::LOST,
            _ => terms::JOB_FAILED,
        };
        let message = match &told.message {
            Some(said) => format!("{said} ({message})"),
            None => message.to_owned(),
        };
        let end = told.ended.unwrap_or(self.context.now);
        self.end(status, reason, &message, Some(end))
    }

    fn end(&mut self, status: JobStatus, reason: &str, message: &str, end: Option<Timestamp>) -> &mut Self {
        self.word(status, reason, message);
        if self.status.completiontime.is_none() {
            self.status.completiontime = Some(Time(end.unwrap_or(self.context.now)));
        }
        if holds(&self.status, terms::SUSPENDED) {
            self.condition(terms::SUSPENDED, Holds::False, terms::RESUMED, "the job is over");
        }
        if status == JobStatus::Done {
            self.condition(terms::COMPLETE, Holds::True, terms::SUCCEEDED, message)
        } else {
            self.condition(terms::FAILED, Holds::True, &ending_reason(status, reason), message)
        }
    }

    fn word(&mut self, status: JobStatus, reason: &str, message: &str) {
        self.status.jobstatus = Some(status);
        self.status.reason = Some(clip_to(reason, 256)).filter(|reason| !reason.is_empty());
        self.status.message = Some(clip(message)).filter(|message| !message.is_empty());
    }

    /// The condition as it was before this report.
    #[must_use]
    pub fn before(&self, type_: &str) -> Option<&Condition> {
        self.before.iter().find(|condition| condition.type_ == type_)
    }

    /// Sets a condition; its time of transition moves only when it begins or ceases to hold from one report to the next.
    pub fn condition(&mut self, type_: &str, holds: Holds, reason: &str, message: &str) -> &mut Self {
        let same = self.before(type_).filter(|before| before.status == holds.word());
        let since = same.map_or(Time(self.context.now), |before| before.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: holds.word().to_owned(),
            reason: pascal(reason),
            message: clip(message),
            observed_generation: self.context.generation,
            last_transition_time: since,
        };
        match self.status.conditions.iter_mut().find(|existing| existing.type_ == type_) {
            Some(existing) => *existing = condition,
            None => self.status.conditions.push(condition),
        }
        self
    }
}

/// The reason of `Failed`: the manager's own words are not bounded, those of the API are.
fn ending_reason(status: JobStatus, reason: &str) -> String {
    let known = terms::REASONS.iter().any(|term| term.name == reason);
    match (known, status) {
        (true, _) => reason.to_owned(),
        (false, JobStatus::Killed) => terms::KILLED.to_owned(),
        (false, JobStatus::Unknown) => terms::LOST.to_owned(),
        (false, _) => terms::JOB_FAILED.to_owned(),
    }
}

/// Reasons must match `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`.
fn pascal(reason: &str) -> String {
    let word: String = reason.chars().filter(|char| char.is_ascii_alphanumeric() || *char == '_').collect();
    if word.starts_with(|char: char| char.is_ascii_alphabetic()) { word } else { terms::WAITING.to_owned() }
}

/// Where something too long was cut.
const CUT: char = '…';

fn clip(text: &str) -> String {
    clip_to(text, bridge_api::schema::MAX_MESSAGE)
}

/// One value that is too long must not keep the whole status from being written.
fn clip_to(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - 3).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{CUT}", &text[..end])
}

fn bounded<const MOST: usize>(text: Option<&String>) -> Option<String> {
    text.map(|text| clip_to(text, MOST))
}

/// Whether the job is over and its status never moves again.
#[must_use]
pub fn is_final(status: &BridgeJobStatus) -> bool {
    status.jobstatus.is_some_and(JobStatus::is_final)
}

/// Whether a condition is True.
#[must_use]
pub fn holds(status: &BridgeJobStatus, type_: &str) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// The remote id, unless it was too long to be kept: nobody may act on a part of one.
#[must_use]
pub fn known_id(status: &BridgeJobStatus) -> Option<&String> {
    status.jobid.as_ref().filter(|id| !id.ends_with(CUT))
}

/// Since when a condition has had its status.
#[must_use]
pub fn since(status: &BridgeJobStatus, type_: &str) -> Option<Timestamp> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .map(|condition| condition.last_transition_time.0)
}

/// When the job ended, by our clock.
#[must_use]
pub fn ended_at(status: &BridgeJobStatus) -> Option<Timestamp> {
    since(status, terms::COMPLETE).or_else(|| since(status, terms::FAILED))
}

#[cfg(test)]
mod tests;
