//! The calls to slurmrestd, and agreeing with it on an API version.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_core::credentials::{CredentialSource, keys};
use bridge_core::manager::{ErrorKind, ManagerError, SubmitError};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::MANAGER;
use super::accounting::Accounting;
use super::classify::{self, Trouble, What};
use super::config::{SlurmConfig, split_url};
use super::jobs_stream::{self, Entry, List, Wanted};
use super::map::bounded;
use super::wire::{ApiVersion, Envelope, JobInfo, JobStates, OpenApi};
use crate::http::{Answer, Auth, Cause, Client, Counters, HttpError, Options, Rejection};

/// How long it is remembered that the server lacks an optional address.
pub(super) const RECHECK_AFTER: Duration = Duration::from_mins(10);
/// The most ids that are put into one address.
const MOST_IDS_IN_QUERY: usize = 64;
const LARGEST_ERROR: usize = 1024 * 1024;
/// Before a list that was not begun is asked for once more, which covers a restart of slurmrestd.
const PAUSE: Duration = Duration::from_millis(150);

/// slurmrestd, as one user sees it.
#[derive(Debug)]
pub(super) struct Api {
    http: Client,
    listing_timeout: Duration,
    named: Option<ApiVersion>,
    agreed: Mutex<Option<ApiVersion>>,
    last_negotiation: tokio::sync::Mutex<Option<Negotiation>>,
    /// Whether the server's description of itself names accounting, if it gives one.
    describes_accounting: Mutex<Option<bool>>,
    pub(super) accounting: Accounting,
    without_states: Mutex<Option<Instant>>,
    without_extra: Mutex<Option<Instant>>,
}

/// How finding out about another version ended, for those that waited for it.
#[derive(Debug)]
struct Negotiation {
    ended: Instant,
    failure: Option<Trouble>,
}

/// An answer that is a success.
#[derive(Debug)]
pub(super) struct Reply {
    pub answer: Answer,
    pub envelope: Envelope,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum CallError {
    Http(HttpError),
    Trouble(Trouble),
}

impl CallError {
    pub(super) fn into_error(self, operation: &'static str) -> ManagerError {
        match self {
            Self::Http(error) => error.into_manager(MANAGER, operation),
            Self::Trouble(trouble) => trouble.into_error(operation),
        }
    }

    pub(super) fn into_submit_error(self, operation: &'static str) -> SubmitError {
        match self {
            Self::Http(error) => error.into_submit(MANAGER, operation),
            Self::Trouble(trouble) => trouble.into_submit_error(operation),
        }
    }

    /// The failure to find another version, as those meet it whose own request was refused before.
    fn as_shared_trouble(&self) -> Trouble {
        match self {
            Self::Http(error) => Trouble {
                what: What::Other(error.kind()),
                surely_not_done: true,
                message: error.message.clone(),
                retry_after: None,
            },
            Self::Trouble(trouble) => Trouble { surely_not_done: true, ..trouble.clone() },
        }
    }

    pub(super) fn is(&self, what: What) -> bool {
        matches!(self, Self::Trouble(trouble) if trouble.what == what)
    }
}

impl From<HttpError> for CallError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

/// One request, told apart from its version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub operation: &'static str,
    pub method: &'a Method,
    pub path: &'a [&'a str],
    pub body: Option<&'a Value>,
    pub repeatable: bool,
}

impl<'a> Call<'a> {
    pub(super) fn get(operation: &'static str, path: &'a [&'a str]) -> Self {
        Self { operation, method: &Method::GET, path, body: None, repeatable: true }
    }
}

impl Api {
    pub(super) fn new(config: &SlurmConfig, credentials: Arc<dyn CredentialSource>) -> Result<Self, ManagerError> {
        let (root, version) = split_url(&config.url);
        let auth = Auth::header_pairs(&[
            ("x-slurm-user-name", &[keys::USERNAME]),
            ("x-slurm-user-token", &[keys::TOKEN, keys::PASSWORD]),
        ]);
        let options = Options {
            timeout: config.timeout,
            in_flight: config.requests_at_once,
            // An outage is waited out by the caller; one more try covers a restart of slurmrestd.
            tries: 2,
            rejects: classify::rejects,
            ..Options::default()
        };
        let http =
            Client::new(&root, auth, credentials, options).map_err(|error| error.into_manager(MANAGER, "configure"))?;
        let named = version.filter(|version| version.is_spoken());
        Ok(Self {
            http,
            listing_timeout: config.listing_timeout,
            named,
            agreed: Mutex::new(None),
            last_negotiation: tokio::sync::Mutex::new(None),
            describes_accounting: Mutex::new(None),
            accounting: Accounting::default(),
            without_states: Mutex::new(None),
            without_extra: Mutex::new(None),
        })
    }

    pub(super) fn counters(&self) -> Arc<Counters> {
        self.http.counters()
    }

    /// The user that the credential names.
    pub(super) async fn user(&self) -> Option<String> {
        self.http.credentials().await.ok()?.get(keys::USERNAME).map(str::to_owned)
    }

    /// Whether the site reads `extra` as constraints, as it was found to a short time ago.
    pub(super) fn refuses_extra(&self) -> bool {
        is_recent(&self.without_extra)
    }

    /// Remembers that the site reads `extra` as constraints.
    pub(super) fn leave_extra(&self) {
        *lock(&self.without_extra) = Some(Instant::now());
    }

    /// The version in use, or the one that would be tried first.
    pub(super) fn likely_version(&self) -> ApiVersion {
        lock(&self.agreed).or(self.named).unwrap_or(ApiVersion::NEWEST)
    }

    /// The address of a request, for people.
    pub(super) fn address(&self, version: ApiVersion, path: &[&str]) -> String {
        let version = version.to_string();
        let segments: Vec<&str> = ["slurm", &version].into_iter().chain(path.iter().copied()).collect();
        self.http.url(&segments).to_string()
    }

    /// The version to speak: the one in the URL as long as the server has it, else the newest that both know.
    pub(super) async fn version(&self, operation: &'static str) -> Result<ApiVersion, CallError> {
        let known = lock(&self.agreed).or(self.named);
        match known {
            Some(version) => Ok(version),
            None => self.negotiate(operation).await,
        }
    }

    async fn negotiate(&self, operation: &'static str) -> Result<ApiVersion, CallError> {
        let offered = self.http.get(operation, self.http.url(&["openapi", "v3"])).send().await?;
        let described =
            offered.json::<OpenApi>().ok().filter(|paths| offered.status == 200 && !paths.versions().is_empty());
        // What it said of itself before still holds while it is only unwell.
        if described.is_some() || offered.status == 404 {
            *lock(&self.describes_accounting) = described.as_ref().map(OpenApi::has_accounting);
        }
        let version = match described {
            Some(paths) => {
                let versions = paths.versions();
                let newest = || versions.iter().rev().copied().find(|version| version.is_spoken());
                self.named.filter(|named| versions.contains(named)).or_else(newest).ok_or_else(|| {
                    let listed = versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    CallError::Trouble(Trouble {
                        what: What::Other(ErrorKind::Protocol),
                        surely_not_done: true,
                        message: format!(
                            "slurmrestd offers {listed}, of which none is spoken here ({} to {})",
                            ApiVersion::OLDEST,
                            ApiVersion::NEWEST
                        ),
                        retry_after: None,
                    })
                })?
            }
            // A gateway may hand on /slurm only.
            None => self.probe(operation).await?,
        };
        tracing::debug!(%version, "agreed on an API version");
        *lock(&self.agreed) = Some(version);
        Ok(version)
    }

    /// Asks for each version, the one in use, the one in the URL and then the newest first.
    async fn probe(&self, operation: &'static str) -> Result<ApiVersion, CallError> {
        let mut last = None;
        let in_use = *lock(&self.agreed);
        for version in in_use.into_iter().chain(self.named).chain(ApiVersion::spoken()) {
            let url = self.http.url(&["slurm", &version.to_string(), "ping"]);
            let started = Instant::now();
            let answer = self.http.get(operation, url).once().send().await?;
            let envelope = answer.json().ok();
            match classify::trouble(&answer, envelope.as_ref(), started.elapsed()) {
                Some(trouble) if trouble.what == What::NoSuchAddress => last = Some(trouble),
                // Whatever else it says, it knows the version; an unwell slurmctld is not decided here.
                Some(trouble) if trouble.kind() != ErrorKind::Credential || answer.status == 500 => return Ok(version),
                Some(trouble) => return Err(CallError::Trouble(trouble)),
                None => return Ok(version),
            }
        }
        let message = "no slurmrestd was found there; check resourceURL and which plugins slurmrestd loads".to_owned();
        Err(CallError::Trouble(match last {
            Some(trouble) => Trouble { message, what: What::Other(ErrorKind::Protocol), ..trouble },
            None => {
                Trouble { message, what: What::Other(ErrorKind::Protocol), surely_not_done: true, retry_after: None }
            }
        }))
    }

    /// After an address was not there: whether another version is spoken now, e.g. after an upgrade of the server.
    async fn has_moved_on(&self, operation: &'static str, from: ApiVersion) -> Result<bool, CallError> {
        let asked = Instant::now();
        // Others go on in the version that was agreed on until there is another, and of many that ask one finds out: each
        // by itself would have to wait for a server that does not answer.
        let mut last = self.last_negotiation.lock().await;
        if lock(&self.agreed).is_some_and(|agreed| agreed != from) {
            return Ok(true);
        }
        if let Some(Negotiation { failure, .. }) = last.as_ref().filter(|last| last.ended >= asked) {
            return failure.clone().map_or(Ok(false), |failure| Err(CallError::Trouble(failure)));
        }
        let found = self.negotiate(operation).await;
        let failure = found.as_ref().err().map(CallError::as_shared_trouble);
        *last = Some(Negotiation { ended: Instant::now(), failure });
        Ok(found? != from)
    }

    /// Makes a call in the agreed version; `body` writes what is sent.
    pub(super) async fn call_with<B>(&self, call: Call<'_>, mut body: B) -> Result<(Reply, ApiVersion), CallError>
    where
        B: FnMut(ApiVersion) -> Result<Option<Value>, CallError>,
    {
        let mut renegotiated = false;
        loop {
            let version = self.version(call.operation).await?;
            let written = body(version)?;
            match self.send(call, version, written.as_ref(), &[]).await {
                Err(error) if error.is(What::NoSuchAddress) && !renegotiated => {
                    renegotiated = true;
                    if !self.has_moved_on(call.operation, version).await? {
                        return Err(error);
                    }
                }
                Ok(reply) => return Ok((reply, version)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a call in the agreed version.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Reply, CallError> {
        let body = call.body.cloned();
        self.call_with(call, |_| Ok(body.clone())).await.map(|(reply, _)| reply)
    }

    async fn send(
        &self,
        call: Call<'_>,
        version: ApiVersion,
        body: Option<&Value>,
        query: &[(&str, String)],
    ) -> Result<Reply, CallError> {
        let started = Instant::now();
        let version = version.to_string();
        let segments: Vec<&str> = ["slurm", &version].into_iter().chain(call.path.iter().copied()).collect();
        let mut request = self
            .http
            .request(call.operation, call.method.clone(), self.http.url(&segments))
            .query(query.iter().map(|(name, value)| (*name, value.as_str())));
        request = if call.repeatable { request.repeatable() } else { request.once() };
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut answer = request.send().await?;
        if std::str::from_utf8(&answer.body).is_err() {
            // Names and comments are handed on as they were given, in whatever encoding.
            answer.body = String::from_utf8_lossy(&answer.body).into_owned().into();
        }
        judge(answer, started.elapsed())
    }

    /// Whether the server's description of itself, as last read, names accounting; `None` if it gives none.
    pub(super) fn describes_accounting(&self) -> Option<bool> {
        *lock(&self.describes_accounting)
    }

    /// All records of one job: several for an array. Empty if slurmctld knows no such id.
    pub(super) async fn job(&self, operation: &'static str, id: i64) -> Result<Vec<JobInfo>, CallError> {
        self.records_of::<JobInfo>(operation, "slurm", id).await
    }

    /// What one service knows of a job. Of a large array that is more than is read as a whole.
    pub(super) async fn records_of<E: Entry>(
        &self,
        operation: &'static str,
        service: &'static str,
        id: i64,
    ) -> Result<Vec<JobInfo>, CallError> {
        let text = id.to_string();
        let question =
            Question { operation, service, path: &["job", &text], timeout: self.http.options().timeout, tries: 2 };
        let answer = self.list::<E>(question, Arc::new(move |job: &JobInfo| job.root() == Some(id))).await;
        match answer.and_then(|listed| listed.ok_or_else(no_list)) {
            Ok(Listed { list, place, elapsed }) => match classify::trouble_in_list(&list.errors, &place, elapsed) {
                None => Ok(list.jobs),
                Some(trouble) if trouble.what == What::NoSuchJob => Ok(Vec::new()),
                Some(trouble) => Err(CallError::Trouble(trouble)),
            },
            Err(error) if error.is(What::NoSuchJob) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Those of all jobs that are wanted. `None` if the server says that nothing has changed.
    pub(super) async fn jobs<F>(&self, operation: &'static str, wanted: F) -> Result<Option<Vec<JobInfo>>, CallError>
    where
        F: Fn(&JobInfo) -> bool + Send + Sync + 'static,
    {
        let question =
            Question { operation, service: "slurm", path: &["jobs"], timeout: self.listing_timeout, tries: 1 };
        let Some(Listed { list, place, .. }) = self.list::<JobInfo>(question, Arc::new(wanted)).await? else {
            return Ok(None);
        };
        match list.errors.first() {
            None => Ok(Some(list.jobs)),
            // Even a remark: a list that may lack something would be a false "there is none".
            Some(error) => Err(CallError::Trouble(Trouble {
                what: What::Other(ErrorKind::Unreachable),
                surely_not_done: false,
                message: format!("{place} answered 200 with an error: {}", bounded(&error.text())),
                retry_after: None,
            })),
        }
    }

    /// The wanted jobs of a list. The answer is read piece by piece and never kept as a whole.
    ///
    /// `None` if the server says that nothing has changed.
    async fn list<E: Entry>(&self, question: Question<'_>, wanted: Arc<Wanted>) -> Result<Option<Listed>, CallError> {
        let Question { operation, service, path, timeout, mut tries } = question;
        let (mut renegotiated, mut renewed) = (false, false);
        loop {
            let version = self.version(operation).await?;
            let started = Instant::now();
            let number = version.to_string();
            let segments: Vec<&str> = [service, &number].into_iter().chain(path.iter().copied()).collect();
            let request = self.http.get(operation, self.http.url(&segments)).timeout(timeout);
            tries = tries.saturating_sub(1);
            let answer = match request.send_streamed().await {
                Err(error) if tries > 0 && matches!(error.cause, Cause::Connect | Cause::Broken) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                other => other?,
            };
            if answer.status == 304 {
                return Ok(None);
            }
            if answer.status == 200 {
                let place = answer.place().to_owned();
                let list = jobs_stream::read::<E>(answer.body, &place, wanted).await?;
                return Ok(Some(Listed { list, place, elapsed: started.elapsed() }));
            }
            let answer = answer.into_answer(LARGEST_ERROR).await?;
            if tries > 0 && matches!(answer.status.as_u16(), 502..=504) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let rejection = classify::rejects(&answer);
            let Err(error) = judge(answer, started.elapsed()) else {
                // A success that is not 200 holds no list; an empty one would be a false "there is none".
                return Err(no_list());
            };
            if error.is(What::NoSuchAddress) && !renegotiated {
                renegotiated = true;
                if self.has_moved_on(operation, version).await? {
                    continue;
                }
            } else if rejection != Rejection::No && !renewed {
                renewed = true;
                if self.http.reread_credentials().await? {
                    continue;
                }
            }
            return Err(error);
        }
    }

    /// The states of jobs; `None` where the server cannot tell them without telling everything.
    pub(super) async fn states(&self, operation: &'static str, ids: &[i64]) -> Result<Option<JobStates>, CallError> {
        let version = self.version(operation).await?;
        if !version.may_have_job_states() || is_recent(&self.without_states) {
            return Ok(None);
        }
        let query: Vec<(&str, String)> = match ids.len() {
            0..=MOST_IDS_IN_QUERY => ids.iter().map(|id| ("job_id", id.to_string())).collect(),
            _ => Vec::new(),
        };
        match self.send(Call::get(operation, &["jobs", "state", ""]), version, None, &query).await {
            Ok(reply) => Ok(Some(read(&reply)?)),
            Err(error) if error.is(What::NoSuchAddress) => {
                *lock(&self.without_states) = Some(Instant::now());
                Ok(None)
            }
            // One unknown id must not hide the others.
            Err(CallError::Trouble(trouble)) if trouble.kind() == ErrorKind::Refused => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A question whose answer is a list of jobs.
#[derive(Debug, Clone, Copy)]
struct Question<'a> {
    operation: &'static str,
    /// `slurm` or `slurmdb`.
    service: &'static str,
    path: &'a [&'a str],
    timeout: Duration,
    tries: u32,
}

struct Listed {
    list: List,
    place: String,
    elapsed: Duration,
}

fn no_list() -> CallError {
    CallError::Trouble(Trouble {
        what: What::Other(ErrorKind::Protocol),
        surely_not_done: true,
        message: "slurmrestd answered without a list of jobs".to_owned(),
        retry_after: None,
    })
}

pub(super) fn judge(answer: Answer, elapsed: Duration) -> Result<Reply, CallError> {
    let envelope = answer.json::<Envelope>().ok();
    match (classify::trouble(&answer, envelope.as_ref(), elapsed), envelope) {
        (None, Some(envelope)) => Ok(Reply { answer, envelope }),
        (None, None) => Ok(Reply { answer, envelope: Envelope::default() }),
        (Some(trouble), _) => Err(CallError::Trouble(trouble)),
    }
}

pub(super) fn read<T: DeserializeOwned>(reply: &Reply) -> Result<T, CallError> {
    reply.answer.json().map_err(CallError::Http)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn is_recent(since: &Mutex<Option<Instant>>) -> bool {
    lock(since).is_some_and(|since| since.elapsed() < RECHECK_AFTER)
}
