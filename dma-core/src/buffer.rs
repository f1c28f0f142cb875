//! [`BufferMut`] and [`Buffer`]: local registered memory, in the style of the `bytes` crate.
#![expect(unsafe_code, reason = "makes slices of registered memory")]

use std::fmt;
use std::ops::{Deref, DerefMut, RangeBounds};

use bytes::Bytes;

use crate::Window;
use crate::region::{Range, Region};

/// A unique, writable view of local registered memory.
///
/// It is the only view of its bytes: it splits into disjoint views without a copy, and moves into an operation, from which it
/// comes back with the completion. So nobody can hold a slice of bytes that a device may be writing.
///
/// ```
/// # fn demo(buffer: dma_core::BufferMut) {
/// let mut head = buffer;
/// let tail = head.split_off(16);     // no copy: two views of one region
/// head.fill(1);                      // a slice like any other
/// let shared = tail.freeze();        // read-only from here on, cheap to clone
/// let bytes: bytes::Bytes = shared.into();
/// # }
/// ```
pub struct BufferMut(pub(crate) Range);

impl BufferMut {
    /// The only view of a region that the CPU can reach. The caller made the region and has given it to nobody else.
    pub(crate) fn sole(region: Region) -> Self {
        debug_assert!(region.0.cpu_visible);
        Self(Range::whole(region))
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The region that it views.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// Where it begins in its region, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.offset()
    }

    /// Splits off the first `at` bytes; `self` keeps the rest. No copy.
    ///
    /// # Panics
    ///
    /// If there are fewer than `at` bytes.
    #[must_use = "the bytes split off are freed with their region if dropped"]
    pub fn split_to(&mut self, at: usize) -> Self {
        Self(self.0.split_to(at))
    }

    /// Splits off the bytes from `at` on; `self` keeps the first `at`. No copy.
    ///
    /// # Panics
    ///
    /// If there are fewer than `at` bytes.
    #[must_use = "the bytes split off are freed with their region if dropped"]
    pub fn split_off(&mut self, at: usize) -> Self {
        Self(self.0.split_off(at))
    }

    /// Puts back what was split off: `next` must begin where `self` ends. No copy.
    ///
    /// # Errors
    ///
    /// `next`, unchanged, if it does not.
    pub fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        if self.0.touches(&next.0) {
            self.0.len += next.0.len;
            Ok(())
        } else {
            Err(next)
        }
    }

    /// Makes it read-only and shared. No copy.
    #[must_use]
    pub fn freeze(self) -> Buffer {
        Buffer(self.0)
    }

    /// Makes it memory that a peer may be given access to: reached by copy from here on, never by reference.
    #[must_use]
    pub fn share(self) -> Window {
        Window::new(self.0)
    }
}

impl Deref for BufferMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in a CPU-visible region that it keeps alive, whose bytes are initialized, and this is the only view
        // of them: a transfer that writes them would own it.
        unsafe { std::slice::from_raw_parts(self.0.ptr.as_ptr(), self.0.len) }
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.ptr.as_ptr(), self.0.len) }
    }
}

impl AsRef<[u8]> for BufferMut {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for BufferMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferMut").field(&self.0).finish()
    }
}

/// A shared, read-only view of local registered memory. Cloning and slicing copy nothing.
///
/// It can be the source of any number of operations at once, and becomes a [`bytes::Bytes`] without a copy.
#[derive(Clone)]
pub struct Buffer(pub(crate) Range);

impl Buffer {
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The region that it views.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// Where it begins in its region, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.offset()
    }

    /// The bytes that `range` names, as a view of their own. No copy.
    ///
    /// # Panics
    ///
    /// If the range is not inside of this view.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        Self(self.0.slice(range))
    }

    /// Splits off the first `at` bytes; `self` keeps the rest. No copy.
    ///
    /// # Panics
    ///
    /// If there are fewer than `at` bytes.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Self {
        Self(self.0.split_to(at))
    }

    /// Splits off the bytes from `at` on; `self` keeps the first `at`. No copy.
    ///
    /// # Panics
    ///
    /// If there are fewer than `at` bytes.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        Self(self.0.split_off(at))
    }

    /// Makes it writable again, if it is the last view of its region, whole. No copy.
    ///
    /// # Errors
    ///
    /// The buffer, unchanged, if another view, a transfer in flight or an export uses the region.
    pub fn try_into_mut(self) -> Result<BufferMut, Self> {
        if self.0.region.is_sole() { Ok(BufferMut(self.0)) } else { Err(self) }
    }
}

impl Region {
    /// Whether the caller's is the only handle: nobody can make another one behind its back.
    pub(crate) fn is_sole(&self) -> bool {
        std::sync::Arc::strong_count(&self.0) == 1 && {
            // Pairs with the release of the handles dropped elsewhere: what their owners did to the bytes happened before.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            true
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in a CPU-visible region that it keeps alive, whose bytes are initialized; all views of them are
        // read-only, so no operation can have them as its destination.
        unsafe { std::slice::from_raw_parts(self.0.ptr.as_ptr(), self.0.len) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<BufferMut> for Buffer {
    fn from(buffer: BufferMut) -> Self {
        buffer.freeze()
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.0).finish()
    }
}
