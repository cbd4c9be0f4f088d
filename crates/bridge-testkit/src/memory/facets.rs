//! Holding, output, files and load of the jobs in memory.

use async_trait::async_trait;
use bridge_core::ids::SubmitToken;
use bridge_core::manager::{
    ByteStream, Capacity, ErrorKind, FileEntry, Files, Hold, HoldAnswer, Listing, LoadProbe, LogChunk, LogCursor,
    LogStream, Logs, ManagerError, QueueLoad, Result, Tracked,
};
use bridge_core::staging::glob;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::act::Act;
use super::state::{Stage, State};
use super::{MANAGER, MemoryManager};
use crate::faults::Operation;

/// How many processors the remote system has.
const CPUS: u64 = 64;

/// The most output in one answer: small, so that a test meets the next piece.
const CHUNK: usize = 512;

#[async_trait]
impl Hold for MemoryManager {
    async fn release(&self, job: &Tracked) -> Result<HoldAnswer> {
        self.request(Operation::Release, |state, now| state.release(job, now)).await
    }

    async fn hold(&self, job: &Tracked) -> Result<HoldAnswer> {
        self.request(Operation::Hold, |state, now| state.hold(job, now)).await
    }
}

#[async_trait]
impl Logs for MemoryManager {
    async fn read(&self, job: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk> {
        let chunk = self
            .request(Operation::Logs, |state, now| {
                let (act, stage) = state.act_and_stage(job, now)?;
                let started = matches!(stage, Stage::Running { .. } | Stage::Ended { started: Some(_), .. });
                let text = if started { output(state, act, &job.token, stream) } else { String::new() };
                let from = usize::try_from(cursor.0).unwrap_or(usize::MAX).min(text.len());
                let to = (from + CHUNK).min(text.len());
                Some(LogChunk {
                    data: Bytes::copy_from_slice(&text.as_bytes()[from..to]),
                    next: LogCursor(cursor.0 + u64::try_from(to - from).unwrap_or_default()),
                    end: to == text.len() && matches!(stage, Stage::Ended { .. }),
                })
            })
            .await?;
        chunk.ok_or_else(|| refused(Operation::Logs, format!("there is no job {} of this token", job.id)))
    }
}

fn output(state: &State, act: &Act, token: &SubmitToken, stream: LogStream) -> String {
    match (stream, act) {
        (LogStream::Stdout, Act::Prints(lines)) => numbered_lines(*lines),
        (LogStream::Stdout, Act::Says(text)) | (LogStream::Stderr, Act::Complains(text)) => format!("{text}\n"),
        (LogStream::Stdout, Act::Copies(name)) => {
            state.file(token, name).map(|content| String::from_utf8_lossy(&content).into_owned()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn numbered_lines(lines: u32) -> String {
    (1..=lines).flat_map(|line| ["line ".to_owned(), line.to_string(), "\n".to_owned()]).collect()
}

fn refused(operation: Operation, message: String) -> ManagerError {
    ManagerError::new(MANAGER, operation.as_str(), ErrorKind::Refused, message)
}

fn check_name(operation: Operation, name: &str) -> Result<()> {
    let inside =
        !name.is_empty() && !name.contains('\0') && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if inside {
        Ok(())
    } else {
        Err(refused(operation, format!("the file name {name:?} leads out of the job's folder")))
    }
}

#[async_trait]
impl Files for MemoryManager {
    async fn put(&self, token: &SubmitToken, name: &str, content: ByteStream) -> Result<u64> {
        check_name(Operation::Put, name)?;
        let pieces: Vec<Bytes> = content.try_collect().await.map_err(|error| {
            ManagerError::new(MANAGER, "put", ErrorKind::Unreachable, format!("the content of {name:?} broke off"))
                .with_source(error)
        })?;
        let content = Bytes::from(pieces.concat());
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.request(Operation::Put, |state, _| state.put(token.clone(), name.to_owned(), content)).await?;
        Ok(size)
    }

    async fn get(&self, job: &Tracked, name: &str) -> Result<Option<ByteStream>> {
        check_name(Operation::Get, name)?;
        let content = self
            .request(Operation::Get, |state, now| match state.act_and_stage(job, now)? {
                (Act::Writes(file), Stage::Ended { cancelled: false, .. }) if file.0 == name => {
                    Some(Bytes::from(file.1.clone()))
                }
                _ => state.file(&job.token, name),
            })
            .await?;
        Ok(content.map(|content| futures::stream::iter([Ok(content)]).boxed()))
    }

    async fn matching(&self, job: &Tracked, pattern: &str) -> Result<Listing> {
        check_name(Operation::Get, pattern)?;
        self.request(Operation::Get, |state, now| match state.act_and_stage(job, now) {
            Some((Act::Writes(file), Stage::Ended { cancelled: false, .. })) if glob::matches(pattern, &file.0) => {
                let size = u64::try_from(file.1.len()).unwrap_or_default();
                Listing { files: vec![FileEntry { name: file.0.clone(), size }], unread: Vec::new() }
            }
            _ => Listing::default(),
        })
        .await
    }
}

#[async_trait]
impl LoadProbe for MemoryManager {
    async fn load(&self) -> Result<Vec<QueueLoad>> {
        let (pending_jobs, running) = self.request(Operation::Load, |state, now| state.queue_and_running(now)).await?;
        let busy = running.min(CPUS);
        let nodes = Capacity { idle: u64::from(busy < CPUS), allocated: u64::from(busy == CPUS), total: 1 };
        let cpus = Capacity { idle: CPUS - busy, allocated: busy, total: CPUS };
        Ok(vec![QueueLoad { name: MANAGER.to_owned(), nodes, cpus, pending_jobs }])
    }
}
