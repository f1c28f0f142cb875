//! Translates descriptors of the contract into descriptors of the hardware.

use dma_core::{CacheHint, Descriptor, ErrorKind, Operation, Result, Segment};

use super::lists::List;
use super::ring::DescriptorRing;
use super::state::ResultKind;
use crate::error::error;
use dsa_sys::{HwDescriptor, flag, op};

/// Writes descriptors to the open list of a ring.
#[derive(Debug)]
pub(super) struct Builder {
    /// The flags of all descriptors (`flags`), and of descriptors that write (`write_flags`).
    flags: u32,
    write_flags: u32,
    /// True if the open list has a fence after its first descriptor.
    fenced: bool,
    /// True if the open list has a copy to two destinations that is submitted as two copies.
    split: bool,
    /// True if the open list has descriptors other than unfenced copies.
    mixed: bool,
}

impl Builder {
    pub(super) fn new(block_on_fault: bool, hint: CacheHint) -> Self {
        let flags = flag::RECORD_VALID | if block_on_fault { flag::BLOCK_ON_FAULT } else { 0 };
        let cache = if hint == CacheHint::Cold { 0 } else { flag::CACHE };
        Self { flags, write_flags: flags | cache, fenced: false, split: false, mixed: false }
    }

    /// Returns true if the open list has a fence.
    #[inline]
    pub(super) const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Writes the unfenced copies at the start of the batch to the next places, at most `room`. Returns the
    /// number of copies written.
    #[inline]
    pub(super) fn build_copies(
        &self,
        ring: &mut DescriptorRing,
        batch: &[Descriptor<'_>],
        room: usize,
    ) -> usize {
        let at = ring.index(ring.head);
        let room =
            room.min((ring.tail + ring.mask + 1 - ring.head) as usize).min(ring.len() - at).min(batch.len());
        let command = self.write_flags | u32::from(op::MEMMOVE) << 24;
        let batch = &batch[..room];
        let (descriptors, tokens) = (&mut ring.descriptors[at..][..room], &mut ring.tokens[at..][..room]);
        let put = |place: &mut HwDescriptor, token: &mut u64, descriptor: &Descriptor<'_>| {
            let Some((src, dst)) = descriptor.as_unfenced_copy() else { return };
            place.command = command;
            (place.src, place.dst) = (src.addr.0, dst.addr.0);
            place.len = descriptor.len() as u32;
            *token = descriptor.token();
        };
        let mut built = 0;
        let (fours, _) = batch.as_chunks::<4>();
        let places = descriptors.as_chunks_mut::<4>().0.iter_mut().zip(tokens.as_chunks_mut::<4>().0);
        for (four, (descriptors, tokens)) in fours.iter().zip(places) {
            if four.iter().any(|descriptor| descriptor.as_unfenced_copy().is_none()) {
                break;
            }
            for n in 0..4 {
                put(&mut descriptors[n], &mut tokens[n], &four[n]);
            }
            built += 4;
        }
        while built < room && batch[built].as_unfenced_copy().is_some() {
            put(&mut descriptors[built], &mut tokens[built], &batch[built]);
            built += 1;
        }
        built
    }

    /// Writes a descriptor to the next place. Returns `false` if it has to wait for the descriptors in
    /// flight.
    #[inline(never)]
    pub(super) fn build_one(
        &mut self,
        ring: &mut DescriptorRing,
        descriptor: &Descriptor<'_>,
        before: Before,
    ) -> Result<bool> {
        let fence = descriptor.fence() && before != Before::Nothing;
        // The device's fence has no effect beyond a batch.
        if fence && (self.split || before == Before::OtherLists) {
            return Ok(false);
        }
        self.build(ring, descriptor)?;
        self.mixed = true;
        if fence {
            self.fence(ring);
        } else if self.fenced {
            let at = ring.index(ring.head);
            ring.descriptors[at].command |= flag::REPORT;
        }
        Ok(true)
    }

    /// Writes a descriptor of any operation to the next place.
    fn build(&mut self, ring: &mut DescriptorRing, descriptor: &Descriptor<'_>) -> Result<()> {
        let at = ring.index(ring.head);
        let len = descriptor.len() as u32;
        let mut kind = ResultKind::Plain;
        let (opcode, flags, src, dst, extra) = match descriptor.operation() {
            Operation::Copy { src, dst } => (op::MEMMOVE, self.write_flags, src.addr.0, dst.addr.0, 0),
            Operation::Fill { pattern, dst: &[dst] } => {
                (op::FILL, self.write_flags, u64::from_le_bytes(pattern), dst.addr.0, 0)
            }
            Operation::Compare { a, b } => {
                kind = ResultKind::Compare;
                (op::COMPARE, self.flags | flag::REPORT, a.addr.0, b.addr.0, 0)
            }
            Operation::Crc32c { src, seed } => {
                kind = ResultKind::Crc;
                (op::CRC, self.flags | flag::REPORT, src.addr.0, 0, u64::from(seed))
            }
            Operation::CopyCrc32c { src, dst, seed } => {
                kind = ResultKind::Crc;
                (op::COPY_CRC, self.write_flags | flag::REPORT, src.addr.0, dst.addr.0, u64::from(seed))
            }
            Operation::CopyToBoth { src, dst } if !ring.seconds.is_empty() => {
                self.build_both(ring, descriptor.token(), src, dst);
                return Ok(());
            }
            _ => {
                return Err(error(ErrorKind::Unsupported, "the work queue does not have this operation")
                    .with_hint("see the engine's capabilities; lists have one segment"));
            }
        };
        ring.put(
            at,
            HwDescriptor {
                command: flags | u32::from(opcode) << 24,
                src,
                dst,
                len,
                extra,
                ..HwDescriptor::default()
            },
        );
        ring.tokens[at] = descriptor.token();
        ring.entries[at].kind = kind;
        Ok(())
    }

    /// Writes a copy to two destinations. The device requires that their low 12 address bits are equal. If
    /// these bits differ, one copy is submitted after the other.
    #[inline(never)]
    fn build_both(&mut self, ring: &mut DescriptorRing, token: u64, src: Segment, dst: &[Segment; 2]) {
        let at = ring.index(ring.head);
        let [first, second] = [dst[0].addr.0, dst[1].addr.0];
        let same = (first ^ second) & 0xfff == 0;
        let (opcode, extra, kind) = if same {
            (op::DUALCAST, second, ResultKind::Plain)
        } else {
            (op::MEMMOVE, 0, ResultKind::First)
        };
        self.split |= !same;
        let (src, len) = (src.addr.0, src.len as u32);
        let command = self.write_flags | u32::from(opcode) << 24;
        ring.seconds[at] = (src, second, len);
        ring.put(at, HwDescriptor { command, src, dst: first, len, extra, ..HwDescriptor::default() });
        ring.tokens[at] = token;
        ring.entries[at].kind = kind;
    }

    /// Makes the device wait, before the descriptor at the next place, until all earlier ones of its list are
    /// done.
    ///
    /// If an earlier descriptor fails, the device abandons this one and all later ones. So from the fence on,
    /// descriptors also report success: a descriptor without a record was abandoned.
    #[cold]
    fn fence(&mut self, ring: &mut DescriptorRing) {
        let at = ring.index(ring.head);
        ring.descriptors[at].command |= flag::FENCE | flag::REPORT;
        self.fenced = true;
    }

    /// Closes the open list, which must not be empty, and returns it. `batches`: the device accepts batch
    /// descriptors.
    #[inline]
    pub(super) const fn close(&mut self, ring: &mut DescriptorRing, batches: bool) -> List {
        let len = ring.open_len() as u32;
        let list =
            List { fenced: self.fenced, plain: !self.mixed, ..List::new(ring.open, len, batches && len > 1) };
        (self.fenced, self.split, self.mixed) = (false, false, false);
        ring.open = ring.head;
        list
    }
}

/// Location of the operations in flight before a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// All operations in flight are in the list to which the descriptor is added.
    SameList,
    /// Some operations in flight are in another list.
    OtherLists,
}
