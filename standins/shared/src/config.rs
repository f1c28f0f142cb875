//! Common configuration of the stand-in SDKs. It describes devices of the [`model`](dma_sim::model) in TOML,
//! and is read from a file or from an environment variable.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::{env, fs};

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};

pub use dma_core::configuration::Bytes;
use dma_sim::model::{FaultPlan, Profile};

/// The error of an invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {problem}")]
pub struct ConfigError {
    /// Source of the text: the environment variable, the file, or `use_config`.
    pub source_name: String,
    /// The problem, its place, and the remedy.
    pub problem: String,
}

/// Returns the configuration's source and text, from the file that the variable `file` names, or from the
/// variable `inline`. If neither variable is set, the text is empty.
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

/// The configuration of this process: a text that the program sets, or otherwise the text from the
/// environment.
#[derive(Debug)]
pub struct ProcessConfig {
    text: OnceLock<String>,
    /// Names of the environment variables with the file name and with the text.
    variables: [&'static str; 2],
}

impl ProcessConfig {
    /// Creates the configuration, which is read from the variables `file` and `inline`.
    #[must_use]
    pub const fn new(file: &'static str, inline: &'static str) -> Self {
        Self { text: OnceLock::new(), variables: [file, inline] }
    }

    /// Sets the text, if `parse` accepts it. Only the first call has an effect.
    ///
    /// # Errors
    ///
    /// The text is not a valid configuration.
    pub fn set<T>(&self, text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<(), ConfigError> {
        parse(text).map_err(|problem| ConfigError { source_name: "use_config".to_owned(), problem })?;
        self.text.get_or_init(|| text.to_owned());
        Ok(())
    }

    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// The errors of [`from_environment`], or the text is not a valid configuration.
    pub fn read<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, ConfigError> {
        let [file, inline] = self.variables;
        let (source_name, text) = match self.text.get() {
            Some(text) => ("use_config".to_owned(), text.clone()),
            None => from_environment(file, inline)?,
        };
        parse(&text).map_err(|problem| ConfigError { source_name, problem })
    }
}

/// Removes the keys `known` from `top`, and deserializes them.
///
/// # Errors
///
/// A message in one line.
pub fn settings<T: DeserializeOwned>(top: &mut toml::Table, known: &[&str]) -> Result<T, String> {
    let own: toml::Table = known.iter().filter_map(|key| top.remove_entry(*key)).collect();
    own.try_into().map_err(|error| one_line(&error))
}

/// Removes the tables `[[name]]` from `top`, and deserializes each of them; without such tables,
/// deserializes one empty table. Other keys in `top` are defaults for all tables. `known` are the keys that
/// only the top level may have. The caller has already removed them; the error for an unknown key also lists
/// them.
///
/// # Errors
///
/// A message of one line, with the number of the table.
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
                    format!("{unknown}; or, at the top level, `{}`", known.join("`, `"))
                }
                other => other,
            })
            .and_then(&check)
            .map_err(|problem| format!("{name} {number}: {problem}"))
    };
    tables.into_iter().zip(1..).map(read).collect()
}

/// Returns the message in one line, with its position in the text.
#[must_use]
pub fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The clock of a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The machine's clock.
    Real,
    /// A virtual clock, which jumps to the next event when a call finds no completion.
    Virtual,
}

/// Deserializes a size, such as `64K`, and returns the number of bytes.
///
/// # Errors
///
/// The value is not a size.
pub fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Bytes::deserialize(from).map(|bytes| bytes.0)
}

/// Deserializes the name of a profile, and returns the profile.
///
/// # Errors
///
/// No profile has that name.
pub fn profile<'de, D: Deserializer<'de>>(from: D) -> Result<Profile, D::Error> {
    Profile::by_name(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// Deserializes a fault plan.
///
/// # Errors
///
/// The value is not a valid fault plan.
pub fn faults<'de, D: Deserializer<'de>>(from: D) -> Result<FaultPlan, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
