//! Checks in a forked child.
#![expect(unsafe_code, reason = "forks")]

/// Runs `check` in a forked child. Returns true if `check` returned true, and false if it returned false,
/// panicked, or had not ended after 60 s, for example because it waits for a lock of the parent.
///
/// The child has only the calling thread. `check` must not wait for another thread of the parent.
#[must_use]
pub fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the caller promises that the child uses nothing that another thread of the parent may hold. The
    // C library keeps its allocator usable.
    match unsafe { libc::fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: the call sets a timer, whose signal ends this process.
            unsafe { libc::alarm(60) };
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
            // SAFETY: `_exit` only ends the process.
            unsafe { libc::_exit(i32::from(!matches!(checked, Ok(true)))) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is a local variable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status == 0
        }
    }
}
