//! The configuration of the stand-in SDKs, as far as it is the same for all: TOML, from a file or from the environment, about devices of the
//! [`model`](crate::model).

use std::fmt;
use std::path::PathBuf;
use std::{env, fs};

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, Unexpected, Visitor};

use crate::model::{FaultPlan, Profile};

/// Text of a configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {problem}")]
pub struct ConfigError {
    /// Where the text is from.
    pub source_name: String,
    /// What is wrong, where, and what would be right.
    pub problem: String,
}

/// The text of a configuration as the environment has it, and where that is: in the file that `file` names, or in `inline` itself. Neither is
/// an empty text.
///
/// # Errors
///
/// The file cannot be read, the text is not UTF-8, or both variables are set.
pub fn from_environment(file: &str, inline: &str) -> Result<(String, String), ConfigError> {
    let path = env::var_os(file).filter(|path| !path.is_empty()).map(PathBuf::from);
    let text = env::var_os(inline).filter(|text| !text.is_empty());
    match (path, text) {
        (Some(path), None) => {
            let source_name = format!("{file}={}", path.display());
            match fs::read_to_string(&path) {
                Ok(text) => Ok((source_name, text)),
                Err(error) => Err(ConfigError { source_name, problem: format!("cannot read it: {error}") }),
            }
        }
        (None, Some(text)) => {
            let source_name = inline.to_owned();
            match text.into_string() {
                Ok(text) => Ok((source_name, text)),
                Err(_) => Err(ConfigError { source_name, problem: "it is not UTF-8".to_owned() }),
            }
        }
        (Some(_), Some(_)) => Err(ConfigError {
            source_name: format!("{file} and {inline}"),
            problem: "both are set; unset one".to_owned(),
        }),
        (None, None) => Ok(("the default configuration".to_owned(), String::new())),
    }
}

/// Takes the tables `name` out of `top`, each an entry of `[[name]]`, or one empty table if there is none. What is left in `top` is for all of
/// them that do not say otherwise. `known` are the keys of the top level alone, which the caller took out before: they are named where a key is
/// unknown.
///
/// # Errors
///
/// The message, in one line, with the number of the table that it is about.
pub fn tables<T: DeserializeOwned>(
    mut top: toml::Table,
    name: &str,
    known: &[&str],
    check: impl Fn(T) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let tables = match top.remove(name) {
        None => vec![toml::Table::new()],
        Some(toml::Value::Table(table)) => vec![table],
        Some(tables) => tables.try_into().map_err(|error| format!("{name}: {}", one_line(&error)))?,
    };
    let read = |(mut table, number): (toml::Table, u32)| {
        for (key, value) in &top {
            table.entry(key).or_insert_with(|| value.clone());
        }
        table
            .try_into::<T>()
            .map_err(|error| match one_line(&error) {
                unknown if unknown.starts_with("unknown field") => {
                    format!("{unknown}; and, for all, `{}`", known.join("`, `"))
                }
                other => other,
            })
            .and_then(&check)
            .map_err(|problem| format!("{name} {number}: {problem}"))
    };
    tables.into_iter().zip(1..).map(read).collect()
}

/// The message in one line, with its place.
#[must_use]
pub fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What passes the time of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The machine's clock.
    Real,
    /// Calls that find nothing let the next thing happen.
    Virtual,
}

/// Bytes: a number, or a string such as `64K`, `2MiB`, `1G`, all with a factor of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

struct SizeReader;

impl Visitor<'_> for SizeReader {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes, such as 65536, \"64K\" or \"2M\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Size, E> {
        u64::try_from(value).map(Size).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        crate::size::parse(text).map(Size).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SizeReader)
    }
}

/// Reads a size into bytes.
///
/// # Errors
///
/// It is none.
pub fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Size::deserialize(from).map(|size| size.0)
}

/// Reads the name of a profile.
///
/// # Errors
///
/// There is none of that name.
pub fn profile<'de, D: Deserializer<'de>>(from: D) -> Result<Profile, D::Error> {
    Profile::by_name(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// Reads a plan of faults.
///
/// # Errors
///
/// It is none.
pub fn faults<'de, D: Deserializer<'de>>(from: D) -> Result<FaultPlan, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
