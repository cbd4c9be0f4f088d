//! Emulators, the adapter conformance suite and the lab fixture. Not published.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod conformance;
pub mod faults;
pub mod lab;
pub mod memory;
pub mod ray;
pub mod s3;
pub mod slurm;
