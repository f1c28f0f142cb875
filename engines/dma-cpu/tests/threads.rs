//! Tests of the number of the CPU engine's threads, and that they exit with the last handle.
#![cfg(target_os = "linux")]

use dma_core::{DmaEngineExt, QueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use test_support::patience::until;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("procfs")
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("dma-cpu-"))
        .count()
}

/// Waits until the process has this number of engine threads.
fn wait_for(wanted: usize) {
    until(format_args!("{wanted} threads"), || threads() == wanted);
}

#[test]
fn threads_go_with_the_last_handle() {
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(3)).expect("in range");
    assert_eq!(threads(), 0, "no thread before the first queue");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let other = engine.open_queue(&QueueOptions::new()).expect("a queue");
    // A thread sets its name when it first runs.
    wait_for(3);
    let memory = || engine.allocate(1 << 20).expect("memory");
    queue.copy(memory(), memory()).expect("accepted").wait().expect("completes");
    drop((engine, queue));
    assert_eq!(threads(), 3, "a queue is left");
    drop(other);
    // The kernel still lists a thread briefly after it was joined.
    wait_for(0);
}
