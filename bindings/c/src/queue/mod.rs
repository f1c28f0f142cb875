//! Queues.
#![expect(unsafe_code, reason = "functions that C calls")]

mod local;
mod operations;
mod shared;

use std::ffi::c_int;
use std::time::{Duration, Instant};

use dma::prelude::*;
use dma::{Counters, Result};

use crate::arguments::{Out, OutArray, OutStruct, check_reserved, invalid, options, reference, slice};
use crate::engine;
use crate::error::guard;
use crate::handles::{Table, mark};
use crate::header::*;
use crate::region::{LastRegion, window};
use local::Local;
use operations::{Operations, Request, no_capacity};
use shared::Shared;

static LOCAL: Table<OneThread> = Table::new("queue", mark::QUEUE);
static SHARED: Table<Shared> = Table::new("shared queue", mark::SHARED_QUEUE);

/// A queue that one thread at a time uses.
struct OneThread(Local);

// SAFETY: all values that share the queue's state (its transfers and its driver) are inside of this value,
// and no part of it depends on a thread. So the whole can move to another thread.
unsafe impl Send for OneThread {}
// SAFETY: `Local` is accessed only through `Table::exclusive`, which returns a unique reference.
unsafe impl Sync for OneThread {}

/// Evaluates an expression with the queue of a handle, which is local or shared.
macro_rules! with {
    ($handle:expr, $queue:ident => $value:expr) => {
        if SHARED.has_mark($handle.id) {
            let pin = SHARED.get($handle.id)?;
            let mut shared = &*pin;
            let $queue = &mut shared;
            $value
        } else {
            let mut exclusive = LOCAL.exclusive($handle.id)?;
            let $queue = &mut exclusive.0;
            $value
        }
    };
}

/// Returns the windows of a list.
fn windows(ranges: &[dma_range]) -> Result<Vec<Window>> {
    ranges.iter().map(window).collect()
}

fn deadline(timeout_ms: u32) -> Instant {
    Instant::now() + Duration::from_millis(timeout_ms.into())
}

fn queue_options(options: &dma_queue_options) -> Result<QueueOptions> {
    check_reserved("dma_queue_options", options.reserved)?;
    let hint = match options.hint {
        DMA_CACHE_AUTO => CacheHint::Auto,
        DMA_CACHE_HOT => CacheHint::Hot,
        DMA_CACHE_COLD => CacheHint::Cold,
        hint => {
            let remedy = "use DMA_CACHE_AUTO, DMA_CACHE_HOT or DMA_CACHE_COLD";
            let message = format!("dma_queue_options has the unknown hint {hint}");
            return Err(invalid(message).with_hint(remedy));
        }
    };
    let plain = QueueOptions::new().with_depth(options.depth).with_hint(hint);
    Ok(match options.stall_timeout_ms {
        0 => plain,
        millis => plain.with_stall_timeout(Duration::from_millis(millis.into())),
    })
}

fn open(engine: dma_engine, options: &dma_queue_options) -> Result<dma_queue> {
    let engine = engine::get(engine)?;
    let queue_options = queue_options(options)?;
    let id = if options.lanes == 0 {
        LOCAL.insert(OneThread(Local::new(engine.engine.open_queue(&queue_options)?)))
    } else {
        let options = SharedQueueOptions::new().with_lanes(options.lanes as usize).with_queue(queue_options);
        SHARED.insert(Shared::new(engine.engine.open_shared_queue(&options)?))
    };
    id.map(|id| dma_queue { id })
}

fn close(queue: dma_queue, timeout: Duration) -> Result<()> {
    // The handle is closed first, because dropping operands may call functions of the program.
    if SHARED.has_mark(queue.id) {
        SHARED.to_close(queue.id)?.map_or(Ok(()), |queue| queue.remove().close(timeout))
    } else {
        LOCAL.to_close(queue.id)?.map_or(Ok(()), |queue| queue.remove().0.close(timeout))
    }
}

fn counters(counts: Counters) -> dma_counters {
    dma_counters {
        size: size_of::<dma_counters>(),
        submitted: counts.submitted,
        completed: counts.completed,
        failed: counts.failed,
        aborted: counts.aborted,
        abandoned: counts.abandoned,
        in_flight: counts.in_flight,
        bytes: counts.bytes,
        full: counts.full,
        descriptors: counts.descriptors,
        doorbells: counts.doorbells,
        polls: counts.polls,
        resets: counts.resets,
    }
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_queue_open(engine: dma_engine, options: *const dma_queue_options, queue: *mut dma_queue) {
            // SAFETY: the header requires that `queue` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("queue", queue) }?;
            // SAFETY: the header requires that `options` is NULL or leads to a struct that begins with
            // its size and does not change during the call.
            out.write(open(engine, &unsafe { super::options("options", options) }?)?);
            Ok(())
        }

        fn dma_queue_stop(queue: dma_queue, timeout_ms: u32) {
            with!(queue, queue => queue.stop(Duration::from_millis(timeout_ms.into())))
        }

        fn dma_queue_close(queue: dma_queue, timeout_ms: u32) {
            close(queue, Duration::from_millis(timeout_ms.into()))
        }

        fn dma_queue_copy(queue: dma_queue, copies: *const dma_copy, count: usize, accepted: *mut usize) {
            // SAFETY: the header requires that `accepted` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::optional("accepted", accepted) }?;
            if let Some(out) = &out {
                out.write(0);
            }
            // SAFETY: the header requires that `copies` is NULL or leads to `count` values that do not
            // change during the call.
            let copies = unsafe { slice("copies", copies, count) }?;
            let (mut done, mut last_src, mut last_dst) = (0, LastRegion::default(), LastRegion::default());
            let submitted = with!(queue, queue => copies.iter().try_for_each(|copy| {
                queue.copy(copy, last_src.get(&copy.src)?, last_dst.get(&copy.dst)?)?;
                done += 1;
                Ok(())
            }));
            if let Some(out) = &out {
                out.write(done);
            }
            submitted
        }

        fn dma_queue_copy_list(queue: dma_queue, src: *const dma_range, src_count: usize, dst: *const dma_range, dst_count: usize, token: u64) {
            // SAFETY: the header requires that `src` is NULL or leads to `src_count` values that do not
            // change during the call.
            let src = windows(unsafe { slice("src", src, src_count) }?)?;
            // SAFETY: the header requires that `dst` is NULL or leads to `dst_count` values that do not
            // change during the call.
            let dst = windows(unsafe { slice("dst", dst, dst_count) }?)?;
            with!(queue, queue => queue.submit(Request::CopyList(src, dst), token))
        }

        fn dma_queue_copy_to_both(queue: dma_queue, src: *const dma_range, dst: *const dma_range, also: *const dma_range, token: u64) {
            // SAFETY: the header requires that `src` is NULL or leads to a value that does not change
            // during the call.
            let src = window(unsafe { reference("src", src) }?)?;
            // SAFETY: the header requires that `dst` is NULL or leads to a value that does not change
            // during the call.
            let dst = window(unsafe { reference("dst", dst) }?)?;
            // SAFETY: the header requires that `also` is NULL or leads to a value that does not change
            // during the call.
            let also = window(unsafe { reference("also", also) }?)?;
            with!(queue, queue => queue.submit(Request::CopyToBoth(src, dst, also), token))
        }

        fn dma_queue_fill(queue: dma_queue, dst: *const dma_range, dst_count: usize, pattern: *const u8, token: u64) {
            // SAFETY: the header requires that `dst` is NULL or leads to `dst_count` values that do not
            // change during the call.
            let dst = windows(unsafe { slice("dst", dst, dst_count) }?)?;
            // SAFETY: the header requires that `pattern` is NULL or leads to 8 bytes that do not change
            // during the call.
            let pattern = *unsafe { reference("pattern", pattern.cast::<[u8; 8]>()) }?;
            with!(queue, queue => queue.submit(Request::Fill(dst, pattern), token))
        }

        fn dma_queue_compare(queue: dma_queue, a: *const dma_range, b: *const dma_range, token: u64) {
            // SAFETY: the header requires that `a` is NULL or leads to a value that does not change
            // during the call.
            let a = window(unsafe { reference("a", a) }?)?;
            // SAFETY: the header requires that `b` is NULL or leads to a value that does not change
            // during the call.
            let b = window(unsafe { reference("b", b) }?)?;
            with!(queue, queue => queue.submit(Request::Compare(a, b), token))
        }

        fn dma_queue_crc32c(queue: dma_queue, src: *const dma_range, seed: u32, token: u64) {
            // SAFETY: the header requires that `src` is NULL or leads to a value that does not change
            // during the call.
            let src = window(unsafe { reference("src", src) }?)?;
            with!(queue, queue => queue.submit(Request::Crc32c(src, seed), token))
        }

        fn dma_queue_copy_crc32c(queue: dma_queue, src: *const dma_range, dst: *const dma_range, seed: u32, token: u64) {
            // SAFETY: the header requires that `src` is NULL or leads to a value that does not change
            // during the call.
            let src = window(unsafe { reference("src", src) }?)?;
            // SAFETY: the header requires that `dst` is NULL or leads to a value that does not change
            // during the call.
            let dst = window(unsafe { reference("dst", dst) }?)?;
            with!(queue, queue => queue.submit(Request::CopyCrc32c(src, dst, seed), token))
        }

        fn dma_queue_submit(queue: dma_queue, batch: dma_batch, token: u64) {
            with!(queue, queue => queue.submit_batch(batch, token))
        }

        fn dma_queue_fence(queue: dma_queue) {
            with!(queue, queue => queue.fence())
        }

        fn dma_queue_flush(queue: dma_queue) {
            with!(queue, queue => queue.flush())
        }

        fn dma_queue_cancel(queue: dma_queue, token: u64) {
            with!(queue, queue => queue.cancel(token))
        }

        fn dma_queue_poll(queue: dma_queue, completions: *mut dma_completion, capacity: usize, count: *mut usize) {
            // SAFETY: the header requires that `count` is NULL or leads to a place that this call may
            // write.
            let count = unsafe { Out::new("count", count) }?;
            // SAFETY: the header requires that `completions` is NULL or leads to `capacity` places that
            // this call may write.
            let mut out = unsafe { OutArray::new("completions", completions, capacity) }?;
            with!(queue, queue => queue.poll(&mut out))?;
            count.write(out.written());
            Ok(())
        }

        fn dma_queue_wait(queue: dma_queue, completions: *mut dma_completion, capacity: usize, timeout_ms: u32, count: *mut usize) {
            // SAFETY: the header requires that `count` is NULL or leads to a place that this call may
            // write.
            let count = unsafe { Out::new("count", count) }?;
            if capacity == 0 {
                return Err(no_capacity());
            }
            // SAFETY: the header requires that `completions` is NULL or leads to `capacity` places that
            // this call may write.
            let mut out = unsafe { OutArray::new("completions", completions, capacity) }?;
            with!(queue, queue => queue.wait(&mut out, deadline(timeout_ms)))?;
            count.write(out.written());
            Ok(())
        }

        fn dma_queue_wait_for(queue: dma_queue, token: u64, timeout_ms: u32, completion: *mut dma_completion) {
            // SAFETY: the header requires that `completion` is NULL or leads to a place that this call
            // may write.
            let out = unsafe { Out::new("completion", completion) }?;
            out.write(with!(queue, queue => queue.wait_for(token, deadline(timeout_ms)))?);
            Ok(())
        }

        fn dma_queue_wait_for_room(queue: dma_queue, completions: *mut dma_completion, capacity: usize, timeout_ms: u32, count: *mut usize) {
            // SAFETY: the header requires that `count` is NULL or leads to a place that this call may
            // write.
            let count = unsafe { Out::new("count", count) }?;
            // SAFETY: the header requires that `completions` is NULL or leads to `capacity` places that
            // this call may write.
            let mut out = unsafe { OutArray::new("completions", completions, capacity) }?;
            with!(queue, queue => queue.wait_for_room(&mut out, deadline(timeout_ms)))?;
            count.write(out.written());
            Ok(())
        }

        fn dma_queue_descriptor(queue: dma_queue, fd: *mut c_int) {
            // SAFETY: the header requires that `fd` is NULL or leads to a place that this call may write.
            let out = unsafe { Out::new("fd", fd) }?;
            out.write(with!(queue, queue => queue.descriptor())?);
            Ok(())
        }

        fn dma_queue_arm(queue: dma_queue, ready: *mut usize) {
            // SAFETY: the header requires that `ready` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("ready", ready) }?;
            out.write(with!(queue, queue => queue.arm())?);
            Ok(())
        }

        fn dma_queue_counters(queue: dma_queue, counters: *mut dma_counters) {
            // SAFETY: the header requires that `counters` is NULL or leads to a struct that begins with
            // its size and that this call may write.
            let out = unsafe { OutStruct::new("counters", counters) }?;
            out.write(super::counters(with!(queue, queue => queue.counters())));
            Ok(())
        }

        fn dma_queue_depth(queue: dma_queue, depth: *mut usize, available: *mut usize) {
            // SAFETY: the header requires that `depth` is NULL or leads to a place that this call may
            // write.
            let depth = unsafe { Out::optional("depth", depth) }?;
            // SAFETY: the header requires that `available` is NULL or leads to a place that this call may
            // write.
            let available = unsafe { Out::optional("available", available) }?;
            let numbers = with!(queue, queue => queue.depth());
            if let Some(depth) = depth {
                depth.write(numbers.0);
            }
            if let Some(available) = available {
                available.write(numbers.1);
            }
            Ok(())
        }

        fn dma_queue_stalled(queue: dma_queue, milliseconds: *mut u64) {
            // SAFETY: the header requires that `milliseconds` is NULL or leads to a place that this call
            // may write.
            let out = unsafe { Out::new("milliseconds", milliseconds) }?;
            let stalled = with!(queue, queue => queue.stalled());
            // A stall shorter than a millisecond is not 0, which means none.
            out.write(stalled.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)));
            Ok(())
        }
    }
}
