//! [`Events`]: one file descriptor for both members' events, and for the time to look after a device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dma_core::{Error, ErrorKind, Result};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Readable while one of the descriptors that were added is, or from the time that is set.
#[derive(Debug)]
pub(super) struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Events {
    pub(super) fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(error)?;
        let events = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?, timer };
        events.add(events.timer.as_fd())?;
        Ok(events)
    }

    /// Adds a descriptor. It goes when it is closed.
    pub(super) fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(error)
    }

    /// Makes it readable `after` from now; with 0, clears that.
    pub(super) fn set_timer(&self, after: Duration) {
        let it_value = Timespec::try_from(after).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // Cannot fail: the timer is valid and the times are in range.
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn error(errno: Errno) -> Error {
    let kind = match errno {
        Errno::MFILE | Errno::NFILE => ErrorKind::OutOfResources,
        Errno::NOMEM => ErrorKind::OutOfMemory,
        _ => ErrorKind::Os,
    };
    Error::new(kind, "no file descriptor for a queue's completions")
        .with_source(std::io::Error::from(errno))
        .with_hint("each queue needs two more: raise the limit with `ulimit -n`, or open fewer queues")
}
