//! Tests from outside: which operations are measured, and what observers are told.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use dma_bench::plan::{Campaign, Cell, Sweep, Values};
use dma_bench::results::{Measured, Status};
use dma_bench::run::{self, Observer};
use serde_json::Value;

/// Runs `dma-bench run` with little memory. Returns the cells and the output.
fn cells(words: &str) -> (Vec<Value>, Output) {
    cells_in(tempfile::tempdir().unwrap().path(), words)
}

/// The same in a folder with files that the words name.
fn cells_in(folder: &Path, words: &str) -> (Vec<Value>, Output) {
    let results = folder.join("r.json");
    let output = Command::new(env!("CARGO_BIN_EXE_dma-bench"))
        .current_dir(folder)
        .args(["run", "--footprint", "1M"])
        .args(words.split(' '))
        .arg("--json")
        .arg(&results)
        .output()
        .unwrap();
    let cells = json(&results)["cells"].as_array().unwrap_or_else(|| panic!("{words}: {output:?}")).clone();
    (cells, output)
}

fn json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Returns the only cell that is not of the baseline.
fn engine(cells: &[Value]) -> &Value {
    cells.iter().find(|c| c["engine"] != "memcpy").unwrap_or_else(|| panic!("{cells:?}"))
}

fn samples(cell: &Value) -> Vec<f64> {
    cell["ops_per_second"]["samples"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect()
}

#[test]
fn the_warm_up_is_in_no_figure() {
    for warm_up in ["0", "0.05"] {
        let words = format!("-e cpu:threads=0 -o 4K -q 32 --rate 2k -n 20 --samples 3 --warm-up {warm_up}");
        let (all, _) = cells(&words);
        let cell = engine(&all);
        assert_eq!(cell["latency"]["count"], 60, "{cell}");
        assert_eq!((cell["ops"].as_u64(), cell["batch"].as_u64()), (Some(60), Some(1)), "{cell}");
        assert_eq!(cell["doorbells_per_op"], 1.0, "each operation has a doorbell of its own: {cell}");
        let (all, _) = cells(&format!("-e cpu -o 64 -q 1 -n 50 --samples 2 --warm-up {warm_up}"));
        let cell = engine(&all);
        // Disturbed samples are repeated.
        let samples = 2 + cell["left_out"].as_u64().unwrap();
        // Before each sample, a fifth of its operations run untimed, as for memcpy, or fewer on a machine on
        // which one of them took long.
        let ops = cell["ops"].as_u64().unwrap();
        assert!((50 * samples..=60 * samples).contains(&ops), "{cell}");
        assert!(cell["latency"]["count"].as_u64() <= Some(50 * samples), "{cell}");
    }
}

#[test]
fn a_rate_is_one_schedule() {
    // The fault makes 1 operation of 700 take 200 ms. The others are scheduled during that time or
    // afterwards.
    let words = "-e sim:profile=dsa,clock=real,faults=slow@100:for=200ms -o 4K -q 1 --rate 10k -n 10 --samples 70 --warm-up 0";
    let (all, _) = cells(words);
    let cell = engine(&all);
    assert_eq!(cell["latency"]["count"], 700, "{cell}");
    let p50 = cell["latency"]["p50"].as_u64().unwrap();
    assert!(p50 > 100_000_000, "the operations behind it were delayed: {p50}");
}

#[test]
fn there_are_no_more_operations_than_were_due() {
    let (all, _) = cells("-e cpu -o 4K -q 1 --rate 1k -n 2 --samples 5 --warm-up 0.001");
    let samples = samples(engine(&all));
    assert_eq!(samples.len(), 5);
    let seconds: f64 = samples.iter().map(|rate| 2.0 / rate).sum();
    assert!(seconds > 0.009_999, "ten operations at 1 k/s in {seconds} s");
    let output = Command::new(env!("CARGO_BIN_EXE_dma-bench"))
        .args(["run", "-e", "cpu", "--rate", "1k", "-b", "16"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("leave the batch out"), "{said}");
}

#[test]
fn no_time_gives_no_speed() {
    let (all, _) = cells("-e sim -o 4K --samples 2 --warm-up 0.001");
    let cell = engine(&all);
    assert!(cell["status"] == "unsupported" && cell["ops_per_second"].is_null(), "{cell}");
    assert!(
        cell["message"].as_str().unwrap().contains("sim:latency=1us"),
        "the message has a remedy: {cell}"
    );
}

#[test]
fn the_first_operations_are_compared_before_their_buffers_are_used_again() {
    for words in ["-o 64K -q 32", "-o 4K -q 4 -a hot", "-o 5M -q 2", "-o 4K -q 8 -w fill", "-o 4K -w sg"] {
        let words = format!(
            "-e sim:latency=1us,max_transfer=1MiB,faults=corrupt@1 {words} --samples 2 --warm-up 0.001"
        );
        let words = if words.contains("5M") { words } else { words.replace(",max_transfer=1MiB", "") };
        let (all, output) = cells(&words);
        assert_eq!(engine(&all)["status"], "wrong", "{words}: {all:?}");
        assert_eq!(output.status.code(), Some(3), "{words}");
    }
}

#[test]
fn a_number_of_operations_is_kept_to_and_samples_were_run() {
    let (all, _) = cells("-e sim:profile=dsa -o 64K -q 32 -n 100 --samples 10 --warm-up 0.001");
    let cell = engine(&all);
    assert_eq!(samples(cell).len(), 3, "the model runs three samples: {cell}");
    let ratios = cell["ratio"]["samples"].as_array().unwrap().len() as u64;
    assert_eq!(
        ratios + cell["left_out"].as_u64().unwrap(),
        10,
        "all ten samples have a ratio, or are left out: {cell}"
    );
    assert_eq!(cell["latency"]["count"], 300, "{cell}");
}

#[test]
fn an_engine_that_says_try_again_is_asked_again() {
    for words in ["-o 4K -q 32", "-o 4K -q 4 -w fill", "-o 4K -q 4 -y"] {
        let words =
            format!("-e sim:latency=1us,faults=refuse:p=0.05 {words} -n 1000 --samples 2 --warm-up 0.001");
        let (all, output) = cells(&words);
        assert_eq!(engine(&all)["status"], "ok", "{words}: {output:?}");
    }
    let (all, _) =
        cells("-e sim:latency=1us,faults=refuse@50-1000000 -o 4K -q 4 --samples 2 --warm-up 0.001");
    assert_eq!(engine(&all)["status"], "failed", "refusals without end are a failure: {all:?}");
}

#[test]
fn a_failure_says_how_far_the_queue_came() {
    let (all, _) = cells("-e sim:profile=dsa,faults=fail@400 -o 4K -q 1 -n 50 --samples 300 --warm-up 0.001");
    // Every pass after the first repeats the last sample, so the queue counts its first three samples.
    let cell = engine(&all);
    assert_eq!(cell["status"], "ok", "{cell}");
    let (all, _) =
        cells("-e sim:latency=1us,clock=real,faults=fail@400 -o 4K -q 1 -n 50 --samples 200 --warm-up 0");
    let message = engine(&all)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("after 399 on this queue"), "{message}");
}

#[test]
fn a_batch_that_does_not_fit_is_mentioned() {
    let (all, output) = cells("-e sim:profile=dsa -o 4K -q 8 -b 64 --samples 1 --warm-up 0.001");
    assert_eq!(engine(&all)["batch"], 8);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("note: 64 operations for each doorbell"), "{said}");
}

#[test]
fn cells_not_measured_or_not_paired_are_mentioned() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("c.toml"),
        "engines = ['cpu', 'sim:profile=dsa']\nsweeps = [{ engines = ['cpu'] }]\n",
    )
    .unwrap();
    let said = |words| {
        let (_, output) = cells_in(folder.path(), words);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let short = said("--campaign c.toml --samples 1 --warm-up 0");
    assert!(short.contains("note: no sweep names sim:profile=dsa") && !short.contains("drifts"), "{short}");
    let long = said("-e cpu --samples 1 -t 0.6 --warm-up 0");
    assert!(long.contains("note: samples of 600 ms") && !long.contains("no sweep"), "{long}");
}

// Release builds have no hold points.
#[cfg(debug_assertions)]
#[test]
fn a_long_sample_ends_when_asked_and_counts() {
    use test_support::hold::Hold;

    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json");
    for (words, baseline) in [
        ("-e cpu:threads=0 -o 4K -n 1000000000", false),
        ("-e cpu:threads=0 -o 4K -n 1000000000 -T 2", false),
        ("-e sim:profile=dsa -o 4K -n 1000000000", false),
        ("-e sim:profile=dsa -o 4K -n 1000000000 -T 2", false),
        // The first operation is scheduled at once, and the last after a day.
        ("-e cpu:threads=0 -o 4K --rate 1 -n 100000", false),
        // The interrupt comes while memcpy runs, which is measured first, for a day.
        ("-e cpu:threads=0 -o 4K -t 86400", true),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dma-bench"));
        let (sample, operations) =
            if baseline { ("baseline's sample", "baseline's operations") } else { ("sample", "operations") };
        let mut hold = Hold::at(&mut command, &format!("{sample},{operations}"));
        let child = command
            .args(["run", "--samples", "1", "--warm-up", "0.001", "--footprint", "1M", "--json"])
            .arg(&results)
            .args(words.split(' '))
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(command);
        hold.until(sample);
        hold.answer("");
        hold.until(operations);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{words}: {output:?}");
        let value = json(&results);
        let cells = value["cells"].as_array().unwrap();
        let cell = if baseline { &cells[0] } else { engine(cells) };
        assert_eq!(cell["status"], "interrupted", "{words}: {cell}");
        assert!(cell["ops_per_second"]["median"].as_f64() > Some(0.0), "{words}: {cell}");
        assert!(cell["ops"].as_u64() < Some(1_000_000_000), "{words}: {cell}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let name = cell["engine"].as_str().unwrap();
        assert!(
            said.contains(&format!("{name} copy")),
            "{words}: the output has a line for each measured cell: {said}"
        );
    }
}

/// An observer that counts its calls.
#[derive(Debug, Default)]
struct Counts {
    announced: u64,
    fewer: u64,
    shown: u64,
    passes: Vec<(u32, u32)>,
}

impl Observer for Counts {
    fn begin(&mut self, samples: u64, _: f64) {
        self.announced = samples;
    }
    fn fewer(&mut self, samples: u64) {
        self.fewer += samples;
    }
    fn sample(&mut self, _: &Cell, _: bool, _: f64) {
        self.shown += 1;
    }
    fn pass(&mut self, done: u32, of: u32) {
        self.passes.push((done, of));
    }
    fn cell(&mut self, _: &Measured) {}
    fn end(&mut self) {}
}

#[test]
fn an_observer_sees_as_many_samples_as_announced() {
    let mut counts = Counts::default();
    let sweep = Sweep { sizes: Values(vec![64, 4 << 20]), depths: Values(vec![4]), ..Sweep::default() };
    let campaign = Campaign {
        engines: ["cpu", "sim", "sim:latency=1us,faults=fail@100"].map(str::to_owned).to_vec(),
        samples: 20,
        passes: 6,
        warm_up: 0.005,
        footprint: Some(1 << 20),
        sweeps: vec![sweep],
        ..Campaign::default()
    };
    run::run(&campaign, Vec::new(), &mut counts).unwrap();
    assert!(counts.fewer > 0 && counts.announced == counts.shown + counts.fewer, "{counts:?}");
    assert_eq!(counts.passes, (1..=6).map(|done| (done, 6)).collect::<Vec<_>>());
}

/// Returns a campaign of small copies on one engine and on a model. It has a number of operations, because
/// without one the number of samples depends on the time of an operation.
fn small(samples: u32, passes: u32) -> Campaign {
    let sweep = Sweep { depths: Values(vec![4]), ..Sweep::default() };
    Campaign {
        engines: ["cpu:threads=0", "sim:profile=dsa"].map(str::to_owned).to_vec(),
        samples,
        passes,
        count: Some(100),
        warm_up: 0.005,
        footprint: Some(1 << 20),
        sweeps: vec![sweep],
        ..Campaign::default()
    }
}

#[test]
fn no_pass_begins_after_the_limit() {
    let mut counts = Counts::default();
    let campaign = Campaign { limit: Some(0.0), ..small(20, 10) };
    let results = run::run(&campaign, Vec::new(), &mut counts).unwrap();
    assert_eq!((counts.announced, counts.shown, counts.fewer), (40, 4, 36));
    assert_eq!(counts.passes, [(1, 10)]);
    assert!(!results.interrupted);
    for m in &results.cells {
        assert_eq!((m.status, m.message.as_deref()), (Status::Ok, None), "{m:?}");
    }
    // A limit that is not reached changes nothing.
    let mut counts = Counts::default();
    run::run(&Campaign { limit: Some(1000.0), ..small(20, 10) }, Vec::new(), &mut counts).unwrap();
    assert_eq!((counts.announced, counts.shown, counts.fewer, counts.passes.len()), (40, 40, 0, 10));
}

/// A soak test compares every byte, and its series shows slow intervals.
#[test]
fn a_soak_compares_every_operation_and_keeps_a_time_series() {
    for words in [
        "-e cpu:threads=0 -o 4K,64K -q 4 --duration 0.06 --series=0.01",
        "-e cpu:threads=0 -o 4K -q 4 -T 2 --duration 0.06 --series=0.01",
        "-e sim:profile=dsa -o 4K -q 4 --duration 0.003 --series=0.0005",
    ] {
        let (all, output) = cells(words);
        assert!(output.status.success(), "{words}: {output:?}");
        for cell in &all {
            assert_eq!(cell["status"], "ok", "{words}: {cell}");
            assert!(cell["ratio"].is_null(), "without memcpy beside it, a cell has no ratio: {cell}");
            let (ops, verified) = (cell["ops"].as_u64().unwrap(), cell["verified"].as_u64().unwrap());
            assert!(verified >= ops && ops > 0, "{words}: {verified} of {ops}");
            let series = cell["series"].as_array().unwrap();
            let at: Vec<f64> = series.iter().map(|s| s["at"].as_f64().unwrap()).collect();
            assert!(!at.is_empty() && at.windows(2).all(|w| w[0] < w[1]), "{words}: {at:?}");
            assert!(series.iter().all(|s| s["ops_per_second"].as_f64() > Some(0.0)), "{series:?}");
        }
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("Over time") && shown.contains("slowest interval"), "{shown}");
    }
    // A wrong byte ends the soak test.
    let (all, output) = cells("-e sim:latency=1us,faults=corrupt@every=9 -o 4K -q 4 --duration 0.01");
    assert!(output.status.code() == Some(3) && all[0]["status"] == "wrong", "{all:?}");
}

#[test]
fn a_cell_ends_when_it_is_steady_and_its_figures_are_of_the_steady_part() {
    let (all, output) = cells("-e sim:profile=dsa -o 4K -q 4 --steady 1% --series=0.0005 -t 100");
    let words = |output: &Output| {
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (cell, shown) = (&all[0], words(&output));
    let at = cell["steady_after"].as_f64().unwrap();
    let series = cell["series"].as_array().unwrap();
    assert!(at < 0.1 && series.len() >= 20 && series.last().unwrap()["at"] == at, "{cell}");
    assert!(shown.contains("; steady at ") && !shown.contains("Not steady"), "{shown}");
    // No device is that steady.
    let (all, output) = cells("-e sim:profile=dsa -o 4K -q 4 --steady 0.01% --series=0.0001 -t 0.0002");
    let shown = words(&output);
    assert!(all[0]["steady_after"].is_null() && all[0]["status"] == "ok", "{}", all[0]);
    assert!(
        shown.contains("Not steady within 0.010 % in 0.00020 s: sim:profile=dsa copy 4 KiB q4"),
        "{shown}"
    );
}

#[test]
fn both_directions_at_once_have_queues_of_their_own() {
    let (all, output) =
        cells("-e sim:profile=dsa -o 4K -q 4 -d push,push+pull -n 100 --samples 2 --warm-up 0");
    assert!(output.status.success(), "{output:?}");
    let of = |direction: &str| {
        all.iter().find(|c| c["engine"] != "memcpy" && c["direction"] == direction).unwrap()
    };
    let (one, both) = (of("push"), of("push+pull"));
    assert_eq!(both["ops"].as_u64(), one["ops"].as_u64().map(|ops| 2 * ops), "{one}\n{both}");
    assert_eq!((one["queues"].as_u64(), both["queues"].as_u64()), (Some(1), Some(1)));
}

#[test]
fn a_time_series_is_kept_at_a_rate_too() {
    let (all, output) = cells("-e cpu:threads=0 -o 4K -q 4 --rate 10k -t 0.3 --series=0.1");
    assert!(output.status.success(), "{output:?}");
    let cell = &all[0];
    let series = cell["series"].as_array().unwrap();
    assert!(!series.is_empty() && cell["latency"]["count"].as_u64() >= Some(1000), "{cell}");
    assert!(series.iter().all(|s| s["ops_per_second"].as_f64() < Some(10_100.0)), "{series:?}");
}
