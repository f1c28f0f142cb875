//! [`Copies`]: the DMA copies in flight of one queue, in the order of their submission.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dma::{BufferMut, DmaEngine, DmaEngineExt, Queue, QueueOptions, Retry, Transfer};

use crate::failure::{Failure, check_interrupt, failure};
use apps_shared::command::tries_after;
use apps_shared::hold;
use dma::process::count;

/// Time after which a device that has work and completes nothing counts as stalled.
const STALL: Duration = Duration::from_secs(10);
/// Maximum time between two checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The source and the destination of a copy.
type Pair = (BufferMut, BufferMut);

/// A queue, and its copies in flight. `T` is what the caller keeps for each copy.
pub(crate) struct Copies<T> {
    backend: &'static str,
    queue: Queue,
    in_flight: VecDeque<Copy<T>>,
    /// Number of copies that were submitted again, mostly after a device reset.
    pub(crate) retries: u64,
}

struct Copy<T> {
    transfer: Transfer<Pair>,
    /// Offset in SRC.
    offset: u64,
    kept: T,
    tries: u32,
}

/// A copy that is done.
pub(crate) struct Done<T> {
    pub(crate) src: BufferMut,
    pub(crate) dst: BufferMut,
    pub(crate) offset: u64,
    pub(crate) kept: T,
}

impl<T> Copies<T> {
    pub(crate) fn open(engine: &dyn DmaEngine, options: &QueueOptions) -> Result<Self, Failure> {
        let (backend, queue) = (engine.info().backend, engine.open_queue(options)?);
        Ok(Self { backend, in_flight: VecDeque::with_capacity(queue.depth()), queue, retries: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Submits a copy of bytes at `offset` in SRC. At most the queue's depth of copies may be in flight.
    pub(crate) fn submit(&mut self, pair: Pair, offset: u64, kept: T) -> Result<(), Failure> {
        self.submit_again(pair, offset, kept, 0)
    }

    fn submit_again(&mut self, (src, dst): Pair, offset: u64, kept: T, tries: u32) -> Result<(), Failure> {
        let transfer = self.queue.copy(src, dst).map_err(|e| at(offset, &e.into()))?;
        self.queue.flush();
        self.in_flight.push_back(Copy { transfer, offset, kept, tries });
        Ok(())
    }

    /// Returns the oldest copy if it is done. Submits it again if it failed. A software engine copies during
    /// this call.
    pub(crate) fn next_done(&mut self) -> Result<Option<Done<T>>, Failure> {
        while self.in_flight.front().is_some_and(|oldest| oldest.transfer.is_done())
            && let Some(Copy { transfer, offset, kept, tries }) = self.in_flight.pop_front()
        {
            match transfer.wait().map_err(dma::OpError::into_parts) {
                Ok((src, dst)) => return Ok(Some(Done { src, dst, offset, kept })),
                Err((error, Some(operands))) if tries < tries_after(&error) => {
                    if error.retry() == Retry::Later {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    self.retries += 1;
                    self.submit_again(operands, offset, kept, tries + 1)?;
                }
                Err((error, _)) => return Err(at(offset, &error)),
            }
        }
        Ok(None)
    }

    /// Waits for the oldest copy. Fails if the device has completed nothing for [`STALL`], without times in
    /// which this process did not run.
    pub(crate) fn wait(&mut self) -> Result<(), Failure> {
        let stall = hold::timeout("device", STALL);
        let mut before = self.queue.counters().completed;
        let (mut idle, mut looked) = (Duration::ZERO, Instant::now());
        while let Some(oldest) = self.in_flight.front_mut()
            && oldest.transfer.wait_for(POLL_INTERVAL).is_err()
        {
            check_interrupt()?;
            let (completed, now) = (self.queue.counters().completed, Instant::now());
            idle += (now - looked).min(2 * POLL_INTERVAL);
            looked = now;
            if completed != before {
                (before, idle) = (completed, Duration::ZERO);
            } else if idle > stall {
                return Err(failure!(
                    "{} has completed nothing for {stall:?} and has {} to do; reset the device, or copy with --engine cpu",
                    self.backend,
                    count(self.queue.counters().in_flight, "copy", "copies")
                ));
            }
        }
        Ok(())
    }
}

/// Adds the offset in SRC to the error.
fn at(offset: u64, error: &dma::Error) -> Failure {
    failure!("cannot copy the bytes of SRC at offset {offset}: {error}")
}
