//! The path through the cache, for every architecture.

use std::ptr;

/// Bytes in one pattern block: a cache line on every CPU we know.
pub(super) const LINE: usize = 64;

/// # Safety
///
/// As for [`super::Kernel::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller promises both ranges, and that they do not overlap.
    unsafe { ptr::copy_nonoverlapping(src, dst, len) }
}

/// `pattern` as it looks from `offset` bytes into the filled range, repeated over one line.
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
/// As for [`super::Kernel::fill`].
pub(super) unsafe fn fill(dst: *mut u8, pattern: [u8; 8], len: usize) {
    if pattern == [pattern[0]; 8] {
        // SAFETY: the caller promises `len` writable bytes at `dst`.
        return unsafe { ptr::write_bytes(dst, pattern[0], len) };
    }
    let line = pattern_line(pattern, 0);
    let lines = len / LINE;
    for index in 0..lines {
        let at = dst.wrapping_add(index * LINE).cast::<[u8; LINE]>();
        // SAFETY: line `index` lies within the caller's `len` bytes; the write needs no alignment.
        unsafe { at.write_unaligned(line) };
    }
    // SAFETY: fewer than `LINE` bytes are left in the caller's range, and `line` is ours.
    unsafe { ptr::copy_nonoverlapping(line.as_ptr(), dst.wrapping_add(lines * LINE), len % LINE) };
}
