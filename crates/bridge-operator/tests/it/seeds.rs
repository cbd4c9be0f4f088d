//! The examples of the README and of the paper on a real Slurm and a real object store, with only URL, Secrets, pull policy,
//! queue and folders changed.

use bridge_api::{BridgeJobStatus, JobStatus};
use bridge_testkit::lab::{Lab, S3, Slurm};
use k8s_openapi::api::core::v1::Pod;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::bed::{Bed, has_succeeded, until};

struct Site {
    bed: Bed,
    slurm: Slurm,
    s3: S3,
}

impl Site {
    async fn new(lab: &Lab) -> Self {
        let bed = Bed::new(lab).await;
        let slurm = lab.slurm().await.unwrap();
        let s3 = lab.s3().await.unwrap();
        let token = slurm.token(3600).await.unwrap();
        bed.secret("mysecret", &[("username", &slurm.user), ("password", token.expose_secret())]).await;
        bed.secret(
            "mysecret-s3",
            &[("accesskey", &s3.keys.access_key), ("secretkey", s3.keys.secret_key.expose_secret())],
        )
        .await;
        Self { bed, slurm, s3 }
    }

    fn endpoint(&self) -> &str {
        self.s3.endpoint.trim_start_matches("http://")
    }

    fn object(&self, key: &str, text: &str) {
        let path = self.s3.object_path(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn uploaded(&self, key: &str) -> String {
        std::fs::read_to_string(self.s3.object_path(key)).unwrap_or_else(|error| panic!("{key}: {error}"))
    }

    /// Runs one of our examples, with all its buckets being this test's.
    async fn run_example(&self, yaml: &str, changes: &Value) -> BridgeJobStatus {
        let bucket = format!("{}:", self.s3.bucket);
        let yaml = yaml.replace("scripts:", &bucket).replace("data:n", &format!("{bucket}n"));
        let yaml = yaml.replace("data:w", &format!("{bucket}w"));
        let example: Value = serde_saphyr::from_str(&yaml).unwrap();
        let mut spec = example["spec"].clone();
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec["s3storage"] = json!({ "s3secret": "mysecret-s3", "endpoint": self.endpoint(), "secure": false });
        spec["s3upload"]["bucket"] = json!(self.s3.bucket);
        let name = example["metadata"]["name"].as_str().unwrap();
        self.bed.try_create(name, spec).await.unwrap();
        let status = self.bed.until_status(name, JobStatus::Done).await;
        let staged = status.conditions.iter().find(|condition| condition.type_ == "OutputsStaged").unwrap();
        assert_eq!(staged.status, "True", "{}", staged.message);
        let manifest: Value = serde_json::from_str(&self.uploaded(&format!("{name}/manifest.json"))).unwrap();
        let listed = manifest.to_string();
        assert!(status.outputs.iter().all(|output| listed.contains(&output.name)), "{listed}\n{status:?}");
        status
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_example_runs() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let site = Site::new(lab).await;
    let script = site.slurm.home.join("batch.sh");
    let text = format!("#!/bin/bash\ncd {}\necho result > output.txt\n", site.slurm.home.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let job = json!({
        "resourceURL": site.slurm.url,
        "resourcesecret": "mysecret",
        "imagepullpolicy": "IfNotPresent",
        "updateinterval": 30,
        "jobproperties": { "runlimit": 20, "currentWorkingDir": site.slurm.home },
        "jobdata": { "jobScript": script, "scriptlocation": "remote" },
        "s3storage": { "s3secret": "mysecret-s3", "endpoint": site.endpoint(), "secure": false },
        "s3upload": { "bucket": site.s3.bucket, "files": "output.txt" },
    });
    site.bed.try_create("mybridgejob", job).await.unwrap();
    let status = site.bed.until_status("mybridgejob", JobStatus::Done).await;
    assert!(status.conditions.iter().any(|c| c.type_ == "OutputsStaged" && c.status == "True"), "{status:?}");
    assert_eq!(std::fs::read_to_string(site.s3.object_path("mybridgejob/output.txt")).unwrap(), "result\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_slurm_example_runs() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let site = Site::new(lab).await;
    std::fs::write(site.s3.object_path("slurmbatch.sh"), "#!/bin/bash\necho hello from slurm\n").unwrap();
    let job = json!({
        "resourceURL": site.slurm.url,
        "image": "slurmpod:0.1",
        "resourcesecret": "mysecret",
        "imagepullpolicy": "IfNotPresent",
        "updateinterval": 20,
        "jobdata": { "jobscript": format!("{}:slurmbatch.sh", site.s3.bucket), "scriptlocation": "s3" },
        "jobproperties": json!({
            "NodesNumber": "1", "Queue": "debug", "Tasks": "2", "slurmJobName": "test",
            "currentWorkingDir": site.slurm.home, "envLibPath": "/usr/mpi/gcc/openmpi-4.0.3rc4/lib",
            "ErrorFileName": "slurmjob.err", "OutputFileName": "slurmjob.out",
        })
        .to_string(),
        "s3storage": { "s3secret": "mysecret-s3", "endpoint": site.endpoint(), "secure": false },
    });
    site.bed.try_create("slurmjob-test", job).await.unwrap();
    let status = site.bed.until_status("slurmjob-test", JobStatus::Done).await;
    assert_eq!(status.queue.as_deref(), Some("debug"));
    let output = std::fs::read_to_string(site.slurm.home.join("slurmjob.out")).unwrap();
    assert!(output.contains("hello from slurm"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slurm_jobs_script_and_data_come_from_s3_and_its_results_go_there() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let site = Site::new(lab).await;
    site.object(
        "slurm/sum.sh",
        "#!/bin/bash\necho adding\nawk '{ s += $1 } END { print s }' numbers.csv > total.txt\n",
    );
    site.object("numbers.csv", "1\n2\n39\n");
    let mut properties = json!({ "Queue": "debug", "slurmJobName": "sum", "currentWorkingDir": site.slurm.home });
    properties["OutputFileName"] = json!("slurm-s3-%j.out");
    properties["ErrorFileName"] = json!("slurm-s3-%j.err");
    let changes = json!({
        "resourceURL": site.slurm.url, "resourcesecret": "mysecret", "updateinterval": 1, "jobproperties": properties,
    });
    let status = site.run_example(include_str!("../../../../examples/slurm-s3.yaml"), &changes).await;
    assert_eq!(site.uploaded("slurm-s3/total.txt"), "42\n");
    assert_eq!(site.uploaded("slurm-s3/stdout"), "adding\n");
    assert_eq!(site.uploaded("slurm-s3/stderr"), "");
    assert!(site.uploaded("slurm-s3/script").contains("echo adding"));
    assert!(status.outputs.len() >= 4, "{status:?}");
}

/// The counter actor, its environment, its parameters and its data in S3; its log and its files go there.
#[tokio::test(flavor = "multi_thread")]
async fn a_ray_jobs_script_and_data_come_from_s3_and_its_results_go_there() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let site = Site::new(lab).await;
    let ray = lab.ray().await.unwrap();
    site.bed.secret("ray-token", &[("token", ray.token.expose_secret())]).await;
    let script = r#"
import argparse, json, os, ray
parser = argparse.ArgumentParser()
parser.add_argument("--kwargs", nargs="*", default=[])
given = dict(pair.split("=", 1) for pair in parser.parse_args().kwargs)
ray.init()

@ray.remote
class Counter:
    def __init__(self):
        self.value = 0
    def add(self, more):
        self.value += more
    def read(self):
        return self.value

counter = Counter.remote()
for line in open("words.txt"):
    for _ in range(int(given["times"])):
        counter.add.remote(len(line.split()))
count = ray.get(counter.read.remote())
print(os.environ["GREETING"], count, given["s3_prefix"])
json.dump({"words": count}, open("counts.json", "w"))
"#;
    site.object("ray/counter.py", script);
    site.object("ray/environment.json", r#"{"env": {"GREETING": "counted to"}}"#);
    site.object("ray/parameters.json", r#"{"times": "2"}"#);
    site.object("words.txt", "a b c\nd e\n");
    let changes = json!({ "resourceURL": ray.url, "resourcesecret": "ray-token", "updateinterval": 1 });
    site.run_example(include_str!("../../../../examples/ray-s3.yaml"), &changes).await;
    assert!(site.uploaded("ray-s3/logs").contains("counted to 10 ray-s3/"), "{}", site.uploaded("ray-s3/logs"));
    assert_eq!(site.uploaded("ray-s3/counts.json"), r#"{"words": 10}"#);
    assert_eq!(site.uploaded("ray-s3/script"), script);
    // The end of the output comes after the job's end.
    until(&site.bed.api::<Pod>(), "ray-s3-bridge-pod", "over", has_succeeded).await;
    let shown = site.bed.kubectl(&["logs", "ray-s3-bridge-pod"]).await;
    assert!(shown.contains("counted to 10 ray-s3/"), "{shown}");
}
