//! Checks that discovering, diagnosing and opening engines leaves no file descriptor, mapping or thread.

use std::process::{Command, Stdio};
use test_support::stand_ins;

/// The environment variable with the work that a child process repeats: `discover`, `doctor`, or the name of
/// an engine to open.
const WORK: &str = "DMA_TEST_WORK";

/// Number of measured rounds. The two rounds before them load libraries and warm up.
const ROUNDS: usize = 12;

/// Returns the numbers of this process's file descriptors, threads, and mappings of files, such as libraries.
fn left() -> [usize; 3] {
    let entries = |dir| std::fs::read_dir(dir).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let files = maps.lines().filter(|line| line.contains('/')).count();
    [entries("/proc/self/fd"), entries("/proc/self/task"), files]
}

fn round(work: &str) {
    match work {
        "discover" => drop(dma::discover()),
        "doctor" => drop(dma::doctor(&[]).unwrap()),
        name => drop(dma::open(name).unwrap()),
    }
}

/// The part of the test below that runs in a child process.
#[test]
#[ignore = "the other test runs this in a child process"]
fn child() {
    let Ok(work) = std::env::var(WORK) else { return };
    for _ in 0..2 {
        round(&work);
    }
    let second = left();
    for _ in 0..ROUNDS {
        round(&work);
    }
    // Threads that were joined are listed until the kernel has removed them, so wait for a short time. The
    // earlier numbers, too, may count such threads.
    let is_left = |last: [usize; 3]| last.iter().zip(second).any(|(last, second)| *last > second);
    for _ in 0..3_000 {
        if !is_left(left()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let last = left();
    println!(
        "{work}: [descriptors, threads, mappings of files] {second:?}, after {ROUNDS} more rounds {last:?}"
    );
    assert!(!is_left(last), "{work}, {ROUNDS} rounds: {last:?} instead of {second:?}");
}

#[test]
fn nothing_is_left_of_engines_that_were_discovered_diagnosed_or_opened() {
    let (doca, spdk) = (stand_ins::library_dir(&stand_ins::doca_emu_prefix()), stand_ins::spdk_emu_prefix());
    let rdma = stand_ins::rdma_emu_prefix();
    let mut failed = Vec::new();
    for work in ["discover", "doctor", "cpu", "sim", "auto", "doca", "ioat", "rdma", "verify+meter+cpu"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
            .env(WORK, work)
            .env("DMA_DOCA_LIB_DIR", &doca)
            .env("DMA_SPDK_LIB_DIR", spdk.join("lib"))
            .env("DMA_IBVERBS_LIB_DIR", &rdma)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            failed.push(format!("{work}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
