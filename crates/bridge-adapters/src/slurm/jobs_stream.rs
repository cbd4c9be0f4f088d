//! Reading `GET /jobs` piece by piece: a busy cluster's answer has tens of megabytes, of which few records are wanted.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tokio::sync::mpsc;

use super::classify::{Trouble, What};
use super::client::CallError;
use super::wire::{ApiError, JobInfo};
use crate::http::{Cause, HttpError, Reached};
use bridge_core::manager::ErrorKind;

/// Pieces that may wait for the parser.
const PIECES_AHEAD: usize = 8;
/// More of this than any cluster has; ends a stream that never ends.
const LARGEST: u64 = 2 * 1024 * 1024 * 1024;

/// What stands for bytes that are no text.
const REPLACEMENT: &str = "\u{fffd}";

type Wanted = dyn Fn(&JobInfo) -> bool + Send + Sync;

/// The wanted records of an answer to `GET /jobs`.
pub(super) async fn read(
    mut body: BoxStream<'static, io::Result<Bytes>>,
    place: &str,
    wanted: Arc<Wanted>,
) -> Result<Vec<JobInfo>, CallError> {
    let (pieces, incoming) = mpsc::channel(PIECES_AHEAD);
    let parsing =
        tokio::task::spawn_blocking(move || parse(Pieces { incoming, current: Bytes::new() }, wanted.as_ref()));
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
    let list = parsing.await.map_err(|error| broken(Box::new(error)))?.map_err(|error| broken(Box::new(error)))?;
    match list.errors.first() {
        None => Ok(list.jobs),
        Some(error) => Err(CallError::Trouble(Trouble {
            what: What::Other(ErrorKind::Unreachable),
            surely_not_done: false,
            message: format!("{place} answered 200 with an error: {}", super::map::bounded(&error.text())),
            retry_after: None,
        })),
    }
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

#[derive(Default)]
struct List {
    jobs: Vec<JobInfo>,
    errors: Vec<ApiError>,
    has_jobs: bool,
}

fn parse(pieces: impl Read, wanted: &Wanted) -> serde_json::Result<List> {
    let mut parser = serde_json::Deserializer::from_reader(BufReader::with_capacity(64 * 1024, pieces.take(LARGEST)));
    let list = TopLevel(wanted).deserialize(&mut parser)?;
    parser.end()?;
    if list.has_jobs || !list.errors.is_empty() {
        return Ok(list);
    }
    Err(serde::de::Error::missing_field("jobs"))
}

struct TopLevel<'a>(&'a Wanted);

impl<'de> DeserializeSeed<'de> for TopLevel<'_> {
    type Value = List;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<List, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = List;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of slurmrestd")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List, A::Error> {
        let mut list = List::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "jobs" => {
                    list.jobs = map.next_value_seed(Jobs(self.0))?;
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

struct Jobs<'a>(&'a Wanted);

impl<'de> DeserializeSeed<'de> for Jobs<'_> {
    type Value = Vec<JobInfo>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<JobInfo>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Jobs<'_> {
    type Value = Vec<JobInfo>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of jobs")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<JobInfo>, A::Error> {
        let mut jobs = Vec::new();
        while let Some(job) = list.next_element::<JobInfo>()? {
            if (self.0)(&job) {
                jobs.push(job);
            }
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
        let jobs = read(body, "here", Arc::new(|job: &JobInfo| job.job_id.0 != Some(2))).await?;
        Ok(jobs.into_iter().filter_map(|job| job.job_id.0).collect())
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_hide_no_job_however_the_pieces_fall() {
        let mut text = b"{\"jobs\": [{\"job_id\": 1, \"name\": \"caf\xe9\"}, {\"job_id\": 3, \"name\": \"\xf0\x9f\x92\xa7\xc3\xa9\xe2\x82\"}], ".to_vec();
        text.extend_from_slice(b"\"last_update\": \"\xff\"}");
        for size in [1, 2, 3, 7, text.len()] {
            let pieces: Vec<io::Result<Bytes>> =
                text.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let jobs = read(futures::stream::iter(pieces).boxed(), "here", Arc::new(|_: &JobInfo| true)).await.unwrap();
            let names: Vec<&str> = jobs.iter().map(|job| job.name.0.as_str()).collect();
            assert_eq!(names, ["caf\u{fffd}", "\u{1f4a7}\u{e9}\u{fffd}"], "in pieces of {size}");
        }
        let broken: Vec<io::Result<Bytes>> = vec![Ok(Bytes::from_static(b"{\"jobs\": []}\xe2"))];
        assert!(read(futures::stream::iter(broken).boxed(), "here", Arc::new(|_: &JobInfo| true)).await.is_err());
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
    async fn half_an_answer_or_one_with_errors_is_none() {
        for text in [r#"{"jobs": [{"job_id": 1}"#, "", "no json", r#"{"meta": {}}"#, r#"{"jobs": 5}"#, "[]"] {
            assert!(of(&[text]).await.is_err(), "{text}");
        }
        let error = of(&[r#"{"jobs": [], "errors": [{"error": "bad day", "errno": -1}]}"#]).await.unwrap_err();
        assert!(matches!(error, CallError::Trouble(trouble) if trouble.message.contains("bad day")));
    }
}
