//! The types against everything a real Ray sent of their kind.

use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::ray::decode::LogDecoder;
use crate::ray::map;

struct Capture {
    name: String,
    method: String,
    path: String,
    sent: Value,
    status: u64,
    body: Value,
}

fn captures() -> Vec<Capture> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/ray/testdata");
    let mut captures: Vec<Capture> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let (request, response) = (value["request"].take(), value["response"].take());
            Some(Capture {
                name: path.file_stem()?.to_str()?.to_owned(),
                method: request["method"].as_str()?.to_owned(),
                path: request["url"].as_str()?.to_owned(),
                sent: request["body"].clone(),
                status: response["status"].as_u64()?,
                body: response["body"].clone(),
            })
        })
        .collect();
    captures.sort_by(|one, other| one.name.cmp(&other.name));
    captures
}

fn is_job(path: &str) -> bool {
    path.strip_prefix("/api/jobs/").is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

#[test]
fn every_answer_of_a_kind_we_read_is_read() {
    let mut seen = BTreeMap::<&str, usize>::new();
    for Capture { name, method, path, status, body, .. } in captures() {
        if status != 200 {
            continue;
        }
        let read = |ok: bool| assert!(ok, "{name} is not read: {body}");
        let kind = match (method.as_str(), path.as_str()) {
            ("POST", "/api/jobs/") => {
                let answer: SubmitAnswer = serde_json::from_value(body.clone()).unwrap();
                read(body["submission_id"] == answer.submission_id.as_str());
                "submit"
            }
            ("POST", path) if path.ends_with("/stop") => {
                let answer: StopAnswer = serde_json::from_value(body.clone()).unwrap();
                read(body["stopped"] == answer.stopped);
                "stop"
            }
            ("GET", "/api/jobs/") => {
                let text = body.to_string();
                let listed = read_list(text.as_bytes(), |id| id == "bridge-fail").unwrap();
                read(listed.total == body.as_array().unwrap().len() && listed.jobs.len() == 1);
                read(listed.jobs[0].driver_exit_code == Some(3));
                "list"
            }
            ("GET", path) if is_job(path) => {
                let job: JobDetails = serde_json::from_value(body.clone()).unwrap();
                read(job.submission_id.is_some() && job.start_time.is_some());
                read(map::is_ended(&job) == job.end_time.is_some());
                "job"
            }
            ("GET", path) if path.ends_with("/logs") => {
                let mut decoder = LogDecoder::default();
                let text = decoder.push(body.to_string().as_bytes()).unwrap();
                read(decoder.is_complete() && text == body["logs"].as_str().unwrap().as_bytes());
                "logs"
            }
            ("GET", "/api/version") => {
                let version: Version = serde_json::from_value(body.clone()).unwrap();
                read(crate::ray::session::began(&version.session_name, "+00:00").is_some());
                "version"
            }
            ("GET", "/timezone") => {
                let zone: TimeZone = serde_json::from_value(body.clone()).unwrap();
                read(zone.offset == "+00:00");
                "timezone"
            }
            ("GET", "/api/cluster_status") => {
                let status: ClusterStatus = serde_json::from_value(body.clone()).unwrap();
                let load = map::load(&status.data.cluster_status.unwrap().load_metrics_report);
                read((load.cpus.idle, load.cpus.allocated, load.cpus.total) == (2, 0, 2));
                read((load.nodes.idle, load.nodes.total, load.pending_jobs) == (1, 1, 1));
                "load"
            }
            _ => continue,
        };
        *seen.entry(kind).or_default() += 1;
    }
    let kinds: Vec<&str> = seen.keys().copied().collect();
    assert_eq!(kinds, ["job", "list", "load", "logs", "stop", "submit", "timezone", "version"]);
    assert!(seen["job"] >= 15 && seen["logs"] >= 7, "{seen:?}");
}

/// A field that Ray does not know is an error to it.
#[test]
fn what_we_send_has_only_fields_that_ray_took() {
    let taken: std::collections::BTreeSet<String> = captures()
        .into_iter()
        .filter(|capture| capture.method == "POST" && capture.path == "/api/jobs/" && capture.status == 200)
        .flat_map(|capture| capture.sent.as_object().cloned().unwrap_or_default().into_iter().map(|(key, _)| key))
        .collect();
    let resources = Resources {
        cpus: Some(1.into()),
        gpus: Some(1.into()),
        memory: Some(1),
        custom: [("x".to_owned(), 1.into())].into(),
        labels: BTreeMap::new(),
    };
    let request = SubmitRequest {
        entrypoint: "true".to_owned(),
        submission_id: "x".to_owned(),
        runtime_env: Map::from_iter([("env_vars".to_owned(), Value::Null)]),
        metadata: BTreeMap::new(),
        resources,
    };
    let sent = serde_json::to_value(&request).unwrap();
    for key in sent.as_object().unwrap().keys() {
        assert!(taken.contains(key), "{key} was never sent to a real Ray");
    }
    let small = SubmitRequest { runtime_env: Map::new(), resources: Resources::default(), ..request };
    let sent = serde_json::to_string(&small).unwrap();
    assert_eq!(sent, r#"{"entrypoint":"true","submission_id":"x","metadata":{}}"#);
}

#[test]
fn a_list_of_strangers_keeps_nothing_and_a_driver_is_no_job() {
    let driver =
        r#"[{"type": "DRIVER", "job_id": "02000000", "submission_id": null, "status": "RUNNING", "entrypoint": "x"}]"#;
    assert_eq!(read_list(driver.as_bytes(), |_| true).unwrap(), Listed { jobs: Vec::new(), total: 1 });
    assert!(read_list(b"{}", |_| true).is_err());
    assert!(read_list(b"[] []", |_| true).is_err());
}

#[test]
fn long_messages_keep_their_ends() {
    let text = format!("beginning {} end", "ü".repeat(50_000));
    let body = serde_json::json!({"submission_id": "x", "status": "FAILED", "message": text}).to_string();
    let job: JobDetails = serde_json::from_str(&body).unwrap();
    assert!(job.message.len() <= LONGEST_MESSAGE + 10, "{}", job.message.len());
    assert!(job.message.starts_with("beginning") && job.message.ends_with("end"));
}
