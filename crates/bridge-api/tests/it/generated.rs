//! Files that are generated and committed.

use std::path::Path;

fn check(path: &str, wanted: &str, command: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "{path} is not what the types say; run: {command}");
}

#[test]
fn crd() {
    check("deploy/crd.yaml", &bridge_api::crd_yaml(), "cargo xtask generate");
}

#[test]
fn reference() {
    check("docs/api-reference.md", &bridge_api::reference_markdown(), "cargo xtask generate");
}

#[test]
fn the_text_of_the_crd_is_the_crd() {
    let text: serde_json::Value = serde_saphyr::from_str(&bridge_api::crd_yaml()).unwrap();
    let again: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
        serde_json::from_value(text).unwrap();
    assert_eq!(again.spec.names, bridge_api::crd().spec.names);
    let rules = |crd: &_| serde_json::to_string(crd).unwrap().matches("x-kubernetes-validations").count();
    assert_eq!(rules(&again), rules(&bridge_api::crd()));
}
