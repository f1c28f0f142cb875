//! The shape that the wrappers share: an engine that forwards to the engine within, and is told of all that
//! passes.
//!
//! A [`Layer`] is told of calls and regions. Its [`Watch`] stands between a queue's caller and the queue
//! within.
#![expect(unsafe_code, reason = "implements the contract by that of the engine within")]

use std::fmt;
use std::sync::Arc;

use dma_core::{
    Access, Completion, Descriptor, DmaEngine, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor,
    HostMemory, MemoryRequest, NativeError, QueueEvents, QueueOptions, QueueStats, RawExport, RawQueue,
    RawRegion, RegionInfo, Result,
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
    pub(crate) inner: Arc<dyn DmaEngine>,
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

impl<L: fmt::Debug> fmt::Debug for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

/// Implements [`DmaEngine`] for a public engine by its [`Layered`] in field `layered`.
macro_rules! forward_to_layered {
    ($engine:ty) => {
        // SAFETY: all of it is that of `Layered`.
        unsafe impl dma_core::DmaEngine for $engine {
            fn info(&self) -> &dma_core::EngineInfo {
                self.layered.info()
            }
            fn explain(&self) -> Option<String> {
                self.layered.explain()
            }
            fn allocate_raw(
                &self,
                request: &dma_core::MemoryRequest,
            ) -> dma_core::Result<Box<dyn dma_core::RawRegion>> {
                self.layered.allocate_raw(request)
            }
            unsafe fn register_raw(
                &self,
                memory: &dma_core::HostMemory,
                request: &dma_core::MemoryRequest,
            ) -> dma_core::Result<Box<dyn dma_core::RawRegion>> {
                // SAFETY: the caller's promise.
                unsafe { self.layered.register_raw(memory, request) }
            }
            fn import_raw(
                &self,
                descriptor: &dma_core::ExportDescriptor,
            ) -> dma_core::Result<Box<dyn dma_core::RawRegion>> {
                self.layered.import_raw(descriptor)
            }
            fn open_queue_raw(
                &self,
                options: &dma_core::QueueOptions,
            ) -> dma_core::Result<Box<dyn dma_core::RawQueue>> {
                self.layered.open_queue_raw(options)
            }
        }
    };
}
pub(crate) use forward_to_layered;

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
