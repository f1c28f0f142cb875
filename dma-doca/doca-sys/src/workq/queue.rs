//! Progress engines, DMA contexts and tasks, implemented by contexts, work queues and jobs.
//!
//! A job that fails stops its context, as a failed task of later versions does: later jobs may not have run,
//! and only a restart clears a device's error. When all jobs of a stopping context have ended and its tasks
//! are freed, its work queue is removed and the library's context is stopped. The context is then idle.
#![expect(unsafe_code, reason = "calls C with handles that it gave out")]

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use super::bindings::{
    DOCA_DMA_JOB_MEMCPY, DOCA_JOB_FLAGS_NONE, doca_dma_job_memcpy, doca_event, doca_job, doca_workq,
};
use super::{NO_FLAGS, calls};
use crate::bindings::*;

type Callback = unsafe extern "C" fn(*mut doca_dma_task_memcpy, doca_data, doca_data);

unsafe extern "C" fn ignore(_: *mut doca_dma_task_memcpy, _: doca_data, _: doca_data) {}

const NO_TASK: doca_data = doca_data { ptr: ptr::null_mut() };

/// A progress engine, to which the caller's handle `doca_pe` points. It serves one context.
struct ProgressEngine {
    dma: Cell<*const Context>,
}

/// A DMA context, to which the caller's handles `doca_dma` and `doca_ctx` point.
struct Context {
    raw: *mut doca_dma,
    dev: *mut doca_dev,
    /// The work queue, which is created at the first start, for `depth` jobs.
    workq: Cell<*mut doca_workq>,
    depth: Cell<u32>,
    completed: Cell<Callback>,
    failed: Cell<Callback>,
    user_data: Cell<doca_data>,
    state: Cell<doca_ctx_states>,
    /// Set if the work queue has an event handle.
    events: Cell<bool>,
    in_flight: Cell<u32>,
    tasks: Cell<u32>,
    /// Buffer for an event. The event's user data is the address of a task. It is NULL unless the library has
    /// just written it.
    event: UnsafeCell<doca_event>,
    submit: unsafe extern "C" fn(*mut doca_workq, *const doca_job) -> doca_error_t,
    retrieve: unsafe extern "C" fn(*mut doca_workq, *mut doca_event, std::ffi::c_int) -> doca_error_t,
}

/// A task, to which the caller's handles `doca_dma_task_memcpy` and `doca_task` point. A job's user data is
/// the address of its task.
#[repr(C)]
struct Task {
    job: doca_dma_job_memcpy,
    owner: *const Context,
    user_data: doca_data,
    status: doca_error_t,
}

/// Returns the object behind a handle.
///
/// # Safety
///
/// This module returned the handle for a `T`, and the object was not destroyed.
#[inline]
unsafe fn of<'a, T>(handle: *const impl Sized) -> &'a T {
    // SAFETY: the caller passes a handle of a `T` that was not destroyed, and this module makes only shared
    // references to such objects.
    unsafe { &*handle.cast::<T>() }
}

/// Returns the context that a progress engine serves.
///
/// # Safety
///
/// See [`of`]. A context was connected to the engine, and was not destroyed.
#[inline]
unsafe fn served<'a>(pe: *const doca_pe) -> &'a Context {
    // SAFETY: the caller passes the handle of a progress engine that was not destroyed.
    let engine = unsafe { of::<ProgressEngine>(pe) };
    // SAFETY: the caller promises that the engine is connected to a context that was not destroyed.
    unsafe { of(engine.dma.get()) }
}

impl Context {
    fn ctx(&self) -> *mut doca_ctx {
        // SAFETY: the DMA context is the library's, and exists as long as this value.
        unsafe { (calls().dma.doca_dma_as_ctx)(self.raw) }
    }

    fn start(&self) -> doca_error_t {
        let common = &calls().common;
        // SAFETY: the context is the library's, and is not started.
        let code = unsafe { (common.doca_ctx_start)(self.ctx()) };
        if code != DOCA_SUCCESS {
            return code;
        }
        let mut code = DOCA_SUCCESS;
        if self.workq.get().is_null() {
            code = self.create_workq();
        }
        if code == DOCA_SUCCESS {
            // SAFETY: the context and the work queue are the library's, and the work queue belongs to no
            // context.
            code = unsafe { (common.doca_ctx_workq_add)(self.ctx(), self.workq.get()) };
        }
        if code == DOCA_SUCCESS {
            self.state.set(DOCA_CTX_STATE_RUNNING);
        } else {
            // SAFETY: the context is the library's, and no work queue was added to it.
            unsafe { (common.doca_ctx_stop)(self.ctx()) };
        }
        code
    }

    fn create_workq(&self) -> doca_error_t {
        let common = &calls().common;
        let mut workq = ptr::null_mut();
        // SAFETY: `workq` is a local variable for the handle.
        let code = unsafe { (common.doca_workq_create)(self.depth.get(), &raw mut workq) };
        if code != DOCA_SUCCESS {
            return code;
        }
        self.workq.set(workq);
        let mut supported = 0;
        if let Some(ask) = common.doca_ctx_get_event_driven_supported {
            // SAFETY: the context is the library's, and the result can be written.
            let code = unsafe { ask(self.ctx(), &raw mut supported) };
            supported *= u8::from(code == DOCA_SUCCESS);
        }
        if let (Some(enable), true) = (common.doca_workq_set_event_driven_enable, supported != 0) {
            // SAFETY: the work queue was created above, and belongs to no context yet. Only then can events
            // be enabled.
            self.events.set(unsafe { enable(workq, 1) } == DOCA_SUCCESS);
        }
        DOCA_SUCCESS
    }

    /// Makes a stopping context idle if nothing is in flight and all tasks are freed.
    #[inline(never)]
    fn rest(&self) -> bool {
        if self.state.get() != DOCA_CTX_STATE_STOPPING || self.in_flight.get() > 0 || self.tasks.get() > 0 {
            return false;
        }
        let common = &calls().common;
        // SAFETY: the context and the work queue are the library's, and no job is in flight.
        let code = unsafe { (common.doca_ctx_workq_rm)(self.ctx(), self.workq.get()) };
        // An earlier attempt may have removed the work queue, and then failed to stop the context.
        if code != DOCA_SUCCESS && code != DOCA_ERROR_NOT_FOUND {
            return false;
        }
        // SAFETY: the context is the library's, and its only work queue was removed.
        if unsafe { (common.doca_ctx_stop)(self.ctx()) } != DOCA_SUCCESS {
            return false;
        }
        self.state.set(DOCA_CTX_STATE_IDLE);
        true
    }

    fn stop_running(&self) {
        if self.state.get() == DOCA_CTX_STATE_RUNNING {
            self.state.set(DOCA_CTX_STATE_STOPPING);
        }
    }

    /// Retrieves an event, or completes a stop. Returns true if there was an event or the stop was completed.
    #[inline]
    fn progress(&self) -> bool {
        if self.in_flight.get() == 0 {
            return self.rest();
        }
        let event = self.event.get();
        // SAFETY: the work queue is the library's, and no reference to the event exists while the library
        // writes it.
        let code = unsafe { (self.retrieve)(self.workq.get(), event, NO_FLAGS) };
        // SAFETY: the context owns the event, and no other reference to it exists.
        let address = std::mem::replace(unsafe { &mut (*event).user_data }, NO_TASK);
        // SAFETY: the user data is the address that `task_alloc_init` stored, or NULL.
        let task = unsafe { address.ptr }.cast::<Task>();
        if code != DOCA_SUCCESS || task.is_null() {
            return self.other_event(code, task);
        }
        self.in_flight.set(self.in_flight.get() - 1);
        // SAFETY: the job was submitted from this task, which is not freed while it is in flight.
        let user_data = unsafe { (*task).user_data };
        // SAFETY: the program set this callback for tasks of this context, and the task and both user data
        // are those that the program passed.
        unsafe { (self.completed.get())(task.cast(), user_data, self.user_data.get()) };
        true
    }

    /// Handles all results except the success of a task. This is a separate function, because these results
    /// need more CPU registers than a success.
    #[inline(never)]
    fn other_event(&self, code: doca_error_t, task: *mut Task) -> bool {
        if code == DOCA_ERROR_AGAIN {
            return false;
        }
        if !matches!(code, DOCA_SUCCESS | DOCA_ERROR_IO_FAILED) || task.is_null() {
            // The queue itself has failed. The next submission returns the error.
            self.stop_running();
            return false;
        }
        self.in_flight.set(self.in_flight.get() - 1);
        // SAFETY: the job was submitted from this task, which is not freed while it is in flight.
        let user_data = unsafe { (*task).user_data };
        if code != DOCA_SUCCESS {
            // SAFETY: the context owns the event, and no other reference to it exists.
            let result = unsafe { (*self.event.get()).result };
            // SAFETY: the result of a copy is a number, and the library has written it.
            let result = unsafe { result.u64_ } as doca_error_t;
            // SAFETY: the task belongs to this context and has ended, and no reference to it exists.
            unsafe { (*task).status = if result == DOCA_SUCCESS { DOCA_ERROR_IO_FAILED } else { result } };
            // SAFETY: the program set this callback for tasks of this context, and the task and both user
            // data are those that the program passed.
            unsafe { (self.failed.get())(task.cast(), user_data, self.user_data.get()) };
            self.stop_running();
        }
        true
    }
}

pub(super) unsafe extern "C" fn pe_create(pe: *mut *mut doca_pe) -> doca_error_t {
    let engine = Box::new(ProgressEngine { dma: Cell::new(ptr::null()) });
    // SAFETY: the caller passes a pointer to which the handle can be written.
    unsafe { pe.write(Box::into_raw(engine).cast()) };
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn pe_destroy(pe: *mut doca_pe) -> doca_error_t {
    // SAFETY: `pe_create` made the object, and the caller does not use the handle again.
    drop(unsafe { Box::from_raw(pe.cast::<ProgressEngine>()) });
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn pe_connect_ctx(pe: *mut doca_pe, ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: the caller passes the handle of a progress engine.
    unsafe { of::<ProgressEngine>(pe) }.dma.set(ctx.cast());
    DOCA_SUCCESS
}

#[inline]
pub(super) unsafe extern "C" fn pe_progress(pe: *mut doca_pe) -> u8 {
    // SAFETY: the caller passes the handle of a connected progress engine, whose context is not destroyed.
    unsafe { served(pe) }.progress().into()
}

pub(super) unsafe extern "C" fn pe_get_notification_handle(
    pe: *const doca_pe,
    handle: *mut doca_notification_handle_t,
) -> doca_error_t {
    // SAFETY: the caller passes the handle of a connected progress engine, whose context is not destroyed.
    let context = unsafe { served(pe) };
    match calls().common.doca_workq_get_event_handle {
        // SAFETY: the work queue is the library's, and the caller passes a pointer that can be written.
        Some(get) if context.events.get() => unsafe { get(context.workq.get(), handle) },
        _ => DOCA_ERROR_NOT_SUPPORTED,
    }
}

pub(super) unsafe extern "C" fn pe_request_notification(pe: *mut doca_pe) -> doca_error_t {
    // SAFETY: the caller passes the handle of a connected progress engine, whose context is not destroyed.
    let context = unsafe { served(pe) };
    match calls().common.doca_workq_event_handle_arm {
        // SAFETY: the work queue is the library's.
        Some(arm) => unsafe { arm(context.workq.get()) },
        None => DOCA_ERROR_NOT_SUPPORTED,
    }
}

pub(super) unsafe extern "C" fn pe_clear_notification(
    pe: *mut doca_pe,
    handle: doca_notification_handle_t,
) -> doca_error_t {
    // SAFETY: the caller passes the handle of a connected progress engine, whose context is not destroyed.
    let context = unsafe { served(pe) };
    match calls().common.doca_workq_event_handle_clear {
        // SAFETY: the work queue is the library's, and the caller passes its event handle.
        Some(clear) => unsafe { clear(context.workq.get(), handle) },
        None => DOCA_ERROR_NOT_SUPPORTED,
    }
}

pub(super) unsafe extern "C" fn dma_create(dev: *mut doca_dev, dma: *mut *mut doca_dma) -> doca_error_t {
    let (common, own) = (&calls().common, &calls().dma);
    let mut raw = ptr::null_mut();
    // SAFETY: `raw` is a local variable for the handle.
    let code = unsafe { (own.doca_dma_create)(&raw mut raw) };
    if code != DOCA_SUCCESS {
        return code;
    }
    let context = Context {
        raw,
        dev,
        workq: Cell::new(ptr::null_mut()),
        depth: Cell::new(1),
        completed: Cell::new(ignore),
        failed: Cell::new(ignore),
        user_data: Cell::new(doca_data { u64_: 0 }),
        state: Cell::new(DOCA_CTX_STATE_IDLE),
        events: Cell::new(false),
        in_flight: Cell::new(0),
        tasks: Cell::new(0),
        event: UnsafeCell::new(doca_event { type_: 0, user_data: NO_TASK, result: doca_data { u64_: 0 } }),
        submit: common.doca_workq_submit,
        retrieve: common.doca_workq_progress_retrieve,
    };
    // SAFETY: the context is the library's, and the caller passes an open device.
    let code = unsafe { (common.doca_ctx_dev_add)(context.ctx(), dev) };
    if code != DOCA_SUCCESS {
        // SAFETY: the library's context was created above, and is not used again.
        unsafe { (own.doca_dma_destroy)(raw) };
        return code;
    }
    // SAFETY: the caller passes a pointer to which the handle can be written.
    unsafe { dma.write(Box::into_raw(Box::new(context)).cast()) };
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn dma_destroy(dma: *mut doca_dma) -> doca_error_t {
    let (common, own) = (&calls().common, &calls().dma);
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let context = unsafe { of::<Context>(dma) };
    if context.state.get() != DOCA_CTX_STATE_IDLE {
        return DOCA_ERROR_IN_USE;
    }
    let workq = context.workq.get();
    if !workq.is_null() {
        // SAFETY: the work queue was removed from its only context when that became idle.
        let code = unsafe { (common.doca_workq_destroy)(workq) };
        if code != DOCA_SUCCESS {
            return code;
        }
        context.workq.set(ptr::null_mut());
    }
    // A failure here makes the next call fail.
    // SAFETY: the context is stopped, and the device was added to it.
    unsafe { (common.doca_ctx_dev_rm)(context.ctx(), context.dev) };
    // SAFETY: the context is stopped, has no work queues, and is not used again after a success.
    let code = unsafe { (own.doca_dma_destroy)(context.raw) };
    if code == DOCA_SUCCESS {
        // SAFETY: `dma_create` made the object, and neither the handle nor `context` is used again.
        drop(unsafe { Box::from_raw(dma.cast::<Context>()) });
    }
    code
}

pub(super) unsafe extern "C" fn dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx {
    dma.cast()
}

pub(super) unsafe extern "C" fn set_conf(
    dma: *mut doca_dma,
    completed: doca_dma_task_memcpy_completion_cb_t,
    failed: doca_dma_task_memcpy_completion_cb_t,
    tasks: u32,
) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let context = unsafe { of::<Context>(dma) };
    context.depth.set(tasks);
    context.completed.set(completed.unwrap_or(ignore));
    context.failed.set(failed.unwrap_or(ignore));
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn ctx_set_user_data(ctx: *mut doca_ctx, user_data: doca_data) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    unsafe { of::<Context>(ctx) }.user_data.set(user_data);
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn ctx_get_state(
    ctx: *const doca_ctx,
    state: *mut doca_ctx_states,
) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let context = unsafe { of::<Context>(ctx) };
    // SAFETY: the caller passes a pointer that can be written.
    unsafe { state.write(context.state.get()) };
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn ctx_start(ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let context = unsafe { of::<Context>(ctx) };
    if context.state.get() == DOCA_CTX_STATE_IDLE { context.start() } else { DOCA_ERROR_BAD_STATE }
}

pub(super) unsafe extern "C" fn ctx_stop(ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let context = unsafe { of::<Context>(ctx) };
    context.stop_running();
    if context.state.get() == DOCA_CTX_STATE_IDLE || context.rest() {
        DOCA_SUCCESS
    } else {
        DOCA_ERROR_IN_PROGRESS
    }
}

pub(super) unsafe extern "C" fn task_alloc_init(
    dma: *mut doca_dma,
    src: *const doca_buf,
    dst: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_dma_task_memcpy,
) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let context = unsafe { of::<Context>(dma) };
    context.tasks.set(context.tasks.get() + 1);
    let base = doca_job {
        type_: DOCA_DMA_JOB_MEMCPY as i32,
        flags: DOCA_JOB_FLAGS_NONE as i32,
        ctx: context.ctx(),
        user_data: doca_data { u64_: 0 },
    };
    let job = doca_dma_job_memcpy { base, dst_buff: dst, src_buff: src };
    let made = Box::into_raw(Box::new(Task { job, owner: context, user_data, status: DOCA_SUCCESS }));
    // SAFETY: the object was made above, and no other code has the pointer yet.
    unsafe { (*made).job.base.user_data = doca_data { ptr: made.cast() } };
    // SAFETY: the caller passes a pointer to which the handle can be written.
    unsafe { task.write(made.cast()) };
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn memcpy_as_task(task: *mut doca_dma_task_memcpy) -> *mut doca_task {
    task.cast()
}

pub(super) unsafe extern "C" fn set_src(task: *mut doca_dma_task_memcpy, src: *const doca_buf) {
    // SAFETY: the caller passes a valid task. It is not in flight, so nothing else accesses it.
    unsafe { (*task.cast::<Task>()).job.src_buff = src };
}

pub(super) unsafe extern "C" fn set_dst(task: *mut doca_dma_task_memcpy, dst: *mut doca_buf) {
    // SAFETY: the caller passes a valid task. It is not in flight, so nothing else accesses it.
    unsafe { (*task.cast::<Task>()).job.dst_buff = dst };
}

pub(super) unsafe extern "C" fn task_get_status(task: *const doca_task) -> doca_error_t {
    // SAFETY: the caller passes a task of this module that was not freed, and nothing writes it now.
    unsafe { (*task.cast::<Task>()).status }
}

pub(super) unsafe extern "C" fn task_free(task: *mut doca_task) {
    // SAFETY: `task_alloc_init` made the object. The task is not in flight, and the caller does not use the
    // handle again.
    let task = unsafe { Box::from_raw(task.cast::<Task>()) };
    // SAFETY: a context outlives its tasks, and only shared references to it exist.
    let context = unsafe { &*task.owner };
    context.tasks.set(context.tasks.get() - 1);
}

/// Submits the task's job. The library reports a full work queue as `NO_MEMORY`, which becomes `AGAIN`.
pub(super) unsafe extern "C" fn task_submit(task: *mut doca_task) -> doca_error_t {
    let task = task.cast::<Task>();
    // SAFETY: the caller passes a task of this module that was not freed and is not in flight.
    let owner = unsafe { (*task).owner };
    // SAFETY: a context outlives its tasks, and only shared references to it exist.
    let context = unsafe { &*owner };
    if context.state.get() != DOCA_CTX_STATE_RUNNING {
        return DOCA_ERROR_BAD_STATE;
    }
    // SAFETY: the work queue is the library's. The task begins with the job, and neither it nor its buffers
    // are freed before the job has ended.
    match unsafe { (context.submit)(context.workq.get(), task.cast()) } {
        DOCA_SUCCESS => {
            context.in_flight.set(context.in_flight.get() + 1);
            DOCA_SUCCESS
        }
        DOCA_ERROR_NO_MEMORY => DOCA_ERROR_AGAIN,
        code => code,
    }
}
