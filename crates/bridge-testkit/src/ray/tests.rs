//! The emulator against what a real Ray sent: the same status, the same fields, each of the same type.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

fn capture(name: &str) -> (u64, Value) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../bridge-adapters/src/ray/testdata");
    let value: Value = serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.json"))).unwrap()).unwrap();
    (value["response"]["status"].as_u64().unwrap(), value["response"]["body"].clone())
}

/// Every field that the emulator sends is one of Ray's, of the same type; `whole`: and none is missing.
fn assert_alike(name: &str, seen: &Value, real: &Value, whole: bool) {
    let kind = std::mem::discriminant;
    match (seen, real) {
        (Value::Object(seen), Value::Object(real)) => {
            for (key, value) in seen {
                let theirs = real.get(key).unwrap_or_else(|| panic!("{name}: Ray sends no {key}"));
                let free = matches!(key.as_str(), "metadata" | "runtime_env") || value.is_null() || theirs.is_null();
                assert!(free || kind(value) == kind(theirs), "{name}: {key} is {value}, and {theirs} of Ray");
                if !free && !matches!(key.as_str(), "usage" | "usageByNode" | "activeNodes") {
                    assert_alike(name, value, theirs, false);
                }
            }
            let missing: Vec<&String> = real.keys().filter(|key| whole && !seen.contains_key(*key)).collect();
            assert!(missing.is_empty(), "{name}: {missing:?} are missing");
        }
        (Value::Array(seen), Value::Array(real)) => {
            for (seen, real) in seen.iter().zip(real) {
                assert_alike(name, seen, real, whole);
            }
        }
        _ => assert_eq!(kind(seen), kind(real), "{name}: {seen}, and {real} of Ray"),
    }
}

struct Asker {
    server: RayServer,
    http: reqwest::Client,
}

impl Asker {
    async fn new(options: Options) -> Self {
        let server = RayServer::start(options, FaultPlan::new()).await.unwrap();
        Self { server, http: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u64, Value) {
        let method: reqwest::Method = method.parse().unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.server.url()));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = u64::from(answer.status().as_u16());
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn check(&self, name: &str, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, real) = capture(name);
        let (seen_status, seen) = self.ask(method, path, body).await;
        assert_eq!(seen_status, status, "{name}: {seen}");
        assert_alike(name, &seen, &real, true);
        seen
    }

    async fn ended(&self, id: &str) -> Value {
        let deadline = tokio::time::Instant::now() + Duration::from_mins(5);
        loop {
            let (_, job) = self.ask("GET", &format!("/api/jobs/{id}"), None).await;
            if !job["end_time"].is_null() {
                return job;
            }
            assert!(tokio::time::Instant::now() < deadline, "{id} does not end: {job}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn submit(id: &str, entrypoint: &str) -> Value {
    let environment = json!({"env_vars": {"FOO": "bar"}});
    json!({"submission_id": id, "entrypoint": entrypoint, "metadata": {"owner": "x"}, "runtime_env": environment})
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_shape_of_rays() {
    let ray = Asker::new(Options::default()).await;
    ray.check("01-version", "GET", "/api/version", None).await;
    ray.check("80-timezone", "GET", "/timezone", None).await;
    ray.check("82-auth-mode", "GET", "/api/authentication_mode", None).await;
    ray.check("03-submit-with-id", "POST", "/api/jobs/", Some(submit("ok", "echo \"X= $FOO\""))).await;
    assert_alike("06-get-SUCCEEDED", &ray.ended("ok").await, &capture("06-get-SUCCEEDED").1, true);
    let logs = ray.check("07-logs", "GET", "/api/jobs/ok/logs", None).await;
    let logs = logs["logs"].as_str().unwrap();
    assert!(logs.contains("Running entrypoint for job ok: echo") && logs.ends_with("X= bar\n"), "{logs}");

    let twice = ray.check("05-submit-dup-id", "POST", "/api/jobs/", Some(submit("ok", "true"))).await;
    assert!(twice.as_str().unwrap().contains("Job with submission_id ok already exists."), "{twice}");
    ray.check("03-submit-with-id", "POST", "/api/jobs/", Some(submit("bad", "echo about-to-fail; exit 3"))).await;
    let bad = ray.ended("bad").await;
    assert_alike("13-get-FAILED", &bad, &capture("13-get-FAILED").1, true);
    assert_eq!((&bad["driver_exit_code"], &bad["error_type"]), (&json!(3), &json!("JOB_ENTRYPOINT_COMMAND_ERROR")));
    ray.check("14-list", "GET", "/api/jobs/", None).await;

    ray.check(
        "31-no-resources",
        "POST",
        "/api/jobs/",
        Some(json!({"entrypoint": "true", "submission_id": "big", "entrypoint_num_cpus": 64})),
    )
    .await;
    ray.check("33-get-no-res", "GET", "/api/jobs/big", None).await;
    ray.check("62-stop-PENDING", "POST", "/api/jobs/big/stop", None).await;
    ray.check("70-cluster_status", "GET", "/api/cluster_status", None).await;
    ray.server.give_up_waiting();
    assert_alike("92-get-pend-stop-timeout", &ray.ended("big").await, &capture("92-get-pend-stop-timeout").1, true);
    let late = ray.check("12-stop-already-stopped", "POST", "/api/jobs/big/stop", None).await;
    assert_eq!(late, json!({"stopped": false}));

    ray.check("30-bad-runtimeenv-uri", "POST", "/api/jobs/", Some(json!({"entrypoint": "true", "submission_id": "env", "runtime_env": {"working_dir": "gcs://_ray_pkg_0.zip"}}))).await;
    assert_alike("33-get-bad-renv2", &ray.ended("env").await, &capture("33-get-bad-renv2").1, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_answered_as_ray_does() {
    let ray = Asker::new(Options { token: Some("right".to_owned()), ..Options::default() }).await;
    ray.check("auth-01-no-token", "GET", "/api/version", None).await;
    ray.check("auth-06-auth-mode", "GET", "/api/authentication_mode", None).await;
    let wrong = ray.http.get(format!("{}/api/version", ray.server.url())).bearer_auth("wrong").send().await.unwrap();
    assert_eq!(u64::from(wrong.status().as_u16()), capture("auth-02-bad-token").0);
    ray.server.set_token(None);
    for (name, method, path, body) in [
        ("20-unknown-get", "GET", "/api/jobs/nope", None),
        ("21-unknown-logs", "GET", "/api/jobs/nope/logs", None),
        ("22-unknown-stop", "POST", "/api/jobs/nope/stop", None),
        ("23-bad-empty-body", "POST", "/api/jobs/", None),
        ("25-bad-no-entrypoint", "POST", "/api/jobs/", Some(json!({"submission_id": "x"}))),
        ("26-bad-unknown-field", "POST", "/api/jobs/", Some(json!({"entrypoint": "echo", "foo": 1}))),
        ("27-bad-type", "POST", "/api/jobs/", Some(json!({"entrypoint": 5}))),
        ("28-bad-metadata-type", "POST", "/api/jobs/", Some(json!({"entrypoint": "echo", "metadata": {"a": 1}}))),
        ("32-no-trailing-slash", "POST", "/api/jobs", Some(json!({"entrypoint": "true"}))),
        ("40-pkg-get-absent", "GET", "/api/packages/gcs/_ray_pkg_b8f2406555d14c0a4a2cc363159e6d1a.zip", None),
    ] {
        let seen = ray.check(name, method, path, body).await;
        let last = |text: &Value| text.as_str().unwrap().trim().lines().last().unwrap().to_owned();
        let real = capture(name).1;
        assert_eq!(last(&seen), last(&real), "{name}");
    }
    let browser =
        ray.http.post(format!("{}/api/jobs/", ray.server.url())).header("origin", "http://x").send().await.unwrap();
    assert_eq!(u64::from(browser.status().as_u16()), capture("85-browser-post-origin").0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_started_again_knows_nothing() {
    let ray = Asker::new(Options::default()).await;
    ray.ask("POST", "/api/jobs/", Some(submit("job", "sleep 60"))).await;
    let (_, before) = ray.ask("GET", "/api/version", None).await;
    ray.server.restart();
    ray.check("90-get-after-head-restart", "GET", "/api/jobs/job", None).await;
    let (_, after) = ray.ask("GET", "/api/version", None).await;
    assert_ne!(before["session_name"], after["session_name"]);
}
