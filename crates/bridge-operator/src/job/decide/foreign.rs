//! A job that a pod of an image of one's own has: it keeps no record, so it is never begun twice without an id.

use std::time::Duration;

use bridge_api::{JobStatus, conditions as terms};
use jiff::{SignedDuration, Timestamp};

use super::super::report;
use super::super::seen::{PodPhase, SeenMap, SeenPod};
use super::{Scene, Step, until};
use crate::foreign::{self, PodEnd, Told, Verdict};
use crate::keys::{self, Data};

/// How long a pod that was asked for may be under way.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(10);

impl Scene<'_> {
    pub(super) fn follow_foreign(&mut self, map: &SeenMap, delete: bool) {
        let told = foreign::told(&map.data, self.report.status().pod_words.as_ref());
        let asked = delete || self.job().spec.kill;
        let due = self.foreign_deadline(&told);
        let overdue = !asked && due.is_some_and(|due| due <= self.input.now);
        let told_to_end = asked || keys::is_true(&map.data, keys::KILL);
        let pod = self.input.pod.filter(|pod| self.owned(pod));
        let end = match pod {
            Some(SeenPod { phase: PodPhase::Ended { end, .. }, .. }) => Some(*end),
            None if self.input.pod.is_none() => match map.pod_made {
                // It may be under way to the API server, in the hands of an operator that no longer leads.
                Some(made) if self.input.now.duration_since(made) < UNDER_WAY => {
                    self.look_again(until(self.input.now, made.checked_add(UNDER_WAY).unwrap_or(made)));
                    self.report.told(&told);
                    return;
                }
                Some(_) => Some(PodEnd::Gone),
                None => None,
            },
            _ => None,
        };
        let kill = told_to_end || overdue;
        match end.map(|end| foreign::verdict(&told, end, told_to_end)) {
            Some(Verdict::Over { status, message }) => {
                self.report.foreign_end(&told, status, &message, overdue);
            }
            None if kill && map.pod_made.is_none() && pod.is_none() && told.id.is_none() => {
                let (status, reason, what) = if overdue {
                    (JobStatus::Failed, terms::DEADLINE_EXCEEDED, "`activeDeadlineSeconds` had passed")
                } else {
                    (JobStatus::Killed, terms::KILLED, "`kill` was set")
                };
                self.report.never_started(status, reason, &format!("{what} before the controller pod was made"));
            }
            None if kill
                && pod.is_some_and(|pod| matches!(pod.phase, PodPhase::Pending(_)) && pod.deletion.is_none()) =>
            {
                let uid = pod.map(|pod| pod.uid.clone()).unwrap_or_default();
                self.steps.push(Step::DeletePod { uid, force: false });
            }
            Some(Verdict::Again) | None => {
                self.report.told(&told);
                if self.job().spec.suspend {
                    self.report.cannot_suspend();
                }
                if let Some(due) = due.filter(|due| *due > self.input.now) {
                    self.look_again(until(self.input.now, due));
                }
                self.set_keys(map, delete, overdue);
                self.tend_pod(map);
            }
        }
    }

    /// Such a pod knows nothing of deadlines, so it is told to end when its time is over.
    fn foreign_deadline(&self, told: &Told) -> Option<Timestamp> {
        let seconds = self.job().spec.active_deadline_seconds?;
        let status = self.report.status();
        let handover = status.handover.as_ref()?.time.0;
        let submitted = report::since(status, terms::SUBMITTED).filter(|_| report::holds(status, terms::SUBMITTED));
        // Its times may be of another zone: by our clock the submission lies between these two.
        let known = submitted.unwrap_or(self.input.now).max(handover);
        let begin = told.submitted.unwrap_or(handover).clamp(handover, known);
        begin.checked_add(SignedDuration::from_secs(seconds.into())).ok()
    }

    /// The `ConfigMap` is gone, and with it the mark of whether there was a pod. If the status never knew it, there was
    /// none; otherwise only an id tells a pod not to submit once more, and without one the next look says that nobody knows.
    pub(super) fn make_foreign_again(&mut self, wishes: Data) {
        let status = self.report.status();
        let mut told = wishes;
        told.extend(report::known_id(status).map(|id| (keys::ID.to_owned(), id.clone())));
        let handover = status.handover.as_ref().filter(|handover| handover.config_map_uid.is_some());
        let pod_made = handover.map(|handover| handover.time.0);
        self.steps.push(Step::MakeMap { told, pod_made });
        self.look_again(Duration::from_secs(1));
    }
}
