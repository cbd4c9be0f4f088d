//! A job's output, shown while it runs.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::manager::{ErrorKind, LogCursor, LogStream, Logs, ManagerError, ResourceManager, Tracked};
use bridge_core::plan::ManagerKind;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

/// How often reading is tried again when the job has ended and its output cannot be read.
const LAST_TRIES: u32 = 5;

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Standard output or standard error.
    pub stream: LogStream,
    /// The bytes.
    pub data: Bytes,
}

/// How long to wait between two reads that bring nothing: shortest and longest.
#[must_use]
pub fn pauses(manager: ManagerKind) -> (Duration, Duration) {
    match manager {
        ManagerKind::Local => (Duration::from_millis(50), Duration::from_millis(250)),
        _ => (Duration::from_secs(1), Duration::from_secs(5)),
    }
}

/// How often a manager has to say that it cannot show a stream: a job that waits may not have one yet.
const REFUSALS: u32 = 3;

/// Where one stream of a job has been read to.
#[derive(Debug)]
struct Place {
    stream: LogStream,
    cursor: LogCursor,
    over: bool,
    refusals: u32,
    refusal: Option<ManagerError>,
}

/// Sends the output of a job until nothing will follow, or until it was read to its end after `ended` became true.
///
/// An error is returned only if the output could not be read to its end.
pub async fn tail(
    manager: Arc<dyn ResourceManager>,
    job: Tracked,
    (shortest, longest): (Duration, Duration),
    mut ended: watch::Receiver<bool>,
    pieces: mpsc::Sender<Piece>,
) -> Result<(), ManagerError> {
    let Some(logs) = manager.logs() else { return Ok(()) };
    let mut places = [LogStream::Stdout, LogStream::Stderr].map(|stream| Place {
        stream,
        cursor: LogCursor::default(),
        over: false,
        refusals: 0,
        refusal: None,
    });
    let mut pause = shortest;
    let mut failures = 0;
    loop {
        // Looked at before the read: what was written before the end is then read after it.
        let is_last = *ended.borrow_and_update();
        let round = read_round(logs, &job, &mut places, &pieces, is_last).await;
        if places.iter().all(|place| place.over) || pieces.is_closed() {
            // It cannot be shown: the user is told where it is. Standard error may well be a part of it.
            let [out, _] = places;
            return out.refusal.map_or(Ok(()), Err);
        }
        match round {
            Ok(true) => {
                pause = shortest;
                failures = 0;
                continue;
            }
            Ok(false) if is_last => return Ok(()),
            Ok(false) => failures = 0,
            Err(error) if is_last && (failures >= LAST_TRIES || error.kind.is_final()) => return Err(error),
            Err(_) => failures += 1,
        }
        pause = (pause * 2).min(longest);
        // An error of `changed` means that nobody will ever say so: then the end is now.
        let told = tokio::time::timeout(pause, ended.changed()).await;
        if let Ok(Err(_)) = told {
            return Ok(());
        }
    }
}

/// Reads each stream once; tells whether anything came.
async fn read_round(
    logs: &dyn Logs,
    job: &Tracked,
    places: &mut [Place],
    pieces: &mpsc::Sender<Piece>,
    is_last: bool,
) -> Result<bool, ManagerError> {
    let mut came = false;
    let mut failed = None;
    for place in places.iter_mut().filter(|place| !place.over) {
        match logs.read(job, place.stream, place.cursor).await {
            Ok(chunk) => {
                came |= !chunk.data.is_empty();
                place.refusal = None;
                place.cursor = chunk.next;
                place.over = chunk.end;
                if !chunk.data.is_empty()
                    && pieces.send(Piece { stream: place.stream, data: chunk.data }).await.is_err()
                {
                    place.over = true;
                }
            }
            Err(error) if error.kind == ErrorKind::Unsupported => {
                place.refusals += 1;
                place.over = is_last || place.refusals >= REFUSALS;
                place.refusal = Some(error);
            }
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if !came => Err(error),
        _ => Ok(came),
    }
}
