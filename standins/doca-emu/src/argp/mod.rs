//! Command lines: registered flags and commands, the parser, and the program's callbacks.
//!
//! A process has one parser, from `doca_argp_init` to `doca_argp_destroy`. The parser is not locked while
//! callbacks run, because callbacks may destroy it.

mod calls;
mod json;
mod line;
mod run;

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use dma_process::lock;

use crate::c_abi::{Code, Handle, Mark, Object, Outcome, c, object, require};

/// A flag (`struct doca_argp_param`) or a command (`struct doca_argp_cmd`), depending on `T`.
pub(crate) struct Described<T> {
    mark: Mark,
    /// Set when the parser owns this object. The parser then destroys it.
    owned: AtomicBool,
    spec: Mutex<T>,
}

pub(crate) type Param = Described<ParamSpec>;
pub(crate) type Cmd = Described<CmdSpec>;

object!(Param, 0xa49_0001);

object!(Cmd, 0xa49_0002);

impl<T: Default> Described<T>
where
    Self: Object,
{
    fn new() -> Self {
        Self { mark: Mark::of::<Self>(), owned: AtomicBool::new(false), spec: Mutex::default() }
    }
}

/// A pointer that is only passed back to the program.
#[derive(Clone, Copy)]
struct Config(*mut c_void);

/// The arguments for DPDK, as C strings with an array of pointers to them.
struct DpdkArgs {
    strings: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

#[derive(Clone)]
struct Program {
    name: Option<String>,
    config: Config,
    root: CmdSpec,
    version: Option<ParamCallback>,
    validation: Option<CmdCallback>,
    logger: c::doca_argp_logger_cb_t,
    dpdk: Option<unsafe extern "C" fn(c_int, *mut *mut c_char) -> Code>,
}

struct Parser {
    program: Program,
    /// Registered flags and commands, destroyed with the parser.
    params: Vec<Handle<Param>>,
    cmds: Vec<Handle<Cmd>>,
    dpdk_args: Option<DpdkArgs>,
}

/// The parser, and the log levels that the command line sets. The levels remain valid when the parser is
/// destroyed.
struct ArgpState {
    parser: Option<Parser>,
    log_level: Option<u32>,
    sdk_log_level: Option<u32>,
}

static STATE: Mutex<ArgpState> = Mutex::new(ArgpState { parser: None, log_level: None, sdk_log_level: None });

/// Calls the closure with the parser. Returns `BAD_STATE` if there is no parser.
fn with<T>(run: impl FnOnce(&mut Parser) -> Outcome<T>) -> Outcome<T> {
    lock(&STATE).parser.as_mut().map_or(Err(c::DOCA_ERROR_BAD_STATE), run)
}

impl Drop for Parser {
    fn drop(&mut self) {
        for param in self.params.drain(..) {
            drop(param.take_arc());
        }
        for cmd in self.cmds.drain(..) {
            drop(cmd.take_arc());
        }
    }
}

/// The program's callback for a flag. Its arguments are the flag's value and the program's configuration.
pub(super) type ParamCallback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Code;
/// The program's callback for a command. Its argument is the program's configuration.
pub(super) type CmdCallback = unsafe extern "C" fn(*mut c_void) -> Code;

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

pub(super) const GENERAL: [(Option<&str>, &str, General); 5] = [
    (Some("h"), "help", General::Help),
    (Some("v"), "version", General::Version),
    (Some("l"), "log-level", General::LogLevel),
    (None, "sdk-log-level", General::SdkLogLevel),
    (Some("j"), "json", General::Json),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(CString),
    Int(i32),
    Bool(bool),
}

impl ParamSpec {
    /// Returns the flag's name for messages, with its dashes.
    pub(super) fn shown(&self) -> String {
        match (&self.long, &self.short) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => "(a flag without a name)".to_owned(),
        }
    }

    /// Checks this flag before it is registered in addition to `others`.
    /// Errors: `INITIALIZATION` if the flag's name, description, callback or type is missing, `INVALID_VALUE`
    /// if another flag has one of the names.
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

/// Returns a text for C, or `None` if it contains a NUL.
pub(super) fn text(word: &str) -> Option<CString> {
    CString::new(word).ok()
}

/// Parses a decimal number, or a hexadecimal number that begins with 0x.
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
