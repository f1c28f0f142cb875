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
///
/// `Display` is the error's line, all of it. In a chain of causes, as `anyhow` or `Box<dyn std::error::Error>` have it, the
/// [`source`](std::error::Error::source) is that [`Error`] itself, so that who has nothing but the chain finds the
/// [`kind`](Error::kind) and [`retry`](Error::retry); there its `Display` is no more than the name of the kind, as in `kind Aborted`,
/// since the line has been said.
///
/// ```
/// use dma_core::{Error, Retry};
///
/// /// Of any error that a program may end up with, `anyhow::Error` (by its `as_ref`) as well as a box.
/// fn is_worth_a_retry(error: &(dyn std::error::Error + 'static)) -> bool {
///     std::iter::successors(Some(error), |e| (*e).source())
///         .find_map(|e| e.downcast_ref::<Error>())
///         .is_some_and(|e| e.retry() != Retry::Never)
/// }
/// # assert!(is_worth_a_retry(&Error::bare(dma_core::ErrorKind::Aborted)));
/// ```
///
/// An error that is passed on so keeps the operands, and their memory, for as long as it lives; `.map_err(dma::Error::from)` lets them go.
pub struct OpError<T> {
    error: Error,
    /// The error, as the chain of causes shows it.
    cause: Error,
    operands: Option<T>,
    // Two words, not three: clippy's limit for an error is 128 bytes, operands included.
    failures: Box<[OpFailure]>,
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
        Self::with_failures(error, operands, Vec::new())
    }

    fn with_failures(error: Error, operands: Option<T>, failures: Vec<OpFailure>) -> Self {
        Self { cause: error.to_cause(), error, operands, failures: failures.into() }
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
        Self::with_failures(error, Some(operands), failures)
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
        Some(&self.cause)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    /// What `anyhow`'s `{:#}` shows of it.
    fn chain(first: &(dyn std::error::Error + 'static)) -> Vec<String> {
        std::iter::successors(Some(first), |e| (*e).source()).map(ToString::to_string).collect()
    }

    #[test]
    fn with_two_buffers_it_is_no_large_error() {
        assert!(size_of::<OpError<(crate::BufferMut, crate::BufferMut)>>() < 128);
    }

    #[test]
    fn who_has_but_the_chain_finds_the_error_and_reads_its_line_once() {
        let reset = || {
            Error::new(ErrorKind::Aborted, "a reset")
                .with_operation("copy")
                .with_hint("submit it again")
                .with_source(std::io::Error::other("the cable"))
        };
        let passed_on: Box<dyn std::error::Error> = Box::new(OpError::new(reset(), Some([1, 2])));
        let line = "copy: aborted by a device reset: a reset; submit it again";
        assert_eq!(chain(&*passed_on), [line, "kind Aborted", "the cable"]);
        let found = std::iter::successors(Some(&*passed_on), |e| (*e).source())
            .find_map(|e| e.downcast_ref::<Error>())
            .expect("the chain has it");
        assert_eq!((found.kind(), found.hint()), (ErrorKind::Aborted, "submit it again"));
        assert_eq!(format!("{found:?}"), line, "to a programmer it says all");
        // Without detail, too.
        assert_eq!(chain(&OpError::full(())), ["queue full", "kind QueueFull"]);
        // Out of its chain it is an error as any other, and can be added to.
        let taken: Error = OpError::new(reset(), Some(())).into();
        assert_eq!(chain(&taken.with_operation("fill")), [&line.replace("copy", "fill"), "the cable"]);
        let (taken, _) = OpError::new(reset(), Some(())).into_parts();
        assert_eq!(taken.with_message("").source().map(ToString::to_string).as_deref(), Some("the cable"));
    }
}
