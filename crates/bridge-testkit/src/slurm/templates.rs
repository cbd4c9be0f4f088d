//! Recorded answers with their changing parts left open: what is filled in keeps the form of what was there.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// The recorded answers of one API version.
#[derive(Debug)]
pub(super) struct Template(Value);

impl Template {
    /// Those of the nearest recorded version.
    pub(super) fn of(version: u16) -> &'static Self {
        static RECORDED: LazyLock<[Template; 5]> = LazyLock::new(|| {
            [
                include_str!("templates/v0.0.36.json"),
                include_str!("templates/v0.0.38.json"),
                include_str!("templates/v0.0.40.json"),
                include_str!("templates/v0.0.42.json"),
                include_str!("templates/v0.0.45.json"),
            ]
            .map(|text| Template(serde_json::from_str(text).unwrap_or_default()))
        });
        let [v36, v38, v40, v42, v45] = &*RECORDED;
        match version {
            0..=36 => v36,
            37..=38 => v38,
            39..=40 => v40,
            41..=42 => v42,
            _ => v45,
        }
    }

    /// A copy of one part.
    pub(super) fn part(&self, name: &str) -> Value {
        self.0.get(name).cloned().unwrap_or_else(|| json!({}))
    }
}

/// Sets a number in the form that is there: bare or boxed.
pub(super) fn set_number(record: &mut Value, key: &str, number: Option<i64>) {
    let Some(slot) = record.get_mut(key) else { return };
    *slot = if slot.is_object() {
        json!({"set": number.is_some(), "infinite": false, "number": number.unwrap_or_default()})
    } else {
        match number {
            Some(number) => json!(number),
            None if slot.is_null() => Value::Null,
            None => json!(0),
        }
    };
}

/// Sets a text where there is a field for it.
pub(super) fn set_text(record: &mut Value, key: &str, text: &str) {
    if let Some(slot) = record.get_mut(key) {
        *slot = json!(text);
    }
}

/// Sets words in the form that is there: a list, or one word.
pub(super) fn set_words(record: &mut Value, key: &str, words: &[String]) {
    if let Some(slot) = record.get_mut(key) {
        *slot = if slot.is_array() {
            json!(words)
        } else if words.len() > 1 && words.iter().any(|word| word == "COMPLETING") {
            json!("COMPLETING")
        } else {
            json!(words.last())
        };
    }
}

/// Sets an exit code in the form that is there: a wait status, or taken apart.
pub(super) fn set_exit_code(record: &mut Value, key: &str, status: i32) {
    let Some(slot) = record.get_mut(key) else { return };
    let (code, signal) = (status >> 8, status & 0x7f);
    if !slot.is_object() {
        *slot = json!(status);
        return;
    }
    let word = match (code, signal) {
        (0, 0) => "SUCCESS",
        (_, 0) => "ERROR",
        _ => "SIGNALED",
    };
    let is_new = slot.get("status").is_some_and(Value::is_array);
    *slot = if is_new {
        json!({
            "status": [word],
            "return_code": {"set": signal == 0, "infinite": false, "number": if signal == 0 { code } else { 0 }},
            "signal": {"id": {"set": signal != 0, "infinite": false, "number": signal}, "name": ""},
        })
    } else {
        // slurmdbd of 22.05 reports success whatever happened.
        json!({"status": "SUCCESS", "return_code": 0})
    };
}
