//! `doca_mmap_advise.h`: cache lines invalidated. Here that is nothing to do, and done in order.
#![expect(unsafe_code, reason = "functions that C calls by name, and its callbacks")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::buf::Buf;
use crate::ctx::{Context, Ctx, Ready, State};
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Outcome, answer, c, require};
use crate::task::{Head, Holder, Pool, Submit, Task};

/// A context for it: `struct doca_mmap_advise`.
pub(crate) struct Advise {
    mark: Mark,
    ctx: Ctx,
    dev: Arc<Dev>,
    conf: Cell<Option<Conf>>,
    pool: RefCell<Rc<Pool<Invalidate>>>,
    /// Tasks to be reported.
    ended: RefCell<VecDeque<(u32, Code)>>,
    this: Weak<dyn Context>,
}

type Callback =
    unsafe extern "C" fn(*mut c::doca_mmap_advise_task_invalidate_cache, c::doca_data, c::doca_data);

#[derive(Clone, Copy)]
struct Conf {
    completed: Callback,
    failed: Callback,
    tasks: u32,
}

/// What a task is about.
pub(crate) struct Invalidate(Cell<Handle<Buf>>);

impl Object for Advise {
    const MARK: u32 = 0xad_00_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Advise {
    fn new(dev: Arc<Dev>) -> Rc<Self> {
        Rc::new_cyclic(|this: &Weak<Self>| {
            let this: Weak<dyn Context> = this.clone();
            Self {
                mark: Mark::new(Self::MARK),
                ctx: Ctx::new(this.clone()),
                dev,
                conf: Cell::new(None),
                pool: RefCell::new(Rc::new(Pool::new(0, &this, || Invalidate(Cell::new(Handle::null()))))),
                ended: RefCell::default(),
                this,
            }
        })
    }

    fn pool(&self) -> Rc<Pool<Invalidate>> {
        Rc::clone(&self.pool.borrow())
    }

    fn alloc(&self, buf: Handle<Buf>, user_data: c::doca_data) -> Outcome<Handle<Task<Invalidate>>> {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.take(user_data).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        task.body.0.set(buf);
        Ok(Handle::of(task))
    }
}

impl Context for Advise {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        require(self.dev.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
        let conf = self.conf.get().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        if self.pool().len() != conf.tasks as usize {
            let empty = || Invalidate(Cell::new(Handle::null()));
            self.pool.replace(Rc::new(Pool::new(conf.tasks, &self.this, empty)));
        }
        Ok(State::Running)
    }

    fn stop(&self) {}

    fn is_drained(&self) -> bool {
        self.ended.borrow().is_empty() && self.pool().taken() == 0
    }

    fn release(&self) {}

    fn progress(&self) -> bool {
        let next = self.ended.borrow_mut().pop_front();
        let Some((index, status)) = next else { return false };
        let pool = self.pool();
        let Some(task) = pool.at(index) else { return false };
        self.ctx.in_flight.set(self.ctx.in_flight.get() - 1);
        task.body.0.get().unpin();
        let user_data = task.head.user_data.get();
        task.head.end(status, || {
            let Some(conf) = self.conf.get() else { return };
            let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
            // SAFETY: the program gave the function to be called with a task of this context.
            unsafe { callback(Handle::of(task).cast(), user_data, self.ctx.user_data()) }
        });
        true
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.find(head).ok_or(INVALID)?;
        let handle = task.body.0.get();
        let buf = handle.get()?;
        require(buf.len() as u64 <= self.dev.card().limits.max_buf_size, INVALID)?;
        let here = buf.memory().is_some_and(|memory| memory.is_started());
        let status = if here { c::DOCA_SUCCESS } else { c::DOCA_ERROR_IO_FAILED };
        buf.pin();
        head.holder.set(Holder::Device);
        self.ctx.in_flight.set(self.ctx.in_flight.get() + 1);
        self.ended.borrow_mut().push_back((head.index, status));
        Ok(())
    }

    fn free(&self, head: &Head) {
        let pool = self.pool();
        if pool.find(head).is_some() {
            pool.put(head);
            if self.ctx.state() == State::Stopping
                && self.is_drained()
                && let Some(pe) = self.ctx.pe()
            {
                pe.wake();
            }
        }
    }

    fn ready(&self) -> Ready {
        let done = self.ctx.state() == State::Stopping && self.is_drained();
        if done || !self.ended.borrow().is_empty() { Ready::Now } else { Ready::WhenWoken }
    }
}

/// Makes a context for it.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_create(dev: Handle<Dev>, mmap_advise: Out<Handle<Advise>>) -> Code {
    answer(|| {
        mmap_advise.check()?;
        mmap_advise.put(Handle::give_rc(Advise::new(dev.arc()?)))
    })
}

/// Destroys a context that is idle; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_destroy(mmap_advise: Handle<Advise>) -> Code {
    answer(|| {
        mmap_advise.get()?.ctx.disconnect()?;
        mmap_advise.take_rc().map(drop)
    })
}

/// It as a context.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_as_ctx(mmap_advise: Handle<Advise>) -> *mut c::doca_ctx {
    mmap_advise.get().map_or(ptr::null_mut(), |advise| Handle::of(&advise.ctx).cast())
}

/// Whether a device can do it.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_cap_task_cache_invalidate_is_supported(devinfo: Handle<Info>) -> Code {
    answer(|| require(devinfo.get()?.function().dma, c::DOCA_ERROR_NOT_SUPPORTED))
}

/// The longest buffer in bytes.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
    devinfo: Handle<Info>,
    buf_size: Out<u64>,
) -> Code {
    answer(|| buf_size.put(devinfo.get()?.card.limits.max_buf_size))
}

/// How many tasks there are, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_task_invalidate_cache_set_conf(
    mmap_advise: Handle<Advise>,
    completed: Option<Callback>,
    failed: Option<Callback>,
    tasks: u32,
) -> Code {
    answer(|| {
        let advise = mmap_advise.get()?;
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        require((1..=advise.dev.card().limits.max_tasks).contains(&tasks), INVALID)?;
        require(advise.ctx.state() == State::Idle, c::DOCA_ERROR_NOT_PERMITTED)?;
        advise.conf.set(Some(Conf { completed, failed, tasks }));
        Ok(())
    })
}

/// A task that invalidates the cache lines of a buffer. `NO_MEMORY` if all tasks are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_task_invalidate_cache_alloc_init(
    mmap_advise: Handle<Advise>,
    buf: Handle<Buf>,
    user_data: c::doca_data,
    task: Out<Handle<Task<Invalidate>>>,
) -> Code {
    answer(|| {
        task.check()?;
        task.put(mmap_advise.get()?.alloc(buf, user_data)?)
    })
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_task_invalidate_cache_as_doca_task(
    task: Handle<Task<Invalidate>>,
) -> *mut c::doca_task {
    task.get().map_or(ptr::null_mut(), |task| Handle::of(&task.head).cast())
}

/// Another buffer, for the next submission.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_task_invalidate_cache_set_buf(
    task: Handle<Task<Invalidate>>,
    buf: Handle<Buf>,
) {
    if let Ok(task) = task.get()
        && !task.head.is_submitted()
    {
        task.body.0.set(buf);
    }
}

/// The buffer.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_advise_task_invalidate_cache_get_buf(task: Handle<Task<Invalidate>>) -> Handle<Buf> {
    task.get().map_or(Handle::null(), |task| task.body.0.get())
}
