//! Tests that copies of `AutoEngine` succeed with devices that fail while they are opened, or whose limits
//! are smaller than a copy.

mod engines;

use std::sync::Arc;

use dma_core::{DmaEngine, DmaEngineExt, QueueOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use engines::{cpu, sim};

fn auto(device: Arc<dyn DmaEngine>) -> AutoEngine {
    let options = AutoOptions::new().with_prefer(Prefer::Device);
    AutoEngine::new(cpu("cpu:threads=0"), device, &options).unwrap()
}

/// Copies `len` bytes on a new queue.
fn copy(engine: &AutoEngine, len: usize) {
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (mut src, dst) = (engine.allocate(len).unwrap(), engine.allocate(len).unwrap());
    src.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7) as u8 | 1);
    let (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
    assert!(src[..] == dst[..], "{len} bytes arrive");
}

#[test]
fn a_device_that_dies_while_it_is_opened_costs_no_copy() {
    let device = sim("sim:faults=gone@1");
    let before = auto(Arc::clone(&device));
    let queue = device.open_queue(&QueueOptions::new()).unwrap();
    let (src, dst) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let _ = queue.copy(src, dst).unwrap().wait();
    drop(queue);
    // The device is lost between opening the engine and opening its queue, and before both.
    for engine in [before, auto(device)] {
        copy(&engine, 5000);
        let report = engine.report();
        assert_eq!((report.cpu, report.device), (1, 0), "{report}");
        assert!(report.reason.as_ref().is_some_and(|reason| !reason.is_empty()), "{report}");
    }
}

#[test]
fn a_queue_that_the_device_has_no_channel_for_is_the_cpus() {
    let engine = auto(sim("sim:queues=1"));
    let first = engine.open_queue(&QueueOptions::new()).unwrap();
    copy(&engine, 5000);
    assert_eq!((engine.report().cpu, engine.report().device), (1, 0), "{}", engine.report());
    drop(first);
}

#[test]
fn copies_beyond_the_limits_of_a_member_are_cut_up() {
    let engine = auto(sim("sim:max_transfer=100,max_segments=1,depth=2"));
    assert_eq!(engine.info().limits.max_transfer, 100);
    copy(&engine, 100_001);
    let report = engine.report();
    assert!(report.device > 0 && report.cpu + report.device >= 1001, "{report}");
}
