//! The shape that the wrappers share: an engine that forwards to the engine within, and is told of all that
//! passes.
//!
//! A [`Layer`] is told of calls and regions. Its [`Watch`] stands between a queue's caller and the queue
//! within.
#![expect(unsafe_code, reason = "implements the contract by that of the engine within")]

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::{
    Access, Completion, Descriptor, DeviceMemory, DmaEngine, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, MemoryRequest, NativeError, QueueEvents, QueueOptions, QueueStats,
    RawExport, RawQueue, RawRegion, RegionInfo, Result, Segment,
};

/// A call that opens or closes something.
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

/// The part of a wrapper that all queues and regions share.
pub(crate) trait Layer: fmt::Debug + Send + Sync + 'static {
    /// The part of one queue.
    type Queue: Watch;

    /// Makes the part of a queue that was opened with `options`, and has room for `depth` descriptors.
    ///
    /// # Errors
    ///
    /// The layer's own: the queue is closed again.
    fn open(this: &Arc<Self>, options: &QueueOptions, depth: usize) -> Result<Self::Queue>;

    /// The layer's own part of [`DmaEngine::explain`], in whole lines.
    fn explain(&self) -> String {
        String::new()
    }

    /// Runs a call of the engine within.
    fn around<T>(&self, call: Call, run: impl FnOnce() -> T) -> T {
        let _ = call;
        run()
    }

    /// Takes note of a region.
    fn region_opened(&self, region: &RegionInfo) {
        let _ = region;
    }

    /// Takes note that a region is about to be dropped.
    fn region_closing(&self, region: &RegionInfo) {
        let _ = region;
    }
}

/// The part of a wrapper that belongs to one queue. Calls that it does not look at go to the queue within.
///
/// # Safety
///
/// An implementer keeps the promises of [`RawQueue`], of which these are the calls, given that `inner` does.
pub(crate) unsafe trait Watch: fmt::Debug + Send {
    /// As [`RawQueue::submit`].
    ///
    /// # Safety
    ///
    /// As [`RawQueue::submit`], of `inner`.
    unsafe fn submit(&mut self, inner: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> Result<usize>;

    /// As [`RawQueue::poll`].
    fn poll(&mut self, inner: &mut dyn RawQueue, completions: &mut [Completion]) -> usize;

    /// As [`RawQueue::flush`].
    fn flush(&mut self, inner: &mut dyn RawQueue) {
        inner.flush();
    }

    /// As [`RawQueue::stop`].
    fn stop(&mut self, inner: &mut dyn RawQueue) {
        inner.stop();
    }

    /// Explains a code of its own.
    fn explain(&self, native: i32) -> Option<NativeError> {
        let _ = native;
        None
    }

    /// The queue is about to be closed; its device's counters are `stats`.
    fn closing(&mut self, stats: QueueStats) {
        let _ = stats;
    }
}

/// An engine within a layer. Regions and queues are those of the engine within, under an id of their own.
pub(crate) struct Layered<L> {
    inner: Arc<dyn DmaEngine>,
    info: EngineInfo,
    id: EngineId,
    pub(crate) layer: Arc<L>,
}

impl<L: Layer> Layered<L> {
    /// Makes an engine of `inner`, which is described by `info`: that of `inner`, or less.
    pub(crate) fn new(inner: Arc<dyn DmaEngine>, info: EngineInfo, layer: L) -> Self {
        Self { inner, info, id: EngineId::unique(), layer: Arc::new(layer) }
    }

    fn region(
        &self,
        call: Call,
        open: impl FnOnce() -> Result<Box<dyn RawRegion>>,
    ) -> Result<Box<dyn RawRegion>> {
        let inner = self.layer.around(call, open)?;
        let info = RegionInfo { engine: self.id, ..*inner.info() };
        self.layer.region_opened(&info);
        Ok(Box::new(LayerRegion { inner: Some(inner), info, layer: Arc::clone(&self.layer) }))
    }
}

// SAFETY: queues and regions are the inner engine's, whose info this is, or a part of it.
unsafe impl<L: Layer> DmaEngine for Layered<L> {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn explain(&self) -> Option<String> {
        let own = self.layer.explain();
        match self.inner.explain() {
            Some(inner) => Some(own + &inner),
            None => Some(own).filter(|own| !own.is_empty()),
        }
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.region(Call::Allocate { len: request.len }, || self.inner.allocate_raw(request))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller's promise.
        self.region(Call::Register { len: memory.len() }, || unsafe {
            self.inner.register_raw(memory, request)
        })
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: this function's caller promises what the inner engine asks for.
        self.region(Call::Register { len: memory.len() }, || unsafe {
            self.inner.register_device_raw(memory, request)
        })
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.region(Call::Import, || self.inner.import_raw(descriptor))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let call = Call::OpenQueue { depth: options.depth };
        let inner = self.layer.around(call, || self.inner.open_queue_raw(options))?;
        let depth = inner.depth();
        Ok(Box::new(LayerQueue {
            watch: L::open(&self.layer, options, depth)?,
            inner: Some(inner),
            engine: self.id,
            layer: Arc::clone(&self.layer),
        }))
    }
}

impl<L: Layer> fmt::Debug for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("inner", &self.inner)
            .field("report", &self.layer.explain())
            .finish_non_exhaustive()
    }
}

/// A region of the inner engine, whose key and addresses it has.
#[derive(Debug)]
struct LayerRegion<L: Layer> {
    /// `None` once it is dropped.
    inner: Option<Box<dyn RawRegion>>,
    info: RegionInfo,
    layer: Arc<L>,
}

impl<L: Layer> Drop for LayerRegion<L> {
    fn drop(&mut self) {
        self.layer.region_closing(&self.info);
        self.layer.around(Call::CloseRegion { len: self.info.len }, || self.inner = None);
    }
}

// SAFETY: all but the engine's id is the inner region's, which lives as long.
unsafe impl<L: Layer> RawRegion for LayerRegion<L> {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let inner = self.inner.as_ref().ok_or(Error::bare(ErrorKind::Closed))?;
        // SAFETY: the caller's promise.
        self.layer.around(Call::Export { len }, || unsafe { inner.export(offset, len, rights) })
    }

    fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        self.inner.as_ref().ok_or(Error::bare(ErrorKind::Closed))?.dmabuf()
    }
}

#[derive(Debug)]
struct LayerQueue<L: Layer> {
    watch: L::Queue,
    /// `None` once it is dropped.
    inner: Option<Box<dyn RawQueue>>,
    engine: EngineId,
    layer: Arc<L>,
}

impl<L: Layer> LayerQueue<L> {
    fn inner(&self) -> &dyn RawQueue {
        &**self.inner.as_ref().expect("it is there until it is dropped")
    }

    fn both(&mut self) -> (&mut L::Queue, &mut dyn RawQueue) {
        (&mut self.watch, &mut **self.inner.as_mut().expect("it is there until it is dropped"))
    }
}

impl<L: Layer> Drop for LayerQueue<L> {
    fn drop(&mut self) {
        let stats = self.stats();
        self.watch.closing(stats);
        self.layer.around(Call::CloseQueue, || self.inner = None);
    }
}

// SAFETY: the inner queue keeps the promises, and so does the watch.
unsafe impl<L: Layer> RawQueue for LayerQueue<L> {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.inner().depth()
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        let (watch, inner) = self.both();
        // SAFETY: the caller's promise; the inner engine's regions have these keys.
        unsafe { watch.submit(inner, batch) }
    }

    fn flush(&mut self) {
        let (watch, inner) = self.both();
        watch.flush(inner);
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let (watch, inner) = self.both();
        watch.poll(inner, completions)
    }

    fn explain(&self, native: i32) -> NativeError {
        self.watch.explain(native).unwrap_or_else(|| self.inner().explain(native))
    }

    fn stop(&mut self) {
        let (watch, inner) = self.both();
        watch.stop(inner);
    }

    fn stats(&self) -> QueueStats {
        self.inner().stats()
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.both().1.events()
    }
}

/// A count that one thread adds to and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        // One writer: no read-modify-write is needed.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Calls `look` with the parts that lie in one segment on both sides, by the offset from the start, until it
/// returns something.
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
