//! Advice about managed memory, and its last prefetch, by ranges of addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;

/// The type and the number of a `CUmemLocation`.
pub(crate) type Place = (c_int, c_int);

/// A change of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    ReadMostly(bool),
    /// The preferred place, or none.
    Preferred(Option<Place>),
    /// A place that accesses the range, and whether it does so from now on.
    AccessedBy(Place, bool),
    Prefetched(Place),
}

/// A program's advice about a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<Place>,
    pub(crate) accessed_by: BTreeSet<Place>,
    pub(crate) prefetched: Option<Place>,
}

impl Advice {
    fn apply(&mut self, change: Change) {
        match change {
            Change::ReadMostly(is) => self.read_mostly = is,
            Change::Preferred(place) => self.preferred = place,
            Change::AccessedBy(place, true) => _ = self.accessed_by.insert(place),
            Change::AccessedBy(place, false) => _ = self.accessed_by.remove(&place),
            Change::Prefetched(place) => self.prefetched = Some(place),
        }
    }

    /// Keeps what is true of both ranges.
    fn intersect(mut self, other: &Self) -> Self {
        self.read_mostly &= other.read_mostly;
        self.preferred = self.preferred.filter(|place| other.preferred == Some(*place));
        self.accessed_by.retain(|place| other.accessed_by.contains(place));
        self.prefetched = self.prefetched.filter(|place| other.prefetched == Some(*place));
        self
    }
}

/// The advice about all managed memory: the end and the advice of each range, by its start. Ranges do not
/// overlap.
#[derive(Debug, Default)]
pub(crate) struct AdvisedRanges(BTreeMap<u64, (u64, Advice)>);

impl AdvisedRanges {
    /// Divides the range that contains `at`, so that a range begins there.
    fn split(&mut self, at: u64) {
        if let Some((_, (end, advice))) = self.0.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (*end, advice.clone());
            *end = at;
            self.0.insert(at, rest);
        }
    }

    pub(crate) fn change(&mut self, start: u64, end: u64, change: Change) {
        self.split(start);
        self.split(end);
        let mut gap = start;
        let mut gaps = Vec::new();
        for (from, (to, advice)) in self.0.range_mut(start..end) {
            gaps.extend((gap < *from).then_some((gap, *from)));
            gap = *to;
            advice.apply(change);
        }
        gaps.extend((gap < end).then_some((gap, end)));
        for (from, to) in gaps {
            let mut advice = Advice::default();
            advice.apply(change);
            self.0.insert(from, (to, advice));
        }
    }

    /// Returns what is true of a whole range.
    pub(crate) fn of(&self, start: u64, end: u64) -> Advice {
        let before = self.0.range(..=start).next_back().filter(|(_, (to, _))| *to > start);
        let parts = before.into_iter().chain(self.0.range(start + 1..end.max(start + 1)));
        let (mut reached, mut found) = (start, None::<Advice>);
        for (from, (to, advice)) in parts {
            if *from > reached {
                return Advice::default();
            }
            reached = *to;
            found = Some(found.map_or_else(|| advice.clone(), |found| found.intersect(advice)));
        }
        found.filter(|_| reached >= end).unwrap_or_default()
    }

    /// Forgets the advice about memory that is freed.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        self.0.retain(|from, _| !(start..end).contains(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes, compared with advice that is kept for each byte.
    #[test]
    fn ranges_have_the_advice_of_their_bytes() {
        let mut random = 1_u64;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut ranges = AdvisedRanges::default();
        let mut bytes = vec![Advice::default(); 40];
        for _ in 0..3_000 {
            let start = next(39);
            let end = start + 1 + next(40 - start);
            let place = (1, next(2) as c_int);
            let change = match next(6) {
                0 => {
                    ranges.forget(start, end);
                    bytes[start as usize..end as usize].fill(Advice::default());
                    continue;
                }
                1 => Change::ReadMostly(next(2) == 0),
                2 => Change::Preferred((next(2) == 0).then_some(place)),
                3 => Change::Prefetched(place),
                _ => Change::AccessedBy(place, next(2) == 0),
            };
            ranges.change(start, end, change);
            bytes[start as usize..end as usize].iter_mut().for_each(|advice| advice.apply(change));
            let start = next(39);
            let end = start + 1 + next(40 - start);
            let part = &bytes[start as usize..end as usize];
            let expected = part.iter().fold(part[0].clone(), Advice::intersect);
            assert_eq!(ranges.of(start, end), expected, "{start}..{end}");
        }
    }
}
