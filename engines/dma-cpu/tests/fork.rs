//! Tests of a forked child, which has the handles of its parent's CPU engine, but not its threads. The test
//! has its own process, because a process with many threads is hard to fork safely.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "forks")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use dma_core::{DmaEngineExt, ErrorKind, QueueOptions, SharedQueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Returns the number of threads of this name whose `stat` contains the text: ` S ` means asleep, without a
/// lock.
fn threads(name: &str, state: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("procfs")
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter(|stat| stat.split_once(name).is_some_and(|(_, rest)| rest.contains(state)))
        .count()
}

/// Waits until `over` returns true, for a bounded time.
fn wait_for<T>(what: &str, mut over: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let said = over();
        if said.is_some() || begun.elapsed() > Duration::from_secs(60) {
            if said.is_none() {
                eprintln!("this did not happen in time: {what}");
            }
            return said;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns true if a child that runs `act` exits successfully.
fn child(act: impl FnOnce()) -> bool {
    // SAFETY: the parent's other threads sleep without holding a lock, and the child exits without returning
    // from this function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let well = catch_unwind(AssertUnwindSafe(act)).is_ok();
        // SAFETY: `_exit` ends the process without running code of the parent.
        unsafe { libc::_exit(if well { 0 } else { 1 }) };
    }
    let child = Pid::from_raw(child).expect("a child");
    let status =
        wait_for("the child ends", || waitpid(Some(child), WaitOptions::NOHANG).expect("it is ours"));
    if status.is_none() {
        kill_process(child, Signal::KILL).expect("it is ours");
        let _ = waitpid(Some(child), WaitOptions::empty());
    }
    status.is_some_and(|(_, status)| status.exit_status() == Some(0))
}

#[test]
fn a_forked_child_leaves_the_threads_to_its_parent() {
    let open = || CpuEngine::open(&CpuOptions::new().with_threads(2)).expect("in range");
    let copy = |engine: &CpuEngine, queue: &dma_core::Queue| {
        let memory = || engine.allocate(1 << 20).expect("memory");
        let mut src = memory();
        src.fill(7);
        let (src, dst) = queue.copy(src, memory()).expect("accepted").wait().expect("completes");
        assert!(src[..] == dst[..]);
    };
    let (engine, fresh) = (open(), open());
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    copy(&engine, &queue);
    wait_for("the threads sleep", || (threads("(dma-cpu-", " S ") == 2).then_some(()))
        .expect("idle threads go to sleep");

    let (mut engine, mut queue, mut fresh) = (Some(engine), Some(queue), Some(fresh));
    assert!(child(|| drop((queue.take(), engine.take()))), "the child does not wait for a thread");
    assert!(
        child(|| {
            let fresh = fresh.take().expect("the engine has not started threads yet");
            let error = fresh.open_queue(&QueueOptions::new()).expect_err("the engine is the parent's");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let error = fresh.allocate(1).expect_err("its locks may be held for ever");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let own = open();
            let queue = own.open_queue(&QueueOptions::new()).expect("a queue");
            copy(&own, &queue);
            drop((queue, own, fresh));
            // The kernel still lists a thread briefly after it was joined.
            wait_for("its threads end", || (threads("(dma-cpu-", "") == 0).then_some(()))
                .expect("the threads were told to end");
        }),
        "the child's own threads end"
    );
    let (engine, queue) = (engine.expect("the parent's"), queue.expect("the parent's"));
    copy(&engine, &queue);
    drop((engine, queue));
    shared_queues_are_their_parents();
}

/// Dropping or closing a shared queue in the child, or dropping its last transfer, does not wait for a thread
/// of the parent.
fn shared_queues_are_their_parents() {
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(0)).expect("in range");
    let memory = || engine.allocate(1 << 20).expect("memory");
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    queue.copy(memory(), memory()).expect("accepted").wait().expect("completes");
    let transfer = queue.copy(memory(), memory()).expect("accepted");
    while !transfer.is_done() {
        std::thread::yield_now();
    }
    wait_for("the lane's thread sleeps", || (threads("(dma-lane-", " S ") == 1).then_some(()))
        .expect("it has nothing to do");

    let (mut queue, mut transfer) = (Some(queue), Some(transfer));
    assert!(child(|| drop((queue.take(), transfer.take()))), "the last transfer closes the queue");
    assert!(
        child(|| {
            let queue = queue.take().expect("the parent's");
            assert_eq!(queue.close(Duration::from_secs(1)).completed, 0, "the copies are the parent's");
        }),
        "closing"
    );
    let (queue, transfer) = (queue.expect("the parent's"), transfer.expect("the parent's"));
    transfer.wait().expect("completes");
    queue.copy(memory(), memory()).expect("accepted").wait().expect("completes");
    assert_eq!(queue.close(Duration::from_secs(1)).completed, 3);
}
