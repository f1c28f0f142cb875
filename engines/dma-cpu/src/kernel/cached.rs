//! The path through the cache, for every architecture.

use dma_core::{InlineCopy, racy_copy};

use super::pieces::{LINE, PAGE, SHORT, copy_in_pieces};

/// Number of bytes per call for longer patterns. The number is large, so that the cost of a call is small in
/// comparison.
const BLOCK: usize = 8 * LINE;
/// Above this length, glibc uses vector instructions again: on AMD CPUs, its `rep_movsb_stop_threshold` is
/// the size of the second level cache, 512 KiB or 1 MiB.
const LONG: usize = 1 << 20;
/// Copies of this length and more are left to the C library, because vectors are faster only where the
/// level-1 cache holds both ranges.
#[cfg(target_arch = "x86_64")]
const VECTORS_BELOW: usize = 16 << 10;

/// Copies by vectors, or with the C library's `memcpy`, in pieces if its `rep movsb` is slow.
///
/// # Safety
///
/// See [`super::Kernel::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    if len > SHORT {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { copy_long(dst, src, len) };
    } else {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { racy_copy::copy(dst, src, len) };
    }
}

/// Copies more than [`SHORT`] bytes.
///
/// # Safety
///
/// See [`super::Kernel::copy`].
#[inline(never)]
unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len < VECTORS_BELOW
        && let Some(vectors) = super::vectors::by_vectors()
    {
        let distance = dst.addr().wrapping_sub(src.addr()) % PAGE;
        if (1..=LINE).contains(&distance) {
            // `rep movsb` is slow at these distances.
            // SAFETY: the caller ensures access to both ranges, which are longer than `SHORT` and do not
            // overlap.
            return unsafe { vectors(dst, src, len) };
        }
        // SAFETY: the caller ensures access to both ranges, which are longer than `SHORT` and do not overlap.
        return unsafe { super::cache_speed::copy_by_vectors_if_hot(vectors, dst, src, len) };
    }
    if is_behind(dst.addr(), src.addr()) {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { copy_behind(dst, src, len) };
    } else {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { racy_copy::copy(dst, src, len) };
    }
}

/// Copies all ranges, one after the other.
///
/// # Safety
///
/// See [`super::Kernel::copy_all`].
pub(super) unsafe fn copy_all(copies: &[InlineCopy]) {
    for range in copies {
        // SAFETY: for each copy, the caller ensures access to both ranges, and that they do not overlap.
        unsafe { copy(range.dst.as_ptr(), range.src.as_ptr(), range.len) };
    }
}

/// Returns true if the page offset of `dst` is greater than that of `src` by less than a cache line.
#[inline]
pub(super) fn is_behind(dst: usize, src: usize) -> bool {
    (1..LINE).contains(&(dst.wrapping_sub(src) % PAGE))
}

/// Copies ranges of which the page offset of `dst` is greater than that of `src` by less than a cache line.
///
/// # Safety
///
/// See [`super::Kernel::copy`].
unsafe fn copy_behind(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    let slow = super::vectors::is_slow_behind();
    #[cfg(not(target_arch = "x86_64"))]
    let slow = false;
    if slow && len <= LONG {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { copy_in_pieces(dst, src, len) };
    } else {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { racy_copy::copy(dst, src, len) };
    }
}

/// Returns one line of `pattern` as it continues at `offset` bytes into the filled range.
#[inline]
pub(super) fn pattern_line(mut pattern: [u8; 8], offset: usize) -> [u8; LINE] {
    pattern.rotate_left(offset % 8);
    let mut line = [0; LINE];
    for chunk in line.chunks_exact_mut(8) {
        chunk.copy_from_slice(&pattern);
    }
    line
}

/// # Safety
///
/// See [`super::Kernel::fill`].
pub(super) unsafe fn fill(dst: *mut u8, pattern: [u8; 8], len: usize) {
    if pattern == [pattern[0]; 8] {
        // SAFETY: the caller ensures that `len` bytes at `dst` are writable.
        return unsafe { racy_copy::set(dst, pattern[0], len) };
    }
    let line = pattern_line(pattern, 0);
    if len <= LINE {
        // SAFETY: the caller's range is writable and no longer than `line`.
        return unsafe { racy_copy::copy(dst, line.as_ptr(), len) };
    }
    let block = [line; BLOCK / LINE];
    for at in (0..len).step_by(BLOCK) {
        // SAFETY: both the caller's writable range after `at` and `block` have at least this number of bytes.
        unsafe { racy_copy::copy(dst.wrapping_add(at), block.as_flattened().as_ptr(), BLOCK.min(len - at)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_is_within_pages() {
        for (src, dst, behind) in [
            (0x10_0000, 0x10_0000, false),
            (0x10_0000, 0x20_0001, true),
            (0x10_0000, 0x20_003F, true),
            (0x10_0000, 0x20_0040, false),
            (0x10_0FFF, 0x20_0000, true),
            (0x20_0FF0, 0x10_0000, true),
            (0x20_0010, 0x10_0000, false),
            (0x10_0001, 0x20_0000, false),
        ] {
            assert_eq!(is_behind(dst, src), behind, "{src:#x} to {dst:#x}");
        }
    }
}
