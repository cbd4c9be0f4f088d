//! From a Secret's content to the headers that prove who asks.

use std::fmt;
use std::sync::Arc;

use bridge_core::credentials::Credentials;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

/// How requests are authenticated. The headers are computed again whenever the Secret has changed.
#[derive(Clone)]
pub struct Auth(Arc<HeadersOf>);

type HeadersOf = dyn Fn(&Credentials) -> Result<HeaderMap, MissingKey> + Send + Sync;

/// A key that the Secret should have and has not, or whose value cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MissingKey(pub String);

impl Auth {
    /// No authentication.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|_| Ok(HeaderMap::new()))
    }

    /// `Authorization: Bearer` with the value of a key of the Secret.
    #[must_use]
    pub fn bearer(key: &'static str) -> Self {
        Self::new(move |credentials| {
            let token = require(credentials, &[key])?;
            Ok(HeaderMap::from_iter([(AUTHORIZATION, sensitive(&format!("Bearer {token}"), key)?)]))
        })
    }

    /// `Authorization: Bearer` if the Secret has the key, nothing otherwise.
    #[must_use]
    pub fn optional_bearer(key: &'static str) -> Self {
        let bearer = Self::bearer(key);
        Self::new(move |credentials| match credentials.get(key) {
            Some(_) => bearer.headers(credentials),
            None => Ok(HeaderMap::new()),
        })
    }

    /// Headers, each with the value of the first of some keys that the Secret has.
    #[must_use]
    pub fn header_pairs(pairs: &'static [(&'static str, &'static [&'static str])]) -> Self {
        Self::new(move |credentials| {
            pairs
                .iter()
                .map(|(name, keys)| {
                    let value = sensitive(require(credentials, keys)?, keys.first().copied().unwrap_or_default())?;
                    let name = HeaderName::from_bytes(name.as_bytes())
                        .map_err(|_| MissingKey(format!("{name:?} is no name of a header")))?;
                    Ok((name, value))
                })
                .collect()
        })
    }

    /// Any other way.
    pub fn new(headers: impl Fn(&Credentials) -> Result<HeaderMap, MissingKey> + Send + Sync + 'static) -> Self {
        Self(Arc::new(headers))
    }

    pub(super) fn headers(&self, credentials: &Credentials) -> Result<HeaderMap, MissingKey> {
        let mut headers = (self.0)(credentials)?;
        for value in headers.values_mut() {
            value.set_sensitive(true);
        }
        Ok(headers)
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(..)")
    }
}

fn require<'a>(credentials: &'a Credentials, keys: &[&str]) -> Result<&'a str, MissingKey> {
    keys.iter().find_map(|key| credentials.get(key)).ok_or_else(|| {
        let keys = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" or ");
        MissingKey(format!("the Secret has no key {keys}; add it"))
    })
}

fn sensitive(value: &str, key: &str) -> Result<HeaderValue, MissingKey> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| MissingKey(format!("the Secret's key `{key}` has characters that a header cannot carry")))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> Credentials {
        Credentials::from_pairs(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn a_missing_key_is_named() {
        let auth = Auth::header_pairs(&[("x-user", &["username"]), ("x-token", &["token", "password"])]);
        let error = auth.headers(&secret(&[("username", "alice")])).unwrap_err();
        assert_eq!(error.to_string(), "the Secret has no key `token` or `password`; add it");
        let headers = auth.headers(&secret(&[("username", "alice"), ("password", "old"), ("token", "new")])).unwrap();
        assert_eq!(headers["x-token"], "new");
        assert!(headers.values().all(HeaderValue::is_sensitive));
    }

    #[test]
    fn a_value_that_no_header_can_carry_is_refused_without_showing_it() {
        let error = Auth::bearer("token").headers(&secret(&[("token", "se\ncret")])).unwrap_err().to_string();
        assert!(error.contains("`token`") && !error.contains("cret\"") && !error.contains("se\n"), "{error}");
    }
}
