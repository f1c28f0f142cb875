//! Errors that queues return. An [`OpError`] is the error of an operation that was refused or has failed; it
//! contains the operands.

use std::fmt;
use std::time::Duration;

use dma_process::count;

use crate::{Error, ErrorKind, NativeError, Outcome, Retry};

/// The type of a transfer's operation, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferKind {
    Copy,
    Fill,
    Batch,
    Compare,
    Crc32c,
    CopyCrc32c,
    CopyToBoth,
}

impl TransferKind {
    /// All operations. An operation's number is its index.
    pub(super) const ALL: [Self; 7] = [
        Self::Copy,
        Self::Fill,
        Self::Batch,
        Self::Compare,
        Self::Crc32c,
        Self::CopyCrc32c,
        Self::CopyToBoth,
    ];

    /// Returns true if the operation writes a destination.
    const fn writes(self) -> bool {
        !matches!(self, Self::Compare | Self::Crc32c)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Batch => "batch",
            Self::Compare => "compare",
            Self::Crc32c => "CRC-32C",
            Self::CopyCrc32c => "copy with CRC-32C",
            Self::CopyToBoth => "copy to two destinations",
        }
    }
}

/// The hint for a closed queue.
const REOPEN: &str = "open another queue";

/// The hint for a device failure.
const RETRY: &str = "submit the operation again, a few times; if it fails each time, read the log of the device's driver (dmesg)";

/// The hint for a copy that was verified and is wrong.
const WRONG_BYTES: &str = "copy again; if the bytes differ each time, check the device and its memory, and that the program does not write to the source or destination of a copy in flight";

/// Makes the error for a submission to a closed or abandoned queue.
#[cold]
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the queue accepts no more operations").with_hint(REOPEN)
}

/// Copies the error of a lost device, without its source.
#[cold]
pub(crate) fn lost(why: &Error) -> Error {
    let error = Error::new(ErrorKind::DeviceLost, why.message().to_owned()).with_hint(why.hint().to_owned());
    match why.native() {
        Some(native) => error.with_native(native.clone()),
        None => error,
    }
}

/// Makes the error for the use of a queue in a process that was forked from its owner.
#[cold]
pub(crate) fn forked() -> Error {
    Error::new(ErrorKind::Unsupported, "the queue belongs to the parent of this forked process")
        .with_hint("open the engine and the queue in the forked process")
}

/// Makes the error for an operation that was submitted after the lane had stopped.
#[cold]
pub(crate) fn never_reached() -> Error {
    Error::new(ErrorKind::Closed, "the queue was closed before the operation reached the device")
        .with_hint(REOPEN)
}

/// Makes the error for a fill that neither the device nor a copy can execute.
#[cold]
pub(crate) fn no_fill() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the device has no fill operation, and a fill by copies needs a bounce buffer, which could not be allocated",
    )
}

/// Makes the error for an operation without memory for its lists. The error itself needs none.
#[cold]
pub(crate) const fn no_memory() -> Error {
    Error::bare(ErrorKind::OutOfMemory)
}

/// Returns whether `error` is that of [`no_memory`], to which no text may be added.
pub(crate) fn is_no_memory(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory && error.message().is_empty()
}

/// Makes the error of an operation that was refused before it reached the device.
#[cold]
pub(crate) fn refused(operation: TransferKind, backend: &'static str, error: Error) -> Error {
    if is_no_memory(&error) { error } else { error.with_operation(operation.name()).with_backend(backend) }
}

/// Makes the error for a wait that was given up after `stall` without a completion.
#[cold]
pub(crate) fn wait_timed_out<T>(
    operation: TransferKind,
    backend: &'static str,
    stall: Duration,
) -> OpError<T> {
    let error = Error::new(ErrorKind::TimedOut, format!("the device completed nothing for {stall:?}"));
    let hint = "the queue keeps the operands until the device has completed the operation; close the queue to give the operation up";
    OpError::new(error.with_operation(operation.name()).with_backend(backend).with_hint(hint), None)
}

/// Makes the error for an operation that the device never reported, or that a forked process cannot wait for.
/// `reason` is that of the fork or of a lost device. The caller leaks the operands.
#[cold]
pub(crate) fn never_answered<T>(
    operation: TransferKind,
    backend: &'static str,
    reason: Option<Error>,
) -> OpError<T> {
    let error = reason.unwrap_or_else(|| {
        Error::new(ErrorKind::DeviceLost, "the queue was closed before the device completed the operation")
            .with_hint("the operands' memory is leaked, because the device may still write to it")
    });
    OpError::new(error.with_operation(operation.name()).with_backend(backend), None)
}

/// Makes the error for an operation that neither the device nor the CPU can execute.
#[cold]
pub(crate) fn beyond_reach() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the device does not have this operation, and the CPU cannot reach the memory",
    )
    .with_hint("first copy the bytes to memory of this engine that the CPU can reach")
}

/// Makes the error for a submission to a full queue of a stalled device.
#[cold]
pub(crate) fn stalled(stalled_for: Duration) -> Error {
    let message = format!("the queue is full, and the device has completed nothing for {stalled_for:.1?}");
    Error::new(ErrorKind::TimedOut, message)
        .with_hint("close the queue and open another one, or submit again later if the device may recover")
}

/// Makes the error for a wait for room that only the program can make.
#[cold]
pub(crate) fn held() -> Error {
    Error::new(ErrorKind::QueueFull, "the program holds the transfers of ended operations")
        .with_hint("wait for one of these transfers, or drop it")
}

/// Makes the error for a copy of bytes that gets no memory or slot, because a stalled device has them.
#[cold]
pub(crate) fn holds_memory(stalled_for: Duration) -> Error {
    let message = format!(
        "the device has completed nothing for {stalled_for:.1?}, and holds the memory or the slots of earlier operations"
    );
    Error::new(ErrorKind::TimedOut, message).with_hint(
        "close the queue and open another one with another pool, or copy again later if the device may recover",
    )
}

/// An operation that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The operation's index in the batch; 0 for a single operation.
    pub(crate) index: u32,
    pub(crate) outcome: Outcome,
    pub(crate) native: Option<NativeError>,
    /// The engine's error, if the engine refused the descriptor.
    pub(crate) refusal: Option<Error>,
    /// True if a close of the queue aborted the descriptor.
    pub(crate) closing: bool,
}

impl Failure {
    /// Converts the failure to the error that the caller gets.
    pub(crate) fn into_error(self, operation: TransferKind, backend: &'static str) -> Error {
        let error = match self.outcome {
            Outcome::Failed(kind) => {
                let is_mismatch =
                    self.native.as_ref().is_some_and(|native| native.code == NativeError::VERIFY_MISMATCH);
                let told = if is_mismatch {
                    "the destination does not have the bytes that the source had at the submission"
                } else {
                    "the device reported a failure"
                };
                let error = self.refusal.unwrap_or_else(|| Error::new(kind, told));
                match kind {
                    _ if !error.hint().is_empty() => error,
                    _ if is_mismatch => error.with_hint(WRONG_BYTES),
                    ErrorKind::DeviceFault if operation.writes() => {
                        error.with_hint(format!("the destination's bytes are undefined; {RETRY}"))
                    }
                    ErrorKind::DeviceFault => error.with_hint(RETRY),
                    ErrorKind::Revoked => error.with_hint("ask the peer to export its memory again"),
                    _ => error,
                }
            }
            _ if self.closing => Error::new(
                ErrorKind::Closed,
                "the queue was closed before the device had completed the operation",
            )
            .with_hint(REOPEN),
            _ => Error::new(
                ErrorKind::Aborted,
                "the device was reset or stopped before it reported the operation",
            )
            .with_hint("submit the operation again"),
        };
        let error = error.with_operation(operation.name()).with_backend(backend);
        match self.native {
            Some(native) => error.with_native(native),
            None => error,
        }
    }
}

/// The error of an operation that was refused or has failed. The error contains the operands.
///
/// `?` converts it into an [`Error`] or a [`std::io::Error`], and drops the operands.
///
/// `Display` writes one line with all details. The [`source`](std::error::Error::source) is the [`Error`]
/// itself, so that code that only has the chain of sources (`anyhow`, `Box<dyn Error>`) can find its
/// [`kind`](Error::kind) and [`retry`](Error::retry). The source's own `Display` writes only the name of the
/// kind, such as `kind Aborted`, because the `OpError` has already written the details.
///
/// ```
/// use dma_core::{Error, Retry};
///
/// /// Works for any error of a program: for a boxed error, and for the `as_ref` of an `anyhow::Error`.
/// fn is_worth_a_retry(error: &(dyn std::error::Error + 'static)) -> bool {
///     std::iter::successors(Some(error), |e| (*e).source())
///         .find_map(|e| e.downcast_ref::<Error>())
///         .is_some_and(|e| e.retry() != Retry::Never)
/// }
/// # assert!(is_worth_a_retry(&Error::bare(dma_core::ErrorKind::Aborted)));
/// ```
///
/// An `OpError` keeps the operands and their memory alive. `.map_err(dma::Error::from)` drops the operands.
pub struct OpError<T> {
    error: Error,
    /// The copy of the error that `source` returns (see the type's documentation).
    cause: Error,
    rest: ReturnedOperands<T>,
}

/// The operands, and the failures of a batch. Clippy limits an error to 128 bytes, including the operands. An
/// `Option` of the operands would need additional bytes for its tag. This enum needs none, because the
/// compiler stores its tag in the pointer of the box.
enum ReturnedOperands<T> {
    /// The operands are returned.
    Returned(T, Box<[OpFailure]>),
    /// The device may still use the operands.
    Kept(Box<[OpFailure]>),
}

/// One failed operation of a batch. The operations that are not listed have succeeded.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpFailure {
    /// The operation's index in the batch.
    pub index: usize,
    /// The reason.
    pub error: Error,
}

impl<T> OpError<T> {
    pub(crate) fn new(error: Error, operands: Option<T>) -> Self {
        Self::with_failures(error, operands, Vec::new())
    }

    fn with_failures(error: Error, operands: Option<T>, failures: Vec<OpFailure>) -> Self {
        let failures = failures.into();
        let rest = match operands {
            Some(operands) => ReturnedOperands::Returned(operands, failures),
            None => ReturnedOperands::Kept(failures),
        };
        Self { cause: error.to_cause(), error, rest }
    }

    /// Builds the error of an operation or batch from its failures.
    pub(crate) fn from_failures(
        failures: Vec<Failure>,
        operation: TransferKind,
        backend: &'static str,
        operands: T,
    ) -> Self {
        if operation != TransferKind::Batch {
            let error = failures.into_iter().next().map(|f| f.into_error(operation, backend));
            return Self::new(error.unwrap_or_else(|| Error::bare(ErrorKind::DeviceFault)), Some(operands));
        }
        let failures: Vec<_> = failures
            .into_iter()
            .map(|f| OpFailure { index: f.index as usize, error: f.into_error(operation, backend) })
            .collect();
        // Report the first failure that is neither an abort nor a close, because aborts and closes follow
        // from another failure.
        let only_ended = |kind| matches!(kind, ErrorKind::Aborted | ErrorKind::Closed);
        let worst = failures.iter().find(|f| !only_ended(f.error.kind())).or(failures.first());
        let error = worst.map_or(Error::bare(ErrorKind::DeviceFault), |worst| {
            let failed = count(failures.len(), "copy", "copies");
            let message = format!("{failed} of the batch failed, for example copy {}", worst.index);
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

    /// Returns the category. After [`QueueFull`](ErrorKind::QueueFull), which is reported without an
    /// allocation, poll and submit again.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Returns [`ErrorKind::retry`] of [`kind`](Self::kind): whether the same operation, unchanged, can
    /// succeed.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        self.error.retry()
    }

    /// Returns the error.
    #[must_use]
    pub const fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the failed operations of a submitted batch; empty for a refusal and for single operations.
    #[must_use]
    pub fn failures(&self) -> &[OpFailure] {
        match &self.rest {
            ReturnedOperands::Returned(_, failures) | ReturnedOperands::Kept(failures) => failures,
        }
    }

    /// Returns the operands; `None` if the device may still use them, because a wait has timed out or the
    /// device does not respond.
    #[must_use]
    pub fn into_operands(self) -> Option<T> {
        self.into_parts().1
    }

    /// Returns the operands, or the error if the device may still use them.
    pub(super) fn into_operands_or_self(self) -> Result<T, Self> {
        match self.rest {
            ReturnedOperands::Returned(operands, _) => Ok(operands),
            ReturnedOperands::Kept(_) => Err(self),
        }
    }

    /// Returns the error and the operands.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<T>) {
        match self.rest {
            ReturnedOperands::Returned(operands, _) => (self.error, Some(operands)),
            ReturnedOperands::Kept(_) => (self.error, None),
        }
    }
}

impl<T> From<OpError<T>> for Error {
    fn from(e: OpError<T>) -> Self {
        e.error
    }
}

impl<T> From<OpError<T>> for std::io::Error {
    /// Drops the operands, and converts the [`Error`].
    fn from(e: OpError<T>) -> Self {
        e.error.into()
    }
}

impl<T> fmt::Display for OpError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Writes the same line as [`Error`].
impl<T> fmt::Debug for OpError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("OpError")
            .field("error", &self.error)
            .field("operands", &matches!(self.rest, ReturnedOperands::Returned(..)).then_some(".."))
            .field("failures", &self.failures())
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

    /// Returns the lines that `anyhow` prints for `{:#}`.
    fn chain(first: &(dyn std::error::Error + 'static)) -> Vec<String> {
        std::iter::successors(Some(first), |e| (*e).source()).map(ToString::to_string).collect()
    }

    #[test]
    fn with_two_buffers_it_is_no_large_error() {
        assert!(size_of::<OpError<(crate::BufferMut, crate::BufferMut)>>() < 128);
    }

    #[test]
    fn the_chain_holds_the_error_and_its_line_once() {
        let reset = || {
            Error::new(ErrorKind::Aborted, "a reset")
                .with_operation("copy")
                .with_hint("submit it again")
                .with_source(std::io::Error::other("the cable"))
        };
        let passed_on: Box<dyn std::error::Error> = Box::new(OpError::new(reset(), Some([1, 2])));
        let line = "copy: aborted: a reset; submit it again";
        assert_eq!(chain(&*passed_on), [line, "kind Aborted", "the cable"]);
        let found = std::iter::successors(Some(&*passed_on), |e| (*e).source())
            .find_map(|e| e.downcast_ref::<Error>())
            .expect("the chain of sources contains the `Error`");
        assert_eq!((found.kind(), found.hint()), (ErrorKind::Aborted, "submit it again"));
        assert_eq!(format!("{found:?}"), line, "the debug format has all details");
        // An error without details behaves in the same way.
        let full = OpError::full(());
        assert_eq!(full.retry(), Retry::AfterProgress);
        assert_eq!(full.error().hint(), ErrorKind::QueueFull.default_hint());
        assert_eq!(
            chain(&full),
            ["queue full; poll it or wait for a transfer, then submit again", "kind QueueFull"]
        );
        let io = std::io::Error::from(OpError::new(reset(), Some([1, 2])));
        assert_eq!((io.kind(), io.to_string()), (std::io::ErrorKind::Other, line.to_owned()));
        assert_eq!(std::io::Error::from(OpError::full(())).kind(), std::io::ErrorKind::WouldBlock);
        // After the `Error` is taken out of the chain of sources, it is an ordinary error, to which context
        // can be added.
        let taken: Error = OpError::new(reset(), Some(())).into();
        assert_eq!(chain(&taken.with_operation("fill")), [&line.replace("copy", "fill"), "the cable"]);
        let (taken, _) = OpError::new(reset(), Some(())).into_parts();
        assert_eq!(taken.with_message("").source().map(ToString::to_string).as_deref(), Some("the cable"));
    }
}
