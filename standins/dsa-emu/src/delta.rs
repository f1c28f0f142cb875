//! Delta records: the words in which two regions differ.
//!
//! A record is a list of entries of 10 bytes: the number of a word, and its 8 bytes in the second region.
#![expect(unsafe_code, reason = "accesses the memory that descriptors name, as a device does")]

use dma_standin::c_abi::require;

use crate::descriptor::{Descriptor, Record, faulted, flag, op, status};
use crate::memory::{self, Fault, overlap};

const WORD: usize = 8;
const ENTRY: usize = 10;
/// Smallest maximum size of a record that is created, in bytes. Intel's DML refuses a smaller one too.
const CREATED_MIN: u32 = 80;
/// Longest region in bytes, because the number of a word has 16 bits.
const REGION_MAX: u64 = 8 << 16;
/// Number of bytes that are compared at a time.
const CHUNK: usize = 4096;

/// Returns the number of bytes that an access reached, and the fault that ended it.
fn split(len: usize, access: Result<(), Fault>) -> (usize, Option<Fault>) {
    access.map_or_else(|fault| (fault.done, Some(fault)), |()| (len, None))
}

/// Checks the operands of creating or applying a record. `size` is the size of the record, or its maximum.
pub(crate) fn check(descriptor: &Descriptor, record: u64, size: u32, regions: &[u64]) -> Result<(), Record> {
    let len = u64::from(descriptor.len());
    require(len.is_multiple_of(WORD as u64) && len <= REGION_MAX, Record::of(status::BAD_SIZE))?;
    let min = if descriptor.opcode() == op::CREATE_DELTA { CREATED_MIN } else { ENTRY as u32 };
    require(size >= min && size.is_multiple_of(ENTRY as u32), Record::of(status::BAD_DELTA_SIZE))?;
    // A record may be at any address: Intel's dsa-perf-micros packs records of 1,020 bytes.
    require(
        regions.iter().all(|address| address.is_multiple_of(WORD as u64)),
        Record::of(status::ADDRESS_ALIGNMENT),
    )?;
    let crosses = |region: &u64| overlap(record, *region, if record < *region { size.into() } else { len });
    if regions.iter().any(crosses) { Err(Record::of(status::OVERLAP)) } else { Ok(()) }
}

/// Creates the record of the words in which the second source differs from the first. The result is 0 if the
/// sources are equal, 1 if the record has all differences, and 2 if it has no room for the next difference.
pub(crate) fn create(descriptor: &Descriptor) -> Record {
    let (mut done, mut size) = (0, 0);
    match compare(descriptor, &mut done, &mut size) {
        Err(fault) => faulted(descriptor, done, fault, size),
        Ok(result) => {
            let expected = descriptor.0[7] as u8 >> result & 1 == 1;
            let status = if descriptor.has(flag::CHECK_RESULT) && !expected {
                status::FALSE_PREDICATE
            } else {
                status::SUCCESS
            };
            Record { result, done: done as u32, value: size, ..Record::of(status) }
        }
    }
}

/// Appends entries to the record. Returns the result, and sets `done` to the number of compared bytes and
/// `size` to the size of the record.
fn compare(descriptor: &Descriptor, done: &mut u64, size: &mut u32) -> Result<u8, Fault> {
    let (len, size_max) = (u64::from(descriptor.len()), descriptor.0[6] as u32);
    while *done < len {
        let n = (len - *done).min(CHUNK as u64) as usize;
        let (mut first, mut second) = ([0; CHUNK], [0; CHUNK]);
        // SAFETY: the trap handler is installed.
        let read = unsafe { memory::read(descriptor.src().wrapping_add(*done), &mut first[..n]) };
        let (n, fault) = split(n, read);
        // SAFETY: the trap handler is installed.
        let read = unsafe { memory::read(descriptor.dst().wrapping_add(*done), &mut second[..n]) };
        let (n, second_fault) = split(n, read);
        let words = first[..n].as_chunks::<WORD>().0.iter().zip(second[..n].as_chunks::<WORD>().0);
        for (first, second) in words {
            if first != second {
                if *size + ENTRY as u32 > size_max {
                    return Ok(2);
                }
                let mut entry = [0; ENTRY];
                entry[..2].copy_from_slice(&((*done / WORD as u64) as u16).to_le_bytes());
                entry[2..].copy_from_slice(second);
                let to = descriptor.extra().wrapping_add((*size).into());
                // SAFETY: the trap handler is installed, and the program gave the record to the
                // device.
                unsafe { memory::write(to, &entry) }?;
                *size += ENTRY as u32;
            }
            *done += WORD as u64;
        }
        if let Some(fault) = second_fault.or(fault) {
            return Err(fault);
        }
    }
    Ok(u8::from(*size > 0))
}

/// Writes the words of a record to the destination.
pub(crate) fn apply(descriptor: &Descriptor) -> Record {
    let mut last = None;
    for at in (0..descriptor.extra() as u32).step_by(ENTRY) {
        let done = u64::from(at);
        let mut entry = [0; ENTRY];
        // SAFETY: the trap handler is installed.
        if let Err(fault) = unsafe { memory::read(descriptor.src().wrapping_add(done), &mut entry) } {
            return faulted(descriptor, done, fault, 0);
        }
        let word = u16::from_le_bytes([entry[0], entry[1]]);
        let offset = u64::from(word) * WORD as u64;
        let ended = |status| Record { done: at, ..Record::of(status) };
        if last.is_some_and(|last| word <= last) {
            return ended(status::DELTA_ORDER);
        }
        if offset >= descriptor.len().into() {
            return ended(status::DELTA_OFFSET);
        }
        // SAFETY: the trap handler is installed, and the program gave the destination to the
        // device.
        if let Err(fault) = unsafe { memory::write(descriptor.dst().wrapping_add(offset), &entry[2..]) } {
            return faulted(descriptor, done, fault, 0);
        }
        last = Some(word);
    }
    Record::of(status::SUCCESS)
}
