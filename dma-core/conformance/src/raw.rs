//! Cases: the requirements on a raw queue that the safe API relies on.
#![expect(unsafe_code, reason = "calls the raw traits")]

use std::time::Instant;

use super::SOON;
use dma_core::{
    Access, Capabilities, Completion, Descriptor, DmaEngine, ErrorKind, HostMemory, MemoryRequest, Outcome,
    QueueOptions, RawQueue, RawRegion,
};

/// Length of the longest copy of these cases, in bytes.
const LEN: usize = 16 << 10;

fn memory(engine: &dyn DmaEngine, len: usize) -> Box<dyn RawRegion> {
    engine.allocate_raw(&MemoryRequest::new(len)).expect("an engine allocates memory")
}

/// The descriptors that must be reported. There is one entry for each token, starting with token `first`.
struct Awaited {
    first: u64,
    reported: Vec<bool>,
    last: Option<u64>,
    in_order: bool,
}

impl Awaited {
    fn new(engine: &dyn DmaEngine, first: u64, count: usize) -> Self {
        let in_order = engine.info().capabilities.contains(Capabilities::IN_ORDER);
        Self { first, reported: vec![false; count], last: None, in_order }
    }

    fn note(&mut self, token: u64) {
        let at = token.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let known = at.and_then(|at| self.reported.get_mut(at));
        let known = known.unwrap_or_else(|| panic!("token {token} is reported, but is not in flight"));
        assert!(!std::mem::replace(known, true), "token {token} is reported twice");
        if let Some(last) = self.last.replace(token).filter(|_| self.in_order) {
            assert!(
                last < token,
                "token {token} is reported after {last} by an engine that claims `IN_ORDER`"
            );
        }
    }

    /// Polls until all descriptors are reported. `what` describes the situation in messages.
    fn all(&mut self, q: &mut dyn RawQueue, what: &str, mut check: impl FnMut(Completion)) {
        // The array is shorter than the number of completions, so that some completions have to wait.
        let mut completions = [Completion::done(u64::MAX); 3];
        let begun = Instant::now();
        while let Some(missing) = self.reported.iter().position(|reported| !reported) {
            let n = q.poll(&mut completions);
            assert!(
                n <= completions.len(),
                "a poll reports {n} completions, but the array has room for {}",
                completions.len()
            );
            for completion in &completions[..n] {
                self.note(completion.token);
                check(*completion);
            }
            let token = self.first + missing as u64;
            assert!(begun.elapsed() < SOON, "token {token} is not reported within {SOON:?} {what}");
        }
    }
}

/// Regions and queues have the engine's id. Each region has a key of its own, even if two regions contain the
/// same bytes.
pub fn regions_have_names_of_their_own(engine: &dyn DmaEngine) {
    let q = engine.open_queue_raw(&QueueOptions::new()).expect("an engine opens a queue");
    assert_eq!(q.engine_id(), engine.id(), "a queue has the id of its engine");
    let mut regions = vec![memory(engine, 64), memory(engine, 64), memory(engine, 1 << 20)];
    let info = engine.info();
    // These bytes are registered twice below, with the right to read only.
    let bytes = HostMemory::aligned(4096, &info.limits).expect("memory");
    if info.capabilities.contains(Capabilities::REGISTER) {
        let request = MemoryRequest::new(bytes.len()).with_access(Access::READ);
        for _ in 0..2 {
            // SAFETY: the bytes are dropped after the regions, and no operation accesses them.
            match unsafe { engine.register_raw(&bytes, &request) } {
                Ok(region) => regions.push(region),
                Err(e) => assert_eq!(
                    e.kind(),
                    ErrorKind::InUse,
                    "the only valid refusal is that the memory is already registered: {e}"
                ),
            }
        }
    }
    let mut keys = Vec::new();
    for region in &regions {
        let info = region.info();
        assert_eq!(info.engine, engine.id(), "a region has the id of its engine");
        assert!(!keys.contains(&info.key), "two regions have the same key {:?}", info.key);
        keys.push(info.key);
    }
    // Deregisters the memory before it is freed.
    drop(regions);
}

/// A queue reports every accepted descriptor once, and nothing else. A queue that declares `IN_ORDER` reports
/// in the order of submission.
pub fn descriptors_are_reported_once(engine: &dyn DmaEngine) {
    let depth = engine.info().limits.max_queue_depth.min(16);
    let most = usize::try_from(engine.info().limits.max_transfer).map_or(LEN, |most| most.min(LEN));
    // The memory is declared first, so that it is dropped after the queue.
    let (src, dst) = (memory(engine, most), memory(engine, depth * most));
    let mut q =
        engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).expect("an engine opens a queue");
    let mut first = 1;
    for _ in 0..16 {
        // Long copies come first, so that an engine that executes several copies at a time completes later
        // copies earlier.
        let descriptors: Vec<_> = (0..depth)
            .map(|i| {
                let len = if i % 4 == 0 { most } else { 1 };
                Descriptor::copy(
                    first + i as u64,
                    src.info().segment(0, len),
                    dst.info().segment(i * most, len),
                )
            })
            .collect();
        let mut awaited = Awaited::new(engine, first, depth);
        // SAFETY: the ranges lie in this engine's regions, which outlive the queue, and the destinations
        // overlap neither each other nor the source.
        let taken = unsafe { q.submit(&descriptors) }.expect("there is room");
        assert_eq!(taken, depth, "a queue of {depth} that is empty accepts its depth of descriptors");
        q.flush();
        awaited.all(&mut *q, "after the doorbell", |completion| {
            assert_eq!(completion.outcome, Outcome::Done, "token {}", completion.token);
        });
        first += depth as u64;
        let mut completions = [Completion::done(u64::MAX); 3];
        for _ in 0..8 {
            let n = q.poll(&mut completions);
            assert_eq!(n, 0, "token {} is reported, but nothing is in flight", completions[0].token);
        }
    }
}

/// A stopped queue reports every accepted descriptor once, and accepts no more.
pub fn stopped_queues_report_everything(engine: &dyn DmaEngine) {
    let depth = engine.info().limits.max_queue_depth.min(8);
    // The memory is declared first, so that it is dropped after the queue.
    let (src, dst) = (memory(engine, 64), memory(engine, depth * 64));
    for rung in [false, true] {
        let mut q =
            engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).expect("an engine opens a queue");
        let descriptors: Vec<_> = (0..depth)
            .map(|i| Descriptor::copy(i as u64, src.info().segment(0, 64), dst.info().segment(i * 64, 64)))
            .collect();
        let mut awaited = Awaited::new(engine, 0, depth);
        // SAFETY: the ranges lie in this engine's regions, which outlive the queue, and the destinations
        // overlap neither each other nor the source.
        let taken = unsafe { q.submit(&descriptors) }.expect("there is room");
        assert_eq!(taken, depth, "a queue of {depth} that is empty accepts its depth of descriptors");
        if rung {
            q.flush();
        }
        q.stop();
        q.stop();
        // SAFETY: the ranges lie in this engine's regions, which outlive the queue, and the destinations
        // overlap neither each other nor the source.
        match unsafe { q.submit(&descriptors) } {
            Ok(n) => panic!("a stopped queue accepts {n} descriptors instead of returning `Closed`"),
            Err(e) => {
                assert_eq!(
                    e.kind(),
                    ErrorKind::Closed,
                    "a stopped queue refuses a submission with `{e}` instead of `Closed`"
                )
            }
        }
        awaited.all(&mut *q, "after `stop`", |completion| {
            let good = matches!(completion.outcome, Outcome::Done | Outcome::Aborted);
            assert!(good, "`stop` ends token {} as {:?}", completion.token, completion.outcome);
        });
    }
}
