//! Flags in a JSON file.
//!
//! The file has an object of objects: `doca_general_flags`, `doca_program_flags` and `doca_dpdk_flags`, with
//! the long names of flags as keys. The file may contain comments, and commas before a closing bracket,
//! because the files of the SDK's own programs do.

use serde_json::{Map, Value as Json};

use super::line::{Action, Mistake, invalid, level};
use super::{ParamSpec, Value, text};
use crate::c_abi::c;

#[derive(Default)]
pub(super) struct File {
    pub(super) actions: Vec<Action>,
    pub(super) dpdk: Vec<String>,
}

/// Reads the flags of a JSON file.
pub(super) fn read(path: &str, params: &[ParamSpec]) -> Result<File, Mistake> {
    let failed = |what: String| Mistake {
        code: c::DOCA_ERROR_IO_FAILED,
        message: format!("JSON file {path}: {what}"),
    };
    let content = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let json: Json = serde_json::from_str(&plain(&content)).map_err(|error| failed(error.to_string()))?;
    let Json::Object(sections) = json else { return Err(failed("not an object".to_owned())) };
    parse(&sections, params)
        .map_err(|mistake| Mistake { message: format!("JSON file {path}: {}", mistake.message), ..mistake })
}

fn parse(sections: &Map<String, Json>, params: &[ParamSpec]) -> Result<File, Mistake> {
    let mut file = File::default();
    for (section, flags) in sections {
        let Json::Object(flags) = flags else { return Err(invalid(format!("{section} is not an object"))) };
        for (key, value) in flags {
            match section.as_str() {
                "doca_general_flags" => file.actions.push(general(key, value)?),
                "doca_program_flags" => program(params, key, value, &mut file.actions)?,
                "doca_dpdk_flags" => dpdk(key, value, &mut file.dpdk)?,
                _ => {
                    return Err(invalid(format!(
                        "unknown section '{section}': there are doca_general_flags, doca_program_flags and \
                         doca_dpdk_flags"
                    )));
                }
            }
        }
    }
    Ok(file)
}

fn general(key: &str, value: &Json) -> Result<Action, Mistake> {
    match key {
        "log-level" => Ok(Action::LogLevel(level("log-level", value.as_i64(), &value.to_string())?)),
        "sdk-log-level" => {
            Ok(Action::SdkLogLevel(level("sdk-log-level", value.as_i64(), &value.to_string())?))
        }
        _ => Err(invalid(format!(
            "unknown key '{key}' of doca_general_flags: there are log-level and sdk-log-level"
        ))),
    }
}

fn program(params: &[ParamSpec], key: &str, value: &Json, actions: &mut Vec<Action>) -> Result<(), Mistake> {
    let param = params.iter().find(|param| param.long.as_deref() == Some(key)).ok_or_else(|| Mistake {
        code: c::DOCA_ERROR_NOT_SUPPORTED,
        message: format!("unknown flag '{key}'"),
    })?;
    if param.cli_only {
        return Err(invalid(format!("'{key}' can only be given on the command line")));
    }
    let values = match value {
        Json::Array(values) if param.multiple => values.as_slice(),
        single => std::slice::from_ref(single),
    };
    for value in values {
        actions.push(Action::Set(param.clone(), convert(param, key, value)?));
    }
    Ok(())
}

fn convert(param: &ParamSpec, key: &str, value: &Json) -> Result<Value, Mistake> {
    let converted = match param.kind {
        c::DOCA_ARGP_TYPE_STRING => value.as_str().and_then(text).map(Value::Text),
        c::DOCA_ARGP_TYPE_INT => value.as_i64().and_then(|number| i32::try_from(number).ok()).map(Value::Int),
        c::DOCA_ARGP_TYPE_BOOLEAN => value.as_bool().map(Value::Bool),
        // The vendor's parser would pass an object of its JSON library to the program.
        _ => {
            return Err(Mistake {
                code: c::DOCA_ERROR_NOT_SUPPORTED,
                message: format!("'{key}': flags of type DOCA_ARGP_TYPE_JSON_OBJ are not supported"),
            });
        }
    };
    let wanted = match param.kind {
        c::DOCA_ARGP_TYPE_STRING => "a string",
        c::DOCA_ARGP_TYPE_INT => "a 32-bit number",
        _ => "true or false",
    };
    converted.ok_or_else(|| invalid(format!("'{key}' must be {wanted}, not {value}")))
}

/// Adds an option of the file to the arguments for DPDK's own parser.
fn dpdk(key: &str, value: &Json, words: &mut Vec<String>) -> Result<(), Mistake> {
    let plain = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match key {
        "devices" => {
            let devices = value.as_array().ok_or_else(|| invalid("devices is not an array".to_owned()))?;
            for device in devices {
                let id = device
                    .get("id")
                    .map(plain)
                    .ok_or_else(|| invalid("a device without an id".to_owned()))?;
                let kind = device.get("device").and_then(Json::as_str).unwrap_or_default();
                words.push("-a".to_owned());
                words.push(if kind == "sf" { format!("auxiliary:mlx5_core.sf.{id}") } else { id });
            }
        }
        "core-mask" => words.extend(["-c".to_owned(), plain(value)]),
        "core-list" => words.extend(["-l".to_owned(), plain(value)]),
        "flags" => words.extend(plain(value).split_whitespace().map(str::to_owned)),
        _ => {
            return Err(invalid(format!(
                "unknown key '{key}' of doca_dpdk_flags: there are devices, core-mask, core-list and flags"
            )));
        }
    }
    Ok(())
}

/// Replaces comments and trailing commas by spaces. So the positions in error messages are those in the file.
fn plain(text: &str) -> String {
    let mut out: Vec<char> = text.chars().collect();
    let mut at = 0;
    // The position of a comma that may be the last before a bracket.
    let mut comma = None;
    while at < out.len() {
        match out[at] {
            '"' => {
                at += 1;
                while at < out.len() && out[at] != '"' {
                    at += if out[at] == '\\' { 2 } else { 1 };
                }
                comma = None;
            }
            '/' if out.get(at + 1) == Some(&'/') => {
                while at < out.len() && out[at] != '\n' {
                    out[at] = ' ';
                    at += 1;
                }
            }
            '/' if out.get(at + 1) == Some(&'*') => {
                let end = (at + 2..out.len().saturating_sub(1)).find(|&i| out[i] == '*' && out[i + 1] == '/');
                let end = end.map_or(out.len(), |end| end + 2);
                for character in &mut out[at..end] {
                    if *character != '\n' {
                        *character = ' ';
                    }
                }
                at = end;
                continue;
            }
            ',' => comma = Some(at),
            ']' | '}' => {
                if let Some(comma) = comma.take() {
                    out[comma] = ' ';
                }
            }
            character if character.is_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    out.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_last_commas_become_spaces() {
        let text = "/* one\n two */{ // three\n \"a//b\": \"x,]\\\"/*\", \"c\": [1, 2, /* , */ ], }";
        let plain = plain(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(plain.matches('\n').count(), 2);
        let json: Json = serde_json::from_str(&plain).expect("JSON");
        assert_eq!(json, serde_json::json!({ "a//b": "x,]\"/*", "c": [1, 2] }));
    }

    #[test]
    fn invalid_json_stays_invalid() {
        for text in ["", "{", "{,}x", "\"", "\"\\", "/*", "/", "{\"a\" 1}", "[1,,]"] {
            assert!(serde_json::from_str::<Json>(&plain(text)).is_err(), "{text:?}");
        }
    }
}
