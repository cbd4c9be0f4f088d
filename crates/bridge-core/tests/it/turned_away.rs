//! A manager that answers and takes no submissions, e.g. because a user's limit of jobs is reached.

use std::time::Duration;

use bridge_core::clock::Instant;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, Guarantee, ManagerError, SubmitError, Submitted};
use bridge_core::record::{JobRecord, JobState};
use bridge_core::state::{Effect, Event, Machine, Rules, Wishes};

#[test]
fn it_is_tried_again_with_growing_pauses_and_the_user_is_told() {
    let rules = Rules::plain(Guarantee::TwoPhase, Duration::from_secs(20));
    let mut now = Instant { mono: Duration::from_secs(1000), wall: "2026-01-02T00:00:00Z".parse().unwrap() };
    let begun = now.mono;
    let mut machine = Machine::recover(JobRecord::new("uid", "before"), "worker");
    machine.observe(Wishes::default(), &rules, now);
    let (mut submissions, mut told_after) = (0, None);
    while matches!(machine.record().state, JobState::Accepted { .. } | JobState::Submitting { .. }) {
        let event = match machine.effect(&rules, now) {
            Effect::Wait(until) => {
                let wait = until.saturating_sub(now.mono);
                now.mono += wait;
                now.wall += wait;
                continue;
            }
            Effect::StageIn { .. } => Event::StagedIn(Ok(())),
            Effect::Intend => Event::Intend,
            Effect::Submit { token, .. } if now.mono > begun + Duration::from_mins(30) => {
                Event::Submit(token, Ok(Submitted { id: RemoteId::new("7"), warnings: Vec::new() }))
            }
            Effect::Submit { token, .. } => {
                submissions += 1;
                let full = ManagerError::new("slurm", "submit", ErrorKind::RateLimited, "job submit limit");
                Event::Submit(token, Err(SubmitError::NotSubmitted(full)))
            }
            // Looking for what was surely not taken would cost a full queue a list of all its jobs, for each that waits.
            other => panic!("{other:?}"),
        };
        machine.apply(event, &rules, now);
        if machine.record().trouble.is_some() {
            told_after.get_or_insert(submissions);
        } else {
            assert!(
                told_after.is_none() || submissions == 0 || machine.record().id().is_some(),
                "told without a break"
            );
        }
    }
    assert_eq!(told_after, Some(3));
    assert!((30..=80).contains(&submissions), "{submissions} in half an hour");
    assert_eq!(machine.record().trouble, None, "it is over");
}
