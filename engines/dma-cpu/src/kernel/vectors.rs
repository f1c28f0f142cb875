//! Copies by vectors through the cache, for ranges of more than 2 KiB that the level-1 cache holds.

use std::arch::{asm, is_x86_feature_detected};
use std::hint::black_box;

use dma_core::racy_copy;
use once_cell::race::{OnceBool, OnceRef};

use super::pieces::{LINE, PAGE, copy_in_pieces};
use super::{CopyFn, asan};
use crate::clock::ticks;

/// Returns the copy by vectors for ranges of more than 2 KiB, if it is faster than the C library's copy where
/// both ranges are in the level-1 cache. The first call measures this, which takes some 20 us.
///
/// On CPUs with fast short `rep movsb`, glibc uses this instruction above 2 KiB. It starts slowly, and is up
/// to four times as slow if the destination is not aligned to a line (measured on Zen 3 and on a Xeon, model
/// 207). That Xeon writes one vector in a cycle, so only vectors of 64 bytes are faster there.
#[inline]
pub(super) fn by_vectors() -> Option<CopyFn> {
    static COPY: OnceRef<'static, Option<CopyFn>> = OnceRef::new();
    *COPY.get_or_init(fastest)
}

/// Not inline, because it needs a large stack frame.
#[cold]
#[inline(never)]
fn fastest() -> &'static Option<CopyFn> {
    static BY_32: Option<CopyFn> = Some(copy_by_32);
    static BY_64: Option<CopyFn> = Some(copy_by_64);
    let by_32 = is_x86_feature_detected!("avx2").then_some(&BY_32);
    let by_64 = is_x86_feature_detected!("avx512f").then_some(&BY_64);
    if by_32.or(by_64).is_none() {
        return &None;
    }
    let mut trial = Trial::new(APART);
    let mut time = |copy: Option<CopyFn>| trial.time(copy.unwrap_or(racy_copy::copy));
    let library = (&None, time(None));
    let vectors = [by_32, by_64].into_iter().flatten();
    vectors.fold(library, |best, copy| faster::<90, _>(best, (copy, time(*copy)))).0
}

/// Returns whether the C library's copy of more than 2 KiB is very slow where the page offset of the
/// destination is greater than that of the source by less than a cache line. The first call measures this.
///
/// glibc 2.36 uses `rep movsb` there on some CPUs, whose `rep movsb` is up to 20 times as slow at these
/// distances (glibc bug 30994). The last table of `cargo bench -p dma-cpu --bench copy -- --table` shows the
/// cost.
pub(super) fn is_slow_behind() -> bool {
    static IS_SLOW: OnceBool = OnceBool::new();
    // Miri would copy each byte.
    !cfg!(miri) && IS_SLOW.get_or_init(are_pieces_faster_behind)
}

/// Not inline, because it needs a large stack frame.
#[cold]
#[inline(never)]
fn are_pieces_faster_behind() -> bool {
    let mut trial = Trial::new(BEHIND);
    let library = (false, trial.time(racy_copy::copy));
    // `rep movsb` starts slowly in any case. A smaller difference is due to that, and longer copies have
    // none.
    faster::<25, _>(library, (true, trial.time(copy_in_pieces))).0
}

/// Returns the second one of two candidates, with its time, if it takes less than `PERCENT` of the time of
/// the first one. Otherwise, or if the clock stands still, returns the first one.
fn faster<const PERCENT: u64, T>(first: (T, u64), other: (T, u64)) -> (T, u64) {
    let is_clear = other.1 > 0 && other.1.saturating_mul(100) < first.1.saturating_mul(PERCENT);
    if is_clear { other } else { first }
}

/// Destinations half a page apart from the source within pages: one begins with a line, the other does not.
const APART: [usize; 2] = [PAGE + PAGE / 2, PAGE + PAGE / 2 + LINE / 4];
/// Destinations that are behind the source within pages, by less than a line.
const BEHIND: [usize; 2] = [PAGE + LINE / 4, PAGE + LINE / 2];

/// Measures copies of 4 KiB in the level-1 cache. The bytes are on the stack, so that the first copy of a
/// process needs no memory.
#[repr(align(64))]
struct Trial {
    bytes: [u8; 3 * PAGE],
    /// Offsets of the destinations, at least a page: the source is the first page.
    to: [usize; 2],
}

impl Trial {
    const fn new(to: [usize; 2]) -> Self {
        Self { bytes: [1; 3 * PAGE], to }
    }

    /// Returns the time of copies to both destinations, by a copy that this CPU can make.
    fn time(&mut self, copy: CopyFn) -> u64 {
        const ROUNDS: usize = 8;
        const IN_A_ROUND: usize = 4;
        let (src, rest) = self.bytes.split_at_mut(PAGE);
        let round = |_| {
            let start = ticks();
            for _ in 0..IN_A_ROUND {
                for to in self.to {
                    let dst = rest[to - PAGE..][..PAGE].as_mut_ptr();
                    // SAFETY: both ranges have a page and do not overlap, and the CPU has the instructions.
                    unsafe { copy(dst, src.as_ptr(), PAGE) };
                }
            }
            let ticks = ticks().wrapping_sub(start);
            // Prevents the compiler from removing the copies.
            black_box(&mut *rest);
            ticks
        };
        // The shortest time is that of a round that nothing has interrupted.
        (0..ROUNDS).map(round).min().unwrap_or(0)
    }
}

/// Copies by vectors of 32 bytes.
///
/// # Safety
///
/// See [`Kernel::copy`]. The ranges have at least 160 bytes, and the CPU has AVX2.
pub(super) unsafe fn copy_by_32(dst: *mut u8, src: *const u8, len: usize) {
    asan::check_copy(dst, src, len);
    // SAFETY: the code reads the `len` bytes at `src` and writes them to `dst`: the first 32, the last 128,
    // and from the first aligned vector of the destination on, in steps of 128. The last step begins before
    // the last 128 bytes, so it ends inside both ranges. `clobber_abi` declares all parts of registers that
    // `vzeroupper` clears.
    unsafe {
        asm!(
            "vmovdqu ymm4, [rsi]",
            "vmovdqu ymm0, [rsi + rdx - 128]",
            "vmovdqu ymm1, [rsi + rdx - 96]",
            "vmovdqu ymm2, [rsi + rdx - 64]",
            "vmovdqu ymm3, [rsi + rdx - 32]",
            "vmovdqu [rdi], ymm4",
            "vmovdqu [rdi + rdx - 128], ymm0",
            "vmovdqu [rdi + rdx - 96], ymm1",
            "vmovdqu [rdi + rdx - 64], ymm2",
            "vmovdqu [rdi + rdx - 32], ymm3",
            "sub rdx, 128",
            // The distance from the destination to its next boundary of a vector: 1 to 32.
            "mov rax, rdi",
            "or rax, -32",
            "neg rax",
            ".p2align 6",
            "2:",
            "vmovdqu ymm0, [rsi + rax]",
            "vmovdqu ymm1, [rsi + rax + 32]",
            "vmovdqu ymm2, [rsi + rax + 64]",
            "vmovdqu ymm3, [rsi + rax + 96]",
            "vmovdqa [rdi + rax], ymm0",
            "vmovdqa [rdi + rax + 32], ymm1",
            "vmovdqa [rdi + rax + 64], ymm2",
            "vmovdqa [rdi + rax + 96], ymm3",
            "add rax, 128",
            "cmp rax, rdx",
            "jb 2b",
            "vzeroupper",
            inout("rdi") dst => _,
            inout("rsi") src => _,
            inout("rdx") len => _,
            out("rax") _,
            clobber_abi("C"),
            options(nostack),
        );
    }
}

/// Copies by vectors of 64 bytes. Uses registers above the first 16, which need no `vzeroupper`.
///
/// Prefetches lines of the destination. Otherwise copies to lines that are not cached would take 1.1 times as
/// long as copies by `rep movsb`, which does not have to read such lines (Xeon of model 207).
///
/// # Safety
///
/// See [`Kernel::copy`]. The ranges have at least 320 bytes, and the CPU has AVX-512F.
pub(super) unsafe fn copy_by_64(dst: *mut u8, src: *const u8, len: usize) {
    asan::check_copy(dst, src, len);
    // SAFETY: the code reads the `len` bytes at `src` and writes them to `dst`: the first 64, the last 256,
    // and from the first aligned vector of the destination on, in steps of 256. The last step begins before
    // the last 256 bytes, so it ends inside both ranges. A prefetch cannot fault, and all are of lines of the
    // destination: near its end, of the last 256 bytes, which were written first. A prefetch beyond the
    // destination could be of a page that does not exist, for which the CPU would search.
    unsafe {
        asm!(
            "vmovdqu64 zmm20, [rsi]",
            "vmovdqu64 zmm16, [rsi + rdx - 256]",
            "vmovdqu64 zmm17, [rsi + rdx - 192]",
            "vmovdqu64 zmm18, [rsi + rdx - 128]",
            "vmovdqu64 zmm19, [rsi + rdx - 64]",
            "vmovdqu64 [rdi], zmm20",
            "vmovdqu64 [rdi + rdx - 256], zmm16",
            "vmovdqu64 [rdi + rdx - 192], zmm17",
            "vmovdqu64 [rdi + rdx - 128], zmm18",
            "vmovdqu64 [rdi + rdx - 64], zmm19",
            "sub rdx, 256",
            // The distance from the destination to its next boundary of a vector: 1 to 64.
            "mov rax, rdi",
            "or rax, -64",
            "neg rax",
            ".p2align 6",
            "2:",
            "lea rcx, [rax + 512]",
            "cmp rcx, rdx",
            "cmova rcx, rdx",
            "prefetchw [rdi + rcx]",
            "prefetchw [rdi + rcx + 64]",
            "prefetchw [rdi + rcx + 128]",
            "prefetchw [rdi + rcx + 192]",
            "vmovdqu64 zmm16, [rsi + rax]",
            "vmovdqu64 zmm17, [rsi + rax + 64]",
            "vmovdqu64 zmm18, [rsi + rax + 128]",
            "vmovdqu64 zmm19, [rsi + rax + 192]",
            "vmovdqa64 [rdi + rax], zmm16",
            "vmovdqa64 [rdi + rax + 64], zmm17",
            "vmovdqa64 [rdi + rax + 128], zmm18",
            "vmovdqa64 [rdi + rax + 192], zmm19",
            "add rax, 256",
            "cmp rax, rdx",
            "jb 2b",
            inout("rdi") dst => _,
            inout("rsi") src => _,
            inout("rdx") len => _,
            out("rax") _,
            out("rcx") _,
            clobber_abi("C"),
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::cached::is_behind;
    use super::*;

    #[test]
    fn a_candidate_wins_only_if_it_is_clearly_faster() {
        for (times, winner) in [
            ([1000, 890], 1),
            ([1000, 910], 0),
            ([1000, 1000], 0),
            ([1000, 2000], 0),
            // The clock stands still, or has moved during one candidate only.
            ([0, 0], 0),
            ([10, 0], 0),
            ([0, 10], 0),
            ([u64::MAX, u64::MAX], 0),
        ] {
            assert_eq!(faster::<90, _>((0, times[0]), (1, times[1])).0, winner, "{times:?}");
        }
    }

    /// A copy that copies nothing and expects a destination shortly behind the source, or elsewhere.
    fn spy<const BEHIND: bool>(dst: *mut u8, src: *const u8, len: usize) {
        assert_eq!((is_behind(dst.addr(), src.addr()), len), (BEHIND, PAGE));
        assert!(dst.addr() >= src.addr() + len, "the ranges do not overlap");
    }

    #[test]
    fn trials_copy_to_the_places_that_they_measure() {
        Trial::new(APART).time(spy::<false>);
        Trial::new(BEHIND).time(spy::<true>);
    }
}
