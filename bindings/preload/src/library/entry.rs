//! The functions that programs call in place of the C library's.
//!
//! Each function compares the length with a limit, and jumps to the C library if the call is shorter. This
//! needs no relocation, because another library may call `memcpy` before the loader has relocated this one.
//! Copies of up to 32 bytes are executed here, in about as many instructions as in the C library. They are
//! nine tenths of the calls of some programs, and the way to the C library would make them slower.
//!
//! The functions begin without ENDBR64, because the library is not marked for indirect branch tracking. An
//! indirect function (`STT_GNU_IFUNC`) that selects the C library's function would cost nothing. But the
//! loader reports an error for each library that it relocates before this one and that calls the function.
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

/// Declares a function that copies. The ranges may overlap, so all bytes are loaded before the first one is
/// stored. Loads and stores begin at the front: an address that cannot be accessed is the first such address.
macro_rules! copy_entry {
    ($name:ident) => {
        /// The C library's function of this name.
        ///
        /// # Safety
        ///
        /// See the C library.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(dst: *mut c_void, src: *const c_void, len: usize) -> *mut c_void {
            naked_asm!(
                "cmp rdx, 32",
                "ja 7f",
                "mov rax, rdi",
                "cmp edx, 4",
                "jae 4f",
                "cmp edx, 1",
                "jb 3f",
                "movzx ecx, byte ptr [rsi]",
                "je 2f",
                // 2 or 3 bytes.
                "movzx esi, word ptr [rsi + rdx - 2]",
                "mov byte ptr [rdi], cl",
                "mov word ptr [rdi + rdx - 2], si",
                "ret",
                "2:",
                "mov byte ptr [rdi], cl",
                "3:",
                "ret",
                "4:",
                "cmp edx, 16",
                "jae 6f",
                "cmp edx, 8",
                "jae 5f",
                // 4 to 7 bytes: the first 4 and the last 4.
                "mov ecx, dword ptr [rsi]",
                "mov esi, dword ptr [rsi + rdx - 4]",
                "mov dword ptr [rdi], ecx",
                "mov dword ptr [rdi + rdx - 4], esi",
                "ret",
                // 8 to 15 bytes.
                "5:",
                "mov rcx, qword ptr [rsi]",
                "mov rsi, qword ptr [rsi + rdx - 8]",
                "mov qword ptr [rdi], rcx",
                "mov qword ptr [rdi + rdx - 8], rsi",
                "ret",
                // 16 to 32 bytes.
                "6:",
                "movups xmm0, xmmword ptr [rsi]",
                "movups xmm1, xmmword ptr [rsi + rdx - 16]",
                "movups xmmword ptr [rdi], xmm0",
                "movups xmmword ptr [rdi + rdx - 16], xmm1",
                "ret",
                "7:",
                "cmp rdx, qword ptr [rip + {limits} + {limit}]",
                "jae {long}",
                "jmp qword ptr [rip + {functions} + {real}]",
                limits = sym LIMITS,
                limit = const offset_of!(Limits, copy),
                functions = sym REAL,
                real = const offset_of!(Real, memmove),
                long = sym calls::copy,
            )
        }
    };
}

copy_entry!(memcpy);
copy_entry!(memmove);
entry!(memset(dst: *mut c_void, byte: c_int, len: usize) -> *mut c_void, fill, memset, calls::fill);
entry!(memcmp(a: *const c_void, b: *const c_void, len: usize) -> c_int, compare, memcmp, calls::compare);
entry!(bcmp(a: *const c_void, b: *const c_void, len: usize) -> c_int, compare, memcmp, calls::compare);
entry!(__memcpy_chk(dst: *mut c_void, src: *const c_void, len: usize, room: usize) -> *mut c_void,
    copy, memcpy_chk, calls::copy_checked);
entry!(__memmove_chk(dst: *mut c_void, src: *const c_void, len: usize, room: usize) -> *mut c_void,
    copy, memmove_chk, calls::move_checked);
entry!(__memset_chk(dst: *mut c_void, byte: c_int, len: usize, room: usize) -> *mut c_void,
    fill, memset_chk, calls::fill_checked);
