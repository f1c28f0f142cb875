//! A queue that any number of threads share.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use dma::process::{ProcessLock, above_stdio};
use dma::{Answer, Counters, Error, ErrorKind, OpError, Result, SharedQueue, SharedTransfer};
use rustix::event::{EventfdFlags, eventfd};

use super::operations::{
    Operations, Request, completion, expect_ended, forked, no_batch, no_token, stopped, timed_out,
};
use crate::arguments::{OutArray, invalid};
use crate::batch::{self, List};
use crate::error::Failure;
use crate::header::*;
use crate::region::Region;

/// An operation in flight. It keeps its operands until it is dropped, which happens when its completion is
/// received.
type Op = Pin<Box<dyn Future<Output = Result<u64, Failure>> + Send>>;

/// A transfer, and its operands after it has ended.
struct Running<T: Send + 'static, R: Answer> {
    transfer: SharedTransfer<T, R>,
    operands: Option<T>,
    /// The function that separates the operands from the result.
    split: fn(R::With<T>) -> (T, u64),
}

/// No field is structurally pinned, so moving the value is always allowed.
impl<T: Send + 'static, R: Answer> Unpin for Running<T, R> {}

impl<T: Send + 'static, R: Answer> Future for Running<T, R> {
    type Output = Result<u64, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(ended) = Pin::new(&mut self.transfer).poll(context) else { return Poll::Pending };
        Poll::Ready(match ended {
            Ok(ended) => {
                let (operands, result) = (self.split)(ended);
                self.operands = Some(operands);
                Ok(result)
            }
            Err(e) => {
                let (failure, operands) = Failure::with_operands(e);
                self.operands = operands;
                Err(failure)
            }
        })
    }
}

fn op<T: Send + 'static, R: Answer>(transfer: SharedTransfer<T, R>, split: fn(R::With<T>) -> (T, u64)) -> Op {
    Box::pin(Running { transfer: transfer.outlast_stalls(), operands: None, split })
}

fn without_result<T: Send + 'static>(transfer: SharedTransfer<T>) -> Op {
    op(transfer, |operands| (operands, 0))
}

/// A batch in flight. When this value is dropped, the list returns to the batch; if the operation never
/// ended, the list is lost.
struct RunningBatch {
    running: Running<List, ()>,
    batch: dma_batch,
}

impl Future for RunningBatch {
    type Output = Result<u64, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.running).poll(context)
    }
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        batch::received(self.batch).put_back(self.running.operands.take());
    }
}

/// The state of an entry.
enum Phase {
    Free,
    /// The operation waits, and is polled after its waker is called.
    Waiting(Op),
    /// A thread polls the operation.
    Polling,
    Ended(Result<u64, Failure>, Op),
}

struct Entry {
    token: u64,
    cancelled: bool,
    phase: Phase,
    /// True if the waker was called since the operation was last polled.
    woken: bool,
    waker: Waker,
}

/// The operations in flight. While this is locked, operations are neither polled nor dropped, because both
/// may call functions of the program.
#[derive(Default)]
struct State {
    /// Number of operations whose completions were not received, plus [`Reservation`]s.
    occupied: usize,
    /// Number of threads that wait for `occupied` to decrease.
    room_waiters: usize,
    /// True if the queue refuses operations.
    stopped: bool,
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// Entries whose operations must be polled.
    woken: VecDeque<usize>,
    /// Entries whose operations have ended.
    ended: VecDeque<usize>,
    event: Option<Arc<OwnedFd>>,
    /// True if the next change must signal the event.
    armed: bool,
}

#[derive(Default)]
struct SharedOps {
    state: ProcessLock<State>,
    changed: Condvar,
}

/// Reserves room for an operation that is about to be submitted.
struct Reservation<'a>(&'a Arc<SharedOps>);

impl Reservation<'_> {
    fn fill(self, token: u64, op: Op) -> Result<()> {
        let in_flight = self.0;
        std::mem::forget(self);
        in_flight.add(token, op)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.lock() {
            self.0.free_room(&mut state);
        }
    }
}

/// The waker of an entry.
struct EntryWaker {
    in_flight: Weak<SharedOps>,
    at: usize,
}

impl Wake for EntryWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(in_flight) = self.in_flight.upgrade() else { return };
        let Ok(mut state) = in_flight.lock() else { return };
        let entry = &mut state.entries[self.at];
        let waits = matches!(entry.phase, Phase::Waiting(_)) && !entry.woken;
        entry.woken = true;
        if waits {
            state.woken.push_back(self.at);
            in_flight.signal(state);
        }
    }
}

impl SharedOps {
    /// Locks the state. In a forked child, returns the error that all calls with the parent's queue have: a
    /// thread of the parent may hold the lock, and no thread of the child ends the operations.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        self.state.lock().ok_or_else(forked)
    }

    /// Wakes the threads that wait or sleep.
    fn signal(&self, mut state: MutexGuard<'_, State>) {
        let event = if std::mem::take(&mut state.armed) { state.event.clone() } else { None };
        drop(state);
        self.changed.notify_all();
        if let Some(event) = event {
            // The write fails only if the counter is at its maximum, and in that case the event is already
            // readable.
            let _ = rustix::io::write(&*event, &1_u64.to_ne_bytes());
        }
    }

    /// Adds an operation, and polls it once, which registers its waker.
    fn add(self: &Arc<Self>, token: u64, op: Op) -> Result<()> {
        let mut state = self.lock()?;
        let at = state.free.pop().unwrap_or(state.entries.len());
        if at == state.entries.len() {
            let waker = Arc::new(EntryWaker { in_flight: Arc::downgrade(self), at }).into();
            state.entries.push(Entry { token, cancelled: false, phase: Phase::Free, woken: false, waker });
        }
        let entry = &mut state.entries[at];
        (entry.token, entry.cancelled, entry.woken, entry.phase) = (token, false, false, Phase::Polling);
        let waker = entry.waker.clone();
        drop(state);
        self.poll_op(at, op, &waker)
    }

    /// Polls an operation whose entry is `Polling`.
    fn poll_op(&self, at: usize, mut op: Op, waker: &Waker) -> Result<()> {
        let polled = op.as_mut().poll(&mut Context::from_waker(waker));
        let mut state = self.lock()?;
        match polled {
            Poll::Ready(ended) => {
                state.entries[at].phase = Phase::Ended(ended, op);
                state.ended.push_back(at);
                self.signal(state);
            }
            Poll::Pending => {
                let entry = &mut state.entries[at];
                entry.phase = Phase::Waiting(op);
                if entry.woken {
                    state.woken.push_back(at);
                    self.signal(state);
                }
            }
        }
        Ok(())
    }

    fn free_room(&self, state: &mut State) {
        state.occupied -= 1;
        if state.room_waiters > 0 {
            self.changed.notify_all();
        }
    }

    /// Frees an entry and returns its operation, if the operation has ended.
    fn take(&self, state: &mut State, at: usize) -> Option<Ended> {
        let entry = &mut state.entries[at];
        match std::mem::replace(&mut entry.phase, Phase::Free) {
            Phase::Ended(result, op) => {
                let ended = Ended { token: entry.token, result, is_cancelled: entry.cancelled, op };
                state.free.push(at);
                self.free_room(state);
                Some(ended)
            }
            other => {
                entry.phase = other;
                None
            }
        }
    }

    /// Polls the operations whose wakers were called.
    fn advance(&self) -> Result<()> {
        let mut state = self.lock()?;
        // Operations that are woken again during this loop are polled by the next call.
        for _ in 0..state.woken.len() {
            let Some(at) = state.woken.pop_front() else { break };
            let entry = &mut state.entries[at];
            entry.woken = false;
            match std::mem::replace(&mut entry.phase, Phase::Polling) {
                Phase::Waiting(op) => {
                    let waker = entry.waker.clone();
                    drop(state);
                    self.poll_op(at, op, &waker)?;
                    state = self.lock()?;
                }
                other => entry.phase = other,
            }
        }
        Ok(())
    }
}

/// An operation that has ended. It is handled after the lock is released.
struct Ended {
    token: u64,
    result: Result<u64, Failure>,
    is_cancelled: bool,
    op: Op,
}

impl Ended {
    /// Frees the operands. Returns the completion, unless it was cancelled.
    fn complete(self) -> Option<dma_completion> {
        drop(self.op);
        (!self.is_cancelled).then(|| completion(self.token, self.result))
    }
}

/// A shared queue with its operations in flight.
pub(super) struct Shared {
    queue: SharedQueue,
    in_flight: Arc<SharedOps>,
}

impl Shared {
    pub(super) fn new(queue: SharedQueue) -> Self {
        Self { queue, in_flight: Arc::default() }
    }

    /// Reserves room for an operation, if the queue has room. An operation that the queue has executed at
    /// once also needs room until its completion is received.
    fn reserve(&self) -> Result<Reservation<'_>> {
        let mut state = self.in_flight.lock()?;
        if state.stopped {
            return Err(stopped());
        }
        // If the queue has no free slot, submitting fails with the queue's own error, which says whether the
        // device is stalled.
        if state.occupied >= self.queue.depth() && self.queue.available() > 0 {
            return Err(Error::bare(ErrorKind::QueueFull));
        }
        state.occupied += 1;
        Ok(Reservation(&self.in_flight))
    }

    /// Frees the operations that have ended and whose completions were cancelled. Returns the number of
    /// completions.
    fn drop_cancelled(&self) -> Result<usize> {
        let mut state = self.in_flight.lock()?;
        let State { ended, entries, .. } = &mut *state;
        let mut cancelled = Vec::new();
        ended.retain(|at| {
            let keep = !entries[*at].cancelled;
            cancelled.extend((!keep).then_some(*at));
            keep
        });
        let count = ended.len();
        let cancelled: Vec<_> =
            cancelled.into_iter().filter_map(|at| self.in_flight.take(&mut state, at)).collect();
        // Operations are dropped after the lock is released.
        drop(state);
        drop(cancelled);
        Ok(count)
    }

    fn queue(&self) -> Result<&SharedQueue> {
        if self.in_flight.lock()?.stopped { Err(stopped()) } else { Ok(&self.queue) }
    }

    fn take_ended(&self, out: &mut OutArray<dma_completion>) -> Result<()> {
        while !out.is_full() {
            let mut state = self.in_flight.lock()?;
            let Some(at) = state.ended.pop_front() else { break };
            let ended = self.in_flight.take(&mut state, at);
            drop(state);
            if let Some(completion) = ended.and_then(Ended::complete) {
                out.push(completion);
            }
        }
        Ok(())
    }

    /// Advances operations until `look` returns a value or the deadline has passed.
    fn until<R>(
        &self,
        deadline: Instant,
        mut look: impl FnMut(&mut State) -> Result<Option<R>>,
    ) -> Result<R> {
        loop {
            self.in_flight.advance()?;
            let mut state = self.in_flight.lock()?;
            if let Some(found) = look(&mut state)? {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out());
            }
            if state.woken.is_empty() {
                drop(self.in_flight.changed.wait_timeout(state, left));
            } else {
                drop(state);
                std::thread::yield_now();
            }
        }
    }

    pub(super) fn close(self, timeout: Duration) -> Result<()> {
        let is_parents = self.in_flight.lock().is_err();
        // In a forked child, dropping the queue leaves the parent's queue alone.
        if is_parents { Ok(()) } else { (&mut &self).stop(timeout) }
    }
}

impl Operations for &Shared {
    fn copy(&mut self, copy: &dma_copy, src: &Region, dst: &Region) -> Result<()> {
        let reservation = self.reserve()?;
        let transfer = self.queue.copy(src.window_of(&copy.src)?, dst.window_of(&copy.dst)?)?;
        reservation.fill(copy.token, without_result(transfer))
    }

    fn submit(&mut self, request: Request, token: u64) -> Result<()> {
        let (reservation, queue) = (self.reserve()?, &self.queue);
        let op = match request {
            Request::CopyList(src, dst) => without_result(queue.copy(src, dst)?),
            Request::CopyToBoth(src, dst, also) => without_result(queue.copy_to_both(src, dst, also)?),
            Request::Fill(dst, pattern) => without_result(queue.fill(dst, pattern)?),
            Request::Compare(a, b) => op(queue.compare(a, b)?, |(operands, difference)| {
                (operands, difference.map_or(u64::MAX, |at| at as u64))
            }),
            Request::Crc32c(src, seed) => {
                op(queue.crc32c(src, seed)?, |(operands, crc)| (operands, crc.into()))
            }
            Request::CopyCrc32c(src, dst, seed) => {
                op(queue.copy_crc32c(src, dst, seed)?, |(operands, crc)| (operands, crc.into()))
            }
        };
        reservation.fill(token, op)
    }

    fn submit_batch(&mut self, batch: dma_batch, token: u64) -> Result<()> {
        let reservation = self.reserve()?;
        let mut taken = batch::take(batch)?;
        let list = taken.take_list().map_err(|e| no_batch(self.queue.lost(), e))?;
        let transfer = match self.queue.submit(list) {
            Ok(transfer) => transfer,
            Err(e) => {
                let (error, list) = OpError::into_parts(e);
                taken.put_back(list);
                return Err(error);
            }
        };
        taken.hold().keep();
        let transfer = transfer.outlast_stalls();
        let running = Running { transfer, operands: None, split: |list| (list, 0) };
        reservation.fill(token, Box::pin(RunningBatch { running, batch }))
    }

    fn fence(&mut self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "a fence on a shared queue")
            .with_hint("receive the completion of an operation before you submit one that depends on it"))
    }

    fn flush(&mut self) -> Result<()> {
        self.queue().map(drop)
    }

    fn cancel(&mut self, token: u64) -> Result<()> {
        let mut found = false;
        for entry in &mut self.in_flight.lock()?.entries {
            if !matches!(entry.phase, Phase::Free) && entry.token == token && !entry.cancelled {
                (entry.cancelled, found) = (true, true);
            }
        }
        if found { Ok(()) } else { Err(no_token(token)) }
    }

    fn poll(&mut self, out: &mut OutArray<dma_completion>) -> Result<()> {
        self.in_flight.advance()?;
        self.take_ended(out)
    }

    fn wait(&mut self, out: &mut OutArray<dma_completion>, deadline: Instant) -> Result<()> {
        loop {
            let idle = self.until(deadline, |state| {
                let idle = state.free.len() == state.entries.len();
                Ok((idle || !state.ended.is_empty()).then_some(idle))
            })?;
            self.take_ended(out)?;
            // Another thread may have received or cancelled the completion.
            if idle || out.written() > 0 {
                return Ok(());
            }
        }
    }

    fn wait_for(&mut self, token: u64, deadline: Instant) -> Result<dma_completion> {
        let ended = self.until(deadline, |state| {
            let is_it = |entry: &Entry| {
                !matches!(entry.phase, Phase::Free) && entry.token == token && !entry.cancelled
            };
            let at = state.entries.iter().position(is_it).ok_or_else(|| no_token(token))?;
            Ok(self.in_flight.take(state, at).inspect(|_| state.ended.retain(|ended| *ended != at)))
        })?;
        ended.complete().ok_or_else(|| no_token(token))
    }

    fn wait_for_room(&mut self, out: &mut OutArray<dma_completion>, deadline: Instant) -> Result<()> {
        loop {
            self.in_flight.lock()?.room_waiters += 1;
            let has_room = self.until(deadline, |state| {
                if state.stopped {
                    return Err(stopped());
                }
                let has_room = state.occupied < self.queue.depth();
                Ok((has_room || (!out.is_full() && !state.ended.is_empty())).then_some(has_room))
            });
            self.in_flight.lock()?.room_waiters -= 1;
            if has_room? {
                return Ok(());
            }
            self.take_ended(out)?;
            // Another thread may have received or cancelled the completions.
            if out.written() > 0 {
                return Ok(());
            }
        }
    }

    fn descriptor(&mut self) -> Result<c_int> {
        self.queue()?;
        let mut state = self.in_flight.lock()?;
        if state.event.is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(above_stdio);
            state.event = Some(Arc::new(event.map_err(|e| Error::of_system_call("eventfd", e.into()))?));
        }
        state.event.as_ref().map(|event| event.as_raw_fd()).ok_or_else(|| invalid("no descriptor"))
    }

    fn arm(&mut self) -> Result<usize> {
        self.queue()?;
        let mut state = self.in_flight.lock()?;
        let event = state.event.clone();
        let event = event.ok_or_else(|| {
            invalid("no descriptor was requested").with_hint("call dma_queue_descriptor first")
        })?;
        state.armed = true;
        // The read fails if the event was not signalled.
        let _ = rustix::io::read(&*event, &mut [0; 8]);
        drop(state);
        self.in_flight.advance()?;
        // Operations that must be polled again are not counted, because the event was signalled for them.
        match (self.drop_cancelled()?, self.queue.lost()) {
            (0, Some(lost)) => Err(lost.with_operation("drive queue")),
            (ready, _) => Ok(ready),
        }
    }

    fn counters(&mut self) -> Counters {
        self.queue.counters()
    }

    fn depth(&mut self) -> (usize, usize) {
        let depth = self.queue.depth();
        // A forked child has no room.
        let occupied = self.in_flight.lock().map_or(depth, |state| state.occupied);
        (depth, self.queue.available().min(depth.saturating_sub(occupied)))
    }

    fn stalled(&mut self) -> Option<Duration> {
        self.queue.stalled()
    }

    fn stop(&mut self, timeout: Duration) -> Result<()> {
        self.in_flight.lock()?.stopped = true;
        self.in_flight.changed.notify_all();
        let counters = self.queue.close(timeout);
        self.in_flight.advance()?;
        expect_ended(&counters, self.queue.lost().is_some())
    }
}

#[cfg(test)]
mod tests {
    use dma::prelude::*;

    use super::*;

    /// The lock stays held, as by a thread that the child does not have.
    #[test]
    fn a_child_does_not_wait_for_a_thread_that_is_in_a_call() {
        let engine = dma::open("sim").unwrap();
        let queue = engine.open_shared_queue(&SharedQueueOptions::new()).unwrap();
        let shared = Shared::new(queue);
        let late = Instant::now() + Duration::from_secs(1 << 30);
        std::mem::forget(shared.in_flight.lock());
        assert!(test_support::in_child::in_child(|| {
            let mut queue = &shared;
            let refused = [
                queue.cancel(1),
                queue.flush(),
                queue.stop(Duration::MAX),
                queue.wait_for(1, late).map(drop),
            ];
            refused.iter().all(|call| call.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unsupported))
                && queue.depth().1 == 0
                && shared.close(Duration::MAX).is_ok()
        }));
    }
}
