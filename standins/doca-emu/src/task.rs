//! Tasks, their pools, and the calls of `doca_pe.h` that take tasks.
#![expect(unsafe_code, reason = "functions that C calls by name, and its callbacks")]

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::ptr;
use std::rc::{Rc, Weak};

use crate::c_abi::{
    Code, Handle, INVALID, Mark, NO_DATA, Object, Outcome, c, c_calls, object, pointer_to, require,
};
use crate::ctx::{Context, Ctx};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    Pool,
    Program,
    Device,
    /// The device has the task, and the program has freed it.
    Freed,
    /// The device has the task, and a graph submitted it.
    Graph,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submit {
    /// Set to ring the doorbell.
    pub(crate) flush: bool,
    /// Set if the completion may be reported together with a later one.
    pub(crate) coalesce: bool,
    /// Set to check the task before it goes to the device.
    pub(crate) validate: bool,
}

/// Receives the end of a task.
type Follower = Box<dyn FnOnce(Code)>;

/// Common first part of all tasks: `struct doca_task`.
#[repr(C)]
pub(crate) struct Head {
    mark: Mark,
    pub(crate) index: u32,
    pub(crate) holder: Cell<TaskOwner>,
    pub(crate) status: Cell<Code>,
    pub(crate) user_data: Cell<c::doca_data>,
    owner: Weak<dyn Context>,
    /// Receives the end of the task if a graph submitted it. `None` if the program submitted the task.
    follower: RefCell<Option<Follower>>,
}

object!(Head, 0x7a5c_0001);

impl Head {
    #[inline]
    pub(crate) fn owner(&self) -> Outcome<Rc<dyn Context>> {
        self.owner.upgrade().ok_or(c::DOCA_ERROR_BAD_STATE)
    }

    pub(crate) fn is_submitted(&self) -> bool {
        matches!(self.holder.get(), TaskOwner::Device | TaskOwner::Freed | TaskOwner::Graph)
    }

    /// Returns the task to the program. `tell` calls the program's callback.
    #[inline]
    pub(crate) fn end(&self, status: Code, tell: impl FnOnce()) {
        self.status.set(status);
        match self.holder.replace(TaskOwner::Program) {
            TaskOwner::Graph => self.tell_graph(status),
            TaskOwner::Freed => {
                tell();
                self.settle();
            }
            TaskOwner::Pool | TaskOwner::Program | TaskOwner::Device => tell(),
        }
    }

    /// Calls `follower` at the end of the next submission.
    pub(crate) fn follow(&self, follower: impl FnOnce(Code) + 'static) {
        self.follower.replace(Some(Box::new(follower)));
    }

    /// Cancels [`follow`](Self::follow) after a failed submission.
    pub(crate) fn follow_no_more(&self) {
        self.follower.replace(None);
    }

    #[cold]
    fn tell_graph(&self, status: Code) {
        if let Some(follower) = self.follower.take() {
            follower(status);
        }
    }

    /// Frees a task that the program freed while the device had it, unless it was submitted again.
    #[cold]
    fn settle(&self) {
        if self.holder.get() == TaskOwner::Program
            && let Ok(owner) = self.owner()
        {
            owner.free_task(self);
        }
    }
}

/// A task. C's pointer to a task is also a pointer to its head.
#[repr(C)]
pub(crate) struct Task<B> {
    pub(crate) head: Head,
    pub(crate) body: B,
}

impl<B> Object for Task<B> {
    const MARK: u32 = Head::MARK;

    fn mark(&self) -> &Mark {
        &self.head.mark
    }
}

/// A pool of tasks of one kind. Their addresses do not change while the pool lives.
pub(crate) struct Pool<B> {
    tasks: Box<[Task<B>]>,
    free: RefCell<Vec<u32>>,
}

impl<B> Pool<B> {
    fn new(count: u32, owner: &Weak<dyn Context>) -> Self
    where
        B: Default,
    {
        let task = |index| Task {
            head: Head {
                mark: Mark::of::<Head>(),
                index,
                holder: Cell::new(TaskOwner::Pool),
                status: Cell::new(c::DOCA_SUCCESS),
                user_data: Cell::new(NO_DATA),
                owner: owner.clone(),
                follower: RefCell::new(None),
            },
            body: B::default(),
        };
        Self { tasks: (0..count).map(task).collect(), free: RefCell::new((0..count).rev().collect()) }
    }

    /// Takes a free task for the program. Returns `None` if all tasks are in use.
    fn take(&self, user_data: c::doca_data) -> Option<&Task<B>> {
        let task = &self.tasks[self.free.borrow_mut().pop()? as usize];
        task.head.user_data.set(user_data);
        task.head.status.set(c::DOCA_SUCCESS);
        task.head.holder.set(TaskOwner::Program);
        Some(task)
    }

    #[inline]
    pub(crate) fn find(&self, head: &Head) -> Option<&Task<B>> {
        self.tasks.get(head.index as usize).filter(|task| std::ptr::eq(&task.head, head))
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&Task<B>> {
        self.tasks.get(index as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn taken(&self) -> usize {
        self.tasks.len() - self.free.borrow().len()
    }
}

/// A callback for the end of a task. The SDK's callback types differ only in the first argument, the pointer
/// to the task.
pub(crate) type TaskCallback = unsafe extern "C" fn(*mut c::doca_task, c::doca_data, c::doca_data);

#[derive(Clone, Copy)]
struct TaskConf {
    completed: TaskCallback,
    failed: TaskCallback,
    tasks: u32,
}

/// A context's tasks of one kind: their options, their pool, and the ended tasks that are not reported yet.
pub(crate) struct Tasks<B> {
    conf: Cell<Option<TaskConf>>,
    pool: RefCell<Rc<Pool<B>>>,
    ended: RefCell<VecDeque<(u32, Code)>>,
    owner: Weak<dyn Context>,
}

impl<B: Default> Tasks<B> {
    pub(crate) fn new(owner: Weak<dyn Context>) -> Self {
        let pool = RefCell::new(Rc::new(Pool::new(0, &owner)));
        Self { conf: Cell::new(None), pool, ended: RefCell::default(), owner }
    }

    /// Sets the options.
    /// Errors: `INVALID_VALUE` if a callback is missing, or `tasks` is not in `range`.
    pub(crate) fn configure(
        &self,
        completed: Option<TaskCallback>,
        failed: Option<TaskCallback>,
        tasks: u32,
        range: RangeInclusive<u32>,
    ) -> Outcome {
        require(range.contains(&tasks), INVALID)?;
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        self.conf.set(Some(TaskConf { completed, failed, tasks }));
        Ok(())
    }

    pub(crate) fn require_configured(&self) -> Outcome {
        require(self.conf.get().is_some(), c::DOCA_ERROR_BAD_STATE)
    }

    /// Makes the configured number of tasks.
    pub(crate) fn prepare(&self) {
        let count = self.conf.get().map_or(0, |conf| conf.tasks);
        if self.pool().len() != count as usize {
            self.pool.replace(Rc::new(Pool::new(count, &self.owner)));
        }
    }
}

impl<B> Tasks<B> {
    #[inline]
    pub(crate) fn pool(&self) -> Rc<Pool<B>> {
        Rc::clone(&self.pool.borrow())
    }

    /// Borrows the pool. The borrow must end before a callback runs.
    #[inline]
    pub(crate) fn borrow(&self) -> Ref<'_, Rc<Pool<B>>> {
        self.pool.borrow()
    }

    /// Takes a task for the program, and calls `set_up` to set its fields. Returns `NO_MEMORY` if all tasks
    /// are in use.
    pub(crate) fn alloc(&self, user_data: c::doca_data, set_up: impl FnOnce(&B)) -> Outcome<Handle<Task<B>>> {
        let pool = self.pool();
        let task = pool.take(user_data).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        set_up(&task.body);
        // SAFETY: the pool keeps the task at its place until the context is destroyed, and C uses no task
        // after that.
        Ok(unsafe { Handle::of(task) })
    }

    /// Returns a task to the pool. Returns `false` if the task is from another pool. The device must not have
    /// the task.
    pub(crate) fn put(&self, head: &Head) -> bool {
        let pool = self.pool();
        let own = pool.find(head).is_some();
        if own && head.holder.replace(TaskOwner::Pool) != TaskOwner::Pool {
            pool.free.borrow_mut().push(head.index);
        }
        own
    }

    /// Returns true if all ended tasks are reported and all tasks are in the pool.
    pub(crate) fn is_drained(&self) -> bool {
        self.ended.borrow().is_empty() && self.borrow().taken() == 0
    }

    pub(crate) fn end(&self, index: u32, status: Code) {
        self.ended.borrow_mut().push_back((index, status));
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.borrow().is_empty()
    }

    /// Passes the next [ended](Self::end) task to `last`, and then reports it. Returns `false` if no task has
    /// ended.
    pub(crate) fn report_next(&self, ctx: &Ctx, last: impl FnOnce(&B)) -> bool {
        let next = self.ended.borrow_mut().pop_front();
        next.is_some_and(|(index, status)| {
            self.report(ctx, index, status, last);
            true
        })
    }

    /// Passes a task that the device had to `last`, and then reports its end.
    pub(crate) fn report(&self, ctx: &Ctx, index: u32, status: Code, last: impl FnOnce(&B)) {
        let pool = self.pool();
        let Some(task) = pool.at(index).filter(|task| task.head.is_submitted()) else { return };
        ctx.on_completion();
        last(&task.body);
        self.tell(task, status, ctx.user_data());
    }

    #[inline]
    pub(crate) fn tell(&self, task: &Task<B>, status: Code, ctx_user_data: c::doca_data) {
        let Some(conf) = self.conf.get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        let (this, user_data) = (pointer_to(task), task.head.user_data.get());
        // SAFETY: the program registered this function for tasks of this kind on this context. The task lives
        // during the call.
        task.head.end(status, || unsafe { callback(this, user_data, ctx_user_data) });
    }
}

/// Converts a handle of one kind of task to `doca_task`. Returns NULL for an invalid handle.
pub(crate) fn as_task<B>(task: &Handle<Task<B>>) -> *mut c::doca_task {
    task.get().map_or(ptr::null_mut(), |task| pointer_to(&task.head))
}

/// Declares calls that set and get a field of a task. Setting a field has no effect while the device has the
/// task. For a NULL task, getting a field returns its default value.
macro_rules! fields {
    ($body:ty: $(
        $set:ident $(| $old_set:ident)*, $get:ident $(| $old_get:ident)*($field:ident: $type:ty);
    )*) => {
        $crate::c_abi::c_calls! {
            $(
                fn $set $(| $old_set)*(
                    task: $crate::c_abi::Handle<$crate::task::Task<$body>>,
                    value: $type,
                ) -> () {
                    $crate::task::set(&task, |task| task.$field.set(value))
                }
                fn $get $(| $old_get)*(task: $crate::c_abi::Handle<$crate::task::Task<$body>>) -> $type {
                    $crate::task::get(&task, <$type>::default(), |task| task.$field.get())
                }
            )*
        }
    };
}
pub(crate) use fields;

/// Changes a task. Does nothing while the device has it.
pub(crate) fn set<B>(task: &Handle<Task<B>>, set: impl FnOnce(&B)) {
    if let Ok(task) = task.get()
        && !task.head.is_submitted()
    {
        set(&task.body);
    }
}

pub(crate) fn get<B, T>(task: &Handle<Task<B>>, none: T, get: impl FnOnce(&B) -> T) -> T {
    task.get().map_or(none, |task| get(&task.body))
}

#[inline]
fn submit(task: Handle<Head>, how: Submit) -> Outcome {
    let task = task.get()?;
    require(task.holder.get() == TaskOwner::Program, c::DOCA_ERROR_BAD_STATE)?;
    task.owner()?.submit_task(task, how)
}

const FLAGS: u32 = c::DOCA_TASK_SUBMIT_FLAG_FLUSH | c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS;

fn free(task: Handle<Head>) -> Outcome {
    let task = task.get()?;
    match task.holder.get() {
        TaskOwner::Program => task.owner()?.free_task(task),
        TaskOwner::Device => task.holder.set(TaskOwner::Freed),
        TaskOwner::Freed | TaskOwner::Graph | TaskOwner::Pool => {}
    }
    Ok(())
}

/// Returns an error for calls that take a batch. No context of these headers makes batches, so a program has
/// no batch to pass.
fn no_batch(batch: *const c::doca_task_batch) -> Code {
    if batch.is_null() { INVALID } else { c::DOCA_ERROR_NOT_SUPPORTED }
}

c_calls! {
    /// Submits a task to its context and rings the doorbell. On an error, the program keeps the task.
    fn doca_task_submit(task: Handle<Head>) {
        submit(task, Submit { flush: true, coalesce: false, validate: false })
    }
    /// Submits a task with flags. Returns `INVALID_VALUE` for unknown flags.
    fn doca_task_submit_ex(task: Handle<Head>, flags: u32) {
        require(flags & !FLAGS == 0, INVALID)?;
        let flush = flags & c::DOCA_TASK_SUBMIT_FLAG_FLUSH != 0;
        let coalesce = flags & c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS != 0;
        submit(task, Submit { flush, coalesce, validate: false })
    }
    fn doca_task_batch_submit(batch: *const c::doca_task_batch) -> Code { no_batch(batch) }
    /// Submits a task as `doca_task_submit` does, and validates it before that.
    fn doca_task_try_submit(task: Handle<Head>) {
        submit(task, Submit { flush: true, coalesce: false, validate: true })
    }
    fn doca_task_batch_try_submit(batch: *const c::doca_task_batch) -> Code { no_batch(batch) }
    /// Returns a task to its pool. If the device has the task, it returns to the pool after its callback.
    fn doca_task_free(task: Handle<Head>) -> () { _ = free(task) }
    fn doca_task_batch_free(_batch: *const c::doca_task_batch) -> () {}
    /// Returns the result of the last submission. Returns success if the task was never submitted.
    fn doca_task_get_status(task: Handle<Head>) -> Code {
        task.get().map_or_else(|code| code, |task| task.status.get())
    }
    fn doca_task_batch_get_status(batch: *const c::doca_task_batch) -> Code { no_batch(batch) }
    fn doca_task_set_user_data(task: Handle<Head>, user_data: c::doca_data) -> () {
        _ = task.get().map(|task| task.user_data.set(user_data))
    }
    fn doca_task_batch_set_user_data(_batch: *const c::doca_task_batch, _user_data: c::doca_data) -> () {}
    /// Returns the user data that the task's callbacks get. Returns 0 for a NULL task.
    fn doca_task_get_user_data(task: Handle<Head>) -> c::doca_data {
        task.get().map_or(NO_DATA, |task| task.user_data.get())
    }
    fn doca_task_batch_get_user_data(_batch: *const c::doca_task_batch) -> c::doca_data { NO_DATA }
    /// Returns the context that the task belongs to, or NULL for an invalid task.
    fn doca_task_get_ctx(task: Handle<Head>) -> *mut c::doca_ctx {
        task.get().and_then(Head::owner).map_or(ptr::null_mut(), |owner| pointer_to(owner.ctx()))
    }
    fn doca_task_batch_get_ctx(_batch: *const c::doca_task_batch) -> *mut c::doca_ctx { ptr::null_mut() }
    fn doca_task_batch_get_ctx_user_data(_batch: *const c::doca_task_batch) -> c::doca_data { NO_DATA }
    fn doca_task_batch_get_tasks_num(_batch: *const c::doca_task_batch) -> u16 { 0 }
}
