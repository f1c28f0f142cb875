//! The manual pages: the pages that clap generates from the command line, with a separate section
//! for examples.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::arguments::Arguments;
use crate::files::{refused, write_file};

/// Headings that mark the beginning of the text after the options as examples.
const EXAMPLES: [&str; 2] = ["Examples:\n", "Example:\n"];

/// Returns the program as the manual shows it, without the subcommand `help`.
fn program() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

/// Returns the manual page of the program.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    render(program())
}

/// Writes a page for the program and for each subcommand into `folder`.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| refused(folder, &e))?;
    let mut program = program();
    program.build();
    let subcommands = program.get_subcommands().filter(|c| !c.is_hide_set());
    for command in std::iter::once(&program).chain(subcommands) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let page = render(command.clone()).map_err(|e| e.to_string())?;
        write_file(&folder.join(format!("{name}.1")), &page)?;
    }
    Ok(())
}

fn render(command: Command) -> io::Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = command.get_subcommands().any(|c| !c.is_hide_set());
    let man = Man::new(command.after_help("").version(env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    let (examples, notes) = split(&after);
    let mut rest = Roff::new();
    for (title, text) in [("EXAMPLES", examples), ("NOTES", notes)] {
        if !text.is_empty() {
            rest.control("SH", [title]).control("nf", []);
            text.lines().for_each(|line| {
                rest.text([roman(line.trim_start())]);
            });
            rest.control("fi", []);
        }
    }
    rest.to_writer(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// Splits the text after the options into the examples, which end at an empty line, and the rest.
fn split(after: &str) -> (&str, &str) {
    match EXAMPLES.iter().find_map(|head| after.strip_prefix(head)) {
        Some(text) => text.split_once("\n\n").unwrap_or((text, "")),
        None => ("", after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stand_under_their_own_heading() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let pages: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(pages.len() > 8);
        for path in pages {
            let page = std::fs::read_to_string(&path).unwrap();
            assert!(page.contains(".SH EXAMPLES\n") && !page.contains(".SH EXTRA"), "{}", path.display());
            assert!(page.contains("dma\\-bench "), "{page}");
        }
        let run = std::fs::read_to_string(folder.path().join("dma-bench-run.1")).unwrap();
        let (_, examples) = run.split_once(".SH EXAMPLES\n").unwrap();
        assert!(examples.contains("quick") && examples.contains(".SH NOTES"), "{examples}");
    }
}
