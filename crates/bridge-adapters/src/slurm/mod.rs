#![doc = include_str!("docs.md")]

mod accounting;
mod arguments;
#[cfg(test)]
mod captures;
mod carrier;
mod classify;
mod client;
mod config;
mod describe;
mod find;
mod flexible;
mod forgotten;
mod jobs_stream;
mod load;
mod logs;
mod lookup;
mod map;
mod memory;
mod ours;
mod output;
mod owner;
mod poll;
mod properties;
mod sbatch;
mod script;
mod values;
mod wire;
mod wrapper;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bridge_core::clock::Clock;
use bridge_core::credentials::CredentialSource;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    Carrier, ErrorKind, Found, Guarantee, Hold, HoldAnswer, Limits, LoadProbe, Logs, ManagerError, Phase, Preview,
    ResourceManager, Result, Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::plan::Submission;
use http::Method;
use jiff::Timestamp;
use serde_json::json;

use self::classify::{Trouble, What};
use self::client::{Api, Call, CallError, Reply};
use self::describe::{Described, Refusal, describe};
use self::map::{Standing, bounded, standing};
use self::memory::Memory;
use self::ours::Whose;
use self::owner::Owner;
use self::wire::{Envelope, JobInfo};
use crate::http::Counters;

pub use self::config::SlurmConfig;
pub use self::wire::ApiVersion;

pub(crate) const MANAGER: &str = "slurm";
/// The most remarks of slurmctld that are handed on.
const MOST_WARNINGS: usize = 8;

/// A Slurm cluster behind slurmrestd, under one credential.
pub struct Slurm {
    api: Api,
    config: SlurmConfig,
    memory: Memory,
    finds: find::Finds,
    costs: poll::Costs,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Slurm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slurm").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Slurm {
    /// A cluster; nothing is sent yet. The credential has the keys `username` and `token` (or `password`), a JWT.
    pub fn new(config: SlurmConfig, credentials: Arc<dyn CredentialSource>, clock: Arc<dyn Clock>) -> Result<Self> {
        let api = Api::new(&config, credentials)?;
        let (memory, finds, costs) = (Memory::default(), find::Finds::default(), poll::Costs::default());
        Ok(Self { api, config, memory, finds, costs, clock })
    }

    /// How many requests were made, by operation.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.api.counters()
    }

    fn describe(&self, job: &Submission, version: ApiVersion) -> std::result::Result<Described, Refusal> {
        describe(job, version, self.clock.now().wall)
    }

    /// The records of a job if it is ours. An error if there is one that does not end and may be ours.
    async fn own_records(&self, operation: &'static str, job: &Tracked) -> Result<Vec<JobInfo>> {
        let Some(id) = number(&job.id) else { return Ok(Vec::new()) };
        let mut records = self.api.job(operation, id).await.map_err(|error| error.into_error(operation))?;
        records.retain(|record| record.root() == Some(id));
        let Sorted { own, others } = self.sorted(id, job, records);
        if own.is_empty()
            && let Some(why) = self.unproven(id, job, &others).await
        {
            return Err(ManagerError::new(MANAGER, operation, ErrorKind::Protocol, why));
        }
        Ok(own)
    }

    /// The records under a job's id: its own, and what others have there.
    ///
    /// Whose they are is not measured by the user whom the credential names now: a Secret may change to another user while
    /// the job runs, and the job is still the same.
    fn sorted(&self, id: i64, job: &Tracked, records: Vec<JobInfo>) -> Sorted {
        let trail = self.memory.trail(id, &job.token);
        let (own, others) = records.into_iter().partition(|record| trail.whose(record, &job.token) == Whose::Ours);
        Sorted { own, others }
    }

    /// Why it is not known whether a job under our id that has not ended is ours. Taken for ours it might be another's
    /// that is cancelled; taken for another's it might be ours that runs on and is followed by nobody.
    async fn unproven(&self, id: i64, job: &Tracked, others: &[JobInfo]) -> Option<String> {
        let trail = self.memory.trail(id, &job.token);
        let is_open = |record: &&JobInfo| {
            trail.whose(record, &job.token) == Whose::CannotTell && !matches!(standing(record), Standing::Ended(_))
        };
        let record = others.iter().find(is_open)?;
        let user = self.api.user().await.unwrap_or_default();
        if Owner::of(record).differs_from(&Owner::named(&user)) {
            return None;
        }
        let (id, token) = (&job.id, &job.token);
        Some(format!(
            "Slurm has a job {id} of this user whose comment does not name {token}, so it may be this job with a changed \
             comment, or another one that was given its id; if it is this one, say so with `scontrol update JobId={id} \
             Comment={token}`, or end it with `scancel {id}`"
        ))
    }

    async fn set_hold(&self, operation: &'static str, job: &Tracked, hold: bool) -> Result<HoldAnswer> {
        let mut body = json!({ "hold": hold });
        if self.api.version(operation).await.map_err(|error| error.into_error(operation))?.forgets_names() {
            match self.own_records(operation, job).await?.first() {
                Some(record) => body["name"] = json!(record.name.0),
                None => return Ok(HoldAnswer::Gone),
            }
        }
        let path = ["job", job.id.as_str()];
        // slurmrestd waits for a slurmctld that restarts, and hands a repeated release to one that may have forgotten the
        // first one and the start that followed it.
        let repeatable = hold;
        let call = Call { method: &Method::POST, body: Some(&body), repeatable, ..Call::get(operation, &path) };
        match self.api.call(call).await {
            Ok(_) => Ok(HoldAnswer::Done),
            Err(CallError::Trouble(Trouble { what: What::NoSuchJob, .. })) => Ok(HoldAnswer::Gone),
            Err(CallError::Trouble(Trouble { what: What::AlreadyEnded, .. })) => {
                Ok(if hold { HoldAnswer::TooLate } else { HoldAnswer::Done })
            }
            // v0.0.38 calls every change of an array a failure, without saying why.
            Err(CallError::Trouble(trouble)) if trouble.message.contains("array update") => {
                let is_held = |record: &JobInfo| matches!(standing(record), Standing::Alive(Phase::Held, _));
                let records = self.own_records(operation, job).await?;
                let is_so = !records.is_empty() && records.iter().any(is_held) == hold;
                if is_so { Ok(HoldAnswer::Done) } else { Err(trouble.into_error(operation)) }
            }
            Err(error) => Err(error.into_error(operation)),
        }
    }
}

#[async_trait]
impl ResourceManager for Slurm {
    fn limits(&self) -> Limits {
        Limits { poll_batch: 10_000, concurrent_submits: self.config.requests_at_once }
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::TwoPhase
    }

    fn preview(&self, job: &Submission) -> Result<Preview> {
        let version = self.api.likely_version();
        let Described { body, notes } = self.describe(job, version).map_err(|error| refused("submit", &error))?;
        let request = format!("POST {}", self.api.address(version, &["job", "submit"]));
        let body = serde_json::to_string_pretty(&body).unwrap_or_default();
        Ok(Preview { request, body, notes })
    }

    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        const OPERATION: &str = "submit";
        let mut notes = Vec::new();
        let mut tasks = None;
        let path = ["job", "submit"];
        let call = Call { method: &Method::POST, repeatable: false, ..Call::get(OPERATION, &path) };
        let reply = loop {
            let leaves_extra = self.api.refuses_extra();
            let mut has_own_extra = false;
            let write = |version| match self.describe(job, version) {
                Ok(Described { mut body, notes: said }) => {
                    notes = said;
                    tasks = body["job"]["array"].as_str().and_then(map::submitted_tasks);
                    has_own_extra = body["job"]["extra"] == job.token.as_str() && !leaves_extra;
                    if let Some(fields) = body["job"].as_object_mut().filter(|_| leaves_extra) {
                        fields.retain(|name, value| name != "extra" || value != job.token.as_str());
                    }
                    Ok(Some(body))
                }
                Err(error) => {
                    let (what, message) = (What::Other(ErrorKind::Refused), error.to_string());
                    Err(CallError::Trouble(Trouble { what, surely_not_done: true, message, retry_after: None }))
                }
            };
            match self.api.call_with(call, write).await {
                Ok((reply, _)) => break reply,
                // Nothing was submitted, and the comment has the token as well.
                Err(error) if has_own_extra && error.is(What::ExtraRefused) => self.api.leave_extra(),
                Err(error) => return Err(error.into_submit_error(OPERATION)),
            }
        };
        let Reply { envelope, .. } = reply;
        match envelope.job_id.positive() {
            Some(id) => {
                let mut warnings = notes;
                warnings.extend(remarks(&envelope));
                warnings.truncate(MOST_WARNINGS);
                if let Some(tasks) = tasks {
                    self.memory.submitted(id, &job.token, tasks);
                }
                Ok(Submitted { id: RemoteId::new(id.to_string()), warnings })
            }
            None => Err(no_id(&envelope)),
        }
    }

    async fn find(&self, token: &SubmitToken, _since: Timestamp) -> Result<Found> {
        let Some(mut jobs) = self.carrying(token).await? else {
            return Ok(Found::CannotTell("slurmrestd says that nothing has changed".to_owned()));
        };
        let user = self.api.user().await.unwrap_or_default();
        jobs.retain(|job| {
            let is_anothers = Owner::of(job).differs_from(&Owner::named(&user));
            if is_anothers {
                tracing::warn!(%token, user, owner = job.user_name.0, "a job of another user carries our token");
            }
            !is_anothers
        });
        let jobs = owner::of_first_owner(jobs);
        // A job that was never released is held, and slurmctld does not forget a held job: none found is none there.
        let ids: BTreeSet<i64> = jobs.iter().filter_map(JobInfo::root).collect();
        let ids: Vec<RemoteId> = ids.into_iter().map(|id| RemoteId::new(id.to_string())).collect();
        Ok(if ids.is_empty() { Found::Absent } else { Found::Jobs(ids) })
    }

    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        self.poll_all(jobs).await
    }

    async fn cancel(&self, job: &Tracked) -> Result<()> {
        const OPERATION: &str = "cancel";
        let records = self.own_records(OPERATION, job).await?;
        if records.iter().all(|record| matches!(standing(record), Standing::Ended(_))) {
            return Ok(());
        }
        // No signal is named: slurmctld then ends the job as `scancel` does, and no word can be mistaken.
        let path = ["job", job.id.as_str()];
        let call = Call { method: &Method::DELETE, ..Call::get(OPERATION, &path) };
        match self.api.call(call).await {
            Ok(reply) => killed(&reply.envelope),
            Err(CallError::Trouble(Trouble { what: What::NoSuchJob | What::AlreadyEnded, .. })) => Ok(()),
            Err(error) => Err(error.into_error(OPERATION)),
        }
    }

    fn hold(&self) -> Option<&dyn Hold> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }

    fn carrier(&self) -> Option<&dyn Carrier> {
        Some(self)
    }

    fn load(&self) -> Option<&dyn LoadProbe> {
        Some(self)
    }
}

#[async_trait]
impl Hold for Slurm {
    async fn release(&self, job: &Tracked) -> Result<HoldAnswer> {
        const OPERATION: &str = "release";
        if number(&job.id).is_none() {
            return Ok(HoldAnswer::Gone);
        }
        // Fresh from its submission the id needs no second look; that keeps a submission at two requests.
        if job.verify {
            let records = self.own_records(OPERATION, job).await?;
            if records.is_empty() {
                return Ok(HoldAnswer::Gone);
            }
            if let Some(answer) = self.not_to_release(OPERATION, job, &records).await? {
                return Ok(answer);
            }
        }
        self.set_hold(OPERATION, job, false).await
    }

    async fn hold(&self, job: &Tracked) -> Result<HoldAnswer> {
        const OPERATION: &str = "hold";
        let can_be_held = |records: &[JobInfo]| {
            records
                .iter()
                .any(|record| matches!(standing(record), Standing::Alive(Phase::Queued { .. } | Phase::Held, _)))
        };
        let before = self.own_records(OPERATION, job).await?;
        if before.is_empty() {
            return Ok(HoldAnswer::Gone);
        }
        if !can_be_held(&before) {
            return Ok(HoldAnswer::TooLate);
        }
        let answer = self.set_hold(OPERATION, job, true).await?;
        // It may have started between the look and the hold, and slurmctld takes a hold of a running job without a word.
        let after = self.own_records(OPERATION, job).await?;
        Ok(if answer == HoldAnswer::Done && !can_be_held(&after) { HoldAnswer::TooLate } else { answer })
    }
}

/// The records under one id.
struct Sorted {
    own: Vec<JobInfo>,
    others: Vec<JobInfo>,
}

/// The id as Slurm's number; anything else was never given by Slurm.
fn number(id: &RemoteId) -> Option<i64> {
    id.as_str().parse().ok().filter(|number| *number > 0)
}

fn refused(operation: &'static str, error: &Refusal) -> ManagerError {
    ManagerError::new(MANAGER, operation, ErrorKind::Refused, error.to_string())
}

/// What slurmctld and the site's filter say about a job they took.
fn remarks(envelope: &Envelope) -> impl Iterator<Item = String> {
    let said = envelope.errors.iter().chain(&envelope.warnings).map(wire::ApiError::text);
    let filter = envelope.job_submit_user_msg.get().map(str::to_owned);
    // That it is held is what was asked for.
    let texts: Vec<String> =
        said.chain(filter).filter(|text| !text.contains("held state")).map(|text| bounded(&text)).collect();
    texts.into_iter()
}

/// A success without an id: some versions drop a job whose description they cannot read, with a warning only.
fn no_id(envelope: &Envelope) -> SubmitError {
    let said: Vec<String> = remarks(envelope).take(MOST_WARNINGS).collect();
    if said.is_empty() {
        let message = "slurmrestd answered without an id and without an error".to_owned();
        return SubmitError::Unknown(ManagerError::new(MANAGER, "submit", ErrorKind::Protocol, message));
    }
    let message = format!("slurmrestd did not take the job: {}", said.join("; "));
    SubmitError::NotSubmitted(ManagerError::new(MANAGER, "submit", ErrorKind::Refused, message))
}

/// Whether a cancellation succeeded, where its result stands inside the answer.
fn killed(envelope: &Envelope) -> Result<()> {
    // No error, unknown, already ended, being signalled: in each case there is nothing left to ask for.
    let failed =
        envelope.status.iter().find(|status| !matches!(status.error.code.0, None | Some(0 | 2017 | 2020 | 2021)));
    match failed {
        None => Ok(()),
        Some(status) => {
            let message = format!("slurmctld did not end the job: {}", bounded(&status.error.string.0));
            Err(ManagerError::new(MANAGER, "cancel", ErrorKind::Unreachable, message))
        }
    }
}
