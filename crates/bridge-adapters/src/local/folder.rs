//! Files that are there as a whole or not at all, also after a crash.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a file of ours; `None` if it is not there.
pub(super) fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    let path = folder.join(name);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        // A folder in the place of a folder's parent is as absent as no folder.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))),
    };
    let value = serde_json::from_slice(&bytes).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged: {error}", path.display()))
    })?;
    Ok(Some(value))
}

/// Writes a file, in place of an older one.
pub(super) fn write_json<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<()> {
    let draft = write_draft(folder, name, value)?;
    std::fs::rename(draft, folder.join(name))?;
    sync_folder(folder)
}

/// Writes a file unless there is one. Returns whether it was this call that made it; of several at once, one is told so.
pub(super) fn make_once<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<bool> {
    let draft = write_draft(folder, name, value)?;
    let linked = std::fs::hard_link(&draft, folder.join(name));
    std::fs::remove_file(&draft).ok();
    match linked {
        Ok(()) => sync_folder(folder).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the names in a folder last.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn write_draft<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<std::path::PathBuf> {
    let draft = folder.join(format!("{name}.{}", unique()));
    let mut file = File::create_new(&draft)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    Ok(draft)
}

/// A name that no other process or thread uses.
pub(super) fn unique() -> String {
    use std::hash::BuildHasher;
    format!("{}-{:016x}", std::process::id(), std::hash::RandomState::new().hash_one(std::thread::current().id()))
}
