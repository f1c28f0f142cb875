//! The program: its subcommands and their exit codes.

mod arguments;
#[doc(hidden)]
pub mod doctor;
#[doc(hidden)]
pub mod list;
mod manual;
mod printed;
mod progress;
mod replay;
mod run_arguments;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use apps_shared::hold;
use clap::{CommandFactory, Parser};
use dma::layers::record::Trace;

use self::arguments::{Arguments, Command, CompareArguments, ReplayArguments};
use self::printed::Printed;
use self::progress::Progress;
use self::run_arguments::RunArguments;
use crate::files::{self, Named, say, write_file};
use crate::output::{self, Format, Shown, Style};
use crate::plan::Refused;
use crate::results::{self, Results, Status, published, saved};
use crate::run::placement;
use crate::{compare, interrupt, peer, report, run};

/// Exit code: an engine, a cell or an output failed.
const FAILED: u8 = 1;
/// Exit code: the command line, or a file that it names to be read, is invalid.
const USAGE: u8 = 2;
/// Exit code: a byte or a result was wrong.
const WRONG: u8 = 3;
/// Exit code: `compare` found a slowdown, or cannot rule one out.
const SLOWER: u8 = 4;
/// Exit code: the user stopped the run.
const INTERRUPTED: u8 = 130;

/// The reason why the program ends early: its exit code and the message.
type Failure = (u8, String);

fn failed(error: impl ToString) -> Failure {
    (FAILED, error.to_string())
}

fn usage(error: impl ToString) -> Failure {
    (USAGE, error.to_string())
}

fn refused(refused: Refused) -> Failure {
    match refused {
        Refused::Invalid(reason) => (USAGE, reason),
        Refused::Unusable(reason) => (FAILED, reason),
    }
}

/// Runs the program with this process's arguments. To build a `dma-bench` with more backends, a program
/// registers them by [`dma::register`] and calls this function.
pub fn main() -> ExitCode {
    ExitCode::from(main_with(std::env::args_os()))
}

/// Runs the program with `arguments`, the first of which is the program's name. Returns the exit code.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let done = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => command(parsed.command),
        Err(text) => print_clap(&text),
    };
    done.unwrap_or_else(|(code, message)| {
        say(format_args!("dma-bench: {message}"));
        code
    })
}

/// Prints what clap returns instead of arguments: help, the version, or an error.
fn print_clap(text: &clap::Error) -> Result<u8, Failure> {
    let printed = text.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(e) if !text.use_stderr() => Err((FAILED, format!("standard output: {e}"))),
        _ => Ok(u8::try_from(text.exit_code()).unwrap_or(USAGE)),
    }
}

fn command(command: Command) -> Result<u8, Failure> {
    match command {
        Command::List { options: true, .. } => print(&list::options(&dma::backends())),
        Command::List { printed, .. } => {
            let found = dma::discover();
            show(&printed, |format| list::shown(&found, format), || list::json(&found))
        }
        Command::Doctor { backends, printed } => {
            let report = doctor::examine(&backends).map_err(usage)?;
            show(&printed, |format| report.shown(format), || report.json())?;
            Ok(if report.usable() { 0 } else { FAILED })
        }
        Command::Run(arguments) => measure(&arguments),
        Command::Report { results, output, plots } => {
            let (page, plots) = (output.as_deref(), plots.as_deref());
            let inputs: Vec<_> = results.iter().map(|path| Named { option: "the results", path }).collect();
            if plots.is_some() && results.len() > 1 {
                return Err((USAGE, "--plots is for one results file: name one, or leave it out".to_owned()));
            }
            let named_results = load_named(&results)?;
            if page.is_none() && plots.is_none() {
                return Err((USAGE, "nothing to write: give --output FILE or --plots FOLDER".to_owned()));
            }
            let named = page.map(|path| Named { option: "--output", path });
            let folder = plots.map(|path| Named { option: "--plots", path });
            files::check(&inputs, named.as_slice(), folder).map_err(usage)?;
            let written = match named_results.as_slice() {
                [(_, only)] => write_report(only, page, plots),
                several => write_merged(several, page),
            };
            match written.as_slice() {
                [] => Ok(0),
                all => Err(failed(all.join("\ndma-bench: "))),
            }
        }
        Command::Show { results, printed, shown } => {
            let results = load(&results)?;
            show(&printed, |format| of_results(&results, format, shown), || results.to_json())
        }
        Command::Compare(arguments) => compared(&arguments),
        Command::Replay(arguments) => replayed(&arguments),
        Command::Profiles { names, printed } => profiles(&names, &printed),
        Command::Schema => print(&results::schema()),
        Command::Serve(arguments) => peer::serve::serve(&arguments).map(|()| 0).map_err(refused),
        Command::Peer { engine, node } => peer::serve_child(&engine, node).map(|()| 0).map_err(failed),
        Command::Campaign { preset } => print(preset.toml()),
        Command::Completions { shell } => print(&completions(shell)),
        Command::Man { output: Some(folder) } => manual::write(&folder).map(|()| 0).map_err(failed),
        Command::Man { output: None } => print(&String::from_utf8_lossy(&manual::page().map_err(failed)?)),
    }
}

/// Prints in the requested format, and writes JSON to a file if one was named. The file is written first,
/// because the reader of standard output may have closed the pipe.
fn show(
    printed: &Printed,
    text: impl FnOnce(Format) -> String,
    json: impl Fn() -> String,
) -> Result<u8, Failure> {
    if let Some(path) = &printed.json {
        write_file(path, json().as_bytes()).map_err(failed)?;
    }
    print(&match printed.format {
        Format::Json => json(),
        format => text(format),
    })
}

fn compared(arguments: &CompareArguments) -> Result<u8, Failure> {
    let (before, after) = (load(&arguments.before)?, load(&arguments.after)?);
    let comparison = compare::compare(&before, &after, arguments.metric, arguments.noise);
    let (all, limit) = (arguments.all, arguments.fail_if_slower);
    if let Some(path) = &arguments.report {
        write_file(path, report::compared(&comparison, limit).as_bytes()).map_err(failed)?;
    }
    let text = |format| match format {
        Format::Markdown => comparison.markdown(all, limit),
        Format::Csv => comparison.csv(),
        _ => comparison.text(all, Style::of_stdout()),
    };
    show(&arguments.printed, text, || comparison.json(limit))?;
    if arguments.printed.format == Format::Csv {
        comparison.lines(all).into_iter().for_each(say);
    }
    let failures = limit.map_or_else(Vec::new, |limit| comparison.failures(limit));
    for failure in &failures {
        say(format_args!("dma-bench: {failure}"));
    }
    if failures.is_empty() && comparison.rows.is_empty() {
        return Err(failed("the two results have no cell in common with figures in both"));
    }
    Ok(if failures.is_empty() { 0 } else { SLOWER })
}

fn replayed(arguments: &ReplayArguments) -> Result<u8, Failure> {
    let options = arguments.options().map_err(usage)?;
    let begin = |engine: &str| {
        if !arguments.quiet {
            say(format_args!("dma-bench: replays on {engine}"));
        }
    };
    let trace = Trace::load(&arguments.trace).map_err(usage)?;
    let report = replay::run(&trace, &arguments.engines, &options, begin);
    show(&arguments.printed, |format| report.shown(format), || report.json())?;
    let errors = report.errors();
    errors.iter().for_each(|error| say(format_args!("dma-bench: {error}")));
    Ok(match errors.is_empty() {
        _ if report.wrong => WRONG,
        _ if report.refused => USAGE,
        false => FAILED,
        true => 0,
    })
}

/// Returns the completion script for a shell.
fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "dma-bench", &mut script);
    // For bash, clap writes two names for a subcommand if the program's name has a hyphen (clap issue 6421).
    String::from_utf8_lossy(&script).replace("dma__subcmd__bench", "dma__bench")
}

/// Writes to standard output. Returns the exit code of success. If the reader has closed the pipe, that is
/// not a failure.
fn print(text: &str) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            // Unlike an output file, which appears only when it is complete, standard output is incomplete
            // after this error.
            let remedy = if e.kind() == std::io::ErrorKind::StorageFull {
                "; the output is incomplete; free some space"
            } else {
                "; write to a file"
            };
            Err(failed(format!("standard output: {e}{remedy}")))
        }
        _ => Ok(0),
    }
}

fn load(path: &Path) -> Result<Results, Failure> {
    saved::find(path).and_then(|path| Results::load(&path)).map_err(usage)
}

fn of_results(results: &Results, format: Format, shown: Shown) -> String {
    match format {
        Format::Table | Format::Markdown => output::tables(results, Style::of(format), shown),
        Format::Csv => output::csv(results),
        Format::Json => results.to_json(),
    }
}

fn profiles(names: &[String], printed: &Printed) -> Result<u8, Failure> {
    if let Some(unknown) = names.iter().find(|n| !published::PUBLISHED.contains(&n.as_str())) {
        let there = published::PUBLISHED.join(", ");
        return Err((
            USAGE,
            format!("no figures were published for `{unknown}`; profiles with published figures: {there}"),
        ));
    }
    let all = published::PUBLISHED.into_iter().filter(|k| names.is_empty() || names.iter().any(|n| n == k));
    let rows: Vec<_> = all.flat_map(published::of).collect();
    // Serialising cannot fail: all fields are numbers and texts.
    let text = |format| match format {
        Format::Csv => {
            let mut writer = csv::Writer::from_writer(Vec::new());
            rows.iter().for_each(|row| drop(writer.serialize(row)));
            String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
        }
        _ => output::published_text(&rows, Style::of(format)),
    };
    show(printed, text, || serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n")?;
    Ok(if rows.iter().all(|r| r.holds) { 0 } else { FAILED })
}

fn measure(arguments: &RunArguments) -> Result<u8, Failure> {
    let campaign = arguments.plan().map_err(usage)?;
    // Outputs are checked first, because the run takes minutes.
    check_outputs(arguments).map_err(usage)?;
    if arguments.realtime {
        placement::realtime().map_err(|e| {
            (USAGE, format!("--realtime: {e}; it needs root, CAP_SYS_NICE, or `ulimit -r 10`"))
        })?;
    }
    interrupt::install("stopping; the figures so far are kept; Ctrl-C again ends at once and keeps nothing");
    hold::reached("begun", interrupt::stopped);
    let mut progress = Progress::new(arguments.quiet);
    // The first argument, the path of this program, is left out, because it differs on other machines.
    let command = std::iter::once("dma-bench".to_owned())
        .chain(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
        .collect();
    let results = run::run(&campaign, command, &mut progress).map_err(refused)?;
    if results.interrupted && results.cells.iter().all(|m| m.ops_per_second.is_none()) {
        // Existing files are not overwritten, because they may contain earlier results.
        say("dma-bench: interrupted before anything was measured; nothing was written");
        return Ok(INTERRUPTED);
    }
    // Each file is written even if another one fails. Files are written before standard output, because its
    // reader may block.
    let mut failures = write_files(&results, arguments);
    let shown = print(&of_results(&results, arguments.printed.format, arguments.shown));
    failures.extend(shown.err().map(|(_, message)| message));
    for message in &failures {
        say(format_args!("dma-bench: {message}"));
    }
    Ok(verdict(&results, failures.is_empty()))
}

/// Checks that all outputs of a run can be written.
fn check_outputs(arguments: &RunArguments) -> Result<(), String> {
    fn named<'a>(option: &'static str, path: &'a Option<PathBuf>) -> Option<Named<'a>> {
        path.as_deref().map(|path| Named { option, path })
    }
    let campaign = named("--campaign", &arguments.campaign);
    if let Some(folder) = arguments.save.as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(folder).map_err(|e| files::refused(folder, &e))?;
    }
    let outputs: Vec<Named<'_>> = [
        named("--save", &arguments.save),
        named("--json", &arguments.printed.json),
        named("--csv", &arguments.csv),
        named("--markdown", &arguments.markdown),
        named("--report", &arguments.report),
    ]
    .into_iter()
    .flatten()
    .collect();
    files::check(campaign.as_slice(), &outputs, named("--plots", &arguments.plots))
}

/// Writes the files that were requested. Returns the errors.
fn write_files(results: &Results, arguments: &RunArguments) -> Vec<String> {
    let mut failures = Vec::new();
    for (path, format) in [
        (&arguments.save, Format::Json),
        (&arguments.printed.json, Format::Json),
        (&arguments.csv, Format::Csv),
        (&arguments.markdown, Format::Markdown),
    ] {
        let write = |path| write_file(path, of_results(results, format, arguments.shown).as_bytes());
        failures.extend(path.as_deref().and_then(|path| write(path).err()));
    }
    failures.extend(write_report(results, arguments.report.as_deref(), arguments.plots.as_deref()));
    failures
}

/// Loads the results of each machine of a page. Its name is that of its results file, or the path if several
/// files have this name.
fn load_named(paths: &[PathBuf]) -> Result<Vec<(String, Results)>, Failure> {
    let stem = |path: &Path| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let mut loaded = Vec::new();
    let mut files = BTreeSet::new();
    for path in paths {
        let file = saved::find(path).map_err(usage)?;
        let results = Results::load(&file).map_err(usage)?;
        // A file that is no longer there has just been read, and is compared by its path.
        if !files.insert(file.canonicalize().unwrap_or(file)) {
            return Err((USAGE, format!("{} is given twice; leave it out once", path.display())));
        }
        let is_unique = paths.iter().filter(|other| stem(other) == stem(path)).count() == 1;
        let name = stem(path).filter(|_| is_unique).unwrap_or_else(|| path.display().to_string());
        loaded.push((name, results));
    }
    Ok(loaded)
}

/// Writes the page for several machines. Returns the errors.
fn write_merged(machines: &[(String, Results)], page: Option<&Path>) -> Vec<String> {
    let write = |path| write_file(path, report::merged(machines)?.as_bytes());
    page.and_then(|path| write(path).err()).into_iter().collect()
}

/// Writes the page and the plots. Returns the errors.
fn write_report(results: &Results, page: Option<&Path>, plots: Option<&Path>) -> Vec<String> {
    let write_page = |path| -> Result<(), String> { write_file(path, report::page(results)?.as_bytes()) };
    let page = page.and_then(|path| write_page(path).err());
    let plots = plots.and_then(|folder| report::files(results, folder).err());
    page.into_iter().chain(plots).collect()
}

/// Returns the exit code of a run. If it is not 0, prints the reason on standard error.
fn verdict(results: &Results, written: bool) -> u8 {
    let of = |status: Status| results.cells.iter().filter(move |m| m.status == status);
    let wrong = of(Status::Wrong).count();
    if wrong > 0 {
        for m in of(Status::Wrong) {
            say(format_args!("dma-bench: {}: {}", m.cell, m.message.as_deref().unwrap_or_default()));
        }
        say(format_args!(
            "dma-bench: VERIFICATION FAILED in {wrong} cells: wrong bytes or results; do not trust this engine"
        ));
        return WRONG;
    }
    if results.interrupted {
        let (done, begun) = (of(Status::Ok).count(), of(Status::Interrupted).count());
        let not_begun = results.not_begun().map(|n| format!(", {n} were not begun")).unwrap_or_default();
        say(format_args!(
            "dma-bench: interrupted; {done} cells are complete, {begun} have fewer samples{not_begun}"
        ));
        return INTERRUPTED;
    }
    let idle: Vec<_> = idle(results).collect();
    for (engine, why) in results.engines.iter().filter_map(|e| Some((&e.name, e.error.as_ref()?))) {
        say(format_args!("dma-bench: {engine}: {why}"));
    }
    for (engine, why) in &idle {
        say(format_args!("dma-bench: {engine}: not measured: {why}"));
    }
    let failed = of(Status::Failed).count();
    let missing = results.engines.iter().filter(|e| e.error.is_some()).count();
    if failed > 0 || missing > 0 {
        say(format_args!(
            "dma-bench: cells that failed: {failed}; engines that could not be used: {missing}"
        ));
        return FAILED;
    }
    if written && idle.is_empty() { 0 } else { FAILED }
}

/// Returns the engines that support no cell of the run, with the reasons.
fn idle(results: &Results) -> impl Iterator<Item = (&str, &str)> {
    results.engines.iter().filter_map(|engine| {
        let mut cells = results.cells.iter().filter(|m| m.cell.engine == engine.name).peekable();
        let why = cells.peek()?.message.as_deref().unwrap_or("the engine does not support it");
        cells.all(|m| m.status == Status::Unsupported).then_some((engine.name.as_str(), why))
    })
}
