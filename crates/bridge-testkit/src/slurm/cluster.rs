//! The state of the emulated cluster.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::EmulatorOptions;
use super::job::{Array, Job, State};

/// One start of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The job's id, of the task for an array.
    pub id: u32,
    /// The job's comment.
    pub comment: String,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) options: EmulatorOptions,
    pub(super) folder: PathBuf,
    pub(super) changed: Notify,
    state: Mutex<ClusterState>,
}

#[derive(Debug)]
pub(super) struct ClusterState {
    pub(super) versions: Vec<u16>,
    pub(super) users: BTreeMap<String, String>,
    pub(super) controller_is_up: bool,
    pub(super) accounting_is_up: bool,
    pub(super) accounting: AccountingRequests,
    pub(super) claims_unchanged: u32,
    pub(super) next_id: u32,
    pub(super) jobs: BTreeMap<u32, Job>,
    pub(super) accounts: Vec<Job>,
    pub(super) runs: Vec<Run>,
}

/// The requests to slurmdbd.
#[derive(Debug, Default)]
pub(super) struct AccountingRequests {
    pub(super) delay: Duration,
    /// How many of the next are answered as if there were no such address.
    pub(super) unfound: u32,
    pub(super) all: u64,
    pub(super) now: u64,
    pub(super) most_at_once: u64,
}

impl Cluster {
    pub(super) fn new(options: EmulatorOptions, folder: PathBuf) -> Self {
        let state = ClusterState {
            versions: options.versions.clone(),
            users: options.users.clone(),
            controller_is_up: true,
            accounting_is_up: true,
            accounting: AccountingRequests::default(),
            claims_unchanged: 0,
            next_id: 1,
            jobs: BTreeMap::new(),
            accounts: Vec::new(),
            runs: Vec::new(),
        };
        Self { options, folder, changed: Notify::new(), state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.lock().runs.clone()
    }

    /// Takes a job in and gives it an id.
    pub(super) fn add(&self, mut job: Job) -> u32 {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        job.id = id;
        if let Some(array) = &mut job.array {
            array.root = id;
        }
        state.jobs.insert(id, job);
        drop(state);
        self.changed.notify_one();
        id
    }

    pub(super) fn add_held(&self, user: &str, comment: &str) -> u32 {
        self.add(Job { comment: comment.to_owned(), held: true, ..self.blank(user) })
    }

    /// A job with nothing but its user.
    pub(super) fn blank(&self, user: &str) -> Job {
        Job {
            id: 0,
            array: None,
            user: user.to_owned(),
            name: String::new(),
            comment: String::new(),
            extra: String::new(),
            partition: "debug".to_owned(),
            script: "#!/bin/sh\n".to_owned(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            folder: self.folder.clone(),
            output: String::new(),
            error: String::new(),
            tasks: 1,
            time_limit: None,
            begin: None,
            held: false,
            state: State::Pending("None"),
            forced: None,
            ending: None,
            ending_since: None,
            requeued_as: "REQUEUED",
            process: None,
            restarts: 0,
            submitted: now(),
            submitted_at: Instant::now(),
            started: None,
            started_at: None,
            ended: None,
            ended_at: None,
            is_untold: false,
            is_unheard_of: false,
        }
    }

    /// The records of an id: of all tasks, for the id of an array.
    pub(super) fn records(&self, id: u32) -> Vec<Job> {
        let state = self.lock();
        state.jobs.values().filter(|job| job.id == id || root(job) == id).cloned().collect()
    }

    /// Asks for the end of a job, and of all tasks of an array. `None` if there is no such job.
    pub(super) fn cancel(&self, id: u32) -> Option<Cancelled> {
        let mut state = self.lock();
        let ids: Vec<u32> =
            state.jobs.values().filter(|job| job.id == id || root(job) == id).map(|job| job.id).collect();
        if ids.is_empty() {
            return None;
        }
        let mut ended_before = true;
        for id in ids {
            let Some(job) = state.jobs.get_mut(&id) else { continue };
            match job.state {
                State::Ended(..) => continue,
                State::Pending(_) => finish(job, "CANCELLED", 0),
                State::Running => {
                    job.ending.get_or_insert("CANCELLED");
                    job.ending_since.get_or_insert_with(Instant::now);
                    signal(job, Signal::TERM);
                }
            }
            ended_before = false;
        }
        drop(state);
        self.changed.notify_one();
        Some(if ended_before { Cancelled::EndedBefore } else { Cancelled::Done })
    }

    pub(super) fn purge(&self, id: u32, account_too: bool) -> bool {
        let mut state = self.lock();
        let known = state.jobs.len();
        let gone: Vec<Job> =
            state.jobs.values().filter(|job| (job.id == id || root(job) == id) && job.is_ended()).cloned().collect();
        for job in &gone {
            state.jobs.remove(&job.id);
        }
        if account_too {
            state.accounts.retain(|job| job.id != id && root(job) != id);
        } else {
            account(&mut state, &gone);
        }
        state.jobs.len() < known
    }

    pub(super) fn requeue(&self, id: u32, word: &'static str) -> bool {
        let mut state = self.lock();
        let Some(job) = state.jobs.get_mut(&id).filter(|job| job.state == State::Running) else { return false };
        job.ending = Some("PENDING");
        job.requeued_as = word;
        job.ending_since = Some(Instant::now());
        signal(job, Signal::TERM);
        true
    }

    pub(super) fn force(&self, id: u32, words: &[&str], reason: &str) -> bool {
        let mut state = self.lock();
        let Some(job) = state.jobs.get_mut(&id) else { return false };
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        job.forced = Some((words, reason.to_owned()));
        true
    }

    pub(super) fn lose_younger_than(&self, age: Duration) {
        let mut state = self.lock();
        let lost: Vec<u32> =
            state.jobs.values().filter(|job| job.submitted_at.elapsed() < age).map(|job| job.id).collect();
        for id in &lost {
            if let Some(job) = state.jobs.remove(id) {
                signal(&job, Signal::KILL);
            }
        }
        if let Some(first) = lost.iter().min() {
            state.next_id = *first;
        }
    }

    /// Accounting keeps what was; slurmctld goes back to the job as it was submitted, an array with all its tasks in one.
    pub(super) fn forget_release(&self, id: u32) -> bool {
        let mut state = self.lock();
        let past: Vec<Job> = state.jobs.values().filter(|job| root(job) == id).cloned().collect();
        let Some(whole) = state.jobs.get(&id).cloned() else { return false };
        for job in &past {
            signal(job, Signal::KILL);
            state.jobs.remove(&job.id);
        }
        let mut waiting: Vec<u32> = past.iter().filter_map(|job| job.array.as_ref()).flat_map(Array::tasks).collect();
        waiting.sort_unstable();
        let array = whole.array.clone().map(|array| Array { task: None, waiting, ..array });
        let fresh = Job {
            array,
            held: true,
            state: State::Pending("None"),
            process: None,
            ending: None,
            ending_since: None,
            started: None,
            started_at: None,
            ended: None,
            ended_at: None,
            ..whole
        };
        state.jobs.insert(id, fresh);
        let started: Vec<Job> = past.into_iter().filter(|job| job.started.is_some()).collect();
        account(&mut state, &started);
        true
    }

    /// Ended jobs beyond the minimum age go into the accounts, or nowhere.
    pub(super) fn purge_old(&self) {
        let age = self.options.min_job_age;
        let mut state = self.lock();
        let old: Vec<Job> = state
            .jobs
            .values()
            .filter(|job| job.ended_at.is_some_and(|ended| ended.elapsed() >= age))
            .cloned()
            .collect();
        for job in &old {
            state.jobs.remove(&job.id);
        }
        account(&mut state, &old);
    }

    /// All that accounting knows, jobs that slurmctld still knows included.
    pub(super) fn accounted(&self) -> Vec<Job> {
        let state = self.lock();
        let told = |job: &Job| {
            if job.is_untold { Job { state: State::Running, ended: None, ..job.clone() } } else { job.clone() }
        };
        state.accounts.iter().chain(state.jobs.values()).filter(|job| !job.is_unheard_of).map(told).collect()
    }

    pub(super) fn end_all(&self) {
        for job in self.lock().jobs.values() {
            signal(job, Signal::KILL);
        }
    }

    /// Pending jobs by partition and running tasks, for nodes and partitions.
    pub(super) fn used_cpus(&self) -> u32 {
        self.lock().jobs.values().filter(|job| job.state == State::Running).map(|job| job.tasks).sum()
    }

    /// How many tasks of each array run.
    pub(super) fn running_tasks(state: &ClusterState) -> HashMap<u32, u32> {
        let mut running = HashMap::new();
        for job in state.jobs.values().filter(|job| job.state == State::Running) {
            if let Some(Array { root, .. }) = &job.array {
                *running.entry(*root).or_default() += 1;
            }
        }
        running
    }
}

/// What became of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancelled {
    Done,
    EndedBefore,
}

pub(super) fn root(job: &Job) -> u32 {
    job.array.as_ref().map_or(job.id, |array| array.root)
}

fn account(state: &mut ClusterState, jobs: &[Job]) {
    state.accounts.extend_from_slice(jobs);
}

pub(super) fn finish(job: &mut Job, word: &'static str, status: i32) {
    job.state = State::Ended(word, status);
    job.process = None;
    job.ending = None;
    job.ended = Some(now());
    job.ended_at = Some(Instant::now());
    job.started.get_or_insert_with(now);
}

pub(super) fn signal(job: &Job, signal: Signal) {
    let group = job.process.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may have ended by itself in this moment.
        let _ = kill_process_group(group, signal);
    }
}

#[allow(clippy::disallowed_methods, reason = "an emulated system has a clock of its own")]
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}
