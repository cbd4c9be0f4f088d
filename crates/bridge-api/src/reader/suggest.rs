//! "Did you mean": which field a person had in mind.

use serde_json::{Map, Value};

/// Every field that a document may have, by its path.
#[derive(Debug)]
pub(super) struct Fields {
    paths: Vec<String>,
}

impl Fields {
    pub(super) fn new(schema: &Value) -> Self {
        let mut paths = Vec::new();
        collect(schema, "", &mut paths);
        // What people write are the names of this resource; those of `metadata` that machines write would only confuse.
        paths.retain(|path| {
            !path.starts_with("status")
                && (!path.starts_with("metadata.")
                    || ["name", "namespace", "labels", "annotations"].iter().any(|name| {
                        path.strip_prefix("metadata.") == Some(name)
                    }))
        });
        Self { paths }
    }

    /// Where `key` under `parent` belongs, as text for people, and the paths meant.
    pub(super) fn suggest(&self, parent: &str, key: &str, siblings: &Map<String, Value>) -> (String, Vec<String>) {
        let here = |name: &str| join(parent, name);
        let wanted = fold(key);
        if let Some(name) = siblings.keys().find(|name| fold(name) == wanted) {
            return (format!("did you mean \"{name}\"?"), vec![here(name)]);
        }
        let elsewhere: Vec<&String> = self
            .paths
            .iter()
            .filter(|path| fold(last(path)) == wanted && !inside(path, parent, key))
            .collect();
        if !elsewhere.is_empty() && elsewhere.len() <= 3 {
            let places: Vec<String> = elsewhere.iter().map(|path| place(path, key)).collect();
            return (
                format!("it belongs in {}", places.join(" or ")),
                elsewhere.into_iter().cloned().collect(),
            );
        }
        if let Some(name) = closest(key, siblings.keys().map(String::as_str)) {
            return (format!("did you mean \"{name}\"?"), vec![here(name)]);
        }
        let best = closest(key, self.paths.iter().map(|path| last(path)));
        if let Some(path) = best.and_then(|name| self.paths.iter().find(|path| last(path) == name)) {
            return (format!("did you mean {path}?"), vec![path.clone()]);
        }
        let names: Vec<&str> = siblings.keys().map(String::as_str).collect();
        (format!("the fields here are: {}", names.join(", ")), Vec::new())
    }
}

/// The one of `choices` that `word` is most likely a misspelling of.
pub(super) fn closest<'a>(word: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(word);
    choices
        .map(|choice| {
            let name = fold(choice);
            let mut score = strsim::normalized_damerau_levenshtein(&wanted, &name);
            if wanted.len() >= 3 && (name.ends_with(&wanted) || wanted.ends_with(&name) && name.len() >= 3) {
                score = score.max(0.75);
            }
            (score, choice)
        })
        .filter(|(score, _)| *score >= 0.7)
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, choice)| choice)
}

/// Case, `_` and `-` are what people get wrong most.
fn fold(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}

fn collect(schema: &Value, path: &str, paths: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, schema) in properties {
            let path = join(path, name);
            paths.push(path.clone());
            collect(schema, &path, paths);
        }
    }
    if let Some(items) = schema.get("items") {
        collect(items, &format!("{path}[]"), paths);
    }
}

pub(super) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

fn last(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, name)| name)
}

fn place(path: &str, key: &str) -> String {
    match path.rsplit_once('.') {
        Some((parent, name)) if name == key => parent.to_owned(),
        Some((parent, name)) => format!("{parent}, and is spelt \"{name}\""),
        None if path == key => "the top level".to_owned(),
        None => format!("the top level, and is spelt \"{path}\""),
    }
}

fn inside(path: &str, parent: &str, key: &str) -> bool {
    path == join(parent, key)
}
