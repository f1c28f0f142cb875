//! Memory pools, and allocation in the order of a stream.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint, c_void};

use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome};
use crate::driver::{self, Driver, lock};
use crate::pool::READ_WRITE;

use super::memory::{Attribute, Location};

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `_MANAGED`.
const PINNED: c_int = 1;
const MANAGED: c_int = 2;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProperties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    security: u64,
    max: usize,
    usage: u16,
    reserved: [u8; 54],
}

const _: () = assert!(size_of::<PoolProperties>() == 88);

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    location: Location,
    flags: c_uint,
}

/// Numbers of `CUmemPool_attribute`.
mod pool_attribute {
    use std::ffi::c_int;

    pub(super) const REUSE: std::ops::RangeInclusive<c_int> = 1..=3;
    pub(super) const RELEASE_THRESHOLD: c_int = 4;
    pub(super) const RESERVED: c_int = 5;
    pub(super) const RESERVED_HIGH: c_int = 6;
    pub(super) const USED: c_int = 7;
    pub(super) const USED_HIGH: c_int = 8;
    pub(super) const ALLOCATION_TYPE: c_int = 9;
    pub(super) const EXPORT_HANDLE_TYPES: c_int = 10;
    pub(super) const LOCATION_ID: c_int = 11;
    pub(super) const LOCATION_TYPE: c_int = 12;
    pub(super) const MAX_POOL_SIZE: c_int = 13;
    pub(super) const HW_DECOMPRESS_ENABLED: c_int = 14;
}
use pool_attribute as at;

/// Returns the device of a pool of this kind at this location.
fn device_of(driver: &Driver, location: Location, kind: c_int) -> Outcome<usize> {
    match (kind, location.kind) {
        (PINNED, Location::DEVICE) => driver.device(location.id).map_err(|_| Code::INVALID_VALUE),
        // The attributes of the devices say that there are no such pools.
        (MANAGED, Location::DEVICE) => Err(Code::NOT_SUPPORTED),
        (PINNED | MANAGED, kind) if Location::HOST.contains(&kind) => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Allocates from a pool, by default from the current pool of the stream's device.
fn allocate(addr: Out<u64>, len: usize, pool: Option<u64>, stream: u64) -> Outcome {
    addr.check()?;
    let mut driver = lock()?;
    let stream = driver.stream_of(stream)?;
    let context = driver.stream(stream)?.context;
    let device = driver.context(context)?.device;
    let pool = pool.unwrap_or_else(|| driver.memory.pools.current_of(device));
    let mut made = driver.memory.allocate_from_pool(pool, len as u64, stream);
    if made == Err(Code::OUT_OF_MEMORY) {
        // Memory whose end is queued on this stream may be enough.
        driver::wait_stream(driver, stream)?;
        driver = lock()?;
        made = driver.memory.allocate_from_pool(pool, len as u64, stream);
    }
    addr.put(made?)
}

c_calls! {
    fn cuMemAllocAsync(addr: Out<u64>, len: usize, stream: u64) { allocate(addr, len, None, stream) }

    fn cuMemAllocFromPoolAsync(addr: Out<u64>, len: usize, pool: u64, stream: u64) {
        allocate(addr, len, Some(pool), stream)
    }

    fn cuMemFreeAsync(addr: u64, stream: u64) { lock()?.free_in_order(addr, stream) }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: c_int) {
        let driver = lock()?;
        let device = driver.device(device)?;
        pool.put(driver.memory.pools.default_of(device))
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: c_int) {
        let driver = lock()?;
        let device = driver.device(device)?;
        pool.put(driver.memory.pools.current_of(device))
    }

    fn cuDeviceSetMemPool(device: c_int, pool: u64) {
        let mut driver = lock()?;
        let device = driver.device(device)?;
        driver.memory.pools.set_current(device, pool)
    }

    fn cuMemGetDefaultMemPool(pool: Out<u64>, location: In<Location>, kind: c_int) {
        let driver = lock()?;
        let device = device_of(&driver, location.value()?, kind)?;
        pool.put(driver.memory.pools.default_of(device))
    }

    fn cuMemGetMemPool(pool: Out<u64>, location: In<Location>, kind: c_int) {
        let driver = lock()?;
        let device = device_of(&driver, location.value()?, kind)?;
        pool.put(driver.memory.pools.current_of(device))
    }

    fn cuMemSetMemPool(location: In<Location>, kind: c_int, pool: u64) {
        let mut driver = lock()?;
        let device = device_of(&driver, location.value()?, kind)?;
        driver.memory.pools.set_current(device, pool)
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) {
        pool.check()?;
        let mut driver = lock()?;
        let PoolProperties { kind, handle_types, location, max, .. } = properties.value()?;
        let device = device_of(&driver, location, kind)?;
        if handle_types != 0 {
            // `CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES` is 0.
            return Err(Code::NOT_SUPPORTED);
        }
        let handle = driver.handle();
        driver.memory.pools.create(handle, device, max as u64);
        pool.put(handle)
    }

    fn cuMemPoolDestroy(pool: u64) { lock()?.memory.pools.destroy(pool) }

    fn cuMemPoolTrimTo(pool: u64, _kept: usize) {
        // Freed memory was returned to the device already.
        lock()?.memory.pools.get(pool).map(|_| ())
    }

    fn cuMemPoolSetAttribute(pool: u64, attribute: c_int, value: In<c_void>) {
        let mut driver = lock()?;
        let pool = driver.memory.pools.get_mut(pool)?;
        // SAFETY: C passes a pointer to a value of the attribute's type, or NULL.
        let int = || unsafe { value.get_as::<c_int>() };
        // SAFETY: C passes a pointer to a value of the attribute's type, or NULL.
        let long = || unsafe { value.get_as::<u64>() };
        match attribute {
            attribute if at::REUSE.contains(&attribute) => pool.reuse[(attribute - 1) as usize] = int()?,
            at::RELEASE_THRESHOLD => pool.release_threshold = long()?,
            // The maximum can only be reset.
            at::RESERVED_HIGH | at::USED_HIGH if long()? == 0 => pool.used_high = pool.used,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: u64, attribute: c_int, value: Out<c_void>) {
        let driver = lock()?;
        let pool = driver.memory.pools.get(pool)?;
        let found = match attribute {
            attribute if at::REUSE.contains(&attribute) => {
                Attribute::Int(pool.reuse[(attribute - 1) as usize] as c_uint)
            }
            at::RELEASE_THRESHOLD => Attribute::Long(pool.release_threshold),
            at::RESERVED | at::USED => Attribute::Long(pool.used),
            at::RESERVED_HIGH | at::USED_HIGH => Attribute::Long(pool.used_high),
            at::ALLOCATION_TYPE => Attribute::Int(PINNED as c_uint),
            at::EXPORT_HANDLE_TYPES | at::HW_DECOMPRESS_ENABLED => Attribute::Int(0),
            at::LOCATION_ID => Attribute::Int(pool.device as c_uint),
            at::LOCATION_TYPE => Attribute::Int(Location::DEVICE as c_uint),
            at::MAX_POOL_SIZE => Attribute::Long(pool.max),
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: C passes a pointer to a value of the attribute's type, or NULL.
        unsafe { found.put(value) }
    }

    fn cuMemPoolSetAccess(pool: u64, rights: In<Access>, count: usize) {
        let mut driver = lock()?;
        let owner = driver.memory.pools.get(pool)?.device;
        // SAFETY: C passes an array of `count` values, or NULL, and does not change it during the call.
        let rights = unsafe { rights.slice(count) }?;
        let device = |access: &Access| {
            if access.location.kind != Location::DEVICE {
                return Err(Code::INVALID_VALUE);
            }
            driver.device(access.location.id)
        };
        let devices = rights.iter().map(device).collect::<Outcome<Vec<_>>>()?;
        // The pool's own device keeps its access, and there is no access for reading only.
        let allowed = |(access, device): (&Access, &usize)| {
            access.flags == READ_WRITE || access.flags == 0 && *device != owner
        };
        if !rights.iter().zip(&devices).all(allowed) {
            return Err(Code::INVALID_VALUE);
        }
        let pool = driver.memory.pools.get_mut(pool)?;
        for (access, device) in rights.iter().zip(devices) {
            pool.access[device] = access.flags;
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: u64, location: In<Location>) {
        let driver = lock()?;
        let pool = driver.memory.pools.get(pool)?;
        let location = location.value()?;
        if location.kind != Location::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        flags.put(pool.access[driver.device(location.id)?])
    }
}
