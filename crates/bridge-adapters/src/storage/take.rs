//! After a job: its outputs, read through its manager.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bridge_api::schema::MAX_SCRIPT;
use bridge_core::manager::{
    ErrorKind, FileEntry, Listing, LogCursor, LogStream, Logs, ManagerError, Outcome, ResourceManager, Tracked,
};
use bridge_core::plan::{JobPlan, ObjectRef, ScriptSource, UploadPlan};
use bridge_core::staging::{Output, StagingError, glob};
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::Semaphore;

use super::base_name;
use super::bring::of_manager;
use super::client::Store;
use super::error::{Kind, StorageError};
use super::items::{MANIFEST, SCRIPT, is_ours, object, standard_outputs};
use super::manifest::{Entry, LARGEST, Manifest};
use super::meter::Meter;
use super::send::{Content, SendError, Sent, digest};

/// The most objects of an earlier try that are looked for.
const MOST_LISTED: usize = 20_000;
/// How often an ended job's log is asked for more before it counts as read.
const LOG_PATIENCE: usize = 20;
const LOG_PAUSE: Duration = Duration::from_millis(250);
/// Files up to this size are sent several at a time: there the round trips take longer than the bytes.
const SMALL: u64 = 1024 * 1024;
const SMALL_AT_A_TIME: u32 = 4;
/// Objects in a row that the store did not take, after which it is asked whether it takes anything.
pub(super) const REFUSED_IN_A_ROW: usize = 3;

/// All that sending a job's outputs needs.
pub(super) struct Errand<'a> {
    pub(super) plan: &'a JobPlan,
    pub(super) upload: &'a UploadPlan,
    pub(super) job: &'a Tracked,
    pub(super) outcome: &'a Outcome,
    pub(super) manager: &'a dyn ResourceManager,
    pub(super) store: &'a Store,
    pub(super) meter: &'a Meter,
}

/// Something to send.
struct Item {
    name: String,
    source: Source,
    size: Option<u64>,
}

enum Source {
    Text(Bytes),
    Log(LogStream),
    File(String),
}

/// What an earlier try has left in the store.
enum There {
    /// Keys and sizes.
    Listed(BTreeMap<String, u64>),
    /// The keys may not list the bucket, or a name that someone else put there cannot be read. Each object is asked for.
    NotTold,
}

impl There {
    fn may_hold(&self, key: &str, size: Option<u64>) -> bool {
        match self {
            Self::Listed(sizes) => sizes.get(key).is_some_and(|there| size.is_none_or(|own| own == *there)),
            Self::NotTold => true,
        }
    }
}

/// What could not be sent although the store took all else.
#[derive(Default)]
pub(super) struct Trouble {
    pub(super) missing: Vec<String>,
    pub(super) reasons: Vec<String>,
    pub(super) may_pass: bool,
}

impl Trouble {
    pub(super) fn add(&mut self, name: &str, reason: String, may_pass: bool) {
        self.missing.push(name.to_owned());
        self.reasons.push(reason);
        self.may_pass |= may_pass;
    }

    /// The script beside the outputs is a copy for the reader, and keeps none of them back.
    pub(super) fn add_script(&mut self, error: &StorageError) {
        let may_pass = error.kind != Kind::Refused;
        self.add(SCRIPT, format!("the script could not be kept beside the outputs: {error}"), may_pass);
    }
}

impl Errand<'_> {
    /// Sends everything that is not there yet; the listed files may have been sent by the job itself.
    pub(super) async fn take(&self, files_are_carried: bool) -> Result<Vec<Output>, StagingError> {
        let mut trouble = Trouble::default();
        let items = self.items(&mut trouble, files_are_carried).await?;
        // The length of a log is not known before it was read; against files it hardly counts.
        let known: u64 = items.iter().filter_map(|item| item.size).sum();
        let all_files = items.iter().all(|item| item.size.is_some() || matches!(item.source, Source::Log(_)));
        self.meter.expect(items.len(), all_files.then_some(known));

        self.store.ensure_bucket(&self.upload.bucket).await.map_err(StorageError::after_job)?;
        let (there, before) = self.earlier(files_are_carried).await?;
        if files_are_carried && let Some(done) = self.done_before(&before) {
            return done;
        }
        let mut manifest = self.manifest();
        let room = Semaphore::new(SMALL_AT_A_TIME as usize);
        let deliver = |item: Item| {
            let (room, there, before) = (&room, &there, &before);
            async move {
                let is_small = item.size.is_some_and(|size| size <= SMALL);
                // Never closed, so this cannot fail; places are given in the order in which they are asked for.
                let _place = room.acquire_many(if is_small { 1 } else { SMALL_AT_A_TIME }).await.ok();
                let object = object(self.upload, &item.name);
                let delivered = self.deliver(&item, &object, there, before).await;
                (item, object, delivered)
            }
        };
        let mut refused_in_a_row = 0;
        let mut deliveries = futures::stream::iter(items).map(deliver).buffered(SMALL_AT_A_TIME as usize);
        while let Some((item, object, delivered)) = deliveries.next().await {
            // One object may be more than a quota or a proxy lets through, or under a policy of its own.
            refused_in_a_row = if matches!(delivered, Err(Failure::Store(_))) { refused_in_a_row + 1 } else { 0 };
            match delivered {
                Ok(Some((sent, is_new))) => {
                    manifest.files.push(entry(&object, &sent));
                    self.meter.file_done();
                    if is_new && !sent.in_one_piece {
                        // A large object does not carry its checksum, so that a successor learns it from here.
                        self.write(&manifest, &before).await.map_err(|error| self.so_far(error, &manifest))?;
                    }
                }
                Ok(None) => trouble.add(&item.name, self.not_written(&item, &object), false),
                Err(Failure::Item { reason, may_pass }) => trouble.add(&item.name, reason, may_pass),
                Err(Failure::Store(error)) => {
                    if refused_in_a_row >= REFUSED_IN_A_ROW {
                        if self.write(&manifest, &before).await.is_err() {
                            return Err(self.so_far(error, &manifest));
                        }
                        refused_in_a_row = 0;
                    }
                    trouble.add(&item.name, error.message, !error.is_final);
                }
            }
        }
        if files_are_carried {
            self.collect_files(&before, &mut manifest, &mut trouble).await?;
        }
        let finished = self.finish(manifest, &before, trouble).await;
        let is_over = finished.as_ref().err().is_none_or(|error| error.is_final);
        if files_are_carried && is_over {
            // Not before: without it a further try could not tell what a broken off run has left.
            self.forget_report().await;
        }
        finished
    }

    pub(super) fn manifest(&self) -> Manifest {
        let remarks = match &self.plan.script {
            ScriptSource::Object(object) => vec![format!(
                "script was read from \"{object}\" after the job had ended; if it was replaced since the job was \
                 submitted, it is not what ran"
            )],
            ScriptSource::Inline(_) | ScriptSource::Remote(_) => Vec::new(),
        };
        Manifest {
            remarks,
            job: self.plan.key.name.clone(),
            id: self.job.id.to_string(),
            token: self.job.token.to_string(),
            outcome: Some(self.outcome.clone()),
            ..Manifest::default()
        }
    }

    async fn finish(
        &self,
        mut manifest: Manifest,
        before: &Manifest,
        trouble: Trouble,
    ) -> Result<Vec<Output>, StagingError> {
        let Trouble { missing, reasons, may_pass } = trouble;
        manifest.complete = !may_pass;
        manifest.missing = missing;
        self.write(&manifest, before).await.map_err(|error| self.so_far(error, &manifest))?;
        let sent = manifest.outputs(&self.upload.bucket);
        if reasons.is_empty() {
            return Ok(sent);
        }
        let message = told(&reasons, sent.len());
        Err(StagingError { message, is_final: !may_pass, sent })
    }

    pub(super) fn so_far(&self, error: StagingError, manifest: &Manifest) -> StagingError {
        StagingError { sent: manifest.outputs(&self.upload.bucket), ..error }
    }

    pub(super) async fn write(&self, manifest: &Manifest, before: &Manifest) -> Result<(), StagingError> {
        let text = if manifest.complete {
            serde_json::to_vec_pretty(manifest)
        } else {
            serde_json::to_vec_pretty(&manifest.with_earlier(before))
        };
        let text = text.map_err(|error| StagingError::lasting(format!("manifest.json cannot be written: {error}")))?;
        self.store.put(&object(self.upload, MANIFEST), text.into(), &[]).await.map_err(StorageError::after_job)?;
        Ok(())
    }

    /// What an earlier try left.
    async fn earlier(&self, files_are_carried: bool) -> Result<(There, Manifest), StagingError> {
        let folder = ObjectRef { bucket: self.upload.bucket.clone(), key: self.upload.prefix.clone() };
        let there = match self.store.list(&folder, MOST_LISTED).await {
            Ok(sizes) => There::Listed(sizes),
            Err(error) if matches!(error.kind, Kind::Denied | Kind::Refused) => There::NotTold,
            Err(error) => return Err(error.after_job()),
        };
        if !there.may_hold(&object(self.upload, MANIFEST).key, None) {
            return Ok((there, Manifest::default()));
        }
        // Keys that may not list are told that they may not read what is not there. Where it is there, it may say that
        // all that the job itself has sent arrived, and nothing else would.
        let is_needed = files_are_carried && matches!(there, There::Listed(_));
        match self.manifest_there().await {
            Ok(manifest) => Ok((there, manifest)),
            Err(error) if error.kind == Kind::Denied && !is_needed => Ok((there, Manifest::default())),
            Err(error) => Err(error.after_job()),
        }
    }

    /// The manifest that an earlier try wrote, or nothing. One that cannot be read helps nobody; then all is sent again.
    pub(super) async fn manifest_there(&self) -> Result<Manifest, StorageError> {
        match self.store.text(&object(self.upload, MANIFEST), MANIFEST, LARGEST).await {
            Ok(text) => Ok(serde_json::from_str(&text).unwrap_or_default()),
            Err(error) if matches!(error.kind, Kind::NoObject | Kind::NoBucket | Kind::Refused) => {
                Ok(Manifest::default())
            }
            Err(error) => Err(error),
        }
    }

    /// The script, where its text is known. One that is an object is read anew: see the remark in the manifest.
    pub(super) async fn script(&self) -> Result<Option<Bytes>, StorageError> {
        match &self.plan.script {
            ScriptSource::Inline(text) => Ok(Some(Bytes::from(text.clone()))),
            ScriptSource::Remote(_) => Ok(None),
            ScriptSource::Object(object) => match self.store.text(object, SCRIPT, MAX_SCRIPT).await {
                Ok(text) => Ok(Some(Bytes::from(text))),
                // It was there when it was needed; that its owner took it away is no fault of the outputs.
                Err(error) if matches!(error.kind, Kind::NoObject | Kind::NoBucket | Kind::Refused) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    async fn items(&self, trouble: &mut Trouble, files_are_carried: bool) -> Result<Vec<Item>, StagingError> {
        let mut items = Vec::new();
        match self.script().await {
            Ok(Some(text)) => {
                let size = Some(text.len() as u64);
                items.push(Item { name: SCRIPT.to_owned(), source: Source::Text(text), size });
            }
            Ok(None) => {}
            Err(error) => trouble.add_script(&error),
        }
        if self.manager.logs().is_some() {
            for (name, stream) in standard_outputs(self.plan.target.manager) {
                items.push(Item { name: (*name).to_owned(), source: Source::Log(*stream), size: None });
            }
        }
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for listed in self.upload.files.iter().filter(|_| !files_are_carried) {
            for FileEntry { name, size } in self.matching(listed, trouble).await? {
                let base = base_name(&name).to_owned();
                let taken = names.get(&base).filter(|other| **other != name);
                if is_ours(&base) || taken.is_some() {
                    let key = object(self.upload, &base);
                    let other = taken.map_or_else(|| "an object of ours".to_owned(), |other| format!("{other:?}"));
                    let reason = format!("the file {name:?} was not sent: {other} has the name \"{key}\"; rename one");
                    trouble.add(&name, reason, false);
                } else if names.insert(base.clone(), name.clone()).is_none() {
                    let size = (size != u64::MAX).then_some(size);
                    items.push(Item { name: base, source: Source::File(name), size });
                }
            }
        }
        Ok(items)
    }

    /// The files that an entry of `s3upload.files` names; with [`u64::MAX`] for a size that is not known.
    async fn matching(&self, listed: &str, trouble: &mut Trouble) -> Result<Vec<FileEntry>, StagingError> {
        let bucket = &self.upload.bucket;
        let Some(files) = self.manager.files() else {
            let kind = self.plan.target.manager;
            let reason = format!(
                "the file {listed:?} was not sent to the bucket {bucket:?}: files of a job cannot be read on {kind}; \
                 let the job send it"
            );
            trouble.add(listed, reason, false);
            return Ok(Vec::new());
        };
        let exact = || vec![FileEntry { name: listed.to_owned(), size: u64::MAX }];
        match files.matching(self.job, listed).await {
            // Which of the listed files is missing is found when it is opened.
            Ok(Listing { files, .. }) if files.is_empty() && !glob::is_pattern(listed) => Ok(exact()),
            Ok(Listing { files, unread }) => {
                if let Some(first) = unread.first() {
                    let more = unread.len() - 1;
                    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                    let reason = format!(
                        "not all that {listed:?} stands for could be looked for: {first:?}{more} may not be read"
                    );
                    trouble.add(listed, reason, false);
                } else if files.is_empty() {
                    let reason = format!("no file matches {listed:?}, which was to be sent to the bucket {bucket:?}");
                    trouble.add(listed, reason, false);
                }
                Ok(files)
            }
            Err(error) if error.kind == ErrorKind::Unsupported && !glob::is_pattern(listed) => Ok(exact()),
            Err(error) if error.kind.is_final() => {
                trouble.add(listed, format!("the file {listed:?} was not sent: {error}"), false);
                Ok(Vec::new())
            }
            Err(error) => Err(of_manager(&error)),
        }
    }

    fn not_written(&self, item: &Item, object: &ObjectRef) -> String {
        match &item.source {
            Source::File(path) => {
                let kind = self.plan.target.manager;
                format!("the job wrote no file {path:?}, which was to be sent to \"{object}\" ({kind} knows none)")
            }
            _ => format!("there is no {}, which was to be sent to \"{object}\"", item.name),
        }
    }

    async fn open(&self, source: &Source) -> Result<Option<Content<'_>>, ManagerError> {
        match source {
            Source::Text(text) => {
                let text = text.clone();
                Ok(Some(futures::stream::once(async move { Ok(text) }).boxed()))
            }
            Source::File(name) => match self.manager.files() {
                Some(files) => files.get(self.job, name).await,
                None => Ok(None),
            },
            Source::Log(stream) => Ok(self.manager.logs().map(|logs| log(logs, self.job, *stream))),
        }
    }

    /// `None`: the job has no such output. `false`: it was there already.
    async fn deliver(
        &self,
        item: &Item,
        object: &ObjectRef,
        there: &There,
        before: &Manifest,
    ) -> Result<Option<(Sent, bool)>, Failure> {
        if there.may_hold(&object.key, item.size)
            && let Some(sent) = self.sent_before(item, object, before).await?
        {
            self.meter.add(sent.size);
            return Ok(Some((sent, false)));
        }
        let Some(content) = self.open(&item.source).await.map_err(|error| Failure::of_source(&error))? else {
            return Ok(None);
        };
        match self.store.send(object, content, item.size, self.job.token.as_str(), self.meter).await {
            Ok(sent) => Ok(Some((sent, true))),
            Err(SendError::Source(error)) => {
                let reason = format!("{} was not sent to \"{object}\": it cannot be read: {error}", item.name);
                let of_manager = error.get_ref().and_then(|inner| inner.downcast_ref::<ManagerError>());
                Err(Failure::Item { reason, may_pass: of_manager.is_none_or(|error| !error.kind.is_final()) })
            }
            Err(SendError::Store(error)) if error.kind == Kind::Refused => {
                Err(Failure::Item { reason: error.message, may_pass: false })
            }
            Err(SendError::Store(error)) => Err(Failure::Store(error.after_job())),
        }
    }

    /// What an earlier try sent, if it is what would be sent now.
    async fn sent_before(&self, item: &Item, object: &ObjectRef, before: &Manifest) -> Result<Option<Sent>, Failure> {
        let head = match self.store.head(object).await {
            Ok(Some(head)) if item.size.is_none_or(|own| own == head.size) => head,
            Ok(_) => return Ok(None),
            // The right to write may be there all the same.
            Err(error) if error.kind == Kind::Denied => return Ok(None),
            Err(error) => return Err(Failure::Store(error.after_job())),
        };
        let listed = before.checksum_of(&object.key, head.etag.as_deref()).map(str::to_owned);
        let in_one_piece = head.sha256.is_some();
        let Some(known) = head.sha256.or(listed) else { return Ok(None) };
        let Some(content) = self.open(&item.source).await.map_err(|error| Failure::of_source(&error))? else {
            return Ok(None);
        };
        let Ok((size, sha256)) = digest(content).await else { return Ok(None) };
        let same = size == head.size && sha256 == known;
        Ok(same.then_some(Sent { size, sha256, etag: head.etag, in_one_piece }))
    }
}

/// Why an output was not delivered.
enum Failure {
    /// The others may still be.
    Item { reason: String, may_pass: bool },
    /// The store is in trouble.
    Store(StagingError),
}

impl Failure {
    fn of_source(error: &ManagerError) -> Self {
        let StagingError { message, is_final, .. } = of_manager(error);
        Self::Item { reason: message, may_pass: !is_final }
    }
}

pub(super) fn entry(object: &ObjectRef, sent: &Sent) -> Entry {
    Entry {
        key: object.key.clone(),
        size: sent.size,
        checksum: format!("sha256:{}", sent.sha256),
        etag: sent.etag.clone(),
    }
}

/// The reasons that fit into a message.
pub(super) fn told(reasons: &[String], sent: usize) -> String {
    const MOST: usize = 5;
    let mut text = reasons.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
    if reasons.len() > MOST {
        let _ = write!(text, "; and {} more", reasons.len() - MOST);
    }
    format!("{text}; what else there is was sent ({sent} objects)")
}

/// An ended job's output as a stream.
fn log<'a>(logs: &'a dyn Logs, job: &'a Tracked, stream: LogStream) -> Content<'a> {
    let start = Some((LogCursor::default(), 0));
    futures::stream::try_unfold(start, move |state| async move {
        let Some((mut cursor, mut empty)) = state else { return Ok(None) };
        loop {
            let chunk = logs.read(job, stream, cursor).await.map_err(std::io::Error::other)?;
            let is_last = chunk.end || (chunk.data.is_empty() && empty >= LOG_PATIENCE);
            cursor = chunk.next;
            if !chunk.data.is_empty() {
                return Ok(Some((chunk.data, (!is_last).then_some((cursor, 0)))));
            }
            if is_last {
                return Ok(None);
            }
            // The job has ended, but its manager may be slow to say that its output has, too.
            empty += 1;
            tokio::time::sleep(LOG_PAUSE).await;
        }
    })
    .boxed()
}
