//! Tasks: what they have in common, the pools they come from, and the calls of `doca_pe.h` that take them.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::ctx::Context;
use crate::door::{Code, Handle, Mark, Object, Outcome, answer, c, require};

/// Who holds a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The pool.
    Pool,
    /// The program.
    Program,
    /// The device.
    Device,
    /// The device, and the program has freed it.
    Freed,
    /// The device, for a graph.
    Graph,
}

/// Told, in place of the program, that a task ended.
pub(crate) trait Follower {
    /// The task of this node did, like this.
    fn ended(&self, node: usize, status: Code);
}

/// How a task is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submit {
    /// Ring the doorbell.
    pub(crate) flush: bool,
    /// The completion may be reported with a later one.
    pub(crate) coalesce: bool,
    /// Look for mistakes first.
    pub(crate) validate: bool,
}

/// What every task begins with: `struct doca_task`.
#[repr(C)]
pub(crate) struct Head {
    mark: Mark,
    /// Its place in its pool.
    pub(crate) index: u32,
    pub(crate) holder: Cell<Holder>,
    pub(crate) status: Cell<Code>,
    pub(crate) user_data: Cell<c::doca_data>,
    owner: Weak<dyn Context>,
    /// Who is told instead of the program, if a graph has it.
    follower: RefCell<Option<(Rc<dyn Follower>, usize)>>,
}

impl Object for Head {
    const MARK: u32 = 0x7a5c_0001;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Head {
    #[inline]
    pub(crate) fn owner(&self) -> Outcome<Rc<dyn Context>> {
        self.owner.upgrade().ok_or(c::DOCA_ERROR_BAD_STATE)
    }

    /// The device holds it.
    pub(crate) fn is_submitted(&self) -> bool {
        matches!(self.holder.get(), Holder::Device | Holder::Freed | Holder::Graph)
    }

    /// The task is the program's again, and ended with this status; `tell` calls the program.
    #[inline]
    pub(crate) fn end(&self, status: Code, tell: impl FnOnce()) {
        self.status.set(status);
        match self.holder.replace(Holder::Program) {
            Holder::Graph => self.tell_graph(status),
            Holder::Freed => {
                tell();
                self.settle();
            }
            Holder::Pool | Holder::Program | Holder::Device => tell(),
        }
    }

    /// Has a graph told of the end of the next submission.
    pub(crate) fn follow(&self, follower: Rc<dyn Follower>, node: usize) {
        self.follower.replace(Some((follower, node)));
    }

    /// The submission did not take place.
    pub(crate) fn follow_no_more(&self) {
        self.follower.replace(None);
    }

    #[cold]
    fn tell_graph(&self, status: Code) {
        if let Some((follower, node)) = self.follower.take() {
            follower.ended(node, status);
        }
    }

    /// Frees a task that the program freed while the device held it, unless it was submitted once more.
    #[cold]
    fn settle(&self) {
        if self.holder.get() == Holder::Program
            && let Ok(owner) = self.owner()
        {
            owner.free(self);
        }
    }
}

/// A task of some kind; C's pointer to it is also one to its head.
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

/// The tasks of one kind that a context has. They stay where they are as long as the context lives.
pub(crate) struct Pool<B> {
    tasks: Box<[Task<B>]>,
    free: RefCell<Vec<u32>>,
}

impl<B> Pool<B> {
    /// A pool of `count` tasks of the context `owner`.
    pub(crate) fn new(count: u32, owner: &Weak<dyn Context>, mut body: impl FnMut() -> B) -> Self {
        let task = |index| Task {
            head: Head {
                mark: Mark::new(Head::MARK),
                index,
                holder: Cell::new(Holder::Pool),
                status: Cell::new(c::DOCA_SUCCESS),
                user_data: Cell::new(c::doca_data { u64_: 0 }),
                owner: owner.clone(),
                follower: RefCell::new(None),
            },
            body: body(),
        };
        Self { tasks: (0..count).map(task).collect(), free: RefCell::new((0..count).rev().collect()) }
    }

    /// A task, now the program's; `None` if all are taken.
    pub(crate) fn take(&self, user_data: c::doca_data) -> Option<&Task<B>> {
        let task = &self.tasks[self.free.borrow_mut().pop()? as usize];
        task.head.user_data.set(user_data);
        task.head.status.set(c::DOCA_SUCCESS);
        task.head.holder.set(Holder::Program);
        Some(task)
    }

    /// Puts a task of this pool, which the device must not hold, back.
    pub(crate) fn put(&self, head: &Head) {
        if head.holder.replace(Holder::Pool) != Holder::Pool {
            self.free.borrow_mut().push(head.index);
        }
    }

    /// The task that begins with this head, if it is of this pool.
    #[inline]
    pub(crate) fn find(&self, head: &Head) -> Option<&Task<B>> {
        self.tasks.get(head.index as usize).filter(|task| std::ptr::eq(&task.head, head))
    }

    /// The task at this place.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&Task<B>> {
        self.tasks.get(index as usize)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// How many are not in the pool.
    pub(crate) fn taken(&self) -> usize {
        self.tasks.len() - self.free.borrow().len()
    }
}

#[inline]
fn submit(task: Handle<Head>, how: Submit) -> Code {
    answer(|| {
        let task = task.get()?;
        require(task.holder.get() == Holder::Program, c::DOCA_ERROR_BAD_STATE)?;
        task.owner()?.submit(task, how)
    })
}

/// Hands a task to its context and rings the doorbell. On an error the task stays the program's.
#[unsafe(no_mangle)]
extern "C" fn doca_task_submit(task: Handle<Head>) -> Code {
    submit(task, Submit { flush: true, coalesce: false, validate: false })
}

/// Hands a task to its context, with flags: any other bits are an invalid value.
#[unsafe(no_mangle)]
extern "C" fn doca_task_submit_ex(task: Handle<Head>, flags: u32) -> Code {
    if flags & !(c::DOCA_TASK_SUBMIT_FLAG_FLUSH | c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS) != 0 {
        return c::DOCA_ERROR_INVALID_VALUE;
    }
    submit(
        task,
        Submit {
            flush: flags & c::DOCA_TASK_SUBMIT_FLAG_FLUSH != 0,
            coalesce: flags & c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS != 0,
            validate: false,
        },
    )
}

/// As `doca_task_submit`, and finds mistakes in the task before the device does.
#[unsafe(no_mangle)]
extern "C" fn doca_task_try_submit(task: Handle<Head>) -> Code {
    submit(task, Submit { flush: true, coalesce: false, validate: true })
}

/// Puts a task back into its pool; one that the device holds, when it has ended and the program was told.
#[unsafe(no_mangle)]
extern "C" fn doca_task_free(task: Handle<Head>) {
    let _ = answer(|| {
        let task = task.get()?;
        match task.holder.get() {
            Holder::Program => task.owner()?.free(task),
            Holder::Device => task.holder.set(Holder::Freed),
            Holder::Freed | Holder::Graph | Holder::Pool => {}
        }
        Ok(())
    });
}

/// How the task ended the last time; success if it never did.
#[unsafe(no_mangle)]
extern "C" fn doca_task_get_status(task: Handle<Head>) -> Code {
    task.get().map_or_else(|code| code, |task| task.status.get())
}

/// Sets what callbacks are given with the task.
#[unsafe(no_mangle)]
extern "C" fn doca_task_set_user_data(task: Handle<Head>, user_data: c::doca_data) {
    if let Ok(task) = task.get() {
        task.user_data.set(user_data);
    }
}

/// What callbacks are given with the task; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_task_get_user_data(task: Handle<Head>) -> c::doca_data {
    task.get().map_or(c::doca_data { u64_: 0 }, |task| task.user_data.get())
}

/// The context that the task is of, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_task_get_ctx(task: Handle<Head>) -> *mut c::doca_ctx {
    let owner = task.get().and_then(Head::owner);
    owner.map_or(std::ptr::null_mut(), |owner| Handle::of(owner.ctx()).cast())
}

// No context of these headers makes batches, so there is no batch that could be passed.

fn no_batch(batch: *const c::doca_task_batch) -> Code {
    if batch.is_null() { c::DOCA_ERROR_INVALID_VALUE } else { c::DOCA_ERROR_NOT_SUPPORTED }
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_submit(batch: *const c::doca_task_batch) -> Code {
    no_batch(batch)
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_try_submit(batch: *const c::doca_task_batch) -> Code {
    no_batch(batch)
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_free(_batch: *const c::doca_task_batch) {}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_get_status(batch: *const c::doca_task_batch) -> Code {
    no_batch(batch)
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_set_user_data(_batch: *const c::doca_task_batch, _user_data: c::doca_data) {}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_get_user_data(_batch: *const c::doca_task_batch) -> c::doca_data {
    c::doca_data { u64_: 0 }
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_get_ctx(_batch: *const c::doca_task_batch) -> *mut c::doca_ctx {
    std::ptr::null_mut()
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_get_ctx_user_data(_batch: *const c::doca_task_batch) -> c::doca_data {
    c::doca_data { u64_: 0 }
}

/// There are no batches of these tasks.
#[unsafe(no_mangle)]
extern "C" fn doca_task_batch_get_tasks_num(_batch: *const c::doca_task_batch) -> u16 {
    0
}
