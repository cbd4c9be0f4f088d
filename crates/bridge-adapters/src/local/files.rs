//! Files put beside and fetched from a job.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bridge_core::ids::SubmitToken;
use bridge_core::manager::{ByteStream, ErrorKind, FileEntry, Files, Listing, ManagerError, Result, Tracked};
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

    async fn matching(&self, job: &Tracked, pattern: &str) -> Result<Listing> {
        const OPERATION: &str = "list";
        let refuse = |message: String| ManagerError::new(MANAGER, OPERATION, ErrorKind::Refused, message);
        map::check_name(pattern).map_err(refuse)?;
        let Some(folder) = self.folder_of(job) else { return Ok(Listing::default()) };
        let pattern = pattern.to_owned();
        blocking(OPERATION, move || {
            let seen = folder.look(&process::boot_id()?)?;
            let (Seen::Running { job, .. } | Seen::Ended { job, .. }) = seen else { return Ok(Listing::default()) };
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
fn list(root: &Path, pattern: &str) -> io::Result<Listing> {
    if !glob::is_pattern(pattern) {
        // One that may not be looked at is told as such when it is opened.
        let found = std::fs::metadata(root.join(pattern)).ok().filter(std::fs::Metadata::is_file);
        let entry = found.map(|metadata| FileEntry { name: pattern.to_owned(), size: metadata.len() });
        return Ok(Listing { files: entry.into_iter().collect(), unread: Vec::new() });
    }
    let mut listing = Listing::default();
    let mut folders = vec![PathBuf::from(glob::fixed_folder(pattern))];
    while let Some(folder) = folders.pop() {
        let Some(entries) = looked_at(std::fs::read_dir(root.join(&folder)), &folder, &mut listing.unread)? else {
            continue;
        };
        for entry in entries {
            let Some(entry) = looked_at(entry, &folder, &mut listing.unread)? else { break };
            let path = folder.join(entry.file_name());
            let Some(kind) = looked_at(entry.file_type(), &path, &mut listing.unread)? else { continue };
            // A name that is not UTF-8 cannot be asked for.
            let Some(name) = path.to_str() else { continue };
            if kind.is_dir() {
                if glob::may_lead_to(pattern, name) {
                    folders.push(path);
                }
                continue;
            }
            if !glob::matches(pattern, name) {
                continue;
            }
            let metadata = looked_at(std::fs::metadata(root.join(&path)), &path, &mut listing.unread)?;
            if let Some(metadata) = metadata.filter(std::fs::Metadata::is_file) {
                listing.files.push(FileEntry { name: name.to_owned(), size: metadata.len() });
            }
        }
    }
    listing.files.sort();
    listing.unread.sort();
    Ok(listing)
}

/// What may not be read is left out and told, so that it does not keep the rest from being sent. What has gone since we
/// heard of it, or a link to nothing, is none of the job's files.
fn looked_at<T>(seen: io::Result<T>, path: &Path, unread: &mut Vec<String>) -> io::Result<Option<T>> {
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Ok(None),
            io::ErrorKind::PermissionDenied => {
                unread.push(path.display().to_string());
                Ok(None)
            }
            _ => Err(error),
        },
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn allow(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Lists as somebody who may not read everything, which the superuser may.
    fn as_nobody(root: &Path, pattern: &'static str) -> Listing {
        let root = root.to_owned();
        let listed = std::thread::spawn(move || {
            // For this thread alone. Whoever may not do that is not the superuser.
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65534)).ok();
            list(&root, pattern)
        });
        listed.join().unwrap().unwrap()
    }

    #[test]
    fn what_may_not_be_read_is_told_and_the_rest_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        allow(root, 0o755);
        for name in ["open", "shut", "blind"] {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join("a.out"), "12").unwrap();
        }
        std::fs::write(root.join("b.out"), "1").unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("c.out")).unwrap();
        // Its names may be read, and nothing else of what is in it.
        allow(&root.join("blind"), 0o744);
        allow(&root.join("shut"), 0o700);
        let me = rustix::process::getuid().is_root();
        let listing = if me { as_nobody(root, "**/*.out") } else { return };
        let names: Vec<&str> = listing.files.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["b.out", "open/a.out"]);
        assert_eq!(listing.unread, ["blind/a.out", "shut"]);

        // Where nothing can match nobody looks, and an exact name is not searched for.
        assert_eq!(as_nobody(root, "*.out").unread, [""; 0]);
        assert_eq!(as_nobody(root, "open/*").unread, [""; 0]);
        let exact = as_nobody(root, "open/a.out");
        assert_eq!((exact.files.len(), exact.files[0].size, exact.unread.len()), (1, 2, 0));
        assert_eq!(as_nobody(root, "shut/a.out"), Listing::default());
    }
}
