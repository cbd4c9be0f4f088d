//! The calls that the engine asks for, and their answers.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{RemoteId, SubmitToken};
use crate::manager::{Outcome, Tracked};
use crate::record::JobRecord;
use crate::state::Event;
use crate::store::{LoadError, Revision, SaveError, Stored};

/// One job of this engine.
pub type Slot = u64;
/// One call under way.
pub type Ticket = u64;
/// One remote system as one user sees it.
pub type TargetId = u64;

/// A call that is to be made. Its answer comes back through [`Engine::answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Names the call.
    pub ticket: Ticket,
    /// What to do.
    pub call: Call,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Save the record.
    Save {
        /// The job.
        slot: Slot,
        /// What to save.
        record: Arc<JobRecord>,
        /// What must be there now.
        expected: Option<Revision>,
    },
    /// Read the record again, because a save was refused.
    Reload {
        /// The job.
        slot: Slot,
    },
    /// Bring the job's data and keep the submission ready.
    StageIn {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
    },
    /// Submit, unless it is later than `until`.
    Submit {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// Last moment to send, monotonic.
        until: Duration,
    },
    /// Look for lost submissions.
    Find {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// From when on.
        since: jiff::Timestamp,
    },
    /// Let a held job go.
    Release {
        /// The job.
        slot: Slot,
        /// Its remote side.
        job: Tracked,
    },
    /// Hold a queued job back.
    Hold {
        /// The job.
        slot: Slot,
        /// Its remote side.
        job: Tracked,
    },
    /// Ask for a job's end.
    Cancel {
        /// The job.
        slot: Slot,
        /// Its remote side.
        job: Tracked,
    },
    /// Look at many jobs.
    Poll {
        /// The remote system.
        target: TargetId,
        /// Jobs and their remote sides.
        jobs: Vec<(Slot, Tracked)>,
    },
    /// Send a job's outputs.
    StageOut {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// The remote id.
        id: RemoteId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Cancel strays.
    Sweep {
        /// The job.
        slot: Slot,
        /// The attempt's token.
        token: SubmitToken,
        /// The one that is ours.
        keep: Option<RemoteId>,
        /// From when on to look.
        since: jiff::Timestamp,
    },
    /// Give up this call, which moves data; its answer is no longer needed.
    Abort {
        /// The call.
        call: Ticket,
    },
    /// Nothing more will be done for this job.
    Leave {
        /// The job.
        slot: Slot,
        /// Why.
        why: Leaving,
    },
}

/// Why the engine lets go of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaving {
    /// It is over and saved.
    Finished(Arc<JobRecord>),
    /// Another holder took over, or its record is gone.
    Fenced,
    /// Its record cannot be read any more.
    Unusable(String),
}

/// The answer to a call.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each call under way, moved once")]
pub enum Answer {
    /// To [`Call::Save`].
    Saved(Result<Revision, SaveError>),
    /// To [`Call::Reload`].
    Loaded(Result<Option<Stored>, LoadError>),
    /// To a call about one job.
    Job(Event),
    /// To [`Call::Poll`]: an event for each job that was asked about.
    Polled(TargetId, Vec<(Slot, Event)>),
}
