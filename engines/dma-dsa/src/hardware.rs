//! Formats of the hardware: descriptors, completion records, and their codes.
//!
//! Source: Linux `include/uapi/linux/idxd.h`, and Intel's "Data Streaming Accelerator Architecture
//! Specification".

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A descriptor as the device reads it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct HwDescriptor {
    /// The address space id (PASID): 0, because the kernel or the processor fills it in.
    pub(crate) pasid: u32,
    /// The flags, and the opcode in the top byte.
    pub(crate) command: u32,
    /// The address of the completion record.
    pub(crate) record: u64,
    /// The source, the pattern, or the list of a batch.
    pub(crate) src: u64,
    /// The destination, or the second source.
    pub(crate) dst: u64,
    /// The length in bytes, or the number of descriptors of a batch.
    pub(crate) len: u32,
    pub(crate) interrupt: u16,
    pub(crate) reserved: u16,
    /// The second destination, or the seed of a CRC in the lower half.
    pub(crate) extra: u64,
    pub(crate) more: [u64; 2],
}

impl HwDescriptor {
    pub(crate) const fn opcode(&self) -> u8 {
        (self.command >> 24) as u8
    }
}

/// A completion record. Its status is 0 until the device writes it.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Record {
    pub(crate) status: AtomicU8,
    pub(crate) result: AtomicU8,
    pub(crate) reserved: AtomicU16,
    /// Number of bytes that are done, or, for a batch, number of descriptors that are done.
    pub(crate) done: AtomicU32,
    pub(crate) fault: AtomicU64,
    /// The CRC; after a failure, the invalid flags.
    pub(crate) value: AtomicU64,
    pub(crate) more: AtomicU64,
}

impl Record {
    /// Takes the status, and clears it for the next descriptor. Returns `None` while the descriptor is in
    /// flight.
    #[inline]
    pub(crate) fn take(&self) -> Option<u8> {
        match self.status.load(Ordering::Acquire) {
            0 => None,
            status => {
                self.status.store(0, Ordering::Relaxed);
                Some(status)
            }
        }
    }
}

pub(crate) mod op {
    pub(crate) const BATCH: u8 = 1;
    pub(crate) const MEMMOVE: u8 = 3;
    pub(crate) const FILL: u8 = 4;
    pub(crate) const COMPARE: u8 = 5;
    pub(crate) const DUALCAST: u8 = 9;
    pub(crate) const CRC: u8 = 0x10;
    pub(crate) const COPY_CRC: u8 = 0x11;
}

pub(crate) mod flag {
    /// The descriptor starts once the earlier descriptors of its batch are done.
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const BLOCK_ON_FAULT: u32 = 2;
    pub(crate) const RECORD_VALID: u32 = 4;
    /// The device also writes the record of a success.
    pub(crate) const REPORT: u32 = 8;
    /// The device writes the destination into the cache.
    pub(crate) const CACHE: u32 = 0x100;
}

pub(crate) mod status {
    pub(crate) const SUCCESS: u8 = 1;
    pub(crate) const FALSE_PREDICATE: u8 = 2;
    pub(crate) const PAGE_FAULT: u8 = 3;
    pub(crate) const BATCH_FAILED: u8 = 5;
    pub(crate) const LIST_FAULT: u8 = 6;
    pub(crate) const BAD_OPCODE: u8 = 0x10;
    pub(crate) const BAD_FLAGS: u8 = 0x11;
    pub(crate) const BAD_SIZE: u8 = 0x13;
    pub(crate) const OVERLAP: u8 = 0x16;
    /// The access that faulted was a write. The engine does not need this bit, because it looks for the range
    /// that contains the address.
    #[cfg(test)]
    pub(crate) const WRITE: u8 = 0x80;
    /// Mask of the status code, without the bit for a write access.
    pub(crate) const CODE: u8 = 0x7f;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn formats_are_those_of_the_device() {
        assert_eq!((size_of::<HwDescriptor>(), align_of::<HwDescriptor>()), (64, 64));
        assert_eq!((size_of::<Record>(), align_of::<Record>()), (32, 32));
        let fields = [
            offset_of!(HwDescriptor, command),
            offset_of!(HwDescriptor, record),
            offset_of!(HwDescriptor, src),
            offset_of!(HwDescriptor, dst),
            offset_of!(HwDescriptor, len),
            offset_of!(HwDescriptor, interrupt),
            offset_of!(HwDescriptor, extra),
        ];
        assert_eq!(fields, [4, 8, 16, 24, 32, 36, 40]);
        assert_eq!(
            (offset_of!(Record, done), offset_of!(Record, fault), offset_of!(Record, value)),
            (4, 8, 16)
        );
    }
}
