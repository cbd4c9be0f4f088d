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
        "Whether the remote system answers; an outage is waited out and never ends a job.",
        "While it is False, check the URL, the network and the credentials.";
    SUSPENDED = "Suspended",
        "True while the job is held or stopped because of `suspend: true`.",
        "Set `suspend: false` to let it go on.";
    OUTPUTS_STAGED = "OutputsStaged",
        "True when all outputs are in the bucket; False while they are moved or if some could not be.",
        "If it stays False, the message names the file and the reason.";
    COMPLETE = "Complete",
        "True when the job has ended well (DONE); `kubectl wait --for=condition=Complete` waits for it.",
        "Nothing.";
    FAILED = "Failed",
        "True when the job has ended in any other way (FAILED, KILLED, UNKNOWN).",
        "Read the reason and the message.";
}

terms! {
    /// All reasons.
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
    URL_NOT_ALLOWED = "URLNotAllowed",
        "The Secret's `allowedURL` does not cover `resourceURL`, so no credentials were sent.",
        "Use a URL that the owner of the Secret allows, or another Secret.";
    WAITING = "Waiting",
        "The step before this one is not done yet.",
        "Nothing.";
    ACCEPTED = "Accepted",
        "The remote system has accepted the job.",
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
        "Inputs could not be fetched in time, so the job was not submitted.",
        "Check the names of the objects, the bucket and the S3 credentials, then create the BridgeJob again.";
    STAGE_IN_FAILED = "StageInFailed",
        "Inputs could not be fetched, so the job was not submitted.",
        "Correct the bucket or object that the message names, then create the BridgeJob again.";
    STAGE_OUT_FAILED = "StageOutFailed",
        "The job has ended, but some outputs could not be uploaded.",
        "Fetch the files that the message names from the remote system.";
    STAGED = "Staged",
        "All outputs are in the bucket.",
        "Nothing.";
    ANSWERS = "Answers",
        "The remote system answered the last request.",
        "Nothing.";
    UNREACHABLE = "Unreachable",
        "The remote system does not answer; the job itself may well go on.",
        "Check the network and the remote system; watching goes on by itself.";
    UNAUTHORIZED = "Unauthorized",
        "The remote system refuses the credentials.",
        "Renew the Secret; it is read again without a restart.";
    SUSPENDED_BY_USER = "SuspendedByUser",
        "`suspend: true` keeps the job from running.",
        "Set `suspend: false` to let it go on.";
    RESUMED = "Resumed",
        "`suspend` is `false` again.",
        "Nothing.";
    SUCCEEDED = "Succeeded",
        "The job ended well.",
        "Nothing.";
    JOB_FAILED = "JobFailed",
        "The job ended with an error of its own.",
        "Read exit code and message, then the job's standard error.";
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded",
        "The job failed in every attempt that `backoffLimit` allows.",
        "Read the message of the last attempt, then the job's standard error.";
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
