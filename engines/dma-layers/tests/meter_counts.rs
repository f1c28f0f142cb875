//! Tests that a meter's counts equal those of the safe API, and that counting does not allocate.

mod engines;

use dma_core::{Batch, DmaEngineExt, QueueOptions};
use engines::{cpu, meter, sim};
use proptest::prelude::*;
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

proptest! {
    /// Makes copies of any lengths, in batches of any size, on devices that fail some copies, split some, and
    /// sometimes reset.
    #[test]
    fn counts_are_those_of_the_queue(
        device in prop_oneof![
            Just("cpu"),
            Just("sim:profile=dsa"),
            Just("sim:max_transfer=100,depth=5"),
            Just("sim:faults=fail@every=7"),
            Just("sim:faults=reset@9"),
        ],
        batches in proptest::collection::vec(proptest::collection::vec(1_usize..5000, 1..40), 1..8),
    ) {
        let engine = meter(if device == "cpu" { cpu(device) } else { sim(device) });
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let mut lengths = Vec::new();
        for batch in &batches {
            let mut waiting = Vec::new();
            for &len in batch {
                let (src, dst) = (engine.allocate(len).unwrap(), engine.allocate(len).unwrap());
                match queue.copy(src, dst) {
                    Ok(transfer) => waiting.push((transfer, len)),
                    // A full queue refuses the copy.
                    Err(_) => break,
                }
            }
            for (transfer, len) in waiting {
                if transfer.wait().is_ok() {
                    lengths.push(len as u64);
                }
            }
        }
        let counters = queue.counters();
        let report = engine.report().queues[0].clone();
        // The CPU executes operations without descriptors.
        let descriptors = if device == "cpu" { counters.submitted } else { counters.descriptors };
        prop_assert_eq!(report.submitted, descriptors);
        prop_assert_eq!(report.done + report.failed + report.aborted, descriptors);
        prop_assert_eq!((report.in_flight, report.doorbells), (0, counters.doorbells));
        prop_assert_eq!((report.failed, report.aborted), (counters.failed, counters.aborted));
        prop_assert_eq!(report.latencies.count(), report.done);
        if !device.contains("max_transfer") {
            prop_assert_eq!((report.bytes, report.done), (counters.bytes, counters.completed));
            let largest = lengths.iter().max().copied();
            let found = report.sizes.quantile(1.0);
            prop_assert!(found >= largest && found.unwrap_or(0) as f64 <= largest.unwrap_or(0) as f64 * 1.032 + 1.0);
        }
        // The next queue gets the same number, and adds to its counts.
        drop(queue);
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let (src, dst) = (engine.allocate(8).unwrap(), engine.allocate(8).unwrap());
        let _ = queue.copy(src, dst).unwrap().wait();
        prop_assert_eq!(engine.report().queues.len(), 1);
        prop_assert_eq!(engine.report().queues[0].submitted, report.submitted + 1);
    }
}

#[test]
fn warm_copies_allocate_nothing() {
    for inner in [cpu("cpu:threads=0"), sim("sim:profile=dsa")] {
        let engine = meter(inner);
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let mut operands = Some((engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap()));
        let pair = |_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
        let mut batch = Some((0..32).map(pair).collect::<Batch<_, _>>());
        let mut before = 0;
        for round in 0..200 {
            if round == 100 {
                before = counting::of_thread();
            }
            operands = operands.take().map(|(src, dst)| queue.copy(src, dst).unwrap().wait().unwrap());
            batch = batch.take().map(|batch| queue.submit(batch).unwrap().wait().unwrap());
        }
        assert_eq!(counting::of_thread() - before, 0, "{engine:?}");
        assert_eq!(engine.report().queues[0].done, 200 * 33);
        let text = engine.report().to_string();
        assert!(text.contains("queue 0: 6600 done") && text.contains("size p50 64 B, p99 4096 B"), "{text}");
    }
}
