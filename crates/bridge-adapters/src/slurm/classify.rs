//! What an answer that is no success means: refused, try again, unknown, or a matter of the credential.

use std::time::Duration;

use bridge_core::manager::{ErrorKind, ManagerError, SubmitError};

use super::MANAGER;
use super::map::bounded;
use super::wire::{ApiError, Envelope};
use crate::http::{Answer, Rejection};

/// An answer faster than this did not wait for a slurmctld that is down, which takes 9 seconds and more.
const TOO_FAST_FOR_AN_OUTAGE: Duration = Duration::from_secs(5);

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What is wrong.
    pub(super) what: What,
    /// Whether the request surely had no effect.
    pub(super) surely_not_done: bool,
    /// What it says, for the user.
    pub(super) message: String,
    /// When to come back.
    pub(super) retry_after: Option<Duration>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The id is not known; the request reached slurmctld.
    NoSuchJob,
    /// The job has ended or is about to.
    AlreadyEnded,
    /// The site reads `extra` as constraints (`SchedulerParameters=extra_constraints`), and what was sent is none.
    ExtraRefused,
    /// The server does not have this address, e.g. because its API version was retired.
    NoSuchAddress,
    /// Any other trouble.
    Other(ErrorKind),
}

impl Trouble {
    /// How `bridge_core` names this trouble.
    #[must_use]
    pub(super) fn kind(&self) -> ErrorKind {
        match self.what {
            What::NoSuchJob | What::AlreadyEnded | What::ExtraRefused => ErrorKind::Refused,
            What::NoSuchAddress => ErrorKind::Protocol,
            What::Other(kind) => kind,
        }
    }

    /// The error of an operation.
    #[must_use]
    pub(super) fn into_error(self, operation: &'static str) -> ManagerError {
        let kind = self.kind();
        let mut error = ManagerError::new(MANAGER, operation, kind, self.message);
        error.retry_after = self.retry_after;
        error
    }

    /// The error of a submission.
    #[must_use]
    pub(super) fn into_submit_error(self, operation: &'static str) -> SubmitError {
        if self.surely_not_done {
            SubmitError::NotSubmitted(self.into_error(operation))
        } else {
            SubmitError::Unknown(self.into_error(operation))
        }
    }
}

/// What the answer means, if it is no success. `elapsed` tells a refusal from an outage where both have the same number.
#[must_use]
pub(super) fn trouble(answer: &Answer, envelope: Option<&Envelope>, elapsed: Duration) -> Option<Trouble> {
    let status = answer.status.as_u16();
    let errors: Vec<&ApiError> = envelope.map(|envelope| envelope.errors.iter().collect()).unwrap_or_default();
    // Whatever else is told of a job that has an id, such as a limit of the site: it was taken, and it is held.
    let was_taken = envelope.is_some_and(|envelope| envelope.job_id.positive().is_some());
    let is_remark = |error: &&ApiError| is_remark(error) || (was_taken && !is_of_known_job(error));
    if status == 200 && envelope.is_some() && errors.iter().all(is_remark) {
        return None;
    }
    let text = || {
        let texts: Vec<String> = errors.iter().take(4).map(|error| error.text()).collect();
        if texts.is_empty() { answer.excerpt() } else { bounded(&texts.join("; ")) }
    };
    let made = |what: What, surely_not_done: bool, message: String| {
        Some(Trouble { what, surely_not_done, message, retry_after: answer.retry_after() })
    };
    let place = answer.place();

    if let Some(trouble) = by_number(&errors, elapsed) {
        let (what, surely_not_done) = trouble;
        let hint = hint(what, surely_not_done, &errors);
        return made(what, surely_not_done, format!("{}{hint}", text()));
    }
    match status {
        401 | 511 => made(
            What::Other(ErrorKind::Credential),
            true,
            format!("{place} does not accept the token ({status}); renew it in the Secret"),
        ),
        403 => made(What::Other(ErrorKind::Credential), true, format!("{place} forbids this: {}", text())),
        // Also an unknown id, but that has a number.
        404 | 405 => made(What::NoSuchAddress, true, format!("{place} is not an address of slurmrestd: {}", text())),
        429 => made(What::Other(ErrorKind::RateLimited), true, format!("{place} asks for fewer requests")),
        400 | 406 | 411..=417 | 422 => made(What::Other(ErrorKind::Refused), true, format!("refused: {}", text())),
        304 => made(What::Other(ErrorKind::Protocol), true, format!("{place} says that nothing has changed")),
        200..=299 if envelope.is_none() => {
            made(What::Other(ErrorKind::Protocol), false, format!("the answer of {place} cannot be understood"))
        }
        500 if !errors.is_empty() || envelope.is_some_and(|envelope| envelope.errors.is_empty()) => {
            // An expired token looks like this to v0.0.36, and so does a slurmctld that is down.
            let is_fast = elapsed < TOO_FAST_FOR_AN_OUTAGE;
            let kind = if is_fast { ErrorKind::Credential } else { ErrorKind::Unreachable };
            made(What::Other(kind), false, format!("{place} failed: {}{}", text(), ambiguous(is_fast)))
        }
        _ => made(What::Other(ErrorKind::Unreachable), false, format!("{place} answered {status}: {}", text())),
    }
}

/// What the errors in a list mean that came as a success, if they are more than remarks.
#[must_use]
pub(super) fn trouble_in_list(errors: &[ApiError], place: &str, elapsed: Duration) -> Option<Trouble> {
    if errors.iter().all(is_remark) {
        return None;
    }
    let errors: Vec<&ApiError> = errors.iter().collect();
    let text = bounded(&errors.iter().take(4).map(|error| error.text()).collect::<Vec<_>>().join("; "));
    let (what, surely_not_done, message) = match by_number(&errors, elapsed) {
        Some((what, surely_not_done)) => {
            let hint = hint(what, surely_not_done, &errors);
            (what, surely_not_done, format!("{text}{hint}"))
        }
        None => (What::Other(ErrorKind::Unreachable), false, format!("{place} answered 200 with an error: {text}")),
    };
    Some(Trouble { what, surely_not_done, message, retry_after: None })
}

fn hint(what: What, surely_not_done: bool, errors: &[&ApiError]) -> &'static str {
    match what {
        What::Other(ErrorKind::Credential) if surely_not_done => {
            "; the token is expired or is not for this user: renew it in the Secret"
        }
        What::Other(ErrorKind::Credential) => ambiguous(true),
        What::Other(ErrorKind::Unreachable) if errors.iter().any(|error| is_of_slurmdbd(error)) => {
            "; is slurmdbd running?"
        }
        What::Other(ErrorKind::RateLimited) => {
            "; it is tried again until there is room; if the job itself is larger or longer than its account or QOS may \
             ever have, change it"
        }
        What::Other(ErrorKind::Unreachable) => ambiguous(false),
        _ => "",
    }
}

fn ambiguous(is_fast: bool) -> &'static str {
    if is_fast {
        "; most often the token is expired or is not for this user, otherwise slurmctld is restarting"
    } else {
        "; is slurmctld running?"
    }
}

/// An entry of `errors` that comes with a success.
fn is_remark(error: &ApiError) -> bool {
    // Held as asked, or it will wait for resources; and 9003, "nothing found", is an empty answer of slurmdbd.
    matches!(error.number(), Some(0 | 2015 | 2042 | 9003)) && !says_no_such_job(error)
}

/// Told of a job that was there before, never of one that is being submitted.
fn is_of_known_job(error: &ApiError) -> bool {
    says_no_such_job(error) || matches!(error.number(), Some(2021 | 2084))
}

fn says_no_such_job(error: &ApiError) -> bool {
    // v0.0.36 has the text but not the number.
    error.number() == Some(2017) || {
        let text = error.text();
        text.contains("Invalid job id specified") || text.contains("unknown job")
    }
}

/// slurmdbd cannot be reached, or cannot reach its database.
fn is_of_slurmdbd(error: &ApiError) -> bool {
    matches!(error.number(), Some(7000..=7999))
}

/// The submit limit of a user or an account: there is room again when other jobs have ended. Slurm has no other number for
/// a job that is too large for its account, so that is tried again as well.
fn is_of_limits(error: &ApiError) -> bool {
    error.number() == Some(2050)
}

fn by_number(errors: &[&ApiError], elapsed: Duration) -> Option<(What, bool)> {
    if errors.iter().any(|error| says_no_such_job(error)) {
        return Some((What::NoSuchJob, true));
    }
    if errors.iter().any(|error| error.text().contains("Job has already finished")) {
        return Some((What::AlreadyEnded, true));
    }
    if errors.iter().any(|error| error.text().contains("Invalid extra constraint")) {
        return Some((What::ExtraRefused, true));
    }
    errors.iter().find_map(|error| {
        let other = |kind| What::Other(kind);
        Some(match error.number()? {
            2021 | 2084 => (What::AlreadyEnded, true),
            1007 => (other(ErrorKind::Credential), true),
            // Temporarily unable to accept, not top priority, busy, cannot write, in transition, standing by, EAGAIN;
            // and two words for "connection refused": nothing was sent to slurmctld.
            2007 | 2013 | 2016 | 2019 | 2020 | 2027 | 11 | 1001 | 1800 => (other(ErrorKind::Unreachable), true),
            _ if is_of_limits(error) => (other(ErrorKind::RateLimited), true),
            // slurmctld closed the connection without a word: that is how 22.05 rejects a token.
            5000..=5099 if elapsed < TOO_FAST_FOR_AN_OUTAGE => (other(ErrorKind::Credential), false),
            1000..=1099 | 1801..=1899 | 5000..=5099 => (other(ErrorKind::Unreachable), false),
            _ if is_of_slurmdbd(error) => (other(ErrorKind::Unreachable), false),
            // A cancellation while slurmctld is down "is not permitted" (24.11 on).
            1 if elapsed >= TOO_FAST_FOR_AN_OUTAGE => (other(ErrorKind::Unreachable), false),
            2000..=2999 | 9000..=9999 => (other(ErrorKind::Refused), true),
            _ => return None,
        })
    })
}

/// Tells the HTTP client which answers reject the credential.
#[must_use]
pub(super) fn rejects(answer: &Answer) -> Rejection {
    match answer.status.as_u16() {
        401 | 511 => Rejection::Surely,
        500 => {
            let Ok(envelope) = answer.json::<Envelope>() else { return Rejection::No };
            let is_vague = |error: &ApiError| matches!(error.number(), Some(-1 | 5000..=5099));
            if envelope.errors.iter().any(|error| error.number() == Some(1007)) {
                Rejection::Surely
            } else if envelope.errors.is_empty() || envelope.errors.iter().any(is_vague) {
                Rejection::Perhaps
            } else {
                Rejection::No
            }
        }
        _ => Rejection::No,
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
