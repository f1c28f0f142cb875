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

/// Reports of descriptors up to this long may wait for a later one's. A longer one takes so long that its user would notice the wait, and
/// its report costs nothing beside it.
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
    /// By slot; null until the slot is first used.
    tasks: Box<[Task]>,
    /// The slot of the task that is held back, and how it may be submitted if another follows.
    held: Option<u32>,
    held_flags: u32,
    /// As many tasks as the device has had at once. A report may only wait for that of a task which the device is known to have room for.
    proven: usize,
    /// A flush that could not be carried out.
    ring: bool,
    state: State,
    doorbells: u64,
    resets: u64,
}

/// A task, by its two types.
#[derive(Clone, Copy, Debug)]
struct Task {
    memcpy: *mut doca_dma_task_memcpy,
    base: *mut doca_task,
}

const NO_TASK: Task = Task { memcpy: std::ptr::null_mut(), base: std::ptr::null_mut() };

// SAFETY: a progress engine and what hangs on it may be used by one thread at a time, which is how the queue is used; it has no
// thread's state.
unsafe impl Send for DocaQueue {}

impl fmt::Debug for DocaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocaQueue")
            .field("device", &self.engine.device.address)
            .field("depth", &self.tasks.len())
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
            tasks: vec![NO_TASK; depth].into(),
            held: None,
            held_flags: DOCA_TASK_SUBMIT_FLAG_NONE,
            proven: 0,
            ring: false,
            state: State::Running,
            doorbells: 0,
            resets: 0,
        })
    }

    /// Tasks that the device has.
    fn in_flight(&self) -> usize {
        self.tasks.len() - self.context.done.free() - usize::from(self.held.is_some())
    }

    /// Makes a slot's task one of a copy between segments of regions that it is not bound to.
    #[cold]
    fn rebind(&mut self, pool: &mut Pool, slot: u32, work: &Work<'_>) -> Result<(), Shortage> {
        let index = slot as usize;
        match work {
            Work::Copy { src, dst } => pool.bind(index, src.key, dst.key)?,
            Work::Listed(Listed::Copy { src, dst }) => pool.bind_lists(index, src, dst)?,
            Work::Listed(Listed::Fill { .. }) => {
                return Err(Shortage::Error(error(ErrorKind::Unsupported, "the device has no fill")));
            }
        }
        let bound = pool.slots[index];
        match self.context.set(&mut self.tasks[index], slot, bound.src, bound.dst) {
            Ok(()) => Ok(()),
            Err(e) => {
                pool.unbind(index);
                Err(e)
            }
        }
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

    /// Submits the task that is held back. `false` if the device has no room for it, or has stopped.
    #[inline]
    fn release(&mut self, flags: u32) -> bool {
        let Some(slot) = self.held else { return true };
        let code = self.context.submit(self.tasks[slot as usize].base, flags);
        if code == DOCA_SUCCESS {
            self.held = None;
            return true;
        }
        self.not_taken(slot, code)
    }

    /// What to do with a task that was refused.
    #[cold]
    fn not_taken(&mut self, slot: u32, code: doca_error_t) -> bool {
        if is_full(code) {
            self.proven = self.in_flight();
            return false;
        }
        self.held = None;
        if code == DOCA_ERROR_BAD_STATE {
            // The context has stopped by itself: polling will show why.
            self.context.done.end_late(slot, code, Outcome::Aborted);
            self.rest(true);
            return false;
        }
        self.context.done.end_late(slot, code, Outcome::Failed(task_kind(code)));
        if self.in_flight() > 0 && !self.context.flush() {
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
        self.tasks.len()
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
        let mut quiet = self.proven.saturating_sub(self.in_flight() + 1);
        for descriptor in batch {
            let Some(slot) = self.context.done.take() else { break };
            let work = descriptor.work();
            let ready = match &work {
                Work::Copy { src, dst } => {
                    let bound = &pool.slots[slot as usize];
                    let ready = if bound.src_key == src.key.0 && bound.dst_key == dst.key.0 {
                        Ok(())
                    } else {
                        self.rebind(&mut pool, slot, &work)
                    };
                    ready.and_then(|()| {
                        let bound = &pool.slots[slot as usize];
                        self.context.aim(bound.src, bound.dst, src, dst).map_err(Shortage::Error)
                    })
                }
                Work::Listed(_) => self.rebind(&mut pool, slot, &work),
            };
            match ready {
                // More follows what is held back, and is ready: no doorbell for it, and its report may wait for a later one's.
                Ok(())
                    if self.release(if quiet > 0 { self.held_flags } else { DOCA_TASK_SUBMIT_FLAG_NONE }) =>
                {
                    quiet = quiet.saturating_sub(1);
                    self.held_flags = if descriptor.len() <= COALESCED {
                        DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS
                    } else {
                        DOCA_TASK_SUBMIT_FLAG_NONE
                    };
                    if matches!(work, Work::Listed(_)) {
                        self.context.done.add_list();
                    }
                    self.context.done.begin(slot, descriptor.token());
                    self.held = Some(slot);
                    taken += 1;
                }
                Ok(()) => {
                    if matches!(work, Work::Listed(_)) {
                        pool.unbind(slot as usize);
                    }
                    self.context.done.give(slot);
                    break;
                }
                Err(shortage) => {
                    self.context.done.give(slot);
                    match shortage {
                        Shortage::Error(e) if taken == 0 => return Err(e),
                        // Without anything in flight, waiting would not help.
                        Shortage::Full if taken == 0 && self.in_flight() == 0 && self.held.is_none() => {
                            return Err(error(
                                ErrorKind::OutOfResources,
                                "no buffer is left for the descriptor",
                            )
                            .with_hint("use shorter lists, or a queue of a greater depth"));
                        }
                        _ => break,
                    }
                }
            }
        }
        self.proven = self.proven.max(self.in_flight());
        Ok(taken)
    }

    fn flush(&mut self) {
        if !matches!(self.state, State::Running) || self.held.is_none() {
            return;
        }
        self.ring = !self.release(DOCA_TASK_SUBMIT_FLAG_FLUSH) && self.held.is_some();
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
        if let Some(slot) = self.held.take() {
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
