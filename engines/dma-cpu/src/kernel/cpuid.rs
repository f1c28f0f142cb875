//! Properties of this x86-64 CPU that the CPUID instruction reports.

use std::arch::asm;
use std::num::NonZeroUsize;

use once_cell::race::OnceNonZeroUsize;

/// Returns the size of the second level cache in bytes: CPUID leaf 8000_0006h, ECX bits 31 to 16, in KiB
/// (AMD64 Architecture Programmer's Manual, volume 3, and Intel SDM, volume 2, "CPUID").
pub(super) fn second_level_cache() -> Option<usize> {
    const LEAF: u32 = 0x8000_0006;
    // The value is cached, because every queue needs it, and under a hypervisor each CPUID instruction exits
    // to the hypervisor.
    // The value is the number of KiB plus 1.
    static KIB: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let kib = KIB.get_or_init(|| {
        let [last, ..] = cpuid(0x8000_0000);
        let kib = if last >= LEAF { cpuid(LEAF)[2] >> 16 } else { 0 };
        NonZeroUsize::MIN.saturating_add(kib as usize)
    });
    // A hypervisor may hide this leaf.
    (kib > NonZeroUsize::MIN).then(|| (kib.get() - 1) * 1024)
}

/// Returns EAX, EBX, ECX and EDX of subleaf 0 of `leaf`. `std`'s `__cpuid_count` is not used, because it is
/// unsafe in some versions and safe in others.
fn cpuid(leaf: u32) -> [u32; 4] {
    // Miri has no inline assembly, so it gets a CPU without features.
    if cfg!(miri) {
        return [0; 4];
    }
    let (mut eax, mut ecx, rbx, edx): (u32, u32, u64, u32);
    (eax, ecx) = (leaf, 0);
    // SAFETY: every x86-64 CPU has CPUID, and the code restores RBX, which the compiler reserves.
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
