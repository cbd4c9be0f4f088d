//! Whether a pod works on the job, and what is done if none does.

use std::time::Duration;

use bridge_api::{BridgeJob, conditions as terms, names as api};
use jiff::SignedDuration;
use kube::ResourceExt;

use super::super::seen::{PodPhase, SeenMap, SeenPod};
use super::{Scene, Step, until};
use crate::keys;

/// How long a pod may outlive its deletion before its node counts as dead.
const DEAD_NODE: SignedDuration = SignedDuration::from_secs(30);
/// A pod that ran this long before it broke off begins a new row of restarts.
const LIVED_LONG: i64 = 600;

impl Scene<'_> {
    /// Sees to it that a pod works on the job.
    pub(super) fn tend_pod(&mut self, map: &SeenMap) {
        let Some(pod) = self.input.pod else {
            self.make_missing_pod(map, 0);
            return;
        };
        if !self.owned(pod) {
            let name = crate::names::pod(&self.job().name_any());
            self.report.worker(terms::WORKER_STARTING, &format!("pod {name} of an earlier life has to go first"));
            self.look_again(Duration::from_secs(1));
            if pod.ours && pod.deletion.is_none() {
                // Its ConfigMap is gone and cannot take it along any more, as after an orphaning deletion.
                self.steps.push(Step::DeletePod { uid: pod.uid.clone(), force: false });
            }
            self.remove_if_dead(pod);
            return;
        }
        if pod.deletion.is_some() {
            self.remove_if_dead(pod);
            return;
        }
        match &pod.phase {
            PodPhase::Ended { why, at, ran, .. } => {
                let row = if ran.is_some_and(|ran| ran >= LIVED_LONG) { 0 } else { pod.restarts };
                let due = at
                    .and_then(|at| at.checked_add(SignedDuration::from_secs(pause(row))).ok())
                    .unwrap_or(self.input.now);
                let message = format!(
                    "the controller pod ended without a result ({why}); it is made again, the remote job is not affected"
                );
                self.report.worker(terms::WORKER_FAILED, &message);
                if due > self.input.now {
                    self.look_again(until(self.input.now, due));
                } else if self.can_make(map) {
                    self.steps.push(Step::DeletePod { uid: pod.uid.clone(), force: false });
                    self.make_pod(Some(map.uid.clone()), row + 1);
                }
            }
            PodPhase::Pending(Some(why)) => {
                self.report.worker(terms::WORKER_STARTING, &format!("the controller pod cannot start yet: {why}"));
            }
            PodPhase::Running if map.foreign && self.report.told_of_no_more_than_the_pod() => {
                self.report.worker(terms::ACCEPTED, "the controller pod runs and has told nothing yet");
            }
            PodPhase::Pending(None) | PodPhase::Running => {}
        }
    }

    fn make_missing_pod(&mut self, map: &SeenMap, restarts: u32) {
        if self.can_make(map) {
            self.make_pod(Some(map.uid.clone()), restarts);
        }
    }

    /// Whether a pod could start; if not, says so.
    fn can_make(&mut self, map: &SeenMap) -> bool {
        let deleting = self.job().metadata.deletion_timestamp.is_some();
        let obstacle = if self.input.namespace_ending {
            Some((terms::CANCEL_BLOCKED, "its namespace is being deleted, so no pod can be made in it".to_owned()))
        } else {
            match (self.input.planned, self.input.references) {
                (Err(problem), _) | (_, Err(problem)) => Some((problem.reason, problem.message.clone())),
                _ => None,
            }
        };
        let Some((reason, message)) = obstacle else { return true };
        if deleting || self.input.namespace_ending {
            self.blocked(&message, keys::get(&map.data, keys::ID));
        } else {
            self.wait_for(reason, &message);
        }
        false
    }

    pub(super) fn blocked(&mut self, why: &str, id: Option<&str>) {
        let id = id.or_else(|| self.report.status().jobid.as_deref());
        let message = cannot_cancel(self.job(), id, why);
        self.report.cancel_blocked(&message);
        self.look_again(Duration::from_secs(10));
    }

    fn remove_if_dead(&mut self, pod: &SeenPod) {
        let Some(deletion) = pod.deletion else { return };
        let dead = deletion.checked_add(DEAD_NODE).unwrap_or(deletion);
        if self.input.now >= dead {
            self.steps.push(Step::DeletePod { uid: pod.uid.clone(), force: true });
        } else {
            self.look_again(until(self.input.now, dead));
        }
    }
}

/// What a person can do about a job that cannot be cancelled.
pub(in crate::job) fn cannot_cancel(job: &BridgeJob, id: Option<&str>, why: &str) -> String {
    format!(
        "the remote job {} on {} may still run and cannot be cancelled: {why}; remove the obstacle, or end the job there yourself and run `kubectl annotate -n {} bridgejob {} {}={}`",
        id.unwrap_or("without a known id"),
        job.spec.resource_url,
        job.namespace().unwrap_or_default(),
        job.name_any(),
        api::ANNOTATION_ABANDON,
        job.uid().unwrap_or_default(),
    )
}

/// Seconds before a pod that ended without a result is made again.
pub(super) fn pause(restarts: u32) -> i64 {
    match restarts {
        0 => 0,
        more => (10_i64 << (more - 1).min(5)).min(300),
    }
}
