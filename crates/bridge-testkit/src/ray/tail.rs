//! The websocket on which a log is sent as it grows.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};

use super::jobs::Job;

/// Ray sends at most about so much at once.
const LARGEST_MESSAGE: usize = 20_000;

/// Sends the log from its beginning until the job has ended and all of it was sent.
pub(super) async fn send(mut socket: WebSocket, job: Arc<Job>, interval: Duration) {
    let mut sent = 0;
    let mut ended = false;
    loop {
        let Some(text) = read_from(&job, sent) else { return };
        if text.is_empty() {
            if ended {
                let close = CloseFrame { code: close_code::NORMAL, reason: "".into() };
                socket.send(Message::Close(Some(close))).await.ok();
                return;
            }
            // What was written between the last look and the end is still to be sent.
            ended = job.progress().is_ended();
            tokio::time::sleep(interval).await;
            continue;
        }
        sent += u64::try_from(text.len()).unwrap_or_default();
        if socket.send(Message::Text(text.into())).await.is_err() {
            return;
        }
    }
}

/// Text from a place on; `None` where it is none.
fn read_from(job: &Job, from: u64) -> Option<String> {
    if !job.progress().has_node {
        return Some(String::new());
    }
    let Ok(mut file) = std::fs::File::open(&job.log) else { return Some(String::new()) };
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(u64::try_from(LARGEST_MESSAGE).ok()?).read_to_end(&mut bytes).ok()?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Some(text.to_owned()),
        // A character that is not written to its end.
        Err(error) if error.error_len().is_none() => {
            bytes.truncate(error.valid_up_to());
            String::from_utf8(bytes).ok()
        }
        Err(_) => None,
    }
}
