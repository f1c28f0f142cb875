//! Threads with small stacks can open queues and copy. The sanitizers use more of the stack.
#![cfg(not(any(dma_address_sanitizer, dma_thread_sanitizer)))]

use dma_core::{DmaEngineExt, QueueOptions, SharedQueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};

/// If the stack is too small, the process ends.
#[test]
fn a_thread_with_a_stack_of_64_kib_opens_queues_and_copies() {
    let copies = || {
        let engine = CpuEngine::open(&CpuOptions::new()).expect("in range");
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
        for len in [64, 5000, 1 << 20] {
            let (src, dst) = (engine.allocate(len).expect("memory"), engine.allocate(len).expect("memory"));
            let (src, dst) = queue.copy(src, dst).expect("accepted").wait().expect("done");
            let (src, dst) = shared.copy(src, dst).expect("accepted").wait().expect("done");
            let (_, digest) = queue.crc32c(src.freeze(), 0).expect("accepted").wait().expect("done");
            assert_eq!(digest, crc32c::crc32c(&dst));
        }
    };
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(copies).expect("a thread");
    thread.join().expect("it copies");
}
