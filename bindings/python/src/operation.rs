//! [`Operation`]: an operation in flight on any queue, whatever its operands.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dma::files::FileTransfer;
use dma::{Answer, Error, OpError, SharedTransfer, Transfer, Window};
use pyo3::prelude::*;

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// The operation has no result.
    Nothing,
    /// A CRC-32C, or a number of bytes.
    Number(u64),
    /// The offset of the first byte that differs.
    Difference(Option<usize>),
}

impl Outcome {
    pub(crate) fn to_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Nothing | Self::Difference(None) => py.None(),
            Self::Number(n) => n.into_pyobject(py)?.into_any().unbind(),
            Self::Difference(Some(at)) => at.into_pyobject(py)?.into_any().unbind(),
        })
    }
}

/// The end of an operation.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The result, or the error with the numbers of the copies of a batch that failed.
    pub(crate) result: Result<Outcome, (Error, Vec<usize>)>,
    /// True if a device may still use the memory, which is then never used again.
    pub(crate) is_kept: bool,
}

/// An operation in flight. It is not `Send`, because operations of a `dma::Queue` are not.
pub(crate) trait Operation {
    /// Polls once. Returns whether the operation has ended.
    fn is_done(&mut self) -> bool;
    /// Waits. Returns whether the operation has ended.
    fn wait_until(&mut self, deadline: Instant) -> bool;
    /// Returns whether the operation has ended. If not, its end wakes `waker`.
    fn watch(&mut self, waker: &Waker) -> bool;
    /// Cancels what can be cancelled. The operation still ends later.
    fn cancel(&mut self) {}
    /// Returns the result of an operation that has ended. Blocks otherwise.
    fn end(self: Box<Self>) -> Ended;
}

/// An operation in flight, as its memory and its queue see it.
pub(crate) trait Tracked: Send + Sync {
    /// Submits what is pending and polls, without Python's lock. Returns whether the operation has ended.
    fn poll(&self, py: Python<'_>) -> bool;
    /// Polls for a view of the operation's memory, if that does not disturb another thread: its calls on the
    /// queue would fail during the poll.
    fn poll_for_view(&self, py: Python<'_>);
    /// Cancels what can be cancelled, if no other thread uses the operation.
    fn cancel(&self);
    /// Waits until the operation has ended or `deadline` is reached, without Python's lock.
    fn end_until(&self, deadline: Option<Instant>);
}

/// Converts what a transfer returns.
pub(crate) trait IntoOutcome: Answer {
    fn split<T>(done: Self::With<T>) -> (T, Outcome);
}

impl IntoOutcome for () {
    fn split<T>(done: T) -> (T, Outcome) {
        (done, Outcome::Nothing)
    }
}

impl IntoOutcome for u32 {
    fn split<T>((operands, crc): (T, Self)) -> (T, Outcome) {
        (operands, Outcome::Number(crc.into()))
    }
}

impl IntoOutcome for Option<usize> {
    fn split<T>((operands, difference): (T, Self)) -> (T, Outcome) {
        (operands, Outcome::Difference(difference))
    }
}

/// Receives the operands of an operation that has ended.
pub(crate) type Receiver<T> = Box<dyn FnOnce(T) + Send>;

/// A transfer, and its output if a poll has returned it.
struct Pending<F: Future, T> {
    transfer: Option<F>,
    output: Option<F::Output>,
    receiver: Option<Receiver<T>>,
}

impl<F: Future + Unpin, T> Pending<F, T> {
    fn poll(&mut self, waker: &Waker) -> bool {
        if let Some(transfer) = &mut self.transfer
            && let Poll::Ready(output) = Pin::new(transfer).poll(&mut Context::from_waker(waker))
        {
            (self.transfer, self.output) = (None, Some(output));
        }
        self.transfer.is_none()
    }
}

/// Converts the output of a transfer, and passes its operands on.
fn end<T, R: IntoOutcome>(output: Result<R::With<T>, OpError<T>>, receiver: Option<Receiver<T>>) -> Ended {
    let (operands, result) = match output {
        Ok(done) => {
            let (operands, outcome) = R::split(done);
            (Some(operands), Ok(outcome))
        }
        Err(e) => {
            let failed = e.failures().iter().map(|failure| failure.index).collect();
            let (error, operands) = e.into_parts();
            (operands, Err((error, failed)))
        }
    };
    let is_kept = operands.is_none();
    if let (Some(operands), Some(receive)) = (operands, receiver) {
        receive(operands);
    }
    Ended { result, is_kept }
}

macro_rules! operation {
    ($transfer:ident, $make:ident $(, $send:ident)?) => {
        impl<T: 'static $(+ $send)?, R: IntoOutcome> Operation for Pending<$transfer<T, R>, T> {
            fn is_done(&mut self) -> bool {
                self.transfer.as_ref().is_none_or($transfer::is_done)
            }

            fn wait_until(&mut self, deadline: Instant) -> bool {
                self.transfer.as_mut().is_none_or(|transfer| transfer.wait_until(deadline).is_ok())
            }

            fn watch(&mut self, waker: &Waker) -> bool {
                self.poll(waker)
            }

            fn end(mut self: Box<Self>) -> Ended {
                let output = self.output.take();
                let output = output.or_else(|| self.transfer.take().map($transfer::wait));
                end::<T, R>(output.expect("an operation ends once"), self.receiver.take())
            }
        }

        /// Returns the end of an operation that is done, or the operation in flight.
        pub(crate) fn $make<T: 'static $(+ $send)?, R: IntoOutcome>(
            transfer: $transfer<T, R>,
            receiver: Option<Receiver<T>>,
        ) -> Result<Ended, Box<dyn Operation>> {
            if transfer.is_done() {
                return Ok(end::<T, R>(transfer.wait(), receiver));
            }
            // The waits of this package detect stalls themselves, and must not lose the operands.
            let transfer = Some(transfer.outlast_stalls());
            Err(Box::new(Pending { transfer, output: None, receiver }))
        }
    };
}
operation!(Transfer, of_queue);
operation!(SharedTransfer, of_shared_queue, Send);

/// Makes the end of an operation on a file.
fn file_end<T>(output: Result<(T, usize), dma::files::FileError<T>>) -> Ended {
    match output {
        Ok((_, bytes)) => Ended { result: Ok(Outcome::Number(bytes as u64)), is_kept: false },
        Err(e) => {
            let (error, buffer) = e.into_parts();
            Ended { result: Err((error, Vec::new())), is_kept: buffer.is_none() }
        }
    }
}

macro_rules! file_operation {
    ($operand:ty) => {
        impl FileOperand for $operand {
            fn pending(transfer: FileTransfer<Self>) -> Box<dyn Operation> {
                Box::new(Pending { transfer: Some(transfer), output: None, receiver: None })
            }
        }

        impl Operation for Pending<FileTransfer<$operand>, $operand> {
            fn is_done(&mut self) -> bool {
                self.transfer.as_ref().is_none_or(FileTransfer::is_done)
            }

            fn wait_until(&mut self, deadline: Instant) -> bool {
                let left = deadline.saturating_duration_since(Instant::now());
                self.transfer.as_ref().is_none_or(|transfer| transfer.wait_timeout(left))
            }

            fn watch(&mut self, waker: &Waker) -> bool {
                self.poll(waker)
            }

            fn end(mut self: Box<Self>) -> Ended {
                let output = self.output.take();
                let output = output.or_else(|| self.transfer.take().map(FileTransfer::wait));
                file_end(output.expect("an operation ends once"))
            }
        }
    };
}
file_operation!(Window);
file_operation!(());

/// An operand of a file queue.
pub(crate) trait FileOperand: Send + Sized + 'static {
    /// Makes the operation of a transfer.
    fn pending(transfer: FileTransfer<Self>) -> Box<dyn Operation>;
}
