//! The order of passes, what is opened and stays open, and how long it takes.

use super::calibration::{few, is_shared, rounds, warm_up_of_pass};
use super::visit::apart;
use super::*;
use crate::contender::Contender;
use crate::nearness::Nearness;
use crate::pairs::{Pair, Seen, Slot};
use crate::plan::{Cell, Footprint, Sweep};
use crate::record::Record;
use crate::results::Measured;
use crate::run::Observer;

/// Counts repetitions that will not come.
struct Fewer(u64);

impl Observer for Fewer {
    fn begin(&mut self, _: u64, _: Option<f64>) {}
    fn fewer(&mut self, repetitions: u64) {
        self.0 += repetitions;
    }
    fn repetition(&mut self, _: &Cell, _: bool, _: f64) {}
    fn cell(&mut self, _: &Measured) {}
    fn end(&mut self) {}
}

#[test]
fn the_warm_up_is_shared_out_among_the_passes() {
    let seconds = |change: &dyn Fn(&mut Campaign)| {
        let mut campaign = Campaign { warm_up: 0.3, ..Campaign::default() };
        change(&mut campaign);
        (passes(&campaign), warm_up_of_pass(&campaign) * f64::from(passes(&campaign)))
    };
    for (expected, (passes, all)) in [
        ((24, 0.3), seconds(&|_| ())),
        ((2, 0.3), seconds(&|c| c.repetitions = 2)),
        ((5, 0.3), seconds(&|c| c.passes = 5)),
        ((1, 0.3), seconds(&|c| c.rate = Some(1000.0))),
        ((24, 0.0), seconds(&|c| c.warm_up = 0.0)),
        ((24, 0.012), seconds(&|c| c.warm_up = 0.001)),
    ] {
        assert!(passes == expected.0 && (all - expected.1).abs() < 1e-9, "{passes} {all} {expected:?}");
    }
    let quick = crate::presets::Preset::Quick.campaign();
    assert!(
        (warm_up_of_pass(&quick) - 0.006).abs() < 1e-9,
        "as long as the CPU engine takes to choose a kernel, with some to spare"
    );
}

#[test]
fn buffers_are_gone_through_as_often_as_it_may_help() {
    const MIB: u64 = 1 << 20;
    let times = [(MIB, 32 * MIB), (32 * MIB, 100 * MIB), (33 * MIB, 100 * MIB), (64 * MIB, 32 * MIB)];
    assert_eq!(times.map(|(bytes, cache)| rounds(bytes, cache)), [3, 3, 1, 0]);
    assert_eq!([64, MIB / 2, MIB, 4 * MIB, 1 << 40].map(few), [128, 128, 64, 32, 32]);
    // An engine and memcpy beside it are warmed up alike.
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
        assert_eq!(is_shared(cell), cell.footprint == Footprint::Hot && bytes > MIB / 2, "{cell}");
        assert_eq!(is_shared(cell), is_shared(&cell.baseline()), "{cell}");
    }
}

#[test]
fn queues_of_what_learns_stay_open() {
    let sweep = Sweep { depths: "1,4".parse().expect("depths"), ..Sweep::default() };
    let few = Campaign { sweeps: vec![sweep], repetitions: 10, passes: 5, ..Campaign::default() };
    let mut many = few.clone();
    many.sweeps[0].queues = "33".parse().expect("queues");
    let (cpu, bounded) = ("cpu:threads=0", "sim:profile=ioat,clock=real,queues=1");
    for (campaign, name, stay) in [(&few, cpu, true), (&many, cpu, false), (&few, bounded, false)] {
        let groups = campaign.groups(&[name.to_owned()]);
        let (contender, baseline) = (Contender::open(name).unwrap(), dma::open(cpu).unwrap());
        let mut runner =
            Runner::new(campaign, Engines::new(vec![contender], groups.clone(), 1 << 20), baseline, 1 << 20);
        for group in groups {
            let cells = std::iter::once(group.baseline).chain(group.cells);
            let mut records: Vec<Record> = cells.map(Record::new).collect();
            let mut before = vec![(0, None); records.len()];
            for (pass, fails) in [(0, false), (1, false), (2, true), (3, false)] {
                if fails {
                    runner.engines.reopen(name);
                }
                runner.pass = pass;
                runner.turn_to(&mut records, &mut Fewer(0));
                for (record, before) in records.iter().zip(&mut before).skip(1) {
                    assert!(record.trouble.is_none(), "{}: {:?}", record.cell, record.trouble);
                    let queues = if stay { record.cell.queues as usize } else { 0 };
                    assert_eq!(record.workers.len(), queues, "{}", record.cell);
                    for worker in &record.workers {
                        let (done, engine) = (worker.done(), worker.engine_id());
                        assert!(engine.is_some());
                        assert_eq!(engine == before.1, pass > 0 && !fails, "{} in pass {pass}", record.cell);
                        assert!(fails || done > before.0, "{} in pass {pass}: the same queue", record.cell);
                        *before = (done, engine);
                    }
                }
            }
            runner.pass = 4;
            runner.turn_to(&mut records, &mut Fewer(0));
            assert!(records.iter().all(|r| r.workers.is_empty()), "there is no next visit");
        }
    }
}

#[test]
fn what_takes_another_core_waits_for_it_to_be_where_it_usually_is() {
    let slot = |beside| Slot { rate: 1.0, cpu_ns: 1.0, waited: 0.0, shared: false, beside };
    let far = Seen { trip: 430.0, same_core: false };
    for (precision, elsewhere) in [(0.02, true), (0.02, false), (0.0, true)] {
        let sweep = Sweep { sizes: "64,1K,4K".parse().expect("sizes"), ..Sweep::default() };
        let campaign = Campaign { sweeps: vec![sweep], precision, ..Campaign::default() };
        let groups = campaign.groups(&["cpu".to_owned()]);
        let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
        let mut runner =
            Runner::new(&campaign, Engines::new(Vec::new(), groups.clone(), 1 << 20), engine, 1 << 20);
        runner.pass = 1;
        if elsewhere {
            runner.cores.nearness = Nearness::always_elsewhere();
        }
        let mut all: Vec<Vec<Record>> = groups
            .iter()
            .map(|g| std::iter::once(&g.baseline).chain(&g.cells).map(|c| Record::new(c.clone())).collect())
            .collect();
        for records in &mut all {
            let company = records[0].cell.size >= 1024;
            let record = &mut records[1];
            record.wanted = 48;
            record.add(Pair::new(None, slot(company.then_some(far)), None), &runner.cores.nearness);
            assert_eq!((record.in_company(), record.moved()), (company, company && elsewhere));
        }
        let (mut order, mut fewer) = ((0..3).collect(), Fewer(0));
        runner.one_pass(&mut all, &mut order, &mut fewer);
        // A visit finds that there is no such engine here.
        let visited = |all: &mut [Vec<Record>]| -> Vec<bool> {
            all.iter_mut().map(|records| records[1].trouble.take().is_some()).collect()
        };
        let due =
            |all: &[Vec<Record>]| -> Vec<usize> { all.iter().map(|records| records[1].due(48)).collect() };
        if !elsewhere || precision == 0.0 {
            assert_eq!((visited(&mut all), order), (vec![true; 3], (0..3).collect()));
            continue;
        }
        assert_eq!(visited(&mut all), [true, false, false]);
        assert_eq!(due(&all), [48, 46, 46]);
        assert_eq!(order, [1, 2, 0], "first the next time");
        assert_eq!(fewer.0, 48 + 2 + 2, "whoever watches knows; the first failed");
        // Not in two passes running: what is usual may have changed, and where the other core is.
        let mut visits = [0; 3];
        for pass in 2..10 {
            runner.pass = pass;
            runner.one_pass(&mut all, &mut order, &mut fewer);
            if pass == 2 {
                assert_eq!(fewer.0, 3 * 48, "all have failed by now, and none is counted twice");
            }
            for (was, visits) in visited(&mut all).into_iter().zip(&mut visits) {
                *visits += u32::from(was);
            }
        }
        assert_eq!(visits, [8, 4, 4]);
        assert_eq!(due(&all), [48, 38, 38]);
    }
}

#[test]
fn short_copies_are_known_well_enough_at_half_the_precision() {
    let sweep = Sweep { sizes: "2K,4K".parse().expect("sizes"), ..Sweep::default() };
    // The median of these is 1, and known to within 0.06.
    let ratios = (0..300_u32).map(|at| 0.5 + f64::from(at % 100) / 100.0);
    for (precision, pass, expected) in [
        (0.08, 1, [true, true]),
        (0.04, 1, [true, false]),
        (0.02, 1, [false, false]),
        (0.0, 1, [false, false]),
        (0.08, 6, [false, false]),
    ] {
        let campaign = Campaign { sweeps: vec![sweep.clone()], precision, ..Campaign::default() };
        let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
        let mut runner =
            Runner::new(&campaign, Engines::new(Vec::new(), Vec::new(), 1 << 20), engine, 1 << 20);
        runner.pass = pass;
        let rests = campaign.groups(&["cpu".to_owned()]).into_iter().map(|group| {
            let mut record = Record::new(group.cells[0].clone());
            record.wanted = 300;
            for ratio in ratios.clone() {
                let slot = |rate| Slot { rate, cpu_ns: 1.0, waited: 0.0, shared: false, beside: None };
                record.add(Pair::new(Some(slot(1.0)), slot(ratio), None), &runner.cores.nearness);
            }
            runner.rests(&record)
        });
        assert_eq!(rests.collect::<Vec<_>>(), expected, "{precision} in pass {pass}");
    }
}

#[test]
fn no_two_cells_of_one_engine_are_open_at_once() {
    let sweep = Sweep { depths: "1..64".parse().expect("depths"), ..Sweep::default() };
    let names = ["cpu", "sim", "doca"].map(str::to_owned);
    let campaign = Campaign { sweeps: vec![sweep], ..Campaign::default() };
    let groups = campaign.groups(&names);
    let mut records: Vec<Record> = groups[0].cells.iter().cloned().map(Record::new).collect();
    let turns = apart(records.iter_mut().collect());
    assert_eq!(turns.len(), 7);
    assert!(turns.iter().all(|t| t.len() == 3
        && t[0].cell.engine != t[1].cell.engine
        && t[1].cell.engine != t[2].cell.engine));
}
