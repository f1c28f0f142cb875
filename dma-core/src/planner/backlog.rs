//! [`Backlog`]: operations that the device has not accepted completely.

use std::collections::VecDeque;

use super::INITIAL_CAPACITY;
use super::split::{DeferredOp, Fence};
use crate::{Descriptor, Segment};

/// Number of pending descriptors that are submitted as a full batch, without waiting for a flush.
pub(super) const SUBMIT_BATCH: usize = 32;

/// Number of pending descriptors of single copies per slot for which a queue has memory. Less than half of
/// the descriptors in the list were submitted, because of [`Backlog::compact`].
pub(super) const PENDING_PER_SLOT: usize = 2;

/// Accepted operations that have not been submitted to the device, or not completely.
pub(super) struct Backlog {
    /// Descriptors that are submitted unchanged. The first `submitted` descriptors have been submitted.
    pub(super) pending: Vec<Descriptor<'static>>,
    pub(super) submitted: usize,
    /// Operations that are submitted in chunks, after all pending descriptors.
    pub(super) deferred: VecDeque<DeferredOp>,
    /// Operations with results that have begun and have more steps. Other operations are in flight at the
    /// same time.
    pub(super) queries: Vec<DeferredOp>,
    /// True if the next operation gets a fence.
    pub(super) fence: bool,
}

impl Backlog {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            pending: Vec::with_capacity(PENDING_PER_SLOT * slots.max(SUBMIT_BATCH)),
            submitted: 0,
            deferred: VecDeque::with_capacity(INITIAL_CAPACITY),
            queries: Vec::with_capacity(INITIAL_CAPACITY),
            fence: false,
        }
    }

    /// Returns whether the next operation may follow the pending descriptors: it needs no fence, and no
    /// operation is deferred before it.
    #[inline]
    pub(super) fn is_clear(&self) -> bool {
        !self.fence && self.deferred.is_empty()
    }

    /// Reserves memory for one more deferred operation, which may become one of the queries. Returns false if
    /// there is none.
    pub(super) fn reserve_deferred(&mut self) -> bool {
        self.deferred.try_reserve(1).is_ok() && self.queries.try_reserve(self.deferred.len() + 1).is_ok()
    }

    /// Returns the number of pending descriptors that have not been submitted.
    #[inline]
    pub(super) const fn waiting(&self) -> usize {
        self.pending.len() - self.submitted
    }

    /// Removes submitted descriptors once they are at least half of all, so that they do not accumulate while
    /// the queue remains full.
    pub(super) fn compact(&mut self) {
        if self.submitted >= self.pending.len() / 2 {
            self.pending.drain(..self.submitted);
            self.submitted = 0;
        }
    }

    /// Passes the fence of a refused descriptor to the next descriptor.
    pub(super) fn pass_on_fence(&mut self, fence: bool) {
        if !fence {
        } else if let Some(next) = self.pending.get_mut(self.submitted) {
            *next = next.with_fence(true);
        } else if let Some(next) = self.deferred.front_mut() {
            next.fence = Fence::Device;
        } else {
            self.fence = true;
        }
    }

    /// Removes the deferred operation with index `at`, and returns its lists for reuse. A fence that it has
    /// not applied passes to the next operation.
    pub(super) fn remove_deferred(&mut self, at: usize) -> Option<[Vec<Segment>; 3]> {
        let deferred = self.deferred.remove(at)?;
        if deferred.fence != Fence::Clear {
            match self.deferred.get_mut(at) {
                Some(next) => next.fence = deferred.fence,
                None => self.fence = true,
            }
        }
        Some(deferred.into_lists())
    }
}
