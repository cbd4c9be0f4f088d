//! Tests of the public surface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod conventions;
mod generated;
mod good_input;
mod rules;
