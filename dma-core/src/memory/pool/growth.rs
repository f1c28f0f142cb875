//! [`Growth`]: adds buffers of a size when all buffers are in use.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::options::PoolOptions;
use super::size_class::SizeClass;
use crate::memory::region::RegionHandle;
use crate::{DmaEngine, Result};

/// Minimum time between a failed attempt and the next attempt.
const RETRY: Duration = Duration::from_secs(1);

/// Adds buffers of one size.
pub(super) struct Growth {
    engine: Arc<dyn DmaEngine>,
    /// The number of buffers that are added at a time.
    step: usize,
    options: PoolOptions,
    /// The time of the last attempt, if it failed.
    failed: Mutex<Option<Instant>>,
}

impl Growth {
    pub(super) fn new(engine: &Arc<dyn DmaEngine>, step: usize, options: &PoolOptions) -> Self {
        let (engine, options) = (Arc::clone(engine), options.clone());
        Self { engine, step, options, failed: Mutex::new(None) }
    }

    /// Adds buffers and takes one of them. Returns `None` if the class has its maximum number of buffers, if
    /// the allocation fails, or if an allocation failed less than [`RETRY`] ago.
    pub(super) fn grow(&self, class: &Arc<SizeClass>) -> Option<u32> {
        if class.made() == class.max {
            return None;
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some_and(|at| at.elapsed() < RETRY) {
            return None;
        }
        // Another thread may have grown the class, or released a buffer.
        if let Some(block) = class.free.take() {
            return Some(block);
        }
        let added = self.add(class);
        *failed = added.is_err().then(Instant::now);
        drop(failed);
        match added {
            // Release the other blocks here, without the lock, because a release wakes tasks.
            Ok((block, _others)) => block,
            Err(error) => {
                let (len, made) = (class.len, class.made());
                crate::guarded_log!(warn, %error, len, made, "a pool cannot grow");
                None
            }
        }
    }

    /// Makes buffers. Returns the number of the caller's block, and the handles of the other blocks.
    fn add(&self, class: &Arc<SizeClass>) -> Result<(Option<u32>, Vec<RegionHandle>)> {
        let first = class.made();
        let count = self.step.min(class.max - first);
        if count == 0 {
            return Ok((None, Vec::new()));
        }
        let slab = SizeClass::slab(&*self.engine, (class.len, count), &self.options, class.place)?;
        let stride = SizeClass::stride(&*self.engine, class.len).expect("the memory was allocated");
        let backend = self.engine.info().backend;
        let mut blocks: Vec<_> =
            (0..count).map(|i| class.block(&slab, first + i, i * stride, backend)).collect();
        class.slabs.lock().unwrap_or_else(PoisonError::into_inner).push(slab.region().clone());
        class.made.store(first + count, Ordering::Relaxed);
        // The class already has a pointer to the handle of each taken block, so forget the handle of the
        // caller's block.
        _ = blocks.swap_remove(0).into_ptr();
        Ok((Some(class.free.number(first)), blocks))
    }
}

impl SizeClass {
    /// Counts a request that found no free block. If the class grows, returns a block for the request.
    #[cold]
    pub(super) fn grown(self: &Arc<Self>) -> Option<u32> {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
        self.growth.as_ref()?.grow(self)
    }
}
