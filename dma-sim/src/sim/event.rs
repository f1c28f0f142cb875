//! The file descriptor on which a queue's owner can sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dma_core::{Error, Result};
use dma_process::above_stdio;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A Linux timer descriptor. It becomes readable at its time, and stays readable until it is
/// [cleared](Self::clear). If the system cannot provide a descriptor, the value stores the error
/// number, and its queue can only be polled.
#[derive(Debug)]
pub(super) struct TimerFd(std::result::Result<OwnedFd, Errno>);

impl TimerFd {
    pub(super) fn new() -> Self {
        Self(
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
                .map(above_stdio),
        )
    }

    /// Makes the descriptor readable after the duration `after`.
    pub(super) fn set(&self, after: Duration) {
        // A duration of 0 would disarm the timer.
        self.program(after.max(Duration::from_nanos(1)));
    }

    /// Makes the descriptor readable now.
    pub(super) fn signal(&self) {
        self.set(Duration::ZERO);
    }

    /// Makes the descriptor unreadable until it is set again.
    pub(super) fn clear(&self) {
        self.program(Duration::ZERO);
    }

    fn program(&self, after: Duration) {
        let Ok(fd) = &self.0 else { return };
        let it_value = Timespec::try_from(after).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // The call cannot fail, because the timer is valid and the times are in range.
        let set = timerfd_settime(fd, TimerfdTimerFlags::empty(), &timer);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// Returns the descriptor, or the error with which the system refused to create it.
    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>> {
        match &self.0 {
            Ok(fd) => Ok(fd.as_fd()),
            Err(errno) => Err(Error::of_system_call("timerfd_create", (*errno).into())),
        }
    }
}
