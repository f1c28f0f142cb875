//! The CPU engine's threads: as many as asked for, and gone with the last handle.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use dma_core::{DmaEngineExt, QueueOptions};
use dma_sim::cpu::{CpuEngine, CpuOptions};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("procfs")
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("dma-cpu-"))
        .count()
}

#[test]
fn threads_go_with_the_last_handle() {
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(3)).expect("in range");
    assert_eq!(threads(), 0, "none before there is a queue");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let other = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let started = Instant::now();
    // A thread names itself when it first runs.
    while threads() < 3 {
        assert!(started.elapsed() < Duration::from_secs(20), "three threads start");
        std::thread::yield_now();
    }
    let memory = || engine.allocate(1 << 20).expect("memory");
    queue.copy(memory(), memory()).expect("accepted").wait().expect("completes");
    drop((engine, queue));
    assert_eq!(threads(), 3, "a queue is left");
    drop(other);
    assert_eq!(threads(), 0);
}
