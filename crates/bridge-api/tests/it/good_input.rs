//! Files that must be read, the seeds' examples first.

use bridge_api::reader::{self, Document, JobDocument, Mark, SecretDocument};
use bridge_api::{Addressing, BridgeJob, FieldError, JobProperties, PullPolicy, ScriptLocation};
use serde_json::json;

const README: &str = "\
kind: BridgeJob
apiVersion: bridgejob.ibm.com/v1alpha1
metadata:
  name: mybridgejob
spec:
  resourceURL: http://mycluster.ibm.com:8080/platform/
  resourcesecret: mysecret
  imagepullpolicy: Always
  updateinterval: 30
  jobproperties:
    runlimit: 20 # mins
  jobdata:
    jobScript: /home/batch.sh
    scriptlocation: remote
  s3storage:
    s3secret: mysecret-s3
    endpoint: minio-endpoint.us-south.containers.appdomain.cloud
    secure: false
  s3upload:
    bucket: mybucket
    files: 'output.txt'
";

const PAPER: &str = r#"kind: BridgeJob
apiVersion: bridgeoperator.ibm.com/v1alpha1
metadata:
  name: slurmjob-test
spec:
  resourceURL: http://my-slurm-cluster@hpc.com
  image: slurmpod:0.1
  resourcesecret: mysecret
  imagepullpolicy: Always
  updateinterval: 20
  jobdata:
    jobscript: "mys3bucket:slurmbatch.sh"
    scriptlocation: "s3"
  jobproperties: |
    {
      "NodesNumber":"1", "Queue": "V100", "Tasks": "2", "slurmJobName": "test",
      "currentWorkingDir": "path-to-test/test-script/",
      "envLibPath": "/usr/mpi/gcc/openmpi-4.0.3rc4/lib",
      "ErrorFileName": "slurmjob.err",
      "OutputFileName": "slurmjob.out"
    }
  s3storage:
    s3secret: mysecret-s3
    endpoint: s3endpoint.cloud
    secure: false
"#;

fn read(text: &str) -> (Vec<Document>, Vec<String>) {
    let (documents, notes) = reader::read("job.yaml", text.as_bytes()).into_result().unwrap();
    (documents, notes.iter().map(ToString::to_string).collect())
}

fn document(text: &str) -> JobDocument {
    match read(text).0.pop() {
        Some(Document::Job(document)) => *document,
        other => panic!("{other:?}"),
    }
}

fn job(text: &str) -> BridgeJob {
    document(text).job
}

fn secret(text: &str) -> SecretDocument {
    match read(text).0.pop() {
        Some(Document::Secret(document)) => document,
        other => panic!("{other:?}"),
    }
}

#[test]
fn example_of_the_readme() {
    let spec = job(README).spec;
    assert_eq!(spec.script(), "/home/batch.sh");
    assert_eq!(spec.image_pull_policy, PullPolicy::Always);
    assert_eq!(spec.update_interval, 30);
    assert_eq!(spec.properties().unwrap()["runlimit"], json!(20));
    assert!(matches!(spec.job_properties, Some(JobProperties::Map(_))));
    let s3 = spec.s3().unwrap();
    assert!(!s3.secure);
    assert_eq!(s3.addressing, Addressing::Path);
    assert_eq!(spec.upload().unwrap().files, "output.txt");
}

#[test]
fn example_of_the_paper() {
    let (_, notes) = read(PAPER);
    assert_eq!(
        notes,
        ["job.yaml:2:13: apiVersion: bridgeoperator.ibm.com/v1alpha1 is taken as bridgejob.ibm.com/v1alpha1"]
    );
    let job = job(PAPER);
    assert_eq!(serde_json::to_value(&job).unwrap()["apiVersion"], "bridgejob.ibm.com/v1alpha1");
    assert_eq!(job.spec.script(), "mys3bucket:slurmbatch.sh");
    assert_eq!(job.spec.job_data.script_location, ScriptLocation::S3);
    assert_eq!(job.spec.properties().unwrap()["slurmJobName"], "test");
}

#[test]
fn defaults_are_filled_in_without_an_api_server() {
    let spec = job("{apiVersion: bridgejob.ibm.com/v1alpha1, kind: BridgeJob, metadata: {name: a}, \
                    spec: {resourceURL: 'http://x', jobdata: {jobscript: /x}}}")
    .spec;
    assert_eq!(
        serde_json::to_value(spec).unwrap(),
        json!({
            "resourceURL": "http://x", "imagepullpolicy": "IfNotPresent", "updateinterval": 20, "kill": false,
            "jobdata": {
                "jobscript": "/x", "scriptlocation": "remote", "scriptextralocation": "inline",
                "scriptmetadata": "", "jobparameters": "", "additionaldata": "",
            },
            "suspend": false, "backoffLimit": 0, "deletionPolicy": "Cancel",
        })
    );
}

#[test]
fn null_is_the_same_as_left_out() {
    let text = README.replace("  updateinterval: 30\n", "  updateinterval:\n  podTemplate: ~\n  image: null\n");
    let spec = job(&text).spec;
    assert_eq!((spec.update_interval, spec.pod_template, spec.image), (20, None, None));
}

#[test]
fn json_is_read_too() {
    let value = serde_json::to_string_pretty(&job(README)).unwrap().replace("  ", "\t");
    assert_eq!(job(&value), job(README));
}

#[test]
fn what_kubectl_prints_is_read_again() {
    let text = README.replace("kind: BridgeJob\n", "kind: BridgeJob\nstatus: {jobstatus: DONE, from: elsewhere}\n").replace(
        "  name: mybridgejob\n",
        "  name: mybridgejob\n  uid: 0ce8\n  generation: 1\n  creationTimestamp: \"2024-01-02T03:04:05Z\"\n  resourceVersion: \"7\"\n  \
         labels: {team: a}\n  managedFields: [{manager: kubectl, operation: Update}]\n",
    );
    let (_, notes) = read(&text);
    assert_eq!(notes, ["job.yaml:2:9: status: is left out; it belongs to the job it was taken from"]);
    assert_eq!(job(&text).status, None);
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", text.trim_end().replace('\n', "\n  "));
    assert_eq!(job(&list).spec, job(README).spec);
}

#[test]
fn several_documents_keep_their_order() {
    let (documents, _) = read(&format!("# first\n---\n{README}---\n---\n{PAPER}...\n"));
    let names: Vec<_> = documents
        .iter()
        .map(|document| match document {
            Document::Job(document) => document.job.metadata.name.clone().unwrap(),
            Document::Secret(document) => document.name.clone(),
        })
        .collect();
    assert_eq!(names, ["mybridgejob", "slurmjob-test"]);
}

#[test]
fn anchors_and_merges_of_a_sensible_size_are_expanded() {
    let text = README.replace(
        "  jobproperties:\n    runlimit: 20 # mins\n",
        "  jobproperties:\n    a: &a {x: 1, y: 2}\n    b: *a\n    c: {y: 3, <<: *a}\n",
    );
    let properties = job(&text).spec.properties().unwrap();
    assert_eq!(properties["b"], json!({"x": 1, "y": 2}));
    assert_eq!(properties["c"], json!({"x": 1, "y": 3}));
}

#[test]
fn yes_and_no_mean_what_kubectl_takes_them_for() {
    assert!(job(&README.replace("secure: false", "secure: yes")).spec.s3().unwrap().secure);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark() {
    let text = format!("\u{feff}{}", README.replace('\n', "\r\n"));
    assert_eq!(job(&text), job(README));
}

#[test]
fn later_errors_find_their_place() {
    let document = document(README);
    let at = |path: &str| document.places.at(path).unwrap();
    assert_eq!(at("spec.resourceURL"), Mark { line: 6, column: 16 });
    assert_eq!(at("spec.jobproperties.runlimit"), Mark { line: 11, column: 15 });
    assert_eq!(at("spec.jobdata"), Mark { line: 12, column: 3 });
    assert_eq!(at("spec.jobdata.additionaldata"), Mark { line: 12, column: 3 });
    assert_eq!(at("spec.podTemplate.env[3].name"), Mark { line: 5, column: 1 });
    let problem = document.problem(&FieldError::new("spec.resourceURL", "has no such host"));
    assert_eq!(problem.to_string(), "job.yaml:6:16: spec.resourceURL: has no such host");
}

#[test]
fn secrets() {
    let secret = secret(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\ntype: Opaque\n\
         data:\n  username: YWxpY2U=\n  password: b2xk\n  long: |\n    YWxp\n    Y2U=\nstringData:\n  password: \"new\"\n",
    );
    assert_eq!((secret.name.as_str(), secret.namespace.as_deref()), ("s", Some("n")));
    assert_eq!(secret.keys().collect::<Vec<_>>(), ["long", "password", "username"]);
    assert_eq!(secret.get("username"), Some(&b"alice"[..]));
    assert_eq!(secret.get("long"), Some(&b"alice"[..]));
    assert_eq!(secret.get("password"), Some(&b"new"[..]), "stringData wins");
    let shown = format!("{secret:?}");
    assert!(!shown.contains("alice") && !shown.contains("new") && shown.contains("password"), "{shown}");
}

#[test]
fn amounts_may_be_numbers() {
    // As the API server stores them, and as a file holds them.
    let stored: bridge_api::PodTemplate =
        serde_json::from_value(json!({"resources": {"requests": {"cpu": 1, "memory": "100Mi"}}})).unwrap();
    let text =
        README.replace("  updateinterval: 30\n", "  podTemplate: {resources: {requests: {cpu: 1, memory: 100Mi}}}\n");
    assert_eq!(job(&text).spec.pod_template(), stored);
    let requests = stored.resources.unwrap().requests.unwrap();
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("1", "100Mi"));
}
