//! The engine on the stand-in SPDK.

mod standin;

use std::time::Duration;

use dma_core::{Batch, DmaEngine, DmaEngineExt, ErrorKind, QueueOptions};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use standin::{on_machine, open, options};
use test_support::script;

#[test]
fn conforms() {
    for machine in [
        "",
        "iova = 'va'",
        "xfercap = '4K'",
        "fill = false",
        "ring = 64",
        "profile = 'ioat'\nclock = 'virtual'",
    ] {
        on_machine("conforms", machine, || dma_conformance::run_all(&open()));
    }
}

#[test]
fn programs_do_what_plain_memory_does() {
    for machine in ["", "xfercap = '4K'\nring = 128", "profile = 'ioat'\nclock = 'virtual'\nfill = false"] {
        on_machine("programs_do_what_plain_memory_does", machine, || {
            let engine = open();
            let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
            TestRunner::new(config)
                .run(&(script::programs(false), 1..40_usize), |(program, depth)| {
                    script::run(&engine, depth, true, &program, |_| ());
                    Ok(())
                })
                .unwrap();
        });
    }
}

#[test]
fn programs_survive_faults() {
    for machine in [
        "profile = 'ioat'\nclock = 'virtual'\nfaults = 'fail:p=0.05'",
        "faults = 'reset@7'",
        "faults = 'fail@every=9'\nxfercap = '4K'",
        "faults = 'refuse@4+slow@3:for=50us'",
    ] {
        on_machine("programs_survive_faults", machine, || {
            let engine = open();
            let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
            TestRunner::new(config)
                .run(&(script::programs(false), 1..40_usize), |(program, depth)| {
                    script::run(&engine, depth, false, &program, |_| ());
                    Ok(())
                })
                .unwrap();
        });
    }
}

#[test]
fn a_failed_descriptor_halts_the_channel_which_comes_back() {
    on_machine("a_failed_descriptor_halts_the_channel_which_comes_back", "faults = 'fail@5:ch=0'", || {
        let engine = open();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..12 {
            let transfer = queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap();
            outcomes.push(transfer.wait().map(drop).map_err(|e| e.kind()));
        }
        assert_eq!(outcomes.iter().filter(|o| **o == Err(ErrorKind::DeviceFault)).count(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 11, "{outcomes:?}");
        assert_eq!(queue.counters().resets, 1);
    });
}

/// Submits five copies to a new queue, and closes the queue.
fn close_amid_copies(engine: &dma_ioat::IoatEngine) -> dma_core::Counters {
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let transfers: Vec<_> = (0..5)
        .map(|_| queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap())
        .collect();
    let counters = queue.close(Duration::from_millis(100));
    drop(transfers);
    counters
}

#[test]
fn a_stuck_channel_is_reset_and_comes_back() {
    for machine in
        ["faults = 'stick@3'", "faults = 'stick@3'\nreattach = 'spdk'\n[[socket.function]]\npci = '00:04.0'"]
    {
        on_machine("a_stuck_channel_is_reset_and_comes_back", machine, || {
            let engine = open();
            let channels = engine.info().limits.max_queues.unwrap();
            let counters = close_amid_copies(&engine);
            // No memory is leaked, because the device has stopped.
            assert_eq!((counters.in_flight, counters.abandoned, counters.resets), (0, 0, 1), "{counters:?}");
            let reopened = open();
            let queues: Vec<_> =
                (0..channels).map(|_| reopened.open_queue(&QueueOptions::new()).unwrap()).collect();
            for queue in &queues[..1] {
                let copy = |_| {
                    let mut src = reopened.allocate(64).unwrap();
                    src.fill(7);
                    let (_, dst) = queue.copy(src, reopened.allocate(64).unwrap()).unwrap().wait().unwrap();
                    assert_eq!(dst[..], [7; 64]);
                };
                (0..2).for_each(copy);
            }
        });
    }
}

#[test]
fn a_channel_that_is_gone_is_said_to_be() {
    on_machine(
        "a_channel_that_is_gone_is_said_to_be",
        "faults = 'gone@3'\n[[socket.function]]\npci = '00:04.0'",
        || {
            let engine = open();
            let counters = close_amid_copies(&engine);
            assert_eq!(counters.in_flight, 0, "{counters:?}");
            let gone = engine.open_queue(&QueueOptions::new()).unwrap_err();
            assert!(!gone.hint().is_empty(), "{gone}");
            let gone = dma_ioat::IoatEngine::open(&options()).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::DeviceFault, "{gone}");
            assert!(gone.to_string().contains("0000:00:04.0"), "{gone}");
        },
    );
}

#[test]
fn functions_of_others_are_left_to_them() {
    let machine = "[[socket]]\n[[socket.function]]\npci = '00:04.0'\n[[socket.function]]\npci = '00:04.1'\ntaken = true\n\
                   [[socket.function]]\npci = '00:04.2'\ndriver = 'ioatdma'\n";
    on_machine("functions_of_others_are_left_to_them", machine, || {
        let engine = open();
        assert_eq!(engine.info().device, "0000:00:04.0");
        let _queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let none = engine.open_queue(&QueueOptions::new()).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::OutOfResources);
        for other in ["00:04.1", "00:04.2"] {
            let address = other.parse().unwrap();
            let error = dma_ioat::IoatEngine::open(&options().with_address(address)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains(other) && error.hint().contains("0000:00:04.0"), "{error}");
        }
    });
}

#[test]
fn a_channel_can_be_given_back_as_spdk_wants_it() {
    on_machine(
        "a_channel_can_be_given_back_as_spdk_wants_it",
        "reattach = 'spdk'\nfaults = 'fail@3:ch=0'",
        || {
            let engine = open();
            let queue =
                engine.open_queue(&QueueOptions::new().with_stall_timeout(Duration::from_secs(30))).unwrap();
            let mut failed = 0;
            for _ in 0..6 {
                let transfer =
                    queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap();
                failed += u32::from(transfer.wait().is_err());
            }
            assert_eq!((failed, queue.counters().resets), (1, 1));
            drop(queue);
            assert!(engine.release_idle() > 0);
        },
    );
}

#[test]
fn no_huge_pages_and_no_memory_are_told() {
    on_machine("no_huge_pages_and_no_memory_are_told", "memory = '64M'", || {
        let error = dma_ioat::IoatEngine::open(&options().with_huge(dma_ioat::HugePages::Off).with_mem(100))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.hint().contains("`mem`"), "{error}");
    });
    on_machine("no_huge_pages_and_no_memory_are_told", "memory = '1G'", || {
        let engine =
            dma_ioat::IoatEngine::open(&options().with_huge(dma_ioat::HugePages::Off).with_mem(32)).unwrap();
        let error = engine.allocate(33 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.hint().contains("`mem`"), "{error}");
    });
}

#[test]
fn threads_have_channels_of_their_own() {
    on_machine("threads_have_channels_of_their_own", "", || {
        let engine = open();
        std::thread::scope(|scope| {
            for seed in 0..8_u8 {
                let engine = &engine;
                scope.spawn(move || {
                    let queue = engine.open_queue(&QueueOptions::new()).expect("one each");
                    for round in 0..20 {
                        let mut batch: Batch<_, _> = (0..32)
                            .map(|_| (engine.allocate(3000).unwrap(), engine.allocate(3000).unwrap()))
                            .collect();
                        batch.iter_mut().for_each(|(src, _)| src.fill(seed ^ round));
                        let batch = queue.submit(batch).unwrap().wait().unwrap();
                        assert!(batch.iter().all(|(src, dst)| src[..] == dst[..]));
                    }
                });
            }
        });
    });
}
