//! Results as tables, Markdown and CSV.

mod export;
mod figures;
mod findings;
mod grid;
mod style;
mod summary;
#[cfg(test)]
mod tests;
mod words;

use std::fmt::Write as _;

pub(crate) use self::export::csv;
pub(crate) use self::export::{Field, fields, kind, number, shape};
pub(crate) use self::figures::{figures, side_by_side};
pub(crate) use self::findings::published_text;
pub(crate) use self::findings::{costs, intervals, knees, published, sources};
pub(crate) use self::grid::{Entry, Grid, Look};
pub(crate) use self::style::Style;
pub(crate) use self::summary::summary;
pub(crate) use self::words::{baseline, cell_line, curve, depth, in_flight, speed, what};
use self::words::{latencies, latency};
use crate::results::notes::several;
use crate::results::{Measured, Results};
use crate::units::{command_line, printable};

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// An aligned table.
    #[default]
    Table,
    /// Markdown.
    Markdown,
    /// Comma-separated values.
    Csv,
    /// JSON. `RESULTS.md` describes the format of results and of comparisons.
    Json,
}

/// Extent of the output.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Shown {
    /// Show all columns and the spread of figures. Tables fit 80 columns unless this is given.
    #[arg(long)]
    pub wide: bool,
    /// Rank models and measurements in one table, in which models are marked. Pages and plots always
    /// separate them.
    #[arg(long)]
    pub rank_models: bool,
}

/// Returns all results as tables, with the summary at the end.
pub(crate) fn tables(results: &Results, style: Style, shown: Shown) -> String {
    let mut text = String::new();
    let machine = &results.machine;
    let virt = if machine.virtual_machine { ", virtual" } else { "" };
    text += &style.wrap(&format!(
        "{} ({} CPUs{virt}), {}, {}, {}; dma-bench {}, {}",
        machine.cpu, machine.cpus, machine.kernel, machine.libc, machine.os, results.tool, results.created
    ));
    if style == Style::Markdown {
        let _ = write!(text, "\n    {}\n", command_line(&results.command));
    }
    if let Some(stopped) = results.stopped() {
        text += &format!("\n{}", style.wrap(&format!("INTERRUPTED: {stopped}")));
    }
    let mut figures = |title: &str, mut cells: Vec<&Measured>| {
        if !cells.is_empty() {
            text += &style.title(title);
            text += &figures::tables(&results.campaign, &mut cells, style, shown.wide, shown.rank_models);
        }
    };
    let all = |models: bool| results.with_figures(models);
    if shown.rank_models {
        figures(
            "Measured, and models (marked), the fastest of each size first",
            all(false).chain(all(true)).collect(),
        );
    } else {
        figures("Measured: medians over the samples", all(false).collect());
        figures("Models: simulated devices, not measured; x memcpy is of this machine", all(true).collect());
    }
    let batches = results.cells.iter().any(|m| m.cell.batch > 1);
    let depth = batches.then(|| "depth: operations in flight by operations for each doorbell".to_owned());
    let models =
        results.engines.iter().filter_map(|e| Some(format!("{}: a model: {}", e.name, e.model.as_ref()?)));
    let bullet = if style == Style::Markdown { "- " } else { "" };
    for (at, note) in depth.into_iter().chain(models).enumerate() {
        // A blank line ends the table above in Markdown.
        let blank = if at == 0 { "\n" } else { "" };
        text += &format!("{blank}{}", style.wrap(&format!("{bullet}{}", style.text(&note))));
    }
    for m in results.cells.iter().filter(|m| !m.series.is_empty()) {
        text += &style.title(&format!("Over time, slowest intervals: {}", m.cell));
        text += &findings::series(m, style);
    }
    if !results.costs.is_empty() {
        text += &style.title("Set-up costs");
        text += &costs(&results.costs).print(style, Look::Bare);
    }
    if !results.knees.is_empty() {
        text += &style.title("Smallest depth with 95 % of the best throughput");
        text += &knees(&results.knees).print(style, Look::Bare);
    }
    if !results.published.is_empty() {
        text += &style.title("Models against published figures");
        text += &published_text(&results.published, style);
    }
    text += &troubles(results, style);
    for note in results.notes() {
        text += &format!("\n{}", style.wrap(&note));
    }
    if !results.verdicts.is_empty() {
        text += &style.title("Verdicts against memcpy, by bytes of each operation");
        text += &findings::verdicts(&results.verdicts, style);
    }
    text += &style.title("Summary");
    for statement in &results.summary {
        if style == Style::Markdown {
            let _ = writeln!(text, "    {statement}");
        } else {
            text += &style.wrap(statement);
        }
    }
    text
}

fn troubles(results: &Results, style: Style) -> String {
    let mut text = String::new();
    let failed = results.troubles();
    if !failed.is_empty() {
        text += &style.title("Failed or incomplete");
        for (why, what) in failed {
            text += &style.wrap(&format!("- {}", printable(&format!("{}: {why}", several(&what)))));
        }
    }
    text
}
