//! The functions that programs call in place of the C library's.
//!
//! Each function compares the length with a limit, and jumps to the C library if the call is shorter. This
//! needs no relocation, because another library may call `memcpy` before the loader has relocated this one.
#![expect(unsafe_code, reason = "has the C library's names")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use super::calls::{self, REAL, Real};
use super::{LIMITS, Limits};

/// Declares a function. `$limit` limits the length in RDX, `$real` is the C library's function, and `$long`
/// executes longer calls and all calls before the start.
macro_rules! entry {
    ($name:ident ($($argument:ident: $type:ty),*) -> $result:ty, $limit:ident, $real:ident, $long:path) => {
        /// The C library's function of this name.
        ///
        /// # Safety
        ///
        /// See the C library.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!(
                "endbr64",
                "cmp rdx, qword ptr [rip + {limits} + {limit}]",
                "jae {long}",
                "jmp qword ptr [rip + {functions} + {real}]",
                limits = sym LIMITS,
                limit = const offset_of!(Limits, $limit),
                functions = sym REAL,
                real = const offset_of!(Real, $real),
                long = sym $long,
            )
        }
    };
}

entry!(memcpy(dst: *mut c_void, src: *const c_void, len: usize) -> *mut c_void, copy, memmove, calls::copy);
entry!(memmove(dst: *mut c_void, src: *const c_void, len: usize) -> *mut c_void, copy, memmove, calls::copy);
entry!(memset(dst: *mut c_void, byte: c_int, len: usize) -> *mut c_void, fill, memset, calls::fill);
entry!(memcmp(a: *const c_void, b: *const c_void, len: usize) -> c_int, compare, memcmp, calls::compare);
entry!(bcmp(a: *const c_void, b: *const c_void, len: usize) -> c_int, compare, memcmp, calls::compare);
entry!(__memcpy_chk(dst: *mut c_void, src: *const c_void, len: usize, room: usize) -> *mut c_void,
    copy, memcpy_chk, calls::copy_checked);
entry!(__memmove_chk(dst: *mut c_void, src: *const c_void, len: usize, room: usize) -> *mut c_void,
    copy, memmove_chk, calls::move_checked);
entry!(__memset_chk(dst: *mut c_void, byte: c_int, len: usize, room: usize) -> *mut c_void,
    fill, memset_chk, calls::fill_checked);
