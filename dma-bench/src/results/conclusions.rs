//! Conclusions from figures: verdicts, missed rates, comparisons with published CPUs, and knees.

use std::collections::BTreeMap;

use super::{Knee, Measured, Results, published};
use crate::plan::{Campaign, Cell, Direction, Footprint, Op, grouped};
use crate::verdict::{Class, Curve, MEMCPY_HERE, Point, RISK, VARIED, Verdict, point};

#[derive(Debug)]
/// Published `memcpy` figures of a CPU, with which a modelled device is compared.
pub(crate) struct Reference {
    pub profile: &'static str,
    /// Name of the CPU, with the source of its figures.
    pub name: &'static str,
    /// Sizes in bytes and throughputs in MiB/s.
    pub points: &'static [(u64, f64)],
}

/// Figures of one core of the machine on which the figures of the `dsa` profile were measured, with data in
/// main memory. Source: izumihanako/LightDSA, expr/paper, `DSA_speed_seq.data`, commit 3905ece.
pub(crate) const DSA_CPU: Reference = Reference {
    profile: "dsa",
    name: "the CPU published with the device (izumihanako/LightDSA, commit 3905ece)",
    points: &[
        (64, 5_872.0),
        (256, 6_998.0),
        (512, 7_259.0),
        (1 << 10, 5_137.0),
        (4 << 10, 8_855.0),
        (8 << 10, 8_862.0),
        (16 << 10, 9_319.0),
        (32 << 10, 9_446.0),
        (64 << 10, 9_600.0),
        (256 << 10, 9_719.0),
        (1 << 20, 9_749.0),
    ],
};

/// Returns the reached fraction of a cell's rate if it is below 0.99: the cell's latencies then include
/// waiting in a growing queue. Returns `None` if the rate was reached or no rate was set.
pub(crate) fn part_of_rate(campaign: &Campaign, m: &Measured) -> Option<f64> {
    let rate = campaign.rate.filter(|_| !m.cell.is_baseline())?;
    let (reached, latency) = (m.ops_per_second.as_ref()?, m.latency.as_ref()?.p50 as f64 * 1e-9);
    let each = campaign.count.unwrap_or(((campaign.seconds * rate) as u64).max(1)) as f64;
    let span = |reached: &f64| each * f64::from(m.cell.all_queues()) / reached;
    // All samples belong to one schedule. The first sample begins at the scheduled time of its first
    // operation. Each later sample begins at the end of the previous sample.
    let part = match reached.samples.as_slice() {
        // In a single sample, the latency of the last operation may be a large part of the span, so a
        // latency is subtracted.
        [] => return None,
        [one] => each / rate / (span(one) - latency).max(f64::MIN_POSITIVE),
        [_, others @ ..] => others.len() as f64 * each / rate / others.iter().map(span).sum::<f64>(),
    };
    (part < 0.99).then_some(part)
}

/// Returns a note if any cell missed its rate.
pub(crate) fn missed(results: &Results) -> Option<String> {
    let with_figures =
        || results.cells.iter().filter(|m| !m.cell.is_baseline() && m.ops_per_second.is_some());
    let missed = with_figures().filter(|m| part_of_rate(&results.campaign, m).is_some()).count();
    (missed > 0).then(|| {
        format!(
            "The rate was missed in {missed} of {} cells, which are marked. The engine cannot do so many operations a second, so latencies there are \
             those of a growing queue. A lower --rate gives latencies under load.",
            with_figures().count()
        )
    })
}

/// Returns the verdicts on all curves that have ratios. `interrupted` is true if the user stopped the run.
pub(crate) fn verdicts(campaign: &Campaign, cells: &[Measured], interrupted: bool) -> Vec<Verdict> {
    let compared: Vec<&Measured> =
        cells.iter().filter(|m| !m.cell.is_baseline() && m.ratio.is_some()).collect();
    let risk = RISK / compared.len().max(1) as f64;
    let too_few = too_few(campaign, interrupted, risk);
    let mut all = Vec::new();
    for (curve, of) in grouped(compared.into_iter().map(|m| (Curve::of(&m.cell), m))) {
        let model = of.iter().any(|m| m.model);
        let here = |m: &&Measured| {
            let ratios = &m.ratio.as_ref()?.samples;
            point(m.cell.size, ratios, m.passes as usize, risk)
        };
        let points = of.iter().filter_map(here).collect();
        all.push(Verdict::new(curve.clone(), model, MEMCPY_HERE, points, too_few));
        let published = published_cpu(&curve, &of);
        all.extend(published.map(|(name, points)| Verdict::new(curve, model, name, points, too_few)));
    }
    all
}

/// Returns the most probable reason for too few passes, with the remedy. An interval with the risk `risk`
/// needs a minimum number of passes.
fn too_few(campaign: &Campaign, interrupted: bool, risk: f64) -> &'static str {
    // The widest interval of n samples misses the median with a chance of 2 / 2^n.
    let needed = (2.0 / risk).log2().ceil() as u32;
    match () {
        () if campaign.samples < needed => "too few samples; give more (--samples or -t)",
        () if campaign.passes < needed => "too few passes; give more --passes",
        () if interrupted => "too few passes; the run was interrupted",
        () if campaign.limit.is_some() => "too few passes; give a greater --limit",
        () => VARIED,
    }
}

/// Returns a modelled device's ratios to the CPU published with it, and the name of that CPU.
fn published_cpu(curve: &Curve, cells: &[&Measured]) -> Option<(&'static str, Vec<Point>)> {
    let fits =
        curve.op == Op::Copy && curve.direction == Direction::Local && curve.footprint != Footprint::Hot;
    if !fits || published::profile_of(&curve.engine) != Some(DSA_CPU.profile) {
        return None;
    }
    let point = |m: &&Measured| {
        let (size, mib) = DSA_CPU.points.iter().find(|p| p.0 == m.cell.size)?;
        let ratio = m.bytes_per_second.as_ref()?.times(1.0 / (mib * f64::from(1 << 20)));
        // A device with a virtual clock has no noise.
        let class = Class::of(Some((ratio.min, ratio.max)));
        Some(Point { size: *size, ratio: ratio.median, low: Some(ratio.min), high: Some(ratio.max), class })
    };
    let points: Vec<Point> = cells.iter().filter_map(point).collect();
    (points.len() >= 3).then_some((DSA_CPU.name, points))
}

/// Returns true if no cell that differs only in the operations for each doorbell has a greater throughput. If
/// several cells are equal, the first is the best.
pub(crate) fn is_best_batch(cells: &[Measured], m: &Measured) -> bool {
    let speed = |m: &Measured| m.bytes_per_second.as_ref().map_or(0.0, |f| f.median);
    let alike = cells.iter().filter(|other| Cell { batch: m.cell.batch, ..other.cell.clone() } == m.cell);
    let best = alike.reduce(|best, other| if speed(other) > speed(best) { other } else { best });
    best.is_none_or(|best| best.cell == m.cell)
}

/// Returns the knee of every series of copies with at least three depths. Runs at a rate have no knee,
/// because the rate sets their throughput.
pub(crate) fn knees(campaign: &Campaign, cells: &[Measured]) -> Vec<Knee> {
    let copies = cells.iter().filter(|m| !m.cell.is_baseline() && m.cell.op == Op::Copy);
    let speeds = copies.filter_map(|m| Some((m, m.bytes_per_second.as_ref()?.median)));
    let speeds = speeds.filter(|_| campaign.rate.is_none());
    let knee = |(cell, of): (Cell, Vec<(&Measured, f64)>)| {
        // For each depth, the cell with the best number of operations for each doorbell counts.
        let mut depths: BTreeMap<u32, f64> = BTreeMap::new();
        for (m, speed) in &of {
            let best = depths.entry(m.cell.depth).or_default();
            *best = best.max(*speed);
        }
        let best = depths.values().copied().fold(0.0, f64::max);
        let enough = depths.iter().find(|(_, speed)| **speed >= 0.95 * best);
        let (depth, speed) = enough.filter(|_| depths.len() >= 3)?;
        Some(Knee {
            model: of.iter().any(|(m, _)| m.model),
            engine: cell.engine,
            size: cell.size,
            footprint: cell.footprint,
            direction: cell.direction,
            queues: cell.queues,
            depth: *depth,
            bytes_per_second: *speed,
            best,
        })
    };
    let series = grouped(speeds.map(|of| (Cell { depth: 1, batch: 1, ..of.0.cell.clone() }, of)));
    series.into_iter().filter_map(knee).collect()
}
