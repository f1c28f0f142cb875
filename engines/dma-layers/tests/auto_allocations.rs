//! Tests that copies of a warm `AutoEngine` do not allocate: on the CPU, on the device, and when the CPU
//! repeats them.

use std::sync::Arc;

use dma_core::{Batch, DmaEngineExt, QueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, AutoReport, Prefer};
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Makes single copies and batches. Returns the number of this thread's allocations after the first round.
fn allocations_when_warm(device: &str, prefer: Prefer) -> (u64, AutoReport) {
    let cpu = CpuOptions::from_name(&"cpu:threads=0".parse().unwrap()).unwrap();
    let cpu = Arc::new(CpuEngine::open(&cpu).unwrap());
    let device = SimEngine::open(&SimOptions::from_name(&device.parse().unwrap()).unwrap()).unwrap();
    let options = AutoOptions::new().with_prefer(prefer);
    let engine = AutoEngine::new(cpu, Arc::new(device), &options).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut operands = Some((engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap()));
    let pair = |_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let mut batch = Some((0..32).map(pair).collect::<Batch<_, _>>());
    let mut before = 0;
    for round in 0..3 {
        if round == 1 {
            before = counting::of_thread();
        }
        for i in 0..500 {
            if i % 5 == 0 {
                queue.fence();
            }
            let (src, dst) = operands.take().unwrap();
            operands = Some(queue.copy(src, dst).unwrap().wait().unwrap());
            batch = batch.take().map(|batch| queue.submit(batch).unwrap().wait().unwrap());
        }
    }
    (counting::of_thread() - before, engine.report())
}

#[test]
fn warm_copies_allocate_nothing() {
    for (device, prefer) in [
        ("sim:profile=dsa", Prefer::Measured),
        ("sim:profile=dsa", Prefer::Device),
        ("sim:profile=bluefield3", Prefer::Device),
        ("sim:faults=fail@every=10", Prefer::Device),
    ] {
        let (allocations, report) = allocations_when_warm(device, prefer);
        assert_eq!(allocations, 0, "on {device}, {prefer:?}: {report}");
        assert!(report.device > 0, "{report}");
        assert_eq!(report.repeated > 0, device.contains("fail"), "{report}");
    }
}
