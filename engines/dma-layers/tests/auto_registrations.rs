//! Tests bytes that are registered several times: the registrations are independent, on the device as well.

mod engines;

use std::sync::Arc;

use bytes::Bytes;
use dma_core::{BufferMut, DmaEngineExt, Queue, QueueOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use engines::{cpu, sim};

const LEN: usize = 1 << 20;

fn auto() -> (AutoEngine, Queue) {
    let options = AutoOptions::new().with_prefer(Prefer::Device);
    let auto = AutoEngine::new(cpu("cpu:threads=0"), sim("sim"), &options).expect("it opens");
    let queue = auto.open_queue(&QueueOptions::new()).expect("a queue");
    (auto, queue)
}

/// Makes 20 copies of `source`. Returns the number of copies that the device made.
fn by_device(auto: &AutoEngine, queue: &Queue, source: &dma_core::Buffer) -> u64 {
    let before = auto.report().device;
    let mut dst: BufferMut = auto.allocate(source.len()).expect("memory");
    for _ in 0..20 {
        dst.fill(0);
        (_, dst) = queue.copy(source.clone(), dst).expect("accepted").wait().expect("done");
        assert!(dst.iter().all(|byte| *byte == 7), "{}", dst[0]);
    }
    auto.report().device - before
}

#[test]
fn the_device_keeps_memory_whose_twin_comes_and_goes() {
    let (auto, queue) = auto();
    let bytes = Bytes::from(vec![7; LEN]);
    let register = || auto.register_read_only(bytes.clone()).expect("registered");
    let first = register();
    assert_eq!(by_device(&auto, &queue, &first), 20);
    drop(register());
    assert_eq!(by_device(&auto, &queue, &first), 20, "after a second registration was dropped");
    let (second, third) = (register(), register());
    for source in [&first, &second, &third] {
        assert_eq!(by_device(&auto, &queue, source), 20, "with three registrations");
    }
    drop(third);
    assert_eq!(by_device(&auto, &queue, &first), 20, "after the third registration was dropped");
    drop(first);
    assert_eq!(by_device(&auto, &queue, &second), 20, "after the first registration was dropped");
}

/// If a region is deregistered while a descriptor names it, the simulator reports a violation of the
/// contract, and the copy fails.
#[test]
fn a_registration_that_goes_takes_no_key_of_a_copy_in_flight() {
    let (auto, queue) = auto();
    let bytes = Arc::new(vec![7; LEN]);
    struct Shared(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let register =
        |bytes: &Arc<Vec<u8>>| auto.register_read_only(Shared(Arc::clone(bytes))).expect("it takes them");
    for _ in 0..50 {
        let (idle, source) = (register(&bytes), register(&bytes));
        let transfer = queue.copy(source, auto.allocate(LEN).expect("memory")).expect("accepted");
        queue.flush();
        drop(idle);
        // The new region may get the address and the key of the dropped one.
        let other = register(&Arc::new(vec![1; LEN]));
        let (_, dst) = transfer.wait().expect("done");
        assert!(dst.iter().all(|byte| *byte == 7), "{}", dst[0]);
        drop(other);
    }
    let report = auto.report();
    assert_eq!((report.device, report.repeated, report.left), (50, 0, 0), "{report}");
}
