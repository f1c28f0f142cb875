//! Results as CSV, and the columns that the CSV of `compare` shares.

use super::grid::csv as lines;
use crate::plan::Cell;
use crate::results::Results;
use crate::verdict::class;
use crate::verdict::stats::Figures;

pub(crate) type Field = (&'static str, String);

/// Returns the column that says whether a cell is of the baseline, of a model, or measured.
pub(crate) fn kind(cell: &Cell, model: bool) -> Field {
    let kind = match (cell.is_baseline(), model) {
        (true, _) => "baseline",
        (_, true) => "model",
        _ => "measured",
    };
    ("kind", kind.to_owned())
}

/// Returns the columns for a cell's operation and shape.
pub(crate) fn shape(c: &Cell) -> [Field; 8] {
    [
        ("op", c.op.to_string()),
        ("size", c.size.to_string()),
        ("depth", c.depth.to_string()),
        ("batch", c.batch.to_string()),
        ("queues", c.queues.to_string()),
        ("segments", c.segments.to_string()),
        ("footprint", c.footprint.to_string()),
        ("direction", c.direction.to_string()),
    ]
}

/// Returns CSV lines of these columns, after a line with the columns' names.
pub(crate) fn fields(rows: &[Vec<Field>]) -> String {
    let names = rows.first().map(|row| row.iter().map(|(name, _)| (*name).to_owned()).collect());
    let values = rows.iter().map(|row| row.iter().map(|(_, value)| value.clone()).collect());
    lines(names.into_iter().chain(values))
}

/// Returns a number as text; empty if the number is not known.
pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

pub(crate) fn csv(results: &Results) -> String {
    let of = |f: &Option<Figures>, which: fn(&Figures) -> f64| number(f.as_ref().map(which));
    let row = |m: &crate::results::Measured| {
        let c = &m.cell;
        let latency = |f: fn(&crate::results::Latency) -> u64| {
            m.latency.as_ref().map_or(String::new(), |l| f(l).to_string())
        };
        let point = results.point(c);
        let mut row = vec![
            ("engine", c.engine.clone()),
            kind(c, m.model),
            ("model", results.model_of(&c.engine).unwrap_or_default().to_owned()),
            ("rate", number(results.campaign.rate.filter(|_| !c.is_baseline()))),
        ];
        row.extend(shape(c));
        row.extend([
            ("status", m.status.to_string()),
            ("ops_per_second_min", of(&m.ops_per_second, |f| f.min)),
            ("ops_per_second_median", of(&m.ops_per_second, |f| f.median)),
            ("ops_per_second_max", of(&m.ops_per_second, |f| f.max)),
            ("bytes_per_second_median", of(&m.bytes_per_second, |f| f.median)),
            ("ratio_min", of(&m.ratio, |f| f.min)),
            ("ratio_median", of(&m.ratio, |f| f.median)),
            ("ratio_max", of(&m.ratio, |f| f.max)),
            ("ratio_low", number(point.and_then(|p| p.low))),
            ("ratio_high", number(point.and_then(|p| p.high))),
            ("verdict", point.map_or(String::new(), |p| class(p.class).to_owned())),
            ("latency_p50_ns", latency(|l| l.p50)),
            ("latency_p90_ns", latency(|l| l.p90)),
            ("latency_p99_ns", latency(|l| l.p99)),
            ("latency_p999_ns", latency(|l| l.p999)),
            ("latency_max_ns", latency(|l| l.max)),
            ("cpu_ns_per_op", of(&m.cpu_ns_per_op, |f| f.median)),
            ("cpu_s_per_gb", of(&m.cpu_s_per_gb, |f| f.median)),
            ("doorbells_per_op", number(m.doorbells_per_op)),
            ("polls_per_op", number(m.polls_per_op)),
            ("ops", m.ops.to_string()),
            ("verified", m.verified.to_string()),
            ("latency_count", latency(|l| l.count)),
            ("latency_mean_ns", number(m.latency.as_ref().map(|l| l.mean))),
            ("samples", m.ops_per_second.as_ref().map_or(0, |f| f.samples.len()).to_string()),
            ("left_out", m.left_out.to_string()),
            ("run_delay", m.run_delay.to_string()),
            ("message", m.message.clone().unwrap_or_default()),
        ]);
        row
    };
    fields(&results.cells.iter().map(row).collect::<Vec<_>>())
}
