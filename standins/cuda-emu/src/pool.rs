//! Memory pools: their settings, and the number of bytes that their allocations use.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::OwnedFd;

use dma_standin::check_file_size;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::codes::{Code, Outcome, require};

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: u32 = 3;
/// The name of the file that is the memory of a pool of host memory for other processes.
pub(crate) const HOST_FILE_NAME: &str = "cuda-pool";

/// The memory of which a pool allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of a device.
    Device(usize),
    /// Pinned host memory.
    Host,
    /// Memory that the CPU and the devices access at the same address.
    Managed,
}

/// The kind and the location of a pool, as C names them. Each has a default pool and a current pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    /// `CUmemAllocationType`.
    pub(crate) kind: c_int,
    /// `CUmemLocationType`.
    pub(crate) location: c_int,
    /// Number of the device or of the NUMA node.
    pub(crate) id: c_int,
}

/// The use of a pool by other processes.
#[derive(Debug)]
pub(crate) enum Sharing {
    /// They do not.
    Private,
    /// They may map allocations of the device's memory.
    Device,
    /// They may map allocations of host memory, which lie in this file.
    Host(HostFile),
    /// The pool is another process's. This is the file of its memory.
    Imported(OwnedFd),
}

/// The file of a pool of host memory. Each allocation has a range of its own, because the file is sparse.
#[derive(Debug)]
pub(crate) struct HostFile {
    pub(crate) file: OwnedFd,
    len: u64,
    /// Offset of each allocation, by its address.
    offsets: BTreeMap<u64, u64>,
}

impl HostFile {
    pub(crate) fn new() -> Outcome<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(HOST_FILE_NAME, flags).map_err(|_| Code::OUT_OF_MEMORY)?;
        // If another process made the file shorter, SIGBUS would end this one.
        let seals = SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(Self { file, len: 0, offsets: BTreeMap::new() })
    }

    /// Makes the file longer by `len` bytes, which are whole pages. Returns the offset of the new range.
    pub(crate) fn extend(&mut self, len: u64) -> Outcome<u64> {
        let end = self.len.checked_add(len).ok_or(Code::OUT_OF_MEMORY)?;
        check_file_size(&self.file, end).map_err(|_| Code::OUT_OF_MEMORY)?;
        rustix::fs::ftruncate(&self.file, end).map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(std::mem::replace(&mut self.len, end))
    }

    pub(crate) fn add(&mut self, addr: u64, offset: u64) {
        self.offsets.insert(addr, offset);
    }

    pub(crate) fn offset_of(&self, addr: u64) -> Option<u64> {
        self.offsets.get(&addr).copied()
    }

    /// Returns the pages of an allocation to the system.
    pub(crate) fn remove(&mut self, addr: u64, len: u64) {
        let Some(offset) = self.offsets.remove(&addr) else { return };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The bytes are never used again, so a failure only costs memory.
        let _ = rustix::fs::fallocate(&self.file, flags, offset, len);
    }
}

/// A pool.
#[derive(Debug)]
pub(crate) struct MemPool {
    pub(crate) key: PoolKey,
    pub(crate) place: Place,
    pub(crate) sharing: Sharing,
    /// Maximum number of bytes. 0 means that the memory of the place is the limit.
    pub(crate) max: u64,
    /// The three attributes for the reuse of freed memory, which the stand-in only stores.
    pub(crate) reuse: [i32; 3],
    pub(crate) release_threshold: u64,
    /// Bytes in use, and the maximum since the program last reset it.
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Access rights of each device, as values of `CUmemAccess_flags`.
    pub(crate) access: Vec<u32>,
    is_default: bool,
    destroyed: bool,
}

impl MemPool {
    /// Makes a pool. All `devices` can access managed memory, and one of them accesses its own memory.
    pub(crate) fn new(key: PoolKey, place: Place, sharing: Sharing, max: u64, devices: usize) -> Self {
        let mut access = vec![if place == Place::Managed { READ_WRITE } else { 0 }; devices];
        if let Place::Device(device) = place {
            access[device] = READ_WRITE;
        }
        Self {
            key,
            place,
            sharing,
            max,
            reuse: [1; 3],
            release_threshold: 0,
            used: 0,
            used_high: 0,
            access,
            is_default: false,
            destroyed: false,
        }
    }

    pub(crate) const fn is_shareable(&self) -> bool {
        matches!(self.sharing, Sharing::Device | Sharing::Host(_))
    }

    pub(crate) const fn is_imported(&self) -> bool {
        matches!(self.sharing, Sharing::Imported(_))
    }
}

/// All pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: BTreeMap<u64, MemPool>,
    /// The default pools that exist. Others are made when a program asks for them.
    defaults: BTreeMap<PoolKey, u64>,
    /// The current pools, where they are not the default pools.
    current: BTreeMap<PoolKey, u64>,
}

impl Pools {
    /// Adds a pool with a handle that the driver has chosen.
    pub(crate) fn add(&mut self, handle: u64, pool: MemPool) {
        self.pools.insert(handle, pool);
    }

    /// Returns the default pool of this kind and location, if it exists.
    pub(crate) fn default_of(&self, key: PoolKey) -> Option<u64> {
        self.defaults.get(&key).copied()
    }

    pub(crate) fn add_default(&mut self, handle: u64, mut pool: MemPool) {
        pool.is_default = true;
        self.defaults.insert(pool.key, handle);
        self.add(handle, pool);
    }

    /// Returns the pool that the program has made the current one, if any.
    pub(crate) fn current_of(&self, key: PoolKey) -> Option<u64> {
        self.current.get(&key).copied()
    }

    /// Returns a pool, if it exists.
    pub(crate) fn get(&self, handle: u64) -> Outcome<&MemPool> {
        self.pools.get(&handle).filter(|pool| !pool.destroyed).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn get_mut(&mut self, handle: u64) -> Outcome<&mut MemPool> {
        self.pools.get_mut(&handle).filter(|pool| !pool.destroyed).ok_or(Code::INVALID_VALUE)
    }

    /// Makes a pool the current one of its kind and location.
    pub(crate) fn set_current(&mut self, key: PoolKey, handle: u64) -> Outcome {
        let pool = self.get(handle)?;
        require(pool.key == key && !pool.is_imported(), Code::INVALID_VALUE)?;
        self.current.insert(key, handle);
        Ok(())
    }

    /// Destroys a pool. Its allocations stay valid until they are freed.
    pub(crate) fn destroy(&mut self, handle: u64) -> Outcome {
        let pool = self.get_mut(handle)?;
        require(!pool.is_default, Code::INVALID_VALUE)?;
        pool.destroyed = true;
        let unused = pool.used == 0;
        self.current.retain(|_, current| *current != handle);
        if unused {
            self.pools.remove(&handle);
        }
        Ok(())
    }

    /// Counts an allocation of `len` bytes.
    pub(crate) fn use_bytes(&mut self, handle: u64, len: u64) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used += len;
            pool.used_high = pool.used_high.max(pool.used);
        }
    }

    /// Counts the end of an allocation of `len` bytes. Ignores memory that no pool has.
    pub(crate) fn return_bytes(&mut self, handle: u64, len: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        pool.used -= len;
        if pool.destroyed && pool.used == 0 {
            self.pools.remove(&handle);
        }
    }

    /// Returns the file of a pool of host memory for other processes, also if the pool is destroyed.
    pub(crate) fn host_file(&mut self, handle: u64) -> Option<&mut HostFile> {
        match &mut self.pools.get_mut(&handle)?.sharing {
            Sharing::Host(file) => Some(file),
            _ => None,
        }
    }
}
