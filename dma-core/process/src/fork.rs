//! [`ForkMark`]: detects that the process was forked.
#![expect(unsafe_code, reason = "maps a page that the kernel clears in forked children")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceRef;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Distinguishes the process that made the mark from its forked children.
///
/// Process ids cannot do this: a child in another PID namespace may have the id of its parent, and the
/// system reuses the ids of ended processes. The check is two loads, whereas `getpid` is a system call, and
/// is permitted in a signal handler.
///
/// ```
/// let mark = dma_process::ForkMark::new();
/// assert!(!mark.is_child());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ForkMark {
    /// The number of the running process. It is 0 in a forked child that has not made a mark.
    current: &'static AtomicU32,
    /// The number of the process that made the mark.
    own: u32,
}

impl ForkMark {
    /// Makes a mark of this process.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default value would not suggest that it depends on the process"
    )]
    pub fn new() -> Self {
        // Without a lock: a thread of the parent may be in this function at the fork.
        static CURRENT: OnceRef<'static, AtomicU32> = OnceRef::new();
        static LAST: AtomicU32 = AtomicU32::new(0);
        let current = CURRENT.get_or_init(|| wiped_by_kernel().unwrap_or_else(wiped_by_handler));
        let own = match current.load(Ordering::Relaxed) {
            0 => {
                let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                // Another thread may have numbered the process first.
                let set = current.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
                set.map_or_else(|other| other, |_| new)
            }
            own => own,
        };
        Self { current, own }
    }

    /// Returns true in a process that was forked from the process that made this mark.
    #[inline]
    #[must_use]
    pub fn is_child(self) -> bool {
        self.current.load(Ordering::Relaxed) != self.own
    }
}

/// Returns a number that the kernel sets to 0 in forked children, however they are forked. Returns `None`
/// on Linux before 4.14, in sandboxes that lack `MADV_WIPEONFORK`, and if the system has no memory.
fn wiped_by_kernel() -> Option<&'static AtomicU32> {
    if cfg!(miri) {
        return None;
    }
    let (len, access) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the advice affects only this new page, which is in use nowhere.
    if unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: this function has just made the mapping, and no pointer to it exists elsewhere.
        let _ = unsafe { munmap(page, len) };
        return None;
    }
    let number = NonNull::new(page.cast::<AtomicU32>())?;
    // SAFETY: the page is zeroed, which is a valid number, it is never unmapped, and it is accessed only
    // through this reference.
    Some(unsafe { number.as_ref() })
}

/// Returns a number that a handler of the C library's `fork` sets to 0. Children of `clone` are not
/// detected.
fn wiped_by_handler() -> &'static AtomicU32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    extern "C" fn wipe() {
        NUMBER.store(0, Ordering::Relaxed);
    }
    if !cfg!(miri) {
        // SAFETY: the handler only stores an atomic, which POSIX permits in a child. If the registration
        // fails because memory is exhausted, forks are not detected.
        _ = unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
    &NUMBER
}

/// Runs `check` in a forked child, and returns true if the child ends with success.
#[cfg(test)]
pub(crate) fn in_child(fork: impl FnOnce() -> libc::pid_t, check: impl FnOnce() -> bool) -> bool {
    match fork() {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            let status = i32::from(!check());
            // SAFETY: `_exit` only ends the process.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is a local variable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The child of the system call has no handlers of `fork` run, as a child in a PID namespace of its own.
    #[test]
    fn a_child_of_clone_is_detected_and_has_marks_of_its_own() {
        let mark = ForkMark::new();
        // SAFETY: the child calls only functions that are permitted in a child of a process with threads.
        let clone = || unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::c_long::from(libc::SIGCHLD),
                0_usize,
                0_usize,
                0_usize,
                0_usize,
            ) as libc::pid_t
        };
        assert!(in_child(clone, || {
            let child = mark.is_child();
            let own = ForkMark::new();
            // Not by `fork`, which waits for the allocator's locks: a thread of the parent may have held
            // them.
            child
                && mark.is_child()
                && !own.is_child()
                && in_child(clone, || own.is_child() && mark.is_child())
        }));
        assert!(!mark.is_child());
    }

    #[test]
    fn without_the_kernels_help_a_handler_detects_forks() {
        let number = wiped_by_handler();
        number.store(5, Ordering::Relaxed);
        let mark = ForkMark { current: number, own: 5 };
        // SAFETY: the child calls only functions that are permitted in a child of a process with threads.
        assert!(in_child(|| unsafe { libc::fork() }, || mark.is_child()));
        assert!(!mark.is_child());
    }
}
