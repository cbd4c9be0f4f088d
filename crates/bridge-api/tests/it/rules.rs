//! `testdata/rules.json` says what the rules allow and refuse, so that the same cases can be sent to an API server.

use std::collections::BTreeSet;

use bridge_api::{BridgeJob, validate};
use serde_json::Value;

const CASES: &str = include_str!("../../testdata/rules.json");

/// JSON merge patch (RFC 7386); `{"repeat": …, "times": …}` is a long text.
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
        *target = serde_json::json!({});
    }
    let object = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn job(base: &Value, change: &Value) -> BridgeJob {
    let mut value = base.clone();
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

fn wanted(case: &Value) -> BTreeSet<String> {
    case["messages"].as_array().unwrap().iter().map(|message| message.as_str().unwrap().to_owned()).collect()
}

#[test]
fn new_jobs() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    for case in cases["create"].as_array().unwrap() {
        let found = validate::job(&job(&cases["base"], &case["change"]));
        let found: BTreeSet<String> = found.into_iter().map(|error| error.message).collect();
        assert_eq!(found, wanted(case), "{}", case["name"]);
    }
}

#[test]
fn changes() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    for case in cases["update"].as_array().unwrap() {
        let old = job(&cases["base"], &case["old"]);
        let new = job(&cases["base"], &case["new"]);
        let found = validate::update(&old.spec, &new.spec);
        let found: BTreeSet<String> = found.into_iter().map(|error| error.message).collect();
        assert_eq!(found, wanted(case), "{}", case["name"]);
    }
}

#[test]
fn properties_are_fixed_although_cel_cannot_see_them() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let old = job(&cases["base"], &serde_json::json!({"spec": {"jobproperties": {"Queue": "a"}}}));
    let new = job(&cases["base"], &serde_json::json!({"spec": {"jobproperties": {"Queue": "b"}}}));
    let found = validate::update(&old.spec, &new.spec);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "spec.jobproperties: jobproperties cannot be changed after creation; delete the BridgeJob and create it again"
    );
}
