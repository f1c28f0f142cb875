//! Moving what a descriptor names: local memory, and imported memory under a lease.
#![expect(unsafe_code, reason = "moves bytes between raw addresses")]

use std::ptr;
use std::sync::Arc;

use dma_core::{ErrorKind, RegionKey, Segment};

use super::Kernel;
use super::chooser::STREAM_MIN;
use crate::remote::{Import, Lease, RemoteError};

/// The key of memory that needs no lease: allocated or registered.
pub(super) const LOCAL: RegionKey = RegionKey(0);

/// Names imported memory: the key is the import's address, which does not change while the region lives.
pub(super) fn key_of(import: &Arc<Import>) -> RegionKey {
    RegionKey(Arc::as_ptr(import).expose_provenance())
}

/// Why bytes were not moved. The numbers are the `native` codes of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Failure {
    /// The exporter took the memory back.
    Revoked = 1,
    /// The exporting process ended.
    PeerGone = 2,
    /// The import has all the leases that it can have.
    TooManyLeases = 3,
    /// Shared memory failed in a way that this version knows nothing of.
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

    /// The category, its name, and what it means.
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

/// What is to be moved: of equal length on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moves<'a> {
    Copy { src: &'a [Segment], dst: &'a [Segment] },
    Fill { pattern: [u8; 8], dst: &'a [Segment] },
}

impl Moves<'_> {
    /// Moves `len` bytes, leaving out the first `skip`. Pieces too short for `kernel` go by `memcpy`.
    ///
    /// # Safety
    ///
    /// What [`RawQueue::submit`](dma_core::RawQueue::submit) asks for, of the segments; `skip + len` is not beyond them.
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

    /// What is left of the segment here.
    fn piece(&self) -> Segment {
        let segment = self.list[0];
        let addr = segment.addr.map_addr(|addr| addr.saturating_add(self.at));
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
