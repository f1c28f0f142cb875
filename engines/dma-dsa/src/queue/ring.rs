//! The ring: places with the descriptors, records and tokens of operations.

use std::mem;

use dma_core::Completion;

use super::resume::{DescriptorEnd, EndedDescriptor};
use super::state::{Copy, DescriptorState};
use dsa_sys::{HwDescriptor, Record, flag};

/// A ring of places. Place numbers only increase; a place's index is its number modulo the length of the
/// ring. The open list, which the doorbell closes, is `open..head`. The places `tail..head` may be in use.
#[derive(Debug)]
pub(super) struct DescriptorRing {
    /// The length of the ring minus one. The length is a power of two.
    pub(super) mask: u64,
    pub(super) descriptors: Box<[HwDescriptor]>,
    pub(super) records: Box<[Record]>,
    /// The record of a batch, at the index of its first descriptor.
    pub(super) batch_records: Box<[Record]>,
    pub(super) tokens: Box<[u64]>,
    pub(super) entries: Box<[DescriptorState]>,
    /// Copies to the second of two destinations. Empty if the device cannot copy to two destinations.
    pub(super) seconds: Box<[Copy]>,
    pub(super) head: u64,
    pub(super) open: u64,
    pub(super) tail: u64,
}

/// Returns `len` default values.
fn boxed<T: Default>(len: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(len).collect()
}

/// Returns the address of a record, which the device writes.
#[inline]
pub(super) fn address(record: &Record) -> u64 {
    std::ptr::from_ref(record).expose_provenance() as u64
}

impl DescriptorRing {
    /// Makes a ring for `depth` operations. `copies_to_both`: operations may be copies to two destinations.
    pub(super) fn new(depth: usize, copies_to_both: bool) -> Self {
        // Twice the depth, because a place becomes free only after all places before it.
        let len = (2 * depth).next_power_of_two();
        let records: Box<[Record]> = boxed(len);
        let mut descriptors: Box<[HwDescriptor]> = boxed(len);
        for (descriptor, record) in descriptors.iter_mut().zip(&records) {
            descriptor.record = address(record);
        }
        Self {
            mask: len as u64 - 1,
            descriptors,
            records,
            batch_records: boxed(len),
            tokens: boxed(len),
            entries: boxed(len),
            seconds: boxed(if copies_to_both { len } else { 0 }),
            head: 0,
            open: 0,
            tail: 0,
        }
    }

    /// Returns the number of places.
    pub(super) const fn len(&self) -> usize {
        self.descriptors.len()
    }

    #[inline]
    pub(super) const fn index(&self, place: u64) -> usize {
        (place & self.mask) as usize
    }

    /// Returns true if all places are in use.
    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.head > self.tail + self.mask
    }

    /// Returns the number of descriptors in the open list.
    #[inline]
    pub(super) const fn open_len(&self) -> u64 {
        self.head - self.open
    }

    /// Returns true if the next place is the first of the ring, and the open list is at the end of the ring.
    #[inline]
    pub(super) const fn is_at_end(&self) -> bool {
        self.head & self.mask == 0 && self.head > self.open
    }

    /// Sets a place's descriptor, except for the address of its record, which never changes.
    #[inline]
    pub(super) fn put(&mut self, at: usize, descriptor: HwDescriptor) {
        let place = &mut self.descriptors[at];
        let record = place.record;
        *place = HwDescriptor { record, ..descriptor };
    }

    /// Frees a place: resets its state and the field `extra` of its descriptor.
    #[inline]
    pub(super) fn free(&mut self, at: usize) {
        self.entries[at] = DescriptorState::default();
        self.descriptors[at].extra = 0;
    }

    /// Moves the open list from the end of the ring to its start, because a list must be contiguous. Returns
    /// `false` if there is no room for the list and one more descriptor.
    #[cold]
    pub(super) fn wrap(&mut self) -> bool {
        let len = self.open_len();
        if self.head + len > self.tail + self.mask {
            return false;
        }
        let from = self.index(self.open);
        for to in 0..len as usize {
            let from = from + to;
            self.put(to, self.descriptors[from]);
            (self.tokens[to], self.entries[to]) = (self.tokens[from], self.entries[from]);
            if !self.seconds.is_empty() {
                self.seconds[to] = self.seconds[from];
            }
            self.free(from);
        }
        (self.open, self.head) = (self.head, self.head + len);
        true
    }

    /// Continues at the first place. Must be called only while no operation is in flight. Then whole lists
    /// fit without wrapping.
    #[inline]
    pub(super) const fn restart(&mut self) {
        (self.head, self.open, self.tail) = (0, 0, 0);
    }

    /// Prepares the descriptors of a list to be submitted one by one: each must report its success, and the
    /// fence flag is cleared, because it has no meaning outside a batch.
    #[inline]
    pub(super) fn ready_singles(&mut self, first: u64, len: u32) {
        let at = self.index(first);
        self.descriptors[at].command &= !flag::FENCE;
        for descriptor in &mut self.descriptors[at..at + len as usize] {
            descriptor.command |= flag::REPORT;
        }
    }

    /// Ends a descriptor with a status. Returns `None` if it has to be submitted again.
    pub(super) fn end(&mut self, place: u64, status: u8) -> Option<Completion> {
        let at = self.index(place);
        let second = self.seconds.get(at).copied().unwrap_or_default();
        let place = EndedDescriptor {
            token: self.tokens[at],
            descriptor: &mut self.descriptors[at],
            entry: &mut self.entries[at],
            record: &self.records[at],
        };
        match place.end(status, second) {
            DescriptorEnd::Completion(completion) => Some(completion),
            DescriptorEnd::Again => None,
        }
    }

    /// Clears the records of aborted descriptors, which the device may have written.
    pub(super) fn clear_records(&self) {
        for record in self.records.iter().chain(&self.batch_records) {
            record.take();
        }
    }

    /// Leaks the memory that a device may still read or write.
    pub(super) fn leak(&mut self) {
        mem::forget(mem::take(&mut self.descriptors));
        mem::forget(mem::take(&mut self.records));
        mem::forget(mem::take(&mut self.batch_records));
    }
}
