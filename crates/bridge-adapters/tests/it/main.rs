//! All adapters against the conformance suite, and each against what only it can meet. One binary: linking takes time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers compare signatures with the machine's clock")]
#![allow(missing_docs, reason = "tests are named by what they show")]

mod local;
mod programs;
mod ray;
mod slurm;
mod storage;
mod tls;
mod workers;
