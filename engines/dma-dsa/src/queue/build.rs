//! Descriptors of the hardware for those of the contract.

use dma_core::{Descriptor, ErrorKind, Operation, Result, Segment};

use super::{DsaQueue, Kind};
use crate::error::error;
use crate::hardware::{HwDescriptor, flag, op};

impl DsaQueue {
    /// Writes those copies without a fence that the batch begins with to the next places, as far as the list
    /// that gathers may grow, and returns their number.
    #[inline]
    pub(super) fn build_copies(&mut self, batch: &[Descriptor<'_>]) -> usize {
        let at = self.index(self.head);
        let room = (self.depth - self.in_flight)
            .min((self.longest - (self.head - self.open)) as usize)
            .min((self.tail + self.mask + 1 - self.head) as usize)
            .min(self.descriptors.len() - at)
            .min(batch.len());
        let command = self.write_flags | u32::from(op::MEMMOVE) << 24;
        let batch = &batch[..room];
        let (descriptors, tokens) = (&mut self.descriptors[at..][..room], &mut self.tokens[at..][..room]);
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

    /// Writes a descriptor to the next place. Returns `false` if it has to wait for those in flight.
    #[inline(never)]
    pub(super) fn build_one(&mut self, descriptor: &Descriptor<'_>, begins: bool) -> Result<bool> {
        let fence = descriptor.fence() && self.in_flight > 0;
        // The device orders nothing beyond a batch.
        if fence && (begins || self.split || !self.lists.is_empty()) {
            return Ok(false);
        }
        self.build(descriptor)?;
        self.plain = false;
        if fence {
            self.fence();
        } else if self.fenced {
            let at = self.index(self.head);
            self.descriptors[at].command |= flag::REPORT;
        }
        Ok(true)
    }

    /// Writes a descriptor of any operation to the next place.
    fn build(&mut self, descriptor: &Descriptor<'_>) -> Result<()> {
        let at = self.index(self.head);
        let len = descriptor.len() as u32;
        let mut kind = Kind::Plain;
        let (opcode, flags, src, dst, extra) = match descriptor.operation() {
            Operation::Copy { src, dst } => (op::MEMMOVE, self.write_flags, src.addr.0, dst.addr.0, 0),
            Operation::Fill { pattern, dst: &[dst] } => {
                (op::FILL, self.write_flags, u64::from_le_bytes(pattern), dst.addr.0, 0)
            }
            Operation::Compare { a, b } => {
                kind = Kind::Compare;
                (op::COMPARE, self.flags | flag::REPORT, a.addr.0, b.addr.0, 0)
            }
            Operation::Crc32c { src, seed } => {
                kind = Kind::Crc;
                (op::CRC, self.flags | flag::REPORT, src.addr.0, 0, u64::from(seed))
            }
            Operation::CopyCrc32c { src, dst, seed } => {
                kind = Kind::Crc;
                (op::COPY_CRC, self.write_flags | flag::REPORT, src.addr.0, dst.addr.0, u64::from(seed))
            }
            Operation::CopyToBoth { src, dst } if !self.seconds.is_empty() => {
                return self.build_both(descriptor.token(), src, dst);
            }
            _ => {
                return Err(error(ErrorKind::Unsupported, "the work queue does not have this operation")
                    .with_hint("see the engine's capabilities; lists have one segment"));
            }
        };
        self.put(
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
        self.tokens[at] = descriptor.token();
        self.entries[at].kind = kind;
        Ok(())
    }

    /// The device wants the low 12 bits of both destinations to be equal. Otherwise, one copy follows the
    /// other.
    #[inline(never)]
    fn build_both(&mut self, token: u64, src: Segment, dst: &[Segment; 2]) -> Result<()> {
        let at = self.index(self.head);
        let [first, second] = [dst[0].addr.0, dst[1].addr.0];
        let same = (first ^ second) & 0xfff == 0;
        let (opcode, extra, kind) =
            if same { (op::DUALCAST, second, Kind::Plain) } else { (op::MEMMOVE, 0, Kind::First) };
        self.split |= !same;
        let (src, len) = (src.addr.0, src.len as u32);
        let command = self.write_flags | u32::from(opcode) << 24;
        self.seconds[at] = (src, second, len);
        self.put(at, HwDescriptor { command, src, dst: first, len, extra, ..HwDescriptor::default() });
        self.tokens[at] = token;
        self.entries[at].kind = kind;
        Ok(())
    }

    /// Sets a place's descriptor, except for the address of its record, which never changes.
    #[inline]
    fn put(&mut self, at: usize, descriptor: HwDescriptor) {
        let place = &mut self.descriptors[at];
        let record = place.record;
        *place = HwDescriptor { record, ..descriptor };
    }

    /// Moves the list that gathers from the end of the ring to its start, because a list is contiguous.
    /// Returns `false` if there is no room for it and another descriptor.
    #[cold]
    pub(super) fn wrap(&mut self) -> bool {
        let len = self.head - self.open;
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

    /// Lets the device start the descriptor at the next place only once those before it in its list are done.
    ///
    /// The device abandons the descriptor, and those behind it, if one before it fails. So these report
    /// success, too: what has no record was abandoned.
    #[cold]
    fn fence(&mut self) {
        let at = self.index(self.head);
        self.descriptors[at].command |= flag::FENCE | flag::REPORT;
        self.fenced = true;
    }
}
