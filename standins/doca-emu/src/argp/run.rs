//! Runs the parser and calls the program back.
#![expect(unsafe_code, reason = "the program's callbacks")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Write;
use std::ptr;

use super::line::{self, Action, Line, Mistake};
use super::{CmdSpec, ParamCallback, ParamSpec, Value};
use super::{Config, DpdkArgs, Parser, Program, json, lock, with};
use crate::c_abi::{Code, Outcome, c, require};

unsafe extern "C" {
    /// Calls the program's logger, which takes a `va_list`. `variadic.c` defines this function.
    fn doca_emu_argp_call_logger(
        logger: c::doca_argp_logger_cb_t,
        level: u32,
        format: *const c_char,
        ...
    ) -> Code;
}

/// Returns a copy of the program's registrations. A program without a name gets the name from the first word.
fn program(first_word: Option<&str>) -> Outcome<Program> {
    with(|Parser { program, .. }| {
        if program.name.is_none() {
            program.name = first_word.map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
        }
        Ok(program.clone())
    })
}

fn leave() -> ! {
    drop(lock(&super::STATE).parser.take());
    std::process::exit(0)
}

pub(super) fn print_usage() {
    if let Ok(program) = program(None) {
        program.print_usage(&[]);
    }
}

/// Parses the command line and runs the callbacks, for `doca_argp_start`.
pub(super) fn start(words: &[String]) -> Outcome {
    let program = program(words.first().map(String::as_str))?;
    let (own, mut dpdk) = split(&program, words.get(1..).unwrap_or_default());
    let line = match understand(&program, &own, &mut dpdk) {
        Ok(line) => line,
        Err(mistake) => {
            program.say(&mistake.message);
            program.print_usage(&[]);
            return Err(mistake.code);
        }
    };
    if line.help {
        program.print_usage(&line.path);
        leave();
    }
    for action in &line.actions {
        program.run(action)?;
    }
    if let Some(validate) = with(|parser| Ok(parser.program.validation))? {
        // SAFETY: the program registered this function for the program's configuration, which it passed
        // itself.
        succeed(unsafe { validate(program.config.0) })?;
    }
    if program.dpdk.is_some() {
        forward(words.first().map_or("", String::as_str), dpdk)?;
    }
    Ok(())
}

/// Splits the command line into the program's and DPDK's arguments. In a program that uses DPDK, the
/// arguments before `--` are DPDK's. Without `--`, all arguments are DPDK's, unless the first one is `-h`,
/// `-v` or `-j`.
fn split(program: &Program, words: &[String]) -> (Vec<String>, Vec<String>) {
    if program.dpdk.is_none() {
        return (words.to_vec(), Vec::new());
    }
    let asks = ["-h", "--help", "-v", "--version", "-j", "--json"];
    match words.iter().position(|word| word == "--") {
        Some(at) => (words[at + 1..].to_vec(), words[..at].to_vec()),
        None if words.first().is_some_and(|word| asks.contains(&word.as_str())) => {
            (words.to_vec(), Vec::new())
        }
        None => (Vec::new(), words.to_vec()),
    }
}

/// Collects all actions. The actions of the JSON file come first, so that the command line overrides them.
fn understand(program: &Program, words: &[String], dpdk: &mut Vec<String>) -> Result<Line, Mistake> {
    let mut line = line::parse(&program.root, words)?;
    if line.help {
        return Ok(line);
    }
    let mut actions = Vec::new();
    if let Some(path) = &line.json {
        let mut file = json::read(path, &program.root.params)?;
        actions.append(&mut file.actions);
        dpdk.append(&mut file.dpdk);
    }
    let from_line = line.actions.clone();
    actions.append(&mut line.actions);
    // A command line with `-v` does not need the mandatory flags.
    if !from_line.iter().any(|action| matches!(action, Action::Version)) {
        line::check(&program.root, &line.path, &actions, &from_line)?;
    }
    line.actions = actions;
    Ok(line)
}

fn succeed(code: Code) -> Outcome {
    if code == c::DOCA_SUCCESS { Ok(()) } else { Err(code) }
}

impl Program {
    fn print_usage(&self, path: &[String]) {
        let chain = line::chain(&self.root, path);
        let name = self.name.as_deref().unwrap_or_default();
        crate::log::print(usage_text(name, self.dpdk.is_some(), &chain).as_bytes());
    }

    fn say(&self, message: &str) {
        let message = format!("{}: {message}", self.name.as_deref().unwrap_or_default());
        let Ok(text) = CString::new(message.replace('\0', "")) else { return };
        if self.logger.is_some() {
            // SAFETY: the logger is not `None`, and takes a format and its arguments. This format has one
            // argument, a string, which lives during the call.
            unsafe {
                doca_emu_argp_call_logger(
                    self.logger,
                    c::DOCA_LOG_LEVEL_ERROR,
                    c"%s\n".as_ptr(),
                    text.as_ptr(),
                );
            }
        } else {
            crate::log::complain(file!(), line!(), text.to_bytes());
        }
    }

    fn run(&self, action: &Action) -> Outcome {
        match action {
            Action::Set(param, value) => {
                let Some(callback) = param.callback else { return Ok(()) };
                call(callback, value, self.config).inspect_err(|&code| {
                    self.say(&format!(
                        "the value of {} was refused: {}",
                        param.shown(),
                        crate::error::name(code)
                    ));
                })
            }
            // SAFETY: the program registered this function for the program's configuration, which it passed
            // itself.
            Action::Command(callback) => succeed(unsafe { callback(self.config.0) }),
            Action::Version => match self.version {
                // SAFETY: the program's function takes a value and the program's configuration. This flag has
                // no value, so it gets NULL.
                Some(callback) => succeed(unsafe { callback(ptr::null_mut(), self.config.0) }),
                None => {
                    crate::log::print(format!("DOCA SDK Version: {}\n", crate::log::version()).as_bytes());
                    leave();
                }
            },
            Action::LogLevel(level) => {
                lock(&super::STATE).log_level = Some(*level);
                crate::log::set_global(crate::log::Limit::Lower, *level)
            }
            Action::SdkLogLevel(level) => {
                lock(&super::STATE).sdk_log_level = Some(*level);
                crate::log::set_global(crate::log::Limit::Sdk, *level)
            }
        }
    }
}

/// Calls the program's callback with the address of the value. The address is valid only during the call.
fn call(callback: ParamCallback, value: &Value, config: Config) -> Outcome {
    let mut int: i32;
    let mut boolean: bool;
    // The text is writable, because programs may split it in place.
    let mut bytes = Vec::new();
    let address: *mut c_void = match value {
        Value::Text(text) => {
            bytes.extend_from_slice(text.to_bytes_with_nul());
            bytes.as_mut_ptr().cast()
        }
        Value::Int(number) => {
            int = *number;
            (&raw mut int).cast()
        }
        Value::Bool(yes) => {
            boolean = *yes;
            (&raw mut boolean).cast()
        }
    };
    // SAFETY: the program's function takes the address of a value of its flag's type, which is valid during
    // the call, and the program's configuration.
    let code = unsafe { callback(address, config.0) };
    succeed(code)
}

/// Passes DPDK's arguments to the program's callback. The arguments live as long as the parser.
fn forward(first: &str, words: Vec<String>) -> Outcome {
    let all = std::iter::once(first.to_owned()).chain(words);
    let strings: Vec<CString> = all.filter_map(|word| CString::new(word).ok()).collect();
    let (callback, count, array) = with(|parser| {
        let mut args = DpdkArgs { pointers: Vec::new(), strings };
        args.pointers =
            args.strings.iter().map(|text| text.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect();
        let args = parser.dpdk_args.insert(args);
        let count = c_int::try_from(args.strings.len()).map_err(|_| c::DOCA_ERROR_INVALID_VALUE)?;
        Ok((parser.program.dpdk, count, args.pointers.as_mut_ptr()))
    })?;
    let callback = callback.ok_or(c::DOCA_ERROR_BAD_STATE)?;
    // SAFETY: the program's function takes a count and an array of that number of strings, with a NULL after
    // them. The parser owns the array until the program destroys the parser.
    let code = unsafe { callback(count, array) };
    require(code == c::DOCA_SUCCESS, code)
}

const COLUMN: usize = 36;
const LEVELS: &str = if cfg!(workq) {
    "<20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG>"
} else {
    "<10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>"
};

fn flag(
    out: &mut String,
    short: Option<&str>,
    long: Option<&str>,
    arguments: Option<&str>,
    description: &str,
) {
    let mut names = String::from("  ");
    if let Some(short) = short {
        let _ = write!(names, "-{short}");
    }
    if let Some(long) = long {
        let _ = write!(names, "{}--{long}", if short.is_some() { ", " } else { "" });
    }
    if let Some(arguments) = arguments {
        let _ = write!(names, " {arguments}");
    }
    // At least one space separates the names from the description, even if the names are long.
    let _ = writeln!(out, "{names:<width$} {description}", width = COLUMN - 1);
}

fn params<'a>(out: &mut String, title: &str, params: impl Iterator<Item = &'a ParamSpec>) {
    let mut params = params.filter(|param| !param.hidden).peekable();
    if params.peek().is_some() {
        let _ = writeln!(out, "\n{title}:");
    }
    for param in params {
        flag(
            out,
            param.short.as_deref(),
            param.long.as_deref(),
            param.arguments.as_deref(),
            param.description.as_deref().unwrap_or_default(),
        );
    }
}

/// Returns the usage text of a command. `chain` is the path to the command: the program, a command, its
/// subcommand.
pub(super) fn usage_text(program: &str, dpdk: bool, chain: &[&CmdSpec]) -> String {
    let mut out = String::new();
    let _ = write!(out, "Usage: {program}");
    if dpdk {
        out.push_str(" [DPDK Flags] --");
    }
    for cmd in &chain[1..] {
        let _ = write!(out, " {}", cmd.name.as_deref().unwrap_or_default());
    }
    out.push_str(" [DOCA Flags]");
    let current = chain[chain.len() - 1];
    let inherited =
        || chain[..chain.len() - 1].iter().flat_map(|cmd| &cmd.params).filter(|param| param.inherited);
    if current.params.iter().chain(inherited()).any(|param| !param.hidden) {
        out.push_str(" [Program Flags]");
    }
    let cmds: Vec<_> = current.cmds.iter().filter(|cmd| !cmd.hidden).collect();
    if !cmds.is_empty() {
        out.push_str(" <Command>");
    }
    out.push_str("\n\nDOCA Flags:\n");
    flag(&mut out, Some("h"), Some("help"), None, "Print a help synopsis");
    flag(&mut out, Some("v"), Some("version"), None, "Print program version information");
    let level = |whose| format!("Set the {whose}(numeric) log level for the program {LEVELS}");
    flag(&mut out, Some("l"), Some("log-level"), None, &level(""));
    flag(&mut out, None, Some("sdk-log-level"), None, &level("SDK "));
    flag(
        &mut out,
        Some("j"),
        Some("json"),
        Some("<path>"),
        "Parse command line flags from an input json file",
    );
    params(&mut out, "Program Flags", current.params.iter().chain(inherited()));
    if !cmds.is_empty() {
        out.push_str("\nCommands:\n");
        for cmd in cmds {
            let name = cmd.name.as_deref().unwrap_or_default();
            let description = cmd.description.as_deref().unwrap_or_default();
            let _ = writeln!(out, "  {name:<width$} {description}", width = COLUMN - 3);
        }
    }
    out.push('\n');
    out
}
