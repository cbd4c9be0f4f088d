//! Values that come in one form from one version of slurmrestd and in another from the next.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A number in any of its forms; `None` if it is not set, infinite or not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Number(pub(super) Option<i64>);

impl Number {
    /// The number if it is above zero, which is how Slurm says that it is set.
    #[must_use]
    pub(super) fn positive(self) -> Option<i64> {
        self.0.filter(|number| *number > 0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> serde::de::Visitor<'de> for Any {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, bare or boxed")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number(Some(number)))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(Number(i64::try_from(number).ok()))
            }
            #[allow(clippy::cast_possible_truncation, reason = "numbers of Slurm that come as floats are small")]
            fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
                Ok(Number(number.is_finite().then_some(number as i64)))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
                Ok(Number(None))
            }
            fn visit_str<E>(self, text: &str) -> Result<Number, E> {
                Ok(Number(text.trim().parse().ok()))
            }
            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number(None))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Number, A::Error> {
                while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                Ok(Number(None))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
                let (mut set, mut infinite, mut number) = (true, false, Number(None));
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "set" => set = map.next_value::<Value>()? == Value::Bool(true),
                        "infinite" => infinite = map.next_value::<Value>()? == Value::Bool(true),
                        "number" => number = map.next_value()?,
                        _ => {
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                    }
                }
                Ok(if set && !infinite { number } else { Number(None) })
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A text that may also come as null or as a number; empty if it is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl Text {
    /// The text, unless it is empty.
    #[must_use]
    pub(super) fn get(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Words::deserialize(deserializer).map(|words| Self(words.0.into_iter().next().unwrap_or_default()))
    }
}

/// One word or a list of words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Words(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> serde::de::Visitor<'de> for Any {
            type Value = Words;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of words")
            }
            fn visit_str<E>(self, word: &str) -> Result<Words, E> {
                Ok(Words(vec![word.to_owned()]))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Words, E> {
                Ok(Words(vec![number.to_string()]))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Words, E> {
                Ok(Words(vec![number.to_string()]))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Words, E> {
                Ok(Words(vec![number.to_string()]))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Words, E> {
                Ok(Words::default())
            }
            fn visit_unit<E>(self) -> Result<Words, E> {
                Ok(Words::default())
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(Text(word)) = list.next_element()? {
                    words.push(word);
                }
                Ok(Words(words))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Words, A::Error> {
                while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
                Ok(Words::default())
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A list, or nothing where something else stands.
pub(super) fn list_or_nothing<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let entries = match Value::deserialize(deserializer)? {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    };
    Ok(entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}
