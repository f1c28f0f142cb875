//! Going before everything else on the machine, for those who ask for it.
#![expect(unsafe_code, reason = "a call of the C library that has no safe wrapper among our dependencies")]

use std::io;

/// Above the threads of the kernel that have no deadline, and below those that have.
const PRIORITY: i32 = 10;

/// Puts this thread, and those that it starts from now on, before all that have no realtime priority
/// (`SCHED_FIFO`).
///
/// # Errors
///
/// The user may not do that.
pub fn realtime() -> io::Result<()> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: 0 is the calling thread, and the parameters are read during the call alone.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
