//! [`Fast`]: copies that take a short path to the CPU.

use dma_core::Descriptor;

use super::learner::Class;

/// The next copies of a class, which go to the CPU without a question to the learner.
#[derive(Debug)]
pub(super) struct Fast {
    pub(super) class: Class,
    /// Fewest descriptors in flight, and how many more are of the class.
    in_flight: (usize, usize),
    /// Least length of the class, and its bit with all above: these of a length of the class are the least.
    least: usize,
    above: usize,
    /// Number of those copies.
    pub(super) credit: u32,
}

impl Fast {
    pub(super) fn new(class: Class, credit: u32) -> Self {
        let ((fewest, most), least) = (class.in_flight(), class.least());
        Self { class, in_flight: (fewest, most - fewest), least, above: !(least - 1), credit }
    }

    /// Returns whether all lengths are of the class.
    // A function of its own, so that a copy alone saves few registers.
    #[inline(never)]
    fn have_all(&self, batch: &[Descriptor<'_>]) -> bool {
        // All have the highest bit of the least length, and none has a higher one.
        let (mut any, mut all) = (0, self.least);
        for descriptor in batch {
            (any, all) = (any | descriptor.len(), all & descriptor.len());
        }
        any & self.above == self.least && all == self.least
    }

    /// Takes a batch if all of it is of the class.
    #[inline]
    pub(super) fn takes(&mut self, in_flight: usize, batch: &[Descriptor<'_>]) -> bool {
        let (fewest, more) = self.in_flight;
        let takes = batch.len() <= self.credit as usize
            && (in_flight + batch.len()).wrapping_sub(fewest) <= more
            && match batch {
                [one] => one.len() & self.above == self.least,
                _ => self.have_all(batch),
            };
        if takes {
            self.credit -= batch.len() as u32;
        }
        takes
    }
}
