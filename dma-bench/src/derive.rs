//! Conclusions from figures: verdicts, missed rates, comparisons with published CPUs, and knees.

use std::collections::BTreeMap;

use crate::plan::{Campaign, Cell, Direction, Footprint, Op, grouped};
use crate::published;
use crate::results::{Knee, Measured, Results};
use crate::verdict::{BUSY, Class, Curve, HERE, Point, RISK, Verdict, point};

#[derive(Debug)]
/// Published `memcpy` figures of a CPU, for a comparison with a modelled device.
pub(crate) struct Reference {
    pub profile: &'static str,
    /// Name of the CPU, with the source.
    pub name: &'static str,
    /// Sizes in bytes and throughputs in MiB/s.
    pub points: &'static [(u64, f64)],
}

/// One core of the machine that the figures of the `dsa` profile come from, with data in main memory. Source:
/// izumihanako/LightDSA, expr/paper, `DSA_speed_seq.data`, commit 3905ece.
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

/// Returns the fraction of its rate that a cell reached if that is below 0.99. Its latencies are then those
/// of a growing queue. Returns `None` if the rate was reached or none was set.
pub(crate) fn part_of_rate(campaign: &Campaign, m: &Measured) -> Option<f64> {
    let rate = campaign.rate.filter(|_| !m.cell.is_baseline())?;
    let (reached, latency) = (m.ops_per_second.as_ref()?, m.latency.as_ref()?.p50 as f64 * 1e-9);
    let each = campaign.count.unwrap_or(((campaign.seconds * rate) as u64).max(1)) as f64;
    let span = |reached: &f64| each * f64::from(m.cell.queues) / reached;
    // All repetitions are one schedule. The first lasts from the time at which its first operation was due,
    // each other one from the end of the one before.
    let part = match reached.samples.as_slice() {
        // With few operations, the latency of the last is a large part of the span.
        [] => return None,
        [one] => each / rate / (span(one) - latency).max(f64::MIN_POSITIVE),
        [_, others @ ..] => others.len() as f64 * each / rate / others.iter().map(span).sum::<f64>(),
    };
    (part < 0.99).then_some(part)
}

/// Returns a note if cells missed their rate.
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

/// Returns the verdicts on all curves that have ratios. `interrupted`: the user stopped the run.
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
            point(m.cell.size, ratios, m.visits as usize, risk)
        };
        let points = of.iter().filter_map(here).collect();
        all.push(Verdict::new(curve.clone(), model, HERE, points, too_few));
        let published = published_cpu(&curve, &of);
        all.extend(published.map(|(name, points)| Verdict::new(curve, model, name, points, too_few)));
    }
    all
}

/// Returns why there are too few passes for an interval whose risk is `risk`, with the remedy.
fn too_few(campaign: &Campaign, interrupted: bool, risk: f64) -> &'static str {
    // The widest interval of n samples misses the median with a chance of 2 / 2^n.
    let needed = (2.0 / risk).log2().ceil() as u32;
    match () {
        () if campaign.repetitions < needed => "too few repetitions; give more (-r or -t)",
        () if campaign.passes < needed => "too few passes; give more --passes",
        () if interrupted => "too few passes; the run was interrupted",
        () if campaign.limit.is_some() => "too few passes; give a greater --limit",
        () => BUSY,
    }
}

/// Returns the points of a modelled device against the CPU published with it, and the name of that CPU.
fn published_cpu(curve: &Curve, cells: &[&Measured]) -> Option<(&'static str, Vec<Point>)> {
    let fits =
        curve.op == Op::Copy && curve.direction == Direction::Local && curve.footprint != Footprint::Hot;
    if !fits || published::profile_of(&curve.engine) != Some(DSA_CPU.profile) {
        return None;
    }
    let point = |m: &&Measured| {
        let (size, mib) = DSA_CPU.points.iter().find(|p| p.0 == m.cell.size)?;
        let ratio = m.bytes_per_second.as_ref()?.times(1.0 / (mib * f64::from(1 << 20)));
        // A device with its own clock has no noise.
        let class = Class::of(Some((ratio.min, ratio.max)));
        Some(Point { size: *size, ratio: ratio.median, low: Some(ratio.min), high: Some(ratio.max), class })
    };
    let points: Vec<Point> = cells.iter().filter_map(point).collect();
    (points.len() >= 3).then_some((DSA_CPU.name, points))
}

/// Returns true if no cell that differs only in operations for each doorbell has a greater throughput. Of
/// equal ones the first is the best.
pub(crate) fn is_best_batch(cells: &[Measured], m: &Measured) -> bool {
    let speed = |m: &Measured| m.bytes_per_second.as_ref().map_or(0.0, |f| f.median);
    let alike = cells.iter().filter(|other| Cell { batch: m.cell.batch, ..other.cell.clone() } == m.cell);
    let best = alike.reduce(|best, other| if speed(other) > speed(best) { other } else { best });
    best.is_none_or(|best| best.cell == m.cell)
}

/// Returns the knee of every series with at least three depths. Runs at a rate have none, because their
/// throughput is given.
pub(crate) fn knees(campaign: &Campaign, cells: &[Measured]) -> Vec<Knee> {
    let copies = cells.iter().filter(|m| !m.cell.is_baseline() && m.cell.op == Op::Copy);
    let speeds = copies.filter_map(|m| Some((m, m.bytes_per_second.as_ref()?.median)));
    let speeds = speeds.filter(|_| campaign.rate.is_none());
    let knee = |(cell, of): (Cell, Vec<(&Measured, f64)>)| {
        // The best number of operations for each doorbell counts.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn knees(cells: &[Measured]) -> Vec<Knee> {
        super::knees(&Campaign::default(), cells)
    }

    fn verdicts(cells: &[Measured]) -> Vec<Verdict> {
        super::verdicts(&Campaign::default(), cells, false)
    }

    #[test]
    fn the_remedy_for_too_few_passes_is_about_what_limited_them() {
        let cells = curve("cpu", &[(64, 1.0)]);
        let says = |change: &dyn Fn(&mut Campaign), interrupted: bool| {
            let mut campaign = Campaign::default();
            change(&mut campaign);
            super::verdicts(&campaign, &cells, interrupted).remove(0).text
        };
        for (change, says_so) in [
            (&(|c: &mut Campaign| c.repetitions = 3) as &dyn Fn(&mut Campaign), "give more (-r or -t)"),
            (&|c| c.passes = 5, "give more --passes"),
            (&|c| c.limit = Some(3.0), "give a greater --limit"),
            (&|_| (), "the machine was too busy"),
        ] {
            let said = says(change, false);
            assert!(said.starts_with("not decided: ") && said.contains(says_so), "{said}");
        }
        assert!(says(&|_| (), true).contains("interrupted"));
    }

    /// Returns copies by `engine` at these sizes, with these ratios to `memcpy`.
    fn curve(engine: &str, ratios: &[(u64, f64)]) -> Vec<Measured> {
        let like = crate::results::tests::sample().cells.remove(5);
        let cell = |&(size, ratio): &(u64, f64)| {
            let mut m = like.clone();
            (m.cell.engine, m.cell.size) = (engine.to_owned(), size);
            m.ratio = crate::stats::Figures::of(vec![ratio]);
            m.bytes_per_second = crate::stats::Figures::of(vec![ratio * 1e10]);
            m
        };
        ratios.iter().map(cell).collect()
    }

    #[test]
    fn only_the_published_device_is_held_against_the_published_cpu() {
        // The published CPU has 5,872 MiB/s at 64 B, 6,998 at 256 B and 5,137 at 1 KiB.
        let published = |name: &str, size: u64, times: f64| {
            let (_, mib) = DSA_CPU.points.iter().find(|p| p.0 == size).expect("published");
            let mut m = curve(name, &[(size, 0.1)]).remove(0);
            m.bytes_per_second = crate::stats::Figures::of(vec![times * mib * f64::from(1 << 20)]);
            m
        };
        let of =
            |name: &str| [published(name, 64, 0.5), published(name, 256, 2.0), published(name, 1024, 4.0)];
        let found = verdicts(&of("sim:seed=7,profile=dsa"));
        assert_eq!(found.iter().map(|c| c.against.as_str()).collect::<Vec<_>>(), [HERE, DSA_CPU.name]);
        assert_eq!(found[1].text, "slower up to 64 B, faster from 256 B");
        for other in ["sim:profile=ioat", "sim:profile=dsa,latency=1us", "cpu:profile=dsa", "doca"] {
            assert_eq!(verdicts(&of(other)).len(), 1, "{other}");
        }
        let hot = of("sim:profile=dsa").map(|mut m| {
            m.cell.footprint = Footprint::Hot;
            m
        });
        assert_eq!(verdicts(&hot).len(), 1, "it was measured in main memory");
        let [one, two, mut three] = of("sim:profile=dsa");
        three.cell.size = 1000;
        assert_eq!(verdicts(&[one, two, three]).len(), 1, "two sizes say nothing");
        // The published sizes.
        assert!(DSA_CPU.points.windows(2).all(|p| p[1].0 >= 2 * p[0].0 && p[1].0 <= 4 * p[0].0));
        assert_eq!(DSA_CPU.points[10], (1_048_576, 9_749.0));
    }

    #[test]
    fn series_of_different_cells_have_knees_of_their_own() {
        let at = |depth: u32, speed: f64, change: &dyn Fn(&mut Measured)| {
            let mut m = curve("cpu", &[(4096, 1.0)]).remove(0);
            m.cell.depth = depth;
            m.bytes_per_second = crate::stats::Figures::of(vec![speed]);
            change(&mut m);
            m
        };
        let series = |best: f64, change: &dyn Fn(&mut Measured)| {
            [(1, 0.5), (2, 0.94), (4, 1.0)].map(|(depth, part)| at(depth, best * part, change))
        };
        let cells = [
            series(1.0, &|_| ()),
            series(2.0, &|m| "sim".clone_into(&mut m.cell.engine)),
            series(3.0, &|m| m.cell.size = 64),
            series(4.0, &|m| m.cell.footprint = Footprint::Hot),
            series(5.0, &|m| m.cell.direction = Direction::Pull),
            series(6.0, &|m| m.cell.queues = 2),
            series(7.0, &|m| m.cell.op = Op::Fill),
            series(8.0, &|m| "memcpy".clone_into(&mut m.cell.engine)),
            series(9.0, &|m| {
                m.cell.size = 256;
                m.bytes_per_second = None;
            }),
        ]
        .concat();
        let found: Vec<_> = knees(&cells).iter().map(|k| (k.depth, k.best, k.bytes_per_second)).collect();
        assert_eq!(found, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|best| (4, best, best)));
        // The best of several numbers of operations for each doorbell counts, and 95 % suffice.
        let more = [series(1.0, &|_| ()).to_vec(), vec![at(2, 0.95, &|m| m.cell.batch = 2)]].concat();
        assert_eq!(knees(&more)[0].depth, 2);
    }

    #[test]
    fn the_knee_is_the_smallest_depth_that_suffices() {
        let like = crate::results::tests::sample().cells.remove(5);
        let at = |depth: u32, speed: f64| {
            let mut m = like.clone();
            m.cell.depth = depth;
            m.bytes_per_second = crate::stats::Figures::of(vec![speed]);
            m
        };
        let on_two = |mut m: Measured| {
            m.cell.queues = 2;
            m
        };
        let cells = [
            at(1, 1.0),
            on_two(at(1, 19.0)),
            at(2, 5.0),
            on_two(at(2, 20.0)),
            at(4, 9.6),
            on_two(at(4, 20.0)),
            at(8, 9.9),
            at(16, 10.0),
        ];
        let found: Vec<_> = knees(&cells).iter().map(|k| (k.queues, k.depth, k.best)).collect();
        assert_eq!(found, [(1, 4, 10.0), (2, 1, 20.0)]);
        assert!(knees(&cells[..2]).is_empty(), "two depths say nothing");
    }

    #[test]
    fn a_rate_has_no_knee_and_may_be_missed() {
        let results = crate::results::tests::sample();
        let mut m = results.cells[5].clone();
        let campaign = Campaign { rate: Some(1000.0), seconds: 0.1, ..Campaign::default() };
        let series: Vec<Measured> = [1, 2, 4]
            .map(|depth| {
                m.cell.depth = depth;
                m.clone()
            })
            .to_vec();
        assert_eq!((knees(&series).len(), super::knees(&campaign, &series).len()), (1, 0));
        // A hundred operations on each of two queues. The latency of the last is 5 ms, like that of all.
        m.cell.queues = 2;
        m.latency.as_mut().expect("measured").p50 = 5_000_000;
        let mut part = |seconds: f64| {
            m.ops_per_second = crate::stats::Figures::of(vec![200.0 / seconds]);
            part_of_rate(&campaign, &m)
        };
        assert_eq!((part(0.099 + 0.005), part(0.1055)), (None, None));
        assert!((part(0.205).expect("missed") - 0.5).abs() < 1e-9);
        // A growing queue: half of the rate is reached, and the median latency is a quarter of the whole
        // duration.
        let mut of = |samples: &[f64], p50: u64| {
            m.latency.as_mut().expect("measured").p50 = p50;
            m.ops_per_second = crate::stats::Figures::of(samples.to_vec());
            part_of_rate(&campaign, &m)
        };
        assert!((of(&[1000.0; 60], 3_000_000_000).expect("missed") - 0.5).abs() < 1e-9);
        assert!((of(&[1960.0; 60], 60_000_000).expect("missed") - 0.98).abs() < 1e-9);
        // The first repetition ends late, as all do; another one catches up.
        assert_eq!(of(&[1500.0, 2000.0, 2000.0], 30_000_000), None);
        assert_eq!(of(&[2000.0, 1500.0, 3000.0], 5_000_000), None);
        let mut results = crate::results::tests::sample();
        assert_eq!(missed(&results), None);
        results.campaign.rate = Some(1e9);
        let said = missed(&results).expect("nobody does that");
        assert!(said.contains("missed in 8 of 8 cells"), "{said}");
    }
}
