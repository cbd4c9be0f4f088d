//! What the program prints: shapes that other programs rely on.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Bench, Done};

const JOB_FIELDS: [&str; 16] = [
    "attempt",
    "completed",
    "ended",
    "exitCode",
    "jobId",
    "manager",
    "message",
    "name",
    "namespace",
    "processExitCode",
    "reason",
    "run",
    "started",
    "status",
    "submitted",
    "url",
];

fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn run_writes_one_object_a_line() {
    let bench = Bench::new();
    bench.job("sample", "echo out\necho err >&2\nprintf 'no newline'\nexit 3");
    let done = bench.bridge(&["run", "-o", "json", "sample.yaml"]).ends(3);
    assert_eq!(done.err, "");
    let events: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        event["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        match event["event"].as_str().unwrap() {
            "status" | "end" => assert_eq!(fields(&event["job"]), JOB_FIELDS),
            "output" => assert_eq!(fields(event), ["event", "name", "namespace", "stream", "text", "time"]),
            other => panic!("{other}"),
        }
    }
    let output: Vec<(&str, &str)> = events
        .iter()
        .filter(|event| event["event"] == "output")
        .map(|event| (event["stream"].as_str().unwrap(), event["text"].as_str().unwrap()))
        .collect();
    assert_eq!(output.iter().filter(|(stream, _)| *stream == "stdout").count(), 2);
    assert!(output.contains(&("stdout", "out")) && output.contains(&("stdout", "no newline")));
    assert!(output.contains(&("stderr", "err")));
    let end = events.last().unwrap();
    assert_eq!(
        (&end["event"], &end["job"]["status"], &end["job"]["exitCode"]),
        (&"end".into(), &"FAILED".into(), &3.into())
    );
    assert_eq!(end["job"]["processExitCode"], 3);
}

#[test]
fn list_and_plan_write_one_object() {
    let bench = Bench::new();
    assert_eq!(bench.bridge(&["list"]).ends(0).out, "no jobs\n");
    bench.job("sample", "echo hi");
    let plan: Value = serde_json::from_str(&bench.bridge(&["plan", "-o", "json", "sample.yaml"]).ends(0).out).unwrap();
    assert_eq!(
        fields(&plan["jobs"][0]),
        [
            "body",
            "brings",
            "manager",
            "name",
            "namespace",
            "notes",
            "pollSeconds",
            "request",
            "secrets",
            "sends",
            "url"
        ]
    );
    assert!(!bench.state().exists());
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    let list: Value = serde_json::from_str(&bench.bridge(&["list", "-o", "json"]).ends(0).out).unwrap();
    let mut expected = JOB_FIELDS.to_vec();
    expected.push("watched");
    assert_eq!(fields(&list["jobs"][0]), expected);
    assert_eq!((&list["jobs"][0]["status"], &list["jobs"][0]["watched"]), (&"DONE".into(), &false.into()));
}

#[test]
fn a_plan_shows_the_request_and_sends_nothing() {
    let bench = Bench::new();
    bench.job("sample", "echo ran >> $D/ran");
    let done = bench.bridge(&["plan", "sample.yaml"]).ends(0);
    for part in
        ["sample\n", "  manager   local\n", "  url       local:\n", "  request   /bin/sh ", "    echo ran >> $D/ran\n"]
    {
        assert!(done.out.contains(part), "{part}\n{}", done.out);
    }
    assert!(!bench.path("ran").exists() && !bench.state().exists());
}

#[test]
fn files_come_from_standard_input_as_well() {
    let bench = Bench::new();
    let mut child = bench
        .command(&["run", "-q", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bench.yaml("sample", "echo piped", "").as_bytes()).unwrap();
    assert_eq!(Done::of(&child.wait_with_output().unwrap()).ends(0).out, "piped\n");
}

#[test]
fn an_old_group_is_taken_and_said() {
    let bench = Bench::new();
    let text = bench.yaml("sample", "true", "").replace("bridgejob.ibm.com", "bridgeoperator.ibm.com");
    bench.file("old.yaml", &text);
    let done = bench.bridge(&["run", "old.yaml"]).ends(0);
    assert!(done.err.contains("bridgeoperator.ibm.com/v1alpha1 is taken as bridgejob.ibm.com/v1alpha1"), "{done:?}");
}

#[test]
fn namespaces_keep_jobs_apart() {
    let bench = Bench::new();
    let text = |namespace: &str, word: &str| {
        bench
            .yaml("sample", &format!("echo {word}"), "")
            .replace("name: sample", &format!("name: sample\n  namespace: {namespace}"))
    };
    bench.file("a.yaml", &text("team-a", "A"));
    bench.file("b.yaml", &text("team-b", "B"));
    bench.bridge(&["run", "a.yaml", "b.yaml"]).ends(0);
    assert_eq!(bench.bridge(&["logs", "team-a/sample"]).ends(0).out, "A\n");
    assert_eq!(bench.bridge(&["logs", "team-b/sample"]).ends(0).out, "B\n");
    let done = bench.bridge(&["logs", "sample"]).ends(2);
    assert!(done.err.contains("\"sample\" may be team-a/sample or team-b/sample; write one of them"), "{done:?}");
}

#[test]
fn the_crd_and_completions_are_printed() {
    let bench = Bench::new();
    assert_eq!(bench.bridge(&["crd"]).ends(0).out, bridge_api::crd_yaml());
    for shell in ["bash", "zsh", "fish"] {
        assert!(bench.bridge(&["completions", shell]).ends(0).out.contains("bridge"));
    }
    assert!(bench.bridge(&["--version"]).ends(0).out.starts_with("bridge "));
    assert!(!bench.bridge(&["--help"]).ends(0).out.contains("local-supervise"));
}
