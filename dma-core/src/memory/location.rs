//! [`Location`]: the address space and address of a region's bytes, to detect whether two ranges overlap.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::{DeviceAddr, ExportDescriptor};

/// The address space of a region's bytes, and the offset from an address in descriptors to one in that space.
///
/// An address alone does not show whether two ranges overlap. Some devices name a peer's memory by its
/// address in the peer, where this process may have other memory. And an import of this process's own memory
/// may have an address that differs from that of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// 0 for this process's memory; otherwise [`number_of`] the peer's export.
    space: u64,
    /// The offset that, added to an address in descriptors, gives the address in the space.
    shift: u64,
}

/// The exports of this process, by number, with their address spaces and first addresses there.
static EXPORTS: LazyLock<Mutex<HashMap<u64, Listed>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Listed {
    space: u64,
    start: u64,
    /// The number of exports with the same blob.
    count: usize,
}

fn exports() -> MutexGuard<'static, HashMap<u64, Listed>> {
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
    pub(crate) const HERE: Self = Self { space: 0, shift: 0 };

    /// Returns the location of imported memory whose first byte is at `addr` in descriptors. If this process
    /// has exported the memory, returns the location of the exported bytes.
    pub(crate) fn of_import(descriptor: &ExportDescriptor, addr: DeviceAddr) -> Self {
        let number = number_of(descriptor);
        let (space, start) = exports().get(&number).map_or((number, 0), |own| (own.space, own.start));
        Self { space, shift: start.wrapping_sub(addr.0) }
    }

    /// Returns the address space, and the address of a byte in it.
    #[inline]
    pub(crate) const fn of(self, addr: DeviceAddr) -> (u64, u64) {
        (self.space, addr.0.wrapping_add(self.shift))
    }
}

/// An entry in the list of this process's exports, which exists as long as this value.
#[derive(Debug)]
pub(crate) struct ListedExport(u64);

impl ListedExport {
    /// Lists an export whose first byte has this [address](Location::of).
    pub(crate) fn new(descriptor: &ExportDescriptor, (space, start): (u64, u64)) -> Self {
        let number = number_of(descriptor);
        exports().entry(number).or_insert(Listed { space, start, count: 0 }).count += 1;
        Self(number)
    }
}

impl Drop for ListedExport {
    fn drop(&mut self) {
        let mut exports = exports();
        if let Some(listed) = exports.get_mut(&self.0) {
            listed.count -= 1;
            if listed.count == 0 {
                exports.remove(&self.0);
            }
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
        drop(again);
        assert_ne!(at(&own, 80).0, 0);
    }
}
