//! [`InFlight`]: the descriptors that a queue has accepted and not reported, by token.

use dma_core::{Completion, Descriptor, Outcome};

/// Descriptors in flight, in the order in which they were submitted, with a state each.
///
/// Devices report mostly in that order, so that a descriptor is found at once. Others are looked for: first
/// behind the one found last, because a device with several channels keeps the order in each. Tokens may be
/// there several times; the oldest found is taken.
#[derive(Debug)]
pub(crate) struct InFlight<S> {
    /// A ring: the entry of position `p` is at `p & (len - 1)`.
    ring: Box<[Entry<S>]>,
    /// Entries that were taken before older ones.
    taken: Box<[bool]>,
    /// Their number.
    holes: usize,
    /// Positions of the oldest entry, and behind the youngest.
    head: usize,
    tail: usize,
    /// The position behind the entry that was looked for last.
    near: usize,
}

/// Descriptors that were reported one after the other, with the same state and outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<S> {
    pub(crate) state: S,
    pub(crate) outcome: Outcome,
    pub(crate) count: u64,
    /// Descriptors in flight that were submitted before. If there are any, `count` is 1.
    pub(crate) before: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry<S> {
    token: u64,
    state: S,
}

impl<S: Copy + Default + PartialEq> InFlight<S> {
    /// Makes room for `depth` descriptors. Nothing is allocated later.
    pub(crate) fn new(depth: usize) -> Self {
        // Twice the depth: if it is too full for a batch, many entries are holes.
        let len = (2 * depth.max(1)).next_power_of_two();
        let ring = vec![Entry::default(); len].into();
        Self { ring, taken: vec![false; len].into(), holes: 0, head: 0, tail: 0, near: 0 }
    }

    fn at(&self, position: usize) -> usize {
        position & (self.ring.len() - 1)
    }

    fn count(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Adds descriptors. The queue has at most `depth` in flight.
    #[inline]
    pub(crate) fn push(&mut self, batch: &[Descriptor<'_>], mut state: impl FnMut(&Descriptor<'_>) -> S) {
        if self.count() + batch.len() > self.ring.len() {
            self.close_holes();
        }
        let at = self.at(self.tail);
        let (before, after) = batch.split_at(batch.len().min(self.ring.len() - at));
        for (part, at) in [(before, at), (after, 0)] {
            for (entry, descriptor) in self.ring[at..].iter_mut().zip(part) {
                *entry = Entry { token: descriptor.token(), state: state(descriptor) };
            }
        }
        self.tail = self.tail.wrapping_add(batch.len());
    }

    /// Takes the descriptors that were reported, and calls `ended` with them, in the order of the reports.
    #[inline]
    pub(crate) fn take(&mut self, completions: &[Completion], mut ended: impl FnMut(Ended<S>)) {
        let mut rest = completions;
        while let Some((first, others)) = rest.split_first() {
            let at = self.at(self.head);
            let oldest = self.ring[at];
            if self.holes > 0 || oldest.token != first.token || self.count() == 0 {
                if let Some((state, before)) = self.take_out_of_order(first.token) {
                    ended(Ended { state, outcome: first.outcome, count: 1, before });
                }
                rest = others;
                continue;
            }
            let mut count = 1;
            if first.outcome == Outcome::Done {
                let end = self.ring.len().min(at + self.count());
                let in_order = self.ring[at + 1..end].iter().zip(others);
                let alike = in_order.take_while(|(entry, completion)| {
                    entry.token == completion.token
                        && completion.outcome == Outcome::Done
                        && entry.state == oldest.state
                });
                count += alike.count();
            }
            self.head = self.head.wrapping_add(count);
            ended(Ended { state: oldest.state, outcome: first.outcome, count: count as u64, before: 0 });
            rest = &rest[count..];
        }
    }

    #[cold]
    fn take_out_of_order(&mut self, token: u64) -> Option<(S, u64)> {
        let count = self.count();
        // From `near` on, and around.
        let first = self.near.wrapping_sub(self.head).min(count);
        let found = (first..count).chain(0..first).find(|&i| {
            let at = self.at(self.head.wrapping_add(i));
            self.ring[at].token == token && !self.taken[at]
        })?;
        let position = self.head.wrapping_add(found);
        let at = self.at(position);
        let older = (0..found).filter(|&i| !self.taken[self.at(self.head.wrapping_add(i))]).count();
        self.taken[at] = true;
        let state = self.ring[at].state;
        self.near = position.wrapping_add(1);
        self.holes += 1;
        while self.taken[self.at(self.head)] {
            self.taken[self.at(self.head)] = false;
            self.head = self.head.wrapping_add(1);
            self.holes -= 1;
        }
        Some((state, older as u64))
    }

    /// Moves all entries together.
    #[cold]
    fn close_holes(&mut self) {
        let mut to = self.head;
        let mut from = self.head;
        while from != self.tail {
            if !self.taken[self.at(from)] {
                self.ring[self.at(to)] = self.ring[self.at(from)];
                to = to.wrapping_add(1);
            }
            from = from.wrapping_add(1);
        }
        self.taken.fill(false);
        (self.tail, self.near, self.holes) = (to, self.head, 0);
    }
}

#[cfg(test)]
mod tests {
    use dma_core::{DeviceAddr, RegionKey, Segment};
    use proptest::prelude::*;

    use super::*;

    fn descriptor(token: u64) -> Descriptor<'static> {
        let segment = Segment { key: RegionKey(0), addr: DeviceAddr(0), len: 1 };
        Descriptor::copy(token, segment, segment)
    }

    proptest! {
        /// Descriptors come back in any order, some very late, each with its state.
        #[test]
        fn each_is_found_once(
            depth in 1_usize..20,
            steps in proptest::collection::vec((any::<bool>(), 0_usize..9, any::<prop::sample::Index>(), 0_u64..6), 0..200),
        ) {
            let mut in_flight = InFlight::new(depth);
            let mut reference: Vec<(u64, usize)> = Vec::new();
            let mut number = 0;
            for (push, count, which, token) in steps {
                if push {
                    let count = count.min(depth - reference.len()) as u64;
                    // Some are the same.
                    let batch: Vec<_> = (0..count).map(|i| descriptor(token + i)).collect();
                    in_flight.push(&batch, |descriptor| {
                        number += 1;
                        reference.push((descriptor.token(), number));
                        number
                    });
                    continue;
                }
                // In order from one of them on, or the other way round.
                let first = if reference.is_empty() { 0 } else { which.index(reference.len()) };
                let mut ended: Vec<_> = reference[first..].iter().take(count).map(|(token, _)| Completion::done(*token)).collect();
                if token == 0 {
                    ended.reverse();
                }
                ended.push(Completion::done(77));
                let mut seen = Vec::new();
                in_flight.take(&ended, |ended| {
                    let older = reference.iter().filter(|(_, number)| *number < ended.state && !seen.contains(number));
                    assert_eq!((ended.before, ended.count), (older.count() as u64, 1));
                    seen.push(ended.state);
                });
                prop_assert_eq!(seen.len() + 1, ended.len());
                for (state, completion) in seen.into_iter().zip(ended) {
                    // Of several with one token, any will do.
                    let at = reference.iter().position(|other| *other == (completion.token, state));
                    reference.remove(at.expect("it is in flight"));
                }
            }
            let rest: Vec<_> = reference.iter().map(|(token, _)| Completion::done(*token)).collect();
            let mut seen = Vec::new();
            in_flight.take(&rest, |ended| seen.push(ended.state));
            let mut reference: Vec<_> = reference.into_iter().map(|(_, number)| number).collect();
            seen.sort_unstable();
            reference.sort_unstable();
            prop_assert_eq!(seen, reference);
        }
    }
}
