//! Tests that a wait through each wrapper ends when the device is lost. The stall timeout is longer than any
//! test.

mod engines;

use std::sync::Arc;
use std::time::Duration;

use dma_core::{DmaEngine, DmaEngineExt, ErrorKind, QueueOptions};
use engines::{auto, meter, record, sim, verify};

#[test]
fn every_wrapper_passes_the_loss_on() {
    let folder = tempfile::tempdir().unwrap();
    let dead = || sim("sim:profile=dsa,faults=dead@3");
    let wrapped: [(&str, Arc<dyn DmaEngine>); 5] = [
        ("meter", meter(dead())),
        ("verify", verify(dead())),
        ("record", record(dead(), folder.path())),
        ("auto", auto(dead())),
        ("meter of auto of verify", meter(auto(verify(dead())))),
    ];
    for (name, engine) in wrapped {
        let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(100 * 3600));
        let queue = engine.open_queue(&options).unwrap();
        let pair = || (engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap());
        let copies: Vec<_> = (0..4).map(|_| pair()).map(|(src, dst)| queue.copy(src, dst).unwrap()).collect();
        let ends: Vec<_> =
            copies.into_iter().map(|copy| copy.wait().map(drop).map_err(|e| e.kind())).collect();
        let lost = ends.iter().filter(|end| **end == Err(ErrorKind::DeviceLost)).count();
        let done = ends.iter().filter(|end| end.is_ok()).count();
        assert!(lost > 0 && lost + done == 4, "{name}: {ends:?}");
        assert_eq!(queue.close(Duration::from_secs(60)).abandoned, lost as u64, "{name}");
    }
}

/// The CPU's copies are done although the device is lost, and a later queue works without the device.
#[test]
fn auto_ends_the_copies_of_the_cpu_first() {
    let engine = auto(sim("sim:profile=dsa,faults=dead@1"));
    let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(100 * 3600));
    let queue = engine.open_queue(&options).unwrap();
    let pair = |len| (engine.allocate(len).unwrap(), engine.allocate(len).unwrap());
    let (src, dst) = pair(4096);
    let on_device = queue.copy(src, dst).unwrap();
    let list = |len| vec![engine.allocate(len).unwrap(), engine.allocate(len).unwrap()];
    let on_cpu = queue.copy(list(1 << 20), list(1 << 20)).unwrap();
    queue.flush();
    assert_eq!(on_device.wait().unwrap_err().kind(), ErrorKind::DeviceLost);
    on_cpu.wait().unwrap();
    drop(queue);
    let queue = engine.open_queue(&options).unwrap();
    let (src, dst) = pair(4096);
    queue.copy(src, dst).unwrap().wait().unwrap();
}
