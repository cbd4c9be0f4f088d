//! Condition types and reasons. They are API: people wait for them and alert on them, so each is named here once.
//!
//! The text of each is both its documentation here and its entry in the API reference.

#![allow(clippy::doc_markdown, reason = "these comments are the text of the API reference")]

/// A condition type or a reason, with what people need to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// The word in `type` or `reason`.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub action: &'static str,
}

/// Writes each word once and makes of it a constant, its rustdoc and its entry in the list.
macro_rules! terms {
    ($(#[$list_doc:meta])* $list:ident: $($name:ident = $word:literal, $meaning:literal, $action:literal;)*) => {
        $(
            #[doc = $meaning]
            #[doc = ""]
            #[doc = concat!("What to do: ", $action)]
            pub const $name: &str = $word;
        )*
        $(#[$list_doc])*
        pub const $list: &[Term] = &[$(Term { name: $name, meaning: $meaning, action: $action }),*];
    };
}

terms! {
    /// All condition types.
    TYPES:
    READY = "Ready",
        "True when everything the job refers to is there and its plan is made; False with the reason otherwise.",
        "Read the reason and the message; what is missing is looked for again and again, so nothing has to be restarted.";
    SUBMITTED = "Submitted",
        "True once the remote system has accepted the job.",
        "While it is False or Unknown, read the message: it says what the submission waits for.";
    REACHABLE = "Reachable",
        "Whether the remote system, and the object store while data moves, can be worked with; an outage is waited out and never ends a job.",
        "While it is False, the message names the system: check its URL, the network and the credentials.";
    SUSPENDED = "Suspended",
        "True while the job is held or stopped because of `suspend: true`.",
        "Set `suspend: false` to let it go on.";
    OUTPUTS_STAGED = "OutputsStaged",
        "True when all outputs are in the bucket, False if some could not be sent; absent until the job has ended, and if it sends none.",
        "If it is False, the message names the file and the reason.";
    COMPLETE = "Complete",
        "True when the job has ended well (DONE); `kubectl wait --for=condition=Complete` waits for it.",
        "Nothing.";
    FAILED = "Failed",
        "True when the job has ended in any other way (FAILED, KILLED, UNKNOWN).",
        "Read the reason and the message.";
}

terms! {
    /// All reasons of conditions; each may be the reason of the status as well.
    REASONS:
    RESOLVED = "Resolved",
        "Every reference of the job was found.",
        "Nothing.";
    SECRET_MISSING = "SecretMissing",
        "A Secret that the job names is not there.",
        "Create the Secret; the job goes on by itself.";
    SECRET_KEY_MISSING = "SecretKeyMissing",
        "A Secret that the job names lacks a key.",
        "Add the key that the message names; the job goes on by itself.";
    MANAGER_UNKNOWN = "ManagerUnknown",
        "Neither `resourceManager` nor the URL nor the image tells which manager the job is for.",
        "Create the BridgeJob again with `resourceManager` set to one of the choices in the message.";
    INVALID_SPEC = "InvalidSpec",
        "The job asks for something that cannot be done, and no later event can change that.",
        "Correct what the message names and create the BridgeJob again.";
    WAITING = "Waiting",
        "The step before this one is not done yet.",
        "Nothing.";
    ACCEPTED = "Accepted",
        "As the reason of `Submitted`: the remote system has accepted the job. As `status.reason`: the controller pod has the job and has not submitted it yet.",
        "Nothing.";
    SUBMISSION_REFUSED = "SubmissionRefused",
        "The remote system refused the job, so it never ran.",
        "Correct what the message says and create the BridgeJob again.";
    SUBMISSION_UNKNOWN = "SubmissionUnknown",
        "The reply to the submission was lost, and the remote system cannot tell whether it took the job; it is never submitted twice.",
        "Look for the token in the message on the remote system, and create a new BridgeJob if the job is not there.";
    NEVER_SUBMITTED = "NeverSubmitted",
        "The job ended before anything was submitted.",
        "Read the message; create the BridgeJob again if the job is still wanted.";
    STAGE_IN_EXPIRED = "StageInExpired",
        "The job waited in its queue for longer than the URLs of its data are valid, so its script did not run.",
        "Create the BridgeJob again, or set `backoffLimit`: each attempt has new URLs.";
    STAGE_IN_FAILED = "StageInFailed",
        "Inputs could not be fetched, so the job's script did not run; while the job is PENDING it is tried again.",
        "Correct the bucket, object or credentials that the message names; if the job has ended, create the BridgeJob again.";
    STAGE_OUT_FAILED = "StageOutFailed",
        "The remote job has ended, but some outputs could not be uploaded; while the job is RUNNING it is tried again.",
        "Correct the bucket or credentials that the message names; if the job has ended, fetch the files from the remote system.";
    STAGED = "Staged",
        "All outputs are in the bucket.",
        "Nothing.";
    ANSWERS = "Answers",
        "The remote system answered the last request.",
        "Nothing.";
    UNREACHABLE = "Unreachable",
        "The remote system does not answer; the job itself may well go on.",
        "Check the network and the remote system; watching goes on by itself.";
    ACCOUNTING_UNREACHABLE = "AccountingUnreachable",
        "The remote system answers and does not know for sure the job, or all tasks of an array, and its accounting, which may know how it ended, does not answer or has not been told yet.",
        "Read the message. Most often: ask the remote system's operators to see to its accounting (slurmdbd for Slurm); the job's end is read there as soon as it answers. Where it says that a job's comment was changed, run the command that it names.";
    UNAUTHORIZED = "Unauthorized",
        "The credentials are missing or refused, or the Secret's `allowedURL` does not cover the URL, so that none were sent.",
        "Renew the Secret, which is read again without a restart; where the message names `allowedURL`, use a URL below it or another Secret.";
    RATE_LIMITED = "RateLimited",
        "The remote system says that it gets too many requests, or takes no more jobs of this user or account; it is asked more seldom.",
        "Nothing; if it stays so, raise `updateinterval` or ask the remote system's operators. Where the message names a limit that the job itself exceeds, change the job.";
    PROTOCOL_ERROR = "ProtocolError",
        "The remote system's answer cannot be understood; it is asked again.",
        "Check that `resourceURL` leads to the manager itself, not to a login page or a proxy, and that its version is supported.";
    REFUSED = "Refused",
        "The remote system refuses a request about the job, such as cancelling it; it is asked again.",
        "Read the message: the user of the Secret may lack a permission there.";
    UNSUPPORTED = "Unsupported",
        "The remote system cannot do what was asked of it.",
        "Read the message; leave out the field that asks for it, or use another manager.";
    SUSPENDED_BY_USER = "SuspendedByUser",
        "`suspend: true` keeps the job from running.",
        "Set `suspend: false` to let it go on.";
    RESUMED = "Resumed",
        "`suspend` is `false` again, or the job is over.",
        "Nothing.";
    SUCCEEDED = "Succeeded",
        "The job ended well.",
        "Nothing.";
    JOB_FAILED = "JobFailed",
        "The job ended with an error of its own.",
        "Read exit code and message, then the job's standard error.";
    DEADLINE_EXCEEDED = "DeadlineExceeded",
        "The job was ended because `activeDeadlineSeconds` had passed since its submission.",
        "Create the BridgeJob again with a longer deadline.";
    KILLED = "Killed",
        "The job was ended because `kill` was set, or by someone on the remote system.",
        "Nothing; create a new BridgeJob to run it again.";
    LOST = "Lost",
        "The remote system no longer knows the job, its accounting included.",
        "Ask the remote system's operators; look for outputs before running the job again.";
    CANCEL_BLOCKED = "CancelBlocked",
        "The BridgeJob is being deleted, but its remote job cannot be cancelled, because no pod can be made or the Secret is gone.",
        "Restore the Secret, or end the remote job yourself (id and URL are in the message) and set the annotation `bridgejob.ibm.com/abandon` to the BridgeJob's UID.";
    STATE_TOO_NEW = "StateTooNew",
        "A newer version wrote this job's record; this version touches nothing.",
        "Upgrade the operator again.";
    STATE_UNREADABLE = "StateUnreadable",
        "The job's record, key `bridge.state` of its ConfigMap, is damaged; nothing is done, because the job may have been submitted.",
        "Restore the key, or delete the ConfigMap together with its finalizer: the job is then looked for before anything is submitted.";
    WORKER_STARTING = "WorkerStarting",
        "The controller pod is being made or starts.",
        "If it stays so, `kubectl describe` the pod: image, quota or scheduling keep it from starting.";
    WORKER_FAILED = "WorkerFailed",
        "The controller pod ended without a result and is made again after a while; the remote job is not affected.",
        "Read the pod's log if it happens again.";
}

/// Words that only the reason of the status has: what a job is doing, and ends that need no condition of their own.
pub mod doing {
    use super::Term;

    terms! {
        /// All of them.
        STATUS_REASONS:
        STAGING_IN = "StagingIn",
            "The job's data is being brought; the message says how far it is.",
            "Nothing.";
        SUBMITTING = "Submitting",
            "The job is being submitted, or looked for because a reply was lost.",
            "Nothing.";
        SUBMITTED = "Submitted",
            "The remote system holds the job; it is released next.",
            "Nothing.";
        QUEUED = "Queued",
            "The job waits in the remote system's queue; the message has the remote system's own reason.",
            "Nothing; if it stays so, ask the remote system what the reason means.";
        RUNNING = "Running",
            "The job runs.",
            "Nothing.";
        SUSPENDED = "Suspended",
            "The job is held or stopped, by `suspend: true` or on the remote system; the message says which.",
            "Set `suspend: false`, or let it go on there.";
        HELD = "Held",
            "The job is held on the remote system, and not because of `suspend`.",
            "Release it there.";
        MISSING = "Missing",
            "The remote system has not known the job for a while; it is looked for until that is certain.",
            "Nothing yet; if it stays so the job ends as `Lost`.";
        CANCELLING = "Cancelling",
            "The job's end was asked for, and the remote system has not ended it yet.",
            "Nothing.";
        STAGING_OUT = "StagingOut",
            "The remote job has ended and its outputs are being sent; the message says how far they are.",
            "Nothing.";
        RETRYING = "Retrying",
            "An attempt failed; the next one begins at the time in the message.",
            "Read how the last attempt ended in the message; `kill: true` ends the job instead.";
        SWEEPING = "Sweeping",
            "The job is over; submissions whose reply was lost are looked for and ended.",
            "Nothing.";
        REPORTED = "Reported",
            "The controller pod is not ours; status and message are what it says.",
            "Read its log.";
        COMPLETED = "Completed",
            "The job ended well, and its manager has no word of its own for that.",
            "Nothing.";
        FAILED = "Failed",
            "The job failed, and its manager has no word of its own for that.",
            "Read exit code and message, then the job's standard error.";
        STAGE_IN_NO_CLIENT = "StageInNoClient",
            "Neither curl nor GNU wget is on the node, so no data could be moved and the job's script did not run.",
            "Have one of them installed there, or choose other nodes.";
        STAGE_IN_NO_PLACE = "StageInNoPlace",
            "The job's script could not be written on the node, so it did not run.",
            "Set `TMPDIR` there to a folder with space from which scripts can be run.";
    }
}
