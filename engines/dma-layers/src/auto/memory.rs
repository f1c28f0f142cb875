//! Memory of both members, and the device's keys for it.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dma_core::{Access, RawExport, RawRegion, RegionInfo, RegionKey, Result, Segment};

/// Memory that the device takes as well.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    end: u64,
    cpu: RegionKey,
    device: RegionKey,
}

impl Entry {
    fn holds(&self, segment: &Segment) -> bool {
        segment.key == self.cpu
            && segment.addr.0 >= self.start
            && segment.addr.0.saturating_add(segment.len as u64) <= self.end
    }
}

/// The device's keys, by address. Keys and addresses of [`AutoRegion`]s are those of the CPU's regions, so
/// that the CPU's descriptors pass unchanged.
#[derive(Debug, Default)]
pub(super) struct DeviceMap {
    /// Changes with `entries`.
    version: AtomicU64,
    /// By first address. They do not overlap.
    entries: RwLock<BTreeMap<u64, Entry>>,
}

impl DeviceMap {
    /// Adds a region. Overlapping ones are left to the CPU, all of them: an address does not tell which one a
    /// descriptor names, and so keeps registered.
    fn insert(&self, entry: Entry) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut overlaps = false;
        while let Some((&start, known)) = entries.range(..entry.end).next_back()
            && known.end > entry.start
        {
            entries.remove(&start);
            overlaps = true;
        }
        if !overlaps {
            entries.insert(entry.start, entry);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    fn remove(&self, start: u64, device: RegionKey) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.get(&start).is_some_and(|entry| entry.device == device) {
            entries.remove(&start);
        }
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// A queue's recent look-ups in a [`DeviceMap`].
#[derive(Debug, Default)]
pub(super) struct Recent {
    version: u64,
    entries: [Option<Entry>; 2],
    next: usize,
}

impl Recent {
    /// Returns the segment for the device, or `None` if only the CPU reaches it.
    pub(super) fn translate(&mut self, map: &DeviceMap, segment: Segment) -> Option<Segment> {
        // A region that was dropped since has another version: its drop came before the address was given to
        // the region that the segment names.
        let version = map.version.load(Ordering::Acquire);
        if version != self.version {
            *self = Self { version, ..Self::default() };
        }
        let known = self.entries.iter().flatten().find(|entry| entry.holds(&segment));
        let device = if let Some(entry) = known {
            entry.device
        } else {
            let entries = map.entries.read().unwrap_or_else(PoisonError::into_inner);
            let (_, entry) = entries.range(..=segment.addr.0).next_back()?;
            if !entry.holds(&segment) {
                return None;
            }
            self.next ^= 1;
            self.entries[self.next] = Some(*entry);
            entry.device
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
    map: Arc<DeviceMap>,
}

impl AutoRegion {
    /// Both members' regions of the same memory. A device that gives it another address is left out.
    pub(super) fn new(
        cpu: Box<dyn RawRegion>,
        device: Option<Box<dyn RawRegion>>,
        info: RegionInfo,
        map: &Arc<DeviceMap>,
    ) -> Self {
        let same = |own: &RegionInfo| own.addr == info.addr && own.len >= info.len && info.cpu.is_some();
        let device = device.filter(|region| same(region.info()));
        if let Some(region) = &device {
            let (start, len) = (info.addr.0, info.len as u64);
            map.insert(Entry { start, end: start + len, cpu: info.key, device: region.info().key });
        }
        Self { device, cpu, info, map: Arc::clone(map) }
    }
}

impl Drop for AutoRegion {
    fn drop(&mut self) {
        if let Some(region) = &self.device {
            self.map.remove(self.info.addr.0, region.info().key);
        }
    }
}

// SAFETY: the memory is that of the CPU's region, whose promises these are. The device's region of it is
// dropped at the same time, when no descriptor names either.
unsafe impl RawRegion for AutoRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: the caller's promise.
        unsafe { self.cpu.export(offset, len, rights) }
    }
}

#[cfg(test)]
mod tests {
    use dma_core::DeviceAddr;

    use super::*;

    const CPU: RegionKey = RegionKey(1);

    fn entry(start: u64, end: u64, device: usize) -> Entry {
        Entry { start, end, cpu: CPU, device: RegionKey(device) }
    }

    fn segment(key: RegionKey, addr: u64, len: usize) -> Segment {
        Segment { key, addr: DeviceAddr(addr), len }
    }

    #[test]
    fn segments_find_the_region_that_holds_them() {
        let (map, mut recent) = (DeviceMap::default(), Recent::default());
        map.insert(entry(100, 200, 7));
        map.insert(entry(200, 300, 8));
        for _ in 0..2 {
            let found = |addr, len, recent: &mut Recent| {
                recent.translate(&map, segment(CPU, addr, len)).map(|s| (s.key.0, s.addr.0, s.len))
            };
            assert_eq!(found(100, 100, &mut recent), Some((7, 100, 100)));
            assert_eq!(found(299, 1, &mut recent), Some((8, 299, 1)));
            assert_eq!(found(150, 100, &mut recent), None, "across two regions");
            assert_eq!(found(99, 2, &mut recent), None);
            assert_eq!(found(300, 1, &mut recent), None);
        }
        assert!(recent.translate(&map, segment(RegionKey(2), 100, 1)).is_none(), "another key of the CPU");
        map.remove(100, RegionKey(7));
        assert!(recent.translate(&map, segment(CPU, 100, 1)).is_none(), "it is gone");
        assert!(recent.translate(&map, segment(CPU, 200, 1)).is_some());
    }

    #[test]
    fn overlapping_regions_are_left_to_the_cpu() {
        let (map, mut recent) = (DeviceMap::default(), Recent::default());
        map.insert(entry(100, 200, 7));
        map.insert(entry(200, 300, 8));
        map.insert(entry(150, 250, 9));
        for addr in [100, 160, 240, 299] {
            assert!(recent.translate(&map, segment(CPU, addr, 1)).is_none());
        }
        map.insert(entry(100, 200, 10));
        map.remove(100, RegionKey(7));
        assert_eq!(recent.translate(&map, segment(CPU, 100, 1)).map(|s| s.key), Some(RegionKey(10)));
    }
}
