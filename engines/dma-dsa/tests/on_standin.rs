//! Tests of the engine on the work queues of the stand-in, with real portals, whose stores trap.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod fences;

use std::task::{Context, Waker};
use std::time::Duration;

use dma_core::{Batch, DmaEngine, DmaEngineExt, Error, ErrorKind, Queue, QueueOptions, SharedQueueOptions};
use dma_dsa::{DsaEngine, DsaOptions};
use dsa_emu::Emu;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use test_support::script;

fn open(config: &str) -> (Emu, DsaEngine) {
    let emu = Emu::start(config).unwrap();
    let options = DsaOptions::new().with_dev_dir(emu.dev_dir()).with_sysfs_dir(emu.sysfs_dir());
    let engine = DsaEngine::open(&options).unwrap();
    (emu, engine)
}

fn conforms(config: &str) {
    let (emu, engine) = open(config);
    dma_conformance::run_all(&engine);
    assert!(emu.submissions("wq0.0") > 100, "the descriptors did not go to the stand-in");
}

#[test]
fn conforms_on_a_dedicated_work_queue() {
    conforms("");
}

#[test]
fn conforms_on_a_shared_work_queue_that_refuses() {
    conforms("mode = 'shared'\nsize = 4\nfaults = 'refuse:p=0.3'");
}

#[test]
fn conforms_with_page_faults() {
    conforms("page_faults = 0.3\nseed = 5");
}

#[test]
fn conforms_with_two_descriptors_at_a_time() {
    conforms("size = 1\nmax_batch = 2\nmax_transfer = 100\npage_faults = 0.2");
}

#[test]
fn allocations_use_memory_again() {
    let (_emu, engine) = open("");
    let idle = engine.idle_memory().unwrap();
    let (addresses, report) = loop {
        let released = idle.report().released;
        let addresses = [(); 2].map(|()| engine.allocate(5000).unwrap().as_ptr());
        let report = idle.report();
        // Another test, whose allocation failed, may have released the memory of all engines.
        if report.released == released {
            break (addresses, report);
        }
    };
    assert_eq!(addresses[0], addresses[1]);
    assert!(report.reused > 0 && report.missed > 0, "{report:?}");
}

#[test]
fn random_programs_leave_the_right_bytes() {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let queues = (any::<bool>(), 1..20_u32, 1..40_u32, 0..4_u32, any::<u64>());
    TestRunner::new(config)
        .run(&(script::programs(false), 1..40_usize, queues), |(program, depth, queue)| {
            let (shared, size, max_batch, faults, seed) = queue;
            let mode = if shared { "shared" } else { "dedicated" };
            let (_emu, engine) = open(&format!(
                "mode = '{mode}'\nsize = {size}\nmax_batch = {max_batch}\nmax_transfer = 20000\nseed = {}\n\
                 page_faults = {}\nfaults = 'refuse:p=0.{faults}'",
                seed >> 1,
                f64::from(faults) / 10.0
            ));
            let depth = depth.min(engine.info().limits.max_queue_depth);
            script::run(&engine, depth, true, &program, |_| ());
            Ok(())
        })
        .unwrap();
}

#[test]
fn conforms_with_operations_in_any_order() {
    conforms("unordered = true\npage_faults = 0.1");
}

#[test]
fn fenced_programs_end_as_if_run_in_order() {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let queues = (any::<bool>(), 1..20_u32, 2..40_u32, 0..4_u32, any::<u32>());
    TestRunner::new(config)
        .run(&(fences::programs(), 1..40_usize, queues), |(program, depth, queue)| {
            let (shared, size, max_batch, faults, seed) = queue;
            let mode = if shared { "shared" } else { "dedicated" };
            let (_emu, engine) = open(&format!(
                "mode = '{mode}'\nsize = {size}\nmax_batch = {max_batch}\nunordered = true\nseed = {seed}\n\
                 page_faults = 0.{faults}\nfaults = 'refuse:p=0.{faults}'"
            ));
            fences::run(&engine, depth.min(engine.info().limits.max_queue_depth), &program);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_thousand_copies_over_page_faults_arrive() {
    let (_emu, engine) = open("page_faults = 0.5");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (mut src, mut dst) = (engine.allocate(9000).unwrap(), engine.allocate(9000).unwrap());
    for round in 0..1000_usize {
        src.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 251 + round) as u8);
        (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
        assert!(src[..] == dst[..], "round {round}");
    }
    let counters = queue.counters();
    assert_eq!((counters.completed, counters.failed), (1000, 0));
}

#[test]
fn a_batch_is_one_store() {
    let (emu, engine) = open("");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let batch: Batch<_, _> =
        (0..32).map(|_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap())).collect();
    queue.submit(batch).unwrap().wait().unwrap();
    assert_eq!(emu.submissions("wq0.0"), 1);
}

#[test]
fn a_batch_up_to_the_longest_is_one_store_anywhere_in_the_ring() {
    const LONGEST: usize = 100;
    let (emu, engine) = open(&format!("max_batch = {LONGEST}"));
    let queue = engine.open_queue(&QueueOptions::new().with_depth(150)).unwrap();
    let buffer = |byte| {
        let mut buffer = engine.allocate(64).unwrap();
        buffer.fill(byte);
        buffer
    };
    let batch = |len| (0..len).map(|n| (buffer(n as u8), buffer(0))).collect::<Batch<_, _>>();
    // One batch is in flight while the next is submitted, so that batches cross the end of the ring.
    let mut before = None;
    for (round, len) in
        [99, 51, 77, 50, LONGEST, 42, LONGEST, 49, 95, 33].into_iter().cycle().take(40).enumerate()
    {
        let transfer = queue.submit(batch(len)).unwrap();
        queue.flush();
        assert_eq!(emu.submissions("wq0.0"), round as u64 + 1, "a batch of {len}");
        if let Some(before) = before.replace(transfer) {
            before.wait().unwrap().iter().for_each(|(src, dst)| assert_eq!(src[..], dst[..]));
        }
    }
    before.unwrap().wait().unwrap();
    assert_eq!(queue.counters().doorbells, 40);
    queue.submit(batch(LONGEST + 1)).unwrap().wait().unwrap();
    assert_eq!(emu.submissions("wq0.0"), 42, "one descriptor more than the longest batch");
}

#[test]
fn tasks_that_await_share_doorbells() {
    const TASKS: u64 = 64;
    const ROUNDS: u64 = 50;
    let (emu, engine) = open("");
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).unwrap();
    let task = async || {
        let (mut src, mut dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
        for round in 0..ROUNDS {
            src.fill(round as u8);
            (src, dst) = queue.copy_when_ready(src, dst).await.unwrap();
            assert_eq!(src[..], dst[..]);
        }
    };
    let mut tasks: Vec<_> = (0..TASKS).map(|_| Box::pin(task())).collect();
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        std::thread::yield_now();
    }
    let doorbells = emu.submissions("wq0.0");
    assert_eq!(queue.counters().doorbells, doorbells);
    // The lane's thread rings for the copies of slow tasks, so their number is not known.
    assert!(doorbells < TASKS * ROUNDS, "{doorbells} doorbells for {} copies", TASKS * ROUNDS);
}

#[test]
fn a_failure_has_the_status_of_the_device() {
    let (_emu, engine) = open("faults = 'fail@2'");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    for fails in [false, true, false] {
        let (src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
        match queue.copy(src, dst).unwrap().wait() {
            Ok(_) => assert!(!fails),
            Err(error) => {
                assert!(fails, "{error}");
                assert_eq!(error.error().kind(), ErrorKind::DeviceFault);
                assert_eq!(error.error().native().unwrap().code, 0x20);
            }
        }
    }
}

/// Returns the error of a copy that must fail.
fn failure(engine: &DsaEngine, queue: &Queue, meanwhile: impl FnOnce()) -> Error {
    match queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()) {
        Err(error) => error.into_parts().0,
        Ok(transfer) => {
            queue.flush();
            meanwhile();
            transfer.wait().unwrap_err().into_parts().0
        }
    }
}

/// Asserts that a copy on a work queue that is disabled ends with `Aborted`, and the next copy with
/// `DeviceLost`.
fn is_lost(engine: &DsaEngine, queue: &Queue, disable: impl FnOnce()) {
    let error = failure(engine, queue, disable);
    assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
    let error = failure(engine, queue, || ());
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
}

fn is_lost_at_once(engine: &DsaEngine, disable: impl FnOnce()) {
    is_lost(engine, &engine.open_queue(&QueueOptions::new()).unwrap(), disable);
}

#[test]
fn a_work_queue_that_is_disabled_under_way_ends_everything() {
    let (emu, engine) = open("faults = 'stick@1'");
    is_lost_at_once(&engine, || assert!(emu.disable("wq0.0")));
    for fault in ["reset@1", "gone@1"] {
        let (_emu, engine) = open(&format!("faults = '{fault}'"));
        is_lost_at_once(&engine, || ());
    }
    let (emu, engine) = open("mode = 'shared'\nfaults = 'stick@1'");
    is_lost_at_once(&engine, || assert!(emu.disable("wq0.0")));
}

/// Copies on a queue until a copy succeeds. Returns the errors before that.
fn until_done(engine: &DsaEngine, queue: &Queue) -> Vec<ErrorKind> {
    let mut errors = Vec::new();
    loop {
        let (mut src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
        src.fill(9);
        match queue.copy(src, dst) {
            Err(error) => errors.push(error.kind()),
            Ok(transfer) => match transfer.wait() {
                Err(error) => errors.push(error.error().kind()),
                Ok((src, dst)) => {
                    assert_eq!(src[..], dst[..]);
                    return errors;
                }
            },
        }
        assert!(errors.len() < 1000, "{errors:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_work_queue_that_is_enabled_again_is_used_again() {
    for mode in ["dedicated", "shared"] {
        let (emu, engine) = open(&format!("mode = '{mode}'"));
        let queues = [(); 2].map(|()| engine.open_queue(&QueueOptions::new()).unwrap());
        for queue in &queues {
            assert_eq!(until_done(&engine, queue), []);
        }
        for round in 1..4 {
            assert!(emu.disable("wq0.0"));
            is_lost(&engine, &queues[0], || ());
            assert!(emu.enable("wq0.0").unwrap());
            for queue in &queues {
                let errors = until_done(&engine, queue);
                let known = |kind: &ErrorKind| [ErrorKind::Aborted, ErrorKind::DeviceLost].contains(kind);
                assert!(errors.iter().all(known), "{errors:?}");
                assert_eq!(queue.counters().resets, round);
            }
        }
        assert_eq!(until_done(&engine, &engine.open_queue(&QueueOptions::new()).unwrap()), []);
    }
}

#[test]
fn a_work_queue_that_was_disabled_for_a_moment_ends_what_is_stored_to_it() {
    let (emu, engine) = open("");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    assert!(emu.disable("wq0.0") && emu.enable("wq0.0").unwrap());
    let error = failure(&engine, &queue, || ());
    assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
    until_done(&engine, &queue);
}

#[test]
fn a_work_queue_that_was_configured_anew_needs_a_new_engine() {
    let (emu, engine) = open("");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    assert!(emu.disable("wq0.0"));
    is_lost(&engine, &queue, || ());
    std::fs::write(emu.sysfs_dir().join("wq0.0/size"), "8\n").unwrap();
    assert!(emu.enable("wq0.0").unwrap());
    std::thread::sleep(Duration::from_millis(20));
    let error = failure(&engine, &queue, || ());
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.to_string().contains("configured differently"), "{error}");
}

#[test]
fn a_wrong_byte_is_noticed() {
    let (_emu, engine) = open("faults = 'corrupt@1'");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (src, dst) = (engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap());
    let (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
    let bits: u32 = src.iter().zip(dst.iter()).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(bits, 1, "one bit differs");
}

#[test]
fn closing_a_hung_work_queue_is_bounded() {
    let (_emu, engine) = open("faults = 'stick@1'");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    drop(queue.copy(src, dst).unwrap());
    let counters = queue.close(Duration::from_millis(50));
    assert_eq!((counters.completed, counters.abandoned), (0, 1));
}

#[test]
fn it_says_that_it_is_a_stand_in() {
    let (_emu, engine) = open("");
    assert_eq!(engine.info().model.as_deref(), Some("dsa-emu"));
}
