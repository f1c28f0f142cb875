//! [`Generation`]: tells a process from the one that it was forked from.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the program's start and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, told from those that were forked from it. A check costs one load; asking the system for the
/// process's number takes a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u32);

impl Generation {
    /// This process.
    pub(super) fn current() -> Self {
        static WATCH: Once = Once::new();
        extern "C" fn forked() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        WATCH.call_once(|| {
            // SAFETY: the handler is a function of this program that does one atomic addition, which POSIX
            // allows there. A failure, for lack of memory, leaves forks unnoticed.
            _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true in another process, forked since.
    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}
