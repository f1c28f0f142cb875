//! Tests that wrappers see the operations that the CPU executes within the call that submits them: in every
//! order of wrappers, beside operations in flight, and after the close of the queue.
#![expect(unsafe_code, reason = "calls executors and raw queues")]

mod engines;

use std::sync::Arc;

use dma_core::{
    Batch, Completion, Descriptor, DmaEngine, DmaEngineExt, MemoryRequest, Operation, QueueOptions,
    SharedQueueOptions,
};
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

/// An executor may run beside descriptors in flight, even if the queue is full, and after the queue is
/// closed.
#[test]
fn a_trace_has_what_an_executor_does_beside_a_full_queue_and_after_the_close() {
    let folder = tempfile::tempdir().unwrap();
    let engine = record(cpu("cpu:threads=0"), folder.path());
    // A region in front makes other region numbers than 0.
    let _front = engine.allocate_raw(&MemoryRequest::new(64)).unwrap();
    let memory = engine.allocate_raw(&MemoryRequest::new(1 << 20)).unwrap();
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(1)).unwrap();
    let depth = queue.depth();
    let executor = queue.inline_executor().expect("the CPU executes short operations");
    let at = |offset, len| memory.info().segment(offset, len);
    let long = |token| Descriptor::copy(token as u64, at(0, 1 << 18), at(1 << 18, 1 << 18));
    let execute = |offset: usize| {
        let (src, dst) = (at(offset, 64), at((1 << 19) + offset, 64));
        // SAFETY: the access lies within the region, and no other code accesses these bytes.
        unsafe { executor.copy(src.addr, dst.addr, 64) };
        // SAFETY: the access lies within the region, and no other code accesses these bytes.
        unsafe { executor.execute(&Operation::Fill { pattern: [1; 8], dst: &[dst] }) };
    };
    let batch: Vec<_> = (0..depth).map(long).collect();
    // SAFETY: the access lies within the region, and only this queue accesses these bytes until the reports.
    assert_eq!(unsafe { queue.submit(&batch) }.unwrap(), depth);
    execute(1 << 18);
    queue.flush();
    let (mut left, mut reports) = (depth, [Completion::done(0); 16]);
    while left > 0 {
        left -= queue.poll(&mut reports);
    }
    execute(0);
    drop(queue);
    execute(64);
    engine.finish().unwrap();
    // The trace does not exist any more.
    execute(128);

    let trace = Trace::load(&folder.path().join("a.trace")).unwrap();
    assert_eq!((trace.queues()[0].depth, trace.queues()[0].operations), (depth + 1, depth as u64 + 6));
    let older: Vec<_> = trace
        .events(0)
        .filter_map(|event| match event {
            TraceEvent::Ended { older, .. } => Some(older),
            _ => None,
        })
        .collect();
    assert_eq!(older[..2], [depth as u64; 2], "{older:?}");
    assert!(older[2..].iter().all(|older| *older == 0), "{older:?}");
    let mut events = trace.events(0);
    let mut offsets = Vec::new();
    while let Some(event) = events.next() {
        if matches!(event, TraceEvent::Operation { kind: Kind::Copy, len: 64, .. }) {
            offsets.push((events.src()[0].region, events.src()[0].offset, events.dst()[0].offset));
        }
    }
    let half = 1 << 19;
    assert_eq!(offsets, [(1, 1 << 18, half + (1 << 18)), (1, 0, half), (1, 64, half + 64)]);
}
