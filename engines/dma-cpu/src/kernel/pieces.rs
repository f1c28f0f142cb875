//! Copies in pieces that the C library copies with vector instructions, and lengths on which copies depend.

use dma_core::racy_copy;

/// Size of a cache line on all supported CPUs, and of a block of a pattern.
pub(super) const LINE: usize = 64;
/// The CPU compares only the address bits below this size, so a store and a load this far apart seem to
/// overlap.
pub(super) const PAGE: usize = 4096;
/// Up to this length, glibc copies with vector instructions on a CPU with fast short `rep movsb`: its
/// `rep_movsb_threshold` is 2112 there (glibc 2.36, `sysdeps/x86/dl-cacheinfo.h`).
pub(crate) const SHORT: usize = 2 << 10;

/// Copies in pieces of at most [`SHORT`] bytes.
///
/// # Safety
///
/// See [`super::Kernel::copy`].
pub(super) unsafe fn copy_in_pieces(dst: *mut u8, src: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        let n = SHORT.min(len - at);
        // SAFETY: `at + n <= len`, and the caller ensures access to `len` bytes of both ranges.
        unsafe { racy_copy::copy(dst.wrapping_add(at), src.wrapping_add(at), n) };
        at += n;
    }
}
