//! `doca_pe.h`, but for its tasks: progress engines.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use crate::ctx::{self, Context, Ctx, Ready};
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Outcome, answer, c, require};
use crate::notify::{Notifier, Timer};

/// A progress engine: `struct doca_pe`. One thread at a time uses it and the contexts connected to it.
pub(crate) struct Pe {
    mark: Mark,
    contexts: RefCell<Vec<Weak<dyn Context>>>,
    /// Whose turn it is.
    turn: Cell<usize>,
    /// Each call progresses all contexts, not one.
    all: Cell<bool>,
    notifier: OnceCell<Notifier>,
}

impl Object for Pe {
    const MARK: u32 = 0x9e_00_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Pe {
    fn notifier(&self) -> Outcome<&Notifier> {
        if let Some(notifier) = self.notifier.get() {
            return Ok(notifier);
        }
        let notifier = Notifier::new().map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)?;
        Ok(self.notifier.get_or_init(|| notifier))
    }

    /// Has the notification handle become readable whenever `fd` is, until that is closed.
    ///
    /// # Errors
    ///
    /// The system has no more descriptors or memory.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Outcome {
        self.notifier()?.watch(fd).map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)
    }

    /// What wakes who sleeps on the notification handle, from any thread; none if nobody asked for the handle.
    pub(crate) fn timer(&self) -> Option<Arc<Timer>> {
        self.notifier.get().map(|notifier| Arc::clone(notifier.timer()))
    }

    /// Wakes who sleeps on the notification handle.
    pub(crate) fn wake(&self) {
        if let Some(notifier) = self.notifier.get() {
            notifier.timer().ring(Duration::ZERO);
        }
    }

    /// A context comes, for life.
    pub(crate) fn connect(self: &Rc<Self>, ctx: &Ctx) -> Outcome {
        ctx.connect(self)?;
        self.contexts.borrow_mut().push(ctx.this().clone());
        Ok(())
    }

    /// A context leaves.
    pub(crate) fn forget(&self, context: &Weak<dyn Context>) {
        self.contexts.borrow_mut().retain(|other| !other.ptr_eq(context));
    }

    /// Each context has its turn, from the one after the last that did something, until one does something.
    fn progress(&self) -> bool {
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
            // Nothing is borrowed now: callbacks run.
            if next.is_some_and(|context| ctx::progress(&context)) {
                done = true;
                if !self.all.get() {
                    break;
                }
            }
        }
        done
    }

    fn arm(&self) -> Outcome {
        let notifier = self.notifier()?;
        if self.all.get() {
            // In this mode programs need not clear.
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

/// Makes a progress engine.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_create(pe: Out<Handle<Pe>>) -> Code {
    answer(|| {
        pe.check()?;
        pe.put(Handle::give_rc(Rc::new(Pe {
            mark: Mark::new(Pe::MARK),
            contexts: RefCell::default(),
            turn: Cell::new(0),
            all: Cell::new(false),
            notifier: OnceCell::new(),
        })))
    })
}

/// Destroys a progress engine that no context is connected to; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_destroy(pe: Handle<Pe>) -> Code {
    answer(|| {
        require(pe.get()?.contexts.borrow().is_empty(), c::DOCA_ERROR_IN_USE)?;
        pe.take_rc().map(drop)
    })
}

/// Does one thing, such as to report one task by its callback, and returns 1; or 0 if there was nothing to do.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_progress(pe: Handle<Pe>) -> u8 {
    pe.rc().is_ok_and(|pe| pe.progress()).into()
}

/// The file descriptor to sleep on, which stays the engine's.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_get_notification_handle(
    pe: Handle<Pe>,
    handle: Out<c::doca_notification_handle_t>,
) -> Code {
    answer(|| {
        handle.check()?;
        handle.put(pe.get()?.notifier()?.fd().as_raw_fd())
    })
}

/// For Windows only.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_set_notification_handle(
    pe: Handle<Pe>,
    _handle: c::doca_notification_handle_t,
    _completion_key: c::doca_data,
) -> Code {
    answer(|| {
        pe.get()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// Makes the notification handle unreadable again. Its value says nothing, as there is only one: NVIDIA's samples pass 0.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_clear_notification(pe: Handle<Pe>, _handle: c::doca_notification_handle_t) -> Code {
    answer(|| {
        pe.get()?.notifier()?.clear();
        Ok(())
    })
}

/// Has the notification handle become readable when there is something to do, at once if there is already.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_request_notification(pe: Handle<Pe>) -> Code {
    answer(|| pe.get()?.arm())
}

/// How many tasks of all contexts are submitted and not reported.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_get_num_inflight_tasks(pe: Handle<Pe>, num_inflight_tasks: Out<usize>) -> Code {
    answer(|| num_inflight_tasks.put(pe.get()?.in_flight()))
}

/// Connects a context for life.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_connect_ctx(pe: Handle<Pe>, ctx: Handle<Ctx>) -> Code {
    answer(|| pe.rc()?.connect(ctx.get()?))
}

/// Whether a call of `doca_pe_progress` progresses one context or all.
#[unsafe(no_mangle)]
extern "C" fn doca_pe_set_event_mode(pe: Handle<Pe>, mode: c::doca_pe_event_mode) -> Code {
    answer(|| {
        require(mode <= c::DOCA_PE_EVENT_MODE_PROGRESS_ALL, INVALID)?;
        pe.get()?.all.set(mode == c::DOCA_PE_EVENT_MODE_PROGRESS_ALL);
        Ok(())
    })
}
