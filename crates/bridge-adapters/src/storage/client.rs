//! The object store of one job, as its Secret opens it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::credentials::{CredentialSource, keys};
use bridge_core::manager::ByteStream;
use bridge_core::plan::{ObjectRef, StoragePlan};
use bridge_core::staging::SignedUrl;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderName, HeaderValue, Method};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer};
use object_store::client::{ClientOptions, HttpClient, HttpConnector, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{
    Attribute, AttributeValue, Attributes, BackoffConfig, CredentialProvider, GetOptions, GetResult, ObjectStore,
    ObjectStoreExt, PutOptions, PutPayload, RetryConfig,
};
use url::Url;

use super::error::{Kind, LOOKING, Place, Said, StorageError, WRITING, is_denied, quoted};
use super::keys::{Keys, SignatureLife};
use crate::carrying::sha256_in_hex;
use crate::http::AllowedUrl;

/// Signed for where the job names no region; stores other than Amazon's take any.
const DEFAULT_REGION: &str = "us-east-1";
/// A part must arrive within this time.
const PATIENCE: Duration = Duration::from_secs(120);
/// The metadata that tells what an object holds.
pub(super) const CHECKSUM: &str = "sha256";
/// The metadata that tells which attempt sent an object.
pub(super) const TOKEN: &str = "bridge-token";
/// The most of an error's text that is read.
const LONGEST_ERROR: usize = 64 * 1024;

/// The object store of one job.
#[derive(Debug)]
pub(super) struct Store {
    plan: StoragePlan,
    place: Place,
    keys: Arc<Keys>,
    transport: reqwest::Client,
    authorities: Option<String>,
}

/// What is known of an object without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) size: u64,
    pub(super) etag: Option<String>,
    /// Hexadecimal SHA-256, if it was sent by us.
    pub(super) sha256: Option<String>,
    /// The attempt that sent it.
    pub(super) token: Option<String>,
}

/// Hands the one transport to `object_store`, which would make one of its own for each bucket.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

impl Store {
    /// Reads the Secret; nothing is sent yet.
    pub(super) async fn open(plan: &StoragePlan, source: Arc<dyn CredentialSource>) -> Result<Self, StorageError> {
        let place = Place { endpoint: plan.endpoint.clone(), secret: plan.secret.0.clone() };
        let keys = Arc::new(Keys::new(source));
        let credentials = keys.credentials().await.map_err(|error| place.key_error(&error))?;
        let refuse = |message: String| {
            StorageError::new(Kind::Denied, format!("the Secret {:?} for the object store: {message}", place.secret))
        };
        if let Some(allowed) = credentials.get(keys::ALLOWED_URL) {
            let allowed = AllowedUrl::parse(allowed).map_err(|error| refuse(error.to_string()))?;
            let url = Url::parse(&origin(plan, &plan.endpoint)).map_err(|error| refuse(error.to_string()))?;
            allowed.check(&url).map_err(|error| refuse(error.to_string()))?;
        }
        let authorities = credentials.get(keys::CA).map(str::to_owned);
        let transport = transport(plan, authorities.as_deref()).map_err(refuse)?;
        Ok(Self { plan: plan.clone(), place, keys, transport, authorities })
    }

    /// The keys that requests are signed with.
    pub(super) fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// PEM of the authorities that sign the store's certificate.
    pub(super) fn authorities(&self) -> Option<&str> {
        self.authorities.as_deref()
    }

    /// How long URLs signed now are good.
    pub(super) async fn signature_life(&self, now: jiff::Timestamp) -> Result<SignatureLife, StorageError> {
        self.keys.life(now).await.map_err(|error| self.place.key_error(&error))
    }

    pub(super) fn bucket(&self, bucket: &str, endpoint: &str) -> object_store::Result<AmazonS3> {
        let base = if self.plan.virtual_host {
            origin(&self.plan, &format!("{bucket}.{endpoint}"))
        } else {
            origin(&self.plan, endpoint)
        };
        AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(self.region())
            .with_endpoint(base)
            .with_virtual_hosted_style_request(self.plan.virtual_host)
            .with_allow_http(!self.plan.secure)
            .with_credentials(Arc::<Keys>::clone(&self.keys))
            .with_http_connector(Connector(self.transport.clone()))
            .with_retry(RetryConfig {
                max_retries: 4,
                retry_timeout: PATIENCE,
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(5),
                    base: 2.0,
                },
            })
            .build()
    }

    fn region(&self) -> &str {
        self.plan.region.as_deref().unwrap_or(DEFAULT_REGION)
    }

    pub(super) fn explain(&self, doing: &str, object: &ObjectRef, error: &object_store::Error) -> StorageError {
        self.place.explain(doing, object, error)
    }

    /// Does something to an object; again if the keys were refused and have changed since.
    pub(super) async fn with_keys<T, F>(
        &self,
        doing: &str,
        object: &ObjectRef,
        call: impl Fn(AmazonS3, Path) -> F,
    ) -> Result<T, StorageError>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let explain = |error: &object_store::Error| self.explain(doing, object, error);
        let store = self.bucket(&object.bucket, &self.plan.endpoint).map_err(|error| explain(&error))?;
        let path = key_path(&object.key).map_err(|error| explain(&error))?;
        let done = self.keys.renewing(is_denied, || call(store.clone(), path.clone())).await;
        done.map_err(|error| explain(&error))
    }

    /// What is there; `None` if nothing is.
    pub(super) async fn head(&self, object: &ObjectRef) -> Result<Option<Head>, StorageError> {
        let asked = self
            .with_keys(LOOKING, object, |store, path| async move {
                store.get_opts(&path, GetOptions { head: true, ..GetOptions::default() }).await
            })
            .await;
        match asked {
            Ok(result) => Ok(Some(head_of(&result))),
            Err(error) if matches!(error.kind, Kind::NoObject | Kind::NoBucket) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is there; `None` only if the store itself says that nothing is. The answer to a look has no text, and a
    /// gateway on the way may say 404 of its own.
    pub(super) async fn sure_head(&self, object: &ObjectRef) -> Result<Option<Head>, StorageError> {
        if let Some(head) = self.head(object).await? {
            return Ok(Some(head));
        }
        match self.get(object).await {
            Ok((head, _)) => Ok(Some(head)),
            Err(error) if matches!(error.kind, Kind::NoObject | Kind::NoBucket) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The content in pieces, and what is known of it.
    pub(super) async fn get(&self, object: &ObjectRef) -> Result<(Head, ByteStream), StorageError> {
        let result = self.with_keys("reading", object, |store, path| async move { store.get(&path).await }).await?;
        let head = head_of(&result);
        let (place, named) = (self.place.clone(), object.clone());
        let pieces = result
            .into_stream()
            .map_err(move |error| std::io::Error::other(place.explain("reading", &named, &error).message));
        Ok((head, pieces.boxed()))
    }

    /// A small object as text.
    pub(super) async fn text(&self, object: &ObjectRef, field: &str, limit: usize) -> Result<String, StorageError> {
        let (head, mut pieces) = self.get(object).await?;
        let refuse = |what: String| {
            StorageError::new(Kind::Refused, format!("the object {} for {field} {what}", quoted(object)))
        };
        let too_large = |size: u64| {
            refuse(format!("has {size} bytes; {} KiB are allowed; bring large data as additionaldata", limit / 1024))
        };
        if head.size > limit as u64 {
            return Err(too_large(head.size));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| StorageError::new(Kind::Passing, error.to_string()))?;
            bytes.extend_from_slice(&piece);
            if bytes.len() > limit {
                return Err(too_large(bytes.len() as u64));
            }
        }
        String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8 text; store it as such".to_owned()))
    }

    /// Puts a small object.
    pub(super) async fn put(
        &self,
        object: &ObjectRef,
        content: PutPayload,
        metadata: &[(&'static str, &str)],
    ) -> Result<Option<String>, StorageError> {
        let attributes = attributes(metadata);
        let put = |store: AmazonS3, path: Path| {
            let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
            let payload = content.clone();
            async move { store.put_opts(&path, payload, options).await }
        };
        Ok(self.with_keys(WRITING, object, put).await?.e_tag)
    }

    /// Removes an object; one that is not there is fine.
    pub(super) async fn delete(&self, object: &ObjectRef) -> Result<(), StorageError> {
        let deleted = self.with_keys("deleting", object, |store, path| async move { store.delete(&path).await }).await;
        match deleted {
            Err(error) if error.kind != Kind::NoObject => Err(error),
            _ => Ok(()),
        }
    }

    /// Keys and sizes of what is below a prefix, up to a bound; more than that is not told.
    pub(super) async fn list(&self, folder: &ObjectRef, most: usize) -> Result<BTreeMap<String, u64>, StorageError> {
        let listed = self
            .with_keys("listing", folder, |store, path| async move {
                let mut found = BTreeMap::new();
                let mut entries = store.list(Some(&path));
                while let Some(entry) = entries.try_next().await? {
                    found.insert(entry.location.to_string(), entry.size);
                    if found.len() >= most {
                        break;
                    }
                }
                Ok(found)
            })
            .await;
        match listed {
            Err(error) if matches!(error.kind, Kind::NoBucket | Kind::NoObject) => Ok(BTreeMap::new()),
            listed => listed,
        }
    }

    /// A URL with which anyone may do one thing to one object for a while, as compute nodes reach the store.
    pub(super) async fn sign(
        &self,
        method: Method,
        object: &ObjectRef,
        lasts: Duration,
        header: Option<(&HeaderName, &HeaderValue)>,
    ) -> Result<SignedUrl, StorageError> {
        let endpoint = self.plan.remote_endpoint.as_deref().unwrap_or(&self.plan.endpoint);
        let explain = |error: &object_store::Error| self.explain("signing for", object, error);
        let store = self.bucket(&object.bucket, endpoint).map_err(|error| explain(&error))?;
        let path = key_path(&object.key).map_err(|error| explain(&error))?;
        let options = header.map_or_else(SignedUrlOptions::new, |(name, value)| {
            SignedUrlOptions::new().with_signed_header(name.clone(), value.clone())
        });
        let url = store.signed_url_opts(method, &path, lasts, &options).await.map_err(|error| explain(&error))?;
        Ok(SignedUrl::new(url.as_str()))
    }

    /// Makes a bucket unless it is there.
    pub(super) async fn ensure_bucket(&self, bucket: &str) -> Result<(), StorageError> {
        let object = ObjectRef { bucket: bucket.to_owned(), key: String::new() };
        match self.bucket_request(Method::HEAD, &object, String::new()).await? {
            // Looking at a bucket takes a right of its own, and the answer to this method never says why it was refused:
            // writing to it will tell.
            (200..=299 | 403, _) => return Ok(()),
            (404, _) => {}
            (status, said) => {
                let cause = format!("status {status}");
                return Err(self.place.words(LOOKING, &object, Some(status), &said, &cause));
            }
        }
        let body = if self.region() == DEFAULT_REGION {
            String::new()
        } else {
            format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{}\
                 </LocationConstraint></CreateBucketConfiguration>",
                self.region().replace(['<', '>', '&'], "")
            )
        };
        match self.bucket_request(Method::PUT, &object, body).await? {
            (200..=299, _) => Ok(()),
            // Someone else was faster. If it is not ours, writing to it will tell.
            (409, said) if matches!(said.code.as_deref(), Some("BucketAlreadyOwnedByYou" | "BucketAlreadyExists")) => {
                Ok(())
            }
            (status, said) => {
                let cause = format!("status {status}");
                Err(self.place.words("creating", &object, Some(status), &said, &cause))
            }
        }
    }

    async fn bucket_request(
        &self,
        method: Method,
        object: &ObjectRef,
        body: String,
    ) -> Result<(u16, Said), StorageError> {
        let is_refused = |answer: &Result<(u16, Said), StorageError>| matches!(answer, Ok((400 | 401 | 403, _)));
        self.keys.renewing(is_refused, || self.signed_request(method.clone(), object, body.clone())).await
    }

    /// `object_store` makes no buckets, but its signer serves any request.
    async fn signed_request(
        &self,
        method: Method,
        object: &ObjectRef,
        body: String,
    ) -> Result<(u16, Said), StorageError> {
        let wrong = |cause: String| self.place.words("asking for", object, None, &Said::default(), &cause);
        let url = if self.plan.virtual_host {
            origin(&self.plan, &format!("{}.{}/", object.bucket, self.plan.endpoint))
        } else {
            format!("{}/{}", origin(&self.plan, &self.plan.endpoint), object.bucket)
        };
        let pair = self.keys.get_credential().await.map_err(|error| self.explain("asking for", object, &error))?;
        let mut request = http::Request::builder()
            .method(method.clone())
            .uri(&url)
            .body(HttpRequestBody::from(body.clone()))
            .map_err(|error| wrong(error.to_string()))?;
        AwsAuthorizer::new(&pair, "s3", self.region())
            .try_authorize(&mut request, None)
            .map_err(|error| self.explain("asking for", object, &error))?;
        let sent = self.transport.request(method, &url).headers(request.headers().clone()).body(body).send().await;
        let mut answer = sent.map_err(|error| wrong(innermost(&error.without_url())))?;
        let status = answer.status().as_u16();
        let mut text = Vec::new();
        while let Ok(Some(piece)) = answer.chunk().await {
            text.extend_from_slice(&piece);
            if text.len() > LONGEST_ERROR {
                break;
            }
        }
        Ok((status, Said::read(&String::from_utf8_lossy(&text))))
    }
}

fn innermost(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

/// Metadata as the store takes it.
pub(super) fn attributes(metadata: &[(&'static str, &str)]) -> Attributes {
    metadata
        .iter()
        .map(|(name, value)| (Attribute::Metadata((*name).into()), AttributeValue::from((*value).to_owned())))
        .collect()
}

fn head_of(result: &GetResult) -> Head {
    let metadata = |name: &'static str| {
        result.attributes.get(&Attribute::Metadata(name.into())).map(|value| value.as_ref().to_owned())
    };
    let sha256 = metadata(CHECKSUM).and_then(|text| sha256_in_hex(&text));
    Head { size: result.meta.size, etag: result.meta.e_tag.clone(), sha256, token: metadata(TOKEN) }
}

/// The key as it is; `object_store` would quietly drop slashes at its ends.
fn key_path(key: &str) -> object_store::Result<Path> {
    let path = Path::parse(key)?;
    if path.as_ref() == key {
        return Ok(path);
    }
    Err(object_store::Error::InvalidPath { source: object_store::path::Error::EmptySegment { path: key.to_owned() } })
}

fn origin(plan: &StoragePlan, host: &str) -> String {
    format!("{}://{host}", if plan.secure { "https" } else { "http" })
}

fn transport(plan: &StoragePlan, authorities: Option<&str>) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("bridge-operator/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(PATIENCE)
        // A session token goes in a header that no client drops on its way to another host.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_idle_timeout(Duration::from_secs(50))
        .tcp_keepalive(Duration::from_secs(30));
    let loopback = Url::parse(&origin(plan, &plan.endpoint)).is_ok_and(|url| match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    });
    if loopback {
        builder = builder.no_proxy();
    }
    if let Some(pem) = authorities {
        let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
        if certificates.is_empty() {
            return Err("the key `ca.crt` holds no PEM certificate; correct or remove it".to_owned());
        }
        builder = builder.tls_certs_only(certificates);
    } else if !plan.secure {
        // A minimal image has no root certificates, and none are needed here.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|_| "TLS cannot be set up; check `ca.crt` and this image's root certificates".to_owned())
}

#[cfg(test)]
mod tests {
    use bridge_core::credentials::{Credentials, StaticCredentials};
    use bridge_core::plan::SecretRef;
    use bridge_testkit::s3::S3Server;
    use secrecy::ExposeSecret as _;

    use super::*;

    /// The server takes the bucket from names as `bucket.s3.test`, and checks every signature.
    #[tokio::test]
    async fn a_bucket_in_the_host_name_is_made_written_to_and_signed_for() {
        let server = S3Server::start().await.unwrap();
        let plan = StoragePlan {
            secret: SecretRef("s3-keys".to_owned()),
            endpoint: format!("s3.test:{}", server.address().port()),
            secure: false,
            region: None,
            virtual_host: true,
            remote_endpoint: None,
        };
        let keys = server.keys();
        let pairs = [("accesskey", keys.access_key.as_str()), ("secretkey", keys.secret_key.expose_secret())];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let source = StaticCredentials(Credentials::from_pairs(pairs));
        let mut store = Store::open(&plan, Arc::new(source)).await.unwrap();
        // In place of a name server.
        let client = reqwest::Client::builder().no_proxy().resolve("results.s3.test", server.address());
        store.transport = client.build().unwrap();

        store.ensure_bucket("results").await.unwrap();
        assert!(server.object_path("results", "").is_dir());
        let object = |key: &str| ObjectRef { bucket: "results".to_owned(), key: key.to_owned() };
        store.put(&object("job/ä b"), PutPayload::from_static(b"one"), &[]).await.unwrap();
        assert_eq!(std::fs::read(server.object_path("results", "job/ä b")).unwrap(), b"one");
        assert_eq!(store.list(&object("job"), 10).await.unwrap().len(), 1);

        let lasts = Duration::from_mins(1);
        let url = store.sign(Method::PUT, &object("job/two"), lasts, None).await.unwrap();
        let host = format!("http://results.{}/job/two?", plan.endpoint);
        assert!(url.expose().starts_with(&host), "{}", url.expose());
        let answer = store.transport.put(url.expose()).body("two").send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        let url = store.sign(Method::GET, &object("job/two"), lasts, None).await.unwrap();
        assert_eq!(store.transport.get(url.expose()).send().await.unwrap().text().await.unwrap(), "two");
        assert!(server.door().seen().iter().all(|request| request.host.starts_with("results.s3.test:")));
    }
}
