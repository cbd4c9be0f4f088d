//! Events of a job: what changed between two statuses, told after the change was written.

use bridge_api::{BridgeJob, BridgeJobStatus, JobStatus, conditions as terms, names as api};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

/// A note is at most 1 KiB.
const MAX_NOTE: usize = 1000;

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub note: String,
}

/// What is new in `after`.
#[must_use]
pub fn news(before: Option<&BridgeJobStatus>, after: &BridgeJobStatus) -> Vec<News> {
    let mut news = Vec::new();
    let message = after.message.clone().unwrap_or_default();
    let word_before = before.and_then(|status| status.jobstatus);
    if after.jobstatus != word_before
        && let Some(word) = after.jobstatus
        && let Some((warning, reason)) = word_event(word, before, after)
    {
        news.push(News { warning, reason: reason.to_owned(), note: note(after, &message) });
    }
    let troubled = [terms::READY, terms::REACHABLE, terms::OUTPUTS_STAGED];
    for condition in after.conditions.iter().filter(|condition| troubled.contains(&condition.type_.as_str())) {
        let old = before.and_then(|status| status.conditions.iter().find(|old| old.type_ == condition.type_));
        let same = old.is_some_and(|old| old.status == condition.status && old.reason == condition.reason);
        let recovered = condition.type_ == terms::REACHABLE && condition.status == "True" && old.is_some();
        if !same && (condition.status == "False" || recovered) {
            news.push(News {
                warning: condition.status == "False",
                reason: condition.reason.clone(),
                note: condition.message.clone(),
            });
        }
    }
    news.dedup_by(|a, b| a.reason == b.reason);
    news
}

fn word_event(
    word: JobStatus,
    before: Option<&BridgeJobStatus>,
    after: &BridgeJobStatus,
) -> Option<(bool, &'static str)> {
    let newly_submitted = after.jobid.is_some() && before.is_none_or(|status| status.jobid != after.jobid);
    match word {
        JobStatus::Submitted => Some((false, "Submitted")),
        JobStatus::Pending if newly_submitted => Some((false, "Submitted")),
        // Waiting for something that a condition tells better.
        JobStatus::Pending => None,
        JobStatus::Running => Some((false, "Running")),
        JobStatus::Suspended => Some((false, "Suspended")),
        JobStatus::Done => Some((false, "Completed")),
        JobStatus::Failed => Some((true, "Failed")),
        JobStatus::Killed => Some((false, "Killed")),
        JobStatus::Unknown => Some((true, "Unknown")),
    }
}

fn note(status: &BridgeJobStatus, message: &str) -> String {
    match &status.jobid {
        Some(id) => format!("job {id}: {message}"),
        None => message.to_owned(),
    }
}

/// Publishes news; what cannot be published is logged and never holds a job up.
#[derive(Clone)]
pub struct Publisher {
    recorder: Recorder,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Publishes in the name of this instance.
    #[must_use]
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let reporter = Reporter { controller: api::FIELD_MANAGER.to_owned(), instance };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Publishes about a job.
    pub async fn publish(&self, job: &BridgeJob, news: Vec<News>) {
        let reference = job.object_ref(&());
        for News { warning, reason, note } in news {
            let event = Event {
                type_: if warning { EventType::Warning } else { EventType::Normal },
                reason,
                note: Some(clip(note)),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            if let Err(error) = self.recorder.publish(&event, &reference).await {
                tracing::debug!(%error, "an Event could not be published");
            }
        }
    }
}

fn clip(mut text: String) -> String {
    if text.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::report::{Context, Report};

    #[test]
    fn a_missing_secret_is_told_once() {
        let context = Context { generation: Some(1), now: Timestamp::UNIX_EPOCH };
        let mut report = Report::on(None, context);
        let missing = report.not_ready(terms::SECRET_MISSING, "no Secret \"x\"").status().clone();
        let told = news(None, &missing);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].warning, told[0].reason.as_str()), (true, "SecretMissing"));
        assert_eq!(news(Some(&missing), &missing), []);
        let mut report = Report::on(Some(&missing), context);
        report.ready(None).hand_over(false);
        assert_eq!(news(Some(&missing), report.status()), []);
    }
}
