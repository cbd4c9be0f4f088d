//! What of a job may not change while it is the same job, and how a change is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bridge_api::BridgeJobSpec;
use serde_json::Value;

/// The most lines of one side of a change that are shown.
const LINES_SHOWN: usize = 20;

/// Field and text of everything that makes a job this job. Left out are the fields that may change while it runs, and
/// those of a pod, which there is none of here. Both spellings and forms of a field are the same.
#[must_use]
pub fn content(spec: &BridgeJobSpec) -> BTreeMap<String, String> {
    let data = &spec.job_data;
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, text: &str| {
        if !text.is_empty() {
            fields.insert(format!("spec.{name}"), text.to_owned());
        }
    };
    add("resourceURL", &spec.resource_url);
    add("resourcesecret", spec.secret().unwrap_or_default());
    add("resourceManager", spec.resource_manager.map_or("", bridge_api::ResourceManager::as_str));
    add("jobdata.jobscript", spec.script());
    add("jobdata.scriptlocation", data.script_location.as_str());
    add("jobdata.scriptextralocation", data.script_extra_location.as_str());
    add("jobdata.scriptmetadata", &data.script_metadata);
    add("jobdata.jobparameters", &data.job_parameters);
    add("jobdata.additionaldata", &data.additional_data);
    for (name, value) in spec.properties().unwrap_or_default() {
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        // An empty property is written down, because some managers tell it from one that is not there.
        fields.insert(format!("spec.jobproperties.{name}"), text);
    }
    for (name, part) in [("s3storage", stored(spec.s3())), ("s3upload", stored(spec.upload()))] {
        for (field, value) in part {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            fields.insert(format!("spec.{name}.{field}"), text);
        }
    }
    fields
}

fn stored(part: Option<&impl serde::Serialize>) -> serde_json::Map<String, Value> {
    match part.map(serde_json::to_value) {
        Some(Ok(Value::Object(map))) => map,
        _ => serde_json::Map::new(),
    }
}

/// The difference in the manner of `diff -u`, field by field; "" if there is none.
#[must_use]
pub fn difference(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> String {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut text = String::new();
    for name in names {
        let (before, after) = (old.get(name), new.get(name));
        if before == after {
            continue;
        }
        let _ = writeln!(text, "@@ {name} @@");
        let lines = |side: Option<&String>| -> Vec<String> {
            side.map(|side| side.split('\n').map(str::to_owned).collect()).unwrap_or_default()
        };
        let (before, after) = (lines(before), lines(after));
        let same_start = before.iter().zip(&after).take_while(|(one, two)| one == two).count();
        let longest_end = before.len().min(after.len()) - same_start;
        let same_end =
            before.iter().rev().zip(after.iter().rev()).take(longest_end).take_while(|(one, two)| one == two).count();
        for (sign, side) in [('-', &before), ('+', &after)] {
            let changed = &side[same_start..side.len() - same_end];
            for line in changed.iter().take(LINES_SHOWN) {
                let _ = writeln!(text, "{sign}{line}");
            }
            if changed.len() > LINES_SHOWN {
                let _ = writeln!(text, "{sign}… ({} more lines)", changed.len() - LINES_SHOWN);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: Value) -> BridgeJobSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_may_change_and_other_spellings_are_no_difference() {
        let one = spec(json!({
            "resourceURL": "local:", "jobdata": { "jobscript": "x" }, "jobproperties": "{\"a\": 1}", "updateinterval": 5,
        }));
        let two = spec(json!({
            "resourceURL": "local:", "jobdata": { "jobScript": "x" }, "jobproperties": { "a": 1 }, "backoffLimit": 3,
            "kill": true, "image": "other", "s3upload": { "bucket": "" },
        }));
        assert_eq!(difference(&content(&one), &content(&two)), "");
    }

    #[test]
    fn a_difference_shows_the_changed_lines_of_each_field() {
        let one = spec(json!({
            "resourceURL": "local:", "jobdata": { "jobscript": "a\nb\nc\n" }, "jobproperties": { "Queue": "x", "same": 1 },
        }));
        let two = spec(json!({
            "resourceURL": "local:", "jobdata": { "jobscript": "a\nB\nc\n" }, "jobproperties": { "Tasks": 2, "same": 1 },
        }));
        assert_eq!(
            difference(&content(&one), &content(&two)),
            "@@ spec.jobdata.jobscript @@\n-b\n+B\n@@ spec.jobproperties.Queue @@\n-x\n@@ spec.jobproperties.Tasks @@\n+2\n"
        );
    }

    #[test]
    fn repeated_lines_do_not_confuse_it() {
        let sides = |text: &str| [("f".to_owned(), text.to_owned())].into();
        assert_eq!(difference(&sides("a\na"), &sides("a\na\na")), "@@ f @@\n+a\n");
        assert_eq!(difference(&sides("x"), &sides("")), "@@ f @@\n-x\n+\n");
    }
}
