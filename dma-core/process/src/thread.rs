//! Starts threads that leave the program's signals to the program, and keeps ignored signals ignored.
#![expect(unsafe_code, reason = "sets the signal mask of the calling thread, and signal actions")]

use std::mem::MaybeUninit;
use std::sync::{Arc, Barrier};

use crate::headroom::check_mappings;
use crate::{Limit, LimitError, check_headroom};

/// Stack size, in bytes, of a thread that the standard library starts.
const STACK: usize = 2 << 20;
/// Signals that the kernel sends to a thread because of an instruction of this thread. If they were blocked,
/// the kernel would end the process without calling the program's handler.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread, in which all signals are blocked as in [`with_signals_blocked`]. Returns when the thread
/// has begun; or with an error if the system lacks the resources.
///
/// # Errors
///
/// [`Limit::Memory`]; [`Limit::Threads`] if the system cannot start another thread.
pub fn spawn_thread(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, LimitError> {
    // The process aborts if a starting thread cannot allocate memory or map its signal stack, so check this
    // first.
    check_headroom(STACK)?;
    check_mappings()?;
    let begun = Arc::new(Barrier::new(2));
    let begins = Arc::clone(&begun);
    let body = move || {
        begins.wait();
        body();
    };
    let thread =
        with_signals_blocked(|| std::thread::Builder::new().name(name).spawn(body)).map_err(|e| {
            let message = format!("the system cannot start another thread: {e}");
            LimitError::new(Limit::Threads, message, "raise the limits on threads and on address space")
        })?;
    // The standard library maps the signal stack before it calls the body. A check says nothing while a
    // thread has yet to do this. A barrier leaves the token of `std::thread::park` to the caller, who may
    // expect it; a channel would consume it.
    begun.wait();
    Ok(thread)
}

/// Calls `start` while all signals are blocked in this thread, and restores the signal mask afterwards.
/// Threads that `start` starts inherit the mask.
///
/// Libraries start their threads in this way, because the kernel delivers a signal of the process to any
/// thread that does not block it. A program that blocks `SIGTERM` in its own threads, to read it by
/// `signalfd`, would be ended by a thread that it does not know.
///
/// Faults (`SIGBUS`, `SIGFPE`, `SIGILL`, `SIGSEGV`, `SIGSYS` and `SIGTRAP`) stay as they are, so that
/// handlers of the program see the faults of all threads.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // Miri has no signals.
    if cfg!(miri) {
        return start();
    }
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set is initialized, and the call changes only this thread's mask.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        }
    }
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the call initializes the set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in FAULTS {
        // SAFETY: the set is initialized.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: both pointers are valid, and the call changes only this thread's mask. It fails only for an
    // unknown first argument, so it always writes the earlier mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: `pthread_sigmask` has initialized the mask.
    let _restore = Restore(unsafe { before.assume_init() });
    start()
}

/// Calls `install`, with which a program installs its handlers of SIGINT, SIGTERM and SIGHUP. Those of the
/// signals that are ignored at the call stay ignored: `nohup`, and shells that start background jobs, tell a
/// program in this way to ignore them.
///
/// Call this before the program starts threads that take signals. This library itself installs no handlers.
pub fn keep_ignored_signals<T>(install: impl FnOnce() -> T) -> T {
    let ignored = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call only writes the present action.
        unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: the action was zeroed, which is a valid value, and then possibly written.
        let action = unsafe { action.assume_init() };
        (action.sa_sigaction == libc::SIG_IGN).then_some((signal, action))
    });
    // A signal that arrives meanwhile is discarded when it is ignored again.
    with_signals_blocked(|| {
        let installed = install();
        for (signal, action) in ignored.iter().flatten() {
            // SAFETY: the action ignores the signal, so no code runs.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
        installed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the blocked signals of this thread, as `proc_pid_status(5)` shows them.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("a number")
    }

    #[test]
    fn threads_block_all_signals_but_faults_and_the_caller_keeps_its_mask() {
        let before = blocked();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = spawn_thread("blocked".to_owned(), move || tell.send(blocked()).expect("a receiver"));
        let blocked_there = told.recv().expect("the thread runs");
        thread.expect("a thread").join().expect("no panic");
        // The kernel ignores KILL and STOP in masks, and the C library keeps signals 32 and 33 for itself.
        for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(signal)) {
            let is_blocked = blocked_there & 1 << (signal - 1) != 0;
            assert_eq!(is_blocked, !FAULTS.contains(&signal), "signal {signal}");
        }
        assert_eq!(blocked(), before);
    }

    #[test]
    fn a_start_leaves_the_callers_token_to_park() {
        std::thread::current().unpark();
        for _ in 0..100 {
            spawn_thread("parked".to_owned(), || {}).expect("a thread").join().expect("no panic");
        }
        // This would block for ever without the token.
        std::thread::park();
    }

    #[test]
    fn ignored_signals_stay_ignored() {
        extern "C" fn handler(_: libc::c_int) {}
        let handler = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the action is to ignore the signal, to do nothing, or the default.
        let set = |signal, action| unsafe { libc::signal(signal, action) };
        set(libc::SIGHUP, libc::SIG_IGN);
        keep_ignored_signals(|| [libc::SIGHUP, libc::SIGTERM].map(|signal| set(signal, handler)));
        assert_eq!(set(libc::SIGHUP, libc::SIG_DFL), libc::SIG_IGN);
        assert_eq!(set(libc::SIGTERM, libc::SIG_DFL), handler);
    }

    #[test]
    fn a_panic_restores_the_mask() {
        let before = blocked();
        std::panic::catch_unwind(|| with_signals_blocked(|| panic!("expected"))).expect_err("it panicked");
        assert_eq!(blocked(), before);
    }
}
