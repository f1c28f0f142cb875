//! The text of `-h`, in the layout of the SDK's programs.

use std::fmt::Write;

use super::spec::{CmdSpec, ParamSpec};

/// Column of descriptions.
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
    // At least one space, however long the names.
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

/// The usage of the command at the end of a chain of commands, which begins with the program.
pub(super) fn text(program: &str, dpdk: bool, chain: &[&CmdSpec]) -> String {
    let mut out = String::new();
    let _ = write!(out, "Usage: {program}");
    if dpdk {
        out.push_str(" [DPDK Flags] --");
    }
    for cmd in &chain[1..] {
        let _ = write!(out, " {}", cmd.name.as_deref().unwrap_or_default());
    }
    out.push_str(" [DOCA Flags]");
    let here = chain[chain.len() - 1];
    let inherited =
        || chain[..chain.len() - 1].iter().flat_map(|cmd| &cmd.params).filter(|param| param.inherited);
    if here.params.iter().chain(inherited()).any(|param| !param.hidden) {
        out.push_str(" [Program Flags]");
    }
    let cmds: Vec<_> = here.cmds.iter().filter(|cmd| !cmd.hidden).collect();
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
    params(&mut out, "Program Flags", here.params.iter().chain(inherited()));
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
