//! Slurm: submitting and watching a thousand jobs, beside a bare client that makes the same calls in the same run.
//!
//! Against the emulator, or against a real cluster named by `BRIDGE_LAB_SLURM_URL`, `_USER`, `_TOKEN` and `_HOME`, as
//! `lab/env` prints them. The jobs are released but begin in an hour, so that running them costs nothing; they are
//! cancelled at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bridge_adapters::slurm::{Slurm, SlurmConfig};
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{Credentials, StaticCredentials};
use bridge_core::ids::SubmitToken;
use bridge_core::manager::{Hold, ResourceManager, Tracked};
use bridge_core::plan::{Script, Submission};
use bridge_testkit::slurm::{Emulator, EmulatorOptions};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

const JOBS: usize = 1000;
const AT_ONCE: [usize; 2] = [1, 8];
const ROUNDS: u32 = 5;

/// Where the cluster is and who asks.
struct Place {
    url: String,
    user: String,
    token: String,
    folder: String,
    version: u16,
    _emulator: Option<Emulator>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    for place in places().await? {
        println!("{} (API v0.0.{}), {JOBS} jobs", place.url, place.version);
        for at_once in AT_ONCE {
            // Alternating, so that neither side has the better moment.
            let (bare, bare_ids) = bare(&place, at_once, "a").await?;
            let manager = manager(&place)?;
            let (ours, jobs) = adapter(&manager, &place, at_once).await?;
            let (again, more_ids) = self::bare(&place, at_once, "b").await?;
            let best = bare.max(again);
            println!(
                "  submit and release, {at_once} at once: bare client {best:.0}/s, adapter {ours:.0}/s = {:.0} %",
                100.0 * ours / best
            );
            if at_once == AT_ONCE[1] {
                watch(&manager, &jobs).await?;
            }
            clear(&manager, &place, &jobs, bare_ids.into_iter().chain(more_ids)).await?;
        }
    }
    Ok(())
}

async fn places() -> anyhow::Result<Vec<Place>> {
    let variable = |name: &str| std::env::var(format!("BRIDGE_LAB_SLURM_{name}")).ok();
    if let (Some(url), Some(user), Some(token), Some(folder)) =
        (variable("URL"), variable("USER"), variable("TOKEN"), variable("HOME"))
    {
        return Ok(vec![Place { url, user, token, folder, version: 38, _emulator: None }]);
    }
    let mut places = Vec::new();
    for version in [38, 42] {
        let options = EmulatorOptions { versions: vec![version], ..EmulatorOptions::default() };
        let emulator = Emulator::start(options).await?;
        places.push(Place {
            url: emulator.url(),
            user: "alice".to_owned(),
            token: "alice-token".to_owned(),
            folder: emulator.folder().display().to_string(),
            version,
            _emulator: Some(emulator),
        });
    }
    Ok(places)
}

fn manager(place: &Place) -> anyhow::Result<Slurm> {
    let pairs = [("username", &place.user), ("token", &place.token)];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.clone()));
    let credentials = Arc::new(StaticCredentials(Credentials::from_pairs(pairs)));
    let url = format!("{}/slurm/v0.0.{}", place.url.trim_end_matches('/'), place.version);
    Ok(Slurm::new(SlurmConfig::new(url), credentials, Arc::new(SystemClock::new()))?)
}

/// Jobs per second by the adapter.
async fn adapter(manager: &Slurm, place: &Place, at_once: usize) -> anyhow::Result<(f64, Vec<Tracked>)> {
    let properties = BTreeMap::from([
        ("currentWorkingDir".to_owned(), json!(place.folder)),
        ("begin".to_owned(), json!("now+1hour")),
    ]);
    let started = Instant::now();
    let jobs = futures::stream::iter(0..JOBS)
        .map(|number| {
            let submission = Submission {
                token: SubmitToken::derive(&format!("bench{}x{at_once}x{number}", std::process::id()), 1),
                name: "bench".to_owned(),
                script: Script::Text("#!/bin/sh\ntrue\n".to_owned()),
                metadata: String::new(),
                parameters: String::new(),
                properties: properties.clone(),
                inputs: Vec::new(),
            };
            async move {
                let id = manager.submit(&submission).await.context("submit")?.id;
                let job = Tracked { id, token: submission.token, verify: false, cancelling: false };
                Hold::release(manager, &job).await.context("release")?;
                anyhow::Ok(job)
            }
        })
        .buffer_unordered(at_once)
        .try_collect::<Vec<_>>()
        .await?;
    Ok((rate(started), jobs))
}

/// Jobs per second by a client that keeps its connections and does nothing else.
async fn bare(place: &Place, at_once: usize, mark: &str) -> anyhow::Result<(f64, Vec<u64>)> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let base = format!("{}/slurm/v0.0.{}", place.url.trim_end_matches('/'), place.version);
    let post = |path: String, body: Value| {
        let request = client
            .post(format!("{base}/{path}"))
            .header("X-SLURM-USER-NAME", &place.user)
            .header("X-SLURM-USER-TOKEN", &place.token)
            .header("Content-Type", "application/json")
            .body(body.to_string());
        async move { anyhow::Ok(request.send().await?.bytes().await?) }
    };
    let environment = if place.version <= 38 { json!({"PATH": "/bin"}) } else { json!(["PATH=/bin"]) };
    let hour = SystemClock::new();
    let begin = bridge_core::clock::Clock::now(&hour).wall.as_second() + 3600;
    let begin = if place.version <= 38 { json!("now+3600") } else { json!({"set": true, "number": begin}) };
    let started = Instant::now();
    let ids = futures::stream::iter(0..JOBS)
        .map(|number| {
            let job = json!({
                "name": "bench", "current_working_directory": place.folder, "environment": environment, "hold": true,
                "begin_time": begin, "comment": format!("bare-{mark}-{number}"),
            });
            let post = &post;
            async move {
                let body = json!({"script": "#!/bin/sh\ntrue\n", "job": job});
                let answer = post("job/submit".to_owned(), body).await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                let id = answer["job_id"].as_u64().with_context(|| format!("no id in {answer}"))?;
                post(format!("job/{id}"), json!({"hold": false})).await?;
                anyhow::Ok(id)
            }
        })
        .buffer_unordered(at_once)
        .try_collect::<Vec<_>>()
        .await?;
    Ok((rate(started), ids))
}

#[allow(clippy::cast_precision_loss, reason = "a thousand is exact")]
fn rate(started: Instant) -> f64 {
    JOBS as f64 / started.elapsed().as_secs_f64()
}

/// Requests and time of poll rounds, and what they cost in memory.
async fn watch(manager: &Slurm, jobs: &[Tracked]) -> anyhow::Result<()> {
    let requests = || manager.counters().snapshot().get("poll").map_or(0, |count| count.requests);
    for round in 1..=ROUNDS {
        let (before, started) = (requests(), Instant::now());
        let seen = manager.poll(jobs).await?;
        println!(
            "  poll round {round}: {} jobs in {} requests, {:.0} ms, {} KiB resident",
            seen.len(),
            requests() - before,
            started.elapsed().as_secs_f64() * 1000.0,
            resident().unwrap_or_default()
        );
    }
    Ok(())
}

/// Kibibytes in memory.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

async fn clear(
    manager: &Slurm,
    place: &Place,
    jobs: &[Tracked],
    others: impl Iterator<Item = u64>,
) -> anyhow::Result<()> {
    futures::stream::iter(jobs).map(Ok).try_for_each_concurrent(8, |job| manager.cancel(job)).await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    futures::stream::iter(others)
        .map(anyhow::Ok)
        .try_for_each_concurrent(8, |id| {
            let url = format!("{}/slurm/v0.0.{}/job/{id}", place.url.trim_end_matches('/'), place.version);
            let request =
                client.delete(url).header("X-SLURM-USER-NAME", &place.user).header("X-SLURM-USER-TOKEN", &place.token);
            async move {
                request.send().await?.bytes().await?;
                Ok(())
            }
        })
        .await
}
