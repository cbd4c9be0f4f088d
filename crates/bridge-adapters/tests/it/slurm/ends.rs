//! Ends of arrays that were seen, or that only accounting can tell.

use bridge_core::manager::{Phase, Verdict};

use super::doubts::{cluster, id, later, patient};
use super::*;

/// Waits until the emulated cluster is as wanted, without a look by the adapter.
async fn settled(cluster: &Cluster, wanted: impl Fn(&Emulator) -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !wanted(&cluster.emulator) {
        assert!(tokio::time::Instant::now() < deadline, "{:?} stay", cluster.emulator.job_ids());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An array all of whose tasks were seen to run, and which then ended unseen.
async fn ended_unseen(cluster: &Cluster, manager: &Slurm, tasks: usize, at_last: &str) -> Tracked {
    let script = format!("while [ ! -e go ]; do sleep 0.05; done; {at_last}");
    let array = format!("0-{}", tasks - 1);
    // Only the adapter that submits an array knows for sure how many tasks it has, and most callers are another.
    let job = cluster.start(&cluster.submission(&script, json!({"array": array}))).await;
    settled(cluster, |emulator| emulator.running() == tasks).await;
    let seen = look(manager, &job).await;
    assert!(matches!(seen, Sighting::Alive(Phase::Running, _)), "{seen:?}");
    std::fs::write(cluster.folder.join("go"), "").unwrap();
    settled(cluster, |emulator| emulator.running() == 0).await;
    std::fs::remove_file(cluster.folder.join("go")).unwrap();
    job
}

#[track_caller]
fn assert_unaccounted(seen: &Sighting) {
    assert!(matches!(seen, Sighting::Unaccounted { .. }), "{seen:?}");
}

#[track_caller]
fn assert_both_succeeded(seen: &Sighting) {
    let Sighting::Ended(outcome, _) = seen else { panic!("{seen:?}") };
    assert_eq!((outcome.verdict, outcome.message.as_str()), (Verdict::Succeeded, "2 of 2 tasks done"));
}

#[tokio::test]
async fn the_end_of_an_array_that_was_seen_is_told_where_accounting_is_only_described() {
    let cluster = cluster(42).await;
    cluster.emulator.hide_accounting(u32::MAX);
    let manager = patient(&cluster);
    let job = ended_unseen(&cluster, &manager, 2, "true").await;
    assert_unaccounted(&look(&manager, &job).await);
    assert!(cluster.emulator.purge(id(&job), false));
    later(Duration::from_mins(11)).await;
    assert_both_succeeded(&look(&manager, &job).await);
}

#[tokio::test]
async fn the_end_of_an_array_that_was_seen_is_told_when_accounting_never_hears_of_it() {
    let cluster = cluster(42).await;
    cluster.emulator.stop_accounting();
    let manager = patient(&cluster);
    let job = ended_unseen(&cluster, &manager, 2, "true").await;
    assert_unaccounted(&look(&manager, &job).await);
    for task in cluster.emulator.job_ids() {
        cluster.emulator.purge_unheard_of(task);
    }
    cluster.emulator.start_accounting();
    assert_unaccounted(&look(&manager, &job).await);
    later(Duration::from_hours(7)).await;
    assert_both_succeeded(&look(&manager, &job).await);
}

#[tokio::test]
async fn an_array_has_not_ended_while_accounting_lacks_one_of_its_tasks() {
    for is_end_of_others_seen in [false, true] {
        let case = format!("the end of the others is seen: {is_end_of_others_seen}");
        let cluster = cluster(42).await;
        let manager = patient(&cluster);
        let job = ended_unseen(&cluster, &manager, 3, "[ $SLURM_ARRAY_TASK_ID != 1 ] || exit 3").await;
        let task = cluster.emulator.job_ids().into_iter().max().unwrap();
        assert!(task > id(&job) && cluster.emulator.purge_unheard_of(task), "{case}");
        if is_end_of_others_seen {
            cluster.emulator.stop_accounting();
            let seen = look(&manager, &job).await;
            assert!(matches!(seen, Sighting::Unaccounted { .. }), "{case}: {seen:?}");
            cluster.emulator.start_accounting();
        }
        assert!(cluster.emulator.purge(id(&job), false), "{case}");
        let seen = look(&manager, &job).await;
        assert!(matches!(seen, Sighting::Unaccounted { .. }), "{case}: {seen:?}");
        later(Duration::from_hours(7)).await;
        assert_eq!(look(&manager, &job).await, Sighting::Gone, "{case}: the success of some is not that of all");
        cluster.emulator.tell_ends();
        let (outcome, _) = ended(&manager, &job).await;
        assert!(outcome.message.starts_with("3 of 3 tasks done, 1 failed"), "{case}: {}", outcome.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_seen_all_tasks_of_an_array_end_needs_no_accounting() {
    for version in [38, 42] {
        let cluster = cluster(version).await;
        cluster.emulator.stop_accounting();
        let job = ended_unseen(&cluster, &cluster.manager, 2, "true").await;
        assert_both_succeeded(&look(&cluster.manager, &job).await);

        // One that ended unseen may have failed.
        let job = ended_unseen(&cluster, &cluster.manager, 2, "true").await;
        let task = cluster.emulator.job_ids().into_iter().max().unwrap();
        assert!(task > id(&job) && cluster.emulator.purge(task, false), "v0.0.{version}");
        assert_unaccounted(&look(&cluster.manager, &job).await);
        cluster.emulator.start_accounting();
        let (outcome, _) = cluster.ended(&job).await;
        assert_eq!(outcome.message, "2 of 2 tasks done", "v0.0.{version}");
    }
}
