//! Answers that are lost, late or half: what is not known must not be taken for known.

use bridge_core::manager::{ErrorKind, Found, Phase, Verdict};
use bridge_testkit::faults::Fault;
use jiff::Timestamp;

use super::*;

pub(super) async fn cluster(version: u16) -> Cluster {
    let options = EmulatorOptions { versions: vec![version], accounting: true, ..EmulatorOptions::default() };
    Cluster::with(options, Some(version)).await
}

pub(super) fn id(job: &Tracked) -> u32 {
    job.id.as_str().parse().unwrap()
}

/// As a worker asks that goes on with another's job.
fn recovered(job: &Tracked) -> Tracked {
    Tracked { verify: true, ..job.clone() }
}

const ENDLESS: &str = "while :; do sleep 0.1; done";

fn is_running(seen: &Sighting) -> Option<()> {
    matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_reply_is_lost_is_not_sent_again() {
    for version in [36, 38, 42] {
        for fault in [Fault::LostReply, Fault::Reset] {
            let cluster = cluster(version).await;
            let job = cluster.submission("true", json!({}));
            let submitted = cluster.manager.submit(&job).await.unwrap();
            let job = tracked(&submitted.id, &job.token);
            cluster.emulator.faults().next(Operation::Release, fault.clone());
            assert!(Hold::release(&cluster.manager, &job).await.is_err(), "v0.0.{version} {fault:?}");
            assert_eq!(cluster.emulator.faults().requests(Operation::Release), 1, "v0.0.{version} {fault:?}");
            // Whether it is to be sent again is asked first.
            Hold::release(&cluster.manager, &recovered(&job)).await.unwrap();
            assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Succeeded, "v0.0.{version} {fault:?}");
            assert_eq!(cluster.emulator.runs().len(), 1, "v0.0.{version} {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_that_has_started_is_not_released_again() {
    for version in [38, 42] {
        let cluster = cluster(version).await;
        let job = cluster.start(&cluster.submission(ENDLESS, json!({"array": "0-1"}))).await;
        until(&cluster.manager, &job, is_running).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while cluster.emulator.runs().len() < 2 {
            assert!(tokio::time::Instant::now() < deadline, "v0.0.{version}: both start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(cluster.emulator.forget_release(id(&job)));
        assert_eq!(cluster.emulator.job_ids(), [id(&job)], "v0.0.{version}");
        let answer = Hold::release(&cluster.manager, &recovered(&job)).await.unwrap();
        assert_eq!(answer, HoldAnswer::TooLate, "v0.0.{version}");
        for _ in 0..3 {
            let seen = look(&cluster.manager, &job).await;
            let Sighting::Alive(Phase::Held, facts) = seen else { panic!("v0.0.{version}: {seen:?}") };
            let note = facts.note.unwrap_or_default();
            assert!(note.contains("has started before"), "v0.0.{version}: {note}");
        }
        assert_eq!(cluster.emulator.runs().len(), 2, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_forgotten_array_the_tasks_that_never_started_are_no_end() {
    for version in [38, 42] {
        let cluster = cluster(version).await;
        // Task 0 ends, task 1 waits for ever because it may not run beside it.
        let script = "[ $SLURM_ARRAY_TASK_ID = 0 ] && exit 0; while :; do sleep 0.1; done";
        for (array, ends) in [("0-0", true), ("0-1%1", false)] {
            let job = cluster.start(&cluster.submission(script, json!({"array": array}))).await;
            until(&cluster.manager, &job, |seen| match seen {
                Sighting::Ended(..) => Some(()),
                Sighting::Alive(_, facts) => facts.note.as_deref()?.starts_with("1 of 2 tasks done").then_some(()),
                _ => None,
            })
            .await;
            assert!(cluster.emulator.forget_release(id(&job)));
            let answer = Hold::release(&cluster.manager, &recovered(&job)).await.unwrap();
            assert_eq!(answer, HoldAnswer::TooLate, "v0.0.{version} {array}");
            let seen = look(&cluster.manager, &recovered(&job)).await;
            assert_eq!(matches!(seen, Sighting::Ended(..)), ends, "v0.0.{version} {array}: {seen:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_that_was_held_half_way_is_released_again() {
    for version in [38, 42] {
        let cluster = cluster(version).await;
        let script = "[ $SLURM_ARRAY_TASK_ID = 0 ] || exit 0; while [ ! -e go ]; do sleep 0.05; done";
        let job = cluster.start(&cluster.submission(script, json!({"array": "0-2%1"}))).await;
        until(&cluster.manager, &job, is_running).await;
        assert_eq!(Hold::hold(&cluster.manager, &job).await.unwrap(), HoldAnswer::Done, "v0.0.{version}");
        std::fs::write(cluster.folder.join("go"), "").unwrap();
        // slurmctld forgets the task that has ended, and knows the others by one record.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !cluster.emulator.purge(id(&job), false) {
            assert!(tokio::time::Instant::now() < deadline, "v0.0.{version}: its first task does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            Hold::release(&cluster.manager, &recovered(&job)).await.unwrap(),
            HoldAnswer::Done,
            "v0.0.{version}"
        );
        assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Succeeded, "v0.0.{version}");
        assert_eq!(cluster.emulator.runs().len(), 3, "v0.0.{version}");
    }
}

/// A job that has ended, that slurmctld has forgotten, and that was seen running.
async fn forgotten(cluster: &Cluster, manager: &Slurm, purge: impl Fn(&Emulator, u32) -> bool) -> Tracked {
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let job = start(manager, &cluster.submission(script, json!({}))).await;
    until(manager, &job, is_running).await;
    std::fs::write(cluster.folder.join("go"), "").unwrap();
    // The end is seen by slurmctld alone.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !purge(&cluster.emulator, id(&job)) {
        assert!(tokio::time::Instant::now() < deadline, "it does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::remove_file(cluster.folder.join("go")).unwrap();
    job
}

fn purge(emulator: &Emulator, id: u32) -> bool {
    emulator.purge(id, false)
}

/// An adapter that waits for the end of a job as long as one at work does, and that has not submitted the jobs of the
/// cluster's own one: how many tasks their arrays have only accounting tells it for sure.
pub(super) fn patient(cluster: &Cluster) -> Slurm {
    let config =
        SlurmConfig { shared_folders: vec![cluster.folder.clone()], ..SlurmConfig::new(cluster.emulator.url()) };
    Slurm::new(config, credentials("alice", "alice-token"), Arc::new(SystemClock::new())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_without_accounting_is_not_believed() {
    for (version, describes_itself) in [(38, true), (42, true), (42, false)] {
        let options = EmulatorOptions {
            versions: vec![version],
            accounting: true,
            describes_itself,
            ..EmulatorOptions::default()
        };
        let cluster = Cluster::with(options, None).await;
        let case = format!("v0.0.{version}, describes itself {describes_itself}");
        let job = forgotten(&cluster, &cluster.manager, purge).await;
        cluster.emulator.hide_accounting(1);
        let (outcome, _) = cluster.ended(&job).await;
        assert_eq!(outcome.verdict, Verdict::Succeeded, "{case}");
        // What has answered once is there, whatever a gateway says for some time.
        let job = forgotten(&cluster, &cluster.manager, purge).await;
        cluster.emulator.hide_accounting(7);
        let seen = look(&cluster.manager, &job).await;
        assert!(matches!(seen, Sighting::Unaccounted { .. }), "{case}: {seen:?}");
        cluster.emulator.hide_accounting(0);
        assert!(matches!(look(&cluster.manager, &job).await, Sighting::Ended(..)), "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounting_that_the_server_describes_is_not_believed_absent() {
    let cluster = cluster(42).await;
    let job = forgotten(&cluster, &cluster.manager, purge).await;
    cluster.emulator.hide_accounting(100);
    let seen = look(&cluster.manager, &job).await;
    assert!(matches!(seen, Sighting::Unaccounted { .. }), "{seen:?}");
    cluster.emulator.hide_accounting(0);
    assert!(matches!(look(&cluster.manager, &job).await, Sighting::Ended(..)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_accounting_is_not_asked_for_it_again_and_again() {
    for describes_itself in [true, false] {
        let options = EmulatorOptions { describes_itself, ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, None).await;
        let job = forgotten(&cluster, &cluster.manager, purge).await;
        assert_eq!(look(&cluster.manager, &job).await, Sighting::Gone);
        let (asked, _) = cluster.emulator.accounting_requests();
        let unknown = (1000..1040).map(|id: u32| tracked(&RemoteId::new(id.to_string()), &job.token));
        let jobs: Vec<Tracked> = unknown.chain([job.clone()]).collect();
        let seen = cluster.manager.poll(&jobs).await.unwrap();
        assert_eq!(seen.len(), jobs.len(), "where nothing is asked, nothing waits for its turn");
        assert!(seen.values().all(|seen| *seen == Sighting::Gone), "{seen:?}");
        assert_eq!(cluster.emulator.accounting_requests().0, asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounting_that_comes_back_without_the_job_is_given_time_to_hear_of_it() {
    for version in [38, 42] {
        let cluster = cluster(version).await;
        cluster.emulator.stop_accounting();
        let manager = patient(&cluster);
        let job = forgotten(&cluster, &manager, Emulator::purge_unheard_of).await;
        let why = |seen: Sighting| match seen {
            Sighting::Unaccounted { why } => why,
            other => panic!("v0.0.{version}: {other:?}"),
        };
        let text = why(look(&manager, &job).await);
        assert!(text.contains("cannot be asked"), "v0.0.{version}: {text}");
        cluster.emulator.start_accounting();
        for _ in 0..2 {
            let text = why(look(&manager, &job).await);
            assert!(text.contains("does not know its end yet"), "v0.0.{version}: {text}");
        }
        cluster.emulator.tell_ends();
        assert_eq!(ended(&manager, &job).await.0.verdict, Verdict::Succeeded, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounting_that_was_never_out_of_order_is_believed_at_once() {
    let cluster = cluster(42).await;
    let job = forgotten(&cluster, &cluster.manager, |emulator, id| emulator.purge(id, true)).await;
    assert_eq!(look(&cluster.manager, &job).await, Sighting::Gone);
}

/// Time that nobody has to wait for.
pub(super) async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn the_end_of_a_cancelled_job_is_waited_for_minutes_and_not_hours() {
    let cluster = cluster(42).await;
    let manager = patient(&cluster);
    for cancelling in [false, true] {
        let job = forgotten(&cluster, &manager, Emulator::purge_untold).await;
        let job = Tracked { cancelling, ..job };
        let seen = look(&manager, &job).await;
        assert!(matches!(seen, Sighting::Unaccounted { .. }), "cancelling {cancelling}: {seen:?}");
        later(Duration::from_mins(6)).await;
        let seen = look(&manager, &job).await;
        assert_eq!(seen == Sighting::Gone, cancelling, "cancelling {cancelling}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_arrays_wait_for_a_slow_accounting_side_by_side_and_not_all_at_once() {
    const ARRAYS: usize = 30;
    // A machine that is busy with other things gets through eight in a round.
    const ROUNDS: usize = 4;
    let cluster = cluster(42).await;
    let manager = patient(&cluster);
    let plain = cluster.start(&cluster.submission(ENDLESS, json!({}))).await;
    until(&manager, &plain, is_running).await;
    let mut jobs = Vec::new();
    for _ in 0..ARRAYS {
        jobs.push(cluster.start(&cluster.submission("true", json!({"array": "0-1"}))).await);
    }
    jobs.push(plain.clone());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while cluster.emulator.running() > 1 || cluster.emulator.runs().len() < 2 * ARRAYS + 1 {
        assert!(tokio::time::Instant::now() < deadline, "the arrays do not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Long enough for the questions of one round to meet, however slow the machine is, and for two times eight to fill it.
    cluster.emulator.delay_accounting(Duration::from_secs(1));
    let mut open: Vec<Tracked> = jobs.clone();
    for round in 1..=ROUNDS {
        let before = cluster.emulator.accounting_requests().0;
        let seen = manager.poll(&open).await.unwrap();
        assert!(matches!(seen[&plain.id], Sighting::Alive(Phase::Running, _)), "round {round}: {:?}", seen[&plain.id]);
        let (asked, at_once) = cluster.emulator.accounting_requests();
        assert!(asked - before <= 16, "round {round}: {} questions", asked - before);
        assert!((2..=8).contains(&at_once), "round {round}: {at_once} at once");
        open.retain(|job| !matches!(seen.get(&job.id), Some(Sighting::Ended(..))));
        if open.len() == 1 {
            break;
        }
    }
    assert_eq!(open, [plain], "what was left out of one round has its turn in the next");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ended_arrays_are_told_in_one_round_where_accounting_is_quick() {
    const ARRAYS: usize = 60;
    let cluster = cluster(42).await;
    let manager = patient(&cluster);
    let mut jobs = Vec::new();
    for _ in 0..ARRAYS {
        jobs.push(cluster.start(&cluster.submission("true", json!({"array": "0-1"}))).await);
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while cluster.emulator.running() > 0 || cluster.emulator.runs().len() < 2 * ARRAYS {
        assert!(tokio::time::Instant::now() < deadline, "the arrays do not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    loop {
        let begun = tokio::time::Instant::now();
        let seen = manager.poll(&jobs).await.unwrap();
        let told = seen.values().filter(|seen| matches!(seen, Sighting::Ended(..))).count();
        if told == ARRAYS {
            break;
        }
        // Only a round that the machine held up may leave some out.
        assert!(begun.elapsed() > Duration::from_secs(2), "{told} are told");
        assert!(tokio::time::Instant::now() < deadline, "{told} are told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_unaccounted_jobs_other_ones_are_looked_up_in_each_round() {
    let cluster = cluster(42).await;
    let manager = patient(&cluster);
    let mut jobs = Vec::new();
    for _ in 0..16 {
        jobs.push(forgotten(&cluster, &manager, Emulator::purge_untold).await);
    }
    // Eight side by side fill a round.
    cluster.emulator.delay_accounting(Duration::from_secs(2));
    let first = manager.poll(&jobs).await.unwrap();
    let left_out: Vec<&Tracked> = jobs.iter().filter(|job| !first.contains_key(&job.id)).collect();
    assert!(!left_out.is_empty(), "{} were looked up", first.len());
    let second = manager.poll(&jobs).await.unwrap();
    assert!(left_out.iter().all(|job| second.contains_key(&job.id)), "{left_out:?} are left out again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_task_that_was_seen_is_not_overruled_by_a_late_account() {
    for version in [38, 42] {
        let cluster = cluster(version).await;
        let manager = patient(&cluster);
        // Task 0 fails at once; the other one, under the array's own id, waits.
        let script = "[ $SLURM_ARRAY_TASK_ID = 0 ] && exit 3; while [ ! -e go ]; do sleep 0.05; done";
        for is_purged in [false, true] {
            let job = cluster.start(&cluster.submission(script, json!({"array": "0-1"}))).await;
            let one_done = |seen: &Sighting| match seen {
                Sighting::Alive(_, facts) => facts.note.as_deref()?.starts_with("1 of 2 tasks done").then_some(()),
                _ => None,
            };
            until(&manager, &job, one_done).await;
            let task = cluster.emulator.job_ids().into_iter().max().unwrap();
            assert!(task > id(&job) && cluster.emulator.purge_untold(task), "v0.0.{version}");
            std::fs::write(cluster.folder.join("go"), "").unwrap();
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while is_purged && !cluster.emulator.purge(id(&job), false) {
                assert!(tokio::time::Instant::now() < deadline, "v0.0.{version}: it does not end");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let (outcome, _) = ended(&manager, &job).await;
            assert_eq!(outcome.verdict, Verdict::Failed, "v0.0.{version}: {}", outcome.message);
            assert!(outcome.message.starts_with("2 of 2 tasks done, 1 failed"), "v0.0.{version}: {}", outcome.message);
            std::fs::remove_file(cluster.folder.join("go")).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_look_for_their_jobs_share_a_list() {
    let cluster = cluster(42).await;
    let tokens: Vec<SubmitToken> = (0..40).map(|_| fresh_token()).collect();
    let ids: Vec<u32> = tokens.iter().take(20).map(|token| cluster.emulator.add_held_job(token.as_str())).collect();
    let finds = tokens.iter().map(|token| cluster.manager.find(token, Timestamp::UNIX_EPOCH));
    let found = futures::future::join_all(finds).await;
    for (number, found) in found.into_iter().enumerate() {
        let expected = ids.get(number).map_or(Found::Absent, |id| Found::Jobs(vec![RemoteId::new(id.to_string())]));
        assert_eq!(found.unwrap(), expected, "{number}");
    }
    // The first had begun before the others asked.
    assert_eq!(cluster.emulator.faults().requests(Operation::Poll), 2);

    // What goes wrong goes wrong for all of a list, and who gives up leaves the others their answer.
    cluster.emulator.faults().nth(Operation::Poll, 2, Fault::ServerError);
    let finds = tokens.iter().map(|token| cluster.manager.find(token, Timestamp::UNIX_EPOCH));
    let found = futures::future::join_all(finds).await;
    assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1, "{found:?}");
    cluster.emulator.faults().next(Operation::Poll, Fault::Delay(PATIENCE));
    let given_up =
        tokio::time::timeout(Duration::from_millis(50), cluster.manager.find(&tokens[0], Timestamp::UNIX_EPOCH));
    let (given_up, found) = tokio::join!(given_up, cluster.manager.find(&tokens[1], Timestamp::UNIX_EPOCH));
    assert!(given_up.is_err());
    assert_eq!(found.unwrap(), Found::Jobs(vec![RemoteId::new(ids[1].to_string())]));
}

/// A server that answers questions about single jobs, with this before each list.
async fn answering(text: impl Fn(u32) -> (String, Value) + Clone + Send + Sync + 'static) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/slurm/v0.0.42", listener.local_addr().unwrap());
    let answer = move |axum::extract::Path(id): axum::extract::Path<u32>| {
        let (before, jobs) = text(id);
        async move { format!("{{{before}\"jobs\": {jobs}}}") }
    };
    let router = axum::Router::new().route("/slurm/v0.0.42/job/{id}", axum::routing::get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

fn record(id: u32, token: &SubmitToken) -> Value {
    json!([{"job_id": id, "job_state": ["RUNNING"], "comment": token.as_str(), "submit_time": 1}])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_about_one_job_may_be_larger_than_is_kept() {
    let token = fresh_token();
    let own = token.clone();
    // As long as that of an array with thousands of tasks.
    let url = answering(move |id| (" ".repeat(65 * 1024 * 1024), record(id, &own))).await;
    let manager = adapter(&url, Path::new("/"), credentials("alice", "alice-token"));
    let seen = look(&manager, &tracked(&RemoteId::new("7"), &token)).await;
    assert!(matches!(seen, Sighting::Alive(Phase::Running, _)), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_read_is_trouble_of_its_own_job() {
    let token = fresh_token();
    let own = token.clone();
    let url =
        answering(move |id| if id == 7 { ("no".to_owned(), json!([])) } else { (String::new(), record(id, &own)) });
    let manager = adapter(&url.await, Path::new("/"), credentials("alice", "alice-token"));
    let [broken, one, another] = ["7", "8", "9"].map(|id| tracked(&RemoteId::new(id), &token));
    let seen = manager.poll(&[broken.clone(), one.clone(), another.clone()]).await.unwrap();
    for job in [&one, &another] {
        assert!(matches!(seen[&job.id], Sighting::Alive(Phase::Running, _)), "{:?}", seen[&job.id]);
    }
    let Sighting::Unaccounted { why } = &seen[&broken.id] else { panic!("{:?}", seen[&broken.id]) };
    assert!(why.contains("about job 7 cannot be read"), "{why}");
    assert!(manager.poll(&[broken]).await.is_err(), "where nothing is answered, it is trouble of the cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_to_ask_less_does_not_take_that_for_an_answer() {
    let token = fresh_token();
    let own = token.clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/slurm/v0.0.42", listener.local_addr().unwrap());
    let answer = move |axum::extract::Path(id): axum::extract::Path<u32>| {
        let status = if id == 7 { http::StatusCode::TOO_MANY_REQUESTS } else { http::StatusCode::OK };
        let body = json!({"jobs": record(id, &own)}).to_string();
        async move { (status, body) }
    };
    let router = axum::Router::new().route("/slurm/v0.0.42/job/{id}", axum::routing::get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let manager = adapter(&url, Path::new("/"), credentials("alice", "alice-token"));
    let jobs = ["7", "8", "9"].map(|id| tracked(&RemoteId::new(id), &token));
    let error = manager.poll(&jobs).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RateLimited, "{error}");
    assert_eq!(manager.poll(&jobs[1..]).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_agreed_on_is_kept_while_no_other_is_known() {
    for fault in [Fault::ServerError, Fault::Reset] {
        let cluster = Cluster::with(EmulatorOptions::default(), None).await;
        let manager = patient(&cluster);
        manager.submit(&cluster.submission("true", json!({}))).await.unwrap();
        let array = cluster.start(&cluster.submission("true", json!({"array": "0-1"}))).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while cluster.emulator.running() > 0 || cluster.emulator.runs().len() < 2 {
            assert!(tokio::time::Instant::now() < deadline, "{fault:?}: the array does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // What the server says of itself; all else is answered.
        cluster.emulator.faults().always(Operation::Other, fault.clone());
        let seen = look(&manager, &array).await;
        assert!(matches!(seen, Sighting::Unaccounted { .. } | Sighting::Ended(..)), "{fault:?}: {seen:?}");
        let submitted = manager.submit(&cluster.submission("true", json!({}))).await;
        assert!(submitted.is_ok(), "{fault:?}: {submitted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_for_a_hold_is_told_as_long_as_it_lasts() {
    let cluster = cluster(42).await;
    let held = cluster.submission("true", json!({}));
    let job = tracked(&cluster.manager.submit(&held).await.unwrap().id, &held.token);
    for (reason, expected) in [("JobHeldAdmin", Some("held: JobHeldAdmin")), ("JobHeldUser", None)] {
        assert!(cluster.emulator.set_state(id(&job), &["PENDING"], reason));
        let seen = look(&cluster.manager, &job).await;
        let Sighting::Alive(Phase::Held, facts) = &seen else { panic!("{reason}: {seen:?}") };
        assert_eq!(facts.note.as_deref(), expected, "{reason}");
    }
}
