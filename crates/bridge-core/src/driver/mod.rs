//! Drives jobs from their plans to their ends: [`engine`] decides, this shell makes the calls.

pub mod engine;
mod shell;

pub use shell::{Driver, DriverHandle, NewJob, Observer};
