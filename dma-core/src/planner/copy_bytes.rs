//! Blocking copies of plain bytes, through buffers of a pool. The device must not access the caller's slices:
//! when the call returns, the slices belong to the caller again, but the device may still access the memory
//! of an operation that has not ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::planner::plan::QueueCaps;
use crate::planner::wait::{Backoff, deadline};
use crate::planner::{check, error};
use crate::{
    BufferMut, BufferPool, Capabilities, Counters, Error, ErrorKind, InlineExecutor, OpError, Result,
};

/// Minimum length of a copy by the CPU that is passed to the engine, which may share it among threads.
const LONG: usize = 256 << 10;

/// Maximum number of chunks in flight.
const MAX_IN_FLIGHT: usize = 8;

/// A source and a destination.
pub(crate) type Pair = (BufferMut, BufferMut);

/// A `Queue` or a `SharedQueue`.
pub(crate) trait Copier {
    type Transfer;

    /// Returns the queue's capabilities and the stall timeout, or the error of a queue that accepts no
    /// operations.
    fn facts(&self) -> Result<(QueueCaps, Duration)>;

    /// Returns the backend's name.
    fn backend(&self) -> &'static str;

    /// Returns the time for which the device has completed nothing, if it has stalled.
    fn hangs(&self) -> Option<Duration>;

    /// Returns the counters.
    fn counts(&self) -> Counters;

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>>;

    fn submit_piece(&self, pair: Pair) -> Result<Self::Transfer, OpError<Pair>>;

    fn wait_for_piece(transfer: Self::Transfer) -> Result<Pair, OpError<Pair>>;

    /// Polls once, so that operations end and release their slots and buffers. Returns the number of reported
    /// descriptors, or `None` if no slot can become free.
    fn make_room(&self) -> Option<usize>;
}

/// Copies `src` to `dst`, by the CPU or through buffers of `pool`.
pub(crate) fn copy_bytes<Q: Copier>(queue: &Q, pool: &BufferPool, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let fail = |e: Error| e.with_operation("copy bytes").with_backend(queue.backend());
    let (caps, stall_timeout) = queue.facts().map_err(fail)?;
    if src.len() != dst.len() {
        return Err(fail(check::lengths_differ(src.len() as u128, dst.len() as u128)));
    }
    if pool.engine() != Some(caps.engine) {
        return Err(fail(
            Error::new(ErrorKind::WrongEngine, "the pool and the queue belong to different engines")
                .with_hint("make the pool on the engine that opened the queue; each `open` makes an engine of its own, even by the same name"),
        ));
    }
    if caps.capabilities.contains(Capabilities::CPU_COPIES) {
        let executor = if src.len() >= LONG { queue.inline_executor() } else { None };
        match executor {
            Some(executor) => executor.copy_slice(src, dst),
            None => dst.copy_from_slice(src),
        }
        return Ok(());
    }
    let piece = pool.longest() / 2;
    if piece == 0 {
        return Err(fail(
            Error::new(ErrorKind::InvalidArgument, "the pool's buffers have only 1 byte")
                .with_hint("make buffers of 2 bytes or more, because a buffer holds the source and the destination of a chunk"),
        ));
    }
    // The transfers in the order of submission. A transfer that is dropped early keeps only pool buffers,
    // never the caller's slices.
    let mut in_flight = [const { None::<Q::Transfer> }; MAX_IN_FLIGHT];
    let mut landing = dst;
    let mut land = |transfer: Q::Transfer| -> Result<()> {
        let (_, arrived) = Q::wait_for_piece(transfer).map_err(|e| fail(e.into()))?;
        let (here, rest) = std::mem::take(&mut landing).split_at_mut(arrived.len());
        here.copy_from_slice(&arrived);
        landing = rest;
        Ok(())
    };
    let (mut sent, mut landed) = (0, 0);
    let (mut rest, mut filled) = (src, None);
    let mut waits = None;
    while !rest.is_empty() || filled.is_some() {
        if sent - landed < MAX_IN_FLIGHT {
            match send(queue, pool, &mut rest, (piece, landed == sent), &mut filled) {
                Ok(transfer) => {
                    in_flight[sent % MAX_IN_FLIGHT] = Some(transfer);
                    sent += 1;
                    waits = None;
                    continue;
                }
                Err(e) if !matches!(e.kind(), ErrorKind::QueueFull | ErrorKind::OutOfResources) => {
                    return Err(fail(e));
                }
                Err(e) if landed == sent => {
                    let (until, backoff, ended) =
                        waits.get_or_insert_with(|| (deadline(stall_timeout), Backoff::new(), ended(queue)));
                    let hangs = queue.hangs();
                    if hangs.is_some() || !wait_for_others(queue, &e, *until, backoff) {
                        // The device has ended no operation during this wait.
                        let idle = (ended.is_some() && self::ended(queue) == *ended).then_some(stall_timeout);
                        return Err(fail(hangs.or(idle).map_or(e, error::holds_memory)));
                    }
                }
                Err(_) => {}
            }
        }
        if let Some(oldest) = in_flight[landed % MAX_IN_FLIGHT].take() {
            land(oldest)?;
            landed += 1;
        }
    }
    while let Some(oldest) = in_flight[landed % MAX_IN_FLIGHT].take() {
        land(oldest)?;
        landed += 1;
    }
    Ok(())
}

/// Returns the number of operations that have ended, if others are in flight.
fn ended<Q: Copier>(queue: &Q) -> Option<u64> {
    let counts = queue.counts();
    (counts.in_flight > 0).then(|| counts.completed + counts.failed + counts.aborted)
}

/// Submits the first chunk of `rest`, at most `piece` bytes. If the queue is full, the filled buffers stay in
/// `filled`. If the copy is `idle`, because it has nothing in flight, and all buffers are in use, the copy
/// uses the memory that the pool keeps for it: the caller may hold all buffers, and cannot drop them before
/// the copy returns.
fn send<Q: Copier>(
    queue: &Q,
    pool: &BufferPool,
    rest: &mut &[u8],
    (piece, idle): (usize, bool),
    filled: &mut Option<Pair>,
) -> Result<Q::Transfer> {
    let (src, dst) = match filled.take() {
        Some(pair) => pair,
        None => {
            // One buffer holds the source and the destination. If each copy needed two buffers, two copies
            // could wait for each other's second buffer.
            let len = 2 * rest.len().min(piece);
            let mut src = match pool.try_get(len) {
                Err(e) if idle && e.kind() == ErrorKind::OutOfResources => pool.take_reserve(len).ok_or(e)?,
                got => got?,
            };
            let dst = src.split_off(src.len() / 2);
            let bytes;
            (bytes, *rest) = rest.split_at(dst.len());
            src.copy_from_slice(bytes);
            (src, dst)
        }
    };
    queue.submit_piece((src, dst)).map_err(|e| {
        let (e, operands) = e.into_parts();
        *filled = operands;
        e
    })
}

/// Waits briefly for a buffer or a slot that other operations use. Returns false if no slot can become free,
/// or after `until`.
fn wait_for_others<Q: Copier>(queue: &Q, e: &Error, until: Instant, backoff: &mut Backoff) -> bool {
    let reported = queue.make_room();
    if reported.is_none() && e.kind() == ErrorKind::QueueFull {
        return false;
    }
    if backoff.may_sleep() {
        std::thread::sleep(Duration::from_micros(50));
    }
    !backoff.idle(reported.unwrap_or(0), || until)
}
