//! The client against small servers on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials, StaticCredentials};
use bridge_core::manager::{ErrorKind, SubmitError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers each connection's requests with the next of the replies; an empty reply closes the connection.
async fn server(replies: &[&str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let replies: Arc<Mutex<std::collections::VecDeque<String>>> =
        Arc::new(Mutex::new(replies.iter().map(|reply| (*reply).to_owned()).collect()));
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&replies), Arc::clone(&log)));
        }
    });
    (url, seen)
}

async fn serve(
    mut stream: TcpStream,
    replies: Arc<Mutex<std::collections::VecDeque<String>>>,
    log: Arc<Mutex<Vec<String>>>,
) {
    let mut buffer = vec![0; 65536];
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        log.lock().unwrap().push(String::from_utf8_lossy(&buffer[..read]).into_owned());
        let reply = replies.lock().unwrap().pop_front().unwrap_or_default();
        if reply.is_empty() {
            return;
        }
        stream.write_all(reply.as_bytes()).await.unwrap();
    }
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

fn secret(pairs: &[(&str, &str)]) -> Credentials {
    Credentials::from_pairs(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())))
}

fn client(url: &str, pairs: &[(&str, &str)]) -> Client {
    let source = Arc::new(StaticCredentials(secret(pairs)));
    Client::new(url, Auth::optional_bearer("token"), source, Options::default()).unwrap()
}

/// Hands out a new token at each reading.
#[derive(Debug, Default)]
struct Rotating(AtomicUsize);

#[async_trait]
impl CredentialSource for Rotating {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        Ok(secret(&[("token", &format!("secret-{number}"))]))
    }
}

#[tokio::test]
async fn a_connection_is_kept_and_requests_are_counted() {
    let ok = reply("200 OK", "", "{}");
    let (url, seen) = server(&[&ok, &ok]).await;
    let client = client(&url, &[("token", "t0")]);
    for _ in 0..2 {
        let answer = client.get("poll", client.url(&["a b", "..", "c"])).query([("x", "1&2")]).send().await.unwrap();
        assert_eq!(answer.status, 200);
    }
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("GET /a%20b/c?x=1%262 HTTP/1.1"), "{}", seen[0]);
    assert!(seen[0].to_lowercase().contains("authorization: bearer t0"));
    let counts = client.counters().snapshot();
    assert_eq!(counts["poll"], OperationCount { requests: 2, failures: 0, bytes_received: 4 });
}

use super::super::OperationCount;

#[tokio::test]
async fn a_rejected_credential_is_read_again_and_even_a_submission_goes_out_again() {
    let (url, seen) = server(&[&reply("401 Unauthorized", "", "no"), &reply("200 OK", "", "{}")]).await;
    let client = Client::new(&url, Auth::bearer("token"), Arc::new(Rotating::default()), Options::default()).unwrap();
    let answer = client.post("submit", client.url(&["jobs"])).json(&1).send().await.unwrap();
    assert_eq!(answer.status, 200);
    let seen = seen.lock().unwrap();
    assert!(seen[0].contains("secret-0") && seen[1].contains("secret-1"));
}

#[tokio::test]
async fn an_unchanged_credential_is_not_tried_again() {
    let (url, seen) = server(&[&reply("401 Unauthorized", "", "no")]).await;
    let client = client(&url, &[("token", "t0")]);
    assert_eq!(client.get("poll", client.url(&[])).send().await.unwrap().status, 401);
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_read_is_tried_again_after_a_break_and_after_503_but_a_submission_is_not() {
    let (url, seen) = server(&["", &reply("503 Busy", "Retry-After: 0\r\n", ""), &reply("200 OK", "", "{}")]).await;
    let client = client(&url, &[]);
    assert_eq!(client.get("poll", client.url(&[])).send().await.unwrap().status, 200);
    assert_eq!(seen.lock().unwrap().len(), 3);

    let (url, seen) = server(&["", &reply("200 OK", "", "{}")]).await;
    let client = self::client(&url, &[]);
    let error = client.post("submit", client.url(&[])).json(&1).send().await.unwrap_err();
    assert_eq!((error.cause, error.reached), (Cause::Broken, Reached::Perhaps));
    assert!(matches!(error.into_submit("slurm", "submit"), SubmitError::Unknown(_)));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_submitted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = client(&url, &[("token", "hush")]);
    let error = client.post("submit", client.url(&["x"])).query([("key", "hush")]).json(&1).send().await.unwrap_err();
    assert_eq!((error.cause, error.reached, error.kind()), (Cause::Connect, Reached::No, ErrorKind::Unreachable));
    let text = format!("{error:?}");
    assert!(!text.contains("hush"), "{text}");
    assert!(matches!(error.into_submit("slurm", "submit"), SubmitError::NotSubmitted(_)));
}

#[tokio::test]
async fn silence_after_sending_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = client(&url, &[]);
    let request = client.post("submit", client.url(&[])).json(&1).timeout(Duration::from_millis(100));
    let error = request.send().await.unwrap_err();
    assert_eq!((error.cause, error.reached), (Cause::Timeout, Reached::Perhaps));
}

#[tokio::test]
async fn redirects_stay_on_the_host_and_only_for_reads() {
    let (url, seen) = server(&[&reply("302 Found", "Location: /there\r\n", ""), &reply("200 OK", "", "{}")]).await;
    let client = client(&url, &[]);
    assert_eq!(client.get("poll", client.url(&["here"])).send().await.unwrap().status, 200);
    assert!(seen.lock().unwrap()[1].starts_with("GET /there"));

    let elsewhere = reply("302 Found", "Location: http://127.0.0.2:1/steal?token=1\r\n", "");
    let (url, seen) = server(&[&elsewhere, &reply("307 Redirect", "Location: /there\r\n", "")]).await;
    let client = self::client(&url, &[]);
    let error = client.get("poll", client.url(&[])).send().await.unwrap_err();
    assert!(error.message.contains("http://127.0.0.2:1/steal, which is not followed"), "{}", error.message);
    let error = client.post("submit", client.url(&[])).json(&1).send().await.unwrap_err();
    assert_eq!(error.reached, Reached::No);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn nothing_is_sent_outside_of_the_allowed_url() {
    let (url, seen) = server(&[&reply("200 OK", "", "{}")]).await;
    let client = client(&url, &[("token", "t0"), ("allowedURL", &format!("{url}/mine"))]);
    let error = client.get("poll", client.url(&["theirs"])).send().await.unwrap_err();
    assert_eq!((error.kind(), error.reached), (ErrorKind::Credential, Reached::No));
    assert!(client.credentials().await.is_err());
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(client.get("poll", client.url(&["mine", "job"])).send().await.unwrap().status, 200);

    let other = url::Url::parse("http://127.0.0.2:9/").unwrap();
    assert_eq!(client.get("poll", other).send().await.unwrap_err().cause, Cause::Forbidden);
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_not_read() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n01234567890123456789012345678901\r\n0\r\n\r\n";
    for body in [reply("200 OK", "", &"x".repeat(32)), chunked.to_owned()] {
        let (url, _) = server(&[&body]).await;
        let options = Options { largest_answer: 16, ..Options::default() };
        let client = Client::new(&url, Auth::none(), Arc::new(StaticCredentials::default()), options).unwrap();
        let error = client.get("poll", client.url(&[])).send().await.unwrap_err();
        assert_eq!((error.cause, error.kind()), (Cause::Answer, ErrorKind::Protocol));
    }
}

#[test]
fn urls_that_cannot_be_used_are_refused_without_showing_a_password() {
    for url in ["hpc.example", "ftp://hpc.example", "https://me:hush@hpc.example/"] {
        let source = Arc::new(StaticCredentials::default());
        let error = Client::new(url, Auth::none(), source, Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(!format!("{error:?}").contains("hush"));
    }
}

#[tokio::test]
async fn a_bad_authority_is_a_matter_of_the_secret() {
    let client = client("https://127.0.0.1:1", &[("ca.crt", "no certificate")]);
    let error = client.get("poll", client.url(&[])).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credential);
    assert!(error.message.contains("`ca.crt`"), "{}", error.message);
}

#[tokio::test]
async fn a_body_can_be_read_in_pieces() {
    use futures::StreamExt;
    let (url, _) = server(&[&reply("200 OK", "", "hello")]).await;
    let client = client(&url, &[]);
    let mut answer = client.get("logs", client.url(&[])).send_streamed().await.unwrap();
    let mut text = Vec::new();
    while let Some(piece) = answer.body.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(text, b"hello");
}
