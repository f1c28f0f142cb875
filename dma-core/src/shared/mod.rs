//! [`SharedQueue`]: a queue for any number of threads and tasks.

mod deferred_callbacks;
mod hub;
mod inbox;
mod lane;
mod options;
mod ready;
mod retry;
mod slot;
mod transfer;
mod wait_queue;

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hub::{Hub, QueueHandle};
use lane::Lane;
pub use options::SharedQueueOptions;
pub use ready::SharedReady;
use ready::WhenReady;
pub use transfer::{SharedResult, SharedTransfer};

use crate::planner::check::{self, Lists};
use crate::planner::copy_bytes::{Copier, Pair};
use crate::planner::error::{self, TransferKind};
use crate::planner::handle::{Ticket, TransferFlags};
use crate::planner::inline::{Executed, Inline};
use crate::planner::operations::operations;
use crate::planner::plan::{Plan, QueueCaps};
use crate::planner::{Answer, is_plain};
use crate::slow_path::slow_path;
use crate::{
    Batch, BufferMut, Counters, Destination, EngineInfo, Error, InlineExecutor, OpError, RawQueue, Result,
    Source,
};

/// Memory that a lane allocates for each slot, in bytes.
pub(crate) const SLOT_BYTES: usize =
    crate::planner::SLOT_BYTES + size_of::<slot::Slot>() + 3 * size_of::<u32>() + 1;

/// A queue for any number of threads and tasks. Clones use the same queue. Transfers of the queue are `Send`
/// futures.
///
/// Submitting a copy of one range to another range is lock-free. Operations of tasks wait up to
/// [`QueueOptions::doorbell_delay`] to share a doorbell with other operations. A thread that waits for its
/// transfer rings immediately, and polls the device itself. Tasks must not block, so each lane has a thread
/// that polls for them.
///
/// - An engine that copies by CPU may execute a short operation in the call that submits it
///   ([`InlineExecutor`](crate::InlineExecutor)), in parallel with other threads and with operations in
///   flight. Such an operation is never in flight and has no descriptor. Its transfer is done and does not
///   count against the depth. [`close`](Self::close) by another thread does not wait for the call.
/// - A full queue returns the operands. [`ready`](Self::ready) waits until the queue has room, and
///   [`copy_when_ready`](Self::copy_when_ready) waits and then copies.
/// - Operations are unordered, and there is no fence, because threads and lanes run in parallel. If an
///   operation depends on an earlier operation, await the earlier operation before you submit the dependent
///   one.
/// - Wakers, destructors of operands and log subscribers may use the queue, also in the log events of its
///   engine.
/// - Dropping the last clone closes the queue, like [`close`](Self::close) with
///   [`QueueOptions::drop_timeout`]. A transfer in flight keeps the queue open, as a clone does.
/// - In a forked child, operations fail with `Unsupported`, as those of a [`Queue`](crate::Queue) do. The
///   counters are 0 there.
///
/// # Stalled devices
///
/// No timeout ends an operation, because memory cannot be reused while a device may still write to it. If the
/// device has stalled, a wait and an `.await` fail with `TimedOut`, and the operation keeps its memory and
/// its slot, as that of a dropped transfer does. [`stalled`](Self::stalled) reports a device that has
/// completed nothing for [`QueueOptions::stall_timeout`]. If the device has stalled, a full queue fails with
/// `TimedOut` instead of `QueueFull`. To recover, [`close`](Self::close) the queue with a short timeout,
/// which ends every transfer, and open another queue, or another engine. [`Counters::abandoned`] counts the
/// operations whose memory is leaked.
///
/// [`QueueOptions::doorbell_delay`]: crate::QueueOptions::doorbell_delay
/// [`QueueOptions::drop_timeout`]: crate::QueueOptions::drop_timeout
/// [`QueueOptions::stall_timeout`]: crate::QueueOptions::stall_timeout
pub struct SharedQueue {
    handle: Arc<QueueHandle>,
}

impl Clone for SharedQueue {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.handle.hub))
    }
}

impl SharedQueue {
    /// [`SharedQueueOptions::check`] has checked the number of `lanes`.
    pub(crate) fn new(
        lanes: Vec<(Box<dyn RawQueue>, Option<BufferMut>)>,
        info: &EngineInfo,
        options: &SharedQueueOptions,
    ) -> Result<Self> {
        Ok(Self::of(Arc::new(Hub::new(lanes, info, options)?)))
    }

    fn of(hub: Arc<Hub>) -> Self {
        let submitter_id = hub.clones.fetch_add(1, Ordering::Relaxed);
        let first_lane = (submitter_id % hub.lanes.len()) as u16;
        Self { handle: Arc::new(QueueHandle { hub, submitter_id, first_lane }) }
    }

    /// Copies `src` to `dst`. Both must have the same length and must not overlap. Does not block, and needs
    /// no flush.
    ///
    /// # Errors
    ///
    /// The errors of [`Queue::copy`](crate::Queue::copy), with the operands.
    // Always inline, because a call takes about the same time as the copy of a short range. The compiler
    // would not inline this function in a program that calls it in several places.
    #[inline(always)]
    pub fn copy<S, D>(&self, src: S, dst: D) -> SharedResult<(S, D)>
    where
        S: Source + Send,
        D: Destination + Send,
    {
        if !(S::SINGLE && D::SINGLE) {
            return self.submit_checked(
                TransferKind::Copy,
                (src, dst),
                |inline, (src, dst)| inline.copy_rows(src, dst),
                |caps, (src, dst), lists| check::copy(caps.engine, src, dst, lists),
            );
        }
        // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves them
        // only once.
        let operands = ManuallyDrop::new((src, dst));
        let at = self.handle.first_lane;
        let lane = self.handle.lane(at);
        if let Some(executed) = lane.execute_inline(|inline| inline.copy(&operands.0, &operands.1)) {
            return Ok(self.done(executed, TransferKind::Copy, ManuallyDrop::into_inner(operands)));
        }
        let (from, to) = (operands.0.single(), operands.1.single());
        if is_plain::<D>(lane.engine, from, to, usize::MAX)
            && !lane.refuses()
            && !lane.selects_copies()
            && let Some(slot) = lane.submit_flat(self.handle.submitter_id, from.segment(), to.segment())
        {
            let handle = Arc::clone(&self.handle);
            let operands = ManuallyDrop::into_inner(operands);
            let flags = TransferFlags::new(TransferKind::Copy).with_lane(at);
            let transfer = SharedTransfer::new(Ticket::new(handle, slot, flags), operands);
            if lane.is_awake() {
                return Ok(transfer);
            }
            // The transfer must own the operands before the engine can run.
            return slow_path(transfer, |transfer| {
                lane.notice();
                Ok(transfer)
            });
        }
        slow_path(ManuallyDrop::into_inner(operands), |operands| {
            let selected = |inline: &Inline| inline.copy_selected(&operands.0, &operands.1);
            if let Some(executed) = self.first_lane().execute_inline(selected) {
                return Ok(self.done(executed, TransferKind::Copy, operands));
            }
            self.submit_planned(TransferKind::Copy, operands, |caps, (src, dst), lists| {
                check::copy(caps.engine, src, dst, lists)
            })
        })
    }

    /// Executes an operation within this call, if the lane allows this and `run` finds the operation valid
    /// and short enough. Returns its result.
    #[inline]
    pub(crate) fn execute_now(&self, run: impl FnOnce(&Inline) -> Option<Executed>) -> Option<u64> {
        let executed = self.first_lane().execute_inline(run)?;
        self.handle.hub.count_inline(self.handle.submitter_id, &executed);
        Some(executed.result)
    }

    /// Counts an operation that was executed, and makes its transfer.
    #[inline]
    fn done<T: Send + 'static, R: Answer>(
        &self,
        executed: Executed,
        operation: TransferKind,
        operands: T,
    ) -> SharedTransfer<T, R> {
        self.handle.hub.count_inline(self.handle.submitter_id, &executed);
        SharedTransfer::new(Ticket::done(executed.result, operation), operands)
    }

    /// Submits all copies of `batch`. The batch counts as one operation of the depth, and completes when all
    /// its copies have completed.
    ///
    /// # Errors
    ///
    /// The errors of [`Queue::submit`](crate::Queue::submit), with the batch.
    pub fn submit<S, D>(&self, mut batch: Batch<S, D>) -> SharedResult<Batch<S, D>>
    where
        S: Source + Send,
        D: Destination + Send,
    {
        let lane = self.first_lane();
        if let Some(executed) = lane.execute_inline(|inline| inline.copy_all(&mut batch)) {
            return Ok(self.done(executed, TransferKind::Batch, batch));
        }
        if let Some(refusal) = lane.refusal() {
            return Err(refuse(lane, TransferKind::Batch, refusal, batch));
        }
        let checked = check::batch_len(batch.len()).and_then(|operations| {
            let check = |lists: &mut Lists| check::batch(lane.engine, &batch.pairs, lists);
            Ok((operations, with_lists(lane, S::SINGLE && D::SINGLE, check)?))
        });
        let (operations, bytes) = match checked {
            Ok(checked) => checked,
            Err(e) => return Err(refuse(lane, TransferKind::Batch, e, batch)),
        };
        self.submit_to(TransferKind::Batch, batch, |lane, batch, request| {
            request.reserve(operations as usize)?;
            request.operations = operations;
            request.bytes = bytes;
            for (src, dst) in batch.iter() {
                let check = |lists: &mut Lists| check::copy(lane.engine, src, dst, lists);
                request.plans.push(with_lists(lane, S::SINGLE && D::SINGLE, check)?);
            }
            Ok(())
        })
    }

    /// Checks an operation, and executes it with `inline` or submits its plan.
    #[inline(always)]
    pub(crate) fn submit_checked<T: Send + 'static, R: Answer>(
        &self,
        operation: TransferKind,
        operands: T,
        inline: impl FnOnce(&Inline, &T) -> Option<Executed>,
        check: impl FnOnce(QueueCaps, &T, &mut Lists) -> Result<Plan>,
    ) -> SharedResult<T, R> {
        // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves them
        // only once.
        let operands = ManuallyDrop::new(operands);
        if let Some(executed) = self.first_lane().execute_inline(|executor| inline(executor, &operands)) {
            return Ok(self.done(executed, operation, ManuallyDrop::into_inner(operands)));
        }
        slow_path(ManuallyDrop::into_inner(operands), |operands| {
            self.submit_planned(operation, operands, check)
        })
    }

    /// Checks an operation with the capabilities of the lane that this clone uses first. Executes it inline
    /// if it has lists and is short enough; otherwise submits its plan.
    fn submit_planned<T: Send + 'static, R: Answer>(
        &self,
        operation: TransferKind,
        operands: T,
        check: impl FnOnce(QueueCaps, &T, &mut Lists) -> Result<Plan>,
    ) -> SharedResult<T, R> {
        let lane = self.first_lane();
        if let Some(refusal) = lane.refusal() {
            return Err(refuse(lane, operation, refusal, operands));
        }
        let (checked, is_cpu_visible) = {
            let mut lists = lane.lists();
            let checked = check(lane.caps, &operands, &mut lists);
            (checked, lists.is_cpu_visible())
        };
        let plan = match checked {
            Ok(plan) => plan,
            Err(e) => return Err(refuse(lane, operation, e, operands)),
        };
        if let Some(executed) = lane.execute_inline(|inline| inline.lists(&plan, is_cpu_visible)) {
            plan.discard(|list| lane.lists().keep(list));
            return Ok(self.done(executed, operation, operands));
        }
        // The plan is in a cell, because it can be taken only once, but several lanes may be tried.
        let plan = Cell::new(Some(plan));
        let submitted = self.submit_to(operation, operands, |_, _, request| {
            request.reserve(1)?;
            let plan = plan.take();
            request.operations = 1;
            request.bytes = plan.as_ref().map_or(0, Plan::len) as u64;
            request.plans.extend(plan);
            Ok(())
        });
        if let Some(plan) = plan.take() {
            plan.discard(|list| lane.lists().keep(list));
        }
        submitted
    }

    /// Copies as [`copy`](Self::copy) does, but waits while the queue is full, and then awaits the copy. The
    /// future does nothing before it is polled. Dropping the future before it has submitted the copy drops
    /// the operands. Dropping the future later is like dropping the transfer. A queue whose transfers were
    /// all forgotten never has room: see [`ready`](Self::ready).
    ///
    /// ```
    /// # use dma_core::{BufferMut, Result, SharedQueue};
    /// # async fn both(queue: &SharedQueue, src: BufferMut, dst: BufferMut) -> Result<()> {
    /// let (src, dst) = queue.copy_when_ready(src, dst).await?;
    /// # assert_eq!(src[..], dst[..]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`copy`](Self::copy) except `QueueFull`, of [`ready`](Self::ready), and of
    /// [`SharedTransfer::wait`], with the operands.
    pub fn copy_when_ready<S, D>(
        &self,
        src: S,
        dst: D,
    ) -> impl Future<Output = Result<(S, D), OpError<(S, D)>>> + use<'_, S, D>
    where
        S: Source + Send,
        D: Destination + Send,
    {
        self.when_ready((src, dst), |(src, dst)| self.copy(src, dst))
    }

    /// Waits for room and submits any operation, as [`copy_when_ready`](Self::copy_when_ready) does for a
    /// copy:
    ///
    /// ```
    /// # use dma_core::{Buffer, Result, SharedQueue};
    /// # async fn sum(queue: &SharedQueue, src: Buffer) -> Result<u32> {
    /// let (src, crc) = queue.when_ready(src, |src| queue.crc32c(src, 0)).await?;
    /// # drop(src);
    /// # Ok(crc) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `submit` except `QueueFull`, of [`ready`](Self::ready), and of [`SharedTransfer::wait`],
    /// with the operands.
    ///
    /// # Panics
    ///
    /// If `submit` fails with `QueueFull` without the operands.
    pub fn when_ready<T: Send + 'static, R: Answer>(
        &self,
        operands: T,
        submit: impl Fn(T) -> SharedResult<T, R>,
    ) -> impl Future<Output = Result<R::With<T>, OpError<T>>> {
        WhenReady::new(&self.handle, operands, submit)
    }

    /// Submits to the lane that this clone uses first, or to the next lane with room. If the first lane
    /// refuses the operation, fails with its error; leaves out other lanes that refuse it. An error of `fill`
    /// refuses the operation.
    #[inline]
    fn submit_to<T: Send + 'static, R: Answer>(
        &self,
        operation: TransferKind,
        operands: T,
        fill: impl Fn(&Lane, &T, &mut slot::Request) -> Result<()>,
    ) -> SharedResult<T, R> {
        let (first_lane, first) = (usize::from(self.handle.first_lane), self.first_lane());
        if let Some(refusal) = first.refusal() {
            return Err(refuse(first, operation, refusal, operands));
        }
        let lanes = self.handle.hub.lanes.len();
        for i in 0..lanes {
            let at = if first_lane + i < lanes { first_lane + i } else { first_lane + i - lanes };
            // The number of a lane fits into 16 bits.
            let at = at as u16;
            let lane = self.handle.lane(at);
            if lane.refuses() {
                continue;
            }
            let submitted = lane.submit(self.handle.submitter_id, |request| fill(lane, &operands, request));
            if let Some(filled) = submitted {
                let slot = match filled {
                    Ok(slot) => slot,
                    Err(e) => return Err(refuse(lane, operation, e, operands)),
                };
                // The transfer must own the operands before the engine can run.
                let handle = Arc::clone(&self.handle);
                let flags = TransferFlags::new(operation).with_lane(at);
                let transfer = SharedTransfer::new(Ticket::new(handle, slot, flags), operands);
                lane.notice();
                return Ok(transfer);
            }
        }
        first.count_full();
        Err(match self.handle.hub.hangs() {
            Some(stalled_for) => refuse(first, operation, error::stalled(stalled_for), operands),
            None => OpError::full(operands),
        })
    }

    /// Returns a reference to the queue that does not keep it open.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn downgrade(&self) -> std::sync::Weak<impl Sized + use<>> {
        Arc::downgrade(&self.handle.hub)
    }

    fn first_lane(&self) -> &Lane {
        self.handle.lane(self.handle.first_lane)
    }

    /// Returns a future that waits until there is room for an operation. [`when_ready`](Self::when_ready)
    /// also submits the operation. Threads can call [`SharedReady::wait`].
    ///
    /// The slot is not reserved: several tasks may be woken for one slot, and another submitter may take it
    /// first. Tasks wait in FIFO order. After the first waits, a wait does not allocate. A slot becomes free
    /// when its transfer has returned the operands, or when the transfer was dropped and its operation has
    /// ended. Therefore a task that holds all transfers would wait forever, and so would every task if all
    /// transfers were forgotten ([`std::mem::forget`]), until the queue is closed.
    ///
    /// # Errors
    ///
    /// The future fails with `Closed` if the queue is closed, and with `TimedOut` if there is no room and the
    /// device has stalled (see [`QueueOptions::stall_timeout`]).
    ///
    /// [`QueueOptions::stall_timeout`]: crate::QueueOptions::stall_timeout
    pub fn ready(&self) -> SharedReady {
        SharedReady::new(Arc::clone(&self.handle))
    }

    /// Returns the number of operations that can be submitted before all lanes are full. Lanes that are
    /// closed or whose device is lost have no room. Use it for metrics and load shedding. The number may be
    /// outdated, because other threads submit and complete operations.
    #[must_use]
    pub fn available(&self) -> usize {
        self.handle.hub.lanes.iter().map(|lane| lane.available()).sum()
    }

    /// Returns the sum of all lanes' counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.handle.hub.counters()
    }

    /// Returns the time for which the device has had operations and completed none of them, if this time
    /// exceeds [`QueueOptions::stall_timeout`]. With several lanes, returns the longest such time.
    ///
    /// Does not block. The lanes' threads poll the device and detect its next completion within a few
    /// milliseconds. Time during which these threads could not run does not count.
    ///
    /// [`QueueOptions::stall_timeout`]: crate::QueueOptions::stall_timeout
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        self.handle.hub.lanes.iter().filter_map(|lane| lane.stalled()).max()
    }

    /// Returns the error of a lost device (`DeviceLost`) that reports nothing any more, or `None` if no such
    /// loss is known. A device that reports its loss fails each operation with `DeviceLost` instead. Does not
    /// poll: the lanes' threads and waits do, while operations are in flight.
    #[must_use]
    pub fn lost(&self) -> Option<Error> {
        let lost = self.handle.hub.lanes.iter().find_map(|lane| lane.lost())?;
        Some(lost.with_operation("use queue").with_backend(self.first_lane().backend))
    }

    /// Returns the maximum number of operations in flight, on all lanes together.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.handle.hub.lanes.iter().map(|lane| lane.depth()).sum()
    }

    /// Closes the queue for all clones: refuses new operations, waits up to `timeout` for operations in
    /// flight, and aborts the remaining operations. An operation that the device does not end within
    /// [`STOP_GRACE`](crate::STOP_GRACE) after the abort is abandoned, and its memory is never reused. The
    /// program's transfers return their outcomes as usual.
    ///
    /// Returns the final counters, even if the queue is already closed. If several callers close it at the
    /// same time, the shortest timeout applies. Wakers and destructors of operands may call this.
    #[expect(clippy::must_use_candidate, reason = "callers may ignore the counters")]
    pub fn close(&self, timeout: Duration) -> Counters {
        self.handle.hub.close(timeout)
    }
}

impl Copier for SharedQueue {
    type Transfer = SharedTransfer<Pair>;

    fn facts(&self) -> Result<(QueueCaps, Duration)> {
        let lane = self.first_lane();
        lane.refusal().map_or(Ok((lane.caps, lane.stall_timeout)), Err)
    }

    fn backend(&self) -> &'static str {
        self.first_lane().backend
    }

    fn hangs(&self) -> Option<Duration> {
        self.handle.hub.hangs()
    }

    fn counts(&self) -> Counters {
        self.counters()
    }

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.first_lane().inline_executor()
    }

    fn submit_piece(&self, (src, dst): Pair) -> Result<Self::Transfer, OpError<Pair>> {
        self.copy(src, dst)
    }

    fn wait_for_piece(transfer: Self::Transfer) -> Result<Pair, OpError<Pair>> {
        transfer.wait()
    }

    fn make_room(&self) -> Option<usize> {
        // The lanes' threads poll, and other threads free slots.
        Some(0)
    }
}

operations!(SharedQueue, SharedResult, Send);

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue").field("lanes", &self.handle.hub.lanes).finish_non_exhaustive()
    }
}

#[cold]
fn refuse<T>(lane: &Lane, operation: TransferKind, error: Error, operands: T) -> OpError<T> {
    OpError::new(error::refused(operation, lane.backend, error), Some(operands))
}

/// Runs `f` with the lane's lists. If the operands are `single`, they need no lists, so `f` gets an empty
/// collection and the lock is not taken.
fn with_lists<R>(lane: &Lane, single: bool, f: impl FnOnce(&mut Lists) -> R) -> R {
    if single { f(&mut Lists::default()) } else { f(&mut lane.lists()) }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
