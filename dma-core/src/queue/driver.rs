//! [`Driver`]: wakes a queue's tasks from an event loop.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use super::OneThread;
use super::stall_timer::StallTimer;
use super::state::{QueueState, flush, poll};
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
    /// first sleep and after every wake-up. Does not block.
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
        loop {
            self.shared.borrow_mut().planner.events(|events| events.disarm());
            flush(&self.shared);
            while poll(&self.shared) > 0 {}
            if self.shared.borrow_mut().events(|events| events.arm())? {
                break;
            }
        }
        let mut state = self.shared.borrow_mut();
        self.timer.set(state.planner.open_operations() > 0)?;
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
