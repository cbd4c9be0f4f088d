//! What a job moves by itself, where its manager has no files.

use std::fmt;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

/// A URL that carries its own signature: whoever has it may use it. It is shown nowhere and saved nowhere.
#[derive(Clone)]
pub struct SignedUrl(SecretString);

impl SignedUrl {
    /// Keeps a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self(SecretString::from(url.into()))
    }

    /// The URL, for those who need it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for SignedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignedUrl(…)")
    }
}

/// What a job fetches before its script and sends after it.
#[derive(Debug, Clone)]
pub struct Cargo {
    /// What it fetches.
    pub inputs: Vec<Incoming>,
    /// What it sends, most important first.
    pub outputs: Vec<Outgoing>,
    /// Where it tells what it sent; `None` if it sends nothing.
    pub report: Option<SignedUrl>,
    /// A header that goes with everything it sends: name and value.
    pub mark: (String, String),
    /// When the URLs end.
    pub expires: Timestamp,
    /// PEM of the authorities that sign the store's certificate.
    pub authorities: Option<String>,
}

/// A file to fetch.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// Its name in the job's folder.
    pub name: String,
    /// Where it is.
    pub url: SignedUrl,
    /// Bytes.
    pub size: u64,
    /// The checksum of its content as the store keeps it, if it does.
    pub sha256: Option<String>,
}

/// Something to send.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// What it is called in the report.
    pub name: String,
    /// What it is.
    pub source: OutgoingSource,
    /// Where it goes.
    pub url: SignedUrl,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutgoingSource {
    /// The job's standard output.
    Stdout,
    /// The job's standard error.
    Stderr,
    /// A file, by its path as the job sees it.
    File(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_url_shows_nothing_of_itself() {
        let url = SignedUrl::new("https://store/b/k?X-Amz-Signature=abc");
        assert!(!format!("{url:?}").contains("abc"));
        assert!(url.expose().ends_with("abc"));
    }
}
