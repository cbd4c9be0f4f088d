//! One request in the making.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use url::Url;

use super::answer::{Answer, StreamedAnswer};
use super::client::Client;
use super::error::{Cause, HttpError, Reached};

/// One request in the making; nothing is sent before [`send`](Self::send).
#[derive(Debug)]
#[must_use = "nothing is sent before `send`"]
pub struct Request<'a> {
    pub(super) client: &'a Client,
    pub(super) operation: &'static str,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody,
    pub(super) timeout: Duration,
    pub(super) repeatable: bool,
    problem: Option<HttpError>,
}

pub(super) enum RequestBody {
    None,
    Whole(Bytes),
    Pieces(reqwest::Body),
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Bodies may hold credentials, e.g. of a log-on.
        f.write_str(match self {
            Self::None => "None",
            Self::Whole(_) => "Whole(..)",
            Self::Pieces(_) => "Pieces(..)",
        })
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(client: &'a Client, operation: &'static str, method: Method, url: Url) -> Self {
        let repeatable = method.is_safe();
        let timeout = client.options().timeout;
        let (headers, body) = (HeaderMap::new(), RequestBody::None);
        Self { client, operation, method, url, headers, body, timeout, repeatable, problem: None }
    }

    /// Adds query parameters, escaped.
    pub fn query<K: AsRef<str>, V: AsRef<str>>(mut self, pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs = pairs.into_iter().peekable();
        if pairs.peek().is_some() {
            self.url.query_pairs_mut().extend_pairs(pairs);
        }
        self
    }

    /// Sets a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sends the value as JSON.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.bytes(HeaderValue::from_static("application/json"), body),
            Err(error) => {
                self.problem = Some(HttpError {
                    cause: Cause::Forbidden,
                    reached: Reached::No,
                    message: "the request cannot be written as JSON".to_owned(),
                    source: Some(Box::new(error)),
                });
                self
            }
        }
    }

    /// Sends bytes.
    pub fn bytes(mut self, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        self.headers.insert(CONTENT_TYPE, content_type);
        self.body = RequestBody::Whole(body.into());
        self
    }

    /// Sends a stream. Such a request is never repeated.
    pub fn stream(mut self, content_type: HeaderValue, body: bridge_core::manager::ByteStream) -> Self {
        self.headers.insert(CONTENT_TYPE, content_type);
        self.body = RequestBody::Pieces(reqwest::Body::wrap_stream(body));
        self.repeatable = false;
        self
    }

    /// How long one try may take, from the connection to the last byte of the answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Doing it twice is as good as doing it once. Reads are repeatable anyway; a submission never is.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = !matches!(self.body, RequestBody::Pieces(_));
        self
    }

    /// One try only, even for a read.
    pub fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// Sends it and reads the answer, whatever its status.
    pub async fn send(mut self) -> Result<Answer, HttpError> {
        match self.problem.take() {
            Some(problem) => Err(problem),
            None => self.client.run(self).await,
        }
    }

    /// Sends it, once, and hands the answer's body over in pieces. The timeout is for the head and for each piece.
    pub async fn send_streamed(mut self) -> Result<StreamedAnswer, HttpError> {
        match self.problem.take() {
            Some(problem) => Err(problem),
            None => self.client.run_streamed(self).await,
        }
    }
}
