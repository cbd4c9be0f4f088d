//! What was seen of a job's objects, reduced to what decisions need.

use bridge_api::{BridgeJob, names as api};
use bridge_core::record::{JobRecord, RecordError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;

use crate::foreign::PodEnd;
use crate::keys::{self, Data};

/// On a foreign pod's `ConfigMap`: when its pod was made; without an id it is never made again.
pub const ANNOTATION_POD_MADE: &str = "bridgejob.ibm.com/pod-made";
/// On a pod: how many pods of this job ended without a result right before it.
pub const ANNOTATION_RESTARTS: &str = "bridgejob.ibm.com/restarts";

/// A job's `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMap {
    /// Its UID.
    pub uid: String,
    /// Its revision.
    pub resource_version: String,
    /// Made for this very job, not for another of the same name.
    pub ours: bool,
    /// Someone deletes it.
    pub deleting: bool,
    /// It belongs to a foreign pod.
    pub foreign: bool,
    /// When a foreign pod was made.
    pub pod_made: Option<Timestamp>,
    /// Its content.
    pub data: Data,
}

impl SeenMap {
    /// Reduces what the API gave.
    #[must_use]
    pub fn of(map: ConfigMap, job: &BridgeJob) -> Self {
        let label = |key: &str| map.labels().get(key).map(String::as_str);
        Self {
            uid: map.uid().unwrap_or_default(),
            resource_version: map.resource_version().unwrap_or_default(),
            ours: job.metadata.uid.as_deref().is_some_and(|uid| label(api::LABEL_JOB_UID) == Some(uid)),
            deleting: map.metadata.deletion_timestamp.is_some(),
            foreign: label(api::LABEL_WORKER) == Some("foreign"),
            pod_made: map
                .annotations()
                .get(ANNOTATION_POD_MADE)
                .map(|text| text.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
            data: map.data.unwrap_or_default(),
        }
    }

    /// The record our worker keeps in it.
    pub fn record(&self) -> Result<Option<JobRecord>, RecordError> {
        keys::get(&self.data, keys::STATE).map(JobRecord::decode).transpose()
    }

    /// What a controller pod wrote, to be carried into a `ConfigMap` that takes this one's place.
    #[must_use]
    pub fn told(&self) -> Data {
        let written =
            [keys::STATE, keys::ID, keys::STATUS, keys::SUBMIT_TIME, keys::START_TIME, keys::END_TIME, keys::MESSAGE];
        self.data
            .iter()
            .filter(|(key, _)| written.contains(&key.strip_prefix(keys::PREFIX).unwrap_or(key)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// A job's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPod {
    /// Its UID.
    pub uid: String,
    /// UID of the `ConfigMap` it was made for.
    pub owner: Option<String>,
    /// By when it should be gone, if it is being deleted.
    pub deletion: Option<Timestamp>,
    /// Made for this very job, whatever it belongs to now.
    pub ours: bool,
    /// Where it stands.
    pub phase: PodPhase,
    /// How many before it ended without a result.
    pub restarts: u32,
}

/// Where a pod stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodPhase {
    /// Its container has not started; why, in the kubelet's or the scheduler's words.
    Pending(Option<String>),
    /// Its container runs.
    Running,
    /// Over.
    Ended {
        /// How.
        end: PodEnd,
        /// Why, for people.
        why: String,
        /// When, if it is known.
        at: Option<Timestamp>,
        /// How long it ran, in seconds.
        ran: Option<i64>,
    },
}

impl SeenPod {
    /// Reduces what the API gave.
    #[must_use]
    pub fn of(pod: &Pod, job_uid: &str) -> Self {
        Self {
            ours: pod.labels().get(api::LABEL_JOB_UID).is_some_and(|uid| uid == job_uid),
            uid: pod.uid().unwrap_or_default(),
            owner: pod.owner_references().iter().find(|owner| owner.kind == "ConfigMap").map(|owner| owner.uid.clone()),
            deletion: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            phase: phase(pod),
            restarts: pod.annotations().get(ANNOTATION_RESTARTS).and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }
}

fn phase(pod: &Pod) -> PodPhase {
    let Some(status) = &pod.status else { return PodPhase::Pending(None) };
    let container = status.container_statuses.iter().flatten().next().and_then(|container| container.state.as_ref());
    match status.phase.as_deref() {
        Some("Running") => PodPhase::Running,
        Some("Succeeded" | "Failed") => {
            let terminated = container.and_then(|state| state.terminated.as_ref());
            // An evicted pod's container has an exit code too, but it is not the container's own verdict.
            // So has one that is being deleted: many programs end well when they are told to.
            let deleted = pod.metadata.deletion_timestamp.is_some().then(|| "it was deleted".to_owned());
            let taken = status.reason.clone().filter(|reason| !reason.is_empty()).or(deleted);
            let end = match (terminated, &taken) {
                (Some(state), None) => PodEnd::Exited(state.exit_code),
                _ => PodEnd::Gone,
            };
            let why = match (terminated, taken) {
                (_, Some(reason)) => {
                    let message = status.message.clone().unwrap_or_default();
                    if message.is_empty() { reason } else { format!("{reason}: {message}") }
                }
                (Some(state), None) => {
                    let said = state.message.as_deref().and_then(|text| text.lines().rfind(|line| !line.is_empty()));
                    let reason = state
                        .reason
                        .as_deref()
                        .filter(|reason| *reason == "OOMKilled")
                        .map(|reason| format!(" ({reason})"));
                    format!(
                        "exit code {}{}{}",
                        state.exit_code,
                        reason.unwrap_or_default(),
                        said.map(|line| format!(": {}", clip(line))).unwrap_or_default()
                    )
                }
                (None, None) => "its container never ran".to_owned(),
            };
            let at = terminated.and_then(|state| state.finished_at.as_ref()).map(|time| time.0);
            let start = status.start_time.as_ref().map(|time| time.0);
            let ran = at.zip(start).map(|(end, start)| end.as_second() - start.as_second());
            PodPhase::Ended { end, why, at, ran }
        }
        _ => {
            let waiting = container.and_then(|state| state.waiting.as_ref()).and_then(|waiting| {
                let reason = waiting
                    .reason
                    .clone()
                    .filter(|reason| reason != "ContainerCreating" && reason != "PodInitializing")?;
                Some(
                    waiting
                        .message
                        .as_ref()
                        .map_or_else(|| reason.clone(), |message| format!("{reason}: {}", clip(message))),
                )
            });
            let unscheduled = status
                .conditions
                .iter()
                .flatten()
                .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
            PodPhase::Pending(waiting.or_else(|| unscheduled.and_then(|condition| condition.message.clone())))
        }
    }
}

fn clip(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(deleted: bool, status: &serde_json::Value) -> PodPhase {
        let mut pod = json!({ "metadata": { "name": "p", "uid": "u" }, "status": status });
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
        }
        SeenPod::of(&serde_json::from_value(pod).unwrap(), "job").phase
    }

    #[test]
    fn an_exit_code_counts_only_if_the_container_ended_by_itself() {
        let ended = json!({ "phase": "Succeeded", "containerStatuses": [{
            "name": "bridge", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 0, "finishedAt": "2027-01-15T08:00:00Z" } },
        }] });
        let end = |phase: PodPhase| match phase {
            PodPhase::Ended { end, .. } => end,
            other => panic!("{other:?}"),
        };
        assert_eq!(end(seen(false, &ended)), PodEnd::Exited(0));
        assert_eq!(end(seen(true, &ended)), PodEnd::Gone);
        let mut evicted = ended.clone();
        evicted["reason"] = json!("Evicted");
        assert_eq!(end(seen(false, &evicted)), PodEnd::Gone);
        assert_eq!(end(seen(false, &json!({ "phase": "Failed" }))), PodEnd::Gone);
    }
}
