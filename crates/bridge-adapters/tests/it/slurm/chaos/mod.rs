//! slurmctld, slurmrestd and our own worker are killed at random moments, again and again: no job runs twice, and none
//! is lost that slurmctld itself kept.

mod history;
mod site;

use bridge_core::manager::{Found, Guarantee, Phase, Verdict};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource};
use bridge_core::record::Ending;
use bridge_core::state::{Rules, Tuning};
use jiff::Timestamp;
use secrecy::ExposeSecret;

use self::site::Site;
use super::*;
use crate::workers::{self, Survivors, Worker};

const JOBS: usize = 50;
const WORKER_KILLS: usize = 12;
const SLURMRESTD_KILLS: usize = 8;
const SLURMCTLD_KILLS: usize = 5;
/// How long the rest may take in peace, on a machine with much else to do.
const PEACE: Duration = Duration::from_mins(5);

/// Chance that can be had again: the same seed gives the same order and the same pauses.
struct Chance(u64);

impl Chance {
    fn seeded() -> Self {
        let given = std::env::var("BRIDGE_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| Timestamp::now().as_microsecond().unsigned_abs());
        println!("BRIDGE_CHAOS_SEED={seed}");
        Self(seed)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap() % end
    }

    /// Who is killed, in turn; slurmctld once in each fifth.
    fn victims(&mut self) -> Vec<&'static str> {
        let mut others = [vec!["worker"; WORKER_KILLS], vec!["slurmrestd"; SLURMRESTD_KILLS]].concat();
        for last in (1..others.len()).rev() {
            others.swap(last, self.below(last + 1));
        }
        let mut victims = Vec::new();
        for some in others.chunks(others.len().div_ceil(SLURMCTLD_KILLS)) {
            let place = victims.len() + self.below(some.len() + 1);
            victims.extend(some);
            victims.insert(place, "slurmctld");
        }
        victims
    }
}

fn rules() -> Rules {
    Rules {
        tuning: Tuning {
            // slurmrestd gives up a submission after nine seconds without slurmctld.
            send_window: Duration::from_secs(12),
            settle: Duration::from_secs(15),
            missing_grace: Duration::from_secs(10),
            error_pause: Duration::from_millis(200),
            error_pause_max: Duration::from_secs(2),
            ..Tuning::default()
        },
        ..Rules::plain(Guarantee::TwoPhase, Duration::from_millis(500))
    }
}

fn plan(number: usize, url: &str, home: &Path) -> Arc<JobPlan> {
    let seconds = 1 + number * 7 % 20;
    let runs = runs_file(number);
    let script = format!(
        "#!/bin/sh\n\
         echo \"$SLURM_JOB_ID $(date +%FT%T.%3N)\" >> {runs}\n\
         sleep {seconds}\n\
         echo \"$SLURM_JOB_ID {OVER}\" >> {runs}\n"
    );
    let folder = json!(home.display().to_string());
    // Without this Slurm itself would run a job again whose end it has forgotten.
    let properties = BTreeMap::from([("currentWorkingDir".to_owned(), folder), ("requeue".to_owned(), json!(false))]);
    workers::plan(number, (ManagerKind::Slurm, url), ScriptSource::Inline(script), properties)
}

fn runs_file(number: usize) -> String {
    format!("runs-{number}")
}

/// What a job writes down in place of a moment when it has come to its end.
const OVER: &str = "over";

/// One run of a job, as the job itself has written it down.
#[derive(Debug)]
struct Run {
    id: String,
    at: String,
    is_over: bool,
}

fn runs(home: &Path, number: usize) -> Vec<Run> {
    let text = std::fs::read_to_string(home.join(runs_file(number))).unwrap_or_default();
    let mut runs: Vec<Run> = Vec::new();
    for (id, at) in text.lines().filter_map(|line| line.split_once(' ')) {
        if at != OVER {
            runs.push(Run { id: id.to_owned(), at: at.to_owned(), is_over: false });
        } else if let Some(run) = runs.iter_mut().rfind(|run| run.id == id) {
            run.is_over = true;
        }
    }
    runs
}

/// The jobs' fates, counted.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    /// slurmctld forgot their start and started them again, whatever anybody asked for.
    repeated_by_slurm: usize,
    /// By slurmctld, and reported as unknown.
    forgotten: usize,
    /// Because of what slurmctld had forgotten.
    ended_by_slurm: usize,
    /// slurmctld took the end of a forgotten job of the same id for its end.
    mistaken_by_slurm: usize,
    /// Held although they have run; the user knows.
    cancelled_by_user: usize,
    /// Raised from the dead by a slurmctld that has forgotten their release and end; they never run.
    left_held: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_twice_and_nothing_is_lost_whoever_is_killed() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let mut chance = Chance::seeded();
    let mut site = Site::open().await;
    let (url, user, home) = (site.slurm.url.to_string(), site.slurm.user.clone(), site.slurm.home.clone());
    let token = site.slurm.token(3600).await.unwrap().expose_secret().to_owned();
    let manager = || Arc::new(adapter(&url, &home, credentials(&user, &token)));
    let survivors = Arc::new(Survivors::default());
    let plans: Vec<_> = (0..JOBS).map(|number| plan(number, &url, &home)).collect();
    let rules = rules();

    let begun = tokio::time::Instant::now();
    let victims = chance.victims();
    let mut given = 0;
    let mut worker = Worker::start(0, manager(), &survivors);
    for (step, victim) in victims.iter().enumerate() {
        if *victim == "slurmctld" {
            // What it takes and what changes from here on it may forget. Killed before, it would forget nearly everything,
            // however quick or slow the machine is, and that would show nothing.
            let has_id = |plan: &Arc<JobPlan>| survivors.record(&plan.key).is_some_and(|record| record.id().is_some());
            site.written(|| plans[..given].iter().all(has_id)).await;
        }
        while given < JOBS * (step + 1) / victims.len() {
            worker.add(&plans[given], &rules);
            given += 1;
        }
        tokio::time::sleep(Duration::from_millis(100 + u64::try_from(chance.below(1400)).unwrap())).await;
        if *victim == "worker" {
            worker.kill().await;
            worker = Worker::start(step + 1, manager(), &survivors);
            plans[..given].iter().for_each(|plan| worker.add(plan, &rules));
        } else {
            site.kill(victim).await;
        }
    }

    let turmoil = begun.elapsed();
    let is_open = |plan: &&Arc<JobPlan>| survivors.ending(&plan.key).is_none();
    let has_run = |id: &str| {
        let of_job = |plan: &Arc<JobPlan>| survivors.record(&plan.key)?.id().cloned();
        let number = plans.iter().position(|plan| of_job(plan).is_some_and(|own| own.as_str() == id))?;
        Some(!runs(&home, number).is_empty())
    };
    let deadline = tokio::time::Instant::now() + PEACE;
    while plans.iter().any(|plan| is_open(&plan)) {
        if tokio::time::Instant::now() > deadline {
            let open: Vec<_> = plans.iter().filter(is_open).map(|plan| survivors.record(&plan.key)).collect();
            panic!("these do not end:\n{open:#?}\n{}", site.report().await);
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        site.count_jobs().await;
        site.settle_held(has_run).await;
    }
    worker.kill().await;
    assert_eq!(survivors.fenced(), [""; 0]);
    let took = begun.elapsed();
    let running: Vec<bool> = (0..JOBS).map(|number| runs(&home, number).iter().any(|run| !run.is_over)).collect();
    // Nobody tells slurmctld again of an end that it was told and has forgotten. What still runs in truth, or will,
    // shows in the jobs' own notes.
    while let Some(active) = site.active().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "Slurm does not come to rest: {active}\n{}",
            site.report().await
        );
        site.count_jobs().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    let manager = manager();
    let runs: Vec<Vec<Run>> = (0..JOBS).map(|number| runs(&home, number)).collect();
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for ((plan, own), running) in plans.iter().zip(&runs).zip(running) {
        let ending = survivors.ending(&plan.key).unwrap();
        let mine = Notes { own, running, all: &runs };
        if let Err(what) = judge((&site, &manager), plan, mine, ending, &mut tally).await {
            wrong.push(format!("{}: {what}; runs: {own:?}; {:?}", plan.key, survivors.record(&plan.key)));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), site.report().await);
    let kept = JOBS - tally.forgotten;
    assert!(kept > JOBS / 2 && tally.done > JOBS / 5, "the cluster was too unwell to show anything: {tally:?}");
    println!("{JOBS} jobs, {victims:?} killed in {turmoil:.0?}, all over after {took:.0?}: {tally:?}");
    site.close().await;
}

/// What the jobs themselves have written down.
struct Notes<'a> {
    own: &'a [Run],
    /// Whether it was still running when its end had been told.
    running: bool,
    all: &'a [Vec<Run>],
}

/// Whether a job's end is one that the promise allows.
async fn judge(
    (site, manager): (&Site, &Slurm),
    plan: &JobPlan,
    Notes { own: runs, running, all }: Notes<'_>,
    ending: Ending,
    tally: &mut Tally,
) -> Result<(), String> {
    let history = site.history();
    for pair in runs.windows(2) {
        let [before, again] = pair else { continue };
        if before.id != again.id || history.was_let_go(&again.id, &before.at, &again.at) {
            return Err("it was let go more than once, and ran".to_owned());
        }
    }
    let mark = SubmitToken::derive(&plan.uid, 1);
    let left = match manager.find(&mark, Timestamp::UNIX_EPOCH).await {
        Ok(Found::Jobs(ids)) => ids,
        Ok(Found::Absent) => Vec::new(),
        other => return Err(format!("{other:?}")),
    };
    let ran_under = |id: &RemoteId| all.iter().flatten().any(|run| run.id == id.as_str());
    match ending {
        Ending::Ran { id, outcome } => match outcome.verdict {
            Verdict::Succeeded if runs.len() == 1 && running => return Err("it succeeded while it ran".to_owned()),
            Verdict::Succeeded if runs.len() == 1 => tally.done += 1,
            _ if runs.len() > 1 => tally.repeated_by_slurm += 1,
            Verdict::Succeeded if ran_under(&id) => tally.mistaken_by_slurm += 1,
            Verdict::Succeeded => return Err("it succeeded without having run".to_owned()),
            Verdict::Cancelled if history.was_cancelled_by(site.user(), id.as_str()) => {
                return Err("the bridge cancelled it".to_owned());
            }
            Verdict::Cancelled if site.cancelled.contains(id.as_str()) => tally.cancelled_by_user += 1,
            Verdict::Cancelled | Verdict::Failed => tally.ended_by_slurm += 1,
        },
        // slurmctld forgets what it took in the seconds before it is killed; that is said, not guessed away.
        Ending::Lost { id } if !left.contains(&id) => tally.forgotten += 1,
        Ending::Lost { .. } => return Err("it was given up, and slurmctld has it".to_owned()),
        other => return Err(format!("it ended as {other:?}")),
    }
    for id in left {
        match look(manager, &tracked(&id, &mark)).await {
            Sighting::Ended(..) => {}
            Sighting::Alive(Phase::Held, _) => tally.left_held += 1,
            seen => return Err(format!("it left {id}: {seen:?}")),
        }
    }
    Ok(())
}
