//! One adapter per kind of remote system, all over the one HTTP client of [`http`].
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod carrying;
pub mod http;
pub mod local;
pub mod ray;
pub mod slurm;
pub mod storage;
