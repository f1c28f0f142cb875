//! Memory pools: their settings, and the number of bytes that their allocations use.

use std::collections::BTreeMap;

use crate::codes::{Code, Outcome};

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: u32 = 3;

/// A pool of device memory.
#[derive(Debug)]
pub(crate) struct MemPool {
    pub(crate) device: usize,
    /// Maximum number of bytes. 0 means that the device's memory is the limit.
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

/// All pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: BTreeMap<u64, MemPool>,
    /// The default pool and the current pool of each device.
    defaults: Vec<u64>,
    current: Vec<u64>,
}

impl Pools {
    /// Adds a pool with a handle that the driver has chosen.
    fn add(&mut self, handle: u64, device: usize, devices: usize, max: u64, is_default: bool) {
        let mut access = vec![0; devices];
        access[device] = READ_WRITE;
        let pool = MemPool {
            device,
            max,
            reuse: [1; 3],
            release_threshold: 0,
            used: 0,
            used_high: 0,
            access,
            is_default,
            destroyed: false,
        };
        self.pools.insert(handle, pool);
    }

    /// Makes the default pools of all devices.
    pub(crate) fn add_defaults(&mut self, handles: &[u64]) {
        for (device, handle) in handles.iter().enumerate() {
            self.add(*handle, device, handles.len(), 0, true);
        }
        self.defaults = handles.to_vec();
        self.current = handles.to_vec();
    }

    pub(crate) fn create(&mut self, handle: u64, device: usize, max: u64) {
        self.add(handle, device, self.defaults.len(), max, false);
    }

    /// Returns a pool, if it exists.
    pub(crate) fn get(&self, handle: u64) -> Outcome<&MemPool> {
        self.pools.get(&handle).filter(|pool| !pool.destroyed).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn get_mut(&mut self, handle: u64) -> Outcome<&mut MemPool> {
        self.pools.get_mut(&handle).filter(|pool| !pool.destroyed).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn default_of(&self, device: usize) -> u64 {
        self.defaults[device]
    }

    pub(crate) fn current_of(&self, device: usize) -> u64 {
        self.current[device]
    }

    /// Makes a pool the current one of a device, from which `cuMemAllocAsync` allocates.
    pub(crate) fn set_current(&mut self, device: usize, handle: u64) -> Outcome {
        if self.get(handle)?.device != device {
            return Err(Code::INVALID_VALUE);
        }
        self.current[device] = handle;
        Ok(())
    }

    /// Destroys a pool. Its allocations stay valid until they are freed.
    pub(crate) fn destroy(&mut self, handle: u64) -> Outcome {
        let pool = self.get_mut(handle)?;
        if pool.is_default {
            return Err(Code::INVALID_VALUE);
        }
        pool.destroyed = true;
        let (device, unused) = (pool.device, pool.used == 0);
        if self.current[device] == handle {
            self.current[device] = self.defaults[device];
        }
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
}
