//! A block of the file, or a hole.

use dma::BufferMut;

use crate::protocol::Digest;

/// A block of the file with its bytes, or a hole.
#[derive(Debug)]
pub(crate) struct Block {
    /// A buffer with the length of a full block. `None` for a hole, and while the device owns the buffer.
    pub(crate) buffer: Option<BufferMut>,
    /// Position in the file, in bytes.
    pub(crate) at: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    pub(crate) slot: u32,
    pub(crate) digest: Digest,
}

impl Block {
    /// The slot number that marks a hole.
    const NO_SLOT: u32 = u32::MAX;

    pub(crate) fn hole(at: u64, len: u64) -> Self {
        Self { buffer: None, at, len, slot: Self::NO_SLOT, digest: 0 }
    }

    pub(crate) fn is_hole(&self) -> bool {
        self.slot == Self::NO_SLOT
    }
}
