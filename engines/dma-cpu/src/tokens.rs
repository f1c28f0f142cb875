//! [`Tokens`]: tokens of completed descriptors that are not reported yet.

use dma_core::Completion;

/// A ring of tokens. Whenever it is empty it restarts at its beginning, so it uses as few cache lines as
/// possible.
#[derive(Debug)]
pub(super) struct Tokens {
    ring: Box<[u64]>,
    /// Positions of the oldest token (`first`) and after the newest (`end`). The index is the position modulo
    /// the ring's length.
    first: usize,
    end: usize,
}

impl Tokens {
    /// Makes a ring with room for `capacity` tokens.
    pub(super) fn new(capacity: usize) -> Self {
        Self { ring: vec![0; capacity.next_power_of_two()].into(), first: 0, end: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end.wrapping_sub(self.first)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.end == self.first
    }

    /// Adds a token. There must be room.
    #[inline]
    pub(super) fn push(&mut self, token: u64) {
        debug_assert!(self.len() < self.ring.len());
        let mask = self.ring.len() - 1;
        self.ring[self.end & mask] = token;
        self.end = self.end.wrapping_add(1);
    }

    /// Moves the oldest tokens to `completions`, until it is full. Returns their number.
    #[inline]
    pub(super) fn pop_into(&mut self, completions: &mut [Completion]) -> usize {
        let n = completions.len().min(self.len());
        let start = self.first & (self.ring.len() - 1);
        let (wrapped, straight) = self.ring.split_at(start);
        let (to_straight, to_wrapped) = completions[..n].split_at_mut(n.min(straight.len()));
        let report = |completions: &mut [Completion], tokens: &[u64]| {
            for (completion, token) in completions.iter_mut().zip(tokens) {
                *completion = Completion::done(*token);
            }
        };
        report(to_straight, straight);
        report(to_wrapped, wrapped);
        self.first = self.first.wrapping_add(n);
        if self.first == self.end {
            (self.first, self.end) = (0, 0);
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_queue(capacity in 1..70_usize, steps in prop::collection::vec((any::<bool>(), 0..80_usize), 1..200)) {
            let mut tokens = Tokens::new(capacity);
            let mut oracle = VecDeque::new();
            let mut next = 0;
            for (push, n) in steps {
                if push {
                    for _ in 0..n.min(capacity - oracle.len()) {
                        next += 1;
                        tokens.push(next);
                        oracle.push_back(next);
                    }
                } else {
                    let mut completions = vec![Completion::done(u64::MAX); n];
                    let popped = tokens.pop_into(&mut completions);
                    prop_assert_eq!(popped, n.min(oracle.len()));
                    for completion in &completions[..popped] {
                        prop_assert_eq!(*completion, Completion::done(oracle.pop_front().unwrap()));
                    }
                }
                prop_assert_eq!((tokens.len(), tokens.is_empty()), (oracle.len(), oracle.is_empty()));
            }
        }
    }
}
