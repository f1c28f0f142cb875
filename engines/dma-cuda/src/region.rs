//! [`CudaRegion`]: pinned and registered host memory, and device memory.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dma_core::{
    Access, DeviceAddr, DeviceMemory, EngineId, Error, ErrorKind, HostMemory, MemoryRequest, Place,
    RawExport, RawRegion, RegionInfo, RegionKey, Result,
};
use dma_process::count;

use crate::device::Device;
use crate::driver::{Address, HOST_DEVICE_MAP, HOST_PORTABLE, HOST_READ_ONLY};
use crate::error::{self, error};
use crate::pieces::KeyPlace;

/// The alignment of `cuMemAlloc_v2`, which NVIDIA's programming guide promises.
const DEVICE_ALIGNMENT: usize = 256;
/// Dma-bufs consist of whole pages.
const PAGE: usize = 4096;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: c_int = 1;

/// Returns a key that no other region of this process has had, with the place of the memory in its lowest
/// bits. The driver itself needs no keys.
fn key(place: KeyPlace) -> RegionKey {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    RegionKey(NEXT.fetch_add(1, Ordering::Relaxed) << KeyPlace::BITS | place as usize)
}

/// Memory that the device reaches.
#[derive(Debug)]
pub(crate) struct CudaRegion {
    info: RegionInfo,
    device: Arc<Device>,
    memory: CudaMemory,
}

/// The memory of a region, and the way to free it.
#[derive(Clone, Copy, Debug)]
enum CudaMemory {
    /// Host memory of `cuMemHostAlloc`.
    Pinned(usize),
    Registered(usize),
    /// Device memory of `cuMemAlloc_v2`.
    Device(Address),
    /// Device memory that others allocated; it is not freed here.
    Foreign,
}

impl CudaMemory {
    /// Allocates enough memory to align its start. Returns the memory and the first allocated address.
    ///
    /// The driver guarantees no alignment of host memory: small allocations share pages. Freeing an unaligned
    /// allocation to try again would wait for all work on the device.
    fn allocate(device: &Device, request: &MemoryRequest) -> Result<(Self, Address), c_int> {
        let promised = if request.place == Place::Device { DEVICE_ALIGNMENT } else { 1 };
        let slack = if request.align > promised { request.align } else { 0 };
        let len = request.len.checked_add(slack).ok_or(error::OUT_OF_MEMORY)?;
        Self::allocate_len(device, request.place, len)
    }

    fn allocate_len(device: &Device, place: Place, len: usize) -> Result<(Self, Address), c_int> {
        if place == Place::Device {
            let mut start = 0;
            // SAFETY: the call writes the address to a local variable, and `call` makes the context current.
            device.call(|driver| unsafe { (driver.cuMemAlloc_v2)(&raw mut start, len) })?;
            return Ok((Self::Device(start), start));
        }
        let mut start = ptr::null_mut();
        // SAFETY: the call writes the address to a local variable, and `call` makes the context current.
        device.call(|driver| unsafe { (driver.cuMemHostAlloc)(&raw mut start, len, HOST_PORTABLE) })?;
        let start = start.expose_provenance();
        Ok((Self::Pinned(start), start as Address))
    }

    /// Frees the memory. Must be called once, when the device no longer uses the memory. Blocks until the
    /// device is idle.
    fn free(self, device: &Device) -> Result<(), c_int> {
        device.call(|driver| match self {
            // SAFETY: `allocate_len` allocated this memory. It is freed once, when the device no longer uses
            // it.
            Self::Pinned(start) => unsafe {
                (driver.cuMemFreeHost)(ptr::with_exposed_provenance_mut::<c_void>(start))
            },
            // SAFETY: `register` registered this memory. It is unregistered once, when the device no longer
            // uses it.
            Self::Registered(start) => unsafe {
                (driver.cuMemHostUnregister)(ptr::with_exposed_provenance_mut::<c_void>(start))
            },
            // SAFETY: `allocate_len` allocated this memory. It is freed once, when the device no longer uses
            // it.
            Self::Device(start) => unsafe { (driver.cuMemFree_v2)(start) },
            Self::Foreign => 0,
        })
    }
}

impl CudaRegion {
    /// Allocates memory in the place that the request names.
    pub(crate) fn allocate(device: &Arc<Device>, engine: EngineId, request: &MemoryRequest) -> Result<Self> {
        let refused = |code| match code {
            error::OUT_OF_MEMORY | error::INVALID_VALUE => {
                let error = request.out_of_memory().with_native(crate::device::explain(&device.driver, code));
                match request.place {
                    Place::Device => error.with_hint(error::hint(error::OUT_OF_MEMORY)),
                    _ => error.with_hint("ask for less: pinned memory is not swapped"),
                }
            }
            code => device
                .failed(format!("{} of {} memory", count(request.len, "byte", "bytes"), request.place), code),
        };
        let (memory, start) = CudaMemory::allocate(device, request).map_err(refused)?;
        let addr = start.next_multiple_of(request.align as u64);
        let on_host = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(addr as usize));
        let info = match (request.place, on_host) {
            (Place::Host, Some(base)) => {
                RegionInfo::local(engine, key(KeyPlace::Host), base, request.len, request.access)
            }
            _ => RegionInfo::remote(
                engine,
                key(KeyPlace::Device),
                DeviceAddr(addr),
                request.len,
                request.access,
            ),
        };
        // From here on, dropping the region frees the memory.
        let region = Self { info, device: Arc::clone(device), memory };
        match info.cpu {
            // SAFETY: `len` bytes were allocated above, and only this function knows them.
            Some(base) => unsafe { base.as_ptr().write_bytes(0, request.len) },
            None => device.clear(addr, request.len).map_err(refused)?,
        }
        Ok(region)
    }

    /// Pins the caller's memory.
    ///
    /// # Safety
    ///
    /// See [`DmaEngine::register_raw`](dma_core::DmaEngine::register_raw).
    pub(crate) unsafe fn register(
        device: &Arc<Device>,
        engine: EngineId,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        let (base, len) = (memory.as_ptr(), memory.len());
        if !device.registers {
            return Err(error(
                ErrorKind::Unsupported,
                format!("{} cannot register host memory", device.name),
            )
            .with_hint("allocate memory on the engine"));
        }
        // Without the flag the driver accepts only writable pages. The pages of a read-only request may still
        // be writable.
        let marked = memory.is_read_only() && device.registers_read_only;
        let flags = HOST_PORTABLE | HOST_DEVICE_MAP | if marked { HOST_READ_ONLY } else { 0 };
        let register = |driver: &crate::Driver| {
            // SAFETY: the caller keeps the memory mapped until the region is dropped.
            unsafe { (driver.cuMemHostRegister_v2)(base.as_ptr().cast(), len, flags) }
        };
        device.call(register).map_err(|code| Self::not_registered(device, memory, code))?;
        let info = RegionInfo::local(engine, key(KeyPlace::Host), base, len, request.access);
        let memory = CudaMemory::Registered(base.as_ptr().expose_provenance());
        Ok(Self { info, device: Arc::clone(device), memory })
    }

    /// Returns the error for memory that the driver does not pin.
    fn not_registered(device: &Device, memory: &HostMemory, code: c_int) -> Error {
        let message = format!("{} at {:p}", count(memory.len(), "byte", "bytes"), memory.as_ptr());
        match code {
            error::ALREADY_REGISTERED => device.failed(message, code).with_hint(
                "a part of it is already registered or pinned: register it once, and use this registration for all \
                 operations (in Rust, `RegistrationCache` finds it)",
            ),
            error::INVALID_VALUE | error::NOT_SUPPORTED if memory.is_read_only() && !device.registers_read_only => {
                error(ErrorKind::Unsupported, message)
                    .with_native(crate::device::explain(&device.driver, code))
                    .with_hint("this device cannot read pages that the CPU may not write: copy them into memory of the engine")
            }
            error::INVALID_VALUE => device.failed(message, code).with_hint(
                "check that all of it is mapped, that the CPU may write it, and that it is not mapped from a file or a device",
            ),
            error::OUT_OF_MEMORY => {
                device.failed(message, code).with_hint("registering pins memory: free some memory, or drop some regions")
            }
            _ => device.failed(message, code),
        }
    }

    /// Makes a region of device memory that others have allocated.
    pub(crate) fn register_device(
        device: &Arc<Device>,
        engine: EngineId,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        let (addr, len) = (memory.addr(), memory.len());
        let foreign = |message: String| {
            error(ErrorKind::InvalidArgument, message).with_hint(
                "give an address that `cuMemAlloc` or `cudaMalloc` returned in this process and that is not freed; host memory is \
                 registered by `register`",
            )
        };
        match device.allocation_of(addr.0) {
            Ok(Some((start, size))) => {
                let end = addr.0.checked_add(len as u64);
                if end.is_none_or(|end| addr.0 < start || end > start + size as u64) {
                    let message = format!(
                        "beyond the allocation, which has {} at {start:#x}: {} at {addr:?}",
                        count(size, "byte", "bytes"),
                        count(len, "byte", "bytes")
                    );
                    return Err(foreign(message));
                }
            }
            Ok(None) => return Err(foreign(format!("{addr:?} is host memory"))),
            Err(code) if error::is_final(code) => return Err(device.failed(format!("{addr:?}"), code)),
            Err(code) => {
                let message = format!("the driver has no memory at {addr:?}");
                return Err(foreign(message).with_native(crate::device::explain(&device.driver, code)));
            }
        }
        let place = if device.owns(addr.0) { KeyPlace::Device } else { KeyPlace::Elsewhere };
        let info = RegionInfo::remote(engine, key(place), addr, len, request.access);
        Ok(Self { info, device: Arc::clone(device), memory: CudaMemory::Foreign })
    }
}

impl Drop for CudaRegion {
    fn drop(&mut self) {
        if let Err(code) = self.memory.free(&self.device) {
            let (device, memory) = (self.device.name.clone(), format!("{:?}", self.memory));
            dma_core::deferred_log!(warn, device, code, memory, "the driver refuses to free memory");
        }
    }
}

// SAFETY: the description never changes. The memory was allocated here, or the caller who registered it
// guarantees that it is valid. Only descriptors write to it.
unsafe impl RawRegion for CudaRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(no_export())
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        let none = |why: &str| {
            error(ErrorKind::Unsupported, format!("the memory has no dma-buf: {why}"))
                .with_hint("copy it through host memory that both devices reach")
        };
        if self.info.cpu.is_some() {
            return Err(none("it is host memory"));
        }
        let Some(call) = self.device.driver.cuMemGetHandleForAddressRange else {
            return Err(none("the driver is older than CUDA 11.7"));
        };
        // The range must consist of whole pages; allocations begin at a page boundary.
        let addr = self.info.addr.0;
        let start = addr / PAGE as u64 * PAGE as u64;
        let offset = addr - start;
        let len = (offset as usize + self.info.len).next_multiple_of(PAGE);
        let mut fd: c_int = -1;
        // SAFETY: the call writes a file descriptor to a local variable, and the memory is allocated.
        let made = self.device.call(|_| unsafe { call((&raw mut fd).cast(), start, len, DMA_BUF, 0) });
        match made {
            // SAFETY: the file descriptor is new, and the driver passes its ownership to the caller.
            Ok(()) if fd >= 0 => Ok((unsafe { OwnedFd::from_raw_fd(fd) }, offset)),
            Ok(()) => Err(none("the driver returned no file descriptor")),
            Err(code) if error::is_final(code) => Err(self.device.failed("a dma-buf", code)),
            Err(code) => Err(none("the driver refuses to export it")
                .with_native(crate::device::explain(&self.device.driver, code))),
        }
    }
}

/// Returns the error of an export to peers.
pub(crate) fn no_export() -> Error {
    error(ErrorKind::Unsupported, "CUDA memory is not exported to peers")
        .with_hint("register its dma-buf (`Window::dmabuf`) with an RDMA or BlueField engine, or copy to memory of such an engine")
}
