//! What a scalar of YAML means. The words are those that `kubectl` understands, so that a file means the same to both.

use serde_json::{Number, Value};

use super::Mark;

#[derive(Clone, Debug)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    Text {
        text: String,
        /// Written without quotes.
        plain: bool,
        /// Where the text of a literal block begins.
        block: Option<Mark>,
    },
}

impl Scalar {
    pub(super) fn into_key(self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Text { text, .. } => text,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(value) => Value::Number(value.clone()),
            Self::Text { text, .. } => Value::String(text.clone()),
        }
    }
}

/// The meaning of a scalar without quotes.
pub(super) fn resolve(text: &str) -> Result<Scalar, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        _ => match number(text)? {
            Some(number) => Scalar::Number(number),
            None => Scalar::Text { text: text.to_owned(), plain: true, block: None },
        },
    })
}

/// What YAML 1.1 calls a boolean and YAML 1.2 a text; `kubectl` still reads YAML 1.1.
pub(super) fn old_bool(text: &str) -> Option<bool> {
    match text {
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Result<Option<Number>, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    if let Some(hex) = digits.strip_prefix("0x") {
        return Ok(i64::from_str_radix(hex, 16).ok().map(Number::from));
    }
    if let Some(octal) = digits.strip_prefix("0o") {
        return Ok(i64::from_str_radix(octal, 8).ok().map(Number::from));
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        if digits.len() > 1 && digits.starts_with('0') {
            // Without the number itself: it may be a password.
            return Err("a number that begins with 0 is octal to some programs; put it in quotes if it is text, \
                        or leave out the 0"
                .to_owned());
        }
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        return Ok(unsigned
            .parse::<i64>()
            .map(Number::from)
            .or_else(|_| unsigned.parse::<u64>().map(Number::from))
            .ok()
            .or_else(|| unsigned.parse().ok().and_then(Number::from_f64)));
    }
    let float = digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    Ok(float.then(|| text.parse().ok().and_then(Number::from_f64)).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("true", json!(true)),
            ("yes", json!("yes")),
            ("20", json!(20)),
            ("-3", json!(-3)),
            ("+3", json!(3)),
            ("0", json!(0)),
            ("0x10", json!(16)),
            ("0o17", json!(15)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("1.2.3", json!("1.2.3")),
            ("2006-01-02", json!("2006-01-02")),
            ("10:30", json!("10:30")),
            (".", json!(".")),
            ("./run.sh", json!("./run.sh")),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            (".nan", json!(".nan")),
        ] {
            assert_eq!(resolve(text).unwrap().to_value(), value, "{text}");
        }
    }

    #[test]
    fn numbers_that_programs_read_differently_are_refused() {
        assert!(resolve("0123").is_err());
    }
}
