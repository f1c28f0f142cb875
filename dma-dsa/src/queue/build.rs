//! Descriptors of the hardware for those of the contract.

use std::mem;

use dma_core::{Descriptor, ErrorKind, Operation, Result, Segment};

use super::{DsaQueue, Entry, Kind};
use crate::error::error;
use crate::hardware::{HwDescriptor, flag, op};

impl DsaQueue {
    /// Writes a descriptor to the next place.
    #[inline]
    pub(super) fn build(&mut self, descriptor: &Descriptor<'_>) -> Result<()> {
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
        self.entries[at] = Entry { token: descriptor.token(), kind, live: true, ..Entry::default() };
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
        self.entries[at] = Entry { token, kind, live: true, ..Entry::default() };
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
            self.entries[to] = mem::take(&mut self.entries[from]);
            if !self.seconds.is_empty() {
                self.seconds[to] = self.seconds[from];
            }
        }
        (self.open, self.head) = (self.head, self.head + len);
        true
    }

    /// Lets the device start the descriptor at the next place only once those before it in its list are done.
    ///
    /// The device abandons the descriptor, and those behind it, if one before it fails. So these report
    /// success, too: what has no record was abandoned.
    #[cold]
    pub(super) fn fence(&mut self) {
        let at = self.index(self.head);
        self.descriptors[at].command |= flag::FENCE | flag::REPORT;
        self.fenced = true;
    }
}
