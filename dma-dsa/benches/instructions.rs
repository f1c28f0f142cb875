//! Instructions per copy through `Box<dyn RawQueue>`, against a C program that fills the same batch
//! descriptor for the same portal: 64 bytes, batches of 32, a completion record of each copy. The limit is
//! 1.10 times as many.
//!
//! `cargo bench -p dma-dsa --bench instructions`. Needs `valgrind` and a C compiler. Fails above that ratio.

fn main() -> std::process::ExitCode {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    return compared::main();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
    {
        println!("skipped: DSA is a device of x86-64");
        std::process::ExitCode::SUCCESS
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod compared {
    #![expect(unsafe_code, reason = "submits to a raw queue")]

    use std::path::{Path, PathBuf};
    use std::process::{Command, ExitCode};

    use dma_core::{
        Completion, Descriptor, DmaEngine, HostMemory, MemoryRequest, Outcome, QueueOptions, RegionInfo,
        Segment,
    };
    use dma_dsa::{DsaEngine, DsaOptions};
    use dsa_emu::Emu;

    const BATCH: usize = 32;
    const LEN: usize = 64;
    const BOUND: f64 = 1.10;
    /// Batches of a short and a long run: the difference excludes the set-up.
    const RUNS: [u64; 2] = [100, 1100];

    pub(super) fn main() -> ExitCode {
        let mut arguments = std::env::args().skip(1);
        match arguments.next().as_deref() {
            Some("work") => {
                copy(arguments.next().and_then(|n| n.parse().ok()).expect("a number of batches"));
                ExitCode::SUCCESS
            }
            // For `cargo test --benches` it only has to run.
            Some("--test") => ExitCode::SUCCESS,
            _ => compare(),
        }
    }

    /// The loop of `instructions.c`, through the engine.
    fn copy(batches: u64) {
        let engine: Box<dyn DmaEngine> = Box::new(DsaEngine::open(&DsaOptions::new()).expect("a work queue"));
        let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(256)).expect("a queue");
        // Not `allocate_raw`: rustix cannot ask for the size of a page under valgrind.
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
            // SAFETY: parts of this engine's memory, which nobody else uses.
            assert_eq!(unsafe { queue.submit(&batch) }.expect("it takes them"), BATCH);
            queue.flush();
            let mut done = 0;
            while done < BATCH {
                done += queue.poll(&mut completions[done..]);
            }
            assert!(completions[..BATCH].iter().all(|completion| completion.outcome == Outcome::Done));
            assert_eq!(completions[BATCH - 1].token, round * BATCH as u64 + BATCH as u64 - 1);
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
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (library, c) = (dir.join("dsa-portal.so"), dir.join("dsa-instructions-c"));
        let compile = |source: &str, to: &Path| {
            let mut command = Command::new("cc");
            command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-mmovdir64b"]);
            command.arg(sources.join(source)).arg("-o").arg(to);
            command
        };
        run(compile("portal.c", &library).args(["-shared", "-fPIC"]));
        run(&mut compile("instructions.c", &c));
        // For the files of the work queue alone: the programs run by the portal that is preloaded.
        let emu = Emu::start("").expect("the files of a work queue");
        let me = std::env::current_exe().expect("a program");
        let callgrind = |program: &Path| {
            let mut command = Command::new("valgrind");
            command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--sigill-diagnostics=no"]);
            command.arg(program).env("LD_PRELOAD", &library);
            command.env("DSA_DEV_PATH", emu.dev_dir()).env("DSA_SYSFS_PATH", emu.sysfs_dir());
            command
        };
        let per_copy = |run: &dyn Fn(u64) -> Command| {
            let [few, many] = RUNS.map(|batches| instructions(&mut run(batches)));
            (many - few) as f64 / ((RUNS[1] - RUNS[0]) as f64 * BATCH as f64)
        };
        let [theirs, one] = ["all", "batch"].map(|records| {
            per_copy(&|batches| {
                let mut command = callgrind(&c);
                command.arg(emu.dev_dir().join("wq0.0")).arg(batches.to_string()).arg(records);
                command
            })
        });
        let ours = per_copy(&|batches| {
            let mut command = callgrind(&me);
            command.arg("work").arg(batches.to_string());
            command
        });
        let ratio = ours / theirs;
        println!(
            "instructions per copy of {LEN} bytes, batch {BATCH}: C {theirs:.1}, dma-dsa {ours:.1}, ratio {ratio:.3} (at most {BOUND:.2}); \
             C with one record for the batch {one:.1}"
        );
        if ratio <= BOUND { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
}
