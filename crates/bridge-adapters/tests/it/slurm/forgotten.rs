//! A slurmctld that was killed comes back with jobs held whose release it has forgotten, and what followed it.

use bridge_core::manager::{Phase, Verdict};

use super::*;

async fn cluster(version: u16, accounting: bool) -> Cluster {
    let options = EmulatorOptions { versions: vec![version], accounting, ..EmulatorOptions::default() };
    Cluster::with(options, Some(version)).await
}

fn id(job: &Tracked) -> u32 {
    job.id.as_str().parse().unwrap()
}

async fn runs(cluster: &Cluster, job: &Tracked) {
    until(&cluster.manager, job, |seen| matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())).await;
}

/// As a worker asks that goes on with another's job.
fn recovered(job: &Tracked) -> Tracked {
    Tracked { verify: true, ..job.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_started_is_not_released_again() {
    for version in [38, 42] {
        let cluster = cluster(version, true).await;
        let job = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        runs(&cluster, &job).await;
        assert!(cluster.emulator.forget_release(id(&job)));
        let answer = Hold::release(&cluster.manager, &recovered(&job)).await.unwrap();
        assert_eq!(answer, HoldAnswer::TooLate, "v0.0.{version}");
        for _ in 0..2 {
            let Sighting::Alive(Phase::Held, facts) = look(&cluster.manager, &job).await else { panic!("it is held") };
            let note = facts.note.unwrap_or_default();
            assert!(note.contains("has started before"), "v0.0.{version}: {note}");
        }
        assert_eq!(cluster.emulator.runs().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_job_that_slurmctld_has_forgotten_is_told() {
    for version in [38, 42] {
        let cluster = cluster(version, true).await;
        let job = cluster.start(&cluster.submission("exit 3", json!({}))).await;
        cluster.ended(&job).await;
        assert!(cluster.emulator.forget_release(id(&job)));
        let Sighting::Ended(outcome, _) = look(&cluster.manager, &recovered(&job)).await else {
            panic!("it has ended")
        };
        assert_eq!(outcome.verdict, Verdict::Failed, "v0.0.{version}");
        assert!(outcome.message.contains("from accounting"), "{}", outcome.message);
        assert!(outcome.message.contains("cancel it there"), "{}", outcome.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_never_started_is_released_again() {
    for accounting in [true, false] {
        let cluster = cluster(38, accounting).await;
        let job = cluster.submission("true", json!({}));
        let submitted = cluster.manager.submit(&job).await.unwrap();
        let job = recovered(&tracked(&submitted.id, &job.token));
        assert_eq!(look(&cluster.manager, &job).await, look(&cluster.manager, &tracked(&job.id, &job.token)).await);
        assert_eq!(Hold::release(&cluster.manager, &job).await.unwrap(), HoldAnswer::Done);
        assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Succeeded);
        // A second release comes too late to do harm.
        assert_eq!(Hold::release(&cluster.manager, &job).await.unwrap(), HoldAnswer::Done);
        assert_eq!(cluster.emulator.runs().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_by_slurm_itself_is_not_lifted() {
    let cluster = cluster(38, false).await;
    let job = cluster.submission("true", json!({}));
    let submitted = cluster.manager.submit(&job).await.unwrap();
    let job = recovered(&tracked(&submitted.id, &job.token));
    cluster.emulator.set_state(id(&job), &["PENDING"], "launch failed requeued held");
    assert_eq!(Hold::release(&cluster.manager, &job).await.unwrap(), HoldAnswer::TooLate);
    assert!(matches!(look(&cluster.manager, &job).await, Sighting::Alive(Phase::Held, _)));
}
