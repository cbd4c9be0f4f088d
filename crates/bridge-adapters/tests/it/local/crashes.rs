//! Processes are killed with SIGKILL where it hurts most; the job runs once or is known not to have run.

use std::time::Duration;

use bridge_core::manager::{Found, ResourceManager, Sighting, Verdict};
use bridge_core::plan::Submission;

use super::{Machine, PATIENCE, fresh_token, kill, processes, submission, tracked, until};
use crate::programs;

/// A script that leaves one line for every time that it is run.
fn counting_script(machine: &Machine, then: &str) -> String {
    let count = machine.path("count");
    let script = format!("echo run >> '{}'\n{then}\n", count.display());
    std::fs::write(machine.path("script"), &script).unwrap();
    script
}

fn runs(machine: &Machine) -> usize {
    std::fs::read_to_string(machine.path("count")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_job_outlives_its_runner_and_its_end_is_known() {
    let machine = Machine::new();
    let token = fresh_token();
    counting_script(&machine, "until [ -e go ]; do sleep 0.05; done; exit 5");
    let runner = machine.start_runner(&token).spawn().unwrap();
    let submitted = machine.path(&format!("submitted-{}", runner.id()));
    until("the submission", async || submitted.exists().then_some(())).await;
    kill(runner);
    assert_eq!(machine.find(&token).await, Found::Jobs(vec![tracked(&token).id]));
    assert!(matches!(machine.look(&tracked(&token)).await, Sighting::Alive(..)));
    std::fs::write(machine.path(&format!("jobs/{token}/work/go")), "").unwrap();
    let (outcome, facts) = machine.ended(&tracked(&token)).await;
    assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, Some(5)));
    assert!(facts.ended.is_some());
    assert_eq!(runs(&machine), 1);
}

#[tokio::test]
async fn a_submitter_killed_at_any_moment_never_makes_a_job_run_twice_or_late() {
    let mut found = [0, 0];
    for round in 0..40_usize {
        let machine = Machine::new();
        let token = fresh_token();
        let script = counting_script(&machine, "exit 0");
        let runner = machine.start_runner(&token).spawn().unwrap();
        // The moment differs from round to round: some time after each of the traces that a submission leaves.
        let traces = ["", "job", "job/supervisor.log", "job/start.json"];
        let trace = machine.path(&format!("jobs/{token}")).join(traces[round % traces.len()]);
        let deadline = std::time::Instant::now() + PATIENCE;
        while !trace.exists() {
            assert!(std::time::Instant::now() < deadline, "the runner never made {}", trace.display());
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(150) * u32::try_from(round / traces.len()).unwrap());
        kill(runner);
        match machine.find(&token).await {
            Found::Absent => {
                found[0] += 1;
                // What was on its way gives up, and nothing has run.
                until("late supervisors", async || processes(&token).is_empty().then_some(())).await;
                assert_eq!(runs(&machine), 0, "round {round}: it ran after find had said Absent");
                machine.submit(&Submission { token: token.clone(), ..submission(&script) }).await;
            }
            Found::Jobs(_) => found[1] += 1,
            Found::CannotTell(why) => panic!("{why}"),
        }
        let (outcome, _) = machine.ended(&tracked(&token)).await;
        assert_eq!((outcome.verdict, runs(&machine)), (Verdict::Succeeded, 1), "round {round}");
    }
    println!("absent and found: {found:?}");
}

#[tokio::test]
async fn several_processes_at_once_start_one_job() {
    for _ in 0..5 {
        let machine = Machine::new();
        let token = fresh_token();
        let script = counting_script(&machine, "exit 0");
        let runners: Vec<_> = (0..3).map(|_| machine.start_runner(&token).spawn().unwrap()).collect();
        machine.submit(&Submission { token: token.clone(), ..submission(&script) }).await;
        for runner in runners {
            let submitted = machine.path(&format!("submitted-{}", runner.id()));
            until("the other submissions", async || submitted.exists().then_some(())).await;
            kill(runner);
        }
        machine.ended(&tracked(&token)).await;
        assert_eq!(runs(&machine), 1);
    }
}

#[tokio::test]
async fn a_supervisor_that_comes_late_finds_its_job_called_off() {
    let machine = Machine::new();
    let token = fresh_token();
    counting_script(&machine, "exit 0");
    let slow = machine.path("slow-supervisor");
    let (own, waits, go) = (std::env::current_exe().unwrap(), machine.path("waits"), machine.path("go"));
    let (own, waits, go) = (own.display(), waits.display(), go.display());
    let text =
        format!("#!/bin/sh\necho $$ > '{waits}'\nuntil [ -e '{go}' ]; do sleep 0.05; done\nexec '{own}' \"$@\"\n");
    programs::write(&slow, &text);
    let runner = machine.start_runner(&token).env("BRIDGE_TEST_SUPERVISOR", &slow).spawn().unwrap();
    machine.written("waits").await;
    kill(runner);
    assert_eq!(machine.find(&token).await, Found::Absent);
    std::fs::write(machine.path("go"), "").unwrap();
    until("the late supervisor's end", async || processes(&token).is_empty().then_some(())).await;
    assert_eq!(runs(&machine), 0);
    assert_eq!(machine.look(&tracked(&token)).await, Sighting::Gone);
    assert_eq!(machine.find(&token).await, Found::Absent);
}

/// A job whose supervisor was killed.
async fn orphan(machine: &Machine, script: &str) -> bridge_core::manager::Tracked {
    let job = machine.submit(&submission(script)).await;
    machine.written(&format!("jobs/{}/work/ready", job.token)).await;
    let start = std::fs::read(machine.path(&format!("jobs/{}/job/start.json", job.token))).unwrap();
    let start: serde_json::Value = serde_json::from_slice(&start).unwrap();
    let supervisor = i32::try_from(start["supervisor"].as_i64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(supervisor).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    until("the orphan to be noticed", async || match machine.look(&job).await {
        Sighting::Alive(_, facts) => facts.note,
        other => panic!("its processes live, and it is {other:?}"),
    })
    .await;
    job
}

#[tokio::test]
async fn a_job_without_its_supervisor_runs_on_and_then_its_end_is_unknown() {
    let machine = Machine::new();
    let job = orphan(&machine, "echo ready > ready; until [ -e go ]; do sleep 0.05; done").await;
    std::fs::write(machine.path(&format!("jobs/{}/work/go", job.token)), "").unwrap();
    let (outcome, _) = machine.ended(&job).await;
    assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Failed, "SUPERVISOR_LOST"));
    assert!(outcome.message.contains("supervisor disappeared"), "{}", outcome.message);
    assert!(matches!(machine.find(&job.token).await, Found::Jobs(_)));
}

#[tokio::test]
async fn a_job_without_its_supervisor_is_cancelled_by_repeated_asking() {
    let machine = Machine::new();
    let job = orphan(&machine, "trap '' TERM; echo ready > ready; while :; do sleep 0.1; done").await;
    let deadline = std::time::Instant::now() + PATIENCE;
    let outcome = loop {
        machine.manager.cancel(&job).await.unwrap();
        if let Sighting::Ended(outcome, _) = machine.look(&job).await {
            break outcome;
        }
        assert!(std::time::Instant::now() < deadline, "it was never killed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert!(processes(&job.token).is_empty());
}
