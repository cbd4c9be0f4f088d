//! Secrets beside jobs in a file.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use secrecy::{ExposeSecret, SecretSlice};
use serde_json::Value;

use crate::validate::{FieldError, not_dns};

/// A Secret of a file. Its values are shown by no `Debug` and wiped from memory when it goes.
#[derive(Debug, Clone)]
pub struct SecretDocument {
    /// Its name.
    pub name: String,
    /// Its namespace, if it names one.
    pub namespace: Option<String>,
    data: BTreeMap<String, SecretSlice<u8>>,
}

impl SecretDocument {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(ExposeSecret::expose_secret)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.data.keys().map(String::as_str)
    }

    /// Keys and values, still wrapped.
    #[must_use]
    pub fn into_data(self) -> BTreeMap<String, SecretSlice<u8>> {
        self.data
    }
}

/// `data` is base64, `stringData` is text and wins, as in the API server.
pub(super) fn decode(value: &Value) -> Result<SecretDocument, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut data = BTreeMap::new();
    for (key, value) in entries(value, "data") {
        // `base64` breaks its lines, and a block of YAML keeps the breaks.
        let joined: String = value.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        match serde_json::from_value::<ByteString>(Value::String(joined)) {
            Ok(ByteString(bytes)) => {
                data.insert(key.to_owned(), SecretSlice::from(bytes));
            }
            Err(_) => errors.push(FieldError::new(
                format!("data.{key}"),
                "is not base64; encode it, or write it as it is under stringData",
            )),
        }
    }
    for (key, value) in entries(value, "stringData") {
        data.insert(key.to_owned(), SecretSlice::from(value.as_bytes().to_vec()));
    }
    let metadata = &value["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::new(
            "metadata.name",
            "is missing; write the name that the job's resourcesecret or s3secret says",
        ));
    } else if let Some(message) = not_dns(name, true) {
        errors.push(FieldError::new("metadata.name", message));
    }
    if errors.is_empty() {
        let namespace = metadata["namespace"].as_str().map(str::to_owned);
        Ok(SecretDocument { name: name.to_owned(), namespace, data })
    } else {
        Err(errors)
    }
}

fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    value[field].as_object().into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}
