//! Instructions per copy through the safe API, on the CPU engine alone and within wrappers.
//!
//! `cargo bench -p dma-layers --bench instructions` runs itself under `valgrind --tool=callgrind` with two
//! numbers of batches for each engine, and prints the cost of one more copy in each, and the ratio to the
//! engine alone. Above the limits it exits with 1, unless run with `--test`. Valgrind has no vDSO: reading
//! the clock is a system call there, whose instructions within the kernel do not count.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use dma_core::{Batch, BufferMut, DmaEngine, DmaEngineExt, QueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::meter::{MeterEngine, MeterOptions};
use dma_layers::record::{RecordEngine, RecordOptions};

const BATCH: usize = 32;
const SIZE: usize = 64;
/// Engines, and the maximum ratio of instructions to the CPU engine's.
const ENGINES: [(&str, f64); 5] = [
    ("cpu", 1.0),
    ("meter+cpu", 1.3),
    ("record+cpu", 1.5),
    ("record+cpu reversed", 1.5),
    // At no equal distances, so that a trace has each copy by itself.
    ("record+cpu scattered", 4.0),
];

fn trace() -> PathBuf {
    std::env::temp_dir().join(format!("instructions-{}.trace", std::process::id()))
}

fn open(name: &str) -> Arc<dyn DmaEngine> {
    let options = CpuOptions::from_name(&"cpu:threads=0".parse().expect("a name")).expect("options");
    let cpu = Arc::new(CpuEngine::open(&options).expect("the CPU is always there"));
    match name {
        "meter+cpu" => Arc::new(MeterEngine::new(cpu, &MeterOptions::new())),
        _ if name.starts_with("record+cpu") => {
            Arc::new(RecordEngine::new(cpu, &RecordOptions::new(trace())).expect("a file"))
        }
        _ => cpu,
    }
}

/// Cuts a region into buffers of [`SIZE`] bytes.
fn pieces(engine: &dyn DmaEngine) -> Vec<BufferMut> {
    let mut rest = engine.allocate(BATCH * SIZE).expect("memory");
    let mut pieces: Vec<_> = (1..BATCH).map(|_| rest.split_to(SIZE)).collect();
    pieces.push(rest);
    pieces
}

/// The loop that is measured.
fn copies(name: &str, rounds: u64) {
    let engine = open(name);
    let queue = engine.open_queue(&QueueOptions::new().with_depth(BATCH)).expect("a queue");
    let (src, mut dst) = (pieces(&*engine), pieces(&*engine));
    if name.ends_with("reversed") {
        dst.reverse();
    } else if name.ends_with("scattered") {
        // Each distance is another one than the last.
        (0..BATCH).for_each(|i| dst.swap(i, i * i % BATCH));
    }
    let pairs = src.into_iter().zip(dst);
    let mut batch = Some(pairs.collect::<Batch<_, _>>());
    for _ in 0..rounds {
        batch = batch.take().map(|batch| queue.submit(batch).expect("accepted").wait().expect("done"));
    }
}

/// The instructions of this program with `rounds` batches, as callgrind counts them.
fn instructions(name: &str, rounds: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().expect("this program's path"));
    let output = command.args(["--copies", name, &rounds.to_string()]).output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    let count = text.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count in {text}"))
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, name, rounds] = &args[..]
        && mode == "--copies"
    {
        copies(name, rounds.parse().expect("a number of rounds"));
        // Only some write one.
        let _ = std::fs::remove_file(trace());
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind, which counts instructions, is not installed");
        return;
    }
    let (few, many) = (1_000_u64, 3_000_u64);
    let mut alone = None;
    let mut above = false;
    for (name, limit) in ENGINES {
        let more = instructions(name, many) - instructions(name, few);
        let each = more as f64 / ((many - few) * BATCH as u64) as f64;
        let ratio = each / *alone.get_or_insert(each);
        above |= ratio > limit;
        println!(
            "{name}: {each:.1} instructions per copy of {SIZE} bytes, batches of {BATCH}, ratio {ratio:.3}"
        );
    }
    // As a test it only has to run, because the ratio depends on the compiler.
    if above && !args.iter().any(|arg| arg == "--test") {
        eprintln!("a ratio is above its limit of {ENGINES:?}");
        std::process::exit(1);
    }
}
