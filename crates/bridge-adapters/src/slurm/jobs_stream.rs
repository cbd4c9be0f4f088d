//! Reading lists of jobs piece by piece: the answer of a busy cluster, or about a large array, has tens of megabytes, of
//! which little is wanted.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tokio::sync::mpsc;

use super::client::CallError;
use super::wire::{ApiError, JobInfo};
use crate::http::{Cause, HttpError, Reached};

/// Pieces that may wait for the parser.
const PIECES_AHEAD: usize = 8;
/// More of this than any cluster has; ends a stream that never ends.
const LARGEST: u64 = 2 * 1024 * 1024 * 1024;

/// What stands for bytes that are no text.
const REPLACEMENT: &str = "\u{fffd}";

pub(super) type Wanted = dyn Fn(&JobInfo) -> bool + Send + Sync;

/// How a job is written in a list; `None` if an entry cannot be read.
pub(super) trait Entry: DeserializeOwned + Into<Option<JobInfo>> + 'static {}

impl<E: DeserializeOwned + Into<Option<JobInfo>> + 'static> Entry for E {}

/// The wanted records of an answer, and what else it says.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) jobs: Vec<JobInfo>,
    pub(super) errors: Vec<ApiError>,
    has_jobs: bool,
}

/// The wanted records of an answer with a list of jobs.
pub(super) async fn read<E: Entry>(
    mut body: BoxStream<'static, io::Result<Bytes>>,
    place: &str,
    wanted: Arc<Wanted>,
) -> Result<List, CallError> {
    let (pieces, incoming) = mpsc::channel(PIECES_AHEAD);
    let parsing =
        tokio::task::spawn_blocking(move || parse::<E>(Pieces { incoming, current: Bytes::new() }, wanted.as_ref()));
    let mut lossy = Lossy::default();
    while let Some(piece) = body.next().await {
        if pieces.send(piece.map(|piece| lossy.next(piece))).await.is_err() {
            break;
        }
    }
    // If the parser has gone, it has its reason.
    let _ = pieces.send(Ok(lossy.rest())).await;
    drop(pieces);
    let broken = |source: Box<dyn std::error::Error + Send + Sync>| {
        CallError::Http(HttpError {
            cause: Cause::Answer,
            reached: Reached::Perhaps,
            message: format!("the answer of {place} is not a list of jobs, or it broke off"),
            source: Some(source),
        })
    };
    parsing.await.map_err(|error| broken(Box::new(error)))?.map_err(|error| broken(Box::new(error)))
}

/// Makes text of any bytes: Slurm hands on names and comments as they were given, and one job of anybody with a letter in
/// another encoding must not hide all others.
#[derive(Default)]
struct Lossy {
    /// The beginning of a letter whose end comes with the next piece.
    begun: Vec<u8>,
}

impl Lossy {
    fn next(&mut self, piece: Bytes) -> Bytes {
        if self.begun.is_empty() && std::str::from_utf8(&piece).is_ok() {
            return piece;
        }
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(&piece);
        let mut text = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, odd) = rest.split_at(error.valid_up_to());
            text.extend_from_slice(valid);
            let Some(length) = error.error_len() else {
                self.begun = odd.to_vec();
                return text.into();
            };
            text.extend_from_slice(REPLACEMENT.as_bytes());
            rest = odd.get(length..).unwrap_or_default();
        }
        text.extend_from_slice(rest);
        text.into()
    }

    fn rest(&self) -> Bytes {
        Bytes::from_static(if self.begun.is_empty() { "" } else { REPLACEMENT }.as_bytes())
    }
}

/// The pieces as a reader for the parser's thread.
struct Pieces {
    incoming: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.incoming.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.current.len());
        self.current.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}

fn parse<E: Entry>(pieces: impl Read, wanted: &Wanted) -> serde_json::Result<List> {
    let mut parser = serde_json::Deserializer::from_reader(BufReader::with_capacity(64 * 1024, pieces.take(LARGEST)));
    let list = TopLevel::<E>(wanted, PhantomData).deserialize(&mut parser)?;
    parser.end()?;
    if list.has_jobs || !list.errors.is_empty() {
        return Ok(list);
    }
    Err(serde::de::Error::missing_field("jobs"))
}

struct TopLevel<'a, E>(&'a Wanted, PhantomData<E>);

impl<'de, E: Entry> DeserializeSeed<'de> for TopLevel<'_, E> {
    type Value = List;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<List, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, E: Entry> Visitor<'de> for TopLevel<'_, E> {
    type Value = List;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of slurmrestd")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List, A::Error> {
        let mut list = List::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "jobs" => {
                    list.jobs = map.next_value_seed(Jobs::<E>(self.0, PhantomData))?;
                    list.has_jobs = true;
                }
                "errors" => list.errors = map.next_value::<Option<Vec<ApiError>>>()?.unwrap_or_default(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(list)
    }
}

struct Jobs<'a, E>(&'a Wanted, PhantomData<E>);

impl<'de, E: Entry> DeserializeSeed<'de> for Jobs<'_, E> {
    type Value = Vec<JobInfo>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<JobInfo>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, E: Entry> Visitor<'de> for Jobs<'_, E> {
    type Value = Vec<JobInfo>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of jobs")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<JobInfo>, A::Error> {
        let mut jobs = Vec::new();
        while let Some(entry) = list.next_element::<E>()? {
            jobs.extend(entry.into().filter(|job| (self.0)(job)));
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn of(pieces: &[&str]) -> Result<Vec<i64>, CallError> {
        let pieces: Vec<io::Result<Bytes>> = pieces.iter().map(|piece| Ok(Bytes::from((*piece).to_owned()))).collect();
        let body = futures::stream::iter(pieces).boxed();
        let list = read::<JobInfo>(body, "here", Arc::new(|job: &JobInfo| job.job_id.0 != Some(2))).await?;
        assert!(list.errors.is_empty());
        Ok(list.jobs.into_iter().filter_map(|job| job.job_id.0).collect())
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_hide_no_job_however_the_pieces_fall() {
        let mut text = b"{\"jobs\": [{\"job_id\": 1, \"name\": \"caf\xe9\"}, {\"job_id\": 3, \"name\": \"\xf0\x9f\x92\xa7\xc3\xa9\xe2\x82\"}], ".to_vec();
        text.extend_from_slice(b"\"last_update\": \"\xff\"}");
        for size in [1, 2, 3, 7, text.len()] {
            let pieces: Vec<io::Result<Bytes>> =
                text.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let pieces = futures::stream::iter(pieces).boxed();
            let list = read::<JobInfo>(pieces, "here", Arc::new(|_: &JobInfo| true)).await.unwrap();
            let names: Vec<&str> = list.jobs.iter().map(|job| job.name.0.as_str()).collect();
            assert_eq!(names, ["caf\u{fffd}", "\u{1f4a7}\u{e9}\u{fffd}"], "in pieces of {size}");
        }
        let broken: Vec<io::Result<Bytes>> = vec![Ok(Bytes::from_static(b"{\"jobs\": []}\xe2"))];
        let broken = futures::stream::iter(broken).boxed();
        assert!(read::<JobInfo>(broken, "here", Arc::new(|_: &JobInfo| true)).await.is_err());
    }

    #[tokio::test]
    async fn only_the_wanted_records_are_kept_however_the_pieces_fall() {
        let text = r#"{"meta": {"x": [1]}, "errors": [], "jobs": [{"job_id": 1, "y": {"z": 2}}, {"job_id": 2}, {"job_id": 3}]}"#;
        assert_eq!(of(&[text]).await.unwrap(), [1, 3]);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(of(&letters).await.unwrap(), [1, 3]);
        assert_eq!(of(&[r#"{"jobs": [], "errors": null}"#]).await.unwrap(), [0; 0]);
    }

    #[tokio::test]
    async fn half_an_answer_is_none_and_errors_are_told() {
        for text in [r#"{"jobs": [{"job_id": 1}"#, "", "no json", r#"{"meta": {}}"#, r#"{"jobs": 5}"#, "[]"] {
            assert!(of(&[text]).await.is_err(), "{text}");
        }
        for text in [r#"{"jobs": [], "errors": [{"error": "bad day"}]}"#, r#"{"errors": [{"error": "bad day"}]}"#] {
            let body = futures::stream::iter([Ok(Bytes::from_static(text.as_bytes()))]).boxed();
            let list = read::<JobInfo>(body, "here", Arc::new(|_: &JobInfo| true)).await.unwrap();
            assert_eq!(list.errors.first().map(ApiError::text).as_deref(), Some("bad day"));
        }
    }
}
