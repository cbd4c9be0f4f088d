//! The requests that an emulated head answers.

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;

use super::jobs::Job;
use super::wire::{
    ERROR_BODY, agent_refusal, cluster_status, in_trouble, job_details, json_response, no_such_job, read_request,
    text_response,
};
use super::{Head, MOST_AUTHORIZATIONS, tail};
use crate::faults::Operation;
use crate::faults::http::under;

/// What Ray's dashboard takes.
const LARGEST_BODY: usize = 100 * 1024 * 1024;

pub(super) fn router(head: Head) -> Router {
    Router::new()
        .route("/api/version", get(version))
        .route("/timezone", get(timezone))
        .route("/api/jobs/", get(list).post(submit))
        .route("/api/jobs/{id}", get(job).delete(delete))
        .route("/api/jobs/{id}/stop", post(stop))
        .route("/api/jobs/{id}/logs", get(logs))
        .route("/api/jobs/{id}/logs/tail", get(follow))
        .route("/api/packages/{protocol}/{name}", get(package).put(upload))
        .route("/api/cluster_status", get(status))
        .fallback(async || text_response(404, "404: Not Found"))
        .layer(from_fn_with_state(head.clone(), guard))
        .route("/api/authentication_mode", get(authentication_mode))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(head)
}

/// Tokens, and what Ray takes for the traffic of a browser.
async fn guard(State(head): State<Head>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    let browser = agent.starts_with(b"Mozilla") || headers.contains_key(header::ORIGIN);
    if browser && request.method() != Method::GET {
        return text_response(405, format!("'{}' method not allowed for browser traffic.", request.method()));
    }
    match rejection(&head, headers) {
        Some(rejection) => rejection,
        None => next.run(request).await,
    }
}

/// What is wrong with the token, if anything is.
fn rejection(head: &Head, headers: &HeaderMap) -> Option<Response> {
    let mut state = head.lock();
    let given = headers.get(header::AUTHORIZATION).or_else(|| headers.get("x-ray-authorization"));
    let given = given.and_then(|value| value.to_str().ok()).map(str::to_owned);
    if state.authorizations.len() < MOST_AUTHORIZATIONS {
        state.authorizations.push(given.clone().unwrap_or_default());
    }
    let token = state.token.as_ref()?;
    match given {
        None => Some(text_response(401, "Unauthorized: Missing authentication token")),
        Some(given) if given == format!("Bearer {token}") => None,
        Some(_) => Some(text_response(403, "Forbidden: Invalid authentication token")),
    }
}

async fn authentication_mode(State(head): State<Head>) -> Response {
    let mode = if head.lock().token.is_some() { "token" } else { "disabled" };
    json_response(&json!({"authentication_mode": mode}))
}

async fn version(State(head): State<Head>) -> Response {
    under(&head.faults, Operation::Other, ERROR_BODY, async || {
        json_response(&json!({
            "version": "4",
            "ray_version": "2.60.0",
            "ray_commit": "b7f4259e944bf6959f721b106adc366ddfa0c356",
            "session_name": head.lock().session,
        }))
    })
    .await
}

async fn timezone(State(head): State<Head>) -> Response {
    under(&head.faults, Operation::Other, ERROR_BODY, async || {
        json_response(&json!({"offset": "+00:00", "value": "Etc/UTC"}))
    })
    .await
}

async fn list(State(head): State<Head>) -> Response {
    under(&head.faults, Operation::Poll, ERROR_BODY, async || {
        let jobs: Vec<Arc<Job>> = head.lock().jobs.values().cloned().collect();
        json_response(&jobs.iter().map(|job| job_details(&job.id, &job.request, &job.progress())).collect())
    })
    .await
}

async fn submit(State(head): State<Head>, body: Bytes) -> Response {
    under(&head.faults, Operation::Submit, ERROR_BODY, async || match read_request(&body) {
        Err(refusal) => *refusal,
        Ok(request) => accept(&head, request),
    })
    .await
}

fn accept(head: &Head, request: super::jobs::Request) -> Response {
    let mut state = head.lock();
    let id = request.submission_id.clone().unwrap_or_else(|| format!("raysubmit_{:016}", state.jobs.len()));
    if state.jobs.contains_key(&id) {
        return agent_refusal(
            "submit_job",
            &format!("ValueError: Job with submission_id {id} already exists. Please use a different submission_id."),
        );
    }
    let wanted = request.runtime_env.as_ref().and_then(|environment| environment.get("working_dir")?.as_str());
    let package = wanted.and_then(|uri| state.packages.get(uri.strip_prefix("gcs://")?).cloned());
    let job = Arc::new(Job::new(id.clone(), request, head.log_file(&id), &head.options));
    state.jobs.insert(id.clone(), Arc::clone(&job));
    tokio::spawn(job.run(head.options.clone(), head.folder.path().to_owned(), package));
    json_response(&json!({"job_id": id, "submission_id": id}))
}

async fn job(State(head): State<Head>, Path(id): Path<String>) -> Response {
    under(&head.faults, Operation::Poll, ERROR_BODY, async || match head.job(&id) {
        None => no_such_job(&id),
        Some(job) => json_response(&job_details(&id, &job.request, &job.progress())),
    })
    .await
}

async fn delete(State(head): State<Head>, Path(id): Path<String>) -> Response {
    under(&head.faults, Operation::Other, ERROR_BODY, async || match head.job(&id) {
        None => no_such_job(&id),
        Some(job) if !job.progress().is_ended() => agent_refusal(
            "delete_job",
            &format!(
                "RuntimeError: Attempted to delete job '{id}', but it is in a non-terminal state {}.",
                job.progress().status
            ),
        ),
        Some(_) => {
            head.lock().jobs.remove(&id);
            json_response(&json!({"deleted": true}))
        }
    })
    .await
}

async fn stop(State(head): State<Head>, Path(id): Path<String>) -> Response {
    under(&head.faults, Operation::Cancel, ERROR_BODY, async || match head.job(&id) {
        None => no_such_job(&id),
        Some(job) => json_response(&json!({"stopped": job.stop()})),
    })
    .await
}

async fn logs(State(head): State<Head>, Path(id): Path<String>) -> Response {
    under(&head.faults, Operation::Logs, ERROR_BODY, async || {
        let Some(job) = head.job(&id) else { return no_such_job(&id) };
        // The head asks the node of the job; one without a node has no log.
        let bytes =
            if job.progress().has_node { tokio::fs::read(&job.log).await.unwrap_or_default() } else { Vec::new() };
        match String::from_utf8(bytes) {
            Ok(text) => json_response(&json!({"logs": text})),
            Err(_) => agent_refusal("get_job_logs", "UnicodeDecodeError: 'utf-8' codec can't decode byte"),
        }
    })
    .await
}

async fn follow(State(head): State<Head>, Path(id): Path<String>, request: Request) -> Response {
    use axum::extract::FromRequestParts;
    under(&head.faults, Operation::Logs, ERROR_BODY, async || {
        let Some(job) = head.job(&id) else { return no_such_job(&id) };
        let (mut parts, _) = request.into_parts();
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
        let Some(upgrade) = upgrade.ok().filter(|_| head.options.websockets) else {
            return text_response(400, "No WebSocket UPGRADE hdr: None\n Can \"Upgrade\" only to \"WebSocket\".");
        };
        let interval = head.options.tail_interval;
        upgrade.on_upgrade(move |socket| tail::send(socket, job, interval))
    })
    .await
}

async fn package(State(head): State<Head>, Path((protocol, name)): Path<(String, String)>) -> Response {
    under(&head.faults, Operation::Put, ERROR_BODY, async || {
        if protocol == "gcs" && head.lock().packages.contains_key(&name) {
            return Body::empty().into_response();
        }
        text_response(404, format!("Package {protocol}://{name} does not exist"))
    })
    .await
}

async fn upload(State(head): State<Head>, Path((protocol, name)): Path<(String, String)>, body: Bytes) -> Response {
    under(&head.faults, Operation::Put, ERROR_BODY, async || {
        if protocol != "gcs" {
            return agent_refusal(
                "upload_package",
                "ValueError: upload_package_to_gcs should not be called with a remote path.",
            );
        }
        head.lock().packages.insert(name, body);
        Body::empty().into_response()
    })
    .await
}

async fn status(State(head): State<Head>, uri: Uri) -> Response {
    under(&head.faults, Operation::Load, ERROR_BODY, async || {
        if uri.query().is_some() {
            return in_trouble();
        }
        let jobs: Vec<Arc<Job>> = head.lock().jobs.values().cloned().collect();
        let cpus = |status: &str| -> Vec<f64> {
            jobs.iter().filter(|job| job.progress().status == status).map(|job| job.request.cpus).collect()
        };
        let used = cpus("RUNNING").iter().sum::<f64>().min(head.options.cpus);
        json_response(&cluster_status(head.options.cpus, used, &cpus("PENDING")))
    })
    .await
}
