//! [`Allocation`]: memory that the driver knows, and the place of a range of it.

use super::GRANULE;

/// The kind of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    Device,
    /// Device memory of a module's variables, which only the module frees.
    Variables,
    /// Host memory of `cuMemHostAlloc`.
    Pinned,
    /// Host memory of the program.
    Registered {
        read_only: bool,
    },
    /// Memory of another process.
    Peer {
        host: bool,
    },
    /// Host memory of `cuMemAllocManaged`.
    Managed,
    /// Memory that a stream frees in its order. Programs cannot name it any more.
    Freeing {
        stream: u64,
        place: FreedPlace,
    },
}

impl AllocationKind {
    pub(crate) const fn is_on_device(self) -> bool {
        matches!(self, Self::Device | Self::Variables | Self::Peer { host: false })
    }
}

/// The place of memory that a stream frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedPlace {
    Device,
    Host,
    Peer,
}

/// Memory that the driver knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Device of the context that made the allocation.
    pub(crate) device: usize,
    /// Context that made the allocation, or 0 if the memory is from a pool.
    pub(crate) context: u64,
    /// Pool of the allocation, or 0.
    pub(crate) pool: u64,
    pub(crate) kind: AllocationKind,
    pub(crate) id: u64,
}

impl Allocation {
    pub(super) fn end(&self) -> u64 {
        self.addr + self.len
    }

    /// Returns the bytes that the allocation takes of the device's memory.
    pub(super) fn room(&self) -> u64 {
        self.len.next_multiple_of(GRANULE)
    }

    /// Returns the place of memory that `cuMemFree` and `cuMemFreeAsync` free, and `None` for other memory.
    /// `is_in_order` is true for the second.
    pub(super) const fn freed_place(&self, is_in_order: bool) -> Option<FreedPlace> {
        match self.kind {
            AllocationKind::Device => Some(FreedPlace::Device),
            AllocationKind::Pinned if self.pool != 0 => Some(FreedPlace::Host),
            AllocationKind::Managed if self.pool != 0 || !is_in_order => Some(FreedPlace::Host),
            AllocationKind::Peer { .. } if self.pool != 0 => Some(FreedPlace::Peer),
            _ => None,
        }
    }
}

/// The place of a range of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// Device memory, with the address of its bytes in this process.
    Device { bytes: u64 },
    /// Host memory that is pinned or registered.
    Host,
    /// Host memory that is registered for reading only.
    ReadOnly,
    /// Host memory that the driver does not know.
    Pageable,
}

impl Range {
    pub(crate) const fn bytes(self, addr: u64) -> u64 {
        match self {
            Self::Device { bytes } => bytes,
            _ => addr,
        }
    }
}
