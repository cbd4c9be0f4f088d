use serde_json::{Value, json};

use super::super::captures;
use super::super::wire::{AccountedEntry, Text, Words};
use super::*;

fn job(states: &[&str], reason: &str) -> JobInfo {
    JobInfo {
        job_id: Number(Some(7)),
        job_state: Words(states.iter().map(|state| (*state).to_owned()).collect()),
        state_reason: Text(reason.to_owned()),
        ..JobInfo::default()
    }
}

fn word(standing: &Standing) -> String {
    match standing {
        Standing::Alive(Phase::Queued { reason }, _) => format!("queued {}", reason.clone().unwrap_or_default()),
        Standing::Alive(phase, _) => format!("{phase:?}").to_lowercase(),
        Standing::Ended(outcome) => format!("{:?} {}", outcome.verdict, outcome.reason).to_lowercase(),
    }
}

#[test]
fn every_state_has_a_meaning() {
    let table: &[(&[&str], &str, &str)] = &[
        (&["PENDING"], "Resources", "queued Resources"),
        (&["PENDING"], "None", "queued "),
        (&["PENDING"], "QOSMaxJobsPerUserLimit", "queued QOSMaxJobsPerUserLimit"),
        (&["PENDING"], "JobHeldUser", "held"),
        (&["PENDING"], "JobHeldAdmin", "held"),
        (&["PENDING"], "launch failed requeued held", "held"),
        (&["PENDING", "COMPLETING"], "None", "queued "),
        (&["PENDING", "REQUEUED"], "BeginTime", "queued BeginTime"),
        (&["REQUEUED"], "None", "queued "),
        (&["REQUEUE_FED"], "None", "queued "),
        (&["REQUEUE_HOLD"], "JobHeldAdmin", "held"),
        (&["PENDING", "SPECIAL_EXIT"], "JobHeldUser", "held"),
        (&["SPECIAL_EXIT"], "None", "held"),
        (&["RESV_DEL_HOLD"], "None", "held"),
        (&["PENDING", "LAUNCH_FAILED"], "None", "queued "),
        (&["CONFIGURING"], "None", "queued CONFIGURING"),
        (&["RUNNING", "CONFIGURING"], "None", "queued CONFIGURING"),
        (&["RUNNING", "POWER_UP_NODE"], "None", "queued POWER_UP_NODE"),
        (&["RUNNING"], "None", "running"),
        (&["RUNNING", "RESIZING"], "None", "running"),
        (&["RESIZING"], "None", "running"),
        (&["SIGNALING"], "None", "running"),
        (&["RUNNING", "SIGNALING"], "None", "running"),
        (&["RUNNING", "EXPEDITING"], "None", "running"),
        (&["UPDATE_DB"], "None", "running"),
        (&["COMPLETING"], "None", "running"),
        (&["CANCELLED", "COMPLETING"], "None", "running"),
        (&["STAGE_OUT"], "None", "running"),
        (&["COMPLETED", "STAGE_OUT"], "None", "running"),
        (&["SUSPENDED"], "None", "suspended"),
        (&["STOPPED"], "None", "suspended"),
        (&["RUNNING", "STOPPED"], "None", "suspended"),
        (&["COMPLETED"], "None", "succeeded completed"),
        (&["completed"], "None", "succeeded completed"),
        (&["FAILED"], "NonZeroExitCode", "failed failed"),
        (&["CANCELLED"], "None", "cancelled cancelled"),
        (&["CANCELLED by 1001"], "None", "running"),
        (&["TIMEOUT"], "TimeLimit", "failed timeout"),
        (&["NODE_FAIL"], "NodeDown", "failed node_fail"),
        (&["OUT_OF_MEMORY"], "OutOfMemory", "failed out_of_memory"),
        (&["PREEMPTED"], "None", "failed preempted"),
        (&["BOOT_FAIL"], "None", "failed boot_fail"),
        (&["DEADLINE"], "DeadLine", "failed deadline"),
        (&["LAUNCH_FAILED"], "None", "failed launch_failed"),
        (&["FAILED", "LAUNCH_FAILED"], "None", "failed launch_failed"),
        (&["FAILED", "RECONFIG_FAIL"], "None", "failed reconfig_fail"),
        (&["REVOKED"], "None", "running"),
        (&["PENDING", "REVOKED"], "None", "running"),
        (&["RUNNING", "REVOKED"], "None", "running"),
        (&["COMPLETED", "REVOKED"], "None", "succeeded completed"),
        (&["FAILED", "REVOKED"], "NonZeroExitCode", "failed failed"),
        (&["CANCELLED", "REVOKED"], "None", "cancelled cancelled"),
        (&["SOMETHING_NEW"], "None", "running"),
        (&[], "", "running"),
    ];
    for (states, reason, expected) in table {
        assert_eq!(word(&standing(&job(states, reason))), *expected, "{states:?}");
    }
    let Standing::Alive(_, note) = standing(&job(&["SOMETHING_NEW"], "None")) else { panic!() };
    assert!(note.unwrap().contains("SOMETHING_NEW"));
    let Standing::Alive(_, note) = standing(&job(&["REVOKED"], "None")) else { panic!() };
    assert!(note.unwrap().contains("another cluster of the federation"));
}

#[test]
fn an_end_tells_reason_code_and_signal() {
    let with_exit = |states: &[&str], reason: &str, status: i64| {
        let mut job = job(states, reason);
        job.exit_code = super::super::wire::ExitCode::from_wait_status(status);
        match standing(&job) {
            Standing::Ended(outcome) => outcome,
            Standing::Alive(..) => panic!("not ended"),
        }
    };
    let failed = with_exit(&["FAILED"], "NonZeroExitCode", 768);
    assert_eq!((failed.exit_code, failed.signal), (Some(3), None));
    assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("FAILED", "NonZeroExitCode"));
    assert_eq!(told(&failed), "FAILED, exit code 3, NonZeroExitCode");
    let killed = with_exit(&["OUT_OF_MEMORY"], "OutOfMemory", 9);
    assert_eq!(told(&killed), "OUT_OF_MEMORY, signal 9, OutOfMemory");
    // The accounting of 22.05 reports 0 for every job: the state decides, and the code is not known.
    let unknown = with_exit(&["FAILED"], "None", 0);
    assert_eq!((unknown.exit_code, unknown.message.as_str()), (None, "exit code unknown"));
    let done = with_exit(&["COMPLETED"], "None", 0);
    assert_eq!((done.exit_code, done.message.as_str()), (Some(0), ""));
    assert_eq!(told(&with_exit(&["CANCELLED"], "None", 15)), "CANCELLED, signal 15");
}

fn recorded(server: &str, name: &str) -> Vec<JobInfo> {
    let body: &Value = &captures::all()[server][name].body;
    if server.ends_with("slurmdbd") {
        let entries: Vec<AccountedEntry> = serde_json::from_value(body["jobs"].clone()).unwrap();
        return entries.into_iter().filter_map(Option::<JobInfo>::from).collect();
    }
    serde_json::from_value(body["jobs"].clone()).unwrap()
}

#[test]
fn recorded_jobs_mean_the_same_in_every_version() {
    let mut checked = 0;
    for server in ["22.05-v0.0.36", "22.05-v0.0.38", "24.11-v0.0.40", "24.11-v0.0.42", "26.05-v0.0.45"] {
        let captures = captures::all();
        let table = [
            ("job-COMPLETED", "succeeded completed"),
            ("job-FAILED", "failed failed"),
            ("job-FAILED-signal9", "failed failed"),
            ("job-CANCELLED-from-pending", "cancelled cancelled"),
            ("job-PENDING-held", "held"),
            ("job-PENDING-begintime", "queued BeginTime"),
            ("job-PENDING-resources", "queued Resources"),
            ("job-RUNNING", "running"),
            ("job-SUSPENDED", "suspended"),
            ("job-after-SIGSTOP", "suspended"),
            ("job-TIMEOUT", "failed timeout"),
        ];
        for (name, expected) in table {
            if !captures[server].contains_key(name) {
                continue;
            }
            let jobs = recorded(server, name);
            let standing = standing(&jobs[0]);
            assert_eq!(word(&standing), expected, "{server} {name}");
            let facts = facts(&jobs[0], &standing);
            assert_eq!(facts.queue.as_deref(), Some("debug"), "{server} {name}");
            let id = jobs[0].job_id.0.unwrap();
            assert_eq!(facts.stdout, Some(format!("/srv/lab/out/{id}.out")), "{server} {name}");
            assert_eq!(facts.stderr, Some(format!("/srv/lab/out/{id}.err")), "{server} {name}");
            let has_started = !expected.starts_with("queued") && expected != "held" && !name.ends_with("from-pending");
            assert_eq!(facts.node.as_deref(), has_started.then_some("localhost"), "{server} {name}");
            if has_started {
                assert!(facts.started.is_some(), "{server} {name}");
            }
            assert_eq!(facts.ended.is_some(), matches!(standing, Standing::Ended(_)), "{server} {name}");
            checked += 1;
        }
        let Standing::Ended(failed) = standing(&recorded(server, "job-FAILED")[0]) else { panic!() };
        assert_eq!((failed.exit_code, failed.signal), (Some(3), None), "{server}");
        let Standing::Ended(killed) = standing(&recorded(server, "job-FAILED-signal9")[0]) else { panic!() };
        assert_eq!((killed.exit_code, killed.signal), (None, Some(9)), "{server}");
    }
    assert!(checked >= 50, "only {checked}");
}

#[test]
fn every_recorded_job_has_a_meaning_that_is_known() {
    for (server, captures) in captures::all() {
        for (name, capture) in captures.iter().filter(|(_, capture)| capture.request.method == "GET") {
            if capture.body.get("jobs").is_none() || capture.request.path.contains("/state") {
                continue;
            }
            let jobs = recorded(server, name);
            for job in &jobs {
                if let Standing::Alive(_, Some(note)) = standing(job) {
                    assert!(!note.contains("does not know"), "{server} {name}: {note}");
                }
            }
        }
    }
}

#[test]
fn arrays_are_summed_up_and_their_tasks_counted() {
    for server in ["22.05-v0.0.36", "22.05-v0.0.38", "24.11-v0.0.40", "24.11-v0.0.42", "26.05-v0.0.45"] {
        let mut tasks = EndedTasks::new();
        let running = recorded(server, "job-array-root");
        let Some(Sighting::Alive(Phase::Running, facts)) = sighting(&running, &mut tasks) else { panic!("{server}") };
        assert_eq!(facts.note.as_deref(), Some("0 of 4 tasks done"), "{server}");
        let deleted = recorded(server, "job-array2-deleted");
        let Some(Sighting::Ended(outcome, facts)) = sighting(&deleted, &mut EndedTasks::new()) else {
            panic!("{server}")
        };
        assert_eq!((outcome.verdict, outcome.signal), (Verdict::Cancelled, Some(15)), "{server}");
        assert!(
            outcome.message.starts_with("3 of 3 tasks done, 3 cancelled; task 1: CANCELLED"),
            "{}",
            outcome.message
        );
        assert!(facts.ended.is_some());
        if captures::all()[server].contains_key("job-array-root-done") {
            let done = recorded(server, "job-array-root-done");
            let Some(Sighting::Ended(outcome, _)) = sighting(&done, &mut tasks) else { panic!("{server}") };
            assert_eq!((outcome.verdict, outcome.message.as_str()), (Verdict::Succeeded, "4 of 4 tasks done"));
        }
    }
}

#[test]
fn a_failed_task_that_slurmctld_has_forgotten_still_counts() {
    let task = |id: i64, number: i64, state: &str| {
        let mut job = job(&[state], "None");
        (job.job_id, job.array_job_id, job.array_task_id) = (Number(Some(id)), Number(Some(10)), Number(Some(number)));
        job
    };
    let mut tasks = EndedTasks::new();
    let early = [task(11, 1, "FAILED"), task(10, 2, "RUNNING")];
    let Some(Sighting::Alive(Phase::Running, facts)) = sighting(&early, &mut tasks) else { panic!() };
    assert_eq!(facts.note.as_deref(), Some("1 of 2 tasks done, 1 failed"));
    let Some(Sighting::Ended(outcome, _)) = sighting(&[task(10, 2, "COMPLETED")], &mut tasks) else { panic!() };
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert!(outcome.message.starts_with("2 of 2 tasks done, 1 failed; task 1: FAILED"), "{}", outcome.message);
}

#[test]
fn tasks_that_wait_share_a_record() {
    let count = |text: &str| {
        let mut job = job(&["PENDING"], "None");
        job.array_task_string = Text(text.to_owned());
        tasks_in(&job)
    };
    let table = [
        ("", 1),
        ("2-3%2", 2),
        ("0-15:4,20%3", 5),
        ("[1,3,5-7]", 5),
        ("1-99999999999", 99_999_999_999),
        ("x", 1),
        ("5-1", 1),
        ("1-9:0", 1),
    ];
    for (text, expected) in table {
        assert_eq!(count(text), expected, "{text}");
    }
}

#[test]
fn accounting_speaks_the_same_language() {
    for server in ["22.05-v0.0.38-slurmdbd", "24.11-v0.0.42-slurmdbd"] {
        let failed = recorded(server, "db-job");
        let Some(Sighting::Ended(outcome, facts)) = sighting(&failed, &mut EndedTasks::new()) else {
            panic!("{server}")
        };
        let expected = if server.starts_with("22.05") { None } else { Some(3) };
        assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, expected), "{server}");
        assert_eq!(facts.queue.as_deref(), Some("debug"));
        assert!(facts.started.is_some() && facts.ended.is_some());
        let cancelled = recorded(server, "db-job-cancelled");
        assert_eq!(word(&standing(&cancelled[0])), "cancelled cancelled");
        assert!(matches!(standing(&recorded(server, "db-job-held")[0]), Standing::Alive(..)));
        assert_eq!(recorded(server, "db-job-unknown").len(), 0);
        // What the recordings had for a token.
        assert_eq!(failed[0].comment.get(), Some("uid-hist-1"), "{server}");
    }
}

#[test]
fn the_token_is_the_first_in_comment_or_extra_and_nothing_else() {
    let token = SubmitToken::derive("abc", 1);
    let with = |comment: &str, extra: &str| {
        let mut job = job(&["PENDING"], "");
        (job.comment, job.extra) = (Text(comment.to_owned()), Text(extra.to_owned()));
        carries(&job, &token)
    };
    assert!(with("bridge-abc-1", "") && with("bridge-abc-1 my own words", "") && with("changed", "bridge-abc-1"));
    assert!(
        with("site=a bridge-abc-1 mine", "") && with("bridge-data bridge-abc-1", ""),
        "a filter put words before it"
    );
    assert!(!with("bridge-abc-10", "") && !with("", "") && !with("xbridge-abc-1", ""));
    assert!(!with("bridge-b-1 as bridge-abc-1", ""), "another's, whose user names ours");
}

#[test]
fn a_hold_by_slurm_itself_is_told_from_one_that_was_asked_for() {
    let held = |reason: &str, description: &str| {
        let job = json!({"job_state": "PENDING", "state_reason": reason, "state_description": description});
        serde_json::from_value::<JobInfo>(job).unwrap()
    };
    let ours = held("JobHeldUser", "");
    assert!(is_held_on_request(&ours) && standing(&ours) == Standing::Alive(Phase::Held, None));
    assert!(is_held_on_request(&held("JobHeldAdmin", "")));
    assert!(!is_held_on_request(&held("Priority", "")));
    // As 22.05 shows it over REST.
    let failed = held("JobHeldUser", "launch failed requeued held");
    assert!(!is_held_on_request(&failed));
    assert_eq!(standing(&failed), Standing::Alive(Phase::Held, Some("launch failed requeued held".to_owned())));
    assert!(!is_held_on_request(&held("launch failed requeued held", "")));
}

/// A task of the array 10; without a number all those that have no record of their own.
fn task(id: i64, number: Option<i64>, state: &str) -> JobInfo {
    let mut job = job(&[state], "None");
    (job.job_id, job.array_job_id, job.array_task_id) = (Number(Some(id)), Number(Some(10)), Number(number));
    job
}

#[test]
fn tasks_that_never_started_share_an_account_of_their_end() {
    let ends = |records: &[JobInfo], known: u64| {
        matches!(accounted(records, &mut EndedTasks::new(), known), Some(Sighting::Ended(..)))
    };
    let started = [task(11, Some(0), "COMPLETED"), task(12, Some(1), "CANCELLED")];
    assert!(ends(&started, 2) && !ends(&started, 5));
    let whole = [started[0].clone(), task(10, None, "CANCELLED")];
    assert!(ends(&whole, 5), "the second one stands for all others");
    let mut seen = EndedTasks::new();
    assert!(sighting(&started, &mut seen).is_some());
    let late = [task(11, Some(0), "RUNNING"), task(10, None, "CANCELLED")];
    assert!(matches!(accounted(&late, &mut seen, 5), Some(Sighting::Ended(..))));
}

#[test]
fn a_task_that_was_put_back_into_the_queue_has_not_ended() {
    let mut seen = EndedTasks::new();
    assert!(sighting(&[task(11, Some(0), "FAILED"), task(12, Some(10), "COMPLETED")], &mut seen).is_some());
    // The array's own id is no number of a task.
    let again = [task(11, Some(0), "PENDING"), task(10, None, "PENDING")];
    let Some(Sighting::Alive(_, facts)) = sighting(&again, &mut seen) else { panic!() };
    assert_eq!(facts.note.as_deref(), Some("1 of 3 tasks done"));
    assert_eq!(known_tasks(&again, &seen), 3);
}

#[test]
fn how_many_tasks_an_array_has_is_known_only_where_all_of_its_text_is() {
    let table = [("0-1", Some(2)), ("1,3,5-7%2", Some(5)), ("0-15:4", Some(4)), ("", None), ("0-3,...", None)];
    for (text, expected) in table {
        assert_eq!(submitted_tasks(text), expected, "{text}");
    }
}
