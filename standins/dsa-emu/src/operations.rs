//! The device's operations on the memory of the process.
#![expect(unsafe_code, reason = "accesses the memory that descriptors name, as a device does")]

use std::mem;

use dma_sim::model::{self, FaultInjector, Faults, Time};
use dma_standin::c_abi::require;

use crate::config::QueueConfig;
use crate::delta;
use crate::descriptor::{Descriptor, Record, SIZE, faulted, flag, op, status};
use crate::dif;
use crate::memory::{self, Fault, overlap};

/// Number of bytes that the engine processes at a time: a multiple of the length of a fill's pattern.
const CHUNK: usize = 16 << 10;

/// The state of a work queue's engine.
#[derive(Debug)]
pub(crate) struct Engine {
    chunk: Box<[u8]>,
    /// The second source of a comparison.
    other: Box<[u8]>,
    /// Addresses of the records of operations that met an injected page fault at their first byte. The next
    /// try of such an operation passes this byte.
    stuck: Vec<u64>,
    /// Number of operations so far.
    count: u64,
    /// The descriptors of a batch up to the next fence.
    part: Vec<Descriptor>,
}

/// The outcome of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The descriptor ended with this status, and its record was written if requested.
    Ended(u8),
    /// The descriptor ended, but its record could not be written for this reason.
    Unreported(&'static str),
    /// The work queue stops at this descriptor because of a configured fault.
    Stopped(Faults),
}

/// An operation that ended early.
enum Early {
    Fault(Fault),
    /// The comparison found its first difference at this offset in the chunk.
    Differs(usize),
}

impl From<Fault> for Early {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Reads a descriptor of a batch. An error is the address of the page that is missing.
fn read_member(batch: &Descriptor, n: u32, injected: bool) -> Result<Descriptor, u64> {
    let from = batch.src().wrapping_add(u64::from(n) * SIZE as u64);
    let mut bytes = [0; SIZE];
    // SAFETY: the trap handler is installed.
    unsafe { memory::read(from, &mut bytes) }.map_err(|fault| fault.page())?;
    if injected { Err(from & !0xfff) } else { Ok(Descriptor::from_bytes(&bytes)) }
}

impl Engine {
    /// Makes an engine that has already run `count` operations.
    pub(crate) fn new(count: u64) -> Self {
        let chunk = || vec![0; CHUNK].into_boxed_slice();
        Self { chunk: chunk(), other: chunk(), stuck: Vec::new(), count, part: Vec::new() }
    }

    /// Runs a descriptor that was submitted to the work queue.
    pub(crate) fn run(
        &mut self,
        config: &QueueConfig,
        injector: &FaultInjector,
        descriptor: &Descriptor,
    ) -> End {
        if descriptor.opcode() != op::BATCH {
            return self.run_one(config, injector, descriptor);
        }
        match self.run_batch(config, injector, descriptor) {
            Ok(record) => report(descriptor, &record),
            Err(end) => end,
        }
    }

    fn run_batch(
        &mut self,
        config: &QueueConfig,
        injector: &FaultInjector,
        batch: &Descriptor,
    ) -> Result<Record, End> {
        let count = batch.len();
        let invalid = batch.flags() & !flag::COMMON;
        if config.max_batch < 2 {
            return Ok(Record::of(status::BAD_OPCODE));
        }
        if invalid != 0 {
            return Ok(Record { value: invalid, ..Record::of(status::BAD_FLAGS) });
        }
        if !(2..=config.max_batch).contains(&count) {
            return Ok(Record::of(status::BAD_COUNT));
        }
        if !batch.src().is_multiple_of(SIZE as u64) {
            return Ok(Record::of(status::LIST_ALIGNMENT));
        }
        let injected =
            injector.chance(config.page_faults, self.count, 1 << 8) && !batch.has(flag::BLOCK_ON_FAULT);
        let injected = injected.then(|| injector.random(self.count, 2 << 8) as u32 % count);
        let (mut end, mut n) = (status::SUCCESS, 0);
        let mut part = mem::take(&mut self.part);
        part.clear();
        let record = loop {
            let next = (n < count).then(|| read_member(batch, n, injected == Some(n)));
            if !matches!(&next, Some(Ok(descriptor)) if !descriptor.has(flag::FENCE)) {
                if config.unordered {
                    self.shuffle(&mut part, injector);
                }
                for descriptor in part.drain(..) {
                    match self.run_member(config, injector, &descriptor) {
                        End::Ended(status::SUCCESS) => {}
                        End::Ended(_) | End::Unreported(_) => end = status::BATCH_FAILED,
                        stopped @ End::Stopped(_) => return Err(stopped),
                    }
                }
            }
            match next {
                None => break Record { done: n, ..Record::of(end) },
                Some(Err(fault)) => break Record { done: n, fault, ..Record::of(status::LIST_FAULT) },
                // A fence ends a batch that has failed.
                Some(Ok(descriptor)) if descriptor.has(flag::FENCE) && end != status::SUCCESS => {
                    break Record { done: n, ..Record::of(end) };
                }
                Some(Ok(descriptor)) => part.push(descriptor),
            }
            n += 1;
        };
        self.part = part;
        Ok(record)
    }

    fn shuffle(&self, part: &mut [Descriptor], injector: &FaultInjector) {
        for last in (1..part.len()).rev() {
            let with = injector.random(self.count + last as u64, 7 << 8) % (last as u64 + 1);
            part.swap(last, with as usize);
        }
    }

    fn run_member(&mut self, config: &QueueConfig, injector: &FaultInjector, descriptor: &Descriptor) -> End {
        match descriptor.opcode() {
            op::BATCH => report(descriptor, &Record::of(status::BAD_OPCODE)),
            _ => self.run_one(config, injector, descriptor),
        }
    }

    /// Runs a descriptor other than a batch.
    fn run_one(&mut self, config: &QueueConfig, injector: &FaultInjector, descriptor: &Descriptor) -> End {
        self.count += 1;
        let faults = injector.strike(0, self.count);
        if faults.slow > Time::ZERO {
            std::thread::sleep(faults.slow.into());
        }
        let stops = [model::Fault::Stick, model::Fault::Reset, model::Fault::Gone];
        if stops.into_iter().any(|fault| faults.has(fault)) {
            return End::Stopped(faults);
        }
        let record = match check(config, descriptor) {
            Err(record) => record,
            Ok(()) if faults.has(model::Fault::Fail) => Record::of(status::HARDWARE),
            Ok(()) => self.perform(config, injector, descriptor),
        };
        if faults.has(model::Fault::Corrupt) && record.status == status::SUCCESS {
            corrupt(descriptor, injector.random(self.count, 3 << 8));
        }
        if faults.has(model::Fault::Lose) { End::Ended(record.status) } else { report(descriptor, &record) }
    }

    /// Returns the offset of a page fault that is injected into the operation, a multiple of `step` bytes.
    fn injected(
        &mut self,
        config: &QueueConfig,
        injector: &FaultInjector,
        descriptor: &Descriptor,
        step: u64,
    ) -> Option<u64> {
        if descriptor.has(flag::BLOCK_ON_FAULT) || !injector.chance(config.page_faults, self.count, 4 << 8) {
            return None;
        }
        let stuck = self.stuck.iter().position(|record| *record == descriptor.record());
        let was_stuck = stuck.map(|at| self.stuck.swap_remove(at)).is_some();
        match injector.random(self.count, 5 << 8) % (u64::from(descriptor.len()) / step) {
            0 if was_stuck => None,
            0 => {
                self.stuck.push(descriptor.record());
                Some(0)
            }
            at => Some(at * step),
        }
    }

    fn perform(&mut self, config: &QueueConfig, injector: &FaultInjector, descriptor: &Descriptor) -> Record {
        let opcode = descriptor.opcode();
        if matches!(opcode, op::NOP | op::DRAIN | op::CACHE_FLUSH) {
            return Record::of(status::SUCCESS);
        }
        match opcode {
            op::CREATE_DELTA => return delta::create(descriptor),
            op::APPLY_DELTA => return delta::apply(descriptor),
            opcode if dif::is(opcode) => {
                let injected = self.injected(config, injector, descriptor, dif::step(descriptor));
                return dif::run(descriptor, injected);
            }
            _ => {}
        }
        let mut crc = descriptor.extra() as u32;
        if matches!(opcode, op::CRC | op::COPY_CRC) && descriptor.has(flag::SEED_IN_MEMORY) {
            let mut seed = [0; 4];
            // SAFETY: the trap handler is installed.
            if let Err(fault) = unsafe { memory::read(descriptor.0[6], &mut seed) } {
                return faulted(descriptor, 0, fault, crc);
            }
            crc = u32::from_le_bytes(seed);
        }
        let injected = self.injected(config, injector, descriptor, 1);
        let len = injected.unwrap_or(u64::from(descriptor.len()));
        let (src, dst) = (descriptor.src(), descriptor.dst());
        if opcode == op::MEMMOVE && src < dst && overlap(src, dst, len) {
            return match self.backward(descriptor, len) {
                Ok(()) => ended(descriptor, 0, injected, 0, injector.random(self.count, 6 << 8)),
                Err((done, fault)) => Record { result: 1, ..faulted(descriptor, done, fault, 0) },
            };
        }
        let mut done = 0;
        while done < len {
            let n = (len - done).min(CHUNK as u64) as usize;
            let (taken, early) = match self.step(descriptor, done, n) {
                Ok(()) => (n, None),
                Err(Early::Fault(fault)) => (fault.done, Some(Early::Fault(fault))),
                Err(early @ Early::Differs(at)) => (at, Some(early)),
            };
            if matches!(opcode, op::CRC | op::COPY_CRC) {
                crc = crc32c::crc32c_append(crc, &self.chunk[..taken]);
            }
            done += taken as u64;
            match early {
                None => {}
                Some(Early::Fault(fault)) => return faulted(descriptor, done, fault, crc),
                Some(Early::Differs(_)) => {
                    let record = Record { result: 1, done: done as u32, ..Record::default() };
                    return Record { status: predicate(descriptor, 1), ..record };
                }
            }
        }
        ended(descriptor, crc, injected, len, injector.random(self.count, 6 << 8))
    }

    /// Runs one chunk of an operation, from offset `at` on.
    fn step(&mut self, descriptor: &Descriptor, at: u64, n: usize) -> Result<(), Early> {
        let (src, dst) = (descriptor.src().wrapping_add(at), descriptor.dst().wrapping_add(at));
        let (chunk, other) = (&mut self.chunk[..n], &mut self.other[..n]);
        let repeat = |chunk: &mut [u8], pattern: u64| {
            let pattern = pattern.to_le_bytes();
            let (words, rest) = chunk.as_chunks_mut();
            words.fill(pattern);
            rest.copy_from_slice(&pattern[..rest.len()]);
        };
        let read = if descriptor.opcode() == op::FILL {
            repeat(chunk, descriptor.src());
            Ok(())
        } else {
            // SAFETY: the trap handler is installed.
            unsafe { memory::read(src, chunk) }
        };
        // The bytes that could be read are also written, so that the fault record's byte count is correct.
        let have = read.map_or_else(|fault| fault.done, |()| n);
        match descriptor.opcode() {
            op::CRC => {}
            op::COMPARE | op::COMPARE_PATTERN => {
                let second = if descriptor.opcode() == op::COMPARE_PATTERN {
                    repeat(other, descriptor.dst());
                    Ok(())
                } else {
                    // SAFETY: the trap handler is installed. The field `dst` holds the second source.
                    unsafe { memory::read(dst, &mut other[..have]) }
                };
                let both = second.map_or_else(|fault| fault.done, |()| have);
                let (first, other) = (&chunk[..both], &other[..both]);
                // Nearly all chunks are equal, and one memcmp is faster than an unoptimised loop.
                if first != other {
                    let differs = first.iter().zip(other).take_while(|(a, b)| a == b).count();
                    return Err(Early::Differs(differs));
                }
                second?;
            }
            opcode => {
                // SAFETY: the trap handler is installed, and the program gave the destination to
                // the device.
                unsafe { memory::write(dst, &chunk[..have]) }?;
                if opcode == op::DUALCAST {
                    // SAFETY: the trap handler is installed, and the program gave the second
                    // destination to the device.
                    unsafe { memory::write(descriptor.extra().wrapping_add(at), &chunk[..have]) }?;
                }
            }
        }
        Ok(read?)
    }

    /// Copies backwards from the end, because the ranges overlap. An error contains the number of bytes
    /// copied at the end.
    fn backward(&mut self, descriptor: &Descriptor, len: u64) -> Result<(), (u64, Fault)> {
        let mut left = len;
        while left > 0 {
            let n = left.min(CHUNK as u64);
            let at = left - n;
            let chunk = &mut self.chunk[..n as usize];
            // SAFETY: the trap handler is installed.
            let read = unsafe { memory::read(descriptor.src().wrapping_add(at), chunk) };
            read.map_err(|fault| (len - left, fault))?;
            // SAFETY: the trap handler is installed, and the program gave the destination to the
            // device.
            let written = unsafe { memory::write(descriptor.dst().wrapping_add(at), chunk) };
            written.map_err(|fault| (len - left, fault))?;
            left = at;
        }
        Ok(())
    }
}

/// Checks a descriptor other than a batch. An error is the completion record.
fn check(config: &QueueConfig, descriptor: &Descriptor) -> Result<(), Record> {
    let opcode = descriptor.opcode();
    require(opcode <= 63 && op::ALL >> opcode & 1 != 0, Record::of(status::BAD_OPCODE))?;
    let mut known = flag::COMMON;
    match opcode {
        op::COMPARE | op::COMPARE_PATTERN | op::CREATE_DELTA => known |= flag::CHECK_RESULT,
        op::CRC | op::COPY_CRC => known |= flag::SEED_IN_MEMORY,
        _ => {}
    }
    if !config.block_on_fault {
        known &= !flag::BLOCK_ON_FAULT;
    }
    let invalid = descriptor.flags() & !known;
    if invalid != 0 {
        return Err(Record { value: invalid, ..Record::of(status::BAD_FLAGS) });
    }
    if matches!(opcode, op::NOP | op::DRAIN) {
        return Ok(());
    }
    let plain = matches!(opcode, op::MEMMOVE | op::FILL | op::DUALCAST);
    let size_max = descriptor.0[6];
    if plain && (descriptor.0[6], descriptor.0[7]) != (0, 0)
        || descriptor.0[4] >> 48 != 0
        || opcode == op::CREATE_DELTA && size_max >> 32 != 0
    {
        return Err(Record::of(status::RESERVED));
    }
    let len = u64::from(descriptor.len());
    require(len != 0 && len <= config.max_transfer, Record::of(status::BAD_SIZE))?;
    let (src, dst, second) = (descriptor.src(), descriptor.dst(), descriptor.extra());
    match opcode {
        op::CREATE_DELTA => return delta::check(descriptor, second, size_max as u32, &[src, dst]),
        op::APPLY_DELTA => return delta::check(descriptor, src, second as u32, &[dst]),
        opcode if dif::is(opcode) => return dif::check(descriptor),
        _ => {}
    }
    require(opcode != op::DUALCAST || (dst ^ second) & 0xfff == 0, Record::of(status::DUALCAST_ADDRESSES))?;
    let crossing = match opcode {
        op::COPY_CRC => overlap(src, dst, len),
        op::DUALCAST => overlap(src, dst, len) || overlap(src, second, len) || overlap(dst, second, len),
        _ => false,
    };
    if crossing { Err(Record::of(status::OVERLAP)) } else { Ok(()) }
}

/// Returns the status of a comparison with this result.
const fn predicate(descriptor: &Descriptor, result: u8) -> u8 {
    let as_expected = descriptor.extra() as u8 & 1 == result;
    if descriptor.has(flag::CHECK_RESULT) && !as_expected { status::FALSE_PREDICATE } else { status::SUCCESS }
}

/// Returns the record of an operation that has ended, possibly at an injected page fault.
fn ended(descriptor: &Descriptor, crc: u32, injected: Option<u64>, done: u64, random: u64) -> Record {
    let opcode = descriptor.opcode();
    if let Some(at) = injected {
        let reads = opcode != op::FILL;
        let write = !reads || matches!(opcode, op::MEMMOVE | op::COPY_CRC | op::DUALCAST) && random & 1 == 1;
        let start = if write { descriptor.dst() } else { descriptor.src() };
        let fault = Fault::unmapped(start.wrapping_add(at), write);
        return faulted(descriptor, done, fault, crc);
    }
    let (compares, has_crc) =
        (matches!(opcode, op::COMPARE | op::COMPARE_PATTERN), matches!(opcode, op::CRC | op::COPY_CRC));
    Record {
        status: if compares { predicate(descriptor, 0) } else { status::SUCCESS },
        done: if compares { done as u32 } else { 0 },
        value: if has_crc { crc } else { 0 },
        ..Record::default()
    }
}

/// Flips one bit of the destination.
fn corrupt(descriptor: &Descriptor, random: u64) {
    let written = match descriptor.opcode() {
        op::MEMMOVE | op::FILL | op::COPY_CRC | op::DUALCAST => descriptor.len().into(),
        opcode if dif::is(opcode) => dif::written(descriptor),
        _ => 0,
    };
    if written == 0 {
        return;
    }
    let at = descriptor.dst().wrapping_add((random >> 3) % written);
    let mut byte = [0];
    // SAFETY: the trap handler is installed.
    if unsafe { memory::read(at, &mut byte) }.is_ok() {
        // SAFETY: the trap handler is installed, and the program gave the destination to the
        // device.
        let _ = unsafe { memory::write(at, &[byte[0] ^ 1 << (random & 7)]) };
    }
}

/// Writes the record if the descriptor asks for it or failed. The status byte is written last.
fn report(descriptor: &Descriptor, record: &Record) -> End {
    let failed = record.status != status::SUCCESS;
    if !descriptor.has(flag::RECORD_VALID) {
        return match failed || descriptor.has(flag::REPORT) {
            true => End::Unreported("a descriptor asks for a report, but has no completion record"),
            false => End::Ended(record.status),
        };
    }
    if !descriptor.record().is_multiple_of(32) {
        return End::Unreported("a completion record is not aligned to 32 bytes");
    }
    if failed || descriptor.has(flag::REPORT) {
        let bytes = record.bytes();
        // SAFETY: the trap handler is installed, and the program gave the record to the device.
        let rest = unsafe { memory::write(descriptor.record() + 1, &bytes[1..]) };
        // SAFETY: the trap handler is installed, and the program gave the record to the device. A
        // string store is ordered before later stores.
        let status = rest.and_then(|()| unsafe { memory::write(descriptor.record(), &bytes[..1]) });
        if status.is_err() {
            return End::Unreported("a completion record cannot be written");
        }
    }
    End::Ended(record.status)
}
