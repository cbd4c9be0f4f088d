//! A tree against the generated schema: every unknown field, wrong type and missing value, each with its place.
//!
//! The schema is the one list of fields; nothing about them is written a second time here.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::scalar::{Scalar, old_bool};
use super::suggest::{Fields, closest, join};
use super::tree::{Node, Tree};
use super::{Mark, Places};

/// What was found wrong in a document.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) at: Mark,
    pub(super) path: String,
    pub(super) message: String,
    /// Fields that the person meant by this; nothing more is said about them.
    pub(super) covers: Vec<String>,
    missing: bool,
}

pub(super) struct Checker<'a> {
    fields: &'a Fields,
    /// Values must not appear in messages.
    secret: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) places: BTreeMap<String, Mark>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(fields: &'a Fields, secret: bool) -> Self {
        Self { fields, secret, findings: Vec::new(), places: BTreeMap::new() }
    }

    /// The value as JSON; what is wrong in it is left out, so that the rest can be looked at too.
    pub(super) fn document(mut self, node: &Node, schema: &Value) -> (Value, Vec<Finding>, Places) {
        let value = self.check(node, schema, "").unwrap_or_else(|| json!({}));
        // A field is not missing if it was only misspelt or written in another place.
        let meant: Vec<String> = self.findings.iter().flat_map(|finding| finding.covers.clone()).collect();
        self.findings.retain(|finding| !finding.missing || !meant.iter().any(|path| within(path, &finding.path)));
        (value, self.findings, Places(self.places))
    }

    fn check(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        self.places.entry(path.to_owned()).or_insert(node.at);
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return self.quantity(node, path);
        }
        let expected = match schema.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(Value::Array(names)) => names.first().and_then(Value::as_str).unwrap_or_default(),
            _ if path == "spec.jobproperties" => return self.properties(node, path),
            _ => return Some(plain_value(node)),
        };
        match expected {
            "object" => self.object(node, schema, path),
            "array" => self.array(node, schema, path),
            "string" => self.string(node, schema, path),
            "integer" => self.integer(node, schema, path),
            "boolean" => self.boolean(node, path),
            _ => Some(plain_value(node)),
        }
    }

    fn object(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let Tree::Map(entries) = &node.value else {
            let choices = schema
                .get("properties")
                .and_then(Value::as_object)
                .map(|properties| properties.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
            let what = match choices {
                Some(choices) => format!("write it as a map of: {choices}"),
                None => "write it as a map of name: value".to_owned(),
            };
            return self.wrong(node, path, "a map", &what);
        };
        let nothing = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        if let Some(max) = limit(schema, "maxProperties").filter(|max| entries.len() > *max) {
            self.say(node.at, path, format!("has {} entries; {max} are allowed", entries.len()));
        }
        let mut object = Map::new();
        let mut unknown = Vec::new();
        for entry in entries {
            let here = join(path, &entry.key);
            let Some(schema) = properties.get(&entry.key).or(others) else {
                unknown.push((entry, here));
                continue;
            };
            // An explicit null is what the API server takes for "left out".
            if entry.value.is_null() {
                continue;
            }
            // The first key below it is not where a person looks for a map.
            let at = if matches!(entry.value.value, Tree::Scalar(_)) { entry.value.at } else { entry.key_at };
            self.places.insert(here.clone(), at);
            if let Some(value) = self.check(&entry.value, schema, &here) {
                object.insert(entry.key.clone(), value);
            }
        }
        if schema.get("x-kubernetes-preserve-unknown-fields").is_some() {
            for (entry, _) in unknown.drain(..) {
                object.insert(entry.key.clone(), plain_value(&entry.value));
            }
        }
        for (entry, here) in unknown {
            let (hint, covers) = self.fields.suggest(path, &entry.key, properties);
            self.findings.push(Finding {
                at: entry.key_at,
                path: here,
                message: format!("unknown field; {hint}"),
                covers,
                missing: false,
            });
        }
        self.required(node, schema, path, &mut object);
        Some(Value::Object(object))
    }

    fn required(&mut self, node: &Node, schema: &Value, path: &str, object: &mut Map<String, Value>) {
        let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in names.filter_map(Value::as_str) {
            if object.contains_key(name) {
                continue;
            }
            let here = join(path, name);
            let said = self.findings.iter().any(|finding| finding.path == here);
            let property = schema.get("properties").and_then(|properties| properties.get(name));
            if !said {
                let example = match property.and_then(|property| property.get("type")).and_then(Value::as_str) {
                    Some("object") => format!("write {name}: with its fields below it"),
                    _ => format!("write {name}: <value>"),
                };
                let at = self.places.get(path).copied().unwrap_or(node.at);
                self.findings.push(Finding {
                    at,
                    path: here,
                    message: format!("is missing; {example}"),
                    covers: Vec::new(),
                    missing: true,
                });
            }
            // Something of the right type, so that the other rules can still be tried.
            let stand_in = match property.and_then(|property| property.get("type")).and_then(Value::as_str) {
                Some("object") => json!({}),
                Some("array") => json!([]),
                Some("integer") => json!(1),
                _ => json!(""),
            };
            object.insert(name.to_owned(), stand_in);
        }
    }

    fn array(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let Tree::List(items) = &node.value else {
            return self.wrong(node, path, "a list", "write one entry per line, each after \"- \"");
        };
        if let Some(max) = limit(schema, "maxItems").filter(|max| items.len() > *max) {
            self.say(node.at, path, format!("has {} entries; {max} are allowed", items.len()));
        }
        let anything = json!({});
        let schema_of_items = schema.get("items").unwrap_or(&anything);
        let mut seen: Vec<Value> = Vec::new();
        let mut values = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let here = format!("{path}[{index}]");
            let Some(value) = self.check(item, schema_of_items, &here) else { continue };
            for key in schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten() {
                let id = value.get(key.as_str().unwrap_or_default()).cloned().unwrap_or_default();
                if id.is_string() && id != "" && seen.contains(&id) {
                    self.say(item.at, &here, format!("a second entry named {id}; names must differ"));
                }
                seen.push(id);
            }
            values.push(value);
        }
        Some(Value::Array(values))
    }

    fn string(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let choices: Vec<&str> =
            schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let text = match &node.value {
            Tree::Scalar(Scalar::Text { text, .. }) => text,
            Tree::Scalar(other) if choices.is_empty() => {
                let what = if self.secret {
                    "put it in quotes".to_owned()
                } else {
                    format!("put it in quotes: \"{}\"", other.clone().into_key())
                };
                return self.wrong(node, path, "text", &what);
            }
            _ if choices.is_empty() => return self.wrong(node, path, "text", "write one line, or a block after \"|\""),
            _ => return self.wrong(node, path, "a word", &format!("write one of: {}", choices.join(", "))),
        };
        if !choices.is_empty() && !choices.contains(&text.as_str()) {
            let hint = match closest(text, choices.iter().copied()) {
                Some(choice) => format!("did you mean \"{choice}\"? The choices are: {}", choices.join(", ")),
                None => format!("write one of: {}", choices.join(", ")),
            };
            self.say(node.at, path, format!("unknown value {}; {hint}", quote(text)));
            return None;
        }
        if let Some(min) = limit(schema, "minLength").filter(|min| text.chars().count() < *min) {
            let what = if min == 1 {
                "is empty; write a value".to_owned()
            } else {
                format!("is shorter than {min} characters")
            };
            self.say(node.at, path, what);
            return None;
        }
        let length = text.chars().count();
        if let Some(max) = limit(schema, "maxLength").filter(|max| length > *max) {
            let allowed = if max % 1024 == 0 && max >= 64 * 1024 {
                format!("{} KiB are allowed; put it into S3", max / 1024)
            } else {
                format!("{max} are allowed")
            };
            self.say(node.at, path, format!("has {length} characters; {allowed}"));
            return None;
        }
        Some(Value::String(text.clone()))
    }

    fn integer(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let number = match &node.value {
            Tree::Scalar(Scalar::Number(number)) => number,
            Tree::Scalar(Scalar::Text { text, plain: false, .. }) if text.parse::<i64>().is_ok() => {
                return self.wrong(node, path, "a whole number", &format!("write it without quotes: {text}"));
            }
            _ => return self.wrong(node, path, "a whole number", &format!("write it like this: {}", example(schema))),
        };
        let Some(value) = number.as_i64() else {
            return self.wrong(node, path, "a whole number", &format!("write it like this: {}", example(schema)));
        };
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        #[allow(clippy::cast_precision_loss, reason = "the bounds are far below 2^52")]
        let out = bound("minimum").is_some_and(|min| (value as f64) < min)
            || bound("maximum").is_some_and(|max| (value as f64) > max);
        if out {
            let range = match (bound("minimum"), bound("maximum")) {
                (Some(min), Some(max)) => format!("write a number from {min} to {max}"),
                (Some(min), None) => format!("write {min} or more"),
                _ => "write a smaller number".to_owned(),
            };
            self.say(node.at, path, format!("{value} is out of range; {range}"));
            return None;
        }
        Some(json!(value))
    }

    fn boolean(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.value {
            Tree::Scalar(Scalar::Bool(value)) => Some(Value::Bool(*value)),
            Tree::Scalar(Scalar::Text { text, plain: true, .. }) if old_bool(text).is_some() => {
                old_bool(text).map(Value::Bool)
            }
            Tree::Scalar(Scalar::Text { text, plain: false, .. }) if matches!(text.as_str(), "true" | "false") => {
                self.wrong(node, path, "true or false", &format!("write it without quotes: {text}"))
            }
            _ => self.wrong(node, path, "true or false", "write one of the two words"),
        }
    }

    fn quantity(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.value {
            Tree::Scalar(Scalar::Number(number)) => Some(Value::String(number.to_string())),
            Tree::Scalar(Scalar::Text { text, .. }) if is_quantity(text) => Some(Value::String(text.clone())),
            _ => self.wrong(node, path, "an amount", "write it like this: 250m, 1, 512Mi"),
        }
    }

    /// Text or map; what is in it is for the manager to judge.
    fn properties(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.value {
            Tree::Map(entries) => {
                for entry in entries {
                    self.places.insert(join(path, &entry.key), entry.value.at);
                }
                Some(plain_value(node))
            }
            Tree::Scalar(Scalar::Text { text, block, .. }) => {
                if let Err(error) = crate::JobProperties::Text(text.clone()).parse() {
                    let at = block.map_or(node.at, |block| Mark {
                        line: block.line + error.line - 1,
                        column: block.column + error.column - 1,
                    });
                    self.say(at, path, error.message);
                }
                Some(Value::String(text.clone()))
            }
            _ => self.wrong(node, path, "a map or the text of a JSON object", "write name: value pairs below it"),
        }
    }

    fn wrong(&mut self, node: &Node, path: &str, expected: &str, instead: &str) -> Option<Value> {
        let found = match &node.value {
            Tree::List(_) => "a list".to_owned(),
            Tree::Map(_) => "a map".to_owned(),
            Tree::Scalar(Scalar::Null) => "nothing".to_owned(),
            Tree::Scalar(_) if self.secret => "another kind of value".to_owned(),
            Tree::Scalar(Scalar::Bool(value)) => format!("{value}"),
            Tree::Scalar(Scalar::Number(value)) => format!("the number {value}"),
            Tree::Scalar(Scalar::Text { text, .. }) => format!("the text {}", quote(text)),
        };
        self.say(node.at, path, format!("must be {expected}, but is {found}; {instead}"));
        None
    }

    fn say(&mut self, at: Mark, path: &str, message: String) {
        self.findings.push(Finding { at, path: path.to_owned(), message, covers: Vec::new(), missing: false });
    }
}

/// The pattern in the schema, which is the one place where it has one.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|rest| rest.parse::<i16>().is_ok());
    let units = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    number.parse::<f64>().is_ok() && (units.contains(&suffix) || exponent)
}

/// Whether `path` is `ancestor` or lies in it.
pub(super) fn within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn limit(schema: &Value, name: &str) -> Option<usize> {
    schema.get(name).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok())
}

fn example(schema: &Value) -> Value {
    let least = schema.get("minimum").and_then(Value::as_f64).unwrap_or(0.0);
    schema.get("default").cloned().unwrap_or_else(|| if least >= 1.0 { json!(3600) } else { json!(0) })
}

/// A value in a message, short enough for one line.
fn quote(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() > 40 || line.len() < text.trim_end().len() {
        format!("\"{}…\"", line.chars().take(40).collect::<String>())
    } else {
        format!("\"{line}\"")
    }
}

pub(super) fn plain_value(node: &Node) -> Value {
    match &node.value {
        Tree::Scalar(scalar) => scalar.to_value(),
        Tree::List(items) => Value::Array(items.iter().map(plain_value).collect()),
        Tree::Map(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), plain_value(&entry.value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for good in ["1", "250m", "1.5Gi", "100Mi", "1e3", "1E-3", "-1", ".5", "1E", "2."] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "much", "5foo", "1 Gi", "Gi", "1.2.3", "1mi", "e3", "."] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    #[test]
    fn paths_lie_in_each_other_by_whole_names() {
        assert!(within("spec.jobdata.jobscript", "spec.jobdata"));
        assert!(within("spec.env[0]", "spec.env"));
        assert!(!within("spec.jobdatas", "spec.jobdata"));
    }
}
