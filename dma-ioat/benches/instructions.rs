//! Counts the instructions per copy through `Box<dyn RawQueue>`, and those of a C program that makes the same
//! copies on the same stand-in: 64 bytes each, in batches of 32. The limit is 1.10 times the instructions of
//! the C program.
//!
//! Run it by `cargo bench -p dma-ioat --bench instructions`. It needs `valgrind` and a C compiler, and fails
//! if the limit is exceeded.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use dma_core::DmaEngineExt;
use dma_ioat::{HugePages, IoatEngine, IoatOptions};
use test_support::beside_c::{BATCH, LEN, MORE_BOUND, run};
use test_support::{beside_c, callgrind};

const ROUNDS: [u64; 2] = [100, 1100];
/// Maximum ratio of this program's instructions to the C program's.
const BOUND: f64 = 1.10;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("work") => {
            let dir = arguments.next().expect("the directory of the libraries");
            let way = arguments.next().expect("a way");
            let rounds = arguments.next().and_then(|n| n.parse().ok()).expect("a number of rounds");
            copy(Path::new(&dir), &way, rounds);
            ExitCode::SUCCESS
        }
        // `cargo test --benches` only checks that the program starts.
        Some("--test") => ExitCode::SUCCESS,
        _ => compare(),
    }
}

fn copy(dir: &Path, way: &str, rounds: u64) {
    let options = IoatOptions::new().with_lib_dir(dir).with_huge(HugePages::Off).with_mem(512);
    let engine = IoatEngine::open(&options).expect("the stand-in opens");
    let memory = || engine.allocate(BATCH * LEN).expect("memory");
    beside_c::copy::<false>(&engine, way, 256, (memory(), memory()), rounds);
}

fn compare() -> ExitCode {
    if !callgrind::is_there() {
        return ExitCode::SUCCESS;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("spdk-emu-release");
    run(Command::new(here.join("../standins/spdk-emu/install")).arg(&prefix));
    let (lib, c) = (prefix.join("lib"), prefix.with_file_name("instructions-c"));
    run(Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&c)
        .arg(here.join("benches/instructions.c"))
        .arg(format!("-I{}", prefix.join("include").display()))
        .arg(format!("-L{}", lib.display()))
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .args(["-lspdk_ioat", "-lspdk_env_dpdk"]));
    let me = std::env::current_exe().expect("a program");
    let callgrind = |program| {
        let mut command = callgrind::command(program);
        command.env_remove("SPDK_EMU");
        command
    };
    let theirs = |rounds: u64| {
        let mut command = callgrind(&c);
        command.arg(rounds.to_string());
        command
    };
    let ours = |way: &str, rounds: u64| {
        let mut command = callgrind(&me);
        command.arg("work").arg(&lib).arg(way).arg(rounds.to_string());
        command
    };
    let is_within = beside_c::compare("ioat", BOUND, MORE_BOUND, ROUNDS, theirs, ours);
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
