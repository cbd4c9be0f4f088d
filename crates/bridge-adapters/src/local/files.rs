//! Files put beside and fetched from a job.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bridge_core::ids::SubmitToken;
use bridge_core::manager::{ByteStream, ErrorKind, FileEntry, Files, ManagerError, Result, Tracked};
use bridge_core::staging::glob;
use bytes::Bytes;
use futures::StreamExt;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::client::Seen;
use super::folder::unique;
use super::{LocalManager, MANAGER, blocking, map, process, trouble};

/// The size of a piece.
const PIECE: usize = 256 * 1024;

#[async_trait]
impl Files for LocalManager {
    async fn put(&self, token: &SubmitToken, name: &str, content: ByteStream) -> Result<u64> {
        const OPERATION: &str = "put";
        let refuse = |message: String| ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message);
        map::check_name(name).map_err(refuse)?;
        let folder =
            self.folder(token.as_str()).ok_or_else(|| refuse(format!("the token \"{token}\" is not one of ours")))?;
        folder.create().map_err(|error| trouble(OPERATION, &error))?;
        // Beside the job's folder, not in it: a job never sees half a file.
        let draft = folder.path().join(format!("put-{}", unique()));
        let put = write(content, &draft, &folder.work().join(name)).await;
        if put.is_err() {
            tokio::fs::remove_file(&draft).await.ok();
        }
        put.map_err(|error| trouble(OPERATION, &error))
    }

    async fn get(&self, job: &Tracked, name: &str) -> Result<Option<ByteStream>> {
        const OPERATION: &str = "get";
        let refuse = |message: String| ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message);
        map::check_name(name).map_err(refuse)?;
        let Some(folder) = self.folder_of(job) else { return Ok(None) };
        let seen = blocking(OPERATION, move || folder.look(&process::boot_id()?)).await?;
        let (Seen::Running { job, .. } | Seen::Ended { job, .. }) = seen else { return Ok(None) };
        open(&job.folder.join(name)).await.map_err(|error| trouble(OPERATION, &error))
    }

    async fn matching(&self, job: &Tracked, pattern: &str) -> Result<Vec<FileEntry>> {
        const OPERATION: &str = "list";
        let refuse = |message: String| ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message);
        map::check_name(pattern).map_err(refuse)?;
        let Some(folder) = self.folder_of(job) else { return Ok(Vec::new()) };
        let pattern = pattern.to_owned();
        blocking(OPERATION, move || {
            let seen = folder.look(&process::boot_id()?)?;
            let (Seen::Running { job, .. } | Seen::Ended { job, .. }) = seen else { return Ok(Vec::new()) };
            list(&job.folder, &pattern)
        })
        .await
    }
}

async fn write(mut content: ByteStream, draft: &Path, place: &Path) -> io::Result<u64> {
    let mut file = File::create_new(draft).await?;
    let mut size = 0;
    while let Some(piece) = content.next().await {
        let piece = piece?;
        file.write_all(&piece).await?;
        size += u64::try_from(piece.len()).unwrap_or_default();
    }
    file.sync_all().await?;
    if let Some(parent) = place.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    tokio::fs::rename(draft, place).await?;
    Ok(size)
}

async fn open(path: &Path) -> io::Result<Option<ByteStream>> {
    // Not opened before it is known to be a file: opening a pipe would wait for a writer for ever.
    match tokio::fs::metadata(path).await {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let file = File::open(path).await?.into_std().await;
    // Past tokio's own buffer: each byte would be copied once more.
    let pieces = futures::stream::try_unfold(file, async |file: std::fs::File| {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE);
            (&file).take(PIECE as u64).read_to_end(&mut piece).map(|_| (Bytes::from(piece), file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        Ok::<_, io::Error>((!piece.is_empty()).then_some((piece, file)))
    });
    Ok(Some(pieces.boxed()))
}

/// The files below a folder that match. Links to folders are not followed: they may lead in circles.
fn list(root: &Path, pattern: &str) -> io::Result<Vec<FileEntry>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(glob::fixed_folder(pattern))];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(root.join(&folder)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
                continue;
            }
            // A name that is not UTF-8 cannot be asked for; a file may be deleted while we look.
            let Some(name) = path.to_str().filter(|name| glob::matches(pattern, name)) else { continue };
            if let Some(metadata) = std::fs::metadata(root.join(&path)).ok().filter(std::fs::Metadata::is_file) {
                found.push(FileEntry { name: name.to_owned(), size: metadata.len() });
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Copies inputs to a working folder that the user chose.
pub(super) fn copy_inputs(from: &Path, names: &[String], to: &Path) -> io::Result<()> {
    for name in names {
        let draft = to.join(format!(".bridge-{}", unique()));
        let place: PathBuf = to.join(name);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let copied = std::fs::copy(from.join(name), &draft).and_then(|_| std::fs::rename(&draft, &place));
        if let Err(error) = copied {
            std::fs::remove_file(&draft).ok();
            return Err(io::Error::new(error.kind(), format!("cannot copy {name:?} to {}: {error}", to.display())));
        }
    }
    Ok(())
}
