//! [`InFlight`]: the descriptors that a queue has accepted and not reported, by token.

use dma_core::{Completion, Descriptor, Outcome};

/// Descriptors in flight in the order of submission, each with a state.
///
/// Most devices report in this order, so the reported descriptor is usually the oldest one. If it is not, the
/// search starts after the descriptor that was found last, because a device with several channels keeps the
/// order within each channel. Several descriptors may have the same token; then the first one that the search
/// finds is removed.
#[derive(Debug)]
pub(crate) struct InFlight<S> {
    /// Rings: the entry of position `p` has the index `p & (len - 1)`.
    tokens: Box<[u64]>,
    states: Box<[S]>,
    /// Marks holes: entries that were removed before older entries.
    taken: Box<[bool]>,
    /// The number of holes.
    holes: usize,
    /// The position of the oldest entry.
    head: usize,
    /// The position after the youngest entry.
    tail: usize,
    /// The position after the entry that the last search found.
    near: usize,
}

/// Consecutively reported descriptors with the same state and outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<S> {
    pub(crate) state: S,
    pub(crate) outcome: Outcome,
    pub(crate) count: u64,
    /// The number of descriptors still in flight that were submitted earlier. If it is not 0, `count` is 1.
    pub(crate) before: u64,
}

/// Number of elements that one unrolled step handles.
const STEP: usize = 8;

/// Sets each element to the value of the descriptor with the same index.
#[inline]
fn fill<T>(to: &mut [T], from: &[Descriptor<'_>], mut value: impl FnMut(&Descriptor<'_>) -> T) {
    let ((steps, rest), (from, others)) = (to.as_chunks_mut::<STEP>(), from.as_chunks::<STEP>());
    for (to, from) in steps.iter_mut().zip(from) {
        (0..STEP).for_each(|i| to[i] = value(&from[i]));
    }
    for (to, from) in rest.iter_mut().zip(others) {
        *to = value(from);
    }
}

/// Returns the number of leading pairs that match.
#[inline]
fn matching<A, B>(a: &[A], b: &[B], same: impl Fn(&A, &B) -> bool) -> usize {
    let (steps_a, steps_b) = (a.as_chunks::<STEP>().0, b.as_chunks::<STEP>().0);
    let whole = steps_a.iter().zip(steps_b).take_while(|(a, b)| (0..STEP).all(|i| same(&a[i], &b[i])));
    let start = whole.count() * STEP;
    let rest = a[start..].iter().zip(&b[start..]).take_while(|(a, b)| same(a, b));
    start + rest.count()
}

impl<S: Copy + Default + PartialEq> InFlight<S> {
    /// Allocates room for `depth` descriptors. Later calls do not allocate.
    pub(crate) fn new(depth: usize) -> Self {
        // Twice the depth. With this length, many entries are holes when a batch does not fit, so closing the
        // holes is worthwhile.
        let len = (2 * depth.max(1)).next_power_of_two();
        let (tokens, states, taken) = (vec![0; len], vec![S::default(); len], vec![false; len]);
        let (tokens, states, taken) = (tokens.into(), states.into(), taken.into());
        Self { tokens, states, taken, holes: 0, head: 0, tail: 0, near: 0 }
    }

    fn at(&self, position: usize) -> usize {
        position & (self.tokens.len() - 1)
    }

    /// Returns the number of entries, including holes.
    fn count(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Adds descriptors. The queue has at most `depth` in flight.
    #[inline]
    pub(crate) fn push(&mut self, batch: &[Descriptor<'_>], mut state: impl FnMut(&Descriptor<'_>) -> S) {
        if self.count() + batch.len() > self.tokens.len() {
            self.close_holes();
        }
        let at = self.at(self.tail);
        let (before, after) = batch.split_at(batch.len().min(self.tokens.len() - at));
        for (part, at) in [(before, at), (after, 0)] {
            let end = at + part.len();
            fill(&mut self.tokens[at..end], part, |descriptor| descriptor.token());
            fill(&mut self.states[at..end], part, &mut state);
        }
        self.tail = self.tail.wrapping_add(batch.len());
    }

    /// Removes the reported descriptors, and calls `ended` with them in the order of the reports.
    #[inline]
    pub(crate) fn take(&mut self, completions: &[Completion], mut ended: impl FnMut(Ended<S>)) {
        let mut rest = completions;
        while let Some(first) = rest.first() {
            let at = self.at(self.head);
            let end = self.tokens.len().min(at + self.count());
            let oldest = if self.holes == 0 { &self.tokens[at..end] } else { &[] };
            let done = |token: &u64, completion: &Completion| {
                *token == completion.token && completion.outcome == Outcome::Done
            };
            let in_order = matching(oldest, rest, done);
            if in_order == 0 {
                if oldest.first() == Some(&first.token) {
                    self.head = self.head.wrapping_add(1);
                    ended(Ended { state: self.states[at], outcome: first.outcome, count: 1, before: 0 });
                } else if let Some((state, before)) = self.take_out_of_order(first.token) {
                    ended(Ended { state, outcome: first.outcome, count: 1, before });
                }
                rest = &rest[1..];
                continue;
            }
            self.head = self.head.wrapping_add(in_order);
            let mut states = &self.states[at..at + in_order];
            while let [state, others @ ..] = states {
                let count = 1 + matching(others, others, |other, _| other == state);
                ended(Ended { state: *state, outcome: Outcome::Done, count: count as u64, before: 0 });
                states = &states[count..];
            }
            rest = &rest[in_order..];
        }
    }

    #[cold]
    fn take_out_of_order(&mut self, token: u64) -> Option<(S, u64)> {
        let count = self.count();
        // Searches from `near` to the end, then from the start.
        let first = self.near.wrapping_sub(self.head).min(count);
        let found = (first..count).chain(0..first).find(|&i| {
            let at = self.at(self.head.wrapping_add(i));
            self.tokens[at] == token && !self.taken[at]
        })?;
        let position = self.head.wrapping_add(found);
        let at = self.at(position);
        let older = (0..found).filter(|&i| !self.taken[self.at(self.head.wrapping_add(i))]).count();
        self.taken[at] = true;
        let state = self.states[at];
        self.near = position.wrapping_add(1);
        self.holes += 1;
        while self.taken[self.at(self.head)] {
            self.taken[self.at(self.head)] = false;
            self.head = self.head.wrapping_add(1);
            self.holes -= 1;
        }
        Some((state, older as u64))
    }

    /// Closes the holes.
    #[cold]
    fn close_holes(&mut self) {
        let mut to = self.head;
        let mut from = self.head;
        while from != self.tail {
            if !self.taken[self.at(from)] {
                let (old, new) = (self.at(from), self.at(to));
                (self.tokens[new], self.states[new]) = (self.tokens[old], self.states[old]);
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
        /// Descriptors are reported in any order, some very late, each with its state.
        #[test]
        fn each_is_found_once(
            depth in 1_usize..40,
            steps in proptest::collection::vec((any::<bool>(), 0_usize..20, any::<prop::sample::Index>(), 0_u64..6), 0..200),
        ) {
            let mut in_flight = InFlight::new(depth);
            let mut reference: Vec<(u64, usize)> = Vec::new();
            let mut number = 0;
            for (push, count, which, token) in steps {
                if push {
                    let count = count.min(depth - reference.len()) as u64;
                    // Some tokens are equal.
                    let batch: Vec<_> = (0..count).map(|i| descriptor(token + i)).collect();
                    in_flight.push(&batch, |descriptor| {
                        number += 1;
                        reference.push((descriptor.token(), number));
                        number
                    });
                    continue;
                }
                // The reports are in order from some descriptor on, or in reverse order.
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
                    // If several descriptors have the same token, each of them is a correct result.
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
