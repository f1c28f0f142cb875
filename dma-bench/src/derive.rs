//! What follows from the figures: where engines overtake `memcpy`, and how deep a queue needs to be.

use crate::plan::{Campaign, Direction, Footprint, Op};
use crate::published;
use crate::results::{Crossover, Knee, Measured, Results};

/// What crossovers are against that were measured here.
pub const HERE: &str = "memcpy here";

#[derive(Debug)]
/// A CPU's `memcpy` that was published with a modelled device: bytes, and MiB/s.
pub struct Reference {
    /// The profile's name.
    pub profile: &'static str,
    /// What it is.
    pub name: &'static str,
    /// Sizes in bytes and throughputs in MiB/s.
    pub points: &'static [(u64, f64)],
}

/// One core of the machine that the `dsa` profile's figures are from, data in main memory. izumihanako/LightDSA, expr/paper,
/// `DSA_speed_seq.data`, commit 3905ece.
pub const DSA_CPU: Reference = Reference {
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

/// Where `ratios`, by size, begin to stay at 1 or above: the size, and whether they are there from the start. Between two sizes, on the straight
/// line through the logarithms.
#[must_use]
pub fn crossover(ratios: &[(u64, f64)]) -> (Option<f64>, bool) {
    let below = ratios.iter().rposition(|(_, ratio)| *ratio < 1.0);
    match below {
        None => (ratios.first().map(|(size, _)| *size as f64), !ratios.is_empty()),
        Some(last) if last + 1 == ratios.len() => (None, false),
        Some(i) => {
            let ((x0, y0), (x1, y1)) = (ratios[i], ratios[i + 1]);
            let (x0, x1) = ((x0 as f64).ln(), (x1 as f64).ln());
            let (y0, y1) = (y0.max(1e-9).ln(), y1.max(1e-9).ln());
            let part = if y1 > y0 { -y0 / (y1 - y0) } else { 1.0 };
            (Some((x0 + (x1 - x0) * part.clamp(0.0, 1.0)).exp()), false)
        }
    }
}

/// The part of its rate that a cell reached, if that is less than 99 % of it; `None` too where no rate was given. Latencies are those of a growing
/// queue then.
#[must_use]
pub fn part_of_rate(campaign: &Campaign, m: &Measured) -> Option<f64> {
    let rate = campaign.rate.filter(|_| !m.cell.is_baseline())?;
    let (reached, latency) = (m.ops_per_second.as_ref()?, m.latency.as_ref()?.p50 as f64 * 1e-9);
    let each = campaign.count.unwrap_or(((campaign.seconds * rate) as u64).max(1)) as f64;
    let span = |reached: &f64| each * f64::from(m.cell.queues) / reached;
    // All repetitions are one schedule. The first lasts from when its first operation was due, the others from the end of the one before to their own.
    let part = match reached.samples.as_slice() {
        // Where operations are few, the wait for the last is much of it.
        [] => return None,
        [one] => each / rate / (span(one) - latency).max(f64::MIN_POSITIVE),
        [_, others @ ..] => others.len() as f64 * each / rate / others.iter().map(span).sum::<f64>(),
    };
    (part < 0.99).then_some(part)
}

/// What to say if cells did not reach their rate.
#[must_use]
pub fn missed(results: &Results) -> Option<String> {
    let with_figures =
        || results.cells.iter().filter(|m| !m.cell.is_baseline() && m.ops_per_second.is_some());
    let missed = with_figures().filter(|m| part_of_rate(&results.campaign, m).is_some()).count();
    (missed > 0).then(|| {
        format!(
            "The rate was missed in {missed} of {} cells, which are marked: the engine does not do so many operations a second, and latencies there \
             are those of a queue that grows for as long as it is measured; a lower --rate gives those under a load.",
            with_figures().count()
        )
    })
}

/// What tells two curves over the size apart.
type Curve<'a> = (&'a str, bool, u32, u32, u32, Footprint);

/// The crossover of every curve of copies within local memory with at least three sizes.
#[must_use]
pub fn crossovers(cells: &[Measured]) -> Vec<Crossover> {
    let mut curves: Vec<(Curve<'_>, Vec<&Measured>)> = Vec::new();
    for m in cells {
        let c = &m.cell;
        if c.is_baseline() || c.op != Op::Copy || c.direction != Direction::Local || m.ratio.is_none() {
            continue;
        }
        let key = (c.engine.as_str(), m.model, c.depth, c.batch, c.queues, c.footprint);
        match curves.iter_mut().find(|(k, _)| *k == key) {
            Some((_, curve)) => curve.push(m),
            None => curves.push((key, vec![m])),
        }
    }
    let mut all = Vec::new();
    for ((engine, model, depth, batch, queues, footprint), mut curve) in curves {
        if curve.len() < 3 {
            continue;
        }
        curve.sort_by_key(|m| m.cell.size);
        let mut add = |against: &str, ratios: &[(u64, f64)]| {
            let (bytes, always) = crossover(ratios);
            all.push(Crossover {
                engine: engine.to_owned(),
                model,
                depth,
                batch,
                queues,
                footprint,
                against: against.to_owned(),
                bytes,
                always,
            });
        };
        let here: Vec<_> =
            curve.iter().filter_map(|m| Some((m.cell.size, m.ratio.as_ref()?.median))).collect();
        add(HERE, &here);
        if published::profile_of(engine) == Some(DSA_CPU.profile) && footprint != Footprint::Hot {
            let published: Vec<_> = curve
                .iter()
                .filter_map(|m| {
                    let (_, mib) = DSA_CPU.points.iter().find(|p| p.0 == m.cell.size)?;
                    Some((m.cell.size, m.bytes_per_second.as_ref()?.median / (mib * f64::from(1 << 20))))
                })
                .collect();
            if published.len() >= 3 {
                add(DSA_CPU.name, &published);
            }
        }
    }
    all
}

/// The knee of every series over the depth with at least three depths. Under a rate there is none: throughput is what was asked for.
#[must_use]
pub fn knees(campaign: &Campaign, cells: &[Measured]) -> Vec<Knee> {
    let mut knees: Vec<Knee> = Vec::new();
    if campaign.rate.is_some() {
        return knees;
    }
    for m in cells {
        let same = |other: &&Measured| {
            let (a, b) = (&m.cell, &other.cell);
            (a.engine == b.engine && a.op == b.op && a.size == b.size && a.queues == b.queues)
                && (a.segments == b.segments && a.footprint == b.footprint && a.direction == b.direction)
                && other.bytes_per_second.is_some()
        };
        let known = knees.iter().any(|k| {
            k.engine == m.cell.engine
                && k.size == m.cell.size
                && k.footprint == m.cell.footprint
                && k.direction == m.cell.direction
                && k.queues == m.cell.queues
        });
        if known || m.cell.is_baseline() || m.cell.op != Op::Copy || m.bytes_per_second.is_none() {
            continue;
        }
        let mut series: Vec<(u32, f64)> = Vec::new();
        for other in cells.iter().filter(same) {
            let speed = other.bytes_per_second.as_ref().map_or(0.0, |f| f.median);
            match series.iter_mut().find(|(depth, _)| *depth == other.cell.depth) {
                // The best number of operations for each doorbell counts.
                Some((_, best)) => *best = best.max(speed),
                None => series.push((other.cell.depth, speed)),
            }
        }
        series.sort_by_key(|(depth, _)| *depth);
        let best = series.iter().map(|s| s.1).fold(0.0, f64::max);
        if series.len() < 3 {
            continue;
        }
        if let Some((depth, speed)) = series.iter().find(|(_, speed)| *speed >= 0.95 * best) {
            knees.push(Knee {
                engine: m.cell.engine.clone(),
                model: m.model,
                size: m.cell.size,
                footprint: m.cell.footprint,
                direction: m.cell.direction,
                queues: m.cell.queues,
                depth: *depth,
                bytes_per_second: *speed,
                best,
            });
        }
    }
    knees
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knees(cells: &[Measured]) -> Vec<Knee> {
        super::knees(&Campaign::default(), cells)
    }

    #[test]
    fn the_crossover_is_where_it_stays_above() {
        assert_eq!(crossover(&[(64, 2.0), (128, 3.0)]), (Some(64.0), true));
        assert_eq!(crossover(&[(64, 0.5), (128, 0.9)]), (None, false));
        assert_eq!(crossover(&[]), (None, false));
        let (at, always) = crossover(&[(64, 0.5), (128, 1.0), (256, 2.0)]);
        assert!(!always && (at.unwrap() - 128.0).abs() < 1e-6, "1 is there: {at:?}");
        let (at, always) = crossover(&[(64, 0.5), (256, 2.0), (1024, 4.0)]);
        assert!(!always && (at.unwrap() - 128.0).abs() < 1e-6, "half way between, on log axes: {at:?}");
        let (at, _) = crossover(&[(64, 2.0), (128, 0.5), (512, 2.0)]);
        assert!(at.unwrap() > 128.0, "a lucky first size does not count");
    }

    /// Copies by `engine` at these sizes, this many times as fast as `memcpy`.
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
    fn every_curve_has_a_crossover_of_its_own() {
        let cold = curve("cpu", &[(1024, 4.0), (64, 0.5), (256, 2.0)]);
        let mut hot = curve("cpu", &[(64, 0.1), (256, 0.2), (1024, 0.3)]);
        hot.iter_mut().for_each(|m| m.cell.footprint = Footprint::Hot);
        let mut fill = curve("cpu", &[(64, 9.0), (256, 9.0), (1024, 9.0)]);
        fill.iter_mut().for_each(|m| m.cell.op = Op::Fill);
        let mut push = curve("cpu", &[(64, 9.0), (256, 9.0), (1024, 9.0)]);
        push.iter_mut().for_each(|m| m.cell.direction = Direction::Push);
        let baseline = curve("memcpy", &[(64, 1.0), (256, 1.0), (1024, 1.0)]);
        let few = curve("sim", &[(64, 2.0), (256, 2.0)]);
        let failed = curve("doca", &[(64, 2.0), (256, 2.0), (1024, 2.0)])
            .into_iter()
            .map(|m| Measured { ratio: None, ..m })
            .collect();
        let all = [cold, hot, fill, push, baseline, few, failed].concat();
        let found = crossovers(&all);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!((found[0].bytes.unwrap() - 128.0).abs() < 1e-6 && found[0].footprint == Footprint::Cold);
        assert!(found[1].bytes.is_none() && !found[1].always && found[1].footprint == Footprint::Hot);
        assert!(found.iter().all(|c| c.engine == "cpu" && c.against == HERE));
    }

    #[test]
    fn only_the_published_device_is_held_against_the_published_cpu() {
        // Of the published CPU: 5,872 MiB/s at 64 B, 6,998 at 256 B, 5,137 at 1 KiB.
        let published = |name: &str, size: u64, times: f64| {
            let (_, mib) = DSA_CPU.points.iter().find(|p| p.0 == size).expect("published");
            let mut m = curve(name, &[(size, 0.1)]).remove(0);
            m.bytes_per_second = crate::stats::Figures::of(vec![times * mib * f64::from(1 << 20)]);
            m
        };
        let of =
            |name: &str| [published(name, 64, 0.5), published(name, 256, 2.0), published(name, 1024, 4.0)];
        let found = crossovers(&of("sim:seed=7,profile=dsa"));
        assert_eq!(found.iter().map(|c| c.against.as_str()).collect::<Vec<_>>(), [HERE, DSA_CPU.name]);
        assert!(found[0].bytes.is_none() && (found[1].bytes.unwrap() - 128.0).abs() < 1e-6, "{found:?}");
        for other in ["sim:profile=ioat", "sim:profile=dsa,latency=1us", "cpu:profile=dsa", "doca"] {
            assert_eq!(crossovers(&of(other)).len(), 1, "{other}");
        }
        let hot = of("sim:profile=dsa").map(|mut m| {
            m.cell.footprint = Footprint::Hot;
            m
        });
        assert_eq!(crossovers(&hot).len(), 1, "it was measured in main memory");
        let [one, two, mut three] = of("sim:profile=dsa");
        three.cell.size = 1000;
        assert_eq!(crossovers(&[one, two, three]).len(), 1, "two sizes say nothing");
        // As published.
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
        // Of several numbers of operations for a doorbell the best counts, and 95 % are enough.
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
        // A hundred operations on each of two queues; the last one takes 5 ms, as all do.
        m.cell.queues = 2;
        m.latency.as_mut().expect("measured").p50 = 5_000_000;
        let mut part = |seconds: f64| {
            m.ops_per_second = crate::stats::Figures::of(vec![200.0 / seconds]);
            part_of_rate(&campaign, &m)
        };
        assert_eq!((part(0.099 + 0.005), part(0.1055)), (None, None));
        assert!((part(0.205).expect("missed") - 0.5).abs() < 1e-9);
        // A queue that grows: half of the rate is reached, and the median of all latencies is a quarter of all the time that it takes.
        let mut of = |samples: &[f64], p50: u64| {
            m.latency.as_mut().expect("measured").p50 = p50;
            m.ops_per_second = crate::stats::Figures::of(samples.to_vec());
            part_of_rate(&campaign, &m)
        };
        assert!((of(&[1000.0; 60], 3_000_000_000).expect("missed") - 0.5).abs() < 1e-9);
        assert!((of(&[1960.0; 60], 60_000_000).expect("missed") - 0.98).abs() < 1e-9);
        // The first one ends late, as all do; another makes up for a delay.
        assert_eq!(of(&[1500.0, 2000.0, 2000.0], 30_000_000), None);
        assert_eq!(of(&[2000.0, 1500.0, 3000.0], 5_000_000), None);
        let mut results = crate::results::tests::sample();
        assert_eq!(missed(&results), None);
        results.campaign.rate = Some(1e9);
        let said = missed(&results).expect("nobody does that");
        assert!(said.contains("missed in 8 of 8 cells"), "{said}");
    }
}
