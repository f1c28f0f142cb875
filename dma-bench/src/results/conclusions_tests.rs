//! Verdicts, knees and missed rates, computed from known figures.

use super::conclusions::*;
use super::*;
use crate::plan::{Direction, Op};
use crate::verdict::MEMCPY_HERE;

fn knees(cells: &[Measured]) -> Vec<Knee> {
    super::conclusions::knees(&Campaign::default(), cells)
}

fn verdicts(cells: &[Measured]) -> Vec<Verdict> {
    super::conclusions::verdicts(&Campaign::default(), cells, false)
}

#[test]
fn the_remedy_for_too_few_passes_is_about_what_limited_them() {
    let cells = curve("cpu", &[(64, 1.0)]);
    let says = |change: &dyn Fn(&mut Campaign), interrupted: bool| {
        let mut campaign = Campaign::default();
        change(&mut campaign);
        super::conclusions::verdicts(&campaign, &cells, interrupted).remove(0).text
    };
    for (change, says_so) in [
        (&(|c: &mut Campaign| c.samples = 3) as &dyn Fn(&mut Campaign), "give more (--samples or -t)"),
        (&|c| c.passes = 5, "give more --passes"),
        (&|c| c.limit = Some(3.0), "give a greater --limit"),
        (&|_| (), "the figures varied too much"),
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
        m.ratio = crate::verdict::stats::Figures::of(vec![ratio]);
        m.bytes_per_second = crate::verdict::stats::Figures::of(vec![ratio * 1e10]);
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
        m.bytes_per_second = crate::verdict::stats::Figures::of(vec![times * mib * f64::from(1 << 20)]);
        m
    };
    let of = |name: &str| [published(name, 64, 0.5), published(name, 256, 2.0), published(name, 1024, 4.0)];
    let found = verdicts(&of("sim:seed=7,profile=dsa"));
    assert_eq!(found.iter().map(|c| c.against.as_str()).collect::<Vec<_>>(), [MEMCPY_HERE, DSA_CPU.name]);
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
    assert_eq!(verdicts(&[one, two, three]).len(), 1, "two sizes are too few for a verdict");
    // These are the published sizes.
    assert!(DSA_CPU.points.windows(2).all(|p| p[1].0 >= 2 * p[0].0 && p[1].0 <= 4 * p[0].0));
    assert_eq!(DSA_CPU.points[10], (1_048_576, 9_749.0));
}

#[test]
fn series_of_different_cells_have_knees_of_their_own() {
    let at = |depth: u32, speed: f64, change: &dyn Fn(&mut Measured)| {
        let mut m = curve("cpu", &[(4096, 1.0)]).remove(0);
        m.cell.depth = depth;
        m.bytes_per_second = crate::verdict::stats::Figures::of(vec![speed]);
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
    // At depth 2, only another number of operations for each doorbell reaches 95 % of the best
    // throughput. That is sufficient.
    let more = [series(1.0, &|_| ()).to_vec(), vec![at(2, 0.95, &|m| m.cell.batch = 2)]].concat();
    assert_eq!(knees(&more)[0].depth, 2);
}

#[test]
fn the_knee_is_the_smallest_depth_that_suffices() {
    let like = crate::results::tests::sample().cells.remove(5);
    let at = |depth: u32, speed: f64| {
        let mut m = like.clone();
        m.cell.depth = depth;
        m.bytes_per_second = crate::verdict::stats::Figures::of(vec![speed]);
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
    assert!(knees(&cells[..2]).is_empty(), "two depths are too few for a knee");
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
    assert_eq!((knees(&series).len(), super::conclusions::knees(&campaign, &series).len()), (1, 0));
    // The cell has a hundred operations on each of two queues. The latency of every operation is 5
    // ms, also of the last.
    m.cell.queues = 2;
    m.latency.as_mut().expect("measured").p50 = 5_000_000;
    let mut part = |seconds: f64| {
        m.ops_per_second = crate::verdict::stats::Figures::of(vec![200.0 / seconds]);
        part_of_rate(&campaign, &m)
    };
    assert_eq!((part(0.099 + 0.005), part(0.1055)), (None, None));
    assert!((part(0.205).expect("missed") - 0.5).abs() < 1e-9);
    // In a growing queue, half of the rate is reached, and the median latency is a quarter of the
    // whole duration.
    let mut of = |samples: &[f64], p50: u64| {
        m.latency.as_mut().expect("measured").p50 = p50;
        m.ops_per_second = crate::verdict::stats::Figures::of(samples.to_vec());
        part_of_rate(&campaign, &m)
    };
    assert!((of(&[1000.0; 60], 3_000_000_000).expect("missed") - 0.5).abs() < 1e-9);
    assert!((of(&[1960.0; 60], 60_000_000).expect("missed") - 0.98).abs() < 1e-9);
    // The first sample ends late, as all others do, except one that catches up.
    assert_eq!(of(&[1500.0, 2000.0, 2000.0], 30_000_000), None);
    assert_eq!(of(&[2000.0, 1500.0, 3000.0], 5_000_000), None);
    let mut results = crate::results::tests::sample();
    assert_eq!(missed(&results), None);
    results.campaign.rate = Some(1e9);
    let said = missed(&results).expect("nobody does that");
    assert!(said.contains("missed in 8 of 8 cells"), "{said}");
}
