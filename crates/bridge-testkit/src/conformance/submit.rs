//! Handing over, and finding again what was handed over.

use anyhow::{Result, bail, ensure};
use bridge_core::manager::{ErrorKind, Found, Guarantee, Phase, Sighting, SubmitError, Verdict};

use super::context::{Context, chain, or_skip, tracked};
use super::subject::Sample;
use super::{Case, CaseResult, Done, cases};

pub(super) const CASES: &[Case] = cases![
    submit_and_poll_to_success,
    failure_tells_its_exit_code,
    same_token_never_runs_twice,
    same_token_at_once_never_runs_twice,
    find_of_an_unused_token_is_absent,
    find_sees_a_running_job,
    find_sees_an_ended_job,
    find_sees_several,
    find_tells_attempts_apart,
    refused_submission_leaves_nothing,
    preview_sends_nothing_and_shows_no_secret,
];

async fn submit_and_poll_to_success(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let job = context.launch(&submission).await?;
    ensure!(!job.id.as_str().is_empty(), "the id is empty");
    let (outcome, facts) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Succeeded, "should have succeeded: {outcome:?}");
    ensure!(matches!(outcome.exit_code, None | Some(0)), "succeeded with exit code {:?}", outcome.exit_code);
    ensure!(facts.ended.is_some(), "the time of the end is missing: {facts:?}");
    if let (Some(started), Some(ended)) = (facts.started, facts.ended) {
        ensure!(started <= ended, "ended at {ended}, before it started at {started}");
    }
    // What was an end once stays it.
    let (again, _) = context.ended(&job).await?;
    ensure!(again == outcome, "the outcome changed from {outcome:?} to {again:?}");
    Ok(Done::Passed)
}

async fn failure_tells_its_exit_code(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Fails(3)), "no sample that fails");
    let job = context.launch(&submission).await?;
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Failed, "should have failed: {outcome:?}");
    ensure!(!outcome.reason.is_empty(), "the manager's word for the failure is missing: {outcome:?}");
    if context.subject.tells_exit_code() {
        ensure!(outcome.exit_code == Some(3), "should tell exit code 3: {outcome:?}");
    }
    Ok(Done::Passed)
}

async fn same_token_never_runs_twice(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let manager = context.manager();
    let since = context.now();
    let first = context.submit(&submission).await?;
    let second = manager.submit(&submission).await;
    twins_are_safe(context, &submission.token, since, &first.id, second).await
}

async fn same_token_at_once_never_runs_twice(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let manager = context.manager();
    let since = context.now();
    let (one, other) = futures::join!(manager.submit(&submission), manager.submit(&submission));
    // One of the two may be told that nobody knows; not both.
    let (first, second) = if one.is_ok() { (one, other) } else { (other, one) };
    twins_are_safe(context, &submission.token, since, &first?.id, second).await
}

async fn twins_are_safe(
    context: &Context<'_>,
    token: &bridge_core::ids::SubmitToken,
    since: jiff::Timestamp,
    first: &bridge_core::ids::RemoteId,
    second: std::result::Result<bridge_core::manager::Submitted, SubmitError>,
) -> CaseResult {
    let guarantee = context.manager().guarantee();
    let found = match guarantee {
        Guarantee::LookUp => vec![first.clone()],
        Guarantee::TwoPhase | Guarantee::OwnKey => context.find(token, since).await?,
    };
    ensure!(found.contains(first), "find gave {found:?} without the job {first}");
    match (guarantee, second) {
        (Guarantee::OwnKey, Ok(second)) => {
            ensure!(second.id == *first, "two jobs for one token: {first} and {}", second.id);
        }
        (Guarantee::OwnKey, Err(SubmitError::NotSubmitted(error))) => {
            bail!("the second submission says that there is no such job, which is not true: {}", chain(&error))
        }
        (_, Err(SubmitError::Unknown(_))) => {}
        (Guarantee::TwoPhase, Ok(second)) => {
            ensure!(found.contains(&second.id), "find gave {found:?} without the second job {}", second.id);
            for id in &found {
                let sighting = context.look(&tracked(id.clone(), token)).await?;
                ensure!(
                    matches!(sighting, Sighting::Alive(Phase::Held, _)),
                    "job {id} was never released and is {sighting:?}"
                );
            }
        }
        (Guarantee::LookUp, Ok(second)) => context.put_away(&tracked(second.id, token)).await?,
        (_, Err(other)) => bail!("the second submission failed: {}", chain(&other)),
    }
    if guarantee == Guarantee::OwnKey {
        ensure!(found.len() == 1, "one token, several jobs: {found:?}");
    }
    put_all_away(context, token, &found).await?;
    Ok(Done::Passed)
}

async fn find_of_an_unused_token_is_absent(context: &Context<'_>) -> CaseResult {
    match context.manager().find(&context.token(), context.now()).await? {
        Found::Absent => Ok(Done::Passed),
        Found::CannotTell(why) if context.manager().guarantee() == Guarantee::LookUp => {
            Ok(Done::Skipped(format!("the manager cannot tell: {why}")))
        }
        other => bail!("should be absent: {other:?}"),
    }
}

async fn find_sees_a_running_job(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let since = context.now();
    let job = context.submit(&submission).await?;
    let found = context.find(&submission.token, since).await?;
    ensure!(found == [job.id.clone()], "should be job {} alone: {found:?}", job.id);
    context.put_away(&job).await?;
    Ok(Done::Passed)
}

async fn find_sees_an_ended_job(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let since = context.now();
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let found = context.find(&submission.token, since).await?;
    ensure!(found == [job.id.clone()], "an ended job must be found, or it would be run again: {found:?}");
    Ok(Done::Passed)
}

async fn find_sees_several(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let since = context.now();
    let first = context.submit(&submission).await?;
    let second = if context.manager().guarantee() == Guarantee::OwnKey {
        context.subject.add_twin(&submission.token).await
    } else {
        Some(context.submit(&submission).await?.id)
    };
    let Some(second) = second else {
        context.put_away(&first).await?;
        return Ok(Done::Skipped("the manager's own key keeps a second job out".to_owned()));
    };
    let mut found = context.find(&submission.token, since).await?;
    found.sort();
    let mut both = vec![first.id, second];
    both.sort();
    put_all_away(context, &submission.token, &both).await?;
    ensure!(found == both, "find gave {found:?} instead of {both:?}");
    Ok(Done::Passed)
}

async fn find_tells_attempts_apart(context: &Context<'_>) -> CaseResult {
    let tenth = context.token_of_attempt(10);
    let submission = or_skip!(context.subject.submission(&Sample::Runs, &tenth), "no sample that runs on");
    let since = context.now();
    let job = context.submit(&submission).await?;
    // `…-1` is the beginning of `…-10`: a search by prefix or substring would take one for the other.
    let first = bridge_core::ids::SubmitToken::parse(tenth.as_str().trim_end_matches('0'));
    let Some(first) = first else { bail!("{tenth} does not end in 10") };
    let found = context.find(&first, since).await?;
    let theirs = context.look(&tracked(job.id.clone(), &first)).await?;
    context.put_away(&job).await?;
    ensure!(found.is_empty(), "attempt 1 was taken for attempt 10: {found:?}");
    ensure!(theirs == Sighting::Gone, "attempt 10's job was shown to attempt 1: {theirs:?}");
    Ok(Done::Passed)
}

async fn refused_submission_leaves_nothing(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Refused), "no sample that is refused");
    let since = context.now();
    match context.manager().submit(&submission).await {
        Ok(submitted) => bail!("should have been refused and became job {}", submitted.id),
        Err(SubmitError::Unknown(error)) => bail!("a refusal is certain, not unknown: {}", chain(&error)),
        Err(SubmitError::NotSubmitted(error)) => {
            ensure!(error.kind == ErrorKind::Refused, "should be refused: {:?}: {}", error.kind, chain(&error));
            ensure!(!error.message.is_empty(), "the refusal says nothing");
            context.ensure_no_secret("the refusal", &chain(&error))?;
        }
    }
    if context.manager().guarantee() != Guarantee::LookUp {
        let found = context.find(&submission.token, since).await?;
        ensure!(found.is_empty(), "refused, and there all the same: {found:?}");
    }
    Ok(Done::Passed)
}

async fn preview_sends_nothing_and_shows_no_secret(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let since = context.now();
    let preview = context.manager().preview(&submission)?;
    ensure!(!preview.request.is_empty(), "the preview shows no request");
    context.ensure_no_secret("the preview", &format!("{preview:?}"))?;
    context.ensure_no_secret("the manager's debug output", &format!("{:?}", context.manager()))?;
    if context.manager().guarantee() != Guarantee::LookUp {
        let found = context.find(&submission.token, since).await?;
        ensure!(found.is_empty(), "the preview submitted job {found:?}");
    }
    Ok(Done::Passed)
}

async fn put_all_away(
    context: &Context<'_>,
    token: &bridge_core::ids::SubmitToken,
    ids: &[bridge_core::ids::RemoteId],
) -> Result<()> {
    for id in ids {
        context.put_away(&tracked(id.clone(), token)).await?;
    }
    Ok(())
}
