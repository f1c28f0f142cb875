//! Tests that a wait through each wrapper ends when the device is lost, and that `auto` goes on with the CPU.
//! The stall timeout is longer than any test.

mod engines;

use std::sync::Arc;
use std::time::Duration;

use dma_core::{DmaEngine, DmaEngineExt, ErrorKind, Queue, QueueOptions};
use engines::{auto, meter, record, sim, verify};

#[test]
fn every_wrapper_passes_the_loss_on() {
    let folder = tempfile::tempdir().unwrap();
    let dead = || sim("sim:profile=dsa,faults=dead@3");
    let wrapped: [(&str, Arc<dyn DmaEngine>); 4] = [
        ("meter", meter(dead())),
        ("verify", verify(dead())),
        ("record", record(dead(), folder.path())),
        ("meter of record of verify", meter(record(verify(dead()), folder.path()))),
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

/// A device that is stopped after its loss reports its copies as aborted, and the CPU repeats them. All later
/// copies of the queue are the CPU's.
#[test]
fn auto_loses_no_copy_and_goes_on() {
    for engine in [auto(sim("sim:profile=dsa,faults=dead@3")), meter(auto(verify(sim("sim:faults=dead@3"))))]
    {
        let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(100 * 3600));
        let queue = engine.open_queue(&options).unwrap();
        for round in 0..300_u32 {
            let pair = || (engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap());
            let copies = (0..4).map(|_| pair()).map(|(mut src, dst)| {
                src.fill(round as u8 | 1);
                queue.copy(src, dst).unwrap()
            });
            for copy in copies.collect::<Vec<_>>() {
                let (src, dst) = copy.wait().unwrap();
                assert!(src[..] == dst[..], "round {round}");
            }
        }
        let counters = queue.close(Duration::from_secs(60));
        assert_eq!((counters.completed, counters.abandoned), (1200, 0));
    }
}

/// The loss is met on another queue of the device.
#[test]
fn a_driver_tells_the_loss_of_an_idle_queues_device() {
    let engine = sim("sim:profile=bluefield3,faults=dead@1:ch=0");
    let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(100 * 3600));
    let (first, idle) = (engine.open_queue(&options).unwrap(), engine.open_queue(&options).unwrap());
    let driver = idle.driver().unwrap();
    driver.run().unwrap();
    let copy = first.copy(engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap()).unwrap();
    assert_eq!(copy.wait().unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(driver.run().unwrap_err().kind(), ErrorKind::DeviceLost);
}

/// The lost device's event can no longer be armed. The queue meets the loss by its own copies, or another
/// queue does.
#[test]
fn the_driver_of_auto_goes_on_after_a_loss() {
    for meets_loss in [true, false] {
        let engine = auto(sim("sim:profile=bluefield3,faults=dead@3"));
        let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(100 * 3600));
        let (other, queue) = (engine.open_queue(&options).unwrap(), engine.open_queue(&options).unwrap());
        let mut idle = engine.open_queue_raw(&options).unwrap();
        assert!(idle.events().unwrap().arm().unwrap());
        let driver = queue.driver().unwrap();
        driver.run().unwrap();
        let copies = |queue: &Queue| {
            let pair = || (engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap());
            (0..8).map(|_| pair()).map(|(src, dst)| queue.copy(src, dst).unwrap()).collect::<Vec<_>>()
        };
        if !meets_loss {
            copies(&other).into_iter().for_each(|copy| drop(copy.wait().unwrap()));
        }
        let own = copies(&queue);
        let runs = (0..1000).take_while(|_| own.iter().any(|copy| !copy.is_done()));
        runs.for_each(|_| driver.run().unwrap());
        assert!(own.iter().all(|copy| copy.is_done()));
        driver.run().unwrap();
        assert!(queue.lost().is_none(), "the CPU copies");
        // Nothing wakes the owner of an idle queue.
        let mut arm = || idle.events().unwrap().arm().unwrap();
        assert!(arm() || arm(), "an idle queue needs no more polls");
    }
}
