use super::*;
use bridge_core::ids::SubmitToken;
use serde_json::json;

fn submission(script: Script) -> Submission {
    Submission {
        token: SubmitToken::derive("map", 1),
        name: "hello".to_owned(),
        script,
        metadata: String::new(),
        parameters: String::new(),
        properties: BTreeMap::new(),
        inputs: Vec::new(),
    }
}

fn try_launch(submission: &Submission) -> Result<Launch, String> {
    let config = Config { grace: Duration::from_secs(3), ..Config::new("/root-of-jobs") };
    let folder = JobFolder::new(&config.root, submission.token.as_str()).unwrap();
    launch(&config, &folder, submission, "submit").map_err(|error| error.to_string())
}

fn with_properties(properties: Value) -> Submission {
    let Value::Object(map) = properties else { panic!("not an object") };
    Submission { properties: map.into_iter().collect(), ..submission(Script::Text("true".to_owned())) }
}

#[test]
fn a_script_runs_by_its_interpreter_in_its_own_folder() {
    let launch = try_launch(&submission(Script::Text("#!/bin/sh -e \necho".to_owned()))).unwrap();
    assert_eq!(launch.job.command, ["/bin/sh", "-e", "/root-of-jobs/bridge-map-1/job/script"]);
    assert_eq!(launch.job.folder, Path::new("/root-of-jobs/bridge-map-1/work"));
    assert_eq!(launch.job.stdout, Path::new("/root-of-jobs/bridge-map-1/stdout"));
    assert_eq!(launch.job.environment, BTreeMap::from([("JOBNAME".to_owned(), "hello".to_owned())]));
    assert_eq!((launch.job.limit_millis, launch.job.grace_millis), (None, 3000));
    let launch = try_launch(&submission(Script::Text("echo".to_owned()))).unwrap();
    assert_eq!(launch.job.command[0], "/bin/sh");
}

#[test]
fn parameters_are_arguments_in_both_spellings() {
    let with = |parameters: &str| {
        let job = Submission { parameters: parameters.to_owned(), ..submission(Script::Remote("/bin/sh".to_owned())) };
        try_launch(&job).map(|launch| launch.job.command[1..].to_vec())
    };
    assert_eq!(with("").unwrap(), Vec::<String>::new());
    assert_eq!(with(" --steps , 10, a b").unwrap(), ["--steps", "10", "a b"]);
    assert_eq!(with("[\"a,b\", 10, true]").unwrap(), ["a,b", "10", "true"]);
    assert!(with("{\"steps\": 10}").unwrap_err().contains("write a list"));
    assert!(with("[1, [2]]").unwrap_err().contains("jobparameters[1]"));
    assert!(with("[1,").unwrap_err().contains("JSON list"));
}

#[test]
fn properties_mean_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let job = with_properties(json!({
        "currentWorkingDir": folder.path(), "OutputFileName": "out.txt", "ErrorFileName": "/elsewhere/err.txt",
        "envPath": "/opt/bin", "envLibPath": "/opt/lib", "RunLimitHour": "1", "RunLimitMinute": 30, "Queue": "fast",
    }));
    let launch = try_launch(&Submission { inputs: vec!["a.txt".to_owned()], ..job }).unwrap();
    assert_eq!(launch.job.stdout, folder.path().join("out.txt"));
    assert_eq!(launch.job.stderr, Path::new("/elsewhere/err.txt"));
    assert_eq!(launch.job.environment["PATH"], "/opt/bin");
    assert_eq!(launch.job.environment["LD_LIBRARY_PATH"], "/opt/lib");
    assert_eq!(launch.job.limit_millis, Some(90 * 60 * 1000));
    assert_eq!(launch.copy_inputs_to.as_deref(), Some(folder.path()));
    assert!(launch.notes[0].contains("\"fast\""), "{:?}", launch.notes);
    let short = try_launch(&with_properties(json!({"runlimit": 20, "Queue": ""}))).unwrap();
    assert_eq!((short.job.limit_millis, short.notes), (Some(20 * 60 * 1000), vec![]));
}

#[test]
fn what_cannot_be_run_is_refused_with_what_to_write() {
    let cases = [
        (
            with_properties(json!({"runLimit": 1})),
            "jobproperties.runLimit is unknown to local jobs; did you mean \"runlimit\"?",
        ),
        (with_properties(json!({"Tasks": 1})), "they know: currentWorkingDir"),
        (with_properties(json!({"runlimit": "soon"})), "jobproperties.runlimit is \"soon\"; write a number"),
        (with_properties(json!({"runlimit": -1})), "write a number"),
        (with_properties(json!({"runlimit": 1, "RunLimitHour": 1})), "write one of the two"),
        (with_properties(json!({"OutputFileName": ["a"]})), "jobproperties.OutputFileName is [\"a\"]; write a text"),
        (with_properties(json!({"currentWorkingDir": "here"})), "write the absolute path of a folder"),
        (submission(Script::Text(" \n".to_owned())), "jobscript is empty"),
        (submission(Script::Text("#!/no/such/shell\n".to_owned())), "\"/no/such/shell\", which is not on this machine"),
        (submission(Script::Remote("run.sh".to_owned())), "write its absolute path"),
        (submission(Script::Remote("/no/such/file".to_owned())), "which cannot be read"),
        (submission(Script::Remote("/etc/passwd".to_owned())), "chmod +x"),
        (submission(Script::Remote("/etc".to_owned())), "which is not a file"),
        (
            Submission { inputs: vec!["../x".to_owned()], ..submission(Script::Text("true".to_owned())) },
            "leads out of the job's folder",
        ),
    ];
    for (job, expected) in cases {
        let message = try_launch(&job).unwrap_err();
        assert!(message.contains(expected), "{message}\n  lacks: {expected}");
    }
}

#[test]
fn file_names_stay_inside() {
    for name in ["a", "a/b.txt", "ü b №.txt", "..a", ".hidden"] {
        assert_eq!(check_name(name), Ok(()), "{name:?}");
    }
    for name in ["", ".", "..", "/a", "../a", "a/../../b", "a/..", "a/", "a\0b", "./a"] {
        assert!(check_name(name).is_err(), "{name:?}");
    }
}

#[test]
fn every_end_has_its_outcome() {
    let job = try_launch(&with_properties(json!({"runlimit": 1}))).unwrap().job;
    let end = |exit_code, signal, cause| {
        let ended = "2026-01-02T03:04:05Z".parse().unwrap();
        let end = EndFile { exit_code, signal, ended, cause, message: "no such file".to_owned() };
        let outcome = outcome(&end, &job);
        (outcome.verdict, outcome.reason, outcome.message)
    };
    let expect = |verdict, reason: &str, message: &str| (verdict, reason.to_owned(), message.to_owned());
    assert_eq!(end(Some(0), None, EndCause::Itself), expect(Verdict::Succeeded, "COMPLETED", ""));
    assert_eq!(end(Some(3), None, EndCause::Itself), expect(Verdict::Failed, "FAILED", "exit code 3"));
    assert_eq!(
        end(None, Some(11), EndCause::Itself),
        expect(Verdict::Failed, "SIGNALED", "ended by signal 11 (SIGSEGV)")
    );
    assert_eq!(end(Some(1), None, EndCause::Cancelled), expect(Verdict::Cancelled, "CANCELLED", "exit code 1"));
    assert_eq!(
        end(None, Some(9), EndCause::TimedOut),
        expect(Verdict::Failed, "TIMEOUT", "it ran longer than its limit of 60s")
    );
    assert_eq!(end(None, None, EndCause::NotStarted), expect(Verdict::Failed, "NOT_STARTED", "no such file"));
    assert_eq!(lost(false).verdict, Verdict::Failed);
    assert_eq!(lost(true).verdict, Verdict::Cancelled);
}
