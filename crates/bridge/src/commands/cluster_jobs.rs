//! `bridge submit`, `get`, `describe`, `kill` and `wait` for jobs in a cluster; the words are those of stand-alone jobs.

use std::fmt::Write as _;
use std::time::Duration;

use bridge_api::{BridgeJob, BridgeJobStatus, JobStatus};
use bridge_core::status::StatusView;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::cluster_watch::watch;
use super::crd::print;
use super::{block_on, cluster, list};
use crate::cli::{
    ClusterArguments, DescribeArguments, Format, GetArguments, KillArguments, SubmitArguments, WaitArguments,
};
use crate::failure::{Failure, JobExit, worst};
use crate::input;
use crate::view::JobView;

/// A cluster and where in it.
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Place {
    pub(super) async fn find(arguments: &ClusterArguments) -> Result<Self, Failure> {
        let config = cluster::configuration(arguments.context.as_deref()).await?;
        let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config)
            .map_err(|error| Failure::trouble(format!("no client for the cluster: {}", cluster::chain(&error))))?;
        Ok(Self { client, namespace })
    }

    /// The jobs of a namespace, and a job's own name: `name` or `namespace/name`.
    pub(super) fn locate<'a>(&self, name: &'a str) -> (Api<BridgeJob>, &'a str) {
        let (namespace, name) = name.split_once('/').unwrap_or((self.namespace.as_str(), name));
        (Api::namespaced(self.client.clone(), namespace), name)
    }
}

/// What the cluster said, for people.
pub(super) fn trouble(what: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404 | 409 | 422) => {
            Failure::input(format!("{what}: {}", status.message))
        }
        kube::Error::Api(status) => Failure::trouble(format!("{what}: {}", status.message)),
        error => Failure::trouble(format!("{what}: {}", cluster::chain(error))),
    }
}

/// A job of the cluster as programs see it.
fn view(job: &BridgeJob) -> JobView {
    let status = job.status.clone().unwrap_or_default();
    let words = words(&status);
    JobView {
        name: job.name_any(),
        namespace: job.namespace(),
        run: job.uid().unwrap_or_default(),
        manager: status.manager.map_or("-", bridge_api::ResourceManager::as_str),
        url: job.spec.resource_url.clone(),
        status: words.status.as_str(),
        ended: words.status.is_final(),
        reason: words.reason.clone(),
        message: words.message.clone(),
        job_id: words.job_id.clone(),
        attempt: status.attempts.unwrap_or(1),
        submitted: words.submitted,
        started: words.started,
        completed: words.completed,
        exit_code: words.exit_code,
        process_exit_code: words.process_exit_code(),
    }
}

fn words(status: &BridgeJobStatus) -> StatusView {
    StatusView {
        status: status.jobstatus.unwrap_or(JobStatus::Pending),
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_else(|| "no operator has looked at it yet".to_owned()),
        job_id: status.jobid.clone(),
        exit_code: status.exitcode,
        submitted: status.submittime.as_ref().map(|time| time.0),
        started: status.starttime.as_ref().map(|time| time.0),
        completed: status.completiontime.as_ref().map(|time| time.0),
    }
}

fn tell(job: &BridgeJob, format: Format) -> Result<(), Failure> {
    let view = view(job);
    match format {
        Format::Json => print(&format!("{}\n", json!(view)))?,
        Format::Text => print(&format!("{}: {}: {}\n", view.title(), view.status, view.message))?,
    };
    Ok(())
}

/// `bridge submit`
pub fn submit(arguments: &SubmitArguments) -> Result<u8, Failure> {
    let input = input::read(&arguments.files)?;
    for note in &input.notes {
        eprintln!("{note}");
    }
    for (file, _) in &input.secrets {
        eprintln!("note: the Secret in {} is not sent; kubectl apply -f sends it", file.display());
    }
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        let mut made = Vec::new();
        for document in &input.jobs {
            let namespace = document.job.namespace().unwrap_or_else(|| place.namespace.clone());
            let jobs: Api<BridgeJob> = Api::namespaced(place.client.clone(), &namespace);
            let name = document.job.name_any();
            let what = format!("job {namespace}/{name}");
            let job =
                jobs.create(&PostParams::default(), &document.job).await.map_err(|error| trouble(&what, &error))?;
            match arguments.output {
                Format::Json => tell(&job, Format::Json)?,
                Format::Text => print(&format!("{namespace}/{name}: created\n")).map(drop)?,
            }
            made.push(format!("{namespace}/{name}"));
        }
        if !arguments.wait {
            return Ok(0);
        }
        let mut exits = Vec::new();
        for name in &made {
            exits.push(until_ended(&place, name, arguments.output).await?);
        }
        Ok(worst(exits))
    })?
}

/// `bridge get`
pub fn get(arguments: &GetArguments) -> Result<u8, Failure> {
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        let mut found = Vec::new();
        if arguments.names.is_empty() {
            let jobs: Api<BridgeJob> = if arguments.all_namespaces {
                Api::all(place.client.clone())
            } else {
                Api::namespaced(place.client.clone(), &place.namespace)
            };
            let mut params = ListParams::default().limit(500);
            loop {
                let page = jobs.list(&params).await.map_err(|error| trouble("listing BridgeJobs", &error))?;
                found.extend(page.items);
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params.continue_token = Some(token),
                    None => break,
                }
            }
        }
        for name in &arguments.names {
            let (jobs, job) = place.locate(name);
            found.push(jobs.get(job).await.map_err(|error| trouble(&format!("job {name}"), &error))?);
        }
        let rows: Vec<(JobView, bool)> = found.iter().map(|job| (view(job), true)).collect();
        match arguments.output {
            Format::Text => print(&list::table(&rows)),
            Format::Json => print(&format!("{:#}\n", list::as_json(&rows))),
        }
    })?
}

/// `bridge describe`
pub fn describe(arguments: &DescribeArguments) -> Result<u8, Failure> {
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        let (jobs, name) = place.locate(&arguments.name);
        let job = jobs.get(name).await.map_err(|error| trouble(&format!("job {}", arguments.name), &error))?;
        let events: Api<Event> = Api::namespaced(place.client.clone(), &job.namespace().unwrap_or_default());
        let about = ListParams::default().fields(&format!("regarding.uid={}", job.uid().unwrap_or_default()));
        // Not everybody may read Events; the rest is worth showing all the same.
        let events = events.list(&about).await.map(|list| list.items).unwrap_or_default();
        print(&description(&job, events))
    })?
}

fn description(job: &BridgeJob, mut events: Vec<Event>) -> String {
    let view = view(job);
    let status = job.status.clone().unwrap_or_default();
    let time = |time: Option<jiff::Timestamp>| time.map(|time| format!("{time:.0}"));
    let lines: [(&str, Option<String>); 15] = [
        ("Job", Some(view.title())),
        ("Status", Some(view.status.to_owned())),
        ("Message", Some(view.message.clone())),
        ("Reason", Some(view.reason.clone()).filter(|reason| !reason.is_empty())),
        ("Manager", Some(view.manager.to_owned())),
        ("URL", Some(view.url.clone())),
        ("Job id", view.job_id.clone()),
        ("Queue", status.queue),
        ("Node", status.node),
        ("Attempt", Some(view.attempt.to_string())),
        ("Submitted", time(view.submitted)),
        ("Started", time(view.started)),
        ("Completed", time(view.completed)),
        ("Exit code", view.exit_code.map(|code| code.to_string())),
        ("Output", status.stdout),
    ];
    let mut text = String::new();
    for (label, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(text, "{:<11} {value}", format!("{label}:"));
        }
    }
    if !status.conditions.is_empty() {
        text.push_str("Conditions:\n");
        for condition in &status.conditions {
            let _ = writeln!(
                text,
                "  {:<14} {:<8} {:<20} since {:.0}  {}",
                condition.type_,
                condition.status,
                condition.reason,
                condition.last_transition_time.0,
                condition.message
            );
        }
    }
    if !status.outputs.is_empty() {
        text.push_str("Outputs:\n");
        for output in &status.outputs {
            let _ = writeln!(text, "  {}:{} ({} bytes)", output.bucket, output.name, output.size.unwrap_or(0));
        }
    }
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    if !events.is_empty() {
        text.push_str("Events:\n");
        for event in &events {
            let when = event.event_time.as_ref().map_or_else(String::new, |time| format!("{:.0}", time.0));
            let reason = event.reason.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  {when:<20} {reason:<18} {}", event.note.as_deref().unwrap_or_default());
        }
    }
    text
}

/// `bridge kill`
pub fn kill(arguments: &KillArguments) -> Result<u8, Failure> {
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        for name in &arguments.names {
            let (jobs, job) = place.locate(name);
            let wish = json!({ "spec": { "kill": true } });
            let wished = jobs.patch(job, &PatchParams::default(), &Patch::Merge(wish)).await;
            wished.map_err(|error| trouble(&format!("job {name}"), &error))?;
        }
        let mut exits = Vec::new();
        for name in &arguments.names {
            exits.push(match until_ended(&place, name, arguments.output).await? {
                // That a job no longer runs is what was asked for, however it ended; that nobody knows is not.
                JobExit::Ended(JobStatus::Unknown, code) => JobExit::Ended(JobStatus::Unknown, code),
                JobExit::Ended(..) => JobExit::Ended(JobStatus::Done, 0),
                other => other,
            });
        }
        Ok(worst(exits))
    })?
}

/// `bridge wait`
pub fn wait(arguments: &WaitArguments) -> Result<u8, Failure> {
    block_on(async {
        let place = Place::find(&arguments.cluster).await?;
        let limit = arguments.timeout.map_or(Duration::MAX, Duration::from_secs);
        let all = async {
            for name in &arguments.names {
                let (jobs, job) = place.locate(name);
                jobs.get_metadata(job).await.map_err(|error| trouble(&format!("job {name}"), &error))?;
            }
            let mut exits = Vec::new();
            for name in &arguments.names {
                exits.push(until_ended(&place, name, arguments.output).await?);
            }
            Ok::<_, Failure>(exits)
        };
        match tokio::time::timeout(limit, all).await {
            Ok(exits) => Ok(worst(exits?)),
            Err(_) => Ok(JobExit::NotEnded.code()),
        }
    })?
}

/// Waits until a job has ended, or is gone, and tells how.
async fn until_ended(place: &Place, name: &str, format: Format) -> Result<JobExit, Failure> {
    let (jobs, job) = place.locate(name);
    let Some(job) = ended(watch(jobs, job, &format!("job {name}"))).await? else {
        eprintln!("{name}: deleted");
        return Ok(JobExit::NotEnded);
    };
    tell(&job, format)?;
    let words = words(&job.status.unwrap_or_default());
    Ok(JobExit::Ended(words.status, words.process_exit_code()))
}

/// The job as it ended; none if it was deleted.
async fn ended(changes: impl Stream<Item = Result<Option<BridgeJob>, Failure>>) -> Result<Option<BridgeJob>, Failure> {
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        let job = change?;
        if job.as_ref().is_none_or(|job| view(job).ended) {
            return Ok(job);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_nobody_looked_at_is_told_in_the_same_words() {
        let spec =
            serde_json::from_value(json!({ "resourceURL": "http://x", "jobdata": { "jobscript": "s" } })).unwrap();
        let mut job = BridgeJob::new("hello", spec);
        job.metadata.namespace = Some("team".to_owned());
        let text = description(&job, Vec::new());
        assert!(text.contains("team/hello") && text.contains("PENDING"), "{text}");
        job.status = Some(BridgeJobStatus {
            jobstatus: Some(JobStatus::Failed),
            exitcode: Some(7),
            ..BridgeJobStatus::default()
        });
        assert_eq!((view(&job).process_exit_code, view(&job).ended), (7, true));
    }
    #[tokio::test]
    async fn waiting_ends_with_the_job_its_deletion_or_a_refusal() {
        let job = |status| {
            let spec = json!({ "resourceURL": "http://x", "jobdata": { "jobscript": "s" } });
            let mut job = BridgeJob::new("hello", serde_json::from_value(spec).unwrap());
            job.status = Some(BridgeJobStatus { jobstatus: Some(status), ..BridgeJobStatus::default() });
            Ok(Some(job))
        };
        let changes = || vec![job(JobStatus::Pending), job(JobStatus::Running)];
        let after = |last| futures::stream::iter(changes().into_iter().chain([last]));
        assert_eq!(view(&ended(after(job(JobStatus::Killed))).await.unwrap().unwrap()).status, "KILLED");
        assert!(ended(after(Ok(None))).await.unwrap().is_none());
        let refused = Failure::input("may not be watched");
        assert_eq!(ended(after(Err(refused.clone()))).await.unwrap_err(), refused);
    }
}
