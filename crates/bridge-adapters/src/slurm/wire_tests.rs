use std::collections::BTreeSet;

use serde_json::json;

use super::super::captures;
use super::*;

#[derive(Deserialize)]
struct JobList {
    #[serde(default)]
    jobs: Vec<JobInfo>,
}

#[test]
fn every_recorded_answer_of_a_kind_that_is_read_can_be_read() {
    let mut read = 0;
    for (server, captures) in captures::all() {
        for (name, capture) in captures {
            if capture.body.is_string() {
                continue;
            }
            let what = format!("{server} {name}");
            let body = capture.body.to_string();
            let _: Envelope = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{what}: {error}"));
            let path = capture.request.path.as_str();
            if path.contains("/slurmdb/") {
                let entries: Vec<AccountedEntry> =
                    serde_json::from_value(capture.body["jobs"].clone()).unwrap_or_default();
                let listed = capture.body["jobs"].as_array().map_or(0, Vec::len);
                assert_eq!(entries.into_iter().filter_map(Option::<JobInfo>::from).count(), listed, "{what}");
            } else if path.contains("/jobs/state") {
                let states: JobStates = serde_json::from_str(&body).unwrap();
                let listed = capture.body["jobs"].as_array().map_or(0, Vec::len);
                assert_eq!(states.jobs.len(), listed, "{what}");
                assert!(states.jobs.iter().all(|job| !job.job_id.0.is_empty() && !job.state.0.is_empty()), "{what}");
            } else if capture.request.method == "GET" && path.contains("/job") {
                let list: JobList = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{what}: {error}"));
                for job in list.jobs {
                    assert!(job.root().is_some() && !job.job_state.0.is_empty(), "{what}");
                    assert!(job.submit_time.positive().is_some(), "{what}");
                }
            } else if path.contains("/nodes") {
                let nodes: Nodes = serde_json::from_str(&body).unwrap();
                assert!(nodes.nodes.iter().all(|node| node.cpus.positive().is_some()), "{what}");
            } else if path.contains("/partitions") && capture.status == 200 {
                let partitions: Partitions = serde_json::from_str(&body).unwrap();
                for partition in &partitions.partitions {
                    let told = (partition.node_names(), partition.total_nodes(), partition.total_cpus());
                    assert_eq!(told, ("localhost", 1, 16), "{what}");
                }
                assert_eq!(partitions.partitions.len(), 2, "{what}");
            }
            read += 1;
        }
    }
    assert!(read > 500, "only {read} were read");
}

#[test]
fn every_submission_that_was_taken_tells_its_id() {
    for (server, captures) in captures::all() {
        for (name, capture) in captures.iter().filter(|(name, _)| name.starts_with("submit-")) {
            let expected = capture.body["job_id"].as_i64();
            let id = capture.answer().json::<Envelope>().ok().and_then(|envelope| envelope.job_id.positive());
            assert_eq!(id, expected, "{server} {name}");
        }
    }
}

#[test]
fn numbers_and_words_come_in_any_form() {
    let number = |value: Value| serde_json::from_value::<Number>(value).unwrap().0;
    assert_eq!(number(json!(5)), Some(5));
    assert_eq!(number(json!(1.0)), Some(1));
    assert_eq!(number(json!("7")), Some(7));
    assert_eq!(number(json!({"set": true, "infinite": false, "number": 9})), Some(9));
    for unset in [
        json!(null),
        json!({"set": false, "infinite": false, "number": 0}),
        json!({"set": true, "infinite": true, "number": 0}),
        json!(u64::MAX),
        json!([1]),
        json!(true),
        json!(""),
    ] {
        assert_eq!(number(unset.clone()), None, "{unset}");
    }
    let words = |value: Value| serde_json::from_value::<Words>(value).unwrap().0;
    assert_eq!(words(json!("RUNNING")), ["RUNNING"]);
    assert_eq!(words(json!(["CANCELLED", "COMPLETING"])), ["CANCELLED", "COMPLETING"]);
    assert_eq!(words(json!(null)), [""; 0]);
    assert_eq!(words(json!({"a": 1})), [""; 0]);
}

#[test]
fn exit_codes_come_as_wait_status_or_taken_apart() {
    let code = |value: Value| {
        let ExitCode { code, signal } = serde_json::from_value(value).unwrap();
        (code, signal)
    };
    assert_eq!(code(json!(768)), (Some(3), None));
    assert_eq!(code(json!(9)), (None, Some(9)));
    assert_eq!(code(json!(0)), (Some(0), None));
    assert_eq!(code(json!(4_294_967_294_u64)), (None, None));
    assert_eq!(code(json!(null)), (None, None));
    let boxed = |number: i64| json!({"set": true, "infinite": false, "number": number});
    let unset = json!({"set": false, "infinite": false, "number": 0});
    let apart = json!({"status": ["ERROR"], "return_code": boxed(3), "signal": {"id": unset, "name": ""}});
    assert_eq!(code(apart), (Some(3), None));
    let signalled = json!({"status": ["SIGNALED"], "return_code": unset, "signal": {"id": boxed(15), "name": "TERM"}});
    assert_eq!(code(signalled), (None, Some(15)));
    let old = json!({"status": "SIGNALED", "return_code": null, "signal": {"signal_id": 15, "name": "Terminated"}});
    assert_eq!(code(old), (None, Some(15)));
    assert_eq!(code(json!({"status": "SUCCESS", "return_code": 0})), (Some(0), None));
}

#[test]
fn versions_are_read_from_a_servers_own_description() {
    let description = json!({"openapi": "3.0.3", "paths": {
        "/slurm/v0.0.42/jobs/": {}, "/slurm/v0.0.45/jobs/": {"get": {}}, "/slurm/v0.0.46/job/submit": {},
        "/slurmdb/v0.0.41/jobs/": {}, "/openapi/v3": {}, "/slurm/next/jobs": {}
    }});
    let versions = serde_json::from_value::<OpenApi>(description).unwrap().versions();
    let numbers: BTreeSet<u16> = versions.into_iter().map(ApiVersion::number).collect();
    assert_eq!(numbers, BTreeSet::from([42, 45, 46]));
    assert!(!ApiVersion::parse("v0.0.46").unwrap().is_spoken());
    assert_eq!(ApiVersion::parse("v0.0.x"), None);
    assert_eq!(ApiVersion::spoken().next(), Some(ApiVersion::NEWEST));
}
