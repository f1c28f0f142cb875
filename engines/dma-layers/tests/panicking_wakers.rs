//! A task's waker panics when it is cloned, woken or dropped. The panic reaches at most the task's own poll:
//! all transfers of the queue end, and the queue goes on, on every engine and wrapper.
#![expect(unsafe_code, reason = "makes a waker whose functions panic")]

mod engines;

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::{Duration, Instant};

use dma_core::{BufferMut, Counters, DmaEngine, DmaEngineExt, QueueOptions, SharedQueueOptions};
use engines::{auto, cpu, meter, record, sim, verify};

/// A time limit that a test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(120);
/// Longer than the operations that an engine executes at once.
const LEN: usize = 300_000;
/// The functions of a waker that panic, each in one run.
const FUNCTIONS: [&str; 4] = ["clone", "wake", "wake_by_ref", "drop"];

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        panic_if(data, 0);
        RawWaker::new(data, &TABLE)
    },
    |data| panic_if(data, 1),
    |data| panic_if(data, 2),
    |data| panic_if(data, 3),
);

/// Panics if `data` is the address of this function's number.
fn panic_if(data: *const (), function: usize) {
    assert!(data.addr() != function + 1, "this test makes a waker panic: {}", FUNCTIONS[function]);
}

/// Polls `future` once with a waker whose `function` panics. Returns the future's result, if it is ready.
fn poll_badly<F: Future>(future: Pin<&mut F>, function: usize) -> Option<F::Output> {
    let data = std::ptr::without_provenance(function + 1);
    // SAFETY: the functions of the table use only the address, and any thread may call them.
    let waker = ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) });
    // The panic may reach this task, whose waker it is.
    match catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker)))) {
        Ok(Poll::Ready(result)) => Some(result),
        _ => None,
    }
}

/// Polls a transfer until it is done, as a task of its own.
fn finish<T: std::fmt::Debug, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    let (mut future, began) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done.expect("completes");
        }
        assert!(began.elapsed() < HANGS, "an operation is lost");
        std::thread::yield_now();
    }
}

fn pair(engine: &dyn DmaEngine, value: u8) -> (BufferMut, BufferMut) {
    let mut src = engine.allocate(LEN).expect("memory");
    src.fill(value);
    (src, engine.allocate(LEN).expect("memory"))
}

fn assert_copied((src, dst): (BufferMut, BufferMut)) {
    assert!(src[..] == dst[..]);
}

fn assert_all_done(counters: Counters, operations: u64) {
    let Counters { submitted, completed, in_flight, .. } = counters;
    assert_eq!((submitted, completed, in_flight), (operations, operations, 0), "{counters}");
}

fn on_queue(engine: &dyn DmaEngine, function: usize) {
    let queue = engine.open_queue(&QueueOptions::new().with_depth(4)).expect("a queue");
    let copy = |value| {
        let (src, dst) = pair(engine, value);
        queue.copy(src, dst).expect("a slot is free")
    };
    let (mut unlucky, mut dropped, other) = (copy(1), copy(2), copy(3));
    let done = poll_badly(Pin::new(&mut unlucky), function);
    drop(poll_badly(Pin::new(&mut dropped), function));
    drop(dropped);
    assert_copied(finish(other));
    // The task may also wait again, or be polled by another task.
    assert_copied(match done {
        Some(done) => done.expect("completes"),
        None if function.is_multiple_of(2) => unlucky.wait().expect("completes"),
        None => finish(unlucky),
    });
    assert_copied(copy(4).wait().expect("completes"));
    assert_eq!(queue.available(), 4);
    assert_all_done(queue.close(HANGS), 4);
}

fn on_shared_queue(engine: &dyn DmaEngine, function: usize) {
    let options = SharedQueueOptions::new().with_queue(QueueOptions::new().with_depth(3));
    let queue = engine.open_shared_queue(&options).expect("a queue");
    let copy = |value| {
        let (src, dst) = pair(engine, value);
        queue.copy(src, dst).expect("a slot is free")
    };
    let (mut unlucky, mut dropped, other) = (copy(1), copy(2), copy(3));
    // The queue is full. These tasks wait for a slot, the first of them in vain.
    let (mut first, mut second) = (pin!(queue.ready()), pin!(queue.ready()));
    let first_done = poll_badly(first.as_mut(), function).is_some();
    let second_done = second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    let done = poll_badly(Pin::new(&mut unlucky), function);
    drop(poll_badly(Pin::new(&mut dropped), function));
    drop(dropped);
    assert_copied(finish(other));
    if !second_done {
        finish(second);
    }
    if !first_done {
        finish(first);
    }
    assert_copied(match done {
        Some(done) => done.expect("completes"),
        None if function.is_multiple_of(2) => unlucky.wait().expect("completes"),
        None => finish(unlucky),
    });
    assert_copied(copy(4).wait().expect("completes"));
    assert_all_done(queue.close(HANGS), 4);
}

#[test]
fn a_waker_that_panics_costs_no_transfer_on_any_engine() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = || sim("sim:profile=bluefield3");
    let all: [Arc<dyn DmaEngine>; 7] = [
        cpu("cpu:threads=0"),
        device(),
        auto(device()),
        verify(device()),
        meter(device()),
        record(device(), folder.path()),
        meter(verify(auto(device()))),
    ];
    for engine in all {
        for function in 0..FUNCTIONS.len() {
            on_queue(&*engine, function);
            on_shared_queue(&*engine, function);
        }
    }
}
