//! Instructions per copy through `Box<dyn RawQueue>`, against a C program that does the same on the same
//! provider: 64 bytes, batches of 32, a completion of each copy. The limit is 1.10 times as many.
//!
//! `cargo bench -p dma-rdma --bench instructions`. Needs `valgrind` and a C compiler. Fails above that ratio.
#![expect(unsafe_code, reason = "submits to a raw queue")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use dma_core::{
    Completion, Descriptor, DmaEngine, HostMemory, MemoryRequest, QueueOptions, RegionInfo, Segment,
};
use dma_rdma::{RdmaEngine, RdmaOptions};

const BATCH: usize = 32;
const LEN: usize = 64;
const BOUND: f64 = 1.10;
/// Batches of a short and a long run: the difference excludes the set-up.
const RUNS: [u64; 2] = [100, 1100];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("work") => {
            let dir = arguments.next().expect("the directory of the provider");
            let batches = arguments.next().and_then(|n| n.parse().ok()).expect("a number of batches");
            copy(Path::new(&dir), batches);
            ExitCode::SUCCESS
        }
        // For `cargo test --benches` it only has to run.
        Some("--test") => ExitCode::SUCCESS,
        _ => compare(),
    }
}

/// The loop of `instructions.c`, through the engine.
fn copy(dir: &Path, batches: u64) {
    let options = RdmaOptions::new().with_lib_dir(dir);
    let engine: Box<dyn DmaEngine> = Box::new(RdmaEngine::open(&options).expect("the provider opens"));
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(256)).expect("a queue");
    let memories = [(); 2].map(|()| HostMemory::from_owner(vec![0; BATCH * LEN]));
    let [src, dst] = memories.each_ref().map(|memory| {
        // SAFETY: the memory outlives its registration.
        unsafe { engine.register_raw(memory, &MemoryRequest::new(BATCH * LEN)) }.expect("a region")
    });
    let (from, to) = (*src.info(), *dst.info());
    let part = |region: RegionInfo, i: usize| Segment {
        key: region.key,
        addr: region.addr.offset(i * LEN),
        len: LEN,
    };
    let mut batch: [_; BATCH] = std::array::from_fn(|_| Descriptor::copy(0, part(from, 0), part(to, 0)));
    let mut completions = [Completion::done(0); 128];
    for round in 0..batches {
        for (i, descriptor) in batch.iter_mut().enumerate() {
            *descriptor = Descriptor::copy(round * BATCH as u64 + i as u64, part(from, i), part(to, i));
        }
        let mut taken = 0;
        while taken < BATCH {
            // SAFETY: parts of this engine's memory, which nobody else uses.
            taken += unsafe { queue.submit(&batch[taken..]) }.expect("it takes them");
        }
        queue.flush();
        let mut done = 0;
        while done < BATCH {
            done += queue.poll(&mut completions);
        }
    }
}

fn compare() -> ExitCode {
    for (tool, why) in [("valgrind", "counts instructions"), ("cc", "compiles the C side")] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: no {tool}, which {why}");
            return ExitCode::SUCCESS;
        }
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
    let per_copy = |run: &dyn Fn(u64) -> Command| {
        let [few, many] = RUNS.map(|batches| instructions(&mut run(batches)));
        (many - few) as f64 / ((RUNS[1] - RUNS[0]) as f64 * BATCH as f64)
    };
    let [theirs, last] = ["all", "last"].map(|completions| {
        per_copy(&|batches| {
            let mut command = callgrind(&c);
            command.arg(batches.to_string()).arg(completions);
            command
        })
    });
    let ours = per_copy(&|batches| {
        let mut command = callgrind(&me);
        command.arg("work").arg(&dir).arg(batches.to_string());
        command
    });
    let ratio = ours / theirs;
    println!(
        "instructions per copy of {LEN} bytes, batch {BATCH}: C {theirs:.1}, dma-rdma {ours:.1}, ratio {ratio:.3} (at most {BOUND:.2}); \
         C without a completion of each copy {last:.1}"
    );
    if ratio <= BOUND { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn callgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command
}

/// The count of callgrind.
fn instructions(command: &mut Command) -> u64 {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.filter(|_| output.status.success()).unwrap_or_else(|| panic!("{command:?}: {text}"))
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
