//! Output from a cursor on.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use async_trait::async_trait;
use bridge_core::manager::{ErrorKind, LogChunk, LogCursor, LogStream, Logs, ManagerError, Result, Tracked};
use bytes::Bytes;

use super::client::Seen;
use super::{LocalManager, MANAGER, blocking, process};

/// The most that is read at once.
const CHUNK: u64 = 64 * 1024;

#[async_trait]
impl Logs for LocalManager {
    async fn read(&self, job: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk> {
        const OPERATION: &str = "logs";
        let unknown = || {
            let message = format!("job {} is not known on this machine", job.id);
            ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message)
        };
        let folder = self.folder_of(job).ok_or_else(unknown)?;
        let chunk = blocking(OPERATION, move || {
            // Before the read: what was written before the end is then read before the end is told.
            let (job, ended) = match folder.look(&process::boot_id()?)? {
                Seen::Nothing => return Ok(None),
                Seen::Running { job, .. } => (job, false),
                Seen::Ended { job, .. } => (job, true),
            };
            let path = match stream {
                LogStream::Stdout => &job.stdout,
                // One file for both is shown once.
                LogStream::Stderr if job.stderr == job.stdout => {
                    return Ok(Some(LogChunk { data: Bytes::new(), next: cursor, end: ended }));
                }
                LogStream::Stderr => &job.stderr,
            };
            read_from(path, cursor, ended).map(Some)
        })
        .await?;
        chunk.ok_or_else(unknown)
    }
}

fn read_from(path: &Path, cursor: LogCursor, ended: bool) -> io::Result<LogChunk> {
    let mut data = Vec::new();
    // Only a file can be read from a cursor on, and opening a pipe would wait for its writer.
    let opened = std::fs::metadata(path).and_then(|metadata| metadata.is_file().then(|| File::open(path)).transpose());
    match opened {
        Ok(None) => {}
        Ok(Some(mut file)) => {
            file.seek(SeekFrom::Start(cursor.0))?;
            file.take(CHUNK).read_to_end(&mut data)?;
        }
        // A job that has just started may not have made it yet; one that ended may have deleted it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let len = u64::try_from(data.len()).unwrap_or(CHUNK);
    Ok(LogChunk { data: Bytes::from(data), next: LogCursor(cursor.0 + len), end: ended && len < CHUNK })
}
