//! Adds buffers of a size when all buffers are in use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dma_process::lock;

use super::size_class::{Growth, SizeClass};
use crate::memory::region::RegionHandle;
use crate::{Result, with_deferred_log};

/// Minimum time between a failed attempt and the next attempt.
const RETRY: Duration = Duration::from_secs(1);

impl SizeClass {
    /// Counts a request that found no free block. If the class grows, returns a block for the request.
    #[cold]
    pub(super) fn grown(self: &Arc<Self>) -> Option<u32> {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
        self.grow(self.growth.as_ref()?)
    }

    /// Adds buffers and takes one of them. Returns `None` if the class has its maximum number of buffers, if
    /// the allocation fails, or if an allocation failed less than [`RETRY`] ago.
    fn grow(self: &Arc<Self>, growth: &Growth) -> Option<u32> {
        if self.made() == self.max {
            return None;
        }
        // A log subscriber may take buffers of this pool, so it runs after the lock is released.
        let added = with_deferred_log(|| {
            let mut failed = lock(&growth.failed);
            if failed.is_some_and(|at| at.elapsed() < RETRY) {
                return Ok((None, Vec::new()));
            }
            // Another thread may have grown the class, or released a buffer.
            if let Some(block) = self.free.take() {
                return Ok((Some(block), Vec::new()));
            }
            let added = self.add(growth);
            *failed = added.is_err().then(Instant::now);
            added
        });
        match added {
            // Release the other blocks here, without the lock, because a release wakes tasks.
            Ok((block, _others)) => block,
            Err(error) => {
                let (len, made) = (self.len, self.made());
                crate::guarded_log!(warn, %error, len, made, "a pool cannot grow");
                None
            }
        }
    }

    /// Makes buffers. Returns the number of the caller's block, and the handles of the other blocks.
    fn add(self: &Arc<Self>, growth: &Growth) -> Result<(Option<u32>, Vec<RegionHandle>)> {
        let first = self.made();
        let count = growth.step.min(self.max - first);
        if count == 0 {
            return Ok((None, Vec::new()));
        }
        let slab = Self::slab(&*growth.engine, (self.len, count), &growth.options, self.place)?;
        let stride = Self::stride(&*growth.engine, self.len).expect("the memory was allocated");
        let backend = growth.engine.info().backend;
        let mut blocks: Vec<_> =
            (0..count).map(|i| self.block(&slab, first + i, i * stride, backend)).collect();
        lock(&self.slabs).push(slab.region().clone());
        self.made.store(first + count, Ordering::Relaxed);
        // The class already has a pointer to the handle of each taken block, so forget the handle of the
        // caller's block.
        _ = blocks.swap_remove(0).into_ptr();
        Ok((Some(self.free.number(first)), blocks))
    }
}
