//! An S3 server that checks signatures, and the signing that asks it.
//!
//! The server keeps objects as files below a folder: `bucket/key`. Where it differs from the real service: a PUT to a
//! missing bucket succeeds, a GET from one says `NoSuchKey`, a bucket that is not empty can be deleted.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use door::BucketInName;
use futures::StreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use jiff::Timestamp;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

mod door;

pub use door::{Door, Request};

const REGION: &str = "us-east-1";

/// What a client proves itself with.
#[derive(Clone, Debug)]
pub struct S3Keys {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret_key: SecretString,
}

impl S3Keys {
    /// Makes keys of these texts.
    #[must_use]
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self { access_key: access_key.into(), secret_key: SecretString::from(secret_key.into()) }
    }

    /// A URL that carries its own signature: whoever has it may do `method` to `path` (`/bucket/key`) for a while.
    ///
    /// `endpoint` is the server's `http://host:port`.
    #[must_use]
    pub fn presign(&self, method: &str, endpoint: &str, path: &str, at: Timestamp, seconds: u32) -> String {
        let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
        let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        let scope = format!("{day}/{REGION}/s3/aws4_request");
        let path = escape(path, true);
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={time}&X-Amz-Expires={seconds}&X-Amz-SignedHeaders=host",
            escape(&format!("{}/{scope}", self.access_key), false),
        );
        let request = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(request.as_bytes())));
        let mut key = sign(format!("AWS4{}", self.secret_key.expose_secret()).as_bytes(), day);
        for part in [REGION, "s3", "aws4_request"] {
            key = sign(&key, part);
        }
        let signature = hex(&sign(&key, &text));
        format!("{endpoint}{path}?{query}&X-Amz-Signature={signature}")
    }
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes a key of any length; the error type is there for other algorithms.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn escape(text: &str, keep_slashes: bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b'/' if keep_slashes => out.push('/'),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    })
}

/// A server inside the test's own process. It ends when this value is dropped.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    root: PathBuf,
    keys: S3Keys,
    door: Arc<Door>,
    task: JoinHandle<()>,
    /// Removed with the server, if it is the server's own.
    folder: Option<tempfile::TempDir>,
}

impl S3Server {
    /// Starts a server on a free port of 127.0.0.1, with a folder and keys of its own.
    pub async fn start() -> anyhow::Result<Self> {
        let temporary = tempfile::tempdir().context("no temporary folder for the S3 server could be made")?;
        let keys = S3Keys::new("test-access-key", "test-secret-key");
        let listener =
            TcpListener::bind("127.0.0.1:0").await.context("the S3 server found no free port on 127.0.0.1")?;
        let mut server = Self::on(listener, temporary.path(), keys)?;
        server.folder = Some(temporary);
        Ok(server)
    }

    /// Starts a server on a socket that listens already, with the objects of `root`.
    pub fn on(listener: TcpListener, root: &Path, keys: S3Keys) -> anyhow::Result<Self> {
        let service = service(root, &keys)?;
        let address = listener.local_addr().context("the S3 server's socket has no address")?;
        let door = Arc::<Door>::default();
        let task = tokio::spawn(accept(listener, service, Arc::clone(&door)));
        Ok(Self { address, root: root.to_owned(), keys, door, task, folder: None })
    }

    /// Where all requests come in.
    #[must_use]
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://host:port`
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The keys it accepts.
    #[must_use]
    pub fn keys(&self) -> &S3Keys {
        &self.keys
    }

    /// Makes a bucket without asking the server.
    pub fn create_bucket(&self, name: &str) -> io::Result<()> {
        std::fs::create_dir_all(self.root.join(name))
    }

    /// The file that holds an object.
    #[must_use]
    pub fn object_path(&self, bucket: &str, key: &str) -> PathBuf {
        self.root.join(bucket).join(key)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the objects below `root` until the process ends.
pub async fn serve(listener: TcpListener, root: &Path, keys: &S3Keys) -> anyhow::Result<()> {
    accept(listener, service(root, keys)?, Arc::default()).await;
    Ok(())
}

/// Serves a store of one's own until the process ends.
pub async fn serve_store(listener: TcpListener, store: impl S3, keys: &S3Keys) {
    accept(listener, signed(store, keys), Arc::default()).await;
}

fn service(root: &Path, keys: &S3Keys) -> anyhow::Result<S3Service> {
    let files = s3s_fs::FileSystem::new(root)
        .map_err(|error| anyhow!("the folder {} cannot hold S3 objects: {error:?}", root.display()))?;
    Ok(signed(files, keys))
}

fn signed(store: impl S3, keys: &S3Keys) -> S3Service {
    let mut builder = S3ServiceBuilder::new(store);
    builder.set_auth(SimpleAuth::from_single(keys.access_key.clone(), keys.secret_key.expose_secret().to_owned()));
    builder.set_host(BucketInName);
    builder.build()
}

async fn accept(listener: TcpListener, service: S3Service, door: Arc<Door>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let (service, door) = (service.clone(), Arc::clone(&door));
                tokio::spawn(async move {
                    let connection = TokioIo::new(socket);
                    let enter = service_fn(|request: http::Request<hyper::body::Incoming>| {
                        let (service, door) = (service.clone(), Arc::clone(&door));
                        async move {
                            if let Some((status, text)) = door.pass(&request).await {
                                // A client that is still sending when the connection closes may never read the answer.
                                read_to_its_end(request.into_body()).await;
                                let mut answer = http::Response::new(Body::from(text));
                                *answer.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
                                return Ok(answer);
                            }
                            service.call(request.map(Body::from)).await
                        }
                    });
                    if let Err(error) = Builder::new(TokioExecutor::new()).serve_connection(connection, enter).await {
                        tracing::debug!(%error, "an S3 connection ended early");
                    }
                });
            }
            // Out of descriptors, most likely: those in use come back.
            Err(error) => {
                tracing::warn!(%error, "an S3 connection was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn read_to_its_end(body: hyper::body::Incoming) {
    let mut pieces = axum::body::Body::new(body).into_data_stream();
    while let Some(Ok(_)) = pieces.next().await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_presigned_url_matches_the_published_example() {
        // The example of "Authenticating Requests: Using Query Parameters" in Amazon's documentation.
        let keys = S3Keys::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let at: Timestamp = "2013-05-24T00:00:00Z".parse().unwrap();
        let url = keys.presign("GET", "https://examplebucket.s3.amazonaws.com", "/test.txt", at, 86400);
        assert!(
            url.ends_with("&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"),
            "{url}"
        );
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the server compares with the real clock")]
    async fn a_signed_request_is_served_and_a_wrongly_signed_one_refused() {
        let server = S3Server::start().await.unwrap();
        server.create_bucket("bucket").unwrap();
        let client = reqwest::Client::new();
        let now = Timestamp::now();
        let put = server.keys().presign("PUT", &server.endpoint(), "/bucket/a key", now, 60);
        let answer = client.put(put).body("content").send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        assert_eq!(std::fs::read(server.object_path("bucket", "a key")).unwrap(), b"content");

        let wrong = S3Keys::new(&server.keys().access_key, "another secret");
        for keys in [wrong, S3Keys::new("nobody", "test-secret-key")] {
            let url = keys.presign("GET", &server.endpoint(), "/bucket/a key", now, 60);
            assert_eq!(client.get(url).send().await.unwrap().status(), 403);
        }
        let unsigned = format!("{}/bucket/a%20key", server.endpoint());
        assert_eq!(client.get(unsigned).send().await.unwrap().status(), 403);
    }
}
