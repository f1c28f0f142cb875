//! Results as tables, Markdown and CSV.

mod figures;

use std::fmt::Write as _;

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::derive::{missed, part_of_rate};
use crate::plan::{Campaign, Cell, Direction, Footprint, Op};
use crate::results::{Crossover, Latency, Measured, Published, Results};
use crate::stats::Figures;
use crate::units::{bytes, command_line, digits, gigabytes, nanos, per_second};

/// How tables are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With lines, as wide as they need be.
    Plain,
    /// The same, for a terminal with so many columns.
    Terminal(u16),
    /// For a Markdown file.
    Markdown,
}

impl Style {
    /// For standard output, whatever that is.
    #[must_use]
    pub fn of_stdout() -> Self {
        Table::new().width().map_or(Self::Plain, Self::Terminal)
    }

    /// Texts that are too long for a terminal are broken.
    pub(crate) fn table(self, header: &[&str]) -> Table {
        let mut table = self.rigid_table(header);
        if let Self::Terminal(width) = self {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table
    }

    /// Each row is a line, however long.
    fn rigid_table(self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(match self {
            Self::Plain | Self::Terminal(_) => UTF8_FULL_CONDENSED,
            Self::Markdown => ASCII_MARKDOWN,
        });
        table.set_content_arrangement(ContentArrangement::Disabled).set_header(header);
        table
    }

    /// A text within a table: in Markdown a bar would end the cell, and what looks like HTML would be taken for that.
    pub(crate) fn text(self, text: &str) -> String {
        let text = printable(text);
        if self == Self::Markdown { text.replace('|', "\\|").replace('<', "\\<") } else { text }
    }

    fn title(self, text: &str) -> String {
        match self {
            Self::Plain | Self::Terminal(_) => format!("\n{text}\n"),
            Self::Markdown => format!("\n### {text}\n\n"),
        }
    }
}

/// Text that a terminal or a page shows as it is: no control characters, and none that XML does not allow.
pub(crate) fn printable(text: &str) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if odd(c) { ' ' } else { c }).collect()
}

/// A cell in one line.
#[must_use]
pub fn cell_line(m: &Measured) -> String {
    let model = if m.model { " [model]" } else { "" };
    let Some(speed) = &m.bytes_per_second else {
        return printable(&format!(
            "{}{model}: {}",
            m.cell,
            m.message.as_deref().unwrap_or("nothing measured")
        ));
    };
    let mut line = format!("{}{model}: {} GB/s", m.cell, gigabytes(speed.median));
    if let (Some(ratio), false) = (&m.ratio, m.cell.is_baseline()) {
        let _ = write!(line, ", {} x memcpy", digits(ratio.median));
    }
    if m.latency.is_some() {
        let [p50, _, p99, ..] = latencies(m);
        let _ = write!(line, ", p50 {p50}, p99 {p99}");
    }
    if let Some(message) = &m.message {
        let _ = write!(line, "; {message}");
    }
    printable(&line)
}

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
    let all = |models: bool| -> Vec<&Measured> {
        results.cells.iter().filter(|m| m.model == models && m.ops_per_second.is_some()).collect()
    };
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

/// The measured copies by size, and `models`' if they are asked for: GB/s, and times memcpy. What most want to know, on one screen.
fn summary(results: &Results, style: Style, models: bool) -> String {
    let cells: Vec<&Measured> = results
        .with_figures(false)
        .chain(results.with_figures(true).filter(|_| models))
        .filter(|m| m.cell.op == Op::Copy && m.cell.direction == Direction::Local)
        .collect();
    let mut footprints: Vec<_> = cells.iter().map(|m| m.cell.footprint).collect();
    footprints.sort_unstable();
    footprints.dedup();
    let mut text = String::new();
    for footprint in footprints {
        let cells: Vec<_> = cells.iter().copied().filter(|m| m.cell.footprint == footprint).collect();
        let mut curves: Vec<String> = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        for m in cells.iter().filter(|m| !m.cell.is_baseline()) {
            curves.push(marked(m));
            sizes.push(m.cell.size);
        }
        sizes.sort_unstable();
        sizes.dedup();
        let mut seen = Vec::new();
        curves.retain(|c| {
            !seen.contains(c) && {
                seen.push(c.clone());
                true
            }
        });
        // More columns than a screen has, or a single row, are no summary.
        if sizes.len() < 2 || curves.len() > 6 {
            continue;
        }
        let mut buffers: Vec<u32> =
            cells.iter().filter(|m| m.cell.is_baseline()).map(|m| m.cell.depth).collect();
        buffers.sort_unstable();
        buffers.dedup();
        let mut header = vec!["size".to_owned()];
        header.extend(buffers.iter().map(|n| baseline(*n, footprint)));
        header.extend(curves.iter().map(|c| style.text(c)));
        let mut table = style.table(&header.iter().map(String::as_str).collect::<Vec<_>>());
        for size in sizes {
            let of_size = || cells.iter().filter(|m| m.cell.size == size);
            let gb =
                |m: &Measured| m.bytes_per_second.as_ref().map_or("-".to_owned(), |f| gigabytes(f.median));
            let mut row = vec![bytes(size)];
            row.extend(buffers.iter().map(|n| {
                let of_it = of_size().find(|m| m.cell.is_baseline() && m.cell.depth == *n);
                of_it.map_or("-".to_owned(), |m| gb(m))
            }));
            row.extend(curves.iter().map(|c| {
                of_size().find(|m| !m.cell.is_baseline() && marked(m) == *c).map_or("-".to_owned(), |m| {
                    let ratio = m.ratio.as_ref().map_or("-".to_owned(), |r| digits(r.median));
                    format!("{}, {ratio}x", gb(m))
                })
            }));
            table.add_row(row);
        }
        right(&mut table, &(0..header.len()).collect::<Vec<_>>());
        text += &style.title(&format!("In short: copies, {footprint} memory, GB/s and times memcpy"));
        let _ = writeln!(text, "{table}");
    }
    text
}

/// The latencies of a cell, as tables have them: p50, p90, p99, p99.9 and the longest.
pub(crate) fn latencies(m: &Measured) -> [String; 5] {
    let known = |l: &Latency| {
        [Some(l.p50), l.known(0.9, l.p90), l.known(0.99, l.p99), l.known(0.999, l.p999), Some(l.max)]
    };
    let text = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| nanos(ns as f64));
    m.latency.as_ref().map_or([None; 5], known).map(text)
}

/// Of what kind the figures of a cell are, as CSV has it.
pub(crate) fn kind(cell: &Cell, model: bool) -> &'static str {
    match (cell.is_baseline(), model) {
        (true, _) => "baseline",
        (_, true) => "model",
        _ => "measured",
    }
}

/// What CSV calls a cell's operation and shape,
pub(crate) const SHAPE: [&str; 8] =
    ["op", "size", "depth", "batch", "queues", "segments", "footprint", "direction"];

/// and what these are.
pub(crate) fn shape(c: &Cell) -> [String; 8] {
    [
        c.op.to_string(),
        c.size.to_string(),
        c.depth.to_string(),
        c.batch.to_string(),
        c.queues.to_string(),
        c.segments.to_string(),
        c.footprint.to_string(),
        c.direction.to_string(),
    ]
}

/// The curve of a cell, a model's marked.
fn marked(m: &Measured) -> String {
    if m.model { format!("{} [model]", curve(&m.cell)) } else { curve(&m.cell) }
}

/// What tells a curve over the size apart from others.
#[must_use]
pub fn curve(cell: &Cell) -> String {
    let mut name = format!("{} q{}", cell.engine, cell.depth);
    if cell.batch > 1 {
        let _ = write!(name, " by {}", cell.batch);
    }
    if cell.queues > 1 {
        let _ = write!(name, " on {} queues", cell.queues);
    }
    name
}

/// What a cell does: the operation, the memory, which way, and how many segments.
#[must_use]
pub fn what(c: &Cell) -> String {
    let mut what = format!("{} {}", c.op, c.footprint);
    if c.direction != Direction::Local {
        let _ = write!(what, " {}", c.direction);
    }
    if c.op == Op::Sg {
        let _ = write!(what, " {}", c.segments);
    }
    what
}

/// How deep a cell's queues are, how many operations go with a doorbell, and how many queues there are; of the baseline, through how many
/// buffers it goes.
#[must_use]
pub fn depth(c: &Cell) -> String {
    match c.depth {
        1 if c.is_baseline() => "-".to_owned(),
        n if c.is_baseline() => format!("{n} buffers"),
        n => queue(n, c.batch, c.queues, c.batch > 1),
    }
}

/// A depth, the operations of a doorbell if these are to be named, and the queues if there are several.
fn queue(depth: u32, batch: u32, queues: u32, batches: bool) -> String {
    let mut text = depth.to_string();
    if batches {
        let _ = write!(text, " by {batch}");
    }
    if queues > 1 {
        let _ = write!(text, " on {queues}");
    }
    text
}

/// The curve of a crossover, as [`depth`] has it.
#[must_use]
pub fn crossover_depth(c: &Crossover) -> String {
    queue(c.depth, c.batch, c.queues, true)
}

/// Operations a second, and which part of the rate that is if it was missed.
#[must_use]
pub fn speed(campaign: &Campaign, m: &Measured) -> String {
    let speed = m.ops_per_second.as_ref().map_or("-".to_owned(), |f| per_second(f.median));
    match part_of_rate(campaign, m) {
        Some(part) => format!("{speed}, {} % of the rate", digits(part * 100.0)),
        None => speed,
    }
}

/// The baseline of a curve, by the number of buffers that it goes through.
#[must_use]
pub fn baseline(buffers: u32, footprint: Footprint) -> String {
    match (footprint, buffers) {
        (Footprint::Hot, 1) => "memcpy, 1 buffer".to_owned(),
        (Footprint::Hot, n) => format!("memcpy, {n} buffers"),
        _ => "memcpy, one core".to_owned(),
    }
}

/// What a crossover is against, in words: hot, memcpy goes through as many buffers as the engine.
#[must_use]
pub fn against(c: &Crossover) -> String {
    if c.footprint == Footprint::Hot && c.against == crate::derive::HERE {
        return format!("{} here", baseline(c.depth * c.queues, c.footprint));
    }
    c.against.clone()
}

pub(crate) fn right(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Where an engine overtakes, in words.
#[must_use]
pub fn crossover_at(crossover: &Crossover) -> String {
    match crossover.bytes {
        Some(at) if crossover.always => format!("always (from {})", bytes(at as u64)),
        Some(at) if at >= 10_240.0 => format!("{} KiB", digits(at / 1024.0)),
        Some(at) => format!("{at:.0} B"),
        None => "never".to_owned(),
    }
}

fn crossovers(all: &[Crossover], style: Style) -> String {
    let mut table = style.table(&["engine", "depth", "memory", "from", "against"]);
    for c in all {
        let name = if c.model { format!("{} [model]", c.engine) } else { c.engine.clone() };
        table.add_row([
            style.text(&name),
            crossover_depth(c),
            c.footprint.to_string(),
            crossover_at(c),
            style.text(&against(c)),
        ]);
    }
    format!("{table}\n")
}

fn knees(results: &Results, style: Style) -> String {
    let mut table =
        style.table(&["engine", "size", "memory", "way", "queues", "depth", "GB/s there", "best GB/s"]);
    for k in &results.knees {
        let name = if k.model { format!("{} [model]", k.engine) } else { k.engine.clone() };
        table.add_row([
            style.text(&name),
            bytes(k.size),
            k.footprint.to_string(),
            k.direction.to_string(),
            k.queues.to_string(),
            k.depth.to_string(),
            gigabytes(k.bytes_per_second),
            gigabytes(k.best),
        ]);
    }
    right(&mut table, &[1, 4, 5, 6, 7]);
    format!("{table}\n")
}

/// Published figures beside the models'.
#[must_use]
pub fn published(rows: &[Published], style: Style) -> String {
    let mut table = style.table(&[
        "profile",
        "load",
        "way",
        "size",
        "figure",
        "published",
        "simulated",
        "off",
        "allowed",
        "",
    ]);
    let mut sources: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !sources.contains(&(&row.profile, &row.source)) {
            sources.push((&row.profile, &row.source));
        }
        table.add_row([
            style.text(&row.profile),
            style.text(&row.load),
            style.text(&row.direction),
            bytes(row.size),
            style.text(&row.quantity),
            digits(row.published),
            digits(row.simulated),
            format!("{:+.1} %", (row.simulated / row.published - 1.0) * 100.0),
            format!("{:.0} %", row.tolerance * 100.0),
            if row.holds { "within" } else { "MISSED" }.to_owned(),
        ]);
    }
    right(&mut table, &[3, 5, 6, 7, 8]);
    let mut text = format!("{table}\n");
    for (profile, source) in sources {
        let _ = writeln!(text, "{}", printable(&format!("{profile}: published in {source}")));
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

/// One line for each cell.
///
/// # Errors
///
/// Memory runs out.
pub fn csv(results: &Results) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = ["engine", "kind", "model", "rate"].into_iter().chain(SHAPE);
    writer.write_record(head.chain([
        "status",
        "ops_per_second_min",
        "ops_per_second_median",
        "ops_per_second_max",
        "bytes_per_second_median",
        "ratio_min",
        "ratio_median",
        "ratio_max",
        "latency_p50_ns",
        "latency_p90_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "latency_max_ns",
        "cpu_ns_per_op",
        "cpu_s_per_gb",
        "doorbells_per_op",
        "polls_per_op",
        "ops",
        "verified",
        "latency_samples",
        "latency_mean_ns",
        "repetitions",
        "left_out",
        "waited",
        "shared",
        "moved",
        "message",
    ]))?;
    for m in &results.cells {
        let c = &m.cell;
        let model = results.model_of(&c.engine).unwrap_or_default();
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v}"));
        let of = |f: &Option<Figures>, which: fn(&Figures) -> f64| number(f.as_ref().map(which));
        let latency = |f: fn(&crate::results::Latency) -> u64| {
            m.latency.as_ref().map_or(String::new(), |l| f(l).to_string())
        };
        let rate = number(results.campaign.rate.filter(|_| !c.is_baseline()));
        let head = [c.engine.clone(), kind(c, m.model).to_owned(), model.to_owned(), rate];
        writer.write_record(head.into_iter().chain(shape(c)).chain([
            format!("{:?}", m.status).to_lowercase(),
            of(&m.ops_per_second, |f| f.min),
            of(&m.ops_per_second, |f| f.median),
            of(&m.ops_per_second, |f| f.max),
            of(&m.bytes_per_second, |f| f.median),
            of(&m.ratio, |f| f.min),
            of(&m.ratio, |f| f.median),
            of(&m.ratio, |f| f.max),
            latency(|l| l.p50),
            latency(|l| l.p90),
            latency(|l| l.p99),
            latency(|l| l.p999),
            latency(|l| l.max),
            of(&m.cpu_ns_per_op, |f| f.median),
            of(&m.cpu_s_per_gb, |f| f.median),
            number(m.doorbells_per_op),
            number(m.polls_per_op),
            m.ops.to_string(),
            m.verified.to_string(),
            latency(|l| l.samples),
            number(m.latency.as_ref().map(|l| l.mean)),
            m.ops_per_second.as_ref().map_or(0, |f| f.samples.len()).to_string(),
            m.left_out.to_string(),
            m.waited.to_string(),
            m.shared.to_string(),
            m.moved.to_string(),
            m.message.clone().unwrap_or_default(),
        ]))?;
    }
    writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn models_are_labelled_wherever_they_appear() {
        let results = sample();
        let plain = tables(&results, Style::Plain, false);
        let (measured, models) = plain.split_once("Models:").unwrap();
        assert!(!measured.contains("sim:"), "never among the measured: {measured}");
        assert!(models.contains("a model: dsa (a public <source>)"));
        assert!(models.contains("sim:profile=dsa [model]"), "in the crossovers");
        assert!(
            tables(&results, Style::Plain, true).contains("sim:profile=dsa [model]"),
            "when asked for one ranking"
        );
        let csv = String::from_utf8(csv(&results).unwrap()).unwrap();
        assert!(
            csv.lines()
                .filter(|l| l.starts_with("sim:"))
                .all(|l| l.starts_with("sim:profile=dsa,model,dsa (a public <source>),"))
        );
        assert!(csv.lines().filter(|l| l.starts_with("cpu")).all(|l| l.contains(",measured,,,")));
    }

    #[test]
    fn what_failed_is_named() {
        let markdown = tables(&sample(), Style::Markdown, false);
        assert!(markdown.contains("- doca: no SDK"));
        assert!(markdown.contains("- doca copy 64 B q1 cold: device lost"));
        assert!(markdown.contains("| copy cold |"));
    }

    #[test]
    fn names_do_not_break_tables() {
        let mut results = sample();
        let odd = "cpu:a|b\nc\x1b[31m";
        results
            .cells
            .iter_mut()
            .filter(|m| m.cell.engine == "cpu")
            .for_each(|m| odd.clone_into(&mut m.cell.engine));
        results.knees[0].engine = odd.to_owned();
        results.crossovers[0].engine = odd.to_owned();
        results.published[0].load = odd.to_owned();
        for (style, name) in [(Style::Markdown, "cpu:a\\|b c [31m"), (Style::Plain, "cpu:a|b c [31m")] {
            let text = tables(&results, style, false);
            // Four cells, a crossover, a knee, a published figure, and the head of the summary.
            assert_eq!(text.matches(name).count(), 8, "{text}");
            assert!(!text.contains('\x1b'));
        }
        let markdown = tables(&results, Style::Markdown, false).replace("\\|", "");
        let bars = |line: &str| line.matches('|').count();
        let rows: Vec<&str> = markdown.lines().filter(|l| l.contains("copy cold")).collect();
        assert!(rows.len() == 12 && rows.iter().all(|l| bars(l) == bars(rows[0])), "{markdown}");
    }

    #[test]
    fn a_rate_that_is_missed_is_marked() {
        let mut results = sample();
        assert!(tables(&results, Style::Plain, false).contains("In short"));
        results.campaign.rate = Some(1e9);
        let text = tables(&results, Style::Plain, false);
        assert!(text.contains("At a rate of 1.00 G/s on each queue"), "{text}");
        assert!(String::from_utf8(csv(&results).unwrap()).unwrap().contains(",measured,,1000000000,"));
        assert_eq!(text.matches(" % of the rate ").count(), 8, "{text}");
        assert!(text.contains("The rate was missed in 8 of 8 cells") && !text.contains("In short"), "{text}");
    }

    #[test]
    fn csv_has_a_line_for_each_cell() {
        let results = sample();
        let bytes = csv(&results).unwrap();
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        assert_eq!(reader.records().map(Result::unwrap).count(), results.cells.len());
    }
}
