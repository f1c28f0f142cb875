//! [`WithQueues`]: an engine that differs from another one only in its queues.
#![expect(unsafe_code, reason = "implements the contract by calls of the inner engine")]

use std::fmt;
use std::sync::Arc;

use dma_core::{
    DmaEngine, EngineId, EngineInfo, ExportDescriptor, HostMemory, MemoryRequest, QueueOptions, RawQueue,
    RawRegion, Result,
};

/// An engine whose queues are those of `inner`, each passed through `wrap`.
pub struct WithQueues<F> {
    inner: Arc<dyn DmaEngine>,
    wrap: F,
}

impl<F: Fn(Box<dyn RawQueue>) -> Box<dyn RawQueue> + Send + Sync> WithQueues<F> {
    /// Makes the engine. `wrap` returns a queue for the regions of `inner`.
    pub fn new(inner: Arc<dyn DmaEngine>, wrap: F) -> Self {
        Self { inner, wrap }
    }
}

impl<F> fmt::Debug for WithQueues<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WithQueues").field(&self.inner).finish()
    }
}

// SAFETY: regions are the inner engine's, and `wrap` returns queues that keep the promises of `RawQueue`.
unsafe impl<F: Fn(Box<dyn RawQueue>) -> Box<dyn RawQueue> + Send + Sync> DmaEngine for WithQueues<F> {
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
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { self.inner.register_raw(memory, request) }
    }
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.inner.import_raw(descriptor)
    }
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        Ok((self.wrap)(self.inner.open_queue_raw(options)?))
    }
}
