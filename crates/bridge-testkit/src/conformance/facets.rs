//! The facets `logs`, `files` and `load`.

use anyhow::{Context as _, Result, ensure};
use bridge_core::manager::{
    ByteStream, ErrorKind, FileEntry, Files, LogCursor, LogStream, Logs, ManagerError, Sighting, Tracked, Verdict,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::context::{Context, or_skip, tracked};
use super::subject::Sample;
use super::{Case, CaseResult, Done, cases};

pub(super) const CASES: &[Case] = cases![
    logs_are_complete_and_go_on_from_a_cursor,
    logs_are_seen_while_the_job_runs,
    logs_tell_standard_error_apart,
    logs_of_anothers_job_are_not_shown,
    files_reach_the_job_and_replace_older_ones,
    files_come_back,
    files_that_are_not_there_are_none,
    files_are_listed_by_pattern,
    files_outside_the_job_are_refused,
    files_of_anothers_job_are_not_shown,
    load_adds_up,
];

/// Reads a stream to its end.
async fn read_all(context: &Context<'_>, logs: &dyn Logs, job: &Tracked, stream: LogStream) -> Result<String> {
    let mut cursor = LogCursor::default();
    let mut text = Vec::new();
    context
        .until(&format!("the end of {stream:?} of job {}", job.id), async || {
            loop {
                let chunk = logs.read(job, stream, cursor).await.context("logs")?;
                ensure!(chunk.next >= cursor, "the cursor went back from {cursor:?} to {:?}", chunk.next);
                ensure!(
                    chunk.data.is_empty() || chunk.next > cursor,
                    "output without progress: the same would be read for ever"
                );
                text.extend_from_slice(&chunk.data);
                cursor = chunk.next;
                if chunk.end || chunk.data.is_empty() {
                    return Ok(chunk.end.then_some(()));
                }
            }
        })
        .await?;
    String::from_utf8(text).context("the output is not UTF-8")
}

async fn logs_are_complete_and_go_on_from_a_cursor(context: &Context<'_>) -> CaseResult {
    let logs = or_skip!(context.manager().logs(), "no facet `logs`");
    let submission = or_skip!(context.sample(&Sample::Prints(200)), "no sample that prints");
    let job = context.launch(&submission).await?;
    let text = read_all(context, logs, &job, LogStream::Stdout).await?;
    let expected: String = (1..=200).flat_map(|line| ["line ".to_owned(), line.to_string(), "\n".to_owned()]).collect();
    ensure!(text.contains(&expected), "the output is not complete: {text:?}");
    let (outcome, _) = context.ended(&job).await?;
    ensure!(outcome.verdict == Verdict::Succeeded, "should have succeeded: {outcome:?}");

    let middle = LogCursor(u64::try_from(text.len() / 2)?);
    let rest = logs.read(&job, LogStream::Stdout, middle).await.context("logs from the middle")?;
    let tail = &text.as_bytes()[text.len() / 2..];
    ensure!(!rest.data.is_empty() && tail.starts_with(&rest.data), "from {middle:?} came something else");
    let end = LogCursor(u64::try_from(text.len())?);
    let nothing = logs.read(&job, LogStream::Stdout, end).await.context("logs from the end")?;
    ensure!(nothing.data.is_empty() && nothing.end && nothing.next == end, "after the end came {nothing:?}");
    Ok(Done::Passed)
}

async fn logs_are_seen_while_the_job_runs(context: &Context<'_>) -> CaseResult {
    let logs = or_skip!(context.manager().logs(), "no facet `logs`");
    let submission = or_skip!(context.sample(&Sample::PrintsAndRuns("still here")), "no sample that prints and runs");
    let job = context.launch(&submission).await?;
    let cursor = context
        .until("output of a running job", async || {
            // Output that does not exist yet is no error, also while the job is queued.
            let chunk = logs.read(&job, LogStream::Stdout, LogCursor::default()).await.context("logs")?;
            ensure!(!chunk.end, "the output has an end while the job runs");
            Ok(String::from_utf8_lossy(&chunk.data).contains("still here\n").then_some(chunk.next))
        })
        .await?;
    let sighting = context.look(&job).await?;
    ensure!(matches!(sighting, Sighting::Alive(..)), "should still run: {sighting:?}");
    context.put_away(&job).await?;
    let after = logs.read(&job, LogStream::Stdout, cursor).await.context("logs after the end")?;
    ensure!(after.end || !after.data.is_empty(), "the job has ended, its output has not");
    Ok(Done::Passed)
}

async fn logs_tell_standard_error_apart(context: &Context<'_>) -> CaseResult {
    let logs = or_skip!(context.manager().logs(), "no facet `logs`");
    if !context.subject.separates_stderr() {
        return Ok(Done::Skipped("standard error is not a stream of its own".to_owned()));
    }
    let submission = or_skip!(context.sample(&Sample::PrintsToStderr("a complaint")), "no sample that complains");
    let job = context.launch(&submission).await?;
    let errors = read_all(context, logs, &job, LogStream::Stderr).await?;
    let output = read_all(context, logs, &job, LogStream::Stdout).await?;
    ensure!(errors.contains("a complaint\n"), "standard error lacks the line: {errors:?}");
    ensure!(!output.contains("a complaint"), "standard error is in standard output");
    Ok(Done::Passed)
}

async fn logs_of_anothers_job_are_not_shown(context: &Context<'_>) -> CaseResult {
    let logs = or_skip!(context.manager().logs(), "no facet `logs`");
    let submission = or_skip!(context.sample(&Sample::Prints(3)), "no sample that prints");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let ours = tracked(job.id, &context.token());
    // An error is fine as well: what counts is that nothing of theirs is shown.
    if let Ok(chunk) = logs.read(&ours, LogStream::Stdout, LogCursor::default()).await {
        ensure!(chunk.data.is_empty(), "another's output was shown");
    }
    Ok(Done::Passed)
}

/// A file in two pieces, as it may come from a network.
fn content(text: &str) -> ByteStream {
    let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
    let pieces = [Bytes::copy_from_slice(head.as_bytes()), Bytes::copy_from_slice(tail.as_bytes())];
    futures::stream::iter(pieces.map(Ok)).boxed()
}

async fn fetch(files: &dyn Files, job: &Tracked, name: &str) -> Result<Option<String>> {
    let Some(stream) = files.get(job, name).await.context("get")? else { return Ok(None) };
    let pieces: Vec<Bytes> = stream.try_collect().await.context("reading the file")?;
    Ok(Some(String::from_utf8(pieces.concat()).context("the file is not UTF-8")?))
}

const UNICODE_NAME: &str = "Eingabe für café №1.txt";

async fn files_reach_the_job_and_replace_older_ones(context: &Context<'_>) -> CaseResult {
    let files = or_skip!(context.manager().files(), "no facet `files`");
    let logs = or_skip!(context.manager().logs(), "no facet `logs` to see the file by");
    let submission = or_skip!(context.sample(&Sample::CopiesInput(UNICODE_NAME)), "no sample that reads an input");
    let size = files.put(&submission.token, UNICODE_NAME, content("the first version\n")).await.context("put")?;
    ensure!(size == 18, "18 bytes were put, {size} were counted");
    files.put(&submission.token, UNICODE_NAME, content("the second: ü\n")).await.context("put again")?;
    let job = context.launch(&submission).await?;
    let text = read_all(context, logs, &job, LogStream::Stdout).await?;
    ensure!(text.contains("the second: ü\n") && !text.contains("first"), "the job saw {text:?}");
    Ok(Done::Passed)
}

async fn files_come_back(context: &Context<'_>) -> CaseResult {
    let files = or_skip!(context.manager().files(), "no facet `files`");
    let sample = Sample::Writes(UNICODE_NAME, "results: ü");
    let submission = or_skip!(context.sample(&sample), "no sample that writes a file");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let text = fetch(files, &job, UNICODE_NAME).await?;
    ensure!(text.as_deref() == Some("results: ü"), "the file came back as {text:?}");
    Ok(Done::Passed)
}

async fn files_that_are_not_there_are_none(context: &Context<'_>) -> CaseResult {
    let files = or_skip!(context.manager().files(), "no facet `files`");
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let nothing = files.get(&job, "never written.txt").await;
    if nothing.as_ref().is_err_and(|error| error.kind == ErrorKind::Unsupported) {
        return Ok(Done::Skipped("the manager hands out no files".to_owned()));
    }
    let text = fetch(files, &job, "never written.txt").await?;
    ensure!(text.is_none(), "a file that was never written holds {text:?}");
    Ok(Done::Passed)
}

async fn files_are_listed_by_pattern(context: &Context<'_>) -> CaseResult {
    let files = or_skip!(context.manager().files(), "no facet `files`");
    let submission = or_skip!(context.sample(&Sample::Writes("part-1.txt", "four")), "no sample that writes a file");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let found = match files.matching(&job, "part-*.txt").await {
        Err(error) if error.kind == ErrorKind::Unsupported => {
            return Ok(Done::Skipped("the manager cannot list files".to_owned()));
        }
        found => found.context("matching")?.files,
    };
    ensure!(found == [FileEntry { name: "part-1.txt".to_owned(), size: 4 }], "one file matches, listed were {found:?}");
    let none = files.matching(&job, "other-*.txt").await.context("matching nothing")?.files;
    ensure!(none.is_empty(), "no file matches, listed were {none:?}");
    let ours = tracked(job.id, &context.token());
    if let Ok(theirs) = files.matching(&ours, "*").await {
        ensure!(theirs.files.is_empty(), "another's files were listed: {theirs:?}");
    }
    Ok(Done::Passed)
}

async fn files_outside_the_job_are_refused(context: &Context<'_>) -> CaseResult {
    let files = or_skip!(context.manager().files(), "no facet `files`");
    let submission = or_skip!(context.sample(&Sample::Succeeds), "no sample that succeeds");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let refused = |error: &ManagerError| matches!(error.kind, ErrorKind::Refused | ErrorKind::Unsupported);
    for name in ["", "..", "../escape", "a/../../escape", "a\0b"] {
        match files.put(&context.token(), name, content("x")).await {
            Ok(_) => anyhow::bail!("put took the name {name:?}"),
            Err(error) => ensure!(refused(&error), "put of {name:?} failed as {:?}: {error}", error.kind),
        }
        match files.get(&job, name).await {
            Ok(None) => {}
            Ok(Some(_)) => anyhow::bail!("get took the name {name:?}"),
            Err(error) => ensure!(refused(&error), "get of {name:?} failed as {:?}: {error}", error.kind),
        }
    }
    Ok(Done::Passed)
}

async fn files_of_anothers_job_are_not_shown(context: &Context<'_>) -> CaseResult {
    let files = or_skip!(context.manager().files(), "no facet `files`");
    let submission = or_skip!(context.sample(&Sample::Writes("mine.txt", "private")), "no sample that writes a file");
    let job = context.launch(&submission).await?;
    context.ended(&job).await?;
    let ours = tracked(job.id, &context.token());
    if let Ok(text) = fetch(files, &ours, "mine.txt").await {
        ensure!(text.is_none(), "another's file was shown");
    }
    Ok(Done::Passed)
}

async fn load_adds_up(context: &Context<'_>) -> CaseResult {
    let load = or_skip!(context.manager().load(), "no facet `load`");
    let queues = load.load().await.context("load")?;
    ensure!(!queues.is_empty(), "a system without any queue");
    for queue in queues {
        for (what, capacity) in [("nodes", queue.nodes), ("cpus", queue.cpus)] {
            ensure!(
                capacity.idle + capacity.allocated <= capacity.total,
                "queue {}: more {what} in use and free than there are: {capacity:?}",
                queue.name
            );
        }
    }
    Ok(Done::Passed)
}
