//! `doca_mmap_advise.h`: cache invalidation. The stand-in has no cache to invalidate, so tasks have no effect
//! and end in the order of submission.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::buf::{Buf, unpin};
use crate::c_abi::{Handle, INVALID, Mark, Out, Outcome, c, c_calls, getters, object, require};
use crate::ctx::{Context, Ctx, State, as_ctx, destroy};
use crate::dev::{Dev, Info};
use crate::pe::Ready;
use crate::task::{Head, Submit, Task, TaskCallback, Tasks, as_task, fields};

/// A context: `struct doca_mmap_advise`.
pub(crate) struct Advise {
    mark: Mark,
    ctx: Ctx,
    dev: Arc<Dev>,
    tasks: Tasks<Invalidate>,
}

object!(Advise, 0xad_00_00_01);

/// A task, which invalidates the cache lines of a buffer.
#[derive(Default)]
pub(crate) struct Invalidate {
    buf: Cell<Handle<Buf>>,
}

impl Advise {
    fn new(dev: Arc<Dev>) -> Rc<Self> {
        Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            dev,
            tasks: Tasks::new(this.clone()),
        })
    }

    fn alloc(&self, buf: Handle<Buf>, user_data: c::doca_data) -> Outcome<Handle<Task<Invalidate>>> {
        self.ctx.require_running()?;
        self.tasks.alloc(user_data, |task| task.buf.set(buf))
    }
}

impl Context for Advise {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        require(self.dev.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
        self.tasks.require_configured()?;
        self.tasks.prepare();
        Ok(State::Running)
    }

    fn is_drained(&self) -> bool {
        self.tasks.is_drained()
    }

    fn progress(&self) -> bool {
        self.tasks.report_next(&self.ctx, |task| unpin(task.buf.get()))
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        let pool = self.tasks.pool();
        let handle = pool.find(head).ok_or(INVALID)?.body.buf.get();
        let buf = handle.get()?;
        require(buf.len() as u64 <= self.dev.card().limits.max_buf_size, INVALID)?;
        let is_started = buf.memory().is_some_and(|memory| memory.is_started());
        buf.pin();
        self.ctx.take(head);
        self.tasks.end(head.index, if is_started { c::DOCA_SUCCESS } else { c::DOCA_ERROR_IO_FAILED });
        Ok(())
    }

    fn put(&self, head: &Head) {
        self.tasks.put(head);
    }

    fn ready(&self) -> Ready {
        let done = self.ctx.state() == State::Stopping && self.is_drained();
        if done || self.tasks.has_ended() { Ready::Now } else { Ready::WhenWoken }
    }
}

getters! {
    /// Writes the maximum length of a buffer, in bytes.
    doca_mmap_advise_task_cache_invalidate_get_max_buf_size(info: Info) -> u64 {
        info.card.limits.max_buf_size
    }
}

c_calls! {
    fn doca_mmap_advise_create(dev: Handle<Dev>, mmap_advise: Out<Handle<Advise>>) {
        mmap_advise.make(|| Ok(Handle::give_rc(Advise::new(dev.arc()?))))
    }
    /// Destroys a context. Returns `IN_USE` unless the context is idle.
    fn doca_mmap_advise_destroy(mmap_advise: Handle<Advise>) { destroy(mmap_advise) }
    fn doca_mmap_advise_as_ctx(mmap_advise: Handle<Advise>) -> *mut c::doca_ctx { as_ctx(&mmap_advise) }
    fn doca_mmap_advise_cap_task_cache_invalidate_is_supported(devinfo: Handle<Info>) {
        require(devinfo.get()?.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)
    }
    /// Sets the number of tasks and their callbacks.
    fn doca_mmap_advise_task_invalidate_cache_set_conf(
        mmap_advise: Handle<Advise>,
        completed: Option<TaskCallback>,
        failed: Option<TaskCallback>,
        tasks: u32,
    ) {
        let advise = mmap_advise.get()?;
        require(advise.ctx.state() == State::Idle, c::DOCA_ERROR_NOT_PERMITTED)?;
        advise.tasks.configure(completed, failed, tasks, 1..=advise.dev.card().limits.max_tasks)
    }
    /// Takes a task. Returns `NO_MEMORY` if all tasks are in use.
    fn doca_mmap_advise_task_invalidate_cache_alloc_init(
        mmap_advise: Handle<Advise>,
        buf: Handle<Buf>,
        user_data: c::doca_data,
        task: Out<Handle<Task<Invalidate>>>,
    ) {
        task.make(|| mmap_advise.get()?.alloc(buf, user_data))
    }
    fn doca_mmap_advise_task_invalidate_cache_as_doca_task(
        task: Handle<Task<Invalidate>>,
    ) -> *mut c::doca_task {
        as_task(&task)
    }
}

fields! {
    Invalidate:
    doca_mmap_advise_task_invalidate_cache_set_buf, doca_mmap_advise_task_invalidate_cache_get_buf
        (buf: Handle<Buf>);
}
