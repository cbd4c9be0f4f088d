//! The verbs for a cluster, as `kubectl bridge`, with an operator that looks after one namespace only, a real Slurm and a
//! real Ray.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bridge_testkit::lab::{Kubernetes, Lab, Ray, Slurm};
use secrecy::ExposeSecret as _;

use crate::support::{Bench, Done, until};

const IMAGE: &str = "localhost/bridge:lab";
const OURS: &str = "team";
const OTHERS: &str = "others";

struct Site {
    bench: Bench,
    kubernetes: Kubernetes,
    slurm: Slurm,
    ray: Ray,
}

impl Site {
    async fn new(lab: &Lab) -> Self {
        lab.must("up", &["kubernetes", "slurm", "ray"]).await.unwrap();
        if std::env::var_os("BRIDGE_TEST_IMAGE").is_none() {
            lab.must("image", &["bridge", "dev"]).await.unwrap();
        }
        let (slurm, ray) = (lab.slurm().await.unwrap(), lab.ray().await.unwrap());
        let site = Self { bench: Bench::new(), kubernetes: lab.kubernetes().await.unwrap(), slurm, ray };
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bridge"), site.bench.path("kubectl-bridge")).unwrap();
        for namespace in [OURS, OTHERS] {
            site.kubectl(&["create", "namespace", namespace]).ends(0);
        }
        let token = site.slurm.token(3600).await.unwrap();
        for namespace in [OURS, OTHERS] {
            let user = format!("--from-literal=username={}", site.slurm.user);
            let token = format!("--from-literal=token={}", token.expose_secret());
            site.kubectl(&["-n", namespace, "create", "secret", "generic", "slurm-alice", &user, &token]).ends(0);
        }
        let token = format!("--from-literal=token={}", site.ray.token.expose_secret());
        site.kubectl(&["-n", OURS, "create", "secret", "generic", "ray-secret", &token]).ends(0);
        site.install();
        site
    }

    /// Everything but the definition of BridgeJobs first: order does not matter.
    fn install(&self) {
        let manifest = self.bench.bridge(&["manifest", "--image", IMAGE, "--watch", OURS]).ends(0).out;
        // A namespace that is gone, and the operator's rights with it, does not keep it from the others.
        let watched = format!("--namespace={OURS}");
        let manifest = manifest.replace(&watched, &format!("--namespace=gone,{OURS}"));
        assert!(manifest.contains("=gone,"));
        // What is counted below is counted by one process: on a busy machine a short Lease might change hands.
        let lease = "- --lease-namespace";
        let indent = " ".repeat(manifest[..manifest.find(lease).unwrap()].rsplit('\n').next().unwrap().len());
        let manifest = manifest.replace(lease, &format!("- --lease-seconds=120\n{indent}{lease}"));
        let (definition, rest): (Vec<&str>, Vec<&str>) =
            manifest.split("\n---\n").partition(|object| object.contains("kind: CustomResourceDefinition"));
        assert_eq!(definition.len(), 1);
        let rest = self.bench.file("rest.yaml", &rest.join("\n---\n"));
        let manifest = self.bench.file("manifest.yaml", &manifest);
        let apply = |file: &Path| self.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
        // A namespace and a policy take a moment until what follows from them can be made.
        until("all but the definition is installed", || apply(&rest).code == Some(0));
        until("the operator says what it waits for", || {
            let said = self.kubectl(&["-n", "bridge-system", "logs", "deployment/bridge-operator"]);
            said.out.contains("is not installed; apply deploy/crd.yaml")
        });
        until("everything is installed", || apply(&manifest).code == Some(0));
        let rolled = ["-n", "bridge-system", "rollout", "status", "deployment/bridge-operator", "--timeout=600s"];
        self.kubectl(&rolled).ends(0);
    }

    fn kubectl(&self, arguments: &[&str]) -> Done {
        Done::of(&self.kubectl_command(arguments).output().unwrap())
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let kubectl = self.kubernetes.kubectl.as_ref().unwrap();
        let mut command = Command::new(kubectl);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubernetes.kubeconfig)
            .env("PATH", format!("{}:{path}", self.bench.path("").display()))
            .current_dir(self.bench.path(""))
            .stdin(Stdio::null());
        command
    }

    /// `kubectl bridge VERB … -n NAMESPACE`
    fn bridge(&self, namespace: &str, arguments: &[&str]) -> Done {
        self.kubectl(&[&["bridge"], arguments, &["-n", namespace]].concat())
    }

    /// An example, with only what differs from site to site changed.
    fn example(&self, name: &str, changes: &[(&str, &str)]) -> PathBuf {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        let mut text = std::fs::read_to_string(file).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{name} has no {from}");
            text = text.replace(from, to);
        }
        self.bench.file(name, &text)
    }

    fn slurm_job(&self, name: &str, script: &str) -> PathBuf {
        let yaml = format!(
            "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: {name}\nspec:\n  resourceURL: {}\n  \
             resourceManager: slurm\n  resourcesecret: slurm-alice\n  updateinterval: 1\n  jobproperties:\n    \
             currentWorkingDir: {}\n  jobdata:\n    scriptlocation: inline\n    jobscript: |\n      #!/bin/sh\n      {script}\n",
            self.slurm.url,
            self.slurm.home.display(),
        );
        self.bench.file(&format!("{name}.yaml"), &yaml)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_cluster_are_submitted_watched_and_ended_from_the_command_line() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let lab = Lab::own("verbs");
    let site = Site::new(&lab).await;
    let (url, home) = (site.slurm.url.to_string(), site.slurm.home.display().to_string());

    // Nobody looks after this one; the others have ended long before we see that.
    let unseen = site.slurm_job("unseen", "true");
    site.bridge(OTHERS, &["submit", unseen.to_str().unwrap()]).ends(0);

    let slurm = site.example("slurm.yaml", &[("http://127.0.0.1:6820", &url), ("Dir: /tmp", &format!("Dir: {home}"))]);
    let made = site.bridge(OURS, &["submit", slurm.to_str().unwrap()]).ends(0);
    assert_eq!(made.out, "team/slurm-hello: created\n");
    let twice = site.bridge(OURS, &["submit", slurm.to_str().unwrap()]).ends(2);
    assert!(twice.err.contains("already exists"), "{twice:?}");

    // The other API group, and the output while the job runs.
    let ray_url = site.ray.url.to_string();
    let changes =
        [("http://ray-head.ray.svc:8265", ray_url.as_str()), ("bridgejob.ibm.com/", "bridgeoperator.ibm.com/")];
    let ray = site.example("ray.yaml", &changes);
    let made = site.bridge(OURS, &["submit", ray.to_str().unwrap()]).ends(0);
    assert!(made.err.contains("bridgeoperator.ibm.com"), "{made:?}");
    let followed = site.bridge(OURS, &["logs", "-f", "ray-counter"]).ends(0);
    assert!(followed.out.contains("counted to 15"), "{followed:?}");
    let ended = site.bridge(OURS, &["wait", "ray-counter"]).ends(0);
    assert!(ended.out.starts_with("team/ray-counter: DONE: "), "{ended:?}");

    let ended = site.bridge(OURS, &["wait", "slurm-hello"]).ends(0);
    assert!(ended.out.starts_with("team/slurm-hello: DONE: "), "{ended:?}");
    let described = site.bridge(OURS, &["describe", "slurm-hello"]).ends(0).out;
    for part in ["Status:     DONE", "Manager:    slurm", "Queue:      debug", "Conditions:", "Complete", "Events:"] {
        assert!(described.contains(part), "{part}\n{described}");
    }
    let output = described.lines().find_map(|line| line.strip_prefix("Output:")).unwrap().trim();
    assert!(std::fs::read_to_string(output).unwrap().starts_with("step 1 of 3 on "), "{described}");
    // The worker says so after it has saved it.
    until("its end is shown", || site.bridge(OURS, &["logs", "slurm-hello"]).ends(0).out.contains("DONE"));

    // A job's exit code is the command's.
    let fails = site.slurm_job("fails", "exit 7");
    let failed = site.bridge(OURS, &["submit", "--wait", fails.to_str().unwrap()]).ends(7);
    assert!(failed.out.contains("team/fails: FAILED: ") && failed.out.contains("exit code 7"), "{failed:?}");

    let long = site.slurm_job("long", "sleep 3600");
    site.bridge(OURS, &["submit", long.to_str().unwrap()]).ends(0);
    site.bridge(OURS, &["wait", "--timeout", "1", "long"]).ends(124);
    site.kubectl(&["-n", OURS, "wait", "--for=condition=Submitted", "bridgejob/long", "--timeout=600s"]).ends(0);
    let killed = site.bridge(OURS, &["kill", "long"]).ends(0);
    assert!(killed.out.contains("team/long: KILLED: "), "{killed:?}");
    let id = serde_json::from_str::<serde_json::Value>(&site.bridge(OURS, &["get", "long", "-o", "json"]).ends(0).out);
    let id = id.unwrap()["jobs"][0]["jobId"].as_str().unwrap().to_owned();
    let remote = lab.must("exec", &["slurm", "scontrol", "show", "job", &id]).await.unwrap();
    assert!(remote.contains("JobState=CANCELLED"), "{remote}");
    site.bridge(OURS, &["wait", "long"]).ends(130);

    let table = site.bridge(OURS, &["get"]).ends(0).out;
    for words in [["slurm-hello", "DONE"], ["ray-counter", "DONE"], ["fails", "FAILED"], ["long", "KILLED"]] {
        assert!(table.lines().any(|line| words.iter().all(|word| line.contains(word))), "{words:?}\n{table}");
    }
    let missing = site.bridge(OURS, &["describe", "nothing"]).ends(2);
    assert!(missing.err.contains("nothing"), "{missing:?}");
    let unseen = site.bridge(OTHERS, &["describe", "unseen"]).ends(0).out;
    assert!(unseen.contains("no operator has looked at it yet"), "{unseen}");
    the_operator_counts(&site);
    one_malformed_object_blocks_no_other(&site);
    lab.down().await.unwrap();
}

fn the_operator_counts(site: &Site) {
    let holder = ["-n", "bridge-system", "get", "lease", "bridge-operator", "-o", "jsonpath={.spec.holderIdentity}"];
    let leader = site.kubectl(&holder).ends(0).out;
    let page = format!("/api/v1/namespaces/bridge-system/pods/{leader}:8080/proxy/metrics");
    let metrics = site.kubectl(&["get", "--raw", &page]).ends(0).out;
    for line in [
        "bridge_jobs{status=\"DONE\",manager=\"ray\"} 1",
        "bridge_jobs{status=\"DONE\",manager=\"slurm\"} 1",
        "bridge_jobs{status=\"FAILED\",manager=\"slurm\"} 1",
        "bridge_jobs{status=\"KILLED\",manager=\"slurm\"} 1",
        "bridge_submissions_total{manager=\"slurm\"} 3",
        "bridge_submissions_total{manager=\"ray\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("bridge_reconcile_duration_seconds_bucket"), "{metrics}");
    assert!(metrics.contains("bridge_remote_requests_total{manager=\"slurm\"}"), "{metrics}");
}

/// As after an upgrade of the definition by a program that knows more than the one that runs.
fn one_malformed_object_blocks_no_other(site: &Site) {
    let open = r#"[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec",
        "value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}]"#;
    let definition = ["patch", "crd", "bridgejobs.bridgejob.ibm.com", "--type=json", "-p", open];
    site.kubectl(&definition).ends(0);
    let malformed = site.bench.file(
        "malformed.yaml",
        "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: malformed\nspec:\n  resourceURL: [7]\n",
    );
    // The API server takes a moment to serve the new form.
    until("a malformed job is taken", || {
        site.kubectl(&["-n", OURS, "create", "-f", malformed.to_str().unwrap()]).code == Some(0)
    });
    let good = site.slurm_job("good", "true");
    site.kubectl(&["-n", OURS, "create", "-f", good.to_str().unwrap()]).ends(0);
    let wait = ["-n", OURS, "wait", "--for=condition=Complete", "bridgejob/good", "--timeout=600s"];
    site.kubectl(&wait).ends(0);
    let status = site.kubectl(&["-n", OURS, "get", "bridgejob", "malformed", "-o", "jsonpath={.status}"]).ends(0);
    assert_eq!(status.out, "");
}
