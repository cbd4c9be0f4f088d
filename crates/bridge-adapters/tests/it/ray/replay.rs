//! The adapter against answers that a real Ray gave, whatever it is asked.

use axum::body::Body;
use axum::http::{Method, Uri};
use axum::response::Response;
use bridge_core::manager::{ErrorKind, Found, LoadProbe, LogCursor, LogStream, Logs, ManagerError, SubmitError};

use super::*;

/// A server that gives the answer of a capture: one to POSTs, another to everything else.
struct Replay {
    manager: RayManager,
    token: SubmitToken,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The answer, with our token in the place of the id.
fn capture(name: &str, token: &SubmitToken) -> (u16, String) {
    let path = format!("{}/src/ray/testdata/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let response = &value["response"];
    let text = match &response["body"] {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    let ids = ["bridge-uid-0001", "bridge-fail", "bridge-stop", "wd-rest", "no-res", "pend-stop", "nope", "drv-1"];
    let text = ids.iter().fold(text, |text, id| text.replace(id, token.as_str()));
    (u16::try_from(response["status"].as_u64().unwrap()).unwrap(), text)
}

impl Replay {
    async fn new(post: &str, other: &str) -> Self {
        let token = SubmitToken::derive("replay", 1);
        let answers = (capture(post, &token), capture(other, &token));
        let answer = async move |method: Method, _: Uri| {
            let (status, text) = if method == Method::POST { answers.0.clone() } else { answers.1.clone() };
            Response::builder().status(status).body(Body::from(text)).unwrap()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let manager = manager_at(&format!("http://{}", listener.local_addr().unwrap()), &Secret::default());
        let router = axum::Router::new().fallback(answer);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { manager, token, server }
    }

    async fn submit(&self) -> Result<RemoteId, SubmitError> {
        let job = Submission { token: self.token.clone(), ..command("x", "true") };
        self.manager.submit(&job).await.map(|submitted| submitted.id)
    }

    async fn find(&self) -> Result<Found, ManagerError> {
        self.manager.find(&self.token, Timestamp::UNIX_EPOCH).await
    }
}

#[tokio::test]
async fn submissions() {
    // Taken, or there already.
    for (post, other) in [
        ("03-submit-with-id", "20-unknown-get"),
        ("05-submit-dup-id", "06-get-RUNNING"),
        ("57-submit-dup-finished", "06-get-SUCCEEDED"),
    ] {
        let replay = Replay::new(post, other).await;
        assert_eq!(replay.submit().await.unwrap().as_str(), replay.token.as_str(), "{post}");
    }
    // Refused for good.
    for post in ["25-bad-no-entrypoint", "26-bad-unknown-field", "27-bad-type", "28-bad-metadata-type"] {
        let Err(SubmitError::NotSubmitted(error)) = Replay::new(post, "20-unknown-get").await.submit().await else {
            panic!("{post}")
        };
        assert_eq!(error.kind, ErrorKind::Refused, "{post}: {error}");
        assert!(error.message.contains("TypeError") && !error.message.contains("Traceback"), "{post}: {error}");
    }
    // Surely not, but perhaps later.
    for (post, kind) in [
        ("auth-01-no-token", ErrorKind::Credential),
        ("auth-02-bad-token", ErrorKind::Credential),
        ("32-no-trailing-slash", ErrorKind::Protocol),
        ("84-browser-post", ErrorKind::Protocol),
    ] {
        let Err(SubmitError::NotSubmitted(error)) = Replay::new(post, "20-unknown-get").await.submit().await else {
            panic!("{post}")
        };
        assert_eq!(error.kind, kind, "{post}: {error}");
    }
    // Nobody knows: trouble, another's id, and a job that exists and is not there.
    for (post, other) in [
        ("23-bad-empty-body", "20-unknown-get"),
        ("31-no-resources", "20-unknown-get"),
        ("05-submit-dup-id", "20-unknown-get"),
        ("05-submit-dup-id", "23-bad-empty-body"),
    ] {
        let replay = Replay::new(post, other).await;
        let answer = replay.submit().await;
        if post == "31-no-resources" {
            // Its id is replaced by ours.
            assert!(answer.is_ok());
        } else {
            assert!(matches!(answer, Err(SubmitError::Unknown(_))), "{post} {other}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn questions() {
    for there in ["04-get-pending", "06-get-RUNNING", "13-get-FAILED", "auth-08-get"] {
        let replay = Replay::new("20-unknown-get", there).await;
        assert_eq!(replay.find().await.unwrap(), Found::Jobs(vec![RemoteId::new(replay.token.as_str())]), "{there}");
        assert!(!matches!(look(&replay.manager, &tracked(&replay.token)).await, Sighting::Gone), "{there}");
    }
    for absent in ["16-get-after-delete", "20-unknown-get", "90-get-after-head-restart"] {
        let replay = Replay::new("22-unknown-stop", absent).await;
        assert_eq!(look(&replay.manager, &tracked(&replay.token)).await, Sighting::Gone, "{absent}");
        replay.manager.cancel(&tracked(&replay.token)).await.unwrap();
    }
    // What is not an answer about the job is never taken for one.
    for (other, kind) in [
        ("32-no-trailing-slash", ErrorKind::Protocol),
        ("40-pkg-get-absent", ErrorKind::Protocol),
        ("23-bad-empty-body", ErrorKind::Unreachable),
        ("auth-01-no-token", ErrorKind::Credential),
        ("auth-02-bad-token", ErrorKind::Credential),
        ("01-version", ErrorKind::Protocol),
    ] {
        let replay = Replay::new("10-stop", other).await;
        assert_eq!(replay.find().await.unwrap_err().kind, kind, "{other}");
        let error = replay.manager.poll(&[tracked(&replay.token)]).await.unwrap_err();
        assert_eq!(error.kind, kind, "{other}");
        let many: Vec<Tracked> =
            (0..20).map(|number| tracked(&SubmitToken::derive(&format!("n{number}"), 1))).collect();
        assert_eq!(replay.manager.poll(&many).await.unwrap_err().kind, kind, "{other}");
    }
    for stop in ["10-stop", "12-stop-already-stopped", "62-stop-PENDING", "91-stop-pending"] {
        let replay = Replay::new(stop, "20-unknown-get").await;
        replay.manager.cancel(&tracked(&replay.token)).await.unwrap();
    }
    let load = LoadProbe::load(&Replay::new("10-stop", "70-cluster_status").await.manager).await.unwrap();
    assert_eq!((load.len(), load[0].cpus.total), (1, 2));
}

#[tokio::test]
async fn a_list_is_read_and_strangers_are_not_ours() {
    let replay = Replay::new("10-stop", "14-list").await;
    let mut jobs: Vec<Tracked> =
        (0..20).map(|number| tracked(&SubmitToken::derive(&format!("n{number}"), 1))).collect();
    jobs.push(tracked(&replay.token));
    let seen = replay.manager.poll(&jobs).await.unwrap();
    assert_eq!(seen.len(), 21);
    assert_eq!(seen.values().filter(|sighting| **sighting == Sighting::Gone).count(), 20);
}

#[tokio::test]
async fn an_answer_that_is_no_log_is_none() {
    let replay = Replay::new("10-stop", "06-get-SUCCEEDED").await;
    let error = replay.manager.read(&tracked(&replay.token), LogStream::Stdout, LogCursor(0)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
}
