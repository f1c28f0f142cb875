//! Tests of short operations that an executor executes, on both queue types.
#![expect(unsafe_code, reason = "implements an engine that counts the calls of its executor")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Access, Batch, BufferMut, Completion, Descriptor, DeviceAddr, DmaEngine, DmaEngineExt, EngineId,
    EngineInfo, ErrorKind, ExportDescriptor, HostMemory, InlineCopy, InlineExecutor, MemoryRequest,
    NativeError, Operation, Queue, QueueEvents, QueueOptions, QueueStats, RawExport, RawQueue, RawRegion,
    RegionInfo, Result, Rows, SharedQueue, SharedQueueOptions, Window,
};

/// Length of the longest operation of the executor, in bytes.
pub(super) const LIMIT: usize = 100;
const SOON: Duration = Duration::from_secs(60);

/// Counts of the calls that the engine gets, and faults to inject.
#[derive(Debug, Default)]
struct Script {
    /// Number of operations that the executor has executed.
    executed: AtomicUsize,
    /// Number of executor calls with several copies.
    calls_with_several: AtomicUsize,
    /// Number of descriptors that were submitted to the queue.
    submitted: AtomicUsize,
    /// True if the next operation of the executor panics.
    executor_panics: AtomicBool,
    /// True if the queue panics at a submission or a poll.
    queue_panics: AtomicBool,
}

impl Script {
    fn executed(&self) -> usize {
        self.executed.load(Ordering::Relaxed)
    }
}

/// The reference engine, with an executor whose calls are counted. The CPU cannot reach imported memory.
#[derive(Debug)]
pub(super) struct Spy {
    inner: ReferenceEngine,
    script: Arc<Script>,
}

// SAFETY: every call goes to the inner engine. Imported memory is memory of the inner engine.
unsafe impl DmaEngine for Spy {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    fn id(&self) -> EngineId {
        self.inner.id()
    }
    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.inner.allocate_raw(request)
    }
    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
        unsafe { self.inner.register_raw(memory, request) }
    }
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        let memory = self.inner.allocate_raw(&MemoryRequest::new(descriptor.len() as usize))?;
        let RegionInfo { engine, key, addr, len, access, .. } = *memory.info();
        Ok(Box::new(Hidden { info: RegionInfo::remote(engine, key, addr, len, access), memory }))
    }
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let inner = self.inner.open_queue_raw(options)?;
        Ok(Box::new(SpyQueue { inner, script: Arc::clone(&self.script) }))
    }
}

#[derive(Debug)]
struct Hidden {
    info: RegionInfo,
    memory: Box<dyn RawRegion>,
}

// SAFETY: the memory belongs to the inner region, which lives as long as this value.
unsafe impl RawRegion for Hidden {
    fn info(&self) -> &RegionInfo {
        &self.info
    }
    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
        unsafe { self.memory.export(offset, len, rights) }
    }
}

#[derive(Debug)]
struct SpyQueue {
    inner: Box<dyn RawQueue>,
    script: Arc<Script>,
}

// SAFETY: every call goes to the inner queue.
unsafe impl RawQueue for SpyQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        assert!(!self.script.queue_panics.load(Ordering::Relaxed), "this test makes the queue panic");
        self.script.submitted.fetch_add(batch.len(), Ordering::Relaxed);
        // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
        unsafe { self.inner.submit(batch) }
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        assert!(!self.script.queue_panics.load(Ordering::Relaxed), "this test makes the queue panic");
        self.inner.poll(completions)
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
        None
    }
    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        let inner = self.inner.inline_executor().expect("the engine's options set an inline limit");
        Some(Arc::new(SpyExecutor { inner, script: Arc::clone(&self.script) }))
    }
}

#[derive(Debug)]
struct SpyExecutor {
    inner: Arc<dyn InlineExecutor>,
    script: Arc<Script>,
}

impl SpyExecutor {
    fn count(&self) {
        self.script.executed.fetch_add(1, Ordering::Relaxed);
        assert!(!self.script.executor_panics.load(Ordering::Relaxed), "this test makes the executor panic");
    }
}

// SAFETY: every call goes to the inner executor.
unsafe impl InlineExecutor for SpyExecutor {
    fn max_len(&self) -> usize {
        self.inner.max_len()
    }
    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        self.count();
        // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
        unsafe { self.inner.execute(operation) }
    }
    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        self.count();
        // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
        unsafe { self.inner.copy(src, dst, len) }
    }
    unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        self.script.calls_with_several.fetch_add(1, Ordering::Relaxed);
        copies.iter().for_each(|_| self.count());
        // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
        unsafe { self.inner.copy_all(copies) }
    }
}

fn spy() -> Spy {
    let mut options = ReferenceOptions::default();
    (options.native, options.inline_limit, options.depth) = (true, LIMIT, 8);
    Spy::of(ReferenceEngine::new(options))
}

impl Spy {
    pub(super) fn of(inner: ReferenceEngine) -> Self {
        Self { inner, script: Arc::default() }
    }

    fn queue(&self) -> Queue {
        self.open_queue(&QueueOptions::new().with_drop_timeout(SOON)).expect("a queue")
    }

    fn shared(&self) -> SharedQueue {
        let options = QueueOptions::new().with_drop_timeout(SOON);
        self.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).expect("a queue")
    }

    pub(super) fn window(&self, len: usize) -> Window {
        self.allocate(len).expect("memory").share()
    }

    fn window_with(&self, access: Access) -> Window {
        self.allocate_window(&MemoryRequest::new(LIMIT).with_access(access)).expect("memory")
    }

    /// Makes a window of memory that the CPU cannot reach.
    pub(super) fn hidden(&self, len: usize) -> Window {
        let rights = Access::READ | Access::WRITE;
        let descriptor = ExportDescriptor::new("spy", rights, len as u64, b"any").expect("well formed");
        self.import(&descriptor).expect("it imports")
    }

    fn pair(&self, len: usize) -> (BufferMut, BufferMut) {
        let mut src = self.allocate(len).expect("memory");
        src.fill(len as u8 | 1);
        (src, self.allocate(len).expect("memory"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Copy,
    Batch,
    Lists,
    FillOfList,
    Fill,
    Both,
    Compare,
    Crc,
    CopyCrc,
}

const OPS: [Op; 9] =
    [Op::Copy, Op::Batch, Op::Lists, Op::FillOfList, Op::Fill, Op::Both, Op::Compare, Op::Crc, Op::CopyCrc];

impl Op {
    /// Returns, for each operand, whether it is read, written or unused.
    fn uses(self) -> [Option<Access>; 3] {
        let (read, write) = (Some(Access::READ), Some(Access::WRITE));
        match self {
            Self::Copy | Self::Batch | Self::Lists | Self::CopyCrc => [read, write, None],
            Self::Fill | Self::FillOfList => [None, write, None],
            Self::Both => [read, write, write],
            Self::Compare => [read, read, None],
            Self::Crc => [read, None, None],
        }
    }
}

/// A `Queue` or a `SharedQueue`.
trait Run {
    /// Runs an operation, and returns its result as a number.
    fn run(&self, op: Op, operands: [&Window; 3]) -> Result<u64, ErrorKind>;
    fn counters(&self) -> crate::Counters;
}

macro_rules! run {
    ($queue:ty) => {
        impl Run for $queue {
            fn run(&self, op: Op, operands: [&Window; 3]) -> Result<u64, ErrorKind> {
                /// Waits for an operation.
                macro_rules! end {
                    ($submitted:expr) => {
                        $submitted.map_err(|e| e.kind())?.wait().map_err(|e| e.kind())?
                    };
                }
                let [a, b, c] = operands.map(Window::clone);
                // The first part of a list has 1 byte, if the operand is not empty.
                let parts = |of: &Window| (of.slice(..of.len().min(1)), of.slice(of.len().min(1)..));
                match op {
                    Op::Copy => _ = end!(self.copy(a, b)),
                    Op::Batch => {
                        let ((a, rest_a), (b, rest_b)) = (parts(&a), parts(&b));
                        let batch: Batch<_, _> = [(rest_a, rest_b), (a, b)].into_iter().collect();
                        _ = end!(self.submit(batch));
                    }
                    Op::Lists => _ = end!(self.copy(parts(&a), b)),
                    Op::FillOfList => _ = end!(self.fill(parts(&b), [7; 8])),
                    Op::Fill => _ = end!(self.fill(b, [7; 8])),
                    Op::Both => _ = end!(self.copy_to_both(a, b, c)),
                    Op::Compare => {
                        return Ok(end!(self.compare(a, b)).1.map_or(u64::MAX, |at| at as u64));
                    }
                    Op::Crc => return Ok(end!(self.crc32c(a, 5)).1.into()),
                    Op::CopyCrc => return Ok(end!(self.copy_crc32c(a, b, 5)).1.into()),
                }
                Ok(0)
            }
            fn counters(&self) -> crate::Counters {
                self.counters()
            }
        }
    };
}
run!(Queue);
run!(SharedQueue);

fn bytes(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.read_at(0, &mut bytes).expect("the CPU can reach the window");
    bytes
}

fn write(window: &Window, seed: u8) {
    let bytes: Vec<u8> = (0..window.len()).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect();
    window.write_at(0, &bytes).expect("the CPU can reach the window");
}

/// Runs `check` on a `Queue` and on a `SharedQueue`.
fn on_both(check: impl Fn(&Spy, &dyn Run)) {
    let (of_queue, of_shared) = (spy(), spy());
    check(&of_queue, &of_queue.queue());
    check(&of_shared, &of_shared.shared());
}

#[test]
fn every_short_operation_is_executed_in_the_call() {
    on_both(|engine, queue| {
        for (op, len) in OPS.into_iter().flat_map(|op| [2, 9, LIMIT].map(|len| (op, len))) {
            let [a, b, c] = [(); 3].map(|()| engine.window(len));
            write(&a, 1);
            write(&b, 2);
            let before = (engine.script.executed(), queue.counters());
            let result = queue.run(op, [&a, &b, &c]).expect("valid");
            let crc = u64::from(crc32c::crc32c_append(5, &bytes(&a)));
            let expected = match op {
                Op::Compare | Op::Copy | Op::Batch | Op::Lists | Op::FillOfList | Op::Fill | Op::Both => 0,
                Op::Crc | Op::CopyCrc => crc,
            };
            assert_eq!(result, expected, "{op:?}");
            match op {
                Op::Copy | Op::Batch | Op::Lists | Op::Both | Op::CopyCrc => {
                    assert_eq!(bytes(&b), bytes(&a), "{op:?}");
                }
                Op::Fill | Op::FillOfList => assert_eq!(bytes(&b), vec![7; len], "{op:?}"),
                Op::Compare | Op::Crc => {}
            }
            if op == Op::Both {
                assert_eq!(bytes(&c), bytes(&a));
                assert_eq!(queue.run(Op::Compare, [&b, &c, &a]), Ok(Completion::EQUAL));
            }
            let after = queue.counters();
            let operations = match op {
                Op::Batch | Op::Both => 2,
                _ => 1,
            };
            assert_eq!(engine.script.executed(), before.0 + operations, "{op:?}");
            assert_eq!(after.completed, before.1.completed + operations as u64, "{op:?}");
            assert_eq!(after.submitted, after.completed, "{op:?}");
            let bytes = len * if op == Op::Both { 3 } else { 1 };
            assert_eq!(after.bytes, before.1.bytes + bytes as u64, "{op:?}");
            assert_eq!((after.descriptors, after.in_flight), (0, 0), "{op:?}");
        }
        assert_eq!(
            engine.script.submitted.load(Ordering::Relaxed),
            0,
            "no descriptor is submitted to the queue"
        );
    });
}

#[test]
fn an_invalid_operation_reaches_no_executor() {
    on_both(|engine, queue| {
        let other = spy();
        let refuse = |op: Op, operands: [&Window; 3], expected: ErrorKind| {
            let executed = engine.script.executed();
            assert_eq!(queue.run(op, operands), Err(expected), "{op:?} of {operands:?}");
            assert_eq!(engine.script.executed(), executed, "{op:?} of {operands:?}");
        };
        for op in OPS {
            let good = [(); 3].map(|()| engine.window(LIMIT));
            for (at, uses) in op.uses().into_iter().enumerate() {
                let Some(uses) = uses else { continue };
                let with = |bad: &Window, expected| {
                    let mut operands = [&good[0], &good[1], &good[2]];
                    operands[at] = bad;
                    refuse(op, operands, expected);
                };
                with(&other.window(LIMIT), ErrorKind::WrongEngine);
                let lacking = if uses == Access::READ { Access::WRITE } else { Access::READ };
                with(&engine.window_with(lacking), ErrorKind::AccessDenied);
                if op.uses().iter().flatten().count() > 1 {
                    with(&engine.window(LIMIT - 1), ErrorKind::LengthMismatch);
                }
            }
            // Each written operand overlaps with each other operand.
            let whole = engine.window(2 * LIMIT);
            // A batch has one copy of 1 byte and one of the remaining bytes, and each copy is checked
            // separately.
            let distance = if op == Op::Batch { LIMIT - 2 } else { LIMIT - 1 };
            let (low, high) = (whole.slice(..LIMIT), whole.slice(distance..distance + LIMIT));
            let uses = op.uses();
            for (first, second) in [(0, 1), (0, 2), (1, 2)] {
                let used = [uses[first], uses[second]];
                if used.contains(&Some(Access::WRITE)) && !used.contains(&None) {
                    for (low, high) in [(&low, &high), (&high, &low)] {
                        let mut operands = [&good[0], &good[1], &good[2]];
                        (operands[first], operands[second]) = (low, high);
                        refuse(op, operands, ErrorKind::Overlap);
                    }
                }
            }
        }
    });
}

#[test]
fn other_operations_go_to_the_queue() {
    on_both(|engine, queue| {
        let executed = || engine.script.executed();
        for op in OPS {
            let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
            for (at, _) in op.uses().iter().enumerate().filter(|(_, uses)| uses.is_some()) {
                let hidden = engine.hidden(LIMIT);
                let mut operands = [&a, &b, &c];
                operands[at] = &hidden;
                let before = executed();
                queue.run(op, operands).expect("the device can reach the memory");
                assert_eq!(executed(), before, "{op:?} of memory that the CPU cannot reach");
            }
            // One part of each operation is longer than the limit.
            let factor = if matches!(op, Op::Batch | Op::Lists | Op::FillOfList) { 3 } else { 1 };
            let [a, b, c] = [(); 3].map(|()| engine.window(factor * LIMIT + 1));
            let before = executed();
            queue.run(op, [&a, &b, &c]).expect("the queue accepts the operation");
            assert_eq!(executed(), before, "{op:?} beyond the limit");
        }
        let before = executed();
        for op in [Op::Copy, Op::Fill, Op::Compare, Op::Crc, Op::CopyCrc, Op::Both, Op::Batch] {
            let none = engine.window(0);
            queue.run(op, [&none, &none, &none]).expect("valid");
        }
        assert_eq!(executed(), before, "operations of zero bytes are not passed to the executor");
    });
}

#[test]
fn a_batch_is_executed_as_a_whole_or_not_at_all() {
    let engine = spy();
    let queue = engine.queue();
    let mut batch: Batch<_, _> = (0..32).map(|_| engine.pair(LIMIT)).collect();
    batch = queue.submit(batch).expect("valid").wait().expect("done");
    assert_eq!(engine.script.executed(), 32, "a batch of 32 times the limit is executed inline");
    assert!(batch.iter().all(|(src, dst)| src[..] == dst[..]));
    batch.push(engine.allocate(1).expect("memory"), engine.allocate(1).expect("memory"));
    batch = queue.submit(batch).expect("valid").wait().expect("done");
    assert_eq!(
        engine.script.executed(),
        32,
        "a batch of one byte more than 32 times the limit is not executed inline"
    );
    let pieces = |n: usize| (0..n).map(|_| engine.allocate(LIMIT).expect("memory")).collect::<Vec<_>>();
    for (n, executed) in [(32, [33, 34]), (33, [34, 34])] {
        let long = engine.allocate(n * LIMIT).expect("memory");
        let (_, long) = queue.copy(pieces(n), long).expect("valid").wait().expect("done");
        assert_eq!(engine.script.executed(), executed[0], "a list of {n} times the limit");
        queue.copy(long, pieces(n)).expect("valid").wait().expect("done");
        assert_eq!(engine.script.executed(), executed[1], "a copy to a list of {n} times the limit");
    }
    batch.drain().for_each(drop);
    batch.push(engine.allocate(8).expect("memory"), engine.allocate(8).expect("memory"));
    batch.push(engine.allocate(8).expect("memory"), engine.allocate(9).expect("memory"));
    let refused = queue.submit(batch).expect_err("the second copy is invalid");
    assert!(refused.to_string().contains("copy 1"), "{refused}");
    assert_eq!(engine.script.executed(), 34, "the first copy is not executed either");
}

#[test]
fn pieces_of_windows_are_copied_at_once_or_not_at_all() {
    let (engine, other) = (spy(), spy());
    let queue = engine.queue();
    let [a, b] = [(); 2].map(|()| engine.window(2 * LIMIT));
    write(&a, 1);
    write(&b, 2);
    let mut expected = bytes(&b);
    for (from, to, len) in [(3, 5, 9), (0, 2 * LIMIT - 1, 1), (LIMIT, LIMIT / 2, LIMIT)] {
        assert!(queue.copy_at_once((&a, from), (&b, to), len));
        expected[to..to + len].copy_from_slice(&bytes(&a)[from..from + len]);
        assert_eq!(bytes(&b), expected);
    }
    // Both ranges may be in one window if they do not overlap.
    assert!(queue.copy_at_once((&b, 0), (&b, 9), 9) && queue.copy_at_once((&b, 9), (&b, 0), 9));
    expected.copy_within(0..9, 9);
    let counters = queue.counters();
    let bytes_copied = (9 + 1 + LIMIT + 9 + 9) as u64;
    assert_eq!((counters.submitted, counters.completed, counters.bytes), (5, 5, bytes_copied));

    let end = 2 * LIMIT;
    let [to_read, to_write] = [Access::READ, Access::WRITE].map(|access| engine.window_with(access));
    let (hidden, foreign) = (engine.hidden(LIMIT), other.window(LIMIT));
    for ((src, from), (dst, to), len) in [
        ((&a, 0), (&b, 0), 0),
        ((&a, 0), (&b, 0), LIMIT + 1),
        ((&a, end - 8), (&b, 0), 9),
        ((&a, 0), (&b, end - 8), 9),
        ((&a, end + 1), (&b, 0), 1),
        ((&a, usize::MAX), (&b, 0), 2),
        ((&a, 0), (&b, usize::MAX), 2),
        ((&b, 0), (&b, 8), 9),
        ((&b, 8), (&b, 0), 9),
        ((&a, 0), (&to_read, 0), 1),
        ((&to_write, 0), (&b, 0), 1),
        ((&hidden, 0), (&b, 0), 1),
        ((&a, 0), (&hidden, 0), 1),
        ((&foreign, 0), (&b, 0), 1),
        ((&a, 0), (&foreign, 0), 1),
    ] {
        assert!(!queue.copy_at_once((src, from), (dst, to), len), "{src:?} {from}, {dst:?} {to}, {len}");
    }
    assert!(!queue.submit_at_once(&mut Batch::<Window, Window>::new()), "an empty batch has nothing to copy");
    let mut batch: Batch<_, _> = [(a.slice(..9), b.slice(..9))].into_iter().collect();
    assert!(queue.submit_at_once(&mut batch));
    expected[..9].copy_from_slice(&bytes(&a)[..9]);
    batch.push(a.slice(..9), b.slice(..8));
    assert!(!queue.submit_at_once(&mut batch));
    assert_eq!((bytes(&b), engine.script.executed()), (expected, 6));

    // While an operation is in flight, no copy is executed at once, because the copy would overtake that
    // operation.
    let (src, dst) = engine.pair(LIMIT + 1);
    let long = queue.copy(src, dst).expect("room");
    assert!(!queue.copy_at_once((&a, 0), (&b, 0), 9));
    drop(long.wait().expect("done"));
    assert!(queue.copy_at_once((&a, 0), (&b, 0), 9));
}

#[test]
fn long_copies_of_a_batch_are_executed_by_few_calls() {
    let mut options = ReferenceOptions::default();
    (options.native, options.inline_limit, options.depth) = (true, 8 << 10, 8);
    let engine = Spy::of(ReferenceEngine::new(options));
    let (queue, shared) = (engine.queue(), engine.shared());
    for (lens, calls) in [
        (vec![4 << 10; 33], 2),
        (vec![4 << 10; 32], 1),
        (vec![8 << 10, 1, 4 << 10], 1),
        (vec![8 << 10, 1], 1),
        (vec![4 << 10, (4 << 10) - 1], 0),
        (vec![1; 100], 0),
    ] {
        let pairs = || lens.iter().map(|len| engine.pair(*len)).collect::<Batch<_, _>>();
        let calls_so_far = || engine.script.calls_with_several.load(Ordering::Relaxed);
        for is_shared in [false, true] {
            let (before, executed) = (calls_so_far(), engine.script.executed());
            let batch = if is_shared {
                shared.submit(pairs()).expect("valid").wait().expect("done")
            } else {
                queue.submit(pairs()).expect("valid").wait().expect("done")
            };
            assert_eq!(calls_so_far() - before, calls, "{lens:?}");
            assert_eq!(engine.script.executed() - executed, lens.len());
            assert!(batch.iter().all(|(src, dst)| src[..] == dst[..] && dst[0] & 1 == 1));
        }
    }
}

/// Copies rows to the other side if `gathers`, else the other side to rows, on the shared queue if
/// `is_shared`.
fn copy_rows(
    (queue, shared): (&Queue, &SharedQueue),
    gathers: bool,
    is_shared: bool,
    rows: Rows<Window>,
    flat: Window,
) -> Result<(), ErrorKind> {
    macro_rules! end {
        ($submitted:expr) => {
            $submitted.map_err(|e| e.kind()).map(|transfer| drop(transfer.wait().expect("done")))
        };
    }
    match (gathers, is_shared) {
        (true, false) => end!(queue.copy(rows, flat)),
        (true, true) => end!(shared.copy(rows, flat)),
        (false, false) => end!(queue.copy(flat, rows)),
        (false, true) => end!(shared.copy(flat, rows)),
    }
}

#[test]
fn rows_are_executed_if_each_and_all_are_short_and_the_lengths_agree() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    let table = engine.window(33 * LIMIT);
    let full = |count: usize| (0..count).map(|row| (row * LIMIT, LIMIT)).collect::<Vec<_>>();
    for (list, flat, expected) in [
        (full(1), LIMIT, Ok(1)),
        (full(32), 32 * LIMIT, Ok(32)),
        (full(33), 33 * LIMIT, Ok(0)),
        (vec![(3, LIMIT + 1)], LIMIT + 1, Ok(0)),
        // The executor copies no row of zero bytes.
        (vec![(3, 9), (20, 0), (50, 9), (0, 0)], 18, Ok(2)),
        (vec![(3, 9), (50, 9)], 17, Err(ErrorKind::LengthMismatch)),
        (vec![(3, 9), (50, 9)], 19, Err(ErrorKind::LengthMismatch)),
    ] {
        for (gathers, is_shared) in [(true, false), (true, true), (false, false), (false, true)] {
            let (flat, before) = (engine.window(flat), engine.script.executed());
            let rows = Rows::new(table.clone(), list.clone()).expect("within the table");
            let result = copy_rows((&queue, &shared), gathers, is_shared, rows, flat);
            let executed = engine.script.executed() - before;
            assert_eq!(result.map(|()| executed), expected, "{list:?} {gathers} {is_shared}");
            assert_eq!(executed, expected.unwrap_or(0), "{list:?}");
        }
    }
}

#[test]
fn invalid_rows_reach_no_executor() {
    let (engine, other) = (spy(), spy());
    let (queue, shared) = (engine.queue(), engine.shared());
    let apart = [(3, 9), (50, 9)];
    let (table, flat) = (engine.window(LIMIT), engine.window(18));
    let (foreign, hidden) = (other.window(LIMIT), engine.hidden(LIMIT));
    let [to_read, to_write] = [Access::READ, Access::WRITE].map(|access| engine.window_with(access));
    let first = |window: &Window| window.slice(..18);
    let (wrong_engine, denied) = (Err(ErrorKind::WrongEngine), Err(ErrorKind::AccessDenied));
    for (gathers, table, rows, flat, expected) in [
        (true, &foreign, apart, flat.clone(), wrong_engine),
        (true, &table, apart, first(&foreign), wrong_engine),
        (true, &to_write, apart, flat.clone(), denied),
        (true, &table, apart, first(&to_read), denied),
        (true, &table, apart, table.slice(11..29), Err(ErrorKind::Overlap)),
        (true, &hidden, apart, flat.clone(), Ok(())),
        (true, &table, apart, first(&hidden), Ok(())),
        (false, &foreign, apart, flat.clone(), wrong_engine),
        (false, &table, apart, first(&foreign), wrong_engine),
        (false, &to_read, apart, flat.clone(), denied),
        (false, &table, apart, first(&to_write), denied),
        (false, &table, apart, table.slice(11..29), Err(ErrorKind::Overlap)),
        (false, &table, [(3, 9), (11, 9)], flat.clone(), Err(ErrorKind::Overlap)),
        (false, &hidden, apart, flat.clone(), Ok(())),
        (false, &table, apart, first(&hidden), Ok(())),
    ] {
        for is_shared in [false, true] {
            let list = Rows::new(table.clone(), rows.to_vec()).expect("within the table");
            let result = copy_rows((&queue, &shared), gathers, is_shared, list, flat.clone());
            assert_eq!(result, expected, "{gathers} {is_shared} {rows:?} of {table:?}, {flat:?}");
            assert_eq!(engine.script.executed(), 0, "{gathers} {is_shared} {rows:?} of {table:?}, {flat:?}");
        }
    }
}

/// The rows' view and the range on the other side are parts of one window. If they overlap, each row is
/// checked, and valid rows are executed as a list, by one call.
#[test]
fn rows_are_executed_if_their_view_is_apart_from_the_other_side() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    let table = engine.window(LIMIT);
    let overlap = Err(ErrorKind::Overlap);
    for (gathers, view, rows, flat, expected) in [
        (true, 0..50, [(3, 9), (41, 9)], 50..68, Ok(2)),
        (true, 0..50, [(3, 9), (41, 9)], 49..67, overlap),
        (true, 0..50, [(3, 9), (40, 9)], 49..67, Ok(1)),
        (true, 18..68, [(0, 9), (41, 9)], 0..18, Ok(2)),
        (true, 17..67, [(0, 9), (41, 9)], 0..18, overlap),
        (true, 17..67, [(1, 9), (41, 9)], 0..18, Ok(1)),
        // Rows that are read may overlap, so the view can be shorter than the other side.
        (true, 18..30, [(0, 9), (3, 9)], 0..18, Ok(2)),
        (true, 15..27, [(0, 9), (3, 9)], 0..18, overlap),
        (false, 0..50, [(3, 9), (41, 9)], 50..68, Ok(2)),
        (false, 0..50, [(3, 9), (41, 9)], 49..67, overlap),
        (false, 18..68, [(0, 9), (41, 9)], 0..18, Ok(2)),
        (false, 17..67, [(0, 9), (41, 9)], 0..18, overlap),
    ] {
        for is_shared in [false, true] {
            let executed = engine.script.executed();
            let list = Rows::new(table.slice(view.clone()), rows.to_vec()).expect("within the view");
            let other = table.slice(flat.clone());
            let result = copy_rows((&queue, &shared), gathers, is_shared, list, other);
            let executed = engine.script.executed() - executed;
            let case = format!("{gathers} {is_shared} {rows:?} of {view:?}, {flat:?}");
            assert_eq!(result.map(|()| executed), expected, "{case}");
            assert_eq!(executed, expected.unwrap_or(0), "{case}");
        }
    }
}

#[test]
fn operations_of_lists_other_than_copies_and_fills_go_to_the_queue() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
    let halves = |of: &Window| [of.slice(..LIMIT / 2), of.slice(LIMIT / 2..)];
    macro_rules! run {
        ($queue:expr) => {
            write(&a, 1);
            let crc = crc32c::crc32c_append(5, &bytes(&a));
            let batch = [(halves(&a), halves(&b))].into_iter().collect::<Batch<_, _>>();
            $queue.submit(batch).expect("valid").wait().expect("done");
            assert_eq!(bytes(&b), bytes(&a));
            write(&b, 2);
            let copy = $queue.copy_to_both(halves(&a), halves(&b), halves(&c));
            copy.expect("valid").wait().expect("done");
            assert_eq!([bytes(&b), bytes(&c)], [bytes(&a), bytes(&a)]);
            let compared = $queue.compare(halves(&a), halves(&b)).expect("valid").wait().expect("done");
            assert_eq!(compared.1, None);
            let summed = $queue.crc32c(halves(&a), 5).expect("valid").wait().expect("done");
            assert_eq!(summed.1, crc);
            write(&b, 2);
            let copied = $queue.copy_crc32c(halves(&a), halves(&b), 5).expect("valid").wait().expect("done");
            assert_eq!((copied.1, bytes(&b)), (crc, bytes(&a)));
        };
    }
    run!(queue);
    run!(shared);
    assert_eq!(engine.script.executed(), 0);
}

#[test]
fn nothing_is_executed_while_operations_of_the_queue_are_in_flight() {
    let engine = spy();
    let queue = engine.queue();
    let (src, dst) = engine.pair(LIMIT + 1);
    let long = queue.copy(src, dst).expect("room");
    let (src, dst) = engine.pair(10);
    let short = queue.copy(src, dst).expect("room");
    assert_eq!((engine.script.executed(), queue.counters().in_flight), (0, 2));
    let (src, dst) = short.wait().expect("done");
    drop(long);
    while queue.counters().in_flight > 0 {
        queue.poll();
    }
    let short = queue.copy(src, dst).expect("room");
    assert_eq!(
        engine.script.executed(),
        1,
        "when nothing is in flight, operations are executed inline again"
    );
    drop(short);
    let long = queue.fill(engine.allocate(LIMIT + 1).expect("memory"), [1; 8]).expect("room");
    let (src, dst) = engine.pair(10);
    queue.copy(src, dst).expect("room").wait().expect("done");
    assert_eq!(engine.script.executed(), 1, "nothing is executed inline while the fill is in flight");
    long.wait().expect("done");
    // A refused operation and an operation of zero bytes are not in flight.
    queue
        .copy(engine.allocate(1).expect("memory"), engine.allocate(2).expect("memory"))
        .expect_err("invalid");
    let empty = queue.copy(engine.allocate(0).expect("memory"), engine.allocate(0).expect("memory"));
    let (src, dst) = engine.pair(10);
    queue.copy(src, dst).expect("room").wait().expect("done");
    assert_eq!(engine.script.executed(), 2);
    empty.expect("valid").wait().expect("done");
}

#[test]
fn a_closed_queue_executes_nothing() {
    on_both(|engine, queue| {
        let window = engine.window(LIMIT);
        queue.run(Op::Crc, [&window; 3]).expect("valid");
    });
    let engine = spy();
    let shared = engine.shared();
    let held = shared.copy(engine.pair(10).0, engine.pair(10).1).expect("room");
    assert_eq!(shared.close(SOON).completed, 1);
    for op in OPS {
        let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
        assert_eq!(shared.run(op, [&a, &b, &c]), Err(ErrorKind::Closed), "{op:?}");
    }
    assert_eq!(engine.script.executed(), 1);
    held.wait().expect("the transfer was done before the close");
}

#[test]
fn a_done_transfer_outlives_its_queue_and_does_not_keep_it() {
    let engine = spy();
    let queue = engine.queue();
    let (src, dst) = engine.pair(10);
    let mut held = queue.copy(src, dst).expect("room");
    assert_eq!(queue.close(SOON).completed, 1);
    assert!(held.is_done());
    held.wait_for(Duration::ZERO).expect("done");
    let (src, dst) = held.wait().expect("done");
    assert_eq!(src[..], dst[..]);
    let shared = engine.shared();
    let held = shared.copy(src, dst).expect("room");
    let hub = shared.downgrade();
    drop(shared);
    assert!(hub.upgrade().is_none(), "a transfer that is done does not keep the queue open");
    let (src, dst) = held.wait().expect("done");
    assert_eq!(src[..], dst[..]);
}

#[test]
fn a_dropped_transfer_frees_its_operands_at_once_and_once() {
    struct Owner(Vec<u8>, Arc<AtomicUsize>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl AsMut<[u8]> for Owner {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let engine = spy();
    let (queue, shared, freed) = (engine.queue(), engine.shared(), Arc::<AtomicUsize>::default());
    let owned = || {
        let owner = Owner(vec![0; 10], Arc::clone(&freed));
        engine.register(HostMemory::from_owner(owner)).expect("it registers")
    };
    drop(queue.copy(engine.pair(10).0, owned()).expect("room"));
    assert_eq!(freed.load(Ordering::Relaxed), 1);
    drop(shared.copy(engine.pair(10).0, owned()).expect("room"));
    assert_eq!(freed.load(Ordering::Relaxed), 2);
    let (_, dst) = queue.copy(engine.pair(10).0, owned()).expect("room").wait().expect("done");
    drop(queue);
    assert_eq!(freed.load(Ordering::Relaxed), 2, "a returned operand is not freed");
    drop(dst);
    assert_eq!(freed.load(Ordering::Relaxed), 3);
}

#[test]
fn a_panic_of_the_queue_ends_the_executor() {
    let engine = spy();
    let queue = engine.queue();
    engine.script.queue_panics.store(true, Ordering::Relaxed);
    let (src, dst) = engine.pair(LIMIT + 1);
    let long = queue.copy(src, dst).expect("room");
    catch_unwind(AssertUnwindSafe(|| queue.flush())).expect_err("the injected panic");
    let window = engine.window(LIMIT);
    for op in OPS {
        let refused = queue.run(op, [&window, &engine.window(LIMIT), &engine.window(LIMIT)]);
        assert!(refused.is_err(), "{op:?}: {refused:?}");
    }
    std::mem::forget(long);
    // The queue also panics while nothing is in flight.
    // The second poll abandons the engine, and leaves no operation open.
    for polls_again in [false, true] {
        let idle = engine.queue();
        catch_unwind(AssertUnwindSafe(|| idle.poll())).expect_err("the queue panics");
        if polls_again {
            idle.poll();
        }
        for op in [OPS, OPS].concat() {
            let refused = idle.run(op, [&window, &engine.window(LIMIT), &engine.window(LIMIT)]);
            assert!(refused.is_err(), "{op:?}: {refused:?}");
        }
    }
    engine.script.queue_panics.store(false, Ordering::Relaxed);
    let stopped = engine.queue();
    stopped.shared.borrow_mut().planner.stop(&mut Vec::new());
    for op in [OPS, OPS].concat() {
        let refused = stopped.run(op, [&window, &engine.window(LIMIT), &engine.window(LIMIT)]);
        assert!(refused.is_err(), "{op:?}: {refused:?}");
    }
    engine.script.queue_panics.store(true, Ordering::Relaxed);

    let shared = engine.shared();
    let (src, dst) = engine.pair(LIMIT + 1);
    let long = shared.copy(src, dst).expect("room");
    // Either this thread's poll or the lane thread's poll panics.
    let ended = catch_unwind(AssertUnwindSafe(|| long.wait().map(drop).map_err(drop)));
    assert!(ended.is_err() || ended.is_ok_and(|ended| ended.is_err()));
    let refused = shared.run(Op::Crc, [&window; 3]);
    assert_eq!(refused, Err(ErrorKind::Closed));
    assert_eq!(engine.script.executed(), 0);
}

#[test]
fn a_panic_of_the_executor_ends_it() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    engine.script.executor_panics.store(true, Ordering::Relaxed);
    let window = engine.window(LIMIT);
    for queue in [&queue as &dyn Run, &shared] {
        catch_unwind(AssertUnwindSafe(|| queue.run(Op::Crc, [&window; 3]))).expect_err("the injected panic");
    }
    engine.script.executor_panics.store(false, Ordering::Relaxed);
    for queue in [&queue as &dyn Run, &shared] {
        assert!(
            queue.run(Op::Crc, [&window; 3]).is_err(),
            "the queue refuses operations, because the engine's state is unknown"
        );
    }
    assert_eq!(engine.script.executed(), 2);
    assert_eq!(shared.close(SOON).completed, 0);
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_yields_once_in_64_transfers_that_are_done() {
    let engine = spy();
    let (queue, shared, woken) = (engine.queue(), engine.shared(), Arc::<Woken>::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut pending = Vec::new();
    for n in 1..=640 {
        let (src, dst) = engine.pair(10);
        let mut copy: Pin<Box<dyn Future<Output = Result<_, _>> + '_>> = match n % 3 {
            0 => Box::pin(queue.copy(src, dst).expect("room")),
            1 => Box::pin(shared.copy(src, dst).expect("room")),
            _ => Box::pin(shared.copy_when_ready(src, dst)),
        };
        let mut poll = || match copy.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(copied) => copied.is_ok_and(|(src, dst)| src[..] == dst[..]),
            Poll::Pending => false,
        };
        if !poll() {
            pending.push(n);
            assert_eq!(
                woken.0.load(Ordering::Relaxed),
                pending.len(),
                "a transfer that yields wakes its task"
            );
            assert!(poll(), "a transfer yields only once");
        }
    }
    assert_eq!(pending.len(), 10);
    assert!(pending.windows(2).all(|two| two[1] - two[0] == 64), "{pending:?}");
}

#[test]
fn a_done_transfer_is_polled_to_its_end_once() {
    let engine = spy();
    let (src, dst) = engine.pair(10);
    let mut transfer = engine.queue().copy(src, dst).expect("room");
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut transfer).poll(&mut context).is_pending() {}
    assert!(transfer.is_done());
    let again = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut transfer).poll(&mut context).is_ready()));
    again.expect_err("the operands have been returned already");
    catch_unwind(AssertUnwindSafe(|| transfer.wait().map(drop).map_err(drop)))
        .expect_err("a wait panics too");
}

#[test]
fn clones_and_threads_share_the_counts() {
    let engine = spy();
    let shared = engine.shared();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (queue, engine) = (shared.clone(), &engine);
            scope.spawn(move || {
                for _ in 0..100 {
                    let (src, dst) = engine.pair(10);
                    let (src, dst) = queue.copy(src, dst).expect("room").wait().expect("done");
                    assert_eq!(src[..], dst[..]);
                }
            });
        }
    });
    let counters = shared.counters();
    assert_eq!((counters.submitted, counters.completed, counters.bytes), (400, 400, 4000));
    assert_eq!(shared.available(), shared.depth());
}
