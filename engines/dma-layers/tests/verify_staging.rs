//! Tests that a poll does not wait for the comparison of copies of device memory.
#![expect(unsafe_code, reason = "implements an engine whose second queue reports nothing for a time")]

mod engines;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dma_core::{
    Completion, Descriptor, DmaEngineExt, EngineId, NativeError, QueueEvents, QueueOptions, QueueStats,
    RawQueue, Result,
};
use dma_layers::verify::{VerifyEngine, VerifyOptions};
use engines::sim;
use test_support::with_queues::WithQueues;

/// A queue that reports nothing while `held` is set.
#[derive(Debug)]
struct HeldQueue {
    inner: Box<dyn RawQueue>,
    held: Arc<AtomicBool>,
}

// SAFETY: each call goes to the inner queue, except polls, which may be delayed.
unsafe impl RawQueue for HeldQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { self.inner.submit(batch) }
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.held.load(Ordering::Relaxed) { 0 } else { self.inner.poll(completions) }
    }

    fn explain(&self, native: i32) -> NativeError {
        self.inner.explain(native)
    }

    fn stop(&mut self) {
        self.inner.stop();
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.inner.events()
    }
}

#[test]
fn a_poll_does_not_wait_for_a_comparison() {
    let held = Arc::new(AtomicBool::new(true));
    let (queues, holds) = (AtomicUsize::new(0), Arc::clone(&held));
    // The second queue is the one for comparisons.
    let device = WithQueues::new(sim("sim:device_memory=4M,seed=1"), move |inner| {
        match queues.fetch_add(1, Ordering::Relaxed) {
            1 => Box::new(HeldQueue { inner, held: Arc::clone(&holds) }),
            _ => inner,
        }
    });
    let engine = VerifyEngine::new(Arc::new(device), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let host = || engine.allocate(300_000).unwrap();
    let mut staged = queue.copy(host(), engine.allocate_device(300_000).unwrap()).unwrap();
    let later = queue.copy(host(), host()).unwrap();
    // The CPU computes the checksum of the copy between buffers, which is reported while the other copy is
    // being compared.
    later.wait().unwrap();
    staged.wait_for(std::time::Duration::ZERO).unwrap_err();
    assert_eq!((engine.report().verified, queue.available()), (1, queue.depth() - 1));
    held.store(false, Ordering::Relaxed);
    staged.wait().unwrap();
    assert_eq!((engine.report().verified, engine.report().mismatches), (2, 0));
}

#[test]
fn many_comparisons_wait_their_turn() {
    let engine = VerifyEngine::new(sim("sim:device_memory=4M,seed=1"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new().with_depth(32)).unwrap();
    let device = engine.allocate_device(32 * 5000).unwrap();
    let copies: Vec<_> = (0..32)
        .map(|i| {
            let mut src = engine.allocate(5000).unwrap();
            src.fill(i as u8 + 1);
            queue.copy(src, device.slice(i * 5000..(i + 1) * 5000)).unwrap()
        })
        .collect();
    copies.into_iter().for_each(|copy| drop(copy.wait().unwrap()));
    let report = engine.report();
    assert_eq!((report.verified, report.unverified, report.mismatches), (32, 0, 0), "{report}");
    assert_eq!(queue.available(), 32);
}
