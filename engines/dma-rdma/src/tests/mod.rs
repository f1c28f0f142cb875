//! Tests of the engine on the stand-in's device.

use dma_conformance::conformance_tests;
use dma_core::{
    Access, Batch, BufferMut, Capabilities, Completion, Descriptor, DmaEngine, DmaEngineExt, Error,
    ErrorKind, HostMemory, MemoryRequest, Outcome, Queue, QueueOptions, RawQueue, RegionInfo,
};
use proptest::prelude::*;

use rdma_emu::{Nic, State, wc};

use self::open::Open as _;
use crate::verbs::{EVENT_DEVICE_FATAL, SEND_FENCE, SEND_SIGNALED};
use crate::{RdmaEngine, RdmaOptions};
use test_support::patience::until;
use test_support::{counting, script};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

mod dmabufs;
mod exchange;
mod flood;
mod hosts;
mod messages;
mod open;
mod remote;
mod rights;

fn tight() -> Nic {
    Nic::with(|state| (state.max_qp_wr, state.max_msg_sz, state.link_layer) = (3, 100, 1))
}

conformance_tests!(ethernet, Nic::default().open());
conformance_tests!(infiniband, Nic::with(|state| state.link_layer = 1).open());
conformance_tests!(listening, {
    let listen = RdmaOptions::new().with_listen("127.0.0.1:0".parse().unwrap());
    Nic::with(|state| state.link_layer = 1).open_with(&listen).unwrap()
});

#[test]
fn conforms_with_short_descriptors_and_three_in_flight() {
    let listen = RdmaOptions::new().with_listen("127.0.0.1:0".parse().unwrap());
    dma_conformance::run_all(&tight().open_with(&listen).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_leave_the_right_bytes(
        program in script::programs(false),
        depth in 1..40_usize,
        max_msg_sz in prop_oneof![Just(1 << 30), 64..20_000_u32],
    ) {
        let nic = Nic::with(|state| state.max_msg_sz = max_msg_sz);
        script::run(&nic.open(), depth, true, &program, |_| ());
        prop_assert_eq!(nic.state().objects, 0, "objects of the library were not destroyed");
    }

    #[test]
    fn random_programs_survive_failures(
        program in script::programs(false),
        depth in 1..40_usize,
        fail_every in 2..30_u64,
    ) {
        let nic = Nic::with(|state| state.fail_every = fail_every);
        script::run(&nic.open(), depth, false, &program, |_| ());
        prop_assert_eq!(nic.state().objects, 0, "objects of the library were not destroyed");
    }
}

#[test]
fn allocations_use_registrations_again() {
    let nic = Nic::default();
    let engine = nic.open();
    let idle_memory = engine.idle_memory().unwrap();
    let before = nic.state().objects;
    loop {
        let released = idle_memory.report().released;
        // Another test, whose allocation failed, may have released the memory of all engines.
        let undisturbed = || idle_memory.report().released == released;
        let buffer = engine.allocate(5000).unwrap();
        let key = buffer.region().as_raw().info().key;
        drop(buffer);
        let kept = nic.state().objects;
        let [first, second] = [0, 0].map(|_| engine.allocate(5000).unwrap());
        if undisturbed() {
            assert_eq!(kept, before + 1, "the memory stays registered");
            assert_eq!(first.region().as_raw().info().key, key);
            assert_eq!(nic.state().objects, before + 2);
            drop(second);
            let freed = idle_memory.release();
            assert!(freed >= 5000 || freed == 0, "{freed}");
            // Another test may have released this memory, and not freed it yet.
            until("released memory is deregistered", || nic.state().objects == before + 1);
            break;
        }
    }
    drop(engine);
    until("the engine deregisters idle memory", || nic.state().objects == 0);
}

fn buffers(engine: &RdmaEngine, len: usize) -> (BufferMut, BufferMut) {
    let mut src = engine.allocate(len).unwrap();
    src.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 | 1);
    (src, engine.allocate(len).unwrap())
}

fn open_queue(engine: &RdmaEngine) -> Queue {
    engine.open_queue(&QueueOptions::new()).unwrap()
}

/// Copies 64 bytes.
fn copy(engine: &RdmaEngine, queue: &Queue) -> Result<(), Error> {
    let (src, dst) = buffers(engine, 64);
    let transfer = queue.copy(src, dst)?;
    let (src, dst) = transfer.wait()?;
    assert_eq!(src[..], dst[..]);
    Ok(())
}

/// Asserts that `work` reaches 200 rounds without an allocation. Earlier rounds may allocate, because lists
/// grow, including those of the stand-in. An allocation per operation fails the test.
fn warm<T>(what: &str, nic: &Nic, mut operands: T, mut work: impl FnMut(T) -> T) {
    let mut allocated = 0;
    for _ in 0..20 {
        (nic.state().chains, nic.state().flags) = (Vec::with_capacity(9000), Vec::with_capacity(9000));
        let before = counting::of_thread();
        for _ in 0..200 {
            operands = work(operands);
        }
        allocated = counting::of_thread() - before;
        if allocated == 0 {
            return;
        }
    }
    panic!("{what} still allocates: {allocated} times in 200 rounds");
}

#[test]
fn nothing_is_allocated_per_copy_once_warm() {
    let nic = Nic::default();
    let engine = nic.open();
    let queue = open_queue(&engine);
    for len in [64, 4096] {
        warm(&format!("a copy of {len}"), &nic, buffers(&engine, len), |(src, dst)| {
            queue.copy(src, dst).unwrap().wait().unwrap()
        });
    }
    let batch: Batch<_, _> = (0..40).map(|_| buffers(&engine, 64)).collect();
    warm("a batch", &nic, batch, |batch| queue.submit(batch).unwrap().wait().unwrap());
}

/// A queue and a region for tests without the safe API.
struct Raw {
    queue: Box<dyn RawQueue>,
    info: RegionInfo,
    _memory: Box<dyn dma_core::RawRegion>,
}

impl Raw {
    fn open(engine: &RdmaEngine, depth: usize) -> Self {
        let queue = engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).unwrap();
        let memory = engine.allocate_raw(&MemoryRequest::new(128)).unwrap();
        Self { queue, info: *memory.info(), _memory: memory }
    }

    /// Submits copies with these tokens, and returns the number of accepted copies.
    fn submit(&mut self, tokens: std::ops::Range<u64>) -> dma_core::Result<usize> {
        self.submit_each(tokens, |descriptor| descriptor)
    }

    fn submit_each(
        &mut self,
        tokens: std::ops::Range<u64>,
        set: impl Fn(Descriptor<'static>) -> Descriptor<'static>,
    ) -> dma_core::Result<usize> {
        let (src, dst) = (self.info.segment(0, 64), self.info.segment(64, 64));
        let batch: Vec<_> = tokens.map(|token| set(Descriptor::copy(token, src, dst))).collect();
        #[expect(unsafe_code, reason = "calls the raw queue")]
        // SAFETY: the region outlives the queue, and the device runs requests one by one.
        unsafe {
            self.queue.submit(&batch)
        }
    }

    /// Polls for `number` completions.
    fn ended(&mut self, number: usize) -> Vec<(u64, Outcome, i32)> {
        let mut ended = Vec::new();
        for _ in 0..100_000 {
            let mut completions = [Completion::done(9); 4];
            let n = self.queue.poll(&mut completions);
            ended.extend(completions[..n].iter().map(|c| (c.token, c.outcome, c.native)));
            if ended.len() >= number {
                return ended;
            }
        }
        panic!("{} of {number} completions", ended.len());
    }
}

fn done(tokens: std::ops::Range<u64>) -> Vec<(u64, Outcome, i32)> {
    tokens.map(|token| (token, Outcome::Done, 0)).collect()
}

fn aborted(tokens: std::ops::Range<u64>) -> Vec<(u64, Outcome, i32)> {
    tokens.map(|token| (token, Outcome::Aborted, wc::FLUSHED)).collect()
}

#[test]
fn a_batch_has_one_doorbell_and_few_completions() {
    let nic = Nic::default();
    let mut raw = Raw::open(&nic.open(), 200);
    assert_eq!(raw.submit(0..100).unwrap(), 100);
    raw.queue.flush();
    raw.queue.flush();
    assert_eq!(raw.ended(100), done(0..100));
    let state = nic.state();
    assert_eq!(state.chains, [100]);
    let signalled: Vec<_> = (0..100).filter(|i| state.flags[*i] & SEND_SIGNALED != 0).collect();
    assert_eq!(signalled, [31, 63, 95, 99]);
    assert_eq!(raw.queue.stats().doorbells, 1);
}

/// Only completions free places of the send queue, and each doorbell has one completion.
#[test]
fn no_sequence_of_doorbells_stalls() {
    let nic = Nic::default();
    let engine = nic.open();
    for depth in [1, 2, 3, 31, 32, 33, 64] {
        let mut raw = Raw::open(&engine, depth);
        let mut next = 0;
        for round in 1..400_u64 {
            let number = round * 7 % (depth as u64 + 1);
            let taken = raw.submit(next..next + number).unwrap() as u64;
            raw.queue.flush();
            assert_eq!(taken, number);
            assert_eq!(raw.ended(taken as usize), done(next..next + taken), "depth {depth}");
            next += taken;
        }
    }
}

#[test]
fn depth_bounds_what_is_in_flight() {
    let mut raw = Raw::open(&tight().open(), 3);
    assert_eq!(raw.submit(0..5).unwrap(), 3);
    assert_eq!(raw.submit(3..5).unwrap(), 0);
    raw.queue.flush();
    assert_eq!(raw.ended(3), done(0..3));
    assert_eq!(raw.submit(3..5).unwrap(), 2);
}

#[test]
fn a_fence_is_the_devices() {
    let nic = Nic::default();
    let mut raw = Raw::open(&nic.open(), 8);
    raw.submit(0..1).unwrap();
    raw.submit_each(1..2, |descriptor| descriptor.with_fence(true)).unwrap();
    raw.queue.flush();
    raw.ended(2);
    let fences: Vec<_> = nic.state().flags.iter().map(|flags| flags & SEND_FENCE != 0).collect();
    assert_eq!(fences, [false, true]);
}

#[test]
fn fences_are_not_left_to_soft_roce() {
    let nic = Nic::default();
    assert!(nic.open().info().capabilities.contains(Capabilities::FENCE));
    nic.state().vendor_id = 0xff_ffff;
    assert!(!nic.open().info().capabilities.contains(Capabilities::FENCE));
}

#[test]
fn the_first_failure_is_told_and_the_rest_is_aborted() {
    for (status, kind) in [
        (1, ErrorKind::OutOfRange),
        (2, ErrorKind::DeviceFault),
        (wc::PROTECTION, ErrorKind::AccessDenied),
        (wc::REMOTE_ACCESS, ErrorKind::AccessDenied),
        (wc::NO_ANSWER, ErrorKind::DeviceFault),
        (19, ErrorKind::DeviceLost),
        (21, ErrorKind::DeviceFault),
    ] {
        let nic = Nic::with(|state| state.statuses.extend([0, 0, status]));
        let mut raw = Raw::open(&nic.open(), 16);
        raw.submit(0..10).unwrap();
        raw.queue.flush();
        let failed = vec![(2, Outcome::Failed(kind), status)];
        assert_eq!(raw.ended(10), [done(0..2), failed, aborted(3..10)].concat());
        assert!(raw.queue.explain(status).name.starts_with("IBV_WC_"));
        assert_eq!(raw.queue.stats().resets, 1);
        raw.submit(10..20).unwrap();
        raw.queue.flush();
        assert_eq!(raw.ended(10), done(10..20));
    }
}

/// Descriptors whose doorbell was rung after the failure, but before the queue noticed it, start without
/// another doorbell.
#[test]
fn descriptors_behind_a_failure_start_without_another_doorbell() {
    let nic = Nic::with(|state| state.statuses.extend([wc::NO_ANSWER]));
    let mut raw = Raw::open(&nic.open(), 16);
    raw.submit(0..4).unwrap();
    raw.queue.flush();
    let first = raw.ended(1);
    raw.submit(4..6).unwrap();
    raw.queue.flush();
    let rest = raw.ended(6 - first.len());
    let all = [first, rest].concat();
    let failed = vec![(0, Outcome::Failed(ErrorKind::DeviceFault), wc::NO_ANSWER)];
    assert_eq!(all, [failed, aborted(1..4), done(4..6)].concat());
}

#[test]
fn rights_are_the_devices() {
    let nic = Nic::default();
    let engine = nic.open();
    let mut raw = Raw::open(&engine, 4);
    // The region was dropped, so its keys are unknown.
    let gone = *engine.allocate_raw(&MemoryRequest::new(64)).unwrap().info();
    for (src, dst, status) in [
        (gone.segment(0, 64), raw.info.segment(64, 64), wc::REMOTE_ACCESS),
        (raw.info.segment(0, 64), gone.segment(0, 64), wc::PROTECTION),
    ] {
        #[expect(unsafe_code, reason = "calls the raw queue")]
        // SAFETY: the stand-in refuses the keys, and accesses no memory.
        unsafe { raw.queue.submit(&[Descriptor::copy(1, src, dst)]) }.unwrap();
        raw.queue.flush();
        assert_eq!(raw.ended(1), [(1, Outcome::Failed(ErrorKind::AccessDenied), status)]);
    }
}

#[test]
fn a_request_that_is_refused_ends_alone() {
    let nic = Nic::with(|state| state.refuse_after = Some(3));
    let mut raw = Raw::open(&nic.open(), 16);
    raw.submit(0..6).unwrap();
    raw.queue.flush();
    let failed = vec![(3, Outcome::Failed(ErrorKind::DeviceFault), -libc::EINVAL)];
    assert_eq!(raw.ended(6), [aborted(0..3), failed, aborted(4..6)].concat());
    raw.submit(6..8).unwrap();
    raw.queue.flush();
    assert_eq!(raw.ended(2), done(6..8));
}

#[test]
fn a_port_that_is_down_is_named_until_it_is_up() {
    let nic = Nic::default();
    let engine = nic.open();
    let queue = open_queue(&engine);
    copy(&engine, &queue).unwrap();
    nic.state().port_down = true;
    let error = copy(&engine, &queue).unwrap_err();
    assert_eq!(
        (error.kind(), error.native().unwrap().name.as_ref()),
        (ErrorKind::DeviceFault, "IBV_WC_RETRY_EXC_ERR")
    );
    let error = copy(&engine, &queue).unwrap_err();
    assert!(error.to_string().contains("not active") && error.hint().contains("ip link set"), "{error}");
    nic.state().port_down = false;
    copy(&engine, &queue).unwrap();
}

#[test]
fn a_fatal_event_loses_the_device() {
    let nic = Nic::default();
    let engine = nic.open();
    let queue = open_queue(&engine);
    [10, EVENT_DEVICE_FATAL, 9].into_iter().for_each(|event| nic.state().emit(event));
    nic.state().statuses.extend([19]);
    copy(&engine, &queue).unwrap_err();
    let error = copy(&engine, &queue).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.hint().contains("dmesg"), "{error}");
}

#[test]
fn a_completion_queue_that_fails_ends_everything() {
    let nic = Nic::default();
    let mut raw = Raw::open(&nic.open(), 8);
    raw.submit(0..4).unwrap();
    raw.queue.flush();
    nic.state().errors.insert("poll_cq", libc::EIO);
    assert_eq!(raw.ended(4), aborted(0..4));
    assert_eq!(raw.submit(4..5).unwrap_err().kind(), ErrorKind::DeviceLost);
}

/// The device may still use the memory, so it is leaked. The stall timeout is longer than any test.
#[test]
fn a_wait_ends_when_the_device_can_not_drop_its_requests() {
    let nic = Nic::with(|state| state.hangs = true);
    let engine = nic.open();
    let options = QueueOptions::new().with_stall_timeout(std::time::Duration::from_secs(100 * 3600));
    let queue = engine.open_queue(&options).unwrap();
    let pair = || (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let (src, dst) = pair();
    let copy = queue.copy(src, dst).unwrap();
    queue.flush();
    nic.state().errors.extend(["poll_cq", "modify_qp", "destroy_qp"].map(|call| (call, libc::EIO)));
    let error = copy.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.into_operands().is_none());
    let (src, dst) = pair();
    assert_eq!(queue.copy(src, dst).unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(queue.close(std::time::Duration::from_secs(60)).abandoned, 1);
}

#[test]
fn stop_ends_hung_and_lost_operations() {
    let settings: [fn(&mut State); 2] = [|state| state.hangs = true, |state| state.loses = true];
    for set in settings {
        let nic = Nic::with(set);
        let mut raw = Raw::open(&nic.open(), 8);
        raw.submit(0..4).unwrap();
        raw.queue.flush();
        raw.submit(4..6).unwrap();
        assert_eq!(raw.queue.poll(&mut [Completion::done(0); 8]), 0);
        raw.queue.stop();
        raw.queue.stop();
        assert_eq!(raw.ended(6), aborted(0..6));
        assert_eq!(raw.submit(6..7).unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// If a queue pair cannot be reset, it is destroyed. If it cannot be destroyed either, its descriptors are
/// not reported until a later attempt succeeds.
#[test]
fn memory_is_given_back_only_if_the_device_lets_go() {
    let nic = Nic::with(|state| state.hangs = true);
    let engine = nic.open();
    let open = || {
        let mut raw = Raw::open(&engine, 8);
        raw.submit(0..2).unwrap();
        raw.queue.flush();
        raw
    };
    let (mut resets_not, mut stays) = (open(), open());
    nic.state().errors.insert("modify_qp", libc::EIO);
    resets_not.queue.stop();
    assert_eq!(resets_not.ended(2), aborted(0..2));
    nic.state().errors.insert("destroy_qp", libc::EIO);
    stays.queue.stop();
    assert_eq!(stays.queue.poll(&mut [Completion::done(0); 8]), 0);
    assert_eq!(stays.submit(2..3).unwrap_err().kind(), ErrorKind::DeviceLost);
    nic.state().errors.clear();
    stays.queue.stop();
    assert_eq!(stays.ended(2), aborted(0..2));
}

#[test]
fn nothing_is_left_when_opening_fails() {
    for (call, errno, kind, says) in [
        ("get_device_list", libc::ENOSYS, ErrorKind::NotFound, "modprobe"),
        ("open_device", libc::EACCES, ErrorKind::PermissionDenied, "/dev/infiniband"),
        ("alloc_pd", libc::ENOMEM, ErrorKind::OutOfResources, "close some"),
    ] {
        let nic = Nic::with(|state| _ = state.errors.insert(call, errno));
        let error = nic.open_with(&RdmaOptions::new()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.hint().contains(says), "{error}");
        assert_eq!(nic.state().objects, 0, "{call}");
    }
    for (call, errno, kind) in [
        ("create_comp_channel", libc::EMFILE, ErrorKind::OutOfResources),
        ("create_cq", libc::ENOMEM, ErrorKind::OutOfResources),
        ("create_qp", libc::ENOMEM, ErrorKind::OutOfResources),
        ("modify_qp", libc::EINVAL, ErrorKind::InvalidArgument),
    ] {
        let nic = Nic::with(|state| _ = state.errors.insert(call, errno));
        let engine = nic.open();
        let objects = nic.state().objects;
        let error = engine.open_queue_raw(&QueueOptions::new()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(nic.state().objects, objects, "{call}");
    }
    let nic = Nic::default();
    let engine = nic.open();
    let window = engine.allocate_window(&MemoryRequest::new(4096).exportable(Access::all())).unwrap();
    drop(window.export(Access::all()).unwrap());
    for call in ["alloc_pd", "create_cq", "reg_mr"] {
        let objects = nic.state().objects;
        nic.state().errors.insert(call, libc::ENOMEM);
        window.export(Access::all()).unwrap_err();
        assert_eq!(nic.state().objects, objects, "{call}");
        nic.state().errors.clear();
    }
}

#[test]
fn a_queue_pair_that_stays_keeps_what_it_uses() {
    let nic = Nic::default();
    let engine = nic.open();
    let queue = engine.open_queue_raw(&QueueOptions::new()).unwrap();
    let objects = nic.state().objects;
    nic.state().errors.insert("destroy_qp", libc::EIO);
    drop(queue);
    assert_eq!(nic.state().objects, objects);
}

#[test]
fn devices_and_ports_are_chosen() {
    let nic = Nic::with(|state| state.devices = 2);
    let open = |options: RdmaOptions| nic.open_with(&options);
    assert_eq!(open(RdmaOptions::new().with_device("emu1")).unwrap().info().device, "emu1 port 1");
    for (options, kind, says) in [
        (RdmaOptions::new().with_device("mlx5_0"), ErrorKind::NotFound, "emu0, emu1"),
        (RdmaOptions::new().with_port(2), ErrorKind::NotFound, "1 to 1"),
        (RdmaOptions::new().with_gid(2), ErrorKind::NotFound, "ibv_devinfo"),
        (RdmaOptions::new().with_mtu(4096), ErrorKind::OutOfRange, "mtu"),
        (RdmaOptions::new().with_depth(301), ErrorKind::OutOfRange, "max_qp_wr"),
    ] {
        let error = open(options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.hint().contains(says), "{error}");
    }
    assert!(open(RdmaOptions::new().with_gid(1).with_mtu(2048).with_port(1)).is_ok());
    let found = crate::engine::discover_with(&nic.verbs(), &RdmaOptions::new());
    assert_eq!(found.len(), 2);
    let options = RdmaOptions::new();
    for (set, kind, says) in [
        ((|state| state.devices = 0) as fn(&mut State), ErrorKind::NotFound, "rdma link add"),
        (|state| state.has_gid = false, ErrorKind::NotFound, "address"),
        (|state| state.port_down = true, ErrorKind::DeviceFault, "ip link set"),
    ] {
        let error = Nic::with(set).open_with(&options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.hint().contains(says), "{error}");
    }
}

#[test]
fn registration_failures_have_remedies() {
    let nic = Nic::default();
    let engine = nic.open();
    for (errno, kinds) in [
        (libc::ENOMEM, [ErrorKind::PermissionDenied, ErrorKind::OutOfMemory]),
        (libc::EFAULT, [ErrorKind::InvalidArgument; 2]),
        (libc::EPERM, [ErrorKind::PermissionDenied; 2]),
    ] {
        nic.state().errors.insert("reg_mr", errno);
        let error = engine.register(HostMemory::from_owner(vec![0_u8; 100])).unwrap_err();
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(!error.hint().is_empty(), "{error}");
        assert!(engine.allocate(100).is_err());
    }
    nic.state().errors.clear();
    let objects = nic.state().objects;
    drop(engine.register(HostMemory::from_owner(vec![0_u8; 100])).unwrap());
    assert_eq!(nic.state().objects, objects);
}

#[test]
fn memory_that_stays_registered_is_not_freed() {
    let nic = Nic::default();
    let engine = nic.open();
    let region = engine.allocate_raw(&MemoryRequest::new(64)).unwrap();
    let info = *region.info();
    nic.state().errors.insert("dereg_mr", libc::EBUSY);
    drop(region);
    nic.state().errors.clear();
    // The device still writes to the memory. AddressSanitizer would report this if the memory were freed.
    let mut raw = Raw::open(&engine, 1);
    #[expect(unsafe_code, reason = "calls the raw queue")]
    // SAFETY: the source's region outlives the copy, and the destination's region was leaked.
    unsafe { raw.queue.submit(&[Descriptor::copy(1, raw.info.segment(0, 64), info.segment(0, 64))]) }
        .unwrap();
    raw.queue.flush();
    assert_eq!(raw.ended(1), done(1..2));
}
