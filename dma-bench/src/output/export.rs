//! Results as CSV, and the columns that the CSV of `compare` shares.

use crate::plan::Cell;
use crate::results::Results;
use crate::stats::Figures;
use crate::verdict::{Curve, class};

/// Returns the kind of a cell's figures, as CSV names it.
pub(crate) fn kind(cell: &Cell, model: bool) -> &'static str {
    match (cell.is_baseline(), model) {
        (true, _) => "baseline",
        (_, true) => "model",
        _ => "measured",
    }
}

/// Names of the columns for a cell's operation and shape.
pub(crate) const SHAPE: [&str; 8] =
    ["op", "size", "depth", "batch", "queues", "segments", "footprint", "direction"];

/// Returns the values of the columns [`SHAPE`].
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

/// Returns one line for each cell.
///
/// # Errors
///
/// Never fails in practice, because the lines are written to memory.
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
        "ratio_low",
        "ratio_high",
        "verdict",
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
        let curve = Curve::of(c);
        let point =
            results.verdicts.iter().find(|v| v.is_here() && v.curve == curve).and_then(|v| v.at(c.size));
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
            number(point.and_then(|p| p.low)),
            number(point.and_then(|p| p.high)),
            point.map_or(String::new(), |p| class(p.class).to_owned()),
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
            m.message.clone().unwrap_or_default(),
        ]))?;
    }
    writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))
}
