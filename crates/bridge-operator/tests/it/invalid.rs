//! Jobs that cannot be: each is refused by the API server, or by a condition, in words that name the fault.

use std::collections::BTreeSet;

use bridge_api::{BridgeJob, BridgeJobStatus, conditions};
use futures::future::join_all;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::bed::{Bed, PATIENCE, watched};

const RULES: &str = include_str!("../../../bridge-api/testdata/rules.json");
const INVALID: &str = include_str!("../../testdata/invalid.json");

/// As `kubectl` sends it: a field that does not exist is an error. Returns what the API server has against it.
async fn refusal(bed: &Bed, method: &str, job: &Value, keep: bool) -> Option<String> {
    let name = job["metadata"]["name"].as_str().unwrap();
    let base = format!("/apis/bridgejob.ibm.com/v1alpha1/namespaces/{}/bridgejobs", bed.ns);
    let path = if method == "PUT" { format!("{base}/{name}") } else { base };
    let dry = if keep { "" } else { "&dryRun=All" };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{path}?fieldValidation=Strict{dry}"))
        .header("Content-Type", "application/json")
        .body(job.to_string().into_bytes())
        .unwrap();
    match bed.client.request::<Value>(request).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// A job from a case: what is `null` is left out, and `repeat` stands for a long text.
fn merged(base: &Value, change: &Value) -> Value {
    let mut job = base.clone();
    merge(&mut job, change);
    job
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if let (Some(text), Some(times)) = (patch.get("repeat"), patch.get("times")) {
        *target = text.as_str().unwrap().repeat(times.as_u64().unwrap().try_into().unwrap()).into();
        return;
    }
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(target.as_object_mut().unwrap().entry(key).or_insert(Value::Null), value);
        }
    }
}

fn texts(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message.as_str().unwrap()).collect()
}

/// The same cases that the rules outside of a cluster are tested with.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_what_the_rules_refuse() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    let cases: Value = serde_json::from_str(RULES).unwrap();
    let check = |name: &Value, messages: &Value, refusal: Option<String>| match (texts(messages).as_slice(), &refusal) {
        ([], None) => {}
        ([], Some(refusal)) => panic!("{name}: {refusal}"),
        // Of several faults the API server may name those first that it sees first.
        (messages, Some(refusal)) if messages.iter().any(|message| refusal.contains(message)) => {}
        (messages, refusal) => panic!("{name}: wanted {messages:?}, got {refusal:?}"),
    };
    for case in cases["create"].as_array().unwrap() {
        let job = merged(&cases["base"], &case["change"]);
        check(&case["name"], &case["messages"], refusal(&bed, "POST", &job, false).await);
    }
    for (number, case) in cases["update"].as_array().unwrap().iter().enumerate() {
        // Nothing is made of a job that is suspended from the beginning.
        let here = json!({ "metadata": { "name": format!("update-{number}") }, "spec": { "suspend": true } });
        let old = merged(&merged(&cases["base"], &case["old"]), &here);
        assert_eq!(refusal(&bed, "POST", &old, true).await, None, "{}", case["name"]);
        // The operator may write between our look and our change.
        let answer = loop {
            let version = bed.jobs().get(&format!("update-{number}")).await.unwrap().metadata.resource_version;
            let here = merged(&here, &json!({ "metadata": { "resourceVersion": version } }));
            let new = merged(&merged(&cases["base"], &case["new"]), &here);
            let answer = refusal(&bed, "PUT", &new, false).await;
            if !answer.as_ref().is_some_and(|answer| answer.contains("the object has been modified")) {
                break answer;
            }
        };
        check(&case["name"], &case["messages"], answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_invalid_jobs_are_refused_in_words_that_name_the_fault() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let bed = Bed::new(lab).await;
    bed.secret("s3keys", &[("accesskey", "a"), ("secretkey", "b")]).await;
    let cases: Value = serde_json::from_str(INVALID).unwrap();
    let of = |who: &str| cases[who].as_array().unwrap().clone();
    let (server, operator, worker) = (of("server"), of("operator"), of("worker"));
    let names: BTreeSet<_> =
        [&server, &operator, &worker].into_iter().flatten().map(|case| case["name"].as_str().unwrap()).collect();
    assert!(names.len() >= 100, "only {} cases", names.len());
    let base = json!({
        "apiVersion": "bridgejob.ibm.com/v1alpha1", "kind": "BridgeJob", "metadata": { "name": "job" },
        "spec": bed.spec("true", &json!({})),
    });

    let mut faults = Vec::new();
    for case in &server {
        let refusal = refusal(&bed, "POST", &merged(&base, &case["change"]), false).await;
        if !refusal.as_ref().is_some_and(|refusal| refusal.contains(case["says"].as_str().unwrap())) {
            faults.push(format!("{}: wanted {}, got {refusal:?}", case["name"], case["says"]));
        }
    }
    let stored = operator.iter().map(|case| (case, conditions::READY, "False"));
    let stored = stored.chain(worker.iter().map(|case| (case, conditions::FAILED, "True")));
    let told = stored.enumerate().map(async |(number, (case, condition, holds))| {
        let name = format!("stored-{number}");
        let job = merged(&merged(&base, &case["change"]), &json!({ "metadata": { "name": name } }));
        assert_eq!(refusal(&bed, "POST", &job, true).await, None, "{}", case["name"]);
        let found = |status: &BridgeJobStatus| {
            status.conditions.iter().find(|c| c.type_ == condition && c.status == holds).map(|c| c.message.clone())
        };
        let is = |job: Option<&BridgeJob>| {
            job.and_then(|job| job.status.as_ref()).is_some_and(|status| found(status).is_some())
        };
        // All faults are told at once, so none of them may end the test.
        let waiting = tokio::time::timeout(PATIENCE, watched(&bed.jobs(), &name, is)).await;
        let status = bed.status(&name).await;
        let message = waiting.ok().and_then(|_| found(&status)).unwrap_or_else(|| format!("no condition: {status:?}"));
        let fits = message.contains(case["says"].as_str().unwrap());
        (!fits).then(|| format!("{}: wanted {}, got {message}", case["name"], case["says"]))
    });
    faults.extend(join_all(told).await.into_iter().flatten());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(bed.runs(), 0);
    assert_eq!(bed.jobs().list(&ListParams::default()).await.unwrap().items.len(), operator.len() + worker.len());
}
