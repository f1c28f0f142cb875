//! `doca_dma.h`: copies by the device.
#![expect(unsafe_code, reason = "functions that C calls by name")]

#[cfg(workq)]
mod jobs;
mod queue;

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use dma_sim::model::Segment;
use queue::{End, Queue, Report, Staged};

use crate::buf::{Buf, unpin};
use crate::c_abi::{Code, Handle, INVALID, Mark, Out, Outcome, c, c_calls, getters, object, require};
use crate::card::Limits;
use crate::config::Found;
use crate::ctx::{Context, Ctx, State, as_ctx, destroy};
use crate::dev::{Dev, Info};
use crate::error;
use crate::log::sdk_log;
use crate::pe::Ready;
use crate::task::{Head, Pool, Submit, Task, TaskCallback, Tasks, fields};

/// A DMA context: `struct doca_dma`.
pub(crate) struct Dma {
    mark: Mark,
    ctx: Ctx,
    dev: Arc<Dev>,
    tasks: Tasks<Memcpy>,
    queue: Queue,
}

object!(Dma, 0xd3_a0_00_01);

/// A copy: the fields of `struct doca_dma_task_memcpy` after its head.
#[derive(Default)]
pub(crate) struct Memcpy {
    src: Cell<Handle<Buf>>,
    dst: Cell<Handle<Buf>>,
    /// Length in bytes of the copy that is in flight.
    len: Cell<u64>,
    /// Set if the destination is too small. The model then gets an empty copy, which it fails, because it
    /// does not check the destination's size.
    dest_too_small: Cell<bool>,
}

/// Makes the creation of contexts by several threads at once fail, if the card is configured so.
struct CreationGuard<'a>(Option<&'a Dev>);

impl<'a> CreationGuard<'a> {
    fn begin(dev: &'a Dev) -> Outcome<Self> {
        use std::sync::atomic::Ordering::Relaxed;
        if !dev.card().config.create_contention {
            return Ok(Self(None));
        }
        let before = dev.card().creating.fetch_add(1, Relaxed);
        let creating = Self(Some(dev));
        require(before == 0, c::DOCA_ERROR_NO_MEMORY)?;
        // The sleep gives other threads time to enter this function too.
        std::thread::sleep(std::time::Duration::from_millis(2));
        Ok(creating)
    }
}

impl Drop for CreationGuard<'_> {
    fn drop(&mut self) {
        if let Some(dev) = self.0 {
            dev.card().creating.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Dma {
    fn create(dev: Arc<Dev>) -> Outcome<Rc<Self>> {
        drop(CreationGuard::begin(&dev)?);
        Ok(Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            tasks: Tasks::new(this.clone()),
            queue: Queue::new(Arc::clone(&dev)),
            dev,
        }))
    }

    fn alloc(
        &self,
        src: Handle<Buf>,
        dst: Handle<Buf>,
        user_data: c::doca_data,
    ) -> Outcome<Handle<Task<Memcpy>>> {
        self.ctx.require_running()?;
        self.tasks.alloc(user_data, |copy| {
            copy.src.set(src);
            copy.dst.set(dst);
        })
    }

    /// Returns the error for a mistake in a copy, for submissions that validate the task.
    fn validate(&self, src: &Buf, dst: &Buf, len: u64, room: u64) -> Outcome {
        let sound = src.iter().chain(dst.iter()).all(Buf::is_sound);
        require(sound && len > 0 && len <= room && len <= self.dev.card().limits.max_buf_size, INVALID)?;
        let readable = src.iter().all(|buf| buf.memory().is_some_and(|memory| memory.may_read()));
        let writable = dst.iter().all(|buf| buf.memory().is_some_and(|memory| memory.may_write()));
        require(readable && writable, c::DOCA_ERROR_NOT_PERMITTED)
    }

    #[cold]
    fn tell(&self, end: End, status: Code) {
        let (pci, status) = (&self.dev.function().pci, error::name(status));
        match end {
            End::Failed => sdk_log!(ERROR, "{pci}: a memcpy task failed with {status}, its context stops"),
            _ => sdk_log!(INFO, "{pci}: a memcpy task was flushed"),
        }
    }

    #[inline]
    fn deliver(&self, report: Report) {
        let pool = self.tasks.pool();
        let Some(task) = pool.at(report.task) else { return };
        let body = &task.body;
        self.ctx.on_completion();
        let (src, dst) = (body.src.get(), body.dst.get());
        if report.end == End::Done
            && let Ok(dst) = dst.get()
        {
            dst.copied(&self.dev, body.len.get());
        }
        unpin(src);
        unpin(dst);
        let dest_too_small = report.end == End::Failed && body.dest_too_small.get();
        let status = if dest_too_small { c::DOCA_ERROR_IO_FAILED } else { report.status };
        if status != c::DOCA_SUCCESS {
            self.tell(report.end, status);
        }
        if report.end == End::Flushed {
            // The device stopped the context before it executed this task.
            self.ctx.begin_stop();
        }
        self.tasks.tell(task, status, self.ctx.user_data());
        if report.end == End::Failed {
            self.ctx.begin_stop();
        }
    }
}

impl Context for Dma {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        require(self.dev.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
        self.tasks.require_configured()?;
        let _guard = CreationGuard::begin(&self.dev)?;
        self.queue.open()?;
        self.tasks.prepare();
        Ok(State::Running)
    }

    fn stop(&self) {
        self.queue.stop();
    }

    fn is_drained(&self) -> bool {
        self.tasks.is_drained()
    }

    #[inline]
    fn progress(&self) -> bool {
        if self.ctx.in_flight.get() == 0 {
            return false;
        }
        match self.queue.next() {
            Some(report) => {
                self.deliver(report);
                true
            }
            None => false,
        }
    }

    #[inline]
    fn submit(&self, task: &Head, how: Submit) -> Outcome {
        let pool = self.tasks.borrow();
        let task = pool.find(task).ok_or(INVALID)?;
        let limits = &self.dev.card().limits;
        let in_flight = self.ctx.in_flight.get();
        require(in_flight < limits.queue_depth as usize, c::DOCA_ERROR_AGAIN)?;
        let (src_handle, dst_handle) = (task.body.src.get(), task.body.dst.get());
        let (src, dst) = (src_handle.get()?, dst_handle.get()?);
        require(!src.is_chained() && !dst.is_chained(), INVALID)?;
        let listed = src.next().is_some() || dst.next().is_some();
        let (len, room) = if listed {
            require(src.count().max(dst.count()) <= limits.max_list_len, INVALID)?;
            let sum = |sum: u64, len| sum.saturating_add(len);
            let room = |buf: &Buf| buf.room_on(&self.dev).1;
            (src.iter().map(Buf::data_len).fold(0, sum), dst.iter().map(room).fold(0, sum))
        } else {
            (src.data_len(), dst.room_on(&self.dev).1)
        };
        if how.validate {
            self.validate(src, dst, len, room)?;
        }
        require(limits.over_limit == Found::Engine || len <= limits.max_buf_size, INVALID)?;
        let (mut from, mut to) = (src.source(&self.dev)?, dst.room(&self.dev)?);
        if listed {
            // Every buffer's map must include the device.
            src.iter().try_for_each(|buf| buf.source(&self.dev).map(drop))?;
            dst.iter().try_for_each(|buf| buf.room(&self.dev).map(drop))?;
        }
        task.body.dest_too_small.set(len > room);
        let mut listed = listed;
        if len > room {
            // The copy does not fit. The model gets an empty copy instead, which it fails.
            (from.len, to.len, listed) = (0, 0, false);
        } else {
            to.len = len as usize;
        }
        task.body.len.set(len);
        let staged = Staged { task: task.head.index, from, to, coalesce: how.coalesce, listed };
        self.queue.submit(staged, how.flush, &|task, from, to| lists(&pool, &self.dev, task, from, to))?;
        src.pin();
        dst.pin();
        self.ctx.take(&task.head);
        Ok(())
    }

    fn put(&self, task: &Head) {
        self.tasks.put(task);
    }

    fn flush(&self) {
        let pool = self.tasks.pool();
        self.queue.flush(&|task, from, to| lists(&pool, &self.dev, task, from, to));
    }

    fn ready(&self) -> Ready {
        match self.ctx.in_flight.get() {
            0 if self.ctx.state() == State::Stopping && self.is_drained() => Ready::Now,
            0 => Ready::WhenWoken,
            _ => {
                if let Some(timer) = self.ctx.pe().and_then(|pe| pe.timer()) {
                    self.queue.sleep(&timer);
                }
                self.queue.ready()
            }
        }
    }
}

/// Adds the source and destination segments of a task with lists of buffers to `from` and `to`.
fn lists(pool: &Pool<Memcpy>, dev: &Arc<Dev>, task: u32, from: &mut Vec<Segment>, to: &mut Vec<Segment>) {
    let Some(task) = pool.at(task) else { return };
    let (src, dst) = (task.body.src.get(), task.body.dst.get());
    let (Ok(src), Ok(dst)) = (src.get(), dst.get()) else { return };
    from.extend(src.iter().filter_map(|buf| buf.source(dev).ok()));
    let mut left = task.body.len.get();
    for segment in dst.iter().filter_map(|buf| buf.room(dev).ok()) {
        let len = segment.len.min(left as usize);
        left -= len as u64;
        to.push(Segment { len, ..segment });
    }
}

/// Returns the limits of a function that can copy. Returns `NOT_SUPPORTED` for other functions.
fn limits(info: &Info) -> Outcome<&Limits> {
    require(info.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
    Ok(&info.card.limits)
}

getters! {
    doca_dma_cap_get_max_num_tasks(dma: Dma) -> u32 { dma.dev.card().limits.max_tasks }
    /// Writes the maximum number of buffers in the source list, and in the destination list, of a copy. 1
    /// means that lists are not supported.
    doca_dma_cap_task_memcpy_get_max_buf_list_len
        | doca_dma_get_max_list_buf_num_elem(info: Info) -> u32 { limits(info)?.max_list_len }
    /// Writes the maximum length of one task's copy, in bytes.
    doca_dma_cap_task_memcpy_get_max_buf_size
        | doca_dma_get_max_buf_size(info: Info) -> u64 { limits(info)?.max_buf_size }
}

#[cfg(not(workq))]
c_calls! {
    fn doca_dma_create(dev: Handle<Dev>, dma: Out<Handle<Dma>>) {
        dma.make(|| Ok(Handle::give_rc(Dma::create(dev.arc()?)?)))
    }
    /// Destroys a DMA context. Returns `IN_USE` unless the context is idle.
    fn doca_dma_destroy(dma: Handle<Dma>) { destroy(dma) }
    fn doca_dma_as_ctx(dma: Handle<Dma>) -> *mut c::doca_ctx { as_ctx(&dma) }
}

c_calls! {
    /// Returns success if the device can copy, otherwise `NOT_SUPPORTED`.
    fn doca_dma_cap_task_memcpy_is_supported(devinfo: Handle<Info>) { limits(devinfo.get()?).map(drop) }
    /// Sets the number of tasks and their callbacks.
    fn doca_dma_task_memcpy_set_conf(
        dma: Handle<Dma>,
        completed: Option<TaskCallback>,
        failed: Option<TaskCallback>,
        tasks: u32,
    ) {
        let dma = dma.get()?;
        dma.ctx().require_idle()?;
        dma.tasks.configure(completed, failed, tasks, 1..=dma.dev.card().limits.max_tasks)
    }
    /// Takes a task. Its buffers may be NULL until the task is submitted.
    fn doca_dma_task_memcpy_alloc_init(
        dma: Handle<Dma>,
        src: Handle<Buf>,
        dst: Handle<Buf>,
        user_data: c::doca_data,
        task: Out<Handle<Task<Memcpy>>>,
    ) {
        task.make(|| dma.get()?.alloc(src, dst, user_data))
    }
    fn doca_dma_task_memcpy_as_task(task: Handle<Task<Memcpy>>) -> *mut c::doca_task { task.cast() }
    /// Selects the order of reports: the order of submission, or the order in which tasks end. DOCA 3.2
    /// introduced this call. Returns `BAD_STATE` unless the context is idle.
    fn doca_dma_set_ordered_completions(dma: Handle<Dma>, enable: u8) {
        let dma = dma.get()?;
        dma.ctx().require_idle()?;
        dma.queue.set_ordered(enable != 0);
        Ok(())
    }
    /// Returns `BAD_STATE`, because the stand-in has no GPU, so no context has its data path on one.
    fn doca_dma_get_gpu_handle(dma: Handle<Dma>, gpu_dma: Out<*mut c::doca_gpu_dma>) {
        dma.get().and(gpu_dma.check()).and(Err(c::DOCA_ERROR_BAD_STATE))
    }
}

fields! {
    Memcpy:
    doca_dma_task_memcpy_set_src, doca_dma_task_memcpy_get_src(src: Handle<Buf>);
    doca_dma_task_memcpy_set_dst, doca_dma_task_memcpy_get_dst(dst: Handle<Buf>);
}
