//! How far back a head remembers: since it was started.
//!
//! A head that was started again has forgotten its jobs, unless its store is kept elsewhere; then its session stays the
//! same, too. So a job that an older session may have taken is not absent because the newer one does not know it.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// Clocks that are read to the second, and a request that is under way for a moment.
const TOLERANCE: Duration = Duration::from_secs(1);

/// When a session began, from its name: `session_2026-11-15_07-53-11_379766_9750`, in the head's own time.
pub(super) fn began(name: &str, offset: &str) -> Option<Timestamp> {
    let mut parts = name.strip_prefix("session_")?.split('_');
    let (date, time) = (parts.next()?, parts.next()?);
    let moment: DateTime = format!("{date}T{}", time.replace('-', ":")).parse().ok()?;
    let offset = parse_offset(offset)?;
    offset.to_timestamp(moment).ok()
}

/// `+05:30`
fn parse_offset(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (hours.parse::<i32>().ok()?, minutes.parse::<i32>().ok()?);
    Offset::from_seconds(sign * (hours.checked_mul(3600)? + minutes.checked_mul(60)?)).ok()
}

/// Whether a session that began then knows all jobs since a moment of our clock. `skew`: what the head's clock is ahead.
pub(super) fn covers(began: Timestamp, since: Timestamp, skew: SignedDuration) -> bool {
    let on_their_clock = since.checked_add(skew).unwrap_or(since);
    began.checked_sub(TOLERANCE).unwrap_or(began) <= on_their_clock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_tells_when_it_began() {
        let name = "session_2026-11-15_07-53-11_379766_9750";
        assert_eq!(began(name, "+00:00").unwrap().to_string(), "2026-11-15T07:53:11Z");
        assert_eq!(began(name, "+05:30").unwrap().to_string(), "2026-11-15T02:23:11Z");
        assert_eq!(began(name, "-08:00").unwrap().to_string(), "2026-11-15T15:53:11Z");
        for (name, offset) in [
            ("", "+00:00"),
            ("session_latest", "+00:00"),
            ("session_2026-13-15_07-53-11", "+00:00"),
            (name, "UTC"),
            (name, ""),
            (name, "é0:00"),
        ] {
            assert_eq!(began(name, offset), None, "{name} {offset}");
        }
    }

    #[test]
    fn only_what_was_intended_before_its_beginning_is_beyond_a_session() {
        let began: Timestamp = "2026-11-15T08:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let hour = SignedDuration::from_hours(1);
        for (since, skew, expected) in [
            ("2026-11-15T08:00:10Z", SignedDuration::ZERO, true),
            ("2026-11-15T07:59:50Z", SignedDuration::ZERO, false),
            ("2026-11-15T07:00:10Z", hour, true),
            ("2026-11-15T08:59:50Z", -hour, false),
        ] {
            assert_eq!(covers(began, at(since), skew), expected, "{since} {skew:?}");
        }
    }
}
