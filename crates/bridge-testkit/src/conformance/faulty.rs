//! What an adapter says when the remote system or the way to it fails. These cases run one at a time.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bridge_core::manager::{ErrorKind, Found, Guarantee, ManagerError, Sighting, SubmitError, Tracked, Verdict};

use super::context::{Context, chain, or_skip, tracked};
use super::subject::Sample;
use super::{Case, CaseResult, Done, cases};
use crate::faults::{Fault, FaultPlan, Operation};

pub(super) const CASES: &[Case] = cases![
    lost_reply_on_submit_is_unknown_and_found,
    failed_submit_is_never_refused_and_may_be_repeated,
    failed_poll_is_an_error_never_gone,
    failed_find_is_never_absent,
    too_many_requests_is_rate_limited,
    rejected_credential_says_so,
    cancel_with_a_lost_reply_can_be_repeated,
    late_answers_are_still_answers,
    polls_many_in_few_requests,
];

/// Lets every request of an operation meet a fault: an adapter that tries again by itself meets it again.
fn break_all(context: &Context<'_>, faults: &FaultPlan, operation: Operation, fault: &Fault) {
    for request in context.subject.requests_of(operation) {
        faults.always(request, fault.clone());
    }
}

fn ensure_sound(context: &Context<'_>, error: &ManagerError, fault: &Fault) -> Result<()> {
    ensure!(!error.kind.is_final(), "{fault:?} passes, and {:?} would be final: {}", error.kind, chain(error));
    ensure!(!error.message.is_empty(), "{fault:?} gives an error without a message");
    context.ensure_no_secret("an error", &chain(error))
}

async fn lost_reply_on_submit_is_unknown_and_found(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let since = context.now();
    break_all(context, faults, Operation::Submit, &Fault::LostReply);
    let answer = context.manager().submit(&submission).await;
    faults.clear();
    match answer {
        Err(SubmitError::Unknown(error)) => ensure_sound(context, &error, &Fault::LostReply)?,
        Err(SubmitError::NotSubmitted(error)) => {
            bail!("it was submitted, and the adapter says it surely was not: {}", chain(&error))
        }
        // An adapter that saw the loss and looked the job up itself.
        Ok(submitted) => return finish(context, &tracked(submitted.id, &submission.token)).await,
    }
    let found = match context.manager().find(&submission.token, since).await? {
        Found::Jobs(ids) => ids,
        Found::CannotTell(why) if context.manager().guarantee() == Guarantee::LookUp => {
            return Ok(Done::Skipped(format!("the manager cannot tell: {why}")));
        }
        other => bail!("the job is there, and find says {other:?}"),
    };
    if context.manager().guarantee() == Guarantee::OwnKey {
        ensure!(found.len() == 1, "one token, several jobs: {found:?}");
    }
    for id in found {
        finish(context, &tracked(id, &submission.token)).await?;
    }
    Ok(Done::Passed)
}

async fn finish(context: &Context<'_>, job: &Tracked) -> CaseResult {
    context.put_away(job).await?;
    Ok(Done::Passed)
}

async fn failed_submit_is_never_refused_and_may_be_repeated(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    for fault in [Fault::ServerError, Fault::Reset, Fault::Garbage, Fault::TooManyRequests { retry_after: None }] {
        let submission = context.sample(&Sample::Succeeds).context("no sample that succeeds")?;
        let since = context.now();
        break_all(context, faults, Operation::Submit, &fault);
        let answer = context.manager().submit(&submission).await;
        faults.clear();
        match (answer, &fault) {
            (Ok(submitted), _) => bail!("{fault:?}, and the job was submitted as {}", submitted.id),
            // Only the manager itself can say that it did not take the job; silence and noise cannot.
            (Err(SubmitError::NotSubmitted(error)), Fault::Reset | Fault::Garbage) => {
                bail!("after {fault:?} nobody can know, and the adapter says surely not: {}", chain(&error))
            }
            (Err(SubmitError::NotSubmitted(error) | SubmitError::Unknown(error)), _) => {
                ensure_sound(context, &error, &fault)?;
            }
        }
        if context.manager().guarantee() != Guarantee::LookUp {
            let found = context.find(&submission.token, since).await?;
            ensure!(found.is_empty(), "{fault:?} has no effect, and find gives {found:?}");
        }
        let job = context.launch(&submission).await.with_context(|| format!("again after {fault:?}"))?;
        let (outcome, _) = context.ended(&job).await?;
        ensure!(outcome.verdict == Verdict::Succeeded, "again after {fault:?}: {outcome:?}");
    }
    Ok(Done::Passed)
}

async fn failed_poll_is_an_error_never_gone(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = context.launch(&submission).await?;
    context.running(&job).await?;
    for fault in Fault::WITHOUT_ANSWER {
        break_all(context, faults, Operation::Poll, &fault);
        let answer = context.manager().poll(std::slice::from_ref(&job)).await;
        faults.clear();
        match answer {
            Err(error) => ensure_sound(context, &error, &fault)?,
            Ok(seen) => match seen.get(&job.id) {
                // Left out counts as not asked.
                None | Some(Sighting::Alive(..)) => {}
                Some(other) => bail!("the job runs, and {fault:?} made it {other:?}"),
            },
        }
        let sighting = context.look(&job).await.with_context(|| format!("poll after {fault:?}"))?;
        ensure!(matches!(sighting, Sighting::Alive(..)), "after {fault:?} the job is {sighting:?}");
    }
    finish(context, &job).await
}

async fn failed_find_is_never_absent(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let since = context.now();
    let job = context.launch(&submission).await?;
    context.running(&job).await?;
    for fault in Fault::WITHOUT_ANSWER {
        break_all(context, faults, Operation::Find, &fault);
        let answer = context.manager().find(&submission.token, since).await;
        faults.clear();
        match answer {
            Err(error) => ensure_sound(context, &error, &fault)?,
            Ok(Found::CannotTell(_)) => {}
            Ok(Found::Jobs(ids)) => ensure!(ids == [job.id.clone()], "{fault:?} made find say {ids:?}"),
            Ok(Found::Absent) => bail!("{fault:?} made a running job absent: it would be run again"),
        }
    }
    finish(context, &job).await
}

async fn too_many_requests_is_rate_limited(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let fault = Fault::TooManyRequests { retry_after: Some(Duration::from_secs(1)) };
    let job = tracked(context.subject.unknown_id(), &context.token());
    break_all(context, faults, Operation::Poll, &fault);
    let answer = context.manager().poll(&[job]).await;
    faults.clear();
    let Err(error) = answer else { bail!("429 on every request, and poll answers {answer:?}") };
    ensure!(error.kind == ErrorKind::RateLimited, "should be rate limited: {:?}: {}", error.kind, chain(&error));
    ensure!(error.retry_after == Some(Duration::from_secs(1)), "the wait was lost: {:?}", error.retry_after);
    Ok(Done::Passed)
}

async fn rejected_credential_says_so(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let job = tracked(context.subject.unknown_id(), &context.token());
    break_all(context, faults, Operation::Poll, &Fault::Unauthorized);
    let answer = context.manager().poll(&[job]).await;
    faults.clear();
    let Err(error) = answer else { bail!("401 on every request, and poll answers {answer:?}") };
    ensure!(error.kind == ErrorKind::Credential, "should be the credential: {:?}: {}", error.kind, chain(&error));
    ensure_sound(context, &error, &Fault::Unauthorized)?;
    Ok(Done::Passed)
}

async fn cancel_with_a_lost_reply_can_be_repeated(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let job = Tracked { cancelling: true, ..context.launch(&submission).await? };
    context.running(&job).await?;
    for fault in [Fault::ServerError, Fault::Reset, Fault::LostReply] {
        break_all(context, faults, Operation::Cancel, &fault);
        let answer = context.manager().cancel(&job).await;
        faults.clear();
        if let Err(error) = answer {
            ensure_sound(context, &error, &fault)?;
        }
    }
    context.manager().cancel(&job).await.context("cancel after the faults")?;
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Cancelled, "should be cancelled: {outcome:?}");
    Ok(Done::Passed)
}

async fn late_answers_are_still_answers(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults");
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let delay = Fault::Delay(Duration::from_millis(300));
    for operation in [Operation::Submit, Operation::Poll] {
        for request in context.subject.requests_of(operation) {
            faults.next(request, delay.clone());
        }
    }
    let job = context.launch(&submission).await?;
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Succeeded, "should have succeeded: {outcome:?}");
    Ok(Done::Passed)
}

async fn polls_many_in_few_requests(context: &Context<'_>) -> CaseResult {
    let faults = or_skip!(context.subject.faults(), "no faults, so no count of requests");
    or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let limit = context.manager().limits().poll_batch.min(context.subject.many());
    if limit < 10 {
        return Ok(Done::Skipped(format!("only {limit} jobs are polled at once")));
    }
    let mut jobs = Vec::new();
    for _ in 0..limit {
        let submission = context.sample(&Sample::Succeeds).context("no sample that succeeds")?;
        jobs.push(context.launch(&submission).await?);
    }
    let before = faults.total();
    let seen = context.manager().poll(&jobs).await.context("poll")?;
    let requests = faults.total() - before;
    ensure!(seen.len() == jobs.len(), "asked about {} jobs, told about {}", jobs.len(), seen.len());
    // Two per job would be one request and one look into the accounting: the cost that batching is there to avoid.
    ensure!(requests * 2 <= u64::try_from(jobs.len())?, "{requests} requests to poll {} jobs", jobs.len());
    for job in &jobs {
        context.ended(job).await?;
    }
    Ok(Done::Passed)
}
