//! Which figures of a cell are drawn, and how the axes write them.

use crate::report::plot::{Axis, Height, Plot};
use crate::results::Measured;
use crate::stats::Figures;
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

/// What is drawn of a cell.
pub(super) type Pick = fn(&Measured) -> Option<Height>;

/// The median, and the middle half of the repetitions.
fn spread(figures: Option<&Figures>, over: f64) -> Option<Height> {
    let figures = figures?;
    let (low, high) = figures.quartiles();
    Some(Height { middle: figures.median / over, band: Some([low / over, high / over]) })
}

pub(super) fn speed(m: &Measured) -> Option<Height> {
    spread(m.bytes_per_second.as_ref(), 1e9)
}

pub(super) fn ratio(m: &Measured) -> Option<Height> {
    spread(m.ratio.as_ref().filter(|f| f.min > 0.0), 1.0)
}

pub(super) fn cpu(m: &Measured) -> Option<Height> {
    spread(m.cpu_s_per_gb.as_ref().filter(|f| f.min > 0.0), 1.0)
}

/// The median, and up to the 99th percentile if that is known.
pub(super) fn latency(m: &Measured) -> Option<Height> {
    let l = m.latency.as_ref()?;
    let band = l.known(0.99, l.p99).map(|p99| [l.p50 as f64, p99 as f64]);
    Some(Height { middle: l.p50 as f64, band })
}

/// What is to be said of a plot of latencies where the 99th percentile is not known of all, as tables have none there.
pub(super) fn without_bands(plot: &Plot) -> &'static str {
    if plot.series.iter().all(|s| s.points.iter().all(|p| p.1.band.is_some())) {
        ""
    } else {
        " No band where fewer than 100 were timed."
    }
}
