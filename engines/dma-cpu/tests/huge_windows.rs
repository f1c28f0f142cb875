//! Tests, in safe code, of windows of the same bytes whose total length exceeds 64 bits. Such operations are
//! refused before they reach the device.
#![expect(unsafe_code, reason = "maps 64 TiB of address space")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dma_core::{
    Batch, DmaEngine, DmaEngineExt, ErrorKind, HostMemory, MemoryRequest, QueueOptions, SharedQueueOptions,
    Window,
};
use dma_cpu::{CpuEngine, CpuOptions};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const TIB: usize = 1 << 40;
/// Length of a mapping: half of the address space of a process with four levels of page tables.
const HUGE: usize = 64 * TIB;
/// Number of clones that together have 2^64 bytes.
const CLONES: usize = 1 << 18;

/// The test with the mapping holds this lock, because two mappings do not fit.
static ROOM: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ROOM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mapping without resident memory. A read would make it resident page by page.
struct Mapping(NonNull<u8>);

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives no access to the mapping.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, which this value owns.
        unsafe { munmap(self.0.as_ptr().cast(), HUGE) }.expect("it was mapped");
    }
}

fn engine() -> CpuEngine {
    CpuEngine::open(&CpuOptions::new().with_threads(0)).expect("an engine")
}

fn huge(engine: &CpuEngine) -> Window {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), HUGE, access, flags) }.expect("64 TiB to map");
    let base = NonNull::new(base.cast::<u8>()).expect("not at 0");
    // SAFETY: the mapping is readable, writable and zeroed, and lives as long as its owner, which does not
    // access it.
    let memory = unsafe { HostMemory::from_raw(base, HUGE, Mapping(base)) };
    engine.register(memory).expect("registered").share()
}

fn small(engine: &impl DmaEngine, len: usize, byte: u8) -> Window {
    let window = engine.allocate_window(&MemoryRequest::new(len)).expect("memory");
    window.write_at(0, &vec![byte; len]).expect("writable");
    window
}

/// A copy of one short window to another, and then copies whose total length is 2^64 bytes.
fn batch(
    src: &Window,
    dst: &Window,
    huge: &Window,
    parts: [std::ops::Range<usize>; 2],
) -> Batch<Window, Window> {
    let [from, to] = parts;
    let copies = CLONES * (HUGE / to.len());
    let mut batch = Batch::with_capacity(1 + copies);
    batch.push(src.clone(), dst.clone());
    for _ in 0..copies {
        batch.push(huge.slice(from.clone()), huge.slice(to.clone()));
    }
    batch
}

/// The source and the destination of each copy: the same range, so that each copy is invalid by itself.
const SAME: [std::ops::Range<usize>; 2] = [0..HUGE, 0..HUGE];
/// The source and the destination of each copy: two halves, so that each copy is valid by itself.
const HALVES: [std::ops::Range<usize>; 2] = [0..HUGE / 2, HUGE / 2..HUGE];

/// A refused batch returns its memory, which is not written afterwards.
#[test]
fn a_batch_of_more_bytes_than_are_counted_leaves_nothing_with_the_queue() {
    let _alone = alone();
    let engine = engine();
    let huge = huge(&engine);
    for (parts, kind) in [(SAME, ErrorKind::Overlap), (HALVES, ErrorKind::OutOfRange)] {
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let (src, dst) = (small(&engine, 4096, 1), small(&engine, 4096, 2));
        let batch = batch(&src, &dst, &huge, parts);
        let refused = catch_unwind(AssertUnwindSafe(|| queue.submit(batch).expect_err("refused").kind()));
        // The batch was dropped, so this is the only view of the memory.
        let buffer = dst.try_into_mut().expect("no other view");
        let driven = catch_unwind(AssertUnwindSafe(|| {
            queue.flush();
            while queue.poll() > 0 {}
        }));
        assert!(buffer.iter().all(|byte| *byte == 2), "memory of a live reference was overwritten");
        assert_eq!((refused.expect("no panic"), driven.is_ok()), (kind, true));
        assert_eq!((queue.counters().submitted, queue.available()), (0, queue.depth()));
    }
}

#[test]
fn a_shared_batch_of_more_bytes_than_are_counted_is_refused() {
    let _alone = alone();
    let engine = engine();
    let huge = huge(&engine);
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let (src, dst) = (small(&engine, 4096, 1), small(&engine, 4096, 2));
    let refused = queue.submit(batch(&src, &dst, &huge, HALVES)).expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::OutOfRange);
    assert!(refused.to_string().contains(&format!("{} bytes", (1_u128 << 64) + 4096)), "{refused}");
    drop(refused);
    assert!(dst.try_into_mut().expect("no other view").iter().all(|byte| *byte == 2));
}

/// A length of 2^64 + 100 bytes is not truncated to 100, on either kind of queue.
#[test]
fn a_gather_of_more_bytes_than_are_counted_is_refused_with_their_number() {
    let _alone = alone();
    let engine = engine();
    let huge = huge(&engine);
    let mut list = vec![huge.clone(); CLONES];
    list.push(small(&engine, 100, 1));
    let dst = || engine.allocate(100).expect("memory");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let refused = queue.copy(list.clone(), dst()).expect_err("refused");
    let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let also = shared.copy(list.clone(), dst()).expect_err("refused");
    for (kind, text) in [(refused.kind(), refused.to_string()), (also.kind(), also.to_string())] {
        assert_eq!(kind, ErrorKind::LengthMismatch);
        assert!(
            text.contains("the source has 18446744073709551716 bytes, and the destination has 100 bytes"),
            "{text}"
        );
    }
    assert_eq!(queue.fill(list, [1; 8]).expect_err("refused").kind(), ErrorKind::Overlap);
}
