//! Comments that somebody has changed: the site's submit filter, or the job's own user.

use bridge_core::manager::{ErrorKind, Found, Phase, Verdict};
use jiff::Timestamp;

use super::*;

const ENDLESS: &str = "while :; do sleep 0.1; done";

fn id(job: &Tracked) -> u32 {
    job.id.as_str().parse().unwrap()
}

fn is_running(seen: &Sighting) -> Option<()> {
    matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())
}

fn successor(cluster: &Cluster) -> Slurm {
    adapter(&cluster.emulator.url(), &cluster.folder, credentials("alice", "alice-token"))
}

#[tokio::test(flavor = "multi_thread")]
async fn words_before_the_token_are_no_obstacle() {
    for version in [36, 38] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.start(&cluster.submission(ENDLESS, json!({}))).await;
        cluster.emulator.set_comment(id(&job), &format!("project=x {} mine", job.token));
        until(&successor(&cluster), &job, is_running).await;
        let found = cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(found, Found::Jobs(vec![job.id.clone()]), "v0.0.{version}");
        cluster.manager.cancel(&job).await.unwrap();
        assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Cancelled, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_seen_with_its_token_stays_ours_without_it() {
    for version in [36, 38] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.start(&cluster.submission(ENDLESS, json!({}))).await;
        until(&cluster.manager, &job, is_running).await;
        cluster.emulator.set_comment(id(&job), "epoch 3 of 10");
        let asked = Tracked { verify: true, ..job.clone() };
        for _ in 0..2 {
            assert!(is_running(&look(&cluster.manager, &asked).await).is_some(), "v0.0.{version}");
        }
        cluster.manager.cancel(&job).await.unwrap();
        assert_eq!(cluster.ended(&job).await.0.verdict, Verdict::Cancelled, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_may_be_ours_is_neither_cancelled_nor_given_up() {
    for version in [36, 38] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.start(&cluster.submission(ENDLESS, json!({}))).await;
        cluster.emulator.set_comment(id(&job), "epoch 3 of 10");
        let manager = successor(&cluster);
        let Sighting::Unaccounted { why } = look(&manager, &job).await else {
            panic!("v0.0.{version}: cannot be told")
        };
        assert!(why.contains(&format!("scontrol update JobId={} Comment={}", job.id, job.token)), "{why}");
        let error = manager.cancel(&job).await.unwrap_err();
        assert_eq!((error.kind, error.message), (ErrorKind::Protocol, why), "v0.0.{version}");
        assert!(Hold::hold(&manager, &job).await.is_err(), "v0.0.{version}");
        let asked = Tracked { verify: true, ..job.clone() };
        assert!(Hold::release(&manager, &asked).await.is_err(), "v0.0.{version}: it would be submitted again");
        until(&cluster.manager, &job, |seen| matches!(seen, Sighting::Unaccounted { .. }).then_some(())).await;

        cluster.emulator.set_comment(id(&job), job.token.as_str());
        until(&manager, &job, is_running).await;
        manager.cancel(&job).await.unwrap();
        assert_eq!(ended(&manager, &job).await.0.verdict, Verdict::Cancelled, "v0.0.{version}");
        // Once it has ended, there is nothing to ask for, whosever it is.
        cluster.emulator.set_comment(id(&job), "epoch 3 of 10");
        successor(&cluster).cancel(&job).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_id_that_another_job_of_our_user_has_is_gone_and_left_alone() {
    for version in [36, 38, 42] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.start(&cluster.submission(ENDLESS, json!({}))).await;
        until(&cluster.manager, &job, is_running).await;
        // Times are told in seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        cluster.emulator.lose_jobs_younger_than(AGES);
        let other = cluster.emulator.add_held_job("by hand");
        assert_eq!(other, id(&job), "the id was given away");
        let asked = Tracked { verify: true, ..job.clone() };
        assert_eq!(look(&cluster.manager, &asked).await, Sighting::Gone, "v0.0.{version}");
        cluster.manager.cancel(&job).await.unwrap();
        assert_eq!(Hold::release(&cluster.manager, &asked).await.unwrap(), HoldAnswer::Gone, "v0.0.{version}");
        cluster.emulator.set_comment(other, fresh_token().as_str());
        assert_eq!(look(&cluster.manager, &asked).await, Sighting::Gone, "v0.0.{version}");
        cluster.emulator.set_comment(other, job.token.as_str());
        let untouched = look(&successor(&cluster), &job).await;
        assert!(matches!(untouched, Sighting::Alive(Phase::Held, _)), "v0.0.{version}: {untouched:?}");
    }
}
