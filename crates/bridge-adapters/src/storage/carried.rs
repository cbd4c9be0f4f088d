//! After a job that moved its data itself: what arrived, compared with what the job tells.

use std::time::Duration;

use bridge_core::ids::SubmitToken;
use bridge_core::manager::{Outcome, Verdict};
use bridge_core::plan::ObjectRef;
use bridge_core::staging::{OutgoingSource, Output, StagingError};
use futures::StreamExt;

use super::bring::carried;
use super::error::{Kind, StorageError};
use super::items::{REPORT_FOLDER, SCRIPT, object};
use super::manifest::{Entry, Manifest};
use super::send::{SendError, Sent, digest};
use super::take::{Errand, REFUSED_IN_A_ROW, Trouble, entry, told};
use crate::carrying::sha256_in_hex;

/// How long a job that was cancelled may still be sending; Slurm gives it 30 seconds by default.
const GRACE: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Up to this size an object is read back and compared, above its size is.
const READ_BACK: u64 = 64 * 1024 * 1024;
/// A line for each output, and names are bounded.
const LARGEST_REPORT: usize = 4 * 1024 * 1024;

/// Accounts of earlier attempts that are removed: a job that was held back and let go many times has had many.
const MOST_EARLIER: usize = 100;

/// What a job tells about one output.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    /// It was sent; the checksum may be unknown.
    Sent { size: u64, sha256: Option<String> },
    /// There is no such file.
    Missing,
    /// It was there before the job, which did not touch it.
    Stale,
    /// It is in another output already.
    Merged,
    /// It is larger than what can be sent.
    TooLarge(u64),
    /// The store or the network did not take it.
    Failed(String),
}

/// The job's own account.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    lines: Vec<(String, Told)>,
    /// The code with which the job was about to end; known when it has told everything.
    end: Option<i32>,
}

/// Of which run an account is. Slurm runs a job again under the same id when its node fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// The last, as far as can be told, and it told everything.
    Whole,
    /// It was cut off.
    BrokenOff,
    /// One before the last: it ended with another code than the job.
    Earlier,
}

impl Report {
    fn read(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            let told = match words.next() {
                Some("end") => {
                    report.end = words.next().and_then(|word| word.parse().ok());
                    continue;
                }
                Some("sent") => {
                    let size = words.next().and_then(|word| word.parse().ok());
                    let sha256 = words.next().and_then(sha256_in_hex);
                    size.map(|size| Told::Sent { size, sha256 })
                }
                Some("missing") => words.nth(1).map(|_| Told::Missing),
                Some("stale") => words.nth(1).map(|_| Told::Stale),
                Some("merged") => words.nth(1).map(|_| Told::Merged),
                Some("large") => words.next().and_then(|word| word.parse().ok()).map(|size| {
                    words.next();
                    Told::TooLarge(size)
                }),
                Some("failed") => words.next().map(|why| {
                    words.next();
                    Told::Failed(why.chars().take(40).collect())
                }),
                _ => None,
            };
            if let (Some(told), Some(name)) = (told, words.next()) {
                report.lines.push((name.to_owned(), told));
            }
        }
        report
    }

    fn run(&self, outcome: &Outcome) -> Run {
        match (self.end, code_of(outcome)) {
            (None, _) => Run::BrokenOff,
            (Some(told), Some(code)) if told != code => Run::Earlier,
            (Some(_), _) => Run::Whole,
        }
    }

    fn of(&self, name: &str) -> Option<&Told> {
        self.lines.iter().rev().find(|(own, _)| own == name).map(|(_, told)| told)
    }
}

/// The code of the job's own process. What a manager tells of a job that it ended itself is not that.
fn code_of(outcome: &Outcome) -> Option<i32> {
    let ended_by_itself = outcome.verdict != Verdict::Cancelled && outcome.signal.is_none();
    outcome.exit_code.filter(|_| ended_by_itself)
}

impl Errand<'_> {
    /// Looks what the job has sent, and adds what only we have.
    pub(super) async fn collect(&self) -> Result<Vec<Output>, StagingError> {
        let report = self.report().await?;
        let before = match self.manifest_there().await {
            Ok(before) => before,
            // With an account it is not needed.
            Err(_) if report.is_some() => Manifest::default(),
            Err(error) => return Err(error.after_job()),
        };
        if report.is_none()
            && let Some(done) = self.done_before(&before)
        {
            return done;
        }
        let outputs = carried(self.upload, false);
        self.meter.expect(outputs.len() + 1, None);

        let (mut manifest, mut trouble) = (self.manifest(), Trouble::default());
        match self.send_script().await {
            Ok(sent) => manifest.files.extend(sent),
            Err(error) => trouble.add_script(&error),
        }
        self.all_arrived(outputs, report.as_ref(), &before, &mut manifest, &mut trouble).await?;
        self.close(manifest, &before, trouble, report.as_ref()).await
    }

    async fn send_script(&self) -> Result<Option<Entry>, StorageError> {
        let Some(text) = self.script().await? else { return Ok(None) };
        self.store.ensure_bucket(&self.upload.bucket).await?;
        let script = object(self.upload, SCRIPT);
        let length = Some(text.len() as u64);
        let content = futures::stream::once(async move { Ok(text) }).boxed();
        match self.store.send(&script, content, length, self.job.token.as_str(), self.meter).await {
            Ok(sent) => Ok(Some(entry(&script, &sent))),
            Err(SendError::Store(error)) => Err(error),
            Err(SendError::Source(error)) => Err(StorageError::new(Kind::Passing, error.to_string())),
        }
    }

    /// All that an earlier process has found and written down, before it could save that it had. The job's own account
    /// is gone then.
    pub(super) fn done_before(&self, before: &Manifest) -> Option<Result<Vec<Output>, StagingError>> {
        if before.token != self.job.token.as_str() || !before.complete {
            return None;
        }
        let sent = before.outputs(&self.upload.bucket);
        if before.missing.is_empty() {
            return Some(Ok(sent));
        }
        let missing = |name: &String| format!("{name:?} did not come to \"{}\"", object(self.upload, name));
        let reasons: Vec<String> = before.missing.iter().map(missing).collect();
        Some(Err(StagingError { message: told(&reasons, sent.len()), is_final: true, sent }))
    }

    /// Looks which listed files the job has sent.
    pub(super) async fn collect_files(
        &self,
        before: &Manifest,
        manifest: &mut Manifest,
        trouble: &mut Trouble,
    ) -> Result<(), StagingError> {
        let report = self.report().await.map_err(|error| self.so_far(error, manifest))?;
        self.all_arrived(carried(self.upload, true), report.as_ref(), before, manifest, trouble).await
    }

    /// Its content is in the manifest now, and nobody reads those of earlier attempts; that one could not be removed
    /// harms nobody.
    pub(super) async fn forget_report(&self) {
        let earlier = self.job.token.earlier().take(MOST_EARLIER);
        for token in std::iter::once(self.job.token.clone()).chain(earlier) {
            if self.store.delete(&self.report_object(&token)).await.is_err() {
                break;
            }
        }
    }

    fn report_object(&self, token: &SubmitToken) -> ObjectRef {
        object(self.upload, &format!("{REPORT_FOLDER}/{token}"))
    }

    async fn all_arrived(
        &self,
        outputs: Vec<(String, OutgoingSource)>,
        report: Option<&Report>,
        before: &Manifest,
        manifest: &mut Manifest,
        trouble: &mut Trouble,
    ) -> Result<(), StagingError> {
        let mut refused_in_a_row = 0;
        for (name, source) in outputs {
            let object = object(self.upload, &name);
            let told = report.and_then(|report| report.of(&name));
            let arrived = match self.arrived(&object, told, before).await {
                Ok(arrived) => arrived,
                // One object may be under a policy of its own, and keeps back none of the others.
                Err(error) => {
                    refused_in_a_row += 1;
                    if refused_in_a_row >= REFUSED_IN_A_ROW {
                        if self.write(manifest, before).await.is_err() {
                            return Err(self.so_far(error, manifest));
                        }
                        refused_in_a_row = 0;
                    }
                    trouble.add(&name, error.message, !error.is_final);
                    continue;
                }
            };
            refused_in_a_row = 0;
            match arrived {
                Ok(Some(sent)) => {
                    manifest.files.push(entry(&object, &sent));
                    let is_of_another_run = report.is_some_and(|report| match report.run(self.outcome) {
                        Run::Whole => false,
                        Run::BrokenOff => told.is_none(),
                        Run::Earlier => true,
                    });
                    if is_of_another_run {
                        let why = format!("\"{object}\" is there, but may be of a run that was broken off before");
                        trouble.add(&name, why, false);
                    }
                }
                Ok(None) => {}
                Err(why) => {
                    let what = match &source {
                        OutgoingSource::Stdout => "standard output".to_owned(),
                        OutgoingSource::Stderr => "standard error".to_owned(),
                        OutgoingSource::File(path) => format!("the file {path:?}"),
                    };
                    trouble.add(&name, format!("{what} did not come to \"{object}\": {why}"), false);
                }
            }
            self.meter.file_done();
        }
        Ok(())
    }

    async fn close(
        &self,
        mut manifest: Manifest,
        before: &Manifest,
        trouble: Trouble,
        report: Option<&Report>,
    ) -> Result<Vec<Output>, StagingError> {
        let Trouble { missing, mut reasons, may_pass } = trouble;
        manifest.complete = !may_pass;
        manifest.missing = missing;
        self.write(&manifest, before).await.map_err(|error| self.so_far(error, &manifest))?;
        if !may_pass {
            self.forget_report().await;
        }
        let sent = manifest.outputs(&self.upload.bucket);
        if reasons.is_empty() {
            return Ok(sent);
        }
        let first = match report.map(|report| report.run(self.outcome)) {
            None => Some("the job reported nothing: it never started, or its nodes cannot reach the store"),
            Some(Run::BrokenOff) => Some("the job was ended before it had sent everything"),
            Some(Run::Earlier) => {
                Some("what the job reported ends with another exit code than the job: an earlier run did")
            }
            Some(Run::Whole) => None,
        };
        reasons.splice(..0, first.map(str::to_owned));
        Err(StagingError { message: told(&reasons, sent.len()), is_final: !may_pass, sent })
    }

    /// The job's account, whole if it becomes so in time; `None` if it never began one.
    async fn report(&self) -> Result<Option<Report>, StagingError> {
        let object = self.report_object(&self.job.token);
        let give_up = tokio::time::Instant::now() + GRACE;
        loop {
            let report = match self.store.text(&object, "the report", LARGEST_REPORT).await {
                // As it was before the job.
                Ok(text) if text.is_empty() => return Ok(None),
                Ok(text) => Report::read(&text),
                Err(error) if matches!(error.kind, Kind::NoObject | Kind::NoBucket) => return Ok(None),
                Err(error) => return Err(error.after_job()),
            };
            if report.run(self.outcome) == Run::Whole || tokio::time::Instant::now() >= give_up {
                return Ok(Some(report));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What is there of one output: sent, left out for a reason of its own, or why not.
    async fn arrived(
        &self,
        object: &ObjectRef,
        told: Option<&Told>,
        before: &Manifest,
    ) -> Result<Result<Option<Sent>, String>, StagingError> {
        let (size, known) = match told {
            Some(Told::Missing) => return Ok(Err("the job did not write it".to_owned())),
            Some(Told::Stale) => {
                let why = "it was there before the job started, and the job did not write it; give each job a folder of its own";
                return Ok(Err(why.to_owned()));
            }
            Some(Told::Merged) => return Ok(Ok(None)),
            Some(Told::TooLarge(size)) => {
                return Ok(Err(format!("it has {size} bytes, and a job can send 5 GiB at most; split it")));
            }
            Some(Told::Failed(why)) => return Ok(Err(format!("the job could not send it ({why})"))),
            Some(Told::Sent { size, sha256 }) => (Some(*size), sha256.clone()),
            None => (None, None),
        };
        let head = self.store.sure_head(object).await.map_err(StorageError::after_job)?;
        let Some(head) = head.filter(|head| head.token.as_deref() == Some(self.job.token.as_str())) else {
            return Ok(Err("it is not there".to_owned()));
        };
        if size.is_some_and(|size| size != head.size) {
            return Ok(Err(format!("{} bytes arrived, but the job sent {}", head.size, size.unwrap_or_default())));
        }
        let compared = before.checksum_of(&object.key, head.etag.as_deref());
        let compared = compared.filter(|_| before.token == self.job.token.as_str());
        let sha256 = match (known, compared) {
            (Some(known), _) if head.size > READ_BACK => known,
            // An earlier try has read it, and it is the same object still.
            (known, Some(compared)) if known.as_ref().is_none_or(|known| known == compared) => compared.to_owned(),
            (known, _) => {
                let (_, content) = self.store.get(object).await.map_err(StorageError::after_job)?;
                let (_, sha256) = digest(content).await.map_err(|error| StagingError::passing(error.to_string()))?;
                if known.is_some_and(|known| known != sha256) {
                    return Ok(Err("what arrived has another checksum than what the job sent".to_owned()));
                }
                sha256
            }
        };
        self.meter.add(head.size);
        Ok(Ok(Some(Sent { size: head.size, sha256, etag: head.etag, in_one_piece: true })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_line_by_line() {
        let sum = "a".repeat(64);
        let text = format!(
            "start\nsent 12 {sum} stdout\nmerged - - stderr\nsent 5 - ä file.txt\nmissing - - gone\nstale - - older\n\
             large 6000000000 - big\nfailed curl-22 - odd name\nnonsense\nsent x y z\nend 3\n"
        );
        let report = Report::read(&text);
        assert_eq!(report.end, Some(3));
        assert_eq!(report.of("stdout"), Some(&Told::Sent { size: 12, sha256: Some(sum) }));
        assert_eq!(report.of("stderr"), Some(&Told::Merged));
        assert_eq!(report.of("ä file.txt"), Some(&Told::Sent { size: 5, sha256: None }));
        assert_eq!(report.of("gone"), Some(&Told::Missing));
        assert_eq!(report.of("big"), Some(&Told::TooLarge(6_000_000_000)));
        assert_eq!(report.of("odd name"), Some(&Told::Failed("curl-22".to_owned())));
        assert_eq!(report.of("z"), None);
        assert_eq!(report.of("older"), Some(&Told::Stale));
        assert_eq!(Report::read("start\n").end, None);
    }

    #[test]
    fn an_account_that_ends_otherwise_than_the_job_is_of_an_earlier_run() {
        let ended = |verdict, exit_code, signal| Outcome {
            verdict,
            exit_code,
            signal,
            reason: String::new(),
            message: String::new(),
        };
        let whole = Report::read("start\nend 0\n");
        assert_eq!(whole.run(&ended(Verdict::Succeeded, Some(0), None)), Run::Whole);
        assert_eq!(whole.run(&ended(Verdict::Failed, Some(4), None)), Run::Earlier);
        // Not every manager tells a code, and one that ended a job tells its own.
        for outcome in [
            ended(Verdict::Failed, None, None),
            ended(Verdict::Failed, Some(1), Some(9)),
            ended(Verdict::Cancelled, Some(143), None),
        ] {
            assert_eq!(whole.run(&outcome), Run::Whole, "{outcome:?}");
        }
        assert_eq!(Report::read("start\n").run(&ended(Verdict::Failed, Some(1), None)), Run::BrokenOff);
    }
}
