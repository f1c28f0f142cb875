//! Results as tables, Markdown and CSV.

mod export;
mod figures;
mod findings;
mod style;
mod summary;
#[cfg(test)]
mod tests;
mod words;

use std::fmt::Write as _;

pub use self::export::csv;
pub(crate) use self::export::{SHAPE, kind, shape};
pub use self::findings::published;
use self::findings::{crossovers, knees};
pub use self::style::Style;
pub(crate) use self::style::{printable, right};
use self::summary::summary;
pub(crate) use self::words::latencies;
pub use self::words::{
    against, baseline, cell_line, crossover_at, crossover_depth, curve, depth, speed, what,
};
use crate::derive::missed;
use crate::results::{Measured, Results};
use crate::units::command_line;

/// Everything, as tables.
#[must_use]
pub fn tables(results: &Results, style: Style, rank_models: bool) -> String {
    let mut text = String::new();
    let machine = &results.machine;
    let virt = if machine.virtual_machine { ", virtual" } else { "" };
    let _ = writeln!(
        text,
        "{} ({} CPUs{virt}), {}, {}, {}; dma-bench {}, {}",
        machine.cpu, machine.cpus, machine.kernel, machine.libc, machine.os, results.tool, results.created
    );
    if style == Style::Markdown {
        let _ = write!(text, "\n    {}\n", command_line(&results.command));
    }
    if let Some(stopped) = results.stopped() {
        let _ = writeln!(text, "\nINTERRUPTED: {stopped}");
    }
    let all = |models: bool| -> Vec<&Measured> { results.with_figures(models).collect() };
    if rank_models {
        let mut cells = all(false);
        cells.extend(all(true));
        text += &style.title("Measured, and models (marked): of each size the fastest first; figures of models are a simulation's");
        text += &figures::table(&results.campaign, &mut cells, style, true);
    } else {
        let mut cells = all(false);
        if !cells.is_empty() {
            text += &style.title("Measured: median (least to greatest)");
            text += &figures::table(&results.campaign, &mut cells, style, false);
        }
        let mut cells = all(true);
        if !cells.is_empty() {
            text += &style.title("Models: simulated devices, nothing here was measured; the ratio is to memcpy on this machine");
            text += &figures::table(&results.campaign, &mut cells, style, false);
        }
    }
    for engine in results.engines.iter().filter(|e| e.model.is_some()) {
        let model = engine.model.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{}", printable(&format!("{}: a model: {model}", engine.name)));
    }
    if !results.crossovers.is_empty() {
        text += &style.title("Faster than memcpy from");
        text += &crossovers(&results.crossovers, style);
    }
    if !results.knees.is_empty() {
        text += &style.title("Smallest depth with 95 % of the best throughput");
        text += &knees(results, style);
    }
    if !results.published.is_empty() {
        text += &style.title("Models against published figures");
        text += &published(&results.published, style);
    }
    text += &troubles(results, style);
    // At a given rate throughput says nothing.
    if results.campaign.rate.is_none() {
        text += &summary(results, style, rank_models);
    }
    let rate = results.at_rate().into_iter().chain(missed(results));
    for note in rate.chain(results.cached()).chain(results.limited()).chain(results.busy()) {
        let _ = writeln!(text, "\n{note}");
    }
    text
}

fn troubles(results: &Results, style: Style) -> String {
    let mut text = String::new();
    let failed: Vec<String> = results
        .engines
        .iter()
        .filter_map(|e| Some(format!("{}: {}", e.name, e.error.as_ref()?)))
        .chain(
            results.troubled().map(|m| format!("{}: {}", m.cell, m.message.as_deref().unwrap_or_default())),
        )
        .collect();
    if !failed.is_empty() {
        text += &style.title("Not measured, or not to the end");
        for line in failed {
            let _ = writeln!(text, "- {}", printable(&line));
        }
    }
    text
}
