//! Cases: the requirements on a raw queue that the safe API relies on.
#![expect(unsafe_code, reason = "calls the raw traits")]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{expect_arrived, patience, sample};
use dma_core::{
    Access, Capabilities, Completion, Descriptor, DeviceAddr, DmaEngine, Error, ErrorKind, ExportDescriptor,
    HostMemory, MemoryRequest, Outcome, QueueOptions, RawQueue, RawRegion, RegionInfo,
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

    /// Polls a few times, which must report nothing.
    fn nothing_more(&self, q: &mut dyn RawQueue) {
        let mut completions = [Completion::done(u64::MAX); 3];
        for _ in 0..8 {
            let n = q.poll(&mut completions);
            assert_eq!(n, 0, "token {} is reported, but nothing is in flight", completions[0].token);
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
            assert!(begun.elapsed() < patience(), "token {token} is not reported in time {what}");
        }
    }
}

/// Writes `bytes` to a region, at byte `offset`, while no operation accesses this memory.
fn write(region: &dyn RawRegion, offset: usize, bytes: &[u8]) {
    let segment = region.info().segment(offset, bytes.len());
    // SAFETY: the CPU reaches allocated host memory at the device's address, the segment lies in the region,
    // and no operation and no reference has these bytes.
    unsafe { segment.addr.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Reads `len` bytes of a region, from byte `offset` on, while no operation writes this memory.
fn read(region: &dyn RawRegion, offset: usize, len: usize) -> Vec<u8> {
    let segment = region.info().segment(offset, len);
    let mut bytes = vec![0; len];
    // SAFETY: the CPU reaches allocated host memory at the device's address, the segment lies in the region,
    // and no operation writes these bytes.
    unsafe { segment.addr.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    bytes
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

/// A region describes the memory that was requested or registered: its rights are not more than the requested
/// ones, and its address, length and pointer are those of the memory.
pub fn regions_are_what_was_requested(engine: &dyn DmaEngine) {
    let capabilities = engine.info().capabilities;
    for access in [Access::READ, Access::WRITE, Access::READ | Access::WRITE] {
        let check = |what: &str, info: &RegionInfo, begin: Option<NonNull<u8>>, len: usize| {
            assert!(
                access.contains(info.access),
                "{what} with the rights {access:?} has the rights {:?}",
                info.access
            );
            assert_eq!(info.len, len, "{what} has the length of its memory");
            assert_eq!(info.cpu.map(DeviceAddr::of), Some(info.addr), "{what} has the CPU's address");
            assert!(begin.is_none() || info.cpu == begin, "{what} begins where its memory begins");
        };
        if capabilities.contains(Capabilities::ALLOCATE) {
            match engine.allocate_raw(&MemoryRequest::new(5000).with_access(access)) {
                Ok(region) => check("an allocated region", region.info(), None, 5000),
                Err(e) if access != Access::READ | Access::WRITE => drop(e),
                Err(e) => panic!("an engine allocates memory: {e}"),
            }
        }
        if !capabilities.contains(Capabilities::REGISTER) {
            continue;
        }
        let memory = HostMemory::aligned(8192, &engine.info().limits).expect("memory");
        let request = MemoryRequest::new(memory.len()).with_access(access);
        // SAFETY: the memory is dropped after the region, and no operation accesses it.
        match unsafe { engine.register_raw(&memory, &request) } {
            Ok(region) => {
                check("a registered region", region.info(), Some(memory.as_ptr()), memory.len());
                drop(region);
            }
            // A device may be unable to give one of the rights alone.
            Err(e) if access != Access::READ | Access::WRITE => drop(e),
            // A device that requires more than 4096 bytes of alignment may reach only huge pages.
            Err(e) if engine.info().limits.register_alignment > 4096 => {
                assert_eq!(e.kind(), ErrorKind::AccessDenied, "memory that the device cannot reach: {e}");
            }
            Err(e) => panic!("memory with the engine's alignment is registered: {e}"),
        }
    }
}

/// The raw calls refuse what the engine does not declare: memory to export, exports, imports, registration,
/// and a queue that is deeper than the limit.
pub fn undeclared_calls_are_refused(engine: &dyn DmaEngine) {
    let info = engine.info();
    let lacks = |capability| !info.capabilities.contains(capability);
    let expect = |refused: Result<(), Error>, call: &str, kind| {
        let error = refused.err().map(|e| e.kind());
        assert_eq!(error, Some(kind), "{call} is refused with this kind of error");
    };
    let unsupported = |refused: Result<(), Error>, call: &str| expect(refused, call, ErrorKind::Unsupported);
    if lacks(Capabilities::ALLOCATE) {
        let allocated = engine.allocate_raw(&MemoryRequest::new(64)).map(drop);
        unsupported(allocated, "`allocate_raw` without `ALLOCATE`");
    }
    if lacks(Capabilities::EXPORT) {
        let exportable = MemoryRequest::new(64).exportable(Access::READ);
        let allocated = engine.allocate_raw(&exportable).map(drop);
        unsupported(allocated, "`allocate_raw` of memory to export, without `EXPORT`,");
        let region = memory(engine, 64);
        // SAFETY: no reference to the bytes exists.
        let exported = unsafe { region.export(0, 64, Access::READ) };
        let kind = exported.expect_err("`export` without `EXPORT` is refused").kind();
        assert!(matches!(kind, ErrorKind::Unsupported | ErrorKind::AccessDenied), "`export`: {kind:?}");
    }
    if lacks(Capabilities::IMPORT) {
        let descriptor = ExportDescriptor::new(info.backend, Access::READ, 64, b"64 bytes").expect("valid");
        unsupported(engine.import_raw(&descriptor).map(drop), "`import_raw` without `IMPORT`");
    }
    if lacks(Capabilities::REGISTER) {
        let memory = HostMemory::aligned(4096, &info.limits).expect("memory");
        // SAFETY: the memory is dropped after the region, and no operation accesses it.
        let registered = unsafe { engine.register_raw(&memory, &MemoryRequest::new(4096)) }.map(drop);
        unsupported(registered, "`register_raw` without `REGISTER`");
    }
    if let Some(depth) = info.limits.max_queue_depth.checked_add(1) {
        let opened = engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).map(drop);
        expect(opened, "`open_queue_raw` beyond `max_queue_depth`", ErrorKind::OutOfRange);
    }
}

/// A queue's explanation of a vendor's code has this code, even if the queue does not know it.
pub fn native_codes_are_explained(engine: &dyn DmaEngine) {
    let q = engine.open_queue_raw(&QueueOptions::new()).expect("an engine opens a queue");
    for code in [1, 2, 5, 110, i32::MAX] {
        assert_eq!(q.explain(code).code, code, "`explain` returns the code that it was given");
    }
}

/// A queue accepts descriptors up to its depth. It reports every accepted descriptor once, and nothing else.
/// A queue that declares `IN_ORDER` reports in the order of submission.
pub fn descriptors_are_reported_once(engine: &dyn DmaEngine) {
    let depth = engine.info().limits.max_queue_depth.min(16);
    let most = usize::try_from(engine.info().limits.max_transfer).map_or(LEN, |most| most.min(LEN));
    let options = QueueOptions::new().with_depth(depth);
    // One descriptor more than the queue accepts.
    let offered = engine.open_queue_raw(&options).expect("an engine opens a queue").depth() + 1;
    // The memory is declared first, so that it is dropped after the queue.
    let (src, dst) = (memory(engine, most), memory(engine, offered * most));
    let mut q = engine.open_queue_raw(&options).expect("an engine opens a queue");
    let mut first = 1;
    for _ in 0..16 {
        // Long copies come first, so that an engine that executes several copies at a time completes later
        // copies earlier.
        let descriptors: Vec<_> = (0..offered)
            .map(|i| {
                let len = if i % 4 == 0 { most } else { 1 };
                Descriptor::copy(
                    first + i as u64,
                    src.info().segment(0, len),
                    dst.info().segment(i * most, len),
                )
            })
            .collect();
        // SAFETY: the ranges lie in this engine's regions, which outlive the queue, and the destinations
        // overlap neither each other nor the source.
        let taken = unsafe { q.submit(&descriptors) }.expect("there is room");
        assert!(taken >= depth, "a queue of {depth} that is empty accepts only {taken} descriptors");
        assert!(taken < offered, "a queue of {} accepts {taken} descriptors", offered - 1);
        // SAFETY: the ranges lie in regions of this engine, which outlive the queue, and no descriptor in
        // flight has the last destination.
        let more = unsafe { q.submit(&descriptors[offered - 1..]) }.expect("a full queue is not an error");
        assert_eq!(more, 0, "a full queue accepts no descriptor");
        let mut awaited = Awaited::new(engine, first, taken);
        q.flush();
        awaited.all(&mut *q, "after the doorbell", |completion| {
            assert_eq!(completion.outcome, Outcome::Done, "token {}", completion.token);
        });
        first += offered as u64;
        awaited.nothing_more(&mut *q);
    }
}

/// The file descriptor of a queue's event becomes readable when there is something to poll, and a disarmed
/// one is not readable.
pub fn events_announce_completions(engine: &dyn DmaEngine) {
    let most = usize::try_from(engine.info().limits.max_transfer).map_or(1 << 20, |most| most.min(1 << 20));
    // The memory is declared first, so that it is dropped after the queue.
    let (src, dst) = (memory(engine, most), memory(engine, most));
    let mut q = engine.open_queue_raw(&QueueOptions::new()).expect("an engine opens a queue");
    // The system may have refused the descriptor. Such a queue can only be polled.
    if q.events().is_none_or(|events| events.fd().is_err()) {
        return;
    }
    for token in 0..20 {
        let len = [64, 4096, most][token as usize % 3].min(most);
        let descriptor = Descriptor::copy(token, src.info().segment(0, len), dst.info().segment(0, len));
        // SAFETY: the ranges lie in this engine's regions, which outlive the queue, and nothing else is in
        // flight.
        let taken = unsafe { q.submit(&[descriptor]) }.expect("there is room");
        assert_eq!(taken, 1, "a queue that is empty accepts a descriptor");
        q.flush();
        let mut completions = [Completion::done(u64::MAX)];
        let begun = Instant::now();
        while q.poll(&mut completions) == 0 {
            assert!(begun.elapsed() < patience(), "token {token} is not reported in time");
            let events = q.events().expect("a queue that had an event has it for its life");
            if events.arm().expect("an event can be armed") {
                let readable = is_readable(events.fd().expect("the descriptor of an event"), patience());
                assert!(readable, "a completion makes the descriptor of an armed event readable");
            }
            events.disarm();
        }
        let events = q.events().expect("a queue that had an event has it for its life");
        events.disarm();
        let readable = is_readable(events.fd().expect("the descriptor of an event"), Duration::ZERO);
        assert!(!readable, "the descriptor of a disarmed event is readable, but nothing is in flight");
    }
}

/// Waits until `fd` is readable, at most for `limit`.
fn is_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) {
            Err(Errno::INTR) => {}
            ready => return ready.expect("the system polls a descriptor") > 0,
        }
    }
}

/// A stopped queue reports every accepted descriptor once, and accepts no more. A descriptor that it reports
/// as done is done. After the report, the device does not write.
pub fn stopped_queues_report_everything(engine: &dyn DmaEngine) {
    let depth = engine.info().limits.max_queue_depth.min(8);
    // The memory is declared first, so that it is dropped after the queue.
    let (src, dst) = (memory(engine, 64), memory(engine, depth * 64));
    let bytes = sample(1, 64);
    write(&*src, 0, &bytes);
    for rung in [false, true] {
        write(&*dst, 0, &vec![0x5a; depth * 64]);
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
            let at = completion.token as usize * 64;
            match completion.outcome {
                Outcome::Done => {
                    let what = format_args!("the copy of token {} that `stop` ended", completion.token);
                    expect_arrived(&bytes, &read(&*dst, at, 64), what);
                }
                Outcome::Aborted => {}
                Outcome::Failed(_) => {
                    panic!("`stop` ends token {} as {:?}", completion.token, completion.outcome)
                }
            }
            write(&*dst, at, &[0xa5; 64]);
        });
        awaited.nothing_more(&mut *q);
        drop(q);
        assert!(
            read(&*dst, 0, depth * 64) == vec![0xa5; depth * 64],
            "the device writes no destination after it has reported the copy"
        );
    }
}
