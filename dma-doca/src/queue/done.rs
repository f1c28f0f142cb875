//! Ended tasks of a queue, as reported by callbacks.
#![expect(unsafe_code, reason = "writes completions to the buffer of the poller")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use dma_core::{Completion, Outcome};
use doca_sys::bindings::{DOCA_SUCCESS, doca_error_t};

use crate::error::task_kind;

/// Slots and completions, shared by callbacks and the queue. Callbacks run inside of the queue's calls, on
/// the same thread, and no reference outlives a call.
#[derive(Debug)]
pub(super) struct Done {
    slots: Box<[Slot]>,
    free_count: Cell<usize>,
    /// The unused rest of the poller's buffer, from `out` to `end`, during a poll. Otherwise both are null.
    out: Cell<*mut Completion>,
    end: Cell<*mut Completion>,
    /// Number of tasks in flight that use buffer lists.
    lists: Cell<usize>,
    ended: RefCell<Vec<u32>>,
    /// Completions for the next poll.
    late: RefCell<VecDeque<Late>>,
    failures: Cell<Failures>,
    /// Set if the context was stopped on purpose. Tasks that fail now are reported as aborted.
    stopping: Cell<bool>,
}

/// The failures since the context was last seen running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failures {
    /// No task has failed. `blames_first` is true if the last stop had no cause.
    None { blames_first: bool },
    /// Tasks have failed, and none of them is the cause of the stop.
    WithoutCause,
    /// A task that failed is the cause of the stop.
    WithCause,
}

impl Failures {
    /// Returns true if a task that fails now is the cause of the stop. `running` is true if the context still
    /// runs.
    ///
    /// A task that fails while the context runs is the cause. Later failures are flushed tasks, independent
    /// of their status. Some devices may only report flushed tasks. So after a stop without a cause, the
    /// first failure of the next stop counts as the cause. Otherwise callers could submit the same tasks
    /// again forever.
    const fn has_cause(self, running: bool) -> bool {
        running || matches!(self, Self::None { blames_first: true })
    }

    /// Adds a failure. `is_cause` is true if it is the cause of the stop.
    const fn and(self, is_cause: bool) -> Self {
        match self {
            Self::WithCause => self,
            _ if is_cause => Self::WithCause,
            _ => Self::WithoutCause,
        }
    }

    /// Returns the state after the context was seen running again.
    const fn settled(self) -> Self {
        Self::None { blames_first: !matches!(self, Self::WithCause) }
    }
}

/// A slot's token, and an entry of the stack of free slots. One array holds both, to save a bounds check.
#[derive(Debug)]
struct Slot {
    token: Cell<u64>,
    /// The number of a free slot. Only the first `free_count` entries are valid.
    free: Cell<u32>,
}

/// A completion for a later poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub(super) slot: u32,
    pub(super) completion: Completion,
    /// Set for a failure whose cause is not determined yet.
    pub(super) cause_unknown: bool,
}

impl Done {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            // Reversed, so that slot 0 is taken first.
            slots: (0..depth).rev().map(|free| Slot { token: Cell::new(0), free: Cell::new(free) }).collect(),
            free_count: Cell::new(depth as usize),
            out: Cell::new(std::ptr::null_mut()),
            end: Cell::new(std::ptr::null_mut()),
            lists: Cell::new(0),
            ended: RefCell::new(Vec::with_capacity(depth as usize)),
            late: RefCell::new(VecDeque::with_capacity(depth as usize)),
            failures: Cell::new(Failures::None { blames_first: false }),
            stopping: Cell::new(false),
        }
    }

    /// Returns the number of free slots.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free_count.get()
    }

    /// Takes a free slot for the descriptor with this token.
    #[inline]
    pub(super) fn take(&self, token: u64) -> Option<u32> {
        let count = self.free_count.get().checked_sub(1)?;
        let slot = self.slots.get(count)?.free.get();
        self.slots.get(slot as usize)?.token.set(token);
        self.free_count.set(count);
        Some(slot)
    }

    /// Frees a slot.
    #[inline]
    pub(super) fn give(&self, slot: u32) {
        let count = self.free_count.get();
        if let Some(place) = self.slots.get(count) {
            place.free.set(slot);
            self.free_count.set(count + 1);
        }
    }

    /// Reports success of a slot's task, and frees the slot.
    #[inline]
    pub(super) fn end(&self, slot: u32) {
        let out = self.out.get();
        if out == self.end.get() {
            return self.end_late(slot, DOCA_SUCCESS, Outcome::Done);
        }
        let Some(at) = self.slots.get(slot as usize) else { return };
        // SAFETY: `out` is within the buffer that `run` set, because it differs from its end.
        unsafe { out.write(Completion::done(at.token.get())) };
        // SAFETY: the buffer was not full, so `out + 1` is at most the buffer's end.
        self.out.set(unsafe { out.add(1) });
        self.give(slot);
    }

    #[cold]
    fn note(&self, slot: u32) {
        self.ended.borrow_mut().push(slot);
    }

    /// Reports failure of a slot's task, with its `status`. `running` is true if the context still ran.
    pub(super) fn fail(&self, slot: u32, status: doca_error_t, running: bool) {
        let cause = !self.stopping.get() && self.failures.get().has_cause(running);
        self.failures.set(self.failures.get().and(cause));
        let outcome = if cause { Outcome::Failed(task_kind(status)) } else { Outcome::Aborted };
        self.end_late(slot, status, outcome);
    }

    /// Queues a completion for the next poll. Used for failures, for descriptors without a task, and if the
    /// poller's buffer is full.
    #[cold]
    #[inline(never)]
    pub(super) fn end_late(&self, slot: u32, status: doca_error_t, outcome: Outcome) {
        let Some(at) = self.slots.get(slot as usize) else { return };
        let cause_unknown = matches!(outcome, Outcome::Failed(_));
        let completion = Completion::ended(at.token.get(), outcome, status.cast_signed());
        self.late.borrow_mut().push_back(Late { slot, completion, cause_unknown });
        if cause_unknown {
            self.failures.set(self.failures.get().and(false));
        }
        self.over(slot);
    }

    #[inline]
    fn over(&self, slot: u32) {
        if self.lists.get() > 0 {
            self.note(slot);
        }
        self.give(slot);
    }

    /// Returns true if lists are in flight.
    #[inline]
    pub(super) fn has_lists(&self) -> bool {
        self.lists.get() > 0
    }

    /// Counts a task with lists.
    pub(super) fn add_list(&self) {
        self.lists.set(self.lists.get() + 1);
    }

    /// Undoes the count of a task with lists that was not submitted.
    pub(super) fn remove_list(&self) {
        self.lists.set(self.lists.get().saturating_sub(1));
    }

    /// Calls `was_list` with every slot that ended since the last `reap`. `was_list` returns true for tasks
    /// with lists.
    pub(super) fn reap(&self, mut was_list: impl FnMut(u32) -> bool) {
        for slot in self.ended.borrow_mut().drain(..) {
            if was_list(slot) {
                self.lists.set(self.lists.get().saturating_sub(1));
            }
        }
    }

    /// Calls `progress` until it returns false, `out` is full, or all slots are free. Writes completions to
    /// the front of `out`, and returns their number. With lists in flight, completions are queued until the
    /// lists are released.
    #[inline]
    pub(super) fn run(&self, out: &mut [Completion], progress: impl Fn() -> bool) -> usize {
        let room = out.as_mut_ptr_range();
        if self.has_lists() {
            while !room.is_empty() && progress() {}
            return 0;
        }
        self.out.set(room.start);
        self.end.set(room.end);
        while self.out.get() != room.end && progress() && self.free() != self.slots.len() {}
        self.end.set(std::ptr::null_mut());
        let end = self.out.replace(std::ptr::null_mut());
        // SAFETY: both pointers are in the slice `out` or at its end, and `end` is not before the start.
        unsafe { end.offset_from_unsigned(room.start) }
    }

    /// Writes queued completions to the front of `out`, and returns their number.
    #[inline]
    pub(super) fn collect_late(&self, out: &mut [Completion]) -> usize {
        let mut late = self.late.borrow_mut();
        if late.is_empty() {
            return 0;
        }
        // Failures stay queued until their cause is determined.
        let count = late.iter().take(out.len()).take_while(|late| !late.cause_unknown).count();
        for (place, late) in out.iter_mut().zip(late.drain(..count)) {
            *place = late.completion;
        }
        count
    }

    /// Returns true if completions are queued.
    pub(super) fn has_late(&self) -> bool {
        !self.late.borrow().is_empty()
    }

    /// Calls `each` with every failure whose cause is not determined yet.
    pub(super) fn determine_causes(&self, mut each: impl FnMut(&mut Late)) {
        for late in self.late.borrow_mut().iter_mut().filter(|late| late.cause_unknown) {
            each(late);
            late.cause_unknown = false;
        }
    }

    /// Returns true if a task has failed since the context was last seen running.
    #[inline]
    pub(super) fn has_failure(&self) -> bool {
        !matches!(self.failures.get(), Failures::None { .. })
    }

    /// Records that the context was seen running.
    pub(super) fn settled(&self) {
        self.stopping.set(false);
        self.failures.set(self.failures.get().settled());
    }

    /// Makes all later failures count as aborted.
    pub(super) fn all_aborted(&self) {
        self.stopping.set(true);
    }
}
