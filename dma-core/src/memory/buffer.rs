//! [`BufferMut`] and [`Buffer`]: local registered memory, in the style of the `bytes` crate.
#![expect(unsafe_code, reason = "makes slices of registered memory")]

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use crate::memory::range::{Range, view_methods};
use crate::memory::region::Region;

/// A unique, writable view of local registered memory.
///
/// A `BufferMut` is the only view of its bytes. It can be split into disjoint views without copying. It moves
/// into an operation, and the completion returns it. Therefore no slice of bytes exists while a device may
/// write them.
///
/// ```
/// # fn demo(buffer: dma_core::BufferMut) {
/// let mut head = buffer;
/// let tail = head.split_off(16);     // two views of one region, without a copy
/// head.fill(1);                      // a buffer is a slice
/// let shared = tail.freeze();        // now read-only and cheap to clone
/// let bytes: bytes::Bytes = shared.into();
/// # }
/// ```
pub struct BufferMut(pub(crate) Range);

view_methods!(BufferMut: split);

impl BufferMut {
    /// Makes the only view of a new region, which the CPU must be able to reach.
    pub(crate) fn sole(region: Region) -> Self {
        debug_assert!(region.is_cpu_visible());
        Self(Range::whole(region))
    }

    /// Joins `next`, which must begin where `self` ends, without copying.
    ///
    /// # Errors
    ///
    /// `next`, unchanged, if it does not begin where `self` ends. A function that returns [`Error`] converts
    /// it:
    ///
    /// ```
    /// # use dma_core::{BufferMut, Error, ErrorKind, Result};
    /// fn join(head: &mut BufferMut, tail: BufferMut) -> Result<()> {
    ///     let apart = |_| Error::new(ErrorKind::InvalidArgument, "the halves are of different buffers");
    ///     head.unsplit(tail).map_err(apart)
    /// }
    /// ```
    ///
    /// [`Error`]: crate::Error
    pub fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        if self.0.touches(&next.0) {
            self.0.len += next.0.len;
            Ok(())
        } else {
            Err(next)
        }
    }

    /// Makes the buffer read-only and shared, without copying.
    #[must_use]
    pub fn freeze(self) -> Buffer {
        Buffer(self.0)
    }
}

/// Defines `into_owner` for both buffer types.
macro_rules! into_owner {
    ($view:ident) => {
        impl $view {
            /// Deregisters the region and returns the owner of its memory, if the owner's type is `M` and
            /// this is the last view of the region. The view may be a part of the region. May block while the
            /// system unpins the memory.
            ///
            /// # Errors
            ///
            /// The buffer, unchanged, if another view, a transfer in flight or an export uses the region, if
            /// the owner is of another type, or if the memory belongs to the engine or to a pool.
            pub fn into_owner<M: std::any::Any>(self) -> Result<M, Self> {
                let Range { region, addr, len, .. } = self.0;
                region.into_owner().map_err(|region| Self(Range::of(region, addr, len)))
            }
        }
    };
}
into_owner!(BufferMut);
into_owner!(Buffer);

impl Deref for BufferMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range keeps its region alive. The CPU can reach the region, and its bytes are
        // initialized. This is the only view of them, so no transfer writes them: the transfer would own this
        // view.
        unsafe { std::slice::from_raw_parts(self.0.addr.as_ptr(), self.0.len) }
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range keeps its region alive. The CPU can reach the region, and its bytes are
        // initialized. This is the only view of them, and `&mut self` borrows it exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.addr.as_ptr(), self.0.len) }
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

/// A shared, read-only view of local registered memory. Cloning and slicing do not copy bytes.
///
/// A `Buffer` can be the source of several operations at the same time. It can be converted into a
/// [`bytes::Bytes`] without a copy.
#[derive(Clone)]
pub struct Buffer(pub(crate) Range);

view_methods!(Buffer: split slice);

impl Buffer {
    /// Makes the buffer writable again, without copying, if it is the last view of its region.
    ///
    /// # Errors
    ///
    /// The buffer, unchanged, if another view, a transfer in flight or an export uses the region, or the
    /// memory [is read-only](Self::is_read_only).
    pub fn try_into_mut(self) -> Result<BufferMut, Self> {
        if self.0.region.is_sole() && !self.is_read_only() { Ok(BufferMut(self.0)) } else { Err(self) }
    }

    /// Returns whether this is the last view of its region.
    pub(crate) fn is_last(&self) -> bool {
        self.0.region.is_sole()
    }

    /// Returns true for memory that was registered by
    /// [`register_read_only`](crate::DmaEngineExt::register_read_only). Such memory never becomes writable.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.region.is_read_only()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range keeps its region alive. The CPU can reach the region, and its bytes are
        // initialized. All views of them are read-only, so no operation writes them.
        unsafe { std::slice::from_raw_parts(self.0.addr.as_ptr(), self.0.len) }
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
