//! Why a request has no answer.

use std::time::Duration;

use bridge_core::manager::{ErrorKind, ManagerError, SubmitError};

/// A request without a usable answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct HttpError {
    /// What kind of trouble.
    pub cause: Cause,
    /// Whether the remote system may have acted on it.
    pub reached: Reached,
    /// What happened, to what, and what to do.
    pub message: String,
    /// The underlying error, without its URL.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Whether the remote system may have acted on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// Surely not: it never left, or found no listener.
    No,
    /// Nobody knows.
    Perhaps,
}

/// Kinds of trouble with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No connection: no listener, no such name, no trust.
    Connect,
    /// No answer in time.
    Timeout,
    /// The connection broke.
    Broken,
    /// The answer is too large or not what was asked for.
    Answer,
    /// The credential cannot be read or lacks a key.
    Credential,
    /// The request may not be made: outside `allowedURL`, a redirect elsewhere, a URL that cannot be used.
    Forbidden,
}

impl HttpError {
    pub(super) fn new(cause: Cause, reached: Reached, message: impl Into<String>) -> Self {
        Self { cause, reached, message: message.into(), source: None }
    }

    /// How `bridge_core` names this trouble.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.cause {
            Cause::Connect | Cause::Timeout | Cause::Broken => ErrorKind::Unreachable,
            Cause::Answer => ErrorKind::Protocol,
            Cause::Credential => ErrorKind::Credential,
            Cause::Forbidden => ErrorKind::Refused,
        }
    }

    /// The error of an operation.
    #[must_use]
    pub fn into_manager(self, manager: &'static str, operation: &'static str) -> ManagerError {
        let mut error = ManagerError::new(manager, operation, self.kind(), self.message);
        error.source = self.source;
        error
    }

    /// The error of a submission.
    #[must_use]
    pub fn into_submit(self, manager: &'static str, operation: &'static str) -> SubmitError {
        match self.reached {
            Reached::No => SubmitError::NotSubmitted(self.into_manager(manager, operation)),
            Reached::Perhaps => SubmitError::Unknown(self.into_manager(manager, operation)),
        }
    }

    /// From the transport's error; `while_reading` when the answer's head had arrived already.
    pub(super) fn from_transport(error: reqwest::Error, place: &str, timeout: Duration, while_reading: bool) -> Self {
        let (cause, reached, message) = if error.is_builder() {
            (Cause::Forbidden, Reached::No, format!("the request to {place} cannot be made"))
        } else if error.is_connect() {
            (Cause::Connect, Reached::No, format!("cannot connect to {place}; is it running and reachable from here?"))
        } else if error.is_timeout() {
            (Cause::Timeout, Reached::Perhaps, format!("{place} did not answer within {} s", timeout.as_secs_f32()))
        } else if while_reading {
            (Cause::Broken, Reached::Perhaps, format!("the answer of {place} broke off"))
        } else {
            (Cause::Broken, Reached::Perhaps, format!("the connection to {place} broke before an answer came"))
        };
        Self { cause, reached, message, source: Some(Box::new(error.without_url())) }
    }
}
