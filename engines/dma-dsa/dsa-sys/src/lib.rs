//! Formats of Intel DSA: descriptors, completion records, and their codes.
//!
//! Source: Linux `include/uapi/linux/idxd.h`, and Intel's "Data Streaming Accelerator Architecture
//! Specification".
#![no_std]

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A descriptor as the device reads it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct HwDescriptor {
    /// The address space id (PASID): 0, because the kernel or the processor fills it in.
    pub pasid: u32,
    /// The flags, and the opcode in the top byte.
    pub command: u32,
    /// The address of the completion record.
    pub record: u64,
    /// The source, the pattern, or the list of a batch.
    pub src: u64,
    /// The destination, or the second source.
    pub dst: u64,
    /// The length in bytes, or the number of descriptors of a batch.
    pub len: u32,
    /// The number of the interrupt that reports the end, if the flags ask for one.
    pub interrupt: u16,
    /// 0.
    pub reserved: u16,
    /// The second destination, or the seed of a CRC in the lower half.
    pub extra: u64,
    /// Fields of other opcodes; 0.
    pub more: [u64; 2],
}

impl HwDescriptor {
    /// Returns the opcode.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        (self.command >> 24) as u8
    }
}

/// A completion record. Its status is 0 until the device writes it.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Record {
    /// The code of the [`status`].
    pub status: AtomicU8,
    /// The result of a comparison: 0 if the bytes are equal.
    pub result: AtomicU8,
    /// 0.
    pub reserved: AtomicU16,
    /// Number of bytes that are done, or, for a batch, number of descriptors that are done.
    pub done: AtomicU32,
    /// The address of a page fault.
    pub fault: AtomicU64,
    /// The CRC; after a failure, the invalid flags.
    pub value: AtomicU64,
    /// Fields of other opcodes.
    pub more: AtomicU64,
}

impl Record {
    /// Takes the status, and clears it for the next descriptor. Returns `None` while the descriptor is in
    /// flight.
    #[inline]
    pub fn take(&self) -> Option<u8> {
        match self.status.load(Ordering::Acquire) {
            0 => None,
            status => {
                self.status.store(0, Ordering::Relaxed);
                Some(status)
            }
        }
    }
}

/// Opcodes.
pub mod op {
    /// Executes a list of descriptors.
    pub const BATCH: u8 = 1;
    /// Copies bytes.
    pub const MEMMOVE: u8 = 3;
    /// Fills with a pattern of 8 bytes.
    pub const FILL: u8 = 4;
    /// Compares two ranges.
    pub const COMPARE: u8 = 5;
    /// Copies bytes to two destinations.
    pub const DUALCAST: u8 = 9;
    /// Computes a CRC-32C.
    pub const CRC: u8 = 0x10;
    /// Copies bytes and computes their CRC-32C.
    pub const COPY_CRC: u8 = 0x11;
}

/// Flags of descriptors.
pub mod flag {
    /// The descriptor starts once the earlier descriptors of its batch are done.
    pub const FENCE: u32 = 1;
    /// The device waits for the kernel at a page fault.
    pub const BLOCK_ON_FAULT: u32 = 2;
    /// The address of the record is valid.
    pub const RECORD_VALID: u32 = 4;
    /// The device also writes the record of a success.
    pub const REPORT: u32 = 8;
    /// The device writes the destination into the cache.
    pub const CACHE: u32 = 0x100;
}

/// Codes of completion records.
pub mod status {
    /// The descriptor is done.
    pub const SUCCESS: u8 = 1;
    /// The descriptor is done, and its result is not the expected one.
    pub const FALSE_PREDICATE: u8 = 2;
    /// The device could not access a page.
    pub const PAGE_FAULT: u8 = 3;
    /// A descriptor of the batch has failed.
    pub const BATCH_FAILED: u8 = 5;
    /// The device could not read the list of the batch.
    pub const LIST_FAULT: u8 = 6;
    /// The device does not support the opcode.
    pub const BAD_OPCODE: u8 = 0x10;
    /// The device does not support a flag.
    pub const BAD_FLAGS: u8 = 0x11;
    /// The length is 0 or above the limit of the work queue.
    pub const BAD_SIZE: u8 = 0x13;
    /// Source and destination overlap.
    pub const OVERLAP: u8 = 0x16;
    /// The access that faulted was a write.
    pub const WRITE: u8 = 0x80;
    /// Mask of the status code, without the bit for a write access.
    pub const CODE: u8 = 0x7f;
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

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
