//! [`Location`]: the address space and the address of a region's bytes, to detect whether two ranges overlap.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use dma_process::ForkLock;
use once_cell::race::OnceNonZeroUsize;

use crate::{DeviceAddr, ExportDescriptor};

/// The address space of a region's bytes, and the offset that converts an address in descriptors to an
/// address in that space.
///
/// Addresses alone do not tell whether two ranges overlap. In descriptors of some devices, imported memory
/// has its address in the peer. This process may have other memory at the same address. If this process
/// imports its own export, the import may have another address than the memory. After the export is revoked,
/// the import no longer reaches the memory, and other memory may be at these addresses.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// 0 for this process's memory; otherwise [`number_of`] the export.
    space: u64,
    /// The sum of this offset and an address in descriptors is the address in the space.
    shift: u64,
    /// The export of this process that was imported, if any. While the export exists, the import contains the
    /// exported bytes.
    own: Option<Arc<Listed>>,
}

/// The exports of this process, by number.
static EXPORTS: ForkLock<HashMap<u64, Arc<Listed>>> = ForkLock::new(HashMap::new);

/// An address space, and the address of an export's first byte in it.
#[derive(Debug)]
struct Listed {
    space: u64,
    start: u64,
    /// Number of existing exports with the same blob.
    count: AtomicUsize,
}

fn exports() -> MutexGuard<'static, HashMap<u64, Arc<Listed>>> {
    EXPORTS.lock()
}

/// Returns the number of an export: a hash that is never 0. Two exports have the same number with a
/// probability of 2^-63. A peer that knows the function cannot choose equal numbers, because each process
/// hashes a random number first.
fn number_of(descriptor: &ExportDescriptor) -> u64 {
    static RANDOM: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let random = RANDOM.get_or_init(|| NonZeroUsize::MIN | RandomState::new().hash_one(()) as usize);
    let mut hasher = DefaultHasher::new();
    (random, descriptor.backend(), descriptor.native()).hash(&mut hasher);
    hasher.finish() | 1
}

impl Location {
    /// The location of this process's memory, and of device memory, whose addresses differ from all addresses
    /// of this process's memory.
    pub(crate) const HERE: Self = Self { space: 0, shift: 0, own: None };

    /// Returns the location of imported memory whose first byte is at `addr` in descriptors. If this process
    /// has exported the memory, and as long as the export exists, this is the location of the exported bytes.
    pub(crate) fn of_import(descriptor: &ExportDescriptor, addr: DeviceAddr) -> Self {
        let number = number_of(descriptor);
        let own = exports().get(&number).cloned();
        Self { space: number, shift: 0_u64.wrapping_sub(addr.0), own }
    }

    /// Returns the address space and the byte's address in that space.
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

/// An entry in the list of this process's exports. Dropping this value removes the entry.
#[derive(Debug)]
pub(crate) struct ListedExport(u64);

impl ListedExport {
    /// Adds an export whose first byte has this [address](Location::of).
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
        assert_eq!(
            at(&own, 80),
            (0, 5007),
            "an import has the location of the export, whatever its address is"
        );
        let (space, offset) = at(&peers, 5000);
        assert!(
            space != 0 && offset == 7,
            "a peer's address is in another address space than this process's memory"
        );
        assert_eq!(at(&peers, 80), (space, 7), "two imports of one export have the same location");
        assert_ne!(at(&descriptor(b"another"), 5000).0, space);
        // The entry is kept as long as one of the two exports exists.
        let again = ListedExport::new(&own, Location::HERE.of(DeviceAddr(5000)));
        drop(listed);
        assert_eq!(at(&own, 80), (0, 5007));
        let import = Location::of_import(&own, DeviceAddr(80));
        assert_eq!(import.of(DeviceAddr(87)), (0, 5007));
        drop(again);
        assert_ne!(at(&own, 80).0, 0);
        assert_ne!(
            import.of(DeviceAddr(87)).0,
            0,
            "an import of a revoked export does not have the location of this process's memory"
        );
    }
}
