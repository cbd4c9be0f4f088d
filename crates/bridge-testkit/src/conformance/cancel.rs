//! Asking for a job's end.

use anyhow::{Context as _, ensure};
use bridge_core::manager::{Guarantee, Sighting, Tracked, Verdict};

use super::context::{Context, or_skip, tracked};
use super::subject::Sample;
use super::{Case, CaseResult, Done, cases};

pub(super) const CASES: &[Case] = cases![
    cancel_ends_a_running_job,
    cancel_ends_a_queued_job,
    cancel_before_the_release_ends_a_held_job,
    cancel_twice_is_once,
    cancel_of_an_ended_job_changes_nothing,
    cancel_of_an_unknown_job_succeeds,
];

async fn cancel_ends_a_running_job(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = context.launch(&submission).await?;
    context.running(&job).await?;
    cancelled(context, job).await
}

async fn cancel_ends_a_queued_job(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Queues), "no sample that stays queued");
    let job = context.launch(&submission).await?;
    cancelled(context, job).await
}

async fn cancel_before_the_release_ends_a_held_job(context: &Context<'_>) -> CaseResult {
    if context.manager().guarantee() != Guarantee::TwoPhase {
        return Ok(Done::Skipped("jobs do not arrive held".to_owned()));
    }
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = context.submit(&submission).await?;
    cancelled(context, job).await
}

async fn cancelled(context: &Context<'_>, job: Tracked) -> CaseResult {
    let job = Tracked { cancelling: true, ..job };
    context.manager().cancel(&job).await.context("cancel")?;
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Cancelled, "should be cancelled: {outcome:?}");
    Ok(Done::Passed)
}

async fn cancel_twice_is_once(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = Tracked { cancelling: true, ..context.launch(&submission).await? };
    context.running(&job).await?;
    context.manager().cancel(&job).await.context("first cancel")?;
    context.manager().cancel(&job).await.context("second cancel")?;
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Cancelled, "should be cancelled: {outcome:?}");
    context.manager().cancel(&job).await.context("cancel after the end")?;
    let (again, _) = context.ended(&job).await?;
    ensure!(again == outcome, "a late cancel changed {outcome:?} into {again:?}");
    Ok(Done::Passed)
}

async fn cancel_of_an_ended_job_changes_nothing(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let job = Tracked { cancelling: true, ..job };
    context.manager().cancel(&job).await.context("cancel of an ended job must succeed")?;
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Succeeded, "it had succeeded before the cancel: {outcome:?}");
    Ok(Done::Passed)
}

async fn cancel_of_an_unknown_job_succeeds(context: &Context<'_>) -> CaseResult {
    let job = tracked(context.subject.unknown_id(), &context.token());
    context.manager().cancel(&job).await.context("cancel of an unknown job must succeed")?;
    ensure!(context.look(&job).await? == Sighting::Gone, "cancelling an unknown job made it known");
    Ok(Done::Passed)
}
