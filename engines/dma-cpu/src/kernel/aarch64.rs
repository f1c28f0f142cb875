//! The streaming kernel for aarch64, with loads and stores of pairs that have the non-temporal hint.

use std::arch::asm;

use dma_core::InlineCopy;

use super::cached::{self, pattern_line};
use super::pieces::LINE;
use super::{Kernel, asan};

pub(super) const STNP: Kernel = Kernel { name: "stnp", streaming: true, copy, copy_all, fill };

/// # Safety
///
/// See [`Kernel::copy_all`].
unsafe fn copy_all(copies: &[InlineCopy]) {
    for range in copies {
        // SAFETY: for each copy, the caller ensures access to both ranges, and that they do not overlap.
        unsafe { copy(range.dst.as_ptr(), range.src.as_ptr(), range.len) };
    }
}

/// # Safety
///
/// See [`Kernel::copy`].
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // A non-temporal load may be executed before an earlier load that its address depends on (Arm ARM,
    // "Load/Store Non-temporal Pair"), and `src` may be an address that another thread has published.
    // SAFETY: a barrier changes no register, flag or stack.
    unsafe { asm!("dmb ishld", options(nostack, preserves_flags)) };
    // SAFETY: these are the first `head` bytes of both ranges.
    unsafe { cached::copy(dst, src, head) };
    for at in (head..end).step_by(LINE) {
        let (dst, src) = (dst.wrapping_add(at), src.wrapping_add(at));
        asan::check_copy(dst, src, LINE);
        // SAFETY: the line lies before `end`. The code reads its 64 bytes at `src` and writes them to `dst`.
        unsafe {
            asm!(
                "ldnp {a:q}, {b:q}, [{src}]",
                "ldnp {c:q}, {d:q}, [{src}, #32]",
                "stnp {a:q}, {b:q}, [{dst}]",
                "stnp {c:q}, {d:q}, [{dst}, #32]",
                src = in(reg) src,
                dst = in(reg) dst,
                a = out(vreg) _,
                b = out(vreg) _,
                c = out(vreg) _,
                d = out(vreg) _,
                options(nostack, preserves_flags),
            );
        }
    }
    // SAFETY: these are the last `tail` bytes of both ranges.
    unsafe { cached::copy(dst.wrapping_add(end), src.wrapping_add(end), tail) };
    fence();
}

/// # Safety
///
/// See [`Kernel::fill`].
unsafe fn fill(dst: *mut u8, pattern: [u8; 8], len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // SAFETY: these are the first `head` bytes of the range, and `head` is less than the length of a line.
    unsafe { cached::copy(dst, pattern_line(pattern, 0).as_ptr(), head) };
    let block = pattern_line(pattern, head);
    for at in (head..end).step_by(LINE) {
        let dst = dst.wrapping_add(at);
        asan::check_copy(dst, block.as_ptr(), LINE);
        // SAFETY: the line lies before `end`. The code reads 16 bytes of `block` and writes the 64 bytes of
        // the line.
        unsafe {
            asm!(
                "ldr {a:q}, [{block}]",
                "stnp {a:q}, {a:q}, [{dst}]",
                "stnp {a:q}, {a:q}, [{dst}, #32]",
                block = in(reg) block.as_ptr(),
                dst = in(reg) dst,
                a = out(vreg) _,
                options(nostack, preserves_flags),
            );
        }
    }
    // SAFETY: these are the last `tail` bytes of the range, and `block` is at least as long. Whole lines
    // precede them, so `block` has the right phase of the pattern.
    unsafe { cached::copy(dst.wrapping_add(end), block.as_ptr(), tail) };
    fence();
}

/// Orders the stores before every later store, like `sfence` on x86-64.
#[inline]
fn fence() {
    // SAFETY: a barrier changes no register, flag or stack.
    unsafe { asm!("dmb ishst", options(nostack, preserves_flags)) };
}
