//! [`Driver`]: wakes a queue's tasks from an event loop.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use super::OneThread;
use super::stall_timer::StallTimer;
use super::state::{QueueState, flush, poll, run};
use crate::Result;

/// Wakes the tasks of a queue's awaited transfers from an event loop. Wait until the driver's file descriptor
/// is readable, call [`run`](Self::run), and repeat. [`Queue::driver`](super::Queue::driver) makes a driver.
///
/// After the driver is dropped, awaited transfers poll the device themselves again.
pub struct Driver {
    pub(super) threads: PhantomData<OneThread>,
    pub(super) shared: Rc<RefCell<QueueState>>,
    pub(super) timer: StallTimer,
}

impl Driver {
    /// Polls the device until it has nothing to report, and arms the file descriptor. Call this before the
    /// first sleep and after every wake-up. Does not block: the number of polls is limited. If the device has
    /// more to report, or its event cannot be armed, the file descriptor soon becomes readable again.
    ///
    /// While operations are in flight, the file descriptor also becomes readable from time to time (64 times
    /// in [`QueueOptions::stall_timeout`]), so that awaited transfers fail if the device has stalled.
    ///
    /// # Errors
    ///
    /// `Os` and other errors of arming the event; `Closed` if the queue is closed; `DeviceLost` if the device
    /// is lost; `Unsupported` in a forked child.
    ///
    /// [`QueueOptions::stall_timeout`]: crate::QueueOptions::stall_timeout
    pub fn run(&self) -> Result<()> {
        /// Maximum number of polls of one call.
        const POLLS: u32 = 16;
        /// Time until the next call, if there are completions or work of the CPU.
        const AT_ONCE: Duration = Duration::from_nanos(1);
        /// Time until the next call, if the device cannot signal its completions, for example because it
        /// restarts.
        const SOON: Duration = Duration::from_millis(1);

        let (mut armed, mut reported) = (false, 0);
        self.shared.borrow_mut().planner.events(|events| events.disarm());
        for _ in 0..POLLS {
            flush(&self.shared);
            reported = poll(&self.shared);
            if reported > 0 {
                continue;
            }
            armed = self.shared.borrow_mut().events(|events| events.arm())?;
            if armed {
                break;
            }
            // A poll asks this only while descriptors are in flight. The queue may be idle.
            let callbacks = self.shared.borrow_mut().check_lost();
            run(callbacks, &self.shared);
        }
        let mut state = self.shared.borrow_mut();
        match (armed, reported) {
            (true, _) => self.timer.set(state.planner.open_operations() > 0)?,
            (false, 1..) => self.timer.restart(AT_ONCE)?,
            (false, 0) => self.timer.restart(SOON)?,
        }
        if state.stalled().is_some() {
            // Wake the tasks that await operations, so that those that have waited long enough fail.
            let callbacks = state.wake_all();
            drop(state);
            callbacks.run(&self.shared);
        }
        Ok(())
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.fd()
    }
}

impl std::os::fd::AsRawFd for Driver {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.timer.fd().as_raw_fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.shared.borrow_mut();
        state.cooperative = true;
        let callbacks = state.wake_all();
        drop(state);
        callbacks.run(&self.shared);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("fd", &self.timer.fd()).finish_non_exhaustive()
    }
}
