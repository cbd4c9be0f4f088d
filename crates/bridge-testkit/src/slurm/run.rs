//! Starting jobs and seeing their end.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::cluster::{Cluster, ClusterState, Run, finish, now, root, signal};
use super::job::{Job, State};

/// How often the scheduler looks without being called.
const TICK: Duration = Duration::from_millis(20);
/// How long a script may be held open by others.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// Starts what may start, ends what must end, forgets what is old; for ever.
pub(super) async fn schedule(cluster: Arc<Cluster>) {
    loop {
        let _ = tokio::time::timeout(TICK, cluster.changed.notified()).await;
        cluster.purge_old();
        limit_times(&cluster);
        if !cluster.lock().controller_is_up {
            continue;
        }
        while let Some(job) = next_to_start(&cluster) {
            start(&cluster, &job);
        }
    }
}

/// Takes the next job that may start; its state is `Running` from here on.
fn next_to_start(cluster: &Cluster) -> Option<Job> {
    let mut state = cluster.lock();
    let used: u32 = state.jobs.values().filter(|job| job.state == State::Running).map(|job| job.tasks).sum();
    let free = cluster.options.cpus.saturating_sub(used);
    let running_tasks = Cluster::running_tasks(&state);
    let time = now();
    let mut chosen = None;
    for job in state.jobs.values_mut() {
        let State::Pending(_) = job.state else { continue };
        if job.held || job.forced.is_some() {
            continue;
        }
        let at_limit = job.array.as_ref().is_some_and(|array| {
            array.limit > 0 && running_tasks.get(&array.root).copied().unwrap_or_default() >= array.limit
        });
        let reason = if job.begin.is_some_and(|begin| begin > time) {
            "BeginTime"
        } else if at_limit {
            "JobArrayTaskLimit"
        } else if job.tasks > cluster.options.cpus {
            "PartitionConfig"
        } else if job.tasks > free {
            "Resources"
        } else if chosen.is_none() {
            chosen = Some(job.id);
            "None"
        } else {
            "Priority"
        };
        job.state = State::Pending(reason);
    }
    let job = take_task(&mut state, chosen?)?;
    state.runs.push(Run { id: job.id, comment: job.comment.clone() });
    Some(job)
}

/// The job itself, or a task of an array as a job of its own; the last task takes over the array's id.
fn take_task(state: &mut ClusterState, id: u32) -> Option<Job> {
    let fresh = state.next_id;
    let job = state.jobs.get_mut(&id)?;
    let mut splits = false;
    let mut task = None;
    if let Some(array) = job.array.as_mut().filter(|array| array.task.is_none() && !array.waiting.is_empty()) {
        task = Some(array.waiting.remove(0));
        splits = !array.waiting.is_empty();
    }
    if splits {
        let mut part = job.clone();
        part.id = fresh;
        if let Some(array) = &mut part.array {
            (array.task, array.waiting) = (task, Vec::new());
        }
        state.next_id += 1;
        state.jobs.insert(fresh, part);
    } else if let Some(array) = job.array.as_mut().filter(|_| task.is_some()) {
        array.task = task;
    }
    let job = state.jobs.get_mut(if splits { &fresh } else { &id })?;
    job.state = State::Running;
    job.started = Some(now());
    job.started_at = Some(Instant::now());
    Some(job.clone())
}

fn start(cluster: &Arc<Cluster>, job: &Job) {
    match spawn(cluster, job) {
        Ok(mut child) => {
            let is_it = |own: &&mut Job| own.state == State::Running && own.submitted_at == job.submitted_at;
            if let Some(own) = cluster.lock().jobs.get_mut(&job.id).filter(is_it) {
                own.process = child.id();
                if own.ending.is_some() {
                    // Its end was asked for while its process was being made.
                    signal(own, Signal::TERM);
                }
            } else {
                // It was forgotten meanwhile, and nobody else will end its process.
                signal(&Job { process: child.id(), ..job.clone() }, Signal::KILL);
            }
            let (cluster, id, process) = (Arc::clone(cluster), job.id, child.id());
            tokio::spawn(async move {
                let status = child.wait().await.map_or(1 << 8, ExitStatusExt::into_raw);
                ended(&cluster, id, process, status);
            });
        }
        Err(error) => {
            tracing::warn!(job = job.id, %error, "the job could not be started");
            ended(cluster, job.id, None, 1 << 8);
        }
    }
}

fn spawn(cluster: &Cluster, job: &Job) -> std::io::Result<Child> {
    let spool = cluster.folder.join("spool").join(job.id.to_string());
    std::fs::create_dir_all(&spool)?;
    let script = spool.join(format!("script-{}", job.restarts));
    std::fs::write(&script, &job.script)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
    let output = File::create(job.path(&job.output))?;
    let error = if job.error.is_empty() { output.try_clone()? } else { File::create(job.path(&job.error))? };
    let mut command = Command::new(&script);
    command
        .args(&job.arguments)
        .env_clear()
        .envs(&job.environment)
        .env("SLURM_JOB_ID", job.id.to_string())
        .env("SLURM_JOB_NAME", &job.name)
        .env("SLURM_JOB_PARTITION", &job.partition)
        .env("SLURM_JOB_USER", &job.user)
        .env("SLURM_SUBMIT_DIR", &job.folder)
        .current_dir(&job.folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(error)
        .process_group(0)
        .kill_on_drop(true);
    if let Some(array) = &job.array {
        command.env("SLURM_ARRAY_JOB_ID", array.root.to_string());
        command.envs(array.task.map(|task| ("SLURM_ARRAY_TASK_ID", task.to_string())));
    }
    // Another thread's fork may still hold the script open for writing, on a busy machine for some time.
    let begun = Instant::now();
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && begun.elapsed() < BUSY_FOR => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

fn ended(cluster: &Cluster, id: u32, process: Option<u32>, status: i32) {
    let mut guard = cluster.lock();
    let state = &mut *guard;
    // The id may have been given to another job since.
    let is_it = |job: &&mut Job| job.state == State::Running && job.process == process;
    if let Some(job) = state.jobs.get_mut(&id).filter(is_it) {
        match job.ending {
            Some("PENDING") => {
                // Each run has an account of its own, and is told from the one before by its submission.
                let mut run = job.clone();
                finish(&mut run, job.requeued_as, status);
                state.accounts.push(run);
                let earliest = Timestamp::from_second(job.submitted.as_second() + 1).unwrap_or(job.submitted);
                job.submitted = now().max(earliest);
                job.state = State::Pending("BeginTime");
                (job.ending, job.process, job.restarts) = (None, None, job.restarts + 1);
                // Or the next run would be ended as one that does not heed SIGTERM.
                job.ending_since = None;
                (job.started, job.started_at) = (None, None);
            }
            Some(word) => finish(job, word, status),
            None if status == 0 => finish(job, "COMPLETED", 0),
            None => finish(job, "FAILED", status),
        }
    }
    drop(guard);
    cluster.changed.notify_one();
}

/// Ends jobs beyond their time limit, and those that did not heed SIGTERM.
fn limit_times(cluster: &Cluster) {
    let (minute, kill_wait) = (cluster.options.minute, cluster.options.kill_wait);
    let mut state = cluster.lock();
    for job in state.jobs.values_mut().filter(|job| job.state == State::Running) {
        let limit =
            job.time_limit.and_then(|limit| u32::try_from(limit).ok()).map(|limit| minute.saturating_mul(limit));
        let is_over = job.started_at.zip(limit).is_some_and(|(started, limit)| started.elapsed() > limit);
        if is_over && job.ending.is_none() {
            job.ending = Some("TIMEOUT");
            job.ending_since = Some(Instant::now());
            signal(job, Signal::TERM);
        }
        if job.ending_since.is_some_and(|since| since.elapsed() > kill_wait) {
            signal(job, Signal::KILL);
        }
    }
    // Tasks of an array end with it.
    debug_assert!(state.jobs.values().all(|job| root(job) <= job.id || job.array.is_some()));
}
