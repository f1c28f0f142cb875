//! Which figures of a cell are drawn, and how the axes write them.

use crate::report::plot::Axis;
use crate::results::Measured;
use crate::units;

pub(super) fn bytes(v: f64) -> String {
    units::bytes(v.round() as u64).replace(' ', "\u{a0}")
}

pub(super) fn number(v: f64) -> String {
    match v {
        v if v >= 0.999 => format!("{}", (v * 100.0).round() / 100.0),
        v if v >= 1e-4 => format!("{}", (v * 1e5).round() / 1e5),
        v => format!("{v:.0e}"),
    }
}

pub(super) fn time(v: f64) -> String {
    units::nanos(v).replace(".00", "").replace(".0 ", " ")
}

pub(super) fn axis(label: &str, format: fn(f64) -> String, base: f64) -> Axis {
    Axis { label: label.to_owned(), format, base }
}

/// The three figures of a cell that are drawn.
pub(super) type Pick = fn(&Measured) -> Option<[f64; 3]>;

pub(super) fn speed(m: &Measured) -> Option<[f64; 3]> {
    let f = m.bytes_per_second.as_ref()?;
    let (low, high) = f.quartiles();
    Some([low, f.median, high].map(|v| v / 1e9))
}

pub(super) fn latency(m: &Measured) -> Option<[f64; 3]> {
    let l = m.latency.as_ref()?;
    Some([l.p50, l.p50, l.p99].map(|v| v as f64))
}

pub(super) fn ratio(m: &Measured) -> Option<[f64; 3]> {
    let f = m.ratio.as_ref()?;
    let (low, high) = f.quartiles();
    (f.min > 0.0).then_some([low, f.median, high])
}

pub(super) fn cpu(m: &Measured) -> Option<[f64; 3]> {
    let f = m.cpu_s_per_gb.as_ref()?;
    let (low, high) = f.quartiles();
    (f.min > 0.0).then_some([low, f.median, high])
}
