//! [`Pending`]: copies that wait for the doorbell.

use dma_core::Segment;

use crate::driver::Address;
use crate::pieces::{Load, Places};

/// Maximum number of segments on each side of a descriptor.
pub(crate) const LIST_MAX: usize = 2048;

/// Number of copies that a queue collects, unless its depth is greater. Two lists whose segments have
/// different ends are fewer copies than the sum of their segments.
const PENDING_MIN: usize = 2 * LIST_MAX;

/// Copies that are not submitted to the driver yet, in the arrays that its call takes. The arrays have their
/// final length from the start, so that none grows.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Number of copies.
    pub(crate) number: usize,
    /// Number of descriptors.
    pub(crate) tokens: usize,
    pub(crate) bytes: usize,
    pub(crate) places: Places,
    pub(crate) dsts: Box<[Address]>,
    pub(crate) srcs: Box<[Address]>,
    pub(crate) lens: Box<[usize]>,
    /// Descriptors that are not one copy: their indices among the descriptors, and their numbers of copies.
    pub(crate) lists: Vec<(usize, usize)>,
}

impl Pending {
    pub(crate) fn new(depth: usize) -> Self {
        let len = depth.max(PENDING_MIN);
        let zeros = || vec![0; len].into_boxed_slice();
        Self {
            number: 0,
            tokens: 0,
            bytes: 0,
            places: Places::default(),
            dsts: zeros(),
            srcs: zeros(),
            lens: vec![0; len].into_boxed_slice(),
            lists: Vec::with_capacity(depth),
        }
    }

    pub(crate) fn len_max(&self) -> usize {
        self.lens.len()
    }

    /// Adds the copies of two lists as one descriptor. The lists have the same total length, and
    /// [`is_room_for`](Self::is_room_for) is true.
    pub(crate) fn push_lists(&mut self, srcs: &[Segment], dsts: &[Segment]) {
        let first = self.number;
        let (mut to, mut from) = (dsts.iter().copied(), srcs.iter().copied());
        let (mut dst, mut src) = (to.next(), from.next());
        while let (Some(at), Some(of)) = (&mut dst, &mut src) {
            let len = at.len.min(of.len);
            (self.dsts[self.number], self.srcs[self.number], self.lens[self.number]) =
                (at.addr.0, of.addr.0, len);
            self.number += 1;
            self.bytes += len;
            self.places.add(of.key, at.key);
            (at.addr, at.len) = (at.addr.offset(len), at.len - len);
            (of.addr, of.len) = (of.addr.offset(len), of.len - len);
            if at.len == 0 {
                dst = to.next();
            }
            if of.len == 0 {
                src = from.next();
            }
        }
        self.lists.push((self.tokens, self.number - first));
        self.tokens += 1;
    }

    /// Returns true if the copies of two lists fit.
    pub(crate) fn is_room_for(&self, srcs: &[Segment], dsts: &[Segment]) -> bool {
        srcs.len() + dsts.len() <= self.len_max() - self.number
    }

    pub(crate) fn load(&self) -> Load {
        Load { number: self.number, bytes: self.bytes, places: self.places }
    }

    /// Returns the number of descriptors whose copies are all among the first `copies`.
    #[cold]
    pub(crate) fn tokens_of(&self, copies: usize) -> usize {
        let mut lists = self.lists.iter().peekable();
        let mut left = copies;
        (0..self.tokens)
            .take_while(|token| {
                let list = lists.next_if(|(index, _)| index == token);
                let number = list.map_or(1, |(_, number)| *number);
                let is_in = number <= left;
                left = left.saturating_sub(number);
                is_in
            })
            .count()
    }

    /// Removes all copies.
    pub(crate) fn clear(&mut self) {
        (self.number, self.tokens, self.bytes, self.places) = (0, 0, 0, Places::default());
        self.lists.clear();
    }
}
