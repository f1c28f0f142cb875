//! [`DeferredCallback`]: user code that runs after an operation has ended, while no lock is held.

use std::any::Any;
use std::task::Waker;

use crate::guarded::{drop_operands, wake};
use crate::planner::LogEvent;

/// A user callback that runs while no lock is held. The callback may block, panic, or use the queue.
pub(super) enum DeferredCallback {
    /// Wakes the waiting task.
    Wake(Waker),
    /// Drops the operands of a transfer that was dropped early. The slot is already free.
    Drop(Box<dyn Any + Send>),
    /// Logs an event of a queue of this backend.
    Emit(LogEvent, &'static str),
}

impl DeferredCallback {
    /// Runs the callback and catches its panic, because other operations need this thread.
    pub(super) fn run(self) {
        match self {
            Self::Wake(waker) => wake(waker),
            Self::Drop(operands) => drop_operands(operands),
            Self::Emit(event, backend) => event.emit(backend),
        }
    }
}
