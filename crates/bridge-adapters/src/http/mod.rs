//! The one HTTP client of all adapters.
//!
//! # Guarantees
//! - A credential is sent only to the origin of the base URL, and only below the Secret's `allowedURL`, if it has one.
//!   Redirects are followed for reads, within the same origin and the same limits, and never for anything else.
//! - A request that is not marked as repeatable leaves this process at most once, except after an answer that says that
//!   its credential was not accepted and a changed credential was found.
//! - [`HttpError::reached`] tells a request that surely never arrived from one of which nobody knows.
//! - No error text and no log line holds a credential, a header's value or a URL's query.
//! - Bodies, retries, waiting times and requests under way are bounded.

mod answer;
mod auth;
mod client;
mod counters;
mod error;
mod guard;
mod request;
mod retry;
mod upgrade;

pub use answer::{Answer, StreamedAnswer};
pub use auth::{Auth, MissingKey};
pub use client::{Client, Options};
pub use counters::{Counters, OperationCount};
pub use error::{Cause, HttpError, Reached};
pub use guard::{AllowedUrl, NotAllowed};
pub use request::Request;
pub use upgrade::Upgrade;

/// Whether an answer says that the credential was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// It does not say so.
    No,
    /// It says so, and nothing else was done: the request may be sent again with another credential.
    Surely,
    /// That may be the reason; only a repeatable request may be sent again.
    Perhaps,
}
