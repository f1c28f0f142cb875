//! What becomes of a queue whose context has stopped: by an error, by its user, or with the queue.

use std::sync::Arc;
use std::time::Instant;

use dma_core::{ErrorKind, Outcome};
use doca_sys::bindings::*;

use super::{DocaQueue, REST, State, call_failed};
use crate::error::native;
use crate::ffi::lock;
use crate::mmap::Mmap;

impl DocaQueue {
    /// The context is on its way to rest.
    pub(super) fn rest(&mut self, again: bool) {
        self.state = State::Resting { until: Instant::now() + REST, again };
    }

    /// Called by a poll that saw trouble or does not see the context running.
    #[cold]
    pub(super) fn attend(&mut self) {
        self.judge();
        if matches!(self.state, State::Running) {
            if self.context.state() == DOCA_CTX_STATE_RUNNING {
                // A task failed alone.
                self.context.done.settled();
                return;
            }
            // What is held back was never started, and will not be by this context.
            if let Some(slot) = self.take_held() {
                self.context.done.end_late(slot, 0, Outcome::Aborted);
            }
            self.ring = false;
            tracing::warn!(target: "doca", device = self.engine.device.address, in_flight = self.in_flight(), "the device stopped a queue after an error");
            self.rest(true);
        }
        let State::Resting { until, again } = self.state else { return };
        if self.settle() {
            if !again {
                self.state = State::Closed;
                return;
            }
            self.restart();
        } else if Instant::now() >= until {
            let code = DOCA_ERROR_TIME_OUT;
            self.lose(code, "the device did not come to rest after an error");
        }
    }

    /// Lets the context come to rest: whether it has.
    fn settle(&mut self) -> bool {
        if self.in_flight() > 0 {
            return false;
        }
        self.reap();
        // A context is idle only once its tasks are free.
        let mut pool = lock(&self.pool);
        for slot in 0..self.depth {
            self.context.free(&mut pool.slots[slot]);
            pool.unbind(slot);
        }
        drop(pool);
        // Each step is one call, and the last finds nothing.
        while self.context.state() != DOCA_CTX_STATE_IDLE && self.context.progress_once() {}
        self.context.state() == DOCA_CTX_STATE_IDLE
    }

    fn restart(&mut self) {
        match self.context.run() {
            Ok(()) => {
                self.context.done.settled();
                self.state = State::Running;
                self.resets += 1;
                tracing::info!(target: "doca", device = self.engine.device.address, resets = self.resets, "a queue runs again");
            }
            Err(e) => {
                let code = e.native().map_or(DOCA_ERROR_UNKNOWN, |native| native.code as doca_error_t);
                self.lose(code, "the device did not start again after an error");
            }
        }
    }

    fn lose(&mut self, code: doca_error_t, what: &'static str) {
        let error = call_failed(&self.engine, what, code);
        tracing::error!(target: "doca", device = self.engine.device.address, error = %error, "a queue is lost");
        self.state = State::Lost(native(&self.engine.device.sdk, code), what);
    }

    /// Finds out of each failure whether a peer took its memory back, which a device reports as it does a fault.
    fn judge(&self) {
        let pool = lock(&self.pool);
        let engine = &self.engine;
        self.context.done.judge(|late| {
            let Outcome::Failed(kind) = &mut late.completion.outcome else { return };
            let key = pool.slots[late.slot as usize].imported;
            if let Some(blob) = pool.blob(key)
                && Mmap::import(&engine.device, blob).is_err()
            {
                *kind = ErrorKind::Revoked;
            }
        });
    }

    /// Stops the context and waits for it to rest. `false` if it does not, in time.
    fn bring_down(&mut self) -> bool {
        self.take_held();
        if self.context.state() != DOCA_CTX_STATE_IDLE {
            self.context.done.all_aborted();
            self.context.stop();
        }
        let until = Instant::now() + REST;
        loop {
            // What is reported now is nobody's any more.
            while self.context.progress_once() {}
            if self.settle() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for DocaQueue {
    fn drop(&mut self) {
        // A held task keeps its slot, but the device never saw it.
        if let Some(slot) = self.take_held() {
            self.context.done.give(slot);
        }
        let down = !matches!(self.state, State::Lost(..)) && self.bring_down() || self.settle();
        let closed = down.then(|| {
            let closed = lock(&self.pool).close();
            closed.and_then(|()| self.context.destroy())
        });
        if let Some(Ok(())) = closed {
            return;
        }
        // Callbacks may still come, and the device may still write: everything that they reach stays, whether or not who listens to the log
        // panics.
        std::mem::forget(Arc::clone(&self.engine));
        std::mem::forget(Arc::clone(&self.pool));
        self.context.leak();
        match closed {
            Some(Err(e)) => {
                tracing::error!(target: "doca", error = %e, "a queue could not be taken apart, and is leaked")
            }
            _ => {
                tracing::error!(target: "doca", "the device does not let go of a queue, which is leaked with its memory")
            }
        }
    }
}
