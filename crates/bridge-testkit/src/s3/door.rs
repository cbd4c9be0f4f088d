//! What a server was asked, and requests that are kept waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use tokio::sync::watch;

/// A request as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// Under which name the server was reached.
    pub host: String,
    /// The session token that came along, in a header or in a signed URL.
    pub session_token: Option<String>,
}

/// Counts requests, keeps some of them waiting and turns some away.
#[derive(Debug)]
pub struct Door {
    seen: Mutex<Vec<Request>>,
    refusals: Mutex<Vec<Refusal>>,
    /// Session tokens that have ended.
    ended: Mutex<Vec<String>>,
    /// Part of the path of PUT requests that wait.
    closed_for: watch::Sender<Option<String>>,
}

/// An answer in place of the store's own.
#[derive(Clone, Debug)]
struct Refusal {
    method: &'static str,
    path: String,
    status: u16,
    code: &'static str,
    times: usize,
}

impl Default for Door {
    fn default() -> Self {
        Self {
            seen: Mutex::default(),
            refusals: Mutex::default(),
            ended: Mutex::default(),
            closed_for: watch::Sender::new(None),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    /// All requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Request> {
        locked(&self.seen).clone()
    }

    /// How many objects or parts were sent to a path.
    #[must_use]
    pub fn puts(&self, path: &str) -> usize {
        self.seen().iter().filter(|request| request.method == "PUT" && request.path == path).count()
    }

    /// PUT requests with this text in their path wait from now on.
    pub fn close_for(&self, text: &str) {
        self.closed_for.send_replace(Some(text.to_owned()));
    }

    /// Those that wait go on.
    pub fn open(&self) {
        self.closed_for.send_replace(None);
    }

    /// The next requests of this kind to this path are answered with an error in S3's words.
    pub fn refuse(&self, method: &'static str, path: &str, (status, code): (u16, &'static str), times: usize) {
        locked(&self.refusals).push(Refusal { method, path: path.to_owned(), status, code, times });
    }

    /// Requests with this session token are refused from now on, also those that wait.
    pub fn end_token(&self, token: &str) {
        locked(&self.ended).push(token.to_owned());
    }

    fn refusal(&self, method: &str, path: &str) -> Option<Refusal> {
        let mut refusals = locked(&self.refusals);
        let found = refusals.iter_mut().find(|one| one.times > 0 && one.method == method && one.path == path)?;
        found.times -= 1;
        Some(found.clone())
    }

    /// Lets a request in, or says what it is answered with.
    pub(super) async fn pass<B>(&self, request: &http::Request<B>) -> Option<(u16, String)> {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let in_query = || {
            let mut pairs = request.uri().query().unwrap_or_default().split('&');
            pairs.find_map(|pair| pair.strip_prefix("X-Amz-Security-Token=")).map(str::to_owned)
        };
        let waits = |text: &Option<String>| method == "PUT" && text.as_ref().is_some_and(|text| path.contains(text));
        let session_token = header("x-amz-security-token").or_else(in_query);
        locked(&self.seen).push(Request {
            method: method.clone(),
            path: path.clone(),
            host: header("host").or_else(|| request.uri().host().map(str::to_owned)).unwrap_or_default(),
            session_token: session_token.clone(),
        });
        // The sender lives as long as this does.
        self.closed_for.subscribe().wait_for(|text| !waits(text)).await.ok();
        let (status, code) = if session_token.is_some_and(|token| locked(&self.ended).contains(&token)) {
            (400, "ExpiredToken")
        } else {
            let Refusal { status, code, .. } = self.refusal(&method, &path)?;
            (status, code)
        };
        Some((status, format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>")))
    }
}

/// The domain under which each bucket has a name of its own.
const DOMAIN: &str = ".s3.test";

/// Takes the bucket from names as `bucket.s3.test`, and from the path otherwise.
#[derive(Debug)]
pub(super) struct BucketInName;

impl S3Host for BucketInName {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        Ok(match name.strip_suffix(DOMAIN) {
            Some(bucket) => VirtualHost::new(&host[bucket.len() + 1..]).with_bucket(bucket),
            None => VirtualHost::new(host),
        })
    }
}
