//! The file descriptor on which a queue's owner can sleep.

#[cfg(target_os = "linux")]
pub(super) use linux::Event;
#[cfg(not(target_os = "linux"))]
pub(super) use none::Event;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    use dma_core::{Error, ErrorKind, Result};
    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    /// A timer: readable once its time has come, until it is [cleared](Self::clear).
    #[derive(Debug)]
    pub(in crate::sim) struct Event(OwnedFd);

    impl Event {
        pub(in crate::sim) fn new() -> Result<Option<Self>> {
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
            Ok(Some(Self(fd)))
        }

        /// Makes it readable `after` from now.
        pub(in crate::sim) fn set(&self, after: Duration) {
            // 0 would disarm the timer.
            let after = after.max(Duration::from_nanos(1));
            let at = Timespec {
                tv_sec: after.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: after.subsec_nanos().into(),
            };
            self.program(at);
        }

        /// Makes it readable now.
        pub(in crate::sim) fn signal(&self) {
            self.set(Duration::ZERO);
        }

        /// Makes it unreadable until set again.
        pub(in crate::sim) fn clear(&self) {
            self.program(Timespec { tv_sec: 0, tv_nsec: 0 });
        }

        fn program(&self, at: Timespec) {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let timer = Itimerspec { it_interval: never, it_value: at };
            // Cannot fail: the timer is valid and the times are in range.
            let set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &timer);
            debug_assert!(set.is_ok(), "{set:?}");
        }

        pub(in crate::sim) fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    /// Not available here.
    #[derive(Debug)]
    pub(in crate::sim) enum Event {}

    impl Event {
        pub(in crate::sim) fn new() -> dma_core::Result<Option<Self>> {
            Ok(None)
        }

        pub(in crate::sim) fn set(&self, _after: Duration) {
            match *self {}
        }

        pub(in crate::sim) fn signal(&self) {
            match *self {}
        }

        pub(in crate::sim) fn clear(&self) {
            match *self {}
        }

        pub(in crate::sim) fn fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}
