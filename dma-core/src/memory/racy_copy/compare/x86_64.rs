//! Comparison of whole blocks by AVX-512.
//!
//! The fastest loop depends on the processor. For bytes in the level-1 cache, the C library's `memcmp`, whose
//! vectors have 32 bytes, takes 1.3 times as long as a loop of vectors of 64 bytes on a Xeon with a level-2
//! cache of 2 MiB. On an AMD EPYC (Zen 4), the loop of vectors of 64 bytes takes 1.08 times as long as
//! `memcmp`. Therefore, the first comparison of a process measures which one is faster.

use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::hint::black_box;
use std::sync::atomic::{AtomicU8, Ordering};

/// The loop is not selected yet.
const UNKNOWN: u8 = 0;
/// The C library's `memcmp`.
const LIBRARY: u8 = 1;
/// Vectors of 32 bytes.
const BY_32: u8 = 2;
/// Vectors of 64 bytes.
const BY_64: u8 = 3;

/// Minimum length of ranges that are compared by blocks.
const BLOCKS_FROM: usize = 256;

/// Returns the loop for comparisons in this process.
#[inline]
fn selected() -> u8 {
    static SELECTED: AtomicU8 = AtomicU8::new(UNKNOWN);
    #[cold]
    fn select() -> u8 {
        let fastest = fastest();
        SELECTED.store(fastest, Ordering::Relaxed);
        fastest
    }
    match SELECTED.load(Ordering::Relaxed) {
        UNKNOWN => select(),
        selected => selected,
    }
}

/// Returns the last loop that this CPU supports. It also supports all loops before this one.
fn widest() -> u8 {
    use std::arch::is_x86_feature_detected as has;
    if has!("avx512f") && has!("avx512vl") { BY_64 } else { LIBRARY }
}

/// Measures the loops that this CPU supports, and returns the fastest one. Takes some 20 us.
fn fastest() -> u8 {
    /// Both ranges fit in a level-1 cache of 32 KiB.
    const LEN: usize = 4 << 10;
    const ROUNDS: usize = 8;
    const IN_A_ROUND: usize = 16;
    let widest = widest();
    let (a, b) = ([0_u8; LEN], [0_u8; LEN]);
    let compare = |by: u8| {
        // SAFETY: the pointers and the length describe both arrays, and the CPU supports the loop.
        black_box(unsafe { equal_at_start(by, black_box(a.as_ptr()), black_box(b.as_ptr()), LEN) });
    };
    // The shortest time is that of a round that nothing has interrupted.
    let time = |by: u8| {
        let round = |_| {
            // SAFETY: every x86-64 CPU has a time stamp counter.
            let start = unsafe { _rdtsc() };
            (0..IN_A_ROUND).for_each(|_| compare(by));
            // SAFETY: every x86-64 CPU has a time stamp counter.
            unsafe { _rdtsc() }.saturating_sub(start)
        };
        (0..ROUNDS).map(round).min().unwrap_or(0)
    };
    let faster = |best: (u8, u64), other: (u8, u64)| {
        // If the difference is small, the wider vectors stay: they take fewer instructions.
        if other.1 * 100 < best.1 * 97 { other } else { best }
    };
    (LIBRARY..widest).rev().map(|by| (by, time(by))).fold((widest, time(widest)), faster).0
}

/// Compares whole blocks by a loop that is faster than `memcmp`, and returns the number of equal bytes at the
/// beginning. Returns 0 if no loop is faster.
///
/// # Safety
///
/// See [`first_difference`](super::first_difference).
#[inline]
pub(super) unsafe fn equal_blocks(a: *const u8, b: *const u8, len: usize) -> usize {
    if len < BLOCKS_FROM {
        return 0;
    }
    match selected() {
        // SAFETY: the caller meets the requirements. The ranges have at least one block, and the CPU supports
        // the loop that is selected.
        BY_64 => unsafe { blocks_by_64(a, b, len) },
        // SAFETY: the caller meets the requirements. The ranges have at least one block, and the CPU supports
        // the loop that is selected.
        BY_32 => unsafe { blocks_by_32(a, b, len) },
        _ => 0,
    }
}

/// Compares by this loop, and then by `memcmp`. Returns whether all bytes are equal.
///
/// # Safety
///
/// See [`first_difference`](super::first_difference). The CPU supports the loop, and the ranges have at least
/// [`BLOCKS_FROM`] bytes.
unsafe fn equal_at_start(by: u8, a: *const u8, b: *const u8, len: usize) -> bool {
    let at = match by {
        // SAFETY: the caller meets the requirements.
        BY_64 => unsafe { blocks_by_64(a, b, len) },
        // SAFETY: the caller meets the requirements.
        BY_32 => unsafe { blocks_by_32(a, b, len) },
        _ => 0,
    };
    // SAFETY: these are the last bytes of both ranges.
    at == len || unsafe { super::equal(a.wrapping_add(at), b.wrapping_add(at), len - at) }
}

/// Defines a loop over whole blocks of four vectors. It returns the number of equal bytes at the beginning.
///
/// The code uses vector registers above the first 16, because these need no `vzeroupper`, which would clear
/// registers of the caller.
macro_rules! blocks {
    ($name:ident, $register:literal, $vector:literal) => {
        /// # Safety
        ///
        /// See [`first_difference`](super::first_difference). The ranges have at least four vectors, and the
        /// CPU has AVX-512F, and AVX-512VL for vectors of 32 bytes.
        #[inline]
        unsafe fn $name(a: *const u8, b: *const u8, len: usize) -> usize {
            const BLOCK: usize = 4 * $vector;
            let mut at = 0_usize;
            // SAFETY: the code reads whole blocks within both ranges, which the caller has mapped for reads.
            // The CPU supports the instructions.
            unsafe {
                asm!(
                    ".p2align 5",
                    "2:",
                    concat!("vmovdqu64 ", $register, "16, [{a} + {at}]"),
                    concat!("vmovdqu64 ", $register, "17, [{a} + {at} + {second}]"),
                    concat!("vmovdqu64 ", $register, "18, [{a} + {at} + {third}]"),
                    concat!("vmovdqu64 ", $register, "19, [{a} + {at} + {fourth}]"),
                    concat!("vpxorq ", $register, "16, ", $register, "16, [{b} + {at}]"),
                    concat!("vpxorq ", $register, "17, ", $register, "17, [{b} + {at} + {second}]"),
                    // 16 | (18 ^ block), 17 | (19 ^ block)
                    concat!("vpternlogq ", $register, "16, ", $register, "18, [{b} + {at} + {third}], 0xf6"),
                    concat!("vpternlogq ", $register, "17, ", $register, "19, [{b} + {at} + {fourth}], 0xf6"),
                    concat!("vporq ", $register, "16, ", $register, "16, ", $register, "17"),
                    concat!("vptestmq k1, ", $register, "16, ", $register, "16"),
                    "kortestw k1, k1",
                    "jnz 3f",
                    "add {at}, {block}",
                    "cmp {at}, {end}",
                    "jb 2b",
                    "3:",
                    a = in(reg) a,
                    b = in(reg) b,
                    at = inout(reg) at,
                    end = in(reg) len / BLOCK * BLOCK,
                    block = const BLOCK,
                    second = const $vector,
                    third = const 2 * $vector,
                    fourth = const 3 * $vector,
                    out("zmm16") _,
                    out("zmm17") _,
                    out("zmm18") _,
                    out("zmm19") _,
                    out("k1") _,
                    options(nostack, readonly),
                );
            }
            at
        }
    };
}
blocks!(blocks_by_32, "ymm", 32);
blocks!(blocks_by_64, "zmm", 64);

#[cfg(test)]
mod tests {
    use std::ptr;

    use proptest::prelude::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::*;

    /// Length of each of the two parts, one of which is inaccessible: a whole number of pages.
    const PART: usize = 64 << 10;

    /// Memory whose end is followed by inaccessible pages, so that an access one byte too far faults.
    struct Fenced(*mut u8);

    impl Fenced {
        fn new() -> Self {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel chooses unused addresses for the new mapping.
            let base = unsafe { mmap_anonymous(ptr::null_mut(), 2 * PART, access, MapFlags::PRIVATE) };
            let base = base.expect("map test memory");
            // SAFETY: this is the second part of that mapping, which no other code uses yet.
            unsafe { mprotect(base.wrapping_byte_add(PART), PART, MprotectFlags::empty()) }.expect("protect");
            Self(base.cast::<u8>())
        }

        /// Stores `bytes` at the end, and returns their address.
        fn store(&self, bytes: &[u8]) -> *const u8 {
            let start = self.0.wrapping_add(PART - bytes.len());
            // SAFETY: the bytes fit in the accessible part, and only this value refers to it.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
            start.cast_const()
        }
    }

    impl Drop for Fenced {
        fn drop(&mut self) {
            // SAFETY: `new` made the mapping, and no pointer into it is used any more.
            unsafe { munmap(self.0.cast(), 2 * PART) }.expect("unmap test memory");
        }
    }

    /// Compares by each loop of this CPU, not only by the one that is selected.
    fn check(a: *const u8, b: *const u8, len: usize, first_difference: Option<usize>) {
        for by in LIBRARY..=widest() {
            // SAFETY: the callers' ranges have at least `BLOCKS_FROM` accessible bytes, and the CPU also
            // supports every loop before the widest one.
            let equal = unsafe { equal_at_start(by, a, b, len) };
            assert_eq!(equal, first_difference.is_none(), "loop {by}, {len} bytes, {first_difference:?}");
        }
        let blocks: [unsafe fn(*const u8, *const u8, usize) -> usize; 2] = [blocks_by_32, blocks_by_64];
        for (block, blocks) in [128, 256].into_iter().zip(blocks).filter(|_| widest() == BY_64) {
            let expected = first_difference.map_or(len, |at| at.min(len)) / block * block;
            // SAFETY: the callers' ranges have at least `BLOCKS_FROM` accessible bytes, which is at least a
            // block, and the CPU supports the widest loop.
            assert_eq!(unsafe { blocks(a, b, len) }, expected, "blocks of {block}, {len} bytes");
        }
    }

    #[test]
    fn all_lengths_at_the_end_of_accessible_memory() {
        let (left, right) = (Fenced::new(), Fenced::new());
        let mut bytes: Vec<u8> = (0..3000).map(|at| (at * 7 % 251) as u8).collect();
        for len in BLOCKS_FROM..bytes.len() {
            let a = left.store(&bytes[..len]);
            check(a, right.store(&bytes[..len]), len, None);
            for at in [0, len / 2, len - 1] {
                bytes[at] ^= 1;
                check(a, right.store(&bytes[..len]), len, Some(at));
                bytes[at] ^= 1;
            }
        }
    }

    proptest! {
        #[test]
        fn every_loop_finds_whether_bytes_differ(
            len in prop_oneof![BLOCKS_FROM..1500_usize, 16_000..40_000_usize],
            (from, to) in (0..70_usize, 0..70_usize),
            differs in prop::option::of((any::<prop::sample::Index>(), 1..=255_u8)),
        ) {
            let bytes = |start: usize| -> Vec<u8> {
                (0..start + len).map(|at| (at.wrapping_sub(start).wrapping_mul(7) % 251) as u8).collect()
            };
            let (a, mut b) = (bytes(from), bytes(to));
            let at = differs.map(|(at, bits)| {
                b[to + at.index(len)] ^= bits;
                at.index(len)
            });
            check(a.as_ptr().wrapping_add(from), b.as_ptr().wrapping_add(to), len, at);
        }
    }
}
