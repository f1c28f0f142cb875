//! [`Tokens`]: the tokens of the descriptors in flight.

/// Tokens in the order of submission: a ring in an array of the queue's depth.
#[derive(Debug)]
pub(super) struct Tokens {
    ring: Box<[u64]>,
    /// Index of the first entry.
    start: usize,
    pub(super) number: usize,
}

impl Tokens {
    pub(super) fn new(depth: usize) -> Self {
        Self { ring: vec![0; depth].into_boxed_slice(), start: 0, number: 0 }
    }

    /// Returns the index of the entry that is `after` entries after the first one.
    #[inline]
    fn index(&self, after: usize) -> usize {
        let index = self.start + after;
        if index < self.ring.len() { index } else { index - self.ring.len() }
    }

    /// Returns the entry that is `after` entries after the first one.
    pub(super) fn get(&self, after: usize) -> u64 {
        self.ring[self.index(after)]
    }

    /// Returns the free entries after the last one, up to the end of the array. The result is empty only if
    /// the ring is full.
    #[inline]
    pub(super) fn free(&mut self) -> &mut [u64] {
        let begin = self.index(self.number);
        let end = self.ring.len().min(begin + self.ring.len() - self.number);
        &mut self.ring[begin..end]
    }

    /// Adds an entry. The ring must not be full.
    pub(super) fn push(&mut self, token: u64) {
        self.free()[0] = token;
        self.number += 1;
    }

    /// Returns the first entries: at most `most`, and at most up to the end of the array.
    #[inline]
    pub(super) fn first(&self, most: usize) -> &[u64] {
        let end = self.ring.len().min(self.start + most.min(self.number));
        &self.ring[self.start..end]
    }

    /// Removes the first entries.
    #[inline]
    pub(super) fn remove_first(&mut self, number: usize) {
        self.start = self.index(number);
        self.number -= number;
    }

    /// Removes `number` entries, beginning `after` entries after the first one.
    pub(super) fn remove(&mut self, after: usize, number: usize) {
        for at in after + number..self.number {
            self.ring[self.index(at - number)] = self.ring[self.index(at)];
        }
        self.number -= number;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn tokens_keep_their_order_around_the_end_of_the_array() {
        let (mut ours, mut theirs) = (Tokens::new(5), VecDeque::new());
        for round in 0..200_u64 {
            while ours.number < 5 {
                let token = round * 10 + ours.number as u64;
                ours.push(token);
                theirs.push_back(token);
            }
            assert!(ours.free().is_empty(), "as many as the depth");
            let (after, number) = (round as usize % 3, 1 + round as usize % 2);
            ours.remove(after, number);
            theirs.drain(after..after + number);
            let wanted = 1 + round as usize % 3;
            let first = ours.first(wanted).to_vec();
            assert!((1..=wanted).contains(&first.len()));
            assert!(theirs.drain(..first.len()).eq(first.iter().copied()));
            ours.remove_first(first.len());
            let all: Vec<u64> = (0..ours.number).map(|at| ours.get(at)).collect();
            assert_eq!(theirs, all);
        }
        ours.remove_first(ours.number);
        assert!(ours.first(9).is_empty() && !ours.free().is_empty());
    }
}
