//! Memory of both engines, and the device's keys for it.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dma_core::{Access, RawExport, RawRegion, RegionInfo, RegionKey, Result, Segment};

/// The device's key of each region that is registered with both engines, by the CPU's key. No other region of
/// the CPU has that key. The CPU's key is also the key of the [`AutoRegion`], so that the CPU's descriptors
/// pass unchanged.
#[derive(Debug, Default)]
pub(super) struct DeviceKeys {
    /// Changes when an entry is removed, because the CPU may give its key to another region then.
    version: AtomicU64,
    by_cpu_key: RwLock<HashMap<RegionKey, RegionKey>>,
}

impl DeviceKeys {
    fn insert(&self, cpu: RegionKey, device: RegionKey) {
        self.by_cpu_key.write().unwrap_or_else(PoisonError::into_inner).insert(cpu, device);
    }

    fn remove(&self, cpu: RegionKey) {
        self.by_cpu_key.write().unwrap_or_else(PoisonError::into_inner).remove(&cpu);
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// The latest keys that a queue has looked up, which are mostly those of the next copy.
#[derive(Debug, Default)]
pub(super) struct RecentKeys {
    version: u64,
    /// The CPU's key and the device's.
    entries: [Option<(RegionKey, RegionKey)>; 2],
    next: usize,
}

impl RecentKeys {
    /// Returns the segment for the device, or `None` if only the CPU reaches it.
    pub(super) fn translate(&mut self, keys: &DeviceKeys, segment: Segment) -> Option<Segment> {
        // The CPU gives a key to another region only after the region that had it was dropped, which changed
        // the version.
        let version = keys.version.load(Ordering::Acquire);
        if version != self.version {
            *self = Self { version, ..Self::default() };
        }
        let known = self.entries.iter().flatten().find(|(cpu, _)| *cpu == segment.key);
        let device = if let Some((_, device)) = known {
            *device
        } else {
            let by_cpu_key = keys.by_cpu_key.read().unwrap_or_else(PoisonError::into_inner);
            let device = *by_cpu_key.get(&segment.key)?;
            self.next ^= 1;
            self.entries[self.next] = Some((segment.key, device));
            device
        };
        Some(Segment { key: device, ..segment })
    }
}

/// Memory that the CPU reaches, and the device if it could be registered there.
#[derive(Debug)]
pub(super) struct AutoRegion {
    // Deregistered before the CPU's region, which may own the memory.
    device: Option<Box<dyn RawRegion>>,
    cpu: Box<dyn RawRegion>,
    info: RegionInfo,
    keys: Arc<DeviceKeys>,
}

impl AutoRegion {
    /// Makes one region of both engines' regions of the same memory. `info` has the id of the whole engine,
    /// and the CPU's key and address. A device that gives the memory another address is left out.
    pub(super) fn new(
        cpu: Box<dyn RawRegion>,
        device: Option<Box<dyn RawRegion>>,
        info: RegionInfo,
        keys: &Arc<DeviceKeys>,
    ) -> Self {
        let same = |own: &RegionInfo| own.addr == info.addr && own.len >= info.len && info.cpu.is_some();
        let device = device.filter(|region| same(region.info()));
        if let Some(region) = &device {
            keys.insert(info.key, region.info().key);
        }
        Self { device, cpu, info, keys: Arc::clone(keys) }
    }
}

impl Drop for AutoRegion {
    fn drop(&mut self) {
        if self.device.is_some() {
            self.keys.remove(self.info.key);
        }
    }
}

// SAFETY: the memory is that of the CPU's region, which lives as long and promises the rest. The CPU's region
// has the same key. No other region of this engine has that key, because each has its own region of the CPU.
// The device's region is dropped at the same time, when no descriptor names either.
unsafe impl RawRegion for AutoRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: the caller promises for these bytes what the CPU's region of them asks for. The device
        // accesses them only for descriptors, as the CPU does.
        unsafe { self.cpu.export(offset, len, rights) }
    }
}

#[cfg(test)]
mod tests {
    use dma_core::DeviceAddr;

    use super::*;

    fn translate(recent: &mut RecentKeys, keys: &DeviceKeys, cpu: usize) -> Option<(usize, u64)> {
        let segment = Segment { key: RegionKey(cpu), addr: DeviceAddr(100), len: 8 };
        recent.translate(keys, segment).map(|segment| (segment.key.0, segment.addr.0))
    }

    #[test]
    fn regions_of_the_same_bytes_have_keys_of_their_own() {
        let (keys, mut recent) = (DeviceKeys::default(), RecentKeys::default());
        for cpu in 1..=3 {
            keys.insert(RegionKey(cpu), RegionKey(10 * cpu));
        }
        for _ in 0..2 {
            for cpu in 1..=3 {
                assert_eq!(translate(&mut recent, &keys, cpu), Some((10 * cpu, 100)));
            }
        }
        assert_eq!(translate(&mut recent, &keys, 4), None, "it is the CPU's alone");
        keys.remove(RegionKey(2));
        assert_eq!([1, 2, 3].map(|cpu| translate(&mut recent, &keys, cpu).is_some()), [true, false, true]);
    }

    #[test]
    fn a_key_that_is_used_again_names_the_new_region() {
        let (keys, mut recent) = (DeviceKeys::default(), RecentKeys::default());
        keys.insert(RegionKey(1), RegionKey(7));
        assert_eq!(translate(&mut recent, &keys, 1), Some((7, 100)));
        keys.remove(RegionKey(1));
        keys.insert(RegionKey(1), RegionKey(8));
        assert_eq!(translate(&mut recent, &keys, 1), Some((8, 100)));
        keys.remove(RegionKey(1));
        assert_eq!(translate(&mut recent, &keys, 1), None);
    }
}
