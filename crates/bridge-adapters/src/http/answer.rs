//! Answers, read as a whole within a bound or in pieces.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::error::{Cause, HttpError, Reached};
use super::retry;

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, within the client's bound.
    pub body: Bytes,
    pub(super) place: String,
}

impl Answer {
    /// An answer that was recorded, for tests of adapters.
    #[cfg(test)]
    pub(crate) fn recorded(status: u16, body: impl Into<Bytes>) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or_default();
        Self { status, headers: HeaderMap::new(), body: body.into(), place: "http://recorded".to_owned() }
    }

    /// The body as JSON. An answer that is none is of an unknown effect.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| HttpError {
            cause: Cause::Answer,
            reached: Reached::Perhaps,
            message: format!("the answer of {} ({}) is not the JSON that was expected", self.place, self.status),
            source: Some(Box::new(error)),
        })
    }

    /// The beginning of the body as one line of text, for messages about plain-text errors.
    #[must_use]
    pub fn excerpt(&self) -> String {
        const LONGEST: usize = 300;
        let head = self.body.get(..LONGEST * 4).unwrap_or(&self.body);
        let text = String::from_utf8_lossy(head);
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
    }

    /// When the remote system said to come back.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        retry::retry_after(&self.headers)
    }

    /// Scheme, host and path of the request, for messages.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// An answer whose body is read in pieces.
pub struct StreamedAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; each piece must come within the request's timeout.
    pub body: BoxStream<'static, std::io::Result<Bytes>>,
    pub(super) place: String,
}

impl StreamedAnswer {
    /// Reads the rest as a whole, unless it is larger than the bound.
    pub async fn into_answer(mut self, bound: usize) -> Result<Answer, HttpError> {
        let mut whole = bytes::BytesMut::new();
        while let Some(piece) = self.body.next().await {
            let piece = piece.map_err(|error| HttpError {
                cause: Cause::Broken,
                reached: Reached::Perhaps,
                message: format!("the answer of {} broke off", self.place),
                source: Some(Box::new(error)),
            })?;
            if whole.len() + piece.len() > bound {
                return Err(too_large(&self.place, bound));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Answer { status: self.status, headers: self.headers, body: whole.freeze(), place: self.place })
    }

    /// Scheme, host and path of the request, for messages.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl std::fmt::Debug for StreamedAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamedAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The body's pieces, each within the timeout.
pub(super) fn pieces(response: reqwest::Response, timeout: Duration) -> BoxStream<'static, std::io::Result<Bytes>> {
    let body = response.bytes_stream().boxed();
    futures::stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout(timeout, body.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(body))),
            Ok(Some(Err(error))) => Some((Err(std::io::Error::other(error.without_url())), None)),
            Ok(None) => None,
            Err(_) => Some((Err(std::io::ErrorKind::TimedOut.into()), None)),
        }
    })
    .boxed()
}

/// Reads the body as a whole, unless it is larger than the bound.
pub(super) async fn read_bounded(
    response: reqwest::Response,
    place: &str,
    bound: usize,
    timeout: Duration,
) -> Result<Bytes, HttpError> {
    if response.content_length().is_some_and(|length| length > bound as u64) {
        return Err(too_large(place, bound));
    }
    let mut body = response.bytes_stream();
    let mut whole = bytes::BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| HttpError::from_transport(error, place, timeout, true))?;
        if whole.len() + piece.len() > bound {
            return Err(too_large(place, bound));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

fn too_large(place: &str, bound: usize) -> HttpError {
    let message = format!("the answer of {place} is larger than {} MiB and was not read", bound / (1024 * 1024));
    HttpError::new(Cause::Answer, Reached::Perhaps, message)
}
