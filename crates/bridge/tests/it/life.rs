//! Whole lives of local jobs: never lost, never twice, whatever happens to the runner.

use rustix::process::Signal;

use crate::support::{Bench, until};

/// Runs until the file `go` is there, and ends with this code.
fn waits_for_go(code: i32) -> String {
    // Bounded, so that nothing is left behind should the test fail.
    format!(
        "echo begun\necho ran >> $D/ran\ni=0\nwhile [ ! -e $D/go ] && [ $i -lt 3000 ]; do sleep 0.05; i=$((i+1)); done\n\
         echo ended\nexit {code}"
    )
}

fn is_running(bench: &Bench) {
    until("the job runs", || bench.path("ran").exists());
}

fn go(bench: &Bench) {
    std::fs::write(bench.path("go"), "").unwrap();
}

fn status(bench: &Bench) -> String {
    let list: serde_json::Value = serde_json::from_str(&bench.bridge(&["list", "-o", "json"]).ends(0).out).unwrap();
    list["jobs"][0]["status"].as_str().unwrap().to_owned()
}

#[test]
fn the_first_command_of_the_readme() {
    let bench = Bench::new();
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.yaml");
    let done = bench.bridge(&["run", hello]).ends(0);
    assert_eq!(done.out, "step 1 of 3\nstep 2 of 3\nstep 3 of 3\nHello from job hello\n");
    assert!(done.err.contains("hello: DONE: completed (COMPLETED, exit code 0)"), "{done:?}");
}

#[test]
fn a_killed_runner_loses_nothing_and_runs_nothing_twice() {
    let bench = Bench::new();
    bench.job("once", &waits_for_go(7));
    let runner = bench.start(&["run", "once.yaml"]);
    is_running(&bench);
    runner.kill();
    let runner = bench.start(&["run", "once.yaml"]);
    until("the output is shown again", || runner.out() == "begun\n");
    go(&bench);
    let done = runner.wait().ends(7);
    assert_eq!(done.out, "begun\nended\n");
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn a_job_that_ended_while_nobody_watched_is_told_as_it_ended() {
    let bench = Bench::new();
    bench.job("once", &(waits_for_go(9) + "\n"));
    let runner = bench.start(&["run", "once.yaml"]);
    is_running(&bench);
    runner.kill();
    go(&bench);
    let ended = bench.state().join("local");
    until("the job ended", || {
        crate::support::files_below(&ended).iter().any(|file| file.file_name().is_some_and(|name| name == "end.json"))
    });
    let done = bench.bridge(&["run", "once.yaml"]).ends(9);
    assert_eq!(done.out, "begun\nended\n");
    assert_eq!(bench.read("ran"), "ran\n");
}

/// Killed at any moment of its start, also before its first save and in the middle of its submission.
#[test]
fn a_runner_killed_at_any_moment_of_its_start_runs_nothing_twice() {
    for milliseconds in [0, 2, 4, 6, 8, 10, 15, 20, 30, 40, 60, 90] {
        let bench = Bench::new();
        bench.job("once", "echo ran >> $D/ran\nexit 3");
        let runner = bench.start(&["run", "once.yaml"]);
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        runner.kill();
        // After an intent whose fate is unknown a late start is waited out for a minute: the job is killed instead.
        let left = bench.state().join("jobs/once/record.json");
        let in_doubt = std::fs::read_to_string(left).is_ok_and(|record| record.contains("\"submitting\""));
        if in_doubt && !bench.path("ran").exists() {
            continue;
        }
        bench.bridge(&["run", "once.yaml"]).ends(3);
        assert_eq!(bench.read("ran"), "ran\n", "killed after {milliseconds} ms");
    }
}

#[test]
fn a_lost_record_makes_the_runner_look_first() {
    let bench = Bench::new();
    bench.job("once", &waits_for_go(5));
    bench.bridge(&["run", "--detach", "once.yaml"]).ends(0);
    is_running(&bench);
    std::fs::remove_file(bench.state().join("jobs/once/record.json")).unwrap();
    let runner = bench.start(&["run", "once.yaml"]);
    until("it is found", || runner.out() == "begun\n");
    go(&bench);
    runner.wait().ends(5);
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn a_signal_cancels_and_waits_for_the_confirmation() {
    for signal in [Signal::INT, Signal::TERM] {
        let bench = Bench::new();
        bench.job("sample", &format!("trap 'echo cleaned > $D/cleaned; exit 1' TERM\n{}", waits_for_go(0)));
        let runner = bench.start(&["run", "sample.yaml"]);
        is_running(&bench);
        runner.signal(signal);
        let done = runner.wait().ends(130);
        assert!(done.err.contains("sample: KILLED: cancelled"), "{done:?}");
        assert_eq!(bench.read("cleaned"), "cleaned\n");
        assert_eq!(status(&bench), "KILLED");
        bench.bridge(&["run", "sample.yaml"]).ends(130);
        assert_eq!(bench.read("ran"), "ran\n");
    }
}

#[test]
fn a_second_signal_leaves_at_once() {
    let bench = Bench::new();
    bench.job("stubborn", &format!("trap '' TERM\n{}", waits_for_go(0)));
    let runner = bench.start(&["run", "stubborn.yaml"]);
    is_running(&bench);
    runner.signal(Signal::INT);
    until("the first is heard", || runner.err().contains("a second signal leaves at once"));
    runner.signal(Signal::INT);
    let done = runner.wait().ends(124);
    assert!(done.err.contains("stubborn: left"), "{done:?}");
    go(&bench);
    bench.bridge(&["kill", "stubborn"]).ends(0);
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn a_signal_can_leave_the_job_running() {
    let bench = Bench::new();
    bench.job("sample", &waits_for_go(0));
    let runner = bench.start(&["run", "--on-signal", "detach", "sample.yaml"]);
    is_running(&bench);
    until("its id is saved", || status(&bench) == "RUNNING");
    runner.signal(Signal::TERM);
    runner.wait().ends(124);
    go(&bench);
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn a_second_runner_is_refused() {
    let bench = Bench::new();
    bench.job("sample", &waits_for_go(0));
    let runner = bench.start(&["run", "sample.yaml"]);
    is_running(&bench);
    let done = bench.bridge(&["run", "sample.yaml"]).ends(126);
    assert!(done.err.contains("job sample is being run by another process (process "), "{done:?}");
    go(&bench);
    runner.wait().ends(0);
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn an_ended_job_is_not_run_again_unless_it_is_asked_for() {
    let bench = Bench::new();
    bench.job("sample", "echo ran >> $D/ran\nexit 4");
    bench.bridge(&["run", "sample.yaml"]).ends(4);
    let done = bench.bridge(&["run", "sample.yaml"]).ends(4);
    assert!(done.err.contains("sample: FAILED: failed (FAILED, exit code 4)"), "{done:?}");
    assert!(done.err.contains("--again runs it once more"), "{done:?}");
    assert_eq!(bench.read("ran"), "ran\n");
    bench.bridge(&["run", "--again", "sample.yaml"]).ends(4);
    assert_eq!(bench.read("ran"), "ran\nran\n");
}

#[test]
fn a_job_that_has_ended_can_be_forgotten() {
    let bench = Bench::new();
    bench.job("sample", "echo ran >> $D/sampled\necho result > result");
    bench.job("other", "exit 3");
    bench.job("runs", &waits_for_go(0));
    bench.bridge(&["run", "other.yaml"]).ends(3);
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    bench.bridge(&["run", "--again", "sample.yaml"]).ends(0);
    let runner = bench.start(&["run", "runs.yaml"]);
    is_running(&bench);
    until("its runner knows", || bench.bridge(&["list"]).ends(0).out.contains("runs    RUNNING"));
    let folders = || std::fs::read_dir(bench.state().join("local")).unwrap().count();
    assert_eq!(folders(), 4);

    let refused = bench.bridge(&["forget", "nobody"]).ends(2);
    assert!(refused.err.contains("there is no job \"nobody\""), "{refused:?}");
    let watched = bench.bridge(&["forget", "runs"]).ends(126);
    assert!(watched.err.contains("is being run by another process"), "{watched:?}");
    runner.kill();
    let alive = bench.bridge(&["forget", "runs"]).ends(2);
    assert!(alive.err.contains("job runs has not ended (RUNNING), so it is not forgotten"), "{alive:?}");

    assert_eq!(bench.bridge(&["forget", "--older-than", "1h"]).ends(0).err, "");
    assert_eq!(bench.bridge(&["forget", "sample"]).ends(0).err, "sample: forgotten\n");
    assert_eq!(folders(), 2, "both runs of the sample are gone");
    let left = bench.bridge(&["list"]).ends(0).out;
    assert!(left.contains("other") && left.contains("runs") && !left.contains("sample"), "{left}");
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    assert_eq!(bench.read("sampled"), "ran\nran\nran\n", "it begins anew");

    go(&bench);
    bench.bridge(&["run", "runs.yaml"]).ends(0);
    let forgotten = bench.bridge(&["forget", "--older-than", "0s"]).ends(0).err;
    assert_eq!(forgotten, "other: forgotten\nruns: forgotten\nsample: forgotten\n");
    assert_eq!(folders(), 0);
    assert_eq!(bench.bridge(&["list"]).ends(0).out, "no jobs\n");
}

#[test]
fn changed_content_is_refused_with_the_difference() {
    let bench = Bench::new();
    bench.job("sample", "echo ran >> $D/ran\necho one");
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    bench.job_with("sample", "echo ran >> $D/ran\necho two", "  jobproperties:\n    runlimit: 5\n");
    let done = bench.bridge(&["run", "sample.yaml"]).ends(2);
    assert_eq!(
        done.err,
        "error: sample.yaml: job sample was run before with other content:\n@@ spec.jobdata.jobscript @@\n-echo one\n+echo two\n\
         @@ spec.jobproperties.runlimit @@\n+5\nto run the new content, say --again; to keep both, give one of them another name\n"
    );
    assert_eq!(bench.read("ran"), "ran\n");
    assert_eq!(bench.bridge(&["run", "--again", "sample.yaml"]).ends(0).out, "two\n");
    // What may change while a job runs is no other content.
    bench.job_with(
        "sample",
        "echo ran >> $D/ran\necho two",
        "  jobproperties:\n    runlimit: 5\n  backoffLimit: 3\n  updateinterval: 3\n",
    );
    assert_eq!(bench.bridge(&["run", "sample.yaml"]).ends(0).out, "");
}

#[test]
fn a_job_that_has_not_ended_is_neither_changed_nor_run_again() {
    let bench = Bench::new();
    bench.job("sample", &waits_for_go(0));
    bench.bridge(&["run", "--detach", "sample.yaml"]).ends(0);
    let done = bench.bridge(&["run", "--again", "sample.yaml"]).ends(2);
    assert!(done.err.contains("so it cannot be run again; end it first with: bridge kill sample"), "{done:?}");
    bench.job("sample", "echo other");
    let done = bench.bridge(&["run", "sample.yaml"]).ends(2);
    assert!(done.err.contains("has not ended") && done.err.contains("+echo other"), "{done:?}");
    bench.bridge(&["kill", "sample"]).ends(0);
}

#[test]
fn a_detached_job_can_be_watched_and_ended() {
    let bench = Bench::new();
    bench.job("sample", &waits_for_go(0));
    let done = bench.bridge(&["run", "--detach", "sample.yaml"]).ends(0);
    assert_eq!(done.out, "");
    assert!(done.err.contains("sample: runs on as job bridge-"), "{done:?}");
    is_running(&bench);
    assert!(bench.bridge(&["list"]).ends(0).out.contains("running; nobody watches it"));
    assert_eq!(bench.bridge(&["logs", "sample"]).ends(0).out, "begun\n");
    let logs = bench.start(&["logs", "-f", "sample"]);
    until("its output is followed", || logs.out() == "begun\n");
    let killed = bench.bridge(&["kill", "sample"]).ends(0);
    assert!(killed.err.contains("sample: KILLED"), "{killed:?}");
    assert_eq!(logs.wait().ends(0).out, "begun\n");
    let again = bench.bridge(&["kill", "sample"]).ends(0);
    assert!(again.err.contains("sample: KILLED"), "{again:?}");
    bench.bridge(&["run", "sample.yaml"]).ends(130);
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn following_ends_with_the_job_with_and_without_a_runner() {
    for detach in [true, false] {
        let bench = Bench::new();
        bench.job("sample", &waits_for_go(0));
        let mut runner = None;
        if detach {
            bench.bridge(&["run", "--detach", "sample.yaml"]).ends(0);
        } else {
            runner = Some(bench.start(&["run", "sample.yaml"]));
        }
        is_running(&bench);
        let logs = bench.start(&["logs", "-f", "sample"]);
        until("its output is followed", || logs.out() == "begun\n");
        go(&bench);
        assert_eq!(logs.wait().ends(0).out, "begun\nended\n");
        if let Some(runner) = runner {
            assert_eq!(runner.wait().ends(0).out, "begun\nended\n");
        }
    }
}

#[test]
fn killing_a_watched_job_asks_its_runner() {
    let bench = Bench::new();
    bench.job("sample", &waits_for_go(0));
    let runner = bench.start(&["run", "sample.yaml"]);
    is_running(&bench);
    let killed = bench.bridge(&["kill", "sample"]).ends(0);
    assert!(killed.err.contains("was asked to end it"), "{killed:?}");
    assert!(killed.err.contains("sample: KILLED"), "{killed:?}");
    runner.wait().ends(130);
}

#[test]
fn a_kill_that_nobody_finished_is_finished_by_the_next_runner() {
    let bench = Bench::new();
    bench.job("sample", &waits_for_go(0));
    bench.bridge(&["run", "--detach", "sample.yaml"]).ends(0);
    is_running(&bench);
    let run = bench.bridge(&["list", "-o", "json"]).out;
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    std::fs::write(bench.state().join("jobs/sample/kill"), run["jobs"][0]["run"].as_str().unwrap()).unwrap();
    bench.bridge(&["run", "sample.yaml"]).ends(130);
    // A mark of an earlier run means nothing to the next one.
    go(&bench);
    bench.bridge(&["run", "--again", "sample.yaml"]).ends(0);
}

#[test]
fn killed_from_the_start_nothing_is_run() {
    let bench = Bench::new();
    bench.job_with("sample", "echo ran >> $D/ran", "  kill: true\n");
    let done = bench.bridge(&["run", "sample.yaml"]).ends(130);
    assert!(done.err.contains("sample: KILLED: ended before it was submitted"), "{done:?}");
    assert!(!bench.path("ran").exists());
    assert!(bench.bridge(&["logs", "sample"]).ends(0).err.contains("nothing was submitted"));
}

#[test]
fn a_suspended_job_waits_for_its_file() {
    let bench = Bench::new();
    bench.job_with("sample", "echo ran >> $D/ran", "  suspend: true\n");
    let done = bench.bridge(&["run", "sample.yaml"]).ends(124);
    assert!(done.err.contains("sample: suspended; write suspend: false and run the file again"), "{done:?}");
    assert_eq!(status(&bench), "SUSPENDED");
    assert!(!bench.path("ran").exists());
    bench.job_with("sample", "echo ran >> $D/ran", "  suspend: false\n");
    bench.bridge(&["run", "sample.yaml"]).ends(0);
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn several_jobs_run_together_and_the_worst_decides() {
    let bench = Bench::new();
    // Each waits for the other, so one after the other they would never end.
    let meet = |own: &str, other: &str| {
        format!(
            "touch $D/{own}\ni=0\nwhile [ ! -e $D/{other} ] && [ $i -lt 2000 ]; do sleep 0.05; i=$((i+1)); done\necho {own} is here"
        )
    };
    let documents = [
        bench.yaml("left", &meet("left", "right"), ""),
        bench.yaml("right", &(meet("right", "left") + "\nexit 6"), ""),
    ];
    bench.file("both.yaml", &documents.join("---\n"));
    bench.job("third", "echo third >&2\nexit 5");
    let done = bench.bridge(&["run", "both.yaml", "third.yaml"]).ends(6);
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[left] left is here", "[right] right is here"]);
    assert!(done.err.contains("[third] third\n"), "{done:?}");
}

#[test]
fn the_exit_code_is_the_jobs_own() {
    for (script, code) in [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -9 $$", 1)] {
        let bench = Bench::new();
        bench.job("sample", script);
        bench.bridge(&["run", "sample.yaml"]).ends(code);
    }
}

#[test]
fn a_deadline_ends_a_job_as_failed() {
    let bench = Bench::new();
    bench.job_with("sample", &waits_for_go(0), "  activeDeadlineSeconds: 1\n");
    let done = bench.bridge(&["run", "sample.yaml"]).ends(1);
    assert!(done.err.contains("sample: FAILED") && done.err.contains("activeDeadlineSeconds"), "{done:?}");
}

#[test]
fn a_reader_who_went_away_does_not_end_the_job() {
    let bench = Bench::new();
    bench.job("sample", "i=0\nwhile [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done\necho ran >> $D/ran\nexit 3");
    let mut child = bench
        .command(&["run", "sample.yaml"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(bench.read("ran"), "ran\n");
}

#[test]
fn all_output_arrives_also_when_there_is_much() {
    let bench = Bench::new();
    bench.job("sample", "i=0\nwhile [ $i -lt 40000 ]; do echo 0123456789 $i; i=$((i+1)); done");
    let done = bench.bridge(&["run", "-q", "sample.yaml"]).ends(0);
    let expected = (0..40_000).map(|i| format!("0123456789 {i}\n")).collect::<Vec<_>>().concat();
    assert!(done.out == expected, "{} of {} bytes", done.out.len(), expected.len());
    assert_eq!(done.err, "");
}

#[test]
fn one_file_for_both_outputs_is_shown_once() {
    let bench = Bench::new();
    let properties = "  jobproperties:\n    OutputFileName: both\n    ErrorFileName: both\n";
    bench.job_with("sample", "echo out\necho err >&2", properties);
    let done = bench.bridge(&["run", "-q", "sample.yaml"]).ends(0);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("out\nerr\n", ""));
}
