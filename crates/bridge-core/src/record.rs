//! The record of one job: all that must survive a crash, in a form that is versioned.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{RemoteId, SubmitToken};
use crate::manager::{Facts, Outcome, Phase};
use crate::staging::Output;

/// The newest stored form this program reads and the one it writes.
pub const FORMAT: u32 = 1;

/// How many ended attempts are kept; older ones are only counted.
pub const PAST_KEPT: usize = 16;

/// Everything that is known of a job and must survive a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRecord {
    /// The stored form, see [`FORMAT`].
    pub version: u32,
    /// The root of the job's tokens.
    pub uid: String,
    /// The current attempt, from 1.
    pub attempt: u32,
    /// Attempts that failed; what `backoffLimit` counts.
    #[serde(default)]
    pub failures: u32,
    /// Grows with each save.
    pub seq: u64,
    /// The process that may act for this job.
    pub holder: String,
    /// Why the job is to end, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The wish to hold the job back is in effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspended: bool,
    /// This job was held back by us at some time, so a hold seen later may be a late one of ours.
    #[serde(default, skip_serializing_if = "is_false")]
    pub was_suspended: bool,
    /// A submission of this attempt may have arrived unseen: the attempt ends with a look for strays.
    #[serde(default, skip_serializing_if = "is_false")]
    pub doubt: bool,
    /// An earlier record of this job was lost. Since this moment attempts may have been made of which this one does not
    /// know: each is looked for before it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remade_for: Option<Timestamp>,
    /// Our times.
    #[serde(default)]
    pub times: Times,
    /// What the manager tells beside the state.
    #[serde(default)]
    pub facts: Facts,
    /// What keeps the job from going on, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// A remark for the user, such as a manager's warning on submission.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// How far the stage that is under way has come.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub progress: String,
    /// What may be left on the remote system, because it could not be searched for strays.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unswept: String,
    /// What happened to the outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    /// What this job cost and what was prevented.
    #[serde(default)]
    pub counters: Counters,
    /// Ended attempts, newest last, at most [`PAST_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Attempt>,
    /// Where the job stands.
    pub state: JobState,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Why a job is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The user asked for it.
    Kill,
    /// `activeDeadlineSeconds` is over.
    Deadline,
    /// The object is being deleted.
    Delete,
    /// The job is to wait, and its manager cannot hold it.
    Suspend,
}

/// Where a job stands. An id exists exactly from `Prepared` on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum JobState {
    /// Known, nothing done yet.
    Accepted {
        /// When a further attempt may begin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
    },
    /// Its data is being brought.
    StagingIn,
    /// A submission was, is or will be on its way; saved before the call.
    Submitting {
        /// The mark it carries.
        token: SubmitToken,
        /// When the first intent of this attempt was saved.
        since: Timestamp,
        /// When the latest intent was saved.
        intent: Timestamp,
    },
    /// Held remotely; the id is saved, the release is not known to have happened.
    Prepared {
        /// The remote id.
        id: RemoteId,
    },
    /// In the remote system's hands.
    Active {
        /// The remote id.
        id: RemoteId,
        /// As last seen.
        phase: Phase,
        /// Since when the remote system no longer knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<Timestamp>,
    },
    /// Its end was asked for.
    Cancelling {
        /// The remote id.
        id: RemoteId,
        /// Since when.
        since: Timestamp,
        /// False only for a job that was held from its submission on and surely never released.
        maybe_ran: bool,
    },
    /// Ended; its outputs are being sent.
    StagingOut {
        /// The remote id.
        id: RemoteId,
        /// How it ended.
        outcome: Outcome,
        /// Since when.
        since: Timestamp,
        /// Since when the store has not taken them. From here the time counts for which that is tried, also in a process
        /// that comes after this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failing: Option<Timestamp>,
    },
    /// Ended; submissions whose reply was lost are being looked for.
    Sweeping {
        /// What comes then.
        then: After,
    },
    /// Over.
    Finished {
        /// How.
        ending: Ending,
    },
}

/// What follows a sweep for strays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "after")]
pub enum After {
    /// The end.
    Finish {
        /// How.
        ending: Ending,
    },
    /// A further attempt.
    Again {
        /// When it may begin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
    },
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "how")]
pub enum Ending {
    /// Nothing was handed over in the last attempt.
    NeverSubmitted {
        /// Why.
        reason: NotSubmitted,
    },
    /// The remote system saw it to its end.
    Ran {
        /// The remote id.
        id: RemoteId,
        /// Its truth.
        outcome: Outcome,
    },
    /// The remote system no longer knows it.
    Lost {
        /// The remote id.
        id: RemoteId,
    },
    /// Nobody can tell whether it was submitted; it is not submitted again.
    SubmissionUnknown {
        /// What to look for.
        token: SubmitToken,
        /// Why the remote system cannot tell.
        why: String,
    },
}

/// Why nothing was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "because")]
pub enum NotSubmitted {
    /// It was to end before that.
    Ended {
        /// Why it was to end.
        cause: Cause,
    },
    /// The remote system refused it.
    Refused {
        /// In its words.
        message: String,
    },
    /// Its data could not be brought.
    StageIn {
        /// What is missing.
        message: String,
    },
}

/// Times of ours; the manager's are in [`Facts`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Times {
    /// First handed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Timestamp>,
    /// From when the deadline counts; set anew after a suspension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Timestamp>,
    /// Over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
}

/// What keeps a job from going on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// Since when.
    pub since: Timestamp,
    /// A bounded word, see [`ErrorKind::as_str`](crate::manager::ErrorKind::as_str).
    pub reason: String,
    /// What happened, to what, what to do.
    pub message: String,
}

/// What happened to the outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    /// All of them arrived.
    pub staged: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What arrived; bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Output>,
    /// How many arrived.
    #[serde(default)]
    pub total: u64,
}

/// How many files are listed in [`Outputs::files`].
pub const OUTPUTS_LISTED: usize = 64;

/// What a job cost; kept here so that the operator can add up what its workers did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// Requests to the remote system, as of the last save.
    pub requests: u64,
    /// Submissions sent.
    pub submissions: u64,
    /// Submissions that a look made unnecessary.
    pub duplicates_prevented: u64,
}

/// An ended attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Its number.
    pub attempt: u32,
    /// Its remote id.
    pub id: RemoteId,
    /// How it ended.
    pub outcome: Outcome,
}

impl JobRecord {
    /// A job of which nothing is known yet.
    pub fn new(uid: impl Into<String>, holder: impl Into<String>) -> Self {
        Self {
            version: FORMAT,
            uid: uid.into(),
            attempt: 1,
            failures: 0,
            seq: 0,
            holder: holder.into(),
            cause: None,
            suspended: false,
            was_suspended: false,
            doubt: false,
            remade_for: None,
            times: Times::default(),
            facts: Facts::default(),
            trouble: None,
            note: String::new(),
            progress: String::new(),
            unswept: String::new(),
            outputs: None,
            counters: Counters::default(),
            past: Vec::new(),
            state: JobState::Accepted { not_before: None },
        }
    }

    /// A job that was handed over but whose record was lost: whoever takes it looks before submitting.
    pub fn handed_over(uid: impl Into<String>, holder: impl Into<String>, attempt: u32, since: Timestamp) -> Self {
        let mut record = Self::new(uid, holder);
        record.attempt = attempt.max(1);
        record.doubt = true;
        record.remade_for = Some(since);
        record.state = JobState::Submitting { token: record.token(), since, intent: since };
        record
    }

    /// The current attempt's token.
    #[must_use]
    pub fn token(&self) -> SubmitToken {
        SubmitToken::derive(&self.uid, self.attempt)
    }

    /// The current attempt's remote id.
    #[must_use]
    pub fn id(&self) -> Option<&RemoteId> {
        match &self.state {
            JobState::Prepared { id }
            | JobState::Active { id, .. }
            | JobState::Cancelling { id, .. }
            | JobState::StagingOut { id, .. } => Some(id),
            JobState::Sweeping { then: After::Finish { ending } } | JobState::Finished { ending } => ending.id(),
            JobState::Accepted { .. }
            | JobState::StagingIn
            | JobState::Submitting { .. }
            | JobState::Sweeping { then: After::Again { .. } } => None,
        }
    }

    /// The newest remote id, of this attempt or an earlier one.
    #[must_use]
    pub fn latest_id(&self) -> Option<&RemoteId> {
        self.id().or_else(|| self.past.last().map(|attempt| &attempt.id))
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        match &self.state {
            JobState::Finished { ending } => Some(ending),
            _ => None,
        }
    }

    /// The stored form.
    pub fn encode(&self) -> Result<String, RecordError> {
        serde_json::to_string(self).map_err(RecordError::Unreadable)
    }

    /// Reads the stored form; one from a newer program is refused, never guessed at.
    pub fn decode(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_str(text).map_err(RecordError::Unreadable)?;
        if version > FORMAT {
            return Err(RecordError::TooNew { found: version });
        }
        serde_json::from_str(text).map_err(RecordError::Unreadable)
    }
}

impl Ending {
    /// The remote id it had.
    #[must_use]
    pub fn id(&self) -> Option<&RemoteId> {
        match self {
            Self::Ran { id, .. } | Self::Lost { id } => Some(id),
            Self::NeverSubmitted { .. } | Self::SubmissionUnknown { .. } => None,
        }
    }
}

/// Why a stored record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer program.
    #[error("the job's state has format {found}, this program knows up to {FORMAT}: use the newer program")]
    TooNew {
        /// The format found.
        found: u32,
    },
    /// Damaged.
    #[error("the job's state cannot be read")]
    Unreadable(#[source] serde_json::Error),
}
