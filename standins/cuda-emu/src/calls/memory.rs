//! Memory: allocation, registration and attributes of pointers.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint, c_void};

use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome};
use crate::driver::{self, Driver, lock};
use crate::memory::AllocationKind;
use crate::peer_memory::MemHandle;

/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IOMEMORY: c_uint = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: c_uint = 8;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag of `cuIpcOpenMemHandle`.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`, the flags of `cuMemAllocManaged`.
const ATTACH: [c_uint; 2] = [1, 2];
/// `CU_MEM_ATTACH_SINGLE`, which only `cuStreamAttachMemAsync` accepts.
const ATTACH_SINGLE: c_uint = 4;
/// `CU_DEVICE_CPU`.
const CPU: c_int = -1;
/// Values of `CUmem_advise`.
const ADVICE: std::ops::RangeInclusive<c_int> = 1..=6;
/// Alignment of the pitch of rows.
const PITCH: usize = 512;

fn allocate(addr: Out<u64>, len: usize) -> Outcome {
    let mut driver = lock()?;
    let (context, device) = driver.current()?;
    addr.put(driver.memory.allocate(device, context, len as u64)?)
}

fn allocate_host(addr: Out<u64>, len: usize) -> Outcome {
    let mut driver = lock()?;
    let (context, device) = driver.current()?;
    addr.put(driver.memory.allocate_host(device, context, len as u64)?)
}

/// Checks that a range is managed memory.
fn managed(driver: &Driver, addr: u64, len: usize) -> Outcome {
    let known = driver.memory.find(addr).filter(|found| found.kind == AllocationKind::Managed);
    let end = addr.checked_add(len as u64).filter(|_| len > 0);
    match (known, end) {
        (Some(found), Some(end)) if end <= found.addr + found.len => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Returns the place that an older call means by the number of a device.
const fn location_of(device: c_int) -> Location {
    if device == CPU { Location { kind: 2, id: 0 } } else { Location { kind: Location::DEVICE, id: device } }
}

/// Checks a place of managed memory.
fn check_location(driver: &Driver, location: Location) -> Outcome {
    match location.kind {
        Location::DEVICE => driver.device(location.id).map(|_| ()),
        kind if Location::HOST.contains(&kind) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Accepts a request to move managed memory. The memory is coherent, so there is nothing to do.
fn prefetch(addr: u64, len: usize, to: Location, flags: c_uint, stream: u64) -> Outcome {
    let mut driver = lock()?;
    driver.stream_of(stream)?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    managed(&driver, addr, len)?;
    check_location(&driver, to)
}

/// Accepts advice about managed memory.
fn advise(addr: u64, len: usize, advice: c_int, location: Location) -> Outcome {
    let driver = lock()?;
    driver.current()?;
    if !ADVICE.contains(&advice) {
        return Err(Code::INVALID_VALUE);
    }
    managed(&driver, addr, len)?;
    // The first two kinds of advice ignore the location.
    if advice <= 2 { Ok(()) } else { check_location(&driver, location) }
}

/// Waits until the current context is idle, then frees memory by `free`.
fn free(free: impl FnOnce(&mut Driver) -> Outcome) -> Outcome {
    let driver = lock()?;
    let (context, _) = driver.current()?;
    driver::wait_context(driver, context)?;
    free(&mut *lock()?)
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(crate) const DEVICE: c_int = 1;
    /// `CU_MEM_LOCATION_TYPE_HOST`, `_HOST_NUMA` and `_HOST_NUMA_CURRENT`.
    pub(crate) const HOST: std::ops::RangeInclusive<c_int> = 2..=4;
}

/// An attribute of a pointer or a pool, in the type that C expects.
pub(crate) enum Attribute {
    /// 4 bytes.
    Int(c_uint),
    /// 8 bytes.
    Long(u64),
}

impl Attribute {
    /// Writes the attribute to `to`.
    ///
    /// # Safety
    ///
    /// C passes a pointer to a value of the attribute's type, or NULL.
    pub(crate) unsafe fn put(self, to: Out<c_void>) -> Outcome {
        match self {
            // SAFETY: the caller guarantees the type.
            Self::Int(value) => unsafe { to.put_as(value) },
            // SAFETY: the caller guarantees the type.
            Self::Long(value) => unsafe { to.put_as(value) },
        }
    }
}

/// Returns an attribute of the pointer `addr`. `attribute` is a number of `CUpointer_attribute`.
fn attribute(driver: &Driver, attribute: c_int, addr: u64) -> Outcome<Attribute> {
    use Attribute::{Int, Long};
    let found = *driver.memory.find(addr).ok_or(Code::INVALID_VALUE)?;
    let on_device = found.kind.is_on_device();
    let managed = found.kind == AllocationKind::Managed;
    match attribute {
        1 => Ok(Long(found.context)),
        2 => Ok(Int(if on_device || managed { 2 } else { 1 })),
        3 => Ok(Long(addr)),
        4 if on_device => Err(Code::INVALID_VALUE),
        4 => Ok(Long(addr)),
        6 => Ok(Int(1)),
        7 => Ok(Long(found.id)),
        8 => Ok(Int(c_uint::from(managed))),
        9 => Ok(Int(found.device as c_uint)),
        // `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`.
        10 => Ok(Int(c_uint::from(found.kind == AllocationKind::Device && found.pool == 0))),
        15 => Ok(Int(0)),
        11 => Ok(Long(found.addr)),
        12 => Ok(Long(found.len)),
        13 => Ok(Int(1)),
        14 => Ok(Long(0)),
        17 => Ok(Long(found.pool)),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Returns the length of an attribute's value in bytes.
const fn attribute_len(attribute: c_int) -> usize {
    match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 => 8,
        _ => 4,
    }
}

c_calls! {
    fn cuMemAlloc_v2(addr: Out<u64>, len: usize) { allocate(addr, len) }

    fn cuMemAllocPitch_v2(addr: Out<u64>, pitch: Out<usize>, width: usize, height: usize, _element: c_uint) {
        let row = width.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)?;
        let len = row.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        pitch.put(row)?;
        allocate(addr, len)
    }

    fn cuMemFree_v2(addr: u64) {
        if addr == 0 {
            return Ok(());
        }
        free(|driver| driver.memory.free(addr).or_else(|_| driver.memory.free_managed(addr)))
    }

    fn cuMemAllocManaged(addr: Out<u64>, len: usize, flags: c_uint) {
        addr.check()?;
        let mut driver = lock()?;
        let (context, device) = driver.current()?;
        if !ATTACH.contains(&flags) {
            return Err(Code::INVALID_VALUE);
        }
        addr.put(driver.memory.allocate_managed(device, context, len as u64)?)
    }

    /// The variant before CUDA 12.2.
    fn cuMemPrefetchAsync(addr: u64, len: usize, device: c_int, stream: u64) {
        prefetch(addr, len, location_of(device), 0, stream)
    }

    fn cuMemPrefetchAsync_v2(addr: u64, len: usize, location: Location, flags: c_uint, stream: u64) {
        prefetch(addr, len, location, flags, stream)
    }

    /// The variant before CUDA 12.2.
    fn cuMemAdvise(addr: u64, len: usize, advice: c_int, device: c_int) {
        advise(addr, len, advice, location_of(device))
    }

    fn cuMemAdvise_v2(addr: u64, len: usize, advice: c_int, location: Location) {
        advise(addr, len, advice, location)
    }

    fn cuStreamAttachMemAsync(stream: u64, addr: u64, len: usize, flags: c_uint) {
        let mut driver = lock()?;
        driver.stream_of(stream)?;
        if flags != ATTACH_SINGLE && !ATTACH.contains(&flags) {
            return Err(Code::INVALID_VALUE);
        }
        // A length of 0 means the whole allocation.
        managed(&driver, addr, len.max(1))
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let driver = lock()?;
        let (_, device) = driver.current()?;
        let space = &driver.memory.spaces[device];
        free.put(space.free() as usize)?;
        total.put(space.total() as usize)
    }

    fn cuMemHostAlloc(addr: Out<u64>, len: usize, _flags: c_uint) { allocate_host(addr, len) }

    fn cuMemAllocHost_v2(addr: Out<u64>, len: usize) { allocate_host(addr, len) }

    fn cuMemFreeHost(addr: u64) { free(|driver| driver.memory.free_host(addr)) }

    fn cuMemHostRegister_v2(addr: u64, len: usize, flags: c_uint) {
        let mut driver = lock()?;
        let (context, device) = driver.current()?;
        if flags & IOMEMORY != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let read_only = flags & READ_ONLY != 0;
        if read_only && !driver.config.machine.read_only_register {
            return Err(Code::NOT_SUPPORTED);
        }
        driver.memory.register(device, context, addr, len as u64, read_only)
    }

    fn cuMemHostUnregister(addr: u64) { free(|driver| driver.memory.unregister(addr)) }

    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, addr: u64, _flags: c_uint) {
        let driver = lock()?;
        let known = driver.memory.find(addr).is_some_and(|found| !found.kind.is_on_device());
        if known { device.put(addr) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, addr: u64) {
        let known = lock()?.memory.find(addr).is_some_and(|found| found.kind == AllocationKind::Pinned);
        if known { flags.put(0) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, len: Out<usize>, addr: u64) {
        let found = *lock()?.memory.find(addr).ok_or(Code::NOT_FOUND)?;
        base.put_if(found.addr);
        len.put_if(found.len as usize);
        Ok(())
    }

    fn cuPointerGetAttribute(to: Out<c_void>, wanted: c_int, addr: u64) {
        let found = attribute(&*lock()?, wanted, addr)?;
        // SAFETY: C passes a pointer to a value of the attribute's type.
        unsafe { found.put(to) }
    }

    fn cuPointerGetAttributes(number: c_uint, wanted: In<c_int>, to: In<u64>, addr: u64) {
        let driver = lock()?;
        // SAFETY: C passes `number` attributes.
        let wanted = unsafe { wanted.slice(number as usize) }?;
        // SAFETY: C passes `number` pointers.
        let to = unsafe { to.slice(number as usize) }?;
        for (wanted, to) in wanted.iter().zip(to) {
            // Attributes that the pointer does not have are written as 0.
            let found = attribute(&driver, *wanted, addr).unwrap_or_else(|_| match attribute_len(*wanted) {
                8 => Attribute::Long(0),
                _ => Attribute::Int(0),
            });
            // SAFETY: each element of C's array is a pointer to a result, or NULL.
            let to = unsafe { Out::from_array(*to) };
            // SAFETY: C passes a pointer to a value of the attribute's type.
            unsafe { found.put(to) }?;
        }
        Ok(())
    }

    fn cuIpcGetMemHandle(handle: Out<MemHandle>, addr: u64) {
        handle.put(lock()?.memory.handle_of(addr)?)
    }

    fn cuIpcOpenMemHandle_v2(addr: Out<u64>, handle: MemHandle, flags: c_uint) {
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(Code::INVALID_VALUE);
        }
        let mut driver = lock()?;
        let (context, device) = driver.current()?;
        addr.put(driver.memory.open_peer(device, context, handle)?)
    }

    fn cuIpcCloseMemHandle(addr: u64) { free(|driver| driver.memory.close_peer(addr)) }

    fn cuPointerSetAttribute(value: In<c_void>, _attribute: c_int, addr: u64) {
        let known = lock()?.memory.find(addr).is_some();
        if known && !value.is_null() { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}
