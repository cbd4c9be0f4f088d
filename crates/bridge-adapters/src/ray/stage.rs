//! Inputs of jobs that are not submitted yet. Ray takes files only as one package, so they wait in memory, within bounds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_core::ids::SubmitToken;
use bridge_core::manager::{ByteStream, ErrorKind, ManagerError};
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::Instant;

use super::package::Entry;
use super::{MANAGER, entrypoint};

/// Inputs of a job that was never submitted, e.g. because it was deleted, make room after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);

/// Inputs by job.
#[derive(Debug)]
pub(super) struct Stage {
    most_of_one: usize,
    most_of_all: usize,
    jobs: Mutex<BTreeMap<SubmitToken, Staged>>,
    /// Bytes of files that are being read.
    arriving: AtomicUsize,
}

/// The bytes of one file that is being read.
struct Arriving<'a> {
    stage: &'a Stage,
    token: &'a SubmitToken,
    own: usize,
}

impl<'a> Arriving<'a> {
    fn begin(stage: &'a Stage, token: &'a SubmitToken) -> Self {
        stage.lock().entry(token.clone()).or_insert_with(Staged::new).arriving += 1;
        Self { stage, token, own: 0 }
    }

    fn add(&mut self, length: usize) {
        self.own += length;
        self.stage.arriving.fetch_add(length, Ordering::Relaxed);
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.stage.arriving.fetch_sub(self.own, Ordering::Relaxed);
        let mut jobs = self.stage.lock();
        let Some(job) = jobs.get_mut(self.token) else { return };
        job.arriving = job.arriving.saturating_sub(1);
        if job.arriving == 0 && job.files.is_empty() {
            jobs.remove(self.token);
        }
    }
}

#[derive(Debug)]
struct Staged {
    files: BTreeMap<String, Vec<Bytes>>,
    touched: Instant,
    /// Files that are being read.
    arriving: usize,
    /// There was no room for one of its files. Jobs that kept the others until there is would wait for each other, so
    /// none is kept, and none is taken before all that are being read have ended.
    turned_away: bool,
}

fn size(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

impl Staged {
    fn new() -> Self {
        Self { files: BTreeMap::new(), touched: Instant::now(), arriving: 0, turned_away: false }
    }

    fn size(&self) -> usize {
        self.files.values().map(|pieces| size(pieces)).sum()
    }
}

impl Stage {
    pub(super) fn new(most_of_one: usize, most_of_all: usize) -> Self {
        Self { most_of_one, most_of_all, jobs: Mutex::default(), arriving: AtomicUsize::new(0) }
    }

    /// Reads a file to its end and keeps it for the job.
    pub(super) async fn put(
        &self,
        token: &SubmitToken,
        name: &str,
        mut content: ByteStream,
    ) -> Result<u64, ManagerError> {
        let trouble = |kind, message| ManagerError::new(MANAGER, "put", kind, message);
        check_name(name).map_err(|message| trouble(ErrorKind::Refused, message))?;
        let mut pieces = Vec::new();
        let mut arriving = Arriving::begin(self, token);
        while let Some(piece) = content.next().await {
            let piece = piece.map_err(|error| {
                trouble(ErrorKind::Unreachable, format!("the input {name:?} could not be read to its end"))
                    .with_source(error)
            })?;
            arriving.add(piece.len());
            self.room(token, name, arriving.own)?;
            // A small piece may be a view into a large buffer, which it would keep alive.
            pieces.push(Bytes::copy_from_slice(&piece));
        }
        let mut jobs = self.lock();
        let job = jobs.entry(token.clone()).or_insert_with(Staged::new);
        if job.turned_away {
            return Err(self.no_room(name));
        }
        job.files.insert(name.to_owned(), pieces);
        job.touched = Instant::now();
        Ok(u64::try_from(arriving.own).unwrap_or(u64::MAX))
    }

    /// Whether a file that has grown to this length still fits, instead of an older one of its name.
    fn room(&self, token: &SubmitToken, name: &str, length: usize) -> Result<(), ManagerError> {
        let trouble = |kind, message| Err(ManagerError::new(MANAGER, "put", kind, message));
        let mut jobs = self.lock();
        let own = jobs.get(token).map_or(0, |job| {
            job.files.iter().filter(|(other, _)| *other != name).map(|(_, pieces)| size(pieces)).sum::<usize>()
        });
        if own + length > self.most_of_one {
            let limit = self.most_of_one / (1024 * 1024);
            let message = format!(
                "the inputs of this job are larger than {limit} MiB with {name:?}, the most that can be shipped to Ray; \
                 let the script fetch large data itself"
            );
            return trouble(ErrorKind::Refused, message);
        }
        let total = |jobs: &BTreeMap<SubmitToken, Staged>| {
            let others = jobs.iter().filter(|(other, _)| *other != token).map(|(_, job)| job.size()).sum::<usize>();
            others + own + self.arriving.load(Ordering::Relaxed)
        };
        if total(&jobs) > self.most_of_all {
            jobs.retain(|_, job| job.arriving > 0 || job.touched.elapsed() < FORGOTTEN_AFTER);
        }
        if total(&jobs) > self.most_of_all {
            if let Some(job) = jobs.get_mut(token) {
                job.files.clear();
                job.turned_away = true;
            }
            return Err(self.no_room(name));
        }
        Ok(())
    }

    fn no_room(&self, name: &str) -> ManagerError {
        let limit = self.most_of_all / (1024 * 1024);
        let message = format!(
            "{limit} MiB of inputs wait for their submission already; {name:?} is taken when there is room, with all \
             others of its job"
        );
        ManagerError::new(MANAGER, "put", ErrorKind::RateLimited, message)
    }

    /// The inputs of a job; the name of one that is not there.
    pub(super) fn entries(&self, token: &SubmitToken, names: &[String]) -> Result<Vec<Entry>, String> {
        let mut jobs = self.lock();
        let files = jobs.get_mut(token).map(|job| {
            // A submission that is tried again and again is not forgotten.
            job.touched = Instant::now();
            &job.files
        });
        let entry = |name: &String| {
            let content = files.and_then(|files| files.get(name)).ok_or_else(|| name.clone())?;
            Ok(Entry { name: name.clone(), content: content.clone() })
        };
        names.iter().map(entry).collect()
    }

    /// Forgets the inputs of a job that has arrived.
    pub(super) fn drop(&self, token: &SubmitToken) {
        self.lock().remove(token);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SubmitToken, Staged>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file's name stays inside the working folder and is not the script's.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let inside = !name.contains(['\0', '\\']) && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !inside {
        return Err(format!(
            "the file name {name:?} leads out of the job's folder; write a name without \"..\" and leading \"/\""
        ));
    }
    if name == entrypoint::SCRIPT_NAME {
        return Err(format!("the input {name:?} has the name that the script gets; rename it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(pieces: &[&'static str]) -> ByteStream {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        futures::stream::iter(pieces).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn inputs_are_bounded_for_one_job_and_for_all() {
        let stage = Stage::new(10, 15);
        let (one, other) = (SubmitToken::derive("one", 1), SubmitToken::derive("other", 1));
        assert_eq!(stage.put(&one, "a", content(&["12345", "6789"])).await.unwrap(), 9);
        let error = stage.put(&one, "b", content(&["12"])).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert_eq!(stage.put(&one, "a", content(&["1234567890"])).await.unwrap(), 10, "it replaces the older one");
        let error = stage.put(&other, "b", content(&["123456"])).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RateLimited, "{error}");
        assert_eq!(stage.entries(&one, &["a".to_owned()]).unwrap()[0].content.concat(), b"1234567890");
        assert_eq!(stage.entries(&other, &["b".to_owned()]).unwrap_err(), "b");

        tokio::time::advance(FORGOTTEN_AFTER).await;
        stage.put(&other, "b", content(&["123456"])).await.unwrap();
        assert!(stage.entries(&one, &["a".to_owned()]).is_err(), "forgotten for lack of room");
        stage.drop(&other);
        assert!(stage.entries(&other, &["b".to_owned()]).is_err());
    }

    /// Each has half of what it needs and there is no room for the other half of any.
    #[tokio::test]
    async fn jobs_that_wait_for_room_do_not_wait_for_each_other() {
        let stage = Stage::new(32, 64);
        let mut waiting: Vec<_> = (1..=4).map(|number| SubmitToken::derive("job", number)).collect();
        for token in &waiting {
            stage.put(token, "a", content(&["123456789012"])).await.unwrap();
        }
        let mut names = ["b"].as_slice();
        for _ in 0..4 {
            let mut still = Vec::new();
            for token in waiting {
                let mut turned_away = None;
                for name in names {
                    let text = if *name == "a" { "123456789012" } else { "12345678901234567890" };
                    turned_away = turned_away.or(stage.put(&token, name, content(&[text])).await.err());
                }
                let Some(error) = turned_away else {
                    stage.drop(&token);
                    continue;
                };
                assert_eq!(error.kind, ErrorKind::RateLimited, "{error}");
                assert!(stage.entries(&token, &["a".to_owned()]).is_err(), "it waits with empty hands");
                still.push(token);
            }
            (waiting, names) = (still, &["a", "b"]);
        }
        assert!(waiting.is_empty(), "{waiting:?}");
    }

    #[tokio::test]
    async fn what_arrives_beside_a_file_without_room_is_not_kept_either() {
        let stage = Stage::new(32, 40);
        let (other, token) = (SubmitToken::derive("other", 1), SubmitToken::derive("job", 1));
        stage.put(&other, "all", content(&["12345678901234567890"])).await.unwrap();
        let (ready, gate) = tokio::sync::oneshot::channel();
        let slow = futures::stream::once(async {
            gate.await.ok();
            Ok(Bytes::from_static(b"slow"))
        });
        let slow = stage.put(&token, "slow", slow.boxed());
        let large = async {
            let turned_away = stage.put(&token, "large", content(&["1234567890123456789012345"])).await;
            ready.send(()).ok();
            turned_away
        };
        let (slow, large) = tokio::join!(slow, large);
        assert_eq!(large.unwrap_err().kind, ErrorKind::RateLimited);
        assert_eq!(slow.unwrap_err().kind, ErrorKind::RateLimited);
        assert!(stage.entries(&token, &["slow".to_owned()]).is_err());
        stage.put(&token, "slow", content(&["slow"])).await.expect("a new try is taken");
    }

    #[tokio::test]
    async fn a_file_that_breaks_off_leaves_the_older_one() {
        let stage = Stage::new(100, 100);
        let token = SubmitToken::derive("one", 1);
        stage.put(&token, "a", content(&["whole"])).await.unwrap();
        let broken = futures::stream::iter([Ok(Bytes::from_static(b"ha")), Err(std::io::Error::other("gone"))]).boxed();
        assert_eq!(stage.put(&token, "a", broken).await.unwrap_err().kind, ErrorKind::Unreachable);
        assert_eq!(stage.entries(&token, &["a".to_owned()]).unwrap()[0].content.concat(), b"whole");
    }

    #[test]
    fn names_stay_inside() {
        for name in ["a", "a/b", "ä №.txt", "..a", "a..b/c"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "../a", "/a", "a/", "a//b", "a/../b", "a\0b", "a\\..\\b", "script.py"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
