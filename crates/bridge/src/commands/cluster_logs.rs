//! `bridge logs` for a job in a cluster: the output of its controller pod.

use bridge_api::BridgeJob;
use bridge_operator::names;
use futures::{AsyncReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt};
use std::io::Write as _;

use super::block_on;
use super::cluster_jobs::{Place, trouble};
use crate::cli::LogsArguments;
use crate::failure::Failure;

/// Shows the output; with `-f` until the job has ended, also over several pods.
pub fn run(arguments: &LogsArguments) -> Result<u8, Failure> {
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        let (jobs, name) = place.locate(&arguments.name);
        let what = format!("job {}", arguments.name);
        let job = jobs.get(name).await.map_err(|error| trouble(&what, &error))?;
        let pods: Api<Pod> = Api::namespaced(place.client.clone(), &job.namespace().unwrap_or_default());
        if !arguments.follow {
            return show(&pods, &names::pod(name), false).await.map(|()| 0);
        }
        follow(&jobs, &pods, name, &what).await.map(|()| 0)
    })?
}

async fn follow(jobs: &Api<BridgeJob>, pods: &Api<Pod>, job: &str, what: &str) -> Result<(), Failure> {
    let pod_name = names::pod(job);
    let mut shown: Option<String> = None;
    let mut pod_changes = watcher::watch_object(pods.clone(), &pod_name).default_backoff().boxed();
    let mut job_changes = watcher::watch_object(jobs.clone(), job).default_backoff().boxed();
    let mut over = false;
    loop {
        tokio::select! {
            change = pod_changes.next() => {
                let Some(Ok(Some(pod))) = change else { continue };
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if pod.uid() != shown && matches!(phase, Some("Running" | "Succeeded" | "Failed")) {
                    shown = pod.uid();
                    show(pods, &pod_name, true).await?;
                    if over {
                        return Ok(());
                    }
                }
            }
            change = job_changes.next() => match change {
                Some(Ok(Some(job))) => {
                    over = job.status.and_then(|status| status.jobstatus).is_some_and(bridge_api::JobStatus::is_final);
                    let pod = pods.get_opt(&pod_name).await.map_err(|error| trouble(what, &error))?;
                    if over && pod.is_none_or(|pod| pod.uid() == shown) {
                        return Ok(());
                    }
                }
                Some(Ok(None)) => return Ok(()),
                _ => {}
            },
        }
    }
}

async fn show(pods: &Api<Pod>, name: &str, follow: bool) -> Result<(), Failure> {
    let params = LogParams { follow, container: Some(names::CONTAINER.to_owned()), ..LogParams::default() };
    let stream =
        pods.log_stream(name, &params).await.map_err(|error| trouble("the controller pod's output", &error))?;
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(()),
            // A closed standard output ends the command.
            Ok(count) => {
                if std::io::stdout().write_all(&buffer[..count]).and_then(|()| std::io::stdout().flush()).is_err() {
                    return Ok(());
                }
            }
        }
    }
}
