//! Whole lives through the driver, on a cluster that answers badly one time in four, with workers that are killed in the
//! middle of everything: no job runs twice, and none is lost.

use std::path::Path;

use bridge_core::manager::{Guarantee, Verdict};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource};
use bridge_core::record::Ending;
use bridge_core::state::{Rules, Tuning};
use bridge_testkit::faults::Fault;

use super::*;
use crate::workers::{self, Survivors, Worker};

const JOBS: usize = 24;

fn rules() -> Rules {
    Rules {
        tuning: Tuning {
            error_pause: Duration::from_millis(50),
            error_pause_max: Duration::from_millis(500),
            ..Tuning::default()
        },
        ..Rules::plain(Guarantee::OwnKey, Duration::from_millis(100))
    }
}

fn plan(number: usize, url: &str, folder: &Path) -> Arc<JobPlan> {
    let runs = folder.join(format!("runs-{number}")).display().to_string();
    let script = format!("echo run >> {runs}; sleep 0.3");
    // Every second one has a package to upload.
    let script = if number.is_multiple_of(2) {
        ScriptSource::Remote(script)
    } else {
        ScriptSource::Inline(format!("#!/bin/sh\n{script}\n"))
    };
    workers::plan(number, (ManagerKind::Ray, url), script, BTreeMap::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_twice_and_nothing_is_lost_whatever_fails() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().unwrap();
    let survivors = Arc::new(Survivors::default());
    let faults =
        [&Fault::WITHOUT_ANSWER[..], &[Fault::Unauthorized, Fault::Delay(Duration::from_millis(100))]].concat();
    cluster.faults.by_chance(7, 25, faults);
    let start = |number| {
        let manager = Arc::new(manager_at(cluster.server.url(), &Secret::new(&[("token", TOKEN)])));
        Worker::start(number, manager, &survivors)
    };
    let plans: Vec<_> = (0..JOBS).map(|number| plan(number, cluster.server.url(), folder.path())).collect();
    for round in 0..8 {
        let worker = start(round);
        plans.iter().take((round + 1) * JOBS / 8).for_each(|plan| worker.add(plan, &rules()));
        // The moment does not matter, as long as it is another one each time.
        tokio::time::sleep(Duration::from_millis(150 + 70 * u64::try_from(round).unwrap())).await;
        worker.kill().await;
    }
    let last = start(8);
    for plan in &plans {
        last.add(plan, &rules());
    }
    until("the end of all jobs", async || plans.iter().all(|plan| survivors.ending(&plan.key).is_some()).then_some(()))
        .await;
    last.kill().await;
    assert_eq!(survivors.fenced(), [""; 0]);
    let requests = cluster.faults.total();
    cluster.faults.clear();

    for (number, plan) in plans.iter().enumerate() {
        let ending = survivors.ending(&plan.key).unwrap();
        let Ending::Ran { outcome, .. } = &ending else { panic!("job {number} ended as {ending:?}") };
        assert_eq!(outcome.verdict, Verdict::Succeeded, "job {number}: {outcome:?}");
        let runs = std::fs::read_to_string(folder.path().join(format!("runs-{number}"))).unwrap();
        assert_eq!(runs, "run\n", "job {number}");
    }
    assert_eq!(cluster.server.jobs(), JOBS);
    println!("{JOBS} jobs, {requests} requests, one in four of them failed, 8 workers killed: each ran once");
}
