//! [`Batch`]: copies that are submitted together.

use std::fmt;

use crate::{BufferMut, Destination, EngineId, Source};

/// Copies that are submitted together. A batch has one doorbell and one completion. Filling a batch again
/// reuses its memory.
///
/// ```
/// # use dma_core::{Buffer, BufferMut, Queue, Result};
/// # fn demo(queue: &Queue, pairs: Vec<(Buffer, BufferMut)>) -> Result<()> {
/// let mut batch: dma_core::Batch<_, _> = pairs.into_iter().collect();
/// batch = queue.submit(batch)?.wait()?;
/// for (src, dst) in batch.drain() {
///     assert_eq!(&src[..], &dst[..]);
/// }
/// # Ok(()) }
/// ```
///
/// `Batch` without parameters is a batch of copies between [`BufferMut`]s. Name the type of a batch that is
/// made empty, unless [`push`](Self::push) already tells the compiler the type:
///
/// ```
/// # use dma_core::{Batch, Queue, Result};
/// # fn demo(queue: &Queue) -> Result<()> {
/// let batch: Batch = Batch::with_capacity(32);
/// let batch = queue.submit(batch)?.wait()?;
/// assert!(batch.is_empty());
/// # Ok(()) }
/// ```
pub struct Batch<S = BufferMut, D = BufferMut> {
    pub(crate) pairs: Vec<(S, D)>,
    /// The result of the check of all pairs for copies by the CPU, so that a batch that is submitted again is
    /// not checked again. `None` before the first check, and after each change.
    pub(crate) checked: Option<CheckedPairs>,
}

/// Pairs of single ranges that are valid copies by the CPU for an engine, each of at least one byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedPairs {
    pub(crate) engine: EngineId,
    /// Maximum length of a copy, in bytes.
    pub(crate) longest: usize,
    /// Sum of the lengths, in bytes.
    pub(crate) bytes: usize,
}

impl<S: Source, D: Destination> Batch<S, D> {
    /// Makes an empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self { pairs: Vec::new(), checked: None }
    }

    /// Makes an empty batch with room for `copies` copies.
    #[must_use]
    pub fn with_capacity(copies: usize) -> Self {
        Self { pairs: Vec::with_capacity(copies), checked: None }
    }

    /// Adds a copy. The copy is checked when the batch is submitted.
    #[inline]
    pub fn push(&mut self, src: S, dst: D) {
        self.checked = None;
        self.pairs.push((src, dst));
    }

    /// Returns the number of copies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns whether the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Returns the operands in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, (S, D)> {
        self.pairs.iter()
    }

    /// Returns the operands for changes before the batch is submitted again, in the order in which they were
    /// added.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, (S, D)> {
        self.checked = None;
        self.pairs.iter_mut()
    }

    /// Removes the operands and returns them in the order in which they were added. The empty batch keeps its
    /// memory.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = (S, D)> {
        self.checked = None;
        self.pairs.drain(..)
    }
}

impl<S: Source, D: Destination> Default for Batch<S, D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Source, D: Destination> FromIterator<(S, D)> for Batch<S, D> {
    fn from_iter<I: IntoIterator<Item = (S, D)>>(pairs: I) -> Self {
        Self { pairs: pairs.into_iter().collect(), checked: None }
    }
}

impl<S: Source, D: Destination> Extend<(S, D)> for Batch<S, D> {
    fn extend<I: IntoIterator<Item = (S, D)>>(&mut self, pairs: I) {
        self.checked = None;
        self.pairs.extend(pairs);
    }
}

impl<S, D> IntoIterator for Batch<S, D> {
    type Item = (S, D);
    type IntoIter = std::vec::IntoIter<(S, D)>;

    /// Returns the operands in the order in which they were added. To keep the batch's memory, use
    /// [`drain`](Self::drain).
    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

impl<'a, S, D> IntoIterator for &'a Batch<S, D> {
    type Item = &'a (S, D);
    type IntoIter = std::slice::Iter<'a, (S, D)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.iter()
    }
}

impl<'a, S, D> IntoIterator for &'a mut Batch<S, D> {
    type Item = &'a mut (S, D);
    type IntoIter = std::slice::IterMut<'a, (S, D)>;

    fn into_iter(self) -> Self::IntoIter {
        self.checked = None;
        self.pairs.iter_mut()
    }
}

impl<S, D> fmt::Debug for Batch<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.pairs.len()).finish()
    }
}
