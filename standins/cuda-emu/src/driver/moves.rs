//! Copies and fills: queues their pieces.

use super::Driver;
use super::objects::Step;
use super::pieces::{Moves, Pieces};
use super::streams::LEGACY;
use crate::codes::{Code, Outcome, require};
use crate::gpu::Piece;
use crate::memory::Range;

impl Driver {
    /// Queues one copy. Returns true if the copy uses pageable memory, because the caller must then wait for
    /// the end of the copy.
    #[inline]
    pub(crate) fn copy(&mut self, stream: u64, dst: u64, src: u64, len: u64) -> Outcome<bool> {
        let stream = self.stream_of(stream)?;
        if len == 0 {
            return Ok(false);
        }
        let (piece, pageable) = self.piece(dst, src, len)?;
        self.count(stream, 1, len)?;
        self.queue_moves(stream, Pieces::One(piece))?;
        Ok(pageable)
    }

    /// Queues a batch of copies. Returns true if one of them uses pageable memory.
    pub(crate) fn copy_batch(
        &mut self,
        stream: u64,
        copies: impl ExactSizeIterator<Item = (u64, u64, u64)>,
    ) -> Outcome<bool> {
        require(!matches!(stream, 0 | LEGACY) && copies.len() != 0, Code::INVALID_VALUE)?;
        let stream = self.stream_of(stream)?;
        let (mut pieces, mut pageable, mut bytes) = (Vec::with_capacity(copies.len()), false, 0);
        for (dst, src, len) in copies {
            require(len != 0, Code::INVALID_VALUE)?;
            let (piece, unknown) = self.piece(dst, src, len)?;
            pieces.push(piece);
            pageable |= unknown;
            bytes += len;
        }
        self.count(stream, pieces.len() as u64, bytes)?;
        self.queue_moves(stream, Pieces::Batch(pieces))?;
        Ok(pageable)
    }

    fn piece(&self, dst: u64, src: u64, len: u64) -> Outcome<(Piece, bool)> {
        let (to, from) = (self.memory.range(dst, len)?, self.memory.range(src, len)?);
        require(to != Range::ReadOnly, Code::INVALID_VALUE)?;
        let pageable = to == Range::Pageable || from == Range::Pageable;
        Ok((Piece::Copy { dst: to.bytes(dst), src: from.bytes(src), len }, pageable))
    }

    /// Counts copies. Fails if the fault plan makes the driver refuse one of them.
    pub(super) fn count(&mut self, handle: u64, number: u64, bytes: u64) -> Outcome {
        let device = self.context(self.stream(handle)?.context)?.device;
        let stream = self.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        let before = stream.copies;
        stream.copies += number;
        let gpu = &self.gpus[device];
        require(
            !gpu.has_refusals() || !(before + 1..=before + number).any(|number| gpu.refuses(number)),
            Code::OUT_OF_MEMORY,
        )?;
        self.copied = (self.copied.0 + number, self.copied.1 + bytes);
        Ok(())
    }

    fn queue_moves(&mut self, stream: u64, pieces: Pieces) -> Outcome {
        self.queue(stream, Step::Move(Moves { pieces, submitted: 0, ended: 0 }))
    }

    /// Queues a fill with a pattern of 8 bytes.
    pub(crate) fn fill(&mut self, stream: u64, dst: u64, pattern: u64, len: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        if len == 0 {
            return Ok(());
        }
        let range = self.writable(dst, len)?;
        self.queue_moves(stream, Pieces::One(Piece::Fill { dst: range.bytes(dst), pattern, len }))
    }

    /// Queues a fill of rows of `width` bytes, which are `pitch` bytes apart, with a pattern of 8 bytes.
    pub(crate) fn fill_rows(
        &mut self,
        stream: u64,
        dst: u64,
        pitch: u64,
        pattern: u64,
        width: u64,
        rows: u64,
    ) -> Outcome {
        let stream = self.stream_of(stream)?;
        if rows == 0 || width == 0 {
            return Ok(());
        }
        let bytes = self.writable(dst, extent(pitch, width, rows)?)?.bytes(dst);
        // A batch has one piece for each row, which is slow if the rows are short.
        if width == 4 && bytes.is_multiple_of(4) && pitch.is_multiple_of(4) {
            return self.queue(stream, Step::Strided { bytes, pitch, word: pattern as u32, rows });
        }
        let piece = |row| Piece::Fill { dst: bytes + row * pitch, pattern, len: width };
        self.queue_moves(stream, Pieces::Batch((0..rows).map(piece).collect()))
    }

    /// Queues a copy of rows of `width` bytes. `dst` and `src` are the first address and the pitch. Returns
    /// true if the copy uses pageable memory.
    pub(crate) fn copy_rows(
        &mut self,
        stream: u64,
        dst: (u64, u64),
        src: (u64, u64),
        width: u64,
        rows: u64,
    ) -> Outcome<bool> {
        if (dst.1, src.1) == (width, width) || rows == 1 {
            let len = width.checked_mul(rows).ok_or(Code::INVALID_VALUE)?;
            return self.copy(stream, dst.0, src.0, len);
        }
        let stream = self.stream_of(stream)?;
        let to = self.memory.range(dst.0, extent(dst.1, width, rows)?)?;
        let from = self.memory.range(src.0, extent(src.1, width, rows)?)?;
        require(to != Range::ReadOnly, Code::INVALID_VALUE)?;
        let (to_bytes, from_bytes) = (to.bytes(dst.0), from.bytes(src.0));
        let piece =
            |row| Piece::Copy { dst: to_bytes + row * dst.1, src: from_bytes + row * src.1, len: width };
        self.count(stream, rows, width * rows)?;
        self.queue_moves(stream, Pieces::Batch((0..rows).map(piece).collect()))?;
        Ok(to == Range::Pageable || from == Range::Pageable)
    }

    pub(super) fn writable(&self, dst: u64, len: u64) -> Outcome<Range> {
        match self.memory.range(dst, len)? {
            // Devices reach only host memory that is pinned or registered.
            Range::ReadOnly | Range::Pageable => Err(Code::INVALID_VALUE),
            range => Ok(range),
        }
    }
}

/// Returns the number of bytes from the start of the first row to the end of the last one. There is at
/// least one row.
fn extent(pitch: u64, width: u64, rows: u64) -> Outcome<u64> {
    let last = pitch.checked_mul(rows - 1);
    last.and_then(|last| last.checked_add(width)).ok_or(Code::INVALID_VALUE)
}
