//! The path through the cache, for every architecture.

use std::{hint, ptr};

/// Bytes in one pattern block: a cache line on every CPU we know.
pub(super) const LINE: usize = 64;

/// Up to this length, glibc copies by vectors on a CPU with fast short `rep movsb`: its `rep_movsb_threshold` is 2112 there
/// (glibc 2.36, `sysdeps/x86/dl-cacheinfo.h`).
pub(in crate::cpu) const SHORT: usize = 2 << 10;
/// Beyond this length it does so again: on AMD's CPUs its `rep_movsb_stop_threshold` is the size of the second level cache,
/// 512 KiB or 1 MiB.
const LONG: usize = 1 << 20;
/// The distance that counts is that within pages.
const PAGE: usize = 4096;

/// The C library's `memcpy`, in pieces where its `rep movsb` is not what it is taken for.
///
/// # Safety
///
/// As for [`super::Kernel::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    if len > SHORT && is_behind(dst.addr(), src.addr()) {
        // SAFETY: the caller's promise.
        return unsafe { copy_behind(dst, src, len) };
    }
    // SAFETY: the caller promises both ranges, and that they do not overlap.
    unsafe { ptr::copy_nonoverlapping(src, dst, len) }
}

/// Whether `dst` is less than a line further on in its page than `src` is in its own.
#[inline]
fn is_behind(dst: usize, src: usize) -> bool {
    (1..LINE).contains(&(dst.wrapping_sub(src) % PAGE))
}

/// Copies to less than a line further on in the page.
///
/// # Safety
///
/// As for [`super::Kernel::copy`].
#[inline(never)]
unsafe fn copy_behind(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    let slow = super::x86_64::has_slow_rep_movsb();
    #[cfg(not(target_arch = "x86_64"))]
    let slow = false;
    if slow && len <= LONG {
        // SAFETY: the caller's promise.
        unsafe { copy_in_pieces(dst, src, len) };
    } else {
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(src, dst, len) };
    }
}

/// Copies so that the C library sees no length above [`SHORT`].
///
/// # Safety
///
/// As for [`super::Kernel::copy`].
pub(super) unsafe fn copy_in_pieces(dst: *mut u8, src: *const u8, len: usize) {
    // Opaque: of pieces whose length it knows, the compiler may make one copy again.
    let piece = hint::black_box(SHORT);
    let mut at = 0;
    while at < len {
        let n = piece.min(len - at);
        // SAFETY: `at + n <= len`, and the caller promises `len` bytes of both ranges.
        unsafe { ptr::copy_nonoverlapping(src.wrapping_add(at), dst.wrapping_add(at), n) };
        at += n;
    }
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
