//! [`Sampler`]: selects the copies that are verified.
#![expect(unsafe_code, reason = "implements the contract")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::{DeviceAddr, InlineCopy, InlineExecutor, Operation};

use super::VerifyOptions;
use crate::wrapper::copy_all;

/// Selects the copies of one queue that are verified. Several threads may execute copies of the queue.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// Copies and bytes since the last copy that was selected.
    copies: AtomicU64,
    bytes: AtomicU64,
    /// Operations that were executed within the calls that submitted them.
    pub(super) executed: AtomicU64,
}

impl Sampler {
    /// Returns whether one of the next `count` copies, of `len` bytes in total, is to be verified.
    #[inline]
    pub(super) fn is_due(&self, options: &VerifyOptions, count: u64, len: u64) -> bool {
        let sum = |of: &AtomicU64, more| of.load(Ordering::Relaxed).saturating_add(more);
        sum(&self.copies, count) >= options.sample && sum(&self.bytes, len) >= options.sample_bytes
    }

    /// Counts copies that are not verified.
    #[inline]
    pub(super) fn skip(&self, count: u64, len: u64) {
        // A wrapped count only delays the next selection.
        self.copies.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(len, Ordering::Relaxed);
    }

    /// Begins to count again, after a copy was selected.
    pub(super) fn restart(&self) {
        self.copies.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// Executes the operations that are not verified, and counts them.
#[derive(Debug)]
pub(super) struct SampledExecutor {
    pub(super) inner: Arc<dyn InlineExecutor>,
    pub(super) sampler: Arc<Sampler>,
    pub(super) options: VerifyOptions,
}

// SAFETY: all calls go to the inner executor unchanged, so its promises hold. The sampler does not depend on
// the queue.
unsafe impl InlineExecutor for SampledExecutor {
    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    fn selects_copies(&self) -> bool {
        true
    }

    fn admits_copies(&self, count: u64, bytes: usize) -> bool {
        let admits = !self.sampler.is_due(&self.options, count, bytes as u64)
            && (!self.inner.selects_copies() || self.inner.admits_copies(count, bytes));
        if admits {
            self.sampler.skip(count, bytes as u64);
            self.sampler.executed.fetch_add(count, Ordering::Relaxed);
        }
        admits
    }

    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        if matches!(operation, Operation::Fill { .. } | Operation::Compare { .. } | Operation::Crc32c { .. })
        {
            // Copies were counted when they were admitted.
            self.sampler.executed.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { self.inner.execute(operation) }
    }

    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { self.inner.copy(src, dst, len) };
    }

    fn batches_short_copies(&self) -> bool {
        self.inner.batches_short_copies()
    }

    unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        // SAFETY: the inner methods have the same requirements, which the caller meets.
        unsafe { copy_all(&*self.inner, copies) };
    }

    fn copy_slice(&self, src: &[u8], dst: &mut [u8]) {
        self.inner.copy_slice(src, dst);
    }
}
