//! [`Tokens`]: the descriptors that a replay has submitted, by token. Tokens count from 0.

use std::collections::VecDeque;

use super::memory::Check;

/// The descriptors that were submitted, beginning with the oldest one that has not ended.
#[derive(Debug)]
pub(super) struct Tokens {
    ended: VecDeque<bool>,
    /// The checks of a run that checks bytes.
    checks: VecDeque<Check>,
    oldest: u64,
    /// Accepted descriptors that have not ended.
    pub(super) in_flight: usize,
}

impl Tokens {
    pub(super) fn new(depth: usize) -> Self {
        let ended = VecDeque::with_capacity(2 * depth);
        Self { ended, checks: VecDeque::new(), oldest: 0, in_flight: 0 }
    }

    /// Returns the first token that may be in flight.
    pub(super) const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Returns the token of the descriptor that is added next.
    pub(super) fn next(&self) -> u64 {
        self.oldest + self.ended.len() as u64
    }

    pub(super) fn add(&mut self, count: usize) {
        self.ended.resize(self.ended.len() + count, false);
    }

    /// Adds a check to the first descriptor that has none.
    pub(super) fn add_check(&mut self, check: Check) {
        self.checks.push_back(check);
    }

    fn index(&self, token: u64) -> Option<usize> {
        Some(token.checked_sub(self.oldest)? as usize)
    }

    pub(super) fn is_in_flight(&self, token: u64) -> bool {
        self.index(token).and_then(|index| self.ended.get(index)).is_some_and(|ended| !ended)
    }

    /// Records that a descriptor has ended, and returns its check. Returns `None` if the descriptor is not in
    /// flight.
    pub(super) fn end(&mut self, token: u64) -> Option<Option<Check>> {
        let index = self.index(token)?;
        let ended = self.ended.get_mut(index).filter(|ended| !**ended)?;
        *ended = true;
        self.in_flight -= 1;
        let check = self.checks.get_mut(index).map(std::mem::take);
        while self.ended.front() == Some(&true) {
            self.ended.pop_front();
            self.checks.pop_front();
            self.oldest += 1;
        }
        Some(check)
    }
}
