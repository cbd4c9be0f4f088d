//! Outputs that cannot be sent: tried again with growing pauses, for an hour.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_api::JobStatus;
use bridge_core::clock::SystemClock;
use bridge_core::driver::Driver;
use bridge_core::ids::{RemoteId, SubmitToken};
use bridge_core::manager::{Outcome, ResourceManager};
use bridge_core::plan::{JobPlan, Submission};
use bridge_core::record::JobState;
use bridge_core::staging::{Output, Staging, StagingError, submission_without_objects};
use bridge_core::status::StatusView;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::progress::{Tell, job};

/// A store that is away until a moment, if there is one.
#[derive(Debug)]
struct Away {
    until: Option<Instant>,
    tries: Mutex<Vec<Instant>>,
}

impl Away {
    fn for_time(time: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { until: time.map(|time| Instant::now() + time), tries: Mutex::default() })
    }

    fn pauses(&self) -> Vec<Duration> {
        self.tries.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

fn sent(key: &str) -> Output {
    Output { bucket: "b".to_owned(), key: key.to_owned(), size: 1, checksum: "sha256:00".to_owned() }
}

#[async_trait]
impl Staging for Away {
    async fn stage_in(
        &self,
        plan: &JobPlan,
        token: &SubmitToken,
        _: &dyn ResourceManager,
    ) -> Result<Submission, StagingError> {
        submission_without_objects(plan, token).ok_or_else(|| StagingError::lasting("no"))
    }
    async fn stage_out(
        &self,
        _: &JobPlan,
        _: &SubmitToken,
        _: &RemoteId,
        _: &Outcome,
        _: &dyn ResourceManager,
    ) -> Result<Vec<Output>, StagingError> {
        self.tries.lock().unwrap().push(Instant::now());
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Ok(vec![sent("hello/script"), sent("hello/stdout")]);
        }
        let why = if self.tries.lock().unwrap().len() < 10 { "away" } else { "denied" };
        let message = format!("writing \"b:hello/stdout\": {why}");
        Err(StagingError { sent: vec![sent("hello/script")], ..StagingError::passing(message) })
    }
}

/// All that was told of a job until its end.
async fn life(staging: &Arc<Away>) -> Vec<StatusView> {
    let (sender, mut told) = mpsc::unbounded_channel();
    let (driver, handle) = Driver::new(Arc::new(SystemClock::new()), "one", Arc::new(Tell(sender)));
    let running = tokio::spawn(driver.run());
    handle.add(job(Arc::clone(staging) as Arc<dyn Staging>)).await.unwrap();
    let mut views = Vec::new();
    while let Some(Some(record)) = told.recv().await {
        views.push(StatusView::of(&record));
        if let JobState::Finished { .. } = record.state {
            let outputs = record.outputs.as_ref().unwrap();
            assert_eq!(
                (outputs.staged, outputs.files.len()),
                (staging.until.is_some(), if outputs.staged { 2 } else { 1 })
            );
            assert_eq!(outputs.message.contains("b:hello/stdout"), !outputs.staged);
        }
    }
    handle.stop();
    running.await.unwrap();
    views
}

#[tokio::test(start_paused = true)]
async fn outputs_that_cannot_be_sent_are_tried_for_an_hour_and_then_the_job_has_its_own_outcome() {
    let away = Away::for_time(None);
    let begin = Instant::now();
    let views = life(&away).await;
    let took = begin.elapsed();
    assert!((3600..3700).contains(&took.as_secs()), "{took:?}");
    let pauses = away.pauses();
    assert!(pauses[..5].windows(2).all(|pair| pair[1] > pair[0]), "they grow: {pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(61)), "up to a minute: {pauses:?}");
    let told = |why: &str| views.iter().any(|view| view.status == JobStatus::Running && view.message.ends_with(why));
    assert!(told("\": away") && told("\": denied"), "the newest reason is told");
    let waiting = views.iter().find(|view| view.reason == "StageOutFailed").unwrap();
    assert_eq!(waiting.status, JobStatus::Running);
    assert!(waiting.message.contains("sending its outputs; since ") && waiting.message.contains("b:hello/stdout"));
    assert!(views.len() < 15, "what does not change is not written: {}", views.len());
    let last = views.last().unwrap();
    assert_eq!((last.status, last.exit_code), (JobStatus::Done, Some(0)));
    assert!(last.message.contains("its outputs were not sent: writing \"b:hello/stdout\""), "{}", last.message);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_gets_the_outputs() {
    let away = Away::for_time(Some(Duration::from_secs(300)));
    let views = life(&away).await;
    let last = views.last().unwrap();
    assert_eq!(last.status, JobStatus::Done);
    assert!(!last.message.contains("not sent"), "{}", last.message);
}
