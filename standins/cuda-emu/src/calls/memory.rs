//! Memory: allocation, registration and attributes of pointers.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::IntoRawFd;

use crate::advice::Change;
use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{self, Driver, lock};
use crate::memory::AllocationKind;
use crate::peer_memory::MemHandle;

/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IOMEMORY: c_uint = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: c_uint = 8;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag of `cuIpcOpenMemHandle`.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: c_int = 1;
/// `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`.
const BY_PCIE: u64 = 1;
/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`, the flags of `cuMemAllocManaged`.
const ATTACH: [c_uint; 2] = [1, 2];
/// `CU_MEM_ATTACH_SINGLE`, which only `cuStreamAttachMemAsync` accepts.
const ATTACH_SINGLE: c_uint = 4;
/// `CU_DEVICE_CPU`.
const CPU: c_int = -1;
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
    if device == CPU {
        Location { kind: Location::ANY_NODE, id: 0 }
    } else {
        Location { kind: Location::DEVICE, id: device }
    }
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
    require(flags == 0, Code::INVALID_VALUE)?;
    managed(&driver, addr, len)?;
    check_location(&driver, to)?;
    driver.memory.advice.change(addr, addr + len as u64, Change::Prefetched(to.place()));
    Ok(())
}

/// Managed ranges and the places to which they move, as the calls with several ranges name them.
#[derive(Clone, Copy)]
struct Ranges {
    addrs: In<u64>,
    lens: In<usize>,
    count: usize,
}

impl Ranges {
    /// Returns the address and the length of each range. Fails unless all are managed memory.
    ///
    /// # Safety
    ///
    /// C passes arrays of `count` values, or NULL, and does not change them during the call.
    unsafe fn check(self, driver: &Driver) -> Outcome<Vec<(u64, usize)>> {
        require(self.count != 0, Code::INVALID_VALUE)?;
        // SAFETY: the caller guarantees the array.
        let addrs = unsafe { self.addrs.slice(self.count) }?;
        // SAFETY: the caller guarantees the array.
        let lens = unsafe { self.lens.slice(self.count) }?;
        let ranges: Vec<_> = addrs.iter().copied().zip(lens.iter().copied()).collect();
        ranges.iter().try_for_each(|(addr, len)| managed(driver, *addr, *len))?;
        Ok(ranges)
    }
}

/// Accepts requests to move managed ranges: the range at each index, and those after it, move to the place
/// with the same number. The first index is 0, and the indices rise.
fn prefetch_all(
    driver: &mut Driver,
    ranges: &[(u64, usize)],
    places: &[Location],
    indices: &[usize],
) -> Outcome {
    let count = ranges.len();
    let rising = indices.windows(2).all(|pair| pair[0] < pair[1]);
    require(
        indices.first() == Some(&0) && rising && indices.last().is_none_or(|last| *last < count),
        Code::INVALID_VALUE,
    )?;
    places.iter().try_for_each(|place| check_location(driver, *place))?;
    for (number, place) in places.iter().enumerate() {
        let behind = indices.get(number + 1).copied().unwrap_or(count);
        for (addr, len) in &ranges[indices[number]..behind] {
            driver.memory.advice.change(*addr, addr + *len as u64, Change::Prefetched(place.place()));
        }
    }
    Ok(())
}

/// Checks the arguments of a batch of prefetches, and executes it. Returns the ranges.
///
/// # Safety
///
/// C passes arrays with the ranges' count and with `number` values, or NULL, and does not change them during
/// the call.
unsafe fn prefetch_batch(
    driver: &mut Driver,
    ranges: Ranges,
    (places, indices, number): (In<Location>, In<usize>, usize),
    flags: u64,
) -> Outcome<Vec<(u64, usize)>> {
    // SAFETY: the caller guarantees the arrays.
    let ranges = unsafe { ranges.check(driver) }?;
    // SAFETY: the caller guarantees the array.
    let places = unsafe { places.slice(number) }?;
    // SAFETY: the caller guarantees the array.
    let indices = unsafe { indices.slice(number) }?;
    require(flags == 0, Code::INVALID_VALUE)?;
    prefetch_all(driver, &ranges, places, indices)?;
    Ok(ranges)
}

/// Discards the bytes of managed ranges, in the order of a stream: overwrites them, so that a program which
/// still needs them fails.
fn discard(driver: &mut Driver, ranges: &[(u64, usize)], stream: u64) -> Outcome {
    const DISCARDED: u64 = u64::from_ne_bytes([0xa5; 8]);
    ranges.iter().try_for_each(|(addr, len)| driver.fill(stream, *addr, DISCARDED, *len as u64))
}

/// Accepts advice about managed memory.
fn advise(addr: u64, len: usize, advice: c_int, location: Location) -> Outcome {
    let mut driver = lock()?;
    driver.current()?;
    let change = match advice {
        // The first two kinds of advice, and the fourth, ignore the location.
        1 | 2 => Change::ReadMostly(advice == 1),
        3 => Change::Preferred(Some(location.place())),
        4 => Change::Preferred(None),
        5 | 6 => Change::AccessedBy(location.place(), advice == 5),
        _ => return Err(Code::INVALID_VALUE),
    };
    managed(&driver, addr, len)?;
    if matches!(advice, 3 | 5 | 6) {
        check_location(&driver, location)?;
    }
    driver.memory.advice.change(addr, addr + len as u64, change);
    Ok(())
}

/// Returns an attribute of a managed range, as the words that C expects in `room` words. `wanted` is a number
/// of `CUmem_range_attribute`.
fn range_attribute(
    driver: &Driver,
    wanted: c_int,
    room: usize,
    addr: u64,
    len: usize,
) -> Outcome<Vec<c_int>> {
    /// `CU_DEVICE_INVALID`.
    const NONE: c_int = -2;
    managed(driver, addr, len)?;
    let advice = driver.memory.advice.of(addr, addr + len as u64);
    let device = |(kind, id): (c_int, c_int)| if kind == Location::DEVICE { id } else { CPU };
    let words = match wanted {
        1 => vec![c_int::from(advice.read_mostly)],
        2 => vec![advice.preferred.map_or(NONE, device)],
        3 => {
            let mut words: Vec<_> = advice.accessed_by.into_iter().map(device).take(room).collect();
            words.resize(room, NONE);
            words
        }
        4 => vec![advice.prefetched.map_or(NONE, device)],
        5 => vec![advice.preferred.map_or(Location::NONE, |(kind, _)| kind)],
        6 => vec![advice.preferred.map_or(0, |(_, id)| id)],
        7 => vec![advice.prefetched.map_or(Location::NONE, |(kind, _)| kind)],
        8 => vec![advice.prefetched.map_or(0, |(_, id)| id)],
        _ => return Err(Code::INVALID_VALUE),
    };
    if room == words.len() && room > 0 { Ok(words) } else { Err(Code::INVALID_VALUE) }
}

/// Writes an attribute of a managed range to `len_to` bytes at `to`.
///
/// # Safety
///
/// C passes a pointer to `len_to` bytes, or NULL.
unsafe fn put_range_attribute(
    driver: &Driver,
    to: Out<c_int>,
    len_to: usize,
    wanted: c_int,
    addr: u64,
    len: usize,
) -> Outcome {
    const WORD: usize = size_of::<c_int>();
    require(len_to.is_multiple_of(WORD), Code::INVALID_VALUE)?;
    let words = range_attribute(driver, wanted, len_to / WORD, addr, len)?;
    // SAFETY: the caller guarantees the room.
    unsafe { to.fill(&words, words.len()) }
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
    const fn place(self) -> (c_int, c_int) {
        (self.kind, self.id)
    }

    /// `CU_MEM_LOCATION_TYPE_NONE`.
    pub(crate) const NONE: c_int = 0;
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(crate) const DEVICE: c_int = 1;
    /// `CU_MEM_LOCATION_TYPE_HOST` and `_HOST_NUMA`.
    pub(crate) const ANY_NODE: c_int = 2;
    pub(crate) const NODE: c_int = 3;
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
        // `CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES`.
        14 => {
            let pool = driver.memory.pools.get(found.pool);
            Ok(Long(u64::from(pool.is_ok_and(crate::pool::MemPool::is_shareable))))
        }
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
        free(|driver| driver.memory.free(addr))
    }

    fn cuMemAllocManaged(addr: Out<u64>, len: usize, flags: c_uint) {
        addr.check()?;
        let mut driver = lock()?;
        let (context, device) = driver.current()?;
        require(ATTACH.contains(&flags), Code::INVALID_VALUE)?;
        addr.put(driver.memory.allocate_managed(device, context, len as u64)?)
    }

    /// The variant before CUDA 12.2.
    fn cuMemPrefetchAsync(addr: u64, len: usize, device: c_int, stream: u64) {
        prefetch(addr, len, location_of(device), 0, stream)
    }

    fn cuMemPrefetchAsync_v2(addr: u64, len: usize, location: Location, flags: c_uint, stream: u64) {
        prefetch(addr, len, location, flags, stream)
    }

    fn cuMemPrefetchBatchAsync(
        addrs: In<u64>,
        lens: In<usize>,
        count: usize,
        places: In<Location>,
        indices: In<usize>,
        number: usize,
        flags: u64,
        stream: u64,
    ) {
        let mut driver = lock()?;
        driver.stream_of(stream)?;
        // SAFETY: C passes arrays of `count` and of `number` values, or NULL.
        unsafe { prefetch_batch(&mut driver, Ranges { addrs, lens, count }, (places, indices, number), flags) }?;
        Ok(())
    }

    fn cuMemDiscardBatchAsync(addrs: In<u64>, lens: In<usize>, count: usize, flags: u64, stream: u64) {
        let mut driver = lock()?;
        driver.stream_of(stream)?;
        // SAFETY: C passes arrays of `count` values, or NULL.
        let ranges = unsafe { Ranges { addrs, lens, count }.check(&driver) }?;
        if flags == 0 { discard(&mut driver, &ranges, stream) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuMemDiscardAndPrefetchBatchAsync(
        addrs: In<u64>,
        lens: In<usize>,
        count: usize,
        places: In<Location>,
        indices: In<usize>,
        number: usize,
        flags: u64,
        stream: u64,
    ) {
        let mut driver = lock()?;
        driver.stream_of(stream)?;
        let ranges = Ranges { addrs, lens, count };
        // SAFETY: C passes arrays of `count` and of `number` values, or NULL.
        let ranges = unsafe { prefetch_batch(&mut driver, ranges, (places, indices, number), flags) }?;
        discard(&mut driver, &ranges, stream)
    }

    /// The variant before CUDA 12.2.
    fn cuMemAdvise(addr: u64, len: usize, advice: c_int, device: c_int) {
        advise(addr, len, advice, location_of(device))
    }

    fn cuMemAdvise_v2(addr: u64, len: usize, advice: c_int, location: Location) {
        advise(addr, len, advice, location)
    }

    fn cuMemRangeGetAttribute(to: Out<c_int>, len_to: usize, wanted: c_int, addr: u64, len: usize) {
        let driver = lock()?;
        // SAFETY: C passes a pointer to `len_to` bytes, or NULL.
        unsafe { put_range_attribute(&driver, to, len_to, wanted, addr, len) }
    }

    fn cuMemRangeGetAttributes(
        to: In<u64>,
        lens_to: In<usize>,
        wanted: In<c_int>,
        number: usize,
        addr: u64,
        len: usize,
    ) {
        let driver = lock()?;
        // SAFETY: C passes `number` pointers, or NULL.
        let to = unsafe { to.slice(number) }?;
        // SAFETY: C passes `number` lengths, or NULL.
        let lens_to = unsafe { lens_to.slice(number) }?;
        // SAFETY: C passes `number` attributes, or NULL.
        let wanted = unsafe { wanted.slice(number) }?;
        for ((to, len_to), wanted) in to.iter().zip(lens_to).zip(wanted) {
            // SAFETY: each element of C's array is a pointer to a result, or NULL.
            let to = unsafe { Out::from_array(*to) };
            // SAFETY: the result has this length.
            unsafe { put_range_attribute(&driver, to, *len_to, *wanted, addr, len) }?;
        }
        Ok(())
    }

    fn cuStreamAttachMemAsync(stream: u64, addr: u64, len: usize, flags: c_uint) {
        let mut driver = lock()?;
        driver.stream_of(stream)?;
        require(flags == ATTACH_SINGLE || ATTACH.contains(&flags), Code::INVALID_VALUE)?;
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
        require(flags & IOMEMORY == 0, Code::NOT_SUPPORTED)?;
        let read_only = flags & READ_ONLY != 0;
        require(!read_only || driver.config.machine.read_only_register, Code::NOT_SUPPORTED)?;
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

    fn cuMemGetHandleForAddressRange(handle: Out<c_void>, addr: u64, len: usize, kind: c_int, flags: u64) {
        require(kind == DMA_BUF && flags & !BY_PCIE == 0 && !handle.is_null(), Code::INVALID_VALUE)?;
        let file = lock()?.memory.dmabuf_of(addr, len as u64)?;
        // SAFETY: C passes a pointer to a file descriptor, and owns the descriptor from now on.
        unsafe { handle.put_as::<c_int>(file.into_raw_fd()) }
    }

    fn cuIpcGetMemHandle(handle: Out<MemHandle>, addr: u64) {
        handle.put(lock()?.memory.handle_of(addr)?)
    }

    fn cuIpcOpenMemHandle_v2(addr: Out<u64>, handle: MemHandle, flags: c_uint) {
        require(flags == LAZY_ENABLE_PEER_ACCESS, Code::INVALID_VALUE)?;
        let mut driver = lock()?;
        let (context, device) = driver.current()?;
        addr.put(driver.memory.open_peer(device, context, handle)?)
    }

    fn cuIpcCloseMemHandle(addr: u64) { free(|driver| driver.memory.close_peer(addr)) }

    fn cuPointerSetAttribute(value: In<c_void>, _attribute: c_int, addr: u64) {
        let known = lock()?.memory.find(addr).is_some();
        require(known && !value.is_null(), Code::INVALID_VALUE)
    }
}
