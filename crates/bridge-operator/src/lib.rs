//! The Kubernetes side of the bridge: the operator, and what a worker needs to live in a pod.
//!
//! Nothing in here speaks to a remote system; that is the workers' part.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod events;
pub mod foreign;
pub mod health;
pub mod install;
pub mod job;
pub mod keys;
pub mod lease;
pub mod metrics;
pub mod names;
pub mod operator;
pub mod settings;
pub mod store;
pub mod sweep;
pub mod worker;
