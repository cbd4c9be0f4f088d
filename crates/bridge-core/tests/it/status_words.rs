//! A record's meaning in the contract's words.

use bridge_api::JobStatus;
use bridge_core::record::JobState;
use bridge_core::status::{MESSAGE_LIMIT, StatusView};

use crate::stored_form::samples;

#[test]
fn every_state_has_a_word_a_reason_a_sentence_and_an_exit_code() {
    let told: Vec<String> = samples()
        .iter()
        .map(|record| {
            let view = StatusView::of(record);
            format!("{} {} [{}] {}", view.status, view.reason, view.process_exit_code(), view.message)
        })
        .collect();
    let expected = [
        "PENDING Accepted [124] not submitted yet",
        "PENDING Retrying [124] attempt 1 begins at 2027-01-15T08:00:10Z",
        "PENDING StagingIn [124] bringing its data",
        "PENDING Submitting [124] being submitted",
        "SUBMITTED Submitted [124] accepted, about to be released",
        "PENDING Queued [124] waiting in the queue: Priority",
        "SUSPENDED Held [124] held on the remote system, by its user or operator, or because the remote system forgot its release in a crash; release it there to let it go on",
        "SUSPENDED Suspended [124] suspended on the remote system",
        "RUNNING Cancelling [124] its end was asked for",
        "RUNNING StagingOut [124] failed (OUT_OF_MEMORY, exit code 3): needed more than 4 GB; sending its outputs",
        "RUNNING StagingOut [124] failed (OUT_OF_MEMORY, exit code 3): needed more than 4 GB; sending its outputs",
        "PENDING Accepted [124] not submitted yet",
        "RUNNING Sweeping [124] failed (OUT_OF_MEMORY, exit code 3): needed more than 4 GB; looking for submissions whose reply was lost",
        "FAILED OUT_OF_MEMORY [3] failed (OUT_OF_MEMORY, exit code 3): needed more than 4 GB",
        "UNKNOWN Lost [125] neither the remote system nor its accounting knows job 4711 any more, as after a restart that lost its memory; it was submitted once and is not submitted again",
        "UNKNOWN SubmissionUnknown [125] nobody can tell whether the submission arrived (no memory); look for bridge-7c1e0c90-1 on the remote system; it is not submitted again",
        "KILLED Killed [130] ended before it was submitted because `kill` was set",
        "FAILED SubmissionRefused [1] refused by the remote system: no such queue",
        "FAILED StageInFailed [1] its data could not be brought: no such key",
        "RUNNING Unreachable [124] the remote system has not known this job since 2027-01-15T08:00:09Z; looking again; since 2027-01-15T08:00:06Z: connection refused",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_message_stays_within_its_limit_and_within_characters() {
    let mut record = samples().pop().unwrap();
    record.trouble.as_mut().unwrap().message = "ü".repeat(MESSAGE_LIMIT);
    let view = StatusView::of(&record);
    assert!(view.message.len() <= MESSAGE_LIMIT && view.message.ends_with('…'), "{}", view.message.len());
}

#[test]
fn what_the_manager_remarked_is_shown_while_the_job_waits_and_runs() {
    let mut told = Vec::new();
    for mut record in samples() {
        record.note = "its URLs may end too early".to_owned();
        let view = StatusView::of(&record);
        if view.message.contains("(its URLs may end too early)") {
            told.push((view.status, view.reason));
        }
    }
    let [queued, held, suspended] = ["Queued", "Held", "Suspended"].map(str::to_owned);
    let expected = [(JobStatus::Pending, queued), (JobStatus::Suspended, held), (JobStatus::Suspended, suspended)];
    assert_eq!(told, expected);
    let mut record = samples().into_iter().find(|record| StatusView::of(record).reason == "Queued").unwrap();
    let JobState::Active { phase, .. } = &mut record.state else { panic!("{record:?}") };
    *phase = bridge_core::manager::Phase::Running;
    record.facts.note = Some("2 of 3 tasks".to_owned());
    record.note = "be quick".to_owned();
    assert_eq!(StatusView::of(&record).message, "running (2 of 3 tasks; be quick)");
    record.facts.merge(bridge_core::manager::Facts::default());
    assert_eq!(StatusView::of(&record).message, "running (be quick)", "a remark is of its moment");
}

#[test]
fn times_are_told_only_when_they_are_true() {
    let mut record = samples().pop().unwrap();
    assert_eq!(StatusView::of(&record).completed, None, "it still runs, whatever time its manager expects");
    record.state = samples()
        .into_iter()
        .map(|sample| sample.state)
        .find(|state| matches!(state, JobState::Finished { .. }))
        .unwrap();
    let view = StatusView::of(&record);
    assert_eq!(view.status, JobStatus::Failed);
    assert_eq!(view.completed, record.facts.ended);
}
