//! A cluster whose certificate only the Secret's `ca.crt` vouches for.

use std::process::Command;

use bridge_core::manager::{ErrorKind, LogCursor, LogStream, Logs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority and a certificate of it for 127.0.0.1, or `None` without openssl.
fn certificates(folder: &std::path::Path) -> Option<()> {
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n").unwrap();
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=authority"))?;
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=ray"))?;
    openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names")
}

/// Takes TLS off what comes to its port and hands it on.
async fn terminate(folder: &std::path::Path, behind: &str) -> (String, tokio::task::JoinHandle<()>) {
    let chain = CertificateDer::pem_file_iter(folder.join("server.crt")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let behind = behind.trim_start_matches("http://").to_owned();
    let server = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await.ok()?;
                let mut server = TcpStream::connect(behind).await.ok()?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()
            });
        }
    });
    (url, server)
}

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
