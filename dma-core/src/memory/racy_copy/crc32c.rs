//! CRC-32C of bytes that others may access at the same time, alone or while they are copied.
//!
//! On x86-64 with SSE 4.2, blocks go through three independent `crc32` chains, since the instruction has a
//! latency of three cycles and a throughput of one (Intel's optimization manual and uops.info). The block's
//! value is put together by `shift`. All other bytes, and those of other CPUs, go through a buffer in the
//! level-1 cache to the crate `crc32c`.
#![expect(unsafe_code, reason = "reads and moves bytes between raw addresses")]

/// Bytes that go through the stack at a time.
const CHUNK: usize = 4096;

/// Computes the CRC-32C of the `len` bytes at `src`. `crc` is that of the bytes before them, or 0.
///
/// If others write the bytes meanwhile, the result is that of unspecified bytes.
///
/// # Safety
///
/// `src` is mapped for reads of `len` bytes, and no exclusive reference to them is in use while this runs.
pub unsafe fn crc32c(crc: u32, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { blocks(crc, None, src, len) }
}

/// Copies `len` bytes from `src` to `dst`, and returns their CRC-32C as [`crc32c()`] does. Reads the source
/// from memory once, and writes through the cache.
///
/// If others write the source meanwhile, the result need not be the CRC of the destination.
///
/// # Safety
///
/// As [`copy`](super::copy), and the ranges do not overlap.
pub unsafe fn copy_crc32c(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { blocks(crc, Some((dst, false)), src, len) }
}

/// As [`copy_crc32c`], and writes whole cache lines past the cache where the CPU can, for memory that nobody
/// reads soon. All bytes are ordered before later stores of this thread.
///
/// # Safety
///
/// As [`copy_crc32c`].
pub unsafe fn copy_crc32c_past_cache(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { blocks(crc, Some((dst, true)), src, len) }
}

/// A destination, and whether it is written past the cache.
type Destination = (*mut u8, bool);

/// Takes the bytes through the stack. With `dst`, copies them.
///
/// # Safety
///
/// As [`copy_crc32c`], or [`crc32c()`] without `dst`.
unsafe fn buffered(mut crc: u32, dst: Option<Destination>, src: *const u8, len: usize) -> u32 {
    let mut bytes = [0; CHUNK];
    for at in (0..len).step_by(CHUNK) {
        let n = CHUNK.min(len - at);
        // SAFETY: within the range; the caller's promise.
        unsafe { super::copy(bytes.as_mut_ptr(), src.wrapping_add(at), n) };
        crc = crc32c::crc32c_append(crc, &bytes[..n]);
        if let Some((dst, _)) = dst {
            // SAFETY: as above.
            unsafe { super::copy(dst.wrapping_add(at), bytes.as_ptr(), n) };
        }
    }
    crc
}

#[cfg(not(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer)))))]
use buffered as blocks;

#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
use x86_64::blocks;

#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
mod x86_64 {
    use std::arch::asm;
    use std::sync::OnceLock;

    use super::{Destination, buffered};

    /// A cache line.
    const LINE: usize = 64;
    /// Bytes of each chain in a block: a page, which one hardware prefetch stream covers. A block stays in
    /// the level-1 cache.
    const CHAIN: usize = 4096;
    const BLOCK: usize = 3 * CHAIN;
    /// Distance from a load to the prefetch ahead of it, in lines.
    const AHEAD: usize = 8;

    /// # Safety
    ///
    /// As [`buffered`].
    pub(super) unsafe fn blocks(mut crc: u32, dst: Option<Destination>, src: *const u8, len: usize) -> u32 {
        let mut at = 0;
        if len >= BLOCK + LINE && std::arch::is_x86_feature_detected!("sse4.2") {
            if let Some((first, _)) = dst {
                at = first.align_offset(LINE).min(LINE);
                // SAFETY: the first bytes of both ranges, which are longer.
                crc = unsafe { buffered(crc, dst, src, at) };
            }
            while len - at >= BLOCK {
                let from = src.wrapping_add(at);
                let raw = match dst {
                    // SAFETY: a block within the range; the CPU has the instruction.
                    None => unsafe { chains(!crc, from) },
                    // SAFETY: as above, within both ranges; the destination is aligned since the first bytes.
                    Some((dst, false)) => unsafe { chains_copied(!crc, from, dst.wrapping_add(at)) },
                    // SAFETY: as above.
                    Some((dst, true)) => unsafe { chains_streamed(!crc, from, dst.wrapping_add(at)) },
                };
                let [first, second, third] = raw.map(|raw| !raw);
                crc = shift(shift(first) ^ second) ^ third;
                at += BLOCK;
            }
            if dst.is_some_and(|(_, past_cache)| past_cache) {
                // Stores past the cache are ordered with nothing else.
                // SAFETY: x86-64 has SSE.
                unsafe { std::arch::x86_64::_mm_sfence() };
            }
        }
        let rest = dst.map(|(dst, past_cache)| (dst.wrapping_add(at), past_cache));
        // SAFETY: the rest of both ranges.
        unsafe { buffered(crc, rest, src.wrapping_add(at), len - at) }
    }

    /// Appends [`CHAIN`] zero bytes' worth of distance to a CRC: `shift(a) ^ b` is the CRC of the bytes of
    /// `a` followed by the [`CHAIN`] bytes of `b`.
    fn shift(crc: u32) -> u32 {
        static TABLES: OnceLock<[[u32; 256]; 4]> = OnceLock::new();
        let tables = TABLES.get_or_init(|| {
            let of =
                |place: usize, byte: usize| crc32c::crc32c_combine((byte as u32) << (8 * place), 0, CHAIN);
            std::array::from_fn(|place| std::array::from_fn(|byte| of(place, byte)))
        });
        crc.to_le_bytes().iter().zip(tables).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    }

    /// Declares a function that takes a block through three chains, a line of each in turn.
    macro_rules! chains {
        ($name:ident $(, $dst:ident, $store:literal)?) => {
            /// Returns the registers of the three chains; the first begins with `crc`.
            ///
            /// # Safety
            ///
            /// As [`buffered`], of a block whose destination is aligned to a line. The CPU has SSE 4.2.
            #[inline]
            unsafe fn $name(crc: u32, mut src: *const u8 $(, mut $dst: *mut u8)?) -> [u32; 3] {
                let (mut a, mut b, mut c) = (u64::from(crc), u64::from(u32::MAX), u64::from(u32::MAX));
                // The last lines prefetch the first ones of the next block.
                let next_block = BLOCK - CHAIN + AHEAD * LINE;
                for (lines, ahead) in [(CHAIN / LINE - AHEAD, AHEAD * LINE), (AHEAD, next_block)] {
                    // SAFETY: reads those lines at `src` and copies them to `dst`, if there is one; a
                    // prefetch cannot fault.
                    unsafe {
                        asm!(
                            "2:",
                            "prefetcht0 [{src} + {ahead}]",
                            "prefetcht0 [{src} + {ahead} + 4096]",
                            "prefetcht0 [{src} + {ahead} + 8192]",
                            // The next line of each chain, a word of each in turn.
                            ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
                            "crc32 {a}, qword ptr [{src} + \\at]",
                            "crc32 {b}, qword ptr [{src} + 4096 + \\at]",
                            "crc32 {c}, qword ptr [{src} + 8192 + \\at]",
                            ".endr",
                            $(
                                // Written whole before the next one, as stores past the cache want it.
                                ".irp at, 0, 4096, 8192",
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
                            a = inout(reg) a,
                            b = inout(reg) b,
                            c = inout(reg) c,
                            options(nostack),
                        );
                    }
                }
                [a as u32, b as u32, c as u32]
            }
        };
    }

    chains!(chains);
    chains!(chains_copied, dst, "movdqu");
    chains!(chains_streamed, dst, "movntdq");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_crc_is_the_crates_and_the_bytes_are_copied(
            len in prop_oneof![0..200_usize, 4000..40_000_usize],
            (from, to) in (0..70_usize, 0..70_usize),
            seed in prop_oneof![Just(0), any::<u32>()],
            first in any::<u64>(),
        ) {
            let src: Vec<u8> = (0..(len + from) as u64).map(|i| (first.wrapping_mul(i + 1) >> 23) as u8).collect();
            let expected = crc32c::crc32c_append(seed, &src[from..]);
            let start = src.as_ptr().wrapping_add(from);
            // SAFETY: the rest of the vector.
            prop_assert_eq!(unsafe { crc32c(seed, start, len) }, expected);
            let mut dst = vec![0xA5; to + len + 70];
            let end = dst.as_mut_ptr().wrapping_add(to);
            for copy in [copy_crc32c, copy_crc32c_past_cache] {
                dst.fill(0xA5);
                // SAFETY: within both vectors.
                prop_assert_eq!(unsafe { copy(seed, end, start, len) }, expected);
                prop_assert_eq!(&dst[to..to + len], &src[from..]);
                prop_assert!(dst[..to].iter().chain(&dst[to + len..]).all(|byte| *byte == 0xA5));
            }
        }
    }
}
