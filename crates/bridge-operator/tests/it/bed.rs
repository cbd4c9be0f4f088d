//! What every test stands on.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use bridge_api::{BridgeJob, BridgeJobStatus, JobStatus};
use bridge_operator::install::{self, InstallOptions};
use bridge_operator::names;
use bridge_testkit::lab::{Kubernetes, Lab, TestNamespace};
use bridge_testkit::slurm::{Emulator, EmulatorOptions};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::wait::Condition;
use kube::runtime::{WatchStreamExt, watcher::watch_object};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// How long anything may take. Waiting is always by watch; this only ends a test that would wait for ever.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);
/// The script of a job that somebody ends.
pub(crate) const FOR_EVER: &str = "sleep 36000";

static INSTALLED: OnceCell<String> = OnceCell::const_new();

/// A cluster with the operator, a namespace, a Slurm.
pub(crate) struct Bed {
    pub(crate) client: Client,
    pub(crate) ns: String,
    pub(crate) slurm: Emulator,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) image: String,
    _namespace: TestNamespace,
}

impl Bed {
    pub(crate) async fn new(lab: &Lab) -> Self {
        Self::with(lab, EmulatorOptions::default()).await
    }

    pub(crate) async fn with(lab: &Lab, options: EmulatorOptions) -> Self {
        let kubernetes = lab.kubernetes().await.unwrap();
        let image = INSTALLED.get_or_init(|| install(lab, &kubernetes)).await.clone();
        let namespace = kubernetes.namespace().await.unwrap();
        let client = namespace.client.clone();
        let restricted = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.patch(&namespace.name, &PatchParams::default(), &Patch::Merge(restricted)).await.unwrap();
        let listen = SocketAddr::new(lab.host().await.unwrap(), 0);
        let slurm = Emulator::start(EmulatorOptions { listen, ..options }).await.unwrap();
        let bed = Self { ns: namespace.name.clone(), client, slurm, kubernetes, image, _namespace: namespace };
        bed.secret("mysecret", &[("username", "alice"), ("password", "alice-token")]).await;
        bed
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    pub(crate) fn jobs(&self) -> Api<BridgeJob> {
        self.api()
    }

    pub(crate) async fn secret(&self, name: &str, pairs: &[(&str, &str)]) {
        let data: BTreeMap<_, _> = pairs.iter().copied().collect();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data });
        let params = PatchParams::apply("test").force();
        self.api::<Secret>().patch(name, &params, &Patch::Apply(secret)).await.unwrap();
    }

    /// A Slurm job with this script; `more` is merged into its spec.
    pub(crate) fn spec(&self, script: &str, more: &Value) -> Value {
        let mut spec = json!({
            "resourceURL": self.slurm.url(),
            "resourceManager": "slurm",
            "resourcesecret": "mysecret",
            "updateinterval": 1,
            "jobdata": { "jobscript": format!("#!/bin/sh\n{script}\n"), "scriptlocation": "inline" },
        });
        merge(&mut spec, more);
        spec
    }

    pub(crate) async fn try_create(&self, name: &str, spec: Value) -> kube::Result<BridgeJob> {
        let job = json!({
            "apiVersion": "bridgejob.ibm.com/v1alpha1", "kind": "BridgeJob", "metadata": { "name": name }, "spec": spec,
        });
        let jobs: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.ns, &ApiResource::erase::<BridgeJob>(&()));
        let made = jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await?;
        Ok(made.try_parse().unwrap())
    }

    pub(crate) async fn create(&self, name: &str, script: &str, more: &Value) -> BridgeJob {
        self.try_create(name, self.spec(script, more)).await.unwrap()
    }

    /// The script of a job that runs until [`Bed::go`].
    pub(crate) fn until_go(&self) -> String {
        let go = self.slurm.folder().join("go");
        // Bounded, so that nothing is left behind should the test fail.
        format!("i=0; while [ ! -e {} ] && [ $i -lt 36000 ]; do sleep 0.1; i=$((i+1)); done", go.display())
    }

    /// Lets jobs end that wait for it, also those that begin later.
    pub(crate) fn go(&self) {
        std::fs::write(self.slurm.folder().join("go"), "").unwrap();
    }

    pub(crate) async fn set(&self, name: &str, spec: &Value) {
        let patch = json!({ "spec": spec });
        self.jobs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn status(&self, name: &str) -> BridgeJobStatus {
        self.jobs().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until the status is so.
    pub(crate) async fn until(&self, name: &str, what: &str, is: impl Fn(&BridgeJobStatus) -> bool) -> BridgeJobStatus {
        let condition = |job: Option<&BridgeJob>| job.and_then(|job| job.status.as_ref()).is_some_and(&is);
        let found = until(&self.jobs(), name, what, condition).await;
        found.and_then(|job| job.status).unwrap_or_default()
    }

    pub(crate) async fn until_status(&self, name: &str, word: JobStatus) -> BridgeJobStatus {
        self.until(name, word.as_str(), |status| {
            // A job that ended otherwise will not come to this any more.
            assert!(
                status.jobstatus == Some(word) || !status.jobstatus.is_some_and(JobStatus::is_final),
                "wanted {word}, but the job ended: {status:?}"
            );
            status.jobstatus == Some(word)
        })
        .await
    }

    pub(crate) async fn until_gone<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        until(api, name, "gone", |object: Option<&K>| object.is_none()).await;
    }

    /// The job's pod once it runs, other than the one with this UID.
    pub(crate) async fn until_pod_runs(&self, job: &str, not: Option<&str>) -> Pod {
        let runs = |pod: Option<&Pod>| {
            pod.is_some_and(|pod| {
                pod.metadata.uid.as_deref() != not
                    && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
            })
        };
        until(&self.api(), &names::pod(job), "a running pod", runs).await.unwrap()
    }

    pub(crate) async fn config_map(&self, job: &str) -> Option<ConfigMap> {
        self.api::<ConfigMap>().get_opt(&names::config_map(job)).await.unwrap()
    }

    /// Deletes the job and waits until it is gone.
    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) {
        let _ = self.jobs().delete(name, params).await.unwrap();
        self.until_gone(&self.jobs(), name).await;
    }

    /// What Slurm says of a job: its state's words.
    pub(crate) async fn remote_state(&self, id: &str) -> String {
        let url = format!("{}/job/{id}", self.slurm.versioned_url(41));
        let client = reqwest::Client::builder().build().unwrap();
        let request = client.get(url).header("X-SLURM-USER-NAME", "alice");
        let answer = request.header("X-SLURM-USER-TOKEN", "alice-token").send().await.unwrap();
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        answer["jobs"][0]["job_state"].to_string()
    }

    /// How often scripts were started.
    pub(crate) fn runs(&self) -> usize {
        self.slurm.runs().len()
    }

    /// The process of a job's worker: the lab's processes are processes of this machine.
    pub(crate) fn worker_process(pod: &Pod) -> i32 {
        let mark = format!("BRIDGE_POD_UID={}", pod.metadata.uid.as_deref().unwrap());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let is_it = |path: &PathBuf| {
            let environment = std::fs::read(path.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        let path = processes.map(|entry| entry.path()).find(is_it).expect("the worker's process");
        path.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let output = tokio::process::Command::new(self.kubernetes.kubectl.as_ref().unwrap())
            .env("KUBECONFIG", &self.kubernetes.kubeconfig)
            .args(["-n", &self.ns])
            .args(arguments)
            .output()
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// Waits by watch, for ever. One that breaks off is begun anew.
pub(crate) async fn watched<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let mut seen = pin!(watch_object(api.clone(), name).default_backoff());
    loop {
        match seen.next().await.expect("a watch does not end") {
            Ok(object) if condition.matches_object(object.as_ref()) => return object,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Waits by watch.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, what: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let Ok(found) = tokio::time::timeout(PATIENCE, watched(api, name, condition)).await else {
        panic!("{name} did not become {what}; it is {:#?}", api.get_opt(name).await)
    };
    found
}

/// For what no watch can see, such as a grant that takes effect.
pub(crate) async fn eventually(is: impl AsyncFn() -> bool) {
    let waiting = async {
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        while !is().await {
            pause.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it never came true");
}

/// A pod that has ended well has said all.
pub(crate) fn has_succeeded(pod: Option<&Pod>) -> bool {
    pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Succeeded")
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

async fn install(lab: &Lab, kubernetes: &Kubernetes) -> String {
    let image = if let Ok(image) = std::env::var("BRIDGE_TEST_IMAGE") {
        image
    } else {
        lab.must("image", &["bridge", "dev"]).await.unwrap();
        "localhost/bridge:lab".to_owned()
    };
    let client = kubernetes.client().await.unwrap();
    let options = InstallOptions { image: image.clone(), ..InstallOptions::default() };
    for mut object in install::objects(&options) {
        if object["kind"] == "Deployment" {
            // The image may have changed under the same name.
            let run = json!({ "test-run": format!("{}", std::process::id()) });
            object["spec"]["template"]["metadata"]["annotations"] = run;
        }
        apply(&client, object).await;
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &options.namespace);
    until(&deployments, "bridge-operator", "rolled out", |deployment: Option<&Deployment>| {
        deployment.is_some_and(|deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation == deployment.metadata.generation
                && status.updated_replicas == Some(2)
                && status.available_replicas == Some(2)
                && status.replicas == Some(2)
        })
    })
    .await;
    image
}

async fn apply(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let kind: GroupVersionKind = types.try_into().unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.metadata.name.clone().unwrap();
    let params = PatchParams::apply("bridge-tests").force();
    let mut tries = 0;
    // A definition takes a moment until its kind is served.
    while let Err(error) = api.patch(&name, &params, &Patch::Apply(&object)).await {
        tries += 1;
        assert!(tries < 20, "{kind:?} {name}: {error}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
