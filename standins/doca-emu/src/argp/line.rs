//! Command line parser. Callbacks run only after the whole line is parsed.

use super::{CmdCallback, CmdSpec, GENERAL, General, ParamSpec, Value};
use crate::c_abi::{Code, c};

/// An action that a flag requests.
#[derive(Clone)]
pub(super) enum Action {
    Set(ParamSpec, Value),
    Command(CmdCallback),
    Version,
    LogLevel(u32),
    SdkLogLevel(u32),
}

#[derive(Default)]
pub(super) struct Line {
    pub(super) actions: Vec<Action>,
    /// The file that `-j` names.
    pub(super) json: Option<String>,
    pub(super) path: Vec<String>,
    /// Set if the line asks for help. All other words are then ignored.
    pub(super) help: bool,
}

#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) code: Code,
    pub(super) message: String,
}

pub(super) fn invalid(message: String) -> Mistake {
    Mistake { code: c::DOCA_ERROR_INVALID_VALUE, message }
}

/// Checks the value of a flag for a log level.
pub(super) fn level(flag: &str, number: Option<i64>, shown: &str) -> Result<u32, Mistake> {
    let levels = if cfg!(workq) { "20, 30, 40, 50, 60" } else { "10, 20, 30, 40, 50, 60, 70" };
    number
        .and_then(|number| u32::try_from(number).ok())
        .filter(|&level| crate::log::is_level(level))
        .ok_or_else(|| invalid(format!("{flag} takes one of {levels}, not '{shown}'")))
}

/// A word that is a flag: the name without dashes, the kind of the name, and the text behind an equals sign.
struct Flag<'a> {
    name: &'a str,
    long: bool,
    value: Option<&'a str>,
}

impl<'a> Flag<'a> {
    fn of(word: &'a str) -> Option<Self> {
        let (rest, long) = match word.strip_prefix("--") {
            Some(rest) => (rest, true),
            None => (word.strip_prefix('-')?, false),
        };
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (rest, None),
        };
        (!name.is_empty()).then_some(Self { name, long, value })
    }

    fn is(&self, short: Option<&str>, long: Option<&str>) -> bool {
        let wanted = if self.long { long } else { short };
        wanted == Some(self.name)
    }

    fn shown(&self) -> String {
        format!("{}{}", if self.long { "--" } else { "-" }, self.name)
    }
}

/// Parses the words of a command line. Runs no callback.
pub(super) fn parse(root: &CmdSpec, words: &[String]) -> Result<Line, Mistake> {
    let mut line = Line::default();
    // The chain of the program and the commands that were read so far.
    let mut chain = vec![root];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let current = chain[chain.len() - 1];
        let Some(flag) = Flag::of(word) else {
            let Some(cmd) = current.cmds.iter().find(|cmd| cmd.name.as_deref() == Some(word)) else {
                let what = if current.cmds.is_empty() { "argument" } else { "command" };
                return Err(Mistake {
                    code: c::DOCA_ERROR_NOT_SUPPORTED,
                    message: format!("unknown {what} '{word}'"),
                });
            };
            line.path.push(word.clone());
            line.actions.extend(cmd.callback.map(Action::Command));
            chain.push(cmd);
            continue;
        };
        let mut value = |flag: &Flag<'_>| {
            flag.value
                .map(str::to_owned)
                .or_else(|| words.next().cloned())
                .ok_or_else(|| invalid(format!("{} needs a value", flag.shown())))
        };
        if let Some(&(_, _, general)) = GENERAL.iter().find(|&&(short, long, _)| flag.is(short, Some(long))) {
            match general {
                General::Help => return Ok(Line { help: true, ..line }),
                General::Version => line.actions.push(Action::Version),
                General::LogLevel | General::SdkLogLevel => {
                    let text = value(&flag)?;
                    let number = super::parse_int(&text).map(i64::from);
                    let level = level(&flag.shown(), number, &text)?;
                    line.actions.push(match general {
                        General::LogLevel => Action::LogLevel(level),
                        _ => Action::SdkLogLevel(level),
                    });
                }
                General::Json => {
                    let path = value(&flag)?;
                    if line.json.replace(path).is_some() {
                        return Err(invalid("--json is given twice".to_owned()));
                    }
                }
            }
            continue;
        }
        let param = find(&chain, &flag).ok_or_else(|| Mistake {
            code: c::DOCA_ERROR_NOT_SUPPORTED,
            message: format!("unknown flag '{}'", flag.shown()),
        })?;
        let value = if param.kind == c::DOCA_ARGP_TYPE_BOOLEAN {
            match flag.value {
                None | Some("true") => Value::Bool(true),
                Some("false") => Value::Bool(false),
                Some(other) => {
                    return Err(invalid(format!("{} must be true or false, not '{other}'", param.shown())));
                }
            }
        } else {
            param.parse(&value(&flag)?).map_err(invalid)?
        };
        line.actions.push(Action::Set(param.clone(), value));
    }
    Ok(line)
}

/// Finds a flag of the last command of `chain`, or a flag that this command inherits.
fn find<'a>(chain: &[&'a CmdSpec], flag: &Flag<'_>) -> Option<&'a ParamSpec> {
    chain.iter().rev().enumerate().find_map(|(above, cmd)| {
        let mut params = cmd.params.iter().filter(|param| above == 0 || param.inherited);
        params.find(|param| flag.is(param.short.as_deref(), param.long.as_deref()))
    })
}

/// Returns the command at the end of a path, and all commands above it, from the program on.
pub(super) fn chain<'a>(root: &'a CmdSpec, path: &[String]) -> Vec<&'a CmdSpec> {
    let mut chain = vec![root];
    for name in path {
        let current: &CmdSpec = chain[chain.len() - 1];
        chain.extend(current.cmds.iter().find(|cmd| cmd.name.as_ref() == Some(name)));
    }
    chain
}

/// Returns the flags that actions set, with the names that messages use.
fn flags(actions: &[Action]) -> Vec<(&ParamSpec, String)> {
    let set = actions.iter().filter_map(|action| match action {
        Action::Set(param, _) => Some((param, param.shown())),
        _ => None,
    });
    set.collect()
}

pub(super) fn check(
    root: &CmdSpec,
    path: &[String],
    given: &[Action],
    twice: &[Action],
) -> Result<(), Mistake> {
    let line = flags(twice);
    let repeated = |(at, (param, shown)): &(usize, &(&ParamSpec, String))| {
        !param.multiple && line[..*at].iter().any(|(_, other)| other == shown)
    };
    if let Some((_, (_, shown))) = line.iter().enumerate().find(repeated) {
        return Err(invalid(format!("{shown} is given twice")));
    }
    let given = flags(given);
    if let Some((_, alone)) = given.iter().find(|(param, _)| param.singular) {
        return match given.iter().find(|(_, other)| other != alone) {
            Some((_, other)) => Err(invalid(format!("{alone} cannot be given together with {other}"))),
            None => Ok(()),
        };
    }
    let chain = chain(root, path);
    let missing = chain.iter().rev().enumerate().find_map(|(above, cmd)| {
        let mut params = cmd.params.iter().filter(|param| param.mandatory && (above == 0 || param.inherited));
        params.find(|param| !given.iter().any(|(_, shown)| *shown == param.shown()))
    });
    if let Some(param) = missing {
        return Err(invalid(format!("the mandatory flag {} is missing", param.shown())));
    }
    let last = chain[chain.len() - 1];
    let shown = last.cmds.iter().filter(|cmd| !cmd.hidden);
    let names: Vec<&str> = shown.filter_map(|cmd| cmd.name.as_deref()).collect();
    if !names.is_empty() {
        return Err(invalid(format!("a command is missing: one of {}", names.join(", "))));
    }
    Ok(())
}
