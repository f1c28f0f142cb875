//! A queue for one thread at a time.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dma::{Answer, Counters, Driver, Error, ErrorKind, Queue, Result, Transfer, Window};

use super::operations::{
    Operations, Request, completion, expect_ended, no_batch, no_capacity, no_token, stopped, timed_out,
};
use crate::arguments::{OutArray, invalid};
use crate::batch::{self, HeldBatch, List, Taken};
use crate::error::Failure;
use crate::header::*;
use crate::region::Region;

/// An operation in flight. Rare operations are boxed to keep entries small, because entries are moved.
enum Op {
    Copy(Transfer<(Window, Window)>),
    Batch(Transfer<List>, dma_batch),
    Other(Box<OtherOp>),
}

enum OtherOp {
    CopyList(Transfer<(Vec<Window>, Vec<Window>)>),
    CopyToBoth(Transfer<(Window, Window, Window)>),
    Fill(Transfer<Vec<Window>>),
    Compare(Transfer<(Window, Window), Option<usize>>),
    Crc32c(Transfer<Window, u32>),
    CopyCrc32c(Transfer<(Window, Window), u32>),
}

/// Evaluates an expression with the transfer of an operation. `$op` is a reference, and `$boxed` is the
/// method that gets a reference from a box.
macro_rules! with_transfer {
    ($op:expr, $boxed:ident, $transfer:ident => $value:expr) => {
        match $op {
            Op::Copy($transfer) => $value,
            Op::Batch($transfer, _) => $value,
            Op::Other(other) => match other.$boxed() {
                OtherOp::CopyList($transfer) => $value,
                OtherOp::CopyToBoth($transfer) => $value,
                OtherOp::Fill($transfer) => $value,
                OtherOp::Compare($transfer) => $value,
                OtherOp::Crc32c($transfer) => $value,
                OtherOp::CopyCrc32c($transfer) => $value,
            },
        }
    };
}

impl Op {
    /// Returns the result of an operation that has ended.
    #[inline]
    fn end(self) -> Result<u64, Failure> {
        match self {
            Self::Copy(transfer) => done(transfer),
            Self::Batch(transfer, batch) => match transfer.wait() {
                Ok(list) => {
                    batch::received(batch).put_back(Some(list));
                    Ok(0)
                }
                Err(e) => {
                    let (failure, list) = Failure::with_operands(e);
                    batch::received(batch).put_back(list);
                    Err(failure)
                }
            },
            Self::Other(other) => match *other {
                OtherOp::CopyList(transfer) => done(transfer),
                OtherOp::CopyToBoth(transfer) => done(transfer),
                OtherOp::Fill(transfer) => done(transfer),
                OtherOp::Compare(transfer) => {
                    let (_, difference) = transfer.wait()?;
                    Ok(difference.map_or(u64::MAX, |at| at as u64))
                }
                OtherOp::Crc32c(transfer) => Ok(transfer.wait()?.1.into()),
                OtherOp::CopyCrc32c(transfer) => Ok(transfer.wait()?.1.into()),
            },
        }
    }
}

#[inline]
fn done<T: 'static, R: Answer>(transfer: Transfer<T, R>) -> Result<u64, Failure> {
    transfer.wait()?;
    Ok(0)
}

/// A copy or a batch that the library has executed within the submitting call.
struct Done {
    token: u64,
    /// The batch, which is in flight until its completion is received; `None` for a copy.
    batch: Option<HeldBatch>,
}

impl Done {
    /// Ends the use of the batch, if any, and returns the completion.
    #[inline]
    fn complete(&mut self) -> dma_completion {
        drop(self.batch.take());
        completion(self.token, Ok(0))
    }
}

/// An entry for an operation. The index of the entry is the token of the transfer.
struct Entry {
    token: u64,
    cancelled: bool,
    op: Option<Op>,
}

/// A queue with its operations in flight.
#[derive(Default)]
pub(super) struct Local {
    /// `None` after the queue is stopped.
    queue: Option<Queue>,
    driver: Option<Driver>,
    /// Copies and batches that were executed within their calls. The first `received` of them have been
    /// reported.
    done: Vec<Done>,
    received: usize,
    /// All other operations.
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// Entries whose operations have ended. The first `taken` of them have been reported.
    ended: Vec<u64>,
    taken: usize,
    depth: usize,
    /// The counters at the time of the stop.
    last_counters: Counters,
    /// True if the device was lost before the stop.
    lost: bool,
}

impl Local {
    pub(super) fn new(queue: Queue) -> Self {
        Self { depth: queue.depth(), queue: Some(queue), ..Self::default() }
    }

    #[inline]
    fn queue(&self) -> Result<&Queue> {
        self.queue.as_ref().ok_or_else(stopped)
    }

    /// Returns the number of operations that were executed within their calls and not yet received.
    #[inline]
    fn unreceived(&self) -> usize {
        self.done.len() - self.received
    }

    /// Returns the number of operations whose completions were not yet received.
    #[inline]
    fn in_flight(&self) -> usize {
        self.entries.len() - self.free.len() + self.unreceived()
    }

    /// Returns the queue if it has room for an operation. An operation that was executed within its call also
    /// needs room until its completion is received.
    #[inline]
    fn queue_with_room(&self) -> Result<&Queue> {
        let queue = self.queue()?;
        // If the queue has no free slot, submitting fails with the queue's own error, which says whether the
        // device is stalled.
        if self.in_flight() >= self.depth && queue.available() > 0 {
            return Err(Error::bare(ErrorKind::QueueFull));
        }
        Ok(queue)
    }

    /// Stores a submitted operation.
    #[inline]
    fn keep(&mut self, token: u64, op: Op) {
        let at = self.free.pop().unwrap_or(self.entries.len());
        if let Some(queue) = &self.queue {
            with_transfer!(&op, as_ref, transfer => queue.set_token(transfer, at as u64));
        }
        let entry = Entry { token, cancelled: false, op: Some(op) };
        match self.entries.get_mut(at) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
    }

    /// Submits the list of a batch that was not executed within the call.
    #[inline(never)]
    fn submit_list(&mut self, mut taken: Taken, batch: dma_batch, token: u64) -> Result<()> {
        match self.queue()?.submit(taken.take_list()?) {
            Ok(transfer) => self.keep(token, Op::Batch(transfer, batch)),
            Err(e) => {
                let (error, list) = e.into_parts();
                taken.put_back(list);
                return Err(error);
            }
        }
        taken.hold().keep();
        Ok(())
    }

    /// Ends the operation of an entry. Returns its completion, unless it was cancelled.
    #[inline]
    fn complete(&mut self, at: usize) -> Option<dma_completion> {
        let entry = &mut self.entries[at];
        let (op, token, cancelled) = (entry.op.take()?, entry.token, entry.cancelled);
        self.free.push(at);
        let ended = op.end();
        (!cancelled).then(|| completion(token, ended))
    }

    /// Flushes if there are operations that were not executed within their calls.
    #[inline]
    fn flush_others(&self) {
        if self.entries.len() > self.free.len()
            && let Some(queue) = &self.queue
        {
            queue.flush();
        }
    }

    /// If all ended operations in the list have been reported, fills the list again by `poll`.
    fn refill(&mut self, poll: impl FnOnce(&Queue, &mut Vec<u64>)) {
        if self.taken == self.ended.len() {
            self.ended.clear();
            self.taken = 0;
            if let Some(queue) = &self.queue {
                poll(queue, &mut self.ended);
            }
        }
    }

    #[inline]
    fn take_done(&mut self, out: &mut OutArray<dma_completion>) {
        for done in self.done[self.received..].iter_mut().take(out.left()) {
            out.push(done.complete());
            self.received += 1;
        }
        self.tidy_done();
    }

    /// Frees the memory of received operations from time to time.
    #[inline]
    fn tidy_done(&mut self) {
        if self.received == self.done.len() {
            self.done.clear();
            self.received = 0;
        } else if self.received >= self.depth {
            self.done.drain(..std::mem::take(&mut self.received));
        }
    }

    #[inline]
    fn take_ended(&mut self, out: &mut OutArray<dma_completion>) {
        while !out.is_full() && self.taken < self.ended.len() {
            let at = self.ended[self.taken] as usize;
            self.taken += 1;
            if let Some(completion) = self.complete(at) {
                out.push(completion);
            }
        }
    }

    /// Flushes, and waits for at least one completion. Returns earlier if, without a completion, `is_over`
    /// returns true.
    #[inline]
    fn wait_unless(
        &mut self,
        out: &mut OutArray<dma_completion>,
        deadline: Instant,
        is_over: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        self.flush_others();
        self.take_done(out);
        if out.written() > 0 {
            return Ok(());
        }
        loop {
            let mut in_time = Ok(());
            self.refill(|queue, ended| in_time = queue.wait_tokens(ended, deadline).map(drop));
            self.take_ended(out);
            if out.written() > 0 || is_over(self) {
                return Ok(());
            }
            in_time.map_err(|_| timed_out())?;
        }
    }

    /// Removes an entry from the list of ended entries. Returns whether it was in the list.
    fn remove_ended(&mut self, at: usize) -> bool {
        let found = self.ended[self.taken..].iter().position(|ended| *ended == at as u64);
        if let Some(found) = found {
            self.ended.remove(self.taken + found);
        }
        found.is_some()
    }

    pub(super) fn close(mut self, timeout: Duration) -> Result<()> {
        let ended = self.stop(timeout);
        self.done.clear();
        for at in 0..self.entries.len() {
            if let Some(op) = self.entries[at].op.take() {
                // The result is dropped, because the program closes the queue without receiving it.
                let _ = op.end();
            }
        }
        ended
    }
}

impl Operations for Local {
    #[inline]
    fn copy(&mut self, copy: &dma_copy, src: &Region, dst: &Region) -> Result<()> {
        let (queue, len) = (self.queue_with_room()?, copy.src.len);
        let (from, to) = ((&src.window, copy.src.offset), (&dst.window, copy.dst.offset));
        if len == copy.dst.len && queue.copy_at_once(from, to, len) {
            self.done.push(Done { token: copy.token, batch: None });
        } else {
            let transfer = queue.copy(src.window_of(&copy.src)?, dst.window_of(&copy.dst)?)?;
            self.keep(copy.token, Op::Copy(transfer));
        }
        Ok(())
    }

    fn submit(&mut self, request: Request, token: u64) -> Result<()> {
        let queue = self.queue_with_room()?;
        let op = match request {
            Request::CopyList(src, dst) => OtherOp::CopyList(queue.copy(src, dst)?),
            Request::CopyToBoth(src, dst, also) => OtherOp::CopyToBoth(queue.copy_to_both(src, dst, also)?),
            Request::Fill(dst, pattern) => OtherOp::Fill(queue.fill(dst, pattern)?),
            Request::Compare(a, b) => OtherOp::Compare(queue.compare(a, b)?),
            Request::Crc32c(src, seed) => OtherOp::Crc32c(queue.crc32c(src, seed)?),
            Request::CopyCrc32c(src, dst, seed) => OtherOp::CopyCrc32c(queue.copy_crc32c(src, dst, seed)?),
        };
        self.keep(token, Op::Other(Box::new(op)));
        Ok(())
    }

    fn submit_batch(&mut self, batch: dma_batch, token: u64) -> Result<()> {
        let queue = self.queue_with_room()?;
        let mut taken = batch::take(batch)?;
        if queue.submit_at_once(taken.list().map_err(|e| no_batch(queue.lost(), e))?) {
            self.done.push(Done { token, batch: Some(taken.hold()) });
            return Ok(());
        }
        self.submit_list(taken, batch, token)
    }

    fn fence(&mut self) -> Result<()> {
        self.queue().map(Queue::fence)
    }

    fn flush(&mut self) -> Result<()> {
        self.queue().map(Queue::flush)
    }

    fn cancel(&mut self, token: u64) -> Result<()> {
        let mut found = false;
        for entry in &mut self.entries {
            if entry.op.is_some() && entry.token == token && !entry.cancelled {
                (entry.cancelled, found) = (true, true);
            }
        }
        let known = self.unreceived();
        self.done.drain(..std::mem::take(&mut self.received));
        self.done.retain(|done| done.token != token);
        if found || self.done.len() < known { Ok(()) } else { Err(no_token(token)) }
    }

    fn poll(&mut self, out: &mut OutArray<dma_completion>) -> Result<()> {
        self.take_done(out);
        // If no entry has an operation, a poll would find nothing.
        if self.entries.len() == self.free.len() {
            return Ok(());
        }
        self.refill(|queue, ended| _ = queue.poll_tokens(ended));
        self.take_ended(out);
        Ok(())
    }

    fn wait(&mut self, out: &mut OutArray<dma_completion>, deadline: Instant) -> Result<()> {
        self.wait_unless(out, deadline, |queue| queue.in_flight() == 0)
    }

    fn wait_for(&mut self, token: u64, deadline: Instant) -> Result<dma_completion> {
        self.flush_others();
        let done = self.done[self.received..].iter().position(|done| done.token == token);
        if let Some(at) = done {
            return Ok(self.done.remove(self.received + at).complete());
        }
        let is_it = |entry: &Entry| entry.op.is_some() && entry.token == token && !entry.cancelled;
        let at = self.entries.iter().position(is_it).ok_or_else(|| no_token(token))?;
        if !self.remove_ended(at) {
            let Some(op) = &mut self.entries[at].op else { return Err(no_token(token)) };
            with_transfer!(op, as_mut, transfer => transfer.wait_until(deadline)).map_err(|_| timed_out())?;
            if let Some(queue) = &self.queue {
                queue.take_tokens(&mut self.ended);
            }
            self.remove_ended(at);
        }
        self.complete(at).ok_or_else(|| no_token(token))
    }

    fn wait_for_room(&mut self, out: &mut OutArray<dma_completion>, deadline: Instant) -> Result<()> {
        if out.is_full() {
            return Err(no_capacity());
        }
        self.queue()?;
        let has_room = |queue: &Self| queue.in_flight() < queue.depth;
        if has_room(self) { Ok(()) } else { self.wait_unless(out, deadline, has_room) }
    }

    fn descriptor(&mut self) -> Result<c_int> {
        if self.driver.is_none() {
            self.driver = Some(self.queue()?.driver()?);
        }
        self.driver.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(stopped)
    }

    fn arm(&mut self) -> Result<usize> {
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        let driver = self.driver.as_ref();
        let driven = driver
            .ok_or_else(|| {
                invalid("no descriptor was requested").with_hint("call dma_queue_descriptor first")
            })?
            .run();
        queue.take_tokens(&mut self.ended);
        // Free the operations whose completions were cancelled.
        for at in self.ended.split_off(self.taken) {
            if self.entries[at as usize].cancelled {
                self.complete(at as usize);
            } else {
                self.ended.push(at);
            }
        }
        let ready = self.ended.len() - self.taken + self.unreceived();
        // The failure of the device is also that of the operations that have ended.
        if ready == 0 {
            driven?;
        }
        Ok(ready)
    }

    fn counters(&mut self) -> Counters {
        self.queue.as_ref().map_or(self.last_counters, Queue::counters)
    }

    fn depth(&mut self) -> (usize, usize) {
        let room = self.depth.saturating_sub(self.in_flight());
        (self.depth, self.queue.as_ref().map_or(0, |queue| queue.available().min(room)))
    }

    fn stalled(&mut self) -> Option<Duration> {
        self.queue.as_ref()?.stalled()
    }

    fn stop(&mut self, timeout: Duration) -> Result<()> {
        self.driver = None;
        if let Some(queue) = self.queue.take() {
            queue.flush();
            queue.poll();
            self.lost = queue.lost().is_some();
            self.last_counters = queue.close(timeout);
            // Closing the queue has ended all transfers, so the list gets all entries with an operation.
            let known = self.ended.split_off(self.taken);
            self.taken = 0;
            self.ended = known;
            let in_flight = (0..self.entries.len()).filter(|at| self.entries[*at].op.is_some());
            let rest: Vec<_> = in_flight.map(|at| at as u64).filter(|at| !self.ended.contains(at)).collect();
            self.ended.extend(rest);
        }
        expect_ended(&self.last_counters, self.lost)
    }
}
