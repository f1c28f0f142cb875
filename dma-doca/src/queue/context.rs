//! A DMA context on a progress engine of its own.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

use std::cell::Cell;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use dma_core::{Completion, ErrorKind, Result, Segment};
use doca_sys::bindings::*;

use super::done::Done;
use crate::buffers::{Bound, Shortage};
use crate::device::Device;
use crate::error::{check, error, failed};
use crate::ffi::{Sdk, creation, out};

/// Time limit for a context to start, and to become idle after an error before it is started again.
pub(super) const RESTART_TIMEOUT: Duration = Duration::from_secs(5);

type SetData = unsafe extern "C" fn(*mut doca_buf, *mut std::ffi::c_void, usize) -> doca_error_t;

/// A DMA context, its progress engine, and the state of its callbacks.
pub(super) struct DmaContext {
    pub(super) device: Arc<Device>,
    pe: *mut doca_pe,
    dma: *mut doca_dma,
    ctx: *mut doca_ctx,
    depth: u32,
    /// Each slot's task; null for a slot without a task.
    tasks: Box<[Cell<*mut doca_dma_task_memcpy>]>,
    pub(super) done: SharedUserData,
    handle: Option<i32>,
    set_data: SetData,
    submit_ex: Option<unsafe extern "C" fn(*mut doca_task, u32) -> doca_error_t>,
    submit: unsafe extern "C" fn(*mut doca_task) -> doca_error_t,
    progress: unsafe extern "C" fn(*mut doca_pe) -> u8,
}

impl fmt::Debug for DmaContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaContext").field("pe", &self.pe).field("dma", &self.dma).finish_non_exhaustive()
    }
}

/// The context's user data, which callbacks get. It is boxed, and only shared references to it exist.
#[derive(Debug)]
pub(super) struct UserData {
    sdk: Sdk,
    ctx: *mut doca_ctx,
    done: Done,
}

/// The owner of the [`UserData`] that callbacks also use.
pub(super) struct SharedUserData {
    data: NonNull<UserData>,
    keep: bool,
}

impl std::ops::Deref for SharedUserData {
    type Target = Done;

    #[inline]
    fn deref(&self) -> &Done {
        // SAFETY: `start` allocated the data, and this value's drop frees it. No mutable reference to it
        // exists.
        unsafe { &(*self.data.as_ptr()).done }
    }
}

impl Drop for SharedUserData {
    fn drop(&mut self) {
        if !self.keep {
            // SAFETY: the pointer was made from a box that this value owns. The context, whose callbacks use
            // the data, is destroyed; otherwise `keep` is set.
            drop(unsafe { Box::from_raw(self.data.as_ptr()) });
        }
    }
}

impl DmaContext {
    /// Creates and starts a context for `depth` tasks.
    pub(super) fn start(device: &Arc<Device>, depth: u32) -> Result<Self> {
        let sdk = &device.sdk;
        let (common, calls) = (&sdk.common, &sdk.dma);
        let _serial = creation();
        // SAFETY: `out` passes a pointer that can be written.
        let pe = out(sdk, "doca_pe_create", std::ptr::null_mut(), |p| unsafe { (common.doca_pe_create)(p) })?;
        // SAFETY: the device is open, and `out` passes a pointer that can be written.
        let dma = out(sdk, "doca_dma_create", std::ptr::null_mut(), |p| unsafe {
            (calls.doca_dma_create)(device.raw(), p)
        });
        let dma = dma.inspect_err(|_| {
            // SAFETY: the progress engine was created above, has no contexts, and is not used again.
            unsafe { (common.doca_pe_destroy)(pe) };
        })?;
        // SAFETY: the DMA context was created above, and is not destroyed.
        let ctx = unsafe { (calls.doca_dma_as_ctx)(dma) };
        let data = Box::new(UserData { sdk: Sdk::clone(sdk), ctx, done: Done::new(depth) });
        let mut context = Self {
            device: Arc::clone(device),
            pe,
            dma,
            ctx,
            depth,
            tasks: (0..depth).map(|_| Cell::new(std::ptr::null_mut())).collect(),
            done: SharedUserData { data: NonNull::from(Box::leak(data)), keep: false },
            handle: None,
            set_data: common.doca_buf_set_data,
            submit_ex: common.doca_task_submit_ex,
            submit: common.doca_task_submit,
            progress: common.doca_pe_progress,
        };
        match context.connect().and_then(|()| context.run()) {
            Ok(()) => {
                context.handle = context.notification();
                Ok(context)
            }
            Err(e) => {
                if let Err(also) = context.destroy_locked() {
                    context.leak();
                    dma_core::deferred_log!(error, target: "doca", error = %also, "a context is leaked");
                }
                Err(e)
            }
        }
    }

    fn connect(&self) -> Result<()> {
        let sdk = &self.device.sdk;
        let user = doca_data { ptr: self.done.data.as_ptr().cast() };
        // SAFETY: the context is not started. The user data outlives it, or is leaked with it.
        let code = unsafe { (sdk.common.doca_ctx_set_user_data)(self.ctx, user) };
        check(sdk, "doca_ctx_set_user_data", code)?;
        // SAFETY: the context is idle, and the functions have the signature that the call requires.
        let code = unsafe {
            (sdk.dma.doca_dma_task_memcpy_set_conf)(
                self.dma,
                Some(completed),
                Some(not_completed),
                self.depth,
            )
        };
        check(sdk, "doca_dma_task_memcpy_set_conf", code)?;
        // SAFETY: both objects were created by `start`, and neither is connected.
        let code = unsafe { (sdk.common.doca_pe_connect_ctx)(self.pe, self.ctx) };
        check(sdk, "doca_pe_connect_ctx", code)
    }

    /// Starts the context, which must be idle.
    pub(super) fn run(&self) -> Result<()> {
        let sdk = &self.device.sdk;
        // SAFETY: the context exists and is configured, and the user data for its callbacks outlives it.
        match unsafe { (sdk.common.doca_ctx_start)(self.ctx) } {
            DOCA_SUCCESS => Ok(()),
            DOCA_ERROR_IN_PROGRESS => {
                let until = std::time::Instant::now() + RESTART_TIMEOUT;
                while self.state() == DOCA_CTX_STATE_STARTING && std::time::Instant::now() < until {
                    self.progress_once();
                }
                match self.state() {
                    DOCA_CTX_STATE_RUNNING => Ok(()),
                    _ => Err(failed(sdk, "doca_ctx_start", DOCA_ERROR_TIME_OUT)),
                }
            }
            code => Err(failed(sdk, "doca_ctx_start", code)),
        }
    }

    /// Returns the state of the context.
    pub(super) fn state(&self) -> doca_ctx_states {
        state_of(&self.device.sdk, self.ctx)
    }

    /// Sets the data of two buffers, each of which spans a whole region, to `src` and `dst`. Returns the code
    /// of the first call that fails, or success.
    #[inline]
    pub(super) fn set_addresses(
        &self,
        from: *mut doca_buf,
        to: *mut doca_buf,
        src: &Segment,
        dst: &Segment,
    ) -> doca_error_t {
        // SAFETY: no task in flight uses this buffer of the queue, and the segment is within the buffer's
        // region.
        let code = unsafe { (self.set_data)(from, src.addr.as_ptr().cast(), src.len) };
        if code != DOCA_SUCCESS {
            return code;
        }
        // The device appends to the data, so its length is 0.
        // SAFETY: no task in flight uses this buffer of the queue, and the segment is within the buffer's
        // region.
        unsafe { (self.set_data)(to, dst.addr.as_ptr().cast(), 0) }
    }

    /// Sets the buffers of a slot's task, which is created on first use.
    pub(super) fn set(&self, bound: &mut Bound, slot: u32) -> Result<(), Shortage> {
        let (sdk, calls) = (&self.device.sdk, &self.device.sdk.dma);
        let memcpy = &self.tasks[slot as usize];
        if !bound.task.is_null() {
            // SAFETY: the slot's task belongs to this context and is not in flight, and the slot holds the
            // buffer until the task has ended.
            unsafe { (calls.doca_dma_task_memcpy_set_src)(memcpy.get(), bound.src) };
            // SAFETY: the slot's task belongs to this context and is not in flight, and the slot holds the
            // buffer until the task has ended.
            unsafe { (calls.doca_dma_task_memcpy_set_dst)(memcpy.get(), bound.dst) };
            return Ok(());
        }
        let user = doca_data { u64_: u64::from(slot) };
        let name = "doca_dma_task_memcpy_alloc_init";
        // SAFETY: the context exists, the slot holds both buffers until the task has ended, and the pointer
        // can be written.
        let made = out(sdk, name, std::ptr::null_mut(), |p| unsafe {
            (calls.doca_dma_task_memcpy_alloc_init)(self.dma, bound.src, bound.dst, user, p)
        });
        memcpy.set(made.map_err(Shortage::Error)?);
        // SAFETY: the task was created above, and is not freed.
        bound.task = unsafe { (calls.doca_dma_task_memcpy_as_task)(memcpy.get()) };
        Ok(())
    }

    /// Submits a task.
    #[inline]
    pub(super) fn submit(&self, task: *mut doca_task, flags: u32) -> doca_error_t {
        match self.submit_ex {
            // SAFETY: the task belongs to this context and is not in flight. Its buffers are held until it
            // has ended.
            Some(submit) => unsafe { submit(task, flags) },
            // This older call rings the doorbell each time.
            // SAFETY: the task belongs to this context and is not in flight. Its buffers are held until it
            // has ended.
            None => unsafe { (self.submit)(task) },
        }
    }

    /// Rings the doorbell for tasks that were submitted without a doorbell. `false` if the library lacks
    /// the call.
    pub(super) fn flush(&self) -> bool {
        let Some(flush) = self.device.sdk.common.doca_ctx_flush_tasks else { return false };
        // SAFETY: the context was created by `start`, and is not destroyed before this value is dropped.
        unsafe { flush(self.ctx) };
        true
    }

    /// Makes progress until no work is left or `completions` is full. Returns the number of completions.
    #[inline]
    pub(super) fn progress(&self, completions: &mut [Completion]) -> usize {
        self.done.run(completions, || self.progress_once())
    }

    /// Makes one progress call. Outside of [`progress`](Self::progress), completions are queued for the
    /// next poll.
    #[inline]
    pub(super) fn progress_once(&self) -> bool {
        // SAFETY: the progress engine belongs to this context, and one thread at a time uses it.
        unsafe { (self.progress)(self.pe) != 0 }
    }

    /// Asks the context to stop. Tasks in flight fail during later progress.
    pub(super) fn stop(&self) {
        // The code is ignored. It is IN_PROGRESS until all tasks have ended, or an error if the context is
        // stopping or stopped.
        // SAFETY: the context was created by `start`, and is not destroyed before this value is dropped.
        unsafe { (self.device.sdk.common.doca_ctx_stop)(self.ctx) };
    }

    /// Frees a slot's task, if the slot has one. The task must not be in flight.
    pub(super) fn free(&self, bound: &mut Bound) {
        let task = std::mem::replace(&mut bound.task, std::ptr::null_mut());
        if !task.is_null() {
            // SAFETY: the task is not in flight, and is not used again.
            unsafe { (self.device.sdk.common.doca_task_free)(task) };
        }
    }

    fn notification(&self) -> Option<i32> {
        let common = &self.device.sdk.common;
        // Notifications need all three calls.
        let (get, _, _) = (
            common.doca_pe_get_notification_handle?,
            common.doca_pe_request_notification?,
            common.doca_pe_clear_notification?,
        );
        // SAFETY: the progress engine exists as long as this value, and `out` passes a pointer that can be
        // written.
        let handle = out(&self.device.sdk, "", -1, |p| unsafe { get(self.pe, p) }).ok()?;
        (handle >= 0).then_some(handle)
    }

    /// Returns the descriptor that signals completions after [`arm`](Self::arm), if the library has one.
    pub(super) fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is not -1, and is open as long as the progress engine exists.
        self.handle.map(|handle| unsafe { BorrowedFd::borrow_raw(handle) })
    }

    /// Makes the next completion signal the descriptor. Returns false if there may be completions already.
    pub(super) fn arm(&self) -> Result<bool> {
        let sdk = &self.device.sdk;
        let Some(request) = sdk.common.doca_pe_request_notification else {
            return Err(error(ErrorKind::Unsupported, "the library has no notifications"));
        };
        // SAFETY: the progress engine exists as long as this value.
        let code = unsafe { request(self.pe) };
        check(sdk, "doca_pe_request_notification", code)?;
        // Events before the request may not signal the descriptor.
        if self.progress_once() || self.done.has_late() {
            self.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    /// Clears the signal of the descriptor.
    pub(super) fn disarm(&self) {
        if let (Some(handle), Some(clear)) = (self.handle, self.device.sdk.common.doca_pe_clear_notification)
        {
            // SAFETY: `handle` is the notification handle of this progress engine, which exists as long as
            // this value.
            unsafe { clear(self.pe, handle) };
        }
    }

    /// Destroys the context and its progress engine. The context must be idle and have no tasks.
    pub(super) fn destroy(&self) -> Result<()> {
        let _serial = creation();
        self.destroy_locked()
    }

    fn destroy_locked(&self) -> Result<()> {
        let sdk = &self.device.sdk;
        // SAFETY: the context is idle and has no tasks, and is not used again.
        check(sdk, "doca_dma_destroy", unsafe { (sdk.dma.doca_dma_destroy)(self.dma) })?;
        // SAFETY: the progress engine has no contexts, and is not used again.
        check(sdk, "doca_pe_destroy", unsafe { (sdk.common.doca_pe_destroy)(self.pe) })
    }
}

impl DmaContext {
    /// Makes the drop leak the user data, because callbacks may still run.
    pub(super) const fn leak(&mut self) {
        self.done.keep = true;
    }
}

fn state_of(sdk: &Sdk, ctx: *mut doca_ctx) -> doca_ctx_states {
    let mut state = DOCA_CTX_STATE_IDLE;
    // SAFETY: the context exists, and the pointer can be written.
    let code = unsafe { (sdk.common.doca_ctx_get_state)(ctx, &raw mut state) };
    // This never fails for a valid context. A failure is treated as a stop.
    if code == DOCA_SUCCESS { state } else { DOCA_CTX_STATE_STOPPING }
}

/// Returns the [`UserData`] of a context.
///
/// # Safety
///
/// `user` is the user data that `connect` has set, and the reference is not used after the context was
/// destroyed.
unsafe fn user_data<'a>(user: doca_data) -> &'a UserData {
    // SAFETY: `connect` set the user data to a pointer.
    let data = unsafe { user.ptr }.cast::<UserData>();
    // SAFETY: the pointer is to the context's `UserData`, which outlives the context.
    unsafe { &*data }
}

unsafe extern "C" fn completed(_: *mut doca_dma_task_memcpy, task: doca_data, ctx: doca_data) {
    // SAFETY: the library passes the user data of the context, which `connect` has set.
    let data = unsafe { user_data(ctx) };
    // SAFETY: the union holds the number that `set` stored, and all of its bytes are initialized.
    data.done.end(unsafe { task.u64_ } as u32);
}

unsafe extern "C" fn not_completed(memcpy: *mut doca_dma_task_memcpy, task: doca_data, ctx: doca_data) {
    // SAFETY: the library passes the user data of the context, which `connect` has set.
    let data = unsafe { user_data(ctx) };
    // SAFETY: the library passes the task that failed, which is not freed yet.
    let base = unsafe { (data.sdk.dma.doca_dma_task_memcpy_as_task)(memcpy) };
    // SAFETY: this is the task that the library passed to this callback, which is not freed yet.
    let status = unsafe { (data.sdk.common.doca_task_get_status)(base) };
    let running = state_of(&data.sdk, data.ctx) == DOCA_CTX_STATE_RUNNING;
    // SAFETY: the union holds the number that `set` stored, and all of its bytes are initialized.
    data.done.fail(unsafe { task.u64_ } as u32, status, running);
}
