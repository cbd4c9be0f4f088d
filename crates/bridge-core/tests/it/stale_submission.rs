//! A submission that waited long for its manager: what it carries may have ended meanwhile.

use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Found, Guarantee, ManagerError, SubmitError, Submitted};
use bridge_core::record::{Ending, JobRecord, JobState, NotSubmitted};
use bridge_core::staging::StagingError;
use bridge_core::state::{Effect, Event, Machine, Rules, Swept, Tuning, Wishes};

const GONE: &str = "reading \"data:in.txt\": there is no such object";

/// What a job does while its manager is away for so long: the effects from the first submission on, without waits.
fn after_an_outage_of(
    outage: Duration,
    guarantee: Guarantee,
    wishes: impl Fn(Duration) -> Wishes,
) -> Vec<&'static str> {
    let machine = Machine::begin(JobRecord::new("uid", "worker"));
    let (machine, done) = lived(machine, outage, guarantee, &wishes, &Troubles::default());
    assert!(!machine.is_finished(), "{:?}", machine.record());
    done
}

/// What goes wrong beside the outage.
#[derive(Default)]
struct Troubles {
    /// The input is deleted after it was brought so often.
    input_gone_after: Option<usize>,
    /// Nobody knows whether a submission arrived while the manager was away.
    in_doubt: bool,
}

fn lived(
    mut machine: Machine,
    outage: Duration,
    guarantee: Guarantee,
    wishes: &dyn Fn(Duration) -> Wishes,
    troubles: &Troubles,
) -> (Machine, Vec<&'static str>) {
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
    let mut now = start;
    let away = || ManagerError::new("slurm", "submit", ErrorKind::Unreachable, "connection refused");
    let mut done = Vec::new();
    let is_over = |state: &JobState| {
        matches!(state, JobState::Prepared { .. } | JobState::Active { .. } | JobState::Finished { .. })
    };
    while !is_over(&machine.record().state) {
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
                let is_gone = troubles.input_gone_after.is_some_and(|times| done.len() >= times);
                done.push("stage in");
                let answer = if is_gone { Err(StagingError::lasting(GONE)) } else { Ok(()) };
                machine.apply(Event::StagedIn(answer), &rules, now);
            }
            Effect::Intend => {
                machine.apply(Event::Intend, &rules, now);
                machine.saving(0, now);
            }
            Effect::Submit { token, .. } => {
                done.push("submit");
                let answer = if is_back {
                    Ok(Submitted { id: RemoteId::new("7"), warnings: Vec::new() })
                } else if troubles.in_doubt {
                    Err(SubmitError::Unknown(away()))
                } else {
                    Err(SubmitError::NotSubmitted(away()))
                };
                machine.apply(Event::Submit(token, answer), &rules, now);
            }
            Effect::Find { token, .. } => {
                let answer = if is_back { Ok(Found::Absent) } else { Err(away()) };
                machine.apply(Event::Find(token, answer), &rules, now);
            }
            Effect::Sweep { token, .. } => {
                done.push("sweep");
                machine.apply(Event::Sweep(token, Ok(Swept::Clean(0))), &rules, now);
            }
            other => panic!("{other:?}"),
        }
        now.mono += step;
        now.wall += step;
        assert!(now.mono < start.mono + outage + Duration::from_secs(600), "{done:?}");
    }
    (machine, done)
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

fn ended_without_its_input(machine: &Machine) {
    let message = GONE.to_owned();
    let ending = Ending::NeverSubmitted { reason: NotSubmitted::StageIn { message } };
    assert_eq!(machine.record().ending(), Some(&ending));
}

#[test]
fn a_job_whose_input_was_deleted_while_its_manager_was_away_ends() {
    let outage = Duration::from_mins(20);
    for guarantee in [Guarantee::TwoPhase, Guarantee::OwnKey, Guarantee::LookUp] {
        let live = |in_doubt| {
            let machine = Machine::begin(JobRecord::new("uid", "worker"));
            let troubles = Troubles { input_gone_after: Some(1), in_doubt };
            lived(machine, outage, guarantee, &|_| Wishes::default(), &troubles)
        };
        let (machine, done) = live(false);
        ended_without_its_input(&machine);
        assert_eq!(done, ["stage in", "submit", "stage in"], "{guarantee:?}");
        let (machine, done) = live(true);
        ended_without_its_input(&machine);
        assert_eq!(done, ["stage in", "submit", "stage in", "sweep"], "{guarantee:?}");
    }
}

#[test]
fn a_job_in_doubt_whose_input_was_deleted_while_it_was_held_back_ends() {
    let wishes = |spent: Duration| Wishes { suspend: (1..1500).contains(&spent.as_secs()), ..Wishes::default() };
    for guarantee in [Guarantee::TwoPhase, Guarantee::OwnKey, Guarantee::LookUp] {
        let machine = Machine::begin(JobRecord::new("uid", "worker"));
        let troubles = Troubles { input_gone_after: Some(1), in_doubt: true };
        let (machine, done) = lived(machine, Duration::from_mins(20), guarantee, &wishes, &troubles);
        ended_without_its_input(&machine);
        assert_eq!(done, ["stage in", "submit", "stage in", "sweep"], "{guarantee:?}");
    }
}

#[test]
fn a_job_whose_input_was_deleted_before_another_process_took_it_over_ends() {
    let submitting = || {
        let mut record = JobRecord::new("uid", "before");
        let since = "2026-01-01T23:00:00Z".parse().unwrap();
        record.state = JobState::Submitting { token: record.token(), since, intent: since };
        record
    };
    let lost = || JobRecord::handed_over("uid", "before", 1, "2026-01-01T23:59:59Z".parse().unwrap());
    for guarantee in [Guarantee::TwoPhase, Guarantee::OwnKey, Guarantee::LookUp] {
        for (record, name) in [(submitting(), "in Submitting"), (lost(), "its record was lost")] {
            let machine = Machine::recover(record, "worker");
            let troubles = Troubles { input_gone_after: Some(0), in_doubt: false };
            let (machine, done) = lived(machine, Duration::ZERO, guarantee, &|_| Wishes::default(), &troubles);
            ended_without_its_input(&machine);
            assert_eq!(done, ["stage in", "sweep"], "{guarantee:?}, {name}");
        }
    }
}
