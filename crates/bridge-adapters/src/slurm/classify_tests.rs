use super::super::captures;
use super::*;

/// What a recorded answer means, in short.
fn meaning(capture: &captures::Capture) -> String {
    let answer = capture.answer();
    let envelope = answer.json::<Envelope>().ok();
    match trouble(&answer, envelope.as_ref(), capture.elapsed()) {
        None => "fine".to_owned(),
        Some(trouble) => {
            let what = match trouble.what {
                What::NoSuchJob => "no such job".to_owned(),
                What::AlreadyEnded => "already ended".to_owned(),
                What::ExtraRefused => "extra refused".to_owned(),
                What::NoSuchAddress => "no such address".to_owned(),
                What::Other(kind) => format!("{kind:?}"),
            };
            format!("{what}{}", if trouble.surely_not_done { "" } else { "?" })
        }
    }
}

#[test]
fn recorded_answers_are_told_apart() {
    let all = captures::all();
    // The same question to all servers; a question mark says that nobody knows whether it was done.
    let table: &[(&str, [&str; 5])] = &[
        ("submit-ok", ["fine"; 5]),
        ("submit-hold", ["fine"; 5]),
        ("submit-malformed-json", ["Refused"; 5]),
        ("submit-unknown-field", ["Refused", "Refused", "fine", "fine", "fine"]),
        ("submit-unknown-partition", ["Refused"; 5]),
        ("submit-missing-script", ["Refused"; 5]),
        ("submit-no-env", ["Refused", "Refused", "Unreachable", "Unreachable", "Refused"]),
        ("submit-too-many-tasks", ["fine", "fine", "Refused", "Refused", "fine"]),
        ("submit-timelimit-object", ["Refused", "Refused", "fine", "fine", "fine"]),
        ("submit-tag-long-comment", ["Refused"; 5]),
        ("get-unknown-id", ["no such job"; 5]),
        ("update-unknown-id", ["no such job"; 5]),
        ("delete-unknown-id", ["no such job", "no such job", "fine", "fine", "fine"]),
        ("delete-completed", ["fine"; 5]),
        ("delete-running", ["fine"; 5]),
        ("update-hold-false", ["fine"; 5]),
        ("update-hold-true", ["fine"; 5]),
        ("auth-none", ["Credential"; 5]),
        ("auth-expired-jobs", ["Credential?", "Credential?", "Credential", "Credential", "Credential"]),
        ("auth-expired-submit", ["Credential?", "Credential?", "Credential", "Credential", "Credential"]),
        ("auth-bad-signature-partitions", ["Refused", "Credential?", "Credential", "Credential", "Credential"]),
        ("unknown-version", ["no such address"; 5]),
        ("unknown-path", ["no such address"; 5]),
        ("slurmdb-jobs", ["no such address"; 5]),
        ("ctld-down-jobs", ["-", "Unreachable?", "-", "Unreachable", "Unreachable"]),
        ("ctld-down-get-job", ["-", "Unreachable?", "-", "Unreachable?", "Unreachable?"]),
        ("ctld-down-submit", ["-", "Unreachable", "-", "Unreachable", "Unreachable"]),
        ("ctld-down-delete", ["-", "Unreachable", "-", "Unreachable?", "Unreachable?"]),
        ("jobs-update_time-future", ["-", "Protocol", "Refused", "fine", "fine"]),
    ];
    let servers = ["22.05-v0.0.36", "22.05-v0.0.38", "24.11-v0.0.40", "24.11-v0.0.42", "26.05-v0.0.45"];
    let mut wrong = Vec::new();
    for (name, expected) in table {
        for (server, expected) in servers.iter().zip(expected) {
            let found = all[server].get(*name).map_or_else(|| "-".to_owned(), meaning);
            if found != *expected && !(found == "-" && *expected != "-") {
                wrong.push(format!("{server} {name}: {found}, expected {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_submission_that_was_taken_is_called_a_failure_and_none_that_was_not_a_success() {
    for (server, captures) in captures::all() {
        for (name, capture) in captures.iter().filter(|(name, _)| name.starts_with("submit-")) {
            let has_id = capture.body["job_id"].as_i64().is_some();
            let meaning = meaning(capture);
            if has_id {
                assert_eq!(meaning, "fine", "{server} {name}");
            } else if capture.status != 200 {
                assert_ne!(meaning, "fine", "{server} {name}");
            }
        }
    }
}

#[test]
fn a_rejected_token_is_read_again() {
    let all = captures::all();
    let verdict = |server: &str, name: &str| rejects(&all[server][name].answer());
    assert_eq!(verdict("22.05-v0.0.38", "auth-none"), Rejection::Surely);
    assert_eq!(verdict("22.05-v0.0.38", "auth-expired-jobs"), Rejection::Perhaps);
    assert_eq!(verdict("22.05-v0.0.36", "auth-expired-jobs"), Rejection::Perhaps);
    assert_eq!(verdict("22.05-v0.0.38", "auth-expired-submit"), Rejection::Perhaps);
    assert_eq!(verdict("26.05-v0.0.45", "auth-expired-submit"), Rejection::Surely);
    assert_eq!(verdict("22.05-v0.0.38", "get-unknown-id"), Rejection::No);
    assert_eq!(verdict("22.05-v0.0.38", "submit-unknown-partition"), Rejection::No);
    assert_eq!(verdict("24.11-v0.0.42", "submit-ok"), Rejection::No);
}

#[test]
fn a_gateways_own_words_are_no_answer_of_slurm() {
    let meaning = |status: u16, body: &str| {
        let answer = Answer::recorded(status, body.to_owned());
        let envelope = answer.json::<Envelope>().ok();
        trouble(&answer, envelope.as_ref(), Duration::ZERO).map(|trouble| (trouble.kind(), trouble.surely_not_done))
    };
    assert_eq!(meaning(502, "<html>bad gateway</html>"), Some((ErrorKind::Unreachable, false)));
    assert_eq!(meaning(500, "oops"), Some((ErrorKind::Unreachable, false)));
    assert_eq!(meaning(429, "slow down"), Some((ErrorKind::RateLimited, true)));
    assert_eq!(meaning(403, "no"), Some((ErrorKind::Credential, true)));
    assert_eq!(meaning(413, "too large"), Some((ErrorKind::Refused, true)));
    assert_eq!(meaning(200, "<html>log in</html>"), Some((ErrorKind::Protocol, false)));
    assert_eq!(meaning(200, r#"{"errors": []}"#), None);
    assert_eq!(
        meaning(200, r#"{"errors": [{"error": "no", "error_number": 2002}]}"#),
        Some((ErrorKind::Refused, true))
    );
}

/// As 22.05 and as newer servers write it; its text is that of Slurm's own table of errors.
#[test]
fn a_limit_of_jobs_is_waited_for() {
    const TEXT: &str = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";
    let seconds = Duration::from_millis(5);
    let of = |status: u16, body: serde_json::Value| {
        let answer = Answer::recorded(status, body.to_string());
        trouble(&answer, answer.json::<Envelope>().ok().as_ref(), seconds)
    };
    let old = serde_json::json!({"errors": [{"error_code": 2050, "error": TEXT}]});
    let new =
        serde_json::json!({"errors": [{"description": "Job submission failed", "error_number": 2050, "error": TEXT}]});
    for (status, body) in [(500, old), (500, new.clone()), (422, new)] {
        let Some(trouble) = of(status, body) else { panic!("it was not taken") };
        assert_eq!((trouble.kind(), trouble.surely_not_done), (ErrorKind::RateLimited, true));
        assert!(!trouble.kind().is_final());
        assert!(trouble.message.contains("job submit limit") && trouble.message.contains("change it"), "{trouble:?}");
    }
    let taken = serde_json::json!({"job_id": 7, "errors": [{"error_code": 2050, "error": TEXT}]});
    assert_eq!(of(200, taken), None, "it was taken and waits");
}

#[test]
fn a_job_with_an_id_was_taken_whatever_else_is_said() {
    let of = |status: u16, body: serde_json::Value| {
        let answer = Answer::recorded(status, body.to_string());
        trouble(&answer, answer.json::<Envelope>().ok().as_ref(), Duration::ZERO)
    };
    for number in [2999, 9999, 1007, -1, 123_456] {
        let errors = serde_json::json!([{"error_number": number, "error": "something new"}]);
        assert_eq!(of(200, serde_json::json!({"job_id": 7, "errors": errors})), None, "{number}");
        for id in [serde_json::json!(null), serde_json::json!(0), serde_json::json!("")] {
            assert!(of(200, serde_json::json!({"job_id": id, "errors": errors})).is_some(), "{number} {id}");
        }
        assert!(of(500, serde_json::json!({"job_id": 7, "errors": errors})).is_some(), "{number}");
    }
    let ended = serde_json::json!({"job_id": 7, "errors": [{"error_number": 2021, "error": "already completing"}]});
    assert!(of(200, ended).is_some_and(|trouble| trouble.what == What::AlreadyEnded), "an answer to an update");
}
