//! Copies of bytes that other code may write at the same time.
//!
//! The memory of a [`Window`](crate::Window) may be read and written by other threads, processes and devices
//! while it is copied. A Rust access to such bytes, by `ptr::copy_nonoverlapping` or a plain load, is a data
//! race, which is undefined behaviour. Atomic accesses of different sizes are also undefined behaviour.
//! Therefore software engines move all bytes by these functions.
//!
//! On Linux for x86-64 and aarch64, the functions call the C library's routine from within an `asm!` block.
//! The compiler sees no accesses in the block, only that memory may change. In Rust's memory model, the block
//! makes a relaxed atomic load and store of each byte, because on these CPUs ordinary loads and stores are
//! relaxed atomic accesses. Only the comparison's control flow depends on the bytes, and its result is
//! correct for the bytes that it read. On other systems, and under Miri, the functions load and store the
//! bytes one by one.
//!
//! ThreadSanitizer intercepts `memcpy` and treats it as an access by Rust. With `--cfg dma_thread_sanitizer`
//! (`ci/sanitizers.sh`), the functions call the same routines by names that ThreadSanitizer does not
//! intercept.
#![expect(unsafe_code, reason = "moves bytes between raw addresses")]

mod compare;
mod crc32c;

pub use compare::first_difference;
pub use crc32c::{copy_crc32c, copy_crc32c_past_cache, crc32c};

/// Copies `len` bytes from `src` to `dst`, as fast as `memcpy`.
///
/// If other code writes the source or the destination at the same time, or if the ranges overlap, the bytes
/// in the destination are unspecified values of `u8`. There is no other effect. Like relaxed atomic accesses,
/// the copy is not ordered with accesses of other threads.
///
/// # Safety
///
/// The `len` bytes at `src` are mapped for reads, and the `len` bytes at `dst` for writes. During the call,
/// no reference to the destination and no exclusive reference to the source is used.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller has mapped the range for these accesses and uses no conflicting reference.
    unsafe { imp::copy(dst, src, len) }
}

/// Sets the `len` bytes at `dst` to `byte`, as fast as `memset`.
///
/// If other code writes the bytes at the same time, their values are unspecified, as after [`copy`].
///
/// # Safety
///
/// The `len` bytes at `dst` are mapped for writes, and no reference to them is used during the call.
#[inline]
pub unsafe fn set(dst: *mut u8, byte: u8, len: usize) {
    // SAFETY: the caller has mapped the range for these accesses and uses no conflicting reference.
    unsafe { imp::set(dst, byte, len) }
}

/// Prefetches the first `LINES` cache lines of `len` bytes. The prefetch changes no bytes, and has no effect
/// on memory that is not mapped.
#[inline]
pub(crate) fn prefetch<const LINES: usize>(start: *const u8, len: usize) {
    // The number of steps is constant. If it depended on the length, the CPU would mispredict the end of the
    // loop for rows of random lengths.
    for at in 0..LINES {
        // Not the line after a short range, which may be of a page that does not exist.
        let line = start.wrapping_add(len.saturating_sub(1).min(64 * at));
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch cannot fault.
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a prefetch cannot fault.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        let _ = line;
    }
}

/// The functions for AddressSanitizer, which checks accesses that the compiler sees (`ci/sanitizers.sh`).
#[cfg(dma_address_sanitizer)]
mod imp {
    use std::ptr;

    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller has mapped both ranges. `ptr::copy` permits ranges that overlap.
        unsafe { ptr::copy(src, dst, len) }
    }

    pub(super) unsafe fn set(dst: *mut u8, byte: u8, len: usize) {
        // SAFETY: the caller has mapped the range for these accesses and uses no conflicting reference.
        unsafe { ptr::write_bytes(dst, byte, len) }
    }
}

#[cfg(all(
    not(any(dma_address_sanitizer, miri)),
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod imp {
    use std::arch::asm;
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        #[cfg_attr(dma_thread_sanitizer, link_name = "mempcpy")]
        fn memcpy(dst: *mut c_void, src: *const c_void, len: usize) -> *mut c_void;
        /// The call passes the size of the destination as a fourth argument. Only `__memset_chk` reads it.
        #[cfg_attr(dma_thread_sanitizer, link_name = "__memset_chk")]
        fn memset(dst: *mut c_void, byte: c_int, len: usize) -> *mut c_void;
    }

    /// Calls a C function with arguments in these registers. The stack is aligned for a call, and all
    /// registers that a C function may change are declared as outputs.
    #[cfg(target_arch = "x86_64")]
    macro_rules! call {
        ($function:ident: $($register:tt or $_arm:tt = $value:expr),+) => {
            asm!(
                "call qword ptr [rip + {function}@GOTPCREL]",
                function = sym $function,
                $(inout($register) $value => _,)+
                clobber_abi("C"),
            )
        };
    }
    #[cfg(target_arch = "aarch64")]
    macro_rules! call {
        ($function:ident: $($_x86:tt or $register:tt = $value:expr),+) => {
            asm!("bl {function}", function = sym $function, $(inout($register) $value => _,)+ clobber_abi("C"))
        };
    }

    #[inline]
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller has mapped both ranges, and `call` declares all registers that the function may
        // change.
        unsafe { call!(memcpy: "rdi" or "x0" = dst, "rsi" or "x1" = src, "rdx" or "x2" = len) }
    }

    #[inline]
    pub(super) unsafe fn set(dst: *mut u8, byte: u8, len: usize) {
        let byte = c_int::from(byte);
        // SAFETY: the caller has mapped the range, and `call` declares all registers that the function may
        // change.
        unsafe {
            call!(memset:
                "rdi" or "x0" = dst, "esi" or "w1" = byte, "rdx" or "x2" = len, "rcx" or "x3" = len);
        }
    }
}

#[cfg(all(
    not(dma_address_sanitizer),
    any(miri, not(target_os = "linux"), not(any(target_arch = "x86_64", target_arch = "aarch64")))
))]
mod imp {
    use std::sync::atomic::{AtomicU8, Ordering};

    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        for at in 0..len {
            // SAFETY: the caller has mapped the byte for reads. A relaxed atomic load is an ordinary load
            // instruction, so it also works on memory that is mapped read-only.
            let byte = unsafe { AtomicU8::from_ptr(src.cast_mut().wrapping_add(at)) }.load(Ordering::Relaxed);
            // SAFETY: the caller has mapped the range for these accesses and uses no conflicting reference.
            unsafe { set(dst.wrapping_add(at), byte, 1) };
        }
    }

    pub(super) unsafe fn set(dst: *mut u8, byte: u8, len: usize) {
        for at in 0..len {
            // SAFETY: the caller has mapped the range for these accesses and uses no conflicting reference.
            unsafe { AtomicU8::from_ptr(dst.wrapping_add(at)) }.store(byte, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_bytes_are_moved_and_no_others() {
        for len in [0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 1000, 4096, 70_000] {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 13)] {
                let src: Vec<u8> = (0..len + 20).map(|i| (i * 7 % 251) as u8 + 1).collect();
                let mut dst = vec![0; len + 40];
                // SAFETY: both ranges lie within the vectors, because the loops above bound the offsets and
                // the length.
                unsafe { copy(dst.as_mut_ptr().wrapping_add(to), src.as_ptr().wrapping_add(from), len) };
                assert_eq!(dst[to..to + len], src[from..from + len]);
                assert!(dst[..to].iter().chain(&dst[to + len..]).all(|byte| *byte == 0), "{len} to {to}");
                // SAFETY: the range lies within the vector, because the loops above bound the offset and the
                // length.
                unsafe { set(dst.as_mut_ptr().wrapping_add(to), 0xFE, len) };
                assert!(dst[to..to + len].iter().all(|byte| *byte == 0xFE));
                assert!(dst[..to].iter().chain(&dst[to + len..]).all(|byte| *byte == 0), "{len} to {to}");
            }
        }
    }
}
