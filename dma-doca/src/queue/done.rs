//! What callbacks tell a queue: which tasks have ended, and how.
#![expect(unsafe_code, reason = "writes completions where the poller wants them")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use dma_core::{Completion, Outcome};
use doca_sys::bindings::{DOCA_SUCCESS, doca_error_t};

use crate::error::task_kind;

/// Slots and their ends. Callbacks and the queue share it: they run on one thread, and no reference outlasts a call.
#[derive(Debug)]
pub(super) struct Done {
    slots: Box<[Slot]>,
    free_count: Cell<usize>,
    /// Where completions go while the progress engine runs for a poller, and the end of the room there; else both are null.
    out: Cell<*mut Completion>,
    end: Cell<*mut Completion>,
    /// Lists among the tasks in flight, and slots that have ended while there were any.
    lists: Cell<usize>,
    ended: RefCell<Vec<u32>>,
    /// Completions that had to wait for the next poll, with their slots.
    late: RefCell<VecDeque<Late>>,
    /// A task has failed since the context was last seen running.
    troubled: Cell<bool>,
    /// Of those, one failed while the context ran, so it is the cause.
    blamed: Cell<bool>,
    /// The last time that the context stopped, there was no such task.
    blameless: Cell<bool>,
    /// The context was stopped on purpose: what fails now has been aborted.
    stopping: Cell<bool>,
}

/// A slot's descriptor; and, in the same place for one bounds check, an entry of the stack of free slots.
#[derive(Debug)]
struct Slot {
    token: Cell<u64>,
    /// A free slot, in the first `free_count`.
    free: Cell<u32>,
}

/// A completion that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub(super) slot: u32,
    pub(super) completion: Completion,
    /// A failure whose cause is still to be found out.
    pub(super) suspect: bool,
}

impl Done {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            // The last is taken first: begin with slot 0.
            slots: (0..depth).rev().map(|free| Slot { token: Cell::new(0), free: Cell::new(free) }).collect(),
            free_count: Cell::new(depth as usize),
            out: Cell::new(std::ptr::null_mut()),
            end: Cell::new(std::ptr::null_mut()),
            lists: Cell::new(0),
            ended: RefCell::new(Vec::with_capacity(depth as usize)),
            late: RefCell::new(VecDeque::with_capacity(depth as usize)),
            troubled: Cell::new(false),
            blamed: Cell::new(false),
            blameless: Cell::new(false),
            stopping: Cell::new(false),
        }
    }

    /// How many slots are free.
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

    /// Gives a slot back.
    #[inline]
    pub(super) fn give(&self, slot: u32) {
        let count = self.free_count.get();
        if let Some(place) = self.slots.get(count) {
            place.free.set(slot);
            self.free_count.set(count + 1);
        }
    }

    /// A slot's task is done.
    #[inline]
    pub(super) fn end(&self, slot: u32) {
        let out = self.out.get();
        if out == self.end.get() {
            return self.end_late(slot, DOCA_SUCCESS, Outcome::Done);
        }
        let Some(at) = self.slots.get(slot as usize) else { return };
        // SAFETY: between what `run` set, a place for a completion.
        unsafe { out.write(Completion::done(at.token.get())) };
        // SAFETY: there was room for one, so this is at most its end.
        self.out.set(unsafe { out.add(1) });
        self.give(slot);
    }

    #[cold]
    fn note(&self, slot: u32) {
        self.ended.borrow_mut().push(slot);
    }

    /// A slot's task failed, with this status, while its context ran (`running`) or was on its way to rest.
    pub(super) fn fail(&self, slot: u32, status: doca_error_t, running: bool) {
        let first = !self.troubled.replace(true);
        // What fails while the context runs takes it down; what fails later is flushed, whatever its status says. Should a device never
        // name the cause, the first is taken for it every other time: tasks that are submitted again and again must not go on for ever.
        let cause = !self.stopping.get() && (running || first && self.blameless.get());
        if cause {
            self.blamed.set(true);
        }
        let outcome = if cause { Outcome::Failed(task_kind(status)) } else { Outcome::Aborted };
        self.end_late(slot, status, outcome);
    }

    /// A slot's descriptor ended without its task, with trouble, or without a poller that has room for its completion: the next poll tells.
    #[cold]
    #[inline(never)]
    pub(super) fn end_late(&self, slot: u32, status: doca_error_t, outcome: Outcome) {
        let Some(at) = self.slots.get(slot as usize) else { return };
        let suspect = matches!(outcome, Outcome::Failed(_));
        let completion = Completion { token: at.token.get(), native: status.cast_signed(), outcome };
        self.late.borrow_mut().push_back(Late { slot, completion, suspect });
        if suspect {
            self.troubled.set(true);
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

    /// Whether lists are in flight.
    #[inline]
    pub(super) fn has_lists(&self) -> bool {
        self.lists.get() > 0
    }

    /// A list goes out.
    pub(super) fn add_list(&self) {
        self.lists.set(self.lists.get() + 1);
    }

    /// A list does not go out after all.
    pub(super) fn remove_list(&self) {
        self.lists.set(self.lists.get().saturating_sub(1));
    }

    /// Calls `was_list` with every slot that has ended since the last time, which says whether its task had lists.
    pub(super) fn reap(&self, mut was_list: impl FnMut(u32) -> bool) {
        for slot in self.ended.borrow_mut().drain(..) {
            if was_list(slot) {
                self.lists.set(self.lists.get().saturating_sub(1));
            }
        }
    }

    /// Calls `progress` until it says that nothing happens, or `out` is full. What ends meanwhile is written to the front of `out`; the answer
    /// is how many. With lists in flight they wait until the slots' lists are given back.
    #[inline]
    pub(super) fn run(&self, out: &mut [Completion], progress: impl Fn() -> bool) -> usize {
        let room = out.as_mut_ptr_range();
        if self.has_lists() {
            while !room.is_empty() && progress() {}
            return 0;
        }
        self.out.set(room.start);
        self.end.set(room.end);
        while self.out.get() != room.end && progress() {}
        self.end.set(std::ptr::null_mut());
        let end = self.out.replace(std::ptr::null_mut());
        // SAFETY: from the start of the same slice towards its end.
        unsafe { end.offset_from_unsigned(room.start) }
    }

    /// Writes completions that waited to the front of `out`, and says how many.
    #[inline]
    pub(super) fn collect_late(&self, out: &mut [Completion]) -> usize {
        let mut late = self.late.borrow_mut();
        if late.is_empty() {
            return 0;
        }
        // What is suspect waits until its cause is known.
        let count = late.iter().take(out.len()).take_while(|late| !late.suspect).count();
        for (place, late) in out.iter_mut().zip(late.drain(..count)) {
            *place = late.completion;
        }
        count
    }

    /// Whether completions wait.
    pub(super) fn has_late(&self) -> bool {
        !self.late.borrow().is_empty()
    }

    /// Calls `judge` with every failure whose cause is to be found out.
    pub(super) fn judge(&self, mut judge: impl FnMut(&mut Late)) {
        for late in self.late.borrow_mut().iter_mut().filter(|late| late.suspect) {
            judge(late);
            late.suspect = false;
        }
    }

    /// Whether a task has failed since the context was last seen running.
    #[inline]
    pub(super) fn is_troubled(&self) -> bool {
        self.troubled.get()
    }

    /// The context runs, as far as is known.
    pub(super) fn settled(&self) {
        self.troubled.set(false);
        self.stopping.set(false);
        self.blameless.set(!self.blamed.replace(false));
    }

    /// What fails from now on has been aborted.
    pub(super) fn all_aborted(&self) {
        self.stopping.set(true);
    }
}
