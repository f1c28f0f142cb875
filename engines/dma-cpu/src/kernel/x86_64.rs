//! Kernels for x86-64: streaming kernels, which write whole 64-byte lines past the cache.
//!
//! Streaming copies have one of two orders of lines; [`measured`](super::measured) chooses. Four pages side
//! by side, one line of each in turn, is the order of glibc's `memcpy` above its non-temporal threshold
//! (`sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S`): a hardware prefetcher that follows one stream
//! per page leaves a core with only one stream waiting for memory.

use std::arch::asm;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{_MM_HINT_NTA, _MM_HINT_T0, _mm_prefetch};

use dma_core::InlineCopy;

use super::cached::{self, pattern_line};
use super::pieces::LINE;
use super::{Kernel, asan};

/// Distance between streams in bytes: the range that one hardware prefetch stream covers.
const PAGE: usize = 4096;
/// Number of pages that are copied side by side.
const STREAMS: usize = 4;
/// Distance from a load to its prefetch, in bytes.
const AHEAD: usize = 8 * LINE;
/// The same for copies from the first line to the last.
const AHEAD_IN_ORDER: usize = 16 * LINE;

/// Returns every streaming kernel of this CPU. Memory bandwidth limits their speed. On a Sapphire Rapids
/// class Xeon, AVX2 is 1 to 3 % faster than AVX-512 and MOVDIR64B, and does not reduce the CPU's clock rate.
pub(super) fn available() -> impl Iterator<Item = Kernel> {
    // SSE2 is a part of x86-64. Miri has no inline assembly.
    let sse2 = (!cfg!(miri)).then_some([SSE2_PAGES, SSE2_LINEAR]);
    let avx2 = is_x86_feature_detected!("avx2").then_some([AVX2_PAGES, AVX2_LINEAR]);
    avx2.into_iter().chain(sse2).flatten()
}

/// Returns the kernels with the widest registers: with pages side by side, and with lines in order. The name
/// is that of the instructions.
#[inline]
pub(super) fn orders() -> Option<(&'static str, [Kernel; 2])> {
    if cfg!(miri) {
        None
    } else if is_x86_feature_detected!("avx2") {
        Some(("avx2", [AVX2_PAGES, AVX2_LINEAR]))
    } else {
        Some(("sse2", [SSE2_PAGES, SSE2_LINEAR]))
    }
}

/// Declares a kernel and its functions, which have the CPU feature that their type of line needs.
macro_rules! kernel {
    ($kernel:ident, $name:literal, $line:ty, $order:ty, $copy:ident, $copy_all:ident, $fill:ident $(, $feature:literal)?) => {
        const $kernel: Kernel =
            Kernel { name: $name, streaming: true, copy: $copy, copy_all: $copy_all, fill: $fill };

        $(#[target_feature(enable = $feature)])?
        unsafe fn $copy(dst: *mut u8, src: *const u8, len: usize) {
            // SAFETY: the caller meets the kernel's requirements, and `available` returns only kernels whose
            // features the CPU has.
            unsafe { <$order>::copy::<$line>(dst, src, len) }
            fence();
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn $copy_all(copies: &[InlineCopy]) {
            // SAFETY: the caller meets the kernel's requirements, and `available` returns only kernels whose
            // features the CPU has.
            unsafe { <$order>::copy_all::<$line>(copies) }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn $fill(dst: *mut u8, pattern: [u8; 8], len: usize) {
            // SAFETY: the caller meets the kernel's requirements, and `available` returns only kernels whose
            // features the CPU has.
            unsafe { fill::<$line>(dst, pattern, len) }
        }
    };
}

kernel!(AVX2_PAGES, "avx2 pages", Avx2, SideBySide, copy_avx2, copy_all_avx2, fill_avx2, "avx2");
kernel!(
    AVX2_LINEAR,
    "avx2 linear",
    Avx2,
    Linear,
    copy_avx2_linear,
    copy_all_avx2_linear,
    fill_avx2_linear,
    "avx2"
);
kernel!(SSE2_PAGES, "sse2 pages", Sse2, SideBySide, copy_sse2, copy_all_sse2, fill_sse2);
kernel!(SSE2_LINEAR, "sse2 linear", Sse2, Linear, copy_sse2_linear, copy_all_sse2_linear, fill_sse2_linear);

/// Streams one line. Implementations are inlined into a function that has the CPU feature. Implementations
/// are `asm!` blocks, because other threads may access the bytes concurrently: see [`dma_core::racy_copy`].
trait Line {
    /// # Safety
    ///
    /// `src` is valid for reads of 64 bytes; `dst` is 64-byte aligned and valid for writes of 64 bytes; the
    /// CPU has the feature.
    unsafe fn stream(dst: *mut u8, src: *const u8);
}

struct Avx2;

impl Line for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn stream(dst: *mut u8, src: *const u8) {
        asan::check_copy(dst, src, LINE);
        // SAFETY: the code reads 64 bytes at `src` and writes them to the aligned 64 bytes at `dst`. It uses
        // neither flags nor the stack.
        unsafe {
            asm!(
                "vmovdqu {a}, [{src}]",
                "vmovdqu {b}, [{src} + 32]",
                "vmovntdq [{dst}], {a}",
                "vmovntdq [{dst} + 32], {b}",
                dst = in(reg) dst,
                src = in(reg) src,
                a = out(ymm_reg) _,
                b = out(ymm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

struct Sse2;

impl Line for Sse2 {
    #[inline(always)]
    unsafe fn stream(dst: *mut u8, src: *const u8) {
        asan::check_copy(dst, src, LINE);
        // SAFETY: the code reads 64 bytes at `src` and writes them to the aligned 64 bytes at `dst`. It uses
        // neither flags nor the stack.
        unsafe {
            asm!(
                "movdqu {a}, [{src}]",
                "movdqu {b}, [{src} + 16]",
                "movdqu {c}, [{src} + 32]",
                "movdqu {d}, [{src} + 48]",
                "movntdq [{dst}], {a}",
                "movntdq [{dst} + 16], {b}",
                "movntdq [{dst} + 32], {c}",
                "movntdq [{dst} + 48], {d}",
                dst = in(reg) dst,
                src = in(reg) src,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The order in which a kernel copies the lines of ranges.
trait Order {
    /// Copies without the final fence.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy`]. The CPU must have the feature of `L`.
    unsafe fn copy<L: Line>(dst: *mut u8, src: *const u8, len: usize);

    /// # Safety
    ///
    /// See [`Kernel::copy_all`]. The CPU must have the feature of `L`.
    unsafe fn copy_all<L: Line>(copies: &[InlineCopy]);
}

/// Four pages, or four ranges, side by side: one line of each in turn.
struct SideBySide;

impl Order for SideBySide {
    #[inline(always)]
    unsafe fn copy<L: Line>(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller meets the requirements, which are the same.
        unsafe { in_pages::<L>(dst, src, len) };
    }

    #[inline(always)]
    unsafe fn copy_all<L: Line>(copies: &[InlineCopy]) {
        // SAFETY: the caller meets the requirements, which are the same.
        unsafe { in_groups::<L>(copies) };
    }
}

/// From the first line to the last. Prefetches do not fill the second level cache.
struct Linear;

impl Order for Linear {
    #[inline(always)]
    unsafe fn copy<L: Line>(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller meets the requirements for this range, and no range follows.
        unsafe { in_order::<L>(dst, src, len, std::ptr::null(), 0) };
    }

    #[inline(always)]
    unsafe fn copy_all<L: Line>(copies: &[InlineCopy]) {
        for (at, range) in copies.iter().enumerate() {
            let next = copies.get(at + 1).map_or((std::ptr::null(), 0), |next| (next.src.as_ptr(), next.len));
            let src = range.src.as_ptr().cast_const();
            // SAFETY: the caller meets the requirements for each range.
            unsafe { in_order::<L>(range.dst.as_ptr(), src, range.len, next.0, next.1) };
        }
        fence();
    }
}

/// Copies the pages of a range side by side, without the final fence.
///
/// # Safety
///
/// See [`Kernel::copy`]. The CPU must have the feature of `L`.
#[inline(always)]
unsafe fn in_pages<L: Line>(dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // SAFETY: these are the first `head` bytes of both ranges.
    unsafe { cached::copy(dst, src, head) };
    let mut at = head;
    while end - at >= STREAMS * PAGE {
        // SAFETY: `at + STREAMS * PAGE <= end`; `dst + at` is line-aligned since `head`.
        unsafe { pages::<L, STREAMS>(dst, src, at, end) };
        at += STREAMS * PAGE;
    }
    let pages_left = (end - at) / PAGE;
    match pages_left {
        // SAFETY: three pages are left before `end`; `dst + at` is line-aligned.
        3 => unsafe { pages::<L, 3>(dst, src, at, end) },
        // SAFETY: two pages are left before `end`, and `dst + at` is line-aligned.
        2 => unsafe { pages::<L, 2>(dst, src, at, end) },
        // SAFETY: one page is left before `end`, and `dst + at` is line-aligned.
        1 => unsafe { pages::<L, 1>(dst, src, at, end) },
        _ => {}
    }
    at += pages_left * PAGE;
    while at < end {
        // SAFETY: the line lies before `end`, which is `tail` bytes before the end of both ranges, and `dst +
        // at` is line-aligned.
        unsafe { line::<L>(dst, src, at) };
        at += LINE;
    }
    // SAFETY: these are the last `tail` bytes of both ranges.
    unsafe { cached::copy(dst.wrapping_add(end), src.wrapping_add(end), tail) };
}

/// Copies ranges in groups of [`STREAMS`], like the pages of one range.
///
/// # Safety
///
/// See [`Kernel::copy_all`]. The CPU must have the feature of `L`.
#[inline(always)]
unsafe fn in_groups<L: Line>(copies: &[InlineCopy]) {
    let (groups, rest) = copies.as_chunks::<STREAMS>();
    for (number, group) in groups.iter().enumerate() {
        // SAFETY: the caller meets the requirements for each range, and the CPU has the feature.
        unsafe { side_by_side::<L>(group, &copies[STREAMS * (number + 1)..]) };
    }
    for range in rest {
        // SAFETY: the caller meets the requirements for each range, and the CPU has the feature.
        unsafe { in_pages::<L>(range.dst.as_ptr(), range.src.as_ptr(), range.len) };
    }
    fence();
}

/// Copies a range from its first line to its last, without the final fence. Prefetches the lines ahead, at
/// the end those of the `next_len` bytes at `next`.
///
/// # Safety
///
/// See [`Kernel::copy`]. The CPU must have the feature of `L`.
#[inline(always)]
unsafe fn in_order<L: Line>(dst: *mut u8, src: *const u8, len: usize, next: *const u8, next_len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // SAFETY: these are the first `head` bytes of both ranges.
    unsafe { cached::copy(dst, src, head) };
    let near = end.saturating_sub(AHEAD_IN_ORDER).max(head);
    for at in (head..near).step_by(LINE) {
        prefetch_once(src, at + AHEAD_IN_ORDER);
        // SAFETY: the line lies before `end`, and `dst + at` is line-aligned.
        unsafe { line::<L>(dst, src, at) };
    }
    for at in (near..end).step_by(LINE) {
        if at - near < next_len {
            prefetch_once(next, at - near);
        }
        // SAFETY: the line lies before `end`, and `dst + at` is line-aligned.
        unsafe { line::<L>(dst, src, at) };
    }
    // SAFETY: these are the last `tail` bytes of both ranges.
    unsafe { cached::copy(dst.wrapping_add(end), src.wrapping_add(end), tail) };
}

/// Copies ranges, one line of each in turn up to the end of the shortest range, and prefetches the ranges
/// `next`.
///
/// # Safety
///
/// See [`Kernel::copy_all`]. The CPU must have the feature of `L`.
#[inline(always)]
unsafe fn side_by_side<L: Line>(group: &[InlineCopy; STREAMS], next: &[InlineCopy]) {
    // If there are fewer next ranges, prefetch the one before, because this one is in the cache.
    let next: [(*const u8, usize); STREAMS] = std::array::from_fn(|stream| {
        let range = next.get(stream).or(next.last()).unwrap_or(&group[stream]);
        (range.src.as_ptr().cast_const(), range.len)
    });
    let heads = group.map(|range| range.dst.as_ptr().align_offset(LINE).min(range.len));
    let mut ranges = [(std::ptr::null_mut(), std::ptr::null(), 0); STREAMS];
    for stream in 0..STREAMS {
        let (range, head) = (group[stream], heads[stream]);
        let (dst, src) = (range.dst.as_ptr(), range.src.as_ptr().cast_const());
        // SAFETY: these are the first `head` bytes of both ranges.
        unsafe { cached::copy(dst, src, head) };
        ranges[stream] = (dst.wrapping_add(head), src.wrapping_add(head), range.len - head);
    }
    let shortest = ranges.iter().map(|(.., len)| *len).min().unwrap_or(0);
    let end = shortest / LINE * LINE;
    let turn = |at: usize| {
        for (dst, src, _) in &ranges {
            // SAFETY: the line lies in both ranges, and `dst` is line-aligned.
            unsafe { line::<L>(*dst, *src, at) };
        }
    };
    let near = end.saturating_sub(AHEAD);
    for at in (0..near).step_by(LINE) {
        ranges.iter().for_each(|(_, src, _)| prefetch(*src, at + AHEAD));
        turn(at);
    }
    for at in (near..end).step_by(LINE) {
        next.iter().for_each(|(src, len)| prefetch(*src, (at - near).min(len.saturating_sub(1))));
        turn(at);
    }
    for (dst, src, len) in ranges {
        // SAFETY: these are the remaining bytes of both ranges.
        unsafe { in_pages::<L>(dst.wrapping_add(end), src.wrapping_add(end), len - end) };
    }
}

/// Copies `N` pages from offset `at` on, one line of each in turn. Prefetches up to `end`, but not beyond.
///
/// # Safety
///
/// `at + N * PAGE <= end`, both ranges extend at least to `end`, and `dst + at` is line-aligned.
#[inline(always)]
unsafe fn pages<L: Line, const N: usize>(dst: *mut u8, src: *const u8, at: usize, end: usize) {
    let turn = |offset: usize| {
        for stream in 0..N {
            // SAFETY: the line lies in one of the `N` pages, which lie in both ranges, and `dst + at` is
            // line-aligned.
            unsafe { line::<L>(dst, src, at + stream * PAGE + offset) };
        }
    };
    for offset in (0..PAGE - AHEAD).step_by(LINE) {
        for stream in 0..N {
            prefetch(src, at + stream * PAGE + offset + AHEAD);
        }
        turn(offset);
    }
    let next = at + N * PAGE;
    let prefetch_next = end - next >= N * PAGE;
    for offset in (PAGE - AHEAD..PAGE).step_by(LINE) {
        if prefetch_next {
            for stream in 0..N {
                prefetch(src, next + stream * PAGE + offset + AHEAD - PAGE);
            }
        }
        turn(offset);
    }
}

/// # Safety
///
/// 64 bytes at offset `at` lie within both ranges, and `dst + at` is line-aligned.
#[inline(always)]
unsafe fn line<L: Line>(dst: *mut u8, src: *const u8, at: usize) {
    // SAFETY: the caller ensures that the line lies within both ranges and that `dst + at` is line-aligned.
    unsafe { L::stream(dst.wrapping_add(at), src.wrapping_add(at)) };
}

#[inline(always)]
fn prefetch(src: *const u8, at: usize) {
    // SAFETY: a prefetch is a hint: it cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(at).cast::<i8>()) };
}

/// Prefetches a line that is read only once.
#[inline(always)]
fn prefetch_once(src: *const u8, at: usize) {
    // SAFETY: a prefetch is a hint: it cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_NTA>(src.wrapping_add(at).cast::<i8>()) };
}

/// # Safety
///
/// See [`Kernel::fill`]. The CPU must have the feature of `L`.
#[inline(always)]
unsafe fn fill<L: Line>(dst: *mut u8, pattern: [u8; 8], len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // SAFETY: these are the first `head` bytes of the range, and `head` is less than the length of a line.
    unsafe { cached::copy(dst, pattern_line(pattern, 0).as_ptr(), head) };
    let block = pattern_line(pattern, head);
    let mut at = head;
    while at < end {
        // SAFETY: the line lies before `end` and is aligned since `head`, and `block` is a line.
        unsafe { L::stream(dst.wrapping_add(at), block.as_ptr()) };
        at += LINE;
    }
    // SAFETY: these are the last `tail` bytes of the range, and `block` is at least as long. Whole lines
    // precede them, so `block` has the right phase of the pattern.
    unsafe { cached::copy(dst.wrapping_add(end), block.as_ptr(), tail) };
    fence();
}

/// Orders the streamed stores, which are weakly ordered, before every later store. Without the fence, another
/// core could see the completion before the data. The compiler does not move earlier accesses after the
/// fence, because the block clobbers memory.
#[inline(always)]
fn fence() {
    // SAFETY: a fence changes no register, flag or stack.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
