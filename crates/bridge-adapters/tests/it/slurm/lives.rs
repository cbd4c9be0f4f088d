//! Whole lives through the driver, where it and the adapter must agree on whose job is whose.

use bridge_core::manager::{Guarantee, Phase, Verdict};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource};
use bridge_core::record::{Ending, JobRecord, JobState};
use bridge_core::state::{Rules, Tuning};
use bridge_core::status::StatusView;
use bridge_testkit::faults::Fault;

use super::*;
use crate::workers::{self, Survivors, Worker};

fn rules() -> Rules {
    Rules::plain(Guarantee::TwoPhase, Duration::from_millis(100))
}

async fn wait<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = seen() {
            return seen;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Cluster {
    fn plan(&self, number: usize, script: &str) -> Arc<JobPlan> {
        let folder = json!(self.folder.display().to_string());
        let script = ScriptSource::Inline(format!("#!/bin/sh\n{script}\n"));
        let properties = BTreeMap::from([("currentWorkingDir".to_owned(), folder)]);
        workers::plan(number, (ManagerKind::Slurm, &self.emulator.url()), script, properties)
    }

    fn worker(&self, number: usize, survivors: &Arc<Survivors>) -> Worker {
        let manager = adapter(&self.emulator.url(), &self.folder, credentials("alice", "alice-token"));
        Worker::start(number, Arc::new(manager), survivors)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_of_ours_under_one_id_are_told_apart() {
    for version in [38, 42] {
        let cluster = Cluster::of_version(version).await;
        let survivors = Arc::new(Survivors::default());
        let worker = cluster.worker(0, &survivors);
        let lost = cluster.plan(1, "while :; do sleep 0.1; done");
        let other = cluster.plan(2, "until [ -e go ]; do sleep 0.05; done");
        let id = |plan: &JobPlan| match survivors.record(&plan.key)?.state {
            JobState::Active { id, .. } => Some(id),
            _ => None,
        };
        worker.add(&lost, &rules());
        let lost_id = wait("the first job's release", || id(&lost)).await;
        cluster.emulator.lose_jobs_younger_than(AGES);
        worker.add(&other, &rules());
        let other_id = wait("the second job's release", || id(&other)).await;
        assert_eq!(other_id, lost_id, "v0.0.{version}: the id was given away");
        worker.kill().await;

        // The next worker, which asks about both with one request, is the one that gives the lost one up: the first had
        // all the time that a slow machine needs.
        let impatient = Tuning { missing_grace: Duration::from_secs(3), ..Tuning::default() };
        let impatient = Rules { tuning: impatient, ..rules() };
        let worker = cluster.worker(1, &survivors);
        worker.add(&other, &impatient);
        worker.add(&lost, &impatient);
        let ending = wait("the end of the first", || survivors.ending(&lost.key)).await;
        assert_eq!(ending, Ending::Lost { id: lost_id }, "v0.0.{version}");
        std::fs::write(cluster.folder.join("go"), "").unwrap();
        let ending = wait("the end of the second", || survivors.ending(&other.key)).await;
        let Ending::Ran { outcome, .. } = &ending else { panic!("v0.0.{version}: {ending:?}") };
        assert_eq!(outcome.verdict, Verdict::Succeeded, "v0.0.{version}");
        worker.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_job_tells_that_accounting_is_down_and_ends_when_it_is_back() {
    for version in [38, 42] {
        let options = EmulatorOptions { versions: vec![version], accounting: true, ..EmulatorOptions::default() };
        let cluster = Cluster::with(options, Some(version)).await;
        let survivors = Arc::new(Survivors::default());
        let worker = cluster.worker(0, &survivors);
        let purged = cluster.plan(1, "until [ -e go ]; do sleep 0.05; done; exit 3");
        let other = cluster.plan(2, "while :; do sleep 0.1; done");
        let record = |plan: &JobPlan| survivors.record(&plan.key);
        let runs = |record: &JobRecord| matches!(record.state, JobState::Active { phase: Phase::Running, .. });
        worker.add(&purged, &rules());
        worker.add(&other, &rules());
        for plan in [&purged, &other] {
            wait("its start", || record(plan).filter(runs)).await;
        }
        // Nobody sees the end of the one before slurmctld forgets it.
        worker.kill().await;
        std::fs::write(cluster.folder.join("go"), "").unwrap();
        let id: u32 = record(&purged).unwrap().id().unwrap().as_str().parse().unwrap();
        wait("its end", || cluster.emulator.purge(id, false).then_some(())).await;

        cluster.emulator.stop_accounting();
        let worker = cluster.worker(1, &survivors);
        worker.add(&purged, &rules());
        worker.add(&other, &rules());
        let troubled = wait("its trouble", || record(&purged).filter(|record| record.trouble.is_some())).await;
        let view = StatusView::of(&troubled);
        assert_eq!((view.status, view.reason.as_str()), (bridge_api::JobStatus::Running, "AccountingUnreachable"));
        assert!(view.message.contains(&format!("slurmctld no longer knows job {id}")), "{}", view.message);
        let beside = record(&other).unwrap();
        assert!(runs(&beside) && beside.trouble.is_none(), "v0.0.{version}: {beside:?}");

        cluster.emulator.start_accounting();
        let ending = wait("its end", || survivors.ending(&purged.key)).await;
        let Ending::Ran { outcome, .. } = &ending else { panic!("v0.0.{version}: {ending:?}") };
        assert!(outcome.message.ends_with("(from accounting)"), "{}", outcome.message);
        assert_eq!(record(&purged).unwrap().trouble, None);
        let beside = record(&other).unwrap();
        assert!(runs(&beside) && beside.trouble.is_none(), "v0.0.{version}: {beside:?}");
        worker.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stray_is_cancelled_although_nothing_is_said_to_have_changed() {
    let cluster = Cluster::of_version(38).await;
    let survivors = Arc::new(Survivors::default());
    let worker = cluster.worker(0, &survivors);
    let plan = cluster.plan(1, "until [ -e go ]; do sleep 0.05; done");
    let tuning = Tuning { send_window: Duration::from_secs(4), settle: Duration::from_secs(5), ..rules().tuning };
    cluster.emulator.faults().next(Operation::Submit, Fault::LostReply);
    worker.add(&plan, &Rules { tuning, ..rules() });
    let is_active = |record: &JobRecord| matches!(record.state, JobState::Active { .. });
    let record = wait("its release", || survivors.record(&plan.key).filter(is_active)).await;
    assert!(record.doubt, "the reply was lost");

    let stray = cluster.emulator.add_held_job(record.token().as_str());
    cluster.emulator.claim_unchanged(2);
    std::fs::write(cluster.folder.join("go"), "").unwrap();
    let ending = wait("its end", || survivors.ending(&plan.key)).await;
    assert!(matches!(&ending, Ending::Ran { outcome, .. } if outcome.verdict == Verdict::Succeeded), "{ending:?}");
    let stray = tracked(&RemoteId::new(stray.to_string()), &record.token());
    let seen = look(&cluster.manager, &stray).await;
    assert!(matches!(&seen, Sighting::Ended(outcome, _) if outcome.verdict == Verdict::Cancelled), "{seen:?}");
    worker.kill().await;
}
