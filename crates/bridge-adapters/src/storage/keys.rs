//! The keys of an object store, read again when they may have changed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::credentials::{CredentialSource, Credentials, keys};
use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Keys older than this are read again before the next request.
const AGE: Duration = Duration::from_secs(60);
/// A source that gives other keys at each reading must not keep a request going for ever.
const MOST_RENEWALS: u32 = 3;
/// An optional key of the Secret: when the session token ends, in RFC 3339.
const EXPIRATION: &str = "expiration";

/// Why the keys cannot be used; names keys of the Secret, never their values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct KeyError(pub(super) String);

/// The keys of one Secret.
pub(super) struct Keys {
    source: Arc<dyn CredentialSource>,
    known: Mutex<Option<Known>>,
}

struct Known {
    credentials: Credentials,
    pair: Arc<AwsCredential>,
    read_at: Instant,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    pub(super) fn new(source: Arc<dyn CredentialSource>) -> Self {
        Self { source, known: Mutex::new(None) }
    }

    /// The Secret's content now.
    pub(super) async fn credentials(&self) -> Result<Credentials, KeyError> {
        Ok(self.current().await?.1)
    }

    /// Makes a request, and again if its keys were refused and there are others by now.
    ///
    /// Requests that are on their way together are refused together, and the first of them to be heard reads the new keys
    /// for all. So what counts is whether they differ from those that this request was made with.
    pub(super) async fn renewing<R, F>(&self, is_refused: impl Fn(&R) -> bool, request: impl Fn() -> F) -> R
    where
        F: Future<Output = R>,
    {
        let mut renewals = 0;
        loop {
            let before = self.credentials().await;
            let answer = request().await;
            match before {
                Ok(before)
                    if renewals < MOST_RENEWALS && is_refused(&answer) && self.has_others_than(&before).await =>
                {
                    renewals += 1;
                }
                _ => return answer,
            }
        }
    }

    /// Whether there are others than those; read again only if nobody else has done so.
    async fn has_others_than(&self, before: &Credentials) -> bool {
        let mut known = self.known.lock().await;
        known.as_ref().is_some_and(|known| !known.credentials.same_as(before))
            || self.read_into(&mut known).await.is_ok_and(|(_, now)| !now.same_as(before))
    }

    /// How long URLs that are signed now are good: until the session token ends, and seven days at most.
    pub(super) async fn life(&self, now: Timestamp) -> Result<SignatureLife, KeyError> {
        const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
        let credentials = self.credentials().await?;
        if credentials.get(keys::SESSION_TOKEN).is_none() {
            return Ok(SignatureLife { lasts: LONGEST, is_certain: true });
        }
        let Some(text) = credentials.get(EXPIRATION) else {
            return Ok(SignatureLife { lasts: LONGEST, is_certain: false });
        };
        let end: Timestamp = text
            .parse()
            .map_err(|_| KeyError(format!("the key `{EXPIRATION}` is no time; write it as 2030-01-31T12:00:00Z")))?;
        match Duration::try_from(
            now.until(end)
                .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()))
                .unwrap_or_default(),
        ) {
            Ok(left) if left >= Duration::from_secs(1) => {
                Ok(SignatureLife { lasts: left.min(LONGEST), is_certain: true })
            }
            _ => Err(KeyError("the session token has ended; renew it".to_owned())),
        }
    }

    async fn current(&self) -> Result<(Arc<AwsCredential>, Credentials), KeyError> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.read_at.elapsed() < AGE) {
            return Ok((Arc::clone(&known.pair), known.credentials.clone()));
        }
        self.read_into(&mut known).await
    }

    async fn read_into(&self, known: &mut Option<Known>) -> Result<(Arc<AwsCredential>, Credentials), KeyError> {
        let credentials = self.source.read().await.map_err(|error| KeyError(error.to_string()))?;
        let pair = Arc::new(pair(&credentials)?);
        *known = Some(Known { credentials: credentials.clone(), pair: Arc::clone(&pair), read_at: Instant::now() });
        Ok((pair, credentials))
    }
}

/// How long signed URLs are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignatureLife {
    /// From now on.
    pub(super) lasts: Duration,
    /// A session token without a known end may shorten it.
    pub(super) is_certain: bool,
}

fn pair(credentials: &Credentials) -> Result<AwsCredential, KeyError> {
    let read = |key: &str| match credentials.get(key) {
        // The signer makes headers of them and takes their form for granted.
        Some(value) if value.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(value.to_owned())),
        Some(_) => Err(KeyError(format!("the key `{key}` holds characters that no key has; write it on one line"))),
        None => Ok(None),
    };
    let needed = |key: &str| read(key)?.ok_or_else(|| KeyError(format!("the key `{key}` is missing; add it")));
    Ok(AwsCredential {
        key_id: needed(keys::ACCESS_KEY)?,
        secret_key: needed(keys::SECRET_KEY)?,
        token: read(keys::SESSION_TOKEN)?,
    })
}

#[async_trait]
impl CredentialProvider for Keys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let pair = self.current().await;
        pair.map(|(pair, _)| pair)
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })
    }
}
