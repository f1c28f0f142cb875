//! [`DeviceQueue`]: reads and writes the files of `dma.files.DeviceFiles`, with its operations in flight.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

use dma::files::DeviceFiles as Files;

use crate::operation::Tracked;

/// The reader and writer, and its operations in flight, which end before the interpreter.
pub(crate) struct DeviceQueue {
    pub(crate) files: Files,
    running: Mutex<Vec<Weak<dyn Tracked>>>,
}

impl DeviceQueue {
    pub(crate) const fn new(files: Files) -> Self {
        Self { files, running: Mutex::new(Vec::new()) }
    }

    /// Adds an operation that was submitted.
    pub(crate) fn run(&self, operation: Weak<dyn Tracked>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|operation| operation.strong_count() > 0);
        running.push(operation);
    }

    /// Cancels all operations, and waits until they have ended or `deadline` is reached.
    pub(crate) fn close(&self, deadline: Option<Instant>) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        for operation in running.iter().filter_map(Weak::upgrade) {
            operation.cancel();
            operation.end_until(deadline);
        }
    }
}
