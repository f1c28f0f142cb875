//! CRC-32C by folding with carry-less multiplication, which is as fast as a copy of cached bytes.
//!
//! The method is described in "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction"
//! (Intel, 2009), in the section on bit-reflected polynomials. A vector contains the bytes read so far, as a
//! polynomial modulo the CRC polynomial. A fold by `n` bytes multiplies the vector by x^8n, and adds the
//! product to the vector that is `n` bytes later in the data.

/// Returns the two factors that fold 16 bytes over a distance of `bytes`: one for the first 8 bytes, one for
/// the last 8.
///
/// The product of two reflected 64-bit words has 127 bits, not 128. Exponents that are one less compensate
/// for this.
pub(super) const fn factors(bytes: usize) -> [u64; 2] {
    [power(8 * bytes + 63), power(8 * bytes - 1)]
}

/// Returns x^n modulo the polynomial of CRC-32C, reflected, in the upper half of a word.
pub(super) const fn power(n: usize) -> u64 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let mut value: u32 = 1 << 31;
    let mut i = 0;
    while i < n {
        value = (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg());
        i += 1;
    }
    (value as u64) << 32
}

/// Declares `run`, for vectors of `width` bytes. The surrounding module must define these functions for its
/// CPU: `next` loads a vector, and stores it to the destination. `spread` puts factors into each 16 bytes.
/// `start` adds the CRC to the first bytes. `fold` folds a vector. `reduce` reduces a vector to a CRC.
/// `prefetch` prefetches lines of four pages. `prefetch_next` prefetches lines of both ranges. `short`
/// processes bytes that do not fill a vector.
macro_rules! folds {
    ($width:literal, $features:literal) => {
        /// Returns the CRC register after `len` bytes, which fill at least one vector. `TO` selects the
        /// destination of the copy.
        ///
        /// With `PREFETCH`, long ranges are processed in four chains of one page each, so that the hardware
        /// prefetcher follows four streams, and the next lines are prefetched. Without it, the lines are read
        /// in order.
        ///
        /// # Safety
        ///
        /// See [`super::copy_crc32c`], or [`super::crc32c()`] if `TO` is [`NOWHERE`]. The CPU has the
        /// features. If the copy bypasses the cache, the destination is aligned to 64 bytes.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn run<const TO: u8, const PREFETCH: bool>(
            crc: u32,
            dst: *mut u8,
            src: *const u8,
            len: usize,
        ) -> u32 {
            const WIDTH: usize = $width;
            const PAGE: usize = 4096;
            const BLOCK: usize = 4 * PAGE;
            const AHEAD: usize = 512;
            let next = |at: usize| {
                debug_assert!(at + WIDTH <= len);
                // SAFETY: the vector lies within both ranges, because the loops below check the remaining
                // length.
                unsafe { next::<TO>(dst.wrapping_add(at), src.wrapping_add(at)) }
            };
            let by_one = spread(const { factors(WIDTH) });
            let mut sum = start(crc, next(0));
            let mut at = WIDTH;

            while PREFETCH && len - at >= BLOCK {
                let by_page = spread(const { factors(PAGE) });
                let mut a = fold(sum, by_one, next(at));
                let mut b = next(at + PAGE);
                let mut c = next(at + 2 * PAGE);
                let mut d = next(at + 3 * PAGE);
                let has_next = len - at >= 2 * BLOCK;
                for i in (at + WIDTH..at + PAGE).step_by(WIDTH) {
                    if (i - at) % 64 == 0 {
                        // At the last lines of a page, prefetch the first lines of the next block. Never
                        // prefetch beyond the range: its end may be that of mapped memory, and the search for
                        // pages that do not exist takes longer than the CRC of 1 KiB.
                        if i - at < PAGE - AHEAD {
                            prefetch(src.wrapping_add(i + AHEAD));
                        } else if has_next {
                            prefetch(src.wrapping_add(i + AHEAD + 3 * PAGE));
                        }
                    }
                    a = fold(a, by_one, next(i));
                    b = fold(b, by_one, next(i + PAGE));
                    c = fold(c, by_one, next(i + 2 * PAGE));
                    d = fold(d, by_one, next(i + 3 * PAGE));
                }
                sum = fold(fold(fold(a, by_page, b), by_page, c), by_page, d);
                at += BLOCK;
            }
            if len - at >= 4 * WIDTH {
                let by_four = spread(const { factors(4 * WIDTH) });
                let mut a = fold(sum, by_one, next(at));
                let mut b = next(at + WIDTH);
                let mut c = next(at + 2 * WIDTH);
                let mut d = next(at + 3 * WIDTH);
                at += 4 * WIDTH;
                while len - at >= 4 * WIDTH {
                    if PREFETCH && len - at >= AHEAD + 4 * WIDTH {
                        let ahead = at + AHEAD;
                        prefetch_next::<TO, { 4 * WIDTH }>(dst.wrapping_add(ahead), src.wrapping_add(ahead));
                    }
                    a = fold(a, by_four, next(at));
                    b = fold(b, by_four, next(at + WIDTH));
                    c = fold(c, by_four, next(at + 2 * WIDTH));
                    d = fold(d, by_four, next(at + 3 * WIDTH));
                    at += 4 * WIDTH;
                }
                sum = fold(fold(fold(a, by_one, b), by_one, c), by_one, d);
            }
            while len - at >= WIDTH {
                sum = fold(sum, by_one, next(at));
                at += WIDTH;
            }
            // SAFETY: the pointers and the length describe the rest of both ranges, and the CPU has the
            // features.
            unsafe { short::<TO>(reduce(sum), dst.wrapping_add(at), src.wrapping_add(at), len - at) }
        }
    };
}
pub(super) use folds;
