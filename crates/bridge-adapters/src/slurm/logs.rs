//! Output of a job, where its file can be read from here.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bridge_core::manager::{ErrorKind, LogChunk, LogCursor, LogStream, Logs, ManagerError, Result, Sighting, Tracked};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::{MANAGER, Slurm};

const OPERATION: &str = "logs";
/// The most that is read at once.
const PIECE: u64 = 256 * 1024;

#[async_trait]
impl Logs for Slurm {
    async fn read(&self, job: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk> {
        let records = self.own_records(OPERATION, job).await?;
        let mut ended = super::map::EndedTasks::new();
        let (facts, has_ended) = match super::map::sighting(&records, &mut ended) {
            Some(Sighting::Ended(_, facts)) => (facts, true),
            Some(Sighting::Alive(_, facts)) => (facts, false),
            _ => return Err(trouble(ErrorKind::Refused, "slurmctld knows no such job of ours".to_owned())),
        };
        let path = match stream {
            LogStream::Stdout => facts.stdout,
            // One file for both is shown once.
            LogStream::Stderr if facts.stderr.is_some() && facts.stderr == facts.stdout => {
                return Ok(LogChunk { data: Bytes::new(), next: cursor, end: has_ended });
            }
            LogStream::Stderr => facts.stderr,
        };
        let path = path.ok_or_else(|| {
            trouble(ErrorKind::Unsupported, "Slurm does not tell where the job's output is".to_owned())
        })?;
        let file = self.readable(&path, facts.node.as_deref()).await?;
        match file {
            Some(file) => read_piece(file, cursor, has_ended).await.map_err(|error| unreadable(&path, &error)),
            // Not there yet: the job has not started, or the file system is slow to show it.
            None => Ok(LogChunk { data: Bytes::new(), next: cursor, end: has_ended }),
        }
    }
}

impl Slurm {
    /// The file, if it lies in a shared folder; `None` if it is not there.
    async fn readable(&self, path: &str, node: Option<&str>) -> Result<Option<tokio::fs::File>> {
        let place = node.map(|node| format!(" on {node}")).unwrap_or_default();
        let elsewhere = || {
            trouble(
                ErrorKind::Unsupported,
                format!(
                    "the output is in {path}{place}, which cannot be read from here; look there, share its folder, or \
                     stage it through an object store"
                ),
            )
        };
        if path.contains("/../") || path.ends_with("/..") {
            return Err(elsewhere());
        }
        let in_shared = |path: &Path, folders: &[PathBuf]| folders.iter().any(|folder| path.starts_with(folder));
        if !in_shared(Path::new(path), &self.config.shared_folders) {
            return Err(elsewhere());
        }
        // A link in a shared folder must not lead out of it.
        let real = match tokio::fs::canonicalize(path).await {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(path, &error)),
        };
        let mut folders = Vec::new();
        for folder in &self.config.shared_folders {
            folders.extend(tokio::fs::canonicalize(folder).await);
        }
        if !in_shared(&real, &folders) {
            return Err(elsewhere());
        }
        match tokio::fs::metadata(&real).await {
            Ok(kind) if kind.is_file() => {}
            _ => return Err(elsewhere()),
        }
        tokio::fs::File::open(&real).await.map(Some).map_err(|error| unreadable(path, &error))
    }
}

async fn read_piece(mut file: tokio::fs::File, cursor: LogCursor, has_ended: bool) -> std::io::Result<LogChunk> {
    let length = file.metadata().await?.len();
    if cursor.0 >= length {
        return Ok(LogChunk { data: Bytes::new(), next: cursor, end: has_ended });
    }
    file.seek(std::io::SeekFrom::Start(cursor.0)).await?;
    let mut data = Vec::new();
    file.take(PIECE).read_to_end(&mut data).await?;
    let next = LogCursor(cursor.0 + data.len() as u64);
    Ok(LogChunk { data: data.into(), next, end: has_ended && next.0 >= length })
}

fn unreadable(path: &str, error: &std::io::Error) -> ManagerError {
    trouble(ErrorKind::Unsupported, format!("the output file {path} cannot be read from here: {error}"))
}

fn trouble(kind: ErrorKind, message: String) -> ManagerError {
    ManagerError::new(MANAGER, OPERATION, kind, message)
}
