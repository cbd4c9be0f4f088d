//! Looking at jobs.

use anyhow::{Context as _, bail, ensure};
use bridge_core::manager::{Sighting, Tracked, Verdict};
use futures::{StreamExt, TryStreamExt};

use super::context::{Context, or_skip, tracked};
use super::subject::Sample;
use super::{Case, CaseResult, Done, cases};

pub(super) const CASES: &[Case] = cases![
    polls_many,
    poll_of_nothing_is_empty,
    poll_of_an_unknown_id_is_gone,
    anothers_job_under_our_id_is_gone_and_untouched,
    purged_job_is_gone,
];

async fn polls_many(context: &Context<'_>) -> CaseResult {
    or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let limits = context.manager().limits();
    ensure!(limits.poll_batch > 0 && limits.concurrent_submits > 0, "nothing may be asked: {limits:?}");
    let launches = (0..context.subject.many()).map(|_| async {
        let submission = context.sample(&Sample::Succeeds).context("no sample that succeeds")?;
        context.launch(&submission).await
    });
    let launches: Vec<_> = launches.map(Box::pin).collect();
    let jobs: Vec<Tracked> =
        futures::stream::iter(launches).buffer_unordered(limits.concurrent_submits.min(8)).try_collect().await?;
    let stranger = tracked(context.subject.unknown_id(), &context.token());
    context
        .until("the end of many jobs", async || {
            let mut ended = 0;
            for batch in jobs.chunks(limits.poll_batch) {
                let mut asked = batch.to_vec();
                if asked.len() < limits.poll_batch {
                    asked.push(stranger.clone());
                }
                let seen = context.manager().poll(&asked).await.context("poll")?;
                for job in batch {
                    match seen.get(&job.id) {
                        Some(Sighting::Alive(..)) => {}
                        Some(Sighting::Ended(outcome, _)) => {
                            ensure!(
                                outcome.verdict == Verdict::Succeeded,
                                "job {} did not succeed: {outcome:?}",
                                job.id
                            );
                            ended += 1;
                        }
                        Some(Sighting::Gone) => bail!("job {} is gone", job.id),
                        Some(Sighting::Unaccounted { why }) => bail!("job {} is not known: {why}", job.id),
                        None => bail!("job {} of {} was left out", job.id, asked.len()),
                    }
                }
                if asked.len() > batch.len() {
                    let sighting = seen.get(&stranger.id);
                    ensure!(sighting == Some(&Sighting::Gone), "unknown id {} is {sighting:?}", stranger.id);
                }
            }
            Ok((ended == jobs.len()).then_some(()))
        })
        .await?;
    Ok(Done::Passed)
}

async fn poll_of_nothing_is_empty(context: &Context<'_>) -> CaseResult {
    let seen = context.manager().poll(&[]).await?;
    ensure!(seen.is_empty(), "asked about nothing, told about {seen:?}");
    Ok(Done::Passed)
}

async fn poll_of_an_unknown_id_is_gone(context: &Context<'_>) -> CaseResult {
    let sighting = context.look(&tracked(context.subject.unknown_id(), &context.token())).await?;
    ensure!(sighting == Sighting::Gone, "should be gone: {sighting:?}");
    Ok(Done::Passed)
}

async fn anothers_job_under_our_id_is_gone_and_untouched(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Runs), "no sample that runs on");
    let theirs = context.launch(&submission).await?;
    context.running(&theirs).await?;
    let ours = tracked(theirs.id.clone(), &context.token());
    let sighting = context.look(&ours).await?;
    ensure!(sighting == Sighting::Gone, "another's job was taken for ours: {sighting:?}");
    context.manager().cancel(&ours).await.context("cancel under another's id must do nothing and succeed")?;
    for _ in 0..5 {
        context.subject.step().await;
        let sighting = context.look(&theirs).await?;
        ensure!(matches!(sighting, Sighting::Alive(..)), "our cancel hit another's job: {sighting:?}");
    }
    context.put_away(&theirs).await?;
    Ok(Done::Passed)
}

async fn purged_job_is_gone(context: &Context<'_>) -> CaseResult {
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    if !context.subject.purge(&job.id).await {
        return Ok(Done::Skipped("the remote system cannot be made to forget".to_owned()));
    }
    let sighting = context.look(&job).await?;
    ensure!(sighting == Sighting::Gone, "forgotten by the remote system, and still {sighting:?}");
    context.manager().cancel(&job).await.context("cancel of a forgotten job must succeed")?;
    Ok(Done::Passed)
}
