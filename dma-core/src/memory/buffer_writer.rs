//! [`BufferWriter`]: writes into a buffer, from its beginning.
#![expect(unsafe_code, reason = "implements `BufMut`")]

use std::fmt;
use std::io::{self, Write};

use bytes::BufMut;
use bytes::buf::UninitSlice;

use crate::BufferMut;

/// A writer that fills a [`BufferMut`] from its beginning, by [`std::io::Write`] or [`bytes::BufMut`].
/// [`BufferMut::writer`] makes it. To read a buffer, use `&buffer[..]`, or a [`std::io::Cursor`] of the
/// buffer.
///
/// ```
/// use bytes::BufMut;
/// # fn demo(buffer: dma_core::BufferMut) -> std::io::Result<()> {
/// let mut writer = buffer.writer();
/// writer.put_u32(7);
/// std::io::copy(&mut &b"a message"[..], &mut writer)?;
/// let (message, rest) = writer.into_parts();
/// assert_eq!(&message[4..], b"a message");
/// # Ok(()) }
/// ```
pub struct BufferWriter {
    buffer: BufferMut,
    filled: usize,
}

impl BufferMut {
    /// Returns a writer that fills the buffer from its beginning, by [`std::io::Write`] or [`bytes::BufMut`].
    #[must_use]
    pub const fn writer(self) -> BufferWriter {
        BufferWriter::new(self)
    }
}

impl BufferWriter {
    pub(crate) const fn new(buffer: BufferMut) -> Self {
        Self { buffer, filled: 0 }
    }

    /// Returns the written part.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Returns the written part and the remaining part, without copying. [`BufferMut::unsplit`] joins both
    /// parts again.
    #[must_use]
    pub fn into_parts(self) -> (BufferMut, BufferMut) {
        let mut filled = self.buffer;
        let rest = filled.split_off(self.filled);
        (filled, rest)
    }
}

impl Write for BufferWriter {
    /// Writes the part of `bytes` that fits, and returns the part's length; 0 if the buffer is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = &mut self.buffer[self.filled..];
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.filled += n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// SAFETY: `chunk_mut` returns all `remaining_mut` bytes at a fixed address, and `advance_mut` panics if it
// would go beyond them.
unsafe impl BufMut for BufferWriter {
    fn remaining_mut(&self) -> usize {
        self.buffer.len() - self.filled
    }

    /// # Panics
    ///
    /// If fewer than `n` bytes are left.
    unsafe fn advance_mut(&mut self, n: usize) {
        assert!(n <= self.remaining_mut(), "{n} bytes do not fit");
        self.filled += n;
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        UninitSlice::new(&mut self.buffer[self.filled..])
    }
}

impl fmt::Debug for BufferWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferWriter")
            .field("filled", &self.filled)
            .field("len", &self.buffer.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::DmaEngineExt;
    use crate::reference::{ReferenceEngine, ReferenceOptions};

    #[test]
    fn written_bytes_come_first_and_the_rest_is_left() {
        let engine = ReferenceEngine::new(ReferenceOptions::default());
        let mut buffer = engine.allocate(16).unwrap();
        buffer.fill(9);
        let mut writer = buffer.writer();
        writer.put_u16(0x0102);
        writer.put_slice(&[3, 4, 5]);
        assert_eq!(writer.write(&[6; 3]).unwrap(), 3);
        assert_eq!((writer.filled(), writer.remaining_mut()), (&[1, 2, 3, 4, 5, 6, 6, 6][..], 8));
        assert_eq!(writer.write(&[7; 20]).unwrap(), 8, "the part that fits");
        assert_eq!(writer.write(&[8]).unwrap(), 0);
        let (filled, rest) = writer.into_parts();
        assert_eq!((filled.len(), rest.len()), (16, 0));
        let mut writer = filled.writer();
        writer.put_u8(0);
        let (mut filled, rest) = writer.into_parts();
        assert_eq!((&filled[..], &rest[..2]), (&[0][..], &[2, 3][..]));
        filled.unsplit(rest).expect("they touch");
        assert_eq!(filled.len(), 16);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn no_more_is_put_than_fits() {
        let engine = ReferenceEngine::new(ReferenceOptions::default());
        let mut writer = engine.allocate(8).unwrap().writer();
        // SAFETY: all bytes of a buffer are initialized. The call panics, because fewer bytes remain.
        unsafe { writer.advance_mut(9) };
    }
}
