//! [`SharedQueue`]: a device for any number of threads and tasks.

mod after;
mod inbox;
mod lane;
mod line;
mod ready;
mod silence;
mod slot;
mod sync;
mod transfer;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use after::After;
use lane::Lane;
use line::Line;
pub use ready::SharedReady;
use slot::Work;
pub use transfer::SharedTransfer;

use crate::operand::sealed::Operand;
use crate::queue::Operation;
use crate::queue::check::{self, Lists};
use crate::queue::error;
use crate::queue::planner::{Plan, Planner};
use crate::queue::wait::deadline;
use crate::{
    Batch, BufferMut, Counters, Destination, EngineInfo, Error, ErrorKind, OpError, QueueOptions, RawQueue,
    Result, Source,
};

/// A transfer on a shared queue, or the operands handed back with the reason.
pub type SharedResult<T> = Result<SharedTransfer<T>, OpError<T>>;

/// How a shared queue is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedQueueOptions {
    /// Device queues, each with a thread; at least 1, the default. More than the device has channels is an error.
    pub lanes: usize,
    /// How each of them is to be; the depth is that of one lane.
    pub queue: QueueOptions,
}

impl Default for SharedQueueOptions {
    fn default() -> Self {
        Self { lanes: 1, queue: QueueOptions::default() }
    }
}

impl SharedQueueOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of device queues, each with a thread.
    #[must_use]
    pub const fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// Sets how each lane is to be.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueOptions) -> Self {
        self.queue = queue;
        self
    }
}

/// A device for any number of threads and tasks: cheap to clone, and its transfers are `Send` futures.
///
/// Submitting a copy of one range to another is lock-free. Operations that gather meanwhile go to the device together, with one doorbell. A
/// thread that waits for its transfer drives the device itself; for tasks, which must not, each lane has a thread.
///
/// A full queue hands the operands back; [`ready`](Self::ready) waits until it has room.
///
/// There is no order between operations, and no fence, since threads and lanes run beside each other: await what must be over.
///
/// Wakers, destructors of operands and this library's log may use the queue whenever they run. What an engine itself logs comes from inside of a lane:
/// a listener that uses the queue then may hang.
///
/// Dropping the last clone closes it as [`close`](Self::close) does, within [`QueueOptions::drop_timeout`]. A transfer that is held keeps it open as
/// a clone does: where that is the last, its wait or its drop closes.
///
/// # A device that hangs
///
/// No time limit ends an operation, since memory cannot be had back from a device that may still write to it: an `.await` on a device that hangs goes on
/// until the queue is closed, and a transfer that was dropped keeps its memory, and its place, until then. A service that must go on watches for it:
/// now and then it asks [`stalled`](Self::stalled), and it takes `TimedOut` from a submission, which a full queue answers then in place of
/// `QueueFull`, for the same. Either is told after [`QueueOptions::stall_timeout`] without a completion, and no more once there is one. What helps is to
/// [`close`](Self::close) the queue with a short timeout, which ends every transfer, and to open another queue, or another engine if that one hangs, too;
/// [`Counters::abandoned`] says how many operations had memory that is lost.
///
/// # Processes
///
/// `fork` is not supported: a forked child has the handles but not the threads, so its tasks are never woken. What it drops or closes it leaves to the
/// parent.
pub struct SharedQueue {
    handle: Arc<Handle>,
}

/// One clone, which its transfers keep: a count of its own, so that threads with clones of their own do not meet in it.
struct Handle {
    hub: Arc<Hub>,
    /// Which lane and which corner of it this clone uses first.
    number: usize,
}

impl Handle {
    fn lane(&self, at: usize) -> &Lane {
        &self.hub.lanes[at]
    }
}

impl Clone for SharedQueue {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.handle.hub))
    }
}

struct Hub {
    lanes: Box<[Arc<Lane>]>,
    /// Tasks that wait for room.
    line: Arc<Line>,
    /// Clones made so far.
    clones: AtomicUsize,
    /// The threads of the lanes, in their order. Locked only by who waits for them to end, and never on one of them.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process whose threads they are: a forked child has the handles, too.
    process: u32,
    drop_timeout: Duration,
}

impl SharedQueue {
    pub(crate) fn new(
        lanes: Vec<(Box<dyn RawQueue>, Option<BufferMut>)>,
        info: &EngineInfo,
        options: &SharedQueueOptions,
    ) -> Result<Self> {
        let fail = |e: Error| e.with_operation("open shared queue").with_backend(info.backend);
        if lanes.is_empty() {
            return Err(fail(
                Error::new(ErrorKind::InvalidArgument, "0 lanes").with_hint("ask for at least 1 lane"),
            ));
        }
        let line = Arc::new(Line::new());
        let lanes: Box<[_]> = lanes
            .into_iter()
            .map(|(raw, fill_block)| {
                let depth = raw.depth();
                let planner = Planner::new(raw, info, depth, fill_block);
                Arc::new(Lane::new(planner, &options.queue, Arc::clone(&line)))
            })
            .collect();
        let hub = Hub {
            lanes,
            line,
            clones: AtomicUsize::new(0),
            threads: Mutex::default(),
            process: std::process::id(),
            drop_timeout: options.queue.drop_timeout,
        };
        // If one thread cannot be started, dropping the hub stops the others.
        for (i, lane) in hub.lanes.iter().enumerate() {
            let lane = Arc::clone(lane);
            let thread = std::thread::Builder::new()
                .name(format!("dma-lane-{i}"))
                .spawn(move || lane.serve())
                .map_err(|e| fail(Error::from(e)))?;
            hub.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(Self::of(Arc::new(hub)))
    }

    fn of(hub: Arc<Hub>) -> Self {
        let number = hub.clones.fetch_add(1, Ordering::Relaxed);
        Self { handle: Arc::new(Handle { hub, number }) }
    }

    /// Copies `src` to `dst`, which have the same length and do not overlap. Does not block and needs no flush.
    ///
    /// # Errors
    ///
    /// With the operands: as [`Queue::copy`](crate::Queue::copy).
    pub fn copy<S, D>(&self, src: S, dst: D) -> SharedResult<(S, D)>
    where
        S: Source + Send,
        D: Destination + Send,
    {
        let lane = self.handle.lane(self.home());
        if S::SINGLE && D::SINGLE {
            let (from, to) = (src.single(), dst.single());
            return match check::flat::<D>(lane.engine, from, to) {
                Ok(len) => {
                    let flat = (from.segment(), to.segment());
                    self.submit_to(Operation::Copy, (src, dst), |_, _, request| {
                        request.operations = 1;
                        request.bytes = len as u64;
                        request.flat = Some(flat);
                        request.work = if len == 0 { Work::None } else { Work::Flat };
                    })
                }
                Err(e) => Err(refuse(lane, Operation::Copy, e, (src, dst))),
            };
        }
        match with_lists::<_, (S, D)>(lane, |lists| check::copy(lane.engine, &src, &dst, lists)) {
            Ok(plan) => self.submit_plan(Operation::Copy, plan, (src, dst)),
            Err(e) => Err(refuse(lane, Operation::Copy, e, (src, dst))),
        }
    }

    /// Fills `dst` with the bytes of `pattern` over and over, beginning at its first byte. Does not block and needs no flush.
    ///
    /// # Errors
    ///
    /// With the operand: as [`Queue::fill`](crate::Queue::fill).
    pub fn fill<D: Destination + Send>(&self, dst: D, pattern: [u8; 8]) -> SharedResult<D> {
        let lane = self.handle.lane(self.home());
        if !lane.can_fill {
            let error =
                Error::new(ErrorKind::Unsupported, "the device has no fill, and no memory to copy one from");
            return Err(refuse(lane, Operation::Fill, error, dst));
        }
        let mut lists = lane.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = check::fill(lane.engine, &dst, pattern, &mut lists);
        drop(lists);
        match plan {
            Ok(plan) => self.submit_plan(Operation::Fill, plan, dst),
            Err(e) => Err(refuse(lane, Operation::Fill, e, dst)),
        }
    }

    /// Submits every copy of `batch`. It takes one place of the depth and completes as a whole.
    ///
    /// # Errors
    ///
    /// With the batch: as [`Queue::submit`](crate::Queue::submit).
    pub fn submit<S, D>(&self, batch: Batch<S, D>) -> SharedResult<Batch<S, D>>
    where
        S: Source + Send,
        D: Destination + Send,
    {
        let lane = self.handle.lane(self.home());
        let mut bytes = 0;
        for (index, (src, dst)) in batch.iter().enumerate() {
            match with_lists::<_, (S, D)>(lane, |lists| check::copy(lane.engine, src, dst, lists)) {
                Ok(plan) => {
                    bytes += plan.len() as u64;
                    plan.discard(|list| with_lists::<_, (S, D)>(lane, |lists| lists.keep(list)));
                }
                Err(e) => {
                    let message = format!("copy {index} of the batch: {}", e.message());
                    return Err(refuse(lane, Operation::Batch, e.with_message(message), batch));
                }
            }
        }
        let operations = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        self.submit_to(Operation::Batch, batch, |lane, batch, request| {
            request.operations = operations;
            request.bytes = bytes;
            request.work = Work::Batch;
            for (src, dst) in batch.iter() {
                // Checked above.
                if let Ok(plan) =
                    with_lists::<_, (S, D)>(lane, |lists| check::copy(lane.engine, src, dst, lists))
                {
                    request.batch.push(plan);
                }
            }
        })
    }

    fn submit_plan<T: Send + 'static>(
        &self,
        operation: Operation,
        plan: Plan,
        operands: T,
    ) -> Result<SharedTransfer<T>, OpError<T>> {
        // A cell, since the request may be offered to several lanes but is taken by one.
        let plan = Cell::new(Some(plan));
        let submitted = self.submit_to(operation, operands, |_, _, request| {
            let plan = plan.take();
            request.operations = 1;
            request.bytes = plan.as_ref().map_or(0, Plan::len) as u64;
            request.work = plan.map_or(Work::None, Work::Plan);
        });
        if let Some(plan) = plan.take() {
            let lane = self.handle.lane(self.home());
            plan.discard(|list| lane.lists.lock().unwrap_or_else(PoisonError::into_inner).keep(list));
        }
        submitted
    }

    /// Submits to the clone's own lane, or to the next one with room.
    #[inline]
    fn submit_to<T: Send + 'static>(
        &self,
        operation: Operation,
        operands: T,
        fill: impl Fn(&Lane, &T, &mut slot::Request),
    ) -> Result<SharedTransfer<T>, OpError<T>> {
        let home = self.home();
        let first = self.handle.lane(home);
        if first.refuses() {
            return Err(refuse(first, operation, error::closed(), operands));
        }
        let lanes = self.handle.hub.lanes.len();
        for i in 0..lanes {
            let at = if home + i < lanes { home + i } else { home + i - lanes };
            let lane = self.handle.lane(at);
            if let Some(slot) = lane.submit(self.handle.number, |request| fill(lane, &operands, request)) {
                return Ok(SharedTransfer::new(Arc::clone(&self.handle), at, slot, operation, operands));
            }
        }
        first.count_full();
        Err(match self.handle.hub.hangs() {
            Some(silence) => refuse(first, operation, error::stalled(silence), operands),
            None => OpError::full(operands),
        })
    }

    /// The lane that this clone begins with.
    fn home(&self) -> usize {
        self.handle.number % self.handle.hub.lanes.len()
    }

    /// Waits, once awaited, until there is room for an operation:
    ///
    /// ```
    /// # use dma_core::{BufferMut, ErrorKind, Result, SharedQueue};
    /// # async fn copy(queue: &SharedQueue, mut src: BufferMut, mut dst: BufferMut) -> Result<(BufferMut, BufferMut)> {
    /// loop {
    ///     match queue.copy(src, dst) {
    ///         Ok(transfer) => return Ok(transfer.await?),
    ///         Err(e) if e.kind() == ErrorKind::QueueFull => {
    ///             (src, dst) = e.into_operands().expect("a refusal gives them back");
    ///             queue.ready().await?;
    ///         }
    ///         Err(e) => return Err(e.into()),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// Room is seen, not reserved: several tasks may be woken for one place, and others who submit at the time may be faster, so that a submission may
    /// still find the queue full. Tasks wait in line, and nothing is allocated per wait once warm. [`SharedReady::wait`] is for threads.
    ///
    /// A place is free once its transfer has given its operands back, or was dropped and has ended: a task that holds all the transfers waits for itself.
    ///
    /// # Errors
    ///
    /// Of awaiting it: `Closed` once the queue is; `TimedOut` when there is no room and the device hangs (see
    /// [`QueueOptions::stall_timeout`]).
    pub fn ready(&self) -> SharedReady {
        SharedReady::new(Arc::clone(&self.handle))
    }

    /// Places that are free at this moment, on all lanes together: for metrics, and to shed load. Others take and free places meanwhile, so that a
    /// submission may be refused though there was room, or accepted though there was none.
    #[must_use]
    pub fn room(&self) -> usize {
        self.handle.hub.lanes.iter().map(|lane| lane.room()).sum()
    }

    /// What the lanes have done so far, together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.handle.hub.counters()
    }

    /// For how long the device has had work and completed none of it, if that is longer than [`QueueOptions::stall_timeout`]. With several lanes, that of
    /// the lane where it is longest: what is in flight there does not end, though the others may be well.
    ///
    /// Does not block, and does not look at the device: the lanes' threads do so all the time, and notice within a few milliseconds once it completes
    /// something again. The time before the machine, or this process, let them look does not count.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        self.handle.hub.lanes.iter().filter_map(|lane| lane.stalled()).max()
    }

    /// The most operations in flight, on all lanes together.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.handle.hub.lanes.iter().map(|lane| lane.depth()).sum()
    }

    /// Refuses new operations from here on, waits up to `timeout` for those in flight, and closes, for all clones. What has not completed
    /// by then is aborted; what the device does not give back even so is abandoned, its memory never reused. Transfers still held learn
    /// their outcome as usual. Returns the final counters; closing again returns them too. Of several who close at a time, the one with the least
    /// time counts.
    ///
    /// Wakers and the destructors of operands may close, too, on whatever thread they run.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect")]
    pub fn close(&self, timeout: Duration) -> Counters {
        self.handle.hub.close(timeout)
    }
}

impl Hub {
    fn close(&self, timeout: Duration) -> Counters {
        let deadline = deadline(timeout);
        // All of them, before the first is waited for.
        self.lanes.iter().for_each(|lane| _ = lane.close(deadline));
        if self.process == std::process::id() {
            self.line.all().into_iter().map(After::Wake).for_each(After::run);
        }
        if lane::on_lane() {
            // A waker, or the destructor of operands. The threads, this one among them, find nothing left to do and end by themselves.
            self.lanes.iter().for_each(|lane| lane.drain(lane.close(deadline)));
        } else {
            self.join(deadline);
        }
        self.counters()
    }

    /// Waits for the lanes' threads, which drain their lanes.
    fn join(&self, deadline: Instant) {
        let mut orphans = Vec::new();
        // Held until they have ended, so that a second closer waits for the first.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.process != std::process::id() {
            // In a forked child there are no such threads, and joining them panics. What is in flight is the parent's.
            std::mem::forget(std::mem::take(&mut *threads));
            return;
        }
        for (lane, thread) in self.lanes.iter().zip(threads.drain(..)) {
            if thread.join().is_err() {
                orphans.push(lane);
            }
        }
        drop(threads);
        for lane in orphans {
            tracing::error!("a lane's thread panicked; its lane is drained in its place");
            lane.drain(lane.close(deadline));
        }
    }

    fn wake_next(&self) {
        if let Some(waker) = self.line.next() {
            After::Wake(waker).run();
        }
    }

    /// For how long no lane's device has completed anything, if that is too long for all of them.
    #[cold]
    fn hangs(&self) -> Option<Duration> {
        self.lanes.iter().map(|lane| lane.stalled()).min().flatten()
    }

    fn counters(&self) -> Counters {
        self.lanes.iter().fold(Counters::default(), |sum, lane| sum.plus(lane.counters()))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close(self.drop_timeout);
    }
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue").field("lanes", &self.handle.hub.lanes).finish_non_exhaustive()
    }
}

#[cold]
fn refuse<T>(lane: &Lane, operation: Operation, error: Error, operands: T) -> OpError<T> {
    OpError::new(error.with_operation(operation.name()).with_backend(lane.backend), Some(operands))
}

/// Runs `f` with the lane's lists where an operand of `T` may need them, without the lock where it cannot.
fn with_lists<R, T: Pair>(lane: &Lane, f: impl FnOnce(&mut Lists) -> R) -> R {
    if T::SINGLE {
        f(&mut Lists::default())
    } else {
        f(&mut lane.lists.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Source and destination.
trait Pair {
    const SINGLE: bool;
}

impl<S: Operand, D: Operand> Pair for (S, D) {
    const SINGLE: bool = S::SINGLE && D::SINGLE;
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
