//! Tests of the engine on the fake device.

use dma_conformance::conformance_tests;
use dma_core::{Batch, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, QueueOptions};
use proptest::prelude::*;
use rustix::io::Errno;

use self::fake::{Fake, Rig};
use dsa_sys::{op, status};
use test_support::{counting, script};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

mod fake;
mod fences;

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod standin;

fn faulty() -> Fake {
    Fake { fault_every: 3, ..Fake::default() }
}

fn tight() -> Fake {
    Fake { size: 1, max_batch: 2, max_transfer: 100, fault_every: 5, ..Fake::default() }
}

fn written(fault_every: u64) -> Fake {
    Fake { batches: false, fault_every, ..Fake::default() }
}

fn shared() -> Fake {
    Fake { shared: true, fault_every: 3, ..Fake::default() }
}

conformance_tests!(dedicated, Fake::default().open().engine);
conformance_tests!(with_page_faults, faulty().open().engine);
conformance_tests!(by_write, written(4).open().engine);
conformance_tests!(enqueued, shared().open().engine);

#[test]
fn conforms_with_two_descriptors_at_a_time() {
    dma_conformance::run_all(&tight().open().engine);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_leave_the_right_bytes(
        program in script::programs(false),
        depth in 1..40_usize,
        shared in any::<bool>(),
        batches in any::<bool>(),
        fault_every in 0..6_u64,
        (size, max_batch) in (1..20_u32, 1..40_u32),
    ) {
        let fault_every = if fault_every == 1 { 0 } else { fault_every };
        let fake = Fake { shared, batches, size, max_batch, max_transfer: 20_000, fault_every };
        let Rig { engine, .. } = fake.open();
        let depth = depth.min(engine.info().limits.max_queue_depth);
        script::run(&engine, depth, true, &program, |_| ());
        if !shared {
            let free = engine.opened().entries.as_ref().map(crate::portal::Entries::free);
            prop_assert_eq!(free, Some(size), "entries of the work queue are lost");
        }
    }
}

/// Asserts that `work` reaches 200 rounds without an allocation. Earlier rounds may allocate, because lists
/// grow, including those of the fake device. An allocation per operation fails the test.
fn warm<T>(what: &str, mut operands: T, mut work: impl FnMut(T) -> T) {
    let mut allocated = 0;
    for _ in 0..20 {
        let before = counting::of_thread();
        for _ in 0..200 {
            operands = work(operands);
        }
        allocated = counting::of_thread() - before;
        if allocated == 0 {
            return;
        }
    }
    panic!("{what} still allocates: {allocated} times in 200 rounds");
}

#[test]
fn nothing_is_allocated_per_copy_once_warm() {
    for fake in [Fake::default(), faulty(), written(0), shared()] {
        let Rig { engine, .. } = fake.open();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let buffer = |len| engine.allocate(len).unwrap();
        for len in [64, 4096] {
            warm(&format!("a copy of {len} on {fake:?}"), (buffer(len), buffer(len)), |(src, dst)| {
                queue.copy(src, dst).unwrap().wait().unwrap()
            });
        }
        warm("a fill", buffer(3000), |dst| queue.fill(dst, *b"12345678").unwrap().wait().unwrap());
        let batch: Batch<_, _> = (0..40).map(|_| (buffer(64), buffer(64))).collect();
        warm("a batch", batch, |batch| queue.submit(batch).unwrap().wait().unwrap());
    }
}

#[test]
fn a_batch_has_one_doorbell() {
    let Rig { engine, state, .. } = Fake::default().open();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let buffer = |_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let batch: Batch<_, _> = (0..32).map(buffer).collect();
    queue.submit(batch).unwrap().wait().unwrap();
    let state = state.lock().unwrap();
    assert_eq!((state.submitted.as_slice(), state.run.len()), ([op::BATCH].as_slice(), 32));
    assert_eq!(queue.counters().doorbells, 1);
}

#[test]
fn a_list_moves_to_the_start_of_the_ring_whole() {
    let Rig { engine, state, .. } = Fake::default().open();
    // A depth of 6 makes a ring of 16 places.
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(6)).unwrap();
    let mut memory = engine.allocate(64 * 13).unwrap();
    memory.chunks_mut(64).zip(0..).for_each(|(place, byte)| place.fill(byte));
    let info = *memory.region().as_raw().info();
    let place = |n: usize| info.segment(64 * n, 64);
    let mut completions = [Completion::done(9); 16];
    let mut run = |batch: &[Descriptor<'_>], reports: usize| {
        #[expect(unsafe_code, reason = "calls the raw queue")]
        // SAFETY: the memory outlives the queue, and copies to one place do not run at the same time.
        let taken = unsafe { queue.submit(batch) }.unwrap();
        queue.flush();
        assert_eq!(taken, batch.len());
        assert_eq!(queue.poll(&mut completions[..reports.max(1)]), reports);
    };
    // One descriptor is never reported, so that the ring does not restart.
    run(&[Descriptor::copy(0, place(0), place(12)); 6], 5);
    run(&[Descriptor::copy(0, place(0), place(12)); 5], 5);
    run(&[Descriptor::copy(0, place(0), place(12)); 3], 3);
    // These copies use the places 14, 15, 0 and 1 of the ring.
    let both = [0, 1, 2, 3].map(|n| [place(4 + n), place(8 + n)]);
    let copies = [0, 1, 2, 3].map(|n| Descriptor::copy_to_both(n as u64, place(n), &both[n]));
    run(&copies, 1);
    // The copies to the second destination follow.
    run(&[], 0);
    run(&[], 4);
    assert_eq!(state.lock().unwrap().submitted.iter().filter(|opcode| **opcode == op::BATCH).count(), 4);
    for n in 0..12_u8 {
        assert!(memory[64 * usize::from(n)..][..64].iter().all(|byte| *byte == n % 4), "{n}");
    }
}

#[test]
fn entries_bound_what_is_submitted() {
    let Rig { engine, state, .. } = Fake { size: 2, ..Fake::default() }.open();
    let mut queue = engine.open_queue_raw(&QueueOptions::new()).unwrap();
    let memory = engine.allocate_raw(&dma_core::MemoryRequest::new(128)).unwrap();
    let info = *memory.info();
    let copy = |token| dma_core::Descriptor::copy(token, info.segment(0, 64), info.segment(64, 64));
    for (token, taken) in [(0, 1), (1, 1), (2, 0)] {
        #[expect(unsafe_code, reason = "calls the raw queue")]
        // SAFETY: the region outlives the queue's descriptors, and the device runs them one by one.
        let n = unsafe { queue.submit(&[copy(token)]) }.unwrap();
        assert_eq!(n, taken, "descriptor {token}");
        queue.flush();
    }
    assert_eq!(state.lock().unwrap().submitted, [op::MEMMOVE, op::MEMMOVE]);
    let mut completions = [Completion::done(9); 4];
    assert_eq!(queue.poll(&mut completions), 2);
    assert_eq!(engine.opened().entries.as_ref().unwrap().free(), 2);
}

#[test]
fn a_thousand_copies_over_faulting_pages_arrive() {
    let Rig { engine, .. } = Fake { fault_every: 2, ..Fake::default() }.open();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (mut src, mut dst) = (engine.allocate(9000).unwrap(), engine.allocate(9000).unwrap());
    for round in 0..1000_usize {
        src.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 251 + round) as u8);
        (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
        assert!(src[..] == dst[..], "round {round}");
    }
    let counters = queue.counters();
    assert_eq!((counters.completed, counters.failed), (1000, 0));
}

#[test]
fn failures_have_the_status_of_the_device() {
    let Rig { engine, state, .. } = Fake::default().open();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let copy = || (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    for (status, kind, name) in [
        (0x1f, ErrorKind::DeviceFault, "DSA_COMP_HARDWARE"),
        (status::OVERLAP, ErrorKind::Overlap, "DSA_COMP_OVERLAP_BUFFERS"),
        (status::BAD_SIZE, ErrorKind::OutOfRange, "DSA_COMP_XFER_ERANGE"),
    ] {
        state.lock().unwrap().statuses.push_back(status);
        let (src, dst) = copy();
        let error = queue.copy(src, dst).unwrap().wait().unwrap_err();
        assert_eq!(error.error().kind(), kind);
        assert_eq!(error.error().native().unwrap().name, name);
    }
    // If one operation of a batch fails, the others succeed.
    state.lock().unwrap().statuses.extend([0x1f]);
    let transfers: Vec<_> = (0..4).map(|_| copy()).map(|(src, dst)| queue.copy(src, dst).unwrap()).collect();
    let ended: Vec<_> = transfers.into_iter().map(|transfer| transfer.wait().is_ok()).collect();
    assert_eq!(ended.iter().filter(|ok| **ok).count(), 3, "{ended:?}");
}

#[test]
fn a_page_fault_without_end_is_a_failure() {
    let Rig { engine, state, .. } = Fake::default().open();
    state.lock().unwrap().statuses.extend([status::PAGE_FAULT; 100]);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let error = queue.copy(src, dst).unwrap().wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::DeviceFault);
    assert_eq!(error.error().native().unwrap().name, "DSA_COMP_PAGE_FAULT_NOBOF");
    assert!(state.lock().unwrap().run.len() < 20);
}

#[test]
fn a_work_queue_that_is_disabled_ends_everything() {
    let Rig { engine, state, folder } = Fake::default().open();
    state.lock().unwrap().hangs = true;
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let copy = || (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let (src, dst) = copy();
    let transfer = queue.copy(src, dst).unwrap();
    queue.flush();
    std::fs::write(folder.path().join("sys/wq0.0/state"), "disabled\n").unwrap();
    let error = transfer.wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Aborted, "{error}");
    let (src, dst) = copy();
    let refused = match queue.copy(src, dst) {
        Err(error) => error,
        Ok(transfer) => transfer.wait().unwrap_err(),
    };
    assert_eq!(refused.error().kind(), ErrorKind::DeviceLost, "{refused}");
    assert!(refused.error().hint().contains("accel-config enable-wq"), "{refused}");
}

#[test]
fn operations_refused_by_the_kernel_end() {
    for (errno, kind) in [
        (Errno::NODEV, ErrorKind::DeviceLost),
        (Errno::PERM, ErrorKind::DeviceLost),
        (Errno::INVAL, ErrorKind::Unsupported),
    ] {
        let Rig { engine, state, .. } = written(0).open();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        state.lock().unwrap().errno = Some(errno);
        let (src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
        let error = queue.copy(src, dst).unwrap().wait().unwrap_err();
        assert_eq!(error.error().kind(), kind, "{error}");
        assert!(!error.error().native().unwrap().name.is_empty());
    }
}
