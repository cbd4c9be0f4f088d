//! Ray: how long after a job wrote a line the reader has it, beside a bare client that asks for the whole log every
//! second, on the same job at the same time.
//!
//! Against a real Ray named by `BRIDGE_LAB_RAY_URL` and `_TOKEN`, as `lab/env` prints them; without them against the
//! emulator. Job and reader must have one clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bridge_adapters::ray::{Config, RayManager};
use bridge_core::credentials::{Credentials, StaticCredentials};
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{LogCursor, LogStream, Logs, ResourceManager, Tracked};
use bridge_core::plan::{Script, Submission};
use bridge_testkit::faults::FaultPlan;
use bridge_testkit::ray::{Options, RayServer};

const LINES: usize = 30;

/// A beat that is no multiple of anyone's, so that the lines meet every phase of the readers.
const TALKER: &str =
    "import time\nfor n in range(30):\n    print('at', time.time(), flush=True)\n    time.sleep(0.73)\n";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let variable = |name: &str| std::env::var(format!("BRIDGE_LAB_RAY_{name}")).ok();
    let (url, token, _emulator) = if let (Some(url), Some(token)) = (variable("URL"), variable("TOKEN")) {
        (url, token, None)
    } else {
        let token = "a-token".to_owned();
        let options = Options { token: Some(token.clone()), ..Options::default() };
        let server = RayServer::start(options, FaultPlan::new()).await?;
        (server.url().to_owned(), token, Some(server))
    };
    let credentials = Credentials::from_pairs([("token".to_owned(), token.clone())]);
    let manager = RayManager::new(Config::new(&url), Arc::new(StaticCredentials(credentials)))?;
    let job = Submission {
        token: SubmitToken::derive(&format!("bench-{}", now().as_millis()), 1),
        name: "talker".to_owned(),
        script: Script::Text(TALKER.to_owned()),
        metadata: String::new(),
        parameters: String::new(),
        properties: BTreeMap::new(),
        inputs: Vec::new(),
    };
    manager.submit(&job).await?;
    println!("{url}: a job writes {LINES} lines, one every 0.73 s; milliseconds until they are read");
    let (ours, bare) = tokio::try_join!(follow(&manager, &job.token), ask(&url, &token, job.token.as_str()))?;
    let (middle, worst) = print("follower", ours);
    let (bare_middle, bare_worst) = print("bare client, the whole log every second", bare);
    println!(
        "  follower / bare client: median {:.0} %, worst {:.0} %",
        100.0 * middle / bare_middle,
        100.0 * worst / bare_worst
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it is compared with what a real job writes")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Seconds from the writing of each line to now.
fn ages(text: &str) -> impl Iterator<Item = f64> {
    let now = now().as_secs_f64();
    text.lines().filter_map(move |line| Some(now - line.strip_prefix("at ")?.parse::<f64>().ok()?))
}

async fn follow(manager: &RayManager, token: &SubmitToken) -> anyhow::Result<Vec<f64>> {
    let job = Tracked { id: RemoteId::new(token.as_str()), token: token.clone(), verify: false, cancelling: false };
    let (mut cursor, mut seen) = (LogCursor(0), Vec::new());
    loop {
        let chunk = manager.read(&job, LogStream::Stdout, cursor).await?;
        seen.extend(ages(&String::from_utf8_lossy(&chunk.data)));
        cursor = chunk.next;
        if chunk.end {
            return Ok(seen);
        }
    }
}

async fn ask(url: &str, token: &str, id: &str) -> anyhow::Result<Vec<f64>> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/api/jobs/{id}/logs", url.trim_end_matches('/'));
    let mut seen = Vec::new();
    while seen.len() < LINES {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answer = client.get(&url).bearer_auth(token).send().await?;
        // Before its start a job has no log.
        if !answer.status().is_success() {
            continue;
        }
        let body: serde_json::Value = serde_json::from_slice(&answer.bytes().await?)?;
        let text = body["logs"].as_str().context("an answer without a log")?;
        let new: Vec<_> = ages(text).skip(seen.len()).collect();
        seen.extend(new);
    }
    Ok(seen)
}

/// Prints and gives the median and the worst.
fn print(who: &str, mut seconds: Vec<f64>) -> (f64, f64) {
    seconds.sort_by(f64::total_cmp);
    let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN) * 1000.0;
    let (middle, worst) = (at(seconds.len() / 2), at(seconds.len().saturating_sub(1)));
    println!("  {who}: {} lines, median {middle:.0}, worst {worst:.0}", seconds.len());
    (middle, worst)
}
