//! Counts the instructions per copy through `Box<dyn RawQueue>`, compared with a C program that fills the
//! same batch descriptor for the same portal: 64 bytes, batches of 32, a completion record of each copy. The
//! limit is a ratio of 1.10.
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
    use std::path::{Path, PathBuf};
    use std::process::{Command, ExitCode};

    use dma_core::{DmaEngineExt, HostMemory};
    use dma_dsa::{DsaEngine, DsaOptions};
    use dsa_emu::Emu;
    use test_support::beside_c::{self, BATCH, LEN, MORE_BOUND, run};
    use test_support::callgrind;

    const ROUNDS: [u64; 2] = [100, 1100];
    /// Maximum ratio of the engine's instructions to those of the C program.
    const BOUND: f64 = 1.10;

    pub(super) fn main() -> ExitCode {
        let mut arguments = std::env::args().skip(1);
        match arguments.next().as_deref() {
            Some("work") => {
                let way = arguments.next().expect("a way");
                copy(&way, arguments.next().and_then(|n| n.parse().ok()).expect("a number of rounds"));
                ExitCode::SUCCESS
            }
            // Under `cargo test --benches` the program only has to run.
            Some("--test") => ExitCode::SUCCESS,
            _ => compare(),
        }
    }

    fn copy(way: &str, rounds: u64) {
        let engine = DsaEngine::open(&DsaOptions::new()).expect("a work queue");
        // `allocate` is not used, because rustix cannot read the page size under valgrind.
        let memory = || engine.register(HostMemory::from_owner(vec![0; BATCH * LEN])).expect("a region");
        beside_c::copy::<true>(&engine, way, 256, (memory(), memory()), rounds);
    }

    fn compare() -> ExitCode {
        if !callgrind::is_there() {
            return ExitCode::SUCCESS;
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
        // Only the files of this work queue are used: the programs submit to the preloaded portal.
        let emu = Emu::start("").expect("the files of a work queue");
        let (dev, sysfs) = (emu.dev_dir(), emu.sysfs_dir());
        let me = std::env::current_exe().expect("a program");
        let callgrind = |program: &Path| {
            let mut command = callgrind::command(program);
            // LD_PRELOAD cannot have a path with spaces.
            command.env("LD_PRELOAD", library.file_name().expect("a name"));
            command.env("LD_LIBRARY_PATH", library.parent().expect("a folder"));
            command.env("DSA_DEV_PATH", &dev).env("DSA_SYSFS_PATH", &sysfs);
            command
        };
        let theirs = |records: &'static str| {
            let (c, wq) = (&c, dev.join("wq0.0"));
            move |rounds: u64| {
                let mut command = callgrind(c);
                command.arg(&wq).arg(rounds.to_string()).arg(records);
                command
            }
        };
        let ours = |way: &str, rounds: u64| {
            let mut command = callgrind(&me);
            command.arg("work").arg(way).arg(rounds.to_string());
            command
        };
        let is_within = beside_c::compare("dsa", BOUND, MORE_BOUND, ROUNDS, theirs("all"), ours);
        let one = callgrind::per_copy(ROUNDS, BATCH, theirs("batch"));
        println!("C with one record for the batch: {one:.1}");
        if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
