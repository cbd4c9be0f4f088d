//! Whole simulated lives of a job: several processes, a remote system and a store, with faults at every step.
//!
//! Assumptions, as the state machine states them: faults cease in the end; `Absent` is truthful; a request lands within
//! the window in which it may be sent and once (except where a life says otherwise, and then only strays that are held
//! and never ran may remain).

mod checks;
mod remote;
mod rng;
mod summary;
mod world;

use bridge_core::manager::Guarantee;
use summary::Summary;
use world::{Options, World};

/// Lives per run; `BRIDGE_SIM_COUNT` asks for another number, `BRIDGE_SIM_SEED` replays one.
const LIVES: u64 = 10_000;

fn live(seed: u64, options: Options) -> Result<Summary, String> {
    World::new(seed, options).run()
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn every_life_ends_once_and_truly() {
    if let Some(seed) = variable("BRIDGE_SIM_SEED") {
        match live(seed, Options { trace: true, ..Options::default() }) {
            Ok(summary) => println!("seed {seed}: {summary:?}"),
            Err(story) => panic!("{story}"),
        }
        return;
    }
    let lives = variable("BRIDGE_SIM_COUNT").unwrap_or(LIVES);
    let mut totals = Summary::default();
    for seed in 0..lives {
        if let Ok(summary) = live(seed, Options::default()) {
            totals.add(&summary);
        } else {
            // Told again with its story: a trace of all lives would cost more than the lives.
            let story = live(seed, Options { trace: true, ..Options::default() }).err().unwrap_or_default();
            panic!("seed {seed} (replay: BRIDGE_SIM_SEED={seed} cargo test -p bridge-core every_life)\n{story}");
        }
    }
    println!("{lives} lives: {totals:?}");
    // A simulation that never meets the hard cases proves nothing.
    assert!(totals.crashes > lives / 2, "{totals:?}");
    assert!(totals.fenced > lives / 50, "{totals:?}");
    assert!(totals.lost_replies > lives / 10, "{totals:?}");
    assert!(totals.done > lives / 10 && totals.failed > lives / 50 && totals.killed > lives / 10, "{totals:?}");
    assert!(totals.unknown > 0 && totals.strays_removed > 0 && totals.retried > 0 && totals.requeued > 0, "{totals:?}");
}

/// The checks themselves are checked: with a manager that says "absent" untruthfully, some life must be caught.
#[test]
fn a_lying_manager_is_noticed() {
    let lie = Options { absent_lies: true, only: Some(Guarantee::LookUp), ..Options::default() };
    let caught = (0..2_000).any(|seed| live(seed, lie).is_err());
    assert!(caught, "the simulation did not notice that jobs ran twice");
}

/// Without the wait for late requests, a manager that can only look up must run something twice.
#[test]
fn not_waiting_for_late_requests_is_noticed() {
    let hasty = Options { no_settling: true, only: Some(Guarantee::LookUp), ..Options::default() };
    let caught = (0..2_000).any(|seed| live(seed, hasty).is_err());
    assert!(caught, "the simulation did not notice that jobs ran twice");
}
