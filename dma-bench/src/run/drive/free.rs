//! The free places of a measuring loop, in the order in which they became free.

use std::collections::VecDeque;
use std::ops::Range;

/// A FIFO of free places, stored as ranges. Most engines complete in the order of submission, so that taking
/// and freeing the places of one doorbell is one step.
#[derive(Clone, Debug)]
pub(crate) struct FreePlaces {
    /// The range that became free first. It is empty only if no place is free.
    row: Range<u32>,
    others: VecDeque<Range<u32>>,
    len: u32,
}

impl FreePlaces {
    /// Returns a list with the places 0 to `places` - 1.
    pub(crate) fn new(places: u32) -> Self {
        // The number of ranges never exceeds the number of places, so later calls do not allocate.
        Self { row: 0..places, others: VecDeque::with_capacity(places as usize), len: places }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Takes the `count` places that became free first, if they form one ascending range.
    #[inline]
    pub(crate) fn take_row(&mut self, count: u32) -> Option<Range<u32>> {
        let first = self.row.start;
        if self.row.end - first < count {
            return None;
        }
        self.len -= count;
        self.row.start += count;
        if self.row.start == self.row.end && self.len > 0 {
            self.row = self.others.pop_front().unwrap_or_default();
        }
        Some(first..first + count)
    }

    /// Takes the place that became free first.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.take_row(1).map(|row| row.start)
    }

    pub(crate) fn take_all(&mut self) {
        self.others.clear();
        (self.row, self.len) = (0..0, 0);
    }

    /// Frees a range of places.
    #[inline]
    pub(crate) fn put(&mut self, places: Range<u32>) {
        if self.len == 0 {
            self.row = places.clone();
        } else {
            let last = self.others.back_mut().unwrap_or(&mut self.row);
            if last.end == places.start {
                last.end = places.end;
            } else {
                self.others.push_back(places.clone());
            }
        }
        self.len += places.end - places.start;
    }

    /// Returns the free places in the order in which they became free.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.row.clone().chain(self.others.iter().flat_map(Clone::clone))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the list with a `VecDeque` of single places.
        #[test]
        fn places_come_in_the_order_in_which_they_were_freed(
            places in 1_u32..70,
            steps in prop::collection::vec((any::<bool>(), 1_u32..40, any::<prop::sample::Index>()), 0..200),
        ) {
            let mut free = FreePlaces::new(places);
            let mut oracle: VecDeque<u32> = (0..places).collect();
            let mut taken: Vec<u32> = Vec::new();
            for (take, count, which) in steps {
                if take {
                    let wanted: Vec<u32> = oracle.iter().copied().take(count as usize).collect();
                    let row = wanted.len() == count as usize && wanted.windows(2).all(|w| w[1] == w[0] + 1);
                    let got = free.take_row(count);
                    // Adjacent ranges are not always joined, so `take_row` may refuse although the places
                    // are consecutive.
                    prop_assert!(got.is_none() || row);
                    match got {
                        Some(got) => prop_assert_eq!(got.collect::<Vec<_>>(), wanted.clone()),
                        None => for &place in &wanted { prop_assert_eq!(free.take(), Some(place)) },
                    }
                    oracle.drain(..wanted.len());
                    taken.extend(wanted);
                } else if !taken.is_empty() {
                    let from = which.index(taken.len());
                    let first = taken[from];
                    let row = taken[from..].iter().zip(first..).take(count as usize).take_while(|&(&a, b)| a == b).count();
                    taken.drain(from..from + row);
                    free.put(first..first + row as u32);
                    oracle.extend(first..first + row as u32);
                }
                prop_assert_eq!(free.len() as usize, oracle.len());
                prop_assert_eq!(free.iter().collect::<Vec<_>>(), oracle.iter().copied().collect::<Vec<_>>());
                prop_assert!(free.others.iter().all(|row| !row.is_empty()) && free.others.len() <= places as usize);
            }
        }
    }
}
