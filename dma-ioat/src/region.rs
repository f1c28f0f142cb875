//! Regions: memory of SPDK's environment, and registered memory.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{
    Access, DeviceAddr, EngineId, Error, ErrorKind, HostMemory, MemoryRequest, RawExport, RawRegion,
    RegionInfo, RegionKey, Result,
};
use dma_process::count;

use crate::env::Environment;
use crate::error::{self, error};
use crate::ffi;

/// Alignment of the address and length of registered memory: SPDK translates addresses in pages of this size.
/// Newer releases also accept 4 KiB, but only with an IOMMU.
pub(crate) const REGISTER_ALIGNMENT: usize = 2 << 20;

/// Memory that SPDK's channels can access.
#[derive(Debug)]
pub(crate) struct IoatRegion {
    environment: Arc<Environment>,
    info: RegionInfo,
    /// True for memory of the environment, false for registered memory.
    allocated: bool,
}

impl IoatRegion {
    /// Allocates memory of the environment on the NUMA node `numa`, or on any node with -1.
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
            let message = format!(
                "SPDK's environment has no {} aligned to {align} in one piece",
                count(len, "byte", "bytes")
            );
            let usual = request.out_of_memory();
            error(ErrorKind::OutOfMemory, message)
                .with_hint(format!("{huge}, free some regions, or {}", usual.hint()))
        })?;
        let region = Self {
            environment: Arc::clone(environment),
            info: info(engine, base, len, access),
            allocated: true,
        };
        match ffi::translate(spdk, DeviceAddr::of(base), len) {
            Ok(()) => Ok(region),
            // Returning drops the region, which frees the memory.
            Err(at) => Err(unreachable(at, len).with_hint(
                "use huge pages, or an IOMMU: without an IOMMU, SPDK cannot translate ordinary pages",
            )),
        }
    }

    /// Registers memory of the caller.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the region is dropped.
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
        // SAFETY: this function's caller keeps the memory mapped until the region is dropped, and the drop
        // unregisters it.
        let code = unsafe { ffi::register(&environment.spdk, base, len) };
        if code != 0 {
            let wrapped = error::failed(
                format!("{} at {base:p} cannot be registered", count(len, "byte", "bytes")),
                code,
            );
            return Err(match -code {
                error::EBUSY => wrapped.with_hint(
                    "all or part of it is registered already, which SPDK allows only once: share the region, or register all of it at once",
                ),
                error::ENOMEM => wrapped.with_hint(dma_process::MEMLOCK_REMEDY),
                _ => wrapped.with_hint("check that all of it is mapped"),
            });
        }
        let region = Self {
            environment: Arc::clone(environment),
            info: info(engine, base, len, access),
            allocated: false,
        };
        // SPDK also registers memory that it cannot translate, so check that here.
        match ffi::translate(&environment.spdk, DeviceAddr::of(base), len) {
            Ok(()) => Ok(region),
            // Returning drops the region, which unregisters the memory.
            Err(at) => Err(unreachable(at, len).with_hint(
                "without an IOMMU, all of it must be huge pages: map it so, or allocate it from the engine",
            )),
        }
    }
}

/// Describes a region. Descriptors name memory to SPDK by its address, so the key only identifies the region.
fn info(engine: EngineId, base: NonNull<u8>, len: usize, access: Access) -> RegionInfo {
    RegionInfo::local(engine, RegionKey::unique(), base, len, access)
}

fn unreachable(at: usize, len: usize) -> Error {
    error(
        ErrorKind::AccessDenied,
        format!("the device cannot reach byte {at} of {len}: SPDK has no translation for it"),
    )
}

// SAFETY: the description never changes. The memory stays valid until the drop, because it is SPDK's, or the
// caller of `register` promised that. The device writes to it only for descriptors.
unsafe impl RawRegion for IoatRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(error(ErrorKind::Unsupported, "I/OAT has no memory of other machines or processes")
            .with_hint("export memory of the CPU engine or of a BlueField engine"))
    }
}

impl Drop for IoatRegion {
    fn drop(&mut self) {
        let spdk = &self.environment.spdk;
        if self.allocated {
            // SAFETY: the memory is from `ffi::allocate`, and is freed only here. A region is dropped only
            // when no descriptor names it any more.
            unsafe { ffi::free(spdk, self.info.addr) };
            return;
        }
        // SAFETY: `register` registered exactly this range, and a region is dropped only when no descriptor
        // names it any more.
        let code = unsafe { ffi::unregister(spdk, self.info.addr, self.info.len) };
        if code != 0 {
            let (base, len) = (self.info.addr, self.info.len);
            dma_core::deferred_log!(error, code, ?base, len, "SPDK did not unregister memory");
        }
    }
}
