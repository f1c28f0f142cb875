//! The file descriptor on which a queue's owner can sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dma_core::Result;

/// A timer: readable once its time has come, until it is [cleared](Self::clear). Linux has such files.
#[derive(Debug)]
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn new() -> Result<Option<Self>> {
        timer::create().map(|fd| fd.map(Self))
    }

    /// Makes it readable `after` from now.
    pub(super) fn set(&self, after: Duration) {
        // 0 would disarm the timer.
        timer::program(&self.0, after.max(Duration::from_nanos(1)));
    }

    /// Makes it readable now.
    pub(super) fn signal(&self) {
        self.set(Duration::ZERO);
    }

    /// Makes it unreadable until set again.
    pub(super) fn clear(&self) {
        timer::program(&self.0, Duration::ZERO);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use dma_core::{Error, ErrorKind, Result};
    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    pub(super) fn create() -> Result<Option<OwnedFd>> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|errno| {
            let kind = match errno {
                Errno::MFILE | Errno::NFILE => ErrorKind::OutOfResources,
                Errno::NOMEM => ErrorKind::OutOfMemory,
                _ => ErrorKind::Os,
            };
            Error::new(kind, "no file descriptor for a queue's completions")
                .with_source(std::io::Error::from(errno))
                .with_hint("each queue needs one: raise the limit with `ulimit -n`, or open fewer queues")
        })?;
        Ok(Some(fd))
    }

    pub(super) fn program(fd: &OwnedFd, after: Duration) {
        let at = Timespec {
            tv_sec: after.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: never, it_value: at };
        // Cannot fail: the timer is valid and the times are in range.
        let set = timerfd_settime(fd, TimerfdTimerFlags::empty(), &timer);
        debug_assert!(set.is_ok(), "{set:?}");
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::os::fd::OwnedFd;

    pub(super) fn create() -> dma_core::Result<Option<OwnedFd>> {
        Ok(None)
    }

    pub(super) fn program(_: &OwnedFd, _: std::time::Duration) {}
}
