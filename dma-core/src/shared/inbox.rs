//! [`Inbox`] and [`FreeSlots`]: pass slots between threads without locks.

use crate::memory::sync::{AtomicU32, AtomicU64, Ordering, in_order};

/// Marks the end of the list.
const NONE: u32 = u32::MAX;

/// A list of slots with requests for the lane. Any thread can push a slot, and the lane takes all slots. A
/// push and a take are one atomic operation each.
#[derive(Debug)]
pub(super) struct Inbox {
    newest: AtomicU32,
}

/// For each slot, the slot that was pushed before it.
#[derive(Debug)]
pub(super) struct Links(Box<[AtomicU32]>);

impl Links {
    pub(super) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU32::new(NONE)).collect())
    }
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { newest: AtomicU32::new(NONE) }
    }

    /// Adds a slot, which must not be in an inbox. The lane then sees the caller's writes (release ordering).
    /// The operation is sequentially consistent with [`is_empty`](Self::is_empty).
    #[inline]
    pub(super) fn push(&self, links: &Links, slot: u32) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            links.0[slot as usize].store(newest, Ordering::Relaxed);
            match self.newest.compare_exchange_weak(newest, slot, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Moves all slots to the end of `out`. The slots of one thread are in the order in which it pushed them.
    pub(super) fn take(&self, links: &Links, out: &mut Vec<u32>) {
        if self.newest.load(Ordering::Relaxed) == NONE {
            return;
        }
        let first = out.len();
        let mut slot = self.newest.swap(NONE, Ordering::Acquire);
        while slot != NONE {
            out.push(slot);
            // No thread pushes the slot again before the lane has completed its request.
            slot = links.0[slot as usize].load(Ordering::Relaxed);
        }
        out[first..].reverse();
    }

    /// Takes `slot` if it is the only slot in the inbox. Returns whether it was taken. The push of the slot
    /// must have happened before this call.
    #[inline]
    pub(super) fn take_only(&self, links: &Links, slot: u32) -> bool {
        // The slot's link does not change while the slot is in the inbox. If it is not in the inbox, the
        // exchange fails.
        let is_last = links.0.get(slot as usize).is_some_and(|link| link.load(Ordering::Relaxed) == NONE);
        is_last && self.newest.compare_exchange(slot, NONE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Calls `f` with every slot. Only the lane may call this, because no slot may be taken during the call.
    pub(super) fn for_each(&self, links: &Links, mut f: impl FnMut(u32)) {
        let mut slot = self.newest.load(Ordering::Acquire);
        while slot != NONE {
            f(slot);
            slot = links.0[slot as usize].load(Ordering::Relaxed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newest.load(Ordering::SeqCst) == NONE
    }
}

/// The set of free slots. Each slot is one bit. The words are in separate cache lines, so that threads with
/// different submitter ids do not contend.
#[derive(Debug)]
pub(super) struct FreeSlots {
    words: Box<[Word]>,
    /// A submitter starts at the word with the index `id & mask`.
    mask: usize,
}

#[derive(Debug)]
#[repr(align(128))]
struct Word(AtomicU64);

impl FreeSlots {
    /// Makes a set in which all slots are free.
    pub(super) fn new(slots: usize) -> Self {
        let word = |i: usize| {
            let bits = slots.saturating_sub(i * 64).min(64);
            Word(AtomicU64::new(u64::MAX.checked_shr(64 - bits as u32).unwrap_or(0)))
        };
        let words: Box<[_]> = (0..slots.div_ceil(64)).map(word).collect();
        let mask = words.len().checked_ilog2().map_or(0, |log| (1 << log) - 1);
        Self { words, mask }
    }

    /// Takes a free slot. The search starts at the submitter's word. Returns `None` if no slot is free.
    #[inline]
    pub(super) fn take(&self, submitter_id: usize) -> Option<u32> {
        let first = submitter_id & self.mask;
        self.take_from(first).or_else(|| self.take_from_others(first))
    }

    /// Takes a free slot of one word.
    #[inline]
    fn take_from(&self, at: usize) -> Option<u32> {
        let Word(word) = self.words.get(at)?;
        let mut bits = word.load(Ordering::Relaxed);
        while bits != 0 {
            let lowest = bits & bits.wrapping_neg();
            // The acquire ordering makes the writes of the slot's previous user visible.
            match word.compare_exchange_weak(bits, bits & !lowest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(at as u32 * 64 + lowest.trailing_zeros()),
                Err(now) => bits = now,
            }
        }
        None
    }

    /// Takes a free slot of another word than `first`. The search starts at the next word.
    #[cold]
    fn take_from_others(&self, first: usize) -> Option<u32> {
        (first + 1..self.words.len()).chain(0..first).find_map(|at| self.take_from(at))
    }

    /// Returns a slot to the set. The operation is sequentially consistent with [`any`](Self::any): either
    /// the caller sees a waiting task, or the task sees the slot.
    pub(super) fn give(&self, slot: u32) {
        self.words[slot as usize / 64].0.fetch_or(1 << (slot % 64), Ordering::SeqCst);
        in_order();
    }

    /// Returns whether any slot is free.
    pub(super) fn any(&self) -> bool {
        in_order();
        self.words.iter().any(|word| word.0.load(Ordering::SeqCst) != 0)
    }

    /// Returns whether at least two of the `slots` slots are taken. The result may be outdated, because other
    /// threads take and return slots.
    pub(super) fn are_shared(&self, slots: usize) -> bool {
        let mut taken = 0;
        self.words.iter().zip((0..slots).step_by(64)).any(|(word, first)| {
            let has = (slots - first).min(64) as u32;
            taken += has - word.0.load(Ordering::Relaxed).count_ones();
            taken > 1
        })
    }

    /// Returns the number of free slots.
    pub(super) fn count(&self) -> usize {
        self.words.iter().map(|word| word.0.load(Ordering::Relaxed).count_ones() as usize).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_slot_is_given_out_once() {
        for slots in [1, 2, 63, 64, 65, 130] {
            let free = FreeSlots::new(slots);
            let taken: HashSet<_> = std::iter::from_fn(|| free.take(1)).collect();
            assert_eq!(taken, (0..slots as u32).collect());
            assert_eq!(free.are_shared(slots), slots > 1);
            let [last, others @ ..] = &taken.iter().copied().collect::<Vec<_>>()[..] else { unreachable!() };
            others.iter().for_each(|slot| free.give(*slot));
            assert!(!free.are_shared(slots), "only one of {slots} slots is taken");
            free.give(*last);
            assert!(!free.are_shared(slots));
            assert_eq!(free.count(), slots);
            (0..slots).for_each(|_| _ = free.take(0));
            free.give(0);
            assert_eq!(free.take(7), Some(0));
            assert_eq!(free.take(0), None);
        }
    }

    #[test]
    fn an_inbox_keeps_the_order() {
        let (inbox, links) = (Inbox::new(), Links::new(10));
        let mut out = vec![9];
        inbox.take(&links, &mut out);
        assert!(inbox.is_empty());
        (0..5).for_each(|slot| inbox.push(&links, slot));
        assert!(!inbox.is_empty());
        inbox.take(&links, &mut out);
        assert_eq!(out, [9, 0, 1, 2, 3, 4]);
        inbox.push(&links, 3);
        assert!(!inbox.take_only(&links, 4) && !inbox.take_only(&links, 10), "they are not in the inbox");
        inbox.push(&links, 4);
        assert!(!inbox.take_only(&links, 3) && !inbox.take_only(&links, 4), "there are two");
        inbox.take(&links, &mut out);
        assert_eq!(out[6..], [3, 4]);
        inbox.push(&links, 4);
        assert!(inbox.take_only(&links, 4) && inbox.is_empty());
    }
}
