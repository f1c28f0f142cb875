//! Realtime priority for the whole run.
#![expect(unsafe_code, reason = "a call of the C library that has no safe wrapper among our dependencies")]

use std::io;

/// Above kernel threads without deadlines, below those with deadlines.
const PRIORITY: i32 = 10;

/// Gives this thread, and those that it starts from now on, realtime priority (`SCHED_FIFO`).
pub(crate) fn realtime() -> io::Result<()> {
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: 0 is the calling thread, and the parameters are read during the call only.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
