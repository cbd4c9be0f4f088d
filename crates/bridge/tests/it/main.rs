//! The command line, through the real program wherever a process matters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod cluster;
mod data;
mod life;
mod remote;
mod secrets;
mod stored_form;
mod support;
mod words;
