//! `jobparameters` as the script's arguments.

use serde_json::Value;

/// A JSON list, or words with commas between them. An object has no order and no places, so it is refused.
pub(super) fn read(parameters: &str) -> Result<Vec<String>, String> {
    let text = parameters.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if !text.starts_with(['[', '{']) {
        return Ok(text.split(',').map(|word| word.trim().to_owned()).collect());
    }
    match serde_json::from_str(text) {
        Ok(Value::Array(entries)) => entries.iter().map(argument).collect(),
        Ok(_) => Err("jobparameters are the script's arguments, a list such as [\"--steps\", \"10\"], not a map; \
            give variables in the job property `environment`"
            .to_owned()),
        Err(error) => Err(format!("jobparameters are not a JSON list: {error}")),
    }
}

fn argument(entry: &Value) -> Result<String, String> {
    match entry {
        Value::String(text) if text.contains('\0') => Err("jobparameters hold a NUL character".to_owned()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(entry.to_string()),
        _ => Err("jobparameters must be a list of texts and numbers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_arguments_and_maps_are_refused() {
        assert_eq!(read(" "), Ok(vec![]));
        assert_eq!(read(r#"["--steps", 10, true]"#).unwrap(), ["--steps", "10", "true"]);
        assert_eq!(read("a, b c ,d").unwrap(), ["a", "b c", "d"]);
        assert!(read(r#"{"steps": 10}"#).unwrap_err().contains("environment"));
        assert!(read("[1, [2]]").is_err() && read("[1,").is_err());
    }
}
