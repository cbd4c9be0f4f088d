//! What accounting tells of jobs that slurmctld has forgotten: every run of a requeued one, and late what it is told late.

use bridge_core::manager::{Phase, Verdict};

use super::*;

async fn cluster(version: u16, stores_comments: bool) -> Cluster {
    let options = EmulatorOptions {
        versions: vec![version],
        accounting: true,
        accounting_stores_comments: stores_comments,
        ..EmulatorOptions::default()
    };
    Cluster::with(options, Some(version)).await
}

fn id(job: &Tracked) -> u32 {
    job.id.as_str().parse().unwrap()
}

/// As a worker asks that goes on with another's job, and has seen nothing of it.
fn successor(cluster: &Cluster) -> Slurm {
    adapter(&cluster.emulator.url(), &cluster.folder, credentials("alice", "alice-token"))
}

/// Runs a job until its script has got so far.
async fn until_it_made(cluster: &Cluster, file: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !cluster.folder.join(file).exists() {
        assert!(tokio::time::Instant::now() < deadline, "{file} was not made");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A job whose first run is ended by Slurm, and whose second one succeeds.
const SECOND_SUCCEEDS: &str = "[ -e first ] && exit 0; : > first; while :; do sleep 0.1; done";

#[tokio::test(flavor = "multi_thread")]
async fn the_last_run_of_a_requeued_job_tells_its_end() {
    for (version, stores_comments, is_preempted) in
        [(38, true, true), (38, true, false), (38, false, true), (42, true, true), (42, false, false)]
    {
        let cluster = cluster(version, stores_comments).await;
        let case = format!("v0.0.{version}, comments {stores_comments}, preempted {is_preempted}");
        let job = cluster.start(&cluster.submission(SECOND_SUCCEEDS, json!({}))).await;
        let running = |seen: &Sighting| matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(());
        until(&cluster.manager, &job, running).await;
        until_it_made(&cluster, "first").await;
        let requeued =
            if is_preempted { cluster.emulator.preempt(id(&job)) } else { cluster.emulator.requeue(id(&job)) };
        assert!(requeued, "{case}");
        // Nobody looks until slurmctld has forgotten it.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !cluster.emulator.purge(id(&job), false) {
            assert!(tokio::time::Instant::now() < deadline, "{case}: it does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for manager in [&cluster.manager, &successor(&cluster)] {
            let Sighting::Ended(outcome, _) = look(manager, &job).await else { panic!("{case}: it has ended") };
            assert_eq!(outcome.verdict, Verdict::Succeeded, "{case}: {}", outcome.message);
            assert!(outcome.message.ends_with("(from accounting)"), "{case}: {}", outcome.message);
        }
    }
}

/// Tasks 0 and 1 end at once, the one of them badly; task 2 is put back into the queue and then succeeds.
const ONE_FAILS: &str = "[ $SLURM_ARRAY_TASK_ID = 0 ] && exit 1; [ $SLURM_ARRAY_TASK_ID = 1 ] && exit 0; \
                         [ -e first ] && exit 0; : > first; while :; do sleep 0.1; done";

#[tokio::test(flavor = "multi_thread")]
async fn an_array_with_a_forgotten_failure_does_not_succeed() {
    for (version, stores_comments) in [(38, true), (38, false), (42, true), (42, false)] {
        let cluster = cluster(version, stores_comments).await;
        let case = format!("v0.0.{version}, comments {stores_comments}");
        let job = cluster.start(&cluster.submission(ONE_FAILS, json!({"array": "0-2"}))).await;
        until_it_made(&cluster, "first").await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let tasks = |cluster: &Cluster| cluster.emulator.job_ids();
        while tasks(&cluster).len() > 1 {
            // slurmctld forgets what has ended.
            cluster.emulator.purge(id(&job), false);
            assert!(tokio::time::Instant::now() < deadline, "{case}: they do not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cluster.emulator.stop_accounting();
        let manager = successor(&cluster);
        assert!(matches!(look(&manager, &job).await, Sighting::Alive(Phase::Running, _)), "{case}");
        assert!(cluster.emulator.requeue(tasks(&cluster)[0]), "{case}");
        let why = until(&manager, &job, |seen| match seen {
            Sighting::Unaccounted { why } => Some(why.clone()),
            Sighting::Alive(..) => None,
            other => panic!("{case}: {other:?}"),
        })
        .await;
        assert!(why.contains("is slurmdbd running?"), "{case}: {why}");

        cluster.emulator.start_accounting();
        for manager in [&manager, &successor(&cluster)] {
            let Sighting::Ended(outcome, _) = look(manager, &job).await else { panic!("{case}: it has ended") };
            assert_eq!(outcome.verdict, Verdict::Failed, "{case}: {}", outcome.message);
            assert!(outcome.message.starts_with("3 of 3 tasks done, 1 failed"), "{case}: {}", outcome.message);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_accounting_is_told_late_is_waited_for() {
    for (version, stores_comments) in [(38, true), (42, false)] {
        let cluster = cluster(version, stores_comments).await;
        let job = cluster.start(&cluster.submission("exit 3", json!({}))).await;
        cluster.ended(&job).await;
        assert!(cluster.emulator.purge_untold(id(&job)));
        let config = SlurmConfig { end_told_within: AGES, ..SlurmConfig::new(cluster.emulator.url()) };
        let patient = adapter_with(config, &cluster.folder, credentials("alice", "alice-token"));
        for _ in 0..2 {
            let seen = look(&patient, &job).await;
            let Sighting::Unaccounted { why } = &seen else { panic!("v0.0.{version}: {seen:?}") };
            assert!(why.contains("does not know its end yet"), "{why}");
        }
        cluster.emulator.tell_ends();
        let Sighting::Ended(outcome, _) = look(&patient, &job).await else { panic!("v0.0.{version}: it has ended") };
        assert_eq!(outcome.verdict, Verdict::Failed, "v0.0.{version}");
        // But not for ever: slurmctld may have lost it.
        let job = cluster.start(&cluster.submission("exit 3", json!({}))).await;
        cluster.ended(&job).await;
        assert!(cluster.emulator.purge_untold(id(&job)));
        let given_up = |seen: &Sighting| matches!(seen, Sighting::Gone).then_some(());
        let begun = tokio::time::Instant::now();
        until(&successor(&cluster), &job, given_up).await;
        assert!(begun.elapsed() >= LATE_END, "v0.0.{version}: {:?}", begun.elapsed());
    }
}
