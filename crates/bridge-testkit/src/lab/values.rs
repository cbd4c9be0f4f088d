//! What `lab/env` prints.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use super::LabError;

/// How to reach what is up, by the names of `lab/env`.
#[derive(Clone, Debug)]
pub(super) struct Values(BTreeMap<String, String>);

impl Values {
    pub(super) fn read(text: &str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &'static str) -> Result<&str, LabError> {
        self.0.get(name).map(String::as_str).ok_or_else(|| LabError::NoValue { name, why: "it is missing".to_owned() })
    }

    pub(super) fn parse<T>(&self, name: &'static str) -> Result<T, LabError>
    where
        T: FromStr<Err: Display>,
    {
        let text = self.get(name)?;
        text.parse().map_err(|error| LabError::NoValue { name, why: format!("\"{text}\": {error}") })
    }
}
