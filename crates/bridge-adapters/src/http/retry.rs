//! How long to wait before a repeatable request is sent again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// However long it is asked to stay away, a job's end must not go unseen for longer.
const LONGEST_ABSENCE: Duration = Duration::from_mins(10);

/// Whether an answer asks for another try.
pub(super) fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// What `Retry-After` says, if it counts seconds, within reason.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_ABSENCE))
}

/// The wait before try number `next` (from 1); `None` if the remote system asks for more than is waited here.
pub(super) fn wait(next: u32, asked: Option<Duration>) -> Option<Duration> {
    let grown = FIRST_WAIT.saturating_mul(1_u32 << next.saturating_sub(1).min(8)).min(LONGEST_WAIT);
    // Clients that failed together must not come back together.
    let jitter = grown.mul_f64(f64::from((RandomState::new().hash_one(next) % 1000) as u32) / 2000.0);
    match asked {
        Some(asked) if asked > LONGEST_WAIT => None,
        Some(asked) => Some(asked.max(grown / 2 + jitter)),
        None => Some(grown / 2 + jitter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_within_bounds_and_honour_the_server() {
        for next in 1..40 {
            let wait = wait(next, None).unwrap();
            assert!(wait >= FIRST_WAIT / 2 && wait <= LONGEST_WAIT, "{wait:?}");
        }
        assert!(wait(1, Some(Duration::from_secs(3))).unwrap() >= Duration::from_secs(3));
        assert_eq!(wait(1, Some(Duration::from_mins(1))), None);
    }

    #[test]
    fn nobody_is_kept_away_for_ever() {
        let asked = |seconds: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, seconds.parse().unwrap())]));
        assert_eq!(asked("30"), Some(Duration::from_secs(30)));
        assert_eq!(asked("86400"), Some(LONGEST_ABSENCE));
        assert_eq!(asked("18446744073709551615"), Some(LONGEST_ABSENCE));
        assert_eq!(asked("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
