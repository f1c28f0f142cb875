//! DIF: blocks of data, each followed by a data integrity field of 8 bytes.
//!
//! A field has, in network byte order, the guard, which is a CRC of the block, an application tag and a
//! reference tag. Formats and flags are those of Linux `include/uapi/linux/idxd.h` and SPDK's
//! `include/spdk/idxd_spec.h`. The reference of Intel's DML, "DIF Check" to "DIF Update", defines flags and
//! results.
#![expect(unsafe_code, reason = "accesses the memory that descriptors name, as a device does")]

use dma_standin::c_abi::require;

use crate::descriptor::{Descriptor, Record, faulted, op, status};
use crate::memory::{self, Fault};

const FIELD: usize = 8;
/// Sizes of blocks without their fields, by the lowest bits of the flags.
const BLOCKS: [usize; 4] = [512, 520, 4096, 4104];
const LONGEST: usize = BLOCKS[3] + FIELD;

/// Flags of both fields.
mod flag {
    pub(super) const INVERT_SEED: u8 = 4;
    pub(super) const INVERT_RESULT: u8 = 8;
    pub(super) const ALL: u8 = 0xf;
}

/// Flags of the fields in the source.
mod source {
    /// If [`ALL_ONES`] is set, a field whose bits are all 1 is an error.
    pub(super) const ALL_ONES_FAIL: u8 = 1;
    /// Fields whose bits are all 1 are not checked.
    pub(super) const ALL_ONES: u8 = 2;
    /// Fields whose application tag has all bits 1 are not checked.
    pub(super) const APPLICATION_ONES: u8 = 4;
    /// Fields whose tags have all bits 1 are not checked.
    pub(super) const TAGS_ONES: u8 = 8;
    pub(super) const NO_GUARD: u8 = 0x20;
    pub(super) const NO_REFERENCE: u8 = 0x40;
}

/// Flags of the fields in the destination.
mod target {
    pub(super) const KEEP_APPLICATION: u8 = 8;
    pub(super) const KEEP_GUARD: u8 = 0x20;
    pub(super) const KEEP_REFERENCE: u8 = 0x40;
    pub(super) const KEEP: u8 = KEEP_APPLICATION | KEEP_GUARD | KEEP_REFERENCE;
    pub(super) const RESERVED: u8 = 7;
}

/// Flags of source and destination: the application tag grows by one with each block, and the reference tag
/// does not.
const APPLICATION_GROWS: u8 = 0x10;
const REFERENCE_STAYS: u8 = 0x80;

/// Bits of the result: the parts of the field that are wrong.
mod result {
    pub(super) const GUARD: u8 = 1;
    pub(super) const APPLICATION: u8 = 2;
    pub(super) const REFERENCE: u8 = 4;
    pub(super) const ALL_ONES: u8 = 8;
}

/// Table of the T10-DIF CRC (polynomial 0x8bb7) of each byte value.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let (mut crc, mut bit) = ((n as u16) << 8, 0);
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x8bb7 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

/// Tags of a block, in the layout of descriptors and completion records.
#[derive(Clone, Copy, Debug)]
struct Tags {
    reference: u32,
    /// Bits of the application tag that are neither checked nor written.
    mask: u16,
    application: u16,
}

impl Tags {
    const fn of(word: u64) -> Self {
        Self { reference: word as u32, mask: (word >> 32) as u16, application: (word >> 48) as u16 }
    }

    const fn word(self) -> u64 {
        self.reference as u64 | (self.mask as u64) << 32 | (self.application as u64) << 48
    }

    fn next(self, flags: u8) -> Self {
        let (grows, stays) = (flags & APPLICATION_GROWS != 0, flags & REFERENCE_STAYS != 0);
        Self {
            reference: self.reference.wrapping_add((!stays).into()),
            application: self.application.wrapping_add(grows.into()),
            ..self
        }
    }
}

/// A data integrity field.
#[derive(Clone, Copy)]
struct Field {
    guard: u16,
    application: u16,
    reference: u32,
}

impl Field {
    const fn from_bytes([a, b, c, d, rest @ ..]: [u8; FIELD]) -> Self {
        let (guard, application) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Self { guard, application, reference: u32::from_be_bytes(rest) }
    }

    fn bytes(self) -> [u8; FIELD] {
        let mut bytes = [0; FIELD];
        bytes[..2].copy_from_slice(&self.guard.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.application.to_be_bytes());
        bytes[4..].copy_from_slice(&self.reference.to_be_bytes());
        bytes
    }
}

/// The operands of an operation.
#[derive(Clone, Copy)]
struct Dif {
    source_flags: u8,
    target_flags: u8,
    flags: u8,
    /// Size of a block without its field.
    block: usize,
    /// Number of bytes that are read for a block (`reads`), and that are written for it (`writes`).
    reads: usize,
    writes: usize,
    /// True if the source has fields, which are checked (`checks`), and if the destination gets fields
    /// (`makes`).
    checks: bool,
    makes: bool,
}

/// Returns true for the operations of DIF.
pub(crate) const fn is(opcode: u8) -> bool {
    matches!(opcode, op::DIF_CHECK | op::DIF_INSERT | op::DIF_STRIP | op::DIF_UPDATE)
}

impl Dif {
    fn of(descriptor: &Descriptor) -> Self {
        let [source_flags, target_flags, flags, ..] = descriptor.extra().to_le_bytes();
        let block = BLOCKS[usize::from(flags & 3)];
        let (reads, writes) = match descriptor.opcode() {
            op::DIF_INSERT => (block, block + FIELD),
            op::DIF_STRIP => (block + FIELD, block),
            op::DIF_UPDATE => (block + FIELD, block + FIELD),
            _ => (block + FIELD, 0),
        };
        let (checks, makes) = (reads > block, writes > block);
        Self { source_flags, target_flags, flags, block, reads, writes, checks, makes }
    }

    /// Returns the number of bytes that the operation writes.
    const fn written(&self, descriptor: &Descriptor) -> u64 {
        (descriptor.len() as usize / self.reads * self.writes) as u64
    }

    fn guard(&self, block: &[u8]) -> u16 {
        let seed = if self.flags & flag::INVERT_SEED == 0 { 0 } else { u16::MAX };
        let add = |crc: u16, byte: &u8| crc << 8 ^ CRC[usize::from((crc >> 8) as u8 ^ byte)];
        let crc = block.iter().fold(seed, add);
        if self.flags & flag::INVERT_RESULT == 0 { crc } else { !crc }
    }

    /// Checks a field. Returns the bits of the result.
    fn check(&self, block: &[u8], field: Field, tags: Tags) -> u8 {
        let has = |flag| self.source_flags & flag != 0;
        let application_ones = field.application == u16::MAX;
        let tags_ones = application_ones && field.reference == u32::MAX;
        if has(source::ALL_ONES) && tags_ones && field.guard == u16::MAX {
            return if has(source::ALL_ONES_FAIL) { result::ALL_ONES } else { 0 };
        }
        if has(source::TAGS_ONES) && tags_ones || has(source::APPLICATION_ONES) && application_ones {
            return 0;
        }
        let mut wrong = 0;
        if !has(source::NO_GUARD) && field.guard != self.guard(block) {
            wrong |= result::GUARD;
        }
        if (field.application ^ tags.application) & !tags.mask != 0 {
            wrong |= result::APPLICATION;
        }
        if !has(source::NO_REFERENCE) && field.reference != tags.reference {
            wrong |= result::REFERENCE;
        }
        wrong
    }

    /// Returns the field of the destination. `old` is the field of the source.
    fn make(&self, block: &[u8], old: Field, tags: Tags) -> Field {
        let keeps = |flag| self.target_flags & flag != 0;
        Field {
            guard: if keeps(target::KEEP_GUARD) { old.guard } else { self.guard(block) },
            application: match keeps(target::KEEP_APPLICATION) {
                true => old.application,
                false => tags.application & !tags.mask,
            },
            reference: if keeps(target::KEEP_REFERENCE) { old.reference } else { tags.reference },
        }
    }
}

/// Returns the number of source bytes of a block. Operations process only whole blocks.
pub(crate) fn step(descriptor: &Descriptor) -> u64 {
    Dif::of(descriptor).reads as u64
}

/// Returns the number of bytes that an operation writes.
pub(crate) fn written(descriptor: &Descriptor) -> u64 {
    Dif::of(descriptor).written(descriptor)
}

/// Checks the operands of an operation. An error is the completion record.
pub(crate) fn check(descriptor: &Descriptor) -> Result<(), Record> {
    let dif = Dif::of(descriptor);
    let inserts = descriptor.opcode() == op::DIF_INSERT;
    let [_, _, _, _, _, _, source_tags, target_tags] = descriptor.0;
    if descriptor.extra() >> 24 != 0
        || dif.flags & !flag::ALL != 0
        || !dif.checks && (dif.source_flags != 0 || source_tags != 0)
        || !dif.makes && (dif.target_flags != 0 || target_tags != 0)
        || dif.target_flags & target::RESERVED != 0
        || inserts && dif.target_flags & target::KEEP != 0
    {
        return Err(Record::of(status::RESERVED));
    }
    require((descriptor.len() as usize).is_multiple_of(dif.reads), Record::of(status::BAD_SIZE))?;
    let (src, dst, len) = (descriptor.src(), descriptor.dst(), u64::from(descriptor.len()));
    let behind = if src < dst { len } else { dif.written(descriptor) };
    let crosses = dif.writes > 0 && src.abs_diff(dst) < behind;
    if crosses { Err(Record::of(status::OVERLAP)) } else { Ok(()) }
}

/// Runs an operation, up to an injected page fault of the source. The fault is at the first byte of a block.
pub(crate) fn run(descriptor: &Descriptor, injected: Option<u64>) -> Record {
    let dif = Dif::of(descriptor);
    let [_, _, _, _, _, _, source_tags, target_tags] = descriptor.0;
    let (mut from, mut to) = (Tags::of(source_tags), Tags::of(target_tags));
    let (mut done, mut dst) = (0, descriptor.dst());
    let mut bytes = [0; LONGEST];
    let (record, of_block) = loop {
        let faulted = |fault| (faulted(descriptor, done, fault, 0), 0);
        if injected == Some(done) {
            break faulted(Fault::unmapped(descriptor.src().wrapping_add(done), false));
        }
        if done >= descriptor.len().into() {
            break (Record::of(status::SUCCESS), 0);
        }
        // SAFETY: the trap handler is installed.
        let read = unsafe { memory::read(descriptor.src().wrapping_add(done), &mut bytes[..dif.reads]) };
        if let Err(fault) = read {
            break faulted(fault);
        }
        let (block, field) = bytes.split_at_mut(dif.block);
        let field: &mut [u8; FIELD] =
            field.first_chunk_mut().expect("the buffer has room for the longest block");
        let old = Field::from_bytes(*field);
        if dif.checks {
            let wrong = dif.check(block, old, from);
            if wrong != 0 {
                break (Record { done: done as u32, ..Record::of(status::DIF) }, wrong);
            }
        }
        if dif.makes {
            *field = dif.make(block, old, to).bytes();
        }
        // SAFETY: the trap handler is installed, and the program gave the destination to the
        // device.
        if let Err(fault) = unsafe { memory::write(dst, &bytes[..dif.writes]) } {
            break faulted(fault);
        }
        done += dif.reads as u64;
        dst = dst.wrapping_add(dif.writes as u64);
        (from, to) = (from.next(dif.source_flags), to.next(dif.target_flags));
    };
    let tags = [(dif.checks, from), (dif.makes, to)];
    let tags = tags.map(|(has, tags)| if has { tags.word() } else { 0 });
    Record { result: of_block, tags, ..record }
}
