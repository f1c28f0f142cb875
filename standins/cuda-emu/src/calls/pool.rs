//! Memory pools, and allocation in the order of a stream.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::path::Path;

use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{self, Driver, lock};
use crate::peer_memory::{FILE_NAME, PointerHandle, pool_file_name};
use crate::pool::{HOST_FILE_NAME, HostFile, MemPool, Place, PoolKey, READ_WRITE, Sharing};

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

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the only type of handles for other processes.
const FILE_DESCRIPTOR: c_int = 1;

/// Returns the place of pools of this kind at this location.
fn place_of(driver: &Driver, location: Location, kind: c_int) -> Outcome<(PoolKey, Place)> {
    let id = match location.kind {
        Location::NONE if kind == MANAGED => 0,
        Location::DEVICE => driver.device(location.id).map_err(|_| Code::INVALID_VALUE)? as c_int,
        Location::ANY_NODE => 0,
        Location::NODE if is_node(location.id) => location.id,
        _ => return Err(Code::INVALID_VALUE),
    };
    let place = match (kind, location.kind) {
        (PINNED, Location::DEVICE) => Place::Device(id as usize),
        (PINNED, _) => Place::Host,
        (MANAGED, _) => Place::Managed,
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok((PoolKey { kind, location: location.kind, id }, place))
}

/// Returns true if the machine has a NUMA node. Every machine has node 0, also if the system lists none.
fn is_node(id: c_int) -> bool {
    id == 0 || id > 0 && Path::new(&format!("/sys/devices/system/node/node{id}")).exists()
}

/// Returns the default pool of a kind and location, which is made at its first use.
fn default_pool(driver: &mut Driver, key: PoolKey, place: Place) -> u64 {
    let handle = driver.handle();
    driver.memory.default_pool(handle, key, place)
}

fn current_pool(driver: &mut Driver, key: PoolKey, place: Place) -> u64 {
    driver.memory.pools.current_of(key).unwrap_or_else(|| default_pool(driver, key, place))
}

/// Returns the key of the pools of a device's memory.
fn device_pools(device: usize) -> (PoolKey, Place) {
    (PoolKey { kind: PINNED, location: Location::DEVICE, id: device as c_int }, Place::Device(device))
}

/// Allocates from a pool, by default from the current pool of the stream's device.
fn allocate(addr: Out<u64>, len: usize, pool: Option<u64>, stream: u64) -> Outcome {
    addr.check()?;
    let mut driver = lock()?;
    let stream = driver.stream_of(stream)?;
    let context = driver.stream(stream)?.context;
    let device = driver.context(context)?.device;
    let (key, place) = device_pools(device);
    let pool = pool.unwrap_or_else(|| current_pool(&mut driver, key, place));
    let mut made = driver.memory.allocate_from_pool(pool, len as u64, stream, device);
    if made == Err(Code::OUT_OF_MEMORY) {
        // Memory whose end is queued on this stream may be enough.
        driver::wait_stream(driver, stream)?;
        driver = lock()?;
        made = driver.memory.allocate_from_pool(pool, len as u64, stream, device);
    }
    addr.put(made?)
}

/// Imports a pool by the file of its memory.
fn import(driver: &mut Driver, file: BorrowedFd<'_>) -> Outcome<u64> {
    let file = file.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)?;
    let name = pool_file_name(&file).ok_or(Code::INVALID_VALUE)?;
    let (key, place) = if name == HOST_FILE_NAME {
        (PoolKey { kind: PINNED, location: Location::NODE, id: 0 }, Place::Host)
    } else {
        let device = name.strip_prefix(FILE_NAME).and_then(|number| number.parse().ok());
        device_pools(driver.device(device.ok_or(Code::INVALID_VALUE)?)?)
    };
    let handle = driver.handle();
    let devices = driver.config.gpus.len();
    driver.memory.pools.add(handle, MemPool::new(key, place, Sharing::Imported(file), 0, devices));
    Ok(handle)
}

c_calls! {
    fn cuMemAllocAsync(addr: Out<u64>, len: usize, stream: u64) { allocate(addr, len, None, stream) }

    fn cuMemAllocFromPoolAsync(addr: Out<u64>, len: usize, pool: u64, stream: u64) {
        allocate(addr, len, Some(pool), stream)
    }

    fn cuMemFreeAsync(addr: u64, stream: u64) { lock()?.free_in_order(addr, stream) }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: c_int) {
        let mut driver = lock()?;
        let (key, place) = device_pools(driver.device(device)?);
        pool.put(default_pool(&mut driver, key, place))
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: c_int) {
        let mut driver = lock()?;
        let (key, place) = device_pools(driver.device(device)?);
        pool.put(current_pool(&mut driver, key, place))
    }

    fn cuDeviceSetMemPool(device: c_int, pool: u64) {
        let mut driver = lock()?;
        let (key, _) = device_pools(driver.device(device)?);
        driver.memory.pools.set_current(key, pool)
    }

    fn cuMemGetDefaultMemPool(pool: Out<u64>, location: In<Location>, kind: c_int) {
        let mut driver = lock()?;
        let (key, place) = place_of(&driver, location.value()?, kind)?;
        pool.put(default_pool(&mut driver, key, place))
    }

    fn cuMemGetMemPool(pool: Out<u64>, location: In<Location>, kind: c_int) {
        let mut driver = lock()?;
        let (key, place) = place_of(&driver, location.value()?, kind)?;
        pool.put(current_pool(&mut driver, key, place))
    }

    fn cuMemSetMemPool(location: In<Location>, kind: c_int, pool: u64) {
        let mut driver = lock()?;
        let (key, _) = place_of(&driver, location.value()?, kind)?;
        driver.memory.pools.set_current(key, pool)
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) {
        pool.check()?;
        let mut driver = lock()?;
        let PoolProperties { kind, handle_types, location, max, .. } = properties.value()?;
        let (key, place) = place_of(&driver, location, kind)?;
        let sharing = match (handle_types, place) {
            (0, _) => Sharing::Private,
            (FILE_DESCRIPTOR, Place::Device(_)) => Sharing::Device,
            // Other processes map host memory only if it has a node, and no managed memory.
            (FILE_DESCRIPTOR, Place::Host) if key.location == Location::NODE => Sharing::Host(HostFile::new()?),
            (FILE_DESCRIPTOR, _) => return Err(Code::INVALID_VALUE),
            // `CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES` names no other type.
            _ => return Err(Code::NOT_SUPPORTED),
        };
        let handle = driver.handle();
        let devices = driver.config.gpus.len();
        driver.memory.pools.add(handle, MemPool::new(key, place, sharing, max as u64, devices));
        pool.put(handle)
    }

    fn cuMemPoolExportToShareableHandle(handle: Out<c_void>, pool: u64, kind: c_int, flags: u64) {
        require(flags == 0 && kind == FILE_DESCRIPTOR && !handle.is_null(), Code::INVALID_VALUE)?;
        let file = lock()?.memory.export_pool(pool)?;
        // SAFETY: C passes a pointer to a file descriptor, and owns the descriptor from now on.
        unsafe { handle.put_as::<c_int>(file.into_raw_fd()) }
    }

    fn cuMemPoolImportFromShareableHandle(pool: Out<u64>, handle: usize, kind: c_int, flags: u64) {
        pool.check()?;
        let file = c_int::try_from(handle).map_err(|_| Code::INVALID_VALUE)?;
        require(flags == 0 && kind == FILE_DESCRIPTOR, Code::INVALID_VALUE)?;
        // SAFETY: C passes an open file descriptor, and keeps it open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        pool.put(import(&mut *lock()?, file)?)
    }

    fn cuMemPoolExportPointer(handle: Out<PointerHandle>, addr: u64) {
        handle.put(lock()?.memory.export_pointer(addr)?)
    }

    fn cuMemPoolImportPointer(addr: Out<u64>, pool: u64, handle: In<PointerHandle>) {
        addr.check()?;
        addr.put(lock()?.memory.import_pointer(pool, handle.value()?)?)
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
            at::ALLOCATION_TYPE => Attribute::Int(pool.key.kind as c_uint),
            at::EXPORT_HANDLE_TYPES => Attribute::Int(pool.is_shareable().into()),
            at::HW_DECOMPRESS_ENABLED => Attribute::Int(0),
            at::LOCATION_ID => Attribute::Int(pool.key.id as c_uint),
            at::LOCATION_TYPE => Attribute::Int(pool.key.location as c_uint),
            at::MAX_POOL_SIZE => Attribute::Long(pool.max),
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: C passes a pointer to a value of the attribute's type, or NULL.
        unsafe { found.put(value) }
    }

    fn cuMemPoolSetAccess(pool: u64, rights: In<Access>, count: usize) {
        let mut driver = lock()?;
        let place = driver.memory.pools.get(pool)?.place;
        // SAFETY: C passes an array of `count` values, or NULL, and does not change it during the call.
        let rights = unsafe { rights.slice(count) }?;
        let device = |access: &Access| match access.location.kind {
            Location::DEVICE => driver.device(access.location.id).map(Some),
            // The CPU always has access to the memory of the host.
            kind if Location::HOST.contains(&kind) && !matches!(place, Place::Device(_)) => Ok(None),
            _ => Err(Code::INVALID_VALUE),
        };
        let devices = rights.iter().map(device).collect::<Outcome<Vec<_>>>()?;
        // A place keeps its access to its own memory, and there is no access for reading only.
        let allowed = |(access, device): (&Access, &Option<usize>)| {
            let is_own = device.is_none_or(|device| place == Place::Device(device));
            access.flags == READ_WRITE || access.flags == 0 && !is_own
        };
        require(rights.iter().zip(&devices).all(allowed), Code::INVALID_VALUE)?;
        let pool = driver.memory.pools.get_mut(pool)?;
        for (access, device) in rights.iter().zip(devices) {
            if let Some(device) = device {
                pool.access[device] = access.flags;
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: u64, location: In<Location>) {
        let driver = lock()?;
        let pool = driver.memory.pools.get(pool)?;
        let location = location.value()?;
        flags.put(match location.kind {
            Location::DEVICE => pool.access[driver.device(location.id)?],
            kind if Location::HOST.contains(&kind) && !matches!(pool.place, Place::Device(_)) => READ_WRITE,
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}
