//! [`Channel`]: the raw queue of a worker, and the descriptors that wait for room in it. A channel drains its
//! queue before it drops the queue.
#![expect(unsafe_code, reason = "submits to the raw queue")]

use std::ops::Range;
use std::time::{Duration, Instant};

use dma::contract::{Completion, Descriptor, Outcome, RawQueue};
use dma::{DmaEngine, QueueOptions, Retry};

use super::CellError;
use crate::run::memory::Memory;

/// Maximum number of completions of one poll.
pub(super) const MAX_COMPLETIONS: usize = 64;
/// Maximum number of consecutive refusals with "try again". After that, the engine has failed.
const MAX_REFUSALS: u32 = 4096;
/// Time limit for the completions of all descriptors after the queue is stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A raw queue, and the memory that its descriptors refer to.
#[derive(Debug)]
pub(super) struct Channel {
    /// `None` only while the channel is being dropped.
    pub(super) queue: Option<Box<dyn RawQueue>>,
    memory: Memory,
    /// Number of descriptors that the queue has accepted and not yet completed.
    pub(super) outstanding: u64,
    /// Number of consecutive submissions that the engine refused with an error that allows a retry.
    refusals: u32,
    /// Descriptors that the queue has not accepted yet.
    pub(super) pending: Vec<Descriptor<'static>>,
    /// Buffer for the completions of a poll. It is created only once, because that takes longer than dozens
    /// of short copies.
    pub(super) completions: Vec<Completion>,
    /// Number of doorbells before the current sample.
    doorbells_before: u64,
}

/// The reason why [`Channel::run_whole_batches`] ended.
pub(super) enum Stopped {
    /// All batches have completed.
    AllDone,
    /// The queue accepted only a part of the batch.
    PartlyTaken,
    /// A poll returned this number of completions, which are fewer than the batch has or include a failure.
    Polled(usize),
    Failed(CellError),
}

impl Channel {
    /// Opens a queue. `memory` is kept until the queue is dropped. `pending` is the maximum number of pending
    /// descriptors.
    pub(super) fn open(
        engine: &dyn DmaEngine,
        options: &QueueOptions,
        memory: Memory,
        pending: usize,
    ) -> Result<Self, CellError> {
        Ok(Self {
            queue: Some(engine.open_queue_raw(options)?),
            memory,
            outstanding: 0,
            refusals: 0,
            pending: Vec::with_capacity(pending),
            completions: vec![Completion::done(0); MAX_COMPLETIONS],
            doorbells_before: 0,
        })
    }

    #[inline]
    pub(super) fn queue(&mut self) -> &mut dyn RawQueue {
        self.queue.as_deref_mut().expect("only drop takes the queue")
    }

    pub(super) fn begin_sample(&mut self) {
        self.refusals = 0;
        self.doorbells_before = self.queue().stats().doorbells;
    }

    /// Returns the number of doorbells in the current sample.
    pub(super) fn doorbells(&mut self) -> u64 {
        self.queue().stats().doorbells - self.doorbells_before
    }

    /// Submits descriptors and rings the doorbell. Descriptors that do not fit into the queue become pending.
    ///
    /// # Safety
    ///
    /// The segments must lie within `memory` and stay within the engine's limits. No other code may access
    /// them until the descriptor has completed. If two descriptors in flight share a byte, neither of them
    /// may write it.
    #[inline]
    pub(super) unsafe fn submit(&mut self, batch: &[Descriptor<'static>]) -> Result<(), CellError> {
        let queue = self.queue.as_deref_mut().expect("only drop takes the queue");
        // SAFETY: the caller keeps the segments within the memory, without overlap. The memory belongs to the
        // queue's engine, and is leaked if a descriptor is never reported.
        let taken = taken(unsafe { queue.submit(batch) }, &mut self.refusals)?;
        queue.flush();
        self.outstanding += taken as u64;
        if taken < batch.len() {
            self.pending.extend_from_slice(&batch[taken..]);
        }
        Ok(())
    }

    /// Submits the pending descriptors, as far as the queue has room, and rings the doorbell.
    ///
    /// # Safety
    ///
    /// The pending descriptors must fulfil the conditions of [`submit`](Self::submit).
    #[inline]
    pub(super) unsafe fn submit_pending(&mut self) -> Result<(), CellError> {
        let queue = self.queue.as_deref_mut().expect("only drop takes the queue");
        // SAFETY: the caller keeps the segments within the memory, without overlap. The memory belongs to the
        // queue's engine, and is leaked if a descriptor is never reported.
        let taken = taken(unsafe { queue.submit(&self.pending) }, &mut self.refusals)?;
        queue.flush();
        self.outstanding += taken as u64;
        if taken == self.pending.len() {
            self.pending.clear();
        } else {
            self.pending.drain(..taken);
        }
        Ok(())
    }

    /// Submits one descriptor, and repeats this while the engine refuses it with an error that allows a
    /// retry. The caller rings the doorbell.
    ///
    /// # Safety
    ///
    /// The descriptor must fulfil the conditions of [`submit`](Self::submit).
    pub(super) unsafe fn submit_one(&mut self, descriptor: Descriptor<'_>) -> Result<(), CellError> {
        let queue = self.queue.as_deref_mut().expect("only drop takes the queue");
        loop {
            let refused = self.refusals;
            // SAFETY: the caller ensures that the segments are within the memory and do not overlap. The
            // queue reads the lists of segments before this call returns. The memory is leaked if the
            // descriptor is never reported.
            let answer = unsafe { queue.submit(&[descriptor]) };
            match taken(answer, &mut self.refusals)? {
                1 => {
                    self.outstanding += 1;
                    return Ok(());
                }
                _ if self.refusals > refused => queue.flush(),
                _ => return Err(CellError::Failed("the queue is full before its depth".to_owned())),
            }
        }
    }

    /// Submits a batch and polls once. Repeats this up to `times` times, while the poll reports the whole
    /// batch as done. Calls `done` with the completions. Returns the number of completed batches, and the
    /// reason why the loop ended.
    ///
    /// For short copies, this loop is most of the overhead that is measured with the engine, so it has few
    /// instructions.
    ///
    /// # Safety
    ///
    /// The batch must fulfil the conditions of [`submit`](Self::submit) each time that it is submitted.
    #[inline]
    pub(super) unsafe fn run_whole_batches(
        &mut self,
        batch: &[Descriptor<'static>],
        times: u64,
        mut done: impl FnMut(&[Completion]),
    ) -> (u64, Stopped) {
        let queue = self.queue.as_deref_mut().expect("only drop takes the queue");
        let mut whole = 0;
        while whole < times {
            // SAFETY: the caller ensures that the segments are within the memory and do not overlap. The
            // previous batch has completed. The memory is leaked if a descriptor is never reported.
            let taken = taken(unsafe { queue.submit(batch) }, &mut self.refusals);
            queue.flush();
            let n = match taken {
                Ok(n) if n == batch.len() => queue.poll(&mut self.completions),
                Ok(n) => {
                    self.outstanding += n as u64;
                    self.pending.extend_from_slice(&batch[n..]);
                    return (whole, Stopped::PartlyTaken);
                }
                Err(error) => return (whole, Stopped::Failed(error)),
            };
            if n != batch.len() || !all_done(&self.completions[..n]) {
                self.outstanding += batch.len() as u64;
                return (whole, Stopped::Polled(n));
            }
            done(&self.completions[..n]);
            whole += 1;
        }
        (whole, Stopped::AllDone)
    }

    /// Polls once. Returns the number of entries written to `completions`.
    #[inline]
    pub(super) fn poll(&mut self) -> usize {
        let queue = self.queue.as_deref_mut().expect("only drop takes the queue");
        queue.poll(&mut self.completions)
    }

    /// Subtracts `n` completions from the outstanding descriptors.
    #[inline]
    pub(super) fn count_completed(&mut self, n: usize) {
        self.outstanding = self.outstanding.saturating_sub(n as u64);
        if n > 0 {
            self.refusals = 0;
        }
    }

    /// Stops the queue and polls until all descriptors are reported, for at most [`DRAIN_TIMEOUT`]. Returns
    /// false if some descriptors are not reported.
    pub(super) fn drain(&mut self) -> bool {
        let Some(queue) = self.queue.as_mut().filter(|_| self.outstanding > 0) else { return true };
        queue.stop();
        let until = Instant::now() + DRAIN_TIMEOUT;
        let mut idle = 0;
        while self.outstanding > 0 && idle < 1 << 20 && Instant::now() < until {
            let n = queue.poll(&mut self.completions);
            self.outstanding = self.outstanding.saturating_sub(n as u64);
            idle = if n == 0 { idle + 1 } else { 0 };
        }
        self.outstanding == 0
    }
}

impl Drop for Channel {
    /// Waits for operations in flight. If they are not reported, the queue and its memory are leaked, because
    /// the device may still access them.
    fn drop(&mut self) {
        if !self.drain() {
            std::mem::forget(self.queue.take());
            std::mem::forget(self.memory.clone());
        }
    }
}

/// Returns the number of descriptors that the engine has accepted. A refusal that allows a retry counts as 0
/// descriptors, but after [`MAX_REFUSALS`] consecutive refusals it is an error.
#[inline]
fn taken(answer: dma::Result<usize>, refusals: &mut u32) -> Result<usize, CellError> {
    answer.or_else(|error| refused(error, refusals))
}

#[cold]
fn refused(error: dma::Error, refusals: &mut u32) -> Result<usize, CellError> {
    *refusals += 1;
    if error.retry() == Retry::Never || *refusals > MAX_REFUSALS { Err(error.into()) } else { Ok(0) }
}

/// Returns true if all completions are successes and the sum of their tokens is that of places 0 to n - 1.
/// Only timed doorbells also check that each token was reported once, because that check would add 4 % to a
/// short copy.
#[inline]
fn all_done(completions: &[Completion]) -> bool {
    let done = |c: &Completion| c.outcome == Outcome::Done;
    let tokens = |sum: u64, c: &Completion| sum.wrapping_add(c.token);
    // Checking four completions at once takes a third of the time.
    let fours = completions.chunks_exact(4);
    let rest = fours.remainder();
    let mut sum = rest.iter().fold(0, tokens);
    for four in fours {
        if !four.iter().all(done) {
            return false;
        }
        sum = four.iter().fold(sum, tokens);
    }
    // A token that was never submitted changes the sum.
    let places = completions.len() as u64;
    rest.iter().all(done) && sum == places * places.saturating_sub(1) / 2
}

/// Returns the range of tokens if all completions are successes with consecutive, ascending tokens below
/// `places`.
#[inline]
pub(super) fn consecutive(completions: &[Completion], places: u32) -> Option<Range<u32>> {
    let first = completions.first()?.token;
    let end = first.checked_add(completions.len() as u64).filter(|&end| end <= u64::from(places))?;
    let row = completions.iter().zip(first..end).all(|(c, at)| c.outcome == Outcome::Done && c.token == at);
    row.then_some(first as u32..end as u32)
}
