//! Slurm over HTTP, its accounting, its users.

use bridge_testkit::lab::Slurm;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{SYSTEM_PATIENCE, eventually, http};

/// The controller's number for "no such job".
const NO_SUCH_JOB: i64 = 2017;

#[tokio::test]
async fn a_job_completes_is_purged_and_is_still_found_in_accounting() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let slurm = lab.slurm_purge().await.unwrap();
    let token = slurm.token(86_400).await.unwrap();
    let ask = async |path: String, body: Option<Value>| ask(&slurm, token.expose_secret(), &path, body).await.1;

    let output = slurm.home.join("job.out");
    let job = json!({
        "script": "#!/bin/sh\nid -un\npwd\n",
        "job": {
            "name": "lab",
            "current_working_directory": slurm.home,
            "standard_output": output,
            "environment": {"PATH": "/usr/bin:/bin"},
        },
    });
    let answer = ask("/slurm/v0.0.38/job/submit".to_owned(), Some(job)).await;
    let id = answer["job_id"].as_i64().unwrap_or_else(|| panic!("{answer}"));

    eventually("the controller to forget the job", SYSTEM_PATIENCE, async || {
        let answer = ask(format!("/slurm/v0.0.38/job/{id}"), None).await;
        let errors = answer["errors"].as_array()?;
        errors.iter().find(|error| error["error_number"] == NO_SUCH_JOB).map(drop)
    })
    .await;
    // slurmctld may forget a job before slurmdbd has written its end down.
    let accounted = eventually("the end of the job in accounting", SYSTEM_PATIENCE, async || {
        let answer = ask(format!("/slurmdb/v0.0.38/job/{id}"), None).await;
        let job = answer["jobs"].get(0)?;
        (!matches!(job["state"]["current"].as_str()?, "PENDING" | "RUNNING")).then(|| job.clone())
    })
    .await;
    assert_eq!(accounted["state"]["current"], "COMPLETED");
    assert_eq!(accounted["user"], slurm.user.as_str());
    let written = std::fs::read_to_string(&output).unwrap();
    assert_eq!(written, format!("{}\n{}\n", slurm.user, slurm.home.display()));
}

#[tokio::test]
async fn a_request_without_a_valid_token_is_refused() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let slurm = lab.slurm().await.unwrap();
    let token = slurm.token(86_400).await.unwrap();
    let (good, answer) = ask(&slurm, token.expose_secret(), "/slurm/v0.0.38/ping", None).await;
    assert_eq!(good, 200, "{answer}");
    // 22.05 calls a bad token an internal error.
    let (bad, answer) = ask(&slurm, "not a token", "/slurm/v0.0.38/ping", None).await;
    assert_eq!(bad, 500, "{answer}");
    let none = http().get(slurm.url.join("/slurm/v0.0.38/ping").unwrap()).send().await.unwrap();
    assert_eq!(none.status(), 401);
}

#[tokio::test]
async fn the_user_submits_over_ssh() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let slurm = lab.slurm().await.unwrap();
    let (host, port) = slurm.ssh.rsplit_once(':').unwrap();
    let known_hosts = format!("UserKnownHostsFile={}", slurm.ssh_known_hosts.display());
    let output = tokio::process::Command::new("ssh")
        .args(["-n", "-oBatchMode=yes", "-o", &known_hosts, "-p", port, "-l", &slurm.user, "-i"])
        .arg(&slurm.ssh_key)
        .args([host, "sbatch --parsable --wrap true && squeue --noheader --format %u"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.lines().next().unwrap().parse::<u32>().is_ok(), "{text}");
}

/// Asks slurmrestd as the user; posts if there is a body.
async fn ask(slurm: &Slurm, token: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let url = slurm.url.join(path).unwrap();
    let request = match body {
        Some(body) => http().post(url).json(&body),
        None => http().get(url),
    };
    let answer =
        request.header("X-SLURM-USER-NAME", &slurm.user).header("X-SLURM-USER-TOKEN", token).send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
