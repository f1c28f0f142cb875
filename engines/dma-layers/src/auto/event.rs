//! [`Events`]: one file descriptor for the events of the CPU's queue and the device's, and for a timer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dma_core::{Error, Result};
use dma_process::above_stdio;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A descriptor that is readable while one of the added descriptors is, or once the timer has expired. If the
/// system refuses one of the descriptors, this value contains the error, and the queue can only be polled.
#[derive(Debug)]
pub(super) struct Events(Result<Files>);

#[derive(Debug)]
struct Files {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Files {
    /// Opens the descriptor and the timer for events of `queues`.
    fn open<'a>(queues: impl IntoIterator<Item = Result<BorrowedFd<'a>>>) -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map(above_stdio)
            .map_err(refused("timerfd_create"))?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map(above_stdio).map_err(refused("epoll_create1"))?;
        let files = Self { epoll, timer };
        files.add(files.timer.as_fd())?;
        for fd in queues {
            files.add(fd?)?;
        }
        Ok(files)
    }

    fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(refused("epoll_ctl"))
    }
}

impl Events {
    /// Makes the descriptor for events of `queues`.
    pub(super) fn new<'a>(queues: impl IntoIterator<Item = Result<BorrowedFd<'a>>>) -> Self {
        Self(Files::open(queues))
    }

    /// Adds the descriptor of another queue. Closing a queue removes its descriptor. Fails if the system
    /// refuses the descriptor.
    pub(super) fn add(&self, fd: Result<BorrowedFd<'_>>) -> Result<()> {
        match &self.0 {
            Ok(files) => files.add(fd?),
            // An earlier descriptor was refused, so the owner cannot sleep anyway.
            Err(_) => Ok(()),
        }
    }

    /// Sets the timer to expire `after` from now. 0 stops the timer.
    pub(super) fn set_timer(&self, after: Duration) {
        let Ok(files) = &self.0 else { return };
        let it_value = Timespec::try_from(after).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // This cannot fail, because the timer is valid and the times are in range.
        let set = timerfd_settime(&files.timer, TimerfdTimerFlags::empty(), &timer);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// Returns the descriptor.
    /// Fails if the system refused the descriptor.
    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>> {
        match &self.0 {
            Ok(files) => Ok(files.epoll.as_fd()),
            Err(e) => Err(Error::new(e.kind(), e.message().to_owned()).with_hint(e.hint().to_owned())),
        }
    }
}

fn refused(call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::of_system_call(call, errno.into())
}
