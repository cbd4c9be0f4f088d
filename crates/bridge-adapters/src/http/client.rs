//! The client of one remote system under one credential.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::credentials::{CredentialSource, Credentials, keys};
use http::header::LOCATION;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use url::Url;

use super::answer::{self, Answer, StreamedAnswer};
use super::auth::Auth;
use super::counters::Counters;
use super::error::{Cause, HttpError, Reached};
use super::guard::{self, AllowedUrl};
use super::request::{Request, RequestBody};
use super::{Rejection, retry};

const MOST_REDIRECTS: usize = 5;

/// Bounds and habits of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one try may take, unless the request says otherwise.
    pub timeout: Duration,
    /// How long the connection alone may take.
    pub connect_timeout: Duration,
    /// The most bytes of an answer that are read.
    pub largest_answer: usize,
    /// The most tries of a repeatable request.
    pub tries: u32,
    /// The most requests under way at the same time.
    pub in_flight: usize,
    /// How old a reading of the credential may become before it is read again.
    pub credential_age: Duration,
    /// Tells an answer that rejects the credential.
    pub rejects: fn(&Answer) -> Rejection,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            largest_answer: 64 * 1024 * 1024,
            tries: 3,
            in_flight: 32,
            credential_age: Duration::from_mins(1),
            rejects: |answer| match answer.status {
                StatusCode::UNAUTHORIZED => Rejection::Surely,
                _ => Rejection::No,
            },
        }
    }
}

/// The client of one remote system under one credential. Connections are kept and shared by all requests.
#[derive(Debug)]
pub struct Client {
    base: Url,
    auth: Auth,
    source: Arc<dyn CredentialSource>,
    options: Options,
    session: Mutex<Option<Arc<Session>>>,
    slots: Semaphore,
    counters: Arc<Counters>,
}

/// What follows from one reading of the credential.
#[derive(Debug)]
pub(super) struct Session {
    credentials: Credentials,
    headers: HeaderMap,
    allowed: Option<AllowedUrl>,
    transport: reqwest::Client,
    read_at: Instant,
}

impl Client {
    /// A client for the system at `base`. Nothing is sent or read yet.
    pub fn new(base: &str, auth: Auth, source: Arc<dyn CredentialSource>, options: Options) -> Result<Self, HttpError> {
        let unusable =
            |why: &str| HttpError::new(Cause::Forbidden, Reached::No, format!("the URL cannot be used: {why}"));
        let mut base = Url::parse(base.trim()).map_err(|error| {
            unusable(&format!("{error}; write it as scheme, host, port and path, such as https://hpc.example:6820"))
        })?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(unusable("its scheme must be http or https"));
        }
        if guard::has_userinfo(&base) {
            return Err(unusable("user and password belong into the Secret, not into the URL"));
        }
        base.set_query(None);
        base.set_fragment(None);
        let slots = Semaphore::new(options.in_flight.clamp(1, Semaphore::MAX_PERMITS));
        Ok(Self { base, auth, source, options, session: Mutex::new(None), slots, counters: Arc::default() })
    }

    /// The URL that all requests start from, without query.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// The bounds in use.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Counts of the requests so far; may be kept and read at any time.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// The base URL with path segments added, each escaped; `.` and `..` are dropped.
    #[must_use]
    pub fn url(&self, segments: &[&str]) -> Url {
        Self::below(&self.base, segments)
    }

    /// The origin of the base URL with path segments from the root, each escaped; `.` and `..` are dropped.
    #[must_use]
    pub fn url_from_root(&self, segments: &[&str]) -> Url {
        let mut root = self.base.clone();
        root.set_path("/");
        Self::below(&root, segments)
    }

    fn below(base: &Url, segments: &[&str]) -> Url {
        let mut url = base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Starts a request. `operation` is a bounded word for counts, such as `submit`.
    pub fn request(&self, operation: &'static str, method: Method, url: Url) -> Request<'_> {
        Request::new(self, operation, method, url)
    }

    /// Starts a read.
    pub fn get(&self, operation: &'static str, url: Url) -> Request<'_> {
        self.request(operation, Method::GET, url)
    }

    /// Starts a POST, which is sent at most once unless it is marked as repeatable.
    pub fn post(&self, operation: &'static str, url: Url) -> Request<'_> {
        self.request(operation, Method::POST, url)
    }

    /// The credential as last read, for adapters that log on with it. Fails if `allowedURL` excludes the base URL.
    pub async fn credentials(&self) -> Result<Credentials, HttpError> {
        let session = self.session().await?;
        session.check(&self.base, &self.base)?;
        Ok(session.credentials.clone())
    }

    /// Reads the credential again now; whether it has changed.
    pub async fn reread_credentials(&self) -> Result<bool, HttpError> {
        let session = self.session().await?;
        Ok(self.renew(&session).await)
    }

    pub(super) async fn run(&self, mut request: Request<'_>) -> Result<Answer, HttpError> {
        let mut tries = 0;
        let mut renewed = false;
        loop {
            tries += 1;
            let session = self.session().await?;
            let may_try_again = request.repeatable && tries < self.options.tries;
            let outcome = self.try_once(&session, &mut request).await;
            let wait = match &outcome {
                Ok(answer) => {
                    let resend = match (self.options.rejects)(answer) {
                        Rejection::No => false,
                        Rejection::Surely => !matches!(request.body, RequestBody::Pieces(_)),
                        Rejection::Perhaps => request.repeatable,
                    };
                    if resend && !renewed && self.renew(&session).await {
                        renewed = true;
                        continue;
                    }
                    retry::is_passing(answer.status).then(|| retry::wait(tries, answer.retry_after())).flatten()
                }
                Err(error) => {
                    matches!(error.cause, Cause::Connect | Cause::Broken).then(|| retry::wait(tries, None)).flatten()
                }
            };
            match wait {
                Some(wait) if may_try_again => tokio::time::sleep(wait).await,
                _ => return outcome,
            }
        }
    }

    async fn try_once(&self, session: &Session, request: &mut Request<'_>) -> Result<Answer, HttpError> {
        let _slot = self.slot().await?;
        let timeout = request.timeout;
        let (response, place) = self.head(session, request, Some(timeout)).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = match answer::read_bounded(response, &place, self.options.largest_answer, timeout).await {
            Ok(body) => body,
            Err(error) => {
                self.counters.failed(request.operation);
                return Err(error);
            }
        };
        self.counters.received(request.operation, body.len());
        Ok(Answer { status, headers, body, place })
    }

    pub(super) async fn run_streamed(&self, mut request: Request<'_>) -> Result<StreamedAnswer, HttpError> {
        let session = self.session().await?;
        let _slot = self.slot().await?;
        let timeout = request.timeout;
        let head = tokio::time::timeout(timeout, self.head(&session, &mut request, None)).await;
        let (response, place) = head.map_err(|_| {
            self.counters.failed(request.operation);
            let place = guard::shown(&request.url);
            let message = format!("{place} did not answer within {} s", timeout.as_secs_f32());
            HttpError::new(Cause::Timeout, Reached::Perhaps, message)
        })??;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(StreamedAnswer { status, headers, body: answer::pieces(response, timeout), place })
    }

    pub(super) async fn slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, HttpError> {
        let closed = |_| HttpError::new(Cause::Forbidden, Reached::No, "the client was closed");
        self.slots.acquire().await.map_err(closed)
    }

    /// Sends the request, follows redirects of reads, and stops at the head of the answer.
    pub(super) async fn head(
        &self,
        session: &Session,
        request: &mut Request<'_>,
        timeout: Option<Duration>,
    ) -> Result<(reqwest::Response, String), HttpError> {
        let mut url = request.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            session.check(&url, &self.base)?;
            let place = guard::shown(&url);
            let mut sending = session
                .transport
                .request(request.method.clone(), url.clone())
                .headers(session.headers.clone())
                .headers(request.headers.clone());
            if let Some(timeout) = timeout {
                sending = sending.timeout(timeout);
            }
            sending = match std::mem::replace(&mut request.body, RequestBody::None) {
                RequestBody::None => sending,
                RequestBody::Whole(body) => {
                    request.body = RequestBody::Whole(body.clone());
                    sending.body(body)
                }
                RequestBody::Pieces(body) => sending.body(body),
            };
            self.counters.sent(request.operation);
            let response = sending.send().await.map_err(|error| {
                self.counters.failed(request.operation);
                HttpError::from_transport(error, &place, request.timeout, false)
            })?;
            let status = response.status();
            if status.is_client_error() || status.is_server_error() {
                self.counters.failed(request.operation);
            }
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok((response, place));
            }
            url = redirected(request, status, response.headers(), &url)?;
        }
        let message = format!("{} redirects in circles; put the final address into resourceURL", guard::shown(&url));
        Err(HttpError::new(Cause::Answer, Reached::Perhaps, message))
    }

    /// What follows from the credential; read again when the last reading is old.
    pub(super) async fn session(&self) -> Result<Arc<Session>, HttpError> {
        let mut current = self.session.lock().await;
        match current.as_ref() {
            Some(session) if session.read_at.elapsed() < self.options.credential_age => Ok(Arc::clone(session)),
            previous => {
                let session = match (self.read_session(previous).await, previous) {
                    (Ok(session), _) => session,
                    // The Secret may be gone for a moment while it is rotated; what was good enough before may still be.
                    (Err(error), Some(previous)) => {
                        tracing::debug!(error = %error, "keeping the credential read before");
                        Arc::clone(previous)
                    }
                    (Err(error), None) => return Err(error),
                };
                *current = Some(Arc::clone(&session));
                Ok(session)
            }
        }
    }

    /// Reads the credential after `used` was rejected; whether there is another one now.
    pub(super) async fn renew(&self, used: &Arc<Session>) -> bool {
        let mut current = self.session.lock().await;
        if let Some(newer) = current.as_ref().filter(|session| !session.credentials.same_as(&used.credentials)) {
            // Another request has renewed it in the meantime.
            return newer.read_at >= used.read_at;
        }
        match self.read_session(Some(used)).await {
            Ok(session) => {
                let changed = !session.credentials.same_as(&used.credentials);
                *current = Some(session);
                changed
            }
            Err(error) => {
                tracing::debug!(error = %error, "the rejected credential cannot be read again");
                false
            }
        }
    }

    async fn read_session(&self, previous: Option<&Arc<Session>>) -> Result<Arc<Session>, HttpError> {
        let trouble = |message: String| HttpError::new(Cause::Credential, Reached::No, message);
        let credentials = tokio::time::timeout(self.options.timeout, self.source.read())
            .await
            .map_err(|_| trouble("the Secret could not be read in time".to_owned()))?
            .map_err(|error| trouble(error.to_string()))?;
        let headers = self.auth.headers(&credentials).map_err(|error| trouble(error.to_string()))?;
        let allowed = credentials
            .get(keys::ALLOWED_URL)
            .map(AllowedUrl::parse)
            .transpose()
            .map_err(|error| trouble(error.to_string()))?;
        let transport = match previous {
            Some(previous) if previous.credentials.get(keys::CA) == credentials.get(keys::CA) => {
                previous.transport.clone()
            }
            _ => self.transport(credentials.get(keys::CA))?,
        };
        Ok(Arc::new(Session { credentials, headers, allowed, transport, read_at: Instant::now() }))
    }

    fn transport(&self, authorities: Option<&str>) -> Result<reqwest::Client, HttpError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("bridge-operator/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.options.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_idle_timeout(Duration::from_secs(50))
            .pool_max_idle_per_host(self.options.in_flight)
            .tcp_keepalive(Duration::from_secs(30));
        if is_loopback(&self.base) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = authorities {
            let unreadable = |why: String| {
                HttpError::new(
                    Cause::Credential,
                    Reached::No,
                    format!("the Secret's key `ca.crt` cannot be used: {why}"),
                )
            };
            let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
                .map_err(|error| unreadable(error.without_url().to_string()))?;
            if certificates.is_empty() {
                return Err(unreadable("it holds no PEM certificate".to_owned()));
            }
            builder = builder.tls_certs_only(certificates);
        } else if self.base.scheme() == "http" {
            // A minimal image has no root certificates, and none are needed here.
            builder = builder.tls_certs_only([]);
        }
        builder.build().map_err(|error| HttpError {
            cause: Cause::Credential,
            reached: Reached::No,
            message: "TLS cannot be set up; check the Secret's `ca.crt` and this image's root certificates".to_owned(),
            source: Some(Box::new(error.without_url())),
        })
    }
}

impl Session {
    fn check(&self, url: &Url, base: &Url) -> Result<(), HttpError> {
        if url.origin() != base.origin() || guard::has_userinfo(url) {
            let message = format!("{} is another host than resourceURL, so nothing was sent", guard::shown(url));
            return Err(HttpError::new(Cause::Forbidden, Reached::No, message));
        }
        match &self.allowed {
            Some(allowed) => {
                allowed.check(url).map_err(|error| HttpError::new(Cause::Credential, Reached::No, error.to_string()))
            }
            None => Ok(()),
        }
    }
}

fn redirected(request: &Request<'_>, status: StatusCode, headers: &HeaderMap, from: &Url) -> Result<Url, HttpError> {
    let place = guard::shown(from);
    let target = headers.get(LOCATION).and_then(|value| value.to_str().ok()).and_then(|value| from.join(value).ok());
    // 307 and 308 say that nothing was done yet; the others may follow a deed.
    let reached = if matches!(status.as_u16(), 307 | 308) { Reached::No } else { Reached::Perhaps };
    let refuse = |why: String| HttpError::new(Cause::Answer, reached, why);
    let Some(target) = target else {
        return Err(refuse(format!("{place} redirects ({}) without saying where to", status.as_u16())));
    };
    if !request.method.is_safe() || target.origin() != from.origin() || guard::has_userinfo(&target) {
        return Err(refuse(format!(
            "{place} redirects to {}, which is not followed; put the final address into resourceURL",
            guard::shown(&target)
        )));
    }
    Ok(target)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
