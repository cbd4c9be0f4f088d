//! Data that takes long to move is seen moving, and moves once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bridge_core::clock::SystemClock;
use bridge_core::driver::{Driver, Leaving, NewJob, Observer};
use bridge_core::ids::{JobKey, RemoteId, SubmitToken};
use bridge_core::manager::{
    Facts, Found, Guarantee, Limits, Outcome, Preview, ResourceManager, Result, Sighting, SubmitError, Submitted,
    Tracked, Verdict,
};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, Submission, Target, TextSource, UploadPlan};
use bridge_core::record::JobRecord;
use bridge_core::staging::{Output, Progress, Staging, StagingError, submission_without_objects};
use bridge_core::state::{Rules, Wishes};
use bridge_core::store::MemStore;
use tokio::sync::mpsc;

/// Ends each job at once.
#[derive(Debug)]
pub(crate) struct Quick;

#[async_trait]
impl ResourceManager for Quick {
    fn limits(&self) -> Limits {
        Limits { poll_batch: 10, concurrent_submits: 1 }
    }
    fn guarantee(&self) -> Guarantee {
        Guarantee::OwnKey
    }
    fn preview(&self, _: &Submission) -> Result<Preview> {
        unimplemented!()
    }
    async fn submit(&self, job: &Submission) -> std::result::Result<Submitted, SubmitError> {
        Ok(RemoteId::new(job.token.as_str()).into())
    }
    async fn find(&self, _: &SubmitToken, _: jiff::Timestamp) -> Result<Found> {
        Ok(Found::Absent)
    }
    async fn poll(&self, jobs: &[Tracked]) -> Result<BTreeMap<RemoteId, Sighting>> {
        let outcome = Outcome {
            verdict: Verdict::Succeeded,
            exit_code: Some(0),
            signal: None,
            reason: "DONE".to_owned(),
            message: String::new(),
        };
        Ok(jobs.iter().map(|job| (job.id.clone(), Sighting::Ended(outcome.clone(), Facts::default()))).collect())
    }
    async fn cancel(&self, _: &Tracked) -> Result<()> {
        Ok(())
    }
}

/// Takes 35 seconds each way.
#[derive(Debug, Default)]
struct Slow {
    begun: AtomicU64,
    moved: AtomicU64,
}

impl Slow {
    async fn go(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.moved.store(0, Ordering::Relaxed);
        for _ in 0..35 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Staging for Slow {
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        _: &dyn ResourceManager,
    ) -> std::result::Result<Submission, StagingError> {
        self.go().await;
        submission_without_objects(plan, token).ok_or_else(|| StagingError::lasting("no"))
    }
    async fn stage_out(
        &self,
        _: &JobPlan,
        _: &SubmitToken,
        _: &RemoteId,
        _: &Outcome,
        _: &dyn ResourceManager,
    ) -> std::result::Result<Vec<Output>, StagingError> {
        self.go().await;
        Ok(Vec::new())
    }
    fn progress(&self, _: &JobKey) -> Option<Progress> {
        Some(Progress { bytes: self.moved.load(Ordering::Relaxed), total: Some(35), files: 0, of: 1 })
    }
}

pub(crate) struct Tell(pub(crate) mpsc::UnboundedSender<Option<JobRecord>>);

impl Observer for Tell {
    fn saved(&self, _: &JobKey, record: &JobRecord) {
        let _ = self.0.send(Some(record.clone()));
    }
    fn left(&self, _: &JobKey, _: &Leaving) {
        let _ = self.0.send(None);
    }
    fn stumbled(&self, _: &JobKey, _: &str) {}
}

/// A job with outputs whose staging is the given one.
pub(crate) fn job(staging: Arc<dyn Staging>) -> NewJob {
    let plan = JobPlan {
        key: JobKey::new("", "hello"),
        uid: "abc".to_owned(),
        target: Target { manager: ManagerKind::Local, url: "local:".to_owned(), secret: None },
        poll_seconds: 1,
        script: ScriptSource::Inline("#!/bin/sh\n".to_owned()),
        metadata: TextSource::Inline(String::new()),
        parameters: TextSource::Inline(String::new()),
        inputs: Vec::new(),
        properties: BTreeMap::new(),
        storage: None,
        upload: Some(UploadPlan { bucket: "b".to_owned(), prefix: "hello".to_owned(), files: Vec::new() }),
        notes: Vec::new(),
    };
    let rules = Rules { stages_in: true, stages_out: true, ..Rules::plain(Guarantee::OwnKey, Duration::from_secs(1)) };
    NewJob {
        plan: Arc::new(plan),
        rules,
        wishes: Wishes::default(),
        manager: Arc::new(Quick),
        staging,
        store: Arc::new(MemStore::default()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_stage_tells_how_far_it_is_and_is_not_begun_again() {
    let (sender, mut told) = mpsc::unbounded_channel();
    let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), "one", Arc::new(Tell(sender)));
    let running = tokio::spawn(driver.run());
    let staging = Arc::new(Slow::default());
    let job = job(Arc::clone(&staging) as Arc<dyn Staging>);
    handle.add(job).await.unwrap();
    let mut progress = Vec::new();
    let mut last = None;
    while let Some(Some(record)) = told.recv().await {
        if !record.progress.is_empty() {
            progress.push(record.progress.clone());
        }
        last = Some(record);
    }
    assert!(last.unwrap().progress.is_empty());
    assert_eq!(staging.begun.load(Ordering::Relaxed), 2, "in and out, once each");
    let percents: Vec<&str> = progress.iter().filter_map(|text| text.split_once('(')).map(|(_, rest)| rest).collect();
    assert_eq!(percents.len(), 6, "every 10 of 35 seconds, each way: {progress:?}");
    handle.stop();
    running.await.unwrap();
}
