//! Sample results for tests of other modules, and tests of reading results and of notes.

use std::path::Path;

use super::*;
use crate::files::write_file;
use crate::plan::{Direction, Op};

/// Returns results with cells of each kind.
pub(crate) fn sample() -> Results {
    let mut cells = Vec::new();
    for (engine, model, speed, status) in [
        ("memcpy", false, 1.0, Status::Ok),
        ("cpu", false, 0.5, Status::Ok),
        ("sim:profile=dsa", true, 0.4, Status::Ok),
        ("doca", false, 0.0, Status::Failed),
    ] {
        for size in [64_u64, 4096, 65_536, 1 << 20] {
            let cell = Cell {
                engine: engine.to_owned(),
                op: Op::Copy,
                size,
                depth: 1,
                batch: 1,
                queues: 1,
                segments: 1,
                footprint: Footprint::Cold,
                direction: Direction::Local,
            };
            let grows = if engine == "memcpy" { 1.0 } else { (size as f64 / 4096.0).sqrt() };
            let rate = |n: f64| 1e10 / size as f64 * speed * grows.min(6.0) * (1.0 + n / 50.0);
            let ops = (status == Status::Ok)
                .then(|| Figures::of((0..7).map(|n| rate(f64::from(n))).collect()))
                .flatten();
            cells.push(Measured {
                cell,
                model,
                status,
                message: (status != Status::Ok).then(|| "device lost".to_owned()),
                bytes_per_second: ops.as_ref().map(|f| f.times(size as f64)),
                ratio: ops.as_ref().map(|f| f.times(size as f64 / 1e10)),
                latency: ops.as_ref().map(|f| Latency {
                    count: 1000,
                    mean: 1e9 / f.median,
                    p50: (1e9 / f.median) as u64,
                    p90: (1.1e9 / f.median) as u64,
                    p99: (1.3e9 / f.median) as u64,
                    p999: (3e9 / f.median) as u64,
                    max: (9e9 / f.median) as u64,
                }),
                cpu_ns_per_op: ops.as_ref().filter(|_| !model).map(|f| f.times(0.0)),
                cpu_s_per_gb: Figures::of(vec![0.1, 0.11, 0.12]).filter(|_| !model && ops.is_some()),
                doorbells_per_op: Some(1.0),
                polls_per_op: Some(1.5),
                left_out: 0,
                run_delay: 0.0,
                ops: 10_000,
                verified: 16,
                passes: 24,
                series: Vec::new(),
                steady_after: None,
                ops_per_second: ops,
            });
        }
    }
    let engine = |name: &str, model: Option<&str>, error: Option<&str>| Engine {
        name: name.to_owned(),
        backend: name.split(':').next().unwrap_or_default().to_owned(),
        device: "a device".to_owned(),
        version: "1".to_owned(),
        model: model.map(str::to_owned),
        clock: if model.is_some() { "virtual" } else { "real" }.to_owned(),
        error: error.map(str::to_owned),
    };
    Results {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        tool: "0.1.0".to_owned(),
        created: "2026-01-02T03:04:05Z".to_owned(),
        seconds: 1.5,
        command: vec!["dma-bench".to_owned(), "run".to_owned()],
        interrupted: false,
        planned: 16,
        summary: vec!["an answer".to_owned()],
        machine: Machine::here(),
        campaign: Campaign::default(),
        engines: vec![
            engine("memcpy", None, None),
            engine("cpu", None, None),
            engine("sim:profile=dsa", Some("dsa (a public <source>)"), None),
            engine("doca", None, Some("no SDK")),
        ],
        verdicts: crate::results::conclusions::verdicts(&Campaign::default(), &cells, false),
        costs: vec![Cost {
            engine: "cpu".to_owned(),
            model: false,
            what: "register".to_owned(),
            size: 4096,
            time: Latency { count: 10, mean: 1e3, p50: 900, p90: 1100, p99: 1200, p999: 1200, max: 1200 },
        }],
        cells,
        knees: vec![Knee {
            engine: "cpu".to_owned(),
            model: false,
            size: 4096,
            footprint: Footprint::Cold,
            direction: Direction::Local,
            queues: 1,
            depth: 4,
            bytes_per_second: 1e10,
            best: 1.01e10,
        }],
        published: vec![Published {
            profile: "dsa".to_owned(),
            load: "alone".to_owned(),
            direction: "local".to_owned(),
            size: 64,
            quantity: "us".to_owned(),
            published: 0.75,
            simulated: 0.76,
            tolerance: 0.1,
            holds: true,
            source: "somewhere".to_owned(),
        }],
    }
}

#[test]
fn a_limit_that_ended_it_is_named() {
    let mut results = sample();
    assert_eq!(results.limited(), None);
    (results.campaign.limit, results.campaign.passes, results.campaign.samples) = (Some(28.0), 160, 480);
    results.seconds = 27.0;
    assert_eq!(results.limited(), None, "the run ended before the limit");
    results.seconds = 28.3;
    assert!(results.limited().unwrap().contains("The limit of 28.0 s ended the run after 24 of 160 passes"));
    results.campaign.passes = 24;
    assert_eq!(results.limited(), None, "all passes ended");
    (results.campaign.passes, results.interrupted) = (160, true);
    assert_eq!(
        results.limited(),
        None,
        "an interrupted run has its own note instead of the one on the time limit"
    );
    results.interrupted = false;
    assert!(results.limited().is_some());
    results.cells.iter_mut().for_each(|m| m.passes = 1);
    results.campaign.rate = Some(1000.0);
    assert_eq!(results.limited(), None, "at a rate there is one pass, which no limit ends");
}

#[test]
fn cells_that_are_not_cold_are_named() {
    let mut results = sample();
    results.machine.caches = vec!["L3 Unified 32768K".to_owned()];
    for (footprint, fits) in
        [(None, false), (Some(4096), true), (Some(16 << 20), true), (Some(64 << 20), false)]
    {
        results.campaign.footprint = footprint;
        assert_eq!(results.cached().is_some(), fits, "{footprint:?}");
    }
    results.campaign.footprint = Some(4096);
    assert!(results.cached().unwrap().contains("4 KiB of source"));
    assert!(results.cached().unwrap().ends_with("32 MiB. --footprint 64M exceeds it."));
    results.cells.iter_mut().for_each(|m| m.cell.footprint = Footprint::Hot);
    assert_eq!(results.cached(), None, "hot memory may fit the cache");
}

#[test]
fn percentiles_need_enough_samples() {
    let of = |count| Latency { count, mean: 0.0, p50: 0, p90: 0, p99: 0, p999: 7, max: 9 };
    assert_eq!((of(999).known(0.999, 7), of(1000).known(0.999, 7)), (None, Some(7)));
    assert_eq!((of(99).known(0.99, 5), of(100).known(0.99, 5)), (None, Some(5)));
    assert_eq!((of(9).known(0.9, 5), of(10).known(0.9, 5)), (None, Some(5)));
}

#[test]
fn written_results_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let results = sample();
    write_file(&path, results.to_json().as_bytes()).unwrap();
    assert_eq!(Results::load(&path).unwrap(), results);
}

#[test]
fn a_file_without_results_says_so() {
    let whole = sample().to_json();
    let says = |bytes: &[u8]| Results::parse("x.json", bytes).unwrap_err().to_string();
    for cut in [0, 1, 100, whole.len() / 2, whole.len() - 3] {
        assert!(says(&whole.as_bytes()[..cut]).contains("cut off"), "{cut}");
    }
    assert!(says(b"{}").contains("schema"));
    assert!(says(b"\xff\xfe").contains("x.json: these are not results"));
    assert!(says(whole.replace("\"version\": 3,", "\"version\": 7,").as_bytes()).contains("version 7"));
    assert!(says(whole.replace("\"ops\":", "\"sop\":").as_bytes()).contains("ops"));
    let error = Results::load(Path::new("/nowhere/x.json")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/x.json"), "{error}");
}

#[test]
fn cells_that_were_never_begun_are_counted() {
    let mut results = Results { planned: 33, interrupted: true, ..sample() };
    results.cells.truncate(15);
    let said = results.stopped().unwrap();
    assert!(said.contains("of 15 cells") && said.contains("18 of 33 cells were not begun"), "{said}");
    assert_eq!(sample().not_begun(), None);
}

#[test]
fn text_from_a_file_is_clean() {
    let mut dirty = sample();
    let engine = "cpu\u{1b}[31m|\n\u{9b}\u{ffff}x";
    dirty.machine.cpu = engine.to_owned();
    dirty.engines[1].name = engine.to_owned();
    for m in dirty.cells.iter_mut().filter(|m| m.cell.engine == "cpu") {
        m.cell.engine = engine.to_owned();
        m.message = Some("a | b\nc".to_owned());
    }
    let read = Results::parse("x.json", dirty.to_json().as_bytes()).unwrap();
    let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{ffff}';
    let name = "cpu [31m\u{a6}   x";
    assert_eq!(read.machine.cpu, "cpu [31m|   x");
    assert!(read.engine(name).is_some() && read.cells.iter().filter(|m| m.cell.engine == name).count() == 4);
    assert!(read.cells.iter().any(|m| m.message.as_deref() == Some("a | b c")));
    assert!(!read.to_json().contains(bad));
    let other = dirty.to_json().replace("\"version\": 3,", "\"version\": 7,").replace("0.1.0", "\\u001b[31m");
    let error = Results::parse("x.json", other.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("version 7") && !error.contains(bad), "{error}");
}

#[test]
fn disturbances_of_a_run_are_said() {
    let mut results = sample();
    assert_eq!(results.busy(), None);
    results.cells[4].run_delay = 0.5;
    let waited = results.busy().unwrap();
    assert!(waited.contains("in 1 of 16 cells") && waited.contains("50 %"), "{waited}");
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing_behind() {
    let error = write_file(Path::new("/nowhere/x.json"), b"{}").unwrap_err().to_string();
    assert!(error.contains("/nowhere/x.json"), "{error}");
    let error = write_file(Path::new("/dev/full"), b"{}").unwrap_err().to_string();
    assert!(error.contains("free some space"), "{error}");
}
