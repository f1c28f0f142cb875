//! Moves a task's bytes in parts, so that a copy can be observed when it is half done.
#![expect(
    unsafe_code,
    reason = "copies between raw addresses, whose memory other code may access at the same time"
)]

use dma_core::racy_copy;

use super::memory::Piece;
use super::task::TaskKind;

/// Number of bytes that move together. Devices do not tear smaller units.
const LINE: u64 = 64;
/// Maximum number of parts of a task.
const PARTS_MAX: u64 = 4;
/// Maximum number of grains of a scattered task, so that large tasks stay as fast as plain copies.
const GRAINS_MAX: u64 = 1_024;

/// Division of a task's bytes into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tearing {
    /// Number of parts, at least 1.
    pub(super) parts: u8,
    scattered: bool,
    /// Offset of the destination's first byte in its cache line.
    skew: u64,
    /// Size of a grain in bytes. A scattered task is divided into grains, and each grain belongs to one part.
    grain: u64,
    chance: u64,
}

impl Default for Tearing {
    /// Moves all bytes at once.
    fn default() -> Self {
        Self { parts: 1, scattered: false, skew: 0, grain: LINE, chance: 0 }
    }
}

impl Tearing {
    /// Returns the division, selected by `chance`, for a task of `len` bytes to `offset` of a region.
    #[inline]
    pub(super) fn new(len: u64, offset: u64, chance: u64) -> Self {
        let skew = offset % LINE;
        // This cannot overflow, because the task's bytes are in memory.
        let lines = (skew + len).div_ceil(LINE);
        if lines < 2 {
            return Self::default();
        }
        let parts = (1 + chance % PARTS_MAX).min(lines) as u8;
        let grain = (LINE << (chance >> 3 & 7)).max((len / GRAINS_MAX).next_power_of_two());
        Self { parts, scattered: chance & 4 != 0, skew, grain, chance }
    }

    /// Calls `each` with the ranges of part `part`, counted from 1, of a task of `len` bytes. The parts
    /// together contain every byte once.
    #[inline]
    pub(super) fn ranges(&self, len: u64, part: u8, mut each: impl FnMut(u64, u64)) {
        if self.parts == 1 {
            return each(0, len);
        }
        if !self.scattered {
            let (from, to) = (self.cut(len, part - 1), self.cut(len, part));
            return if from < to {
                each(from, to)
            };
        }
        // Every `parts`th grain belongs to the part. The part's first grain depends on `chance`.
        let parts = u64::from(self.parts);
        let mut grain = (u64::from(part) + (self.chance >> 8 & 0xff)) % parts;
        loop {
            let from = (grain * self.grain).saturating_sub(self.skew);
            if from >= len {
                return;
            }
            each(from, ((grain + 1) * self.grain - self.skew).min(len));
            grain += parts;
        }
    }

    /// Returns the end of part `part` of a front-to-back move: a line boundary, or the end of the task.
    fn cut(&self, len: u64, part: u8) -> u64 {
        if part == self.parts {
            return len;
        }
        let ideal = (u128::from(len) * u128::from(part) / u128::from(self.parts)) as u64;
        ((ideal + self.skew) / LINE * LINE).saturating_sub(self.skew)
    }
}

/// Moves part `part`, counted from 1, of a task.
///
/// # Safety
///
/// All pieces belong to registered regions, and access to remote pieces was acquired. The sources and the
/// destinations, if the operation has them, have `len` bytes each.
pub(super) unsafe fn move_part(
    kind: TaskKind,
    src: &[Piece],
    dst: &[Piece],
    len: u64,
    tearing: &Tearing,
    part: u8,
) {
    tearing.ranges(len, part, |from, to| match kind {
        TaskKind::Copy | TaskKind::CopyCrc32c(_) => {
            // SAFETY: the caller's pieces are registered and accessible, and the range is within the task.
            unsafe { copy(src, dst, from, to) }
        }
        TaskKind::CopyToBoth => {
            for dst in dst {
                // SAFETY: the caller's pieces are registered and accessible, and each destination has the
                // task's length.
                unsafe { copy(src, std::slice::from_ref(dst), from, to) }
            }
        }
        TaskKind::Compare | TaskKind::Crc32c(_) => {}
        TaskKind::Fill(pattern) => {
            // SAFETY: the caller's destinations are registered and accessible, and the range is within the
            // task.
            unsafe { fill(pattern, dst, from, to) }
        }
    });
}

/// Copies `len` bytes. The ranges may overlap, because two regions may be the same memory.
///
/// # Safety
///
/// Both ranges, of `len` bytes, are within registered regions.
#[inline]
pub(super) unsafe fn move_bytes(to: *mut u8, from: *const u8, len: usize) {
    if to.addr().abs_diff(from.addr()) >= len {
        // SAFETY: the caller's ranges of `len` bytes are registered, and do not overlap.
        unsafe { racy_copy::copy(to, from, len) }
    } else {
        // SAFETY: the caller's ranges of `len` bytes are registered, and overlap.
        unsafe { move_overlapping(to, from, len) }
    }
}

/// Copies overlapping ranges in pieces that do not overlap, in an order that reads each byte before it is
/// overwritten.
///
/// # Safety
///
/// See [`move_bytes`]. In addition, the ranges overlap.
#[cold]
unsafe fn move_overlapping(to: *mut u8, from: *const u8, len: usize) {
    let distance = to.addr().abs_diff(from.addr());
    if distance == 0 {
        return;
    }
    let pieces = len.div_ceil(distance);
    for piece in 0..pieces {
        let at = distance * if to.addr() < from.addr() { piece } else { pieces - 1 - piece };
        // SAFETY: the piece is within the caller's ranges of `len` bytes, which are registered.
        unsafe {
            racy_copy::copy(to.wrapping_add(at), from.wrapping_add(at), distance.min(len - at));
        }
    }
}

/// # Safety
///
/// See [`move_part`]. In addition, `from <= to`, and `to` is at most the length of the task.
unsafe fn copy(src: &[Piece], dst: &[Piece], from: u64, to: u64) {
    each_run(dst, from, to, |to, at, len| {
        each_run(src, at, at + len, |from, part_at, part_len| {
            let to = to.wrapping_add((part_at - at) as usize);
            // SAFETY: both ranges are within the caller's pieces, which are registered and accessible.
            unsafe { move_bytes(to, from, part_len as usize) }
        });
    });
}

/// # Safety
///
/// See [`move_part`]. In addition, `from <= to`, and `to` is at most the length of the task.
unsafe fn fill(pattern: u64, dst: &[Piece], from: u64, to: u64) {
    each_run(dst, from, to, |to, at, len| {
        let turned = turned(pattern, at);
        for i in (0..len).step_by(8) {
            let n = (len - i).min(8) as usize;
            let to = to.wrapping_add(i as usize);
            // SAFETY: `n` bytes from `i` on are within the run, which is within a registered region by the
            // caller's promise. `turned` is a local array of 8 bytes.
            unsafe { racy_copy::copy(to, turned.as_ptr(), n) }
        }
    });
}

/// Returns the pattern's bytes from offset `at` of a task.
pub(super) fn turned(pattern: u64, at: u64) -> [u8; 8] {
    pattern.rotate_right((at % 8) as u32 * 8).to_le_bytes()
}

/// Calls `each` with the address, the offset in the task and the length of each run of bytes from `from` to
/// `to`.
#[inline]
fn each_run(pieces: &[Piece], from: u64, to: u64, mut each: impl FnMut(*mut u8, u64, u64)) {
    for run in runs(pieces, from, to) {
        each(run.piece.ptr(run.skip), run.at, run.len);
    }
}

/// A run of consecutive bytes in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) piece: &'a Piece,
    /// Offset in the piece.
    pub(super) skip: u64,
    /// Offset in the task.
    pub(super) at: u64,
    pub(super) len: u64,
}

/// Returns, in order, the runs of `pieces` that contain the bytes from `from` to `to` of a task.
#[inline]
pub(super) fn runs<'a>(pieces: &'a [Piece], from: u64, to: u64) -> impl Iterator<Item = Run<'a>> {
    let mut start = 0;
    let run = move |piece: &'a Piece| {
        let begin = start;
        start += piece.len;
        let (low, high) = (from.max(begin), to.min(start));
        // The iteration ends at the first piece beyond `to`.
        (begin < to).then(|| (low < high).then(|| Run { piece, skip: low - begin, at: low, len: high - low }))
    };
    pieces.iter().map_while(run).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::rng;
    use super::*;

    #[test]
    fn overlapping_bytes_move_as_by_memmove() {
        let mut bytes: Vec<u8> = (0..90).map(|n| rng::mix(n) as u8).collect();
        for (to, from, len) in (0..30 * 30 * 4).map(|n| (n % 30, n / 30 % 30, n / 900 * 20)) {
            let mut moved = bytes.clone();
            moved.copy_within(from..from + len, to);
            let start = bytes.as_mut_ptr();
            // SAFETY: both ranges are within the vector.
            unsafe { move_bytes(start.wrapping_add(to), start.wrapping_add(from), len) };
            assert_eq!(bytes, moved, "{len} bytes from {from} to {to}");
        }
    }

    #[test]
    fn parts_are_every_byte_once() {
        for seed in 0..2_000_u64 {
            let chance = rng::mix(seed);
            let len = rng::scale(rng::mix(chance), 20_000) + 1;
            let tearing = Tearing::new(len, seed % 200, chance);
            let mut seen = vec![0_u8; len as usize];
            for part in 1..=tearing.parts {
                tearing.ranges(len, part, |from, to| {
                    assert!(from < to && to <= len);
                    seen[from as usize..to as usize].iter_mut().for_each(|n| *n += 1);
                });
            }
            assert!(seen.iter().all(|n| *n == 1), "seed {seed}, len {len}, {tearing:?}");
        }
    }

    #[test]
    fn lines_are_never_torn() {
        for seed in 0..2_000_u64 {
            let (len, offset) = (5_000, seed % 64);
            let tearing = Tearing::new(len, offset, rng::mix(seed));
            for part in 1..=tearing.parts {
                tearing.ranges(len, part, |from, to| {
                    assert!(from == 0 || (from + offset).is_multiple_of(LINE));
                    assert!(to == len || (to + offset).is_multiple_of(LINE));
                });
            }
        }
        assert_eq!(Tearing::new(64, 0, u64::MAX).parts, 1);
        assert_eq!(Tearing::new(64, 32, u64::MAX).parts, 2);
    }

    #[test]
    fn both_shapes_and_all_counts_come_up() {
        let shapes: std::collections::BTreeSet<_> =
            (0..200).map(|i| Tearing::new(4_096, 0, rng::mix(i))).map(|t| (t.parts, t.scattered)).collect();
        assert_eq!(shapes.len(), 8, "{shapes:?}");
    }
}
