//! Copies and fills that write past the cache.
//!
//! Other threads may access the bytes at the same time, and a signal handler may interrupt the loops and
//! never return. So `asm!` moves the bytes, and nothing has to be restored.
//!
//! If a page cannot be accessed, the fault has the address that it has in a copy byte by byte, upwards from
//! the first byte. The C library's `rep movsb` and `rep stosb` give the same address. For this purpose, a
//! copy first touches the pages of a group in order, where a page of the source or of the destination begins:
//! it reads one byte, or copies a byte or a line. The interleaved accesses after that meet no new page.
#![expect(unsafe_code, reason = "moves bytes between raw addresses")]

use core::arch::asm;

const PAGE: usize = 4096;
const LINE: usize = 64;
/// Number of pages that are copied side by side, because the hardware prefetcher follows one stream per page.
const STREAMS: usize = 4;
/// Number of bytes whose pages are touched together. A new page is still in the cache when it is written.
const GROUP: usize = 16 * PAGE;

/// Copies `len` bytes upwards.
///
/// # Safety
///
/// As for the C library's `memcpy`: the ranges do not overlap.
pub(crate) unsafe fn copy(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
    let last = src.wrapping_add(len.saturating_sub(1));
    while len > 0 {
        // The first group ends where a line of the destination begins, so that all others begin at a line.
        let mut group = len.min(GROUP - dst.addr() % LINE);
        // SAFETY: these bytes belong to both ranges.
        unsafe { touch(dst, src, group, last) };
        len -= group;
        let head = dst.addr().wrapping_neg() % LINE;
        if head > 0 {
            let head = head.min(group);
            // SAFETY: these are the first `head` bytes of the group.
            unsafe { bytes(dst, src, head) };
            (dst, src, group) = (dst.wrapping_add(head), src.wrapping_add(head), group - head);
        }
        while group >= STREAMS * PAGE {
            // SAFETY: `STREAMS` pages are left, and `dst` is aligned since `head`.
            unsafe { pages(dst, src, last) };
            (dst, src, group) =
                (dst.wrapping_add(STREAMS * PAGE), src.wrapping_add(STREAMS * PAGE), group - STREAMS * PAGE);
        }
        let lines = group - group % LINE;
        if lines > 0 {
            // SAFETY: `lines` bytes are left, and `dst` is aligned.
            unsafe { copy_lines(dst, src, lines, last) };
            (dst, src, group) = (dst.wrapping_add(lines), src.wrapping_add(lines), group - lines);
        }
        if group > 0 {
            // SAFETY: these are the last bytes of the group.
            unsafe { bytes(dst, src, group) };
            (dst, src) = (dst.wrapping_add(group), src.wrapping_add(group));
        }
    }
    fence();
}

/// Fills `len` bytes upwards.
///
/// # Safety
///
/// As for the C library's `memset`.
pub(crate) unsafe fn fill(mut dst: *mut u8, byte: u8, mut len: usize) {
    let head = (dst.addr().wrapping_neg() % LINE).min(len);
    // SAFETY: these are the first bytes of the range.
    unsafe { fill_bytes(dst, byte, head) };
    (dst, len) = (dst.wrapping_add(head), len - head);
    let lines = len - len % LINE;
    if lines > 0 {
        // SAFETY: `lines` bytes are left, and `dst` is aligned.
        unsafe { fill_lines(dst, byte, lines) };
    }
    // SAFETY: these are the last bytes of the range.
    unsafe { fill_bytes(dst.wrapping_add(lines), byte, len - lines) };
    fence();
}

/// Orders the stores before later stores of this thread.
fn fence() {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Touches the pages of a group, in the order of their addresses in the ranges. `dst` is aligned to a line,
/// except in the first group.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn touch(dst: *mut u8, src: *const u8, len: usize, last: *const u8) {
    // The first byte of each range and the distances to the next page.
    let [to, from] = [dst.addr(), src.addr()].map(|address| address.wrapping_neg() % PAGE);
    // A line of the destination is written past the cache, which is faster than one byte. But the line must
    // not reach into the next page of the source, which may be the first one that cannot be accessed.
    let by_lines = dst.addr().is_multiple_of(LINE) && from.wrapping_sub(to).wrapping_sub(1) >= LINE - 1;
    // SAFETY: the first byte belongs to both ranges.
    unsafe { touch_byte(dst, src) };
    let mut page = 0;
    while page < len {
        for at in if from < to { [page + from, page + to] } else { [page + to, page + from] } {
            let (dst, src) = (dst.wrapping_add(at), src.wrapping_add(at));
            if at + LINE <= len && by_lines {
                if dst.addr().is_multiple_of(PAGE) {
                    // SAFETY: the line belongs to both ranges.
                    unsafe { copy_lines(dst, src, LINE, last) };
                } else {
                    // SAFETY: the byte belongs to the source.
                    unsafe { read_byte(src) };
                }
            } else if at < len {
                // SAFETY: the byte belongs to both ranges.
                unsafe { touch_byte(dst, src) };
            }
        }
        page += PAGE;
    }
}

/// Reads one byte.
///
/// # Safety
///
/// See [`touch_byte`].
#[inline(always)]
unsafe fn read_byte(src: *const u8) {
    // SAFETY: reads one byte at the caller's address.
    unsafe {
        asm!("mov {byte}, byte ptr [{src}]", src = in(reg) src, byte = out(reg_byte) _,
            options(nostack, preserves_flags));
    }
}

/// Copies one byte.
///
/// # Safety
///
/// The source is readable and the destination writable, or the program handles the fault.
#[inline(always)]
unsafe fn touch_byte(dst: *mut u8, src: *const u8) {
    // SAFETY: reads and writes one byte at the caller's addresses.
    unsafe {
        asm!("mov {byte}, byte ptr [{src}]", "mov byte ptr [{dst}], {byte}",
            src = in(reg) src, dst = in(reg) dst, byte = out(reg_byte) _, options(nostack, preserves_flags));
    }
}

/// Copies bytes upwards.
///
/// # Safety
///
/// As for [`copy`]; the ranges may overlap if `dst` is below `src`.
pub(crate) unsafe fn bytes(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: reads and writes `len` bytes at the caller's addresses. The direction flag is clear, as the
    // calling convention requires.
    unsafe {
        asm!("rep movsb", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
}

/// Fills bytes upwards.
///
/// # Safety
///
/// As for [`fill`].
pub(crate) unsafe fn fill_bytes(dst: *mut u8, byte: u8, len: usize) {
    // SAFETY: writes `len` bytes at the caller's address. The direction flag is clear.
    unsafe {
        asm!("rep stosb", inout("rdi") dst => _, inout("rcx") len => _, in("al") byte,
            options(nostack, preserves_flags));
    }
}

/// Copies [`STREAMS`] pages side by side, one line of each in turn. Prefetches up to `last`, the last byte of
/// the copy's source, because the page behind it may not exist.
///
/// # Safety
///
/// As for [`copy`]; `dst` is aligned to a line.
#[inline(always)]
unsafe fn pages(dst: *mut u8, src: *const u8, last: *const u8) {
    // SAFETY: reads and writes 4 pages at the caller's addresses. A prefetch never faults.
    unsafe {
        asm!(
            "2:",
            ".irp page, 0, 4096, 8192",
            "prefetcht0 byte ptr [{src} + \\page + 512]",
            ".endr",
            "lea {ahead}, [{src} + 12800]",
            "cmp {ahead}, {last}",
            "cmova {ahead}, {last}",
            "prefetcht0 byte ptr [{ahead}]",
            ".irp page, 0, 4096, 8192, 12288",
            "movdqu {a}, xmmword ptr [{src} + \\page]",
            "movdqu {b}, xmmword ptr [{src} + \\page + 16]",
            "movdqu {c}, xmmword ptr [{src} + \\page + 32]",
            "movdqu {d}, xmmword ptr [{src} + \\page + 48]",
            "movntdq xmmword ptr [{dst} + \\page], {a}",
            "movntdq xmmword ptr [{dst} + \\page + 16], {b}",
            "movntdq xmmword ptr [{dst} + \\page + 32], {c}",
            "movntdq xmmword ptr [{dst} + \\page + 48], {d}",
            ".endr",
            "add {src}, 64",
            "add {dst}, 64",
            "sub {lines:e}, 1",
            "jnz 2b",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            last = in(reg) last,
            ahead = out(reg) _,
            lines = inout(reg) PAGE / LINE => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies `len` bytes, a positive multiple of a line. Prefetches up to `last`, as [`pages`] does.
///
/// # Safety
///
/// As for [`copy`]; `dst` is aligned to a line.
unsafe fn copy_lines(dst: *mut u8, src: *const u8, len: usize, last: *const u8) {
    // SAFETY: reads and writes `len` bytes at the caller's addresses. A prefetch never faults.
    unsafe {
        asm!(
            "2:",
            "lea {ahead}, [{src} + 512]",
            "cmp {ahead}, {last}",
            "cmova {ahead}, {last}",
            "prefetcht0 byte ptr [{ahead}]",
            "movdqu {a}, xmmword ptr [{src}]",
            "movdqu {b}, xmmword ptr [{src} + 16]",
            "movdqu {c}, xmmword ptr [{src} + 32]",
            "movdqu {d}, xmmword ptr [{src} + 48]",
            "movntdq xmmword ptr [{dst}], {a}",
            "movntdq xmmword ptr [{dst} + 16], {b}",
            "movntdq xmmword ptr [{dst} + 32], {c}",
            "movntdq xmmword ptr [{dst} + 48], {d}",
            "add {src}, 64",
            "add {dst}, 64",
            "sub {len}, 64",
            "jnz 2b",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            last = in(reg) last,
            ahead = out(reg) _,
            len = inout(reg) len => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Fills `len` bytes, a positive multiple of a line.
///
/// # Safety
///
/// As for [`fill`]; `dst` is aligned to a line.
unsafe fn fill_lines(dst: *mut u8, byte: u8, len: usize) {
    let pattern = u64::from(byte) * 0x0101_0101_0101_0101;
    // SAFETY: writes `len` bytes at the caller's address.
    unsafe {
        asm!(
            "movq {line}, {pattern}",
            "punpcklqdq {line}, {line}",
            "2:",
            "movntdq xmmword ptr [{dst}], {line}",
            "movntdq xmmword ptr [{dst} + 16], {line}",
            "movntdq xmmword ptr [{dst} + 32], {line}",
            "movntdq xmmword ptr [{dst} + 48], {line}",
            "add {dst}, 64",
            "sub {len}, 64",
            "jnz 2b",
            pattern = in(reg) pattern,
            dst = inout(reg) dst => _,
            len = inout(reg) len => _,
            line = out(xmm_reg) _,
            options(nostack),
        );
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const GUARD: usize = 64;

    /// Lengths near those at which the loops change, and other ones.
    fn lengths() -> impl Strategy<Value = usize> {
        let near =
            prop::sample::select(std::vec![0, LINE, PAGE, STREAMS * PAGE, GROUP, 2 * GROUP, 5 * GROUP]);
        prop_oneof![
            (near, 0..200_usize).prop_map(|(near, more)| (near + more).saturating_sub(100)),
            0..6 * GROUP
        ]
    }

    proptest! {
        #[test]
        fn copies_are_exact(len in lengths(), to in 0..2 * PAGE, from in 0..2 * PAGE, seed in any::<u8>()) {
            let src: Vec<u8> = (0..from + len).map(|at| (at % 251) as u8 ^ seed).collect();
            let mut dst = std::vec![0xa5_u8; to + GUARD + len + GUARD];
            // SAFETY: both ranges have `len` bytes, and belong to different vectors.
            unsafe { copy(dst[to + GUARD..].as_mut_ptr(), src[from..].as_ptr(), len) };
            let (before, rest) = dst.split_at(to + GUARD);
            prop_assert!(rest[..len] == src[from..], "the bytes");
            prop_assert!(before.iter().chain(&rest[len..]).all(|byte| *byte == 0xa5), "no others");
        }

        #[test]
        fn fills_are_exact(len in lengths(), to in 0..2 * PAGE, byte in any::<u8>()) {
            let mut dst = std::vec![!byte; to + GUARD + len + GUARD];
            // SAFETY: the range has `len` bytes.
            unsafe { fill(dst[to + GUARD..].as_mut_ptr(), byte, len) };
            let (before, rest) = dst.split_at(to + GUARD);
            prop_assert!(rest[..len].iter().all(|filled| *filled == byte), "the bytes");
            prop_assert!(before.iter().chain(&rest[len..]).all(|other| *other == !byte), "no others");
        }
    }
}
