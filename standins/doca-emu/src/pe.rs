//! Progress engines: `doca_pe.h`, without the calls that take tasks.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use crate::c_abi::{Handle, INVALID, Mark, Out, Outcome, c, c_calls, getters, object, require};
use crate::ctx::Context;
use crate::notifier::{Notifier, Timer};

/// Time at which a context next has work for its progress engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Now,
    After(Duration),
    /// When a descriptor that the progress engine [watches](Pe::watch) for the context is readable, or when
    /// the context [wakes](Pe::wake) the engine.
    WhenWoken,
}

/// A progress engine: `struct doca_pe`. One thread at a time uses it and the contexts connected to it.
pub(crate) struct Pe {
    mark: Mark,
    contexts: RefCell<Vec<Weak<dyn Context>>>,
    /// Index of the context that is tried next.
    turn: Cell<usize>,
    /// If set, each progress call lets all contexts make progress, not only one.
    all: Cell<bool>,
    notifier: OnceCell<Notifier>,
}

object!(Pe, 0x9e_00_00_01);

impl Pe {
    pub(crate) fn new() -> Self {
        Self {
            mark: Mark::of::<Self>(),
            contexts: RefCell::default(),
            turn: Cell::new(0),
            all: Cell::new(false),
            notifier: OnceCell::new(),
        }
    }

    pub(crate) fn notifier(&self) -> Outcome<&Notifier> {
        if let Some(notifier) = self.notifier.get() {
            return Ok(notifier);
        }
        let notifier = Notifier::new().map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)?;
        Ok(self.notifier.get_or_init(|| notifier))
    }

    /// Makes the notification handle readable whenever `fd` is readable, until `fd` is closed. Errors:
    /// `OPERATING_SYSTEM` if the system lacks descriptors or memory.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Outcome {
        self.notifier()?.watch(fd).map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)
    }

    /// Returns the timer of the notification handle, which any thread may set. `None` if the program has no
    /// notification handle.
    pub(crate) fn timer(&self) -> Option<Arc<Timer>> {
        self.notifier.get().map(|notifier| Arc::clone(notifier.timer()))
    }

    pub(crate) fn wake(&self) {
        if let Some(notifier) = self.notifier.get() {
            notifier.timer().ring(Duration::ZERO);
        }
    }

    pub(crate) fn connect(&self, context: Weak<dyn Context>) {
        self.contexts.borrow_mut().push(context);
    }

    pub(crate) fn disconnect(&self, context: &Weak<dyn Context>) {
        self.contexts.borrow_mut().retain(|other| !other.ptr_eq(context));
    }

    /// Lets one context make progress. Tries the contexts in turn, beginning after the one that made progress
    /// last. Returns false if no context made progress.
    pub(crate) fn progress(&self) -> bool {
        let mut done = false;
        let count = self.contexts.borrow().len();
        for _ in 0..count {
            let next = {
                let contexts = self.contexts.borrow();
                let turn = self.turn.get();
                let turn = if turn < contexts.len() { turn } else { 0 };
                self.turn.set(turn + 1);
                contexts.get(turn).and_then(Weak::upgrade)
            };
            // No borrow is held here, because callbacks run.
            if next.is_some_and(|context| context.turn()) {
                done = true;
                if !self.all.get() {
                    break;
                }
            }
        }
        done
    }

    pub(crate) fn arm(&self) -> Outcome {
        let notifier = self.notifier()?;
        if self.all.get() {
            // In this mode, programs need not call `doca_pe_clear_notification`.
            notifier.clear();
        }
        let mut soonest = None;
        for context in self.contexts.borrow().iter().filter_map(Weak::upgrade) {
            match context.ready() {
                Ready::Now => soonest = Some(Duration::ZERO),
                Ready::After(after) => {
                    soonest = Some(soonest.map_or(after, |before: Duration| before.min(after)))
                }
                Ready::WhenWoken => {}
            }
        }
        if let Some(after) = soonest {
            notifier.timer().ring(after);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.contexts
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .map(|context| context.ctx().in_flight.get())
            .sum()
    }
}

getters! {
    /// Writes the file descriptor to sleep on. The progress engine owns and closes the descriptor.
    doca_pe_get_notification_handle(pe: Pe) -> c::doca_notification_handle_t {
        pe.notifier()?.fd().as_raw_fd()
    }
    /// Writes the number of all contexts' tasks that are submitted and not reported.
    doca_pe_get_num_inflight_tasks(pe: Pe) -> usize { pe.in_flight() }
}

c_calls! {
    fn doca_pe_create(pe: Out<Handle<Pe>>) { pe.make(|| Ok(Handle::new_rc(Pe::new()))) }
    /// Destroys a progress engine. Returns `IN_USE` if contexts are connected to it.
    fn doca_pe_destroy(pe: Handle<Pe>) {
        require(pe.get()?.contexts.borrow().is_empty(), c::DOCA_ERROR_IN_USE)?;
        pe.take_rc().map(drop)
    }
    /// Does one step of work, for example reports one task, and returns 1. Returns 0 if there is no work.
    fn doca_pe_progress(pe: Handle<Pe>) -> u8 { pe.rc().is_ok_and(|pe| pe.progress()).into() }
    /// Returns `NOT_SUPPORTED`, because this call is for Windows only.
    fn doca_pe_set_notification_handle(
        pe: Handle<Pe>,
        _handle: c::doca_notification_handle_t,
        _completion_key: c::doca_data,
    ) {
        pe.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    /// Makes the notification handle unreadable. Ignores the value of `_handle`, because an engine has only
    /// one handle, and NVIDIA's samples pass 0.
    fn doca_pe_clear_notification(pe: Handle<Pe>, _handle: c::doca_notification_handle_t) {
        pe.get()?.notifier().map(Notifier::clear)
    }
    /// Makes the notification handle readable as soon as there is work.
    fn doca_pe_request_notification(pe: Handle<Pe>) { pe.get()?.arm() }
    /// Selects whether a call of `doca_pe_progress` lets one context or all contexts make progress.
    fn doca_pe_set_event_mode(pe: Handle<Pe>, mode: c::doca_pe_event_mode) {
        require(mode <= c::DOCA_PE_EVENT_MODE_PROGRESS_ALL, INVALID)?;
        pe.get()?.all.set(mode == c::DOCA_PE_EVENT_MODE_PROGRESS_ALL);
        Ok(())
    }
}
