//! The middle of the bridge: decisions without I/O.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod clock;
pub mod credentials;
pub mod ids;
pub mod manager;
pub mod plan;
pub mod staging;
