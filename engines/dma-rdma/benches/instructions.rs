//! Counts the instructions per copy through `Box<dyn RawQueue>`, compared with a C program that makes the
//! same calls of the same provider: 64 bytes, batches of 32, a completion of each copy. The limit is a ratio
//! of 1.10.
//!
//! `cargo bench -p dma-rdma --bench instructions`. Needs `valgrind` and a C compiler. Fails above that ratio.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use dma_core::{DmaEngineExt, HostMemory};
use dma_rdma::{RdmaEngine, RdmaOptions};
use test_support::beside_c::{BATCH, LEN, MORE_BOUND, run};
use test_support::{beside_c, callgrind};

const ROUNDS: [u64; 2] = [100, 1100];
/// Maximum ratio of the engine's instructions to those of the C program.
const BOUND: f64 = 1.10;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("work") => {
            let dir = arguments.next().expect("the directory of the provider");
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
    let engine = RdmaEngine::open(&RdmaOptions::new().with_lib_dir(dir)).expect("the provider opens");
    // `allocate` is not used, because rustix cannot read the page size under valgrind.
    let memory = || engine.register(HostMemory::from_owner(vec![0; BATCH * LEN])).expect("a region");
    beside_c::copy::<true>(&engine, way, 256, (memory(), memory()), rounds);
}

fn compare() -> ExitCode {
    if !callgrind::is_there() {
        return ExitCode::SUCCESS;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rdma-provider");
    std::fs::create_dir_all(&dir).expect("a directory");
    let (library, c) = (dir.join("libibverbs.so.1"), dir.join("instructions-c"));
    let compile = |source: &str, to: &Path| {
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-Wextra", "-Werror"]).arg(sources.join(source)).arg("-o").arg(to);
        command
    };
    run(compile("provider.c", &library).args(["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"]));
    run(compile("instructions.c", &c).arg(&library).arg(format!("-Wl,-rpath,{}", dir.display())));
    let me = std::env::current_exe().expect("a program");
    let theirs = |completions: &'static str| {
        let c = &c;
        move |rounds: u64| {
            let mut command = callgrind::command(c);
            command.arg(rounds.to_string()).arg(completions);
            command
        }
    };
    let ours = |way: &str, rounds: u64| {
        let mut command = callgrind::command(&me);
        command.arg("work").arg(&dir).arg(way).arg(rounds.to_string());
        command
    };
    let is_within = beside_c::compare("rdma", BOUND, MORE_BOUND, ROUNDS, theirs("all"), ours);
    let last = callgrind::per_copy(ROUNDS, BATCH, theirs("last"));
    println!("C without a completion of each copy: {last:.1}");
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
