//! Counts the instructions per copy through `Box<dyn RawQueue>`, compared with a C program that makes the
//! same calls of the same driver: 64 bytes, batches of 32, one event for a batch.
//!
//! The driver does almost nothing, so the ratio is large. The engine takes 65 instructions more: 15 make the
//! descriptor, 23 write its addresses, length and token and sum up what the choice of the way needs, and 11
//! write its completion (the C program has no completions). The other 16 are the copy's share of the work for
//! a batch, which includes that choice. A third of that work changes the context three times.
//!
//! `cargo bench -p dma-cuda --bench instructions`. Needs `valgrind` and a C compiler. Fails above [`BOUND`].

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use dma_core::DmaEngineExt;
use dma_cuda::{CudaEngine, CudaOptions};
use test_support::beside_c::{BATCH, LEN, run};
use test_support::{beside_c, callgrind};

const ROUNDS: [u64; 2] = [100, 1100];
/// Maximum ratio of the engine's instructions to those of the C program.
const BOUND: f64 = 3.15;
/// Maximum number of additional instructions of `queue.copy(src, dst)?.wait()?`, one copy at a time. The
/// queue polls for two completions, and this engine then looks for a second one.
const MORE_BOUND: f64 = 181.0;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("work") => {
            let dir = arguments.next().expect("the directory of the driver");
            let way = arguments.next().expect("a way");
            let rounds = arguments.next().and_then(|n| n.parse().ok()).expect("a number of rounds");
            copy(Path::new(&dir), &way, rounds);
            ExitCode::SUCCESS
        }
        // Under `cargo test --benches` the program only has to run.
        Some("--test") => ExitCode::SUCCESS,
        _ => compare(),
    }
}

fn copy(dir: &Path, way: &str, rounds: u64) {
    let engine = CudaEngine::open(&CudaOptions::new().with_lib_dir(dir)).expect("the driver opens");
    let memory = || engine.allocate(BATCH * LEN).expect("memory");
    beside_c::copy::<true>(&engine, way, 256, (memory(), memory()), rounds);
}

fn compare() -> ExitCode {
    if !callgrind::is_there() {
        return ExitCode::SUCCESS;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cuda-driver");
    std::fs::create_dir_all(&dir).expect("a directory");
    let (library, c) = (dir.join("libcuda.so.1"), dir.join("instructions-c"));
    let compile = |source: &str, to: &Path| {
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-Wextra", "-Werror"]).arg(sources.join(source)).arg("-o").arg(to);
        command
    };
    run(compile("provider.c", &library).args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]));
    run(compile("instructions.c", &c).arg(&library).arg(format!("-Wl,-rpath,{}", dir.display())));
    let me = std::env::current_exe().expect("a program");
    let theirs = |rounds: u64| {
        let mut command = callgrind::command(&c);
        command.arg(rounds.to_string());
        command
    };
    let ours = |way: &str, rounds: u64| {
        let mut command = callgrind::command(&me);
        command.arg("work").arg(&dir).arg(way).arg(rounds.to_string());
        command
    };
    let is_within = beside_c::compare("cuda", BOUND, MORE_BOUND, ROUNDS, theirs, ours);
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
