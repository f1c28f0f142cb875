//! Queues: a DMA context on a progress engine of its own, with tasks that are made once and used for ever.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

mod context;
mod done;
mod recover;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, Listed, NativeError, Outcome, QueueOptions, RawQueue,
    RawStats, Result, Work,
};
use doca_sys::bindings::*;

use crate::buffers::{Pool, Shortage, is_full};
use crate::engine::Inner;
use crate::error::{error, failed, native, task_kind};
use crate::ffi::lock;
use context::Context;

/// How long a context may take to come to rest after an error, when it is stopped, or when it is dropped.
const REST: Duration = Duration::from_secs(5);

/// Reports may wait for a later one's in batches that begin with a descriptor up to this long. A longer one takes so long that its user
/// would notice the wait, and its report costs nothing beside it.
const COALESCED: usize = 8 << 10;

/// What is done to a context that does not run.
#[derive(Debug)]
enum State {
    /// It runs.
    Running,
    /// It comes to rest, to be started again (`again`) or for good, until then.
    Resting { until: Instant, again: bool },
    /// The user stopped it.
    Closed,
    /// It cannot be started again.
    Lost(NativeError, &'static str),
}

/// A queue.
///
/// The last descriptor taken is held back: whether it is submitted with a doorbell or without, and with a report of its own or
/// without, depends on what comes next. A flush rings the doorbell with it, so a batch costs one, and the tail is always reported.
pub(crate) struct DocaQueue {
    engine: Arc<Inner>,
    context: Context,
    pool: Arc<Mutex<Pool>>,
    depth: usize,
    /// The task that is held back, or null; and its slot.
    held: *mut doca_task,
    held_slot: u32,
    /// As many tasks as the device has had at once. A report may only wait for that of a task which the device is known to have room for.
    proven: usize,
    /// A flush that could not be carried out.
    ring: bool,
    state: State,
    doorbells: u64,
    resets: u64,
}

// SAFETY: a progress engine and what hangs on it may be used by one thread at a time, which is how the queue is used; it has no
// thread's state.
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
    pub(crate) fn open(engine: &Arc<Inner>, options: &QueueOptions) -> Result<Self> {
        let depth = options.depth.max(1);
        let count = u32::try_from(depth).map_err(|_| ErrorKind::OutOfRange)?;
        let list = engine.device.capabilities.max_list_len as usize;
        let pool = Pool::new(&engine.device, &engine.table, depth, list).map_err(|e| scarce(e, engine))?;
        let context = Context::start(&engine.device, count).map_err(|e| scarce(e, engine))?;
        Ok(Self {
            engine: Arc::clone(engine),
            context,
            pool,
            depth,
            held: std::ptr::null_mut(),
            held_slot: 0,
            proven: 0,
            ring: false,
            state: State::Running,
            doorbells: 0,
            resets: 0,
        })
    }

    /// Tasks that the device has.
    fn in_flight(&self) -> usize {
        self.depth - self.context.done.free() - usize::from(!self.held.is_null())
    }

    /// Makes a slot's task one of `work`, for which it is not ready: its buffers are of other regions, or would not do.
    #[cold]
    fn prepare(&self, pool: &mut Pool, slot: u32, descriptor: &Descriptor<'_>) -> Result<(), Shortage> {
        let (index, work) = (slot as usize, descriptor.work());
        match work {
            Work::Copy { src, dst } => pool.bind(index, src.key, dst.key)?,
            Work::Listed(Listed::Copy { src, dst }) => pool.bind_lists(index, src, dst)?,
            Work::Listed(Listed::Fill { .. }) => {
                return Err(Shortage::Error(error(ErrorKind::Unsupported, "the device has no fill")));
            }
        }
        let bound = &mut pool.slots[index];
        let mut ready = self.context.set(bound, slot);
        if let (Ok(()), Work::Copy { src, dst }) = (&ready, work) {
            let code = self.context.aim(bound.src, bound.dst, &src, &dst);
            if code != DOCA_SUCCESS {
                ready = Err(Shortage::Error(call_failed(&self.engine, "doca_buf_set_data", code)));
            }
        }
        match ready {
            Ok(()) if bound.listed => self.context.done.add_list(),
            Ok(()) => {}
            Err(_) => pool.unbind(index),
        }
        ready
    }

    /// A slot was made ready, and nobody has room for it.
    #[cold]
    fn put_back(&self, pool: &mut Pool, slot: u32) {
        if pool.slots[slot as usize].listed {
            pool.unbind(slot as usize);
            self.context.done.remove_list();
        }
        self.context.done.give(slot);
    }

    /// Gives back the lists of tasks that have ended.
    #[cold]
    fn reap(&self) {
        let mut pool = lock(&self.pool);
        self.context.done.reap(|slot| {
            let listed = pool.slots[slot as usize].listed;
            if listed {
                pool.unbind(slot as usize);
            }
            listed
        });
    }

    /// The task that was held back, with its slot, was refused when the next one took its place: whether that may stay there. If not, the one
    /// before is held back again, unless it has ended.
    #[cold]
    fn stopped_at(&mut self, before: (*mut doca_task, u32), code: doca_error_t) -> bool {
        let next = (self.held, self.held_slot);
        (self.held, self.held_slot) = before;
        let go_on = self.not_taken(before.1, code, 1);
        if go_on {
            (self.held, self.held_slot) = next;
        }
        go_on
    }

    /// The slot of the task that is held back, which is not any more.
    fn take_held(&mut self) -> Option<u32> {
        let held = std::mem::replace(&mut self.held, std::ptr::null_mut());
        (!held.is_null()).then_some(self.held_slot)
    }

    /// What to do with the task that is held back, which was refused, with `ready` more prepared: whether others can still be submitted.
    #[cold]
    fn not_taken(&mut self, slot: u32, code: doca_error_t, ready: usize) -> bool {
        if is_full(code) {
            self.proven = self.in_flight() - ready;
            return false;
        }
        self.take_held();
        if code == DOCA_ERROR_BAD_STATE {
            // The context has stopped by itself: polling will show why.
            self.context.done.end_late(slot, code, Outcome::Aborted);
            self.rest(true);
            return false;
        }
        self.context.done.end_late(slot, code, Outcome::Failed(task_kind(code)));
        if self.in_flight() > ready && !self.context.flush() {
            // What went before was submitted without a doorbell, and without reports: only stopping gets it back.
            self.context.stop();
            self.rest(true);
        }
        true
    }

    #[cold]
    fn refuse(&self) -> Result<usize> {
        match &self.state {
            State::Running | State::Resting { again: true, .. } => Ok(0),
            State::Resting { .. } | State::Closed => Err(error(ErrorKind::Closed, "the queue was stopped")),
            State::Lost(native, what) => Err(error(ErrorKind::DeviceLost, *what)
                .with_native(native.clone())
                .with_hint("open the device again; if that fails, see the kernel's log (dmesg)")),
        }
    }
}

// SAFETY: a descriptor becomes one task, whose callback reports it once; tasks copy what their buffers say, which lie inside of registered
// regions. What the device may still be at when the queue is dropped is leaked, with its memory.
unsafe impl RawQueue for DocaQueue {
    fn engine_id(&self) -> EngineId {
        self.engine.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if !matches!(self.state, State::Running) || self.context.done.is_troubled() {
            return self.refuse();
        }
        if self.context.done.has_lists() {
            self.reap();
        }
        let shared = Arc::clone(&self.pool);
        let mut pool = lock(&shared);
        let mut taken = 0;
        // How many reports may wait: the last task that the device is known to have room for has one of its own.
        let short = batch.first().is_some_and(|first| first.len() <= COALESCED);
        let quiet = if short { self.proven.saturating_sub(self.in_flight() + 1) } else { 0 };
        while let Some(descriptor) = batch.get(taken) {
            let Some(slot) = self.context.done.take(descriptor.token()) else { break };
            let bound = &pool.slots[slot as usize];
            let task = match descriptor.work() {
                Work::Copy { src, dst }
                    if bound.src_key == src.key.0
                        && bound.dst_key == dst.key.0
                        && self.context.aim(bound.src, bound.dst, &src, &dst) == DOCA_SUCCESS =>
                {
                    bound.task
                }
                _ => match self.prepare(&mut pool, slot, descriptor) {
                    Ok(()) => pool.slots[slot as usize].task,
                    Err(shortage) => {
                        self.context.done.give(slot);
                        match shortage {
                            Shortage::Error(e) if taken == 0 => return Err(e),
                            // Without anything in flight, waiting would not help.
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
                // More follows it, and is ready: no doorbell for it, and its report may wait for a later one's.
                let flags = if taken < quiet {
                    DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS
                } else {
                    DOCA_TASK_SUBMIT_FLAG_NONE
                };
                let code = self.context.submit(before.0, flags);
                if code != DOCA_SUCCESS && !self.stopped_at(before, code) {
                    self.put_back(&mut pool, slot);
                    break;
                }
            }
            taken += 1;
        }
        self.proven = self.proven.max(self.in_flight());
        Ok(taken)
    }

    fn flush(&mut self) {
        if !matches!(self.state, State::Running) || self.held.is_null() {
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
            // What went before must not wait for it.
            self.context.flush();
        }
        self.proven = self.proven.max(self.in_flight());
        self.doorbells += 1;
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.ring {
            self.flush();
        }
        let mut count = self.context.done.collect_late(completions);
        count += self.context.progress(&mut completions[count..]);
        if self.context.done.is_troubled() || !matches!(self.state, State::Running) {
            self.attend();
            count += self.context.done.collect_late(&mut completions[count..]);
        }
        if self.context.done.has_lists() {
            count += self.context.done.collect_late(&mut completions[count..]);
            self.reap();
        }
        count
    }

    fn explain(&self, code: i32) -> NativeError {
        native(&self.engine.device.sdk, code.cast_unsigned())
    }

    fn stop(&mut self) {
        if matches!(self.state, State::Closed | State::Lost(..) | State::Resting { again: false, .. }) {
            return;
        }
        if let Some(slot) = self.take_held() {
            self.context.done.end_late(slot, 0, Outcome::Aborted);
        }
        self.ring = false;
        self.context.done.all_aborted();
        self.context.stop();
        self.rest(false);
    }

    fn stats(&self) -> RawStats {
        RawStats::new(self.doorbells, self.resets)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.context.event_fd()
    }

    fn arm(&mut self) -> Result<bool> {
        if self.context.event_fd().is_none() {
            return Err(error(ErrorKind::Unsupported, "the library has no notifications"));
        }
        if self.ring || self.context.done.is_troubled() || matches!(self.state, State::Resting { .. }) {
            return Ok(false);
        }
        self.context.arm()
    }

    fn disarm(&mut self) {
        self.context.disarm();
    }
}

/// The error of making a queue, where the device has none left.
fn scarce(e: Error, engine: &Inner) -> Error {
    if e.kind() != ErrorKind::OutOfMemory {
        return e;
    }
    let mut scarce =
        error(ErrorKind::OutOfResources, format!("{} on device {}", e.message(), engine.device.address))
            .with_hint("close other queues, or programs that use the device, or ask for a smaller depth");
    if let Some(native) = e.native() {
        scarce = scarce.with_native(native.clone());
    }
    scarce
}

/// The error of a call on a queue's context.
fn call_failed(engine: &Inner, call: &'static str, code: doca_error_t) -> Error {
    failed(&engine.device.sdk, call, code)
}
