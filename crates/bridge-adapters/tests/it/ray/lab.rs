//! The adapter against a real Ray.

use bridge_core::manager::{ErrorKind, Files, Found, LoadProbe, LogCursor, Phase, SubmitError, Verdict};
use bridge_testkit::lab::{self, Lab};
use bytes::Bytes;
use futures::StreamExt;
use secrecy::ExposeSecret;

use super::*;

struct RealRay {
    manager: RayManager,
    token: String,
    home: std::path::PathBuf,
}

impl RealRay {
    async fn new(lab: &Lab) -> Self {
        let ray = lab.ray().await.unwrap();
        let token = ray.token.expose_secret().to_owned();
        Self { manager: manager_at(ray.url.as_str(), &Secret::new(&[("token", &token)])), token, home: ray.home }
    }
}

/// Ray writes its own first line into the log after it has started the job: at any place among the job's first lines,
/// unless the job waits for it.
const AFTER_RAYS_LINE: &str = "\nuntil grep -q '^Running entrypoint' \"/proc/$$/fd/1\"; do sleep 0.1; done\n";

#[async_trait]
impl Subject for RealRay {
    fn name(&self) -> &'static str {
        "real ray"
    }

    fn manager(&self) -> &dyn ResourceManager {
        &self.manager
    }

    fn submission(&self, wanted: &Sample, token: &SubmitToken) -> Option<Submission> {
        match wanted {
            // It stays for 15 minutes after its stop.
            Sample::Queues => None,
            Sample::Prints(_) => {
                let job = sample(wanted, token)?;
                let Script::Text(text) = job.script else { return None };
                Some(Submission { script: Script::Text(text.replacen('\n', AFTER_RAYS_LINE, 1)), ..job })
            }
            other => sample(other, token),
        }
    }

    fn max_wait(&self) -> Duration {
        PATIENCE
    }

    fn look_again_after(&self) -> Duration {
        Duration::from_millis(200)
    }

    /// Each job is a process of Python with all of Ray in it.
    fn side_by_side(&self) -> usize {
        2
    }

    fn many(&self) -> usize {
        6
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.token.clone()]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_ray_passes_the_suite() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    conformance::check(&RealRay::new(lab).await).await;
}

fn unique(uid: &str) -> String {
    lab::unique(uid).replace(|c: char| !c.is_ascii_alphanumeric(), "")
}

/// An actor that counts, with parameters, environment and an input: the sample of the Bridge Operator's first version.
const COUNTER: &str = r#"
import argparse, os, ray
parser = argparse.ArgumentParser()
parser.add_argument("--kwargs", nargs="*")
given = dict(pair.split("=", 1) for pair in parser.parse_args().kwargs)
ray.init()

@ray.remote
class Counter:
    def __init__(self):
        self.value = 0
    def increment(self):
        self.value += 1
    def read(self):
        return self.value

counter = Counter.remote()
for _ in range(int(given["iterations"])):
    counter.increment.remote()
print("count", ray.get(counter.read.remote()), "as", given["who"], "at", os.environ["LEVEL"], "with", open("input.txt").read())
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_counting_actor_runs_on_a_real_ray_and_is_followed_live() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let ray = RealRay::new(lab).await;
    let mut job = python(&unique("counter"), COUNTER);
    job.parameters = r#"{"iterations": "15", "who": "it's \"me\" & $HOME"}"#.to_owned();
    job.metadata = r#"{"env": {"LEVEL": 3}}"#.to_owned();
    job.properties = serde_json::from_value(json!({"entrypoint_num_cpus": "1", "entrypoint_memory": "10Mi"})).unwrap();
    job.inputs = vec!["input.txt".to_owned()];
    let content = futures::stream::iter([Ok(Bytes::from_static("größe".as_bytes()))]).boxed();
    ray.manager.put(&job.token, "input.txt", content).await.unwrap();
    let counter = submit(&ray.manager, &job).await;
    assert_eq!(ray.manager.find(&job.token, now()).await.unwrap(), Found::Jobs(vec![counter.id.clone()]));

    // Each line is written only after the one before it was read: nothing is held back until more comes or the end.
    let talker = logs::Talker::within(&unique("live"), &ray.home);
    let talking = submit(&ray.manager, &talker.job).await;
    let mut cursor = LogCursor(0);
    for number in 0..6 {
        talker.say(&number.to_string());
        let line = format!("line {number} ü\n");
        let (text, next) = logs::follow(&ray.manager, &talking, cursor, &line).await;
        assert!(number == 0 || text == line, "nothing is told twice: {text:?}");
        cursor = next;
    }
    talker.say("end");
    assert!(logs::whole(&ray.manager, &talking).await.ends_with("line 5 ü\nthe end\n"));

    let (outcome, facts) = ended(&ray.manager, &counter).await;
    let log = logs::whole(&ray.manager, &counter).await;
    assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Succeeded, Some(0)), "{outcome:?} {log}");
    assert!(log.contains("count 15 as it's \"me\" & $HOME at 3 with größe"), "{log}");
    assert!(facts.started.is_some() && facts.ended >= facts.started && facts.node.is_some(), "{facts:?}");
    let load = LoadProbe::load(&ray.manager).await.unwrap().remove(0);
    assert_eq!((load.cpus.total, load.nodes.total), (4, 1), "{load:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_ray_tells_why_jobs_fail() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let ray = RealRay::new(lab).await;
    let failing =
        submit(&ray.manager, &python(&unique("fails"), "import sys\nprint('about to fail')\nsys.exit(3)\n")).await;
    let environment = Submission {
        metadata: r#"{"working_dir": "gcs://_ray_pkg_0000.zip"}"#.to_owned(),
        ..command(&unique("env"), "true")
    };
    let environment = submit(&ray.manager, &environment).await;
    let unschedulable =
        submit(&ray.manager, &with_properties(command(&unique("big"), "true"), &json!({"num_cpus": 5000}))).await;
    let stopped = submit(&ray.manager, &command(&unique("stop"), "sleep 300")).await;

    let (outcome, _) = ended(&ray.manager, &failing).await;
    assert_eq!((outcome.verdict, outcome.exit_code), (Verdict::Failed, Some(3)), "{outcome:?}");
    assert_eq!(outcome.reason, "JOB_ENTRYPOINT_COMMAND_ERROR");
    assert!(outcome.message.contains("about to fail"), "{outcome:?}");

    until("the start", async || {
        matches!(look(&ray.manager, &stopped).await, Sighting::Alive(Phase::Running, _)).then_some(())
    })
    .await;
    ray.manager.cancel(&stopped).await.unwrap();
    ray.manager.cancel(&unschedulable).await.unwrap();
    let (outcome, _) = ended(&ray.manager, &Tracked { cancelling: true, ..stopped }).await;
    assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Cancelled, "STOPPED"));

    let (outcome, facts) = ended(&ray.manager, &environment).await;
    assert_eq!(
        (outcome.verdict, outcome.reason.as_str()),
        (Verdict::Failed, "RUNTIME_ENV_SETUP_FAILURE"),
        "{outcome:?}"
    );
    assert_eq!((outcome.exit_code, facts.started), (None, None));
    assert_eq!(logs::whole(&ray.manager, &environment).await, "");

    let sighting = look(&ray.manager, &Tracked { cancelling: true, ..unschedulable }).await;
    let Sighting::Alive(Phase::Queued { reason }, facts) = sighting else { panic!("Ray keeps it: {sighting:?}") };
    assert_eq!(reason.as_deref(), Some("Resources"));
    assert!(facts.note.unwrap().contains("stays PENDING"));
    let refused = with_properties(command(&unique("refused"), "true"), &json!({"entrypoint_resources": {"CPU": 1}}));
    // Ray takes what it cannot run and fails it; either is an end, and none is a question without an answer.
    match ray.manager.submit(&refused).await {
        Ok(_) => assert_eq!(ended(&ray.manager, &tracked(&refused.token)).await.0.verdict, Verdict::Failed),
        Err(SubmitError::NotSubmitted(error)) => assert_eq!(error.kind, ErrorKind::Refused, "{error}"),
        Err(SubmitError::Unknown(error)) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_ray_that_is_started_again_has_another_token_and_no_memory() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let own = Lab::own("rayhead");
    let ray = own.ray().await.unwrap();
    let secret = Secret::new(&[("token", "wrong"), ("password", "never sent")]);
    let manager = manager_at(ray.url.as_str(), &secret);
    let job = command(&unique("head"), "sleep 300");
    let Err(SubmitError::NotSubmitted(error)) = manager.submit(&job).await else { panic!("the token is wrong") };
    assert!(error.kind == ErrorKind::Credential && error.message.contains("`token`"), "{error}");
    let none = manager_at(ray.url.as_str(), &Secret::default());
    let error = none.poll(&[tracked(&job.token)]).await.unwrap_err();
    assert!(error.kind == ErrorKind::Credential && error.message.contains("asks for a token"), "{error}");

    secret.set(&[("token", ray.token.expose_secret())]);
    let intended = now();
    let tracked = submit(&manager, &job).await;
    assert_eq!(submit(&manager, &job).await, tracked, "there already is a success");
    until("the start", async || {
        matches!(look(&manager, &tracked).await, Sighting::Alive(Phase::Running, _)).then_some(())
    })
    .await;

    own.must("down", &["ray"]).await.unwrap();
    let error = manager.poll(std::slice::from_ref(&tracked)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    own.must("up", &["ray"]).await.unwrap();
    let error = manager.poll(std::slice::from_ref(&tracked)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Credential, "{error}");
    let values = own.must("env", &["--plain"]).await.unwrap();
    let token = values.lines().find_map(|line| line.strip_prefix("BRIDGE_LAB_RAY_TOKEN=")).unwrap();
    secret.set(&[("token", token)]);
    assert_eq!(look(&manager, &tracked).await, Sighting::Gone);
    let found = manager.find(&job.token, intended).await.unwrap();
    assert!(matches!(found, Found::CannotTell(_)), "{found:?}");
    manager.cancel(&tracked).await.unwrap();
    submit(&manager, &command(&unique("after"), "true")).await;
    own.down().await.unwrap();
}
