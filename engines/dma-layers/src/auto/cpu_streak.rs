//! [`CpuStreak`]: a number of next copies of one class, which take a short path to the CPU.

use dma_core::Descriptor;

use super::learner::Class;

/// A number of next copies of one class. These copies go to the CPU without a call of the learner.
#[derive(Debug)]
pub(super) struct CpuStreak {
    pub(super) class: Class,
    /// The class's minimum number of descriptors in flight, and the difference between its maximum and
    /// minimum.
    in_flight: (usize, usize),
    /// The minimum length of the class, a power of two. A length belongs to the class if its bits in the mask
    /// `above` equal those of the minimum length.
    least: usize,
    above: usize,
    /// The number of copies left in the streak.
    pub(super) remaining: u32,
}

impl CpuStreak {
    pub(super) fn new(class: Class, remaining: u32) -> Self {
        let ((fewest, most), least) = (class.in_flight(), class.least());
        Self { class, in_flight: (fewest, most - fewest), least, above: !(least - 1), remaining }
    }

    /// Returns true if all lengths belong to the class.
    // This is not inlined, so that the path of a single copy has to save fewer registers.
    #[inline(never)]
    fn have_all(&self, batch: &[Descriptor<'_>]) -> bool {
        // True if each length has the highest bit of the minimum length, and none has a higher bit.
        let (mut any, mut all) = (0, self.least);
        for descriptor in batch {
            (any, all) = (any | descriptor.len(), all & descriptor.len());
        }
        any & self.above == self.least && all == self.least
    }

    /// Returns true if the whole batch belongs to the class, and enough copies are left. In this case,
    /// subtracts the batch.
    #[inline]
    pub(super) fn takes(&mut self, in_flight: usize, batch: &[Descriptor<'_>]) -> bool {
        let (fewest, more) = self.in_flight;
        let takes = batch.len() <= self.remaining as usize
            && (in_flight + batch.len()).wrapping_sub(fewest) <= more
            && match batch {
                [one] => one.len() & self.above == self.least,
                _ => self.have_all(batch),
            };
        if takes {
            self.remaining -= batch.len() as u32;
        }
        takes
    }
}
