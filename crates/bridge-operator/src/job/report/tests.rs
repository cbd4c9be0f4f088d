use bridge_core::ids::RemoteId;
use bridge_core::manager::{Outcome, Phase, Verdict};
use bridge_core::record::Trouble;

use super::*;

fn context(second: i64) -> Context {
    Context { generation: Some(3), now: Timestamp::from_second(1_800_000_000 + second).unwrap() }
}

fn condition<'a>(status: &'a BridgeJobStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .map(|condition| (condition.status.as_str(), condition.reason.as_str()))
}

fn running(seq: u64) -> JobRecord {
    let mut record = JobRecord::new("uid", "pod");
    record.seq = seq;
    record.state = JobState::Active { id: RemoteId::new("42"), phase: Phase::Running, missing: None };
    record
}

fn ended(seq: u64, verdict: Verdict) -> JobRecord {
    let mut record = running(seq);
    let outcome = Outcome {
        verdict,
        exit_code: Some(7),
        signal: None,
        reason: "OUT_OF_MEMORY".to_owned(),
        message: String::new(),
    };
    record.state = JobState::Finished { ending: Ending::Ran { id: RemoteId::new("42"), outcome } };
    record
}

#[test]
fn a_life_is_mirrored_and_its_end_never_moves() {
    let mut report = Report::on(None, context(0));
    report.ready(Some(ResourceManager::Slurm)).hand_over(false).config_map("cm");
    report.record(&running(3));
    let status = report.finish();
    assert_eq!(status.jobstatus, Some(JobStatus::Running));
    assert_eq!(condition(&status, "Submitted"), Some(("True", "Accepted")));
    assert_eq!((status.jobid.as_deref(), status.record_seq), (Some("42"), Some(3)));

    let mut report = Report::on(Some(&status), context(60));
    let failed = report.record(&ended(4, Verdict::Failed)).status().clone();
    assert_eq!((failed.jobstatus, failed.exitcode), (Some(JobStatus::Failed), Some(7)));
    assert_eq!(failed.reason.as_deref(), Some("OUT_OF_MEMORY"));
    assert_eq!(condition(&failed, "Failed"), Some(("True", "JobFailed")));

    let mut report = Report::on(Some(&failed), Context { generation: Some(9), now: context(99).now });
    report.record(&ended(5, Verdict::Succeeded));
    assert_eq!(report.finish(), BridgeJobStatus { observed_generation: Some(9), ..failed });
}

#[test]
fn an_older_record_changes_nothing() {
    let mut report = Report::on(None, context(0));
    let newer = report.record(&running(8)).status().clone();
    let mut report = Report::on(Some(&newer), context(1));
    report.record(&ended(8, Verdict::Succeeded));
    assert_eq!(report.finish().jobstatus, Some(JobStatus::Running));
}

#[test]
fn an_outage_is_a_condition_and_its_time_stays() {
    let mut record = running(2);
    record.trouble = Some(Trouble {
        since: context(0).now,
        reason: "Unreachable".to_owned(),
        message: "http://x does not answer".to_owned(),
    });
    let mut report = Report::on(None, context(5));
    let first = report.record(&record).status().clone();
    assert_eq!(condition(&first, "Reachable"), Some(("False", "Unreachable")));
    record.seq = 3;
    let mut report = Report::on(Some(&first), context(9));
    let second = report.record(&record).status().clone();
    assert_eq!(since(&second, "Reachable"), since(&first, "Reachable"));
    record.seq = 4;
    record.trouble = None;
    let mut report = Report::on(Some(&second), context(12));
    report.record(&record);
    let third = report.finish();
    assert_eq!(condition(&third, "Reachable"), Some(("True", "Answers")));
    assert_eq!(since(&third, "Reachable"), Some(context(12).now));
}

#[test]
fn a_foreign_pods_last_word_before_its_end_is_not_the_end() {
    let told = Told { id: Some("9".to_owned()), word: Some("COMPLETED".to_owned()), ..Told::default() };
    let mut report = Report::on(None, context(0));
    let before = report.told(&told).status().clone();
    assert_eq!(before.jobstatus, Some(JobStatus::Running));
    let mut report = Report::on(Some(&before), context(1));
    report.foreign_end(&told, JobStatus::Done, "the controller pod's last word was COMPLETED", false);
    let after = report.finish();
    assert_eq!(condition(&after, "Complete"), Some(("True", "Succeeded")));
    assert!(after.completiontime.is_some());
}

#[test]
fn every_reason_fits_the_schema() {
    assert_eq!(pascal("OUT_OF_MEMORY"), "OUT_OF_MEMORY");
    assert_eq!(pascal("exit code: 7"), "exitcode7");
    assert_eq!(pascal("7"), "Waiting");
}

#[test]
fn nothing_that_is_too_long_keeps_a_status_from_being_written() {
    let long = "ü".repeat(5000);
    let mut report = Report::on(None, context(1));
    report.told(&Told { id: Some(long.clone()), word: Some(long.clone()), ..Told::default() });
    assert!(report.status().jobid.as_ref().unwrap().len() <= 512);
    let mut record = JobRecord::new("uid", "pod");
    record.seq = 1;
    record.facts.queue = Some(long.clone());
    record.facts.node = Some(long.clone());
    record.facts.stdout = Some(long.clone());
    record.state = JobState::Active { id: RemoteId::new(&long), phase: Phase::Running, missing: None };
    let mut report = Report::on(None, context(1));
    let status = report.record(&record).status();
    let lengths = [&status.jobid, &status.queue, &status.node, &status.stdout].map(|text| text.as_ref().unwrap().len());
    assert!(lengths.iter().zip([512, 512, 1024, 4096]).all(|(length, most)| *length <= most), "{lengths:?}");
}

#[test]
fn a_job_that_is_over_is_not_suspended_and_has_been_looked_at() {
    let mut report = Report::on(None, context(1));
    report.suspended_before_start();
    report.never_started(JobStatus::Killed, terms::KILLED, "`kill` was set");
    let status = report.finish();
    assert!(!holds(&status, terms::SUSPENDED));
    let edited = Report::on(Some(&status), Context { generation: Some(7), ..context(2) }).finish();
    assert_eq!(edited.observed_generation, Some(7));
}

#[test]
fn an_attempts_exit_code_is_not_the_next_ones() {
    let mut record = JobRecord::new("uid", "pod");
    (record.seq, record.attempt) = (1, 2);
    record.state = JobState::Active { id: RemoteId::new("8"), phase: Phase::Running, missing: None };
    let before = BridgeJobStatus { attempts: Some(1), exitcode: Some(3), ..BridgeJobStatus::default() };
    let mut report = Report::on(Some(&before), context(1));
    assert_eq!(report.record(&record).status().exitcode, None);
}
