//! Tests that wrappers see the operations that the CPU executes within the call that submits them, in every
//! order of wrappers.

mod engines;

use std::sync::Arc;

use dma_core::{Batch, DmaEngine, DmaEngineExt, QueueOptions, SharedQueueOptions};
use dma_layers::record::{Kind, Trace, TraceEvent};
use dma_layers::replay::{ReplayOptions, replay};
use dma_layers::verify::{VerifyEngine, VerifyOptions};
use engines::{cpu, meter, record};

const ORDERS: [[char; 3]; 6] =
    [['m', 'r', 'v'], ['m', 'v', 'r'], ['r', 'm', 'v'], ['r', 'v', 'm'], ['v', 'm', 'r'], ['v', 'r', 'm']];

/// Number of copies, of which batches have 100, and of other operations that [`run`] submits.
const COPIES: u64 = 300;
const OTHERS: u64 = 150;

/// Submits operations of every type, most of which the CPU may execute within the call.
fn run(engine: &dyn DmaEngine, shared: bool) {
    let memory = |len| engine.allocate(len).unwrap();
    let (mut src, mut dst, mut also) = (memory(64), memory(64), memory(64));
    src.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let mut batch: Batch<_, _> = (0..10).map(|_| (memory(64), memory(64))).collect();
    macro_rules! operations {
        ($queue:ident) => {
            for round in 0..50 {
                (src, dst) = $queue.copy(src, dst).unwrap().wait().unwrap();
                (src, dst, also) = $queue.copy_to_both(src, dst, also).unwrap().wait().unwrap();
                ((src, dst), _) = $queue.copy_crc32c(src, dst, 0).unwrap().wait().unwrap();
                let lists = ([src.split_to(7), src], [dst.split_to(9), dst]);
                let ([head, tail], [first, rest]) = $queue.copy(lists.0, lists.1).unwrap().wait().unwrap();
                (src, dst) = (head, first);
                src.unsplit(tail).unwrap();
                dst.unsplit(rest).unwrap();
                (src, _) = $queue.crc32c(src, 0).unwrap().wait().unwrap();
                ((src, dst), _) = $queue.compare(src, dst).unwrap().wait().unwrap();
                also = $queue.fill(also, [round; 8]).unwrap().wait().unwrap();
                if round < 10 {
                    batch = $queue.submit(batch).unwrap().wait().unwrap();
                }
            }
        };
    }
    if shared {
        let queue = engine.open_shared_queue(&SharedQueueOptions::new()).unwrap();
        operations!(queue);
    } else {
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        operations!(queue);
    }
    assert!(src[..] == dst[..] && also[..] == [49; 64]);
}

#[test]
fn every_wrapper_sees_every_operation_in_any_order() {
    for (order, sample, shared) in ORDERS
        .into_iter()
        .flat_map(|order| [1, 7, 1000].map(|sample| (order, sample)))
        .flat_map(|(order, sample)| [false, true].map(|shared| (order, sample, shared)))
    {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = cpu("cpu:threads=0");
        let (mut metered, mut recorded, mut verified) = (None, None, None);
        // The innermost wrapper is first.
        for wrapper in order {
            engine = match wrapper {
                'm' => Arc::clone(metered.insert(meter(engine))) as Arc<dyn DmaEngine>,
                'r' => Arc::clone(recorded.insert(record(engine, folder.path()))) as Arc<dyn DmaEngine>,
                _ => {
                    let options = VerifyOptions::new().with_sample(sample);
                    Arc::clone(verified.insert(Arc::new(VerifyEngine::new(engine, &options)))) as _
                }
            };
        }
        run(&*engine, shared);
        let what = format!("{order:?}, sample {sample}, shared {shared}");
        let counts = metered.unwrap().report().queues[0].clone();
        assert_eq!((counts.submitted, counts.done), (COPIES + OTHERS, COPIES + OTHERS), "{what}");
        let report = verified.unwrap().report();
        assert_eq!(report.verified + report.unverified, COPIES + OTHERS, "{what}: {report}");
        assert_eq!((report.verified, report.mismatches), (COPIES / sample, 0), "{what}: {report}");
        drop(engine);
        recorded.unwrap().finish().unwrap();
        let trace = Trace::load(&folder.path().join("a.trace")).unwrap();
        assert_eq!(trace.queues()[0].operations, COPIES + OTHERS, "{what}");
        let mut kinds = [0; 7];
        for event in trace.events(0) {
            if let TraceEvent::Operation { kind, len, .. } = event {
                assert_eq!(len, 64, "{what}");
                kinds[kind as usize] += 1;
            }
        }
        let of = |kind: Kind| kinds[kind as usize];
        assert_eq!((of(Kind::Copy), of(Kind::CopyLists), of(Kind::CopyToBoth)), (150, 50, 50), "{what}");
        let replayed = replay(&trace, &cpu("cpu:threads=0"), &ReplayOptions::new().with_repetitions(1));
        assert_eq!(replayed.unwrap().mismatch, None, "{what}");
    }
}

/// A trace has the program's doorbells, so a recorded queue sees every operation.
#[test]
fn a_recorded_queue_has_no_executor() {
    let folder = tempfile::tempdir().unwrap();
    let engine = record(cpu("cpu:threads=0"), folder.path());
    assert!(engine.open_queue_raw(&QueueOptions::new()).unwrap().inline_executor().is_none());
}
