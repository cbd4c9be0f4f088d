//! The stored form is kept for ever: what one version wrote, the next one reads.

use bridge_core::record::{JobRecord, RecordError};

const GOLDEN_V1: &str = include_str!("golden/record-v1.jsonl");

#[test]
fn every_golden_record_reads_back_as_it_was() {
    let mut seen = 0;
    for line in GOLDEN_V1.lines() {
        let record = JobRecord::decode(line).expect(line);
        assert_eq!(record.encode().unwrap(), line, "the stored form of version 1 must not change");
        seen += 1;
    }
    assert!(seen >= 9, "one line for each state");
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
