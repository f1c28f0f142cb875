//! [`LongCopies`]: blocking copies of borrowed bytes, which the helper threads share.
#![expect(unsafe_code, reason = "submits copies of borrowed bytes")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Mutex;

use dma_core::{Completion, Descriptor, DeviceAddr, Outcome, RawQueue, RegionKey, Result, Segment};
use dma_process::ForkMark;

use super::execute::MAX_TRANSFER;

/// Opens a queue of depth 1 or more.
type Open = dyn Fn() -> Result<Box<dyn RawQueue>> + Send + Sync;

/// Copies borrowed bytes through a queue of its own, which opens with the first copy.
pub(super) struct LongCopies {
    open: Box<Open>,
    /// The key of both operands, as of memory that needs no lease.
    key: RegionKey,
    /// The queue between two copies. While a thread copies, it holds the lock.
    queue: Mutex<Option<Box<dyn RawQueue>>>,
    /// The process that opens the queue.
    process: ForkMark,
}

impl LongCopies {
    /// Makes an executor of copies by the queue that `open` opens, an idle queue of this engine.
    pub(super) fn new(open: Box<Open>) -> Self {
        Self { open, key: RegionKey::unique(), queue: Mutex::new(None), process: ForkMark::new() }
    }

    /// Copies `src` to `dst`, which have the same length. Returns false if nothing was copied, because
    /// another thread copies at the moment, or the queue cannot be opened.
    pub(super) fn copy(&self, src: &[u8], dst: &mut [u8]) -> bool {
        let Ok(mut idle) = self.queue.try_lock() else { return false };
        // The queue is taken out. If the engine panics, it is dropped, and waits for helper threads.
        let Some(mut queue) = idle.take().or_else(|| (self.open)().ok()) else { return false };
        for (src, dst) in src.chunks(MAX_TRANSFER).zip(dst.chunks_mut(MAX_TRANSFER)) {
            self.copy_piece(&mut *queue, src, dst);
        }
        *idle = Some(queue);
        true
    }

    /// Copies one piece through `queue`, which must be idle.
    fn copy_piece(&self, queue: &mut dyn RawQueue, src: &[u8], dst: &mut [u8]) {
        let segment = |start: *mut u8| Segment {
            key: self.key,
            addr: DeviceAddr::of(NonNull::new(start).expect("slices have addresses")),
            len: src.len(),
        };
        let copy = Descriptor::copy(0, segment(src.as_ptr().cast_mut()), segment(dst.as_mut_ptr()));
        // SAFETY: both slices stay borrowed until the copy was reported, or the queue was dropped during a
        // panic, which waits for all threads that copy. The borrows ensure that the slices do not overlap,
        // and that no other code writes to them or reads `dst`.
        let accepted = unsafe { queue.submit(std::slice::from_ref(&copy)) };
        assert_eq!(accepted.ok(), Some(1), "an idle queue accepts a copy");
        queue.flush();
        let mut reports = [Completion::done(0)];
        while queue.poll(&mut reports) == 0 {
            // A helper thread copies the last chunk.
            std::thread::yield_now();
        }
        assert_eq!(reports[0].outcome, Outcome::Done, "copies of local memory do not fail");
    }
}

impl fmt::Debug for LongCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongCopies").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Drop for LongCopies {
    fn drop(&mut self) {
        if self.process.is_child() {
            // The helper threads, and threads that may hold locks, are the parent's.
            let _ = ManuallyDrop::new(std::mem::take(&mut self.queue));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dma_core::{CacheHint, EngineId};

    use super::super::pool::Pool;
    use super::super::queue::CpuQueue;
    use super::*;

    fn copies(threads: usize) -> LongCopies {
        let pool = Arc::new(Pool::new(threads));
        CpuQueue::long_copies(EngineId::unique(), 32 << 10, CacheHint::Auto, pool)
    }

    #[test]
    fn all_bytes_arrive_in_pieces_of_every_length() {
        let copies = copies(1);
        // Miri takes a millisecond for each byte.
        let longest = if cfg!(miri) { 100 } else { MAX_TRANSFER + (1 << 20) + 3 };
        for len in [1, 64, longest / 7, longest] {
            let src: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let mut dst = vec![0xEE; len + 1];
            assert!(copies.copy(&src, &mut dst[..len]), "{len} bytes");
            assert!(dst[..len] == src[..] && dst[len] == 0xEE, "{len} bytes");
        }
    }

    #[test]
    fn a_second_thread_is_refused_at_once_and_copies_nothing() {
        let copies = copies(0);
        let copying = copies.queue.lock().expect("no thread panicked");
        let mut dst = [0; 64];
        assert!(!copies.copy(&[1; 64], &mut dst) && dst == [0; 64]);
        drop(copying);
        assert!(copies.copy(&[1; 64], &mut dst) && dst == [1; 64]);
    }
}
