//! Reading the values of job properties. YAML of the seeds gives numbers as texts, so both are taken everywhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

/// Why a value cannot be read; the caller adds the property's name.
pub(super) type Problem = String;

/// A text. Numbers and booleans are taken as they are written.
pub(super) fn text(value: &Value) -> Result<String, Problem> {
    match value {
        Value::String(text) if text.contains('\0') => Err("it holds a NUL character".to_owned()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        _ => Err("a text is expected".to_owned()),
    }
}

/// A whole number, or its text.
pub(super) fn integer(value: &Value) -> Result<i64, Problem> {
    let wrong = || format!("{} is not a whole number", shown(value));
    match value {
        Value::Number(number) => number.as_i64().ok_or_else(wrong),
        Value::String(text) => text.trim().parse().map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Yes or no.
pub(super) fn switch(value: &Value) -> Result<bool, Problem> {
    let text = match value {
        Value::Bool(flag) => return Ok(*flag),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_ascii_lowercase(),
        _ => String::new(),
    };
    match text.as_str() {
        "true" | "yes" | "1" | "on" => Ok(true),
        "false" | "no" | "0" | "off" => Ok(false),
        _ => Err(format!("{} is neither true nor false", shown(value))),
    }
}

/// A list of names: a list, or a text with commas.
pub(super) fn names(value: &Value) -> Result<Vec<String>, Problem> {
    match value {
        Value::Array(entries) => entries.iter().map(text).collect(),
        other => Ok(split_outside_brackets(&text(other)?)),
    }
}

/// `n[1-3,7],m1` are two names.
fn split_outside_brackets(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut depth = 0_u32;
    for letter in text.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if letter == ',' && depth == 0 {
            names.push(String::new());
        } else if let Some(name) = names.last_mut() {
            name.push(letter);
        }
    }
    names.into_iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// A time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// So many minutes.
    Minutes(u64),
    /// None.
    Unlimited,
}

/// Minutes, or any of Slurm's forms: `m:s`, `h:m:s`, `d-h`, `d-h:m`, `d-h:m:s`, `UNLIMITED`. Seconds are rounded up.
pub(super) fn limit(value: &Value) -> Result<Limit, Problem> {
    let text = text(value)?;
    let text = text.trim();
    let wrong = || format!("`{text}` is not a time; write minutes, h:m:s or d-h:m:s");
    if matches!(text.to_ascii_uppercase().as_str(), "UNLIMITED" | "INFINITE" | "-1") {
        return Ok(Limit::Unlimited);
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let parts: Vec<u64> =
        clock.split(':').map(|part| part.trim().parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    let days: Option<u64> = days.map(|days| days.trim().parse().map_err(|_| wrong())).transpose()?;
    let seconds = match (days, parts.as_slice()) {
        (Some(days), [hours]) => sum(&[(days, 86400), (*hours, 3600)]),
        (Some(days), [hours, minutes]) => sum(&[(days, 86400), (*hours, 3600), (*minutes, 60)]),
        (Some(days), [hours, minutes, seconds]) => sum(&[(days, 86400), (*hours, 3600), (*minutes, 60), (*seconds, 1)]),
        (None, [minutes]) => sum(&[(*minutes, 60)]),
        (None, [minutes, seconds]) => sum(&[(*minutes, 60), (*seconds, 1)]),
        (None, [hours, minutes, seconds]) => sum(&[(*hours, 3600), (*minutes, 60), (*seconds, 1)]),
        _ => None,
    };
    seconds.map(|seconds| Limit::Minutes(seconds.div_ceil(60))).ok_or_else(wrong)
}

fn sum(parts: &[(u64, u64)]) -> Option<u64> {
    parts.iter().try_fold(0_u64, |sum, (count, unit)| sum.checked_add(count.checked_mul(*unit)?))
}

/// Memory in megabytes: a number, or one with K, M, G or T.
pub(super) fn megabytes(value: &Value) -> Result<u64, Problem> {
    let text = text(value)?;
    let text = text.trim();
    let wrong = || format!("`{text}` is not an amount of memory; write megabytes, or a number with K, M, G or T");
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches('B').trim_end_matches('I');
    let (digits, unit) = match digits.chars().last() {
        Some(unit @ ('K' | 'M' | 'G' | 'T')) => (digits.trim_end_matches(unit), unit),
        _ => (digits, 'M'),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    match unit {
        'K' => Some(number.div_ceil(1024)),
        'M' => Some(number),
        'G' => number.checked_mul(1024),
        _ => number.checked_mul(1024 * 1024),
    }
    .ok_or_else(wrong)
}

/// How many nodes: `4`, `2-4`, and for newer servers `2-16:4`.
pub(super) fn nodes(value: &Value) -> Result<String, Problem> {
    let text = match value {
        Value::Array(range) => range.iter().map(self::text).collect::<Result<Vec<_>, _>>()?.join("-"),
        other => self::text(other)?,
    };
    let text = text.trim();
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    let (range, step) = text.split_once(':').unwrap_or((text, "1"));
    let (least, most) = range.split_once('-').unwrap_or((range, "1"));
    if is_number(least) && is_number(most) && is_number(step) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not a number of nodes; write 4 or 2-4"))
}

/// A moment: seconds since 1970, RFC 3339, `now`, or `now+2hours`.
pub(super) fn moment(value: &Value, now: Timestamp) -> Result<i64, Problem> {
    if let Ok(seconds) = integer(value) {
        return Ok(seconds);
    }
    let text = text(value)?;
    let text = text.trim();
    let wrong =
        || format!("`{text}` is not a time that can be sent; write it with its zone, such as 2030-01-31T08:00:00Z");
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.as_second());
    }
    let rest = text.strip_prefix("now").ok_or_else(wrong)?.trim();
    if rest.is_empty() {
        return Ok(now.as_second());
    }
    let rest = rest.strip_prefix('+').ok_or_else(wrong)?.trim();
    let unit_at = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (count, unit) = rest.split_at(unit_at);
    let count: i64 = count.parse().map_err(|_| wrong())?;
    let factor = match unit.trim().trim_end_matches('s') {
        "" | "second" => 1,
        "minute" => 60,
        "hour" => 3600,
        "day" => 86400,
        "week" => 604_800,
        _ => return Err(wrong()),
    };
    count.checked_mul(factor).and_then(|seconds| now.as_second().checked_add(seconds)).ok_or_else(wrong)
}

/// Variables: an object, a list of `K=V`, or `K=V,K=V`.
pub(super) fn environment(value: &Value) -> Result<BTreeMap<String, String>, Problem> {
    let pair = |entry: &str| match entry.split_once('=') {
        Some((name, value)) if is_variable(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{entry}` is not of the form NAME=value")),
    };
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| {
                if is_variable(name) {
                    Ok((name.clone(), text(value)?))
                } else {
                    Err(format!("`{name}` is no name of a variable"))
                }
            })
            .collect(),
        Value::Array(list) => list.iter().map(|entry| pair(&text(entry)?)).collect(),
        Value::String(text) => text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(pair).collect(),
        _ => Err("a map of variables is expected".to_owned()),
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !name.contains(char::is_whitespace)
}

/// A signal to be sent before the end: `[B:]USR1[@60]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Warning {
    /// Only the batch shell gets it.
    pub(super) batch_only: bool,
    /// Its name or number; one that exists.
    pub(super) signal: String,
    /// Seconds before the end.
    pub(super) seconds: Option<u64>,
}

/// Reads a signal to be sent before the end. An unknown name would end the job at once on some versions.
pub(super) fn warning(value: &Value) -> Result<Warning, Problem> {
    const NAMES: [&str; 20] = [
        "HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "USR1", "USR2", "URG", "CONT", "STOP", "TSTP", "TTIN",
        "TTOU", "PIPE", "CHLD", "WINCH", "XCPU", "SEGV",
    ];
    let text = text(value)?;
    let (flags, rest) = text.split_once(':').unwrap_or(("", &text));
    let (signal, seconds) = match rest.split_once('@') {
        Some((signal, seconds)) => (signal, Some(seconds)),
        None => (rest, None),
    };
    let signal = signal.trim().to_ascii_uppercase();
    let signal = signal.strip_prefix("SIG").unwrap_or(&signal).to_owned();
    let is_known =
        NAMES.contains(&signal.as_str()) || signal.parse::<u8>().is_ok_and(|number| (1..=64).contains(&number));
    if !is_known {
        return Err(format!("`{text}` names no signal; write it as USR1@60 or B:USR1@60"));
    }
    let batch_only = match flags.trim() {
        "" => false,
        "B" => true,
        _ => return Err(format!("`{text}`: only B: may stand before the signal")),
    };
    let seconds =
        seconds.map(|seconds| seconds.trim().parse().map_err(|_| format!("`{text}`: seconds are expected after @")));
    Ok(Warning { batch_only, signal, seconds: seconds.transpose()? })
}

/// Slurm's boxed number.
#[must_use]
pub(super) fn boxed(number: impl Into<Value>) -> Value {
    json!({ "set": true, "infinite": false, "number": number.into() })
}

/// Slurm's boxed infinity.
#[must_use]
pub(super) fn boxed_infinite() -> Value {
    json!({ "set": false, "infinite": true, "number": 0 })
}

fn shown(value: &Value) -> String {
    let text: String = value.to_string().chars().take(60).collect();
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let table = [
            (json!(20), Some(Limit::Minutes(20))),
            (json!("20"), Some(Limit::Minutes(20))),
            (json!("1:30"), Some(Limit::Minutes(2))),
            (json!("01:30:00"), Some(Limit::Minutes(90))),
            (json!("2-0"), Some(Limit::Minutes(2880))),
            (json!("1-02:03"), Some(Limit::Minutes(1563))),
            (json!("1-02:03:04"), Some(Limit::Minutes(1564))),
            (json!("UNLIMITED"), Some(Limit::Unlimited)),
            (json!("soon"), None),
            (json!("1:2:3:4"), None),
            (json!("99999999999999999999-0"), None),
            (json!(["x"]), None),
        ];
        for (value, expected) in table {
            assert_eq!(limit(&value).ok(), expected, "{value}");
        }
    }

    #[test]
    fn amounts_of_memory() {
        let table =
            [("4G", 4096), ("4GB", 4096), ("500", 500), ("500M", 500), ("1T", 1_048_576), ("1500k", 2), ("2GiB", 2048)];
        for (text, expected) in table {
            assert_eq!(megabytes(&json!(text)), Ok(expected), "{text}");
        }
        assert!(megabytes(&json!("much")).is_err() && megabytes(&json!("99999999999999T")).is_err());
    }

    #[test]
    fn moments() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let table = [
            (json!(5), Some(5)),
            (json!("now"), Some(1_000_000)),
            (json!("now+2hours"), Some(1_007_200)),
            (json!("now+30"), Some(1_000_030)),
            (json!("1970-01-01T00:01:00Z"), Some(60)),
            (json!("2030-01-31T08:00:00"), None),
            (json!("teatime"), None),
            (json!("now+9999999999999999hours"), None),
        ];
        for (value, expected) in table {
            assert_eq!(moment(&value, now).ok(), expected, "{value}");
        }
    }

    #[test]
    fn signals_are_never_handed_on_unread() {
        let read = |text: &str| warning(&json!(text)).ok();
        assert_eq!(read("B:USR1@60"), Some(Warning { batch_only: true, signal: "USR1".to_owned(), seconds: Some(60) }));
        assert_eq!(read("sigterm"), Some(Warning { batch_only: false, signal: "TERM".to_owned(), seconds: None }));
        assert_eq!(read("10@5").unwrap().signal, "10");
        for text in ["BOGUS", "0", "200", "X:USR1", "USR1@soon", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_lists_and_variables_in_any_form() {
        assert_eq!(integer(&json!(" 4 ")), Ok(4));
        assert!(integer(&json!("4.5")).is_err() && integer(&json!(true)).is_err());
        assert_eq!(switch(&json!("Yes")), Ok(true));
        assert!(switch(&json!("perhaps")).is_err());
        assert_eq!(names(&json!("n[1-3,7], m1")).unwrap(), ["n[1-3,7]", "m1"]);
        assert_eq!(nodes(&json!("2-4")).unwrap(), "2-4");
        assert_eq!(nodes(&json!([2, 4])).unwrap(), "2-4");
        assert!(nodes(&json!("some")).is_err());
        let expected = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "x=y".to_owned())]);
        for value in [json!({"A": 1, "B": "x=y"}), json!(["A=1", "B=x=y"]), json!("A=1, B=x=y")] {
            assert_eq!(environment(&value), Ok(expected.clone()));
        }
        assert!(environment(&json!("A")).is_err() && environment(&json!({"A B": 1})).is_err());
    }
}
