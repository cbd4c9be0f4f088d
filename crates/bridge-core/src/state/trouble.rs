//! What goes wrong: when the user is told, and how long the next try waits.

use std::time::Duration;

use super::apply::bounded;
use super::{Machine, Rules};
use crate::clock::Instant;
use crate::manager::{ErrorKind, ManagerError};
use crate::record::Trouble;

/// Errors in a row after which the user is told.
const ERRORS_BEFORE_TROUBLE: u32 = 3;

impl Machine {
    pub(super) fn manager_error(&mut self, error: &ManagerError, rules: &Rules, now: Instant) {
        let urgent = error.kind == ErrorKind::Credential;
        if urgent {
            self.memory.errors = self.memory.errors.max(ERRORS_BEFORE_TROUBLE - 1);
        }
        self.went_wrong(error.kind.as_str(), error.to_string(), error.retry_after, rules, now);
    }

    /// A step towards a submission went well. A manager that answers may still take no submissions, e.g. because a limit is
    /// reached; then only one that it takes ends the trouble, or it would be asked every second and nobody would know.
    pub(super) fn came_nearer(&mut self) {
        if !self.memory.turned_away {
            self.went_well();
        }
    }

    pub(super) fn went_well(&mut self) {
        self.memory.errors = 0;
        self.memory.pause_until = None;
        self.record.trouble = None;
    }

    pub(super) fn went_wrong(
        &mut self,
        reason: &str,
        message: String,
        retry_after: Option<Duration>,
        rules: &Rules,
        now: Instant,
    ) {
        self.memory.errors = self.memory.errors.saturating_add(1);
        let pause = self.error_pause(rules).max(retry_after.unwrap_or_default());
        self.memory.pause_until = Some(now.mono.saturating_add(pause));
        let news = self.record.trouble.as_ref().is_none_or(|trouble| trouble.reason != reason);
        if news && self.memory.errors >= ERRORS_BEFORE_TROUBLE {
            self.record.trouble =
                Some(Trouble { since: now.wall, reason: reason.to_owned(), message: bounded(message) });
        }
    }

    /// Data may be kept back by one thing after another, and each is for the user to mend.
    pub(super) fn stage_went_wrong(&mut self, reason: &str, message: String, rules: &Rules, now: Instant) {
        if let Some(trouble) = self.record.trouble.as_mut().filter(|trouble| trouble.reason == reason) {
            trouble.message = bounded(message.clone());
        }
        self.went_wrong(reason, message, None, rules, now);
    }

    /// Doubling pauses, spread by the job's own token so that jobs do not come back all at once.
    pub(super) fn error_pause(&self, rules: &Rules) -> Duration {
        let doublings = self.memory.errors.saturating_sub(1).min(16);
        let full = rules.tuning.error_pause.saturating_mul(1 << doublings).min(rules.tuning.error_pause_max);
        let spread = self
            .record
            .uid
            .bytes()
            .chain(self.memory.errors.to_le_bytes())
            .fold(17_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)))
            % 1000;
        full / 2 + full.mul_f64(f64::from(spread) / 2000.0)
    }
}
