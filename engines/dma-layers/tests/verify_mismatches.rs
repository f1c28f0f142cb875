//! Tests that a `VerifyEngine` reports each wrong copy with its first wrong byte, and reports no correct
//! copy, and that copies of a warm queue do not allocate.

use std::sync::Arc;

use dma_core::{
    Access, Batch, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, NativeError, Place, QueueOptions,
};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::verify::{VerifyEngine, VerifyOptions};
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn sim(name: &str) -> Arc<dyn DmaEngine> {
    let options = SimOptions::from_name(&name.parse().unwrap()).unwrap();
    Arc::new(SimEngine::open(&options).unwrap())
}

/// Returns the offset that an error names.
fn offset(error: &str) -> usize {
    let (_, rest) = error.split_once("VERIFY_MISMATCH").unwrap_or_else(|| panic!("{error}"));
    let (_, rest) = rest.split_once("byte ").unwrap();
    rest.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn every_wrong_copy_is_an_error_that_names_the_byte() {
    let engine = VerifyEngine::new(sim("sim:faults=corrupt@every=3,seed=7"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    for i in 1..=300_usize {
        let (mut src, dst) = (engine.allocate(i * 7).unwrap(), engine.allocate(i * 7).unwrap());
        src.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + i) as u8);
        match queue.copy(src, dst).unwrap().wait() {
            Ok((src, dst)) => {
                assert_ne!(i % 3, 0, "every third copy is wrong");
                assert_eq!(src[..], dst[..]);
            }
            Err(error) => {
                assert_eq!((i % 3, error.kind()), (0, ErrorKind::DeviceFault), "{error}");
                let native = error.error().native().expect("a code");
                assert_eq!(native.code, NativeError::VERIFY_MISMATCH, "the same for each: {error}");
                assert!(error.error().message().contains("does not have the bytes"), "{error}");
                let hint = error.error().hint();
                assert!(hint.starts_with("copy again;") && !hint.contains("driver"), "{error}");
                let text = error.to_string();
                let (src, dst) = error.into_operands().unwrap();
                let wrong = src.iter().zip(&dst[..]).position(|(a, b)| a != b);
                assert_eq!(Some(offset(&text)), wrong, "{text}");
            }
        }
    }
    let report = engine.report();
    assert_eq!((report.verified, report.unverified, report.mismatches), (200, 0, 100), "{report}");
}

/// The reports of a batch arrive in one poll, which is more mismatches than a queue explains.
#[test]
fn every_one_of_many_mismatches_has_the_code() {
    let engine = VerifyEngine::new(sim("sim:faults=corrupt,seed=7,depth=256"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new().with_depth(256)).unwrap();
    let memory = || engine.allocate(64).unwrap();
    let copies: Vec<_> = (0..200).map(|_| queue.copy(memory(), memory()).unwrap()).collect();
    queue.flush();
    while copies.iter().any(|copy| !copy.is_done()) {
        queue.poll();
    }
    let errors: Vec<_> = copies.into_iter().map(|copy| copy.wait().expect_err("it is wrong")).collect();
    for error in &errors {
        let native = error.error().native().expect("a code");
        assert_eq!(native.code, NativeError::VERIFY_MISMATCH, "{error}");
        assert!(error.error().message().contains("does not have the bytes"), "{error}");
    }
    for text in ["byte 2", "some byte is wrong"] {
        assert!(errors.iter().any(|error| error.to_string().contains(text)), "{text}");
    }
}

#[test]
fn a_wrong_list_and_a_wrong_second_destination_are_found() {
    // The fault flips a bit of any byte of the destinations. Over many copies it hits each destination.
    let engine = VerifyEngine::new(sim("sim:faults=corrupt,max_segments=4,seed=3"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let memory = |len: usize| engine.allocate(len).unwrap();
    let mut offsets = Vec::new();
    for _ in 0..100 {
        let error = queue.copy([memory(30), memory(70)], [memory(45), memory(55)]).unwrap().wait();
        offsets.push(offset(&error.expect_err("it is wrong").to_string()));
        let error = queue.copy_to_both(memory(100), memory(100), memory(100)).unwrap().wait();
        assert_eq!(error.expect_err("it is wrong").kind(), ErrorKind::DeviceFault);
    }
    assert!(offsets.iter().all(|offset| *offset < 100), "{offsets:?}");
    assert!(offsets.iter().any(|offset| *offset < 45) && offsets.iter().any(|offset| *offset >= 70));
    assert_eq!(engine.report().verified, 0, "{}", engine.report());
}

#[test]
fn a_sample_is_verified() {
    for (options, verified) in [
        (VerifyOptions::new(), 100),
        (VerifyOptions::new().with_sample(4), 25),
        (VerifyOptions::new().with_sample_bytes(10 * 64), 10),
        (VerifyOptions::new().with_sample(50).with_sample_bytes(10 * 64), 2),
        (VerifyOptions::new().with_sample(101), 0),
    ] {
        let cpu =
            CpuEngine::open(&CpuOptions::from_name(&"cpu:threads=0".parse().unwrap()).unwrap()).unwrap();
        // The CPU executes the copies that are not verified within the calls.
        for inner in [sim("sim:seed=1"), Arc::new(cpu)] {
            let engine = VerifyEngine::new(inner, &options);
            let queue = engine.open_queue(&QueueOptions::new()).unwrap();
            let memory = || engine.allocate(64).unwrap();
            for _ in 0..100 {
                queue.copy(memory(), memory()).unwrap().wait().unwrap();
            }
            let counts = (verified, 100 - verified, 0);
            let report = engine.report();
            assert_eq!((report.verified, report.unverified, report.mismatches), counts);
            // Counts of closed queues remain.
            drop(queue);
            drop(engine.open_queue(&QueueOptions::new()).unwrap());
            assert_eq!(engine.report(), report);
        }
    }
}

#[test]
fn memory_that_the_cpu_cannot_reach_is_not_verified() {
    let owner = sim("sim:profile=bluefield3,seed=1");
    let engine = VerifyEngine::new(sim("sim:profile=bluefield3,seed=2"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let rights = Access::READ | Access::WRITE;
    let window = owner.allocate_window(&MemoryRequest::new(4096).exportable(rights)).unwrap();
    let export = window.export(rights).unwrap();
    let far = engine.import(export.descriptor()).unwrap();
    let mut src = engine.allocate(4096).unwrap();
    src.fill(9);
    let (src, far) = queue.copy(src, far).unwrap().wait().unwrap();
    assert_eq!((engine.report().verified, engine.report().unverified), (0, 1));
    drop(far);
    let dst = engine.allocate(4096).unwrap();
    queue.copy(src, dst).unwrap().wait().unwrap();
    assert_eq!((engine.report().verified, engine.report().unverified), (1, 1));
}

#[test]
fn warm_copies_allocate_nothing() {
    let cpu = CpuOptions::from_name(&"cpu:threads=0".parse().unwrap()).unwrap();
    for inner in [Arc::new(CpuEngine::open(&cpu).unwrap()), sim("sim:profile=dsa")] {
        let engine = VerifyEngine::new(inner, &VerifyOptions::new());
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
        assert_eq!(engine.report().verified, 200 * 33);
    }
}

/// Device memory is compared through host memory, in pieces; wrong copies name their byte.
#[test]
fn copies_of_device_memory_are_verified() {
    let memory = |engine: &VerifyEngine, len| engine.allocate_device(len).unwrap();
    let engine = VerifyEngine::new(sim("sim:device_memory=16M,seed=7"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut src = engine.allocate(200_003).unwrap();
    src.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31) as u8);
    let (src, there) = queue.copy(src, memory(&engine, 200_003)).unwrap().wait().unwrap();
    let (there, other) = queue.copy(there, memory(&engine, 200_003)).unwrap().wait().unwrap();
    let both = [engine.allocate(100_000).unwrap(), engine.allocate(100_003).unwrap()];
    let (_, back) = queue.copy([there.slice(..7), other.slice(7..)], both).unwrap().wait().unwrap();
    assert!(src[..100_000] == back[0][..] && src[100_000..] == back[1][..]);
    let report = engine.report();
    assert!(report.verified >= 3 && report.mismatches == 0, "{report}");
    // Memory that the device may not read cannot be compared.
    let request = MemoryRequest::new(64).with_access(Access::WRITE).with_place(Place::Device);
    let write_only = engine.allocate_window(&request).unwrap();
    let before = engine.report();
    queue.copy(engine.allocate(64).unwrap(), write_only).unwrap().wait().unwrap();
    let report = engine.report();
    assert_eq!((report.verified, report.mismatches), (before.verified, 0), "{report}");
    assert_eq!(report.unverified, before.unverified + 1, "{report}");

    // The fifth copy of each queue is wrong. Copies between buffers, whose checksums the CPU computes, come
    // before, so that the fifth one is a copy to the device.
    let engine =
        VerifyEngine::new(sim("sim:faults=corrupt@5,device_memory=16M,seed=7"), &VerifyOptions::new());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    for _ in 0..4 {
        queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap().wait().unwrap();
    }
    let wrong = queue.copy(src_of(&engine), memory(&engine, 60_000)).unwrap().wait().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::DeviceFault, "{wrong}");
    assert!(offset(&wrong.to_string()) < 60_000, "{wrong}");
    assert_eq!(engine.report().mismatches, 1, "{}", engine.report());
}

fn src_of(engine: &VerifyEngine) -> dma_core::BufferMut {
    let mut src = engine.allocate(60_000).unwrap();
    src.fill(0x5a);
    src
}
