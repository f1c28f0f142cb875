//! Clocks of the operating system, read with few instructions.
#![expect(unsafe_code, reason = "asks the C library")]

use std::time::Duration;

/// Returns the CPU time of this process.
pub(crate) fn process_cpu() -> Duration {
    duration(read(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    duration(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Returns the time of the monotonic clock in nanoseconds. Reading an `Instant` takes four times the
/// instructions.
#[inline]
pub(crate) fn nanoseconds() -> u64 {
    let time = read(libc::CLOCK_MONOTONIC);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

const fn duration(time: libc::timespec) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reads a clock. Returns 0 if the clock does not exist.
#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // `libc`, because rustix would look for the vDSO, which Valgrind hides. On failure `time` stays 0.
    // SAFETY: `time` is valid for the write, and the call does not keep the pointer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}
