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
            lab.must("image", &["bridge"]).await.unwrap();
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
        let manifest = site.bench.bridge(&["manifest", "--image", IMAGE, "--watch", OURS]).ends(0).out;
        let manifest = site.bench.file("manifest.yaml", &manifest);
        let apply = || site.kubectl(&["apply", "--server-side", "-f", manifest.to_str().unwrap()]);
        // A namespace, a definition and a policy take a moment until what follows from them can be made.
        until("everything is installed", || apply().code == Some(0));
        site
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
    let shown = site.bridge(OURS, &["logs", "slurm-hello"]).ends(0).out;
    assert!(shown.contains("DONE"), "{shown}");

    // A job's exit code is the command's.
    let fails = site.slurm_job("fails", "exit 7");
    let failed = site.bridge(OURS, &["submit", "--wait", fails.to_str().unwrap()]).ends(7);
    assert!(failed.out.contains("team/fails: FAILED: ") && failed.out.contains("exit code 7"), "{failed:?}");

    let long = site.slurm_job("long", "sleep 3600");
    site.bridge(OURS, &["submit", long.to_str().unwrap()]).ends(0);
    site.bridge(OURS, &["wait", "--timeout", "1", "long"]).ends(124);
    site.kubectl(&["-n", OURS, "wait", "--for=condition=Submitted", "bridgejob/long", "--timeout=60s"]).ends(0);
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
    lab.down().await.unwrap();
}
