//! Names of objects, files and hosts in a job.

use std::collections::BTreeMap;

use bridge_api::{split_list, split_object};

use super::{ObjectRef, PlanError};

/// A field that names one object.
pub(super) fn object(path: &str, text: &str) -> Result<ObjectRef, PlanError> {
    if split_list(text).filter(|entry| split_object(entry).is_some()).count() > 1 {
        return Err(PlanError::new(path, "names several objects, but one is taken; write one bucket:object"));
    }
    entry(text).map_err(|message| PlanError::new(path, message))
}

fn entry(text: &str) -> Result<ObjectRef, String> {
    let text = text.trim();
    let wrong = || format!("{} does not name an object in S3; write bucket:object", quoted(text));
    let (bucket, key) = split_object(text).ok_or_else(wrong)?;
    if key.contains(char::is_control) || key.len() > 1024 {
        return Err(wrong());
    }
    Ok(ObjectRef { bucket: bucket.to_owned(), key: key.to_owned() })
}

/// `additionaldata`: objects that are put beside the job under their base names.
pub(super) fn inputs(path: &str, text: &str, errors: &mut Vec<PlanError>) -> Vec<ObjectRef> {
    let mut objects: Vec<ObjectRef> = Vec::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for part in split_list(text) {
        let object = match entry(part) {
            Ok(object) => object,
            Err(message) => {
                errors.push(PlanError::new(path, message));
                continue;
            }
        };
        let name = base_name(&object.key);
        if is_no_file(name) {
            errors.push(PlanError::new(path, format!("{} names no file; write bucket:folder/file", quoted(part))));
            continue;
        }
        match names.insert(name.to_owned(), object.to_string()) {
            None => objects.push(object),
            Some(first) if first == object.to_string() => {}
            Some(first) => errors.push(PlanError::new(path, collision(&first, part, "file", name, "objects"))),
        }
    }
    objects
}

/// `s3upload.files`: paths on the remote system, sent under their base names.
pub(super) fn files(path: &str, text: &str, errors: &mut Vec<PlanError>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for file in split_list(text) {
        let name = base_name(file);
        if is_no_file(name) || file.contains(char::is_control) {
            errors.push(PlanError::new(path, format!("{} names no file; write the path of a file", quoted(file))));
            continue;
        }
        match names.insert(name, file) {
            None => files.push(file.to_owned()),
            Some(first) if first == file => {}
            Some(first) => errors.push(PlanError::new(path, collision(first, file, "object", name, "files"))),
        }
    }
    files
}

fn is_no_file(name: &str) -> bool {
    matches!(name, "" | "." | "..")
}

fn collision(first: &str, second: &str, kind: &str, name: &str, of: &str) -> String {
    let (first, second, name) = (quoted(first), quoted(second), quoted(name));
    format!("{first} and {second} would both be the {kind} {name}; give one of the {of} another name")
}

/// What a bucket's name surely is not; each store has more rules of its own.
pub(super) fn bucket(path: &str, name: &str, errors: &mut Vec<PlanError>) {
    if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        errors.push(PlanError::new(path, format!("{} is not a bucket; write its bare name", quoted(name))));
    }
}

/// `host[:port]`
pub(super) fn endpoint(path: &str, text: &str, errors: &mut Vec<PlanError>) {
    let parsed = url::Url::parse(&format!("http://{text}/"));
    let bare = parsed.is_ok_and(|url| {
        url.host_str().is_some_and(|host| !host.is_empty())
            && url.path() == "/"
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if !bare || text.contains(char::is_whitespace) {
        errors.push(PlanError::new(path, format!("{} is not a host; write host or host:port", quoted(text))));
    }
}

/// What follows the last slash.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn quoted(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() > 60 || line.len() < text.len() {
        format!("\"{}…\"", line.chars().take(60).collect::<String>())
    } else {
        format!("\"{line}\"")
    }
}
