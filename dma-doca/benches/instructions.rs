//! Counts the instructions per copy through `Box<dyn RawQueue>`, and those of a C loop that makes the same
//! copies, on the same installed stand-in SDK.
//!
//! `cargo bench -p dma-doca --bench instructions` installs the stand-in (release) and compiles `copies.c`. It
//! runs both programs under `valgrind --tool=callgrind` with two numbers of copies. The difference gives the
//! instructions of one copy in each program, which are printed with their ratio. If the ratio is above 1.10,
//! the benchmark exits with 1, unless it was run with `--test`. Set `DMA_DOCA_LIB_DIR` to measure a stand-in
//! that is installed already, with its headers. DOCA 1.5 and 2.2 are measured with their work queues, against
//! `jobs.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

use dma_core::DmaEngineExt;
use dma_doca::{DocaEngine, DocaOptions};
use test_support::beside_c::{BATCH, LEN, MORE_BOUND, run};
use test_support::{beside_c, callgrind};

const ROUNDS: [u64; 2] = [2_000, 12_000];
/// Maximum ratio of this program's instructions to the C program's.
const BOUND: f64 = 1.10;
fn copies(lib_dir: &Path, way: &str, rounds: u64) {
    let engine = DocaEngine::open(&DocaOptions::new().with_lib_dir(lib_dir)).expect("the stand-in opens");
    let memory = || engine.allocate(BATCH * LEN).expect("memory");
    beside_c::copy::<false>(&engine, way, BATCH, (memory(), memory()), rounds);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, lib_dir, way, rounds] = &args[..]
        && mode == "--copies"
    {
        return copies(Path::new(lib_dir), way, rounds.parse().expect("a number of rounds"));
    }
    if !callgrind::is_there() {
        return;
    }
    // A test run checks only that the benchmark runs, because the counts depend on the compilers. It uses the
    // stand-ins that the tests have built.
    let is_test = args.iter().any(|arg| arg == "--test");
    let profile = if is_test { "test" } else { "release" };
    let installed = std::env::var_os("DMA_DOCA_LIB_DIR")
        .map(|dir| Path::new(&dir).join("../..").canonicalize().expect("DMA_DOCA_LIB_DIR is a directory"));
    let are_within = match installed {
        Some(prefix) => is_within("DOCA 3", &prefix, "copies"),
        None => [("3", "copies"), ("2.2", "jobs"), ("1.5", "jobs")]
            .into_iter()
            .map(|(generation, source)| {
                is_within(&format!("DOCA {generation}"), &install(generation, profile), source)
            })
            .fold(true, |all, one| all & one),
    };
    if !are_within && !is_test {
        eprintln!("a count is above its bound");
        std::process::exit(1);
    }
}

/// Installs the stand-in of a generation, built with a profile of cargo.
fn install(generation: &str, profile: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doca-emu-{profile}-{generation}"));
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../standins/doca-emu/install");
    run(Command::new(install).arg(&prefix).args(["--generation", generation, "--profile", profile]));
    prefix
}

/// Measures the C program and this program on one installation. Returns true if the counts are within the
/// bounds.
fn is_within(generation: &str, prefix: &Path, source: &str) -> bool {
    let lib_dir = prefix.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    run(Command::new("cc")
        .args(["-O2", "-DDOCA_ALLOW_EXPERIMENTAL_API", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/{source}.c")))
        .arg(format!("-I{}", prefix.join("include").display()))
        .arg(format!("-L{}", lib_dir.display()))
        .args(["-ldoca_dma", "-ldoca_common"])
        .arg(format!("-Wl,-rpath,{}", lib_dir.display())));
    let this = std::env::current_exe().expect("this program's path");
    let c = |rounds: u64| {
        let mut command = callgrind::command(&program);
        command.arg(rounds.to_string());
        command
    };
    let ours = |way: &str, rounds: u64| {
        let mut command = callgrind::command(&this);
        command.arg("--copies").arg(&lib_dir).arg(way).arg(rounds.to_string());
        command
    };
    beside_c::compare(generation, BOUND, MORE_BOUND, ROUNDS, c, ours)
}
