//! What to do for a job, from what was seen: one total, pure function, so that every situation of its life is a test.

mod foreign;
mod pods;

pub(super) use pods::cannot_cancel;

use std::time::Duration;

use bridge_api::{
    BridgeJob, BridgeJobStatus, DeletionPolicy, JobStatus, ResourceManager, conditions as terms, names as api,
};
use bridge_core::ids::RemoteId;
use bridge_core::manager::Phase;
use bridge_core::plan::SecretNeed;
use bridge_core::record::{Cause, Ending, JobRecord, JobState, NotSubmitted, RecordError};
use jiff::Timestamp;
use kube::ResourceExt;

use super::plan::Runs;
use super::report::{self, Context, Report};
use super::seen::{PodPhase, SeenMap, SeenPod};
use crate::keys::{self, Data};

/// Who signs records that the operator itself writes.
const HOLDER: &str = "operator";

/// What was decided about a job from its spec and the operator's settings alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What runs as its controller pod.
    pub runs: Runs,
    /// The remote system's kind; unknown for foreign pods.
    pub manager: Option<ResourceManager>,
    /// What its pod mounts.
    pub needs: Vec<SecretNeed>,
}

/// Why a job cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// One word, from `bridge_api::conditions`.
    pub reason: &'static str,
    /// What is wrong, with what, and what to do.
    pub message: String,
}

/// Everything a decision is made from.
#[derive(Debug)]
pub struct Input<'a> {
    /// The job as the API has it.
    pub job: &'a BridgeJob,
    /// What follows from its spec.
    pub planned: &'a Result<Planned, Problem>,
    /// Whether what the pod mounts is there; looked at only if a pod may have to be made.
    pub references: &'a Result<(), Problem>,
    /// Its `ConfigMap`.
    pub map: Option<&'a SeenMap>,
    /// Its pod.
    pub pod: Option<&'a SeenPod>,
    /// The namespace is being deleted, so nothing can be made in it.
    pub namespace_ending: bool,
    /// Now.
    pub now: Timestamp,
}

/// What to do. The status is written first, because the mark of the hand-over must be there before the `ConfigMap` is.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The status from now on.
    pub status: BridgeJobStatus,
    /// What to do then, in this order.
    pub steps: Vec<Step>,
    /// When to look again even if nothing happens.
    pub again: Option<Duration>,
}

/// One change in the cluster. Each names the UID it means, so that it can hit no other object of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make the `ConfigMap`, with what a controller pod knew before.
    MakeMap {
        /// Keys beside those of the spec.
        told: Data,
        /// When a foreign pod was made.
        pod_made: Option<Timestamp>,
    },
    /// Let go of a `ConfigMap`, so that a deletion by hand can end.
    ReleaseMap {
        /// Which.
        uid: String,
        /// As it was seen; if it changed since, this fails.
        resource_version: String,
    },
    /// Delete a `ConfigMap` for good, and with it all that it owns.
    DeleteMap {
        /// Which.
        uid: String,
    },
    /// Change keys.
    SetKeys {
        /// Which.
        uid: String,
        /// New values.
        data: Data,
        /// Only if it did not change since.
        resource_version: Option<String>,
    },
    /// Note that the foreign pod is about to be made.
    MarkPodMade {
        /// Which `ConfigMap`; the one just made if none.
        uid: Option<String>,
        /// When.
        at: Timestamp,
    },
    /// Make the pod and what it needs.
    MakePod {
        /// The `ConfigMap` it is made for; the one just made if none.
        uid: Option<String>,
        /// How many before it ended without a result.
        restarts: u32,
    },
    /// Delete the pod.
    DeletePod {
        /// Which.
        uid: String,
        /// Do not wait for its node.
        force: bool,
    },
    /// Take our finalizer off the job.
    LetGo,
    /// Delete the job, whose time after its end is over.
    DeleteJob,
}

/// Decides.
#[must_use]
pub fn decide(input: &Input<'_>) -> Decision {
    let context = Context { generation: input.job.metadata.generation, now: input.now };
    let mut scene =
        Scene { input, report: Report::on(input.job.status.as_ref(), context), steps: Vec::new(), again: None };
    if input.job.metadata.deletion_timestamp.is_some() {
        scene.delete();
    } else {
        if !report::is_final(scene.report.status()) {
            if scene.handed_over() { scene.live() } else { scene.begin() }
        }
        // Maybe only now: nothing else may ever wake us for this job again.
        if report::is_final(scene.report.status()) {
            scene.over();
        }
    }
    Decision { status: scene.report.finish(), steps: scene.steps, again: scene.again }
}

struct Scene<'a> {
    input: &'a Input<'a>,
    report: Report,
    steps: Vec<Step>,
    again: Option<Duration>,
}

impl Scene<'_> {
    fn job(&self) -> &BridgeJob {
        self.input.job
    }

    /// The mark is there; or it was lost with the status (a restored backup), but a `ConfigMap` of this job shows it.
    fn handed_over(&self) -> bool {
        self.report.status().handover.is_some() || self.input.map.is_some_and(|map| map.ours)
    }

    fn is_foreign(&self) -> bool {
        match (self.input.map, &self.report.status().handover, self.input.planned) {
            (Some(map), ..) if map.ours => map.foreign,
            (_, Some(handover), _) => handover.foreign,
            (_, None, Ok(planned)) => matches!(planned.runs, Runs::Foreign { .. }),
            (_, None, Err(_)) => false,
        }
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |earlier| earlier.min(after)));
    }

    /// Something is missing: more and more rarely looked for, the longer it is missing.
    fn wait_for(&mut self, reason: &'static str, message: &str) {
        self.report.not_ready(reason, message);
        let missing = self.report.before(terms::READY).filter(|ready| ready.status == "False");
        let since = missing.map_or(self.input.now, |ready| ready.last_transition_time.0);
        let waited = u64::try_from(self.input.now.as_second() - since.as_second()).unwrap_or(0);
        self.look_again(Duration::from_secs((waited / 4).clamp(1, 60)));
    }

    /// Nothing was handed over yet.
    fn begin(&mut self) {
        let spec = &self.job().spec;
        if spec.kill {
            let message = "`kill` was set before anything was submitted";
            self.report.never_started(JobStatus::Killed, terms::KILLED, message);
            return;
        }
        let planned = match self.input.planned {
            Ok(planned) => planned,
            Err(problem) => {
                self.report.not_ready(problem.reason, &problem.message);
                self.report.never_started(JobStatus::Failed, problem.reason, &problem.message);
                return;
            }
        };
        if spec.suspend {
            self.report.suspended_before_start();
            return;
        }
        let foreign = self.is_foreign();
        let attempts_elsewhere = foreign && spec.backoff_limit > 0;
        self.report.resumed();
        if attempts_elsewhere {
            let message = "spec.backoffLimit: a pod of an image of one's own makes its own attempts; leave it out";
            self.report.not_ready(terms::INVALID_SPEC, message);
            self.report.never_started(JobStatus::Failed, terms::INVALID_SPEC, message);
            return;
        }
        if let Err(problem) = self.input.references {
            self.wait_for(problem.reason, &problem.message);
            return;
        }
        if let Some(name) = self.taken() {
            self.wait_for(
                terms::WAITING,
                &format!("{name} is there already and belongs to something else; delete it, or wait until it is gone"),
            );
            return;
        }
        self.report.ready(planned.manager).hand_over(foreign);
        self.steps.push(Step::MakeMap { told: Data::new(), pod_made: None });
        // A foreign pod is made only when the status knows its ConfigMap: as long as it does not, there surely was none.
        if !foreign {
            self.make_pod(None, 0);
        }
    }

    /// An object under a name of ours that was not made for this job.
    fn taken(&self) -> Option<String> {
        let job = self.job().name_any();
        let owner = self.input.map.filter(|map| map.ours).map(|map| map.uid.as_str());
        if self.input.map.is_some_and(|map| !map.ours) {
            return Some(format!("ConfigMap {}", crate::names::config_map(&job)));
        }
        let pod = self.input.pod?;
        (owner.is_none() || pod.owner.as_deref() != owner).then(|| format!("pod {}", crate::names::pod(&job)))
    }

    fn make_pod(&mut self, uid: Option<String>, restarts: u32) {
        if self.is_foreign() && self.input.map.is_none_or(|map| map.pod_made.is_none()) {
            self.steps.push(Step::MarkPodMade { uid: uid.clone(), at: self.input.now });
        }
        self.steps.push(Step::MakePod { uid, restarts });
    }

    /// Over; only its time to live is left.
    fn over(&mut self) {
        if let Some(map) = self.input.map.filter(|map| map.ours && map.deleting) {
            self.release(map);
        }
        if let Some(pod) = self.input.pod
            && self.owned(pod)
            && pod.deletion.is_none()
            && matches!(pod.phase, PodPhase::Pending(_))
        {
            // It never started and has nothing left to do.
            self.steps.push(Step::DeletePod { uid: pod.uid.clone(), force: false });
        }
        let Some(ttl) = self.job().spec.ttl_seconds_after_finished else { return };
        let Some(end) = report::ended_at(self.report.status()) else { return };
        let left = i64::from(ttl) - (self.input.now.as_second() - end.as_second());
        match u64::try_from(left) {
            Ok(left) if left > 0 => self.look_again(Duration::from_secs(left)),
            _ => self.steps.push(Step::DeleteJob),
        }
    }

    fn owned(&self, pod: &SeenPod) -> bool {
        self.input.map.is_some_and(|map| pod.owner.as_deref() == Some(map.uid.as_str()))
    }

    fn release(&mut self, map: &SeenMap) {
        self.steps.push(Step::ReleaseMap { uid: map.uid.clone(), resource_version: map.resource_version.clone() });
    }

    /// Handed over and not over.
    fn live(&mut self) {
        if self.report.status().handover.is_none() {
            self.report.hand_over(self.is_foreign());
        }
        let Some(map) = self.input.map else {
            self.make_again(Data::new());
            return;
        };
        if !map.ours {
            let name = crate::names::config_map(&self.job().name_any());
            self.wait_for(
                terms::WAITING,
                &format!("ConfigMap {name} belongs to something else; delete it, or wait until it is gone"),
            );
            return;
        }
        if map.deleting && !self.input.namespace_ending {
            self.replace(map);
            return;
        }
        self.report.config_map(&map.uid);
        if let Ok(planned) = self.input.planned
            && !(self.was_refused() && self.input.pod.is_none())
        {
            self.report.ready(planned.manager);
        }
        let delete = self.input.namespace_ending && self.job().spec.deletion_policy == DeletionPolicy::Cancel;
        self.follow(map, delete);
    }

    /// The cluster did not want the job's pod the last time; whether it does now, only the next try tells.
    fn was_refused(&self) -> bool {
        let refused = |ready: &bridge_api::Condition| ready.status == "False" && ready.reason == terms::WORKER_STARTING;
        self.report.before(terms::READY).is_some_and(refused)
    }

    /// Deleted by hand: it is let go and made again with all that its pod had saved.
    fn replace(&mut self, map: &SeenMap) {
        if let Err(problem) = self.input.references {
            self.wait_for(problem.reason, &problem.message);
            return;
        }
        if self.input.planned.is_err() {
            return;
        }
        self.release(map);
        self.steps.push(Step::MakeMap { told: map.told(), pod_made: map.pod_made });
        // Its pod goes with it; the next look finds the new one without a pod.
        self.look_again(Duration::from_secs(1));
    }

    /// The `ConfigMap` of a job that was handed over is gone: whoever takes the job looks first.
    fn make_again(&mut self, wishes: Data) {
        if let Err(problem) = self.input.planned {
            self.wait_for(problem.reason, &problem.message);
            return;
        }
        if let Err(problem) = self.input.references {
            self.wait_for(problem.reason, &problem.message);
            return;
        }
        if self.is_foreign() {
            self.make_foreign_again(wishes);
            return;
        }
        let Ok(state) = remade(self.job(), self.report.status()).encode() else { return };
        let mut told = Data::from([(keys::STATE.to_owned(), state)]);
        told.extend(wishes);
        self.steps.push(Step::MakeMap { told, pod_made: None });
        // A pod of the ConfigMap that is gone is being collected; one for the new one is made when that is over.
        if self.input.pod.is_none() {
            self.make_pod(None, 0);
        } else {
            self.look_again(Duration::from_secs(1));
        }
    }

    fn follow(&mut self, map: &SeenMap, delete: bool) {
        if map.foreign { self.follow_foreign(map, delete) } else { self.follow_ours(map, delete) }
    }

    /// Brings the keys that may change up to date.
    fn set_keys(&mut self, map: &SeenMap, delete: bool, overdue: bool) {
        let mut wanted = keys::wishes(&self.job().spec);
        if overdue {
            wanted.insert(keys::KILL.to_owned(), "true".to_owned());
        }
        if delete {
            wanted.insert(keys::KILL.to_owned(), "true".to_owned());
            wanted.insert(keys::DELETE.to_owned(), "true".to_owned());
        }
        if map.foreign {
            // A PUT of the pod's own between its read and its write would fail, and some pods die of that.
            wanted.retain(|key, value| key == keys::KILL && value == "true");
        }
        wanted.retain(|key, value| map.data.get(key).map_or("", String::as_str) != value);
        // Never taken back: a deletion ends only with the job.
        if keys::is_true(&map.data, keys::KILL) {
            wanted.remove(keys::KILL);
        }
        if !wanted.is_empty() {
            self.steps.push(Step::SetKeys { uid: map.uid.clone(), data: wanted, resource_version: None });
        }
    }

    fn follow_ours(&mut self, map: &SeenMap, delete: bool) {
        match map.record() {
            Err(error) => {
                let reason = match error {
                    RecordError::TooNew { .. } => terms::STATE_TOO_NEW,
                    RecordError::Unreadable(_) => terms::STATE_UNREADABLE,
                };
                let message = format!(
                    "{error}; key {} of ConfigMap {}",
                    keys::STATE,
                    crate::names::config_map(&self.job().name_any())
                );
                if delete && reason == terms::STATE_UNREADABLE {
                    self.blocked(&message, keys::get(&map.data, keys::ID));
                } else {
                    self.report.condition(terms::READY, report::Holds::False, reason, &message);
                }
                return;
            }
            Ok(Some(record)) => {
                self.report.record(&record);
                if record.ending().is_some() {
                    return;
                }
            }
            Ok(None) if self.job().spec.kill || delete => {
                // Nothing is submitted before a first record is saved, so whoever saves the first one decides.
                self.fence(map, if delete { Cause::Delete } else { Cause::Kill });
                return;
            }
            Ok(None) => {}
        }
        // Our worker keeps the deadline itself.
        self.set_keys(map, delete, false);
        self.tend_pod(map);
    }

    fn fence(&mut self, map: &SeenMap, cause: Cause) {
        let mut record = JobRecord::new(self.job().uid().unwrap_or_default(), HOLDER);
        record.seq = next_seq(self.report.status());
        record.cause = Some(cause);
        record.times.finished = Some(self.input.now);
        record.state = JobState::Finished { ending: Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause } } };
        let Ok(state) = record.encode() else { return };
        let data = Data::from([
            (keys::STATE.to_owned(), state),
            (keys::KILL.to_owned(), "true".to_owned()),
            (format!("{}{}", keys::PREFIX, keys::STATUS), JobStatus::Killed.as_str().to_owned()),
        ]);
        let resource_version = Some(map.resource_version.clone());
        self.steps.push(Step::SetKeys { uid: map.uid.clone(), data, resource_version });
    }

    /// The job is being deleted.
    fn delete(&mut self) {
        let job = self.job();
        let abandoned =
            job.annotations().get(api::ANNOTATION_ABANDON).map(String::as_str) == job.metadata.uid.as_deref();
        let orphan = job.spec.deletion_policy == DeletionPolicy::Orphan;
        if abandoned || orphan || report::is_final(self.report.status()) || !self.handed_over() {
            self.clear_away();
            return;
        }
        match self.input.map.filter(|map| map.ours) {
            Some(map) => {
                self.report.config_map(&map.uid);
                self.follow(map, true);
                if report::is_final(self.report.status()) {
                    self.clear_away();
                }
            }
            None if self.input.namespace_ending => {
                self.blocked("its namespace is being deleted, so no pod can be made in it", None);
            }
            None => match (self.input.planned, self.input.references) {
                (Err(problem), _) | (_, Err(problem)) => self.blocked(&problem.message, None),
                _ => self.make_again(Data::from([
                    (keys::KILL.to_owned(), "true".to_owned()),
                    (keys::DELETE.to_owned(), "true".to_owned()),
                ])),
            },
        }
    }

    fn clear_away(&mut self) {
        if let Some(map) = self.input.map.filter(|map| map.ours) {
            self.steps.push(Step::DeleteMap { uid: map.uid.clone() });
        }
        self.steps.push(Step::LetGo);
    }
}

fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default().max(Duration::from_millis(100))
}

fn next_seq(status: &BridgeJobStatus) -> u64 {
    status.record_seq.and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0) + 1
}

/// The record of a job that was handed over and whose `ConfigMap` is gone: never one that submits without a look.
fn remade(job: &BridgeJob, status: &BridgeJobStatus) -> JobRecord {
    let uid = job.uid().unwrap_or_default();
    let attempt = status.attempts.unwrap_or(1).max(1);
    let since = status.handover.as_ref().map_or(Timestamp::UNIX_EPOCH, |handover| handover.time.0);
    let mut record = JobRecord::handed_over(uid, HOLDER, attempt, since);
    record.seq = next_seq(status);
    record.failures = attempt - 1;
    record.times.submitted = status.submittime.as_ref().map(|time| time.0);
    record.times.active = record.times.submitted;
    record.facts.started = status.starttime.as_ref().map(|time| time.0);
    // `Submitted` holds for the current attempt alone; the id in the status may be that of an earlier one.
    if let Some(id) = report::known_id(status)
        && report::holds(status, terms::SUBMITTED)
    {
        let id = RemoteId::new(id);
        let phase = match status.jobstatus {
            // Held since its submission: whether its release was sent, nobody knows.
            Some(JobStatus::Submitted) => None,
            Some(JobStatus::Running) => Some(Phase::Running),
            Some(JobStatus::Suspended) => Some(Phase::Held),
            _ => Some(Phase::Queued { reason: None }),
        };
        record.state = match phase {
            Some(phase) => JobState::Active { id, phase, missing: None },
            None => JobState::Prepared { id },
        };
        // A hold that was ours is ours to lift.
        record.suspended = report::holds(status, terms::SUSPENDED);
        record.was_suspended = record.suspended;
    }
    record
}

#[cfg(test)]
mod tests;
