//! Comparison of bytes that other code may write at the same time.
#![expect(unsafe_code, reason = "reads bytes at raw addresses")]

#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
mod x86_64;

/// Number of bytes in one comparison step.
const PIECE: usize = 16 << 10;
/// Number of bytes that are copied to the stack in one step.
const CHUNK: usize = 1024;

/// Compares the `len` bytes at `a` with the `len` bytes at `b`. Returns the offset of the first byte that
/// differs, if any. The ranges may overlap.
///
/// If other code writes the bytes at the same time, the result is the result for unspecified bytes.
///
/// # Safety
///
/// Both ranges are mapped for reads, and no exclusive reference to their bytes is used during the call.
pub unsafe fn first_difference(a: *const u8, b: *const u8, len: usize) -> Option<usize> {
    // SAFETY: the caller has mapped both ranges for reads and uses no exclusive reference to them.
    let at = unsafe { equal_blocks(a, b, len) };
    let rest = len - at;
    // SAFETY: these are the last bytes of both ranges.
    if rest == 0 || rest <= PIECE && unsafe { equal(a.wrapping_add(at), b.wrapping_add(at), rest) } {
        return None;
    }
    // SAFETY: the caller has mapped both ranges for reads and uses no exclusive reference to them.
    unsafe { first_difference_from(at, a, b, len) }
}

/// Finds the first difference at or after byte `from`. Not inline, because it needs a large stack frame.
///
/// # Safety
///
/// See [`first_difference`].
#[inline(never)]
unsafe fn first_difference_from(from: usize, a: *const u8, b: *const u8, len: usize) -> Option<usize> {
    for at in (from..len).step_by(PIECE) {
        let (a, b, n) = (a.wrapping_add(at), b.wrapping_add(at), PIECE.min(len - at));
        // SAFETY: the part lies within both ranges, which the caller has mapped for reads.
        if !unsafe { equal(a, b, n) }
            // SAFETY: the part lies within both ranges, which the caller has mapped for reads.
            && let Some(place) = unsafe { place(a, b, n) }
        {
            return Some(at + place);
        }
    }
    None
}

#[cfg(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))))]
use x86_64::equal_blocks;

/// Compares whole blocks by instructions that are faster than [`equal`], and returns the number of equal
/// bytes at the beginning.
///
/// # Safety
///
/// See [`first_difference`].
#[cfg(not(all(target_arch = "x86_64", not(any(miri, dma_address_sanitizer, dma_thread_sanitizer)))))]
const unsafe fn equal_blocks(_: *const u8, _: *const u8, _: usize) -> usize {
    0
}

/// Finds the first difference as [`first_difference`] does, with copies on the stack.
///
/// # Safety
///
/// See [`first_difference`].
unsafe fn place(a: *const u8, b: *const u8, len: usize) -> Option<usize> {
    let (mut left, mut right) = ([0; CHUNK], [0; CHUNK]);
    for at in (0..len).step_by(CHUNK) {
        let n = CHUNK.min(len - at);
        // SAFETY: the `n` bytes lie within the range, which the caller has mapped for reads, and `left` has
        // room for them.
        unsafe { super::copy(left.as_mut_ptr(), a.wrapping_add(at), n) };
        // SAFETY: the `n` bytes lie within the range, which the caller has mapped for reads, and `right` has
        // room for them.
        unsafe { super::copy(right.as_mut_ptr(), b.wrapping_add(at), n) };
        if left[..n] != right[..n] {
            return Some(at + left.iter().zip(&right).take_while(|(a, b)| a == b).count());
        }
    }
    None
}

/// # Safety
///
/// See [`first_difference`].
#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))
)))]
unsafe fn equal(a: *const u8, b: *const u8, len: usize) -> bool {
    // SAFETY: the caller has mapped both ranges for reads and uses no exclusive reference to them.
    unsafe { place(a, b, len) }.is_none()
}

/// Compares by the C library's `memcmp`. The call is hidden from the compiler: see the parent module.
///
/// # Safety
///
/// See [`first_difference`].
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, dma_address_sanitizer, dma_thread_sanitizer))
))]
unsafe fn equal(a: *const u8, b: *const u8, len: usize) -> bool {
    use std::arch::asm;
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn memcmp(a: *const c_void, b: *const c_void, len: usize) -> c_int;
    }
    let order: c_int;
    // SAFETY: the caller has mapped both ranges for reads and uses no exclusive reference to them. The stack
    // is aligned for a call, and all registers that a C function may change are declared as outputs.
    unsafe {
        asm!(
            "call qword ptr [rip + {compare}@GOTPCREL]",
            compare = sym memcmp,
            inout("rdi") a => _,
            inout("rsi") b => _,
            inout("rdx") len => _,
            lateout("eax") order,
            clobber_abi("C"),
        );
    }
    order == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_difference_is_found(
            len in prop_oneof![0..300_usize, 16_000..40_000_usize],
            (from, to) in (0..70_usize, 0..70_usize),
            differs in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 0..3),
        ) {
            let byte = |at: usize| (at.wrapping_mul(7) % 251) as u8;
            let a: Vec<u8> = (0..len + from).map(|at| byte(at.wrapping_sub(from))).collect();
            let mut b: Vec<u8> = (0..len + to).map(|at| byte(at.wrapping_sub(to))).collect();
            for (at, bits) in &differs {
                if len > 0 {
                    b[to + at.index(len)] ^= bits;
                }
            }
            let expected = a[from..].iter().zip(&b[to..]).position(|(a, b)| a != b);
            let (left, right) = (a.as_ptr().wrapping_add(from), b.as_ptr().wrapping_add(to));
            // SAFETY: the pointers and the length describe the ends of both vectors, which are initialized.
            prop_assert_eq!(unsafe { first_difference(left, right, len) }, expected);
        }
    }
}
