//! `doca_ctx.h`: what all contexts have in common, and what each kind provides.
#![expect(unsafe_code, reason = "functions that C calls by name, and its callbacks")]

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::dev::Info;
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Outcome, answer, c, require};
use crate::pe::Pe;
use crate::task::{Head, Submit};

/// Where a context is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    Idle = c::DOCA_CTX_STATE_IDLE,
    Starting = c::DOCA_CTX_STATE_STARTING,
    Running = c::DOCA_CTX_STATE_RUNNING,
    Stopping = c::DOCA_CTX_STATE_STOPPING,
}

/// When a context will have something for its progress engine to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It has.
    Now,
    /// After this time, or not.
    After(Duration),
    /// When a descriptor that it had the progress engine [watch](Pe::watch) is readable, or when it [wakes](Pe::wake) it.
    WhenWoken,
}

/// What a kind of context provides. Methods that run callbacks of the program must hold no `RefCell` and no lock meanwhile: a callback may
/// submit and free tasks, and stop and destroy the context.
pub(crate) trait Context {
    /// What it has in common with the others.
    fn ctx(&self) -> &Ctx;

    /// Makes it ready to run. The progress engine is connected, and the state is idle. Returns [`State::Running`], or [`State::Starting`]
    /// if a later [`progress`](Self::progress) will [say](Ctx::enter) that it runs. On an error it stays idle.
    fn start(&self) -> Outcome<State>;

    /// Begins to stop; the state is stopping already. Whatever is in flight is to end, with an error or not, in later calls of
    /// [`progress`](Self::progress).
    fn stop(&self);

    /// A context that is stopping can become idle now: no task is in flight, and all are freed.
    fn is_drained(&self) -> bool;

    /// Releases what [`start`](Self::start) took; the state is idle already.
    fn release(&self);

    /// Does one thing, such as to report one task, and returns true; or false if there is nothing to do.
    fn progress(&self) -> bool;

    /// Takes a task, which is of this context and the program's, to the device; sets its holder and counts it [in
    /// flight](Ctx::in_flight).
    ///
    /// # Errors
    ///
    /// The task stays the program's.
    fn submit(&self, task: &Head, how: Submit) -> Outcome;

    /// Puts a task, which is of this context and the program's, back into its pool.
    fn free(&self, task: &Head);

    /// Rings the doorbell for what was submitted without.
    fn flush(&self) {}

    /// When there will be something to do, asked when the program is about to sleep.
    fn ready(&self) -> Ready;
}

/// What all contexts begin with: `struct doca_ctx`.
pub(crate) struct Ctx {
    mark: Mark,
    state: Cell<State>,
    user_data: Cell<c::doca_data>,
    on_change: Cell<c::doca_ctx_state_changed_callback_t>,
    pe: RefCell<Option<Rc<Pe>>>,
    /// Tasks that the device holds.
    pub(crate) in_flight: Cell<usize>,
    this: Weak<dyn Context>,
}

impl Object for Ctx {
    const MARK: u32 = 0xc0_7e_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Ctx {
    /// An idle context; `this` is the one that it is part of.
    pub(crate) fn new(this: Weak<dyn Context>) -> Self {
        Self {
            mark: Mark::new(Self::MARK),
            state: Cell::new(State::Idle),
            user_data: Cell::new(c::doca_data { u64_: 0 }),
            on_change: Cell::new(None),
            pe: RefCell::new(None),
            in_flight: Cell::new(0),
            this,
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    #[inline]
    pub(crate) fn user_data(&self) -> c::doca_data {
        self.user_data.get()
    }

    pub(crate) fn pe(&self) -> Option<Rc<Pe>> {
        self.pe.borrow().clone()
    }

    /// The context that this is part of.
    pub(crate) fn this(&self) -> &Weak<dyn Context> {
        &self.this
    }

    /// `Err(BAD_STATE)` unless idle: for calls that configure.
    pub(crate) fn require_idle(&self) -> Outcome {
        require(self.state() == State::Idle, c::DOCA_ERROR_BAD_STATE)
    }

    /// Changes the state, if it is another, and tells the program.
    pub(crate) fn enter(&self, next: State) {
        let before = self.state.replace(next);
        if before == next {
            return;
        }
        if let Some(on_change) = self.on_change.get() {
            let this = Handle::of(self).cast();
            // SAFETY: the program gave the function to be called with these.
            unsafe { on_change(self.user_data(), this, before as u32, next as u32) }
        }
    }

    /// Stops a context that runs, for an error or because the program asked: it is stopping from now on.
    pub(crate) fn begin_stop(&self) {
        if let (State::Running | State::Starting, Some(this)) = (self.state(), self.this.upgrade()) {
            self.enter(State::Stopping);
            // The callback may have done it all already.
            if self.state() == State::Stopping {
                this.stop();
            }
        }
    }

    /// A context that is stopping becomes idle, if nothing holds it back; whether it did.
    pub(crate) fn end_stop(&self) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        if self.state() != State::Stopping || self.in_flight.get() > 0 || !this.is_drained() {
            return false;
        }
        // Released first: the callback may start it again.
        this.release();
        self.enter(State::Idle);
        true
    }

    /// The program destroys the context: it leaves its progress engine.
    ///
    /// # Errors
    ///
    /// It is not idle.
    pub(crate) fn disconnect(&self) -> Outcome {
        require(self.state() == State::Idle, c::DOCA_ERROR_IN_USE)?;
        if let Some(pe) = self.pe.take() {
            pe.forget(&self.this);
        }
        self.mark.wipe();
        Ok(())
    }

    fn start(&self) -> Outcome {
        require(self.pe.borrow().is_some(), c::DOCA_ERROR_NOT_CONNECTED)?;
        self.require_idle()?;
        let this = self.this.upgrade().ok_or(INVALID)?;
        let state = this.start()?;
        self.enter(state);
        require(state == State::Running, c::DOCA_ERROR_IN_PROGRESS)
    }

    fn stop(&self) -> Outcome {
        match self.state() {
            // NVIDIA's samples stop a context once more that has become idle in its callbacks.
            State::Idle => return Ok(()),
            State::Stopping => {}
            State::Starting | State::Running => {
                self.begin_stop();
                if self.state() == State::Idle || self.end_stop() {
                    return Ok(());
                }
            }
        }
        Err(c::DOCA_ERROR_IN_PROGRESS)
    }

    pub(crate) fn connect(&self, pe: &Rc<Pe>) -> Outcome {
        self.require_idle()?;
        require(self.pe.borrow().is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        *self.pe.borrow_mut() = Some(Rc::clone(pe));
        Ok(())
    }
}

/// Lets a context do one thing; whether there was one.
#[inline]
pub(crate) fn progress(context: &Rc<dyn Context>) -> bool {
    context.progress() || (context.ctx().state() == State::Stopping && context.ctx().end_stop())
}

/// The context that a handle is of, kept alive whatever callbacks do.
fn hold(ctx: &Handle<Ctx>) -> Outcome<Rc<dyn Context>> {
    ctx.get()?.this.upgrade().ok_or(INVALID)
}

/// Starts a context. It runs on return, or `IN_PROGRESS` says that it is starting.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_start(ctx: Handle<Ctx>) -> Code {
    answer(|| hold(&ctx)?.ctx().start())
}

/// Stops a context. It is idle on return, or `IN_PROGRESS` says that it is stopping.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_stop(ctx: Handle<Ctx>) -> Code {
    answer(|| hold(&ctx)?.ctx().stop())
}

/// How many tasks are submitted and not reported.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_get_num_inflight_tasks(ctx: Handle<Ctx>, num_inflight_tasks: Out<usize>) -> Code {
    answer(|| num_inflight_tasks.put(ctx.get()?.in_flight.get()))
}

/// Sets what callbacks are given with the context.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_set_user_data(ctx: Handle<Ctx>, user_data: c::doca_data) -> Code {
    answer(|| {
        ctx.get()?.user_data.set(user_data);
        Ok(())
    })
}

/// What callbacks are given with the context.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_get_user_data(ctx: Handle<Ctx>, user_data: Out<c::doca_data>) -> Code {
    answer(|| user_data.put(ctx.get()?.user_data()))
}

/// Sets the function that is told of every change of state.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_set_state_changed_cb(
    ctx: Handle<Ctx>,
    callback: c::doca_ctx_state_changed_callback_t,
) -> Code {
    answer(|| {
        require(callback.is_some(), INVALID)?;
        ctx.get()?.on_change.set(callback);
        Ok(())
    })
}

/// The state.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_get_state(ctx: Handle<Ctx>, state: Out<c::doca_ctx_states>) -> Code {
    answer(|| state.put(ctx.get()?.state() as u32))
}

/// Rings the doorbell for what was submitted without.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_flush_tasks(ctx: Handle<Ctx>) {
    if let Ok(context) = hold(&ctx) {
        context.flush();
    }
}

/// There is no GPU here.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_set_datapath_on_gpu(ctx: Handle<Ctx>, gpu: *const c::doca_gpu) -> Code {
    answer(|| elsewhere(&ctx, gpu.is_null()))
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_set_datapath_on_dpa(ctx: Handle<Ctx>, dpa: *const c::doca_dpa) -> Code {
    answer(|| elsewhere(&ctx, dpa.is_null()))
}

fn elsewhere(ctx: &Handle<Ctx>, null: bool) -> Outcome {
    let ctx = ctx.get()?;
    require(!null, INVALID)?;
    ctx.require_idle()?;
    Err(c::DOCA_ERROR_NOT_SUPPORTED)
}

/// Completion vectors that a device says it has.
const VECTORS: u32 = 8;

/// Chooses which of the device's completion vectors reports; all are the same here.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_set_completion_vector(ctx: Handle<Ctx>, vector: u32) -> Code {
    answer(|| {
        let ctx = ctx.get()?;
        require(vector < VECTORS, INVALID)?;
        ctx.require_idle()
    })
}

/// How many completion vectors a device has.
#[unsafe(no_mangle)]
extern "C" fn doca_ctx_cap_get_num_completion_vectors(devinfo: Handle<Info>, vectors: Out<u32>) -> Code {
    answer(|| {
        devinfo.get()?;
        vectors.put(VECTORS)
    })
}
