//! The cluster that programs are killed in, and the people around it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bridge_testkit::lab::{self, Lab};

use super::history::History;

/// The programs that are killed.
const PARTS: [&str; 2] = ["slurmctld", "slurmrestd"];

/// A real cluster of the test's own. It is watched by an operator, who starts again what has died.
pub(super) struct Site {
    lab: Arc<Lab>,
    folder: PathBuf,
    operator: Vec<tokio::task::JoinHandle<()>>,
    pub(super) slurm: lab::Slurm,
    /// Jobs that the user has cancelled with Slurm's own commands.
    pub(super) cancelled: BTreeSet<String>,
}

impl Site {
    pub(super) async fn open() -> Self {
        let lab = Arc::new(Lab::own("chaos"));
        let slurm = lab.slurm().await.unwrap();
        let values = lab.must("env", &["--plain"]).await.unwrap();
        let folder = values.lines().find_map(|line| line.strip_prefix("BRIDGE_LAB_FOLDER=")).unwrap();
        let folder = PathBuf::from(folder).join("slurm");
        let operator = vec![
            tokio::spawn(restart_the_dead(Arc::clone(&lab), folder.clone())),
            tokio::spawn(resume_nodes(Arc::clone(&lab))),
        ];
        Self { lab, folder, operator, slurm, cancelled: BTreeSet::new() }
    }

    /// Kills one of the programs; waits for it first if it is still dead from the last time.
    pub(super) async fn kill(&self, part: &str) {
        loop {
            if let Some(id) = process(&self.folder, part) {
                tokio::process::Command::new("kill").args(["-KILL", &id]).status().await.unwrap();
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until slurmctld has written down what it knows now, which it does every few seconds if there is anything
    /// new.
    pub(super) async fn written(&self, knows: impl Fn() -> bool) {
        let file = self.folder.join("spool/slurmctld/job_state");
        let written = || std::fs::metadata(&file).and_then(|file| file.modified()).ok();
        let waiting = async {
            while !knows() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let now = SystemTime::now();
            while written().is_none_or(|at| at <= now) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // With nothing new it writes nothing, and has nothing to lose either.
        let _ = tokio::time::timeout(Duration::from_secs(15), waiting).await;
    }

    /// Has the node tell slurmctld which jobs it has. Those whose end slurmctld has forgotten would run for ever in
    /// its eyes otherwise, or until it asks by itself, which it does twice an hour.
    pub(super) async fn count_jobs(&self) {
        self.run(&["scontrol", "reconfigure"]).await;
    }

    /// What slurmctld takes for jobs that run or will run, by its word; `None` if there is nothing but held ones.
    pub(super) async fn active(&self) -> Option<String> {
        let jobs = self.lab.run("exec", &["slurm", "squeue", "--noheader", "--format=%i %T %r"]).await.unwrap();
        if !jobs.status.success() {
            return Some("slurmctld does not answer".to_owned());
        }
        let jobs = String::from_utf8_lossy(&jobs.stdout).into_owned();
        let active = |job: &&str| !(job.contains("PENDING") && job.to_ascii_lowercase().contains("held"));
        let active: Vec<&str> = jobs.lines().filter(active).collect();
        (!active.is_empty()).then(|| active.join(", "))
    }

    /// Does what a user does about jobs that Slurm holds although they were released: only he can know whether they
    /// have run. Those he cancels.
    pub(super) async fn settle_held(&mut self, has_run: impl Fn(&str) -> Option<bool>) {
        for line in self.run(&["squeue", "--noheader", "--states=PENDING", "--format=%i %r"]).await.lines() {
            let Some((id, reason)) = line.trim().split_once(' ') else { continue };
            if !reason.to_ascii_lowercase().contains("held") {
                continue;
            }
            match has_run(id) {
                Some(true) => {
                    self.run(&["scancel", id]).await;
                    self.cancelled.insert(id.to_owned());
                }
                Some(false) => {
                    // A job that could not be launched is put off by two minutes.
                    self.run(&["scontrol", "update", &format!("jobid={id}"), "starttime=now"]).await;
                    self.run(&["scontrol", "release", id]).await;
                }
                None => {}
            }
        }
    }

    pub(super) fn history(&self) -> History {
        History(self.log("slurmctld.dated"))
    }

    /// The number of the user whom the bridge works for.
    pub(super) fn user(&self) -> u32 {
        std::fs::metadata(&self.slurm.home).unwrap().uid()
    }

    fn log(&self, part: &str) -> String {
        std::fs::read_to_string(self.folder.join("log").join(format!("{part}.log"))).unwrap_or_default()
    }

    /// All that helps to understand why something did not end.
    pub(super) async fn report(&self) -> String {
        let mut report = Vec::new();
        for command in [&["sinfo", "--list-reasons"][..], &["squeue", "--states=all"]] {
            report.push(format!("--- {command:?}\n{}", self.run(command).await));
        }
        for part in ["slurmctld.dated", "slurmd"] {
            let log = self.log(part);
            let lines: Vec<&str> = log.lines().filter(|line| !line.contains("pmix")).collect();
            report.push(format!("--- {part}\n{}", lines[lines.len().saturating_sub(400)..].join("\n")));
        }
        report.join("\n")
    }

    /// Runs a command of Slurm. It may fail: slurmctld may be down.
    async fn run(&self, command: &[&str]) -> String {
        let output = self.lab.run("exec", &[&["slurm"], command].concat()).await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(super) async fn close(self) {
        for task in &self.operator {
            task.abort();
        }
        self.lab.down().await.unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Or they would keep the lab up after a test that failed.
        for task in &self.operator {
            task.abort();
        }
    }
}

async fn restart_the_dead(lab: Arc<Lab>, folder: PathBuf) {
    loop {
        if PARTS.iter().any(|part| process(&folder, part).is_none()) {
            // It fails if something is killed again while it comes up; then it is tried again.
            let _ = lab.run("up", &["slurm"]).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A slurmctld that has forgotten the start of a job starts it again, hears that it runs already ("Duplicate jobid"),
/// and takes the node out of service, until an operator puts it back.
async fn resume_nodes(lab: Arc<Lab>) {
    const RESUME: &str =
        "sinfo --noheader --format=%T | grep -Eq 'drain|down' && scontrol update nodename=node1 state=resume";
    loop {
        let _ = lab.run("exec", &["slurm", "sh", "-c", RESUME]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The id of a program, if that very process is alive: the lab writes its start time beside the id.
fn process(folder: &Path, part: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder.join("run").join(format!("{part}.pid"))).ok()?;
    let (id, started) = text.trim().split_once(' ')?;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let is_alive = !matches!(*fields.first()?, "Z" | "X") && *fields.get(19)? == started;
    is_alive.then(|| id.to_owned())
}
