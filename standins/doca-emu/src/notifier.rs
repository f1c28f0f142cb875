//! [`Notifier`]: the descriptor on which a program sleeps. [`Timer`]: wakes it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer, which any thread can set.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// Makes the timer readable after this time.
    pub(crate) fn ring(&self, after: Duration) {
        // A value of 0 would disarm the timer.
        let after = after.max(Duration::from_nanos(1));
        let seconds = after.as_secs().try_into().unwrap_or(i64::MAX);
        self.program(Timespec { tv_sec: seconds, tv_nsec: after.subsec_nanos().into() });
    }

    fn program(&self, at: Timespec) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: never, it_value: at };
        // This cannot fail, because the timer is valid, and the times are in range.
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &timer);
        debug_assert!(set.is_ok(), "{set:?}");
    }
}

/// An epoll instance with a timer and the contexts' descriptors. The timer signals all events that have no
/// descriptor.
pub(crate) struct Notifier {
    epoll: OwnedFd,
    timer: Arc<Timer>,
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let notifier = Self { epoll, timer: Arc::new(Timer(timer)) };
        notifier.watch(notifier.timer.0.as_fd())?;
        Ok(notifier)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(0), EventFlags::IN)?)
    }

    pub(crate) fn timer(&self) -> &Arc<Timer> {
        &self.timer
    }

    /// Makes the timer unreadable. The notifier is then readable only if a watched descriptor is readable.
    pub(crate) fn clear(&self) {
        self.timer.program(Timespec { tv_sec: 0, tv_nsec: 0 });
    }
}
