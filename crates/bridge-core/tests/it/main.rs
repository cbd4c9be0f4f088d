//! Tests of the core as a whole: simulated lives, the stored form, the driver under paused time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod cancel_stage_in;
mod gone;
mod lost_record;
mod progress;
mod sim;
mod stage_out;
mod stale_submission;
mod status_words;
mod stored_form;
mod sweep;
mod turned_away;
