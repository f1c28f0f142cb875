//! Instructions per copy, through `Box<dyn RawQueue>` and by a C loop that does the same, on the same
//! installed stand-in SDK.
//!
//! `cargo bench -p dma-doca --bench instructions` installs the stand-in (release), compiles `copies.c`, runs
//! both under `valgrind --tool=callgrind` with two numbers of copies, and prints the cost of one more copy in
//! each, and the ratio. Above 1.10 it exits with 1, unless run with `--test`. `DMA_DOCA_LIB_DIR` with the
//! headers beside it takes an installed stand-in instead. The same for DOCA 1.5 and 2.2, with their work
//! queues, and `jobs.c`.
#![expect(unsafe_code, reason = "submits to a raw queue")]

use std::path::{Path, PathBuf};
use std::process::Command;

use dma_core::{
    Completion, Descriptor, DmaEngine, MemoryRequest, Outcome, QueueOptions, RawQueue, RegionInfo, Segment,
};
use dma_doca::{DocaEngine, DocaOptions};

const BATCH: usize = 32;
const SIZE: usize = 64;
/// Maximum ratio of instructions, Rust to C.
const BAR: f64 = 1.10;

/// The loop that is measured.
fn copies(lib_dir: &Path, rounds: u64) {
    let engine = DocaEngine::open(&DocaOptions::new().with_lib_dir(lib_dir)).expect("the stand-in opens");
    let region = || engine.allocate_raw(&MemoryRequest::new(BATCH * SIZE)).expect("memory");
    let (from, to) = (region(), region());
    let options = QueueOptions::new().with_depth(BATCH);
    let mut queue: Box<dyn RawQueue> = engine.open_queue_raw(&options).expect("a queue");
    let (from, to) = (*from.info(), *to.info());
    let segment = |region: &RegionInfo, i: usize| Segment {
        key: region.key,
        addr: region.addr.offset(i * SIZE),
        len: SIZE,
    };
    let none = segment(&from, 0);
    let mut batch = [Descriptor::copy(0, none, none); BATCH];
    let mut out = [Completion::done(0); BATCH];
    for round in 0..rounds {
        for (i, descriptor) in batch.iter_mut().enumerate() {
            let token = round * BATCH as u64 + i as u64;
            *descriptor = Descriptor::copy(token, segment(&from, i), segment(&to, i));
        }
        // SAFETY: inside of regions of this engine, which outlive the copies; nobody else touches them.
        assert_eq!(unsafe { queue.submit(&batch) }.expect("accepted"), BATCH);
        queue.flush();
        let mut count = 0;
        while count < BATCH {
            count += queue.poll(&mut out[count..]);
        }
        assert_eq!(out[BATCH - 1].outcome, Outcome::Done);
    }
    drop(queue);
}

/// The instructions of a program, as callgrind counts them.
fn instructions(command: &mut Command) -> u64 {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    let count = text.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count in {text}"))
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, lib_dir, rounds] = &args[..]
        && mode == "--copies"
    {
        return copies(Path::new(lib_dir), rounds.parse().expect("a number of rounds"));
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind, which counts instructions, is not installed");
        return;
    }
    let installed = std::env::var_os("DMA_DOCA_LIB_DIR")
        .map(|dir| Path::new(&dir).join("../..").canonicalize().expect("DMA_DOCA_LIB_DIR is a directory"));
    let worst = match installed {
        Some(prefix) => ratio("DOCA 3", &prefix, "copies"),
        None => [("3", "copies"), ("2.2", "jobs"), ("1.5", "jobs")]
            .into_iter()
            .map(|(generation, source)| ratio(&format!("DOCA {generation}"), &install(generation), source))
            .fold(0.0, f64::max),
    };
    // As a test it only has to run, because the ratio depends on the compilers.
    if worst > BAR && !args.iter().any(|arg| arg == "--test") {
        eprintln!("the ratio is above {BAR}");
        std::process::exit(1);
    }
}

/// Installs the stand-in of a generation.
fn install(generation: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doca-emu-release-{generation}"));
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("doca-emu/install");
    let mut command = Command::new(install);
    let status = command.arg(&prefix).args(["--generation", generation]).status();
    assert!(status.expect("doca-emu/install starts").success(), "doca-emu/install failed");
    prefix
}

/// Measures the C program and this one on an installation. Prints and returns the ratio of instructions.
fn ratio(generation: &str, prefix: &Path, source: &str) -> f64 {
    let lib_dir = prefix.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    let compiled = Command::new("cc")
        .args(["-O2", "-DDOCA_ALLOW_EXPERIMENTAL_API", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/{source}.c")))
        .arg(format!("-I{}", prefix.join("include").display()))
        .arg(format!("-L{}", lib_dir.display()))
        .args(["-ldoca_dma", "-ldoca_common"])
        .arg(format!("-Wl,-rpath,{}", lib_dir.display()))
        .status()
        .expect("cc starts");
    assert!(compiled.success(), "{source}.c does not compile");
    let (few, many) = (2_000_u64, 12_000_u64);
    let per_copy = |run: &dyn Fn(u64) -> Command| {
        let more = instructions(&mut run(many)) - instructions(&mut run(few));
        more as f64 / ((many - few) * BATCH as u64) as f64
    };
    let valgrind = || {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command
    };
    let c = per_copy(&|rounds| {
        let mut command = valgrind();
        command.arg(&program).arg(rounds.to_string());
        command
    });
    let this = std::env::current_exe().expect("this program's path");
    let rust = per_copy(&|rounds| {
        let mut command = valgrind();
        command.arg(&this).arg("--copies").arg(&lib_dir).arg(rounds.to_string());
        command
    });
    let ratio = rust / c;
    println!(
        "{generation}: instructions per copy of {SIZE} bytes, batches of {BATCH}: C {c:.1}, Box<dyn RawQueue> {rust:.1}, ratio {ratio:.3}"
    );
    ratio
}
