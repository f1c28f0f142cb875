//! [`Notifier`]: tells an event loop which operations have ended.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use dma::Error;
use dma::process::{ProcessLock, above_stdio};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::core::{AnyQueue, Core};
use crate::error::raise;
use crate::interpreter::detached;
use crate::transfer::PyTransfer;

/// The operations that have ended, and a descriptor that is readable while there are some.
struct Shared {
    /// A forked child gets no operation of its parent's queues.
    ended: ProcessLock<Vec<u64>>,
    event: OwnedFd,
}

/// The waker of one operation.
struct Token(Arc<Shared>, u64);

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Self(shared, token) = &**self;
        let Some(mut ended) = shared.ended.lock() else { return };
        let was_empty = ended.is_empty();
        ended.push(*token);
        drop(ended);
        if was_empty {
            // The write fails only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&shared.event, &1_u64.to_ne_bytes());
        }
    }
}

/// Tells an event loop which operations of a queue have ended. Internal to `dma._aio`.
#[pyclass(name = "_Notifier", module = "dma", frozen)]
pub(crate) struct Notifier {
    shared: Arc<Shared>,
    core: Arc<Core>,
    /// The descriptor of the queue's driver.
    driver: Option<i32>,
}

impl Notifier {
    /// Makes a notifier. A queue for one thread gets a driver, if its engine has an event descriptor:
    /// otherwise its awaited operations poll the device in each round of the loop.
    pub(crate) fn new(py: Python<'_>, core: Arc<Core>) -> PyResult<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(above_stdio)
            .map_err(|e| raise(py, &Error::of_system_call("eventfd2", e.into())))?;
        let driver = match &core.queue {
            AnyQueue::Local(lock) => Core::with_local(lock, |queue, driver| {
                if driver.is_none() {
                    *driver = queue.driver().ok();
                }
                driver.as_ref().map(AsRawFd::as_raw_fd)
            })
            .map_err(|e| raise(py, &e))?,
            _ => None,
        };
        Ok(Self { shared: Arc::new(Shared { ended: ProcessLock::default(), event }), core, driver })
    }
}

#[pymethods]
impl Notifier {
    /// The descriptor that is readable while take() has tokens.
    fn fileno(&self) -> i32 {
        self.shared.event.as_raw_fd()
    }

    /// The descriptor after which run() is to be called, or None.
    fn driver_fileno(&self) -> Option<i32> {
        self.driver
    }

    /// Polls the device and arms the driver's descriptor. The processor may make copies, so other threads
    /// run.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        let AnyQueue::Local(lock) = &self.core.queue else { return Ok(()) };
        let ran = detached(py, || {
            Core::with_local(lock, |_, driver| driver.as_ref().map_or(Ok(()), dma::Driver::run))
                .and_then(|ran| ran)
        });
        ran.map_err(|e| raise(py, &e))
    }

    /// Polls a transfer, whose end makes fileno() readable. Returns whether the operation has ended.
    fn watch(&self, py: Python<'_>, transfer: &PyTransfer) -> PyResult<bool> {
        transfer.watch(py, |token| Waker::from(Arc::new(Token(Arc::clone(&self.shared), token))))
    }

    /// Returns the tokens of operations that may have ended, and clears them.
    fn take(&self) -> Vec<u64> {
        let mut counter = [0; 8];
        // The read fails if the counter is 0.
        let _ = rustix::io::read(&self.shared.event, &mut counter);
        self.shared.ended.lock().map(|mut ended| std::mem::take(&mut *ended)).unwrap_or_default()
    }

    /// Raises TimedOut if the device has stalled.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check_stalled(py)
    }

    /// Removes the driver: without an event loop, waits may sleep on the device's event.
    fn close(&self) {
        if let AnyQueue::Local(lock) = &self.core.queue {
            // The driver shares the queue's state, so it is dropped under the queue's lock.
            let _ = Core::with_local(lock, |_, driver| drop(driver.take()));
        }
    }
}
