//! [`RetryPolicy`]: repeats operations as their errors advise.

use std::time::Duration;

use super::error::OpError;
use crate::Retry;

/// Limits of the retries of an operation. [`Queue::retry`](crate::Queue::retry),
/// [`SharedQueue::retry`](crate::SharedQueue::retry) and
/// [`SharedQueue::retry_async`](crate::SharedQueue::retry_async) repeat an operation as the
/// [advice](crate::Error::retry) of its error says:
///
/// | advice | the retry follows |
/// |---|---|
/// | [`Now`](Retry::Now) | immediately |
/// | [`FewTimes`](Retry::FewTimes) | immediately, at most [`max_faults`](Self::max_faults) times |
/// | [`AfterProgress`](Retry::AfterProgress) | when the queue has room, which does not count as an attempt |
/// | [`Later`](Retry::Later) | after [`delay`](Self::delay), which then doubles |
/// | [`Never`](Retry::Never) | never |
///
/// An operation whose error does not return the operands is never repeated, because the device may still use
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first. Default 10. 0 means 1.
    pub max_attempts: u32,
    /// Maximum number of retries after errors with the advice [`Retry::FewTimes`]. Default 3.
    pub max_faults: u32,
    /// The first delay. Default 1 ms. Each delay is twice as long as the one before, up to `max_delay`.
    pub delay: Duration,
    /// The longest delay. Default 1 s.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 10,
            max_faults: 3,
            delay: Duration::from_millis(1),
            max_delay: Duration::from_secs(1),
        }
    }
}

impl RetryPolicy {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::contract::setters::setters! {
        /// Sets the maximum number of attempts, including the first.
        with_max_attempts(max_attempts: u32);
        /// Sets the maximum number of retries after errors with the advice [`Retry::FewTimes`].
        with_max_faults(max_faults: u32);
        /// Sets the first delay.
        with_delay(delay: Duration);
        /// Sets the longest delay.
        with_max_delay(max_delay: Duration);
    }

    pub(crate) const fn attempts(&self) -> Attempts {
        Attempts {
            left: self.max_attempts,
            faults_left: self.max_faults,
            delay: self.delay,
            max_delay: self.max_delay,
        }
    }
}

/// The condition for the next attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RetryAfter {
    Nothing,
    /// The queue must have room.
    Room,
    Delay(Duration),
}

/// The attempts that an operation has left.
#[derive(Debug)]
pub(crate) struct Attempts {
    left: u32,
    faults_left: u32,
    delay: Duration,
    max_delay: Duration,
}

impl Attempts {
    /// Counts a failed attempt. Returns the operands, and the condition for the next attempt.
    ///
    /// # Errors
    ///
    /// The error of the attempt, if no further attempt follows.
    pub(crate) fn next<T>(&mut self, error: OpError<T>) -> Result<(T, RetryAfter), OpError<T>> {
        let advice = error.retry();
        self.left = self.left.saturating_sub(u32::from(advice != Retry::AfterProgress));
        let after = match advice {
            _ if self.left == 0 => return Err(error),
            Retry::Now => RetryAfter::Nothing,
            Retry::FewTimes if self.faults_left > 0 => {
                self.faults_left -= 1;
                RetryAfter::Nothing
            }
            Retry::AfterProgress => RetryAfter::Room,
            Retry::Later => {
                let delay = self.delay.min(self.max_delay);
                self.delay = delay.saturating_mul(2);
                RetryAfter::Delay(delay)
            }
            _ => return Err(error),
        };
        error.into_operands_or_self().map(|operands| (operands, after))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    fn error(kind: ErrorKind) -> OpError<u8> {
        OpError::new(Error::bare(kind), Some(7))
    }

    /// Returns the conditions of the retries after errors of this kind, up to 12.
    fn retries(policy: &RetryPolicy, kind: ErrorKind) -> Vec<RetryAfter> {
        let mut attempts = policy.attempts();
        let next = std::iter::from_fn(|| Some(attempts.next(error(kind)).ok()?.1));
        next.take(12).collect()
    }

    #[test]
    fn retries_follow_the_advice() {
        let policy = RetryPolicy::new().with_max_delay(Duration::from_millis(5));
        let count = |kind| retries(&policy, kind).len();
        assert_eq!(count(ErrorKind::Aborted), 9);
        assert_eq!(count(ErrorKind::DeviceFault), 3);
        assert_eq!(retries(&policy.clone().with_max_faults(0), ErrorKind::DeviceFault), []);
        assert_eq!(count(ErrorKind::LengthMismatch), 0);
        assert_eq!(count(ErrorKind::QueueFull), 12, "waiting for room is no attempt");
        let delays = [1, 2, 4, 5, 5, 5, 5, 5, 5].map(|ms| RetryAfter::Delay(Duration::from_millis(ms)));
        assert_eq!(retries(&policy, ErrorKind::TimedOut), delays);
        for attempts in [0, 1] {
            assert_eq!(retries(&policy.clone().with_max_attempts(attempts), ErrorKind::Aborted), []);
        }
    }

    #[test]
    fn an_operation_whose_operands_the_device_uses_is_not_repeated() {
        let kept = OpError::<u8>::new(Error::new(ErrorKind::TimedOut, "a wait"), None);
        let error = RetryPolicy::new().attempts().next(kept).expect_err("there are no operands");
        assert_eq!((error.kind(), error.error().message()), (ErrorKind::TimedOut, "a wait"));
        let (operands, _) =
            RetryPolicy::new().attempts().next(self::error(ErrorKind::Aborted)).expect("again");
        assert_eq!(operands, 7);
    }
}
