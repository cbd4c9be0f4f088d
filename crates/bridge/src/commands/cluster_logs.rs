//! `bridge logs` for a job in a cluster: the output of its controller pod.

use std::io::Write as _;
use std::time::Duration;

use bridge_api::BridgeJob;
use bridge_operator::names;
use futures::{AsyncReadExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::block_on;
use super::cluster_follow::{Follow, News, Next, ReadEnd, Stage};
use super::cluster_jobs::{Place, trouble};
use super::cluster_lines::Lines;
use super::cluster_watch::watch;
use crate::cli::LogsArguments;
use crate::failure::Failure;

/// How long "not for ever" is.
const AWHILE: Duration = Duration::from_secs(10);
const OUTPUT: &str = "the controller pod's output";

/// Shows the output; with `-f` until the job has ended, also over several pods.
pub fn run(arguments: &LogsArguments) -> Result<u8, Failure> {
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        let (jobs, name) = place.locate(&arguments.name);
        let what = format!("job {}", arguments.name);
        let job = jobs.get(name).await.map_err(|error| trouble(&what, &error))?;
        let pods: Api<Pod> = Api::namespaced(place.client.clone(), &job.namespace().unwrap_or_default());
        let shown = if arguments.follow {
            follow(&jobs, &pods, name, &what).await
        } else {
            show(&pods, &names::pod(name)).await
        };
        shown.map(|()| 0)
    })?
}

/// Shows what there is.
async fn show(pods: &Api<Pod>, name: &str) -> Result<(), Failure> {
    let params = LogParams { container: Some(names::CONTAINER.to_owned()), ..LogParams::default() };
    let stream = pods.log_stream(name, &params).await.map_err(|error| trouble(OUTPUT, &error))?;
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return Ok(()),
            Ok(count) if written(&buffer[..count]) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Failure::trouble(format!("{OUTPUT} broke off: {error}"))),
        }
    }
}

/// Whether standard output took it; a closed one ends the command.
fn written(bytes: &[u8]) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).is_ok()
}

async fn follow(jobs: &Api<BridgeJob>, pods: &Api<Pod>, job: &str, what: &str) -> Result<(), Failure> {
    let pod_name = names::pod(job);
    let mut pod_changes = watch(pods.clone(), &pod_name, &format!("the controller pod of {what}")).boxed();
    let mut job_changes = watch(jobs.clone(), job, what).boxed();
    let mut state = Follow::default();
    let mut connection: Option<Connection> = None;
    let mut lines = (String::new(), Lines::default());
    loop {
        let patience = match state.next() {
            Next::Done => return Ok(()),
            Next::Read(uid, pause) => {
                if lines.0 != uid {
                    lines = (uid.clone(), Lines::default());
                }
                let since = lines.1.connect();
                connection = Some(Connection::new(pods.clone(), pod_name.clone(), uid, since, pause));
                continue;
            }
            Next::Wait => None,
            Next::WaitAwhile => Some(AWHILE),
        };
        let news = tokio::select! {
            Some(change) = pod_changes.next() => News::Pod(change?.map(|pod| (pod.uid().unwrap_or_default(), stage(&pod)))),
            Some(change) = job_changes.next() => News::Job { over: change?.is_none_or(|job| is_over(&job)) },
            piece = piece(connection.as_mut()) => match piece {
                Piece::Bytes(bytes) => {
                    let mut new = Vec::new();
                    lines.1.take(&bytes, &mut new);
                    if !written(&new) {
                        return Ok(());
                    }
                    continue;
                }
                Piece::End(end) => News::Read(end),
                Piece::Refused(failure) => return Err(failure),
            },
            () = quiet(patience) => News::Quiet,
        };
        state.hear(news);
        if !state.is_reading() {
            connection = None;
        }
    }
}

fn stage(pod: &Pod) -> Stage {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => Stage::Running,
        Some("Succeeded" | "Failed") => Stage::Ended,
        _ => Stage::NotStarted,
    }
}

fn is_over(job: &BridgeJob) -> bool {
    job.status.as_ref().and_then(|status| status.jobstatus).is_some_and(bridge_api::JobStatus::is_final)
}

async fn quiet(patience: Option<Duration>) {
    match patience {
        Some(patience) => tokio::time::sleep(patience).await,
        None => std::future::pending().await,
    }
}

async fn piece(connection: Option<&mut Connection>) -> Piece {
    let Some(connection) = connection else { return std::future::pending().await };
    connection.pieces.recv().await.unwrap_or(Piece::End(ReadEnd::Broke { gave: false }))
}

/// What a connection gives.
#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    End(ReadEnd),
    Refused(Failure),
}

/// A connection to a pod's output, in a task of its own so that the watches go on; it ends when this is dropped.
struct Connection {
    pieces: mpsc::Receiver<Piece>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    fn new(pods: Api<Pod>, name: String, uid: String, since: Option<Timestamp>, pause: Duration) -> Self {
        let (sender, pieces) = mpsc::channel(4);
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let last = match read(&pods, &name, &uid, since, &sender).await {
                Ok(end) => Piece::End(end),
                Err(failure) => Piece::Refused(failure),
            };
            sender.send(last).await.ok();
        });
        Self { pieces, task }
    }
}

async fn read(
    pods: &Api<Pod>,
    name: &str,
    uid: &str,
    since_time: Option<Timestamp>,
    pieces: &mpsc::Sender<Piece>,
) -> Result<ReadEnd, Failure> {
    let container = Some(names::CONTAINER.to_owned());
    let params = LogParams { follow: true, timestamps: true, since_time, container, ..LogParams::default() };
    let stream = match pods.log_stream(name, &params).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => return Ok(ReadEnd::Nothing),
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
            return Err(trouble(OUTPUT, &kube::Error::Api(status)));
        }
        Err(error) => {
            tracing::warn!(%error, "the output could not be read; trying again");
            return Ok(ReadEnd::Broke { gave: false });
        }
    };
    // An output is asked for by name: this may be that of the next pod, and is shown as such later.
    if let Ok(Some(pod)) = pods.get_opt(name).await
        && pod.uid().as_deref() != Some(uid)
    {
        return Ok(ReadEnd::Nothing);
    }
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 16 * 1024];
    let mut gave = false;
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return Ok(ReadEnd::End),
            Ok(count) => {
                gave = true;
                if pieces.send(Piece::Bytes(buffer[..count].to_vec())).await.is_err() {
                    return Ok(ReadEnd::End);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the output broke off; trying again");
                return Ok(ReadEnd::Broke { gave });
            }
        }
    }
}
