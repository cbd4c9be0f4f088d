//! The stored form is kept for ever: what one version wrote, the next one reads.

use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Facts, Outcome, Phase, Verdict};
use bridge_core::record::{
    After, Attempt, Cause, Counters, Ending, JobRecord, JobState, NotSubmitted, Outputs, RecordError, Times, Trouble,
};
use bridge_core::staging::Output;
use jiff::Timestamp;

const GOLDEN_V1: &str = include_str!("golden/record-v1.jsonl");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn failed() -> Outcome {
    Outcome {
        verdict: Verdict::Failed,
        exit_code: Some(3),
        signal: None,
        reason: "OUT_OF_MEMORY".to_owned(),
        message: "needed more than 4 GB".to_owned(),
    }
}

fn id() -> RemoteId {
    RemoteId::new("4711")
}

fn with(state: JobState) -> JobRecord {
    let mut record = JobRecord::new("7c1e-0c90", "worker-1");
    record.state = state;
    record
}

/// One record for each state, and one in which everything is set.
pub(crate) fn samples() -> Vec<JobRecord> {
    let token = SubmitToken::derive("7c1e-0c90", 1);
    let ran = Ending::Ran { id: id(), outcome: failed() };
    let mut full = with(JobState::Active { id: id(), phase: Phase::Running, missing: Some(at(9)) });
    full.attempt = 2;
    full.failures = 1;
    full.seq = 12;
    full.cause = Some(Cause::Deadline);
    full.suspended = true;
    full.was_suspended = true;
    full.doubt = true;
    full.times = Times { submitted: Some(at(1)), active: Some(at(2)), finished: Some(at(3)) };
    full.facts = Facts {
        started: Some(at(4)),
        ended: Some(at(5)),
        queue: Some("debug".to_owned()),
        node: Some("n1".to_owned()),
        stdout: Some("/home/alice/slurm-4711.out".to_owned()),
        stderr: Some("/home/alice/slurm-4711.err".to_owned()),
        note: Some("3 of 10 tasks done".to_owned()),
    };
    full.trouble =
        Some(Trouble { since: at(6), reason: "Unreachable".to_owned(), message: "connection refused".to_owned() });
    "a warning".clone_into(&mut full.note);
    full.outputs = Some(Outputs {
        staged: false,
        message: "no such bucket".to_owned(),
        files: vec![Output { bucket: "b".into(), key: "job/stdout".into(), size: 5, checksum: "sha256:00".into() }],
        total: 1,
    });
    full.counters = Counters { requests: 7, submissions: 2, duplicates_prevented: 1 };
    full.past = vec![Attempt { attempt: 1, id: RemoteId::new("4700"), outcome: failed() }];
    vec![
        with(JobState::Accepted { not_before: None }),
        with(JobState::Accepted { not_before: Some(at(10)) }),
        with(JobState::StagingIn),
        with(JobState::Submitting { token: token.clone(), since: at(0), intent: at(1) }),
        with(JobState::Prepared { id: id() }),
        with(JobState::Active {
            id: id(),
            phase: Phase::Queued { reason: Some("Priority".to_owned()) },
            missing: None,
        }),
        with(JobState::Active { id: id(), phase: Phase::Held, missing: None }),
        with(JobState::Active { id: id(), phase: Phase::Suspended, missing: None }),
        with(JobState::Cancelling { id: id(), since: at(2), maybe_ran: false }),
        with(JobState::StagingOut { id: id(), outcome: failed(), since: at(3), failing: None }),
        with(JobState::StagingOut { id: id(), outcome: failed(), since: at(3), failing: Some(at(4)) }),
        with(JobState::Sweeping { then: After::Again { not_before: Some(at(4)) } }),
        with(JobState::Sweeping { then: After::Finish { ending: ran.clone() } }),
        with(JobState::Finished { ending: ran }),
        with(JobState::Finished { ending: Ending::Lost { id: id() } }),
        with(JobState::Finished { ending: Ending::SubmissionUnknown { token, why: "no memory".to_owned() } }),
        with(JobState::Finished {
            ending: Ending::NeverSubmitted { reason: NotSubmitted::Ended { cause: Cause::Kill } },
        }),
        with(JobState::Finished {
            ending: Ending::NeverSubmitted { reason: NotSubmitted::Refused { message: "no such queue".to_owned() } },
        }),
        with(JobState::Finished {
            ending: Ending::NeverSubmitted { reason: NotSubmitted::StageIn { message: "no such key".to_owned() } },
        }),
        full,
    ]
}

/// A difference here means that workers of an earlier release could not be taken over: raise `FORMAT`, keep this file,
/// and read the old form as well.
#[test]
fn the_stored_form_of_version_1_never_changes() {
    let written: Vec<String> = samples().iter().map(|record| record.encode().unwrap()).collect();
    let golden: Vec<&str> = GOLDEN_V1.lines().collect();
    assert_eq!(written, golden, "what is written now:\n{}\n", written.join("\n"));
    for (line, record) in golden.iter().zip(samples()) {
        assert_eq!(JobRecord::decode(line).unwrap(), record);
    }
}

#[test]
fn a_newer_form_is_refused_not_guessed_at() {
    let line = GOLDEN_V1.lines().next().unwrap().replacen("\"version\":1", "\"version\":2", 1);
    let error = JobRecord::decode(&line).unwrap_err();
    assert!(matches!(error, RecordError::TooNew { found: 2 }), "{error}");
    assert_eq!(error.to_string(), "the job's state has format 2, this program knows up to 1: use the newer program");
}

#[test]
fn damage_is_told_apart_from_age() {
    for text in ["", "{}", "{\"version\":1}", "not json", "{\"version\":\"one\"}"] {
        assert!(matches!(JobRecord::decode(text), Err(RecordError::Unreadable(_))), "{text}");
    }
}
