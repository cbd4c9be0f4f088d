//! The facet `hold`: two-phase submission and suspension before the start.

use anyhow::{Context as _, bail, ensure};
use bridge_core::manager::{Guarantee, HoldAnswer, Phase, Sighting, Verdict};

use super::context::{Context, or_skip, tracked};
use super::subject::Sample;
use super::{Case, CaseResult, Done, cases};

pub(super) const CASES: &[Case] = cases![
    two_phases_need_the_facet_hold,
    submitted_job_waits_for_its_release,
    release_twice_succeeds,
    hold_keeps_a_queued_job_back,
    hold_of_a_running_job_is_too_late,
    hold_and_release_of_an_unknown_job_say_gone,
    release_does_not_touch_anothers_job,
];

async fn two_phases_need_the_facet_hold(context: &Context<'_>) -> CaseResult {
    if context.manager().guarantee() == Guarantee::TwoPhase && context.manager().hold().is_none() {
        bail!("`TwoPhase` is promised, and `hold()` is None");
    }
    Ok(Done::Passed)
}

async fn submitted_job_waits_for_its_release(context: &Context<'_>) -> CaseResult {
    if context.manager().guarantee() != Guarantee::TwoPhase {
        return Ok(Done::Skipped("jobs do not arrive held".to_owned()));
    }
    let hold = or_skip!(context.manager().hold(), "no facet `hold`");
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let job = context.submit(&submission).await?;
    for _ in 0..5 {
        context.subject.step().await;
        let sighting = context.look(&job).await?;
        ensure!(matches!(sighting, Sighting::Alive(Phase::Held, _)), "not released, and {sighting:?}");
    }
    let answer = hold.release(&job).await.context("release")?;
    ensure!(answer == HoldAnswer::Done, "release answered {answer:?}");
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Succeeded, "should have succeeded: {outcome:?}");
    Ok(Done::Passed)
}

async fn release_twice_succeeds(context: &Context<'_>) -> CaseResult {
    let hold = or_skip!(context.manager().hold(), "no facet `hold`");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = context.launch(&submission).await?;
    context.running(&job).await?;
    let running = hold.release(&job).await.context("release of a running job")?;
    ensure!(running != HoldAnswer::Gone, "release of a running job says that it is gone");
    context.put_away(&job).await?;
    let ended = hold.release(&job).await.context("release of an ended job")?;
    ensure!(ended != HoldAnswer::Gone, "release of an ended job says that it is gone");
    Ok(Done::Passed)
}

async fn hold_keeps_a_queued_job_back(context: &Context<'_>) -> CaseResult {
    let hold = or_skip!(context.manager().hold(), "no facet `hold`");
    let submission = or_skip!(context.sample(&Sample::Queues), "no sample that stays queued");
    let job = context.launch(&submission).await?;
    let answer = hold.hold(&job).await.context("hold")?;
    ensure!(answer == HoldAnswer::Done, "hold of a queued job answered {answer:?}");
    let sighting = context.look(&job).await?;
    ensure!(matches!(sighting, Sighting::Alive(Phase::Held, _)), "held, and {sighting:?}");
    hold.release(&job).await.context("release")?;
    let sighting = context.look(&job).await?;
    ensure!(!matches!(sighting, Sighting::Alive(Phase::Held, _)), "released, and still held");
    context.put_away(&job).await?;
    Ok(Done::Passed)
}

async fn hold_of_a_running_job_is_too_late(context: &Context<'_>) -> CaseResult {
    let hold = or_skip!(context.manager().hold(), "no facet `hold`");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = context.launch(&submission).await?;
    context.running(&job).await?;
    let answer = hold.hold(&job).await.context("hold of a running job")?;
    ensure!(answer == HoldAnswer::TooLate, "hold of a running job answered {answer:?}");
    let sighting = context.look(&job).await?;
    ensure!(matches!(sighting, Sighting::Alive(Phase::Running, _)), "should run on: {sighting:?}");
    context.put_away(&job).await?;
    Ok(Done::Passed)
}

async fn hold_and_release_of_an_unknown_job_say_gone(context: &Context<'_>) -> CaseResult {
    let hold = or_skip!(context.manager().hold(), "no facet `hold`");
    let job = tracked(context.subject.unknown_id(), &context.token());
    for (what, answer) in [("hold", hold.hold(&job).await?), ("release", hold.release(&job).await?)] {
        ensure!(answer == HoldAnswer::Gone, "{what} of an unknown job answered {answer:?}");
    }
    Ok(Done::Passed)
}

async fn release_does_not_touch_anothers_job(context: &Context<'_>) -> CaseResult {
    if context.manager().guarantee() != Guarantee::TwoPhase {
        return Ok(Done::Skipped("jobs do not arrive held".to_owned()));
    }
    let hold = or_skip!(context.manager().hold(), "no facet `hold`");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let theirs = context.submit(&submission).await?;
    let ours = tracked(theirs.id.clone(), &context.token());
    let answer = hold.release(&ours).await.context("release")?;
    ensure!(answer == HoldAnswer::Gone, "release of another's job answered {answer:?}");
    for _ in 0..5 {
        context.subject.step().await;
        let sighting = context.look(&theirs).await?;
        ensure!(matches!(sighting, Sighting::Alive(Phase::Held, _)), "we released another's job: {sighting:?}");
    }
    context.put_away(&theirs).await?;
    Ok(Done::Passed)
}
