//! Regions as callers register them: keys, rights, and access to a peer's memory.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::RegionKey;

bitflags::bitflags! {
    /// Access rights of a region.
    ///
    /// The local rights apply to the device that a region is registered with. The remote rights apply to a
    /// peer's device, and to this device where the region is [remote](RegionSpec::remote).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// The device itself may read it.
        const LOCAL_READ = 1;
        /// The device itself may write it.
        const LOCAL_WRITE = 2;
        /// A peer's device may read it.
        const REMOTE_READ = 4;
        /// A peer's device may write it.
        const REMOTE_WRITE = 8;
    }
}

impl fmt::Display for Rights {
    /// Writes `read+write` and the like; the remote ones as `remote-read`; `none` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["read", "write", "remote-read", "remote-write"];
        let mut first = true;
        for (bit, name) in Self::all().iter().zip(names) {
            if self.contains(bit) {
                write!(f, "{}{name}", if first { "" } else { "+" })?;
                first = false;
            }
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

/// Bits of a key that are the index into the table of regions. The others count the uses of that index, so
/// that keys of unregistered regions are never reused.
const INDEX_BITS: u32 = usize::BITS / 2;

/// The number of keys in use at a time, and the number of uses of an index.
pub(super) const MAX_REGIONS: usize = 1 << INDEX_BITS;

/// Makes the key of an index and its generation, which counts its uses; both are below [`MAX_REGIONS`].
pub(super) const fn key(index: u32, generation: u32) -> RegionKey {
    RegionKey((generation as usize) << INDEX_BITS | index as usize)
}

/// Returns the index and the generation of a key.
#[inline]
pub(super) const fn parts(key: RegionKey) -> (u32, u32) {
    ((key.0 & (MAX_REGIONS - 1)) as u32, (key.0 >> INDEX_BITS) as u32)
}

/// A key as errors and traces name it: the same on every machine.
pub(super) struct KeyName(pub(super) RegionKey);

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = parts(self.0);
        write!(f, "{index}.{generation}")
    }
}

/// Reason why a peer's memory cannot be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// The peer took its memory back.
    Revoked,
    /// The peer ended.
    Gone,
}

/// Access to a peer's memory, which is acquired each time before bytes move.
///
/// The model calls [`acquire`](Self::acquire), moves some bytes, and calls [`release`](Self::release), all
/// within one call of [`Device::advance`](super::Device::advance). So a peer waits for one memory copy at
/// most. A copy may acquire access several times.
pub trait PeerAccess: fmt::Debug + Send + Sync {
    /// Acquires access. After `Ok` the memory stays valid until [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The memory must not be touched, now or later.
    fn acquire(&self) -> Result<(), PeerError>;

    /// Releases the access of one successful [`acquire`](Self::acquire).
    fn release(&self);
}

/// Memory of a peer that has no address in this process. Its bytes are read and written by calls.
///
/// The model calls these within one call of [`Device::advance`](super::Device::advance), for at most its
/// buffer's size at a time, so a peer that wants its memory back waits for one such piece at most.
pub trait FarMemory: fmt::Debug + Send + Sync {
    /// Copies the bytes from `offset` of the region to `to`.
    ///
    /// # Errors
    ///
    /// The peer's memory cannot be reached, now or later; `to` may hold anything.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError>;

    /// Copies `from` to the bytes from `offset` of the region.
    ///
    /// # Errors
    ///
    /// The peer's memory cannot be reached, now or later; some of the bytes may have been written.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), PeerError>;
}

/// Location of a region's bytes.
#[derive(Clone, Debug)]
pub enum RegionMemory {
    /// This process's own memory.
    Local(NonNull<u8>),
    /// A peer's memory that is mapped in this process.
    Shared(NonNull<u8>, Arc<dyn PeerAccess>),
    /// A peer's memory without an address in this process.
    Far(Arc<dyn FarMemory>),
}

/// Memory to register, and its rights.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// Address by which descriptors name the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access rights.
    pub rights: Rights,
    /// Location of the bytes.
    pub memory: RegionMemory,
}

impl RegionSpec {
    /// Describes memory of this process, named by its own addresses.
    #[must_use]
    pub fn local(ptr: NonNull<u8>, len: u64, rights: Rights) -> Self {
        Self { addr: ptr.as_ptr().addr() as u64, len, rights, memory: RegionMemory::Local(ptr) }
    }

    /// Describes memory of a peer, mapped at `ptr` here and named by the peer's addresses from `addr`.
    #[must_use]
    pub fn remote(addr: u64, ptr: NonNull<u8>, len: u64, rights: Rights, peer: Arc<dyn PeerAccess>) -> Self {
        Self { addr, len, rights, memory: RegionMemory::Shared(ptr, peer) }
    }

    /// Describes memory of a peer that has no address here, named by the peer's addresses from `addr`.
    #[must_use]
    pub fn far(addr: u64, len: u64, rights: Rights, memory: Arc<dyn FarMemory>) -> Self {
        Self { addr, len, rights, memory: RegionMemory::Far(memory) }
    }

    /// Returns true for a peer's memory.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        !matches!(self.memory, RegionMemory::Local(_))
    }
}

/// Error of the table of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The addresses do not exist.
    #[error("a region of {len} bytes at {addr:#x} ends behind the last address; check both")]
    OutOfAddresses {
        /// The requested first address.
        addr: u64,
        /// The requested length.
        len: u64,
    },
    /// The table has no key left.
    #[error("all {max} region keys of the device are taken; unregister regions")]
    OutOfKeys {
        /// The number of keys.
        max: usize,
    },
    /// The system has not enough memory.
    #[error("no memory for a region of {len} bytes; ask for less")]
    OutOfMemory {
        /// The requested length.
        len: u64,
    },
    /// No such region.
    #[error("region {} is not registered; it may have been unregistered before", KeyName(*.key))]
    Unknown {
        /// The key given.
        key: RegionKey,
    },
    /// Tasks in flight name the region.
    #[error(
        "region {} is named by segments of tasks in flight ({segments}); let them complete or reset their channels",
        KeyName(*.key)
    )]
    InUse {
        /// The key given.
        key: RegionKey,
        /// Number of segments of tasks in flight that name it.
        segments: u32,
    },
    /// Only memory that the device allocated can be read and written through it.
    #[error("region {} was registered, not allocated by the device; access it where it was allocated", KeyName(*.key))]
    NotOwned {
        /// The key given.
        key: RegionKey,
    },
    /// The range is not in the region.
    #[error("{len} bytes at {addr:#x} are not within region {}", KeyName(*.key))]
    OutOfRange {
        /// The key given.
        key: RegionKey,
        /// The requested first address.
        addr: u64,
        /// The requested length.
        len: u64,
    },
}
