//! CPU time.
#![expect(unsafe_code, reason = "asks the C library")]

use std::time::Duration;

/// CPU time of this process.
pub(crate) fn of_process() -> Duration {
    of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread.
pub(crate) fn of_thread() -> Duration {
    of(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // rustix reads the vDSO for it, and Valgrind hides that.
    // SAFETY: `time` is a place for the answer.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    if failed { Duration::ZERO } else { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) }
}
