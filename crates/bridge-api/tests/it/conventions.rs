//! The generated schema, held to the conventions of the Kubernetes API.

use bridge_api::BridgeJobStatus;
use bridge_api::conditions::doing::STATUS_REASONS;
use bridge_api::conditions::{REASONS, TYPES};
use serde_json::{Value, json};

fn schema() -> Value {
    let crd = serde_json::to_value(bridge_api::crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every schema in the schema, with its path and whether its parent requires it.
fn walk(path: &str, schema: &Value, required: bool, visit: &mut dyn FnMut(&str, &Value, bool)) {
    visit(path, schema, required);
    let names = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), field, names.contains(&json!(name)), visit);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner], true, visit);
        }
    }
}

fn violations(rule: impl Fn(&str, &Value, bool) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    walk("", &schema(), true, &mut |path, schema, required| {
        if !rule(path, schema, required) {
            found.push(path.to_owned());
        }
    });
    found
}

#[track_caller]
fn holds(rule: impl Fn(&str, &Value, bool) -> bool) {
    assert_eq!(violations(rule), Vec::<String>::new());
}

#[test]
fn the_walk_sees_the_deepest_fields() {
    let seen = violations(|_, _, _| false);
    for path in [".spec.podTemplate.env[].name", ".status.outputs[].checksum", ".spec.podTemplate.resources.limits[]"] {
        assert!(seen.iter().any(|other| other == path), "{path}");
    }
}

#[test]
fn texts_have_a_limit_or_choices() {
    holds(|_, schema, _| schema["type"] != "string" || schema["maxLength"].is_u64() || schema["enum"].is_array());
}

#[test]
fn lists_have_a_limit_and_a_merge_strategy() {
    holds(|_, schema, _| {
        schema["type"] != "array" || (schema["maxItems"].is_u64() && schema["x-kubernetes-list-type"].is_string())
    });
}

#[test]
fn maps_have_a_limit() {
    holds(|_, schema, _| schema["additionalProperties"].is_null() || schema["maxProperties"].is_u64());
}

#[test]
fn numbers_are_whole_and_bounded() {
    holds(|_, schema, _| schema["type"] != "number");
    holds(|path, schema, _| {
        schema["type"] != "integer"
            || schema["minimum"].is_number()
            || [".status.exitcode", ".spec.podTemplate.tolerations[].tolerationSeconds"].contains(&path)
    });
}

#[test]
fn booleans_have_a_default() {
    holds(|_, schema, _| schema["type"] != "boolean" || schema["default"].is_boolean());
}

#[test]
fn nothing_is_nullable() {
    holds(|_, schema, _| schema["nullable"].is_null());
}

#[test]
fn every_field_is_described() {
    holds(|path, schema, _| {
        path.ends_with("[]") || schema["description"].as_str().is_some_and(|text| text.ends_with('.'))
    });
}

/// A required field with a default would never be missing, and its place in `required` a lie.
#[test]
fn required_fields_have_no_default() {
    holds(|_, schema, required| !required || schema["default"].is_null());
}

#[test]
fn the_fields_of_the_contract_are_spelt_as_ever() {
    let schema = schema();
    let names = |pointer: &str| -> Vec<String> {
        schema.pointer(pointer).unwrap()["properties"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(
        names("/properties/spec"),
        [
            "activeDeadlineSeconds",
            "backoffLimit",
            "deletionPolicy",
            "image",
            "imagepullpolicy",
            "jobdata",
            "jobproperties",
            "kill",
            "podTemplate",
            "resourceManager",
            "resourceURL",
            "resourcesecret",
            "s3storage",
            "s3upload",
            "suspend",
            "ttlSecondsAfterFinished",
            "updateinterval",
        ]
    );
    assert_eq!(
        names("/properties/spec/properties/jobdata"),
        [
            "additionaldata",
            "jobScript",
            "jobparameters",
            "jobscript",
            "scriptextralocation",
            "scriptlocation",
            "scriptmetadata",
        ]
    );
    assert_eq!(
        names("/properties/spec/properties/s3storage"),
        ["addressing", "endpoint", "region", "remoteEndpoint", "s3secret", "secure"]
    );
    assert_eq!(names("/properties/spec/properties/s3upload"), ["bucket", "files"]);
    assert_eq!(
        names("/properties/status"),
        [
            "attempts",
            "completiontime",
            "conditions",
            "exitcode",
            "handover",
            "jobid",
            "jobstatus",
            "manager",
            "message",
            "node",
            "observedGeneration",
            "outputs",
            "outputsTotal",
            "podWords",
            "queue",
            "reason",
            "recordSeq",
            "starttime",
            "stderr",
            "stdout",
            "submittime",
        ]
    );
    assert_eq!(schema["properties"]["spec"]["required"], json!(["jobdata", "resourceURL"]));
    assert_eq!(schema["properties"]["status"]["required"], Value::Null);
}

#[test]
fn conditions_come_first() {
    let status: BridgeJobStatus = serde_json::from_value(json!({
        "jobstatus": "RUNNING", "message": "m",
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Resolved", "message": "",
            "lastTransitionTime": "2024-01-02T03:04:05Z",
        }],
    }))
    .unwrap();
    assert!(serde_json::to_string(&status).unwrap().starts_with(r#"{"conditions":[{"#));
}

#[test]
fn an_empty_status_is_empty() {
    assert_eq!(serde_json::to_string(&BridgeJobStatus::default()).unwrap(), "{}");
}

#[test]
fn terms_are_words_and_said_once() {
    let reasons = [REASONS, STATUS_REASONS].concat();
    for terms in [TYPES, reasons.as_slice()] {
        for (index, term) in terms.iter().enumerate() {
            assert!(term.name.bytes().all(|byte| byte.is_ascii_alphabetic()), "{}", term.name);
            assert!(terms[..index].iter().all(|other| other.name != term.name), "{}", term.name);
            assert!(term.meaning.ends_with('.') && term.action.ends_with('.'), "{}", term.name);
        }
    }
}

#[test]
fn columns_and_names() {
    let crd = serde_json::to_value(bridge_api::crd()).unwrap();
    let columns: Vec<(&str, u64)> = crd["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["priority"].as_u64().unwrap_or(0)))
        .collect();
    assert_eq!(
        columns,
        [("Status", 0), ("Manager", 0), ("Job ID", 0), ("Age", 0), ("URL", 1), ("Queue", 1), ("Message", 1)]
    );
    assert_eq!(crd["metadata"]["name"], "bridgejobs.bridgejob.ibm.com");
    assert_eq!(
        crd["spec"]["names"],
        json!({
            "kind": "BridgeJob", "plural": "bridgejobs", "singular": "bridgejob",
            "shortNames": ["bj", "bjob"], "categories": ["all", "bridge"],
        })
    );
}
