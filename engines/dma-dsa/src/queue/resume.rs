//! The end of a descriptor by its record, and the remainder after a page fault.
#![expect(unsafe_code, reason = "maps pages of the memory that descriptors name")]

use std::sync::atomic::Ordering::Relaxed;

use dma_core::{Completion, Outcome};

use super::{DsaQueue, Kind};
use crate::error;
use crate::hardware::{op, status};
use crate::portal::populate;

/// Most submissions of a descriptor in a row that meet a page fault without progress.
const STUCK_LIMIT: u8 = 8;
/// Bytes that are mapped after a page fault.
const POPULATE: u64 = 64 << 10;

impl DsaQueue {
    /// Ends a descriptor with a status, or returns `None` if it is to be submitted again.
    pub(super) fn end(&mut self, place: u64, status: u8) -> Option<Completion> {
        let at = self.index(place);
        let (token, entry, record) = (self.tokens[at], &mut self.entries[at], &self.records[at]);
        match status & status::CODE {
            status::SUCCESS | status::FALSE_PREDICATE => {}
            status::PAGE_FAULT => return self.resume(place, status),
            _ => return Some(failed(token, status)),
        }
        let done = Completion::done(token);
        match entry.kind {
            Kind::Plain => Some(done),
            Kind::Crc => Some(done.with_result(record.value.load(Relaxed) & u64::from(u32::MAX))),
            Kind::Compare if record.result.load(Relaxed) == 0 => Some(done.with_result(Completion::EQUAL)),
            Kind::Compare => Some(done.with_result(entry.base + u64::from(record.done.load(Relaxed)))),
            Kind::First => {
                (entry.kind, entry.stuck) = (Kind::Plain, 0);
                let (src, dst, len) = self.seconds[at];
                let descriptor = &mut self.descriptors[at];
                (descriptor.src, descriptor.dst, descriptor.len) = (src, dst, len);
                self.again.push_back(place);
                None
            }
        }
    }

    /// Maps the page that a descriptor lacks, and lets the remainder be submitted.
    #[cold]
    fn resume(&mut self, place: u64, status: u8) -> Option<Completion> {
        let at = self.index(place);
        let (token, entry, record) = (self.tokens[at], &mut self.entries[at], &self.records[at]);
        let descriptor = &mut self.descriptors[at];
        let fault = record.fault.load(Relaxed);
        // A copy from the end backwards, which the device makes only where its ranges overlap, has its
        // remainder at the front.
        let backward = descriptor.opcode() == op::MEMMOVE && record.result.load(Relaxed) != 0;
        let done = if backward { 0 } else { record.done.load(Relaxed) };
        let broken = Some(failed(token, status));
        if done >= descriptor.len {
            return broken;
        }
        entry.stuck = if done > 0 { 0 } else { entry.stuck + 1 };
        if entry.stuck > STUCK_LIMIT {
            return broken;
        }
        let n = u64::from(done);
        descriptor.len -= done;
        let len = u64::from(descriptor.len);
        // The ranges that it reads and writes.
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
            // SAFETY: within a range that the descriptor names, which the caller of `submit` keeps mapped.
            if let Err(errno) = unsafe { populate(fault, POPULATE.min(end - fault), write) } {
                tracing::warn!(%errno, fault, "a page that the device lacks cannot be mapped");
                return broken;
            }
        }
        if !known {
            return broken;
        }
        self.again.push_back(place);
        None
    }
}

pub(super) fn failed(token: u64, status: u8) -> Completion {
    Completion::ended(token, Outcome::Failed(error::kind(status)), i32::from(status))
}
