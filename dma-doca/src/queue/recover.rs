//! Handles contexts that were stopped by an error, by the queue's user, or by a drop.

use std::sync::Arc;
use std::time::Instant;

use dma_core::{ErrorKind, Outcome, STOP_GRACE};
use dma_process::lock;
use doca_sys::bindings::*;

use super::context::RESTART_TIMEOUT;
use super::{ContextState, DocaQueue, call_failed};
use crate::error::{native, on_imported};
use crate::mmap::Mmap;

impl DocaQueue {
    /// Starts to wait for the context to become idle. A context that is to run again may take longer than one
    /// of a queue that is stopped. The task that is held back is aborted, because all tasks will be freed.
    pub(super) fn quiesce(&mut self, restart: bool) {
        if let Some(slot) = self.take_held() {
            self.context.done.end_late(slot, 0, Outcome::Aborted);
        }
        self.ring = false;
        let limit = if restart { RESTART_TIMEOUT } else { STOP_GRACE };
        self.state = ContextState::Quiescing { until: Instant::now() + limit, restart };
    }

    /// Handles failures and stopped contexts, for a poll.
    #[cold]
    pub(super) fn handle_stops(&mut self) {
        self.determine_causes();
        if matches!(self.state, ContextState::Running) {
            if self.context.state() == DOCA_CTX_STATE_RUNNING {
                // A task has failed, but its context still runs.
                self.context.done.settled();
                return;
            }
            let (device, in_flight) = (self.engine.device.address.clone(), self.in_flight());
            dma_core::deferred_log!(warn, target: "doca", device, in_flight, "the device stopped a queue after an error");
            self.quiesce(true);
        }
        let ContextState::Quiescing { until, restart } = self.state else { return };
        if self.step_to_idle() {
            if !restart {
                self.state = ContextState::Closed;
                return;
            }
            self.restart();
        } else if Instant::now() >= until {
            let code = DOCA_ERROR_TIME_OUT;
            self.mark_lost(code, "the device did not become idle after an error");
        }
    }

    /// Advances the stop of the context. Returns true once the context is idle.
    fn step_to_idle(&mut self) -> bool {
        if self.in_flight() > 0 {
            return false;
        }
        self.reap();
        // A context becomes idle only after its tasks are freed.
        let mut buffers = lock(&self.buffers);
        for slot in 0..self.depth {
            self.context.free(&mut buffers.slots[slot]);
            buffers.unbind(slot);
        }
        drop(buffers);
        // Each progress call does one step of the stop, until no work is left.
        while self.context.state() != DOCA_CTX_STATE_IDLE && self.context.progress_once() {}
        self.context.state() == DOCA_CTX_STATE_IDLE
    }

    fn restart(&mut self) {
        match self.context.run() {
            Ok(()) => {
                self.context.done.settled();
                self.state = ContextState::Running;
                self.resets += 1;
                let (device, resets) = (self.engine.device.address.clone(), self.resets);
                dma_core::deferred_log!(info, target: "doca", device, resets, "a queue runs again");
            }
            Err(e) => {
                let code = e.native().map_or(DOCA_ERROR_UNKNOWN, |native| native.code as doca_error_t);
                self.mark_lost(code, "the device did not start again after an error");
            }
        }
    }

    fn mark_lost(&mut self, code: doca_error_t, what: &'static str) {
        let error = call_failed(&self.engine, what, code);
        let device = self.engine.device.address.clone();
        dma_core::deferred_log!(error, target: "doca", device, %error, "a queue is lost");
        self.state = ContextState::Lost(native(&self.engine.device.sdk, code), what);
    }

    /// For each failed task, determines whether the cause was a fault or revoked memory of a peer. A device
    /// reports both causes with the same code. A fault on a peer's memory is marked, so that its error names
    /// the likely reason.
    fn determine_causes(&self) {
        let buffers = lock(&self.buffers);
        let engine = &self.engine;
        self.context.done.determine_causes(|late| {
            let Outcome::Failed(kind) = &mut late.completion.outcome else { return };
            let key = buffers.slots[late.slot as usize].imported;
            let Some(blob) = buffers.blob(key) else { return };
            if Mmap::import(&engine.device, blob).is_err() {
                *kind = ErrorKind::Revoked;
            } else if *kind == ErrorKind::DeviceFault {
                late.completion.native = on_imported(late.completion.native);
            }
        });
    }

    /// Stops the context and waits until it is idle. Returns `false` if the context is not idle at the time
    /// limit.
    fn bring_down(&mut self) -> bool {
        self.take_held();
        if self.context.state() != DOCA_CTX_STATE_IDLE {
            self.context.done.all_aborted();
            self.context.stop();
        }
        let until = Instant::now() + STOP_GRACE;
        loop {
            while self.context.progress_once() {}
            if self.step_to_idle() {
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
        // The task that is held back was never submitted.
        if let Some(slot) = self.take_held() {
            self.context.done.give(slot);
        }
        let down = !matches!(self.state, ContextState::Lost(..)) && self.bring_down() || self.step_to_idle();
        let closed = down.then(|| {
            let closed = lock(&self.buffers).close();
            closed.and_then(|()| self.context.destroy())
        });
        if let Some(Ok(())) = closed {
            return;
        }
        // Callbacks may still run, and the device may still write, so the memory that they use is leaked.
        // This must precede the log lines, because a log subscriber may panic.
        std::mem::forget(Arc::clone(&self.engine));
        std::mem::forget(Arc::clone(&self.buffers));
        self.context.leak();
        match closed {
            Some(Err(e)) => {
                dma_core::deferred_log!(error, target: "doca", error = %e, "a queue could not be destroyed, and is leaked")
            }
            _ => {
                dma_core::deferred_log!(error, target: "doca", "the device does not stop a queue, which is leaked with its memory")
            }
        }
    }
}
