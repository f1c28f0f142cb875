//! Regions that both engines reach, and the device's keys for them.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dma_core::{
    Access, EngineId, Error, ErrorKind, RawExport, RawRegion, RegionInfo, RegionKey, Result, Segment,
};

/// The device's key of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceKey {
    pub(super) key: RegionKey,
    /// True if the CPU cannot copy the memory.
    pub(super) device_only: bool,
}

/// The device's keys of regions that are registered with it, indexed by the CPU's key. The CPU's keys are
/// unique. A CPU's key is also the key of the [`AutoRegion`], so that descriptors go to the CPU unchanged.
#[derive(Debug, Default)]
pub(super) struct DeviceKeys {
    /// Changes when an entry is removed, because the CPU may give its key to another region then.
    version: AtomicU64,
    /// The number of regions that the CPU cannot copy.
    device_only: AtomicUsize,
    by_cpu_key: RwLock<HashMap<RegionKey, DeviceKey>>,
}

impl DeviceKeys {
    fn insert(&self, cpu: RegionKey, device: DeviceKey) {
        self.device_only.fetch_add(device.device_only.into(), Ordering::Relaxed);
        self.by_cpu_key.write().unwrap_or_else(PoisonError::into_inner).insert(cpu, device);
    }

    fn remove(&self, cpu: RegionKey) {
        let removed = self.by_cpu_key.write().unwrap_or_else(PoisonError::into_inner).remove(&cpu);
        self.version.fetch_add(1, Ordering::Release);
        self.device_only.fetch_sub(removed.is_some_and(|key| key.device_only).into(), Ordering::Relaxed);
    }

    /// Returns true if a region exists that the CPU cannot copy.
    #[inline]
    pub(super) fn have_device_only(&self) -> bool {
        // Relaxed suffices: a thread that submits a descriptor with such a region has received the region, so
        // it also sees this count.
        self.device_only.load(Ordering::Relaxed) > 0
    }
}

/// The latest keys that a queue has looked up. The next copy usually has the same keys.
#[derive(Debug, Default)]
pub(super) struct RecentKeys {
    version: u64,
    /// Pairs of a CPU's key and a device's key.
    entries: [Option<(RegionKey, DeviceKey)>; 2],
    next: usize,
}

impl RecentKeys {
    /// Returns the segment for the device, or `None` if only the CPU reaches it.
    pub(super) fn translate(&mut self, keys: &DeviceKeys, segment: Segment) -> Option<Segment> {
        self.find(keys, segment.key).map(|device| Segment { key: device.key, ..segment })
    }

    /// Returns true if the CPU cannot copy the segment.
    pub(super) fn is_device_only(&mut self, keys: &DeviceKeys, segment: Segment) -> bool {
        self.find(keys, segment.key).is_some_and(|device| device.device_only)
    }

    /// Returns the device's region that has the CPU's key `cpu`.
    fn find(&mut self, keys: &DeviceKeys, cpu: RegionKey) -> Option<DeviceKey> {
        // The CPU gives a key to another region only after the region that had it was dropped, which changed
        // the version.
        let version = keys.version.load(Ordering::Acquire);
        if version != self.version {
            *self = Self { version, ..Self::default() };
        }
        if let Some((_, device)) = self.entries.iter().flatten().find(|(known, _)| *known == cpu) {
            return Some(*device);
        }
        let by_cpu_key = keys.by_cpu_key.read().unwrap_or_else(PoisonError::into_inner);
        let device = *by_cpu_key.get(&cpu)?;
        self.next ^= 1;
        self.entries[self.next] = Some((cpu, device));
        Some(device)
    }
}

/// Memory that the CPU reaches, and that the device also reaches if it could be registered; or memory of the
/// device.
#[derive(Debug)]
pub(super) struct AutoRegion {
    // The device's region, which is dropped before the CPU's region, because the CPU's region may own the
    // memory.
    device: Option<Box<dyn RawRegion>>,
    /// The CPU's region. For memory of the device, a placeholder that reserves the key.
    cpu: Box<dyn RawRegion>,
    device_only: bool,
    info: RegionInfo,
    keys: Arc<DeviceKeys>,
}

impl AutoRegion {
    /// Makes one region from both engines' regions of the same memory. `info` has the id of the whole engine,
    /// and the CPU's key and address. The device's region is not used if its address of the memory differs.
    pub(super) fn new(
        cpu: Box<dyn RawRegion>,
        device: Option<Box<dyn RawRegion>>,
        info: RegionInfo,
        keys: &Arc<DeviceKeys>,
    ) -> Self {
        let same = |own: &RegionInfo| own.addr == info.addr && own.len >= info.len && info.cpu.is_some();
        let device = device.filter(|region| same(region.info()));
        Self::insert(cpu, device, false, info, keys)
    }

    /// Makes a region of memory that only the device copies. `key` is a placeholder region of the CPU, whose
    /// bytes are never used: it reserves its key for the memory, so that no other region of the CPU gets the
    /// same key.
    pub(super) fn on_device(
        key: Box<dyn RawRegion>,
        device: Box<dyn RawRegion>,
        engine: EngineId,
        keys: &Arc<DeviceKeys>,
    ) -> Self {
        let info = RegionInfo { engine, key: key.info().key, ..*device.info() };
        Self::insert(key, Some(device), true, info, keys)
    }

    fn insert(
        cpu: Box<dyn RawRegion>,
        device: Option<Box<dyn RawRegion>>,
        device_only: bool,
        info: RegionInfo,
        keys: &Arc<DeviceKeys>,
    ) -> Self {
        if let Some(region) = &device {
            keys.insert(info.key, DeviceKey { key: region.info().key, device_only });
        }
        Self { device, cpu, device_only, info, keys: Arc::clone(keys) }
    }
}

impl Drop for AutoRegion {
    fn drop(&mut self) {
        if self.device.is_some() {
            self.keys.remove(self.info.key);
        }
    }
}

// SAFETY: the memory belongs to the CPU's region, or to the device's region if it is the device's memory.
// Both regions live as long as this one and meet the other requirements. The key is the CPU region's key,
// which is unique in this engine, because each of its regions has its own region of the CPU. The device's
// region is dropped at the same time, when no descriptor names either region.
unsafe impl RawRegion for AutoRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        if self.device_only {
            return Err(no_export());
        }
        // SAFETY: the requirements of the CPU's region for these bytes are those of this method, which the
        // caller meets. The device accesses them only for descriptors, as the CPU does.
        unsafe { self.cpu.export(offset, len, rights) }
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        let owner = self.device.as_ref().filter(|_| self.device_only).unwrap_or(&self.cpu);
        // SAFETY: the owner has the same bytes, and this method has the same requirements, which the caller
        // meets.
        unsafe { owner.dmabuf() }
    }
}

/// Returns the error of an export of device memory.
pub(super) fn no_export() -> Error {
    Error::new(ErrorKind::Unsupported, "device memory cannot be exported through the CPU")
        .with_hint("export host memory, or open the device by its own name")
}

#[cfg(test)]
mod tests {
    use dma_core::DeviceAddr;

    use super::*;

    fn translate(recent: &mut RecentKeys, keys: &DeviceKeys, cpu: usize) -> Option<(usize, u64)> {
        let segment = Segment { key: RegionKey(cpu), addr: DeviceAddr(100), len: 8 };
        recent.translate(keys, segment).map(|segment| (segment.key.0, segment.addr.0))
    }

    fn both(key: usize) -> DeviceKey {
        DeviceKey { key: RegionKey(key), device_only: false }
    }

    #[test]
    fn memory_of_the_device_is_known_while_it_exists() {
        let (keys, mut recent) = (DeviceKeys::default(), RecentKeys::default());
        let segment = |key| Segment { key: RegionKey(key), addr: DeviceAddr(100), len: 8 };
        keys.insert(RegionKey(1), both(7));
        assert!(!keys.have_device_only() && !recent.is_device_only(&keys, segment(1)));
        keys.insert(RegionKey(2), DeviceKey { device_only: true, ..both(9) });
        assert!(keys.have_device_only() && recent.is_device_only(&keys, segment(2)));
        assert_eq!(translate(&mut recent, &keys, 2), Some((9, 100)));
        keys.remove(RegionKey(2));
        assert!(!keys.have_device_only() && !recent.is_device_only(&keys, segment(2)));
    }

    #[test]
    fn regions_of_the_same_bytes_have_keys_of_their_own() {
        let (keys, mut recent) = (DeviceKeys::default(), RecentKeys::default());
        for cpu in 1..=3 {
            keys.insert(RegionKey(cpu), both(10 * cpu));
        }
        for _ in 0..2 {
            for cpu in 1..=3 {
                assert_eq!(translate(&mut recent, &keys, cpu), Some((10 * cpu, 100)));
            }
        }
        assert_eq!(translate(&mut recent, &keys, 4), None, "the memory is only registered with the CPU");
        keys.remove(RegionKey(2));
        assert_eq!([1, 2, 3].map(|cpu| translate(&mut recent, &keys, cpu).is_some()), [true, false, true]);
    }

    #[test]
    fn a_key_that_is_used_again_names_the_new_region() {
        let (keys, mut recent) = (DeviceKeys::default(), RecentKeys::default());
        keys.insert(RegionKey(1), both(7));
        assert_eq!(translate(&mut recent, &keys, 1), Some((7, 100)));
        keys.remove(RegionKey(1));
        keys.insert(RegionKey(1), both(8));
        assert_eq!(translate(&mut recent, &keys, 1), Some((8, 100)));
        keys.remove(RegionKey(1));
        assert_eq!(translate(&mut recent, &keys, 1), None);
    }
}
