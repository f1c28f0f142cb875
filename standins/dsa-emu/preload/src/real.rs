//! The C library's own functions, which this library exports too.
#![expect(unsafe_code, reason = "calls functions of the C library that are found by name")]

use std::ffi::{c_char, c_int, c_void};
use std::mem;

use libc::{off_t, sigaction as action, sigset_t, size_t, ssize_t};

macro_rules! real {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) -> $ret:ty;)*) => {
        $(
            /// # Safety
            ///
            /// The requirements are those of the C library's function.
            pub(crate) unsafe fn $name($($arg: $kind),*) -> $ret {
                static FOUND: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
                let found = *FOUND.get_or_init(|| {
                    let name = concat!(stringify!($name), "\0").as_ptr().cast::<c_char>();
                    // SAFETY: the name is a C string.
                    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
                    // The function exists, because a program that calls it was linked with a library that
                    // has it.
                    assert!(!found.is_null(), "the C library lacks {}", stringify!($name));
                    found.expose_provenance()
                });
                let found = std::ptr::with_exposed_provenance::<c_void>(found);
                // SAFETY: the function of this name has these arguments.
                let function = unsafe {
                    mem::transmute::<*const c_void, unsafe extern "C" fn($($kind),*) -> $ret>(found)
                };
                // SAFETY: the caller meets the requirements of the C library's function.
                unsafe { function($($arg),*) }
            }
        )*
    };
}
pub(crate) use real;

real! {
    fn sigaction(signal: c_int, new: *const action, old: *mut action) -> c_int;
    fn signal(signal: c_int, handler: size_t) -> size_t;
    fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t;
    fn mmap(at: *mut c_void, len: size_t, rights: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void;
}
