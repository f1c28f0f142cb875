//! `doca_ctx.h` and `doca_dma.h`: contexts, work queues and their jobs.
//!
//! A work queue has a progress engine of later versions. For each DMA context that the work queue is added
//! to, the engine has a DMA context of later versions, whose tasks are the jobs. Jobs of sync events need no
//! engine: `events.rs` executes them.
#![expect(unsafe_code, reason = "functions that C calls by name, and a callback")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use doca_sys::workq::bindings as old;

use super::events::{self, Ended};
use crate::buf::Buf;
use crate::c_abi::{Code, Handle, INVALID, In, Mark, Out, Outcome, c, c_calls, object, pointer_to, require};
use crate::ctx::Context as _;
use crate::dev::{Dev, Info};
use crate::dma;
use crate::pe::Pe;
use crate::sync_event::{Event, POLL};
use crate::task::Head;

/// Maximum number of contexts that the capability call reports. The stand-in itself has no limit.
const CONTEXTS: u32 = 512;

/// A context: `struct doca_ctx`, and for copies also `struct doca_dma`.
pub(crate) struct Context {
    mark: Mark,
    kind: Kind,
    started: Cell<bool>,
    joined: RefCell<Vec<Joined>>,
}

enum Kind {
    Dma(RefCell<Vec<Arc<Dev>>>),
    /// A weak reference, because the event owns this context.
    Event(Weak<Event>),
}

object!(Context, 0xd3_a1_00_01);

struct Joined {
    queue: *const WorkQueue,
    /// The DMA context of later versions that executes the jobs. `None` for a sync event.
    dma: Option<Rc<dma::Dma>>,
}

impl Drop for Context {
    fn drop(&mut self) {
        self.mark.wipe();
    }
}

/// A work queue: `struct doca_workq`.
pub(super) struct WorkQueue {
    mark: Mark,
    pe: Rc<Pe>,
    depth: Cell<u32>,
    /// Number of jobs that were submitted and not retrieved.
    in_flight: Cell<u32>,
    contexts: Cell<u32>,
    event_driven: Cell<bool>,
    events: RefCell<VecDeque<Ended>>,
    waits: events::Waits,
}

object!(WorkQueue, 0x30_9b_00_01);

/// The first fields of every job.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Base {
    kind: c_int,
    flags: c_int,
    ctx: Handle<Context>,
    user_data: c::doca_data,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Job {
    base: Base,
    dst: Handle<Buf>,
    src: Handle<Buf>,
}

const _: () = {
    assert!(size_of::<Base>() == size_of::<old::doca_job>());
    assert!(size_of::<Job>() == size_of::<old::doca_dma_job_memcpy>());
    assert!(std::mem::offset_of!(Job, src) == std::mem::offset_of!(old::doca_dma_job_memcpy, src_buff));
};

impl WorkQueue {
    /// Makes progress until an ended job can be retrieved, or until no more work is left.
    fn progress(&self) {
        while self.events.borrow().is_empty() && (self.end_wait() || self.pe.progress()) {}
    }

    /// Ends a job that waits, if it need not wait any more.
    fn end_wait(&self) -> bool {
        let ended = self.waits.progress();
        self.events.borrow_mut().extend(ended);
        ended.is_some()
    }

    fn submit(&self, job: In<Base>) -> Outcome {
        let base = job.get().ok_or(INVALID)?;
        require(base.flags == 0, INVALID)?;
        let ctx = base.ctx.get()?;
        let known = match ctx.kind {
            Kind::Dma(_) => base.kind as u32 == old::DOCA_DMA_JOB_MEMCPY,
            Kind::Event(_) => events::is_job(base.kind),
        };
        require(known, INVALID)?;
        require(ctx.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let dma = ctx.on(self)?;
        require(self.in_flight.get() < self.depth.get(), c::DOCA_ERROR_NO_MEMORY)?;
        match &ctx.kind {
            Kind::Dma(_) => {
                // SAFETY: the kind, which was checked above, says that C passes a job of this type.
                let job = unsafe { job.cast::<Job>() }.get().ok_or(INVALID)?;
                let dma = dma.ok_or(c::DOCA_ERROR_UNEXPECTED)?;
                dma.job(job.src, job.dst, base.user_data).map_err(|code| match code {
                    c::DOCA_ERROR_AGAIN => c::DOCA_ERROR_NO_MEMORY,
                    code => code,
                })?;
            }
            Kind::Event(event) => {
                let event = event.upgrade().ok_or(c::DOCA_ERROR_BAD_STATE)?;
                let ended = events::submit(&self.waits, event, (base.kind, base.user_data), job)?;
                self.events.borrow_mut().extend(ended);
            }
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Ok(())
    }
}

impl Context {
    fn new(kind: Kind) -> Rc<Self> {
        let (started, joined) = (Cell::new(false), RefCell::default());
        Rc::new(Self { mark: Mark::of::<Self>(), kind, started, joined })
    }

    /// Returns the devices of a DMA context.
    fn devs(&self) -> Outcome<&RefCell<Vec<Arc<Dev>>>> {
        match &self.kind {
            Kind::Dma(devs) => Ok(devs),
            Kind::Event(_) => Err(c::DOCA_ERROR_NOT_SUPPORTED),
        }
    }

    /// Returns the DMA context of later versions that this context has on a work queue.
    fn on(&self, queue: &WorkQueue) -> Outcome<Option<Rc<dma::Dma>>> {
        let joined = self.joined.borrow();
        let found = joined.iter().find(|joined| std::ptr::eq(joined.queue, queue));
        found.map(|joined| joined.dma.clone()).ok_or(c::DOCA_ERROR_NOT_FOUND)
    }

    fn start(&self) -> Outcome {
        require(!self.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        match &self.kind {
            Kind::Dma(devs) => require(!devs.borrow().is_empty(), INVALID)?,
            Kind::Event(event) => {
                let event = event.upgrade().ok_or(INVALID)?;
                if event.ctx().pe().is_none() {
                    // Calls on the event need a running context of later versions, though that context has no
                    // tasks.
                    event.ctx().connect(&Rc::new(Pe::new()))?;
                }
                event.ctx().start()?;
            }
        }
        self.started.set(true);
        Ok(())
    }

    fn stop(&self) -> Outcome {
        require(self.joined.borrow().is_empty(), c::DOCA_ERROR_NOT_PERMITTED)?;
        if let Kind::Event(event) = &self.kind {
            event.upgrade().ok_or(INVALID)?.ctx().stop()?;
        }
        self.started.set(false);
        Ok(())
    }

    fn join(&self, queue: &WorkQueue) -> Outcome {
        require(self.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        require(self.on(queue).is_err(), c::DOCA_ERROR_IN_USE)?;
        let dma = match &self.kind {
            Kind::Dma(devs) => {
                let dev = devs.borrow().first().cloned().ok_or(INVALID)?;
                let user_data = c::doca_data { ptr: std::ptr::from_ref(queue).cast_mut().cast() };
                Some(dma::Dma::joining(dev, &queue.pe, queue.depth.get(), ended, user_data)?)
            }
            Kind::Event(_) => None,
        };
        self.joined.borrow_mut().push(Joined { queue, dma });
        queue.contexts.set(queue.contexts.get() + 1);
        Ok(())
    }

    fn part(&self, queue: &WorkQueue) -> Outcome {
        require(self.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let dma = self.on(queue)?;
        let in_flight = match (&self.kind, &dma) {
            (Kind::Event(event), _) => queue.waits.has(event),
            (Kind::Dma(_), dma) => dma.as_ref().is_some_and(|dma| dma.ctx().in_flight.get() > 0),
        };
        require(!in_flight && queue.events.borrow().is_empty(), c::DOCA_ERROR_NOT_PERMITTED)?;
        if let Some(dma) = dma {
            dma.leave()?;
        }
        self.joined.borrow_mut().retain(|joined| !std::ptr::eq(joined.queue, queue));
        queue.contexts.set(queue.contexts.get() - 1);
        Ok(())
    }
}

unsafe extern "C" fn ended(task: *mut c::doca_task, user_data: c::doca_data, ctx: c::doca_data) {
    // SAFETY: `join` set the user data to a pointer.
    let queue = unsafe { ctx.ptr }.cast::<WorkQueue>();
    // SAFETY: `join` set the address of the work queue, which cannot be destroyed before its contexts are
    // removed.
    let queue = unsafe { &*queue };
    // SAFETY: the stand-in passes the ended task, which begins with its head and lives until it is freed
    // below.
    let head = unsafe { &*task.cast::<Head>() };
    let kind = old::DOCA_DMA_JOB_MEMCPY as c_int;
    queue.events.borrow_mut().push_back(Ended { kind, user_data, status: head.status.get() });
    if let Ok(owner) = head.owner() {
        owner.free_task(head);
    }
}

c_calls! {
    fn doca_dma_create(dma: Out<Handle<Context>>) {
        dma.make(|| Ok(Handle::give_rc(Context::new(Kind::Dma(RefCell::default())))))
    }
    /// Destroys a DMA context. Returns `IN_USE` while work queues have the context.
    fn doca_dma_destroy(dma: Handle<Context>) {
        let ctx = dma.get()?;
        ctx.devs().map_err(|_| INVALID)?;
        require(ctx.joined.borrow().is_empty(), c::DOCA_ERROR_IN_USE)?;
        dma.take_rc().map(drop)
    }
    fn doca_dma_as_ctx(dma: Handle<Context>) -> *mut c::doca_ctx {
        let is_dma = dma.get().and_then(Context::devs).is_ok();
        if is_dma { dma.cast() } else { std::ptr::null_mut() }
    }
    /// Makes the event a context. Returns NULL if the event was started without a context.
    fn doca_sync_event_as_ctx(event: Handle<Event>) -> *mut c::doca_ctx {
        let event = event.rc().ok().filter(|event| event.as_ctx().is_some());
        event.map_or(std::ptr::null_mut(), |event| {
            let make = || Context::new(Kind::Event(Rc::downgrade(&event)));
            pointer_to(&**event.on_work_queues.get_or_init(make))
        })
    }
    /// Returns success if the device can copy, otherwise `NOT_SUPPORTED`.
    fn doca_dma_job_get_supported(devinfo: Handle<Info>, job_type: u32) {
        let info = devinfo.get()?;
        let can = info.function().dma && job_type == old::DOCA_DMA_JOB_MEMCPY;
        require(can, c::DOCA_ERROR_NOT_SUPPORTED)
    }
    fn doca_ctx_get_max_num_ctx(max_num_ctx: Out<u32>) { max_num_ctx.put(CONTEXTS) }
    /// Adds a device to a context. Returns `NOT_SUPPORTED` for an event, which gets its devices from its
    /// locations.
    fn doca_ctx_dev_add(ctx: Handle<Context>, dev: Handle<Dev>) {
        let (ctx, dev) = (ctx.get()?, dev.arc()?);
        let mut devs = ctx.devs()?.borrow_mut();
        require(!ctx.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        require(dev.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
        require(!devs.iter().any(|other| Arc::ptr_eq(other, &dev)), c::DOCA_ERROR_IN_USE)?;
        devs.push(dev);
        Ok(())
    }
    fn doca_ctx_dev_rm(ctx: Handle<Context>, dev: Handle<Dev>) {
        let (ctx, dev) = (ctx.get()?, dev.arc()?);
        let mut devs = ctx.devs()?.borrow_mut();
        require(!ctx.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let place = devs.iter().position(|other| Arc::ptr_eq(other, &dev));
        devs.remove(place.ok_or(c::DOCA_ERROR_NOT_FOUND)?);
        Ok(())
    }
    fn doca_ctx_start(ctx: Handle<Context>) { ctx.get()?.start() }
    /// Stops a context. Returns `NOT_PERMITTED` while work queues have the context.
    fn doca_ctx_stop(ctx: Handle<Context>) { ctx.get()?.stop() }
    fn doca_ctx_workq_add(ctx: Handle<Context>, workq: Handle<WorkQueue>) { ctx.get()?.join(workq.get()?) }
    /// Removes a work queue from a context. Returns `NOT_PERMITTED` while jobs are in flight or not
    /// retrieved.
    fn doca_ctx_workq_rm(ctx: Handle<Context>, workq: Handle<WorkQueue>) { ctx.get()?.part(workq.get()?) }
    fn doca_ctx_get_event_driven_supported(ctx: Handle<Context>, event_supported: Out<u8>) {
        ctx.get().and_then(|_| event_supported.put(1))
    }
    fn doca_workq_create(depth: u32, workq: Out<Handle<WorkQueue>>) {
        require(depth > 0, INVALID)?;
        workq.make(|| {
            Ok(Handle::new_rc(WorkQueue {
                mark: Mark::of::<WorkQueue>(),
                pe: Rc::new(Pe::new()),
                depth: Cell::new(depth),
                in_flight: Cell::new(0),
                contexts: Cell::new(0),
                event_driven: Cell::new(false),
                events: RefCell::new(VecDeque::with_capacity(depth as usize)),
                waits: events::Waits::default(),
            }))
        })
    }
    /// Destroys a work queue. Returns `IN_USE` while contexts have the work queue.
    fn doca_workq_destroy(workq: Handle<WorkQueue>) {
        require(workq.get()?.contexts.get() == 0, c::DOCA_ERROR_IN_USE)?;
        workq.take_rc().map(drop)
    }
    fn doca_workq_submit(workq: Handle<WorkQueue>, job: In<Base>) { workq.get()?.submit(job) }
    /// Retrieves an ended job. Returns `AGAIN` if no job has ended. Returns `IO_FAILED` if the job failed;
    /// the event's result is then the error code.
    fn doca_workq_progress_retrieve(workq: Handle<WorkQueue>, ev: Out<old::doca_event>, flags: c_int) {
        ev.check()?;
        require(flags == old::DOCA_WORKQ_RETRIEVE_FLAGS_NONE as c_int, INVALID)?;
        let queue = workq.get()?;
        queue.progress();
        let Ended { kind, user_data, status } = queue.events.borrow_mut().pop_front().ok_or(c::DOCA_ERROR_AGAIN)?;
        queue.in_flight.set(queue.in_flight.get() - 1);
        let result = c::doca_data { u64_: status.into() };
        ev.put(old::doca_event { type_: kind, user_data, result })?;
        require(status == c::DOCA_SUCCESS, c::DOCA_ERROR_IO_FAILED)
    }
    fn doca_workq_get_depth(workq: Handle<WorkQueue>, depth: Out<u32>) { depth.put(workq.get()?.depth.get()) }
    /// Sets the maximum number of jobs. Returns `BAD_STATE` while contexts have the work queue.
    fn doca_workq_set_depth(workq: Handle<WorkQueue>, depth: u32) {
        let queue = workq.get()?;
        require(depth > 0, INVALID)?;
        require(queue.contexts.get() == 0, c::DOCA_ERROR_BAD_STATE)?;
        queue.depth.set(depth);
        Ok(())
    }
    fn doca_workq_get_event_driven_enable(workq: Handle<WorkQueue>, enabled: Out<u8>) {
        enabled.put(workq.get()?.event_driven.get().into())
    }
    /// Enables or disables the event handle. Returns `BAD_STATE` while contexts have the work queue.
    fn doca_workq_set_event_driven_enable(workq: Handle<WorkQueue>, enable: u8) {
        let queue = workq.get()?;
        require(enable <= 1, INVALID)?;
        require(queue.contexts.get() == 0, c::DOCA_ERROR_BAD_STATE)?;
        if enable == 1 {
            queue.pe.notifier()?;
        }
        queue.event_driven.set(enable == 1);
        Ok(())
    }
    /// Writes the file descriptor to sleep on. The work queue owns and closes the descriptor.
    fn doca_workq_get_event_handle(workq: Handle<WorkQueue>, handle: Out<c::doca_event_handle_t>) {
        let queue = workq.get()?;
        require(queue.event_driven.get(), c::DOCA_ERROR_BAD_STATE)?;
        handle.put(queue.pe.notifier()?.fd().as_raw_fd())
    }
    /// Makes the event handle readable as soon as an ended job can be retrieved.
    fn doca_workq_event_handle_arm(workq: Handle<WorkQueue>) {
        let queue = workq.get()?;
        require(queue.event_driven.get(), c::DOCA_ERROR_BAD_STATE)?;
        queue.pe.arm()?;
        if !queue.events.borrow().is_empty() {
            queue.pe.wake();
        } else if !queue.waits.is_empty() {
            queue.pe.notifier()?.timer().ring(POLL);
        }
        Ok(())
    }
    /// Makes the event handle unreadable.
    fn doca_workq_event_handle_clear(workq: Handle<WorkQueue>, _handle: c::doca_event_handle_t) {
        let queue = workq.get()?;
        require(queue.event_driven.get(), c::DOCA_ERROR_BAD_STATE)?;
        queue.pe.notifier()?.clear();
        Ok(())
    }
}
