//! The contract through pointers. A method that is added to a trait and not forwarded here does not compile.
#![expect(unsafe_code, reason = "forwards traits whose implementers promise something")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{
    Access, Completion, Descriptor, DmaEngine, EngineId, NativeError, QueueEvents, QueueStats, RawExport,
    RawQueue, RawRegion, RegionInfo, Result,
};

/// Implements [`DmaEngine`] for a type by the engine that `|this|` makes of it. Generics come in brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_engine {
    ([$($generics:tt)*] $type:ty, |$this:ident| $inner:expr) => {
        #[deny(clippy::missing_trait_methods)]
        // SAFETY: all of it is the inner engine's.
        unsafe impl<$($generics)*> $crate::DmaEngine for $type {
            fn info(&self) -> &$crate::EngineInfo {
                let $this = self;
                $inner.info()
            }
            fn explain(&self) -> Option<String> {
                let $this = self;
                $inner.explain()
            }
            fn allocate_raw(
                &self,
                request: &$crate::MemoryRequest,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                let $this = self;
                $inner.allocate_raw(request)
            }
            unsafe fn register_raw(
                &self,
                memory: &$crate::HostMemory,
                request: &$crate::MemoryRequest,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                let $this = self;
                // SAFETY: the caller's promise is the one that the inner engine asks for.
                unsafe { $inner.register_raw(memory, request) }
            }
            unsafe fn register_device_raw(
                &self,
                memory: &$crate::DeviceMemory,
                request: &$crate::MemoryRequest,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                let $this = self;
                // SAFETY: the caller's promise is the one that the inner engine asks for.
                unsafe { $inner.register_device_raw(memory, request) }
            }
            fn import_raw(
                &self,
                descriptor: &$crate::ExportDescriptor,
            ) -> $crate::Result<Box<dyn $crate::RawRegion>> {
                let $this = self;
                $inner.import_raw(descriptor)
            }
            fn open_queue_raw(
                &self,
                options: &$crate::QueueOptions,
            ) -> $crate::Result<Box<dyn $crate::RawQueue>> {
                let $this = self;
                $inner.open_queue_raw(options)
            }
        }
    };
}
forward_engine!([E: DmaEngine + ?Sized] &E, |this| (**this));
forward_engine!([E: DmaEngine + ?Sized] Box<E>, |this| (**this));
forward_engine!([E: DmaEngine + ?Sized] Arc<E>, |this| (**this));

macro_rules! forward_region {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call goes to the inner region, which keeps the promises and lives as long.
        #[deny(clippy::missing_trait_methods)]
        unsafe impl<R: RawRegion + ?Sized> RawRegion for $pointer {
            fn info(&self) -> &RegionInfo {
                (**self).info()
            }
            unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
                // SAFETY: the caller's promise is the one that the inner region asks for.
                unsafe { (**self).export(offset, len, rights) }
            }
            fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
                (**self).dmabuf()
            }
        }
    )+};
}
forward_region!(Box<R>, Arc<R>);

macro_rules! forward_queue {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call goes to the inner queue, which keeps the promises.
        #[deny(clippy::missing_trait_methods)]
        unsafe impl<Q: RawQueue + ?Sized> RawQueue for $pointer {
            fn engine_id(&self) -> EngineId {
                (**self).engine_id()
            }
            fn depth(&self) -> usize {
                (**self).depth()
            }
            unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
                // SAFETY: the caller's promise is the one that the inner queue asks for.
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
        }
    )+};
}
forward_queue!(&mut Q, Box<Q>);
