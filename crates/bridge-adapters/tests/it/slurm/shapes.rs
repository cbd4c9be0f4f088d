//! The emulator says what the real servers said, in the same form: keys and types of recorded answers.

use std::collections::BTreeMap;

use bridge_core::manager::{Hold, ResourceManager};
use bridge_testkit::slurm::EmulatorOptions;
use serde_json::{Value, json};

use super::{Cluster, until};

/// The recorded bodies of one server, by name.
fn recorded(version: u16) -> BTreeMap<String, Value> {
    macro_rules! file {
        ($name:literal) => {
            include_str!(concat!("../../../src/slurm/testdata/", $name, ".json"))
        };
    }
    let text = match version {
        36 => file!("22.05-v0.0.36"),
        38 => file!("22.05-v0.0.38"),
        40 => file!("24.11-v0.0.40"),
        42 => file!("24.11-v0.0.42"),
        _ => file!("26.05-v0.0.45"),
    };
    let all: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    all.into_iter().map(|(name, capture)| (name, json!([capture["status"], capture["body"]]))).collect()
}

/// Keys and types, with lists shown by their first entry.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        Value::Array(list) => Value::Array(list.first().map(shape).into_iter().collect()),
        Value::Object(map) => {
            let is_left_out = |key: &str| matches!(key, "job_resources" | "steps" | "meta");
            map.iter().filter(|(key, _)| !is_left_out(key)).map(|(key, value)| (key.clone(), shape(value))).collect()
        }
    }
}

/// Where two shapes differ. A list without entries and an unset number go with anything.
fn differences(path: &str, real: &Value, emulated: &Value, found: &mut Vec<String>) {
    match (real, emulated) {
        (Value::Object(real), Value::Object(emulated)) => {
            for key in real.keys().chain(emulated.keys().filter(|key| !real.contains_key(*key))) {
                match (real.get(key), emulated.get(key)) {
                    (Some(one), Some(other)) => differences(&format!("{path}/{key}"), one, other, found),
                    (Some(_), None) => found.push(format!("{path}/{key} is missing")),
                    _ => found.push(format!("{path}/{key} is too much")),
                }
            }
        }
        (Value::Array(real), Value::Array(emulated)) => {
            if let (Some(real), Some(emulated)) = (real.first(), emulated.first()) {
                differences(&format!("{path}/0"), real, emulated, found);
            }
        }
        (Value::String(real), Value::String(emulated)) if real == "null" || emulated == "null" => {}
        (real, emulated) if real == emulated => {}
        _ => found.push(format!("{path}: {real} is {emulated}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_recorded_form() {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut wrong = Vec::new();
    for version in [36, 38, 40, 42, 45] {
        let recorded = recorded(version);
        let options = EmulatorOptions { versions: vec![version], ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, Some(version)).await;
        let job = cluster.submission("while :; do sleep 0.1; done", json!({}));
        let running = cluster.start(&job).await;
        until(&cluster.manager, &running, |seen| {
            matches!(seen, bridge_core::manager::Sighting::Alive(bridge_core::manager::Phase::Running, _)).then_some(())
        })
        .await;
        let held = cluster.manager.submit(&cluster.submission("true", json!({}))).await.unwrap().id;
        let ask = async |method: &str, path: &str, body: Option<Value>, token: &str| {
            let url = format!("{}/{path}", cluster.emulator.versioned_url(version));
            let mut request = client
                .request(method.parse().unwrap(), url)
                .header("X-SLURM-USER-NAME", "alice")
                .header("X-SLURM-USER-TOKEN", token);
            if let Some(body) = body {
                request = request.body(body.to_string());
            }
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap();
            json!([status, serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text))])
        };
        let good = "alice-token";
        let environment = if version <= 38 { json!({"PATH": "/bin"}) } else { json!(["PATH=/bin"]) };
        let description = |more: Value| {
            let mut job = json!({"current_working_directory": "/tmp", "environment": environment, "hold": true});
            job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({"script": "#!/bin/sh\n", "job": job}))
        };
        let questions = [
            ("job-RUNNING", ask("GET", &format!("job/{}", running.id), None, good).await),
            ("job-PENDING-held", ask("GET", &format!("job/{held}"), None, good).await),
            ("get-unknown-id", ask("GET", "job/999999", None, good).await),
            ("get-ping", ask("GET", "ping", None, good).await),
            ("get-nodes", ask("GET", "nodes", None, good).await),
            ("get-partitions", ask("GET", "partitions", None, good).await),
            ("submit-hold", ask("POST", "job/submit", description(json!({})), good).await),
            ("submit-unknown-partition", ask("POST", "job/submit", description(json!({"partition": "x"})), good).await),
            ("submit-unknown-field", ask("POST", "job/submit", description(json!({"nosuchfield": 1})), good).await),
            ("submit-bad-tasks", ask("POST", "job/submit", description(json!({"tasks": "many"})), good).await),
            ("update-hold-true", ask("POST", &format!("job/{held}"), Some(json!({"hold": true})), good).await),
            ("update-unknown-id", ask("POST", "job/999999", Some(json!({"hold": true})), good).await),
            ("delete-unknown-id", ask("DELETE", "job/999999", None, good).await),
            ("delete-pending", ask("DELETE", &format!("job/{held}"), None, good).await),
            ("delete-already-finished", ask("DELETE", &format!("job/{held}"), None, good).await),
            ("auth-expired-jobs", ask("GET", "jobs", None, "old").await),
            ("auth-expired-submit", ask("POST", "job/submit", description(json!({})), "old").await),
            ("jobs-state", if version >= 40 { ask("GET", "jobs/state/", None, good).await } else { Value::Null }),
        ];
        for (name, emulated) in questions {
            let Some(real) = recorded.get(name).filter(|_| !emulated.is_null()) else { continue };
            assert_eq!(real[0], emulated[0], "v0.0.{version} {name}: status; {emulated}");
            // Recorded jobs other than these were thinned out.
            let is_full = matches!(name, "job-RUNNING" | "job-PENDING-held");
            let mut emulated = emulated[1].clone();
            if !is_full && real[1]["jobs"].is_array() && name != "jobs-state" {
                emulated["jobs"] = json!([]);
            }
            let mut found = Vec::new();
            differences("", &shape(&real[1]), &shape(&emulated), &mut found);
            wrong.extend(found.into_iter().map(|difference| format!("v0.0.{version} {name} {difference}")));
        }
        assert_eq!(Hold::release(&cluster.manager, &running).await.unwrap(), bridge_core::manager::HoldAnswer::Done);
    }
    // The texts of single errors differ in which fields they have from call to call on the same server.
    wrong.retain(|difference| !difference.contains("/errors/0/"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
