//! Moves the bytes of descriptors. Imported memory is accessed under a lease.
#![expect(unsafe_code, reason = "moves bytes between raw addresses")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::racy_copy::{self, copy_crc32c, copy_crc32c_past_cache};
use dma_core::{Completion, ErrorKind, RegionKey, Segment};

use super::Kernel;
use super::copy_tuner::STREAM_MIN;
use dma_ipc::{Import, Lease, RemoteError};

/// Maximum length of a descriptor. A descriptor completes long before a caller considers the engine stalled,
/// and in fewer polls (of about one chunk each) than a waiting thread makes before it sleeps.
pub(super) const MAX_TRANSFER: usize = 16 << 20;

/// Returns true if the memory with this key needs no lease, because it is allocated or registered. Such keys
/// come from [`RegionKey::unique`] and are odd; keys of [`key_of`] are even.
#[inline]
pub(super) const fn is_local(key: RegionKey) -> bool {
    key.0 & 1 == 1
}

/// Returns the key of imported memory: the import's address, which is constant while the region lives.
pub(super) fn key_of(import: &Arc<Import>) -> RegionKey {
    const { assert!(align_of::<Import>() > 1) };
    RegionKey(Arc::as_ptr(import).expose_provenance())
}

/// The reason of a failure. The numbers are the `native` codes of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Failure {
    /// The exporter revoked the memory.
    Revoked = 1,
    /// The exporting process ended.
    PeerGone = 2,
    /// The import has the maximum number of leases.
    TooManyLeases = 3,
    /// Access to shared memory failed for an unknown reason.
    Shared = 4,
    /// The queue was stopped before this operation.
    Stopped = 5,
}

impl Failure {
    pub(super) const ALL: [Self; 5] =
        [Self::Revoked, Self::PeerGone, Self::TooManyLeases, Self::Shared, Self::Stopped];

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| *failure as u8 == code)
    }

    /// Returns the error kind, the failure's name and its description.
    pub(super) fn describe(self) -> (ErrorKind, &'static str, &'static str) {
        match self {
            Self::Revoked => (ErrorKind::Revoked, "REVOKED", "the exporter revoked the memory"),
            Self::PeerGone => (ErrorKind::Revoked, "PEER_GONE", "the exporting process ended"),
            Self::TooManyLeases => {
                (ErrorKind::OutOfResources, "TOO_MANY_LEASES", "too many copies of one import at a time")
            }
            Self::Shared => (ErrorKind::DeviceFault, "SHARED_MEMORY", "the shared memory cannot be reached"),
            Self::Stopped => (ErrorKind::Aborted, "STOPPED", "the queue was stopped before"),
        }
    }
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Revoked { .. } | RemoteError::UnknownExport { .. } => Self::Revoked,
            RemoteError::PeerGone { .. } => Self::PeerGone,
            RemoteError::TooManyLeases { .. } => Self::TooManyLeases,
            _ => Self::Shared,
        }
    }
}

/// The kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkKind {
    #[default]
    Copy,
    Fill {
        pattern: [u8; 8],
    },
    CopyToBoth,
    Compare,
    Crc32c {
        seed: u32,
    },
    CopyCrc32c {
        seed: u32,
    },
}

impl WorkKind {
    /// Returns true if the completion carries a result.
    pub(super) const fn has_result(self) -> bool {
        matches!(self, Self::Compare | Self::Crc32c { .. } | Self::CopyCrc32c { .. })
    }

    /// Returns the initial result, before any chunk.
    pub(super) const fn initial(self) -> u64 {
        if matches!(self, Self::Compare) { Completion::EQUAL } else { 0 }
    }

    /// Combines the result of a chunk with those of other chunks, in any order.
    pub(super) fn merge(self, result: &AtomicU64, part: u64) {
        match self {
            Self::Compare => result.fetch_min(part, Ordering::Relaxed),
            _ => result.fetch_xor(part, Ordering::Relaxed),
        };
    }
}

/// Work on operands of equal length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) kind: WorkKind,
    /// Sources (none for a fill), or the first side of a comparison.
    pub(super) src: &'a [Segment],
    /// Destinations (none for a CRC), or the second side of a comparison.
    pub(super) dst: &'a [Segment],
}

impl Work<'_> {
    /// Executes the work on `len` bytes, from offset `skip` on. Returns the result of this chunk, for
    /// [`WorkKind::merge`]. Ranges that are too short for `kernel` use `memcpy`.
    ///
    /// # Safety
    ///
    /// The requirements for the segments are those of [`RawQueue::submit`](dma_core::RawQueue::submit).
    /// `skip + len` is within them.
    pub(super) unsafe fn run(self, skip: usize, len: usize, kernel: Kernel) -> Result<u64, Failure> {
        match self.kind {
            // SAFETY: the caller ensures access to the segments, and that `skip + len` lies within them.
            WorkKind::Copy => unsafe { copy(self.src, self.dst, skip, len, kernel)? },
            WorkKind::CopyToBoth => {
                let piece = suited(kernel, len).piece_of_both(len).max(1);
                for at in (0..len).step_by(piece) {
                    for dst in self.dst {
                        let (dst, n) = (std::slice::from_ref(dst), piece.min(len - at));
                        // SAFETY: the caller ensures access to the segments, and `at + n <= len`, so the
                        // piece lies within them.
                        unsafe { copy(self.src, dst, skip + at, n, kernel)? };
                    }
                }
            }
            // SAFETY: the caller ensures access to the segments, that their regions stay registered, and that
            // `skip + len` lies within them.
            WorkKind::Fill { pattern } => unsafe { fill(pattern, self.dst, skip, len, kernel)? },
            WorkKind::Compare => {
                let (a, b) = (self.src[0], self.dst[0]);
                // SAFETY: the caller ensures access to the segments and that their regions stay registered.
                let _a = unsafe { lease(a.key) }?;
                // SAFETY: the caller ensures access to the segments and that their regions stay registered.
                let _b = unsafe { lease(b.key) }?;
                let [a, b] = [a, b].map(|side| side.addr.offset(skip).as_ptr().cast_const());
                // SAFETY: the ranges lie within the segments, to which the caller ensures access, and leases
                // protect imported memory.
                let differs = unsafe { racy_copy::first_difference(a, b, len) };
                return Ok(differs.map_or(Completion::EQUAL, |at| (skip + at) as u64));
            }
            WorkKind::Crc32c { seed } | WorkKind::CopyCrc32c { seed } => {
                let (src, dst) = (self.src[0], self.dst.first());
                // SAFETY: the caller ensures access to the segments and that their regions stay registered.
                let _src = unsafe { lease(src.key) }?;
                // SAFETY: the caller ensures access to the segments and that their regions stay registered.
                let _dst = unsafe { dst.map(|dst| lease(dst.key)) }.transpose()?;
                let seed = if skip == 0 { seed } else { 0 };
                let from = src.addr.offset(skip).as_ptr().cast_const();
                let crc = match dst {
                    Some(dst) => {
                        let past_cache = suited(kernel, len).is_streaming();
                        let copy = if past_cache { copy_crc32c_past_cache } else { copy_crc32c };
                        // SAFETY: the ranges lie within the segments, to which the caller ensures access and
                        // which do not overlap. Leases protect imported memory.
                        unsafe { copy(seed, dst.addr.offset(skip).as_ptr(), from, len) }
                    }
                    // SAFETY: the range lies within the segment, to which the caller ensures access, and a
                    // lease protects imported memory.
                    None => unsafe { racy_copy::crc32c(seed, from, len) },
                };
                // CRCs are linear: the CRC of the whole is the XOR of the parts' CRCs, each shifted by its
                // distance from the end.
                return Ok(behind(crc, src.len - skip - len).into());
            }
        }
        Ok(0)
    }
}

/// Multiplies two CRCs as polynomials over the field of two elements, modulo the CRC-32C polynomial. The
/// highest bit is the coefficient of `x^0`.
const fn product(a: u32, mut b: u32) -> u32 {
    /// CRC-32C's polynomial (RFC 3720, appendix B.4), in this order of bits.
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let mut sum = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        if a >> bit & 1 == 1 {
            sum ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    sum
}

/// Returns the contribution of `crc` to the CRC of its data followed by `bytes` more bytes: its product with
/// `x^(8 * bytes)`.
fn behind(crc: u32, bytes: usize) -> u32 {
    /// The `n`th entry is `x^(8 * 2^n)`.
    const POWERS: [u32; 32] = {
        let mut powers = [1 << 23; 32];
        let mut n = 1;
        while n < 32 {
            powers[n] = product(powers[n - 1], powers[n - 1]);
            n += 1;
        }
        powers
    };
    let powers = POWERS.iter().enumerate().filter(|(n, _)| bytes >> n & 1 == 1);
    powers.fold(crc, |crc, (_, power)| product(*power, crc))
}

/// # Safety
///
/// See [`Work::run`].
unsafe fn copy(
    src: &[Segment],
    dst: &[Segment],
    skip: usize,
    mut len: usize,
    kernel: Kernel,
) -> Result<(), Failure> {
    let (mut src, mut dst) = (Cursor::new(src, skip), Cursor::new(dst, skip));
    while len > 0 {
        let (from, to) = (src.piece(), dst.piece());
        let piece = from.len.min(to.len).min(len);
        // SAFETY: the caller ensures access to the segments and that their regions stay registered.
        let _from = unsafe { lease(from.key) }?;
        // SAFETY: the caller ensures access to the segments and that their regions stay registered.
        let _to = unsafe { lease(to.key) }?;
        // SAFETY: the ranges lie within the segments, to which the caller ensures access and which do not
        // overlap. Leases protect imported memory.
        unsafe { suited(kernel, piece).copy(to.addr.as_ptr(), from.addr.as_ptr(), piece) };
        src.advance(piece);
        dst.advance(piece);
        len -= piece;
    }
    Ok(())
}

/// # Safety
///
/// See [`Work::run`].
unsafe fn fill(
    mut pattern: [u8; 8],
    dst: &[Segment],
    skip: usize,
    mut len: usize,
    kernel: Kernel,
) -> Result<(), Failure> {
    let mut dst = Cursor::new(dst, skip);
    pattern.rotate_left(skip % 8);
    while len > 0 {
        let to = dst.piece();
        let piece = to.len.min(len);
        // SAFETY: the caller ensures access to the segment and that its region stays registered.
        let _to = unsafe { lease(to.key) }?;
        // SAFETY: the range lies within the segment, to which the caller has access, and a lease protects
        // imported memory.
        unsafe { suited(kernel, piece).fill(to.addr.as_ptr(), pattern, piece) };
        dst.advance(piece);
        pattern.rotate_left(piece % 8);
        len -= piece;
    }
    Ok(())
}

fn suited(kernel: Kernel, len: usize) -> Kernel {
    if len < STREAM_MIN { Kernel::memcpy() } else { kernel }
}

/// Returns a lease on imported memory for the copy of one range. Returns `None` for local memory.
///
/// # Safety
///
/// `key` belongs to a region that stays registered as long as the lease is used.
#[inline]
unsafe fn lease<'a>(key: RegionKey) -> Result<Option<Lease<&'a Import>>, Failure> {
    if is_local(key) {
        return Ok(None);
    }
    let import = ptr::with_exposed_provenance::<Import>(key.0);
    // SAFETY: the key came from `key_of`, and its region, which owns the import, is registered.
    let import = unsafe { &*import };
    Ok(Some(import.lease()?))
}

/// A position in a list of segments.
struct Cursor<'a> {
    list: &'a [Segment],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(list: &'a [Segment], skip: usize) -> Self {
        let mut cursor = Self { list, at: 0 };
        cursor.advance(skip);
        cursor
    }

    /// Returns the remainder of the current segment.
    fn piece(&self) -> Segment {
        let segment = self.list[0];
        let addr = segment.addr.offset(self.at);
        Segment { addr, len: segment.len - self.at, ..segment }
    }

    fn advance(&mut self, by: usize) {
        self.at += by;
        while let Some(segment) = self.list.first()
            && self.at >= segment.len
        {
            self.at -= segment.len;
            self.list = &self.list[1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crc_moves_by_as_many_bytes_as_follow() {
        for bytes in [0, 1, 2, 3, 1000, 4096, 262_144, MAX_TRANSFER] {
            for crc in [0, 1, 0x8000_0000, 0xE306_9283] {
                assert_eq!(behind(crc, bytes), crc32c::crc32c_combine(crc, 0, bytes), "{crc:x} {bytes}");
            }
        }
    }
}
