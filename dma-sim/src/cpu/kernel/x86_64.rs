//! Streaming kernels for x86-64: whole 64-byte lines, written past the cache.
//!
//! Copies run in four pages at once, a line of each in turn, as glibc's `memcpy` does above its non-temporal
//! threshold (`sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S`): the hardware prefetcher follows one stream
//! per page, and one stream alone leaves a core waiting for memory.

use std::arch::asm;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128,
    _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
};
use std::sync::OnceLock;

use super::Kernel;
use super::memory::{self, LINE, pattern_line};

/// Bytes between streams: the span that one hardware prefetch stream covers.
const PAGE: usize = 4096;
/// Pages read at once.
const LANES: usize = 4;
/// How far ahead of its load a line is prefetched.
const AHEAD: usize = 8 * LINE;

/// The streaming kernels of this CPU, the one to prefer first. Memory is what limits them all: on a Sapphire Rapids
/// class Xeon AVX2 comes out one to three hundredths ahead of the wider two, and asks nothing of the CPU's clock.
pub(super) fn available() -> impl Iterator<Item = Kernel> {
    [
        is_x86_feature_detected!("avx2").then_some(AVX2),
        is_x86_feature_detected!("avx512f").then_some(AVX512),
        has_movdir64b().then_some(MOVDIR64B),
        Some(SSE2), // part of x86-64 itself
    ]
    .into_iter()
    .flatten()
}

/// CPUID leaf 7, subleaf 0, ECX bit 28 (Intel SDM, volume 2, "CPUID"). std has no name for it.
fn has_movdir64b() -> bool {
    let [last, ..] = cpuid(0);
    let [_, _, ecx, _] = cpuid(7);
    last >= 7 && ecx >> 28 & 1 == 1
}

/// Whether this CPU says that it has fast short `rep movsb`, which glibc 2.36 takes to mean that everything above 2 KiB is best copied with it, and is AMD's,
/// where that does not hold if the destination is less than a line further on in its page than the source is in its own (glibc bug 30994). What it costs on such
/// a CPU is the last table of `cargo bench -p dma-sim --bench cpu_copy -- --table`.
pub(super) fn has_slow_rep_movsb() -> bool {
    static SLOW: OnceLock<bool> = OnceLock::new();
    *SLOW.get_or_init(|| {
        let [last, ebx, ecx, edx] = cpuid(0);
        let vendor = [ebx, edx, ecx].map(u32::to_le_bytes).concat();
        let by_amd = [b"AuthenticAMD", b"HygonGenuine"].iter().any(|amd| vendor == **amd);
        // AMD64 Architecture Programmer's Manual, volume 3, CPUID leaf 7, subleaf 0, EDX bit 4: fast short REP MOVSB.
        let [.., features] = cpuid(7);
        by_amd && last >= 7 && features >> 4 & 1 == 1
    })
}

/// CPUID leaf 8000_0006h, ECX bits 31 to 16: KiB of second level cache (AMD64 Architecture Programmer's Manual, volume 3, and Intel SDM, volume 2, "CPUID").
pub(super) fn second_level_cache() -> Option<usize> {
    const LEAF: u32 = 0x8000_0006;
    // Asked once: under a hypervisor each CPUID is a way out of the virtual machine and back, and every queue wants to know.
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let [last, ..] = cpuid(0x8000_0000);
        let kib = if last >= LEAF { cpuid(LEAF)[2] >> 16 } else { 0 };
        // A hypervisor may hide it.
        (kib > 0).then_some(kib as usize * 1024)
    })
}

/// EAX, EBX, ECX and EDX of subleaf 0 of `leaf`. Not std's `__cpuid_count`, which is unsafe or safe depending on its version.
fn cpuid(leaf: u32) -> [u32; 4] {
    let (mut eax, mut ecx, rbx, edx): (u32, u32, u64, u32);
    (eax, ecx) = (leaf, 0);
    // SAFETY: every x86-64 CPU has CPUID; RBX, which the compiler keeps to itself, is put back.
    unsafe {
        asm!(
            "mov {rbx:r}, rbx",
            "cpuid",
            "xchg rbx, {rbx:r}",
            rbx = out(reg) rbx,
            inout("eax") eax,
            inout("ecx") ecx,
            out("edx") edx,
            options(nostack, nomem, preserves_flags),
        );
    }
    [eax, rbx as u32, ecx, edx]
}

const AVX512: Kernel = Kernel { name: "avx512", streaming: true, copy: copy_avx512, fill: fill_avx512 };
const MOVDIR64B: Kernel =
    Kernel { name: "movdir64b", streaming: true, copy: copy_movdir64b, fill: fill_movdir64b };
const AVX2: Kernel = Kernel { name: "avx2", streaming: true, copy: copy_avx2, fill: fill_avx2 };
const SSE2: Kernel = Kernel { name: "sse2", streaming: true, copy: copy_sse2, fill: fill_sse2 };

#[target_feature(enable = "avx512f")]
unsafe fn copy_avx512(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; this function has the features that `Avx512` needs.
    unsafe { copy::<Avx512>(dst, src, len) }
}

#[target_feature(enable = "avx512f")]
unsafe fn fill_avx512(dst: *mut u8, pattern: [u8; 8], len: usize) {
    // SAFETY: as above.
    unsafe { fill::<Avx512>(dst, pattern, len) }
}

unsafe fn copy_movdir64b(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; handed out only where the CPU has MOVDIR64B.
    unsafe { copy::<Movdir64b>(dst, src, len) }
}

unsafe fn fill_movdir64b(dst: *mut u8, pattern: [u8; 8], len: usize) {
    // SAFETY: as above.
    unsafe { fill::<Movdir64b>(dst, pattern, len) }
}

#[target_feature(enable = "avx2")]
unsafe fn copy_avx2(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; this function has the features that `Avx2` needs.
    unsafe { copy::<Avx2>(dst, src, len) }
}

#[target_feature(enable = "avx2")]
unsafe fn fill_avx2(dst: *mut u8, pattern: [u8; 8], len: usize) {
    // SAFETY: as above.
    unsafe { fill::<Avx2>(dst, pattern, len) }
}

unsafe fn copy_sse2(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe { copy::<Sse2>(dst, src, len) }
}

unsafe fn fill_sse2(dst: *mut u8, pattern: [u8; 8], len: usize) {
    // SAFETY: as above.
    unsafe { fill::<Sse2>(dst, pattern, len) }
}

/// How one line moves past the cache. Implementations are inlined into a function that has the CPU feature.
trait Line {
    /// # Safety
    ///
    /// `src` is valid for reads of 64 bytes; `dst` is 64-byte aligned and valid for writes of 64 bytes; the CPU has
    /// the feature.
    unsafe fn stream(dst: *mut u8, src: *const u8);
}

struct Avx512;

impl Line for Avx512 {
    #[inline(always)]
    unsafe fn stream(dst: *mut u8, src: *const u8) {
        // SAFETY: 64 readable bytes, any alignment.
        let line = unsafe { _mm512_loadu_si512(src.cast::<__m512i>()) };
        // SAFETY: 64 writable, aligned bytes.
        unsafe { _mm512_stream_si512(dst.cast::<__m512i>(), line) };
    }
}

struct Movdir64b;

impl Line for Movdir64b {
    #[inline(always)]
    unsafe fn stream(dst: *mut u8, src: *const u8) {
        // SAFETY: reads 64 bytes at `src` and writes them to the aligned 64 bytes at `dst`; no flags, no stack.
        unsafe {
            asm!("movdir64b {dst}, [{src}]", dst = in(reg) dst, src = in(reg) src, options(nostack, preserves_flags));
        }
    }
}

struct Avx2;

impl Line for Avx2 {
    #[inline(always)]
    unsafe fn stream(dst: *mut u8, src: *const u8) {
        let (dst, src) = (dst.cast::<__m256i>(), src.cast::<__m256i>());
        for half in 0..2 {
            // SAFETY: 32 of the caller's 64 readable bytes, any alignment.
            let line = unsafe { _mm256_loadu_si256(src.wrapping_add(half)) };
            // SAFETY: 32 of the caller's 64 writable, aligned bytes.
            unsafe { _mm256_stream_si256(dst.wrapping_add(half), line) };
        }
    }
}

struct Sse2;

impl Line for Sse2 {
    #[inline(always)]
    unsafe fn stream(dst: *mut u8, src: *const u8) {
        let (dst, src) = (dst.cast::<__m128i>(), src.cast::<__m128i>());
        for quarter in 0..4 {
            // SAFETY: 16 of the caller's 64 readable bytes, any alignment.
            let line = unsafe { _mm_loadu_si128(src.wrapping_add(quarter)) };
            // SAFETY: 16 of the caller's 64 writable, aligned bytes.
            unsafe { _mm_stream_si128(dst.wrapping_add(quarter), line) };
        }
    }
}

/// # Safety
///
/// As for [`Kernel::copy`], and the CPU has `L`'s feature.
#[inline(always)]
unsafe fn copy<L: Line>(dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // SAFETY: the first `head` bytes of both ranges.
    unsafe { memory::copy(dst, src, head) };
    let mut at = head;
    while end - at >= LANES * PAGE {
        // SAFETY: `at + LANES * PAGE <= end`; `dst + at` is line-aligned since `head`.
        unsafe { pages::<L, LANES>(dst, src, at, end) };
        at += LANES * PAGE;
    }
    let pages_left = (end - at) / PAGE;
    match pages_left {
        // SAFETY: three pages are left before `end`; `dst + at` is line-aligned.
        3 => unsafe { pages::<L, 3>(dst, src, at, end) },
        // SAFETY: two pages, likewise.
        2 => unsafe { pages::<L, 2>(dst, src, at, end) },
        // SAFETY: one page, likewise.
        1 => unsafe { pages::<L, 1>(dst, src, at, end) },
        _ => {}
    }
    at += pages_left * PAGE;
    while at < end {
        // SAFETY: one line before `end`, which lies `tail` bytes before the end of both ranges.
        unsafe { line::<L>(dst, src, at) };
        at += LINE;
    }
    // SAFETY: the last `tail` bytes of both ranges.
    unsafe { memory::copy(dst.wrapping_add(end), src.wrapping_add(end), tail) };
    fence();
}

/// Copies `N` pages from offset `at`, a line of each in turn, prefetching up to `end` and never beyond.
///
/// # Safety
///
/// `at + N * PAGE <= end`, both ranges reach to `end` at least, and `dst + at` is line-aligned.
#[inline(always)]
unsafe fn pages<L: Line, const N: usize>(dst: *mut u8, src: *const u8, at: usize, end: usize) {
    let turn = |offset: usize| {
        for lane in 0..N {
            // SAFETY: a line of one of the `N` pages.
            unsafe { line::<L>(dst, src, at + lane * PAGE + offset) };
        }
    };
    for offset in (0..PAGE - AHEAD).step_by(LINE) {
        for lane in 0..N {
            prefetch(src, at + lane * PAGE + offset + AHEAD);
        }
        turn(offset);
    }
    let next = at + N * PAGE;
    let prefetch_next = end - next >= N * PAGE;
    for offset in (PAGE - AHEAD..PAGE).step_by(LINE) {
        if prefetch_next {
            for lane in 0..N {
                prefetch(src, next + lane * PAGE + offset + AHEAD - PAGE);
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
    // SAFETY: as promised.
    unsafe { L::stream(dst.wrapping_add(at), src.wrapping_add(at)) };
}

#[inline(always)]
fn prefetch(src: *const u8, at: usize) {
    // SAFETY: a prefetch is a hint: it cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(at).cast::<i8>()) };
}

/// # Safety
///
/// As for [`Kernel::fill`], and the CPU has `L`'s feature.
#[inline(always)]
unsafe fn fill<L: Line>(dst: *mut u8, pattern: [u8; 8], len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    // SAFETY: the first `head` bytes.
    unsafe { memory::copy(dst, pattern_line(pattern, 0).as_ptr(), head) };
    let block = pattern_line(pattern, head);
    let mut at = head;
    while at < end {
        // SAFETY: one line before `end`, aligned since `head`; `block` is a line of ours.
        unsafe { L::stream(dst.wrapping_add(at), block.as_ptr()) };
        at += LINE;
    }
    // SAFETY: the last `tail` bytes; whole lines before them, so the pattern's phase is that of `block`.
    unsafe { memory::copy(dst.wrapping_add(end), block.as_ptr(), tail) };
    fence();
}

/// Orders the streamed stores, which are weakly ordered, before every later store: without it, another core could
/// see the completion before the data. Everything before stays before: the block clobbers memory.
#[inline(always)]
fn fence() {
    // SAFETY: touches no register, flag or stack.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
