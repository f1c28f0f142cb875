//! [`StallTimer`]: a queue's event with a timer, for event loops that sleep while a device may have stalled.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use dma_process::above_stdio;
use rustix::event::epoll;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::{Error, Result};

/// A file descriptor that becomes readable when the queue's event does, and at intervals while the timer is
/// set.
pub(super) struct StallTimer {
    /// An epoll of the event and the timer.
    both: OwnedFd,
    timer: OwnedFd,
    interval: Duration,
    /// The time at which the timer expires; `None` while it is not set.
    next: Cell<Option<Instant>>,
}

impl StallTimer {
    pub(super) fn new(interval: Duration, event: BorrowedFd<'_>) -> Result<Self> {
        let failed = |call| move |e: Errno| Error::of_system_call(call, e.into());
        let both = epoll::create(CreateFlags::CLOEXEC).map(above_stdio).map_err(failed("epoll_create1"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map(above_stdio)
            .map_err(failed("timerfd_create"))?;
        for fd in [event, timer.as_fd()] {
            epoll::add(&both, fd, EventData::new_u64(0), EventFlags::IN).map_err(failed("epoll_ctl"))?;
        }
        Ok(Self { both, timer, interval, next: Cell::new(None) })
    }

    /// Sets the timer if operations are `in_flight` and the timer is not set. An expired timer is set again,
    /// or stopped if no operation is in flight. Most calls make no system call.
    pub(super) fn set(&self, in_flight: bool) -> Result<()> {
        match self.next.get() {
            None if !in_flight => return Ok(()),
            Some(next) if Instant::now() < next => return Ok(()),
            _ => {}
        }
        self.restart(if in_flight { self.interval } else { Duration::ZERO })
    }

    /// Sets the timer to expire `after` this time, which is at most a minute. 0 stops the timer. Also makes
    /// the timer's file descriptor unreadable.
    pub(super) fn restart(&self, after: Duration) -> Result<()> {
        self.next.set((!after.is_zero()).then(|| Instant::now() + after));
        let value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        set.map(drop).map_err(|e| Error::of_system_call("timerfd_settime", e.into()))
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn is_set(&self) -> bool {
        self.next.get().is_some()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}
