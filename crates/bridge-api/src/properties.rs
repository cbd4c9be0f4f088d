//! `jobproperties`: JSON text or a map.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `jobproperties` as the user wrote it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum JobProperties {
    /// JSON text of an object; empty text means no properties.
    Text(String),
    /// The properties themselves.
    Map(Map<String, Value>),
    /// Neither. The API server cannot refuse it, and the rest of the job must stay readable to say so in a condition.
    Other(Value),
}

/// `jobproperties` is text, but not the JSON text of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PropertiesError {
    /// What is wrong and what to write instead.
    pub message: String,
    /// Line in the text, from 1.
    pub line: usize,
    /// Column in the text, from 1.
    pub column: usize,
}

impl JobProperties {
    /// The properties, whichever way they were written.
    pub fn parse(&self) -> Result<Map<String, Value>, PropertiesError> {
        let text = match self {
            Self::Map(map) => return Ok(map.clone()),
            Self::Text(text) => text,
            Self::Other(value) => {
                return Err(PropertiesError {
                    message: format!(
                        "must be a map or the text of a JSON object, but is {}; write name: value pairs below it",
                        kind_of(value)
                    ),
                    line: 1,
                    column: 1,
                });
            }
        };
        if text.trim().is_empty() {
            return Ok(Map::new());
        }
        let value = serde_json::from_str(text).map_err(|e| invalid(text, &e))?;
        match value {
            Value::Object(map) => Ok(map),
            other => Err(PropertiesError {
                message: format!(
                    "is JSON, but {} and not an object; write {{\"name\": \"value\", …}}",
                    kind_of(&other)
                ),
                line: 1,
                column: 1,
            }),
        }
    }

    /// Size of the stored form in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Map(map) => Value::Object(map.clone()).to_string().len(),
            Self::Other(value) => value.to_string().len(),
        }
    }
}

fn invalid(text: &str, error: &serde_json::Error) -> PropertiesError {
    let line = error.line().max(1);
    let column = error.column().max(1);
    let full = error.to_string();
    let what = full.rsplit_once(" at line ").map_or(full.as_str(), |(what, _)| what);
    // Copied from a typeset page, quotes are not those of JSON; the parser's words do not help there.
    let hint = if text.contains(['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']) {
        "write straight quotes (\") in place of the typographic ones"
    } else if text.contains('\'') && !text.contains('"') {
        "write double quotes (\") in place of single ones"
    } else {
        "write the text of a JSON object, or the properties as a YAML map"
    };
    PropertiesError {
        message: format!("is not valid JSON: {what} (line {line}, column {column} of the text); {hint}"),
        line,
        column,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_and_map_mean_the_same() {
        let text: JobProperties = serde_json::from_value(json!("{\"Queue\": \"V100\"}")).unwrap();
        let map: JobProperties = serde_json::from_value(json!({"Queue": "V100"})).unwrap();
        assert_eq!(text.parse().unwrap(), map.parse().unwrap());
    }

    #[test]
    fn empty_text_is_no_properties() {
        for text in ["", "  \n", "{}"] {
            assert!(JobProperties::Text(text.into()).parse().unwrap().is_empty());
        }
    }

    #[test]
    fn anything_else_is_read_and_refused_later() {
        let other: JobProperties = serde_json::from_value(json!([1, 2])).unwrap();
        assert_eq!(
            other.parse().unwrap_err().to_string(),
            "must be a map or the text of a JSON object, but is a list; write name: value pairs below it"
        );
    }

    #[test]
    fn the_place_in_the_text_is_known() {
        let error = JobProperties::Text("{\n \"a\": 1,\n}".into()).parse().unwrap_err();
        assert_eq!((error.line, error.column), (3, 1));
    }
}
