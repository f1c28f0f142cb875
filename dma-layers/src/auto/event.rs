//! [`Events`]: one file descriptor for both members' events, and for the time to look after a device.
#![cfg_attr(not(target_os = "linux"), allow(unused_variables, dead_code, reason = "there are no such events"))]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dma_core::Result;

/// Readable while one of the descriptors that were added is, or from the time that is set.
#[derive(Debug)]
pub(super) struct Events {
    epoll: OwnedFd,
    #[cfg(target_os = "linux")]
    timer: OwnedFd,
}

impl Events {
    /// `None` on systems other than Linux, whose queues are only polled.
    pub(super) fn new() -> Result<Option<Self>> {
        #[cfg(target_os = "linux")]
        {
            use rustix::event::epoll;
            use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(error)?;
            let events = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?, timer };
            events.add(events.timer.as_fd())?;
            Ok(Some(events))
        }
        #[cfg(not(target_os = "linux"))]
        Ok(None)
    }

    /// Adds a descriptor. It goes when it is closed.
    pub(super) fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::event::epoll;
            let data = epoll::EventData::new_u64(0);
            epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(error)?;
        }
        Ok(())
    }

    /// Makes it readable `after` from now; with 0, clears that.
    pub(super) fn set_timer(&self, after: Duration) {
        #[cfg(target_os = "linux")]
        {
            use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
            let at = Timespec {
                tv_sec: after.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: after.subsec_nanos().into(),
            };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let timer = Itimerspec { it_interval: never, it_value: at };
            // Cannot fail: the timer is valid and the times are in range.
            let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer);
            debug_assert!(set.is_ok(), "{set:?}");
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(target_os = "linux")]
fn error(errno: rustix::io::Errno) -> dma_core::Error {
    use dma_core::ErrorKind;
    use rustix::io::Errno;
    let kind = match errno {
        Errno::MFILE | Errno::NFILE => ErrorKind::OutOfResources,
        Errno::NOMEM => ErrorKind::OutOfMemory,
        _ => ErrorKind::Os,
    };
    dma_core::Error::new(kind, "no file descriptor for a queue's completions")
        .with_source(std::io::Error::from(errno))
        .with_hint("each queue needs two more: raise the limit with `ulimit -n`, or open fewer queues")
}
