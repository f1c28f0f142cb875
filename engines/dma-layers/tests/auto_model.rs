//! Tests random batches on `AutoEngine` with a faulty device. An oracle knows the descriptors that each
//! engine got, its reports, and the expected bytes of the memory.
#![expect(unsafe_code, reason = "wraps and uses raw queues")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dma_core::{
    Completion, Descriptor, DmaEngine, EngineId, MemoryRequest, NativeError, Operation, Outcome, QueueEvents,
    QueueOptions, QueueStats, RawQueue, Result,
};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, AutoReport, Prefer};
use dma_sim::sim::{SimEngine, SimOptions};
use proptest::prelude::*;
use test_support::patience::Patience;
use test_support::with_queues::WithQueues;

/// The destination of a descriptor: address and length. Each operation of a test has a different destination.
type Bytes = (u64, usize);

#[derive(Debug, Default)]
struct Seen {
    /// Number of descriptors with a destination, for each engine.
    given: [BTreeMap<Bytes, u32>; 2],
    /// The device's descriptors in flight, by token, and its descriptors that ended without success.
    on_device: BTreeMap<u64, Bytes>,
    failed: BTreeMap<Bytes, u32>,
    /// True if a destination was with both engines at the same time.
    twice: bool,
}

/// A queue that records its descriptors.
#[derive(Debug)]
struct SpyQueue {
    inner: Box<dyn RawQueue>,
    engine_index: usize,
    seen: Arc<Mutex<Seen>>,
}

fn destination(descriptor: &Descriptor<'_>) -> Bytes {
    match descriptor.operation() {
        Operation::Copy { dst, .. } => (dst.addr.0, dst.len),
        Operation::Fill { dst, .. } | Operation::CopyLists { dst, .. } => (dst[0].addr.0, dst[0].len),
        other => panic!("beyond the capabilities: {other:?}"),
    }
}

// SAFETY: all calls go to the inner queue, with the same descriptors.
unsafe impl RawQueue for SpyQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        // SAFETY: the descriptors are unchanged, and the caller meets the requirements of the inner queue for
        // them.
        let taken = unsafe { self.inner.submit(batch) }?;
        let mut seen = self.seen.lock().unwrap();
        for descriptor in &batch[..taken] {
            let at = destination(descriptor);
            *seen.given[self.engine_index].entry(at).or_default() += 1;
            seen.twice |= seen.on_device.values().any(|known| *known == at);
            if self.engine_index == 1 {
                seen.on_device.insert(descriptor.token(), at);
            }
        }
        Ok(taken)
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = self.inner.poll(completions);
        if self.engine_index == 1 {
            let mut seen = self.seen.lock().unwrap();
            for completion in &completions[..n] {
                let at = seen.on_device.remove(&completion.token).expect("the descriptor was in flight");
                if completion.outcome != Outcome::Done {
                    *seen.failed.entry(at).or_default() += 1;
                }
            }
        }
        n
    }
    fn explain(&self, native: i32) -> NativeError {
        self.inner.explain(native)
    }
    fn stop(&mut self) {
        self.inner.stop();
    }
    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.inner.events()
    }
}

const SLOTS: usize = 64;
const SLOT: usize = 8192;

/// Runs batches of copies and fills with these lengths (`true` is a fill). Checks all bytes and descriptors.
fn run(faults: &str, prefer: Prefer, depth: usize, batches: &[Vec<(usize, bool)>]) -> AutoReport {
    run_beside(None, faults, prefer, depth, batches)
}

fn simulated(options: &str) -> SimEngine {
    let name = format!("sim:depth=16,{options}").parse().unwrap();
    SimEngine::open(&SimOptions::from_name(&name).unwrap()).unwrap()
}

/// Does the same as [`run`], with a second device that has these faults. The oracle does not see the
/// operations of this device, so it does not check how often the other engines execute an operation.
fn run_beside(
    other: Option<&str>,
    faults: &str,
    prefer: Prefer,
    depth: usize,
    batches: &[Vec<(usize, bool)>],
) -> AutoReport {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let inner = CpuEngine::open(&CpuOptions::from_name(&"cpu:threads=1".parse().unwrap()).unwrap()).unwrap();
    let spied = |inner: Arc<dyn DmaEngine>, engine_index| {
        let seen = Arc::clone(&seen);
        WithQueues::new(inner, move |inner| {
            Box::new(SpyQueue { inner, engine_index, seen: Arc::clone(&seen) }) as Box<dyn RawQueue>
        })
    };
    let cpu = spied(Arc::new(inner), 0);
    let device = spied(Arc::new(simulated(&format!("faults={faults}"))), 1);
    // The timeout is short, so that tests are short. If it expires too early, another engine executes the
    // copy, but the bytes are the same.
    let options = AutoOptions::new().with_prefer(prefer).with_stall_timeout(Duration::from_millis(8));
    let pair = Arc::new(AutoEngine::new(Arc::new(cpu), Arc::new(device), &options).unwrap());
    let engine = Arc::clone(&pair) as Arc<dyn DmaEngine>;
    let others = other.map(|faults| Arc::new(simulated(&format!("faults={faults},seed=1"))) as _);
    let engine = AutoEngine::with_devices(engine, others, &options).unwrap();
    let memory = |len| engine.allocate_raw(&MemoryRequest::new(len)).unwrap();
    let (src, dst) = (memory(SLOT), memory(SLOTS * SLOT));
    let byte = |info: &dma_core::RegionInfo, at: usize| info.segment(at, 1).addr.as_ptr();
    for at in 0..SLOT {
        // SAFETY: the CPU reaches the region, and no operation is in flight.
        unsafe { byte(src.info(), at).write(at as u8 ^ (at >> 8) as u8) };
    }
    let mut q = engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).unwrap();
    let mut token = 1000;
    for batch in batches {
        *seen.lock().unwrap() = Seen::default();
        let batch = &batch[..batch.len().min(depth)];
        for at in 0..SLOTS * SLOT {
            // SAFETY: the CPU reaches the region, and no operation is in flight.
            unsafe { byte(dst.info(), at).write(0xee) };
        }
        let places: Vec<_> =
            batch.iter().enumerate().map(|(i, (len, _))| [dst.info().segment(i * SLOT, *len)]).collect();
        let descriptors: Vec<_> = batch
            .iter()
            .zip(&places)
            .enumerate()
            .map(|(i, ((len, fill), to))| match fill {
                true => Descriptor::fill(token + i as u64, *b"patterns", to),
                false => Descriptor::copy(token + i as u64, src.info().segment(0, *len), to[0]),
            })
            .collect();
        // SAFETY: the ranges are within the engine's regions, which outlive the queue, and destinations do
        // not overlap.
        let taken = unsafe { q.submit(&descriptors) }.unwrap();
        assert_eq!(taken, batch.len(), "there is room for {depth}");
        q.flush();
        let mut left: Vec<_> = (token..token + taken as u64).collect();
        let mut completions = [Completion::done(0); 5];
        let mut patience = Patience::new();
        while !left.is_empty() {
            let n = q.poll(&mut completions);
            for completion in &completions[..n] {
                let known = left.iter().position(|token| *token == completion.token);
                left.swap_remove(known.expect("each token is reported once"));
                assert_eq!(completion.outcome, Outcome::Done);
            }
            patience.check(format_args!("{left:?} are reported"));
        }
        token += taken as u64;
        for (i, (len, fill)) in batch.iter().enumerate() {
            for at in 0..SLOT {
                let expected = match (at < *len, fill) {
                    (false, _) => 0xee,
                    (true, true) => b"patterns"[at % 8],
                    (true, false) => at as u8 ^ (at >> 8) as u8,
                };
                // SAFETY: the CPU reaches the region, and no operation is in flight.
                let found = unsafe { byte(dst.info(), i * SLOT + at).read() };
                assert_eq!(found, expected, "byte {at} of operation {i} of {len} B, fill: {fill}");
            }
        }
        let seen = seen.lock().unwrap();
        assert!(!seen.twice, "an operation was with both engines at once");
        assert!(
            seen.on_device.is_empty(),
            "a descriptor was reported to the caller while it was in flight on the device"
        );
        for (i, (to, (_, fill))) in places.iter().zip(batch).enumerate() {
            let at = (to[0].addr.0, to[0].len);
            let count = |of: &BTreeMap<Bytes, u32>| of.get(&at).copied().unwrap_or(0);
            let [cpu, device] = [count(&seen.given[0]), count(&seen.given[1])];
            assert!(device <= 1 && !(*fill && device > 0), "operation {i} went to the device {device} times");
            let expected = if device == 1 { count(&seen.failed) } else { 1 };
            let elsewhere = other.is_some() && cpu + device == 0 && !*fill;
            assert!(
                cpu == expected || elsewhere,
                "operation {i}: the CPU executes what the device did not get or failed"
            );
        }
    }
    drop(q);
    pair.report()
}

const FAULTS: [&str; 9] = [
    "",
    "fail@every=3",
    "reset@7",
    "lose@5",
    "stick@9",
    "gone@12",
    "refuse@every=5",
    "slow@3:for=1ms",
    "oversize",
];

fn batches() -> impl Strategy<Value = Vec<Vec<(usize, bool)>>> {
    let one = (1..=SLOT, proptest::bool::weighted(0.1));
    proptest::collection::vec(proptest::collection::vec(one, 1..40), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_operation_is_done_once_whatever_the_device_does(
        faults in proptest::sample::select(&FAULTS[..]),
        measured in any::<bool>(),
        depth in 1_usize..40,
        batches in batches(),
    ) {
        let prefer = if measured { Prefer::Measured } else { Prefer::Device };
        run(faults, prefer, depth, &batches);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_operation_is_done_whatever_two_devices_do(
        (other, faults) in (proptest::sample::select(&FAULTS[..]), proptest::sample::select(&FAULTS[..])),
        measured in any::<bool>(),
        depth in 1_usize..40,
        batches in batches(),
    ) {
        let prefer = if measured { Prefer::Measured } else { Prefer::Device };
        run_beside(Some(other), faults, prefer, depth, &batches);
    }
}

fn many(copies: usize) -> Vec<Vec<(usize, bool)>> {
    vec![vec![(512, false); 8]; copies.div_ceil(8)]
}

#[test]
fn each_fault_moves_work_to_the_cpu() {
    for (faults, leaves) in
        [("reset@7", false), ("lose@5", true), ("stick@9", true), ("gone@12", true), ("fail@every=3", false)]
    {
        let report = run(faults, Prefer::Device, 16, &many(64));
        assert!(report.device > 0 && report.repeated > 0, "{faults}: {report}");
        if leaves {
            assert!(report.left > 0 && report.reason.is_some(), "{faults}: {report}");
        }
    }
    let report = run("", Prefer::Device, 16, &many(64));
    assert_eq!((report.cpu, report.device, report.repeated, report.left), (0, 64, 0, 0), "{report}");
    let report = run("", Prefer::Measured, 16, &many(512));
    assert!(report.cpu > 0 && report.device > 0, "both engines are measured: {report}");
    assert_eq!(report.cpu + report.device, 512, "{report}");
    assert_eq!(report.costs.len(), 1, "{report}");
}

/// A sleeping owner is woken to check a device that hangs.
#[cfg(target_os = "linux")]
#[test]
fn sleepers_are_woken_when_the_device_hangs() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let cpu = CpuEngine::open(&CpuOptions::new()).unwrap();
    let name = "sim:profile=bluefield3,faults=stick@3".parse().unwrap();
    let device = SimEngine::open(&SimOptions::from_name(&name).unwrap()).unwrap();
    let options = AutoOptions::new().with_prefer(Prefer::Device).with_stall_timeout(Duration::from_millis(8));
    let engine = AutoEngine::new(Arc::new(cpu), Arc::new(device), &options).unwrap();
    let memory = |len| engine.allocate_raw(&MemoryRequest::new(len)).unwrap();
    let (src, dst) = (memory(64), memory(8 * 64));
    let mut q = engine.open_queue_raw(&QueueOptions::new()).unwrap();
    let copy =
        |i: usize| Descriptor::copy(i as u64, src.info().segment(0, 64), dst.info().segment(i * 64, 64));
    let copies: Vec<_> = (0..8).map(copy).collect();
    // SAFETY: the ranges are within the engine's regions, which outlive the queue, and destinations do not
    // overlap.
    assert_eq!(unsafe { q.submit(&copies) }.unwrap(), 8);
    q.flush();
    let mut completions = [Completion::done(0); 8];
    let mut done = 0;
    while done < 8 {
        let events = q.events().expect("both engines have events");
        if events.arm().unwrap() {
            let fd = events.fd().unwrap();
            let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&minute)).unwrap();
            assert_eq!(ready, 1, "{done} of 8 copies are done, and the owner is not woken");
        }
        events.disarm();
        done += q.poll(&mut completions);
    }
    let report = engine.report();
    assert!(
        report.left == 1 && report.repeated >= 6,
        "the third copy hangs, so no later copy ends: {report}"
    );
}

/// A device that hung is opened again, and gets copies again.
#[test]
fn a_device_that_was_left_is_tried_again() {
    let cpu = CpuEngine::open(&CpuOptions::new()).unwrap();
    let name = "sim:faults=stick@9:ch=0".parse().unwrap();
    let device = SimEngine::open(&SimOptions::from_name(&name).unwrap()).unwrap();
    let options = AutoOptions::new().with_prefer(Prefer::Device).with_stall_timeout(Duration::from_millis(8));
    let engine = AutoEngine::new(Arc::new(cpu), Arc::new(device), &options).unwrap();
    let memory = |len| engine.allocate_raw(&MemoryRequest::new(len)).unwrap();
    let (src, dst) = (memory(64), memory(64));
    let mut q = engine.open_queue_raw(&QueueOptions::new()).unwrap();
    let mut patience = Patience::new();
    let mut before = None;
    loop {
        let copy = Descriptor::copy(1, src.info().segment(0, 64), dst.info().segment(0, 64));
        // SAFETY: the ranges are within the engine's regions, which outlive the queue, and only one copy is
        // in flight at a time.
        assert_eq!(unsafe { q.submit(&[copy]) }.unwrap(), 1);
        q.flush();
        let mut completions = [Completion::done(0)];
        while q.poll(&mut completions) == 0 {
            patience.check(engine.report());
        }
        assert_eq!(completions[0], Completion::done(1));
        let report = engine.report();
        if report.returned > 0 && report.device > *before.get_or_insert(report.device) {
            assert!(report.left > 0 && report.cpu > 0, "{report}");
            return;
        }
    }
}
