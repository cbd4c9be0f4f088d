//! The middle of the bridge: decisions without I/O.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod clock;
pub mod credentials;
pub mod driver;
pub mod ids;
pub mod manager;
pub mod plan;
pub mod record;
pub mod staging;
pub mod state;
pub mod status;
pub mod store;
