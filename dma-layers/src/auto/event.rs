//! [`Events`]: one file descriptor for both members' events, and for the time to look after a device.

#[cfg(target_os = "linux")]
pub(super) use linux::Events;
#[cfg(not(target_os = "linux"))]
pub(super) use none::Events;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    use dma_core::{Error, ErrorKind, Result};
    use rustix::event::epoll;
    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    /// Readable while one of the descriptors that were added is, or from the time that is set.
    #[derive(Debug)]
    pub(in crate::auto) struct Events {
        epoll: OwnedFd,
        timer: OwnedFd,
    }

    impl Events {
        pub(in crate::auto) fn new() -> Result<Option<Self>> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(error)?;
            let events = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?, timer };
            events.add(events.timer.as_fd())?;
            Ok(Some(events))
        }

        /// Adds a descriptor. It goes when it is closed.
        pub(in crate::auto) fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(error)
        }

        /// Makes it readable `after` from now; with 0, clears that.
        pub(in crate::auto) fn set_timer(&self, after: Duration) {
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

        pub(in crate::auto) fn fd(&self) -> BorrowedFd<'_> {
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
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use dma_core::Result;

    /// Not available here: queues are only polled.
    #[derive(Debug)]
    pub(in crate::auto) enum Events {}

    impl Events {
        pub(in crate::auto) fn new() -> Result<Option<Self>> {
            Ok(None)
        }

        pub(in crate::auto) fn add(&self, _: BorrowedFd<'_>) -> Result<()> {
            match *self {}
        }

        pub(in crate::auto) fn set_timer(&self, _: Duration) {
            match *self {}
        }

        pub(in crate::auto) fn fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}
