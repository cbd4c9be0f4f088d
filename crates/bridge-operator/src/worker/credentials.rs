//! Credentials from a mounted Secret; the kubelet brings changes to the files, so they are read each time.

use std::path::PathBuf;

use async_trait::async_trait;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials};

/// A folder with a file for each key.
#[derive(Debug, Clone)]
pub struct MountedSecret {
    folder: PathBuf,
}

impl MountedSecret {
    /// The Secret that is mounted there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }
}

#[async_trait]
impl CredentialSource for MountedSecret {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let wrong = |error: std::io::Error| {
            CredentialError(format!("the Secret mounted at {} could not be read: {error}", self.folder.display()))
        };
        let mut entries = tokio::fs::read_dir(&self.folder).await.map_err(wrong)?;
        let mut pairs = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(wrong)? {
            let Ok(name) = entry.file_name().into_string() else { continue };
            // The kubelet keeps the real files in folders that begin so, and swaps a link.
            if name.starts_with("..") {
                continue;
            }
            match tokio::fs::read_to_string(entry.path()).await {
                Ok(text) => pairs.push((name, text)),
                // A key that is no text, or that went away between the two looks, is none we could use.
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::InvalidData
                            | std::io::ErrorKind::NotFound
                            | std::io::ErrorKind::IsADirectory
                    ) => {}
                Err(error) => return Err(wrong(error)),
            }
        }
        Ok(Credentials::from_pairs(pairs))
    }
}
