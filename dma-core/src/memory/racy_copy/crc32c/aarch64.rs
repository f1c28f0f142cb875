//! CRC-32C by aarch64 instructions: folds 16 bytes at a time by `pmull`, which is part of the AES extension.

use std::arch::aarch64::{
    __crc32cb, __crc32cd, uint64x2_t, vcombine_u64, vcreate_u64, vdupq_n_u64, veorq_u64, vgetq_lane_u64,
    vmull_p64, vreinterpretq_u64_p128, vsetq_lane_u64,
};
use std::arch::asm;

use super::fold::{factors, folds};
use super::portable::{NOWHERE, buffered};

/// Returns the CRC after `len` bytes, and copies them to the destination that `TO` selects. All stores go
/// through the cache.
///
/// # Safety
///
/// See [`super::copy_crc32c`], or [`super::crc32c()`] if `TO` is [`NOWHERE`].
pub(super) unsafe fn crc<const TO: u8>(crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    use std::arch::is_aarch64_feature_detected as has;
    if !(has!("crc") && has!("aes")) {
        // SAFETY: the caller meets the requirements for both ranges.
        return unsafe { buffered::<TO>(crc, dst, src, len) };
    }
    if len < 16 {
        // SAFETY: the caller meets the requirements for both ranges. The CPU supports the instructions.
        return !unsafe { short::<TO>(!crc, dst, src, len) };
    }
    // SAFETY: the caller ensures access to both ranges, which are at least as long as a vector. The CPU
    // supports the instructions.
    !unsafe { run::<TO, true>(!crc, dst, src, len) }
}

folds!(16, "neon,aes,crc");

/// Loads a vector, and stores it to the destination unless `TO` is [`NOWHERE`].
///
/// # Safety
///
/// The requirements of [`run`], for the 16 bytes of one vector.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn next<const TO: u8>(dst: *mut u8, src: *const u8) -> uint64x2_t {
    let bytes: uint64x2_t;
    // SAFETY: the 16 bytes lie within the source.
    unsafe { asm!("ldr {:q}, [{}]", out(vreg) bytes, in(reg) src, options(nostack, preserves_flags)) };
    if TO != NOWHERE {
        // SAFETY: the 16 bytes lie within the destination.
        unsafe { asm!("str {:q}, [{}]", in(vreg) bytes, in(reg) dst, options(nostack, preserves_flags)) };
    }
    bytes
}

#[inline]
#[target_feature(enable = "neon")]
fn spread(factors: [u64; 2]) -> uint64x2_t {
    vcombine_u64(vcreate_u64(factors[0]), vcreate_u64(factors[1]))
}

#[inline]
#[target_feature(enable = "neon")]
fn start(crc: u32, bytes: uint64x2_t) -> uint64x2_t {
    veorq_u64(vsetq_lane_u64::<0>(crc.into(), vdupq_n_u64(0)), bytes)
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn fold(sum: uint64x2_t, factors: uint64x2_t, bytes: uint64x2_t) -> uint64x2_t {
    let word = |of: uint64x2_t, last: bool| -> u64 {
        if last { vgetq_lane_u64::<1>(of) } else { vgetq_lane_u64::<0>(of) }
    };
    let first = vreinterpretq_u64_p128(vmull_p64(word(sum, false), word(factors, false)));
    let last = vreinterpretq_u64_p128(vmull_p64(word(sum, true), word(factors, true)));
    veorq_u64(veorq_u64(first, last), bytes)
}

#[inline]
#[target_feature(enable = "neon,crc")]
fn reduce(sum: uint64x2_t) -> u32 {
    __crc32cd(__crc32cd(0, vgetq_lane_u64::<0>(sum)), vgetq_lane_u64::<1>(sum))
}

/// Does nothing, because the CPU prefetches by itself.
const fn prefetch(_: *const u8) {}

/// Does nothing, because the CPU prefetches by itself.
const fn prefetch_next<const TO: u8, const LEN: usize>(_: *mut u8, _: *const u8) {}

/// Processes bytes that do not fill a vector: 8 bytes at a time, then one byte at a time.
///
/// # Safety
///
/// See [`crc()`]. The CPU has the CRC extension.
#[inline]
#[target_feature(enable = "crc")]
unsafe fn short<const TO: u8>(mut crc: u32, mut dst: *mut u8, mut src: *const u8, len: usize) -> u32 {
    for _ in 0..len / 8 {
        let word: u64;
        // SAFETY: the 8 bytes lie within the source.
        unsafe { asm!("ldr {}, [{}]", out(reg) word, in(reg) src, options(nostack, preserves_flags)) };
        if TO != NOWHERE {
            // SAFETY: the 8 bytes lie within the destination.
            unsafe { asm!("str {}, [{}]", in(reg) word, in(reg) dst, options(nostack, preserves_flags)) };
            dst = dst.wrapping_add(8);
        }
        crc = __crc32cd(crc, word);
        src = src.wrapping_add(8);
    }
    for _ in 0..len % 8 {
        let byte: u32;
        // SAFETY: the byte lies within the source.
        unsafe { asm!("ldrb {:w}, [{}]", out(reg) byte, in(reg) src, options(nostack, preserves_flags)) };
        if TO != NOWHERE {
            // SAFETY: the byte lies within the destination.
            unsafe { asm!("strb {:w}, [{}]", in(reg) byte, in(reg) dst, options(nostack, preserves_flags)) };
            dst = dst.wrapping_add(1);
        }
        crc = __crc32cb(crc, byte as u8);
        src = src.wrapping_add(1);
    }
    crc
}
