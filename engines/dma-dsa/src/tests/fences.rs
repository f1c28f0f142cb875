//! Tests fences on the fake device, which runs the operations of a batch in any order.

use dma_core::{Capabilities, Completion, Descriptor, DmaEngine, MemoryRequest, QueueOptions, RawQueue};
use proptest::prelude::*;

use super::fake::{Fake, Rig};
use dsa_sys::op;

#[path = "../../tests/fences/mod.rs"]
mod programs;

/// A queue, and memory with places of 64 bytes.
struct Places {
    queue: Box<dyn RawQueue>,
    memory: Box<dyn dma_core::RawRegion>,
}

impl Places {
    fn new(rig: &Rig) -> Self {
        let queue = rig.engine.open_queue_raw(&QueueOptions::new()).unwrap();
        Self { queue, memory: rig.engine.allocate_raw(&MemoryRequest::new(4096)).unwrap() }
    }

    /// Returns a copy from one place to the next.
    fn copy(&self, place: usize) -> Descriptor<'static> {
        let info = self.memory.info();
        Descriptor::copy(place as u64, info.segment(64 * place, 64), info.segment(64 * (place + 1), 64))
    }

    fn submit(&mut self, batch: &[Descriptor<'_>]) -> usize {
        #[expect(unsafe_code, reason = "calls the raw queue")]
        // SAFETY: the memory outlives the queue, and operations on the same bytes are separated by a fence.
        unsafe { self.queue.submit(batch) }.unwrap()
    }

    fn poll(&mut self) -> usize {
        self.queue.poll(&mut [Completion::done(9); 16])
    }
}

#[test]
fn a_fence_within_a_batch_is_the_devices() {
    let rig = Fake::default().open();
    assert!(rig.engine.info().capabilities.contains(Capabilities::FENCE));
    let mut places = Places::new(&rig);
    let chain = [0, 1, 2].map(|place| places.copy(place).with_fence(true));
    assert_eq!(places.submit(&chain), 3);
    places.queue.flush();
    assert_eq!(places.poll(), 3);
    let state = rig.state.lock().unwrap();
    assert_eq!((state.submitted.as_slice(), state.run.len()), ([op::BATCH].as_slice(), 3));
}

#[test]
fn a_fence_waits_for_earlier_doorbells() {
    let rig = Fake::default().open();
    let mut places = Places::new(&rig);
    assert_eq!(places.submit(&[places.copy(0)]), 1);
    places.queue.flush();
    let next = [places.copy(7), places.copy(1).with_fence(true)];
    assert_eq!(places.submit(&next), 1, "the device would not order the second copy");
    places.queue.flush();
    assert_eq!(places.submit(&next[1..]), 0);
    assert_eq!(places.poll(), 2);
    assert_eq!(places.submit(&next[1..]), 1);
}

#[test]
fn a_fence_holds_back_later_doorbells() {
    let rig = Fake::default().open();
    let mut places = Places::new(&rig);
    assert_eq!(places.submit(&[places.copy(0), places.copy(1).with_fence(true)]), 2);
    places.queue.flush();
    assert_eq!(
        places.submit(&[places.copy(5)]),
        0,
        "the copy after the fence would overtake the copy before it"
    );
    assert_eq!(places.poll(), 2);
    assert_eq!(places.submit(&[places.copy(5)]), 1);
}

#[test]
fn a_fence_waits_for_both_copies_to_two_destinations() {
    let rig = Fake::default().open();
    let mut places = Places::new(&rig);
    let info = *places.memory.info();
    let both = [info.segment(64, 64), info.segment(256, 64)];
    let batch = [Descriptor::copy_to_both(9, info.segment(0, 64), &both), places.copy(4).with_fence(true)];
    assert_eq!(places.submit(&batch), 1, "the second copy is not in the batch");
}

#[test]
fn a_failure_does_not_end_what_is_behind_the_fence() {
    let rig = Fake::default().open();
    let mut places = Places::new(&rig);
    rig.state.lock().unwrap().statuses.push_back(0x1f);
    let batch = [places.copy(0), places.copy(1).with_fence(true), places.copy(2).with_fence(true)];
    assert_eq!(places.submit(&batch), 3);
    places.queue.flush();
    let mut ends = [Completion::done(9); 4];
    let mut n = 0;
    while n < 3 {
        n += places.queue.poll(&mut ends[n..]);
    }
    let ends: Vec<_> = ends[..3].iter().map(|end| (end.token, end.native)).collect();
    assert_eq!(ends, [(0, 0x1f), (1, 0), (2, 0)]);
    assert_eq!(rig.state.lock().unwrap().submitted, [op::BATCH, op::BATCH]);
}

#[test]
fn stopping_ends_what_a_fence_held_back() {
    let rig = Fake::default().open();
    let mut places = Places::new(&rig);
    rig.state.lock().unwrap().statuses.push_back(0x1f);
    assert_eq!(places.submit(&[places.copy(0), places.copy(1).with_fence(true)]), 2);
    places.queue.flush();
    places.queue.stop();
    let mut n = 0;
    while n < 2 {
        n += places.poll();
    }
    assert_eq!(rig.state.lock().unwrap().run.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fenced_programs_end_as_if_run_in_order(
        program in programs::programs(),
        depth in 1..40_usize,
        shared in any::<bool>(),
        fault_every in 0..6_u64,
        (size, max_batch) in (1..20_u32, 2..40_u32),
    ) {
        let fault_every = if fault_every == 1 { 0 } else { fault_every };
        let rig = Fake { shared, size, max_batch, fault_every, ..Fake::default() }.open();
        programs::run(&rig.engine, depth.min(rig.engine.info().limits.max_queue_depth), &program);
    }
}

#[test]
fn page_faults_before_a_fence_are_mended_first() {
    let rig = Fake { fault_every: 3, ..Fake::default() }.open();
    let program: Vec<_> = (0..20).map(|cell| programs::Step::Copy(cell, cell + 1)).collect();
    (0..50).for_each(|_| programs::run(&rig.engine, 32, &program));
    assert!(rig.state.lock().unwrap().abandoned > 100, "no failure occurred before a fence");
}
