//! Stores behind TLS, under other names, and with temporary keys.

use bridge_core::plan::ScriptSource;
use bridge_core::staging::Staging as _;
use bytes::Bytes;

use super::carry::{Node, TOOLS, has, only};
use super::{Scene, credentials, object, staging_with};
use crate::tls::{certificates, terminate};

#[tokio::test(flavor = "multi_thread")]
async fn the_secrets_authority_is_trusted_for_requests_and_by_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let Some(()) = certificates(folder.path()) else { return bridge_testkit::skip!("there is no openssl") };
    let authority = std::fs::read_to_string(folder.path().join("ca.crt")).unwrap();
    for client in ["", "curl", "wget"] {
        let mut node = Node::new("#!/bin/sh\ncat < in.txt > result\n").await;
        node.scene = node.scene.files(&["result"]);
        node.scene.store("data", "in.txt", b"over TLS\n");
        node.scene.plan.inputs = vec![object("data", "in.txt")];
        let (url, front) = terminate(folder.path(), &node.scene.server.endpoint()).await;
        let storage = node.scene.plan.storage.as_mut().unwrap();
        storage.endpoint = url.trim_start_matches("https://").to_owned();
        storage.secure = true;
        let mut pairs = credentials(&node.scene.server);
        let stranger = staging_with(pairs.clone());
        pairs.push(("ca.crt".to_owned(), authority.clone()));
        let staging = staging_with(pairs);
        let scene = &mut node.scene;
        if client.is_empty() {
            let error = stranger.stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap_err();
            assert!(!error.is_final && error.message.contains("data:in.txt"), "{error}");
            assert!(scene.server.door().seen().is_empty(), "nothing was sent to a stranger");
            staging.stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap();
            assert_eq!(scene.desk.inputs.lock().unwrap()["in.txt"].as_ref(), b"over TLS\n");
            scene.desk.files.insert("result".to_owned(), Bytes::from(vec![7; 20_000_000]));
            scene.take_with(&staging).await.unwrap();
            assert_eq!(scene.stored("hello/result").len(), 20_000_000);
        } else if has(client) {
            let submission = staging.stage_in(&scene.plan, &scene.token, &node.slurm).await.unwrap();
            node.path = Some(only(node.folder.path(), &[TOOLS.as_slice(), &[client, "cat"]].concat()));
            let code = node.run(&submission, &[]).await.code();
            assert_eq!(code, Some(0), "{client}: {}", node.said());
            assert_eq!(node.scene.stored("hello/result"), b"over TLS\n", "{client}: {}", node.said());
        }
        front.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_reach_the_store_under_their_own_name_for_it() {
    let mut node = Node::new("#!/bin/sh\ncat < in.txt > result\n").await;
    node.scene = node.scene.files(&["result"]);
    node.scene.store("data", "in.txt", b"hello\n");
    node.scene.plan.inputs = vec![object("data", "in.txt")];
    let address = node.scene.server.address();
    let remote = format!("localhost:{}", address.port());
    node.scene.plan.storage.as_mut().unwrap().remote_endpoint = Some(remote.clone());
    let submission = node.bring().await.unwrap();
    let ours = node.scene.server.door().seen();
    assert!(ours.iter().all(|request| request.host == address.to_string()), "{ours:?}");
    assert_eq!(node.run(&submission, &[]).await.code(), Some(0), "{}", node.said());
    let jobs = node.scene.server.door().seen().split_off(ours.len());
    assert!(jobs.len() >= 5 && jobs.iter().all(|request| request.host == remote), "{jobs:?}");
    assert_eq!(node.take(0).await.unwrap().len(), 4);
    assert_eq!(node.scene.stored("hello/result"), b"hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_token_goes_with_every_request_and_every_url() {
    let mut scene = Scene::new().await.files(&["large"]);
    scene.store("data", "script", b"#!/bin/sh\n: > large\n");
    scene.plan.script = ScriptSource::Object(object("data", "script"));
    scene.desk.files.insert("large".to_owned(), Bytes::from(vec![7; 11_000_000]));
    let mut pairs = credentials(&scene.server);
    pairs.push(("sessiontoken".to_owned(), "temporary".to_owned()));
    let staging = staging_with(pairs);
    staging.stage_in(&scene.plan, &scene.token, &scene.desk).await.unwrap();
    scene.take_with(&staging).await.unwrap();
    let mut node = Node::new("#!/bin/sh\ntrue\n").await;
    node.scene.plan = scene.plan.clone();
    let submission = staging.stage_in(&scene.plan, &scene.token, &node.slurm).await.unwrap();
    node.run(&submission, &[]).await;
    let seen = scene.server.door().seen();
    for (method, path) in [
        ("GET", "/data/script"),
        ("PUT", "/results"),
        ("POST", "/results/hello/large"),
        ("PUT", "/results/hello/stdout"),
    ] {
        assert!(
            seen.iter().any(|request| request.method == method && request.path == path),
            "{method} {path} {seen:?}"
        );
    }
    assert!(seen.iter().all(|request| request.session_token.as_deref() == Some("temporary")), "{seen:?}");
}
