//! Files with `BridgeJob`s and Secrets: what is in them, or everything that is wrong with them and where.

mod check;
mod scalar;
mod secret;
mod suggest;
mod tree;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::BridgeJob;
use crate::names::{API_VERSION, GROUP, KIND, LEGACY_GROUP, VERSION};
use crate::validate::{self, FieldError};

pub use secret::SecretDocument;

use check::{Checker, Finding, within};
use suggest::{Fields, misspelt};
use tree::{Node, Tree};

/// Larger than any object that a cluster would take, several times over.
const MAX_FILE: usize = 16 * 1024 * 1024;

/// A place in a file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// What a file holds. Nothing of it should be used while there are problems.
#[derive(Debug, Default)]
pub struct Reading {
    /// The documents that could be read, in their order.
    pub documents: Vec<Document>,
    /// Everything that is wrong, in the order of the file.
    pub problems: Vec<Problem>,
    /// What the reader changed or left out, to be told to people.
    pub notes: Vec<Problem>,
}

impl Reading {
    /// The documents and the notes, or the problems if there are any.
    pub fn into_result(self) -> Result<(Vec<Document>, Vec<Problem>), Vec<Problem>> {
        if self.problems.is_empty() { Ok((self.documents, self.notes)) } else { Err(self.problems) }
    }
}

/// One document of a file.
#[derive(Debug)]
pub enum Document {
    /// A job.
    Job(Box<JobDocument>),
    /// A Secret that jobs beside it may name.
    Secret(SecretDocument),
}

/// A job and where its fields were written.
#[derive(Debug)]
pub struct JobDocument {
    /// The job, defaults filled in, without any status.
    pub job: BridgeJob,
    /// The file it was read from.
    pub file: String,
    /// Where its fields are.
    pub places: Places,
}

impl JobDocument {
    /// An error of a later step, at its place in the file.
    #[must_use]
    pub fn problem(&self, error: &FieldError) -> Problem {
        Problem {
            file: self.file.clone(),
            at: self.places.at(&error.path),
            path: error.path.clone(),
            message: error.message.clone(),
        }
    }
}

/// Where the fields of a document are.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<String, Mark>);

impl Places {
    /// The place of a field (`spec.podTemplate.env[0].name`), or of the nearest one around it that was written.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<Mark> {
        let mut path = path;
        loop {
            if let Some(mark) = self.0.get(path) {
                return Some(*mark);
            }
            path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
            if path.is_empty() {
                return self.0.get("").copied();
            }
        }
    }
}

/// One thing that is wrong with a file, or worth saying about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The place in it, if there is one.
    pub at: Option<Mark>,
    /// The field, or empty for the document as a whole.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Mark { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Reads the bytes of a YAML or JSON file; `file` is only its name for messages.
#[must_use]
pub fn read(file: &str, bytes: &[u8]) -> Reading {
    let mut reader = Reader::new(file);
    match text_of(bytes) {
        Ok(text) => reader.read(text),
        Err((at, message)) => reader.problem(at, "", message),
    }
    reader.reading
}

fn text_of(bytes: &[u8]) -> Result<&str, (Option<Mark>, String)> {
    if bytes.len() > MAX_FILE {
        return Err((None, format!("is larger than {} MiB; no BridgeJob is", MAX_FILE / 1024 / 1024)));
    }
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err((None, "is UTF-16 text; save it as UTF-8".to_owned()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let lines: Vec<&[u8]> = valid.split(|byte| *byte == b'\n').collect();
        let line = lines.len();
        let column = lines.last().map_or(0, |last| String::from_utf8_lossy(last).chars().count()) + 1;
        (Some(Mark { line, column }), "is not UTF-8 text; give a YAML or JSON file".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}');
    for (line, content) in text.lines().enumerate() {
        if let Some(column) = content.chars().position(control) {
            let at = Mark { line: line + 1, column: column + 1 };
            return Err((Some(at), "holds control characters; give a YAML or JSON file".to_owned()));
        }
    }
    Ok(text)
}

struct Reader {
    file: String,
    reading: Reading,
    job_schema: Value,
    job_fields: Fields,
    secret_schema: Value,
    secret_fields: Fields,
    /// Kind, namespace and name of what was read so far.
    seen: BTreeMap<(&'static str, Option<String>, String), Mark>,
}

impl Reader {
    fn new(file: &str) -> Self {
        let job_schema = job_schema();
        let secret_schema = schema_of::<Secret>();
        Self {
            file: file.to_owned(),
            reading: Reading::default(),
            job_fields: Fields::new(&job_schema),
            job_schema,
            secret_fields: Fields::new(&secret_schema),
            secret_schema,
            seen: BTreeMap::new(),
        }
    }

    fn read(&mut self, text: &str) {
        let (documents, faults) = tree::parse(text);
        let broken = !faults.is_empty();
        for fault in faults {
            self.problem(Some(fault.at), &fault.path, fault.message);
        }
        let documents: Vec<Node> = documents.into_iter().filter(|node| !node.is_null()).collect();
        if documents.is_empty() && !broken {
            self.problem(None, "", format!("holds no document; write a {KIND} (apiVersion: {API_VERSION})"));
        }
        for node in &documents {
            self.document(node, "");
        }
        self.reading.problems.sort_by_key(|problem| problem.at);
    }

    fn document(&mut self, node: &Node, within: &str) {
        if !matches!(node.value, Tree::Map(_)) {
            let message =
                format!("is not a Kubernetes object; a {KIND} begins with apiVersion: {API_VERSION} and kind: {KIND}");
            return self.problem(Some(node.at), within, message);
        }
        let kind = node.get("kind").and_then(Node::text);
        let version = node.get("apiVersion").and_then(Node::text);
        let ours = version.is_some_and(|version| group_of(version).is_some());
        match (kind, version) {
            (Some(KIND), _) => self.job(node),
            (Some("Secret"), None | Some("v1")) => self.secret(node),
            (Some("List" | "BridgeJobList"), _) if within.is_empty() => self.list(node),
            (Some(kind), _) if ours => {
                let at = node.get("kind").map(|kind| kind.at);
                self.problem(at, "kind", format!("unknown kind \"{kind}\"; write {KIND}"));
            }
            (Some(kind), _) if misspelt(kind, [KIND].into_iter()).is_some() => {
                let at = node.get("kind").map(|kind| kind.at);
                self.problem(at, "kind", format!("unknown kind \"{kind}\"; did you mean \"{KIND}\"?"));
            }
            (None, _) if ours || looks_like_job(node) => {
                let (at, message) = wrong_header(node, "kind", KIND);
                self.problem(Some(at), "kind", message);
            }
            (None, _) => {
                let message = format!("has no kind, so it is no Kubernetes object; write kind: {KIND}");
                self.problem(Some(node.at), "", message);
            }
            (Some(kind), version) => {
                let of = version.map(|version| format!(" of {version}")).unwrap_or_default();
                let at = node.get("kind").map(|kind| kind.at);
                self.problem(
                    at,
                    "kind",
                    format!("a {kind}{of} cannot be used here; write a {KIND}, or a Secret beside it"),
                );
            }
        }
    }

    fn list(&mut self, node: &Node) {
        match node.get("items").map(|items| &items.value) {
            Some(Tree::List(items)) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    self.document(item, &format!("items[{index}]"));
                }
            }
            _ => self.problem(Some(node.at), "items", "the list is empty; write at least one BridgeJob".to_owned()),
        }
    }

    fn job(&mut self, node: &Node) {
        self.version(node);
        let (value, findings, places) = Checker::new(&self.job_fields, false).document(node, &self.job_schema);
        let structural = findings.len();
        let mut errors = Vec::new();
        let parsed = serde_json::from_value::<BridgeJob>(value);
        match &parsed {
            Ok(job) => errors = validate::job(job),
            // Whatever the schema lets through, the types take; should they ever differ, say so instead of dropping it.
            Err(error) if structural == 0 => errors.push(FieldError::new("", error.to_string())),
            Err(_) => {}
        }
        let news = errors.into_iter().filter(|error| !said(&findings, &error.path)).collect::<Vec<_>>();
        let clean = structural == 0 && news.is_empty();
        for error in news {
            self.problem(places.at(&error.path), &error.path, error.message);
        }
        self.report(findings);
        if node.get("status").is_some() {
            self.note(node, "status", "is left out; it belongs to the job it was taken from".to_owned());
        }
        if let Ok(mut job) = parsed
            && clean
        {
            job.status = None;
            let key = (KIND, job.metadata.namespace.clone(), job.metadata.name.clone().unwrap_or_default());
            self.unique(key, places.at("metadata.name").unwrap_or(node.at));
            let file = self.file.clone();
            self.reading.documents.push(Document::Job(Box::new(JobDocument { job, file, places })));
        }
    }

    fn version(&mut self, node: &Node) {
        let Some(given) = node.get("apiVersion").and_then(Node::text) else {
            let (at, message) = wrong_header(node, "apiVersion", API_VERSION);
            return self.problem(Some(at), "apiVersion", message);
        };
        if given == API_VERSION {
            return;
        }
        let at = node.get("apiVersion").map(|version| version.at);
        match group_of(given) {
            Some((LEGACY_GROUP, VERSION)) => {
                self.note(node, "apiVersion", format!("{given} is taken as {API_VERSION}"));
            }
            Some((_, version)) => {
                let message = format!("unknown version \"{version}\"; write {API_VERSION}");
                self.problem(at, "apiVersion", message);
            }
            None => {
                let message = format!("a {KIND} of \"{given}\" is unknown; write {API_VERSION}");
                self.problem(at, "apiVersion", message);
            }
        }
    }

    fn secret(&mut self, node: &Node) {
        let (value, findings, places) = Checker::new(&self.secret_fields, true).document(node, &self.secret_schema);
        let result = secret::decode(&value);
        let mut clean = findings.is_empty();
        match result {
            Ok(document) => {
                if clean {
                    let key = ("Secret", document.namespace.clone(), document.name.clone());
                    self.unique(key, places.at("metadata.name").unwrap_or(node.at));
                    self.reading.documents.push(Document::Secret(document));
                }
            }
            Err(errors) => {
                clean = false;
                for error in errors.into_iter().filter(|error| !said(&findings, &error.path)) {
                    self.problem(places.at(&error.path), &error.path, error.message);
                }
            }
        }
        if !clean {
            self.report(findings);
        }
    }

    fn unique(&mut self, key: (&'static str, Option<String>, String), at: Mark) {
        if key.2.is_empty() {
            return;
        }
        if let Some(first) = self.seen.get(&key) {
            let message = format!(
                "a second {} named \"{}\" (the first is on line {}); give it another name",
                key.0, key.2, first.line
            );
            return self.problem(Some(at), "metadata.name", message);
        }
        self.seen.insert(key, at);
    }

    fn report(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            self.problem(Some(finding.at), &finding.path, finding.message);
        }
    }

    fn problem(&mut self, at: Option<Mark>, path: &str, message: String) {
        let problem = Problem { file: self.file.clone(), at, path: path.to_owned(), message };
        self.reading.problems.push(problem);
    }

    fn note(&mut self, node: &Node, path: &str, message: String) {
        let at = node.get(path).map(|value| value.at);
        self.reading.notes.push(Problem { file: self.file.clone(), at, path: path.to_owned(), message });
    }
}

/// A header field that is not there, or is there in another spelling or with another type.
fn wrong_header(node: &Node, name: &str, value: &str) -> (Mark, String) {
    let other = node.entries().iter().find(|entry| entry.key.eq_ignore_ascii_case(name));
    match other {
        Some(entry) if entry.key == name => (entry.value.at, format!("must be text; write {name}: {value}")),
        Some(entry) => (entry.key_at, format!("is missing, but there is \"{}\"; write {name}: {value}", entry.key)),
        None => (node.at, format!("is missing; write {name}: {value}")),
    }
}

/// Whether something was already said about a field, about one around it or about one in it.
fn said(findings: &[Finding], path: &str) -> bool {
    findings.iter().any(|finding| {
        within(&finding.path, path)
            || within(path, &finding.path)
            || finding.covers.iter().any(|covered| within(covered, path) || within(path, covered))
    })
}

/// Group and version, if the group is one of ours.
fn group_of(api_version: &str) -> Option<(&str, &str)> {
    let (group, version) = api_version.split_once('/')?;
    [GROUP, LEGACY_GROUP].contains(&group).then_some((group, version))
}

fn looks_like_job(node: &Node) -> bool {
    node.get("spec").is_some_and(|spec| spec.get("jobdata").is_some() || spec.get("resourceURL").is_some())
}

/// The generated schema of a `BridgeJob`, with what the API server knows of by itself.
fn job_schema() -> Value {
    let mut schema = crate::crd::open_api(&crate::crd());
    schema["properties"]["apiVersion"] = serde_json::json!({ "type": "string" });
    schema["properties"]["kind"] = serde_json::json!({ "type": "string" });
    schema["properties"]["metadata"] = schema_of::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
    // What was there before does not matter to a new job, and it may come from another version.
    schema["properties"]["status"] = serde_json::json!({});
    schema["required"] = serde_json::json!(["metadata", "spec"]);
    schema
}

fn schema_of<T: schemars::JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}
