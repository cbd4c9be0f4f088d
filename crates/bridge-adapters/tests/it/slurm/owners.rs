//! Tokens that other users have copied into comments of their own.

use bridge_core::manager::{Found, Phase};
use jiff::Timestamp;

use super::*;

async fn find(manager: &Slurm, token: &SubmitToken) -> Found {
    manager.find(token, Timestamp::UNIX_EPOCH).await.unwrap()
}

fn is_alive(seen: &Sighting) -> bool {
    matches!(seen, Sighting::Alive(..))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_user_is_not_found_as_ours() {
    for version in [36, 38, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.submission("true", json!({}));
        let own = cluster.manager.submit(&job).await.unwrap().id;
        let theirs = cluster.emulator.add_held_job_of("bob", job.token.as_str());
        let twin = cluster.emulator.add_held_job(job.token.as_str());
        let twin = RemoteId::new(twin.to_string());
        assert_eq!(find(&cluster.manager, &job.token).await, Found::Jobs(vec![own, twin]), "v0.0.{version}");
        assert!(cluster.emulator.job_ids().contains(&theirs));
    }
    // v0.0.36 tells only the number of a user, and a credential only the name: there a lone job cannot be told.
    for version in [37, 38, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let token = fresh_token();
        let theirs = cluster.emulator.add_held_job_of("bob", token.as_str());
        assert_eq!(find(&cluster.manager, &token).await, Found::Absent, "v0.0.{version}: {theirs}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_id_that_another_user_has_with_our_token_is_gone_and_left_alone() {
    for version in [36, 38, 42, 45] {
        let cluster = Cluster::of_version(version).await;
        let job = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        assert!(is_alive(&look(&cluster.manager, &job).await));
        cluster.emulator.lose_jobs_younger_than(AGES);
        let theirs = cluster.emulator.add_held_job_of("bob", job.token.as_str());
        assert_eq!(theirs.to_string(), job.id.as_str(), "the id was given away");
        cluster.manager.cancel(&job).await.unwrap();
        assert_eq!(Hold::hold(&cluster.manager, &job).await.unwrap(), HoldAnswer::Gone, "v0.0.{version}");
        let asked = Tracked { verify: true, ..job.clone() };
        assert_eq!(Hold::release(&cluster.manager, &asked).await.unwrap(), HoldAnswer::Gone, "v0.0.{version}");
        let untouched = adapter(&cluster.emulator.url(), &cluster.folder, credentials("alice", "alice-token"));
        let seen = look(&untouched, &job).await;
        assert!(matches!(seen, Sighting::Alive(Phase::Held, _)), "v0.0.{version}: {seen:?}");
        assert_eq!(look(&cluster.manager, &asked).await, Sighting::Gone, "v0.0.{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_a_change_of_the_secret_to_another_user() {
    for version in [36, 38, 42] {
        let users = [("alice", "alice-token"), ("bob", "bob-token")];
        let users = users.map(|(user, token)| (user.to_owned(), token.to_owned())).into();
        let options = EmulatorOptions { versions: vec![version], users, ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, Some(version)).await;
        let job = cluster.start(&cluster.submission("while :; do sleep 0.1; done", json!({}))).await;
        assert!(is_alive(&look(&cluster.manager, &job).await));
        let url = cluster.emulator.versioned_url(version);
        let successor = adapter(&url, &cluster.folder, credentials("bob", "bob-token"));
        let asked = Tracked { verify: true, ..job };
        assert!(is_alive(&look(&successor, &asked).await), "v0.0.{version}");
    }
}
