//! Digests of blocks, of files, and of the sequence of all block digests.

use twox_hash::XxHash3_128;

use crate::protocol::{Checksum, Digest};

/// Returns the digest of a block.
pub(crate) fn of(checksum: Checksum, bytes: &[u8]) -> Digest {
    match checksum {
        Checksum::None => Digest::default(),
        Checksum::Xxh3 => wide(XxHash3_128::oneshot(bytes)),
        Checksum::Blake3 => *blake3::hash(bytes).as_bytes(),
    }
}

/// A digest of bytes that arrive in pieces.
pub(crate) enum Running {
    None,
    Xxh3(Box<XxHash3_128>),
    Blake3(Box<blake3::Hasher>),
}

impl Running {
    pub(crate) fn new(checksum: Checksum) -> Self {
        match checksum {
            Checksum::None => Self::None,
            Checksum::Xxh3 => Self::Xxh3(Box::new(XxHash3_128::with_seed(0))),
            Checksum::Blake3 => Self::Blake3(Box::default()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Xxh3(hasher) => hasher.write(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// Adds the digest of a block or hole of `len` bytes to the digest of all block digests.
    pub(crate) fn add(&mut self, len: u64, digest: &Digest) {
        self.update(&len.to_le_bytes());
        self.update(digest);
    }

    pub(crate) fn finish(&self) -> Digest {
        match self {
            Self::None => Digest::default(),
            Self::Xxh3(hasher) => wide(hasher.finish_128()),
            Self::Blake3(hasher) => *hasher.finalize().as_bytes(),
        }
    }
}

/// Pads a digest of 128 bits with zeros.
fn wide(hash: u128) -> Digest {
    let mut digest = Digest::default();
    digest[..16].copy_from_slice(&hash.to_le_bytes());
    digest
}
