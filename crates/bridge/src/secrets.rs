//! Where the Secrets of stand-alone jobs come from: documents beside the jobs, folders, the environment.
//!
//! Their content is never an argument and never saved; what is saved is where it was found.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bridge_api::reader::SecretDocument;
use bridge_core::credentials::{CredentialError, CredentialSource, Credentials, StaticCredentials, keys};
use bridge_core::plan::{PlanError, SecretNeed};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::input::{self, STDIN};

/// The keys that are looked for in the environment.
const KNOWN_KEYS: [&str; 8] = [
    keys::USERNAME,
    keys::PASSWORD,
    keys::TOKEN,
    keys::CA,
    keys::ALLOWED_URL,
    keys::ACCESS_KEY,
    keys::SECRET_KEY,
    keys::SESSION_TOKEN,
];

/// Where a Secret was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum Origin {
    /// A folder with a file for each key.
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// A document of this file.
    Document {
        /// The file.
        file: PathBuf,
    },
    /// Variables of the environment.
    Environment,
}

/// A Secret that was found.
#[derive(Debug, Clone)]
pub struct FoundSecret {
    /// Where.
    pub origin: Origin,
    /// The keys it has.
    pub keys: Vec<String>,
    /// Reads it, again and again.
    pub source: Arc<dyn CredentialSource>,
    /// Its values, to be kept out of what is shown.
    values: Vec<String>,
}

/// All Secrets that a command can see.
pub struct SecretBook<'a> {
    folders: BTreeMap<String, PathBuf>,
    documents: Vec<(PathBuf, SecretDocument)>,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for SecretBook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretBook").field("folders", &self.folders).finish_non_exhaustive()
    }
}

/// Reads a variable of this process.
#[must_use]
pub fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl<'a> SecretBook<'a> {
    /// From `--secret` arguments, documents, and the environment.
    pub fn new(
        arguments: &[String],
        documents: Vec<(PathBuf, SecretDocument)>,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let mut folders = BTreeMap::new();
        for argument in arguments {
            let (name, folder) = argument.split_once('=').unwrap_or((argument.as_str(), ""));
            if name.is_empty() || folder.is_empty() {
                // The argument itself is not shown: it may be a secret that was put in the wrong place.
                return Err(Failure::input("--secret takes NAME=FOLDER, a folder with a file for each key"));
            }
            let path = absolute(Path::new(folder));
            if !path.is_dir() {
                return Err(Failure::input(format!(
                    "--secret {name}: {} is not a folder; give a folder with a file for each key",
                    path.display()
                )));
            }
            if folders.insert(name.to_owned(), path).is_some() {
                return Err(Failure::input(format!("--secret {name} is given twice; give it once")));
            }
        }
        Ok(Self { folders, documents, environment })
    }

    /// From what was saved about an earlier command; `arguments` win.
    pub fn reopen(
        arguments: &[String],
        origins: &BTreeMap<String, Origin>,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let mut book = Self::new(arguments, Vec::new(), environment)?;
        for (name, origin) in origins {
            match origin {
                Origin::Folder { path } => {
                    book.folders.entry(name.clone()).or_insert_with(|| path.clone());
                }
                // The file may be gone or changed by now; a Secret that is missing then is told as such.
                Origin::Document { file } if file.as_os_str() != STDIN => {
                    if let Ok(input) = input::read(std::slice::from_ref(file)) {
                        book.documents.extend(input.secrets.into_iter().filter(|(_, secret)| &secret.name == name));
                    }
                }
                Origin::Document { .. } | Origin::Environment => {}
            }
        }
        Ok(book)
    }

    /// Finds a Secret that a job needs, with all keys that it needs.
    pub fn find(&self, namespace: &str, need: &SecretNeed) -> Result<FoundSecret, PlanError> {
        let name = need.secret.0.as_str();
        let fault = |message: String| PlanError::new(need.path, message);
        let found = self.look(namespace, name).map_err(fault)?.ok_or_else(|| {
            let variables: Vec<String> =
                need.any_of.first().into_iter().flat_map(|set| set.iter()).map(|key| variable(name, key)).collect();
            let or_set =
                if variables.is_empty() { String::new() } else { format!(", or set {}", variables.join(" and ")) };
            fault(format!(
                "the Secret \"{name}\" is not here; add a Secret document with that name to the file, \
                 give --secret {name}=FOLDER (a file for each key){or_set}"
            ))
        })?;
        match need.missing(found.keys.iter().map(String::as_str)) {
            Some(message) => Err(fault(format!("{message}; add what is missing"))),
            None => Ok(found),
        }
    }

    fn look(&self, namespace: &str, name: &str) -> Result<Option<FoundSecret>, String> {
        if let Some(path) = self.folders.get(name) {
            let pairs = read_folder(path)?;
            let source = FolderSecret { name: name.to_owned(), path: path.clone() };
            return Ok(Some(FoundSecret::new(Origin::Folder { path: path.clone() }, &pairs, Arc::new(source))));
        }
        let mut matching = self.documents.iter().filter(|(_, secret)| {
            secret.name == name
                && secret.namespace.as_deref().is_none_or(|its| namespace.is_empty() || its == namespace)
        });
        if let Some((file, document)) = matching.next() {
            if matching.next().is_some() {
                return Err(format!("there are several Secrets named \"{name}\" in the files; leave one"));
            }
            let pairs = text_pairs(document)?;
            let file = if file.as_os_str() == STDIN { file.clone() } else { absolute(file) };
            let source = StaticCredentials(Credentials::from_pairs(pairs.clone()));
            return Ok(Some(FoundSecret::new(Origin::Document { file }, &pairs, Arc::new(source))));
        }
        let pairs: Vec<(String, String)> = KNOWN_KEYS
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), (self.environment)(&variable(name, key))?)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        if pairs.is_empty() {
            return Ok(None);
        }
        let source = StaticCredentials(Credentials::from_pairs(pairs.clone()));
        Ok(Some(FoundSecret::new(Origin::Environment, &pairs, Arc::new(source))))
    }
}

impl FoundSecret {
    fn new(origin: Origin, pairs: &[(String, String)], source: Arc<dyn CredentialSource>) -> Self {
        let (keys, values) = pairs.iter().map(|(key, value)| (key.clone(), value.trim().to_owned())).unzip();
        Self { origin, keys, source, values }
    }

    /// The text without this Secret's values.
    #[must_use]
    pub fn redact(&self, text: String) -> String {
        // Shorter ones would tear up the text, and are no secrets.
        let values = self.keys.iter().zip(&self.values).filter(|(key, value)| {
            value.len() >= 4 && !matches!(key.as_str(), keys::USERNAME | keys::CA | keys::ALLOWED_URL)
        });
        values.fold(text, |text, (_, value)| text.replace(value.as_str(), "<redacted>"))
    }
}

/// The variable of the environment that holds a key of a Secret.
#[must_use]
pub fn variable(secret: &str, key: &str) -> String {
    let word = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
    };
    format!("BRIDGE_SECRET_{}_{}", word(secret), word(key))
}

/// A folder that is read anew each time, because its files may be replaced while a job runs.
#[derive(Debug)]
struct FolderSecret {
    name: String,
    path: PathBuf,
}

#[async_trait]
impl CredentialSource for FolderSecret {
    async fn read(&self) -> Result<Credentials, CredentialError> {
        let path = self.path.clone();
        let pairs = tokio::task::spawn_blocking(move || read_folder(&path)).await;
        let pairs = pairs.map_err(|lost| CredentialError(format!("the Secret \"{}\": {lost}", self.name)))?;
        pairs.map(Credentials::from_pairs).map_err(CredentialError)
    }
}

/// A file a key, as Secrets are mounted: names that begin with a dot belong to the mount itself.
fn read_folder(path: &Path) -> Result<Vec<(String, String)>, String> {
    let cannot = |error: std::io::Error| format!("the folder {} cannot be read: {error}", path.display());
    let mut pairs = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let Some(key) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if key.starts_with('.') || !entry.path().is_file() {
            continue;
        }
        let bytes = std::fs::read(entry.path()).map_err(cannot)?;
        let value = String::from_utf8(bytes)
            .map_err(|_| format!("the file {} is not UTF-8 text; write the value as text", entry.path().display()))?;
        pairs.push((key, value));
    }
    pairs.sort();
    Ok(pairs)
}

fn text_pairs(document: &SecretDocument) -> Result<Vec<(String, String)>, String> {
    document
        .keys()
        .map(|key| {
            let bytes = document.get(key).unwrap_or_default();
            let value = std::str::from_utf8(bytes)
                .map_err(|_| format!("the key \"{key}\" of the Secret \"{}\" is not UTF-8 text", document.name))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
