//! Data of jobs on a real Slurm and a real Ray.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bridge_adapters::ray::{Config, RayManager};
use bridge_adapters::slurm::{Slurm, SlurmConfig};
use bridge_adapters::storage::S3Staging;
use bridge_core::clock::SystemClock;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials, StaticCredentials};
use bridge_core::driver::{Driver, DriverHandle, Leaving, NewJob, Observer};
use bridge_core::ids::JobKey;
use bridge_core::manager::{Guarantee, ResourceManager};
use bridge_core::plan::{JobPlan, ManagerKind, ScriptSource, SecretRef, StoragePlan, Target, TextSource, UploadPlan};
use bridge_core::record::{JobRecord, JobState};
use bridge_core::state::{Rules, Tuning, Wishes};
use bridge_core::status::StatusView;
use bridge_core::store::MemStore;
use bridge_testkit::lab::{self, Lab, S3};
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::object;

/// Nothing that is waited for takes longer, also on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// Keys of the lab's store. Their session token ends soon after each reading, until someone sees to it that it does not.
#[derive(Debug)]
struct ShortLived {
    pairs: Vec<(String, String)>,
    is_renewed: AtomicBool,
    last_end: Mutex<Timestamp>,
}

#[async_trait]
impl CredentialSource for ShortLived {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let seconds = if self.is_renewed.load(Ordering::Relaxed) { 3600 } else { 10 };
        let end = Timestamp::now() + SignedDuration::from_secs(seconds);
        *self.last_end.lock().unwrap() = end;
        let more = [("sessiontoken".to_owned(), "temporary".to_owned()), ("expiration".to_owned(), end.to_string())];
        Ok(Credentials::from_pairs(self.pairs.iter().cloned().chain(more)))
    }
}

fn pairs(s3: &S3) -> Vec<(String, String)> {
    let keys = [("accesskey", s3.keys.access_key.as_str()), ("secretkey", s3.keys.secret_key.expose_secret())];
    keys.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()
}

fn keys_of(s3: &S3) -> Arc<dyn CredentialSource> {
    Arc::new(StaticCredentials(Credentials::from_pairs(pairs(s3))))
}

/// Records of all jobs as they change.
struct Tell {
    jobs: Mutex<BTreeMap<JobKey, JobRecord>>,
    ended: mpsc::UnboundedSender<JobKey>,
}

impl Observer for Tell {
    fn saved(&self, key: &JobKey, record: &JobRecord) {
        self.jobs.lock().unwrap().insert(key.clone(), record.clone());
        if matches!(record.state, JobState::Finished { .. }) {
            self.ended.send(key.clone()).ok();
        }
    }
    fn left(&self, _: &JobKey, _: &Leaving) {}
    fn stumbled(&self, _: &JobKey, _: &str) {}
}

/// Drives jobs of one manager with one store.
struct Site {
    s3: S3,
    manager: Arc<dyn ResourceManager>,
    url: String,
    kind: ManagerKind,
    handle: DriverHandle,
    tell: Arc<Tell>,
    ended: mpsc::UnboundedReceiver<JobKey>,
}

impl Site {
    fn new(s3: S3, kind: ManagerKind, url: &str, manager: Arc<dyn ResourceManager>) -> Self {
        let (sender, ended) = mpsc::unbounded_channel();
        let tell = Arc::new(Tell { jobs: Mutex::default(), ended: sender });
        let (driver, handle) =
            Driver::new(Arc::new(SystemClock::new()), "test", Arc::clone(&tell) as Arc<dyn Observer>);
        tokio::spawn(driver.run());
        Self { s3, manager, url: url.to_owned(), kind, handle, tell, ended }
    }

    async fn ray(lab: &Lab) -> Self {
        let (ray, s3) = (lab.ray().await.unwrap(), lab.s3().await.unwrap());
        let url = ray.url.as_str().trim_end_matches('/').to_owned();
        let login = [("token".to_owned(), ray.token.expose_secret().to_owned())];
        let login = Arc::new(StaticCredentials(Credentials::from_pairs(login)));
        let manager = Arc::new(RayManager::new(Config::new(&url), login).unwrap());
        Self::new(s3, ManagerKind::Ray, &url, manager)
    }

    async fn slurm(lab: &Lab) -> (Self, lab::Slurm) {
        let (slurm, s3) = (lab.slurm().await.unwrap(), lab.s3().await.unwrap());
        let token = slurm.token(1200).await.unwrap();
        let login =
            [("username".to_owned(), slurm.user.clone()), ("token".to_owned(), token.expose_secret().to_owned())];
        let url = slurm.url.as_str().trim_end_matches('/').to_owned();
        let login = Arc::new(StaticCredentials(Credentials::from_pairs(login)));
        let manager = Slurm::new(SlurmConfig::new(&url), login, Arc::new(SystemClock::new())).unwrap();
        (Self::new(s3, ManagerKind::Slurm, &url, Arc::new(manager)), slurm)
    }

    fn plan(&self, name: &str, script: &str, properties: Value, files: &[&str]) -> JobPlan {
        let Value::Object(properties) = properties else { panic!("a map of properties") };
        JobPlan {
            key: JobKey::new("", name),
            uid: lab::unique(name).replace(|letter: char| !letter.is_ascii_alphanumeric(), ""),
            target: Target { manager: self.kind, url: self.url.clone(), secret: None },
            poll_seconds: 1,
            script: ScriptSource::Inline(script.to_owned()),
            metadata: TextSource::Inline(String::new()),
            parameters: TextSource::Inline(String::new()),
            inputs: Vec::new(),
            properties: properties.into_iter().collect(),
            storage: Some(StoragePlan {
                secret: SecretRef("s3-keys".to_owned()),
                endpoint: self.s3.endpoint.trim_start_matches("http://").to_owned(),
                secure: false,
                region: None,
                virtual_host: false,
                remote_endpoint: None,
            }),
            upload: Some(UploadPlan {
                bucket: self.s3.bucket.clone(),
                prefix: name.to_owned(),
                files: files.iter().map(|file| (*file).to_owned()).collect(),
            }),
            notes: Vec::new(),
        }
    }

    async fn add(&self, plan: JobPlan, keys: Arc<dyn CredentialSource>, backoff_limit: u32) {
        let rules = Rules {
            guarantee: self.manager.guarantee(),
            can_hold: self.manager.hold().is_some(),
            stages_in: true,
            stages_out: true,
            backoff_limit,
            deadline: None,
            poll_interval: Duration::from_millis(500),
            tuning: Tuning { attempt_pause: Duration::from_secs(1), ..Tuning::default() },
        };
        assert!(matches!(rules.guarantee, Guarantee::TwoPhase | Guarantee::OwnKey));
        let job = NewJob {
            plan: Arc::new(plan),
            rules,
            wishes: Wishes::default(),
            manager: Arc::clone(&self.manager),
            staging: Arc::new(S3Staging::new(keys, Arc::new(SystemClock::new()))),
            store: Arc::new(MemStore::default()),
        };
        self.handle.add(job).await.unwrap();
    }

    /// The id of a job's attempt, when it waits in its queue.
    async fn queued(&self, name: &str, attempt: u32) -> String {
        let key = JobKey::new("", name);
        let look = || match self.tell.jobs.lock().unwrap().get(&key) {
            Some(JobRecord { attempt: now, state: JobState::Active { id, .. }, .. }) if *now == attempt => {
                Some(id.to_string())
            }
            _ => None,
        };
        until(&format!("attempt {attempt} of {name}"), look).await
    }

    /// The ends of so many jobs, by name.
    async fn ends(&mut self, count: usize) -> BTreeMap<String, JobRecord> {
        for _ in 0..count {
            let ended = tokio::time::timeout(PATIENCE, self.ended.recv()).await;
            assert!(ended.is_ok(), "{:#?}", self.tell.jobs.lock().unwrap());
        }
        let jobs = self.tell.jobs.lock().unwrap();
        jobs.iter().map(|(key, record)| (key.name.clone(), record.clone())).collect()
    }

    fn stored(&self, key: &str) -> String {
        std::fs::read_to_string(self.s3.object_path(key)).unwrap_or_else(|error| panic!("{key}: {error}"))
    }
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// A job with this `begin` waits until the test lets it go, however slow everything else is.
fn later() -> String {
    (Timestamp::now() + SignedDuration::from_hours(2)).to_string()
}

async fn let_go(slurm: &lab::Slurm, id: &str) {
    slurm.exec(&["scontrol", "update", &format!("jobid={id}"), "starttime=now"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_that_ended_before_a_real_job_began_are_made_anew_by_the_next_attempt() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let (mut site, slurm) = Site::slurm(lab).await;
    let keys = Arc::new(ShortLived {
        pairs: pairs(&site.s3),
        is_renewed: AtomicBool::new(false),
        last_end: Mutex::new(Timestamp::now()),
    });
    let properties = json!({ "currentWorkingDir": slurm.home, "begin": later() });
    let plan = site.plan("expires", "#!/bin/sh\necho ran\necho result > result\n", properties, &["result"]);
    site.add(plan, Arc::clone(&keys) as Arc<dyn CredentialSource>, 1).await;
    // The first attempt begins when its URLs have ended, the second long before.
    let first = site.queued("expires", 1).await;
    keys.is_renewed.store(true, Ordering::Relaxed);
    let end = *keys.last_end.lock().unwrap();
    until("the end of the token", || (Timestamp::now() > end).then_some(())).await;
    let_go(&slurm, &first).await;
    let second = site.queued("expires", 2).await;
    let_go(&slurm, &second).await;
    let record = site.ends(1).await.remove("expires").unwrap();
    let first = format!("{:?}", record.past);
    assert!(first.contains("StageInExpired") && first.contains("113"), "{first}");
    let view = StatusView::of(&record);
    assert_eq!((view.status, record.attempt), (bridge_api::JobStatus::Done, 2), "{view:?}");
    let outputs = record.outputs.unwrap();
    // Slurm writes output and error to one file, which is sent once.
    assert_eq!((outputs.staged, outputs.total), (true, 3), "{outputs:?}");
    assert_eq!(
        (site.stored("expires/stdout"), site.stored("expires/result")),
        ("ran\n".to_owned(), "result\n".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_real_job_from_its_data_is_its_reason() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let (mut site, slurm) = Site::slurm(lab).await;
    let home = slurm.home.to_str().unwrap();
    let script = "#!/bin/sh\necho ran > ran\n";

    // Neither client: the shell's own programs only.
    let path = slurm.home.join("bin");
    std::fs::create_dir(&path).unwrap();
    for program in ["sh", "date", "mktemp", "chmod", "rm", "env", "grep"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), path.join(program)).unwrap();
    }
    let properties = json!({ "currentWorkingDir": home, "environment": { "PATH": path } });
    site.add(site.plan("no-client", script, properties, &[]), keys_of(&site.s3), 0).await;

    // An input that went away between its submission and its start.
    std::fs::write(site.s3.object_path("input"), "x").unwrap();
    let mut plan = site.plan("no-input", script, json!({ "currentWorkingDir": home, "begin": later() }), &[]);
    plan.inputs = vec![object(&site.s3.bucket, "input")];
    site.add(plan, keys_of(&site.s3), 0).await;

    // No folder that a script can be run from. Slurm itself replaces a TMPDIR that cannot be written to.
    let broken = slurm.home.join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("mktemp"), "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(broken.join("mktemp"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", broken.display());
    let nowhere = json!({ "currentWorkingDir": home, "environment": { "PATH": path } });
    site.add(site.plan("no-place", script, nowhere, &[]), keys_of(&site.s3), 0).await;

    let waiting = site.queued("no-input", 1).await;
    std::fs::remove_file(site.s3.object_path("input")).unwrap();
    let_go(&slurm, &waiting).await;

    let ends = site.ends(3).await;
    for (name, reason, code) in
        [("no-client", "StageInNoClient", 112), ("no-input", "StageInFailed", 114), ("no-place", "StageInNoPlace", 115)]
    {
        let view = StatusView::of(&ends[name]);
        let told = (view.status, view.reason.as_str(), view.exit_code);
        assert_eq!(told, (bridge_api::JobStatus::Failed, reason, Some(code)), "{}", view.message);
    }
    assert!(!slurm.home.join("ran").exists());
    assert!(site.stored("no-input/stdout").contains("the input ./input could not be fetched"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_job_that_is_cancelled_still_sends_what_it_has() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let (mut site, slurm) = Site::slurm(lab).await;
    let script = "#!/bin/bash\necho begun\necho part > result\n: > ready\nsleep 600\n";
    let properties = json!({
        "currentWorkingDir": slurm.home, "OutputFileName": "out", "ErrorFileName": "err", "runlimit": 20,
    });
    site.add(site.plan("cancelled", script, properties, &["result"]), keys_of(&site.s3), 0).await;
    until("the script", || slurm.home.join("ready").exists().then_some(())).await;
    site.handle.wish(&JobKey::new("", "cancelled"), Wishes { kill: true, ..Wishes::default() });
    let record = site.ends(1).await.remove("cancelled").unwrap();
    let view = StatusView::of(&record);
    assert_eq!(view.status, bridge_api::JobStatus::Killed, "{view:?}");
    let outputs = record.outputs.unwrap();
    assert_eq!((outputs.staged, outputs.total), (true, 4), "{outputs:?}");
    assert_eq!(
        (site.stored("cancelled/stdout"), site.stored("cancelled/result")),
        ("begun\n".to_owned(), "part\n".to_owned())
    );
}

/// Slurm signals all processes of a job, so the script needs nobody to hand the signal on.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_script_meets_the_signal_that_cancels_it_once() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let (mut site, slurm) = Site::slurm(lab).await;
    let script = "#!/bin/bash\nfinish() {\n    echo got >> seen\n    printf half > result\n    \
                  for n in $(seq 20); do sleep 0.1; done\n    printf ' and half' >> result\n    : > done\n}\n\
                  trap finish TERM\n: > ready\nwhile [ ! -e done ]; do sleep 0.1; done\n";
    let properties = json!({ "currentWorkingDir": slurm.home, "runlimit": 20 });
    site.add(site.plan("careful", script, properties, &["result", "seen"]), keys_of(&site.s3), 0).await;
    until("the script", || slurm.home.join("ready").exists().then_some(())).await;
    site.handle.wish(&JobKey::new("", "careful"), Wishes { kill: true, ..Wishes::default() });
    let record = site.ends(1).await.remove("careful").unwrap();
    assert_eq!(StatusView::of(&record).status, bridge_api::JobStatus::Killed, "{record:?}");
    assert_eq!((site.stored("careful/seen"), site.stored("careful/result")), ("got\n".into(), "half and half".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_ray_job_gets_its_inputs_and_sends_its_log_and_files() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let mut site = Site::ray(lab).await;
    std::fs::create_dir(site.s3.object_path("in")).unwrap();
    std::fs::write(site.s3.object_path("in/wörter.txt"), "b a\n").unwrap();
    std::fs::write(site.s3.object_path("in/parameters"), r#"{"times": "2"}"#).unwrap();
    let script = "import os, sys\nwords = sorted(open('wörter.txt').read().split())\nprint('sorted', words, sys.argv[1:])\n\
                  os.makedirs('out dir')\nopen('out dir/ergebnis ä.txt', 'w').write(' '.join(words))\nsys.exit(3)\n";
    let mut plan = site.plan("words", script, json!({}), &["out dir/ergebnis ä.txt", "never"]);
    plan.inputs = vec![object(&site.s3.bucket, "in/wörter.txt")];
    plan.parameters = TextSource::Object(object(&site.s3.bucket, "in/parameters"));
    site.add(plan, keys_of(&site.s3), 0).await;
    let record = site.ends(1).await.remove("words").unwrap();
    let view = StatusView::of(&record);
    assert_eq!((view.status, view.exit_code), (bridge_api::JobStatus::Failed, Some(3)), "{view:?}");
    assert!(view.message.contains("\"never\"") && view.message.contains("words/never"), "{}", view.message);
    assert_eq!(site.stored("words/ergebnis ä.txt"), "a b");
    assert_eq!(site.stored("words/script"), script);
    let log = site.stored("words/logs");
    assert!(log.contains("sorted ['a', 'b'] ['--kwargs',") && log.contains("times=2"), "{log}");
    let manifest: Value = serde_json::from_str(&site.stored("words/manifest.json")).unwrap();
    assert_eq!((manifest["missing"].clone(), manifest["outcome"]["exitCode"].clone()), (json!(["never"]), json!(3)));
    assert_eq!(manifest["files"].as_array().unwrap().len(), 3, "{manifest}");
}

/// Only if Ray gives back both the exit code and what was put into the job's metadata.
#[tokio::test(flavor = "multi_thread")]
async fn a_code_of_a_real_ray_job_that_sends_files_has_the_word_that_slurm_has_for_it() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let mut site = Site::ray(lab).await;
    let script = "import sys\nopen('result', 'w').write('x')\nsys.exit(113)\n";
    site.add(site.plan("coded", script, json!({}), &["result"]), keys_of(&site.s3), 0).await;
    let record = site.ends(1).await.remove("coded").unwrap();
    let view = StatusView::of(&record);
    assert_eq!((view.reason.as_str(), view.exit_code), ("StageInExpired", Some(113)), "{view:?}");
}
