//! Time comes from outside, so that a whole life can be simulated.

use std::time::Duration;

use jiff::Timestamp;

/// A moment on both clocks: the wall clock for people and deadlines, the monotonic one for every safety window.
///
/// The wall clock may jump either way at any time; nothing that keeps a job from running twice may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    /// The wall clock.
    pub wall: Timestamp,
    /// Time since some fixed point of this process; never goes backwards.
    pub mono: Duration,
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// Now, on both clocks.
    fn now(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: tokio::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic side starts at zero. Under tokio's paused time it follows that time.
    #[must_use]
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the machine's clock is read")]
    fn now(&self) -> Instant {
        Instant { wall: Timestamp::now(), mono: self.start.elapsed() }
    }
}
