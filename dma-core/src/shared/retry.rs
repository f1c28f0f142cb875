//! Operations that are repeated as their errors advise.

use std::time::Duration;

use super::{SharedQueue, SharedResult, SharedTransfer};
use crate::memory::sync::deadline;
use crate::planner::Answer;
use crate::planner::retry::{RetryAfter, RetryPolicy};
use crate::{ErrorKind, OpError, Result};

impl SharedQueue {
    /// Submits an operation by `submit`, waits for it, and repeats it as its error advises, within the limits
    /// of `policy`. Blocks: a task calls [`retry_async`](Self::retry_async).
    ///
    /// # Errors
    ///
    /// The last attempt's error, which is one of `submit`, of [`ready`](Self::ready), or of
    /// [`SharedTransfer::wait`]. `QueueFull` if the queue stays full for the stall timeout of its options
    /// although all operations have ended, because the program holds their transfers.
    pub fn retry<T: Send + 'static, R: Answer>(
        &self,
        policy: &RetryPolicy,
        mut operands: T,
        submit: impl Fn(T) -> SharedResult<T, R>,
    ) -> Result<R::With<T>, OpError<T>> {
        let mut attempts = policy.attempts();
        loop {
            let error = match submit(operands).and_then(SharedTransfer::wait) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let (again, after) = attempts.next(error)?;
            operands = again;
            match after {
                RetryAfter::Nothing => {}
                RetryAfter::Delay(delay) => std::thread::sleep(delay),
                RetryAfter::Room => match self.wait_for_room() {
                    Ok(true) => {}
                    Ok(false) => return Err(OpError::full(operands)),
                    Err(e) => return Err(OpError::new(e, Some(operands))),
                },
            }
        }
    }

    /// Waits until the queue has room. Returns false if only the program can make room: for the lane's
    /// `stall_timeout`, the devices had no work, and no ended transfer was taken or dropped.
    fn wait_for_room(&self) -> Result<bool> {
        let reports =
            || self.handle.hub.lanes.iter().fold(0_u64, |sum, lane| sum.wrapping_add(lane.reports()));
        loop {
            let (before, deadline) = (reports(), deadline(self.first_lane().stall_timeout));
            match self.ready().wait_until(deadline) {
                Err(e) if e.kind() == ErrorKind::TimedOut && self.handle.hub.hangs().is_none() => {
                    if self.counters().in_flight == 0 && reports() == before {
                        return Ok(false);
                    }
                }
                waited => return waited.map(|()| true),
            }
        }
    }

    /// Repeats an operation as [`retry`](Self::retry) does, for a task. `sleep` waits for a time, such as
    /// `tokio::time::sleep`. The future does nothing before it is polled. Dropping the future is like
    /// dropping that of [`when_ready`](Self::when_ready).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use dma_core::{BufferMut, Result, RetryPolicy, SharedQueue};
    /// # async fn sleep(_: Duration) {}
    /// # async fn both(queue: &SharedQueue, pair: (BufferMut, BufferMut)) -> Result<()> {
    /// let copy = |(src, dst)| queue.copy(src, dst);
    /// let (src, dst) = queue.retry_async(&RetryPolicy::new(), pair, copy, sleep).await?;
    /// # assert_eq!(src[..], dst[..]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`retry`](Self::retry) except `QueueFull`: while the program holds the transfers of all
    /// slots, the future waits, as [`ready`](Self::ready) does.
    pub async fn retry_async<T: Send + 'static, R: Answer, S: Future<Output = ()>>(
        &self,
        policy: &RetryPolicy,
        mut operands: T,
        submit: impl Fn(T) -> SharedResult<T, R>,
        sleep: impl Fn(Duration) -> S,
    ) -> Result<R::With<T>, OpError<T>> {
        let mut attempts = policy.attempts();
        loop {
            let error = match self.when_ready(operands, &submit).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let (again, after) = attempts.next(error)?;
            operands = again;
            // `when_ready` has waited for room.
            if let RetryAfter::Delay(delay) = after {
                sleep(delay).await;
            }
        }
    }
}
