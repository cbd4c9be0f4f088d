//! Output from a cursor on.
//!
//! Ray can only tell a log from its beginning, so a reader stays open between two looks and goes on where it was: the
//! websocket while the job runs, the answer to a plain request when it has ended or no websocket is to be had. Nothing
//! but the piece at hand is in memory. A reader that broke, or that a cursor does not fit, is replaced by a new one,
//! which skips what was seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bridge_core::ids::RemoteId;
use bridge_core::manager::{ErrorKind, LogChunk, LogCursor, LogStream, Logs, ManagerError, Result, Tracked};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::client::{is_unknown_job, refusal};
use super::decode::LogDecoder;
use super::tail::Tail;
use super::{MANAGER, RayManager, map};
use crate::http::StreamedAnswer;

const OPERATION: &str = "logs";

/// The most that is handed over at once.
const CHUNK: usize = 256 * 1024;

/// A log up to this size may be asked for as a whole while its websocket is silent.
const SHORT_LOG: u64 = 256 * 1024;

/// How much of an answer that is no log is read, to say why.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// Readers by job. A reader that nobody asks is dropped when another needs its place.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<BTreeMap<RemoteId, Slot>>);

#[derive(Debug)]
struct Slot {
    reader: Arc<tokio::sync::Mutex<Option<Reader>>>,
    used: Instant,
}

impl Readers {
    fn of(&self, id: &RemoteId, most: usize) -> Arc<tokio::sync::Mutex<Option<Reader>>> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !slots.contains_key(id) && slots.len() >= most.max(1) {
            let idle = slots.iter().min_by_key(|(_, slot)| slot.used).map(|(id, _)| id.clone());
            idle.and_then(|id| slots.remove(&id));
        }
        let slot = slots.entry(id.clone()).or_insert_with(|| Slot { reader: Arc::default(), used: Instant::now() });
        slot.used = Instant::now();
        Arc::clone(&slot.reader)
    }

    fn forget(&self, id: &RemoteId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// A log that is being read.
#[derive(Debug)]
struct Reader {
    source: Source,
    /// What has come and was not handed over.
    pending: Bytes,
    /// Where `pending` begins.
    at: u64,
}

enum Source {
    /// As it grows.
    Tail(Box<Tail>),
    /// As it was when it was asked for; `ended`: nothing will follow.
    Whole { body: BoxStream<'static, std::io::Result<Bytes>>, decoder: LogDecoder, ended: bool },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tail(_) => "Tail",
            Self::Whole { .. } => "Whole",
        })
    }
}

/// What came next.
enum Next {
    Piece(Bytes),
    /// The source is at its end, and so is the log.
    End,
    /// The source is at its end; the log may go on.
    Closed,
    /// There was nothing in time.
    NotYet,
    /// The job has ended: the log is whole, and what the source has not sent is to be asked for.
    Whole,
}

impl Reader {
    fn new(source: Source) -> Self {
        Self { source, pending: Bytes::new(), at: 0 }
    }

    /// The next piece at or after the cursor, waiting for what is not written yet until the deadline only.
    async fn next_before(&mut self, cursor: u64, deadline: Instant) -> Result<Next> {
        // A log that is there is read however long it takes; each piece has a time of its own.
        if matches!(self.source, Source::Whole { .. }) {
            return self.next(cursor).await;
        }
        tokio::time::timeout_at(deadline, self.next(cursor)).await.unwrap_or(Ok(Next::NotYet))
    }

    /// The next piece at or after the cursor. Nothing is lost if it is dropped while it waits.
    async fn next(&mut self, cursor: u64) -> Result<Next> {
        loop {
            let skipped = cursor.saturating_sub(self.at).min(length(&self.pending));
            drop(self.pending.split_to(usize::try_from(skipped).unwrap_or(usize::MAX).min(self.pending.len())));
            self.at += skipped;
            if !self.pending.is_empty() {
                let piece = self.pending.split_to(self.pending.len().min(CHUNK));
                self.at += length(&piece);
                return Ok(Next::Piece(piece));
            }
            match self.source.next().await? {
                Next::Piece(piece) => self.pending = piece,
                end => return Ok(end),
            }
        }
    }
}

impl Source {
    async fn next(&mut self) -> Result<Next> {
        match self {
            Self::Tail(tail) => Ok(tail.next().await.map_or(Next::Closed, Next::Piece)),
            Self::Whole { body, decoder, ended } => {
                let trouble = |kind, message: &str| ManagerError::new(MANAGER, OPERATION, kind, message);
                match body.next().await {
                    Some(Ok(piece)) => decoder.push(&piece).map(Next::Piece).map_err(|error| {
                        trouble(ErrorKind::Protocol, "Ray sent something else than a log").with_source(error)
                    }),
                    Some(Err(error)) => Err(trouble(ErrorKind::Unreachable, "the log broke off").with_source(error)),
                    None if !decoder.is_complete() => Err(trouble(ErrorKind::Protocol, "the log broke off")),
                    None => Ok(if *ended { Next::End } else { Next::Closed }),
                }
            }
        }
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Logs for RayManager {
    /// Waits up to [`Config::log_wait`](super::Config::log_wait) for output. Ray mixes both streams, so standard error
    /// is empty.
    async fn read(&self, job: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk> {
        if stream == LogStream::Stderr {
            return Ok(LogChunk { data: Bytes::new(), next: cursor, end: true });
        }
        if job.id.as_str() != job.token.as_str() {
            return Err(unknown(&job.id));
        }
        let shared = self.readers.of(&job.id, self.client.config().followed_logs);
        let mut slot = shared.lock().await;
        let deadline = Instant::now() + self.client.config().log_wait;
        // Taken out: a reader that failed, or was dropped while it waited, is not used again.
        let mut reader = slot.take().filter(|reader| reader.at <= cursor.0);
        let mut opened = 0;
        let nothing = |end| Ok(LogChunk { data: Bytes::new(), next: cursor, end });
        loop {
            let mut current = if let Some(reader) = reader.take() {
                reader
            } else {
                opened += 1;
                self.open(&job.id).await?
            };
            let next = match current.next_before(cursor.0, deadline).await? {
                // Ray may take long to answer; what the websocket brings meanwhile is told.
                Next::NotYet => tokio::select! {
                    biased;
                    next = current.next(cursor.0) => next?,
                    next = self.look_beside(&job.id, cursor) => next?,
                },
                next => next,
            };
            match next {
                Next::Piece(data) => {
                    let next = LogCursor(cursor.0 + length(&data));
                    *slot = Some(current);
                    return Ok(LogChunk { data, next, end: false });
                }
                Next::End => {
                    self.readers.forget(&job.id);
                    return nothing(true);
                }
                Next::Whole => reader = Some(self.open_whole(&job.id, true).await?),
                Next::NotYet => {
                    *slot = Some(current);
                    return nothing(false);
                }
                // The end of the job or a break: the next reader tells which.
                Next::Closed if opened < 2 && matches!(current.source, Source::Tail(_)) => {}
                Next::Closed => {
                    tokio::time::sleep_until(deadline).await;
                    return nothing(false);
                }
            }
        }
    }
}

impl RayManager {
    async fn has_ended(&self, id: &RemoteId) -> Result<bool> {
        let job = self.client.job(OPERATION, id.as_str()).await?.ok_or_else(|| unknown(id))?;
        Ok(map::is_ended(&job))
    }

    /// What the job and a short log tell while the websocket is silent. What it sends later is skipped by the reader,
    /// as far as it is seen now.
    async fn look_beside(&self, id: &RemoteId, cursor: LogCursor) -> Result<Next> {
        // Ray closes the websocket seconds after the end; the job itself tells it at once.
        if self.has_ended(id).await? {
            return Ok(Next::Whole);
        }
        Ok(self.written(id, cursor).await.map_or(Next::NotYet, Next::Piece))
    }

    /// What a short log holds after the cursor and its websocket has not sent yet: Ray looks at a file every second or
    /// two, and sends what it saw a second after that.
    async fn written(&self, id: &RemoteId, cursor: LogCursor) -> Option<Bytes> {
        if cursor.0 > SHORT_LOG {
            return None;
        }
        // A failure is no news: the websocket is there.
        match self.open_whole(id, false).await.ok()?.next(cursor.0).await.ok()? {
            Next::Piece(data) => Some(data),
            Next::End | Next::Closed | Next::NotYet | Next::Whole => None,
        }
    }

    async fn open(&self, id: &RemoteId) -> Result<Reader> {
        let trouble = |error: crate::http::HttpError| error.into_manager(MANAGER, OPERATION);
        // Before the log is asked for: what was written before the end is then read before the end is told.
        if self.has_ended(id).await? {
            return self.open_whole(id, true).await;
        }
        let (upgrade, key) = self.client.tail(id.as_str()).await.map_err(trouble)?;
        if let crate::http::Upgrade::Declined(answer) = &upgrade {
            if is_unknown_job(answer) {
                return Err(unknown(id));
            }
            // What a proxy that lets no websocket pass answers is anything but these.
            if matches!(answer.status.as_u16(), 401 | 403 | 429) {
                return Err(refusal(OPERATION, answer));
            }
        }
        match Tail::new(upgrade, &key).await {
            Some(tail) => Ok(Reader::new(Source::Tail(Box::new(tail)))),
            None => self.open_whole(id, false).await,
        }
    }

    async fn open_whole(&self, id: &RemoteId, ended: bool) -> Result<Reader> {
        let trouble = |error: crate::http::HttpError| error.into_manager(MANAGER, OPERATION);
        let answer: StreamedAnswer = self.client.log(id.as_str()).await.map_err(trouble)?;
        if answer.status.is_success() {
            return Ok(Reader::new(Source::Whole { body: answer.body, decoder: LogDecoder::default(), ended }));
        }
        let answer = answer.into_answer(LARGEST_REFUSAL).await.map_err(trouble)?;
        if is_unknown_job(&answer) {
            return Err(unknown(id));
        }
        if String::from_utf8_lossy(&answer.body).contains("UnicodeDecodeError") {
            let message = format!("the log of job {id} holds bytes that are not UTF-8, and Ray can only send text");
            return Err(ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message));
        }
        Err(refusal(OPERATION, &answer))
    }
}

fn unknown(id: &RemoteId) -> ManagerError {
    let message = format!("Ray knows no job {id} of ours, so it has no log");
    ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message)
}
