//! The Secret's `allowedURL`: where its content may be sent.

use url::Url;

/// A prefix of the URLs that may be sent a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedUrl(Url);

/// The URL is outside of what the Secret allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAllowed(pub String);

impl AllowedUrl {
    /// Reads the Secret's value.
    pub fn parse(text: &str) -> Result<Self, NotAllowed> {
        let url = Url::parse(text).map_err(|error| {
            NotAllowed(format!("the Secret's key `allowedURL` is no URL ({error}); write scheme, host and path"))
        })?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || has_userinfo(&url) {
            return Err(NotAllowed(
                "the Secret's key `allowedURL` must be an http or https URL without a user".to_owned(),
            ));
        }
        Ok(Self(url))
    }

    /// Refuses a URL of another scheme, host or port, or outside the path.
    pub fn check(&self, url: &Url) -> Result<(), NotAllowed> {
        let same_origin = url.origin() == self.0.origin() && !has_userinfo(url);
        let prefix = self.0.path().trim_end_matches('/');
        let below = url.path().strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if same_origin && below && !climbs(url) {
            return Ok(());
        }
        Err(NotAllowed(format!(
            "{} is outside of the Secret's `allowedURL`, so nothing was sent; use a URL below it or ask the Secret's owner",
            shown(url)
        )))
    }
}

/// The URL for messages: no user, no query, no fragment.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

pub(super) fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// A `..` that only a server which decodes a segment once more would see.
fn climbs(url: &Url) -> bool {
    url.path_segments().into_iter().flatten().any(|segment| {
        let decoded = decode(&decode(segment.as_bytes()));
        decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"..")
    })
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = (byte == b'%')
            .then(|| tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(value) = hex {
            decoded.push(value);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            decoded.push(byte);
            rest = tail;
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_origin_and_what_is_below_the_path_is_allowed() {
        let table = [
            ("https://hpc.example/slurm", "https://hpc.example/slurm", true),
            ("https://hpc.example/slurm", "https://hpc.example/slurm/v0.0.38/jobs?x=1", true),
            ("https://hpc.example/slurm/", "https://hpc.example/slurm/v0.0.38", true),
            ("https://hpc.example", "https://hpc.example:443/anything", true),
            ("https://HPC.example/", "https://hpc.example/anything", true),
            ("https://hpc.example/slurm", "https://hpc.example/slurmdb", false),
            ("https://hpc.example/slurm", "https://hpc.example/slurm/../other", false),
            ("https://hpc.example/slurm", "https://hpc.example/slurm/%2e%2e/other", false),
            ("https://hpc.example/slurm", "https://hpc.example/slurm/..%2fother", false),
            ("https://hpc.example/slurm", "https://hpc.example/slurm/..%5cother", false),
            ("https://hpc.example/slurm", "https://hpc.example/slurm/%252e%252e%252fother", false),
            ("https://hpc.example", "http://hpc.example/", false),
            ("https://hpc.example", "https://hpc.example:8443/", false),
            ("https://hpc.example", "https://hpc.example.evil.example/", false),
            ("https://hpc.example", "https://hpc.example@evil.example/", false),
            ("https://hpc.example", "https://user@hpc.example/", false),
            ("https://hpc.example", "https://evil.example/https://hpc.example", false),
        ];
        for (allowed, url, expected) in table {
            let verdict = AllowedUrl::parse(allowed).unwrap().check(&Url::parse(url).unwrap());
            assert_eq!(verdict.is_ok(), expected, "{allowed} {url}");
        }
    }

    #[test]
    fn a_limit_that_is_no_url_allows_nothing() {
        for text in ["hpc.example", "ftp://hpc.example", "https://me:secret@hpc.example", "https://"] {
            let error = AllowedUrl::parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
