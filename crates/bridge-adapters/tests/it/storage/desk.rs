//! A manager whose jobs' files are what a test puts there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{
    ByteStream, ErrorKind, FileEntry, Files, Found, Guarantee, Limits, Listing, LogChunk, LogCursor, LogStream, Logs,
    ManagerError, Preview, ResourceManager, Result, Sighting, SubmitError, Submitted, Tracked,
};
use bridge_core::plan::Submission;
use bridge_core::staging::glob;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

/// Files and outputs of one job.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) files: BTreeMap<String, Bytes>,
    /// Folders that may not be looked into.
    pub(super) unread: Vec<String>,
    pub(super) stdout: Bytes,
    pub(super) stderr: Bytes,
    /// Why the outputs cannot be read.
    pub(super) unreadable: Option<ErrorKind>,
    /// What was put.
    pub(super) inputs: Mutex<BTreeMap<String, Bytes>>,
    /// A file that does not go on before a permit is given.
    pub(super) stuck: Option<(String, Arc<Semaphore>)>,
}

const PIECE: usize = 64 * 1024;

#[async_trait]
impl ResourceManager for Desk {
    fn limits(&self) -> Limits {
        Limits { poll_batch: 1, concurrent_submits: 1 }
    }
    fn guarantee(&self) -> Guarantee {
        Guarantee::OwnKey
    }
    fn preview(&self, _: &Submission) -> Result<Preview> {
        unimplemented!()
    }
    async fn submit(&self, _: &Submission) -> std::result::Result<Submitted, SubmitError> {
        unimplemented!()
    }
    async fn find(&self, _: &SubmitToken, _: jiff::Timestamp) -> Result<Found> {
        unimplemented!()
    }
    async fn poll(&self, _: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        unimplemented!()
    }
    async fn cancel(&self, _: &Tracked) -> Result<()> {
        unimplemented!()
    }
    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }
    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }
}

#[async_trait]
impl Logs for Desk {
    async fn read(&self, _: &Tracked, stream: LogStream, cursor: LogCursor) -> Result<LogChunk> {
        if let Some(kind) = self.unreadable {
            return Err(ManagerError::new("desk", "logs", kind, "it is not text"));
        }
        let text = if stream == LogStream::Stdout { &self.stdout } else { &self.stderr };
        let from = usize::try_from(cursor.0).unwrap().min(text.len());
        let to = (from + PIECE).min(text.len());
        Ok(LogChunk { data: text.slice(from..to), next: LogCursor(to as u64), end: to == text.len() })
    }
}

#[async_trait]
impl Files for Desk {
    async fn put(&self, _: &SubmitToken, name: &str, mut content: ByteStream) -> Result<u64> {
        let mut begun = None;
        if let Some((_, gate)) = self.stuck.as_ref().filter(|(stuck, _)| stuck == name) {
            begun = content.next().await;
            drop(gate.acquire().await);
        }
        let pieces: Vec<Bytes> = futures::stream::iter(begun)
            .chain(content)
            .try_collect()
            .await
            .map_err(|error| ManagerError::new("desk", "put", ErrorKind::Unreachable, error.to_string()))?;
        let content = Bytes::from(pieces.concat());
        let size = content.len() as u64;
        self.inputs.lock().unwrap().insert(name.to_owned(), content);
        Ok(size)
    }

    async fn get(&self, _: &Tracked, name: &str) -> Result<Option<ByteStream>> {
        let Some(content) = self.files.get(name).cloned() else { return Ok(None) };
        let stuck = self.stuck.clone().filter(|(stuck, _)| stuck == name);
        let pieces = futures::stream::unfold((content, stuck), async |(mut rest, stuck)| {
            if rest.is_empty() {
                return None;
            }
            if let Some((_, gate)) = &stuck {
                drop(gate.acquire().await);
            }
            let piece = rest.split_to(PIECE.min(rest.len()));
            Some((Ok(piece), (rest, stuck)))
        });
        Ok(Some(pieces.boxed()))
    }

    async fn matching(&self, _: &Tracked, pattern: &str) -> Result<Listing> {
        let matching = self.files.iter().filter(|(name, _)| glob::matches(pattern, name));
        let entry = |(name, content): (&String, &Bytes)| FileEntry { name: name.clone(), size: content.len() as u64 };
        let unread = self.unread.iter().filter(|_| glob::is_pattern(pattern)).cloned().collect();
        Ok(Listing { files: matching.map(entry).collect(), unread })
    }
}
