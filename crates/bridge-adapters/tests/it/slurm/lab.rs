//! The adapter against a real Slurm.

use bridge_core::credentials::CredentialError;
use bridge_core::manager::{ErrorKind, Found, Phase, SubmitError, Verdict};
use bridge_testkit::lab;
use jiff::Timestamp;
use secrecy::ExposeSecret;

use super::*;

/// A real cluster, a user of the test's own, and an adapter for both.
struct RealCluster {
    slurm: lab::Slurm,
    manager: Slurm,
    name: String,
    token: String,
}

/// Waits for an end that accounting is told late for as long as in production: a real slurmctld tells it. And longer than
/// there for an answer: a test has one machine with much else to do.
fn real_adapter(url: &str, home: &Path, credentials: Arc<dyn CredentialSource>) -> Slurm {
    adapter_with(SlurmConfig { timeout: Duration::from_mins(2), ..SlurmConfig::new(url) }, home, credentials)
}

impl RealCluster {
    async fn new(slurm: lab::Slurm, version: Option<u16>) -> Self {
        let token = slurm.token(86_400).await.unwrap().expose_secret().to_owned();
        let url = slurm.url.as_str().trim_end_matches('/').to_owned();
        let url = version.map_or_else(|| url.clone(), |version| format!("{url}/slurm/v0.0.{version}"));
        let manager = real_adapter(&url, &slurm.home, credentials(&slurm.user, &token));
        let name = version.map_or_else(|| "real slurm".to_owned(), |version| format!("real slurm v0.0.{version}"));
        Self { slurm, manager, name, token }
    }

    fn submission(&self, script: &str, properties: Value) -> Submission {
        let mut submission = submission(script, properties);
        let folder = json!(self.slurm.home.display().to_string());
        submission.properties.entry("currentWorkingDir".to_owned()).or_insert(folder);
        submission
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.slurm.home.join(name)).unwrap()
    }
}

#[async_trait]
impl Subject for RealCluster {
    fn name(&self) -> &str {
        &self.name
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.manager
    }

    fn submission(&self, sample: &Sample, token: &SubmitToken) -> Option<Submission> {
        sample_submission(sample, token, &self.slurm.home)
    }

    fn max_wait(&self) -> Duration {
        Duration::from_mins(10)
    }

    fn look_again_after(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn separates_stderr(&self) -> bool {
        true
    }

    async fn add_twin(&self, token: &SubmitToken) -> Option<RemoteId> {
        let twin = sample_submission(&Sample::Succeeds, token, &self.slurm.home)?;
        Some(self.manager.submit(&twin).await.ok()?.id)
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.token.clone()]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_slurm_conforms() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm().await.unwrap(), None).await;
    bridge_testkit::conformance::check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_slurm_conforms_in_its_oldest_version() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm().await.unwrap(), Some(36)).await;
    bridge_testkit::conformance::check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_jobs_get_their_arguments_variables_and_directives() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    for version in [36, 37, 38] {
        let cluster = RealCluster::new(lab.slurm().await.unwrap(), Some(version)).await;
        let mut job = cluster.submission(
            "#SBATCH --job-name=directive -o all-%x.txt\necho \"$COLOUR $# $1 $2 $SLURM_JOB_NAME $SLURM_JOB_PARTITION\"",
            json!({"environment": ["COLOUR=blue"], "Queue": "long", "NodesNumber": "1", "Tasks": "1", "cpus-per-task": 1,
                   "time": "0:10:00", "memory": "10M", "comment": "mine", "nice": 1}),
        );
        job.parameters = r#"["--steps", "1 0"]"#.to_owned();
        let submitted = cluster.manager.submit(&job).await.unwrap();
        let job = tracked(&submitted.id, &job.token);
        assert!(matches!(look(&cluster.manager, &job).await, Sighting::Alive(Phase::Held, _)));
        let shown = cluster.slurm.exec(&["scontrol", "show", "job", job.id.as_str()]).await.unwrap();
        assert!(shown.contains(&format!("Comment={} mine", job.token)), "{shown}");
        Hold::release(&cluster.manager, &job).await.unwrap();
        let (outcome, facts) = ended(&cluster.manager, &job).await;
        assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Succeeded, Some(0)), "v0.0.{version}");
        assert_eq!(cluster.read("all-directive.txt"), "blue 2 --steps 1 0 directive long\n", "v0.0.{version}");
        assert_eq!(facts.stdout.unwrap(), cluster.slurm.home.join("all-directive.txt").display().to_string());
        assert_eq!((facts.queue.as_deref(), facts.node.is_some()), (Some("long"), true));
        assert!(facts.started.unwrap() <= facts.ended.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_slurm_takes_every_property_that_is_sent() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm().await.unwrap(), Some(38)).await;
    for properties in [
        json!({"nodes": "1-1", "tasks": 1, "cpus_per_task": 1, "memory_per_cpu": 10, "tasks_per_node": 1}),
        json!({"exclusive": true, "requeue": false, "mail_type": "END,FAIL", "mail_user": "a@b"}),
        json!({"exclusive": "user", "signal": "USR1@60", "open_mode": "append", "time": "UNLIMITED"}),
        json!({"oversubscribe": true, "no_kill": true, "wait_all_nodes": true, "deadline": "now+2days"}),
        json!({"begin": "2035-01-01T00:00:00Z", "time_minimum": 1, "time": 5, "wckey": "w", "distribution": "block"}),
        json!({"array": "0-2%1", "dependency": "afterany:1", "kill-on-invalid-dep": true, "spread_job": true}),
        json!({"threads_per_core": 1, "sockets_per_node": 1, "use-min-nodes": true, "standard_input": "/dev/null"}),
        json!({"account": "lab", "delay_boot": 1, "cpu_frequency": "low", "mcs_label": "x", "burst_buffer": "x"}),
    ] {
        let job = cluster.submission("true", properties.clone());
        let submitted = cluster.manager.submit(&job).await;
        let id = submitted.unwrap_or_else(|error| panic!("{properties}: {error:?}")).id;
        cluster.manager.cancel(&tracked(&id, &job.token)).await.unwrap();
    }
    for (properties, word) in [
        (json!({"Queue": "nosuch"}), "partition"),
        (json!({"reservation": "nosuch"}), "reservation"),
        (json!({"constraint": "nosuch"}), "feature"),
        (json!({"licenses": "nosuch"}), "license"),
    ] {
        let job = cluster.submission("true", properties.clone());
        let Err(SubmitError::NotSubmitted(error)) = cluster.manager.submit(&job).await else { panic!("{properties}") };
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(error.message.contains(word), "{error}");
        assert_eq!(cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap(), Found::Absent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_job_is_run_again_by_slurm_only_if_its_owner_lets_it() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    for version in [36, 37, 38] {
        let cluster = RealCluster::new(lab.slurm().await.unwrap(), Some(version)).await;
        for (properties, expected) in [
            (json!({"requeue": "false"}), "Requeue=0"),
            (json!({"no-requeue": true}), "Requeue=0"),
            (json!({"requeue": true}), "Requeue=1"),
        ] {
            let job = cluster.submission("true", properties.clone());
            let id = cluster.manager.submit(&job).await.unwrap().id;
            let shown = cluster.slurm.exec(&["scontrol", "show", "job", id.as_str()]).await.unwrap();
            assert!(shown.contains(expected), "{properties} in v0.0.{version}: {shown}");
            cluster.manager.cancel(&tracked(&id, &job.token)).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_job_of_another_user_with_our_token_is_not_ours() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    for version in [36, 38] {
        let cluster = RealCluster::new(lab.slurm().await.unwrap(), Some(version)).await;
        let another = RealCluster::new(lab.slurm().await.unwrap(), Some(version)).await;
        let job = cluster.submission("true", json!({}));
        let own = cluster.manager.submit(&job).await.unwrap().id;
        let copy = Submission { token: job.token.clone(), ..another.submission("true", json!({})) };
        let theirs = another.manager.submit(&copy).await.unwrap().id;
        let found = cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(found, Found::Jobs(vec![own.clone()]), "v0.0.{version}");
        cluster.manager.cancel(&tracked(&own, &job.token)).await.unwrap();
        another.manager.cancel(&tracked(&theirs, &job.token)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_array_is_one_job() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm().await.unwrap(), None).await;
    let job = cluster.submission("exit $SLURM_ARRAY_TASK_ID", json!({"array": "0-3%2", "OutputFileName": "%A_%a.out"}));
    let job = start(&cluster.manager, &job).await;
    let (outcome, facts) = ended(&cluster.manager, &job).await;
    assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, Some(1)), "{}", outcome.message);
    assert!(outcome.message.starts_with("4 of 4 tasks done, 3 failed; task 1: FAILED"), "{}", outcome.message);
    assert!(facts.stdout.unwrap().ends_with(&format!("{}_%a.out", job.id)));
    assert_eq!(
        cluster.manager.find(&job.token, Timestamp::UNIX_EPOCH).await.unwrap(),
        Found::Jobs(vec![job.id.clone()])
    );

    let endless = start(&cluster.manager, &cluster.submission("sleep 600", json!({"array": "1-3"}))).await;
    until(&cluster.manager, &endless, |seen| matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())).await;
    cluster.manager.cancel(&endless).await.unwrap();
    assert_eq!(ended(&cluster.manager, &endless).await.0.verdict, Verdict::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_real_slurm_has_purged_is_found_in_its_accounting() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm_purge().await.unwrap(), None).await;
    let job = start(&cluster.manager, &cluster.submission("exit 3", json!({}))).await;
    let outcome = until(&cluster.manager, &job, |seen| match seen {
        Sighting::Ended(outcome, _) if outcome.message.ends_with("(from accounting)") => Some(outcome.clone()),
        Sighting::Ended(outcome, _) => {
            assert_eq!(outcome.exit_code, Some(3), "slurmctld knows it");
            None
        }
        _ => None,
    })
    .await;
    // The accounting of 22.05 reports exit code 0 for any failure.
    assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, None), "{}", outcome.message);
    let unknown = tracked(&RemoteId::new("999999"), &fresh_token());
    assert_eq!(look(&cluster.manager, &unknown).await, Sighting::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_real_slurm_has_purged_says_that_its_accounting_is_down() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let lab = lab::Lab::own("accounts");
    let cluster = RealCluster::new(lab.slurm_purge().await.unwrap(), None).await;
    let other = start(&cluster.manager, &cluster.submission("sleep 600", json!({}))).await;
    let purged = start(&cluster.manager, &cluster.submission("exit 3", json!({}))).await;
    let from_accounting = |seen: &Sighting| match seen {
        Sighting::Ended(outcome, _) if outcome.message.ends_with("(from accounting)") => Some(()),
        _ => None,
    };
    until(&cluster.manager, &purged, from_accounting).await;

    let values = lab.must("env", &["--plain"]).await.unwrap();
    let folder = values.lines().find_map(|line| line.strip_prefix("BRIDGE_LAB_FOLDER=")).unwrap();
    let process = std::fs::read_to_string(Path::new(folder).join("slurm-purge/run/slurmdbd.pid")).unwrap();
    let process = process.split(' ').next().unwrap();
    tokio::process::Command::new("kill").args(["-KILL", process]).status().await.unwrap();
    let jobs = [other.clone(), purged.clone()];
    let seen = cluster.manager.poll(&jobs).await.unwrap();
    let Sighting::Unaccounted { why } = &seen[&purged.id] else { panic!("{seen:?}") };
    assert!(why.contains("is slurmdbd running?"), "{why}");
    until(&cluster.manager, &other, |seen| matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())).await;

    lab.must("up", &["slurm-purge"]).await.unwrap();
    until(&cluster.manager, &purged, from_accounting).await;
    lab.down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_run_of_a_real_requeued_job_tells_its_end() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm_purge().await.unwrap(), None).await;
    let script = "[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] && exit 0; sleep 600";
    let job = start(&cluster.manager, &cluster.submission(script, json!({}))).await;
    until(&cluster.manager, &job, |seen| matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(())).await;
    cluster.slurm.exec(&["scontrol", "requeue", job.id.as_str()]).await.unwrap();
    let waits = |seen: &Sighting| match seen {
        Sighting::Alive(Phase::Queued { reason: Some(reason) }, _) if reason == "BeginTime" => Some(()),
        _ => None,
    };
    until(&cluster.manager, &job, waits).await;
    // Or Slurm waits two minutes before it starts the job again. In the second in which the first run was ended slurmd would
    // take the start of the next for a late one of the first and refuse it.
    let which = format!("JobId={}", job.id);
    cluster.slurm.exec(&["scontrol", "update", &which, "StartTime=now+3"]).await.unwrap();
    let outcome = until(&cluster.manager, &job, |seen| match seen {
        Sighting::Ended(outcome, _) if outcome.message.ends_with("(from accounting)") => Some(outcome.clone()),
        Sighting::Gone => panic!("it is in its accounts"),
        _ => None,
    })
    .await;
    assert_eq!(outcome.verdict, Verdict::Succeeded, "{}", outcome.message);
    let url = cluster.slurm.url.to_string();
    let successor = real_adapter(&url, &cluster.slurm.home, credentials(&cluster.slurm.user, &cluster.token));
    let (outcome, _) = ended(&successor, &job).await;
    assert_eq!(outcome.verdict, Verdict::Succeeded, "without having seen anything: {}", outcome.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_job_whose_comment_was_changed_is_followed_and_ended() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    for version in [36, 38] {
        let cluster = RealCluster::new(lab.slurm().await.unwrap(), Some(version)).await;
        let job = start(&cluster.manager, &cluster.submission("sleep 600", json!({}))).await;
        let running = |seen: &Sighting| matches!(seen, Sighting::Alive(Phase::Running, _)).then_some(());
        until(&cluster.manager, &job, running).await;
        let which = format!("JobId={}", job.id);
        cluster.slurm.exec(&["scontrol", "update", &which, "Comment=changed"]).await.unwrap();
        let seen = look(&cluster.manager, &Tracked { verify: true, ..job.clone() }).await;
        assert!(running(&seen).is_some(), "v0.0.{version}: {seen:?}");
        let url = format!("{}/slurm/v0.0.{version}", cluster.slurm.url.as_str().trim_end_matches('/'));
        let successor = real_adapter(&url, &cluster.slurm.home, credentials(&cluster.slurm.user, &cluster.token));
        let error = successor.cancel(&job).await.unwrap_err();
        assert!(error.message.contains("scontrol update"), "v0.0.{version}: {error}");
        cluster.manager.cancel(&job).await.unwrap();
        assert_eq!(ended(&cluster.manager, &job).await.0.verdict, Verdict::Cancelled, "v0.0.{version}");
    }
}

/// How many seconds a token lives that the test outlives.
const SHORT_LIFE: u32 = 10;

/// Tokens that live shortly, each read a new one.
#[derive(Debug)]
struct ShortLived {
    slurm: lab::Slurm,
    reads: AtomicU32,
}

#[async_trait]
impl CredentialSource for ShortLived {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let token = self.slurm.token(SHORT_LIFE).await.map_err(|error| CredentialError(error.to_string()))?;
        self.reads.fetch_add(1, Ordering::SeqCst);
        let pairs = [("username", self.slurm.user.as_str()), ("password", token.expose_secret())];
        Ok(Credentials::from_pairs(pairs.map(|(key, value)| (key.to_owned(), value.to_owned()))))
    }
}

/// A look during which no token ended on its way to slurmctld.
async fn look_within_a_token(manager: &Slurm, job: &Tracked) -> Sighting {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let begun = tokio::time::Instant::now();
        match manager.poll(std::slice::from_ref(job)).await {
            Ok(mut seen) => return seen.remove(&job.id).expect("the job was asked about"),
            Err(error) => {
                // Slurm counts a token's life in whole seconds.
                let outlived = begun.elapsed().as_secs() + 1 >= u64::from(SHORT_LIFE);
                assert!(outlived && tokio::time::Instant::now() < deadline, "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_job_outlives_its_token() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let cluster = RealCluster::new(lab.slurm().await.unwrap(), None).await;
    let (slurm, url) = (&cluster.slurm, cluster.slurm.url.to_string());
    let expired = slurm.token(1).await.unwrap().expose_secret().to_owned();
    let stale = real_adapter(&url, &slurm.home, credentials(&slurm.user, &expired));
    let job = start(&cluster.manager, &cluster.submission("until [ -e go ]; do sleep 0.1; done", json!({}))).await;

    let tokens = Arc::new(ShortLived { slurm: slurm.clone(), reads: AtomicU32::new(0) });
    let manager = real_adapter(&url, &slurm.home, Arc::clone(&tokens) as Arc<dyn CredentialSource>);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while tokens.reads.load(Ordering::SeqCst) < 3 {
        let seen = look_within_a_token(&manager, &job).await;
        assert!(matches!(seen, Sighting::Alive(..)), "{seen:?}");
        assert!(tokio::time::Instant::now() < deadline, "no token is read again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::write(slurm.home.join("go"), "").unwrap();
    let outcome = loop {
        if let Sighting::Ended(outcome, _) = look_within_a_token(&manager, &job).await {
            break outcome;
        }
        assert!(tokio::time::Instant::now() < deadline, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(outcome.verdict, Verdict::Succeeded, "through at least three tokens");
    let error = answered_quickly(async || stale.poll(std::slice::from_ref(&job)).await.unwrap_err()).await;
    assert_eq!(error.kind, ErrorKind::Credential, "{error}");
    assert!(!format!("{error:?}").contains(&expired));
}
