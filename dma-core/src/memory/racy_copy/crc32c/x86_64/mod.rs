//! CRC-32C by x86-64 instructions.
//!
//! With AVX-512 and VPCLMULQDQ, the code folds vectors of 64 bytes. With SSE 4.2 and PCLMULQDQ, it runs three
//! chains of `crc32` side by side, or folds vectors of 16 bytes. On most CPUs, `crc32` has a latency of three
//! cycles and a throughput of one per cycle, so that three chains process 8 bytes a cycle; folds process 4 to
//! 8 bytes a cycle (Intel's optimization manual and uops.info). But on the first generation of AMD EPYC,
//! there is one `crc32` in three cycles. Therefore, the first CRC of a process measures which is faster.

#[cfg(test)]
mod tests;

use std::arch::asm;
use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_sfence, _rdtsc,
};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::fold::factors;
use super::portable::{CACHE, MEMORY, NOWHERE, buffered};
use super::prefetch_trial::{TRIAL_FROM, Trials};

/// Returns the fastest set of instructions that this CPU supports.
fn instructions() -> u8 {
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    #[cold]
    fn ask() -> u8 {
        let found = match widest() {
            FOLDS_16 => chains_or_folds(),
            other => other,
        };
        KNOWN.store(found, Ordering::Relaxed);
        found
    }
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => ask(),
        known => known,
    }
}
const UNKNOWN: u8 = 0;
const BASE: u8 = 1;
const CHAINS: u8 = 2;
const FOLDS_16: u8 = 3;
const FOLDS_64: u8 = 4;

/// Returns the last set of instructions that this CPU supports. It also supports all sets before this one.
fn widest() -> u8 {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("sse4.2") && has!("pclmulqdq")) {
        BASE
    } else if has!("avx512f") && has!("avx512vl") && has!("vpclmulqdq") {
        FOLDS_64
    } else {
        FOLDS_16
    }
}

/// Returns the faster one of [`CHAINS`] and [`FOLDS_16`], which this CPU supports. Takes some 10 us.
fn chains_or_folds() -> u8 {
    /// Four blocks of three chains.
    const LEN: usize = 4 * 3 * 256;
    const ROUNDS: usize = 8;
    let bytes = [0; LEN];
    // The shortest time is that of a round that nothing has interrupted.
    let time = |instructions| {
        let round = |_| {
            // SAFETY: every x86-64 CPU has a time stamp counter.
            let start = unsafe { _rdtsc() };
            // SAFETY: the pointer and the length describe the array, and the CPU supports the instructions.
            let crc = unsafe { by::<NOWHERE>(instructions, true, 0, ptr::null_mut(), bytes.as_ptr(), LEN) };
            black_box(crc);
            // SAFETY: every x86-64 CPU has a time stamp counter.
            unsafe { _rdtsc() }.saturating_sub(start)
        };
        (0..ROUNDS).map(round).min().unwrap_or(0)
    };
    // If the difference is small, the clock decides nothing.
    if time(FOLDS_16) * 10 < time(CHAINS) * 9 { FOLDS_16 } else { CHAINS }
}

/// Length of a cache line, in bytes.
const LINE: usize = 64;
/// Minimum length, in bytes, of ranges that are processed without prefetches if that is faster.
const LONG_FROM: usize = 2 << 10;
/// Minimum length, in bytes, of ranges that are folded 16 bytes at a time.
const NARROW_FROM: usize = 256;
/// Minimum length, in bytes, of copies that write whole cache lines past the cache.
const ALIGN_FROM: usize = 512;

/// Returns the CRC after `len` bytes, and copies them to the destination that `TO` selects.
///
/// # Safety
///
/// See [`super::copy_crc32c`], or [`super::crc32c()`] if `TO` is [`NOWHERE`].
#[inline]
pub(super) unsafe fn crc<const TO: u8>(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    if len >= LONG_FROM {
        // SAFETY: the caller meets the requirements.
        return unsafe { long::<TO>(crc, dst, src, len) };
    }
    // SAFETY: the caller meets the requirements for both ranges, and `instructions` returns only instructions
    // that the CPU supports.
    unsafe { by::<TO>(instructions(), true, crc, dst, src, len) }
}

/// Does the work of [`crc()`] for ranges that are long enough for prefetches to matter.
///
/// # Safety
///
/// See [`crc()`].
#[inline(never)]
unsafe fn long<const TO: u8>(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    /// The trials for each destination.
    static TRIALS: [Trials; 3] = [Trials::new(NOWHERE), Trials::new(CACHE), Trials::new(MEMORY)];
    let (instructions, trials) = (instructions(), &TRIALS[usize::from(TO)]);
    let process = move |prefetch| {
        // SAFETY: the caller meets the requirements for both ranges. `instructions` returns only instructions
        // that the CPU supports.
        unsafe { by::<TO>(instructions, prefetch, crc, dst, src, len) }
    };
    if len >= TRIAL_FROM
        && instructions >= FOLDS_16
        && let Some(place) = trials.due()
    {
        trials.time(place, len, process)
    } else {
        process(trials.prefetches())
    }
}

/// Returns the CRC as [`crc()`] does. `prefetch` selects folds with prefetches.
///
/// # Safety
///
/// See [`crc()`]. The CPU supports these instructions.
#[inline]
unsafe fn by<const TO: u8>(
    instructions: u8,
    prefetch: bool,
    crc: u32,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u32 {
    if instructions == BASE {
        // SAFETY: the caller meets the requirements for both ranges.
        return unsafe { buffered::<TO>(crc, dst, src, len) };
    }
    let head = if TO != NOWHERE && len >= ALIGN_FROM { dst.align_offset(LINE).min(LINE) } else { 0 };
    // Ranges without whole lines are written through the cache.
    let past_cache = TO == MEMORY && len >= ALIGN_FROM;
    let to = if TO == MEMORY && !past_cache { CACHE } else { TO };
    /// Selects the function for one destination.
    macro_rules! rest {
        ($to:ident) => {
            match instructions {
                FOLDS_64 if len - head >= LINE && prefetch => wide::run::<$to, true>,
                FOLDS_64 if len - head >= LINE => wide::run::<$to, false>,
                FOLDS_16 if len - head >= NARROW_FROM && prefetch => narrow::run::<$to, true>,
                FOLDS_16 if len - head >= NARROW_FROM => narrow::run::<$to, false>,
                _ => chains::<$to>,
            }
        };
    }
    let rest: unsafe fn(u32, *mut u8, *const u8, usize) -> u32 = match to {
        MEMORY => rest!(MEMORY),
        NOWHERE => rest!(NOWHERE),
        _ => rest!(CACHE),
    };
    let mut raw = !crc;
    if head > 0 {
        // SAFETY: the pointers and the length describe the first bytes of both ranges. Every CPU with more
        // than the base instructions has SSE 4.2.
        raw = unsafe { short::<TO>(raw, dst, src, head) };
    }
    // SAFETY: the pointers and the length describe the remaining bytes of both ranges, at least one line for
    // folds. The CPU supports the instructions. If the copy bypasses the cache, the destination is aligned to
    // a line.
    let raw = unsafe { rest(raw, dst.wrapping_add(head), src.wrapping_add(head), len - head) };
    if past_cache {
        // Stores past the cache are not ordered with other accesses, so a store fence is needed.
        // SAFETY: every x86-64 CPU has SSE.
        unsafe { _mm_sfence() };
    }
    !raw
}

/// Processes bytes that are too few for vectors or chains: 8 bytes at a time, then one byte at a time.
///
/// # Safety
///
/// See [`crc()`].
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn short<const TO: u8>(mut crc: u32, mut dst: *mut u8, mut src: *const u8, len: usize) -> u32 {
    for _ in 0..len / 8 {
        let word: u64;
        // SAFETY: the 8 bytes lie within the source.
        unsafe {
            asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) src, options(nostack, preserves_flags))
        };
        if TO != NOWHERE {
            // SAFETY: the 8 bytes lie within the destination.
            unsafe {
                asm!("mov qword ptr [{}], {}", in(reg) dst, in(reg) word, options(nostack, preserves_flags))
            };
            dst = dst.wrapping_add(8);
        }
        crc = _mm_crc32_u64(crc.into(), word) as u32;
        src = src.wrapping_add(8);
    }
    for _ in 0..len % 8 {
        let byte: u32;
        // SAFETY: the byte lies within the source.
        unsafe {
            asm!("movzx {:e}, byte ptr [{}]", out(reg) byte, in(reg) src, options(nostack, preserves_flags))
        };
        if TO != NOWHERE {
            // SAFETY: the byte lies within the destination.
            unsafe {
                asm!("mov byte ptr [{}], {}", in(reg) dst, in(reg_byte) byte as u8, options(nostack, preserves_flags))
            };
            dst = dst.wrapping_add(1);
        }
        crc = _mm_crc32_u8(crc, byte as u8);
        src = src.wrapping_add(1);
    }
    crc
}

/// CRC-32C by folding vectors of 64 bytes.
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm_cvtsi32_si128, _mm_extract_epi64, _mm_xor_si128, _mm512_broadcast_i32x4,
        _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_set_epi64, _mm512_ternarylogic_epi64,
        _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    use super::super::fold::folds;
    use super::*;

    folds!(64, "sse4.2,pclmulqdq,avx512f,avx512vl,vpclmulqdq");

    /// Loads a vector, and stores it to the destination unless `TO` is [`NOWHERE`].
    ///
    /// # Safety
    ///
    /// The requirements of [`run`], for the 64 bytes of one vector.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn next<const TO: u8>(dst: *mut u8, src: *const u8) -> __m512i {
        let bytes: __m512i;
        // SAFETY: the 64 bytes lie within the source.
        unsafe {
            asm!("vmovdqu64 {}, [{}]", out(zmm_reg) bytes, in(reg) src, options(nostack, preserves_flags))
        };
        match TO {
            // SAFETY: the 64 bytes lie within the destination.
            CACHE => unsafe {
                asm!("vmovdqu64 [{}], {}", in(reg) dst, in(zmm_reg) bytes, options(nostack, preserves_flags))
            },
            // SAFETY: the line lies within the destination, which is aligned to a line.
            MEMORY => unsafe {
                asm!("vmovntdq [{}], {}", in(reg) dst, in(zmm_reg) bytes, options(nostack, preserves_flags))
            },
            _ => {}
        }
        bytes
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn spread(factors: [u64; 2]) -> __m512i {
        _mm512_broadcast_i32x4(_mm_set_epi64x(factors[1] as i64, factors[0] as i64))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn start(crc: u32, bytes: __m512i) -> __m512i {
        _mm512_xor_si512(_mm512_zextsi128_si512(_mm_cvtsi32_si128(crc as i32)), bytes)
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(sum: __m512i, factors: __m512i, bytes: __m512i) -> __m512i {
        let first = _mm512_clmulepi64_epi128::<0x00>(sum, factors);
        let last = _mm512_clmulepi64_epi128::<0x11>(sum, factors);
        // The constant selects the exclusive or of all three operands.
        _mm512_ternarylogic_epi64::<0x96>(first, last, bytes)
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq,avx512f,vpclmulqdq")]
    fn reduce(sum: __m512i) -> u32 {
        const BY_3: [u64; 2] = factors(48);
        const BY_2: [u64; 2] = factors(32);
        const BY_1: [u64; 2] = factors(16);
        let [a, b, c, d, e, f] =
            [BY_3[0], BY_3[1], BY_2[0], BY_2[1], BY_1[0], BY_1[1]].map(|factor| factor as i64);
        // The last 16 bytes need no fold.
        let moved = fold(sum, _mm512_set_epi64(0, 0, f, e, d, c, b, a), _mm512_xor_si512(sum, sum));
        let front =
            _mm_xor_si128(_mm512_extracti32x4_epi32::<0>(moved), _mm512_extracti32x4_epi32::<1>(moved));
        let back = _mm_xor_si128(_mm512_extracti32x4_epi32::<2>(moved), _mm512_extracti32x4_epi32::<3>(sum));
        let sum = _mm_xor_si128(front, back);
        let crc = _mm_crc32_u64(0, _mm_extract_epi64::<0>(sum) as u64);
        _mm_crc32_u64(crc, _mm_extract_epi64::<1>(sum) as u64) as u32
    }
}

/// CRC-32C by folding vectors of 16 bytes.
mod narrow {
    use std::arch::x86_64::{__m128i, _mm_cvtsi32_si128, _mm_extract_epi64, _mm_xor_si128};

    use super::super::fold::folds;
    use super::*;

    folds!(16, "sse4.2,pclmulqdq");

    /// Loads a vector, and stores it to the destination unless `TO` is [`NOWHERE`].
    ///
    /// # Safety
    ///
    /// The requirements of [`run`], for the 16 bytes of one vector.
    #[inline]
    unsafe fn next<const TO: u8>(dst: *mut u8, src: *const u8) -> __m128i {
        let bytes: __m128i;
        // SAFETY: the 16 bytes lie within the source.
        unsafe {
            asm!("movdqu {}, [{}]", out(xmm_reg) bytes, in(reg) src, options(nostack, preserves_flags))
        };
        match TO {
            // SAFETY: the 16 bytes lie within the destination.
            CACHE => unsafe {
                asm!("movdqu [{}], {}", in(reg) dst, in(xmm_reg) bytes, options(nostack, preserves_flags))
            },
            // SAFETY: the 16 bytes lie within the destination, which is aligned to a line.
            MEMORY => unsafe {
                asm!("movntdq [{}], {}", in(reg) dst, in(xmm_reg) bytes, options(nostack, preserves_flags))
            },
            _ => {}
        }
        bytes
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn spread(factors: [u64; 2]) -> __m128i {
        _mm_set_epi64x(factors[1] as i64, factors[0] as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn start(crc: u32, bytes: __m128i) -> __m128i {
        _mm_xor_si128(_mm_cvtsi32_si128(crc as i32), bytes)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn fold(sum: __m128i, factors: __m128i, bytes: __m128i) -> __m128i {
        let first = _mm_clmulepi64_si128::<0x00>(sum, factors);
        let last = _mm_clmulepi64_si128::<0x11>(sum, factors);
        _mm_xor_si128(_mm_xor_si128(first, last), bytes)
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn reduce(sum: __m128i) -> u32 {
        let crc = _mm_crc32_u64(0, _mm_extract_epi64::<0>(sum) as u64);
        _mm_crc32_u64(crc, _mm_extract_epi64::<1>(sum) as u64) as u32
    }
}

/// Prefetches `LEN` bytes of the source, and of a destination that is written through the cache.
///
/// Without this prefetch, stores wait on some CPUs until the lines of a destination that is not cached are
/// loaded. Copies of 4 KiB then take longer than `rep movsb`, which does not load these lines, followed by a
/// CRC.
#[inline]
fn prefetch_next<const TO: u8, const LEN: usize>(dst: *mut u8, src: *const u8) {
    for at in (0..LEN).step_by(LINE) {
        // SAFETY: a prefetch cannot fault.
        unsafe {
            asm!("prefetcht0 [{}]", in(reg) src.wrapping_add(at), options(nostack, preserves_flags));
        }
        if TO == CACHE {
            // SAFETY: a prefetch cannot fault, and does not change bytes.
            unsafe {
                asm!("prefetchw [{}]", in(reg) dst.wrapping_add(at), options(nostack, preserves_flags));
            }
        }
    }
}

/// Prefetches one line of each of four pages.
#[inline]
fn prefetch(line: *const u8) {
    // SAFETY: a prefetch cannot fault.
    unsafe {
        asm!(
            "prefetcht0 [{0}]",
            "prefetcht0 [{0} + 4096]",
            "prefetcht0 [{0} + 8192]",
            "prefetcht0 [{0} + 12288]",
            in(reg) line,
            options(nostack, preserves_flags)
        );
    }
}

/// Processes three chains side by side. Each chain has one page, which one stream of the hardware prefetcher
/// covers, or four lines.
///
/// # Safety
///
/// See [`crc()`]. The CPU has SSE 4.2 and PCLMULQDQ. If the copy bypasses the cache, the destination is
/// aligned to a line.
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn chains<const TO: u8>(mut crc: u32, mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u32 {
    macro_rules! blocks {
        ($chain:literal) => {
            while len >= 3 * $chain {
                // SAFETY: the block lies within both ranges, and the CPU has the features.
                crc = unsafe {
                    let ahead = ahead_at_the_end::<$chain>(len);
                    match TO {
                        NOWHERE => in_cache::block::<$chain>(crc, ahead, src),
                        CACHE => copied::block::<$chain>(crc, ahead, src, dst),
                        _ => past_cache::block::<$chain>(crc, ahead, src, dst),
                    }
                };
                (dst, src, len) =
                    (dst.wrapping_add(3 * $chain), src.wrapping_add(3 * $chain), len - 3 * $chain);
            }
        };
    }
    blocks!(4096);
    blocks!(256);
    // SAFETY: the pointers and the length describe the rest of both ranges, and the CPU has SSE 4.2.
    unsafe { short::<TO>(crc, dst, src, len) }
}

/// Combines the CRC registers of three chains of `CHAIN` bytes.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn join<const CHAIN: usize>([a, b, c]: [u64; 3]) -> u32 {
    use super::fold::power;
    // The exponents compensate for 32 additional bits of a register, 1 bit of the product, and 32 bits of the
    // last two steps.
    let by_two = const { power(16 * CHAIN - 65) as i64 };
    let by_one = const { power(8 * CHAIN - 65) as i64 };
    let moved =
        |crc: u64, by| _mm_clmulepi64_si128::<0x00>(_mm_set_epi64x(0, crc as i64), _mm_set_epi64x(0, by));
    let sum = std::arch::x86_64::_mm_xor_si128(moved(a, by_two), moved(b, by_one));
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64);
    _mm_crc32_u64(crc, std::arch::x86_64::_mm_extract_epi64::<1>(sum) as u64) as u32 ^ c as u32
}

/// Distance from a load to the prefetch ahead of it, in lines.
const AHEAD: usize = 8;

/// Returns the distance from a load to the prefetch ahead of it, in bytes, at the last lines of a block's
/// chains: to the first lines of the next block. `len` is the length of the range from the beginning of the
/// block. Returns 0, which prefetches nothing new, if a prefetch would leave the range. Its end may be that
/// of mapped memory, and the search for a page that does not exist takes longer than the CRC of 1 KiB.
const fn ahead_at_the_end<const CHAIN: usize>(len: usize) -> usize {
    let ahead = 2 * CHAIN + AHEAD * LINE;
    // The last line of the last chain ends with the block.
    if 3 * CHAIN + ahead <= len { ahead } else { 0 }
}

/// Declares `block`, which processes three chains of `CHAIN` bytes. The code processes one line of each chain
/// in turn.
macro_rules! block {
    ($name:ident $(, $dst:ident, $store:literal)?) => {
        mod $name {
            use super::*;

            /// Returns the CRC register after the block. `ahead_at_the_end` is the function's result.
            ///
            /// # Safety
            ///
            /// The requirements of [`chains`], for one block.
            #[inline]
            #[target_feature(enable = "sse4.2,pclmulqdq")]
            pub(super) unsafe fn block<const CHAIN: usize>(
                crc: u32,
                ahead_at_the_end: usize,
                mut src: *const u8
                $(, mut $dst: *mut u8)?
            ) -> u32 {
                let (mut a, mut b, mut c) = (u64::from(crc), 0_u64, 0_u64);
                let lines = CHAIN / LINE;
                let near = lines.saturating_sub(AHEAD);
                // At the last lines, prefetch the first lines of the next block.
                for (lines, ahead) in [(near, AHEAD * LINE), (lines - near, ahead_at_the_end)] {
                    if lines == 0 {
                        continue;
                    }
                    // SAFETY: the code reads the lines of this block at `src`, and writes them to `dst` if
                    // the copy has a destination. A prefetch cannot fault.
                    unsafe {
                        asm!(
                            "2:",
                            "prefetcht0 [{src} + {ahead}]",
                            "prefetcht0 [{src} + {ahead} + {chain}]",
                            "prefetcht0 [{src} + {ahead} + 2 * {chain}]",
                            // Process the next line of each chain, one word of each chain in turn.
                            ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
                            "crc32 {a}, qword ptr [{src} + \\at]",
                            "crc32 {b}, qword ptr [{src} + {chain} + \\at]",
                            "crc32 {c}, qword ptr [{src} + 2 * {chain} + \\at]",
                            ".endr",
                            $(
                                // Write each line completely before the next line, because the CPU combines
                                // stores past the cache within a line.
                                ".irp at, 0, {chain}, 2 * {chain}",
                                "movdqu {w}, [{src} + \\at]",
                                "movdqu {x}, [{src} + 16 + \\at]",
                                "movdqu {y}, [{src} + 32 + \\at]",
                                "movdqu {z}, [{src} + 48 + \\at]",
                                concat!($store, " [{dst} + \\at], {w}"),
                                concat!($store, " [{dst} + 16 + \\at], {x}"),
                                concat!($store, " [{dst} + 32 + \\at], {y}"),
                                concat!($store, " [{dst} + 48 + \\at], {z}"),
                                ".endr",
                                "add {dst}, 64",
                            )?
                            "add {src}, 64",
                            "dec {n}",
                            "jnz 2b",
                            src = inout(reg) src,
                            $(
                                dst = inout(reg) $dst,
                                w = out(xmm_reg) _,
                                x = out(xmm_reg) _,
                                y = out(xmm_reg) _,
                                z = out(xmm_reg) _,
                            )?
                            n = inout(reg) lines => _,
                            ahead = in(reg) ahead,
                            chain = const CHAIN,
                            a = inout(reg) a,
                            b = inout(reg) b,
                            c = inout(reg) c,
                            options(nostack),
                        );
                    }
                }
                join::<CHAIN>([a, b, c])
            }
        }
    };
}

block!(in_cache);
block!(copied, dst, "movdqu");
block!(past_cache, dst, "movntdq");
