//! Moves the bytes of descriptors: local memory, and imported memory under a lease.
#![expect(unsafe_code, reason = "moves bytes between raw addresses")]

use std::ptr;
use std::sync::Arc;

use dma_core::{ErrorKind, RegionKey, Segment};

use super::Kernel;
use super::copy_tuner::STREAM_MIN;
use dma_ipc::{Import, Lease, RemoteError};

/// Key of memory that needs no lease: allocated or registered.
pub(super) const LOCAL: RegionKey = RegionKey(0);

/// Returns the key of imported memory: the import's address, which is constant while the region lives.
pub(super) fn key_of(import: &Arc<Import>) -> RegionKey {
    RegionKey(Arc::as_ptr(import).expose_provenance())
}

/// Reason why bytes were not moved. The numbers are the `native` codes of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Failure {
    /// The exporter took the memory back.
    Revoked = 1,
    /// The exporting process ended.
    PeerGone = 2,
    /// The import has the most leases.
    TooManyLeases = 3,
    /// Shared memory failed in an unknown way.
    Shared = 4,
    /// The queue was stopped before.
    Stopped = 5,
}

impl Failure {
    pub(super) const ALL: [Self; 5] =
        [Self::Revoked, Self::PeerGone, Self::TooManyLeases, Self::Shared, Self::Stopped];

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| *failure as u8 == code)
    }

    /// Returns the category, its name and its description.
    pub(super) fn describe(self) -> (ErrorKind, &'static str, &'static str) {
        match self {
            Self::Revoked => (ErrorKind::Revoked, "REVOKED", "the exporter took the memory back"),
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

/// Operands, of equal length on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moves<'a> {
    Copy { src: &'a [Segment], dst: &'a [Segment] },
    Fill { pattern: [u8; 8], dst: &'a [Segment] },
}

impl Moves<'_> {
    /// Moves `len` bytes after the first `skip`. Pieces too short for `kernel` use `memcpy`.
    ///
    /// # Safety
    ///
    /// As [`RawQueue::submit`](dma_core::RawQueue::submit), of the segments; `skip + len` is not beyond them.
    pub(super) unsafe fn run(self, skip: usize, mut len: usize, kernel: Kernel) -> Result<(), Failure> {
        match self {
            Self::Copy { src, dst } => {
                let (mut src, mut dst) = (Cursor::new(src, skip), Cursor::new(dst, skip));
                while len > 0 {
                    let (from, to) = (src.piece(), dst.piece());
                    let piece = from.len.min(to.len).min(len);
                    // SAFETY: the caller promises that the regions are registered.
                    let _from = unsafe { lease(from.key) }?;
                    // SAFETY: as above.
                    let _to = unsafe { lease(to.key) }?;
                    // SAFETY: within the segments, whose access the caller promises, and under leases.
                    unsafe { suited(kernel, piece).copy(to.addr.as_ptr(), from.addr.as_ptr(), piece) };
                    src.advance(piece);
                    dst.advance(piece);
                    len -= piece;
                }
            }
            Self::Fill { mut pattern, dst } => {
                let mut dst = Cursor::new(dst, skip);
                pattern.rotate_left(skip % 8);
                while len > 0 {
                    let to = dst.piece();
                    let piece = to.len.min(len);
                    // SAFETY: the caller promises that the region is registered.
                    let _to = unsafe { lease(to.key) }?;
                    // SAFETY: within the segment, whose access the caller promises, and under a lease.
                    unsafe { suited(kernel, piece).fill(to.addr.as_ptr(), pattern, piece) };
                    dst.advance(piece);
                    pattern.rotate_left(piece % 8);
                    len -= piece;
                }
            }
        }
        Ok(())
    }
}

fn suited(kernel: Kernel, len: usize) -> Kernel {
    if len < STREAM_MIN { Kernel::memcpy() } else { kernel }
}

/// The right to touch imported memory for the length of one piece; nothing for local memory.
///
/// # Safety
///
/// `key` is that of a region which stays registered as long as the lease is used.
#[inline]
unsafe fn lease<'a>(key: RegionKey) -> Result<Option<Lease<'a>>, Failure> {
    if key == LOCAL {
        return Ok(None);
    }
    let import = ptr::with_exposed_provenance::<Import>(key.0);
    // SAFETY: the key came from `key_of`, and its region, which owns the import, is registered.
    let import = unsafe { &*import };
    Ok(Some(import.lease()?))
}

/// A place in a list of segments.
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

    /// Returns the rest of the current segment.
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
