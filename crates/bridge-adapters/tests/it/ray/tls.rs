//! A cluster whose certificate only the Secret's `ca.crt` vouches for.

use bridge_core::manager::{ErrorKind, LogCursor, LogStream, Logs};

use super::*;
use crate::tls::{certificates, terminate};

#[tokio::test(flavor = "multi_thread")]
async fn the_secrets_authority_is_trusted_for_requests_and_websockets() {
    let folder = tempfile::tempdir().unwrap();
    let Some(()) = certificates(folder.path()) else { return bridge_testkit::skip!("there is no openssl") };
    let cluster = Cluster::start().await;
    let (url, server) = terminate(folder.path(), cluster.server.url()).await;
    let authority = std::fs::read_to_string(folder.path().join("ca.crt")).unwrap();

    let stranger = manager_at(&url, &Secret::new(&[("token", TOKEN)]));
    let error = stranger.poll(&[tracked(&SubmitToken::derive("x", 1))]).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Credential), "{error}");
    assert!(cluster.server.authorizations().is_empty(), "the token was shown to a stranger");

    // A wait that long shows that the websocket brought the output.
    let config = Config { log_wait: Duration::from_mins(10), ..Config::new(&url) };
    let secret = Secret::new(&[("token", TOKEN), ("ca.crt", &authority)]);
    let manager = RayManager::new(config, Arc::new(secret)).unwrap();
    let job = submit(&manager, &python("tls", "import time\nprint('over TLS', flush=True)\ntime.sleep(600)\n")).await;
    let mut text = String::new();
    until("output over TLS", async || {
        let cursor = LogCursor(u64::try_from(text.len()).unwrap());
        let chunk = manager.read(&job, LogStream::Stdout, cursor).await.unwrap();
        text.push_str(std::str::from_utf8(&chunk.data).unwrap());
        text.contains("over TLS\n").then_some(())
    })
    .await;
    manager.cancel(&job).await.unwrap();
    ended(&manager, &Tracked { cancelling: true, ..job }).await;
    server.abort();
}
