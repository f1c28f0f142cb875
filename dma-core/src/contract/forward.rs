//! Implements the contract for pointers to engines, regions and queues. The compiler reports a trait method
//! that is not forwarded here.
#![expect(unsafe_code, reason = "forwards unsafe traits")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{
    Access, Completion, Descriptor, DmaEngine, EngineId, Error, InlineExecutor, NativeError, QueueEvents,
    QueueStats, RawExport, RawQueue, RawRegion, RegionInfo, Result,
};

/// A type that implements [`DmaEngine`] by forwarding to an inner engine: see
/// [`forward_engine!`](crate::forward_engine).
///
/// # Safety
///
/// [`forward_to`](Self::forward_to) must return the same engine at each call, as long as nobody has had
/// unique access to the value in between (which can replace the engine that a `Box` points to).
pub unsafe trait ForwardEngine {
    /// The type of the inner engine.
    type Inner: DmaEngine + ?Sized;

    /// Returns the inner engine.
    fn forward_to(&self) -> &Self::Inner;
}

/// Implements [`DmaEngine`] for a type that implements [`ForwardEngine`]. Put generic parameters in brackets.
///
/// The macro expands to an `unsafe impl`. The lint `unsafe_code` does not report it in the crate that calls
/// the macro. Therefore the caller must write `unsafe impl ForwardEngine`, so that a crate that forbids
/// unsafe code cannot use the macro:
///
/// ```compile_fail
/// #![forbid(unsafe_code)]
/// struct Mine(dma_conformance::ReferenceEngine);
/// unsafe impl dma_core::ForwardEngine for Mine {
///     type Inner = dma_conformance::ReferenceEngine;
///     fn forward_to(&self) -> &Self::Inner {
///         &self.0
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_engine {
    ([$($generics:tt)*] $type:ty) => {
        #[deny(clippy::missing_trait_methods)]
        // SAFETY: each call goes to an engine that meets the requirements of `DmaEngine`. The engine is
        // always the same, because `ForwardEngine` requires this.
        unsafe impl<$($generics)*> $crate::DmaEngine for $type {
            fn info(&self) -> &$crate::EngineInfo {
                $crate::ForwardEngine::forward_to(self).info()
            }
            fn id(&self) -> $crate::EngineId {
                $crate::ForwardEngine::forward_to(self).id()
            }
            fn explain(&self) -> Option<String> {
                $crate::ForwardEngine::forward_to(self).explain()
            }
            fn idle_memory(&self) -> Option<&$crate::IdleMemory> {
                $crate::ForwardEngine::forward_to(self).idle_memory()
            }
            fn allocate_raw(
                &self,
                request: &$crate::MemoryRequest,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                $crate::ForwardEngine::forward_to(self).allocate_raw(request)
            }
            unsafe fn register_raw(
                &self,
                memory: &$crate::HostMemory,
                request: &$crate::MemoryRequest,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                // SAFETY: this method and the inner one have the same requirements, and the caller meets
                // them.
                unsafe { $crate::ForwardEngine::forward_to(self).register_raw(memory, request) }
            }
            unsafe fn register_device_raw(
                &self,
                memory: &$crate::DeviceMemory,
                request: &$crate::MemoryRequest,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                // SAFETY: this method and the inner one have the same requirements, and the caller meets
                // them.
                unsafe { $crate::ForwardEngine::forward_to(self).register_device_raw(memory, request) }
            }
            fn import_raw(
                &self,
                descriptor: &$crate::ExportDescriptor,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                $crate::ForwardEngine::forward_to(self).import_raw(descriptor)
            }
            fn open_queue_raw(
                &self,
                options: &$crate::QueueOptions,
            ) -> $crate::Result<Box<dyn $crate::RawQueue>> {
                $crate::ForwardEngine::forward_to(self).open_queue_raw(options)
            }
        }
    };
}
macro_rules! forward_engine_pointer {
    ($($pointer:ty),+) => {$(
        // SAFETY: the pointer returns the same engine at each call, until unique access replaces the engine
        // that it points to.
        unsafe impl<E: DmaEngine + ?Sized> ForwardEngine for $pointer {
            type Inner = E;
            fn forward_to(&self) -> &E {
                self
            }
        }
        forward_engine!([E: DmaEngine + ?Sized] $pointer);
    )+};
}
forward_engine_pointer!(&E, Box<E>, Arc<E>);

macro_rules! forward_region {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call goes to the inner region, which meets the requirements and lives as long as the
        // pointer.
        #[deny(clippy::missing_trait_methods)]
        unsafe impl<R: RawRegion + ?Sized> RawRegion for $pointer {
            fn info(&self) -> &RegionInfo {
                (**self).info()
            }
            unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
                // SAFETY: this method and the inner one have the same requirements, and the caller meets
                // them.
                unsafe { (**self).export(offset, len, rights) }
            }
            unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
                // SAFETY: this method and the inner one have the same requirements, and the caller meets
                // them.
                unsafe { (**self).dmabuf() }
            }
        }
    )+};
}
// Not for `Arc`: two regions must not have one key.
forward_region!(Box<R>);

macro_rules! forward_queue {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call goes to the inner queue, which meets the requirements.
        #[deny(clippy::missing_trait_methods)]
        unsafe impl<Q: RawQueue + ?Sized> RawQueue for $pointer {
            fn engine_id(&self) -> EngineId {
                (**self).engine_id()
            }
            fn depth(&self) -> usize {
                (**self).depth()
            }
            unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
                // SAFETY: this method and the inner one have the same requirements, and the caller meets
                // them.
                unsafe { (**self).submit(batch) }
            }
            fn flush(&mut self) {
                (**self).flush();
            }
            fn poll(&mut self, completions: &mut [Completion]) -> usize {
                (**self).poll(completions)
            }
            fn explain(&self, native: i32) -> NativeError {
                (**self).explain(native)
            }
            fn stop(&mut self) {
                (**self).stop();
            }
            fn stats(&self) -> QueueStats {
                (**self).stats()
            }
            fn events(&mut self) -> Option<&mut dyn QueueEvents> {
                (**self).events()
            }
            fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
                (**self).inline_executor()
            }
            fn lost(&self) -> Option<Error> {
                (**self).lost()
            }
            fn abandoned(&mut self) {
                (**self).abandoned();
            }
        }
    )+};
}
forward_queue!(&mut Q, Box<Q>);
