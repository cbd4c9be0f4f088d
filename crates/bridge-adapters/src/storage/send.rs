//! Sending a stream of unknown length with bounded memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_core::plan::ObjectRef;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{BoxStream, Fuse};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{MultipartId, PutMultipartOptions, PutPayload};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use super::client::{CHECKSUM, Store, TOKEN, attributes};
use super::error::{Kind, StorageError, WRITING, is_denied, quoted};
use super::keys::Keys;
use super::meter::Meter;

const MIB: usize = 1024 * 1024;
/// Up to this size a file is sent in one piece.
const WHOLE: usize = 8 * MIB;
/// S3 takes no more parts.
const MOST_PARTS: usize = 10_000;
/// All parts that are in memory at a time: one is read while two are on their way.
const BUDGET: usize = 15 * MIB;
/// S3 takes none that are smaller than the first; of the second there is room for one.
const PARTS: [usize; 2] = [5 * MIB, BUDGET];

/// The size of a file's parts: small, so that three are in memory at a time, if that is enough for all of it.
fn part_size(size: Option<u64>) -> usize {
    let [small, large] = PARTS;
    let fits = |size: u64| size.div_ceil(small as u64) <= MOST_PARTS as u64;
    if size.is_some_and(fits) { small } else { large }
}

/// What is sent, in pieces.
pub(super) type Content<'a> = BoxStream<'a, std::io::Result<Bytes>>;

/// Something that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) size: u64,
    /// Hexadecimal.
    pub(super) sha256: String,
    pub(super) etag: Option<String>,
    /// It carries its own checksum.
    pub(super) in_one_piece: bool,
}

/// Why a stream was not sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// It could not be read to its end.
    Source(std::io::Error),
    /// The store did not take it.
    Store(StorageError),
}

struct Pieces<'a> {
    content: Fuse<Content<'a>>,
    /// What was read beyond the end of a part.
    rest: Bytes,
    hash: Sha256,
    size: u64,
    part: usize,
    meter: &'a Meter,
}

impl Pieces<'_> {
    /// The next part, in memory that is free again; shorter only at the end.
    async fn part(&mut self, mut part: BytesMut) -> std::io::Result<Bytes> {
        part.clear();
        loop {
            let take = self.rest.len().min(self.part - part.len());
            if take > 0 {
                if part.is_empty() {
                    // Most files are small.
                    part.reserve(if take < 64 * 1024 { take } else { self.part });
                }
                let piece = self.rest.split_to(take);
                self.hash.update(&piece);
                self.size += take as u64;
                self.meter.add(take as u64);
                part.extend_from_slice(&piece);
            }
            if part.len() == self.part {
                return Ok(part.freeze());
            }
            match self.content.next().await {
                Some(piece) => self.rest = piece?,
                None => return Ok(part.freeze()),
            }
        }
    }

    /// The first parts: as many as tell whether all of it is one piece. `true`: it is.
    async fn begin(&mut self) -> std::io::Result<(Vec<Bytes>, bool)> {
        let (mut parts, mut length) = (Vec::new(), 0);
        while length <= WHOLE {
            let part = self.part(BytesMut::new()).await?;
            length += part.len();
            let is_last = part.len() < self.part;
            parts.push(part);
            if is_last {
                break;
            }
        }
        Ok((parts, length <= WHOLE))
    }
}

/// An upload in parts that the store knows.
struct Upload {
    store: AmazonS3,
    path: Path,
    id: MultipartId,
    keys: Arc<Keys>,
}

impl Upload {
    async fn put(&self, number: usize, part: &Bytes) -> object_store::Result<PartId> {
        let put = || self.store.put_part(&self.path, &self.id, number, PutPayload::from_bytes(part.clone()));
        self.keys.renewing(is_denied, put).await
    }

    /// Makes an object of all parts. Returns its tag.
    async fn complete(&self, parts: Vec<PartId>) -> object_store::Result<Option<String>> {
        let complete = || self.store.complete_multipart(&self.path, &self.id, parts.clone());
        Ok(self.keys.renewing(is_denied, complete).await?.e_tag)
    }
}

/// Parts on their way, and the memory of those that have arrived. All end when this is dropped.
struct UnderWay {
    upload: Arc<Upload>,
    tasks: JoinSet<object_store::Result<(usize, PartId, Bytes)>>,
    count: usize,
    arrived: BTreeMap<usize, PartId>,
    free: Vec<BytesMut>,
}

impl UnderWay {
    fn new(upload: Arc<Upload>) -> Self {
        Self { upload, tasks: JoinSet::new(), count: 0, arrived: BTreeMap::new(), free: Vec::new() }
    }

    /// Begins to send a part; the task makes its signature beside the reading of the next.
    fn send(&mut self, part: Bytes) {
        let (upload, number) = (Arc::clone(&self.upload), self.count);
        self.count += 1;
        self.tasks.spawn(async move { upload.put(number, &part).await.map(|id| (number, id, part)) });
    }

    /// Waits until fewer than `most` are on their way.
    async fn below(&mut self, most: usize) -> object_store::Result<()> {
        while self.tasks.len() >= most {
            match self.tasks.join_next().await {
                Some(Ok(sent)) => {
                    let (number, id, part) = sent?;
                    self.arrived.insert(number, id);
                    self.free.extend(part.try_into_mut());
                }
                Some(Err(lost)) => {
                    return Err(object_store::Error::Generic { store: "S3", source: Box::new(lost) });
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Waits for all.
    async fn complete(mut self) -> object_store::Result<Option<String>> {
        self.below(1).await?;
        self.upload.complete(self.arrived.into_values().collect()).await
    }
}

/// The checksum of a stream.
pub(super) async fn digest(mut content: Content<'_>) -> std::io::Result<(u64, String)> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    while let Some(piece) = content.next().await {
        let piece = piece?;
        hash.update(&piece);
        size += piece.len() as u64;
    }
    Ok((size, hex(&hash.finalize())))
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Store {
    /// Sends a stream, whose length may be known. The store checks every part by its signature, which covers the
    /// content.
    pub(super) async fn send(
        &self,
        object: &ObjectRef,
        content: Content<'_>,
        length: Option<u64>,
        token: &str,
        meter: &Meter,
    ) -> Result<Sent, SendError> {
        let (content, part) = (content.fuse(), part_size(length));
        let mut pieces = Pieces { content, rest: Bytes::new(), hash: Sha256::new(), size: 0, part, meter };
        let (first, is_all) = pieces.begin().await.map_err(SendError::Source)?;
        if is_all {
            let sha256 = hex(&pieces.hash.finalize());
            let payload = PutPayload::from_iter(first);
            let etag =
                self.put(object, payload, &[(CHECKSUM, &sha256), (TOKEN, token)]).await.map_err(SendError::Store)?;
            return Ok(Sent { size: pieces.size, sha256, etag, in_one_piece: true });
        }
        let begin = |store: AmazonS3, path: Path| {
            let options =
                PutMultipartOptions { attributes: attributes(&[(TOKEN, token)]), ..PutMultipartOptions::default() };
            async move { store.create_multipart_opts(&path, options).await.map(|id| (store, path, id)) }
        };
        let (store, path, id) = self.with_keys(WRITING, object, begin).await.map_err(SendError::Store)?;
        let upload = Arc::new(Upload { store, path, id, keys: Arc::clone(self.keys()) });
        let sent = self.send_parts(object, first, &mut pieces, &upload).await;
        match sent {
            Ok(etag) => Ok(Sent { size: pieces.size, sha256: hex(&pieces.hash.finalize()), etag, in_one_piece: false }),
            Err(error) => {
                // Parts without an end cost money; should this fail as well, a lifecycle rule of the bucket has to help.
                upload.store.abort_multipart(&upload.path, &upload.id).await.ok();
                Err(error)
            }
        }
    }

    async fn send_parts(
        &self,
        object: &ObjectRef,
        first: Vec<Bytes>,
        pieces: &mut Pieces<'_>,
        upload: &Arc<Upload>,
    ) -> Result<Option<String>, SendError> {
        let explain = |error: object_store::Error| SendError::Store(self.explain(WRITING, object, &error));
        let at_a_time = BUDGET / pieces.part;
        let mut under_way = UnderWay::new(Arc::clone(upload));
        for part in first {
            under_way.send(part);
        }
        loop {
            under_way.below(at_a_time).await.map_err(explain)?;
            let part = pieces.part(under_way.free.pop().unwrap_or_default()).await.map_err(SendError::Source)?;
            if part.is_empty() {
                return under_way.complete().await.map_err(explain);
            }
            if under_way.count == MOST_PARTS {
                let limit = (MOST_PARTS * pieces.part) >> 30;
                let message = format!("writing {}: the file is larger than {limit} GiB; split it", quoted(object));
                return Err(SendError::Store(StorageError::new(Kind::Refused, message)));
            }
            under_way.send(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_small_as_the_file_allows() {
        const GIB: u64 = 1 << 30;
        for (size, part) in [
            (None, 15),
            (Some(0), 5),
            (Some(48 * GIB), 5),
            (Some(50_000 * MIB as u64), 5),
            (Some(50_000 * MIB as u64 + 1), 15),
            (Some(u64::MAX), 15),
        ] {
            assert_eq!(part_size(size), part * MIB, "{size:?}");
        }
        assert!(PARTS.iter().all(|part| *part >= 5 * MIB && *part <= BUDGET));
    }
}
