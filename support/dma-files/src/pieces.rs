//! [`FilePiece`]: a range of a file, and the memory of its bytes. [`Layout`]: the pieces that share a buffer.

use std::ops::Range;

use dma_core::{Access, EngineId, Error, ErrorKind, Result, Window};
use dma_process::count;

/// Maximum distance of two pieces that are read into one buffer, in bytes. The bytes between them are read in
/// vain.
const MAX_GAP: u64 = 64 << 10;

/// Maximum number of copies between one buffer and the windows of its pieces.
const MAX_PARTS: usize = 4096;

/// A range of a file, and the memory into which it is read or from which it is written.
#[derive(Clone, Debug)]
pub struct FilePiece {
    /// The range of the file, in bytes.
    pub range: Range<u64>,
    /// The memory. Its length is that of the range.
    pub window: Window,
}

impl FilePiece {
    /// Makes a piece. It is checked when it is read or written.
    #[must_use]
    pub const fn new(range: Range<u64>, window: Window) -> Self {
        Self { range, window }
    }
}

/// A position within pieces: the number of a piece, and the number of its bytes before the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    piece: usize,
    done: u64,
}

/// A contiguous range of the file that one buffer holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// Offset of the buffer's first byte in the file.
    pub(crate) begin: u64,
    /// Number of bytes to read or write.
    pub(crate) len: usize,
    /// Number of bytes up to the end of the last piece.
    pub(crate) needed: usize,
    /// Number of bytes of pieces.
    pub(crate) payload: u64,
    first: Cursor,
    /// The position behind the block.
    pub(crate) end: Cursor,
}

/// The division of pieces into blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) reads: bool,
    /// Maximum length of a block: a multiple of `align`.
    pub(crate) block_len: usize,
    /// Alignment of the ends of blocks in the file, and when reading, of their beginnings.
    pub(crate) align: usize,
}

impl Layout {
    /// Returns the block that begins at `at`, or `None` at the end of the pieces.
    pub(crate) fn block(&self, pieces: &[FilePiece], mut at: Cursor) -> Option<Block> {
        loop {
            let piece = pieces.get(at.piece)?;
            if piece.range.start + at.done < piece.range.end {
                break;
            }
            at = Cursor { piece: at.piece + 1, done: 0 };
        }
        let first = at;
        let start = pieces[at.piece].range.start + at.done;
        let aligned = start - start % self.align as u64;
        let limit = aligned + self.block_len as u64;
        let begin = if self.reads { aligned } else { start };
        let (mut end, mut payload, mut parts) = (start, 0, 0);
        while parts < MAX_PARTS
            && let Some(piece) = pieces.get(at.piece)
        {
            let from = piece.range.start + at.done;
            if from < piece.range.end {
                // A file is written only where pieces are.
                let joins = if self.reads { from >= start && from <= end + MAX_GAP } else { from == end };
                if !joins || from >= limit {
                    break;
                }
                let to = piece.range.end.min(limit);
                payload += to - from;
                end = end.max(to);
                parts += 1;
                if to < piece.range.end {
                    at.done += to - from;
                    break;
                }
            }
            at = Cursor { piece: at.piece + 1, done: 0 };
        }
        let needed = (end - begin) as usize;
        let len = if self.reads { needed.next_multiple_of(self.align) } else { needed };
        Some(Block { begin, len, needed, payload, first, end: at })
    }
}

impl Block {
    /// Calls `part` for each contiguous part of the block with its range of the buffer, and its memory.
    pub(crate) fn for_each_part(&self, pieces: &[FilePiece], mut part: impl FnMut(Range<usize>, Window)) {
        let mut at = self.first;
        while at < self.end {
            let piece = &pieces[at.piece];
            let len = piece.range.end - piece.range.start;
            let to = if at.piece == self.end.piece { self.end.done } else { len };
            if at.done < to {
                let begin = (piece.range.start + at.done - self.begin) as usize;
                let window = piece.window.slice(at.done as usize..to as usize);
                part(begin..begin + window.len(), window);
            }
            at = Cursor { piece: at.piece + 1, done: 0 };
        }
    }

    /// Returns the range of the file from the first piece to the last one.
    pub(crate) fn range(&self, pieces: &[FilePiece]) -> Range<u64> {
        let start =
            pieces.get(self.first.piece).map_or(self.begin, |piece| piece.range.start + self.first.done);
        start..self.begin + self.needed as u64
    }
}

/// Checks pieces that will be read, or written. Returns the sum of their lengths, and the greatest end.
pub(crate) fn check(pieces: &[FilePiece], reads: bool, engine: Option<EngineId>) -> Result<(u64, u64)> {
    let (mut sum, mut end) = (0_u64, 0);
    for (number, FilePiece { range, window }) in pieces.iter().enumerate() {
        let at = |kind, message: String| Error::new(kind, format!("piece {number}: {message}"));
        let len = range.end.checked_sub(range.start).ok_or_else(|| {
            at(ErrorKind::InvalidArgument, format!("its range {range:?} ends before it begins"))
                .with_hint("give the range's first byte, and the byte behind its last one")
        })?;
        if range.end > i64::MAX as u64 {
            return Err(at(ErrorKind::OutOfRange, format!("its range {range:?}"))
                .with_numbers(range.end, i64::MAX as u64)
                .with_hint("files end before byte 2^63"));
        }
        if len != window.len() as u64 {
            return Err(at(
                ErrorKind::LengthMismatch,
                format!("its range has {}, but its window has {}", count(len, "byte", "bytes"), window.len()),
            )
            .with_numbers(len, window.len() as u64)
            .with_hint("give a window of the range's length: allocate a longer one, or slice it"));
        }
        if len == 0 {
            continue;
        }
        let region = window.region();
        if engine.is_some_and(|engine| engine != region.engine_id()) {
            return Err(at(
                ErrorKind::WrongEngine,
                format!("its window belongs to another engine ({})", region.backend()),
            )
            .with_hint("allocate the window from the engine of the pool and of the queue"));
        }
        let needed = if reads { Access::WRITE } else { Access::READ };
        if !region.access().contains(needed) {
            return Err(at(
                ErrorKind::AccessDenied,
                format!("its window grants {:?}, but {needed:?} is needed", region.access()),
            )
            .with_hint("allocate or register the window's memory with this right"));
        }
        sum = sum.checked_add(len).ok_or_else(|| {
            at(ErrorKind::OutOfRange, "all pieces together have 2^64 bytes or more".to_owned())
                .with_hint("read the file by several operations")
        })?;
        end = end.max(range.end);
    }
    check_overlap(pieces, reads)?;
    Ok((sum, end))
}

/// Fails if two pieces have the same destination: bytes of memory when reading, of the file when writing.
fn check_overlap(pieces: &[FilePiece], reads: bool) -> Result<()> {
    let destination = |(number, piece): (usize, &FilePiece)| {
        let len = piece.window.len() as u64;
        if len == 0 {
            return None;
        }
        let (key, start) = if reads {
            let info = piece.window.region().as_raw().info();
            (info.key.0, info.addr.0 + piece.window.offset() as u64)
        } else {
            (0, piece.range.start)
        };
        Some((key, start, start + len, number))
    };
    let mut destinations: Vec<_> = pieces.iter().enumerate().filter_map(destination).collect();
    destinations.sort_unstable();
    for pair in destinations.windows(2) {
        let ((key, _, end, number), (other_key, start, _, other)) = (pair[0], pair[1]);
        if key == other_key && start < end {
            let what = if reads { "windows" } else { "ranges of the file" };
            return Err(Error::new(
                ErrorKind::Overlap,
                format!(
                    "the {what} of the pieces {number} and {other} share {}",
                    count(end - start, "byte", "bytes")
                ),
            )
            .with_hint("give each byte of the destination to one piece"));
        }
    }
    Ok(())
}
