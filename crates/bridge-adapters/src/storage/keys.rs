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
        Ok(self.current(AGE).await?.1)
    }

    /// Reads the Secret again. Returns whether it has changed.
    pub(super) async fn read_again(&self) -> Result<bool, KeyError> {
        let before = self.known.lock().await.as_ref().map(|known| known.credentials.clone());
        let (_, now) = self.current(Duration::ZERO).await?;
        Ok(before.is_none_or(|before| !before.same_as(&now)))
    }

    /// Whether the Secret now holds others than those that a request was made with.
    pub(super) async fn renewed_since(&self, before: &Credentials) -> bool {
        self.current(Duration::ZERO).await.is_ok_and(|(_, now)| !before.same_as(&now))
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

    async fn current(&self, age: Duration) -> Result<(Arc<AwsCredential>, Credentials), KeyError> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.read_at.elapsed() < age) {
            return Ok((Arc::clone(&known.pair), known.credentials.clone()));
        }
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
        let pair = self.current(AGE).await;
        pair.map(|(pair, _)| pair)
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })
    }
}
