//! Contexts: their common part, the trait that each kind implements, and `doca_ctx.h`.
#![expect(unsafe_code, reason = "functions that C calls by name, and its callbacks")]

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::c_abi::{
    Handle, INVALID, Mark, NO_DATA, Object, Out, Outcome, c, c_calls, getters, object, pointer_to, require,
};
use crate::dev::Info;
use crate::pe::{Pe, Ready};
use crate::task::{Head, Submit, TaskOwner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    Idle = c::DOCA_CTX_STATE_IDLE,
    Starting = c::DOCA_CTX_STATE_STARTING,
    Running = c::DOCA_CTX_STATE_RUNNING,
    Stopping = c::DOCA_CTX_STATE_STOPPING,
}

/// A kind of context. While a method runs a callback of the program, it must not hold a `RefCell` borrow or
/// a lock, because a callback may submit and free tasks, and stop and destroy the context.
pub(crate) trait Context {
    fn ctx(&self) -> &Ctx;

    /// Starts an idle context that has a progress engine. Returns [`State::Running`], or [`State::Starting`]
    /// if a later [`progress`](Self::progress) will [enter](Ctx::enter) the running state. On an error, the
    /// context stays idle.
    fn start(&self) -> Outcome<State>;

    /// Begins to stop the context, whose state is `Stopping`. Later calls of [`progress`](Self::progress) end
    /// its tasks.
    fn stop(&self) {}

    /// Returns true if all tasks are freed, so that a stopping context without tasks in flight can become
    /// idle.
    fn is_drained(&self) -> bool;

    /// Releases the resources that [`start`](Self::start) allocated. Called before the context becomes idle.
    fn release(&self) {}

    /// Does one step of work, for example reports one task. Returns `false` if there is no work.
    fn progress(&self) -> bool;

    /// Submits a task to the device, and [counts](Ctx::take) it. The context runs, and the task is one of its
    /// tasks that the program has. On an error, the program keeps the task.
    fn submit(&self, task: &Head, how: Submit) -> Outcome;

    /// Returns a task, which the program has, to its pool.
    fn put(&self, task: &Head);

    fn flush(&self) {}

    /// Returns the time at which the context next has work. Called when the program is about to sleep.
    fn ready(&self) -> Ready;

    /// Does one step of work like [`progress`](Self::progress), or completes a stop.
    #[inline]
    fn turn(&self) -> bool {
        self.progress() || (self.ctx().state() == State::Stopping && self.ctx().end_stop())
    }

    /// Calls [`submit`](Self::submit) if the context runs. Otherwise returns `BAD_STATE`.
    #[inline]
    fn submit_task(&self, task: &Head, how: Submit) -> Outcome {
        require(self.ctx().state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        self.submit(task, how)
    }

    /// Frees a task for the program: calls [`put`](Self::put), and wakes a sleeping owner if needed.
    fn free_task(&self, task: &Head) {
        self.put(task);
        // Freeing the last task makes a stopping context idle. Its owner may sleep until then.
        if self.ctx().state() == State::Stopping
            && self.is_drained()
            && let Some(pe) = self.ctx().pe()
        {
            pe.wake();
        }
    }
}

/// Common part of all contexts: `struct doca_ctx`.
pub(crate) struct Ctx {
    mark: Mark,
    state: Cell<State>,
    user_data: Cell<c::doca_data>,
    on_change: Cell<c::doca_ctx_state_changed_callback_t>,
    pe: RefCell<Option<Rc<Pe>>>,
    pub(crate) in_flight: Cell<usize>,
    this: Weak<dyn Context>,
}

object!(Ctx, 0xc0_7e_00_01);

impl Ctx {
    pub(crate) fn new(this: Weak<dyn Context>) -> Self {
        Self {
            mark: Mark::of::<Self>(),
            state: Cell::new(State::Idle),
            user_data: Cell::new(NO_DATA),
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

    pub(crate) fn set_user_data(&self, user_data: c::doca_data) {
        self.user_data.set(user_data);
    }

    #[inline]
    pub(crate) fn take(&self, task: &Head) {
        task.holder.set(TaskOwner::Device);
        self.in_flight.set(self.in_flight.get() + 1);
    }

    #[inline]
    pub(crate) fn on_completion(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    pub(crate) fn require_running(&self) -> Outcome {
        require(self.state() == State::Running, c::DOCA_ERROR_BAD_STATE)
    }

    pub(crate) fn pe(&self) -> Option<Rc<Pe>> {
        self.pe.borrow().clone()
    }

    pub(crate) fn this(&self) -> &Weak<dyn Context> {
        &self.this
    }

    /// Returns `BAD_STATE` unless the context is idle, as calls that configure it require.
    pub(crate) fn require_idle(&self) -> Outcome {
        require(self.state() == State::Idle, c::DOCA_ERROR_BAD_STATE)
    }

    /// Changes the state. Calls the program's callback if the new state differs from the previous one.
    pub(crate) fn enter(&self, next: State) {
        let before = self.state.replace(next);
        if before == next {
            return;
        }
        if let Some(on_change) = self.on_change.get() {
            let this = pointer_to(self);
            // SAFETY: the program registered this function for this context's changes of state, with this
            // user data.
            unsafe { on_change(self.user_data(), this, before as u32, next as u32) }
        }
    }

    /// Begins to stop a context that runs or starts.
    pub(crate) fn begin_stop(&self) {
        if let (State::Running | State::Starting, Some(this)) = (self.state(), self.this.upgrade()) {
            self.enter(State::Stopping);
            // The callback may have completed the stop already.
            if self.state() == State::Stopping {
                this.stop();
            }
        }
    }

    /// Makes a stopping context idle. Returns `false` if the context is not stopping, or if tasks are in
    /// flight or not freed.
    pub(crate) fn end_stop(&self) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        if self.state() != State::Stopping || self.in_flight.get() > 0 || !this.is_drained() {
            return false;
        }
        // Release first, because the callback may start the context again.
        this.release();
        self.enter(State::Idle);
        true
    }

    /// Disconnects the context from its progress engine before it is destroyed.
    /// Errors: `IN_USE` unless the context is idle.
    pub(crate) fn disconnect(&self) -> Outcome {
        require(self.state() == State::Idle, c::DOCA_ERROR_IN_USE)?;
        if let Some(pe) = self.pe.take() {
            pe.disconnect(&self.this);
        }
        self.mark.wipe();
        Ok(())
    }

    pub(crate) fn start(&self) -> Outcome {
        require(self.pe.borrow().is_some(), c::DOCA_ERROR_NOT_CONNECTED)?;
        self.require_idle()?;
        let this = self.this.upgrade().ok_or(INVALID)?;
        let state = this.start()?;
        self.enter(state);
        require(state == State::Running, c::DOCA_ERROR_IN_PROGRESS)
    }

    pub(crate) fn stop(&self) -> Outcome {
        match self.state() {
            // NVIDIA's samples stop a context again after their callbacks have made it idle.
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

    /// Connects the context to a progress engine until the context is destroyed.
    pub(crate) fn connect(&self, pe: &Rc<Pe>) -> Outcome {
        self.require_idle()?;
        require(self.pe.borrow().is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        pe.connect(self.this.clone());
        self.pe.replace(Some(Rc::clone(pe)));
        Ok(())
    }
}

/// Returns the context of a handle. The reference keeps the context alive while callbacks run.
fn hold(ctx: &Handle<Ctx>) -> Outcome<Rc<dyn Context>> {
    ctx.get()?.this.upgrade().ok_or(INVALID)
}

/// Destroys a context. Returns `IN_USE` unless the context is idle.
pub(crate) fn destroy<T: Context + Object>(context: Handle<T>) -> Outcome {
    context.get()?.ctx().disconnect()?;
    context.take_rc().map(drop)
}

/// Converts a handle of one kind of context to `doca_ctx`. Returns NULL for an invalid handle.
pub(crate) fn as_ctx<T: Context + Object>(context: &Handle<T>) -> *mut c::doca_ctx {
    context.get().map_or(std::ptr::null_mut(), |context| pointer_to(context.ctx()))
}

/// Returns `NOT_SUPPORTED` if the context is idle and the device's handle is not NULL. Otherwise returns the
/// error for the mistake that the program made.
fn no_datapath(ctx: &Handle<Ctx>, null: bool) -> Outcome {
    let ctx = ctx.get()?;
    require(!null, INVALID)?;
    ctx.require_idle()?;
    Err(c::DOCA_ERROR_NOT_SUPPORTED)
}

/// Number of completion vectors that each device reports.
const VECTORS: u32 = 8;

getters! {
    /// Writes the number of tasks that are submitted and not reported.
    doca_ctx_get_num_inflight_tasks(ctx: Ctx) -> usize { ctx.in_flight.get() }
    doca_ctx_get_user_data(ctx: Ctx) -> c::doca_data { ctx.user_data() }
    doca_ctx_get_state(ctx: Ctx) -> c::doca_ctx_states { ctx.state() as u32 }
}

#[cfg(not(workq))]
c_calls! {
    /// Starts a context. On success, the context runs. Returns `IN_PROGRESS` if the context is still
    /// starting.
    fn doca_ctx_start(ctx: Handle<Ctx>) { hold(&ctx)?.ctx().start() }
    /// Stops a context. On success, the context is idle. Returns `IN_PROGRESS` if the context is still
    /// stopping.
    fn doca_ctx_stop(ctx: Handle<Ctx>) { hold(&ctx)?.ctx().stop() }
}

c_calls! {
    /// Returns `NOT_SUPPORTED`, because the stand-in has no GPU.
    fn doca_ctx_set_datapath_on_gpu(ctx: Handle<Ctx>, gpu: *const c::doca_gpu) {
        no_datapath(&ctx, gpu.is_null())
    }
    fn doca_ctx_set_user_data(ctx: Handle<Ctx>, user_data: c::doca_data) {
        ctx.get().map(|ctx| ctx.set_user_data(user_data))
    }
    /// Sets the function that is called at every change of the context's state.
    fn doca_ctx_set_state_changed_cb(ctx: Handle<Ctx>, callback: c::doca_ctx_state_changed_callback_t) {
        require(callback.is_some(), INVALID)?;
        ctx.get()?.on_change.set(callback);
        Ok(())
    }
    /// Rings the doorbell for tasks that were submitted without a doorbell.
    fn doca_ctx_flush_tasks(ctx: Handle<Ctx>) -> () { _ = hold(&ctx).map(|context| context.flush()) }
    /// Returns `NOT_SUPPORTED`, because the stand-in has no data path accelerator.
    fn doca_ctx_set_datapath_on_dpa(ctx: Handle<Ctx>, dpa: *const c::doca_dpa) {
        no_datapath(&ctx, dpa.is_null())
    }
    /// Selects the completion vector. All vectors behave alike here.
    fn doca_ctx_set_completion_vector(ctx: Handle<Ctx>, vector: u32) {
        let ctx = ctx.get()?;
        require(vector < VECTORS, INVALID)?;
        ctx.require_idle()
    }
    fn doca_ctx_cap_get_num_completion_vectors(devinfo: Handle<Info>, vectors: Out<u32>) {
        devinfo.get().and_then(|_| vectors.put(VECTORS))
    }
    /// Connects a context to a progress engine until the context is destroyed.
    fn doca_pe_connect_ctx(pe: Handle<Pe>, ctx: Handle<Ctx>) { ctx.get()?.connect(&pe.rc()?) }
}
