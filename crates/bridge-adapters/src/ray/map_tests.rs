//! What Ray's words mean, in tables.

use bridge_core::ids::SubmitToken;
use serde_json::{Value, json};

use super::*;

/// The details of a capture, as a real Ray sent them.
fn capture(name: &str) -> JobDetails {
    let path =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/ray/testdata").join(format!("{name}.json"));
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    serde_json::from_value(value["response"]["body"].clone()).unwrap()
}

fn ended(name: &str, cancelling: bool) -> (Outcome, Facts) {
    match sighting(&capture(name), cancelling) {
        Sighting::Ended(outcome, facts) => (outcome, facts),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn each_end_has_its_verdict() {
    let table = [
        ("06-get-SUCCEEDED", false, Verdict::Succeeded, Some(0), "SUCCEEDED"),
        ("06-get-SUCCEEDED", true, Verdict::Succeeded, Some(0), "SUCCEEDED"),
        ("11-get-STOPPED", true, Verdict::Cancelled, None, "STOPPED"),
        ("11-get-STOPPED", false, Verdict::Cancelled, None, "STOPPED"),
        ("13-get-FAILED", false, Verdict::Failed, Some(3), "JOB_ENTRYPOINT_COMMAND_ERROR"),
        ("13-get-FAILED", true, Verdict::Failed, Some(3), "JOB_ENTRYPOINT_COMMAND_ERROR"),
        ("33-get-bad-renv", false, Verdict::Failed, None, "JOB_SUPERVISOR_ACTOR_START_FAILURE"),
        ("33-get-bad-renv2", false, Verdict::Failed, None, "RUNTIME_ENV_SETUP_FAILURE"),
        ("56-get-pip-bad", false, Verdict::Failed, None, "RUNTIME_ENV_SETUP_FAILURE"),
        ("92-get-pend-nostop-timeout", false, Verdict::Failed, None, "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"),
        ("92-get-pend-stop-timeout", true, Verdict::Cancelled, None, "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"),
    ];
    for (name, cancelling, verdict, exit_code, reason) in table {
        let (outcome, facts) = ended(name, cancelling);
        assert_eq!(
            (outcome.verdict, outcome.exit_code, outcome.reason.as_str()),
            (verdict, exit_code, reason),
            "{name}"
        );
        assert!(facts.ended.is_some(), "{name}");
        assert!(outcome.message.len() <= LONGEST_MESSAGE + 50, "{name}: {}", outcome.message.len());
    }
}

#[test]
fn messages_say_what_went_wrong_and_where() {
    let table = [
        ("13-get-FAILED", &["Job entrypoint command failed with exit code 3; its last words:\n", "about-to-fail"][..]),
        ("56-get-pip-bad", &["runtime_env setup failed", "No matching distribution found for toolz==99.99"]),
        ("51-get-notzip", &["runtime_env setup failed", "zipfile.BadZipFile: File is not a zip file"]),
        ("33-get-bad-renv", &["'/nonexistent is not a valid path.'"]),
        ("65-get-raydriver", &["exit code 1", "ModuleNotFoundError: No module named 'ray'"]),
        ("92-get-pend-nostop-timeout", &["RAY_JOB_START_TIMEOUT_SECONDS"]),
        ("11-get-STOPPED", &["Job was intentionally stopped."]),
    ];
    for (name, parts) in table {
        let message = ended(name, false).0.message;
        for part in parts {
            assert!(message.contains(part), "{name} lacks {part:?}: {message}");
        }
    }
    assert_eq!(ended("92-get-pend-stop-timeout", true).0.message, "stopped before it had started");
}

#[test]
fn times_and_places_are_those_of_the_job() {
    let (_, facts) = ended("06-get-SUCCEEDED", false);
    assert_eq!(facts.started.unwrap().to_string(), "2026-11-15T07:53:51.931Z");
    assert_eq!(facts.ended.unwrap().to_string(), "2026-11-15T07:54:01.677Z");
    assert_eq!(facts.node.as_deref(), Some("192.0.2.2"));
    let (_, never) = ended("56-get-pip-bad", false);
    assert_eq!((never.started, never.node), (None, None), "it never came to a node");
}

#[test]
fn a_waiting_job_says_what_for() {
    let table = [
        ("04-get-pending", false, Some("RuntimeEnvironment")),
        ("33-get-no-res", false, Some("Resources")),
        ("63-get-stopped-pending", true, Some("Resources")),
    ];
    for (name, cancelling, reason) in table {
        let Sighting::Alive(Phase::Queued { reason: seen }, facts) = sighting(&capture(name), cancelling) else {
            panic!("{name} should wait")
        };
        assert_eq!(seen.as_deref(), reason, "{name}");
        assert_eq!(facts.started, None, "{name} has not started");
        assert_eq!(facts.note.is_some_and(|note| note.contains("stays PENDING")), cancelling, "{name}");
    }
    assert!(matches!(sighting(&capture("06-get-RUNNING"), true), Sighting::Alive(Phase::Running, _)));
}

#[test]
fn words_and_numbers_that_ray_never_said_do_no_harm() {
    let job = |value: Value| serde_json::from_value::<JobDetails>(value).unwrap();
    let odd = job(json!({"submission_id": "x", "status": "HIBERNATING", "start_time": i64::MAX, "end_time": -1}));
    let Sighting::Alive(Phase::Running, facts) = sighting(&odd, false) else { panic!("it is there") };
    assert!(facts.note.unwrap().contains("HIBERNATING"));
    let killed = job(
        json!({"submission_id": "x", "status": "FAILED", "driver_exit_code": -9, "end_time": 1, "driver_agent_http_address": "no url"}),
    );
    let Sighting::Ended(outcome, _) = sighting(&killed, false) else { panic!("it ended") };
    assert_eq!((outcome.exit_code, outcome.signal, outcome.reason.as_str()), (None, Some(9), "FAILED"));
    assert!(
        serde_json::from_value::<JobDetails>(
            json!({"submission_id": "x", "status": "FAILED", "driver_exit_code": i64::MIN})
        )
        .is_err()
    );
}

#[test]
fn codes_of_a_job_that_moves_its_own_data_have_the_words_that_slurm_has_for_them() {
    let end = |metadata: Value, code: i32| {
        let message = format!("Job entrypoint command failed with exit code {code}, last available logs (truncated to");
        let job = json!({
            "submission_id": "x", "status": "FAILED", "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "message": message,
            "driver_exit_code": code, "metadata": metadata,
        });
        match sighting(&serde_json::from_value(job).unwrap(), false) {
            Sighting::Ended(outcome, _) => outcome,
            other => panic!("{other:?}"),
        }
    };
    let carrying = json!({"bridge_job": "x", "bridge_data": "carried"});
    let expired = end(carrying.clone(), 113);
    assert_eq!((expired.reason.as_str(), expired.exit_code), ("StageInExpired", Some(113)));
    assert!(
        expired.message.starts_with("the URLs for its data ended before the job started; Job entry"),
        "{expired:?}"
    );
    assert_eq!(end(carrying.clone(), 115).reason, "StageInNoPlace");
    // A job of Ray never ends with the codes of a node without clients or inputs; those are the user's.
    for code in [3, 112, 114] {
        assert_eq!(end(carrying.clone(), code).reason, "JOB_ENTRYPOINT_COMMAND_ERROR", "{code}");
    }
    for others in [json!({"bridge_job": "x"}), json!({"bridge_data": "mine"}), json!({"bridge_data": 1}), Value::Null] {
        assert_eq!(end(others, 113).reason, "JOB_ENTRYPOINT_COMMAND_ERROR");
    }
}

#[test]
fn a_submission_becomes_what_ray_wants() {
    let job = Submission {
        token: SubmitToken::derive("7c1e", 1),
        name: "counter".to_owned(),
        script: Script::Text("import ray".to_owned()),
        metadata: r#"{"pip": {"emoji": "2.14.1"}, "env": {"LEVEL": "3", "API_TOKEN": "x"}}"#.to_owned(),
        parameters: r#"{"iterations": "15"}"#.to_owned(),
        properties: [("entrypoint_num_cpus".to_owned(), json!("1")), ("Queue".to_owned(), json!("x"))].into(),
        inputs: vec!["data.csv".to_owned()],
    };
    let launch = launch(&job, "submit").unwrap();
    assert_eq!(
        serde_json::to_value(&launch.request).unwrap(),
        json!({
            "entrypoint": "python script.py --kwargs iterations=15",
            "submission_id": "bridge-7c1e-1",
            "runtime_env": {"pip": ["emoji==2.14.1"], "env_vars": {"LEVEL": "3", "API_TOKEN": "x"}},
            "metadata": {"bridge_job": "counter"},
            "entrypoint_num_cpus": 1,
        })
    );
    assert!(launch.packaged);
    assert!(launch.notes.iter().any(|note| note.contains("API_TOKEN")), "{:?}", launch.notes);
    let taken = [("metadata".to_owned(), json!({"bridge_data": "mine"}))].into();
    let error = super::launch(&Submission { properties: taken, ..job.clone() }, "submit").unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.to_string().contains("metadata.bridge_data"), "{error}");
    let plain = Submission { script: Script::Remote("ls".to_owned()), inputs: Vec::new(), ..job.clone() };
    assert!(!super::launch(&plain, "submit").unwrap().packaged);
    let error = super::launch(&Submission { inputs: vec!["script.py".to_owned()], ..job }, "submit").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
}

#[test]
fn load_adds_up_whatever_ray_says() {
    let report = |value: Value| load(&serde_json::from_value(value).unwrap());
    let busy = report(json!({
        "usage": {"CPU": [2.5, 4.0]},
        "resourceDemand": [[{"CPU": 1.0}, 3], [{"GPU": 1.0}, 2]],
        "usageByNode": {"a": {"CPU": [2.5, 4.0]}, "b": {"CPU": [0.0, 0.0]}},
    }));
    assert_eq!((busy.cpus.idle, busy.cpus.allocated, busy.cpus.total), (1, 3, 4));
    assert_eq!((busy.nodes.idle, busy.nodes.allocated, busy.nodes.total, busy.pending_jobs), (1, 1, 2, 5));
    let odd = report(json!({"usage": {"CPU": [-1.0, -5.0]}}));
    assert_eq!((odd.cpus.idle, odd.cpus.allocated, odd.cpus.total), (0, 0, 0));
}
