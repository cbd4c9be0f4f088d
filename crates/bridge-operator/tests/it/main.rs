//! The operator and its controller pods on a real cluster.
//!
//! The operator is installed once for all tests, from the same source as `deploy/install.yaml`. Each test has a namespace
//! (under the restricted pod security standard) and an emulated Slurm of its own. `BRIDGE_TEST_IMAGE` names an image that is
//! in the cluster already; without it `lab/image bridge` builds one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod access;
mod alone;
mod bed;
mod docs;
mod foreign;
mod invalid;
mod life;
mod outage;
mod seeds;
mod wishes;
