//! Queues: a DMA context on a progress engine of its own, with tasks that are created once and reused.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

mod context;
mod done;
mod recover;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueOptions, QueueStats, RawQueue, Result,
};
use dma_process::lock;
use doca_sys::bindings::*;

use crate::buffers::{QueueBuffers, Shortage, is_full};
use crate::engine_state::EngineState;
use crate::error::{error, explain, failed, task_kind};
use context::DmaContext;

/// Completions are coalesced in batches whose first descriptor is at most this long. For longer copies, the
/// delay of a coalesced completion would be noticeable, and the cost of a separate completion would not be.
const COALESCED: usize = 8 << 10;

/// State of the context.
#[derive(Debug)]
enum ContextState {
    Running,
    /// The context must become idle before `until`. If `restart` is set, it is then started again.
    Quiescing {
        until: Instant,
        restart: bool,
    },
    /// The user stopped the queue.
    Closed,
    /// The context cannot be started again.
    Lost(NativeError, &'static str),
}

/// A queue.
///
/// The queue holds the last accepted descriptor back, because the next call determines whether this
/// descriptor needs a doorbell and a completion of its own. A flush submits it with both. So a batch costs
/// one doorbell, and its last descriptor always has a completion of its own.
pub(crate) struct DocaQueue {
    engine: Arc<EngineState>,
    context: DmaContext,
    buffers: Arc<Mutex<QueueBuffers>>,
    depth: usize,
    /// The task that is held back, in the slot `held_slot`. Null if there is none.
    held: *mut doca_task,
    held_slot: u32,
    /// The maximum number of tasks that the device has accepted at once. A completion may only be coalesced
    /// with the completion of a task for which the device is known to have room.
    known_capacity: usize,
    /// Set if ringing the doorbell failed and must be repeated.
    ring: bool,
    state: ContextState,
    doorbells: u64,
    resets: u64,
}

// SAFETY: one thread at a time may use a progress engine and its contexts, and only the thread that owns the
// queue does. The SDK's objects have no thread-local state, and the shared buffers are behind a lock.
unsafe impl Send for DocaQueue {}

impl fmt::Debug for DocaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocaQueue")
            .field("device", &self.engine.device.address)
            .field("depth", &self.depth)
            .field("in_flight", &self.in_flight())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl DocaQueue {
    pub(crate) fn open(engine: &Arc<EngineState>, options: &QueueOptions) -> Result<Self> {
        let depth = options.depth.max(1);
        let count = u32::try_from(depth).map_err(|_| ErrorKind::OutOfRange)?;
        let list = engine.device.capabilities.max_list_len as usize;
        let buffers =
            QueueBuffers::new(&engine.device, &engine.table, depth, list).map_err(|e| scarce(e, engine))?;
        // The call logs while it serializes the creation of objects.
        let context = dma_core::with_deferred_log(|| DmaContext::start(&engine.device, count))
            .map_err(|e| scarce(e, engine))?;
        Ok(Self {
            engine: Arc::clone(engine),
            context,
            buffers,
            depth,
            held: std::ptr::null_mut(),
            held_slot: 0,
            known_capacity: 0,
            ring: false,
            state: ContextState::Running,
            doorbells: 0,
            resets: 0,
        })
    }

    /// Returns the number of tasks that are in flight or reserved for the current batch, without the one that
    /// is held back.
    fn in_flight(&self) -> usize {
        self.depth - self.context.done.free() - usize::from(!self.held.is_null())
    }

    /// Prepares the task of a slot whose buffers are not those of the descriptor's regions.
    #[cold]
    fn prepare(
        &self,
        buffers: &mut QueueBuffers,
        slot: u32,
        descriptor: &Descriptor<'_>,
    ) -> Result<(), Shortage> {
        let (index, operation) = (slot as usize, descriptor.operation());
        match operation {
            Operation::Copy { src, dst } => buffers.bind(index, src.key, dst.key)?,
            Operation::CopyLists { src, dst } => buffers.bind_lists(index, src, dst)?,
            _ => {
                return Err(Shortage::Error(error(ErrorKind::Unsupported, "the device only copies")));
            }
        }
        let bound = &mut buffers.slots[index];
        let mut ready = self.context.set(bound, slot);
        if let (Ok(()), Operation::Copy { src, dst }) = (&ready, operation) {
            let code = self.context.set_addresses(bound.src, bound.dst, &src, &dst);
            if code != DOCA_SUCCESS {
                ready = Err(Shortage::Error(call_failed(&self.engine, "doca_buf_set_data", code)));
            }
        }
        match ready {
            Ok(()) if bound.listed => self.context.done.add_list(),
            Ok(()) => {}
            Err(_) => buffers.unbind(index),
        }
        ready
    }

    /// Frees a prepared slot that the device has no room for.
    #[cold]
    fn put_back(&self, buffers: &mut QueueBuffers, slot: u32) {
        if buffers.slots[slot as usize].listed {
            buffers.unbind(slot as usize);
            self.context.done.remove_list();
        }
        self.context.done.give(slot);
    }

    /// Releases the buffer lists of ended tasks.
    #[cold]
    fn reap(&self) {
        let mut buffers = lock(&self.buffers);
        self.context.done.reap(|slot| {
            let listed = buffers.slots[slot as usize].listed;
            if listed {
                buffers.unbind(slot as usize);
            }
            listed
        });
    }

    /// Handles the refusal of `before`, the task that was held back before the current one. Returns true if
    /// the current task stays held back. Otherwise `before` is held back again, unless it has ended.
    #[cold]
    fn stopped_at(&mut self, before: (*mut doca_task, u32), code: doca_error_t) -> bool {
        let next = (self.held, self.held_slot);
        (self.held, self.held_slot) = before;
        let go_on = self.not_taken(before.1, code, 1) && matches!(self.state, ContextState::Running);
        if go_on {
            (self.held, self.held_slot) = next;
        }
        go_on
    }

    /// Stops holding a task back, and returns its slot.
    fn take_held(&mut self) -> Option<u32> {
        let held = std::mem::replace(&mut self.held, std::ptr::null_mut());
        (!held.is_null()).then_some(self.held_slot)
    }

    /// Handles the refusal of the task in `slot`, which was held back, while `ready` more tasks are prepared.
    /// Returns true if the task has ended and its context has not stopped by itself.
    #[cold]
    fn not_taken(&mut self, slot: u32, code: doca_error_t, ready: usize) -> bool {
        if is_full(code) {
            self.known_capacity = self.in_flight() - ready;
            return false;
        }
        self.take_held();
        if code == DOCA_ERROR_BAD_STATE {
            // The context has stopped by itself. Polling finds the cause.
            self.context.done.end_late(slot, code, Outcome::Aborted);
            self.quiesce(true);
            return false;
        }
        self.context.done.end_late(slot, code, Outcome::Failed(task_kind(code)));
        if self.in_flight() > ready && !self.context.flush() {
            // Earlier tasks were submitted without a doorbell or completions of their own. Only stopping the
            // context ends them.
            self.context.stop();
            self.quiesce(true);
        }
        true
    }

    #[cold]
    fn refuse(&self) -> Result<usize> {
        match &self.state {
            ContextState::Running | ContextState::Quiescing { restart: true, .. } => Ok(0),
            ContextState::Quiescing { .. } | ContextState::Closed => {
                Err(error(ErrorKind::Closed, "the queue was stopped"))
            }
            ContextState::Lost(native, what) => Err(lost(native, what)),
        }
    }
}

// SAFETY: each accepted descriptor becomes one task, and is reported once, by the task's callback or because
// the task was refused. Tasks copy only between buffers within registered regions. If tasks are still in
// flight after a drop, they are leaked together with their memory.
unsafe impl RawQueue for DocaQueue {
    fn engine_id(&self) -> EngineId {
        self.engine.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if !matches!(self.state, ContextState::Running) || self.context.done.has_failure() {
            return self.refuse();
        }
        if self.context.done.has_lists() {
            self.reap();
        }
        let shared = Arc::clone(&self.buffers);
        let mut buffers = lock(&shared);
        let mut taken = 0;
        // Number of tasks of this batch whose completions may be coalesced. The last task for which the
        // device is known to have room gets a completion of its own.
        let short = batch.first().is_some_and(|first| first.len() <= COALESCED);
        let coalescable = if short { self.known_capacity.saturating_sub(self.in_flight() + 1) } else { 0 };
        while let Some(descriptor) = batch.get(taken) {
            let Some(slot) = self.context.done.take(descriptor.token()) else { break };
            let bound = &buffers.slots[slot as usize];
            let task = match descriptor.operation() {
                Operation::Copy { src, dst }
                    if bound.src_key == src.key.0
                        && bound.dst_key == dst.key.0
                        && self.context.set_addresses(bound.src, bound.dst, &src, &dst) == DOCA_SUCCESS =>
                {
                    bound.task
                }
                _ => match self.prepare(&mut buffers, slot, descriptor) {
                    Ok(()) => buffers.slots[slot as usize].task,
                    Err(shortage) => {
                        self.context.done.give(slot);
                        match shortage {
                            Shortage::Error(e) if taken == 0 => return Err(e),
                            // With nothing in flight, no buffer will become free.
                            Shortage::Full if taken == 0 && self.in_flight() == 0 && self.held.is_null() => {
                                return Err(error(
                                    ErrorKind::OutOfResources,
                                    "no buffer is left for the descriptor",
                                )
                                .with_hint("use shorter lists, or a queue of a greater depth"));
                            }
                            _ => break,
                        }
                    }
                },
            };
            let before =
                (std::mem::replace(&mut self.held, task), std::mem::replace(&mut self.held_slot, slot));
            if !before.0.is_null() {
                // The next task is ready, so the held task needs no doorbell, and its completion may be
                // coalesced.
                let flags = if taken < coalescable {
                    DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS
                } else {
                    DOCA_TASK_SUBMIT_FLAG_NONE
                };
                let code = self.context.submit(before.0, flags);
                if code != DOCA_SUCCESS {
                    if self.stopped_at(before, code) {
                        taken += 1;
                    } else {
                        self.put_back(&mut buffers, slot);
                    }
                    // The next poll needs the refused task's buffers, so no task may take its slot before.
                    break;
                }
            }
            taken += 1;
        }
        self.known_capacity = self.known_capacity.max(self.in_flight());
        Ok(taken)
    }

    fn flush(&mut self) {
        if !matches!(self.state, ContextState::Running) || self.held.is_null() {
            return;
        }
        let code = self.context.submit(self.held, DOCA_TASK_SUBMIT_FLAG_FLUSH);
        if code == DOCA_SUCCESS {
            self.held = std::ptr::null_mut();
        } else {
            self.not_taken(self.held_slot, code, 0);
        }
        self.ring = !self.held.is_null();
        if self.ring {
            // The earlier tasks must start, although the task that was held back was refused.
            self.context.flush();
        }
        self.known_capacity = self.known_capacity.max(self.in_flight());
        self.doorbells += 1;
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.ring {
            self.flush();
        }
        let mut count = self.context.done.collect_late(completions);
        count += self.context.progress(&mut completions[count..]);
        if self.context.done.has_failure() || !matches!(self.state, ContextState::Running) {
            self.handle_stops();
            count += self.context.done.collect_late(&mut completions[count..]);
        }
        if self.context.done.has_lists() {
            count += self.context.done.collect_late(&mut completions[count..]);
            self.reap();
        }
        count
    }

    fn explain(&self, code: i32) -> NativeError {
        explain(&self.engine.device.sdk, code)
    }

    fn stop(&mut self) {
        if matches!(
            self.state,
            ContextState::Closed | ContextState::Lost(..) | ContextState::Quiescing { restart: false, .. }
        ) {
            return;
        }
        self.context.done.all_aborted();
        self.context.stop();
        self.quiesce(false);
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, self.resets)
    }

    fn lost(&self) -> Option<Error> {
        match &self.state {
            ContextState::Lost(native, what) => Some(lost(native, what)),
            _ => None,
        }
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.context.event_fd()?;
        Some(self)
    }
}

impl QueueEvents for DocaQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.context.event_fd().expect("`events` returns only queues that have a descriptor"))
    }

    fn arm(&mut self) -> Result<bool> {
        if self.ring
            || self.context.done.has_failure()
            || matches!(self.state, ContextState::Quiescing { .. } | ContextState::Lost(..))
        {
            return Ok(false);
        }
        self.context.arm()
    }

    fn disarm(&mut self) {
        self.context.disarm();
    }
}

/// Makes the error of an opened queue if the device has no context left.
fn scarce(e: Error, engine: &EngineState) -> Error {
    if e.kind() != ErrorKind::OutOfMemory {
        return e;
    }
    let mut scarce =
        error(ErrorKind::OutOfResources, format!("{} on device {}", e.message(), engine.device.address))
            .with_hint("close other queues or other programs that use the device, or choose a smaller depth");
    if let Some(native) = e.native() {
        scarce = scarce.with_native(native.clone());
    }
    scarce
}

/// Makes the error of a queue whose context cannot be started again.
fn lost(native: &NativeError, what: &'static str) -> Error {
    error(ErrorKind::DeviceLost, what)
        .with_native(native.clone())
        .with_hint("open the device again; if that fails, see the kernel's log (dmesg)")
}

/// Makes the error of a call on a queue's context.
fn call_failed(engine: &EngineState, call: &'static str, code: doca_error_t) -> Error {
    failed(&engine.device.sdk, call, code)
}
