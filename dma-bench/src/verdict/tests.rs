//! Verdicts on known curves, under more noise than most machines have.

use std::time::Duration;

use super::stats::{Figures, attainable, blocks, interval, mann_whitney, median};
use super::*;
use crate::plan::Verify;
use crate::run::contender::Contender;
use crate::run::drive::{COMPARE_LITTLE, Extent, Worker};
use crate::run::layout::Layout;
use crate::run::memory::Memory;

/// SplitMix64, which produces the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.next().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * self.next()).cos()
    }
}

/// The disturbances of a machine.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// Standard deviation of each sample, as a fraction.
    spread: f64,
    /// Fraction of the samples that an interrupt or another process disturbs, in the engine or in
    /// memcpy.
    tails: f64,
    /// Change of the ratio from the start of the run to its end, as a fraction.
    drift: f64,
    /// Fraction of the run during which the engine runs at half its speed, without a break.
    burst: f64,
}

const PASSES: usize = 40;
const EACH: usize = 3;

/// Returns the ratios of one size in the order of measurement.
fn ratios(truth: f64, noise: Noise, burst: f64, random: &mut Random) -> Vec<f64> {
    let mut all = Vec::with_capacity(PASSES * EACH);
    let mut weather = 0.0;
    for pass in 0..PASSES {
        let at = pass as f64 / PASSES as f64;
        // Consecutive passes share a part of the noise.
        weather = 0.7 * weather + 0.4 * noise.spread * random.normal();
        let hit = at >= burst && at < burst + noise.burst;
        for _ in 0..EACH {
            let mut ratio = truth
                * (noise.spread * random.normal() + weather + noise.drift * (at - 0.5)).exp()
                * if hit { 0.5 } else { 1.0 };
            if random.next() < noise.tails {
                // The tail is a Pareto distribution: some samples take many times as long.
                let longer = random.next().max(1e-3).powf(-0.8);
                ratio *= if random.next() < 0.5 { longer } else { 1.0 / longer };
            }
            all.push(ratio);
        }
    }
    all
}

fn sizes() -> Vec<u64> {
    (6..=22).map(|n| 1 << n).collect()
}

/// Returns curves of known ratios, indexed by size.
fn truths() -> Vec<(String, Vec<f64>)> {
    let curve = |f: &dyn Fn(usize) -> f64| (0..sizes().len()).map(f).collect::<Vec<f64>>();
    let crossing = |at: f64| move |i: usize| (1.35_f64).powf(i as f64 - at).clamp(0.05, 2.5);
    let mut all = vec![
        ("never".to_owned(), curve(&|i| 0.3 + 0.03 * i as f64)),
        ("always".to_owned(), curve(&|i| 1.3 + 0.05 * i as f64)),
        ("tie".to_owned(), curve(&|_| 1.0)),
        ("island".to_owned(), curve(&|i| if i == 8 { 1.6 } else { 0.7 })),
        ("dip".to_owned(), curve(&|i| if i == 14 { 0.81 } else { 1.2 + 0.08 * i as f64 })),
        ("wide island".to_owned(), curve(&|i| if (5..=13).contains(&i) { 1.4 } else { 0.8 })),
        ("crosses".to_owned(), curve(&crossing(7.5))),
        ("crosses at a size".to_owned(), curve(&crossing(9.0))),
    ];
    // Returns the curves of the models, one copy at a time, relative to a memcpy with 5 ns and 10
    // GB/s.
    for name in ["bluefield2", "bluefield3", "ioat", "dsa"] {
        let memcpy = |size: u64| 1e9 / (5.0 + size as f64 / 10.0);
        all.push((name.to_owned(), sizes().into_iter().map(|s| model_rate(name, s) / memcpy(s)).collect()));
    }
    all
}

/// Returns a model's copies per second, one copy at a time, on its virtual clock.
fn model_rate(profile: &str, size: u64) -> f64 {
    let cell = Cell {
        engine: format!("sim:profile={profile}"),
        op: Op::Copy,
        size,
        depth: 1,
        batch: 1,
        queues: 1,
        segments: 1,
        footprint: Footprint::Hot,
        direction: Direction::Local,
    };
    let contender = Contender::open(&cell.engine).unwrap();
    let bytes = Layout::bytes(&cell, 0);
    let memory = Memory::new(&contender.engine, None, bytes, Direction::Local, false).unwrap();
    let layout = Layout::new(&cell, 0, 0);
    let timeout = Duration::from_secs(60);
    let mut worker = Worker::new(&contender, &cell, memory, layout, Verify::Sample, timeout).unwrap();
    let extent = Extent { warm: 2, ops: 4, timed_every: 1, compare: COMPARE_LITTLE, compare_each: false };
    let counts = worker.run(extent).unwrap();
    counts.ops as f64 / counts.seconds()
}

/// Returns the points of one run over a curve.
fn run(truth: &[f64], noise: Noise, random: &mut Random) -> Vec<Point> {
    // The same burst affects all sizes of a run.
    let burst = random.next() * (1.0 - noise.burst);
    let risk = RISK / (3 * truth.len()) as f64;
    let of = |(size, truth): (u64, &f64)| point(size, &ratios(*truth, noise, burst, random), PASSES, risk);
    sizes().into_iter().zip(truth).filter_map(of).collect()
}

/// Returns true if a class contradicts the truth.
fn wrong(class: Class, truth: f64) -> bool {
    match class {
        Class::Faster => truth <= 1.0,
        Class::Slower => truth >= 1.0,
        Class::AsFast => !(1.0 / (1.0 + AS_FAST_AROUND_ONE)..=1.0 + AS_FAST_AROUND_ONE).contains(&truth),
        Class::NotDecided => false,
    }
}

/// Returns true if the class is "not decided" although the ratio is clearly faster, clearly slower or
/// exactly 1.
fn open(class: Class, truth: f64) -> bool {
    class == Class::NotDecided && (!(0.85..=1.18).contains(&truth) || truth == 1.0)
}

const NOISES: [Noise; 5] = [
    Noise { spread: 0.01, tails: 0.0, drift: 0.0, burst: 0.0 },
    Noise { spread: 0.03, tails: 0.02, drift: 0.0, burst: 0.0 },
    Noise { spread: 0.02, tails: 0.2, drift: 0.0, burst: 0.0 },
    Noise { spread: 0.02, tails: 0.05, drift: 0.04, burst: 0.0 },
    Noise { spread: 0.02, tails: 0.05, drift: 0.01, burst: 0.1 },
];

/// The number of runs over each curve with each noise. `ci/bench.sh verdicts` makes more.
fn runs() -> u64 {
    std::env::var("VERDICT_RUNS").map_or(25, |n| n.parse().expect("a number"))
}

/// No run may be wrong, and at most 5 of 100 runs may leave a clear size undecided.
#[test]
fn verdicts_on_known_curves_are_right() {
    let runs = runs();
    for (name, truth) in truths() {
        for (kind, noise) in NOISES.into_iter().enumerate() {
            let mut left_open = 0;
            for seed in 0..runs {
                let mut random = Random(seed << 8 | kind as u64);
                let points = run(&truth, noise, &mut random);
                assert_eq!(points.len(), truth.len());
                for (p, truth) in points.iter().zip(&truth) {
                    assert!(!wrong(p.class, *truth), "{name}, seed {seed}, {noise:?}: {truth} is {p:?}");
                }
                left_open += u64::from(points.iter().zip(&truth).any(|(p, truth)| open(p.class, *truth)));
            }
            println!("{name}, {noise:?}: {left_open} of {runs} runs left something open");
            assert!(100 * left_open <= 5 * runs, "{name}, {noise:?}: {left_open} of {runs} are open");
        }
    }
}

/// Under overwhelming noise the verdict is "not decided", not a guess: no more runs are wrong than [`RISK`]
/// allows, which is none of README's 25 runs over each curve.
#[test]
fn hopeless_noise_decides_nothing_wrong() {
    let noise = Noise { spread: 0.4, tails: 0.3, drift: 0.3, burst: 0.0 };
    let (mut of, mut wrong_runs) = (0, Vec::new());
    for (kind, (name, truth)) in truths().into_iter().enumerate() {
        for seed in 0..runs() {
            let points = run(&truth, noise, &mut Random(seed << 8 | kind as u64));
            let near_one = points.iter().zip(&truth).filter(|(_, t)| (0.8..1.25).contains(*t));
            let wrong_point = near_one.into_iter().find(|(p, truth)| wrong(p.class, **truth));
            wrong_runs.extend(wrong_point.map(|(p, truth)| format!("{name}, seed {seed}: {truth} is {p:?}")));
            of += 1;
        }
    }
    println!("{} of {of} runs are wrong", wrong_runs.len());
    assert!(wrong_runs.len() as f64 <= RISK * f64::from(of), "of {of} runs: {wrong_runs:#?}");
}

/// Simulated samples show that the interval contains the median as often as promised, and is not much
/// too wide.
#[test]
fn intervals_cover_the_median() {
    let mut random = Random(7);
    for (n, risk) in [(12, 0.05), (24, 0.1), (40, 0.2)] {
        let rounds = 20_000;
        let mut missed = 0;
        for _ in 0..rounds {
            // The samples are log-normal, and so skewed. Their median is 1.
            let samples: Vec<f64> = (0..n).map(|_| random.normal().exp()).collect();
            let (low, high) = interval(&samples, risk).unwrap();
            missed += i32::from(low > 1.0 || high < 1.0);
        }
        let part = f64::from(missed) / f64::from(rounds);
        assert!(part <= risk * 1.05 && part > risk / 8.0, "{n} {risk}: {part}");
    }
    assert_eq!(interval(&[1.0; 5], 0.05), None, "five samples are too few for 5 %");
    assert_eq!(interval(&[3.0, 1.0, 2.0, 5.0, 4.0, 6.0], 0.05), Some((1.0, 6.0)));
    assert_eq!((interval(&[], 0.05), interval(&[1.0], 1.0)), (None, Some((1.0, 1.0))));
}

fn points(classes: &[Class]) -> Vec<Point> {
    let point = |(n, class): (usize, &Class)| {
        let low = (*class != Class::NotDecided).then_some(1.0);
        Point { size: 1024 << n, ratio: 1.0, low, high: low, class: *class }
    };
    classes.iter().enumerate().map(point).collect()
}

#[test]
fn ranges_are_said_as_people_say_them() {
    use Class::{AsFast as A, Faster as F, NotDecided as N, Slower as S};
    for (classes, says) in [
        (&[F, F, F][..], "faster at all sizes, 1 KiB to 4 KiB"),
        (&[S], "slower at 1 KiB"),
        (&[S, S, F, F], "slower up to 2 KiB, faster from 4 KiB"),
        (&[S, A, F, F], "slower up to 1 KiB, as fast at 2 KiB, faster from 4 KiB"),
        (&[S, F, F, S], "slower up to 1 KiB, faster from 2 KiB to 4 KiB, slower from 8 KiB"),
        (&[S, S, F, S, S], "slower at all sizes, 1 KiB to 16 KiB but faster at 4 KiB"),
        (&[S, F, F, S, F, F], "slower up to 1 KiB, faster from 2 KiB but slower at 8 KiB"),
        (&[S, F, S], "slower up to 1 KiB, faster at 2 KiB, slower from 4 KiB"),
        (&[S, S, N, F, F], "slower up to 2 KiB, faster from 8 KiB (not decided: 4 KiB)"),
        (&[F, N, N, F], "faster at all sizes, 1 KiB to 8 KiB (not decided: 2 KiB to 4 KiB)"),
        (&[N, F, F], "faster from 2 KiB (not decided: 1 KiB)"),
        (&[F, F, N], "faster up to 2 KiB (not decided: 4 KiB)"),
        (&[N, N], "not decided: too few; give more"),
        (&[], "nothing was compared"),
    ] {
        assert_eq!(text(&points(classes), "too few; give more"), says, "{classes:?}");
    }
    let mut busy = points(&[N, N]);
    busy.iter_mut().for_each(|p| (p.low, p.high) = (Some(0.5), Some(2.0)));
    assert_eq!(text(&busy, "too few"), "not decided: the figures varied too much");
}

#[test]
fn medians() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    let figures = Figures::of(vec![3.0, 1.0, 2.0]).unwrap();
    assert_eq!((figures.min, figures.median, figures.max), (1.0, 2.0, 3.0));
    let figures = Figures::of((1..=9).rev().map(f64::from).collect()).unwrap();
    assert_eq!(figures.quartiles(), (3.0, 7.0));
    let twice = Figures::of(vec![3.0, 1.0, 2.0]).unwrap().times(2.0);
    assert_eq!(twice, Figures { min: 2.0, median: 4.0, max: 6.0, samples: vec![6.0, 2.0, 4.0] });
}

/// Enumerates every way to choose the ranks of the first side.
fn oracle(a: &[f64], b: &[f64]) -> f64 {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let u_of = |chosen: u32| {
        let mut u = 0.0;
        for (i, x) in all.iter().enumerate() {
            for (j, y) in all.iter().enumerate() {
                if chosen >> i & 1 == 1 && chosen >> j & 1 == 0 {
                    u += if x == y { 0.5 } else { f64::from(x > y) };
                }
            }
        }
        u
    };
    let middle = (a.len() * b.len()) as f64 / 2.0;
    let seen = (u_of((1 << a.len()) - 1) - middle).abs();
    let ways = (0..1_u32 << all.len()).filter(|w| w.count_ones() as usize == a.len());
    let (mut far, mut total) = (0.0, 0.0);
    for way in ways {
        total += 1.0;
        far += f64::from((u_of(way) - middle).abs() >= seen);
    }
    far / total
}

#[test]
fn the_exact_test_counts_right() {
    for (a, b) in [
        (vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]),
        (vec![1.0, 5.0, 3.0, 9.0], vec![4.0, 2.0, 6.0]),
        (vec![1.0, 2.0, 8.0, 9.0, 3.0], vec![4.0, 5.0, 6.0, 7.0, 10.0]),
        (vec![7.0], vec![1.0, 2.0]),
        // The samples have ties within the sides and between them.
        (vec![1.0, 1.0, 2.0, 2.0, 3.0, 4.0], vec![3.0, 3.0, 4.0, 5.0, 5.0]),
        (vec![0.0, 0.0, 0.0, 1.0], vec![0.0, 1.0, 1.0, 1.0, 1.0]),
        (vec![5.0; 3], vec![1.0; 4]),
    ] {
        assert!((mann_whitney(&a, &b) - oracle(&a, &b)).abs() < 1e-12, "{a:?} {b:?}");
        assert!((mann_whitney(&b, &a) - oracle(&a, &b)).abs() < 1e-12, "{b:?} {a:?}");
    }
}

#[test]
fn far_apart_is_not_noise_and_equal_is() {
    let low: Vec<f64> = (0..30).map(f64::from).collect();
    let high: Vec<f64> = (100..130).map(f64::from).collect();
    assert!(mann_whitney(&low, &high) < 1e-9);
    assert!(mann_whitney(&low, &low) > 0.9);
    assert_eq!(mann_whitney(&[1.0; 5], &[1.0; 5]), 1.0);
    assert_eq!(mann_whitney(&[], &[1.0]), 1.0);
}

#[test]
fn the_smallest_chance_is_that_of_samples_that_do_not_overlap() {
    for (n, m) in [(1, 1), (3, 3), (5, 5), (2, 9), (12, 12)] {
        let low: Vec<f64> = (0..n).map(f64::from).collect();
        let high: Vec<f64> = (0..m).map(|i| f64::from(i) + 100.0).collect();
        let least = attainable(low.len(), high.len());
        assert!((mann_whitney(&low, &high) / least - 1.0).abs() < 1e-9, "{n} {m}: {least}");
    }
    assert!((attainable(5, 5) - 0.0079).abs() < 1e-4);
    assert_eq!((attainable(0, 5), attainable(1, 1)), (1.0, 1.0));
}

#[test]
fn samples_of_one_pass_are_one() {
    assert_eq!(blocks(&[1.0, 2.0, 3.0, 10.0, 20.0, 30.0], 2), [2.0, 20.0]);
    assert_eq!(blocks(&[1.0, 2.0, 3.0, 4.0, 5.0], 2), [1.5, 4.0], "the samples are divided among the parts");
    assert_eq!(blocks(&[1.0, 2.0], 12), [1.0, 2.0], "parts without a sample do not count");
    assert_eq!(blocks(&[], 12), Vec::<f64>::new());
}
