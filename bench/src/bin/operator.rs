//! The operator on a real cluster: how soon a pod is there, how much is written, how much memory is held.
//!
//! `bench/operator` brings the lab up and runs this. Figures stand beside a bare pod's, measured in the same run.
#![allow(clippy::expect_used, reason = "a benchmark that cannot go on has nothing to say")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bridge_api::{BridgeJob, BridgeJobStatus, JobStatus};
use bridge_operator::names;
use bridge_testkit::lab::Lab;
use bridge_testkit::slurm::{Emulator, EmulatorOptions};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};

const JOBS: usize = 20;
const FINISHED: usize = 1000;

#[tokio::main]
async fn main() -> Result<()> {
    let lab = Lab::shared();
    let kubernetes = lab.kubernetes().await?;
    let namespace = kubernetes.namespace().await?;
    let client = namespace.client.clone();
    let listen = SocketAddr::new(lab.host().await?, 0);
    let slurm = Emulator::start(EmulatorOptions { listen, ..EmulatorOptions::default() }).await?;
    let bench = Bench { client, ns: namespace.name.clone(), slurm };
    let secret =
        json!({ "metadata": { "name": "mysecret" }, "stringData": { "username": "alice", "password": "alice-token" } });
    bench.api::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret)?).await?;

    println!("operator, resident, idle                       {}", show(&operators()));
    let bare = bench.bare_pods().await?;
    let lives = Box::pin(bench.lives()).await?;
    println!("bare pod: create → Running                     {}", quantiles(&bare));
    println!("BridgeJob: apply → pod created                 {}", quantiles(&lives.created));
    println!("BridgeJob: apply → pod Running                 {}", quantiles(&lives.running));
    println!("BridgeJob: apply → accepted by Slurm           {}", quantiles(&lives.accepted));
    println!("BridgeJob: end of the script → status DONE     {}", quantiles(&lives.told));
    println!("worker, resident (pages of the program too)    {}", show(&lives.workers));
    println!("worker, its pod as the cluster counts it       {}", show(&lives.pods));
    println!("writes for one job over its life, by resource  {}", bench.writes().await?);
    bench.finished_jobs().await?;
    println!("operator, resident, with {FINISHED} finished BridgeJobs {}", show(&operators()));
    Ok(())
}

struct Bench {
    client: Client,
    ns: String,
    slurm: Emulator,
}

#[derive(Default)]
struct Lives {
    created: Vec<Duration>,
    running: Vec<Duration>,
    accepted: Vec<Duration>,
    told: Vec<Duration>,
    workers: Vec<u64>,
    pods: Vec<u64>,
}

impl Bench {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    fn job(&self, name: &str, script: &str, more: &Value) -> Result<BridgeJob> {
        let mut spec = json!({
            "resourceURL": self.slurm.url(), "resourceManager": "slurm", "resourcesecret": "mysecret", "updateinterval": 1,
            "jobdata": { "jobscript": format!("#!/bin/sh\n{script}\n"), "scriptlocation": "inline" },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        Ok(BridgeJob::new(name, serde_json::from_value(spec)?))
    }

    /// Pods of the same size that do nothing.
    async fn bare_pods(&self) -> Result<Vec<Duration>> {
        let pods: Api<Pod> = self.api();
        let mut times = Vec::new();
        for number in 0..JOBS {
            let name = format!("bare-{number}");
            let pod = json!({ "metadata": { "name": name }, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "bare", "image": "localhost/busybox:1", "command": ["sleep", "3600"] }],
            } });
            let began = Instant::now();
            pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            await_condition(pods.clone(), &name, |pod: Option<&Pod>| phase(pod) == Some("Running")).await?;
            times.push(began.elapsed());
            let _ = pods.delete(&name, &DeleteParams::default()).await?;
        }
        Ok(times)
    }

    async fn lives(&self) -> Result<Lives> {
        let (jobs, pods): (Api<BridgeJob>, Api<Pod>) = (self.api(), self.api());
        let mut lives = Lives::default();
        for number in 0..JOBS {
            let name = format!("job-{number}");
            let mark = self.slurm.folder().join(&name);
            let before = self.slurm.job_ids().len();
            let halfway = self.slurm.folder().join(format!("{name}-halfway"));
            let script = format!("sleep 2; touch {}; sleep 2; touch {}", halfway.display(), mark.display());
            let job = self.job(&name, &script, &json!({}))?;
            let pod_name = names::pod(&name);
            let created = await_condition(pods.clone(), &pod_name, |pod: Option<&Pod>| pod.is_some());
            let running = await_condition(pods.clone(), &pod_name, |pod: Option<&Pod>| phase(pod) == Some("Running"));
            let began = Instant::now();
            let accepted = async {
                while self.slurm.job_ids().len() == before {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                began.elapsed()
            };
            let ended = async {
                until_exists(&halfway).await;
                // By now it has done all that it does, but for the last word.
                let worker = pods.get(&pod_name).await.ok().and_then(|pod| worker(&pod));
                let held = (worker.as_deref().and_then(resident), worker.as_deref().and_then(charged));
                until_exists(&mark).await;
                (Instant::now(), held)
            };
            let done = async {
                let done = |job: Option<&BridgeJob>| status(job).jobstatus == Some(JobStatus::Done);
                await_condition(jobs.clone(), &name, done).await.map(|_| Instant::now())
            };
            let (made, created, running, accepted, ended, done) = tokio::join!(
                async { jobs.create(&PostParams::default(), &job).await },
                async { created.await.map(|_| began.elapsed()) },
                async { running.await.map(|_| began.elapsed()) },
                accepted,
                ended,
                done,
            );
            made?;
            lives.created.push(created?);
            lives.running.push(running?);
            lives.accepted.push(accepted);
            let (end, (resident, charged)) = ended;
            lives.told.push(done?.saturating_duration_since(end));
            lives.workers.extend(resident);
            lives.pods.extend(charged);
        }
        Ok(lives)
    }

    /// What the API server counted over one job's life. Nobody else writes these resources meanwhile.
    async fn writes(&self) -> Result<String> {
        let before = self.counted().await?;
        let jobs: Api<BridgeJob> = self.api();
        jobs.create(&PostParams::default(), &self.job("writes", "sleep 5", &json!({}))?).await?;
        await_condition(jobs, "writes", |job: Option<&BridgeJob>| status(job).jobstatus == Some(JobStatus::Done))
            .await?;
        // What comes after the end counts as well.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let after = self.counted().await?;
        let mut sum = 0;
        let mut parts = Vec::new();
        for (what, count) in after {
            // Our own creation of the job is the user's.
            let own = u64::from(what == "POST bridgejobs");
            let new = count.saturating_sub(before.get(&what).copied().unwrap_or(0)).saturating_sub(own);
            if new > 0 {
                sum += new;
                parts.push(format!("{what} {new}"));
            }
        }
        Ok(format!("{sum} ({})", parts.join(", ")))
    }

    async fn counted(&self) -> Result<BTreeMap<String, u64>> {
        let request = http::Request::get("/metrics").body(Vec::new()).context("no request")?;
        let bytes = self.client.request_text(request).await?;
        let mut counted = BTreeMap::new();
        for line in bytes.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\""))?;
                rest.split_once('"').map(|(value, _)| value)
            };
            let (Some(verb), Some(resource), Some(sub)) = (label("verb"), label("resource"), label("subresource"))
            else {
                continue;
            };
            let ours =
                ["bridgejobs", "configmaps", "pods", "serviceaccounts", "roles", "rolebindings"].contains(&resource);
            let ours = ours && (sub.is_empty() || (resource == "bridgejobs" && sub == "status"));
            if !ours || !["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&verb) {
                continue;
            }
            let count: f64 = line.rsplit_once(' ').and_then(|(_, text)| text.parse().ok()).unwrap_or(0.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = count as u64;
            let what = if sub.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}/{sub}") };
            *counted.entry(what).or_insert(0) += count;
        }
        Ok(counted)
    }

    async fn finished_jobs(&self) -> Result<()> {
        let jobs: Api<BridgeJob> = self.api();
        for batch in (0..FINISHED).collect::<Vec<_>>().chunks(50) {
            let made = batch.iter().map(async |number| {
                let name = format!("finished-{number}");
                jobs.create(&PostParams::default(), &self.job(&name, "true", &json!({ "kill": true }))?).await?;
                let killed = |job: Option<&BridgeJob>| status(job).jobstatus == Some(JobStatus::Killed);
                await_condition(jobs.clone(), &name, killed).await?;
                anyhow::Ok(())
            });
            for result in join_all(made).await {
                result?;
            }
        }
        Ok(())
    }
}

fn status(job: Option<&BridgeJob>) -> BridgeJobStatus {
    job.and_then(|job| job.status.clone()).unwrap_or_default()
}

fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}

/// Resident bytes of the lab's operators: its processes are processes of this machine.
fn operators() -> Vec<u64> {
    let is_operator = |process: &PathBuf| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        line.starts_with(b"/bridge\0operator\0")
    };
    processes().filter(is_operator).filter_map(|process| resident(&process)).collect()
}

async fn until_exists(file: &Path) {
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn worker(pod: &Pod) -> Option<PathBuf> {
    let mark = format!("BRIDGE_POD_UID={}", pod.metadata.uid.as_deref()?);
    processes().find(|process| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    })
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path())
}

fn resident(process: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// What the process's control group is charged with: pages of the program only if nobody else on the node had them.
fn charged(process: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(process.join("cgroup")).ok()?;
    let file = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next()?, parts.next()?) {
            ("memory", path) => Some(format!("/sys/fs/cgroup/memory{path}/memory.usage_in_bytes")),
            ("", path) => Some(format!("/sys/fs/cgroup{path}/memory.current")),
            _ => None,
        }
    })?;
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn show(bytes: &[u64]) -> String {
    let Some(most) = bytes.iter().max() else { return "no process found".to_owned() };
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let mebibytes = *most as f64 / 1_048_576.0;
    format!("{mebibytes:.1} MiB (the largest of {})", bytes.len())
}

fn quantiles(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = |part: usize| sorted.get((sorted.len().saturating_sub(1)) * part / 100).copied().unwrap_or_default();
    format!("p50 {:>5} ms, p90 {:>5} ms", at(50).as_millis(), at(90).as_millis())
}
