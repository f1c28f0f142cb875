//! The signals of traps, and the signal mask of threads.
#![expect(unsafe_code, reason = "signal sets of the C library are read and written as bits")]

use std::ffi::c_int;
use std::sync::OnceLock;
use std::{mem, ptr};

use libc::{sigaction, sigset_t};

/// The signals of traps.
pub(crate) const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL];

/// Returns the bits of [`SIGNALS`] in the kernel's set of signals.
pub(crate) fn bits_of_traps() -> u64 {
    SIGNALS.iter().map(|signal| bit_of(*signal)).sum()
}

pub(crate) const fn bit_of(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Converts bits to a signal set of the C library. The bits are written directly, because `sigfillset` leaves
/// out the signals that the C library uses itself. The set is longer than the kernel's 64 bits.
pub(crate) fn signal_set(bits: u64) -> sigset_t {
    // SAFETY: a `sigset_t` of zero bytes is the empty set.
    let mut set: sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a set begins with the kernel's 64 bits.
    unsafe { (&raw mut set).cast::<u64>().write(bits) };
    set
}

/// Returns the bits of a set of signals.
///
/// # Safety
///
/// `set` must have at least the kernel's 64 bits.
pub(crate) const unsafe fn bits_of(set: *const sigset_t) -> u64 {
    // SAFETY: the caller has initialized the first 64 bits.
    unsafe { set.cast::<u64>().read() }
}

/// Functions of the C library that the preloaded library exports, too: the C library's own.
#[derive(Debug)]
pub struct Calls {
    /// `sigaction`.
    pub sigaction: unsafe fn(c_int, *const sigaction, *mut sigaction) -> c_int,
    /// `pthread_sigmask`.
    pub pthread_sigmask: unsafe fn(c_int, *const sigset_t, *mut sigset_t) -> c_int,
}

static CALLS: OnceLock<Calls> = OnceLock::new();

/// Sets the functions to call instead of those that a linker finds, before the first work queue starts.
///
/// # Safety
///
/// They must be the C library's functions of these names.
pub unsafe fn set_calls(calls: Calls) {
    let _ = CALLS.set(calls);
}

/// Calls the C library's own `sigaction`, even if the preloaded library exports another one.
pub(crate) unsafe fn real_sigaction(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    match CALLS.get() {
        // SAFETY: the arguments are passed on, and the caller meets the requirements of `sigaction`.
        Some(calls) => unsafe { (calls.sigaction)(signal, new, old) },
        // SAFETY: the arguments are passed on, and the caller meets the requirements of `sigaction`.
        None => unsafe { libc::sigaction(signal, new, old) },
    }
}

/// Changes this thread's signal mask by the C library's own function, even if the preloaded library exports
/// another one.
pub(crate) fn change_mask(how: c_int, bits: u64) {
    let set = signal_set(bits);
    match CALLS.get() {
        // SAFETY: the set is initialized.
        Some(calls) => unsafe { (calls.pthread_sigmask)(how, &raw const set, ptr::null_mut()) },
        // SAFETY: the set is initialized.
        None => unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) },
    };
}

/// Returns the set without the trap signals. No thread may block them, because the kernel ends a process that
/// faults while they are blocked.
#[must_use]
pub fn without_traps(set: &sigset_t) -> sigset_t {
    // SAFETY: a set of the C library has the kernel's 64 bits.
    signal_set(unsafe { bits_of(set) } & !bits_of_traps())
}

/// Blocks all signals except the trap signals on this thread of the stand-in, so that the program's handlers
/// run on the program's threads.
pub(crate) fn block_signals() {
    change_mask(libc::SIG_SETMASK, !bits_of_traps());
}
