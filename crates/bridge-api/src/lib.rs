//! The API of the Bridge Operator: the `BridgeJob` types, their rules, and a reader that says what is wrong with a file.
//!
//! There is no client and no I/O in here, so every other crate may depend on it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
pub mod conditions;
mod crd;
mod job;
pub mod names;
mod properties;
pub mod reader;
mod reference;
pub mod rules;
pub mod schema;
mod status;
pub mod validate;

pub use access::{UnknownManager, split_list, split_object};
pub use crd::{crd, crd_yaml};
pub use job::{
    Addressing, BridgeJob, BridgeJobSpec, DeletionPolicy, EnvVar, ExtraLocation, JobData, PodTemplate, PullPolicy,
    ResourceManager, S3Storage, S3Upload, ScriptLocation,
};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
pub use properties::{JobProperties, PropertiesError};
pub use reference::reference_markdown;
pub use status::{BridgeJobStatus, Handover, JobStatus, Output, PodWords};
pub use validate::FieldError;
