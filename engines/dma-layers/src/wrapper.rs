//! [`Layered`]: an engine that forwards its calls to an inner engine, and reports them to a wrapper.
//!
//! A [`Wrapper`] observes calls and regions. The wrapper's [`QueueHook`] receives the calls of a queue and
//! forwards them to the inner queue.
#![expect(unsafe_code, reason = "implements the contract by calls of the inner engine")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::{
    Access, Completion, Descriptor, DeviceMemory, DmaEngine, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, IdleMemory, InlineCopy, InlineExecutor, MemoryRequest, NativeError,
    Operation, Place, QueueEvents, QueueOptions, QueueStats, RawExport, RawQueue, RawRegion, RegionInfo,
    Result, Segment,
};

/// A call that opens or closes a queue or a region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Allocate { len: usize },
    Register { len: usize },
    Import,
    Export { len: usize },
    OpenQueue { depth: usize },
    CloseRegion { len: usize },
    CloseQueue,
}

/// The state of a wrapper that all its queues and regions share.
pub(crate) trait Wrapper: fmt::Debug + Send + Sync + 'static {
    /// The state of one queue.
    type Queue: QueueHook;

    /// Makes the state of a queue that was opened with `options` and has the depth `depth`.
    ///
    /// # Errors
    ///
    /// Errors of the wrapper. After an error, the inner queue is closed.
    fn open(this: &Arc<Self>, options: &QueueOptions, depth: usize) -> Result<Self::Queue>;

    /// Returns the wrapper's part of [`DmaEngine::explain`], in complete lines.
    fn explain(&self) -> String {
        String::new()
    }

    /// Runs a call of the inner engine.
    fn instrument<T>(&self, call: Call, run: impl FnOnce() -> T) -> T {
        let _ = call;
        run()
    }

    /// Called after a region was opened. `place` is the region's place; imported memory counts as host
    /// memory.
    fn region_opened(&self, region: &RegionInfo, place: Place) {
        let _ = (region, place);
    }

    /// Called before a region is dropped.
    fn region_closing(&self, region: &RegionInfo) {
        let _ = region;
    }
}

/// The state of a wrapper that belongs to one queue. By default, calls go to the inner queue unchanged.
///
/// # Safety
///
/// The methods stand for those of a [`RawQueue`]. An implementer keeps the promises of `RawQueue`, provided
/// that `inner` keeps them.
pub(crate) unsafe trait QueueHook: fmt::Debug + Send {
    /// See [`RawQueue::submit`].
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`]: the descriptors are valid for `inner` until they are reported.
    unsafe fn submit(&mut self, inner: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> Result<usize>;

    /// See [`RawQueue::poll`].
    fn poll(&mut self, inner: &mut dyn RawQueue, completions: &mut [Completion]) -> usize;

    /// See [`RawQueue::flush`].
    fn flush(&mut self, inner: &mut dyn RawQueue) {
        inner.flush();
    }

    /// See [`RawQueue::stop`].
    fn stop(&mut self, inner: &mut dyn RawQueue) {
        inner.stop();
    }

    /// Returns true if the hook can ever have work for [`poll`](Self::poll) that the inner queue's events do
    /// not signal. The result never changes.
    fn may_need_polls(&self) -> bool {
        false
    }

    /// Returns true if the hook has such work now.
    fn needs_polls(&self) -> bool {
        false
    }

    /// Explains a code that the wrapper has reported.
    fn explain(&self, native: i32) -> Option<NativeError> {
        let _ = native;
        None
    }

    /// Returns an executor that calls `inner`, the executor of the inner queue, and reports its operations to
    /// the wrapper. With `None`, all operations pass through [`submit`](Self::submit).
    fn inline_executor(&self, inner: Arc<dyn InlineExecutor>) -> Option<Arc<dyn InlineExecutor>> {
        let _ = inner;
        None
    }

    /// Called before the queue is closed or leaked. `stats` contains the device counters of the inner queue.
    fn closing(&mut self, stats: QueueStats) {
        let _ = stats;
    }
}

/// An inner engine with a wrapper. Regions and queues are the inner engine's, but have the id of this engine.
pub(crate) struct Layered<L> {
    inner: Arc<dyn DmaEngine>,
    info: EngineInfo,
    id: EngineId,
    pub(crate) wrapper: Arc<L>,
    /// `None` if the inner engine does not recycle memory.
    idle_memory: Option<IdleMemory>,
}

impl<L: Wrapper> Layered<L> {
    /// Makes an engine from `inner`. `info` describes it: the `info` of `inner`, possibly with fewer
    /// capabilities.
    pub(crate) fn new(inner: Arc<dyn DmaEngine>, info: EngineInfo, wrapper: L) -> Self {
        let idle_memory = inner.idle_memory().map(|_| IdleMemory::new());
        Self { inner, info, id: EngineId::unique(), wrapper: Arc::new(wrapper), idle_memory }
    }

    fn region(
        &self,
        call: Call,
        place: Place,
        open: impl FnOnce() -> Result<Box<dyn RawRegion>>,
    ) -> Result<Box<dyn RawRegion>> {
        let inner = self.wrapper.instrument(call, open)?;
        let info = RegionInfo { engine: self.id, ..*inner.info() };
        self.wrapper.region_opened(&info, place);
        Ok(Box::new(WrappedRegion { inner: Some(inner), info, wrapper: Arc::clone(&self.wrapper) }))
    }
}

// SAFETY: queues and regions are the inner engine's, and `info` promises no more than the inner engine's
// `info`. All of them have the id of this engine, so no queue gets a region of the inner engine itself.
unsafe impl<L: Wrapper> DmaEngine for Layered<L> {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn explain(&self) -> Option<String> {
        let own = self.wrapper.explain();
        match self.inner.explain() {
            Some(inner) => Some(own + &inner),
            None => Some(own).filter(|own| !own.is_empty()),
        }
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        self.idle_memory.as_ref()
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.region(Call::Allocate { len: request.len }, request.place, || self.inner.allocate_raw(request))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller promises that the memory stays valid until the returned region is dropped, and
        // with it the inner region.
        self.region(Call::Register { len: memory.len() }, Place::Host, || unsafe {
            self.inner.register_raw(memory, request)
        })
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller promises that the memory stays allocated until the returned region is dropped,
        // and with it the inner region.
        self.region(Call::Register { len: memory.len() }, Place::Device, || unsafe {
            self.inner.register_device_raw(memory, request)
        })
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.region(Call::Import, Place::Host, || self.inner.import_raw(descriptor))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let call = Call::OpenQueue { depth: options.depth };
        let mut inner = self.wrapper.instrument(call, || self.inner.open_queue_raw(options))?;
        let hook = L::open(&self.wrapper, options, inner.depth())?;
        Ok(Box::new(HookedQueue {
            event_fd: if hook.may_need_polls() { event_fd(&mut *inner) } else { None },
            hook,
            inner: Some(inner),
            engine: self.id,
            wrapper: Arc::clone(&self.wrapper),
        }))
    }
}

impl<L: Wrapper> fmt::Debug for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("inner", &self.inner)
            .field("report", &self.wrapper.explain())
            .finish_non_exhaustive()
    }
}

/// The error of a queue that a forked child opens on the parent's engine.
#[cold]
pub(crate) fn forked() -> Error {
    let message = "the engine belongs to the parent of this forked process";
    Error::new(ErrorKind::Unsupported, message).with_hint("open the engine in the forked process")
}

/// A region of the inner engine, with the same key and addresses.
#[derive(Debug)]
struct WrappedRegion<L: Wrapper> {
    /// `None` only while this value is being dropped.
    inner: Option<Box<dyn RawRegion>>,
    info: RegionInfo,
    wrapper: Arc<L>,
}

impl<L: Wrapper> Drop for WrappedRegion<L> {
    fn drop(&mut self) {
        self.wrapper.region_closing(&self.info);
        self.wrapper.instrument(Call::CloseRegion { len: self.info.len }, || self.inner = None);
    }
}

// SAFETY: everything except the engine id is the inner region's, which is kept until the drop. Each region
// has its own inner region, so keys are unique.
unsafe impl<L: Wrapper> RawRegion for WrappedRegion<L> {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let inner = self.inner.as_ref().ok_or(Error::bare(ErrorKind::Closed))?;
        // SAFETY: the caller promises that no references to these bytes exist, which belong to the inner
        // region.
        self.wrapper.instrument(Call::Export { len }, || unsafe { inner.export(offset, len, rights) })
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        let inner = self.inner.as_ref().ok_or(Error::bare(ErrorKind::Closed))?;
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { inner.dmabuf() }
    }
}

#[derive(Debug)]
struct HookedQueue<L: Wrapper> {
    hook: L::Queue,
    /// `None` only while this value is being dropped.
    inner: Option<Box<dyn RawQueue>>,
    /// A duplicate of the file descriptor of the inner queue's events, if the hook may need polls.
    event_fd: Option<Result<OwnedFd>>,
    engine: EngineId,
    wrapper: Arc<L>,
}

impl<L: Wrapper> HookedQueue<L> {
    fn inner(&self) -> &dyn RawQueue {
        &**self.inner.as_ref().expect("the inner queue is kept until the drop")
    }

    fn both(&mut self) -> (&mut L::Queue, &mut dyn RawQueue) {
        (&mut self.hook, &mut **self.inner.as_mut().expect("the inner queue is kept until the drop"))
    }
}

impl<L: Wrapper> Drop for HookedQueue<L> {
    fn drop(&mut self) {
        let stats = self.stats();
        self.hook.closing(stats);
        self.wrapper.instrument(Call::CloseQueue, || self.inner = None);
    }
}

// SAFETY: each call goes through the hook to the inner queue, and implementers of `QueueHook` keep the
// promises of the inner queue.
unsafe impl<L: Wrapper> RawQueue for HookedQueue<L> {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.inner().depth()
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        let (hook, inner) = self.both();
        // SAFETY: the caller promises valid descriptors of this engine's regions, which have the keys of the
        // inner engine's regions.
        unsafe { hook.submit(inner, batch) }
    }

    fn flush(&mut self) {
        let (hook, inner) = self.both();
        hook.flush(inner);
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let (hook, inner) = self.both();
        hook.poll(inner, completions)
    }

    fn explain(&self, native: i32) -> NativeError {
        self.hook.explain(native).unwrap_or_else(|| self.inner().explain(native))
    }

    fn stop(&mut self) {
        let (hook, inner) = self.both();
        hook.stop(inner);
    }

    fn stats(&self) -> QueueStats {
        self.inner().stats()
    }

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.hook.inline_executor(self.inner().inline_executor()?)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        if self.event_fd.is_some() { Some(self) } else { self.both().1.events() }
    }

    fn lost(&self) -> Option<Error> {
        self.inner().lost()
    }

    fn abandoned(&mut self) {
        let stats = self.stats();
        self.hook.closing(stats);
        self.both().1.abandoned();
    }
}

/// The inner queue's events, for a hook that may need polls.
impl<L: Wrapper> QueueEvents for HookedQueue<L> {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        match &self.event_fd {
            Some(Ok(fd)) => Ok(fd.as_fd()),
            Some(Err(e)) => Err(Error::new(e.kind(), e.message().to_owned()).with_hint(e.hint().to_owned())),
            None => Err(Error::bare(ErrorKind::Unsupported)),
        }
    }

    fn arm(&mut self) -> Result<bool> {
        let (hook, inner) = self.both();
        match inner.events() {
            Some(events) if !hook.needs_polls() => events.arm(),
            _ => Ok(false),
        }
    }

    fn disarm(&mut self) {
        if let Some(events) = self.both().1.events() {
            events.disarm();
        }
    }
}

/// Returns a duplicate of the file descriptor that signals the events of `queue`, if it has events.
fn event_fd(queue: &mut dyn RawQueue) -> Option<Result<OwnedFd>> {
    let of = |fd: BorrowedFd<'_>| {
        fd.try_clone_to_owned().map_err(|errno| Error::of_system_call("fcntl(F_DUPFD_CLOEXEC)", errno))
    };
    Some(queue.events()?.fd().and_then(of))
}

/// A counter that one thread increments and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        // No atomic read-modify-write is needed, because there is only one writer.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Average length, in bytes, from which an executor gets the copies of a batch in one call, unless it asks
/// for shorter ones: see [`InlineExecutor::copy_all`].
const LONG_COPY: usize = 4 << 10;

/// Passes copies of one batch to `executor` as the safe API does.
///
/// # Safety
///
/// See [`InlineExecutor::copy_all`].
#[inline]
pub(crate) unsafe fn copy_all(executor: &dyn InlineExecutor, copies: &[InlineCopy]) {
    let bytes: usize = copies.iter().map(|copy| copy.len).sum();
    if executor.batches_short_copies() || bytes >= LONG_COPY * copies.len() {
        // SAFETY: this function and the method have the same requirements, which the caller meets.
        return unsafe { executor.copy_all(copies) };
    }
    for copy in copies {
        // SAFETY: the caller meets the requirements for each copy.
        unsafe { executor.copy(copy.src, copy.dst, copy.len) };
    }
}

/// Returns the length of an operation in bytes, as [`Descriptor::len`] does.
#[inline]
pub(crate) fn operation_len(operation: &Operation<'_>) -> usize {
    match operation {
        Operation::Copy { dst, .. } | Operation::CopyCrc32c { dst, .. } => dst.len,
        Operation::Compare { a: src, .. }
        | Operation::Crc32c { src, .. }
        | Operation::CopyToBoth { src, .. } => src.len,
        Operation::CopyLists { dst, .. } | Operation::Fill { dst, .. } => {
            dst.iter().map(|segment| segment.len).sum()
        }
        _ => 0,
    }
}

/// Divides both sides into parts, each within one segment of the source and one of the destination. Calls
/// `look` for each part until it returns `Some`. The arguments of `look` are the offset of the part from the
/// start, the source, the destination and the length.
pub(crate) fn for_each_pair<T>(
    pairs: &[(&[Segment], &[Segment])],
    mut look: impl FnMut(usize, Option<*const u8>, *mut u8, usize) -> Option<T>,
) -> Option<T> {
    for (src, dst) in pairs {
        let (mut offset, mut from, mut used) = (0, src.iter(), 0);
        let mut current = from.next();
        for to in *dst {
            let mut at = 0;
            while at < to.len {
                let left = current.map_or(usize::MAX, |src| src.len - used);
                let len = left.min(to.len - at);
                let source = current.map(|src| src.addr.offset(used).as_ptr().cast_const());
                if let Some(found) = look(offset, source, to.addr.offset(at).as_ptr(), len) {
                    return Some(found);
                }
                (offset, at, used) = (offset + len, at + len, used + len);
                if current.is_some_and(|src| used == src.len) {
                    (current, used) = (from.next(), 0);
                }
            }
        }
    }
    None
}
