//! The addresses of slurmrestd.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State as AxumState};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use axum::routing::{any, get};
use serde_json::{Map, Value, json};

use super::answers::{Version, answer, is_waiting, text};
use super::cluster::{Cancelled, Cluster, root};
use super::job::{Job, State};
use super::submit::submit;
use crate::faults::Operation;
use crate::faults::http::under;

const NOT_FOUND: &str = "Unable find requested URL. Please view /openapi/v3 for API reference.";
/// What slurmrestd sends with 200 when it means an error.
const ERROR_BODY: &str = r#"{"meta":{},"errors":[{"description":"planned fault","error_number":-1,"error":"Unspecified error","source":"emulator"}],"warnings":[],"jobs":[]}"#;

type Shared = AxumState<Arc<Cluster>>;

pub(super) fn router(cluster: Arc<Cluster>) -> Router {
    Router::new()
        .route("/openapi/v3", get(openapi))
        .route("/{service}/{version}/{*path}", any(versioned))
        .fallback(async || text(404, NOT_FOUND))
        .with_state(cluster)
}

async fn openapi(AxumState(cluster): Shared, headers: HeaderMap) -> Response {
    under(&cluster.options.faults, Operation::Other, ERROR_BODY, async || {
        if !cluster.options.describes_itself {
            return text(404, NOT_FOUND);
        }
        if user(&headers).is_none() {
            return text(401, "Authentication failure");
        }
        let paths: Map<String, Value> = cluster
            .lock()
            .versions
            .iter()
            .flat_map(|version| {
                let slurm = ["jobs/", "job/{job_id}", "job/submit", "ping/"]
                    .map(|path| (format!("/slurm/v0.0.{version}/{path}"), json!({})));
                let slurmdb = (format!("/slurmdb/v0.0.{version}/job/{{job_id}}"), json!({}));
                slurm.into_iter().chain(cluster.options.accounting.then_some(slurmdb))
            })
            .collect();
        answer(200, json!({"openapi": "3.0.3", "info": {"title": "Slurm REST API"}, "paths": paths}))
    })
    .await
}

fn user(headers: &HeaderMap) -> Option<(&str, &str)> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Some((header("x-slurm-user-name")?, header("x-slurm-user-token")?))
}

/// What a request is about.
fn operation(method: &Method, path: &str) -> Operation {
    match (method.as_str(), path) {
        ("POST", "job/submit") => Operation::Submit,
        ("GET", "jobs" | "jobs/state") => Operation::Poll,
        ("GET", "nodes" | "partitions") => Operation::Load,
        ("GET", path) if path.starts_with("job/") => Operation::Poll,
        ("DELETE", _) => Operation::Cancel,
        ("POST", _) => Operation::Release,
        _ => Operation::Other,
    }
}

async fn versioned(
    AxumState(cluster): Shared,
    Path((service, version, path)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = path.trim_matches('/').to_owned();
    let mut operation = operation(&method, &path);
    if operation == Operation::Release && body.windows(4).any(|word| word == b"true") {
        operation = Operation::Hold;
    }
    let version = version.strip_prefix("v0.0.").and_then(|number| number.parse().ok());
    let version = version.filter(|version| cluster.lock().versions.contains(version)).map(Version);
    under(&cluster.options.faults, operation, ERROR_BODY, async || {
        let Some(version) = version else { return text(404, NOT_FOUND) };
        let Some((user, token)) = user(&headers) else { return text(401, "Authentication failure") };
        let part = part_of(&method, &path);
        let is_accepted = cluster.lock().users.get(user).is_some_and(|own| own == token);
        if !is_accepted {
            return version.bad_token(part);
        }
        let segments: Vec<&str> = path.split('/').collect();
        if service == "slurmdb" {
            return accounting(&cluster, version, &segments).await;
        }
        if service != "slurm" {
            return text(404, NOT_FOUND);
        }
        if !cluster.lock().controller_is_up {
            tokio::time::sleep(cluster.options.outage_answer).await;
            return version.controller_down(part);
        }
        slurm(&cluster, version, &method, &segments, query.as_deref().unwrap_or_default(), user, &body)
    })
    .await
}

/// The recorded answer that comes nearest to a request's.
fn part_of(method: &Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("POST", "job/submit") => "submit",
        ("POST", _) => "update",
        ("DELETE", _) => "delete",
        (_, "ping") => "ping",
        (_, "nodes") => "nodes",
        (_, "partitions") => "partitions",
        _ => "jobs",
    }
}

fn slurm(
    cluster: &Cluster,
    version: Version,
    method: &Method,
    segments: &[&str],
    query: &str,
    user: &str,
    body: &[u8],
) -> Response {
    let all = || cluster.lock().jobs.values().cloned().collect::<Vec<Job>>();
    match (method.as_str(), segments) {
        ("GET", ["ping"]) => answer(200, version.template().part("ping")),
        ("GET", ["nodes"]) => version.nodes(cluster),
        ("GET", ["partitions"]) => version.partitions(cluster),
        ("GET", ["jobs"]) if claims_unchanged(cluster) => text(304, ""),
        ("GET", ["jobs"]) => version.jobs(&all()),
        ("GET", ["jobs", "state"]) if version.0 >= 40 => {
            let ids: Vec<u32> =
                query.split('&').filter_map(|pair| pair.strip_prefix("job_id=")?.parse().ok()).collect();
            let mut jobs = all();
            jobs.retain(|job| ids.is_empty() || ids.contains(&job.id) || ids.contains(&root(job)));
            version.states(&jobs)
        }
        ("POST", ["job", "submit"]) => submit(cluster, version, user, body),
        ("GET", ["job", id]) => match id.parse().map(|id| cluster.records(id)) {
            Ok(jobs) if !jobs.is_empty() => version.jobs(&jobs),
            Ok(_) => version.no_such_job("jobs"),
            Err(_) => version.failure("jobs", if version.is_old() { 400 } else { 422 }, 9000, "Unable to find JobId"),
        },
        ("POST", ["job", id]) => match id.parse() {
            Ok(id) => update(cluster, version, id, body),
            Err(_) => version.no_such_job("update"),
        },
        ("DELETE", ["job", id]) => match id.parse() {
            Ok(id) => delete(cluster, version, id, query),
            Err(_) => version.no_such_job("delete"),
        },
        _ => text(404, NOT_FOUND),
    }
}

fn claims_unchanged(cluster: &Cluster) -> bool {
    let mut state = cluster.lock();
    let claims = state.claims_unchanged > 0;
    state.claims_unchanged = state.claims_unchanged.saturating_sub(1);
    claims
}

fn update(cluster: &Cluster, version: Version, id: u32, body: &[u8]) -> Response {
    let Ok(changes) = serde_json::from_slice::<Value>(body) else { return text(400, "Unable to parse query.") };
    let mut state = cluster.lock();
    let ids: Vec<u32> = state.jobs.values().filter(|job| job.id == id || root(job) == id).map(|job| job.id).collect();
    if ids.is_empty() {
        drop(state);
        return version.no_such_job("update");
    }
    let jobs = ids.iter().filter_map(|id| state.jobs.get(id));
    if jobs.clone().all(Job::is_ended) {
        drop(state);
        let number = if version.is_old() { 2084 } else { 2021 };
        return version.failure("update", 500, number, "Job has already finished");
    }
    let mut is_array = false;
    for id in ids {
        let Some(job) = state.jobs.get_mut(&id) else { continue };
        is_array |= job.array.is_some();
        // The trap of v0.0.36: what is not named is named anew.
        match changes.get("name").and_then(Value::as_str) {
            Some(name) => name.clone_into(&mut job.name),
            None if version.0 <= 36 => "openapi".clone_into(&mut job.name),
            None => {}
        }
        if let Some(hold) = changes.get("hold").and_then(Value::as_bool) {
            // Of a job that runs it is taken without a word and without an effect.
            job.held = if is_waiting(job) { hold } else { job.held };
            if !hold && is_waiting(job) {
                job.state = State::Pending("None");
            }
        }
        if let Some(comment) = changes.get("comment").and_then(Value::as_str) {
            comment.clone_into(&mut job.comment);
        }
    }
    drop(state);
    cluster.changed.notify_one();
    let mut body = version.template().part("update");
    if is_array && (37..=38).contains(&version.0) {
        // The trap of v0.0.38: it was done, and is called a failure.
        body["errors"] =
            json!([{"description": "job array update from [localhost]:1 failed", "source": "_parse_job_list"}]);
    }
    answer(200, body)
}

fn delete(cluster: &Cluster, version: Version, id: u32, query: &str) -> Response {
    let signal = query.split('&').find_map(|pair| pair.strip_prefix("signal="));
    if let Some(signal) = signal {
        let is_known = ["SIGKILL", "KILL", "9", "SIGTERM", "TERM", "15"].contains(&signal);
        // The trap: from v0.0.41 on an unknown name ends the job.
        if !is_known && version.0 <= 40 {
            let status = if version.is_old() { 400 } else { 500 };
            return version.failure("delete", status, 9000, "invalid signal: 0");
        }
    }
    match cluster.cancel(id) {
        Some(Cancelled::Done) => version.killed(id, 0, "No error"),
        Some(Cancelled::EndedBefore) => version.killed(id, 2021, "Job/step already completing or completed"),
        None if version.is_old() => version.no_such_job("delete"),
        None => version.killed(id, 2017, "Invalid job id specified"),
    }
}

async fn accounting(cluster: &Cluster, version: Version, segments: &[&str]) -> Response {
    let (delay, is_unfound) = {
        let mut state = cluster.lock();
        let requests = &mut state.accounting;
        requests.all += 1;
        requests.now += 1;
        requests.most_at_once = requests.most_at_once.max(requests.now);
        let is_unfound = requests.unfound > 0;
        requests.unfound = requests.unfound.saturating_sub(1);
        (requests.delay, is_unfound)
    };
    tokio::time::sleep(delay).await;
    cluster.lock().accounting.now -= 1;
    if is_unfound || !cluster.options.accounting {
        return text(404, NOT_FOUND);
    }
    if !cluster.lock().accounting_is_up {
        return version.accounting_down();
    }
    let stores_comments = cluster.options.accounting_stores_comments;
    match segments {
        ["jobs"] => version.accounted(&cluster.accounted(), stores_comments),
        ["job", id] => {
            let id: u32 = id.parse().unwrap_or_default();
            let mut jobs: Vec<Job> =
                cluster.accounted().into_iter().filter(|job| job.id == id || root(job) == id).collect();
            // The runs of a requeued job: 22.05 was seen to tell the oldest first.
            jobs.sort_by_key(|job| (job.id, if version.is_old() { 1 } else { -1 } * job.submitted.as_second()));
            version.accounted(&jobs, stores_comments)
        }
        _ => text(404, NOT_FOUND),
    }
}
