//! Tests failures of the stand-in's devices and refusals of its driver: the errors that the caller gets, and
//! that memory that a device may still write is not reused.
#![expect(unsafe_code, reason = "forks, waits for the child, and replaces a call of the driver")]

mod support;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dma_core::{DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Queue, QueueOptions};
use dma_cuda::{CudaEngine, Pieces};

/// A GPU for each failure, because a failure ends the context of its GPU for the whole process.
const FAULTY: &str = "memory = '64M'
[[gpu]]
faults = 'refuse@3'
[[gpu]]
faults = 'fail@2'
[[gpu]]
faults = 'gone@2'
[[gpu]]
faults = 'reset@2'
[[gpu]]
faults = 'stick@2'
[[gpu]]
delay = '100us'
";

fn open(ordinal: u32) -> CudaEngine {
    support::open(FAULTY, ordinal)
}

fn options() -> QueueOptions {
    QueueOptions::new().with_drop_timeout(Duration::from_millis(50))
}

/// Returns a queue that soon abandons operations which do not end.
fn queue(engine: &CudaEngine) -> Queue {
    engine.open_queue(&options()).unwrap()
}

#[test]
fn a_copy_that_the_driver_refuses_fails_and_the_queue_goes_on() {
    let engine = open(0);
    let queue = queue(&engine);
    let copy = || {
        let mut source = engine.allocate(4096).unwrap();
        source.fill(7);
        queue.copy(source, engine.allocate(4096).unwrap()).unwrap()
    };
    for _ in 0..2 {
        copy().wait().unwrap();
    }
    let error = copy().wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::OutOfMemory, "{error}");
    let native = error.error().native().unwrap();
    assert_eq!((native.code, native.name.as_ref()), (2, "CUDA_ERROR_OUT_OF_MEMORY"));
    let (_, target) = copy().wait().unwrap();
    assert_eq!(target[..], [7; 4096]);

    // If the driver refuses one copy of a batch, all copies of that call fail, and copies of other calls do
    // not.
    let queue = self::queue(&engine);
    let batch: Vec<_> = (0..4)
        .map(|_| queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap())
        .collect();
    queue.flush();
    for transfer in batch {
        assert_eq!(transfer.wait().unwrap_err().error().kind(), ErrorKind::OutOfMemory);
    }
    let counters = queue.close(Duration::from_secs(1));
    assert_eq!((counters.failed, counters.in_flight, counters.abandoned), (4, 0, 0), "{counters:?}");
}

/// True if the next push of a context must fail.
static PUSH_FAILS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn push(context: usize) -> c_int {
    if PUSH_FAILS.swap(false, Ordering::Relaxed) {
        return 2;
    }
    // SAFETY: the argument is the caller's, unchanged.
    unsafe { (support::driver(FAULTY).cuCtxPushCurrent_v2)(context) }
}

#[test]
fn copies_whose_context_is_not_pushed_are_refused() {
    let mut driver = support::driver(FAULTY);
    driver.cuCtxPushCurrent_v2 = push;
    // The failing push must be that of the copies, and not that of an event that measures their time.
    let engine = support::open_with(&driver, &support::options(5).with_pieces(Pieces::Batch)).unwrap();
    let queue = queue(&engine);
    let filled = |byte| {
        let mut buffer = engine.allocate(64).unwrap();
        buffer.fill(byte);
        buffer
    };
    let refused: Vec<_> = (0..4).map(|_| queue.copy(filled(7), filled(1)).unwrap()).collect();
    PUSH_FAILS.store(true, Ordering::Relaxed);
    queue.flush();
    assert!(!PUSH_FAILS.load(Ordering::Relaxed), "the doorbell pushes the context");
    for transfer in refused {
        assert_eq!(transfer.wait().unwrap_err().error().kind(), ErrorKind::OutOfMemory);
    }
    let (_, target) = queue.copy(filled(7), filled(1)).unwrap().wait().unwrap();
    assert_eq!(target[..], [7; 64]);
    let counters = queue.close(Duration::from_secs(1));
    assert_eq!((counters.completed, counters.failed, counters.abandoned), (1, 4, 0), "{counters:?}");
}

/// Copies until the device fails. Checks that memory in flight is leaked, and that all operations end with
/// `DeviceLost`. The stall timeout is longer than any test.
fn loses(ordinal: u32, code: i32) {
    let engine = open(ordinal);
    let queue = engine.open_queue(&options().with_stall_timeout(Duration::from_secs(100 * 3600))).unwrap();
    let region = engine.allocate_window(&MemoryRequest::new(1 << 16)).unwrap();
    let copy = |from: usize| queue.copy(region.slice(from..from + 64), region.slice(from + 64..from + 128));
    copy(0).unwrap().wait().unwrap();
    let in_flight = copy(128).unwrap().wait().unwrap_err();
    let refused = copy(256).unwrap_err();
    for error in [in_flight.error(), refused.error()] {
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert_eq!(error.native().unwrap().code, code, "{error}");
        assert!(!error.hint().is_empty(), "{error}");
    }
    assert!(in_flight.into_operands().is_none() && refused.into_operands().is_some());
    let counters = queue.close(Duration::from_secs(60));
    assert_eq!((counters.completed, counters.abandoned), (1, 1), "{counters:?}");
    // The context stays lost.
    let error = engine.allocate(4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(engine.open_queue(&QueueOptions::new()).is_err());
}

#[test]
fn an_illegal_address_is_the_end() {
    loses(1, 700);
}

#[test]
fn a_device_that_is_gone_is_the_end() {
    loses(2, 999);
}

#[test]
fn a_launch_failure_is_the_end() {
    loses(3, 719);
}

#[test]
fn a_device_that_hangs_is_told_and_its_memory_is_abandoned() {
    let engine = open(4);
    let queue = engine.open_queue(&options().with_stall_timeout(Duration::from_millis(200))).unwrap();
    let copy = || queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap();
    let healthy = copy();
    queue.flush();
    // A wait would fail if the device's thread stood still for longer than the limit.
    while !healthy.is_done() {
        std::thread::yield_now();
    }
    healthy.wait().unwrap();
    let error = copy().wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::TimedOut, "{error}");
    drop(error);
    let counters = queue.close(Duration::from_millis(10));
    assert_eq!(counters.abandoned, 1, "{counters:?}");
}

#[test]
fn a_child_of_the_process_gets_device_lost() {
    let engine = open(5);
    let queue = queue(&engine);
    let window = engine.allocate_window(&MemoryRequest::new(4096)).unwrap();
    // SAFETY: the child needs no lock that another thread may hold: it calls the engine, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // The engine itself reports a lost device, and the safe API does not call it.
        let raw = engine.allocate_raw(&MemoryRequest::new(64));
        let allocation = raw.is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
            && engine.allocate(64).is_err_and(|error| error.kind() == ErrorKind::Unsupported);
        // The queue is the parent's.
        let copy = queue.copy(window.slice(..64), window.slice(64..128));
        let copy = copy.is_err_and(|error| error.error().kind() == ErrorKind::Unsupported);
        let code = i32::from(!allocation) + 2 * i32::from(!copy);
        // SAFETY: `_exit` ends the child without running destructors of the parent.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is valid for the write.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (child, true, 0));
    // The parent can still use CUDA.
    queue.copy(window.slice(..64), window.slice(64..128)).unwrap().wait().unwrap();
}
