//! Tests of short operations that an executor executes, on both queue types.
#![expect(unsafe_code, reason = "implements an engine that counts the calls of its executor")]

mod refusals;
mod several;
mod transfers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Access, Batch, BufferMut, BufferPool, Capabilities, Completion, Descriptor, DeviceAddr, DmaEngine,
    DmaEngineExt, EngineId, EngineInfo, ErrorKind, ExportDescriptor, HostMemory, InlineCopy, InlineExecutor,
    MemoryRequest, NativeError, Operation, PoolOptions, Queue, QueueEvents, QueueOptions, QueueStats,
    RawExport, RawQueue, RawRegion, RegionInfo, Result, Rows, SharedQueue, SharedQueueOptions, Window,
};

/// Length of the longest operation of the executor, in bytes. Miri takes milliseconds for each byte.
pub(super) const LIMIT: usize = if cfg!(miri) { 16 } else { 100 };
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
    /// The executor's `plain_copy_len`.
    plain_copy_len: AtomicUsize,
    /// The executor's `plain_read_len`.
    plain_read_len: AtomicUsize,
    /// True if the executor selects copies, and then the copies that it was asked for and its answer.
    selects_copies: AtomicBool,
    asked: Mutex<Vec<(u64, usize)>>,
    admits: AtomicBool,
}

impl Script {
    fn executed(&self) -> usize {
        self.executed.load(Ordering::Relaxed)
    }
}

/// The reference engine, with an executor whose calls are counted. The CPU cannot reach imported memory.
#[derive(Debug)]
pub(super) struct Spy {
    info: EngineInfo,
    inner: ReferenceEngine,
    script: Arc<Script>,
}

// SAFETY: every call goes to the inner engine. Imported memory is memory of the inner engine.
unsafe impl DmaEngine for Spy {
    fn info(&self) -> &EngineInfo {
        &self.info
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
    fn plain_copy_len(&self) -> usize {
        self.script.plain_copy_len.load(Ordering::Relaxed)
    }
    fn plain_read_len(&self) -> usize {
        self.script.plain_read_len.load(Ordering::Relaxed)
    }
    fn selects_copies(&self) -> bool {
        self.script.selects_copies.load(Ordering::Relaxed)
    }
    fn admits_copies(&self, count: u64, bytes: usize) -> bool {
        self.script.asked.lock().expect("no panic").push((count, bytes));
        self.script.admits.load(Ordering::Relaxed)
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
    fn copy_slice(&self, src: &[u8], dst: &mut [u8]) {
        self.count();
        self.inner.copy_slice(src, dst);
    }
}

fn spy() -> Spy {
    let mut options = ReferenceOptions::default();
    (options.native, options.inline_limit, options.depth) = (true, LIMIT, 8);
    Spy::of(ReferenceEngine::new(options))
}

impl Spy {
    pub(super) fn of(inner: ReferenceEngine) -> Self {
        Self { info: inner.info().clone(), inner, script: Arc::default() }
    }

    /// Claims that the engine copies by CPU.
    fn with_cpu_copies(mut self) -> Self {
        let capabilities = self.info.capabilities | Capabilities::CPU_COPIES;
        self.info = self.info.with_capabilities(capabilities);
        self
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

/// A queue whose operations run by the calls that borrow, such as `copy_now`, unless these refuse.
struct Now<Q>(Q);

macro_rules! run_now {
    ($queue:ty) => {
        impl Run for Now<$queue> {
            fn run(&self, op: Op, operands: [&Window; 3]) -> Result<u64, ErrorKind> {
                let [a, mut b, mut c] = operands.map(Window::clone);
                let before = self.0.counters();
                let result = match op {
                    Op::Copy => self.0.copy_now(&a, &mut b).then_some(0),
                    Op::Fill => self.0.fill_now(&mut b, [7; 8]).then_some(0),
                    Op::Both => self.0.copy_to_both_now(&a, &mut b, &mut c).then_some(0),
                    Op::Compare => self.0.compare_now(&a, &b).map(|at| at.map_or(u64::MAX, |at| at as u64)),
                    Op::Crc => self.0.crc32c_now(&a, 5).map(u64::from),
                    Op::CopyCrc => self.0.copy_crc32c_now(&a, &mut b, 5).map(u64::from),
                    Op::Lists => {
                        let first = a.len().min(1);
                        let lists = [a.slice(..first), a.slice(first..)];
                        assert!(!self.0.copy_now(&lists, &mut b), "lists are not executed");
                        None
                    }
                    Op::Batch | Op::FillOfList => None,
                };
                result.map_or_else(
                    || {
                        assert_eq!(self.0.counters(), before, "{op:?} was refused");
                        self.0.run(op, operands)
                    },
                    Ok,
                )
            }
            fn counters(&self) -> crate::Counters {
                self.0.counters()
            }
        }
    };
}
run_now!(Queue);
run_now!(SharedQueue);

fn bytes(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.read_at(0, &mut bytes).expect("the CPU can reach the window");
    bytes
}

fn write(window: &Window, seed: u8) {
    let bytes: Vec<u8> = (0..window.len()).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect();
    window.write_at(0, &bytes).expect("the CPU can reach the window");
}

/// Runs `check` on a `Queue` and on a `SharedQueue`, by the calls that move operands and by those that borrow
/// them.
fn on_both(check: impl Fn(&Spy, &dyn Run)) {
    let [of_queue, of_shared, by_queue, by_shared] = [(); 4].map(|()| spy());
    check(&of_queue, &of_queue.queue());
    check(&of_shared, &of_shared.shared());
    check(&by_queue, &Now(by_queue.queue()));
    check(&by_shared, &Now(by_shared.shared()));
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
fn an_executor_selects_copies() {
    for (shared, borrows, admits) in (0..8).map(|case| (case & 1 > 0, case & 2 > 0, case & 4 > 0)) {
        let engine = spy();
        engine.script.selects_copies.store(true, Ordering::Relaxed);
        engine.script.admits.store(admits, Ordering::Relaxed);
        let queue: Box<dyn Run> = match (shared, borrows) {
            (false, false) => Box::new(engine.queue()),
            (false, true) => Box::new(Now(engine.queue())),
            (true, false) => Box::new(engine.shared()),
            (true, true) => Box::new(Now(engine.shared())),
        };
        for op in OPS {
            let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
            write(&a, 1);
            let before = engine.script.executed();
            queue.run(op, [&a, &b, &c]).expect("valid");
            let asked = std::mem::take(&mut *engine.script.asked.lock().expect("no panic"));
            let is_copy = !matches!(op, Op::Fill | Op::FillOfList | Op::Compare | Op::Crc);
            let executed = engine.script.executed() - before;
            assert_eq!(executed > 0, admits || !is_copy, "{op:?}, {admits}");
            // A call that borrows and is refused is followed by one that does not.
            let each = (if op == Op::Batch { 2 } else { 1 }, LIMIT);
            let calls = match op {
                _ if !is_copy => 0,
                Op::Copy | Op::Both | Op::CopyCrc if borrows && !admits => 2,
                _ => 1,
            };
            assert_eq!(asked, vec![each; calls], "{op:?}, {admits}, {borrows}");
            if is_copy {
                assert_eq!(bytes(&b), bytes(&a), "{op:?}");
            }
        }
    }
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
            assert_eq!(refused, Err(ErrorKind::Closed), "{op:?}");
        }
        assert_eq!(idle.close(SOON).submitted, 0);
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

/// A refused operation returns its operands, whereas one that is accepted and never ends leaks them.
#[test]
fn no_operation_is_accepted_after_a_panic_of_the_executor() {
    for (panics, op) in OPS.into_iter().flat_map(|panics| OPS.map(|op| (panics, op))) {
        on_both(|engine, queue| {
            let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
            engine.script.executor_panics.store(true, Ordering::Relaxed);
            catch_unwind(AssertUnwindSafe(|| queue.run(panics, [&a, &b, &c])))
                .expect_err("the injected panic");
            engine.script.executor_panics.store(false, Ordering::Relaxed);
            let refused = queue.run(op, [&a, &b, &c]);
            assert_eq!(refused, Err(ErrorKind::Closed), "{op:?} after {panics:?}");
            assert_eq!(queue.counters().submitted, 0, "{op:?} after {panics:?}");
        });
    }
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
    let (queue, shared) = (Now(queue), Now(shared));
    for queue in [&queue as &dyn Run, &shared] {
        assert!(queue.run(Op::Copy, [&window, &engine.window(LIMIT), &window]).is_err());
    }
    assert_eq!(engine.script.executed(), 2);
    assert_eq!(shared.0.close(SOON).completed, 0);
}
