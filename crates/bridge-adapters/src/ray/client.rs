//! The requests to one Ray cluster, and what their answers mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_core::credentials::{CredentialSource, keys};
use bridge_core::manager::{ErrorKind, ManagerError};
use http::header::{AUTHORIZATION, CONNECTION, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use url::Url;

use super::MANAGER;
use super::config::Config;
use super::package::Package;
use super::wire::{
    ClusterStatus, JobDetails, Listed, StopAnswer, SubmitRequest, TimeZone, Version, read_list, shorten,
};
use crate::http::{Answer, Auth, Client, HttpError, MissingKey, Options, Rejection, Request, StreamedAnswer, Upgrade};

/// A package up to this size is sent in one piece, which may be sent again after a break.
const SMALL_PACKAGE: usize = 1024 * 1024;

/// The client of one Ray cluster.
#[derive(Debug)]
pub(super) struct RayClient {
    http: Client,
    config: Config,
    /// The server has asked for a token and the Secret has none, so its password is offered as one.
    offers_password: Arc<AtomicBool>,
}

/// What a submission came to.
#[derive(Debug)]
pub(super) enum Posted {
    /// It is there now.
    Taken,
    /// There is one of this id already.
    Exists,
}

/// A request that failed: surely without effect, or nobody knows.
#[derive(Debug)]
pub(super) enum PostError {
    Surely(ManagerError),
    Perhaps(ManagerError),
}

impl RayClient {
    pub(super) fn new(config: Config, source: Arc<dyn CredentialSource>) -> Result<Self, HttpError> {
        let offers_password = Arc::new(AtomicBool::new(false));
        let offers = Arc::clone(&offers_password);
        let auth = Auth::new(move |credentials| {
            // Samples of Secrets hold a dummy password: it must not go to a server that never asked.
            let choices: &[&str] =
                if offers.load(Ordering::Relaxed) { &[keys::TOKEN, keys::PASSWORD] } else { &[keys::TOKEN] };
            let given = choices.iter().find_map(|key| Some((*key, credentials.get(key)?)));
            let Some((key, token)) = given else { return Ok(HeaderMap::new()) };
            let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                MissingKey(format!("the Secret's key `{key}` has characters that a header cannot carry"))
            })?;
            Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
        });
        let options = Options {
            timeout: config.timeout,
            // 403 is Ray's answer to a token that is wrong, for instance one that was renewed.
            rejects: |answer| match answer.status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Rejection::Surely,
                _ => Rejection::No,
            },
            ..Options::default()
        };
        let http = Client::new(base(&config.url), auth, source, options)?;
        Ok(Self { http, config, offers_password })
    }

    /// The counts of all requests.
    pub(super) fn http(&self) -> &Client {
        &self.http
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn jobs_url(&self) -> Url {
        // Ray knows no such place without the slash at the end.
        self.http.url(&["api", "jobs", ""])
    }

    fn job_url(&self, id: &str, rest: &[&str]) -> Url {
        self.http.url(&[&["api", "jobs", id], rest].concat())
    }

    /// Sends a request; again with the Secret's password as token if the server asks for one and there is no other.
    async fn send<'a>(&'a self, make: impl Fn() -> Request<'a>) -> Result<Answer, HttpError> {
        let answer = make().send().await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.offer_password().await? {
            return make().send().await;
        }
        Ok(answer)
    }

    /// Whether there is a password to offer.
    pub(super) async fn offer_password(&self) -> Result<bool, HttpError> {
        let credentials = self.http.credentials().await?;
        if credentials.get(keys::TOKEN).is_some() || credentials.get(keys::PASSWORD).is_none() {
            return Ok(false);
        }
        self.offers_password.store(true, Ordering::Relaxed);
        self.http.reread_credentials().await?;
        Ok(true)
    }

    /// Sends a read and takes its answer as JSON.
    async fn get<T: DeserializeOwned>(&self, operation: &'static str, url: Url) -> Result<T, ManagerError> {
        let answer = self.answer(operation, || self.http.get(operation, url.clone())).await?;
        answer.json().map_err(|error| error.into_manager(MANAGER, operation))
    }

    /// The answer, if it is a good one.
    async fn answer<'a>(
        &'a self,
        operation: &'static str,
        make: impl Fn() -> Request<'a>,
    ) -> Result<Answer, ManagerError> {
        let answer = self.send(make).await.map_err(|error| error.into_manager(MANAGER, operation))?;
        if answer.status.is_success() { Ok(answer) } else { Err(refusal(operation, &answer)) }
    }

    /// One job, if Ray knows it.
    pub(super) async fn job(&self, operation: &'static str, id: &str) -> Result<Option<JobDetails>, ManagerError> {
        let url = self.job_url(id, &[]);
        let answer = self.send(|| self.http.get(operation, url.clone())).await;
        let answer = answer.map_err(|error| error.into_manager(MANAGER, operation))?;
        if is_unknown_job(&answer) {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(refusal(operation, &answer));
        }
        answer.json().map(Some).map_err(|error| error.into_manager(MANAGER, operation))
    }

    /// All jobs of the cluster, of which the wanted ones are kept. `None`: there are too many to be read.
    pub(super) async fn list(
        &self,
        operation: &'static str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Listed>, ManagerError> {
        let url = self.jobs_url();
        let answer = match self.send(|| self.http.get(operation, url.clone())).await {
            Err(error) if error.cause == crate::http::Cause::Answer => return Ok(None),
            answer => answer.map_err(|error| error.into_manager(MANAGER, operation))?,
        };
        if !answer.status.is_success() {
            return Err(refusal(operation, &answer));
        }
        read_list(&answer.body, wanted).map(Some).map_err(|error| {
            let message = format!("the answer of {} is not a list of jobs", answer.place());
            ManagerError::new(MANAGER, operation, ErrorKind::Protocol, message).with_source(error)
        })
    }

    /// Hands a job over.
    pub(super) async fn submit(&self, request: &SubmitRequest) -> Result<Posted, PostError> {
        const OPERATION: &str = "submit";
        let url = self.jobs_url();
        let answer = self.send(|| self.http.post(OPERATION, url.clone()).json(request)).await.map_err(post_error)?;
        if answer.status.is_success() {
            let taken: super::wire::SubmitAnswer = answer.json().map_err(post_error)?;
            if taken.submission_id == request.submission_id {
                return Ok(Posted::Taken);
            }
            let message = format!("Ray took the job under another id than {}", request.submission_id);
            return Err(PostError::Perhaps(ManagerError::new(MANAGER, OPERATION, ErrorKind::Protocol, message)));
        }
        match answer.status.as_u16() {
            500 => {
                let text = String::from_utf8_lossy(&answer.body);
                if text.contains(&format!("{} already exists", request.submission_id)) {
                    return Ok(Posted::Exists);
                }
                // What the head's agent refuses comes as 500. It refuses before it stores anything of the job.
                if text.contains("Request failed with status code 400") {
                    let message = format!("Ray refused the job: {}", last_words(&answer));
                    return Err(PostError::Surely(ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message)));
                }
                Err(PostError::Perhaps(refusal(OPERATION, &answer)))
            }
            // Behind a proxy these say nothing about the head.
            408 | 501..=599 => Err(PostError::Perhaps(refusal(OPERATION, &answer))),
            _ => Err(PostError::Surely(refusal(OPERATION, &answer))),
        }
    }

    /// Asks for the end of a job. Whether Ray knows it.
    pub(super) async fn stop(&self, id: &str) -> Result<Option<StopAnswer>, ManagerError> {
        const OPERATION: &str = "cancel";
        let url = self.job_url(id, &["stop"]);
        let answer = self.send(|| self.http.post(OPERATION, url.clone()).repeatable()).await;
        let answer = answer.map_err(|error| error.into_manager(MANAGER, OPERATION))?;
        if is_unknown_job(&answer) {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(refusal(OPERATION, &answer));
        }
        answer.json().map(Some).map_err(|error| error.into_manager(MANAGER, OPERATION))
    }

    /// Brings a package to the cluster, where it is kept for ten minutes unless a job uses it.
    pub(super) async fn upload(&self, package: &Package) -> Result<(), ManagerError> {
        const OPERATION: &str = "put";
        let url = self.http.url(&["api", "packages", "gcs", &package.name]);
        let content_type = || HeaderValue::from_static("application/octet-stream");
        let answer = if package.size <= SMALL_PACKAGE {
            let put = || {
                let request = self.http.request(OPERATION, Method::PUT, url.clone());
                request.bytes(content_type(), package.whole()).repeatable()
            };
            self.answer(OPERATION, put).await?
        } else {
            // A stream cannot be sent again with another token, so the token is tried with a question worth asking.
            let there = self.send(|| self.http.get(OPERATION, url.clone())).await;
            let there = there.map_err(|error| error.into_manager(MANAGER, OPERATION))?;
            match there.status {
                StatusCode::OK if there.body.is_empty() => return Ok(()),
                StatusCode::OK | StatusCode::NOT_FOUND => {}
                _ => return Err(refusal(OPERATION, &there)),
            }
            let pieces: Vec<_> = package.pieces.iter().cloned().map(Ok).collect();
            let body = futures::StreamExt::boxed(futures::stream::iter(pieces));
            let request = self.http.request(OPERATION, Method::PUT, url).stream(content_type(), body);
            let answer = request.timeout(self.config.upload_timeout).send().await;
            let answer = answer.map_err(|error| error.into_manager(MANAGER, OPERATION))?;
            if !answer.status.is_success() {
                return Err(refusal(OPERATION, &answer));
            }
            answer
        };
        // Ray says nothing more than 200. Whoever says more has not kept the package, and the job would fail for it.
        if answer.body.is_empty() {
            return Ok(());
        }
        let message = format!("{} answered the upload of a package with {:?}", answer.place(), last_words(&answer));
        Err(ManagerError::new(MANAGER, OPERATION, ErrorKind::Protocol, message))
    }

    /// When the head began to remember, and what its clock is ahead of `now`. `None`: it does not tell.
    pub(super) async fn memory(
        &self,
        operation: &'static str,
        now: impl Fn() -> Timestamp,
    ) -> Result<Option<(Timestamp, SignedDuration)>, ManagerError> {
        let url = self.http.url(&["api", "version"]);
        let answer = self.answer(operation, || self.http.get(operation, url.clone())).await?;
        let version: Version = answer.json().map_err(|error| error.into_manager(MANAGER, operation))?;
        let date = answer.headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        let theirs = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        let skew = theirs.map_or(SignedDuration::ZERO, |theirs| theirs.timestamp().duration_since(now()));
        // A dashboard without it is one whose clock is taken for UTC, as in most containers.
        let zone = self.get::<TimeZone>(operation, self.http.url(&["timezone"])).await;
        let offset = match zone {
            Ok(zone) => zone.offset,
            Err(error) if error.kind == ErrorKind::Protocol => "+00:00".to_owned(),
            Err(error) => return Err(error),
        };
        Ok(super::session::began(&version.session_name, &offset).map(|began| (began, skew)))
    }

    /// The load of the cluster.
    pub(super) async fn cluster_status(&self) -> Result<ClusterStatus, ManagerError> {
        self.get("load", self.http.url(&["api", "cluster_status"])).await
    }

    /// The log as it is now, in pieces.
    pub(super) async fn log(&self, id: &str) -> Result<StreamedAnswer, HttpError> {
        let url = self.job_url(id, &["logs"]);
        self.http.get("logs", url).send_streamed().await
    }

    /// The log as it grows.
    pub(super) async fn tail(&self, id: &str) -> Result<(Upgrade, String), HttpError> {
        let key = generate_key();
        let request = self
            .http
            .get("logs", self.job_url(id, &["logs", "tail"]))
            .header(CONNECTION, HeaderValue::from_static("Upgrade"))
            .header(UPGRADE, HeaderValue::from_static("websocket"))
            .header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))
            .header(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).unwrap_or_else(|_| HeaderValue::from_static("")));
        Ok((request.send_upgrade().await?, key))
    }
}

/// `resourceURL` without what users may copy from the API's documentation.
fn base(url: &str) -> &str {
    let url = url.trim().trim_end_matches('/');
    let url = url.strip_suffix("/api/jobs").or_else(|| url.strip_suffix("/api")).unwrap_or(url);
    url.trim_end_matches('/')
}

fn post_error(error: HttpError) -> PostError {
    let wrap = match error.reached {
        crate::http::Reached::No => PostError::Surely,
        crate::http::Reached::Perhaps => PostError::Perhaps,
    };
    wrap(error.into_manager(MANAGER, "submit"))
}

/// Whether Ray itself says that there is no such job; a proxy's 404 says nothing of the kind.
pub(super) fn is_unknown_job(answer: &Answer) -> bool {
    answer.status == StatusCode::NOT_FOUND
        && answer.body.starts_with(b"Job ")
        && answer.body.trim_ascii_end().ends_with(b" does not exist")
}

/// What an answer with another status than hoped for means.
pub(super) fn refusal(operation: &'static str, answer: &Answer) -> ManagerError {
    let place = answer.place();
    let words = last_words(answer);
    let status = answer.status.as_u16();
    let (kind, message) = match status {
        401 => (
            ErrorKind::Credential,
            "Ray asks for a token; put it into the key `token` of the job's resourcesecret".to_owned(),
        ),
        403 => (
            ErrorKind::Credential,
            "Ray does not accept the token; renew the key `token` of the job's resourcesecret".to_owned(),
        ),
        429 => (ErrorKind::RateLimited, format!("{place} asks for fewer requests")),
        400 | 413 | 422 => (ErrorKind::Refused, format!("Ray refused it ({status}): {words}")),
        404 | 405 => (
            ErrorKind::Protocol,
            format!("{place} is not Ray's job API ({status}: {words}); is resourceURL the address of the dashboard?"),
        ),
        500.. => (ErrorKind::Unreachable, format!("{place} failed ({status}): {words}")),
        _ => (ErrorKind::Protocol, format!("{place} answered {status}, which means nothing here: {words}")),
    };
    let mut error = ManagerError::new(MANAGER, operation, kind, message);
    error.retry_after = answer.retry_after();
    error
}

/// The last line of an answer: where a traceback says what went wrong.
pub(super) fn last_words(answer: &Answer) -> String {
    let from = answer.body.len().saturating_sub(4000);
    let text = String::from_utf8_lossy(answer.body.get(from..).unwrap_or_default());
    let line = text.lines().rev().map(str::trim).find(|line| line.len() > 1).unwrap_or("no reason given");
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    shorten(&line, 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_may_be_written_in_many_ways() {
        for url in [
            "http://ray:8265",
            "http://ray:8265/",
            " http://ray:8265/api/jobs/ ",
            "http://ray:8265/api/jobs",
            "http://ray:8265/api",
        ] {
            assert_eq!(base(url), "http://ray:8265", "{url}");
        }
        assert_eq!(base("https://hpc.example/ray/one/"), "https://hpc.example/ray/one");
    }
}
