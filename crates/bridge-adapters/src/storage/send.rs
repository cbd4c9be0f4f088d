//! Sending a stream of unknown length with bounded memory.

use bridge_core::plan::ObjectRef;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{BoxStream, Fuse};
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload, UploadPart};
use sha2::{Digest, Sha256};

use super::client::{CHECKSUM, Store, TOKEN, attributes};
use super::error::{Kind, StorageError, quoted};
use super::meter::Meter;

/// Up to this size a file is sent in one piece; above, in parts of it. Two are in memory at a time.
pub(super) const PART: usize = 8 * 1024 * 1024;
/// S3 takes no more parts.
const MOST_PARTS: usize = 10_000;

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
    meter: &'a Meter,
}

impl Pieces<'_> {
    /// The next part; shorter only at the end.
    async fn part(&mut self) -> std::io::Result<Bytes> {
        let mut part = BytesMut::new();
        loop {
            let take = self.rest.len().min(PART - part.len());
            if take > 0 {
                if part.is_empty() {
                    part.reserve(if take < 64 * 1024 { take } else { PART });
                }
                let piece = self.rest.split_to(take);
                self.hash.update(&piece);
                self.size += take as u64;
                self.meter.add(take as u64);
                part.extend_from_slice(&piece);
            }
            if part.len() == PART {
                return Ok(part.freeze());
            }
            match self.content.next().await {
                Some(piece) => self.rest = piece?,
                None => return Ok(part.freeze()),
            }
        }
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
    /// Sends a stream. The store checks every part by its signature, which covers the content.
    pub(super) async fn send(
        &self,
        object: &ObjectRef,
        content: Content<'_>,
        token: &str,
        meter: &Meter,
    ) -> Result<Sent, SendError> {
        let mut pieces = Pieces { content: content.fuse(), rest: Bytes::new(), hash: Sha256::new(), size: 0, meter };
        let first = pieces.part().await.map_err(SendError::Source)?;
        if first.len() < PART {
            let sha256 = hex(&pieces.hash.finalize());
            let etag =
                self.put(object, first, &[(CHECKSUM, &sha256), (TOKEN, token)]).await.map_err(SendError::Store)?;
            return Ok(Sent { size: pieces.size, sha256, etag, in_one_piece: true });
        }
        let begin = |store: object_store::aws::AmazonS3, path| {
            let options =
                PutMultipartOptions { attributes: attributes(&[(TOKEN, token)]), ..PutMultipartOptions::default() };
            async move { store.put_multipart_opts(&path, options).await }
        };
        let mut upload = self.with_keys("writing", object, begin).await.map_err(SendError::Store)?;
        let sent = self.send_parts(object, first, &mut pieces, upload.as_mut()).await;
        match sent {
            Ok(etag) => Ok(Sent { size: pieces.size, sha256: hex(&pieces.hash.finalize()), etag, in_one_piece: false }),
            Err(error) => {
                // Parts without an end cost money; should this fail as well, a lifecycle rule of the bucket has to help.
                upload.abort().await.ok();
                Err(error)
            }
        }
    }

    async fn send_parts(
        &self,
        object: &ObjectRef,
        first: Bytes,
        pieces: &mut Pieces<'_>,
        upload: &mut dyn MultipartUpload,
    ) -> Result<Option<String>, SendError> {
        let explain = |error: object_store::Error| SendError::Store(self.explain("writing", object, &error));
        let mut under_way: UploadPart = upload.put_part(PutPayload::from_bytes(first));
        for _ in 1..MOST_PARTS {
            // The next part is read while the last one is on its way.
            let (next, sent) = futures::join!(pieces.part(), under_way);
            sent.map_err(explain)?;
            let next = next.map_err(SendError::Source)?;
            if next.is_empty() {
                return Ok(upload.complete().await.map_err(explain)?.e_tag);
            }
            under_way = upload.put_part(PutPayload::from_bytes(next));
        }
        under_way.await.map_err(explain)?;
        if pieces.part().await.map_err(SendError::Source)?.is_empty() {
            return Ok(upload.complete().await.map_err(explain)?.e_tag);
        }
        let limit = (MOST_PARTS * PART) >> 30;
        let message = format!("writing {}: the file is larger than {limit} GiB; split it", quoted(object));
        Err(SendError::Store(StorageError::new(Kind::Refused, message)))
    }
}
