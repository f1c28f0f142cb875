//! Digests of blocks, and of the sequence of all block digests.

use twox_hash::XxHash3_128;

use crate::protocol::{Checksum, Digest};

/// Returns the digest of a block.
pub(crate) fn of(checksum: Checksum, bytes: &[u8]) -> Digest {
    match checksum {
        Checksum::None => 0,
        Checksum::Xxh3 => XxHash3_128::oneshot(bytes),
    }
}

/// The digest of all block digests; 0 if blocks are not checked.
pub(crate) struct OfBlocks(Option<XxHash3_128>);

impl OfBlocks {
    pub(crate) fn new(checksum: Checksum) -> Self {
        Self((checksum == Checksum::Xxh3).then(XxHash3_128::new))
    }

    /// Adds the digest of a block or hole of `len` bytes.
    pub(crate) fn add(&mut self, len: u64, digest: Digest) {
        if let Some(hasher) = &mut self.0 {
            hasher.write(&len.to_le_bytes());
            hasher.write(&digest.to_le_bytes());
        }
    }

    pub(crate) fn finish(&self) -> Digest {
        self.0.as_ref().map_or(0, XxHash3_128::finish_128)
    }
}
