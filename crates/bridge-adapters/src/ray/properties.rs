//! `jobproperties` of a Ray job.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::wire::Resources;

/// The properties that mean something to Ray.
const KNOWN: [&str; 6] = [
    "entrypoint_num_cpus",
    "entrypoint_num_gpus",
    "entrypoint_memory",
    "entrypoint_resources",
    "entrypoint_label_selector",
    "metadata",
];

/// The properties of other managers that are left out with a remark.
const LEFT_OUT: [(&str, &str); 4] =
    [("Queue", "Ray has no queues"), ("runlimit", NO_LIMIT), ("RunLimitHour", NO_LIMIT), ("RunLimitMinute", NO_LIMIT)];
const NO_LIMIT: &str = "Ray limits no job's time; use activeDeadlineSeconds";

/// `jobproperties`, read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Properties {
    pub(super) resources: Resources,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) notes: Vec<String>,
}

impl Properties {
    pub(super) fn read(given: &BTreeMap<String, Value>) -> Result<Self, String> {
        let mut read = Self::default();
        let mut taken = BTreeMap::<&str, &str>::new();
        for (name, value) in given {
            if let Some((_, why)) = LEFT_OUT.iter().find(|(known, _)| plain(known) == plain(name)) {
                read.notes.push(format!("jobproperties.{name} is left out: {why}"));
                continue;
            }
            let known = canonical(name).ok_or_else(|| unknown(name))?;
            if let Some(other) = taken.insert(known, name) {
                return Err(format!(
                    "jobproperties.{other} and jobproperties.{name} mean the same; remove one of them"
                ));
            }
            // "" is "not set", as in the ConfigMap.
            if matches!(value, Value::Null) || value.as_str().is_some_and(|text| text.trim().is_empty()) {
                continue;
            }
            match known {
                "entrypoint_num_cpus" => read.resources.cpus = Some(number(name, value)?),
                "entrypoint_num_gpus" => read.resources.gpus = Some(number(name, value)?),
                "entrypoint_memory" => read.resources.memory = Some(bytes(name, value)?),
                "entrypoint_resources" => {
                    let amounts = object(name, value)?;
                    let read_one =
                        |(key, value): (&String, &Value)| Ok((key.clone(), number(&format!("{name}.{key}"), value)?));
                    read.resources.custom = amounts.iter().map(read_one).collect::<Result<_, String>>()?;
                }
                "entrypoint_label_selector" => read.resources.labels = texts(name, value)?,
                _ => read.metadata = texts(name, value)?,
            }
        }
        Ok(read)
    }
}

/// Without dashes, underlines and case: `numCpus`, `num-cpus` and `num_cpus` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

fn canonical(name: &str) -> Option<&'static str> {
    let wanted = plain(name);
    KNOWN.into_iter().find(|known| {
        let full = plain(known);
        wanted == full || full.strip_prefix("entrypoint").is_some_and(|short| wanted == short)
    })
}

fn unknown(name: &str) -> String {
    match nearest(name, KNOWN) {
        Some(known) => format!("jobproperties.{name} is unknown to Ray jobs; did you mean \"{known}\"?"),
        None => format!("jobproperties.{name} is unknown to Ray jobs; they know: {}", KNOWN.join(", ")),
    }
}

/// The known name that is most like a wrong one, if any is like it at all.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = plain(name);
    let likeness = |known: &str| {
        let known = plain(known);
        let short = known.strip_prefix("entrypoint").unwrap_or(&known);
        strsim::normalized_damerau_levenshtein(&wanted, &known)
            .max(strsim::normalized_damerau_levenshtein(&wanted, short))
    };
    let rated = known.into_iter().map(|known| (likeness(known), known));
    rated
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|(likeness, _)| *likeness > 0.55)
        .map(|(_, known)| known)
}

fn number(name: &str, value: &Value) -> Result<Number, String> {
    let wrong = || format!("jobproperties.{name} is {value}; write a number that is not negative");
    let number = match value {
        Value::Number(number) => number.clone(),
        Value::String(text) => text.trim().parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    if number.as_f64().is_some_and(|number| number >= 0.0 && number.is_finite()) { Ok(number) } else { Err(wrong()) }
}

/// Bytes, or an amount as Kubernetes writes it.
fn bytes(name: &str, value: &Value) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let wrong = || format!("jobproperties.{name} is {value}; write bytes, or an amount such as 2Gi");
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return Err(wrong()),
    };
    let (digits, unit) = UNITS
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.to_owned(), factor)))
        .unwrap_or((text, 1));
    digits.trim().parse::<u64>().ok().and_then(|amount| amount.checked_mul(unit)).ok_or_else(wrong)
}

/// An object, or its text: in the ConfigMap everything is text.
fn object(name: &str, value: &Value) -> Result<serde_json::Map<String, Value>, String> {
    let read = match value {
        Value::Object(object) => Some(object.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    read.ok_or_else(|| format!("jobproperties.{name} is {value}; write an object, such as {{\"name\": 1}}"))
}

fn texts(name: &str, value: &Value) -> Result<BTreeMap<String, String>, String> {
    let read_one = |(key, value): (String, Value)| match value {
        Value::String(text) => Ok((key, text)),
        Value::Number(_) | Value::Bool(_) => Ok((key, value.to_string())),
        other => Err(format!("jobproperties.{name}.{key} is {other}; write a text")),
    };
    object(name, value)?.into_iter().map(read_one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(properties: Value) -> Result<Properties, String> {
        Properties::read(&serde_json::from_value(properties).unwrap())
    }

    #[test]
    fn resources_are_taken_as_numbers_and_as_texts() {
        let table = [
            (json!({}), json!({})),
            (
                json!({"entrypoint_num_cpus": 2, "entrypoint_num_gpus": 0.5, "entrypoint_memory": 100_000_000, "entrypoint_resources": {"TPU": 4}}),
                json!({"entrypoint_num_cpus": 2, "entrypoint_num_gpus": 0.5, "entrypoint_memory": 100_000_000, "entrypoint_resources": {"TPU": 4}}),
            ),
            (
                json!({"num-cpus": "2", "numGpus": " 0.5 ", "memory": "2Gi", "Resources": "{\"x\": \"1\"}", "label_selector": {"a": "b"}}),
                json!({"entrypoint_num_cpus": 2, "entrypoint_num_gpus": 0.5, "entrypoint_memory": 2_147_483_648_u64, "entrypoint_resources": {"x": 1}, "entrypoint_label_selector": {"a": "b"}}),
            ),
            (json!({"entrypoint_num_cpus": "", "entrypoint_memory": null}), json!({})),
        ];
        for (given, expected) in table {
            let seen = read(given.clone()).unwrap();
            assert_eq!(serde_json::to_value(&seen.resources).unwrap(), expected, "{given}");
            assert!(seen.notes.is_empty());
        }
        let others = read(json!({"Queue": "normal", "runlimit": 20, "metadata": {"team": "a", "n": 1}})).unwrap();
        assert_eq!(others.metadata, [("n", "1"), ("team", "a")].map(|(a, b)| (a.to_owned(), b.to_owned())).into());
        assert_eq!(others.notes.len(), 2, "{:?}", others.notes);
    }

    #[test]
    fn what_ray_does_not_know_is_refused_by_name() {
        for (given, hint) in [
            (
                json!({"entrypoint_num_cpu": 1}),
                "jobproperties.entrypoint_num_cpu is unknown to Ray jobs; did you mean \"entrypoint_num_cpus\"?",
            ),
            (json!({"cpus": 1}), "did you mean \"entrypoint_num_cpus\"?"),
            (json!({"Tasks": 4}), "they know: entrypoint_num_cpus"),
            (json!({"num_cpus": "many"}), "jobproperties.num_cpus is \"many\"; write a number"),
            (json!({"num_cpus": -1}), "not negative"),
            (json!({"num_cpus": [1]}), "write a number"),
            (json!({"num_cpus": 1, "entrypoint_num_cpus": 1}), "mean the same"),
            (json!({"memory": "2 bananas"}), "an amount such as 2Gi"),
            (json!({"memory": 1.5}), "write bytes"),
            (json!({"resources": [1]}), "write an object"),
            (json!({"resources": {"x": "y"}}), "jobproperties.resources.x"),
            (json!({"metadata": {"x": [1]}}), "jobproperties.metadata.x"),
        ] {
            let error = read(given.clone()).unwrap_err();
            assert!(error.contains(hint), "{given}: {error}");
        }
    }
}
