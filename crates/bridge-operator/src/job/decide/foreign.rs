//! A job that a pod of an image of one's own has: it keeps no record, so it is never begun twice without an id.

use bridge_api::{JobStatus, conditions as terms};
use jiff::{SignedDuration, Timestamp};

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
        let kill = asked || overdue || keys::is_true(&map.data, keys::KILL);
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
        match end.map(|end| foreign::verdict(&told, end, kill)) {
            Some(Verdict::Over { status, message }) => {
                self.report.foreign_end(&told, status, &message, overdue);
            }
            None if kill && map.pod_made.is_none() && pod.is_none() => {
                self.report.never_started(
                    JobStatus::Killed,
                    terms::KILLED,
                    "`kill` was set before the controller pod was made",
                );
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
        let handover = self.report.status().handover.as_ref().map(|handover| handover.time.0);
        told.submitted.or(handover)?.checked_add(SignedDuration::from_secs(seconds.into())).ok()
    }

    /// The `ConfigMap` is gone, and with it the mark of whether there was a pod. Without an id nobody knows whether a job
    /// was submitted, so then only the `ConfigMap` is made, for the next look to say so.
    pub(super) fn make_foreign_again(&mut self, wishes: Data) {
        let status = self.report.status();
        let id = status.jobid.clone();
        let pod_made = status.handover.as_ref().map(|handover| handover.time.0).or(Some(self.input.now));
        let mut told = wishes;
        told.extend(id.clone().map(|id| (keys::ID.to_owned(), id)));
        self.steps.push(Step::MakeMap { told, pod_made });
        if id.is_some() {
            self.make_pod_when_free();
        }
    }
}
