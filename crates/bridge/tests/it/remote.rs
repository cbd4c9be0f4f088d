//! The same promises where the job runs behind HTTP, and data comes from S3.

use bridge_testkit::faults::{Fault, Operation};
use bridge_testkit::ray::{Options, RayServer};
use bridge_testkit::s3::S3Server;
use bridge_testkit::slurm::{Emulator, EmulatorOptions};
use rustix::process::Signal;
use secrecy::ExposeSecret;

use crate::support::{Bench, Done, until};

const SECRET: &str = "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: login\nstringData:\n  username: alice\n  token: alice-token\n";

async fn slurm(bench: &Bench, script: &str) -> Emulator {
    let emulator = Emulator::start(EmulatorOptions::default()).await.unwrap();
    let url = format!(
        "resourceURL: {}\n  resourceManager: slurm\n  resourcesecret: login\n  updateinterval: 1",
        emulator.url()
    );
    let folder = format!("  jobproperties:\n    currentWorkingDir: {}\n", bench.path("").display());
    let yaml = bench.yaml("sample", script, &folder).replace("resourceURL: \"local:\"", &url);
    bench.file("sample.yaml", &(yaml + SECRET));
    emulator
}

const WAITS: &str =
    "echo ran >> $D/ran\ni=0\nwhile [ ! -e $D/go ] && [ $i -lt 2000 ]; do sleep 0.05; i=$((i+1)); done\nexit 6";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slurm_job_outlives_its_runner() {
    let bench = Bench::new();
    let emulator = slurm(&bench, WAITS).await;
    let runner = bench.start(&["run", "sample.yaml"]);
    until("the job runs", || bench.path("ran").exists());
    runner.kill();
    std::fs::write(bench.path("go"), "").unwrap();
    let done = bench.bridge(&["run", "sample.yaml"]).ends(6);
    assert!(done.err.contains("sample: FAILED: failed (FAILED, exit code 6"), "{done:?}");
    assert_eq!(bench.read("ran"), "ran\n");
    assert_eq!(emulator.runs().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_reply_is_no_second_job() {
    let bench = Bench::new();
    let emulator = slurm(&bench, "echo ran >> $D/ran").await;
    emulator.faults().next(Operation::Submit, Fault::LostReply);
    let runner = bench.start(&["run", "sample.yaml"]);
    until("the job ran", || bench.path("ran").exists());
    // The rest is a minute in which a late request could land; killing the job need not wait for the user.
    runner.kill();
    assert_eq!(emulator.runs().len(), 1);
    assert_eq!(emulator.job_ids().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_signal_cancels_a_slurm_job() {
    let bench = Bench::new();
    let _emulator = slurm(&bench, WAITS).await;
    let runner = bench.start(&["run", "sample.yaml"]);
    until("the job runs", || bench.path("ran").exists());
    runner.signal(Signal::TERM);
    assert!(runner.wait().ends(130).err.contains("sample: KILLED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killing_finds_the_secret_where_it_was() {
    let bench = Bench::new();
    let _emulator = slurm(&bench, WAITS).await;
    bench.bridge(&["run", "--detach", "sample.yaml"]).ends(0);
    until("the job runs", || bench.path("ran").exists());
    // Without the file there is no Secret.
    std::fs::rename(bench.path("sample.yaml"), bench.path("other.yaml")).unwrap();
    let done = bench.bridge(&["kill", "sample"]).ends(2);
    assert!(done.err.contains("the Secret \"login\" is not here"), "{done:?}");
    std::fs::rename(bench.path("other.yaml"), bench.path("sample.yaml")).unwrap();
    assert!(bench.bridge(&["kill", "sample"]).ends(0).err.contains("sample: KILLED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_ray_job_shows_its_output() {
    let bench = Bench::new();
    let options = Options { token: Some("ray-token".to_owned()), ..Options::default() };
    let ray = RayServer::start(options, bridge_testkit::faults::FaultPlan::new()).await.unwrap();
    let yaml = format!(
        "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: sample\nspec:\n  resourceManager: ray\n  \
         resourceURL: {}\n  resourcesecret: ray\n  updateinterval: 1\n  jobdata:\n    jobscript: echo from ray; exit 3\n",
        ray.url()
    );
    bench.file("sample.yaml", &yaml);
    let output = bench.command(&["run", "sample.yaml"]).env("BRIDGE_SECRET_RAY_TOKEN", "ray-token").output().unwrap();
    let done = crate::support::Done::of(&output).ends(3);
    assert!(done.out.ends_with("\nfrom ray\n"), "{done:?}");
    assert_eq!(ray.jobs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scripts_and_data_come_from_s3_and_results_go_there() {
    let bench = Bench::new();
    let s3 = S3Server::start().await.unwrap();
    s3.create_bucket("inputs").unwrap();
    std::fs::create_dir_all(s3.object_path("inputs", "data")).unwrap();
    std::fs::write(s3.object_path("inputs", "job.sh"), "#!/bin/sh\ncat numbers\nsort numbers > sorted\n").unwrap();
    std::fs::write(s3.object_path("inputs", "data/numbers"), "2\n1\n").unwrap();
    let yaml = format!(
        "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: sample\nspec:\n  resourceURL: \"local:\"\n  \
         jobdata:\n    scriptlocation: s3\n    jobscript: inputs:job.sh\n    additionaldata: inputs:data/numbers\n  s3storage:\n    \
         s3secret: keys\n    endpoint: {}\n    secure: false\n  s3upload:\n    bucket: results\n    files: sorted\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata:\n  name: keys\nstringData:\n  accesskey: test-access-key\n  \
         secretkey: test-secret-key\n",
        s3.address()
    );
    bench.file("sample.yaml", &yaml);
    let plan = bench.bridge(&["plan", "sample.yaml"]).ends(0);
    for part in [
        "brings    script: inputs:job.sh\n",
        "brings    file: inputs:data/numbers\n",
        "sends     sorted to results:sample/\n",
    ] {
        assert!(plan.out.contains(part), "{part}\n{}", plan.out);
    }
    let slurm = yaml.replace("\"local:\"", "http://slurm:6820\n  resourceManager: slurm\n  resourcesecret: keys");
    bench.file("slurm.yaml", &format!("{slurm}  username: alice\n  password: alice-token\n"));
    let plan = bench.bridge(&["plan", "slurm.yaml"]).ends(0);
    assert!(plan.out.contains("brings    script: inputs:job.sh\n"), "managers look at a script's first line: {plan:?}");
    assert_eq!(bench.bridge(&["run", "sample.yaml"]).ends(0).out, "2\n1\n");
    assert_eq!(std::fs::read_to_string(s3.object_path("results", "sample/sorted")).unwrap(), "1\n2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn output_of_a_slurm_job_is_shown_from_a_shared_folder_or_its_place_is_told() {
    let bench = Bench::new();
    let _emulator = slurm(&bench, "echo from slurm").await;
    let done = bench.bridge(&["run", "sample.yaml"]).ends(0);
    assert!(done.err.contains("sample: its output could not be read: the output is in "), "{done:?}");
    let shared = bench.path("");
    let shared = shared.to_str().unwrap();
    let shown = bench.bridge(&["logs", "--shared-folder", shared, "sample"]).ends(0);
    assert_eq!((shown.out.as_str(), shown.err.as_str()), ("from slurm\n", ""));
    let done = bench.bridge(&["run", "--again", "--shared-folder", shared, "sample.yaml"]).ends(0);
    assert_eq!(done.out, "from slurm\n");
    assert_eq!(bench.bridge(&["logs", "sample"]).ends(0).out, "from slurm\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_slurm_example_runs_on_a_real_cluster() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let slurm = lab.slurm().await.unwrap();
    let token = slurm.token(600).await.unwrap();
    let example = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/slurm.yaml"));
    let bench = Bench::new();
    bench.file("slurm.yaml", &example.replace("http://127.0.0.1:6820", slurm.url.as_str()));
    let mut run = bench.command(&["run", "slurm.yaml"]);
    run.env("BRIDGE_SECRET_SLURM_ALICE_USERNAME", &slurm.user);
    run.env("BRIDGE_SECRET_SLURM_ALICE_TOKEN", token.expose_secret());
    let done = Done::of(&run.output().unwrap()).ends(0);
    assert!(done.err.contains("slurm-hello: DONE: completed (COMPLETED, exit code 0)"), "{done:?}");

    let list: serde_json::Value = serde_json::from_str(&bench.bridge(&["list", "-o", "json"]).ends(0).out).unwrap();
    let path = format!("/tmp/slurm-hello-{}.out", list["jobs"][0]["jobId"].as_str().unwrap());
    assert!(done.err.contains(&format!("the output is in {path}")), "{done:?}");
    let steps = "step 1 of 3 on node1\nstep 2 of 3 on node1\nstep 3 of 3 on node1\n";
    assert_eq!(slurm.exec(&["cat", &path]).await.unwrap(), steps);
}
