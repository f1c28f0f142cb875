//! Tests that open an engine and a queue with little address space left. Opening either succeeds, or fails
//! with an error that names the missing resource.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;

use dma_core::{DmaEngineExt, ErrorKind, QueueOptions, Result, SharedQueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Environment variable with the address space of the separate process in which this test runs.
const ROOM: &str = "DMA_TEST_ROOM";

/// Exit statuses of the process.
const ENOUGH: i32 = 0;
const TOLD: i32 = 3;
const OTHERWISE: i32 = 4;

fn mapped() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

/// Opens up to `queues` queues of this depth, as long as there is memory, and copies on each queue.
fn copy(threads: usize, depth: usize, queues: usize) -> Result<()> {
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(threads))?;
    let options = QueueOptions::new().with_depth(depth);
    let mut pair = (engine.allocate(1 << 20)?, engine.allocate(1 << 20)?);
    let mut open = Vec::with_capacity(queues);
    for i in 0..queues {
        let queue = engine.open_queue(&options)?;
        pair = queue.copy(pair.0, pair.1)?.wait()?;
        open.push(queue);
        if i == 0 {
            let options = SharedQueueOptions::new().with_queue(options.clone());
            pair = engine.open_shared_queue(&options)?.copy(pair.0, pair.1)?.wait()?;
        }
    }
    Ok(())
}

/// Runs in the process with limited address space.
fn try_with(room: u64) -> ! {
    let limit = Some(mapped() + room);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).expect("lowered");
    // Without room, the allocator's own reserve has no long ranges either.
    if room == 0 {
        loop {
            let mut range = Vec::<u8>::new();
            if range.try_reserve_exact(8 << 10).is_err() {
                break;
            }
            std::mem::forget(range);
        }
    }
    let mut status = ENOUGH;
    for (threads, depth, queues) in [(2, 256, 10), (0, 256, 10), (0, 65_536, 20)] {
        if let Err(e) = copy(threads, depth, queues) {
            let typed = matches!(e.kind(), ErrorKind::OutOfMemory | ErrorKind::OutOfResources);
            status = if typed { TOLD } else { OTHERWISE };
            println!("{e}");
        }
    }
    std::process::exit(status);
}

#[test]
fn little_memory_is_an_error_and_no_abort() {
    if let Ok(room) = std::env::var(ROOM) {
        try_with(room.parse().expect("a number"));
    }
    let seen = Mutex::new(BTreeSet::new());
    let check = |kib: u64| {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "little_memory_is_an_error_and_no_abort", "--nocapture", "--test-threads=1"])
            .env(ROOM, (kib << 10).to_string())
            .output()
            .expect("it starts");
        let status = output.status.code();
        assert!(matches!(status, Some(ENOUGH | TOLD)), "with {kib} KiB of address space: {output:?}");
        seen.lock().expect("no check panicked").insert(status);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..64).map(|n| n * 1000).for_each(&check));
        scope.spawn(|| (0..32).map(|n| n * 37).chain([1 << 20]).for_each(&check));
    });
    assert_eq!(
        seen.into_inner().expect("no check panicked").len(),
        2,
        "memory must suffice in some runs, and not in others"
    );
}
