//! Regions, as callers register them: keys, rights, and access to a peer's memory.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::RegionKey;
use dma_process::count;

bitflags::bitflags! {
    /// Access rights of a region.
    ///
    /// The local rights apply to the device on which a region is registered. The remote rights apply to a
    /// peer's device. They also apply to this device if the region is [remote](RegionSpec::remote).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// The device itself may read the region.
        const LOCAL_READ = 1;
        /// The device itself may write the region.
        const LOCAL_WRITE = 2;
        /// A peer's device may read the region.
        const REMOTE_READ = 4;
        /// A peer's device may write the region.
        const REMOTE_WRITE = 8;
    }
}

impl fmt::Display for Rights {
    /// Formats rights as in `read+write`. Remote rights are written as in `remote-read`, and no rights as
    /// `none`.
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

/// Number of bits of a key that are the index into the table of regions. The other bits count the uses of
/// that index, so that keys of unregistered regions are never reused.
const INDEX_BITS: u32 = usize::BITS / 2;

/// Maximum number of keys in use at a time, and of uses of an index.
pub(super) const MAX_REGIONS: usize = 1 << INDEX_BITS;

/// Returns the key of an index and its generation, which counts the uses of the index. Both are below
/// [`MAX_REGIONS`].
pub(super) const fn key(index: u32, generation: u32) -> RegionKey {
    RegionKey((generation as usize) << INDEX_BITS | index as usize)
}

/// Returns the index and the generation of a key.
#[inline]
pub(super) const fn parts(key: RegionKey) -> (u32, u32) {
    ((key.0 & (MAX_REGIONS - 1)) as u32, (key.0 >> INDEX_BITS) as u32)
}

/// A key's name in errors and traces. It is the same on every machine.
pub(super) struct KeyName(pub(super) RegionKey);

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = parts(self.0);
        write!(f, "{index}.{generation}")
    }
}

/// Reason why a peer's memory cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// The peer revoked its memory.
    Revoked,
    /// The peer has ended.
    Gone,
}

/// Access to a peer's memory. The model acquires it each time before it moves bytes.
///
/// The model calls [`acquire`](Self::acquire), moves some bytes, and calls [`release`](Self::release), all
/// within one call of [`Device::advance`](super::Device::advance). So a peer waits for at most one memory
/// copy. A copy may acquire access several times.
pub trait PeerAccess: fmt::Debug + Send + Sync {
    /// Acquires access. After `Ok` the memory stays valid until [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// After an error, the memory must not be accessed, now or later.
    fn acquire(&self) -> Result<(), PeerError>;

    /// Releases the access that one successful [`acquire`](Self::acquire) has granted.
    fn release(&self);
}

/// A peer's memory that has no address in this process. Calls read and write its bytes.
///
/// The model calls these methods within [`Device::advance`](super::Device::advance), with at most its
/// buffer's size for each call. So a peer that revokes its memory waits for at most one such call.
pub trait FarMemory: fmt::Debug + Send + Sync {
    /// Copies bytes from `offset` of the region to `to`.
    ///
    /// # Errors
    ///
    /// The peer's memory cannot be accessed, now or later. The contents of `to` are unspecified.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError>;

    /// Copies `from` to the region at `offset`.
    ///
    /// # Errors
    ///
    /// The peer's memory cannot be accessed, now or later. Some of the bytes may have been written.
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
    /// Describes memory of this process. Descriptors name it by its own addresses.
    #[must_use]
    pub fn local(ptr: NonNull<u8>, len: u64, rights: Rights) -> Self {
        Self { addr: ptr.as_ptr().addr() as u64, len, rights, memory: RegionMemory::Local(ptr) }
    }

    /// Describes a peer's memory that is mapped at `ptr` in this process. Descriptors name it by the
    /// peer's addresses, which begin at `addr`.
    #[must_use]
    pub fn remote(addr: u64, ptr: NonNull<u8>, len: u64, rights: Rights, peer: Arc<dyn PeerAccess>) -> Self {
        Self { addr, len, rights, memory: RegionMemory::Shared(ptr, peer) }
    }

    /// Describes a peer's memory that has no address in this process. Descriptors name it by the peer's
    /// addresses, which begin at `addr`.
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
    /// The range exceeds the address space.
    #[error("a region of {} at {addr:#x} ends beyond the last address; check both numbers", count(*len, "byte", "bytes"))]
    OutOfAddresses {
        /// The requested first address.
        addr: u64,
        /// The requested length.
        len: u64,
    },
    /// All keys of the table are in use.
    #[error("all {max} region keys of the device are taken; unregister regions")]
    OutOfKeys {
        /// The number of keys.
        max: usize,
    },
    /// The system does not have enough memory.
    #[error("there is not enough memory for a region of {}; request less", count(*len, "byte", "bytes"))]
    OutOfMemory {
        /// The requested length.
        len: u64,
    },
    /// No registered region has this key.
    #[error("region {} is not registered; it may have been unregistered before", KeyName(*.key))]
    Unknown {
        /// The given key.
        key: RegionKey,
    },
    /// Tasks in flight name the region.
    #[error(
        "region {} is named by segments of tasks in flight ({segments}); let them complete or reset their channels",
        KeyName(*.key)
    )]
    InUse {
        /// The given key.
        key: RegionKey,
        /// Number of segments of tasks in flight that name it.
        segments: u32,
    },
    /// The memory was not allocated by the device, and so cannot be read and written through it.
    #[error("region {} was registered, not allocated by the device; access it where it was allocated", KeyName(*.key))]
    NotOwned {
        /// The given key.
        key: RegionKey,
    },
    /// The range is not within the region.
    #[error("not within region {}: {} at {addr:#x}", KeyName(*.key), count(*len, "byte", "bytes"))]
    OutOfRange {
        /// The given key.
        key: RegionKey,
        /// The requested first address.
        addr: u64,
        /// The requested length.
        len: u64,
    },
}
