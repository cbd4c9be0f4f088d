//! What controller pods of other people write into their `ConfigMap`: words, times, keys in two spellings.

use bridge_api::{JobStatus, PodWords};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::keys::{self, Data};

/// What a status word means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Not over.
    Alive(JobStatus),
    /// Over, once the pod has ended too.
    Over(JobStatus),
    /// Ended by someone: KILLED after `kill`, otherwise what the second says.
    Ended(JobStatus),
    /// A word nobody knows.
    Unknown,
}

/// Reads a status word.
#[must_use]
pub fn meaning(word: &str) -> Meaning {
    match word.trim().to_ascii_uppercase().as_str() {
        "SUBMITTED" => Meaning::Alive(JobStatus::Submitted),
        "PENDING" | "QUEUED" | "PEND" => Meaning::Alive(JobStatus::Pending),
        "RUNNING" | "RUN" | "COMPLETING" => Meaning::Alive(JobStatus::Running),
        "SUSPENDED" => Meaning::Alive(JobStatus::Suspended),
        "COMPLETED" | "SUCCEEDED" | "DONE" => Meaning::Over(JobStatus::Done),
        "FAILED" => Meaning::Over(JobStatus::Failed),
        "KILL" | "KILLED" | "STOPPED" => Meaning::Over(JobStatus::Killed),
        "UNKNOWN" => Meaning::Over(JobStatus::Unknown),
        "EXIT" => Meaning::Ended(JobStatus::Failed),
        "CANCELLED" | "CANCELED" => Meaning::Ended(JobStatus::Killed),
        _ => Meaning::Unknown,
    }
}

/// What a foreign pod has told, with the two spellings of each key brought together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The remote id.
    pub id: Option<String>,
    /// The status word, as written.
    pub word: Option<String>,
    /// A sentence.
    pub message: Option<String>,
    /// When it was submitted.
    pub submitted: Option<Timestamp>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Both spellings of the status word, for the next time.
    pub words: Option<PodWords>,
}

/// Reads a foreign pod's `ConfigMap`; `before` is what was read of it the last time.
#[must_use]
pub fn told(data: &Data, before: Option<&PodWords>) -> Told {
    let words = words(data, before);
    let plain_counts = words.as_ref().is_some_and(|words| words.plain_counts);
    let word = words.as_ref().map(|words| if plain_counts { &words.plain } else { &words.prefixed });
    let time = |key: &str| {
        keys::get(data, &format!("{}{key}", keys::PREFIX))
            .and_then(time)
            .or_else(|| keys::get(data, key).and_then(time))
    };
    Told {
        id: spelled(data, keys::ID, false).map(str::to_owned),
        word: word.filter(|word| !word.is_empty()).cloned(),
        // What goes with the status is most likely written in the same spelling.
        message: spelled(data, keys::MESSAGE, plain_counts).map(str::to_owned),
        submitted: time(keys::SUBMIT_TIME),
        started: time(keys::START_TIME),
        ended: time(keys::END_TIME),
        words,
    }
}

/// Both spellings of the status, and which of them changed later. An empty one is not set and clears nothing.
fn words(data: &Data, before: Option<&PodWords>) -> Option<PodWords> {
    let none = PodWords::default();
    let before = before.unwrap_or(&none);
    let now = |key: &str, then: &String| keys::get(data, key).map_or_else(|| then.clone(), word);
    let prefixed = now(&format!("{}{}", keys::PREFIX, keys::STATUS), &before.prefixed);
    let plain = now(keys::STATUS, &before.plain);
    let is_last = |word: &str| matches!(meaning(word), Meaning::Over(_) | Meaning::Ended(_));
    let plain_counts = match (prefixed != before.prefixed, plain != before.plain) {
        (true, false) => false,
        (false, true) => true,
        (false, false) => before.plain_counts,
        // Both at once: a last word is the later one.
        (true, true) => is_last(&plain) && !is_last(&prefixed),
    };
    (!prefixed.is_empty() || !plain.is_empty()).then_some(PodWords { prefixed, plain, plain_counts })
}

/// A word as it is kept; nobody knows what a pod writes.
fn word(text: &str) -> String {
    text.chars().take(256).collect()
}

fn spelled<'a>(data: &'a Data, key: &str, plain_first: bool) -> Option<&'a str> {
    let with = keys::get(data, &format!("{}{key}", keys::PREFIX));
    let without = keys::get(data, key);
    if plain_first { without.or(with) } else { with.or(without) }
}

/// Reads a time in any of the forms that pods were seen to write. What cannot be read is left out.
#[must_use]
pub fn time(text: &str) -> Option<Timestamp> {
    // Zero is how a manager says "not yet", and year 1 how Go does; before 2000 or after 2200 it is no job's time.
    read_time(text.trim()).filter(|time| (946_684_800..7_258_118_400).contains(&time.as_second()))
}

fn read_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a conversion that saturates, of a value that is checked later"
        )]
        return Timestamp::from_millisecond((seconds * 1000.0).round() as i64).ok();
    }
    ["%d/%m/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S"]
        .into_iter()
        .find_map(|format| DateTime::strptime(format, text).ok())
        // The pod's zone is unknown; pods run in UTC unless someone went out of his way.
        .and_then(|civil| civil.to_zoned(TimeZone::UTC).ok())
        .map(|zoned| zoned.timestamp())
}

/// How a foreign job ended, now that its pod has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Over.
    Over {
        /// The contract's word.
        status: JobStatus,
        /// Why, for people.
        message: String,
    },
    /// The pod broke off and can find its job again by the id.
    Again,
}

/// How the pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodEnd {
    /// Its container ended with this code.
    Exited(i32),
    /// It was evicted, deleted or lost with its node.
    Gone,
}

/// The last word decides; the exit code only if there is none.
#[must_use]
pub fn verdict(told: &Told, end: PodEnd, kill: bool) -> Verdict {
    let over = |status: JobStatus, message: String| Verdict::Over { status, message };
    let word = told.word.as_deref().unwrap_or_default();
    match meaning(word) {
        Meaning::Ended(_) if kill => {
            return over(JobStatus::Killed, format!("the controller pod's last word was {word}, after `kill`"));
        }
        Meaning::Over(status) | Meaning::Ended(status) => {
            return over(status, format!("the controller pod's last word was {word}"));
        }
        Meaning::Alive(_) | Meaning::Unknown => {}
    }
    match end {
        PodEnd::Exited(0) => over(JobStatus::Done, format!("the controller pod ended with exit code 0{}", after(word))),
        PodEnd::Exited(_) | PodEnd::Gone if told.id.is_some() => Verdict::Again,
        PodEnd::Exited(code) if word.is_empty() => {
            over(JobStatus::Failed, format!("the controller pod ended with exit code {code} and told no status"))
        }
        PodEnd::Exited(code) => over(
            JobStatus::Unknown,
            format!("the controller pod ended with exit code {code}{} and without a job id; it is not run again, because it may have submitted a job", after(word)),
        ),
        PodEnd::Gone => over(
            JobStatus::Unknown,
            "the controller pod was lost before it told a job id; it is not run again, because it may have submitted a job".to_owned(),
        ),
    }
}

fn after(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!(" after {word}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> Data {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn times_are_read_in_every_form_that_was_seen() {
        for (text, expected) in [
            ("2022-04-19T13:26:00Z", "2022-04-19T13:26:00Z"),
            ("2022-04-19T13:26:00+02:00", "2022-04-19T11:26:00Z"),
            ("1.65037756e+09", "2022-04-19T14:12:40Z"),
            ("1650377560", "2022-04-19T14:12:40Z"),
            ("19/04/2022 13:26:00", "2022-04-19T13:26:00Z"),
            ("2022-04-19 13:26:00", "2022-04-19T13:26:00Z"),
            (" Tue Apr 19 13:26:00 2022 ", "2022-04-19T13:26:00Z"),
        ] {
            assert_eq!(time(text), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "soon", "0", "-1", "nan", "inf", "1e300", "31/31/2022 00:00:00", "0001-01-01T00:00:00Z"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn both_spellings_count_and_the_later_change_wins() {
        let mut words = None;
        for (prefixed, plain, counts) in [
            ("SUBMITTED", "", "SUBMITTED"),
            ("SUBMITTED", "RUNNING", "RUNNING"),
            // Nothing changed: looking again changes nothing either.
            ("SUBMITTED", "RUNNING", "RUNNING"),
            ("COMPLETING", "RUNNING", "COMPLETING"),
            ("", "RUNNING", "COMPLETING"),
            ("FAILED", "RUNNING", "FAILED"),
            ("FAILED", "RUNNING", "FAILED"),
        ] {
            let read = told(&data(&[("status.jobStatus", prefixed), ("jobStatus", plain)]), words.as_ref());
            assert_eq!(read.word.as_deref(), Some(counts), "{prefixed} {plain}");
            words = read.words;
        }
        let both = data(&[("status.jobStatus", "RUNNING"), ("jobStatus", "COMPLETED")]);
        assert_eq!(told(&both, None).word.as_deref(), Some("COMPLETED"), "a last word is the later one");
        let bare = data(&[("jobStatus", "PENDING"), ("status.jobStatus", ""), ("endTime", "1.65037756e+09")]);
        let read = told(&bare, None);
        assert_eq!((read.word.as_deref(), read.id), (Some("PENDING"), None));
        assert!(read.ended.is_some());
    }

    #[test]
    fn the_last_word_decides_and_the_exit_code_only_without_one() {
        use JobStatus::{Done, Failed, Killed, Unknown};
        let told = |word: &str, id: &str| Told {
            id: (!id.is_empty()).then(|| id.to_owned()),
            word: (!word.is_empty()).then(|| word.to_owned()),
            ..Told::default()
        };
        let status = |told: &Told, end, kill| match verdict(told, end, kill) {
            Verdict::Over { status, .. } => Some(status),
            Verdict::Again => None,
        };
        for (word, id, end, kill, expected) in [
            ("EXIT", "1", PodEnd::Exited(0), false, Some(Failed)),
            ("EXIT", "1", PodEnd::Exited(0), true, Some(Killed)),
            ("CANCELLED", "1", PodEnd::Exited(1), false, Some(Killed)),
            ("COMPLETED", "1", PodEnd::Exited(1), false, Some(Done)),
            ("", "", PodEnd::Exited(0), false, Some(Done)),
            ("", "", PodEnd::Exited(2), false, Some(Failed)),
            ("RUNNING", "1", PodEnd::Exited(1), false, None),
            ("", "1", PodEnd::Gone, false, None),
            ("RUNNING", "", PodEnd::Exited(1), false, Some(Unknown)),
            ("", "", PodEnd::Gone, false, Some(Unknown)),
            ("DONE", "", PodEnd::Gone, false, Some(Done)),
            ("SLEEPING", "1", PodEnd::Exited(0), false, Some(Done)),
        ] {
            assert_eq!(status(&told(word, id), end, kill), expected, "{word:?} {id:?} {end:?} {kill}");
        }
    }
}
