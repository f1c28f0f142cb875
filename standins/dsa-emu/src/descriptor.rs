//! Formats of the hardware.
//!
//! Source: Linux `include/uapi/linux/idxd.h`, and Intel's "Data Streaming Accelerator Architecture
//! Specification".

use crate::memory::Fault;

/// A descriptor: eight words of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Descriptor(pub(crate) [u64; 8]);

/// Size of a descriptor in bytes.
pub const SIZE: usize = size_of::<Descriptor>();

impl Descriptor {
    pub(crate) fn from_bytes(bytes: &[u8; SIZE]) -> Self {
        let (words, _) = bytes.as_chunks();
        Self(std::array::from_fn(|n| u64::from_le_bytes(words[n])))
    }
    pub(crate) const fn opcode(&self) -> u8 {
        (self.0[0] >> 56) as u8
    }
    pub(crate) const fn flags(&self) -> u32 {
        (self.0[0] >> 32) as u32 & 0xff_ffff
    }
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }
    /// Returns the address of the completion record.
    pub(crate) const fn record(&self) -> u64 {
        self.0[1]
    }
    /// Returns the source, the pattern, or the list of a batch.
    pub(crate) const fn src(&self) -> u64 {
        self.0[2]
    }
    /// Returns the destination, the second source, or the pattern of a comparison.
    pub(crate) const fn dst(&self) -> u64 {
        self.0[3]
    }
    /// Returns the length in bytes, or the number of descriptors of a batch.
    pub(crate) const fn len(&self) -> u32 {
        self.0[4] as u32
    }
    /// Returns a field whose meaning depends on the opcode: the second destination, the seed of a CRC, the
    /// expected result of a comparison, the address or size of a delta record, or the flags of DIF.
    pub(crate) const fn extra(&self) -> u64 {
        self.0[5]
    }
}

pub(crate) mod op {
    pub(crate) const NOP: u8 = 0;
    pub(crate) const BATCH: u8 = 1;
    pub(crate) const DRAIN: u8 = 2;
    pub(crate) const MEMMOVE: u8 = 3;
    pub(crate) const FILL: u8 = 4;
    pub(crate) const COMPARE: u8 = 5;
    pub(crate) const COMPARE_PATTERN: u8 = 6;
    pub(crate) const CREATE_DELTA: u8 = 7;
    pub(crate) const APPLY_DELTA: u8 = 8;
    pub(crate) const DUALCAST: u8 = 9;
    pub(crate) const CRC: u8 = 0x10;
    pub(crate) const COPY_CRC: u8 = 0x11;
    pub(crate) const DIF_CHECK: u8 = 0x12;
    pub(crate) const DIF_INSERT: u8 = 0x13;
    pub(crate) const DIF_STRIP: u8 = 0x14;
    pub(crate) const DIF_UPDATE: u8 = 0x15;
    pub(crate) const CACHE_FLUSH: u8 = 0x20;
    /// All supported operations, as a bit mask.
    pub(crate) const ALL: u64 = 1 << CACHE_FLUSH | 0x3f_03ff;
}

pub(crate) mod flag {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const BLOCK_ON_FAULT: u32 = 2;
    pub(crate) const RECORD_VALID: u32 = 4;
    pub(crate) const REPORT: u32 = 8;
    pub(crate) const CHECK_RESULT: u32 = 0x80;
    /// The seed of the CRC is in memory.
    pub(crate) const SEED_IN_MEMORY: u32 = 0x1_0000;
    /// Flags that all operations allow. The interrupt flag is missing, because the stand-in raises no
    /// interrupts.
    pub(crate) const COMMON: u32 = 0xff2f;
}

pub(crate) mod status {
    pub(crate) const SUCCESS: u8 = 1;
    pub(crate) const FALSE_PREDICATE: u8 = 2;
    pub(crate) const PAGE_FAULT: u8 = 3;
    /// A page fault that the device waited for, without success.
    pub(crate) const PAGE_FAULT_REFUSED: u8 = 4;
    pub(crate) const BATCH_FAILED: u8 = 5;
    pub(crate) const LIST_FAULT: u8 = 6;
    /// The numbers of the words in a delta record do not increase.
    pub(crate) const DELTA_ORDER: u8 = 7;
    /// A word of a delta record lies beyond the destination.
    pub(crate) const DELTA_OFFSET: u8 = 8;
    /// A data integrity field is wrong.
    pub(crate) const DIF: u8 = 9;
    pub(crate) const BAD_OPCODE: u8 = 0x10;
    pub(crate) const BAD_FLAGS: u8 = 0x11;
    pub(crate) const RESERVED: u8 = 0x12;
    pub(crate) const BAD_SIZE: u8 = 0x13;
    pub(crate) const BAD_COUNT: u8 = 0x14;
    pub(crate) const BAD_DELTA_SIZE: u8 = 0x15;
    pub(crate) const OVERLAP: u8 = 0x16;
    pub(crate) const DUALCAST_ADDRESSES: u8 = 0x17;
    pub(crate) const LIST_ALIGNMENT: u8 = 0x18;
    pub(crate) const ADDRESS_ALIGNMENT: u8 = 0x1c;
    pub(crate) const HARDWARE: u8 = 0x20;
    /// The access that faulted was a write.
    pub(crate) const WRITE: u8 = 0x80;
}

/// The content of a completion record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) status: u8,
    pub(crate) result: u8,
    /// Number of bytes that are done, or, for a batch, number of descriptors that are done.
    pub(crate) done: u32,
    pub(crate) fault: u64,
    /// The CRC, the size of a delta record, or the invalid flags.
    pub(crate) value: u32,
    /// Tags of the next source and destination block of DIF.
    pub(crate) tags: [u64; 2],
}

impl Record {
    /// Returns a record that has only a status.
    pub(crate) fn of(status: u8) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        (bytes[0], bytes[1]) = (self.status, self.result);
        bytes[4..8].copy_from_slice(&self.done.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.fault.to_le_bytes());
        // The value and the tags share these bytes, because no operation has both.
        bytes[16..24].copy_from_slice(&(self.tags[0] | u64::from(self.value)).to_le_bytes());
        bytes[24..].copy_from_slice(&self.tags[1].to_le_bytes());
        bytes
    }
}

/// Returns the record of an operation that met a page fault after `done` bytes.
pub(crate) fn faulted(descriptor: &Descriptor, done: u64, fault: Fault, value: u32) -> Record {
    let code =
        if descriptor.has(flag::BLOCK_ON_FAULT) { status::PAGE_FAULT_REFUSED } else { status::PAGE_FAULT };
    let status = code | if fault.write { status::WRITE } else { 0 };
    Record { done: done as u32, fault: fault.page(), value, ..Record::of(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_device_has_them() {
        let bytes: [u8; SIZE] = std::array::from_fn(|n| n as u8 + 1);
        let descriptor = Descriptor::from_bytes(&bytes);
        assert_eq!((descriptor.flags(), descriptor.opcode()), (0x07_0605, 8));
        assert_eq!(descriptor.record().to_le_bytes(), [9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!((descriptor.src() as u8, descriptor.dst() as u8), (17, 25));
        assert_eq!((descriptor.len(), descriptor.extra() as u8), (0x2423_2221, 41));
        let record =
            Record { status: 3, result: 1, done: 5, fault: 0x7000, value: 9, ..Record::default() }.bytes();
        assert_eq!((record[0], record[1], record[4], record[9], record[16]), (3, 1, 5, 0x70, 9));
        let record = Record { tags: [0x77, 0x88], ..Record::of(1) }.bytes();
        assert_eq!((record[16], record[24]), (0x77, 0x88));
    }
}
