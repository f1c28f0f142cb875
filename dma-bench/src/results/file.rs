//! Results files: writing, and reading with checks. Text is cleaned when it is read.

use std::fs;
use std::path::Path;

use super::{Results, SCHEMA, VERSION};
use crate::files::{input, refused};
use crate::units::printable;

/// Fields whose texts appear in tables.
const IN_TABLES: [&str; 8] =
    ["engine", "name", "profile", "load", "direction", "quantity", "against", "source"];

/// Replaces special characters in all texts of a file, so that terminals, tables and pages can show them
/// unchanged. This happens once, when the file is read.
fn clean(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = printable(text),
        serde_json::Value::Array(all) => all.iter_mut().for_each(clean),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                clean(value);
                // A bar in a text would end its column in a table. Names of engines contain no bar, so only
                // hand-written files are changed.
                if let (true, serde_json::Value::String(text)) = (IN_TABLES.contains(&name.as_str()), value) {
                    *text = text.replace('|', "\u{a6}");
                }
            }
        }
        _ => {}
    }
}

/// Returns the JSON Schema of results files, generated from the types that are serialised.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Results);
    // Serialising cannot fail: all keys are strings.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

impl Results {
    /// Returns the results as JSON.
    pub fn to_json(&self) -> String {
        // Serialising cannot fail: all keys are strings, and all numbers are finite.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads a results file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(input(path)).map_err(|error| refused(path, &error))?;
        Self::parse(&path.display().to_string(), &bytes)
    }

    pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let malformed = |reason: String| {
            format!(
                "{name}: these are not results of dma-bench: {reason}; name a file that `dma-bench run --json FILE` wrote"
            )
        };
        let mut value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| {
            malformed(if e.is_eof() { format!("the file is cut off ({e})") } else { e.to_string() })
        })?;
        clean(&mut value);
        if value.get("schema").and_then(|s| s.as_str()) != Some(SCHEMA) {
            return Err(malformed(format!("it has no \"schema\": \"{SCHEMA}\"")));
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(found) => {
                let tool = value.get("tool").and_then(|t| t.as_str()).unwrap_or("unknown");
                return Err(format!(
                    "{name}: results of version {found}, and this dma-bench reads version {VERSION}: measure again, or use the dma-bench that wrote \
                     it ({tool})"
                ));
            }
            None => return Err(malformed("it has no \"version\"".to_owned())),
        }
        serde_json::from_value(value).map_err(|e| malformed(e.to_string()))
    }
}
