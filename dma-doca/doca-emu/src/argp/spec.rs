//! Descriptions of registered flags and commands.

use std::ffi::{CString, c_void};

use crate::c_abi::{Code, Outcome, c, require};

/// A callback for a value, with the program's configuration.
pub(super) type ParamCallback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Code;
/// A callback for a command, with the program's configuration.
pub(super) type CmdCallback = unsafe extern "C" fn(*mut c_void) -> Code;

/// A flag.
#[derive(Clone, Default)]
pub(crate) struct ParamSpec {
    pub(super) short: Option<String>,
    pub(super) long: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) description: Option<String>,
    pub(super) callback: Option<ParamCallback>,
    pub(super) kind: c::doca_argp_type,
    pub(super) mandatory: bool,
    pub(super) cli_only: bool,
    pub(super) multiple: bool,
    pub(super) singular: bool,
    pub(super) inherited: bool,
    pub(super) hidden: bool,
}

/// A command, or the program itself.
#[derive(Clone, Default)]
pub(crate) struct CmdSpec {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) callback: Option<CmdCallback>,
    pub(super) hidden: bool,
    pub(super) params: Vec<ParamSpec>,
    pub(super) cmds: Vec<Self>,
}

/// Flags of every program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum General {
    Help,
    Version,
    LogLevel,
    SdkLogLevel,
    Json,
}

/// Short and long names.
pub(super) const GENERAL: [(Option<&str>, &str, General); 5] = [
    (Some("h"), "help", General::Help),
    (Some("v"), "version", General::Version),
    (Some("l"), "log-level", General::LogLevel),
    (None, "sdk-log-level", General::SdkLogLevel),
    (Some("j"), "json", General::Json),
];

/// Value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(CString),
    Int(i32),
    Bool(bool),
}

impl ParamSpec {
    /// The flag as messages name it.
    pub(super) fn shown(&self) -> String {
        match (&self.long, &self.short) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => "(a flag without a name)".to_owned(),
        }
    }

    /// Checks a flag that is to be registered beside `others`.
    ///
    /// # Errors
    ///
    /// `INITIALIZATION` if something is missing, `INVALID_VALUE` if a name is taken.
    pub(super) fn check(&mut self, others: &[Self]) -> Outcome {
        let complete = (self.short.is_some() || self.long.is_some())
            && self.description.is_some()
            && self.callback.is_some()
            && (c::DOCA_ARGP_TYPE_STRING..=c::DOCA_ARGP_TYPE_JSON_OBJ).contains(&self.kind);
        require(complete, c::DOCA_ERROR_INITIALIZATION)?;
        // A JSON file knows flags by their long names.
        self.cli_only |= self.long.is_none();
        let taken = |short: Option<&str>, long: Option<&str>| {
            short.is_some() && short == self.short.as_deref()
                || long.is_some() && long == self.long.as_deref()
        };
        let reserved = GENERAL.iter().any(|&(short, long, _)| taken(short, Some(long)));
        let repeated = others.iter().any(|other| taken(other.short.as_deref(), other.long.as_deref()));
        require(!reserved && !repeated, c::DOCA_ERROR_INVALID_VALUE)
    }

    /// Converts a word of the command line to a value.
    pub(super) fn parse(&self, word: &str) -> Result<Value, String> {
        match self.kind {
            c::DOCA_ARGP_TYPE_INT => parse_int(word).map(Value::Int).ok_or_else(|| {
                format!("{} takes a number between {} and {}, not '{word}'", self.shown(), i32::MIN, i32::MAX)
            }),
            c::DOCA_ARGP_TYPE_STRING => {
                text(word).map(Value::Text).ok_or_else(|| format!("{}: a NUL in the text", self.shown()))
            }
            _ => Err(format!("{} can only be given in a JSON file", self.shown())),
        }
    }
}

/// A text for C; `None` if it has a NUL in it.
pub(super) fn text(word: &str) -> Option<CString> {
    CString::new(word).ok()
}

/// Decimal, or hexadecimal after 0x.
pub(super) fn parse_int(word: &str) -> Option<i32> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|first: char| first.is_ascii_hexdigit()) => {
            i64::from_str_radix(hex, 16).ok()?
        }
        Some(_) => return None,
        None => digits.parse::<i64>().ok()?,
    };
    i32::try_from(sign * value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (word, value) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("-7", Some(-7)),
            ("+7", Some(7)),
            ("0x1F", Some(31)),
            ("-0x80000000", Some(i32::MIN)),
            ("2147483647", Some(i32::MAX)),
            ("2147483648", None),
            ("-2147483649", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("+-1", None),
            ("--1", None),
            ("0x", None),
            ("0x-1", None),
            ("1 ", None),
            ("1.5", None),
            ("ten", None),
        ] {
            assert_eq!(parse_int(word), value, "{word:?}");
        }
    }
}
