use bridge_api::{BridgeJob, ResourceManager as Kind};
use serde_json::{Value, json};

use super::*;
use crate::credentials::keys;

fn job(spec: &Value) -> BridgeJob {
    let mut whole = json!({
        "resourceURL": "https://host.example/slurm/",
        "resourcesecret": "mysecret",
        "jobdata": { "jobscript": "/home/me/job.sh" },
    });
    merge(&mut whole, spec);
    serde_json::from_value(json!({
        "apiVersion": "bridgejob.ibm.com/v1alpha1",
        "kind": "BridgeJob",
        "metadata": { "name": "sample" },
        "spec": whole,
    }))
    .unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn standalone() -> Resolved {
    Resolved { uid: "run-1".to_owned(), images: ImageRules::standalone() }
}

fn cluster() -> Resolved {
    let replace = REFERENCE_IMAGES.into_iter().map(ImagePattern::new);
    Resolved { uid: "uid-1".to_owned(), images: ImageRules::cluster("example.org/bridge:1", replace) }
}

fn planned(spec: &Value) -> JobPlan {
    plan(&job(spec), &standalone()).unwrap().into_plan().unwrap()
}

fn faults(spec: &Value) -> Vec<String> {
    plan(&job(spec), &standalone()).unwrap_err().iter().map(ToString::to_string).collect()
}

const S3: &str = r#"{ "s3secret": "s3", "endpoint": "store.example:9000" }"#;

fn with_s3(spec: &Value) -> Value {
    let mut whole = json!({ "s3storage": serde_json::from_str::<Value>(S3).unwrap() });
    merge(&mut whole, spec);
    whole
}

#[test]
fn the_form_of_a_url_tells_the_manager() {
    let table = [
        ("local:", Some(Kind::Local)),
        ("local://", Some(Kind::Local)),
        ("http://host/slurm/v0.0.38", Some(Kind::Slurm)),
        ("http://host:6820", Some(Kind::Slurm)),
        ("https://gateway/site-a/slurm/", Some(Kind::Slurm)),
        ("https://gateway/v0.0.40/", Some(Kind::Slurm)),
        ("https://gateway/v0.0.x/", None),
        ("http://mycluster.ibm.com:8080/platform/", Some(Kind::Lsf)),
        ("http://host:8088/lsf", Some(Kind::Lsf)),
        ("http://head:8265", Some(Kind::Ray)),
        ("http://head:8265/", Some(Kind::Ray)),
        ("https://dashboard.example/api/jobs/", Some(Kind::Ray)),
        ("https://quantum.cloud.ibm.com/api/v1", Some(Kind::Quantum)),
        ("https://eu-de.quantum.cloud.ibm.com/api/v1", Some(Kind::Quantum)),
        ("https://us-east.quantum-computing.cloud.ibm.com", Some(Kind::Quantum)),
        ("https://notquantum.cloud.ibm.com/api/v1", None),
        ("http://my-slurm-cluster@hpc.com", None),
        ("https://host/slurm/platform", None),
        ("https://host.example", None),
    ];
    for (url, kind) in table {
        assert_eq!(kind_of_url(&url::Url::parse(url).unwrap()), kind, "{url}");
    }
}

#[test]
fn the_name_of_an_image_tells_the_manager() {
    let table = [
        ("quay.io/ibmdpdev/slurm-pod:v0.0.1", Some(Kind::Slurm)),
        ("quay.io/x/lsf-pod", Some(Kind::Lsf)),
        ("registry:5000/x/ray-pod@sha256:0123", Some(Kind::Ray)),
        ("ghcr.io/x/bridge-operator-quantum-pod:1", Some(Kind::Quantum)),
        ("quay.io/slurm/worker:1", None),
        ("quay.io/x/slurm-to-lsf:1", None),
        ("array-pod:1", None),
    ];
    for (image, kind) in table {
        assert_eq!(kind_of_image(image), kind, "{image}");
    }
}

#[test]
fn a_named_manager_wins_over_the_url_and_the_url_over_the_image() {
    let image = "quay.io/x/ray-pod:1";
    let url = "http://host:8080/platform/";
    assert_eq!(
        planned(&json!({ "resourceManager": "slurm", "resourceURL": url, "image": image })).target.manager,
        Kind::Slurm
    );
    assert_eq!(planned(&json!({ "resourceURL": url, "image": image })).target.manager, Kind::Lsf);
    assert_eq!(planned(&json!({ "resourceURL": "http://host", "image": image })).target.manager, Kind::Ray);
    let unknown = faults(&json!({ "resourceURL": "http://host" }));
    assert_eq!(
        unknown,
        ["spec.resourceManager: neither resourceURL nor image tells which manager \"http://host\" is; \
          write resourceManager: one of slurm, lsf, ray, quantum, local"]
    );
}

#[test]
fn patterns_match_images_however_they_are_written() {
    let slurm = ImagePattern::new("*/slurm-pod:*");
    for image in [
        "quay.io/ibmdpdev/slurm-pod:v0.0.1",
        "quay.io/ibmdpdev/slurm-pod",
        "slurm-pod:1",
        "slurm-pod",
        "registry:5000/slurm-pod",
        "quay.io/x/slurm-pod@sha256:0123",
    ] {
        assert!(slurm.matches(image), "{image}");
    }
    for image in ["quay.io/x/my-slurm-pod:1", "quay.io/x/slurm-pods:1", "quay.io/slurm-pod/x:1", ""] {
        assert!(!slurm.matches(image), "{image}");
    }
    assert!(ImagePattern::new("*bridge-operator-*-pod:*").matches("ghcr.io/a/bridge-operator-slurm-pod:2"));
    assert!(ImagePattern::new("a?c").matches("abc"));
    assert!(!ImagePattern::new("a?c").matches("ac"));
    assert!(ImagePattern::new("*").matches(""));
    assert!(ImagePattern::new("**a*b**").matches("xxaxxbxx"));
}

#[test]
fn an_image_is_ours_replaced_or_foreign() {
    let decide = |image: Option<&str>| {
        let mut spec = json!({});
        if let Some(image) = image {
            spec["image"] = json!(image);
        }
        plan(&job(&spec), &cluster()).unwrap()
    };
    assert!(matches!(decide(None), Planned::Ours(_)));
    assert!(matches!(decide(Some("")), Planned::Ours(_)));
    assert!(matches!(decide(Some("example.org/bridge:1")), Planned::Ours(_)));
    let Planned::Replaced { plan, image, pattern } = decide(Some("quay.io/x/slurm-pod:1")) else { panic!() };
    assert_eq!((image.as_str(), pattern.as_str()), ("quay.io/x/slurm-pod:1", "*/slurm-pod:*"));
    assert_eq!(
        plan.notes.last().unwrap(),
        "image quay.io/x/slurm-pod:1 is replaced by our worker (it matches */slurm-pod:*)"
    );
    assert_eq!(decide(Some("example.org/mine:1")), Planned::Foreign { image: "example.org/mine:1".to_owned() });
}

#[test]
fn a_foreign_pod_needs_no_manager_but_a_sound_job() {
    let foreign = json!({ "image": "example.org/mine:1", "resourceURL": "anything goes" });
    assert!(matches!(plan(&job(&foreign), &cluster()), Ok(Planned::Foreign { .. })));
    let broken = json!({ "image": "example.org/mine:1", "jobproperties": "{" });
    assert_eq!(plan(&job(&broken), &cluster()).unwrap_err()[0].path, "spec.jobproperties");
}

#[test]
fn without_a_cluster_an_image_is_not_run() {
    let plan = planned(&json!({ "image": "example.org/mine:1" }));
    assert!(plan.notes.iter().any(|note| note.contains("is not used")), "{:?}", plan.notes);
}

#[test]
fn everything_is_decided() {
    let plan = planned(&with_s3(&json!({
        "updateinterval": 7,
        "jobproperties": "{\"Queue\": \"V100\", \"runlimit\": 20}",
        "jobdata": {
            "jobscript": "scripts:run/job.sh ",
            "scriptlocation": "s3",
            "scriptextralocation": "s3",
            "scriptmetadata": "meta:m.json",
            "jobparameters": "",
            "additionaldata": "data:a/one.dat , data:two.dat",
        },
        "s3storage": { "region": "", "addressing": "virtual", "remoteEndpoint": "inner:9000" },
        "s3upload": { "bucket": "results", "files": "out.txt, /scratch/x.log,, out.txt" },
    })));
    assert_eq!(plan.key, crate::ids::JobKey::new("", "sample"));
    assert_eq!(plan.uid, "run-1");
    assert_eq!(plan.target.secret, Some(SecretRef("mysecret".to_owned())));
    assert_eq!(plan.poll_seconds, 7);
    assert_eq!(plan.script, ScriptSource::Object(ObjectRef { bucket: "scripts".into(), key: "run/job.sh".into() }));
    assert_eq!(plan.metadata, TextSource::Object(ObjectRef { bucket: "meta".into(), key: "m.json".into() }));
    assert_eq!(plan.parameters, TextSource::Inline(String::new()));
    assert_eq!(plan.inputs.iter().map(ToString::to_string).collect::<Vec<_>>(), ["data:a/one.dat", "data:two.dat"]);
    assert_eq!(plan.properties, [("Queue".to_owned(), json!("V100")), ("runlimit".to_owned(), json!(20))].into());
    let storage = plan.storage.clone().unwrap();
    assert_eq!((storage.region, storage.virtual_host, storage.secure), (None, true, true));
    assert_eq!(storage.remote_endpoint.as_deref(), Some("inner:9000"));
    let upload = plan.upload.clone().unwrap();
    assert_eq!((upload.bucket.as_str(), upload.prefix.as_str()), ("results", "sample"));
    assert_eq!(upload.files, ["out.txt", "/scratch/x.log"]);
}

#[test]
fn text_and_map_and_either_spelling_give_the_same_plan() {
    let one = planned(&json!({ "jobproperties": "{\"a\": 1}" }));
    let two = planned(
        &json!({ "jobproperties": { "a": 1 }, "jobdata": { "jobscript": null, "jobScript": "/home/me/job.sh" } }),
    );
    assert_eq!(one, two);
}

#[test]
fn a_plan_survives_its_stored_form_and_names_only_secrets() {
    let plan =
        planned(&with_s3(&json!({ "s3upload": { "bucket": "b" }, "jobproperties": { "a": { "b": [1, null] } } })));
    let stored = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<JobPlan>(&stored).unwrap(), plan);
    assert!(stored.contains("\"secret\":\"mysecret\""), "{stored}");
}

#[test]
fn s3_with_nothing_to_fetch_is_legal() {
    let plan = planned(&json!({ "jobdata": { "scriptextralocation": "s3" } }));
    assert_eq!(
        (plan.metadata, plan.parameters),
        (TextSource::Inline(String::new()), TextSource::Inline(String::new()))
    );
}

#[test]
fn a_local_job_is_looked_at_often() {
    let local = json!({ "resourceURL": "local:", "resourcesecret": null, "jobdata": { "jobscript": "#!/bin/sh\n", "scriptlocation": "inline" } });
    let plan = planned(&local);
    assert_eq!((plan.target.manager, plan.poll_seconds), (Kind::Local, 1));
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_is_wrong_is_said_with_its_field_and_a_way_out() {
    let table: [(Value, &str); 27] = [
        (
            json!({ "resourceURL": "host.example/slurm" }),
            "spec.resourceURL: \"host.example/slurm\" is not a URL; write it with its scheme: https://host.example/slurm",
        ),
        (
            json!({ "resourceURL": "host:8080/platform" }),
            "spec.resourceURL: \"host:8080/platform\" has no scheme; write it like this: https://host:8080/platform",
        ),
        (
            json!({ "resourceURL": "ftp://host/slurm" }),
            "spec.resourceURL: the scheme \"ftp\" is unknown; write https, http, or local: for this machine",
        ),
        (
            json!({ "resourceURL": "https://" }),
            "spec.resourceURL: \"https://\" is not a URL (empty host); write it like this: https://host:port/path",
        ),
        (
            json!({ "resourceURL": "https://u:hunter2@host/slurm" }),
            "spec.resourceURL: holds a password, which everyone who sees the job could read; put it into resourcesecret",
        ),
        (
            json!({ "resourceURL": "https://host/slurm?user=me" }),
            "spec.resourceURL: \"https://host/slurm?user=me\" has a query or a fragment; write only scheme, host, port and path",
        ),
        (
            json!({ "resourceURL": "local:", "resourceManager": "slurm" }),
            "spec.resourceURL: \"local:\" is this machine, but resourceManager is slurm; write the URL of its REST interface",
        ),
        (
            json!({ "resourceManager": "local" }),
            "spec.resourceURL: \"https://host.example/slurm/\" is another machine, but resourceManager is local; write local:",
        ),
        (
            json!({ "resourcesecret": null }),
            "spec.resourcesecret: resourcesecret is missing; name the Secret that holds the credentials (only ray and local need none)",
        ),
        (
            json!({ "jobdata": { "jobscript": "" } }),
            "spec.jobdata: write exactly one of jobscript and jobScript (they mean the same), and not an empty one",
        ),
        (
            json!({ "jobdata": { "jobScript": "x" } }),
            "spec.jobdata: write exactly one of jobscript and jobScript (they mean the same), and not an empty one",
        ),
        (
            json!({ "jobdata": { "jobscript": "#!/bin/sh\ndate" } }),
            "spec.jobdata.jobscript: is the text of a script, but scriptlocation is remote (the default), which means a path on the remote system; write scriptlocation: inline",
        ),
        (
            json!({ "jobdata": { "jobscript": null, "jobScript": "#!/bin/sh" } }),
            "spec.jobdata.jobScript: is the text of a script, but scriptlocation is remote (the default), which means a path on the remote system; write scriptlocation: inline",
        ),
        (
            json!({ "jobdata": { "jobscript": " \n", "scriptlocation": "inline" } }),
            "spec.jobdata.jobscript: is blank; write the text of the script",
        ),
        (
            json!({ "jobdata": { "jobscript": "  " } }),
            "spec.jobdata.jobscript: is blank; write a path on the remote system",
        ),
        (
            json!({ "jobdata": { "scriptlocation": "s3", "jobscript": "b:k" } }),
            "spec.jobdata.scriptlocation: scriptlocation is s3, but there is no s3storage; add s3storage with s3secret and endpoint",
        ),
        (
            with_s3(&json!({ "jobdata": { "scriptlocation": "s3" } })),
            "spec.jobdata.jobscript: \"/home/me/job.sh\" does not name an object in S3; write bucket:object",
        ),
        (
            with_s3(&json!({ "jobdata": { "scriptlocation": "s3", "jobscript": "b:one,b:two" } })),
            "spec.jobdata.jobscript: names several objects, but one is taken; write one bucket:object",
        ),
        (
            with_s3(&json!({ "jobdata": { "scriptextralocation": "s3", "jobparameters": "{\"a\": 1}" } })),
            "spec.jobdata.jobparameters: \"{\"a\": 1}\" does not name an object in S3; write bucket:object",
        ),
        (
            with_s3(&json!({ "jobdata": { "additionaldata": "data:a, plain" } })),
            "spec.jobdata.additionaldata: \"plain\" does not name an object in S3; write bucket:object",
        ),
        (
            with_s3(&json!({ "jobdata": { "additionaldata": "data:a/x, data:b/x" } })),
            "spec.jobdata.additionaldata: \"data:a/x\" and \"data:b/x\" would both be the file \"x\"; give one of the objects another name",
        ),
        (
            with_s3(&json!({ "jobdata": { "additionaldata": "data:folder/" } })),
            "spec.jobdata.additionaldata: \"data:folder/\" names no file; write bucket:folder/file",
        ),
        (
            json!({ "s3storage": { "s3secret": "s", "endpoint": "a b" } }),
            "spec.s3storage.endpoint: \"a b\" is not a host; write host or host:port",
        ),
        (
            with_s3(&json!({ "s3storage": { "remoteEndpoint": "http://x" } })),
            "spec.s3storage.remoteEndpoint: \"http://x\" is not a host; write host or host:port",
        ),
        (
            with_s3(&json!({ "s3upload": { "bucket": "a/b" } })),
            "spec.s3upload.bucket: \"a/b\" is not a bucket; write its bare name",
        ),
        (
            with_s3(&json!({ "s3upload": { "bucket": "b", "files": "a/x, b/x" } })),
            "spec.s3upload.files: \"a/x\" and \"b/x\" would both be the object \"x\"; give one of the files another name",
        ),
        (
            json!({ "jobproperties": "{'a': 1}" }),
            "spec.jobproperties: is not valid JSON: key must be a string (line 1, column 2 of the text); write double quotes (\") in place of single ones",
        ),
    ];
    for (spec, message) in table {
        assert_eq!(faults(&spec), [message], "{spec}");
    }
}

#[test]
fn all_faults_are_said_at_once() {
    let spec = json!({ "resourceURL": "ftp://x", "resourcesecret": null, "jobdata": { "jobscript": "" }, "s3upload": { "bucket": "b" } });
    let paths: Vec<String> =
        plan(&job(&spec), &standalone()).unwrap_err().into_iter().map(|error| error.path).collect();
    assert_eq!(paths, ["spec.jobdata", "spec.s3upload", "spec.resourceURL"]);
}

#[test]
fn texts_are_bounded() {
    let long = |length: usize| "x".repeat(length);
    let inline = |length| json!({ "jobdata": { "jobscript": long(length), "scriptlocation": "inline" } });
    assert!(plan(&job(&inline(256 * 1024)), &standalone()).is_ok());
    assert!(faults(&inline(256 * 1024 + 1))[0].contains("256 KiB are allowed"));
    assert!(faults(&json!({ "jobdata": { "scriptmetadata": long(70_000) } }))[0].contains("64 KiB are allowed"));
    assert!(faults(&json!({ "jobproperties": { "a": long(70_000) } }))[0].contains("64 KiB are allowed"));
}

#[test]
fn a_name_from_a_cluster_is_not_known_here() {
    let mut job = job(&json!({}));
    job.metadata.name = None;
    job.metadata.generate_name = Some("run-".to_owned());
    let faults = plan(&job, &standalone()).unwrap_err();
    assert_eq!(faults[0].message, "is missing, and only a cluster makes one from generateName; write a name");
}

#[test]
fn secrets_are_needed_with_their_keys() {
    let plan = planned(&with_s3(&json!({})));
    let needs = secrets_of(&plan);
    assert_eq!(needs.iter().map(|need| need.secret.0.as_str()).collect::<Vec<_>>(), ["mysecret", "s3"]);
    assert_eq!(needs[0].missing([keys::TOKEN]), None);
    assert_eq!(needs[0].missing([keys::USERNAME, keys::PASSWORD, "other"]), None);
    assert_eq!(
        needs[0].missing([keys::USERNAME]).unwrap(),
        "the Secret \"mysecret\" needs the keys username and password, or token; it has username"
    );
    assert_eq!(needs[1].missing([]).unwrap(), "the Secret \"s3\" needs the keys accesskey and secretkey; it is empty");
    let ray = planned(&json!({ "resourceURL": "http://head:8265" }));
    assert_eq!(secrets_of(&ray)[0].missing([]), None);
}

/// Any text in any field is planned or refused, and never makes the plan repeat a password.
#[test]
fn no_text_is_too_odd() {
    let odd = [
        "",
        " ",
        ":",
        "::",
        ",",
        ",,,",
        "a:",
        ":b",
        "a:b",
        "a:b,c:d",
        "/",
        "..",
        "a:..",
        "a:b/",
        "\0",
        "\u{1F600}",
        "http://",
        "http://[",
        "local:x",
        "u:hunter2@h",
        "http://u:hunter2@h",
        "x://u:hunter2@h",
        "//u:hunter2@h",
        "{",
        "[]",
        "{}",
        "*",
    ];
    let fields = ["resourceURL", "resourcesecret", "image"];
    let data = ["jobscript", "scriptmetadata", "jobparameters", "additionaldata"];
    for text in odd {
        for field in fields {
            check(&json!({ field: text }), text);
        }
        for location in ["remote", "inline", "s3"] {
            for field in data {
                let extra = if location == "remote" { "inline" } else { "s3" };
                check(
                    &with_s3(
                        &json!({ "jobdata": { field: text, "scriptlocation": location, "scriptextralocation": if location == "s3" { "s3" } else { extra } } }),
                    ),
                    text,
                );
            }
        }
        check(&json!({ "s3storage": { "s3secret": "s", "endpoint": text } }), text);
        check(&with_s3(&json!({ "s3upload": { "bucket": text, "files": text } })), text);
        check(&json!({ "jobproperties": text }), text);
    }
}

fn check(spec: &Value, text: &str) {
    for resolved in [standalone(), cluster()] {
        match plan(&job(spec), &resolved) {
            Ok(planned) => {
                if let Some(plan) = planned.plan() {
                    let stored = serde_json::to_string(plan).unwrap();
                    assert_eq!(&serde_json::from_str::<JobPlan>(&stored).unwrap(), plan);
                }
            }
            Err(errors) => {
                assert!(!errors.is_empty(), "{spec}");
                let in_url = spec["resourceURL"] == text;
                for error in errors {
                    assert!(error.path.starts_with("spec"), "{error}");
                    assert!(!(in_url && error.message.contains("hunter2")), "{error}");
                }
            }
        }
    }
}
