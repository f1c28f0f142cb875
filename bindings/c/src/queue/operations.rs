//! The functions that local and shared queues implement, and what both need.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use dma::prelude::*;
use dma::process::count;
use dma::{Counters, Error, Result};

use crate::arguments::{OutArray, invalid};
use crate::error::{Failure, fail};
use crate::header::*;
use crate::region::Region;

/// An operation that is not a plain copy, with its operands.
pub(super) enum Request {
    CopyList(Vec<Window>, Vec<Window>),
    CopyToBoth(Window, Window, Window),
    Fill(Vec<Window>, [u8; 8]),
    Compare(Window, Window),
    Crc32c(Window, u32),
    CopyCrc32c(Window, Window, u32),
}

/// The functions of a queue, implemented by local and by shared queues.
pub(super) trait Operations {
    fn copy(&mut self, copy: &dma_copy, src: &Region, dst: &Region) -> Result<()>;
    fn submit(&mut self, request: Request, token: u64) -> Result<()>;
    fn submit_batch(&mut self, batch: dma_batch, token: u64) -> Result<()>;
    fn fence(&mut self) -> Result<()>;
    fn flush(&mut self) -> Result<()>;
    fn cancel(&mut self, token: u64) -> Result<()>;
    fn poll(&mut self, out: &mut OutArray<dma_completion>) -> Result<()>;
    fn wait(&mut self, out: &mut OutArray<dma_completion>, deadline: Instant) -> Result<()>;
    fn wait_for(&mut self, token: u64, deadline: Instant) -> Result<dma_completion>;
    fn wait_for_room(&mut self, out: &mut OutArray<dma_completion>, deadline: Instant) -> Result<()>;
    fn descriptor(&mut self) -> Result<c_int>;
    fn arm(&mut self) -> Result<usize>;
    fn counters(&mut self) -> Counters;
    fn depth(&mut self) -> (usize, usize);
    fn stalled(&mut self) -> Option<Duration>;
    fn stop(&mut self, timeout: Duration) -> Result<()>;
}

/// Returns the completion of an operation. A failure becomes the thread's last failure.
#[inline]
pub(super) fn completion(token: u64, ended: Result<u64, Failure>) -> dma_completion {
    match ended {
        Ok(result) => dma_completion { token, result, status: crate::error::OK, native: 0 },
        Err(failure) => failed(token, failure),
    }
}

#[cold]
fn failed(token: u64, failure: Failure) -> dma_completion {
    let native = failure.error.native().map_or(0, |native| native.code);
    dma_completion { token, result: 0, status: fail(failure), native }
}

pub(super) fn no_token(token: u64) -> Error {
    Error::new(ErrorKind::NotFound, format!("no operation in flight has the token {token:#x}"))
        .with_hint("its completion may have been received or given up already")
}

pub(super) fn stopped() -> Error {
    Error::new(ErrorKind::Closed, "the queue was stopped before").with_hint("open another queue")
}

/// Returns the error for the use of the parent's queue in a forked child.
pub(super) fn forked() -> Error {
    Error::new(ErrorKind::Unsupported, "the queue belongs to the parent of this forked process")
        .with_hint("open the engine and the queue in the forked process")
}

/// Returns the error for a batch without its list: `lost`, if the device is lost, because a lost device keeps
/// the lists of its batches; otherwise `error`.
pub(super) fn no_batch(lost: Option<Error>, error: Error) -> Error {
    lost.map_or(error, |lost| lost.with_operation("batch"))
}

pub(super) fn no_capacity() -> Error {
    invalid("the capacity for completions is 0")
}

pub(super) fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, "no operation has ended in time")
        .with_hint("wait again, or stop the queue")
}

/// Returns an error if a device, which may be `lost`, may still access memory after the queue was stopped.
pub(super) fn expect_ended(counters: &Counters, lost: bool) -> Result<()> {
    if counters.abandoned == 0 {
        return Ok(());
    }
    let (kind, why) =
        if lost { (ErrorKind::DeviceLost, "the device is lost, and ") } else { (ErrorKind::TimedOut, "") };
    let message = format!("{why}{} did not end", count(counters.abandoned, "operation", "operations"));
    Err(Error::new(kind, message)
        .with_operation("stop queue")
        .with_hint("the regions stay in use, because the device may still access them"))
}
