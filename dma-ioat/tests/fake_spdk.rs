//! The engine on a fake SPDK: the engine's reactions to the results of SPDK's calls.

mod fake;

use std::time::{Duration, Instant};

use dma_core::{
    Batch, DmaEngine, DmaEngineExt, EngineName, ErrorKind, HostMemory, MemoryRequest, QueueOptions, Retry,
};
use dma_ioat::{EnvSetup, HugePages, IoatEngine, IoatOptions, PciAddress, discover};
use fake::{library, machine};
use proptest::prelude::*;
use test_support::patience::until;
use test_support::script;

/// Opens an engine on machine `N` with this number of functions.
fn open<const N: usize>(functions: u8) -> IoatEngine {
    IoatEngine::open(&options::<N>(functions)).expect("it opens")
}

fn options<const N: usize>(functions: u8) -> IoatOptions {
    IoatOptions::new().with_library(library::<N>(functions))
}

#[test]
fn conforms() {
    dma_conformance::run_all(&open::<0>(8));
}

#[test]
fn conforms_without_fill() {
    machine::<1>().no_fill = true;
    dma_conformance::run_all(&open::<1>(8));
}

/// Makes one copy, waits for it, and returns its outcome.
fn copy(engine: &IoatEngine, queue: &dma_core::Queue) -> Result<(), dma_core::Error> {
    let mut src = engine.allocate(100)?;
    src.fill(7);
    let transfer = queue.copy(src, engine.allocate(100)?).map_err(|e| e.into_parts().0)?;
    let (src, dst) = transfer.wait().map_err(|e| e.into_parts().0)?;
    assert_eq!(src[..], dst[..]);
    Ok(())
}

#[test]
fn a_channel_that_halts_accounts_for_everything_and_goes_on() {
    let engine = open::<2>(1);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    copy(&engine, &queue).unwrap();
    machine::<2>().halt_in = Some(20);
    let batch: Vec<_> = (0..50)
        .map(|_| queue.copy(engine.allocate(100).unwrap(), engine.allocate(100).unwrap()).expect("room"))
        .collect();
    let (mut done, mut aborted) = (0, 0);
    for transfer in batch {
        match transfer.wait() {
            Ok(_) => done += 1,
            Err(e) => {
                assert_eq!((e.kind(), e.error().retry()), (ErrorKind::Aborted, Retry::Now), "{e}");
                assert!(e.error().native().expect("a code").name.contains("halted"), "{e}");
                aborted += 1;
            }
        }
    }
    // Copies that were done before the halt may be reported as aborted too. Repeating them is harmless.
    assert_eq!(done + aborted, 50);
    assert!(aborted > 0);
    // The channel runs again.
    for _ in 0..120 {
        copy(&engine, &queue).unwrap();
    }
    let counters = queue.counters();
    assert_eq!((counters.resets, counters.in_flight), (1, 0));
    assert_eq!(machine::<2>().detached, 1);
    assert_eq!(counters.completed + counters.aborted + counters.failed, counters.submitted);
    let none = engine.open_queue(&QueueOptions::new()).expect_err("the queue has the channel again");
    assert_eq!(none.kind(), ErrorKind::OutOfResources);
    drop(queue);
    copy(&engine, &engine.open_queue(&QueueOptions::new()).unwrap()).unwrap();
}

#[test]
fn the_descriptor_that_halts_is_found_when_it_is_tried_again() {
    let engine = open::<3>(1);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let submit = || queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).expect("room");
    // The fourth of ten descriptors halts the channel, and halts it again when it is retried.
    machine::<3>().halt_in = Some(3);
    let first: Vec<_> = (0..10).map(|_| submit()).collect();
    assert!(first.into_iter().all(|t| t.wait().is_err_and(|e| e.kind() == ErrorKind::Aborted)));
    machine::<3>().halt_in = Some(3);
    let again: Vec<_> = (0..10).map(|_| submit()).collect();
    queue.flush();
    let kinds: Vec<_> = again.into_iter().map(|t| t.wait().err().map(|e| e.kind())).collect();
    let mut expected = [None; 10];
    expected[3] = Some(ErrorKind::DeviceFault);
    assert_eq!(kinds, expected);
    assert_eq!(queue.counters().resets, 2);
}

#[test]
fn a_channel_that_does_not_come_back_is_lost() {
    let engine = open::<4>(1);
    let queue = engine.open_queue(&QueueOptions::new().with_stall_timeout(Duration::from_secs(60))).unwrap();
    machine::<4>().gone = true;
    machine::<4>().halt_in = Some(0);
    assert_eq!(
        copy(&engine, &queue).unwrap_err().kind(),
        ErrorKind::DeviceFault,
        "it was the only descriptor in flight"
    );
    let lost = copy(&engine, &queue).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
    let counters = queue.close(Duration::from_secs(1));
    assert_eq!((counters.failed, counters.in_flight, counters.resets), (2, 0, 0));
    // The device is back, so its channel can be opened.
    machine::<4>().gone = false;
    copy(&engine, &engine.open_queue(&QueueOptions::new()).unwrap()).unwrap();
}

#[test]
fn a_channel_that_never_answers_is_leaked_and_says_so() {
    let engine = open::<5>(2);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    machine::<5>().stuck = true;
    let transfer = queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).expect("room");
    let started = Instant::now();
    let counters = queue.close(Duration::from_millis(50));
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!((counters.abandoned, counters.in_flight), (1, 0));
    drop(transfer);
    assert_eq!(machine::<5>().detached, 0, "the device may still use its ring");
    // The other channel works. The channel that hangs is not used again.
    machine::<5>().stuck = false;
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    copy(&engine, &queue).unwrap();
    machine::<5>().stuck = true;
    let none = engine.open_queue(&QueueOptions::new()).expect_err("the other channel is taken");
    assert_eq!(none.kind(), ErrorKind::OutOfResources);
    assert!(none.to_string().contains("1 of them do not answer"), "{none}");
    let address: PciAddress = "00:04.0".parse().unwrap();
    let reopened = IoatEngine::open(&options::<5>(2).with_address(address)).unwrap();
    let lost = reopened.open_queue(&QueueOptions::new()).expect_err("the channel does not answer");
    assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
    assert!(lost.hint().contains("once the device has recovered"), "{lost}");
    // Now the device has recovered.
    machine::<5>().stuck = false;
    let again = reopened.open_queue(&QueueOptions::new()).unwrap();
    copy(&reopened, &again).unwrap();
    assert_eq!(machine::<5>().detached, 0, "its descriptors have completed, so no reset was needed");
}

#[test]
fn channels_run_out_with_a_clear_answer() {
    {
        let library = library::<6>(4);
        machine::<6>().functions[3].claimed = true;
        drop(library);
    }
    let engine = open::<6>(4);
    assert_eq!((engine.info().limits.max_queues, engine.info().numa_node), (Some(3), Some(0)));
    let mut queues: Vec<_> = (0..3).map(|_| engine.open_queue(&QueueOptions::new()).unwrap()).collect();
    let none = engine.open_queue(&QueueOptions::new()).expect_err("all channels are taken");
    assert_eq!(none.kind(), ErrorKind::OutOfResources);
    assert!(
        none.to_string().contains("all 3 channels")
            && none.to_string().contains("0000:00:04.3 is taken by another process"),
        "{none}"
    );
    assert_eq!((none.requested(), none.limit()), (Some(4), Some(3)));
    assert!(!none.hint().is_empty());

    // Open one channel by its address, which is taken.
    let address: PciAddress = "00:04.1".parse().unwrap();
    let one = IoatEngine::open(&options::<6>(4).with_address(address)).unwrap();
    assert_eq!((one.info().device.as_str(), one.info().limits.max_queues), ("0000:00:04.1", Some(1)));
    let taken = one.open_queue(&QueueOptions::new()).expect_err("the channel is taken");
    assert_eq!(taken.kind(), ErrorKind::OutOfResources);
    assert!(taken.to_string().contains("0000:00:04.1 is taken by another queue of this process"), "{taken}");
    let held = IoatEngine::open(&options::<6>(4).with_address("00:04.3".parse().unwrap())).unwrap_err();
    assert_eq!(held.kind(), ErrorKind::InUse);
    let nowhere = IoatEngine::open(&options::<6>(4).with_address("00:05.0".parse().unwrap())).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    assert!(nowhere.hint().contains("0000:00:04.0"), "{nowhere}");

    // A closed queue releases its channel. The other process releases its channel too.
    queues.pop();
    let again = engine.open_queue(&QueueOptions::new()).unwrap();
    machine::<6>().functions[3].claimed = false;
    let fourth = engine.open_queue(&QueueOptions::new()).expect("the channel is free now");
    copy(&engine, &fourth).unwrap();
    let none = engine.open_queue(&QueueOptions::new()).expect_err("all four channels are taken");
    assert!(none.to_string().contains("all 4 channels"), "{none}");
    assert!(!none.to_string().contains("another process"), "{none}");
    drop((again, fourth));
    assert_eq!(engine.release_idle(), 2);
    let back = engine.open_queue(&QueueOptions::new()).expect("the channel is attached again");
    copy(&engine, &back).unwrap();
}

#[test]
fn a_function_that_cannot_be_started_is_left_out() {
    {
        let library = library::<7>(3);
        machine::<7>().functions[1].broken = true;
        drop(library);
    }
    let engine = open::<7>(3);
    assert_eq!(engine.info().limits.max_queues, Some(2));
    let error = IoatEngine::open(&options::<7>(3).with_address("00:04.1".parse().unwrap())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault);
    assert!(error.to_string().contains("0000:00:04.1"), "{error}");
    let found = discover(&options::<7>(3));
    assert_eq!(found.iter().filter(|d| d.info.is_ok()).count(), 2, "{found:?}");
}

#[test]
fn no_device_is_told_from_no_spdk() {
    let none = IoatEngine::open(&options::<8>(0)).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    assert!(none.to_string().contains("no I/OAT device found"), "{none}");
    assert!(none.hint().contains("lspci") && none.hint().contains("vfio-pci"), "{none}");
    let found = discover(&options::<8>(0));
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].name.to_string().as_str(), found[0].info.as_ref().unwrap_err().kind()),
        ("ioat", ErrorKind::NotFound)
    );

    let dir = tempfile::tempdir().unwrap();
    let missing = IoatEngine::open(&IoatOptions::new().with_lib_dir(dir.path())).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::MissingSdk);
    assert!(missing.to_string().contains("no libspdk_env_dpdk.so"), "{missing}");
    assert!(missing.to_string().contains("DMA_SPDK_LIB_DIR"));

    std::fs::write(dir.path().join("libspdk_env_dpdk.a"), b"!<arch>\n").unwrap();
    let static_only = IoatEngine::open(&IoatOptions::new().with_lib_dir(dir.path())).unwrap_err();
    assert_eq!(static_only.kind(), ErrorKind::MissingSdk);
    assert!(
        static_only.to_string().contains("--with-shared") && static_only.to_string().contains("`linked`"),
        "{static_only}"
    );

    std::fs::write(dir.path().join("libspdk_env_dpdk.so.17.0"), b"text").unwrap();
    std::fs::write(dir.path().join("libspdk_ioat.so.9.0"), b"text").unwrap();
    let text = IoatEngine::open(&IoatOptions::new().with_lib_dir(dir.path())).unwrap_err();
    assert_eq!(text.kind(), ErrorKind::MissingSdk);
    assert!(text.to_string().contains("not a library"), "{text}");
}

#[test]
fn the_environment_is_set_up_once_and_shared() {
    let options =
        options::<9>(2).with_mem(64).with_huge(HugePages::Off).with_allow(["00:04.0".parse().unwrap()]);
    let engine = IoatEngine::open(&options).unwrap();
    // Later engines may leave options out, or repeat them.
    let again = IoatEngine::open(&options).unwrap();
    let other = open::<9>(2);
    {
        let machine = machine::<9>();
        let [init] = &machine.env_inits[..] else { panic!("{:?}", machine.env_inits) };
        assert!(init.core_mask.starts_with('[') && init.core_mask.ends_with(']'), "{init:?}");
        assert_eq!(
            (init.mem_size, init.no_huge, init.allowed, init.opts_size),
            (64, true, 1, 512),
            "{init:?}"
        );
        assert_eq!(init.context, None);
    }
    for (key, value) in
        [("mem", "65"), ("huge", "on"), ("cores", "0-1023"), ("allow", "00:04.1"), ("env", "external")]
    {
        let name = EngineName::of(IoatOptions::NAME_FORMAT).with_option(key, value).unwrap();
        let asked = IoatOptions::from_name(&name).unwrap();
        let mut options = self::options::<9>(2);
        (options.mem, options.huge, options.env) = (asked.mem, asked.huge, asked.env);
        (options.cores, options.allow) = (asked.cores, asked.allow);
        let conflict = IoatEngine::open(&options).unwrap_err();
        assert_eq!(conflict.kind(), ErrorKind::InUse, "{key}: {conflict}");
        assert!(
            conflict.to_string().contains(&format!("`{key}=")) && conflict.hint().contains(key),
            "{conflict}"
        );
    }
    // An engine refuses memory of another engine, although SPDK would accept it.
    let queue = other.open_queue(&QueueOptions::new()).unwrap();
    let refused = queue.copy(engine.allocate(8).unwrap(), again.allocate(8).unwrap()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongEngine);
}

#[test]
fn an_environment_that_does_not_come_up_says_what_to_do_and_stays_down() {
    drop(library::<10>(1));
    machine::<10>().env_init = -12;
    let options = options::<10>(1).with_huge(HugePages::Off);
    let down = IoatEngine::open(&options).unwrap_err();
    assert_eq!((down.kind(), down.native().unwrap().name.as_ref()), (ErrorKind::OutOfMemory, "ENOMEM"));
    assert!(down.hint().contains("`mem`"), "{down}");
    machine::<10>().env_init = 0;
    let again = IoatEngine::open(&options).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::OutOfMemory);
    assert!(again.hint().contains("start the process again"), "{again}");
    assert_eq!(machine::<10>().env_inits.len(), 1, "SPDK's environment cannot be set up twice");

    machine::<11>().env_init = -13;
    let denied = IoatEngine::open(&self::options::<11>(1).with_huge(HugePages::Off)).unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
    machine::<12>().env_init = -114;
    let twice = IoatEngine::open(&self::options::<12>(1).with_huge(HugePages::Off)).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InUse);
    assert!(twice.hint().contains("env=external"), "{twice}");
}

#[test]
fn an_environment_of_the_programs_own_is_used_if_asked_for() {
    let external = options::<13>(1).with_env(EnvSetup::External);
    let none = IoatEngine::open(&external).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    assert!(none.hint().contains("spdk_env_init"), "{none}");
    machine::<13>().cores = 2;
    let second = IoatEngine::open(&options::<13>(1)).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::InUse);
    assert!(second.to_string().contains("other code of this process"), "{second}");
    let mixed = IoatEngine::open(&external.clone().with_mem(1)).unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::InvalidArgument);
    let engine = IoatEngine::open(&external).unwrap();
    assert!(machine::<13>().env_inits.is_empty());
    copy(&engine, &engine.open_queue(&QueueOptions::new()).unwrap()).unwrap();
}

/// Memory that begins at a multiple of 2 MiB.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

const MIB2: usize = 2 << 20;

impl Aligned {
    fn new(len: usize) -> Self {
        let memory = vec![0; len + MIB2];
        let start = memory.as_ptr().addr().next_multiple_of(MIB2) - memory.as_ptr().addr();
        Self { memory, start, len }
    }
}

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[test]
fn allocations_use_memory_of_the_environment_again() {
    let engine = open::<20>(1);
    let idle = engine.idle_memory().unwrap();
    let before = machine::<20>().memory();
    loop {
        let released = idle.report().released;
        // Another test, whose allocation failed, may have released the memory of all engines.
        let undisturbed = || idle.report().released == released;
        let buffer = engine.allocate(5000).unwrap();
        let address = buffer.as_ptr();
        drop(buffer);
        let kept = machine::<20>().memory();
        let [first, second] = [0, 0].map(|_| engine.allocate(5000).unwrap());
        if undisturbed() {
            assert_eq!(kept, before + 1, "the memory stays allocated");
            assert_eq!((first.as_ptr(), machine::<20>().memory()), (address, before + 2));
            drop(second);
            let freed = idle.release();
            assert!(freed >= 5000 || freed == 0, "{freed}");
            // Another test may have released this memory, and not freed it yet.
            until("released memory is freed", || machine::<20>().memory() == before + 1);
            break;
        }
    }
    drop(engine);
    until("the engine frees idle memory", || machine::<20>().memory() == before);
}

#[test]
fn memory_is_registered_in_pages_of_2_mib_and_comes_back() {
    let engine = open::<14>(1);
    let before = machine::<14>().memory();
    assert_eq!(engine.info().limits.register_alignment, MIB2);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut src = engine.register(HostMemory::from_owner(Aligned::new(2 * MIB2))).unwrap();
    src.fill(5);
    let (src, dst) = queue.copy(src, engine.allocate(2 * MIB2).unwrap()).unwrap().wait().unwrap();
    assert!(dst.iter().all(|b| *b == 5));
    let region = src.region().clone();
    drop(src);
    let memory = region.deregister().unwrap().unwrap();
    let mut owner: Aligned = memory.into_owner().unwrap();
    assert!(owner.as_mut().iter().all(|b| *b == 5));

    // An unaligned start, and two unaligned lengths.
    for (skip, len) in [(4096, MIB2), (0, MIB2 + 4096), (0, 100)] {
        let mut memory = Aligned::new(2 * MIB2);
        (memory.start, memory.len) = (memory.start + skip, len);
        let refused = engine.register(HostMemory::from_owner(memory)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().contains("2 MiB"), "{refused}");
    }
    let mut owner = Aligned::new(MIB2);
    let pointer = std::ptr::NonNull::from(owner.as_mut()).cast::<u8>();
    let whole = |engine: &IoatEngine| {
        #[expect(unsafe_code, reason = "registers the same memory twice")]
        // SAFETY: no code accesses the memory while it is registered, and `owner` outlives the regions.
        engine.register(unsafe { HostMemory::from_raw(pointer, MIB2, ()) })
    };
    let first = whole(&engine).unwrap();
    let twice = whole(&engine).unwrap_err();
    assert_eq!((twice.kind(), twice.native().unwrap().name.as_ref()), (ErrorKind::InUse, "EBUSY"));
    drop(first);
    machine::<14>().untranslatable = true;
    let partly = whole(&engine).unwrap_err();
    assert_eq!(partly.kind(), ErrorKind::AccessDenied);
    assert!(partly.to_string().contains(&format!("byte {} of {MIB2}", MIB2 / 2)), "{partly}");
    assert_eq!(engine.allocate(100).unwrap_err().kind(), ErrorKind::AccessDenied);
    machine::<14>().untranslatable = false;
    whole(&engine).expect("refused memory is not registered any more");
    drop((queue, dst));
    engine.idle_memory().unwrap().release();
    until("all memory is freed", || machine::<14>().memory() == before);
}

#[test]
fn a_ring_full_of_pieces_is_back_pressure() {
    let engine = open::<15>(1);
    let queue = engine.open_queue(&QueueOptions::new().with_depth(8)).unwrap();
    // Each copy has at least 128 pieces, and the ring holds 511 pieces.
    let len = 512 * 1024;
    let transfers: Vec<_> = (0..8)
        .map(|i| {
            let mut src = engine.allocate_with(&MemoryRequest::new(len)).unwrap();
            src.fill(i);
            queue.copy(src, engine.allocate(len).unwrap()).expect("room")
        })
        .collect();
    for (i, transfer) in (0..).zip(transfers) {
        let (_, dst) = transfer.wait().unwrap();
        assert!(dst.iter().all(|b| *b == i));
    }
}

#[test]
fn a_doorbell_is_rung_once_per_batch() {
    let engine = open::<16>(1);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let batch: Batch<_, _> =
        (0..128).map(|_| (engine.allocate(512).unwrap(), engine.allocate(512).unwrap())).collect();
    let before = machine::<16>().doorbells;
    queue.submit(batch).unwrap().wait().unwrap();
    assert_eq!(machine::<16>().doorbells - before, 1);
    assert_eq!(queue.counters().doorbells, 1);
}

#[test]
fn threads_have_channels_of_their_own() {
    let engine = open::<17>(4);
    std::thread::scope(|scope| {
        for seed in 0..4_u8 {
            let engine = &engine;
            scope.spawn(move || {
                let queue = engine.open_queue(&QueueOptions::new()).expect("one each");
                for round in 0..50 {
                    let mut src = engine.allocate(3000).unwrap();
                    src.fill(seed ^ round);
                    let (src, dst) = queue.copy(src, engine.allocate(3000).unwrap()).unwrap().wait().unwrap();
                    assert_eq!(src[..], dst[..]);
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_plain_memory_does(program in script::programs(false), depth in 1..40_usize) {
        script::run(&open::<18>(1), depth, true, &program, |_| ());
    }

    #[test]
    fn programs_survive_halts(program in script::programs(true), depth in 1..40_usize) {
        machine::<19>().halt_in = None;
        script::run(&open::<19>(1), depth, false, &program, |after| machine::<19>().halt_in = Some(after));
    }
}
