//! CRC-32C of bytes that other code may write at the same time. The CRC is computed alone or during a copy.
//!
//! The bytes are read once, by special CPU instructions (`x86_64.rs`, `aarch64.rs`). On other CPUs, and for
//! sanitizers and Miri, the bytes are copied to a buffer, and tables give their CRC (`portable.rs`).
#![expect(unsafe_code, reason = "reads and moves bytes between raw addresses")]

#[cfg(all(target_arch = "aarch64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
mod aarch64;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))
))]
mod fold;
mod portable;
#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
mod prefetch_trial;
#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
use aarch64::crc;
#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))
)))]
use portable::buffered as crc;
#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
use x86_64::crc;

use portable::{CACHE, MEMORY, NOWHERE};

/// Computes the CRC-32C of the `len` bytes at `src`. `crc` is the CRC-32C of the preceding bytes, or 0.
///
/// If other code writes the bytes at the same time, the result is the CRC of unspecified bytes.
///
/// # Safety
///
/// The `len` bytes at `src` are mapped for reads, and no exclusive reference to them is used during the call.
#[inline]
pub unsafe fn crc32c(crc: u32, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller has mapped `src`, and nothing is written.
    unsafe { self::crc::<NOWHERE>(crc, std::ptr::null_mut(), src, len) }
}

/// Copies `len` bytes from `src` to `dst`, and returns their CRC-32C as [`crc32c()`] does. Reads the source
/// from memory once, and writes through the cache.
///
/// If other code writes the source at the same time, the result may differ from the CRC of the destination.
///
/// # Safety
///
/// See [`copy`](super::copy). The ranges do not overlap.
#[inline]
pub unsafe fn copy_crc32c(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller has mapped both ranges, which do not overlap.
    unsafe { self::crc::<CACHE>(crc, dst, src, len) }
}

/// Copies as [`copy_crc32c`] does, but writes whole cache lines past the cache if the CPU can. Use this for
/// memory that is not read soon. All bytes are ordered before later stores of this thread.
///
/// # Safety
///
/// See [`copy_crc32c`].
#[inline]
pub unsafe fn copy_crc32c_past_cache(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller has mapped both ranges, which do not overlap.
    unsafe { self::crc::<MEMORY>(crc, dst, src, len) }
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
            prop_assert_eq!(portable::append(seed, &src[from..]), expected);
            let start = src.as_ptr().wrapping_add(from);
            // SAFETY: the pointer and the length describe the end of the vector, which is initialized.
            prop_assert_eq!(unsafe { crc32c(seed, start, len) }, expected);
            let mut dst = vec![0xA5; to + len + 70];
            let end = dst.as_mut_ptr().wrapping_add(to);
            for copy in [copy_crc32c, copy_crc32c_past_cache] {
                dst.fill(0xA5);
                // SAFETY: the offsets and the length lie within both vectors.
                prop_assert_eq!(unsafe { copy(seed, end, start, len) }, expected);
                prop_assert_eq!(&dst[to..to + len], &src[from..]);
                prop_assert!(dst[..to].iter().chain(&dst[to + len..]).all(|byte| *byte == 0xA5));
            }
        }
    }
}
