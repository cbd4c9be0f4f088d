//! A submission that waited long for its manager: what it carries may have ended meanwhile.

use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Found, Guarantee, ManagerError, SubmitError, Submitted};
use bridge_core::record::{JobRecord, JobState};
use bridge_core::state::{Effect, Event, Machine, Rules, Tuning, Wishes};

/// What a job does while its manager is away for so long: the effects from the first submission on, without waits.
fn after_an_outage_of(
    outage: Duration,
    guarantee: Guarantee,
    wishes: impl Fn(Duration) -> Wishes,
) -> Vec<&'static str> {
    let rules = Rules {
        guarantee,
        can_hold: true,
        stages_in: true,
        stages_out: true,
        backoff_limit: 0,
        deadline: None,
        poll_interval: Duration::from_secs(20),
        tuning: Tuning::default(),
    };
    let start = Instant { mono: Duration::from_secs(1000), wall: "2026-01-02T00:00:00Z".parse().unwrap() };
    let (mut machine, mut now) = (Machine::begin(JobRecord::new("uid", "worker")), start);
    let away = || ManagerError::new("slurm", "submit", ErrorKind::Unreachable, "connection refused");
    let mut done = Vec::new();
    while !matches!(machine.record().state, JobState::Prepared { .. } | JobState::Active { .. }) {
        let spent = now.mono.saturating_sub(start.mono);
        let is_back = spent >= outage;
        machine.observe(wishes(spent), &rules, now);
        machine.asking(now);
        let mut step = Duration::from_millis(10);
        match machine.effect(&rules, now) {
            Effect::Rest => step = Duration::from_secs(1),
            Effect::Wait(until) => step = until.saturating_sub(now.mono),
            Effect::BeginStageIn => {
                machine.apply(Event::StagingStarts, &rules, now);
            }
            Effect::StageIn { .. } => {
                done.push("stage in");
                machine.apply(Event::StagedIn(Ok(())), &rules, now);
            }
            Effect::Intend => {
                machine.apply(Event::Intend, &rules, now);
                machine.saving(0, now);
            }
            Effect::Submit { token, .. } => {
                done.push("submit");
                let answer = if is_back {
                    Ok(Submitted { id: RemoteId::new("7"), warnings: Vec::new() })
                } else {
                    Err(SubmitError::NotSubmitted(away()))
                };
                machine.apply(Event::Submit(token, answer), &rules, now);
            }
            Effect::Find { token, .. } => {
                let answer = if is_back { Ok(Found::Absent) } else { Err(away()) };
                machine.apply(Event::Find(token, answer), &rules, now);
            }
            other => panic!("{other:?}"),
        }
        now.mono += step;
        now.wall += step;
        assert!(now.mono < start.mono + outage + Duration::from_secs(600), "{done:?}");
    }
    done
}

#[test]
fn a_job_whose_manager_was_away_for_long_brings_its_data_again() {
    for guarantee in [Guarantee::TwoPhase, Guarantee::OwnKey, Guarantee::LookUp] {
        let outage = |minutes| after_an_outage_of(Duration::from_mins(minutes), guarantee, |_| Wishes::default());
        assert_eq!(outage(0), ["stage in", "submit"]);
        assert_eq!(outage(5), ["stage in", "submit", "submit"], "{guarantee:?}");
        assert_eq!(outage(20), ["stage in", "submit", "stage in", "submit"], "{guarantee:?}");
        assert_eq!(outage(60 * 24 * 8), ["stage in", "submit", "stage in", "submit"], "{guarantee:?}");
    }
}

#[test]
fn a_job_that_was_held_back_for_long_before_it_was_sent_brings_its_data_again() {
    let hour = Duration::from_hours(1);
    // Held back when its data has just been brought.
    let wishes = |spent: Duration| Wishes { suspend: (1..3600).contains(&spent.as_secs()), ..Wishes::default() };
    let done = after_an_outage_of(hour, Guarantee::TwoPhase, wishes);
    assert_eq!(done, ["stage in", "submit", "stage in", "submit"]);
}
