//! A job that its manager no longer knows, and a manager that cannot always be asked.

use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Guarantee, ManagerError, Phase, Sighting};
use bridge_core::record::{Ending, JobRecord, JobState};
use bridge_core::state::{Event, Machine, Rules};

/// Looks at a running job every ten seconds; how it ended after these answers, if it did.
fn ended_after(answers: impl IntoIterator<Item = Result<Option<Sighting>, ManagerError>>) -> Option<Ending> {
    let rules = Rules::plain(Guarantee::TwoPhase, Duration::from_secs(10));
    let id = RemoteId::new("7");
    let mut record = JobRecord::new("uid", "before");
    record.state = JobState::Active { id: id.clone(), phase: Phase::Running, missing: None };
    let mut machine = Machine::recover(record, "worker");
    let mut now = Instant { mono: Duration::from_secs(1000), wall: "2026-01-02T00:00:00Z".parse().unwrap() };
    for answer in answers {
        machine.asking(now);
        machine.apply(Event::Poll(id.clone(), answer), &rules, now);
        now.mono += Duration::from_secs(10);
        now.wall += Duration::from_secs(10);
    }
    match &machine.record().state {
        JobState::Finished { ending } => Some(ending.clone()),
        _ => None,
    }
}

const GONE: Option<Sighting> = Some(Sighting::Gone);

#[test]
fn it_is_given_up_after_a_row_of_answers() {
    assert_eq!(ended_after((0..6).map(|_| Ok(GONE))), None);
    assert_eq!(ended_after((0..8).map(|_| Ok(GONE))), Some(Ending::Lost { id: RemoteId::new("7") }));
}

#[test]
fn a_row_that_is_broken_begins_anew() {
    let unaccounted = || Ok(Some(Sighting::Unaccounted { why: "slurmdbd is down".to_owned() }));
    let away = || Err(ManagerError::new("slurm", "poll", ErrorKind::Unreachable, "connection refused"));
    for silence in [unaccounted as fn() -> _, away] {
        let answers = [Ok(GONE)].into_iter().chain((0..60).map(|_| silence())).chain([Ok(GONE), Ok(GONE)]);
        assert_eq!(ended_after(answers), None, "an answer before the silence says nothing about the time after it");
    }
}
