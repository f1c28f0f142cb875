//! `libdma_memcpy.so`: by `LD_PRELOAD` or linked, takes the C library's `memcpy`, `memmove`, `memset`,
//! `memcmp` and `bcmp`. Calls shorter than a limit go on to the C library after four instructions. For
//! longer calls, the learner chooses the fastest method by measured times: the C library, a loop that writes
//! past the cache, or a work queue of Intel DSA.
//!
//! A program may call `memcpy` before any constructor has run, in a signal handler, in a forked child, and
//! while it holds any lock. So this crate has no standard library and no dependency that needs one, allocates
//! nothing, takes no lock, starts no thread, has no thread-local storage, and makes no system call unless a
//! work queue is in use. All its state is atomic numbers, of which an update may be lost.
//!
//! `install` builds the library with the feature `preload`. Without this feature, the crate is empty.
#![no_std]
#![cfg_attr(test, expect(dead_code, reason = "only the library has callers of the functions without tests"))]

#[cfg(test)]
extern crate std;

#[cfg(any(feature = "preload", test))]
mod learner;
#[cfg(all(feature = "preload", not(test), target_arch = "x86_64", target_os = "linux"))]
mod library;
#[cfg(any(feature = "preload", test))]
mod options;
#[cfg(all(any(feature = "preload", test), target_arch = "x86_64"))]
mod stream;
