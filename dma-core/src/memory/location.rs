//! [`Location`]: the address space and address of a region's bytes, to detect whether two ranges overlap.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::{DeviceAddr, ExportDescriptor};

/// The address space of a region's bytes, and the offset from an address in descriptors to one in that space.
///
/// An address alone does not show whether two ranges overlap. Some devices name a peer's memory by its
/// address in the peer, where this process may have other memory. And an import of this process's own memory
/// may have an address that differs from that of the memory. Once the export is gone, that import no longer
/// reaches the memory, whose addresses other memory may have then.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// 0 for this process's memory; otherwise [`number_of`] the export.
    space: u64,
    /// The offset that, added to an address in descriptors, gives the address in the space.
    shift: u64,
    /// The export of this process that was imported. While the export exists, the import has the
    /// same bytes.
    own: Option<Arc<Listed>>,
}

/// The exports of this process, by number.
static EXPORTS: LazyLock<Mutex<HashMap<u64, Arc<Listed>>>> = LazyLock::new(Mutex::default);

/// An address space, and the address of an export's first byte in it.
#[derive(Debug)]
struct Listed {
    space: u64,
    start: u64,
    /// The number of exports with the same blob that exist.
    count: AtomicUsize,
}

fn exports() -> MutexGuard<'static, HashMap<u64, Arc<Listed>>> {
    EXPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of an export, which is not 0. Two exports have the same number with a probability of
/// 2^-63.
fn number_of(descriptor: &ExportDescriptor) -> u64 {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHER.hash_one((descriptor.backend(), descriptor.native())) | 1
}

impl Location {
    /// Memory of this process, or of a device whose addresses differ from those of this process.
    pub(crate) const HERE: Self = Self { space: 0, shift: 0, own: None };

    /// Returns the location of imported memory whose first byte is at `addr` in descriptors. If this process
    /// has exported the memory, it is that of the exported bytes, as long as the export exists.
    pub(crate) fn of_import(descriptor: &ExportDescriptor, addr: DeviceAddr) -> Self {
        let number = number_of(descriptor);
        let own = exports().get(&number).cloned();
        Self { space: number, shift: 0_u64.wrapping_sub(addr.0), own }
    }

    /// Returns the address space, and the address of a byte in it.
    #[inline]
    pub(crate) fn of(&self, addr: DeviceAddr) -> (u64, u64) {
        let address = addr.0.wrapping_add(self.shift);
        match &self.own {
            Some(own) if own.count.load(Ordering::Relaxed) > 0 => {
                (own.space, address.wrapping_add(own.start))
            }
            _ => (self.space, address),
        }
    }
}

/// An entry in the list of this process's exports, which exists as long as this value.
#[derive(Debug)]
pub(crate) struct ListedExport(u64);

impl ListedExport {
    /// Lists an export whose first byte has this [address](Location::of).
    pub(crate) fn new(descriptor: &ExportDescriptor, (space, start): (u64, u64)) -> Self {
        let number = number_of(descriptor);
        let listed = || Arc::new(Listed { space, start, count: AtomicUsize::new(0) });
        exports().entry(number).or_insert_with(listed).count.fetch_add(1, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for ListedExport {
    fn drop(&mut self) {
        let mut exports = exports();
        let last = |listed: &Arc<Listed>| listed.count.fetch_sub(1, Ordering::Relaxed) == 1;
        if exports.get(&self.0).is_some_and(last) {
            exports.remove(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    fn descriptor(native: &[u8]) -> ExportDescriptor {
        ExportDescriptor::new("cpu", Access::READ, 100, native).unwrap()
    }

    #[test]
    fn an_import_of_own_memory_is_where_that_memory_is() {
        let (own, peers) = (descriptor(b"own"), descriptor(b"a peer's"));
        let at = |descriptor: &ExportDescriptor, addr| {
            Location::of_import(descriptor, DeviceAddr(addr)).of(DeviceAddr(addr + 7))
        };
        let listed = ListedExport::new(&own, Location::HERE.of(DeviceAddr(5000)));
        assert_eq!(at(&own, 80), (0, 5007), "whatever address the import has");
        let (space, offset) = at(&peers, 5000);
        assert!(space != 0 && offset == 7, "the peer's address is not one of this process");
        assert_eq!(at(&peers, 80), (space, 7), "two imports of one export");
        assert_ne!(at(&descriptor(b"another"), 5000).0, space);
        // The entry stays as long as one of the two exports exists.
        let again = ListedExport::new(&own, Location::HERE.of(DeviceAddr(5000)));
        drop(listed);
        assert_eq!(at(&own, 80), (0, 5007));
        let import = Location::of_import(&own, DeviceAddr(80));
        assert_eq!(import.of(DeviceAddr(87)), (0, 5007));
        drop(again);
        assert_ne!(at(&own, 80).0, 0);
        assert_ne!(import.of(DeviceAddr(87)).0, 0, "other memory may have the addresses now");
    }
}
