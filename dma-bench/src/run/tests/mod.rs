//! Tests of the order of passes, of the queues that stay open, and of time estimates.

mod synthetic_engine;

use super::active_cell::ActiveCell;
use super::calibration::{is_in_shared_cache, model_ops, warm_ops, warm_up_of_pass};
use super::runner::{ActiveGroup, split_by_engine};
use super::*;
use crate::plan::{Cell, Direction, Footprint, Op, Sweep};
use crate::results::Measured;

/// Counts the samples that are cancelled.
struct Fewer(u64);

impl Observer for Fewer {
    fn begin(&mut self, _: u64, _: f64) {}
    fn fewer(&mut self, samples: u64) {
        self.0 += samples;
    }
    fn sample(&mut self, _: &Cell, _: bool, _: f64) {}
    fn cell(&mut self, _: &Measured) {}
    fn end(&mut self) {}
}

#[test]
fn the_warm_up_is_shared_out_among_the_passes() {
    let seconds = |change: &dyn Fn(&mut Campaign)| {
        let mut campaign = Campaign { warm_up: 0.3, ..Campaign::default() };
        change(&mut campaign);
        let passes = campaign.planned_passes();
        (passes, warm_up_of_pass(&campaign) * f64::from(passes))
    };
    for (expected, (passes, all)) in [
        ((24, 0.3), seconds(&|_| ())),
        ((2, 0.3), seconds(&|c| c.samples = 2)),
        ((5, 0.3), seconds(&|c| c.passes = 5)),
        ((1, 0.3), seconds(&|c| c.rate = Some(1000.0))),
        ((24, 0.0), seconds(&|c| c.warm_up = 0.0)),
        ((24, 0.012), seconds(&|c| c.warm_up = 0.001)),
    ] {
        assert!(passes == expected.0 && (all - expected.1).abs() < 1e-9, "{passes} {all} {expected:?}");
    }
    let quick = crate::plan::Preset::Quick.campaign().unwrap();
    assert!(
        (warm_up_of_pass(&quick) - 0.006).abs() < 1e-9,
        "this is longer than the CPU engine needs to choose a kernel"
    );
}

#[test]
fn a_fifth_of_a_sample_runs_before_it_for_at_most_ten_milliseconds() {
    let cell = |footprint| Cell {
        engine: "cpu".to_owned(),
        op: Op::Copy,
        size: 64,
        depth: 4,
        batch: 1,
        queues: 1,
        segments: 1,
        footprint,
        direction: Direction::Local,
    };
    for (per_op, cold, hot) in [(1e-6, 10, 10), (2e-3, 5, 5), (4e-3, 2, 4), (1.0, 1, 4)] {
        assert_eq!(warm_ops(&cell(Footprint::Cold), 50, per_op, 4), cold, "{per_op}");
        assert_eq!(warm_ops(&cell(Footprint::Hot), 50, per_op, 4), hot, "{per_op}: each buffer is used once");
    }
}

#[test]
fn an_engine_and_memcpy_are_warmed_up_alike() {
    const MIB: u64 = 1 << 20;
    assert_eq!([64, MIB / 2, MIB, 4 * MIB, 1 << 40].map(model_ops), [128, 128, 64, 32, 32]);
    let sweep = Sweep {
        sizes: "16K,64K,256K".parse().expect("sizes"),
        depths: "1,4,32".parse().expect("depths"),
        queues: "1,2".parse().expect("queues"),
        footprints: vec![Footprint::Hot, Footprint::Cold],
        ..Sweep::default()
    };
    let groups = Campaign { sweeps: vec![sweep], ..Campaign::default() }.groups(&["cpu".to_owned()]);
    for cell in groups.iter().flat_map(|g| &g.cells) {
        let bytes = cell.size * u64::from(cell.depth * cell.queues);
        assert_eq!(is_in_shared_cache(cell), cell.footprint == Footprint::Hot && bytes > MIB / 2, "{cell}");
        assert_eq!(is_in_shared_cache(cell), is_in_shared_cache(&cell.baseline().unwrap()), "{cell}");
    }
}

#[test]
fn queues_of_what_learns_stay_open() {
    let sweep = Sweep { depths: "1,4".parse().expect("depths"), ..Sweep::default() };
    let footprint = Some(1 << 20);
    let warm_up = 0.005;
    let few =
        Campaign { sweeps: vec![sweep], samples: 10, passes: 5, warm_up, footprint, ..Campaign::default() };
    let mut many = few.clone();
    many.sweeps[0].queues = "33".parse().expect("queues");
    let (cpu, bounded) = ("cpu:threads=0", "sim:profile=ioat,clock=real,queues=1");
    for (campaign, name, stay) in [(&few, cpu, true), (&many, cpu, false), (&few, bounded, false)] {
        let groups = campaign.groups(&[name.to_owned()]);
        let (contender, baseline) = (Contender::open(name).unwrap(), dma::open(cpu).unwrap());
        let mut runner =
            Runner::new(campaign, Engines::new(vec![contender], groups.clone(), campaign), baseline);
        for group in groups {
            let mut group = ActiveGroup::new(&group);
            let mut before = vec![(0, None); group.cells.len()];
            for (pass, fails) in [(0, false), (1, false), (2, true), (3, false)] {
                if fails {
                    runner.engines.reopen(name);
                }
                runner.position.pass = pass;
                runner.run_pass(&mut group, &mut Fewer(0));
                for (cell, before) in group.cells.iter().zip(&mut before) {
                    assert!(cell.error.is_none(), "{}: {:?}", cell.cell, cell.error);
                    let queues = if stay { cell.cell.queues as usize } else { 0 };
                    assert_eq!(cell.workers.len(), queues, "{}", cell.cell);
                    for worker in &cell.workers {
                        let (done, engine) = (worker.all_completed(), Some(worker.engine_id()));
                        assert_eq!(engine == before.1, pass > 0 && !fails, "{} in pass {pass}", cell.cell);
                        assert!(fails || done > before.0, "{} uses the same queue in pass {pass}", cell.cell);
                        *before = (done, engine);
                    }
                }
            }
            runner.position.pass = 4;
            runner.run_pass(&mut group, &mut Fewer(0));
            assert!(group.cells.iter().all(|c| c.workers.is_empty()), "this was the last pass");
        }
    }
}

#[test]
fn no_two_cells_of_one_engine_are_open_at_once() {
    let sweep = Sweep { depths: "1..64".parse().expect("depths"), ..Sweep::default() };
    let names = ["cpu", "sim", "doca"].map(str::to_owned);
    let campaign = Campaign { sweeps: vec![sweep], ..Campaign::default() };
    let groups = campaign.groups(&names);
    let mut cells: Vec<ActiveCell> = groups[0].cells.iter().cloned().map(ActiveCell::new).collect();
    let lists = split_by_engine(cells.iter_mut().collect());
    assert_eq!(lists.len(), 7);
    assert!(lists.iter().all(|t| t.len() == 3
        && t[0].cell.engine != t[1].cell.engine
        && t[1].cell.engine != t[2].cell.engine));
}
