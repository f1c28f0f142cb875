//! Copies by vectors through the cache, for ranges of more than 2 KiB that the level-1 cache holds.

use std::arch::{asm, is_x86_feature_detected};

use once_cell::race::OnceRef;

use super::{CopyFn, asan, cpuid};

/// Returns the copy by vectors for ranges of more than 2 KiB, if it is faster than the C library's copy where
/// both ranges are in the level-1 cache.
///
/// On CPUs with fast short `rep movsb`, glibc uses this instruction above 2 KiB. It starts slowly, and is up
/// to four times as slow if the destination is not aligned to a line (measured on Zen 3 and on a Xeon, model
/// 207). Intel CPUs write one vector in a cycle, so only vectors of 64 bytes are faster there.
#[inline]
pub(super) fn by_vectors() -> Option<CopyFn> {
    static COPY: OnceRef<'static, Option<CopyFn>> = OnceRef::new();
    static BY_32: Option<CopyFn> = Some(copy_by_32);
    static BY_64: Option<CopyFn> = Some(copy_by_64);
    *COPY.get_or_init(|| {
        let (copy, has_feature) = if cpuid::has_slow_rep_movsb() {
            (&BY_32, is_x86_feature_detected!("avx2"))
        } else {
            (&BY_64, is_x86_feature_detected!("avx512f"))
        };
        if has_feature && cpuid::has_fast_short_rep_movsb() { copy } else { &None }
    })
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
