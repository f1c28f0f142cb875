//! Tests that descriptors of an abandoned queue do not stay in flight.
#![expect(unsafe_code, reason = "implements the contract")]

mod engines;

use std::sync::Arc;
use std::time::Duration;

use dma_core::{
    Completion, Descriptor, DmaEngine, DmaEngineExt, EngineId, NativeError, QueueEvents, QueueOptions,
    QueueStats, RawQueue, Result,
};
use engines::{auto, meter, sim};
use test_support::with_queues::WithQueues;

/// A queue whose device never reports a descriptor.
#[derive(Debug)]
struct MuteQueue(Box<dyn RawQueue>);

// SAFETY: the queue accesses no memory, and reports nothing.
unsafe impl RawQueue for MuteQueue {
    fn engine_id(&self) -> EngineId {
        self.0.engine_id()
    }
    fn depth(&self) -> usize {
        self.0.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        Ok(batch.len())
    }
    fn flush(&mut self) {}
    fn poll(&mut self, _: &mut [Completion]) -> usize {
        0
    }
    fn explain(&self, native: i32) -> NativeError {
        self.0.explain(native)
    }
    fn stop(&mut self) {}
    fn stats(&self) -> QueueStats {
        self.0.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

#[test]
fn an_abandoned_queue_loses_its_descriptors_and_its_number() {
    let mute =
        || Arc::new(WithQueues::new(sim("sim"), |inner| Box::new(MuteQueue(inner)))) as Arc<dyn DmaEngine>;
    let (inner, of_auto) = (meter(mute()), meter(mute()));
    let cases = [
        // A later queue gets the number of the abandoned one, and adds to its counts.
        (Arc::clone(&inner), meter(inner), 2),
        // After the first queue, `auto` leaves the device alone for a while.
        (Arc::clone(&of_auto), meter(auto(of_auto)), 1),
    ];
    // At the same time, because each close waits for the device.
    std::thread::scope(|scope| {
        for (inner, outer, queues) in cases {
            scope.spawn(move || {
                for lost in 1..=queues {
                    let queue = outer.open_queue(&QueueOptions::new()).unwrap();
                    let copy = queue.copy(outer.allocate(64).unwrap(), outer.allocate(64).unwrap()).unwrap();
                    assert_eq!(queue.close(Duration::ZERO).abandoned, 1);
                    drop(copy);
                    for engine in [&inner, &outer] {
                        let report = engine.report();
                        assert_eq!(report.queues.len(), 1);
                        assert_eq!((report.queues[0].in_flight, report.queues[0].lost), (0, lost));
                    }
                }
            });
        }
    });
}
