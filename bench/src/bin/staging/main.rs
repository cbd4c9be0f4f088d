//! A large file through S3, both ways, beside a raw client in the same run.
//!
//! The server, the raw client and the staging are processes of their own, so that each one's memory is its own. Staging
//! does what it does for a job on this machine: checksums, parts, retries, the manifest; the raw client streams between
//! a file and one URL. What arrived is compared afterwards with the checksum that was recorded.

mod parts;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use bridge_adapters::local::{Config, LocalManager, SUPERVISE};
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::{Clock, SystemClock};
use bridge_core::credentials::{Credentials, StaticCredentials};
use bridge_core::ids::{JobKey, SubmitToken};
use bridge_core::manager::{ResourceManager, Sighting, Tracked};
use bridge_core::plan::{
    JobPlan, ManagerKind, ObjectRef, ScriptSource, SecretRef, StoragePlan, Target, TextSource, UploadPlan,
};
use bridge_core::staging::{Output, Staging, submission_without_objects};
use bridge_testkit::s3::{self, S3Keys};
use futures::StreamExt;
use parts::Parts;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt;

const ACCESS: &str = "bench";
const SECRET: &str = "bench-secret";
const DEFAULT_MEGABYTES: u64 = 1024;
const PARTS: [&str; 4] = ["raw-up", "stage-up", "raw-down", "stage-down"];
const ROUNDS: usize = 3;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == SUPERVISE) {
        return bridge_adapters::local::supervise().map_err(Into::into);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(async {
        match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["serve", root, ready] => serve(Path::new(root), Path::new(ready)).await,
            ["part", what, endpoint, folder, megabytes] => part(what, endpoint, Path::new(folder), megabytes).await,
            [] => all(DEFAULT_MEGABYTES),
            [megabytes] => all(megabytes.parse().context("usage: staging [megabytes]")?),
            _ => bail!("usage: staging [megabytes]"),
        }
    })
}

/// Ends a process when it is no longer needed.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn all(megabytes: u64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let (root, ready) = (folder.path().join("objects"), folder.path().join("ready"));
    std::fs::create_dir_all(root.join("results"))?;
    let server = Command::new(&own).arg("serve").arg(&root).arg(&ready).spawn()?;
    let _server = Server(server);
    let endpoint = loop {
        match std::fs::read_to_string(&ready) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let measure = |what: &str| -> anyhow::Result<(f64, u64)> {
        let place = folder.path().join(what);
        std::fs::create_dir_all(&place)?;
        let output = Command::new(&own)
            .args(["part", what, &endpoint])
            .arg(&place)
            .arg(megabytes.to_string())
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let mut words = text.split_whitespace();
        let mut word = || words.next().with_context(|| format!("{what} told nothing"));
        let figures = (word()?.parse()?, word()?.parse()?);
        if let (Ok(key), Ok(checksum)) = (word(), word()) {
            check(&root.join("results").join(key), checksum)?;
        }
        std::fs::remove_dir_all(&place)?;
        Ok(figures)
    };
    println!("{megabytes} MiB, server and clients on this machine");
    println!("{:<12} {:>10} {:>14}", "", "best MiB/s", "peak MiB");
    // What comes first would find the page cache cold: one round for nothing.
    measure("raw-up")?;
    let mut best: [Option<(f64, u64)>; PARTS.len()] = [None; PARTS.len()];
    // In turns, so that what else this machine does hits all alike.
    for _ in 0..ROUNDS {
        for (what, best) in PARTS.iter().zip(&mut best) {
            let (seconds, peak) = measure(what)?;
            let (fastest, highest) = best.unwrap_or((seconds, peak));
            *best = Some((seconds.min(fastest), peak.max(highest)));
        }
    }
    let mut rates = Vec::new();
    for (what, best) in PARTS.iter().zip(best) {
        let (seconds, peak) = best.context("nothing was measured")?;
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = megabytes as f64 / seconds;
        println!("{what:<12} {rate:>10.0} {:>14.1}", f64::from(u32::try_from(peak)?) / 1024.0);
        rates.push(rate);
    }
    let [raw_up, up, raw_down, down] = rates.as_slice() else { bail!("four rates were to be measured") };
    println!("share of the raw client: up {:.0} %, down {:.0} %", up / raw_up * 100.0, down / raw_down * 100.0);
    Ok(())
}

/// Compares an object with its checksum and removes it.
fn check(object: &Path, checksum: &str) -> anyhow::Result<()> {
    let mut hash = Sha256::new();
    for number in 1..=std::fs::read_dir(object)?.count() {
        std::io::copy(&mut std::fs::File::open(object.join(number.to_string()))?, &mut HashWriter(&mut hash))?;
    }
    let found = hash.finalize().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    std::fs::remove_dir_all(object)?;
    if found == checksum { Ok(()) } else { bail!("what arrived is {found}, but {checksum} was recorded") }
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.0.update(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn serve(root: &Path, ready: &Path) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    tokio::fs::write(ready, format!("{}\n", listener.local_addr()?)).await?;
    let files = s3s_fs::FileSystem::new(root).map_err(|error| anyhow!("{}: {error:?}", root.display()))?;
    s3::serve_store(listener, Parts { files, root: root.to_owned() }, &S3Keys::new(ACCESS, SECRET)).await;
    Ok(())
}

async fn part(what: &str, endpoint: &str, folder: &Path, megabytes: &str) -> anyhow::Result<()> {
    let megabytes: u64 = megabytes.parse()?;
    let mut sent = None;
    let seconds = match what {
        "raw-up" => raw_up(endpoint, folder, megabytes).await?,
        "raw-down" => raw_down(endpoint, folder, megabytes).await?,
        "stage-up" => {
            let (seconds, output) = stage_up(endpoint, folder, megabytes).await?;
            sent = Some(format!("{} {}", output.key, output.checksum));
            seconds
        }
        "stage-down" => stage_down(endpoint, folder, megabytes).await?,
        _ => bail!("there is no {what}"),
    };
    let status = std::fs::read_to_string("/proc/self/status").context("this benchmark needs /proc")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("no VmHWM in /proc/self/status")?;
    let peak = line.split_whitespace().nth(1).context("no number in VmHWM")?;
    println!("{seconds} {peak} {}", sent.unwrap_or_default());
    Ok(())
}

/// A file that no compression of file system or network makes smaller.
fn make_file(path: &Path, megabytes: u64) -> anyhow::Result<()> {
    let status = Command::new("sh")
        .args(["-c", "head -c \"$1\" /dev/urandom > \"$2\"", "sh", &(megabytes << 20).to_string()])
        .arg(path)
        .status()?;
    if status.success() { Ok(()) } else { bail!("the file could not be written") }
}

fn url(method: &str, endpoint: &str, key: &str) -> String {
    let now = SystemClock::new().now().wall;
    S3Keys::new(ACCESS, SECRET).presign(method, &format!("http://{endpoint}"), &format!("/results/{key}"), now, 600)
}

fn client() -> anyhow::Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

async fn raw_up(endpoint: &str, folder: &Path, megabytes: u64) -> anyhow::Result<f64> {
    let path = folder.join("file");
    make_file(&path, megabytes)?;
    let start = Instant::now();
    let file = tokio::fs::File::open(&path).await?;
    let body = reqwest::Body::wrap_stream(tokio_util::io::ReaderStream::with_capacity(file, 64 * 1024));
    let request = client()?.put(url("PUT", endpoint, "raw")).header("content-length", megabytes << 20).body(body);
    request.send().await?.error_for_status()?;
    Ok(start.elapsed().as_secs_f64())
}

async fn raw_down(endpoint: &str, folder: &Path, megabytes: u64) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut pieces = client()?.get(url("GET", endpoint, "raw")).send().await?.error_for_status()?.bytes_stream();
    let mut file = tokio::fs::File::create(folder.join("file")).await?;
    while let Some(piece) = pieces.next().await {
        file.write_all(&piece?).await?;
    }
    file.sync_all().await?;
    let seconds = start.elapsed().as_secs_f64();
    if file.metadata().await?.len() == megabytes << 20 { Ok(seconds) } else { bail!("the file is not whole") }
}

fn staging() -> S3Staging {
    let pairs = [("accesskey", ACCESS), ("secretkey", SECRET)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    S3Staging::new(Arc::new(StaticCredentials(Credentials::from_pairs(pairs))), Arc::new(SystemClock::new()))
}

fn plan(endpoint: &str, script: String) -> JobPlan {
    JobPlan {
        key: JobKey::new("", "bench"),
        uid: "bench".to_owned(),
        target: Target { manager: ManagerKind::Local, url: "local:".to_owned(), secret: None },
        poll_seconds: 1,
        script: ScriptSource::Inline(script),
        metadata: TextSource::Inline(String::new()),
        parameters: TextSource::Inline(String::new()),
        inputs: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        storage: Some(StoragePlan {
            secret: SecretRef("bench".to_owned()),
            endpoint: endpoint.to_owned(),
            secure: false,
            region: None,
            virtual_host: false,
            remote_endpoint: None,
        }),
        upload: Some(UploadPlan {
            bucket: "results".to_owned(),
            prefix: format!("bench-{}", std::process::id()),
            files: vec!["file".to_owned()],
        }),
        notes: Vec::new(),
    }
}

fn manager(folder: &Path) -> anyhow::Result<LocalManager> {
    let supervisor: (PathBuf, _) = (std::env::current_exe()?, vec![SUPERVISE.into()]);
    Ok(LocalManager::new(Config { supervisor, ..Config::new(folder.join("jobs")) }))
}

async fn stage_up(endpoint: &str, folder: &Path, megabytes: u64) -> anyhow::Result<(f64, Output)> {
    let plan = plan(endpoint, format!("#!/bin/sh\nhead -c {} /dev/urandom > file\n", megabytes << 20));
    let token = SubmitToken::derive(&plan.uid, 1);
    let manager = manager(folder)?;
    let id = manager.submit(&submission_without_objects(&plan, &token).context("nothing is fetched")?).await?.id;
    let job = Tracked { id: id.clone(), token: token.clone(), verify: false, cancelling: false };
    let outcome = loop {
        match manager.poll(std::slice::from_ref(&job)).await?.remove(&id) {
            Some(Sighting::Ended(outcome, _)) => break outcome,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let start = Instant::now();
    let outputs = staging().stage_out(&plan, &token, &id, &outcome, &manager).await?;
    let seconds = start.elapsed().as_secs_f64();
    let file = outputs.into_iter().find(|output| output.key.ends_with("/file"));
    let file = file.filter(|output| output.size == megabytes << 20).context("the file is not whole")?;
    Ok((seconds, file))
}

async fn stage_down(endpoint: &str, folder: &Path, megabytes: u64) -> anyhow::Result<f64> {
    let mut plan = plan(endpoint, "#!/bin/sh\ntrue\n".to_owned());
    plan.inputs = vec![ObjectRef { bucket: "results".to_owned(), key: "raw".to_owned() }];
    let token = SubmitToken::derive(&plan.uid, 1);
    let manager = manager(folder)?;
    let start = Instant::now();
    let submission = staging().stage_in(&plan, &token, &manager).await?;
    let seconds = start.elapsed().as_secs_f64();
    let size = std::fs::metadata(folder.join("jobs").join(token.as_str()).join("work/raw"))?.len();
    if submission.inputs == ["raw"] && size == megabytes << 20 { Ok(seconds) } else { bail!("the file is not whole") }
}
