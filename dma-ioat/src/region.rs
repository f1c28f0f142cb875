//! Regions: memory of SPDK's environment, and the caller's own.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{
    Access, EngineId, Error, ErrorKind, HostMemory, MemoryRequest, RawExport, RawRegion, RegionKey, Result,
};

use crate::env::Environment;
use crate::error::{self, error};
use crate::ffi;

/// What registered memory begins at a multiple of, and is long: SPDK translates addresses in pages of this size. (Newer releases take 4 KiB, too, but
/// only where an IOMMU translates.)
pub(crate) const REGISTER_ALIGNMENT: usize = 2 << 20;

/// Memory that SPDK's channels reach.
#[derive(Debug)]
pub(crate) struct IoatRegion {
    environment: Arc<Environment>,
    engine: EngineId,
    base: NonNull<u8>,
    len: usize,
    access: Access,
    /// Whether it is the environment's, or else the caller's.
    allocated: bool,
}

// SAFETY: an address and numbers; who may use the memory is the contract's to say.
unsafe impl Send for IoatRegion {}
// SAFETY: as above.
unsafe impl Sync for IoatRegion {}

impl IoatRegion {
    /// Memory of the environment, on the NUMA node or, with -1, on any.
    pub(crate) fn allocate(
        environment: &Arc<Environment>,
        engine: EngineId,
        numa: i32,
        request: &MemoryRequest,
    ) -> Result<Self> {
        let &MemoryRequest { len, align, access, .. } = request;
        let spdk = &environment.spdk;
        let base = ffi::allocate(spdk, len, align, numa).ok_or_else(|| {
            let huge = if environment.is_huge() {
                "reserve more huge pages (/proc/sys/vm/nr_hugepages)"
            } else {
                "give SPDK more memory with the option `mem`"
            };
            let message = format!("SPDK's environment has no {len} bytes aligned to {align} in one piece");
            let usual = request.out_of_memory();
            error(ErrorKind::OutOfMemory, message)
                .with_hint(format!("{huge}, free some regions, or {}", usual.hint()))
        })?;
        let region =
            Self { environment: Arc::clone(environment), engine, base, len, access, allocated: true };
        match ffi::translate(spdk, base, len) {
            Ok(()) => Ok(region),
            // Dropped, and freed.
            Err(at) => Err(unreachable(at, len).with_hint(
                "use huge pages, or an IOMMU: SPDK cannot tell the device where ordinary pages are without one",
            )),
        }
    }

    /// The caller's memory.
    ///
    /// # Safety
    ///
    /// It stays mapped until the region is dropped.
    pub(crate) unsafe fn register(
        environment: &Arc<Environment>,
        engine: EngineId,
        memory: &HostMemory,
        access: Access,
    ) -> Result<Self> {
        let (base, len) = (memory.as_ptr(), memory.len());
        for (what, number) in [("an address", base.addr().get()), ("a length", len)] {
            if !number.is_multiple_of(REGISTER_ALIGNMENT) {
                let off = (number % REGISTER_ALIGNMENT) as u64;
                return Err(error(
                    ErrorKind::InvalidArgument,
                    format!("{what} of {number:#x}, {off:#x} bytes past a multiple of 2 MiB"),
                )
                .with_hint(
                    "SPDK registers whole pages of 2 MiB only: memory must begin at a multiple of 2097152 and be as many bytes long; \
                     map it so (huge pages), or allocate it from the engine",
                ));
            }
        }
        // SAFETY: the caller's promise.
        let code = unsafe { ffi::register(&environment.spdk, base, len) };
        if code != 0 {
            let wrapped = error::failed(format!("{len} bytes at {base:p} cannot be registered"), code);
            return Err(match -code {
                error::EBUSY => wrapped.with_hint(
                    "all or part of it is registered already, and SPDK allows that once: share the region, or register it whole",
                ),
                error::ENOMEM => wrapped.with_hint("it has to be pinned: raise the limit with `ulimit -l unlimited`"),
                _ => wrapped.with_hint("check that all of it is mapped"),
            });
        }
        let region =
            Self { environment: Arc::clone(environment), engine, base, len, access, allocated: false };
        // SPDK registers what it cannot translate, too.
        match ffi::translate(&environment.spdk, base, len) {
            Ok(()) => Ok(region),
            // Dropped, and unregistered.
            Err(at) => Err(unreachable(at, len)
                .with_hint("without an IOMMU it has to be of huge pages, all of it: map it so, or allocate it from the engine")),
        }
    }
}

fn unreachable(at: usize, len: usize) -> Error {
    error(
        ErrorKind::AccessDenied,
        format!("the device cannot reach byte {at} of {len}: SPDK has no translation for it"),
    )
}

// SAFETY: nothing changes. The memory is SPDK's until it is freed in the drop, or the registrar promised; this crate writes to it only as
// descriptors say.
unsafe impl RawRegion for IoatRegion {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn key(&self) -> RegionKey {
        // SPDK goes by addresses.
        RegionKey(0)
    }

    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn access(&self) -> Access {
        self.access
    }

    fn cpu_visible(&self) -> bool {
        true
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(error(ErrorKind::Unsupported, "I/OAT has no memory of other machines or processes")
            .with_hint("export memory of the CPU engine, or of a BlueField's"))
    }
}

impl Drop for IoatRegion {
    fn drop(&mut self) {
        let spdk = &self.environment.spdk;
        if self.allocated {
            // SAFETY: allocated so; the contract drops a region only when no descriptor names it any more.
            unsafe { ffi::free(spdk, self.base) };
            return;
        }
        // SAFETY: registered so; as above.
        let code = unsafe { ffi::unregister(spdk, self.base, self.len) };
        if code != 0 {
            tracing::error!(code, base = ?self.base, len = self.len, "SPDK did not unregister memory");
        }
    }
}
