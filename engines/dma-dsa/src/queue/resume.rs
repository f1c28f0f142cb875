//! Ends a descriptor by its record, and computes the remainder after a page fault.
#![expect(unsafe_code, reason = "maps pages of the memory that descriptors name")]

use std::sync::atomic::Ordering::Relaxed;

use dma_core::{Completion, Outcome};

use super::state::{Copy, DescriptorState, ResultKind};
use crate::error;
use crate::portal::populate;
use dsa_sys::{HwDescriptor, Record, op, status};

/// Maximum number of consecutive page faults of a descriptor without progress.
const STUCK_LIMIT: u8 = 8;
/// Number of bytes whose pages are mapped after a page fault.
const POPULATE: u64 = 64 << 10;

/// A descriptor that the device has ended, with its entry, record and token.
#[derive(Debug)]
pub(super) struct EndedDescriptor<'a> {
    pub(super) token: u64,
    pub(super) descriptor: &'a mut HwDescriptor,
    pub(super) entry: &'a mut DescriptorState,
    pub(super) record: &'a Record,
}

/// The outcome of an ended descriptor.
#[derive(Debug)]
pub(super) enum DescriptorEnd {
    /// The operation has ended.
    Completion(Completion),
    /// The descriptor has to be submitted again.
    Again,
}

impl EndedDescriptor<'_> {
    /// Ends the descriptor with a status. `second` is the copy to the second of two destinations.
    pub(super) fn end(self, status: u8, second: Copy) -> DescriptorEnd {
        let Self { token, descriptor, entry, record } = self;
        match status & status::CODE {
            status::SUCCESS | status::FALSE_PREDICATE => {}
            status::PAGE_FAULT => {
                let place = Self { token, descriptor, entry, record };
                return if place.resume() {
                    DescriptorEnd::Again
                } else {
                    DescriptorEnd::Completion(failed(token, status))
                };
            }
            _ => return DescriptorEnd::Completion(failed(token, status)),
        }
        let done = Completion::done(token);
        DescriptorEnd::Completion(match entry.kind {
            ResultKind::Plain => done,
            ResultKind::Crc => done.with_result(record.value.load(Relaxed) & u64::from(u32::MAX)),
            ResultKind::Compare if record.result.load(Relaxed) == 0 => done.with_result(Completion::EQUAL),
            ResultKind::Compare => done.with_result(entry.base + u64::from(record.done.load(Relaxed))),
            ResultKind::First => {
                (entry.kind, entry.stuck) = (ResultKind::Plain, 0);
                (descriptor.src, descriptor.dst, descriptor.len) = second;
                return DescriptorEnd::Again;
            }
        })
    }

    /// Maps the page that was missing, and changes the descriptor to the remainder. Returns `false` if the
    /// descriptor cannot continue.
    #[cold]
    fn resume(self) -> bool {
        let Self { descriptor, entry, record, .. } = self;
        let fault = record.fault.load(Relaxed);
        // If the ranges overlap, the device may copy backwards from the end. Then the remainder is at the
        // front.
        let backward = descriptor.opcode() == op::MEMMOVE && record.result.load(Relaxed) != 0;
        let done = if backward { 0 } else { record.done.load(Relaxed) };
        if done >= descriptor.len {
            return false;
        }
        entry.stuck = if done > 0 { 0 } else { entry.stuck + 1 };
        if entry.stuck > STUCK_LIMIT {
            return false;
        }
        let n = u64::from(done);
        descriptor.len -= done;
        let len = u64::from(descriptor.len);
        // The ranges that the descriptor reads and writes.
        let mut ranges = [(0, false); 3];
        match descriptor.opcode() {
            op::FILL => {
                descriptor.src = descriptor.src.rotate_right(8 * (done % 8));
                descriptor.dst += n;
                ranges[0] = (descriptor.dst, true);
            }
            op::CRC | op::COPY_CRC => {
                if done > 0 {
                    descriptor.extra = record.value.load(Relaxed) & u64::from(u32::MAX);
                }
                descriptor.src += n;
                ranges[0] = (descriptor.src, false);
                if descriptor.opcode() == op::COPY_CRC {
                    descriptor.dst += n;
                    ranges[1] = (descriptor.dst, true);
                }
            }
            opcode => {
                descriptor.src += n;
                descriptor.dst += n;
                entry.base += n;
                ranges = [(descriptor.src, false), (descriptor.dst, opcode != op::COMPARE), (0, false)];
                if opcode == op::DUALCAST {
                    descriptor.extra += n;
                    ranges[2] = (descriptor.extra, true);
                }
            }
        }
        let page = rustix::param::page_size() as u64;
        let fault = fault & !(page - 1);
        let mut known = false;
        for (start, write) in ranges {
            let end = start + len;
            if start == 0 || fault < start & !(page - 1) || fault >= end {
                continue;
            }
            known = true;
            // SAFETY: the pages are within a range that the descriptor names, which the caller of `submit`
            // keeps mapped.
            if let Err(errno) = unsafe { populate(fault, POPULATE.min(end - fault), write) } {
                dma_core::deferred_log!(warn, %errno, fault, "a page that the device lacks cannot be mapped");
                return false;
            }
        }
        known
    }
}

pub(super) fn failed(token: u64, status: u8) -> Completion {
    Completion::ended(token, Outcome::Failed(error::kind(status)), i32::from(status))
}
