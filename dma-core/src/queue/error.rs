//! [`OpError`]: an operation that was refused or did not succeed, with its operands.

use std::fmt;
use std::time::Duration;

use super::planner::Failure;
use crate::{Error, ErrorKind};

/// What a transfer does, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Copy,
    Fill,
    Batch,
}

impl Operation {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Batch => "batch",
        }
    }
}

/// What to do about a queue that takes no more.
pub(crate) const REOPEN: &str = "open another queue";

/// Why a closed queue, or one whose engine was given up, takes nothing.
#[cold]
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the queue takes nothing more").with_hint(REOPEN)
}

/// Why a full queue on a device that hangs takes nothing.
#[cold]
pub(crate) fn stalled(silence: Duration) -> Error {
    let message = format!("the queue is full, and the device has completed nothing for {silence:.1?}");
    Error::new(ErrorKind::TimedOut, message).with_hint(
        "close the queue and open another; or go on, should the device complete something after all",
    )
}

/// An operation that was refused, or that did not succeed. The operands come back with it.
///
/// It turns into an [`Error`] by `?`, which drops the operands.
pub struct OpError<T> {
    error: Error,
    operands: Option<T>,
    failures: Vec<OpFailure>,
}

/// One operation of a batch that did not succeed; the others did.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpFailure {
    /// Which: its index in the batch.
    pub index: usize,
    /// Why.
    pub error: Error,
}

impl<T> OpError<T> {
    pub(crate) fn new(error: Error, operands: Option<T>) -> Self {
        Self { error, operands, failures: Vec::new() }
    }

    /// What became of an operation or batch, some or all of which did not succeed.
    pub(crate) fn from_failures(
        failures: Vec<Failure>,
        operation: Operation,
        backend: &'static str,
        operands: T,
    ) -> Self {
        if operation != Operation::Batch {
            let error = failures.into_iter().next().map(|f| f.into_error(operation.name(), backend));
            return Self::new(error.unwrap_or_else(|| Error::bare(ErrorKind::DeviceFault)), Some(operands));
        }
        let failures: Vec<_> = failures
            .into_iter()
            .map(|f| OpFailure { index: f.index as usize, error: f.into_error(operation.name(), backend) })
            .collect();
        // A failure says more than an abort, which only came with it, or with the close.
        let only_ended = |kind| matches!(kind, ErrorKind::Aborted | ErrorKind::Closed);
        let worst = failures.iter().find(|f| !only_ended(f.error.kind())).or(failures.first());
        let error = worst.map_or(Error::bare(ErrorKind::DeviceFault), |worst| {
            let message = format!(
                "{} copies of the batch did not succeed, copy {} for one",
                failures.len(),
                worst.index
            );
            let error = Error::new(worst.error.kind(), message)
                .with_operation(operation.name())
                .with_backend(backend)
                .with_hint(worst.error.hint().to_owned());
            match worst.error.native() {
                Some(native) => error.with_native(native.clone()),
                None => error,
            }
        });
        Self { error, operands: Some(operands), failures }
    }

    pub(crate) fn full(operands: T) -> Self {
        Self::new(Error::bare(ErrorKind::QueueFull), Some(operands))
    }

    /// What went wrong. [`QueueFull`](ErrorKind::QueueFull) costs no allocation: poll, and submit again.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// What went wrong, in full.
    #[must_use]
    pub const fn error(&self) -> &Error {
        &self.error
    }

    /// For a batch that was submitted: every operation that did not succeed. Empty for a refusal and for single operations.
    #[must_use]
    pub fn failures(&self) -> &[OpFailure] {
        &self.failures
    }

    /// The operands, given back; `None` if the device may still be at them (a wait that timed out, a device that does not answer).
    #[must_use]
    pub fn into_operands(self) -> Option<T> {
        self.operands
    }

    /// The error and the operands.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<T>) {
        (self.error, self.operands)
    }
}

impl<T> From<OpError<T>> for Error {
    fn from(e: OpError<T>) -> Self {
        e.error
    }
}

impl<T> fmt::Display for OpError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// As that of [`Error`].
impl<T> fmt::Debug for OpError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("OpError")
            .field("error", &self.error)
            .field("operands", &self.operands.as_ref().map(|_| ".."))
            .field("failures", &self.failures)
            .finish()
    }
}

impl<T> std::error::Error for OpError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
