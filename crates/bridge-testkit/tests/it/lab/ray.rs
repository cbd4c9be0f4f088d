//! Ray's jobs API and its token.

use bridge_testkit::lab::unique;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{SYSTEM_PATIENCE, eventually, http};

#[tokio::test]
async fn a_job_succeeds_with_the_token_and_is_refused_without() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let ray = lab.ray().await.unwrap();
    let jobs = ray.url.join("/api/jobs/").unwrap();
    let id = unique("job");
    let job = json!({
        "submission_id": id,
        "entrypoint": "python -c 'import ray; ray.init(); print(6 * ray.get(ray.remote(lambda: 7).remote()))'",
    });

    let refused = http().post(jobs.clone()).json(&job).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    let refused = http().post(jobs.clone()).bearer_auth("wrong").json(&job).send().await.unwrap();
    assert_eq!(refused.status(), 403);

    let token = ray.token.expose_secret();
    let accepted = http().post(jobs.clone()).bearer_auth(token).json(&job).send().await.unwrap();
    assert_eq!(accepted.status(), 200);
    let ended = eventually("the job to end", SYSTEM_PATIENCE, async || {
        let answer = http().get(jobs.join(&id).unwrap()).bearer_auth(token).send().await.unwrap();
        let job: Value = answer.json().await.unwrap();
        matches!(job["status"].as_str(), Some("SUCCEEDED" | "FAILED" | "STOPPED")).then_some(job)
    })
    .await;
    assert_eq!(ended["status"], "SUCCEEDED", "{ended}");
    let logs = http().get(jobs.join(&format!("{id}/logs")).unwrap()).bearer_auth(token).send().await.unwrap();
    let logs: Value = logs.json().await.unwrap();
    assert!(logs["logs"].as_str().unwrap().lines().any(|line| line == "42"), "{logs}");
}
