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
                    || ["name", "namespace", "labels", "annotations"]
                        .iter()
                        .any(|name| path.strip_prefix("metadata.") == Some(name)))
        });
        Self { paths }
    }

    /// Where `key` under `parent` belongs, as text for people, and the paths meant.
    pub(super) fn suggest(&self, parent: &str, key: &str, siblings: &Map<String, Value>) -> (String, Vec<String>) {
        let here = |name: &str| join(parent, name);
        let wanted = fold(key);
        if let Some(name) = siblings.keys().rfind(|name| fold(name) == wanted) {
            return (format!("did you mean \"{name}\"?"), vec![here(name)]);
        }
        let mut elsewhere: Vec<&String> = self.paths.iter().filter(|path| fold(last(path)) == wanted).collect();
        if elsewhere.iter().any(|path| last(path) == key) {
            elsewhere.retain(|path| last(path) == key);
        }
        if !elsewhere.is_empty() && elsewhere.len() <= 3 {
            let places: Vec<String> = elsewhere.iter().map(|path| place(path, key)).collect();
            return (format!("it belongs in {}", places.join(" or ")), elsewhere.into_iter().cloned().collect());
        }
        if let Some(name) = closest(key, siblings.keys().map(String::as_str)) {
            return (format!("did you mean \"{name}\"?"), vec![here(name)]);
        }
        let best = misspelt(key, self.paths.iter().map(|path| last(path)));
        if let Some(path) = best.and_then(|name| self.paths.iter().find(|path| last(path) == name)) {
            return (format!("did you mean {path}?"), vec![path.clone()]);
        }
        let names: Vec<&str> = siblings.keys().map(String::as_str).collect();
        let mut hint = format!("the fields here are: {}", names.join(", "));
        if ["spec", "spec.jobdata"].contains(&parent) {
            hint.push_str("; what the resource manager is to know goes into spec.jobproperties");
        }
        (hint, Vec::new())
    }
}

/// The one of `choices` that `word` is a misspelling or the short form of.
pub(super) fn closest<'a>(word: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(word);
    best(0.7, choices, |choice| {
        let name = fold(choice);
        let short = wanted.len() >= 3 && name.ends_with(&wanted);
        let long = name.len() >= 3 && wanted.ends_with(&name);
        let score = strsim::normalized_damerau_levenshtein(&wanted, &name);
        if short || long { score.max(0.75) } else { score }
    })
}

/// The one of `choices` that `word` is a misspelling of; for choices that are further away.
pub(super) fn misspelt<'a>(word: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(word);
    best(0.8, choices, |choice| strsim::normalized_damerau_levenshtein(&wanted, &fold(choice)))
}

/// Of two that are as good, the later: of `jobScript` and `jobscript` that is the one the documentation uses.
fn best<'a>(least: f64, choices: impl Iterator<Item = &'a str>, score: impl Fn(&str) -> f64) -> Option<&'a str> {
    choices
        .map(|choice| (score(choice), choice))
        .filter(|(score, _)| *score >= least)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, choice)| choice)
}

/// Case, `_` and `-` are what people get wrong most.
fn fold(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Fields of list entries are left out: nobody means those when writing elsewhere.
fn collect(schema: &Value, path: &str, paths: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, schema) in properties {
            let path = join(path, name);
            paths.push(path.clone());
            collect(schema, &path, paths);
        }
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
