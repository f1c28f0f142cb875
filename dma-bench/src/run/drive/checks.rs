//! [`Checks`]: the operations of a sample whose bytes and results are compared.

use dma::contract::Completion;

use super::places::Places;
use super::{CellError, Extent};
use crate::plan::Verify;

/// Number of bytes to compare in the samples that are compared thoroughly.
pub const COMPARE_MUCH: usize = 1 << 20;
/// Number of bytes to compare in all other samples. It is small, so that comparing takes little of the
/// run's time.
pub const COMPARE_LITTLE: usize = 16 << 10;
/// Maximum number of buffers that are compared in a sample.
pub(crate) const MAX_COMPARED_OPS: usize = 16;

/// The checks of the current sample.
#[derive(Debug)]
pub(super) struct Checks {
    verify: Verify,
    /// True if every operation is compared when it completes.
    pub(super) compares_each: bool,
    /// The buffers that were corrupted before the sample and are compared after it.
    corrupted: Vec<usize>,
    /// Maximum number of operations that are compared after the sample.
    limit: usize,
    /// The last result of each place in this sample. Empty if the operations have no result.
    results: Vec<Option<u64>>,
    pub(super) verified: u64,
}

impl Checks {
    /// Creates the checks for operations at `places` places, with or without results.
    pub(super) fn new(verify: Verify, has_results: bool, places: usize) -> Self {
        let results = vec![None; if has_results { places } else { 0 }];
        Self { verify, compares_each: false, corrupted: Vec::new(), limit: 0, results, verified: 0 }
    }

    /// Begins a sample: corrupts the buffers that will be compared after it.
    pub(super) fn begin_sample(&mut self, extent: Extent, places: &Places) -> Result<(), CellError> {
        self.verified = 0;
        self.corrupted.clear();
        self.results.fill(None);
        // If each operation is compared, its buffer is corrupted right before the operation is submitted.
        self.compares_each = extent.compare_each || self.verify == Verify::All;
        let fewest = usize::from(extent.compare >= COMPARE_MUCH);
        self.limit = (extent.compare / places.buffers.layout.size()).clamp(fewest, MAX_COMPARED_OPS);
        if self.compares_each || !places.buffers.op.writes() {
            return Ok(());
        }
        let total = (extent.warm + extent.ops).min(u64::from(places.len())) as usize;
        self.corrupted.extend(places.next_buffers().take(total.min(self.limit)));
        self.corrupted.iter().try_for_each(|&index| places.buffers.corrupt(index))
    }

    /// Stores the result of each completion, if operations have results.
    #[inline]
    pub(super) fn keep_results(&mut self, completions: &[Completion]) {
        if !self.results.is_empty() {
            for completion in completions {
                if let Some(result) = self.results.get_mut(completion.token as usize) {
                    *result = Some(completion.result);
                }
            }
        }
    }

    /// Ends a sample of `submitted` operations: compares the buffers that were corrupted before it, and the
    /// last results.
    pub(super) fn end_sample(&mut self, places: &Places, submitted: u64) -> Result<(), CellError> {
        // After an early stop, some operations may not have begun.
        if submitted < self.corrupted.len() as u64 {
            return Ok(());
        }
        for index in std::mem::take(&mut self.corrupted) {
            places.buffers.compare_bytes(index)?;
            self.verified += 1;
        }
        if self.compares_each {
            return Ok(());
        }
        let known = self.results.iter().zip(places.indices());
        let known: Vec<(usize, u64)> =
            known.filter_map(|(result, index)| Some((index, (*result)?))).take(self.limit).collect();
        for (index, result) in known {
            places.buffers.compare_result(index, result, places.buffers.expected_result(index))?;
            // Operations that write were already counted when their bytes were compared.
            self.verified += u64::from(!places.buffers.op.writes());
        }
        Ok(())
    }
}
