//! [`Generation`]: detects that the process was forked.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the program's start and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Distinguishes a process from its forked children. The check costs one load, whereas `getpid` is a system
/// call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u32);

impl Generation {
    /// Returns the generation of this process.
    pub(super) fn current() -> Self {
        static WATCH: Once = Once::new();
        extern "C" fn forked() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        WATCH.call_once(|| {
            // SAFETY: the handler only increments an atomic, which POSIX permits in a child. If the
            // registration fails because memory is exhausted, forks are not detected.
            _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true in a process that was forked after this value was made.
    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}
