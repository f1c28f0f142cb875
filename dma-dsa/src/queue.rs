//! A queue: lists of descriptors, submitted with one doorbell each, and their completions.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use dma_core::{
    CacheHint, Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome,
    QueueEvents, QueueStats, RawQueue, Result, Segment,
};

use crate::device;
use crate::engine::Opened;
use crate::error::{self, error};
use crate::hardware::{HwDescriptor, Record, flag, op, status};
use crate::portal::populate;

/// Longest list of descriptors that are submitted one by one.
const SINGLES: u64 = 64;
/// Most submissions of a descriptor in a row that meet a page fault without progress.
const STUCK_LIMIT: u8 = 8;
/// Bytes that are mapped after a page fault.
const POPULATE: u64 = 64 << 10;
/// The work queue's state is looked at after so many polls without a completion,
const IDLE_POLLS: u32 = 256;
/// if the last look was this long ago.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time limit for descriptors in flight when a queue is dropped.
const DRAIN: Duration = Duration::from_secs(1);

/// Facts about a descriptor besides its 64 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    token: u64,
    /// Bytes that earlier parts of a comparison found equal.
    base: u64,
    kind: Kind,
    /// Page faults in a row without progress.
    stuck: u8,
    /// Taken and not reported.
    live: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// No result.
    #[default]
    Plain,
    Compare,
    Crc,
    /// A copy to the first of two destinations; that to the second follows.
    First,
}

impl Kind {
    const fn has_result(self) -> bool {
        matches!(self, Self::Compare | Self::Crc)
    }
}

/// Descriptors with consecutive places, which go out with one doorbell.
#[derive(Debug)]
struct List {
    /// The first place.
    first: u64,
    len: u32,
    /// Descriptors that are reported, or wait to be submitted again.
    at: u32,
    /// Descriptors submitted.
    sent: u32,
    /// Entries of the work queue to give back.
    entries: u32,
    /// It is submitted as a batch descriptor.
    batch: bool,
    /// The end of a batch.
    ended: Option<BatchEnd>,
    /// The end of descriptors that are not sent.
    over: Option<(Outcome, i32)>,
}

impl List {
    const fn new(first: u64, len: u32, entries: u32, batch: bool) -> Self {
        Self { first, len, at: 0, sent: 0, entries, batch, ended: None, over: None }
    }
}

#[derive(Clone, Copy, Debug)]
struct BatchEnd {
    status: u8,
    /// Descriptors that the device has run.
    run: u32,
}

/// A queue on a work queue of DSA.
///
/// Places are numbers that only grow; a place's number modulo the ring's length is its index. The list that
/// gathers until the doorbell is `open..head`, and `tail..head` are the places that may be in use.
#[derive(Debug)]
pub(crate) struct DsaQueue {
    opened: Arc<Opened>,
    engine: EngineId,
    depth: usize,
    /// The flags of all descriptors, and those of descriptors that write.
    flags: u32,
    write_flags: u32,
    /// The ring's length is a power of two, and this is one less.
    mask: u64,
    descriptors: Box<[HwDescriptor]>,
    records: Box<[Record]>,
    /// The record of a batch, at the index of its first descriptor.
    batch_records: Box<[Record]>,
    entries: Box<[Entry]>,
    /// Copies to the second of two destinations: source, destination, length. Empty without `DUALCAST`.
    seconds: Box<[(u64, u64, u32)]>,
    head: u64,
    open: u64,
    tail: u64,
    in_flight: usize,
    /// Closed lists. The last `unsent` of them are not, or not all, submitted.
    lists: VecDeque<List>,
    unsent: usize,
    /// Places to submit again.
    again: VecDeque<u64>,
    stopped: bool,
    lost: Option<&'static str>,
    idle: u32,
    looked: Option<Instant>,
    doorbells: u64,
}

/// `len` default values.
fn boxed<T: Default>(len: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(len).collect()
}

impl DsaQueue {
    pub(crate) fn open(opened: &Arc<Opened>, engine: EngineId, depth: usize, hint: CacheHint) -> Self {
        // Twice the depth, because a place is free only when those before it are.
        let ring = (2 * depth).next_power_of_two();
        let mut flags = flag::RECORD_VALID;
        if opened.wq.block_on_fault {
            flags |= flag::BLOCK_ON_FAULT;
        }
        let cache = if hint == CacheHint::Cold { 0 } else { flag::CACHE };
        let records: Box<[Record]> = boxed(ring);
        let mut descriptors: Box<[HwDescriptor]> = boxed(ring);
        for (descriptor, record) in descriptors.iter_mut().zip(&records) {
            descriptor.record = address(record);
        }
        Self {
            engine,
            depth,
            flags,
            write_flags: flags | cache,
            mask: ring as u64 - 1,
            descriptors,
            records,
            batch_records: boxed(ring),
            entries: boxed(ring),
            seconds: boxed(if opened.wq.has(op::DUALCAST) { ring } else { 0 }),
            head: 0,
            open: 0,
            tail: 0,
            in_flight: 0,
            lists: VecDeque::with_capacity(2 * ring),
            unsent: 0,
            again: VecDeque::with_capacity(ring),
            stopped: false,
            lost: None,
            idle: 0,
            looked: None,
            doorbells: 0,
            opened: Arc::clone(opened),
        }
    }

    #[inline]
    const fn index(&self, place: u64) -> usize {
        (place & self.mask) as usize
    }

    /// Writes a descriptor to the next place.
    #[inline]
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

    /// Closes the list that gathers, so that it can be sent.
    #[inline]
    fn close_list(&mut self) {
        let len = (self.head - self.open) as u32;
        if len == 0 {
            return;
        }
        let batch = self.opened.batch > 1 && len > 1;
        let entries = match &self.opened.entries {
            None => 0,
            Some(_) if self.opened.batch > 1 => 1,
            Some(_) => len,
        };
        self.push_list(List::new(self.open, len, entries, batch));
        self.open = self.head;
    }

    #[inline]
    fn push_list(&mut self, list: List) {
        if !list.batch {
            let at = self.index(list.first);
            for descriptor in &mut self.descriptors[at..at + list.len as usize] {
                descriptor.command |= flag::REPORT;
            }
        }
        self.lists.push_back(list);
        self.unsent += 1;
    }

    /// Submits the lists that are not sent, as far as the work queue takes them.
    #[inline]
    fn send(&mut self) {
        while self.unsent > 0 {
            let at = self.lists.len() - self.unsent;
            if self.opened.fork.is_child() {
                return self.give_up(FORKED);
            }
            let list = &mut self.lists[at];
            let first = (list.first & self.mask) as usize;
            let members = &self.descriptors[first..first + list.len as usize];
            let taken = if list.batch {
                let record = address(&self.batch_records[first]);
                let batch = HwDescriptor {
                    command: flag::RECORD_VALID | flag::REPORT | u32::from(op::BATCH) << 24,
                    record,
                    src: members.as_ptr().expose_provenance() as u64,
                    len: list.len,
                    ..HwDescriptor::default()
                };
                // SAFETY: descriptors and records stay until the queue is dropped, or are leaked; for the
                // memory that they name, the promise of the caller of `submit`.
                unsafe { self.opened.portal.submit(&[batch]) }.map(|taken| taken as u32 * list.len)
            } else {
                // SAFETY: as above.
                unsafe { self.opened.portal.submit(&members[list.sent as usize..]) }.map(|taken| taken as u32)
            };
            match taken {
                Ok(0) => return,
                Ok(taken) => {
                    self.doorbells += 1;
                    list.sent += taken;
                    if list.sent < list.len {
                        return;
                    }
                }
                Err(errno) => {
                    let kind = error::kind_of(errno);
                    list.over = Some((Outcome::Failed(kind), -errno.raw_os_error()));
                    tracing::warn!(queue = self.opened.wq.name, %errno, "a work queue refuses descriptors");
                    if kind == ErrorKind::DeviceLost {
                        self.lost = Some(
                            "the kernel refuses descriptors: the work queue is disabled or gone, or belongs to a parent process",
                        );
                    }
                }
            }
            self.unsent -= 1;
        }
    }

    /// Submits again what met a page fault, as far as there are entries.
    #[cold]
    fn send_again(&mut self) {
        while let Some(&place) = self.again.front() {
            let entries = self.opened.entries.as_ref();
            if self.unsent > 0 || entries.is_some_and(|entries| !entries.take()) {
                return;
            }
            self.again.pop_front();
            let entries = u32::from(entries.is_some());
            self.push_list(List::new(place, 1, entries, false));
            self.send();
        }
    }

    /// Reports ended descriptors of a list, and returns their number.
    #[inline]
    fn report(&mut self, number: usize, completions: &mut [Completion]) -> usize {
        let list = &mut self.lists[number];
        if list.batch && list.ended.is_none() && list.sent > list.at {
            let record = &self.batch_records[(list.first & self.mask) as usize];
            let Some(status) = record.take() else { return 0 };
            let run = match status & status::CODE {
                status::SUCCESS | status::BATCH_FAILED => list.len,
                status::LIST_FAULT => record.done.load(Relaxed).min(list.len),
                _ => 0,
            };
            list.ended = Some(BatchEnd { status, run });
        }
        let (first, len, sent, ended, over) = (list.first, list.len, list.sent, list.ended, list.over);
        let mut at = list.at;
        let mut n = 0;
        while at < len && n < completions.len() {
            let place = first + u64::from(at);
            let index = self.index(place);
            let entry = self.entries[index];
            let completion = if at >= sent {
                let Some((outcome, native)) = over else { break };
                Some(Completion::ended(entry.token, outcome, native))
            } else if let Some(BatchEnd { status: status::SUCCESS, .. }) = ended
                && entry.kind == Kind::Plain
            {
                Some(Completion::done(entry.token))
            } else {
                match (self.records[index].take(), ended) {
                    (Some(status), _) => self.end(place, status),
                    (None, None) => break,
                    // Without a request to report it, the record of a success is not written.
                    (None, Some(end)) if at < end.run && !entry.kind.has_result() => {
                        self.end(place, status::SUCCESS)
                    }
                    (None, Some(end)) if end.status & status::CODE == status::LIST_FAULT => {
                        self.again.push_back(place);
                        None
                    }
                    (None, Some(end)) => Some(failed(entry.token, end.status)),
                }
            };
            if let Some(completion) = completion {
                completions[n] = completion;
                n += 1;
                self.entries[index].live = false;
            }
            at += 1;
        }
        self.lists[number].at = at;
        self.in_flight -= n;
        n
    }

    /// Ends a descriptor with a status, or returns `None` if it is to be submitted again.
    fn end(&mut self, place: u64, status: u8) -> Option<Completion> {
        let at = self.index(place);
        let (entry, record) = (&mut self.entries[at], &self.records[at]);
        match status & status::CODE {
            status::SUCCESS | status::FALSE_PREDICATE => {}
            status::PAGE_FAULT => return self.resume(place, status),
            _ => return Some(failed(entry.token, status)),
        }
        let done = Completion::done(entry.token);
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
        let (entry, record) = (&mut self.entries[at], &self.records[at]);
        let descriptor = &mut self.descriptors[at];
        let fault = record.fault.load(Relaxed);
        // A copy from the end backwards, which the device makes only where its ranges overlap, has its
        // remainder at the front.
        let backward = descriptor.opcode() == op::MEMMOVE && record.result.load(Relaxed) != 0;
        let done = if backward { 0 } else { record.done.load(Relaxed) };
        let broken = Some(failed(entry.token, status));
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

    /// Ends all that is not sent.
    #[cold]
    fn abort_unsent(&mut self) {
        self.close_list();
        while let Some(place) = self.again.pop_front() {
            self.push_list(List::new(place, 1, 0, false));
        }
        for list in self.lists.iter_mut().rev().take(self.unsent) {
            list.over = Some((Outcome::Aborted, 0));
        }
        self.unsent = 0;
    }

    /// Ends everything on a work queue that touches no memory of this process any more.
    #[cold]
    fn give_up(&mut self, why: &'static str) {
        tracing::error!(queue = self.opened.wq.name, in_flight = self.in_flight, why, "a work queue is lost");
        self.lost = Some(why);
        self.abort_unsent();
        for list in self.lists.iter_mut().filter(|list| list.ended.is_none()) {
            list.sent = list.at;
            list.over.get_or_insert((Outcome::Aborted, 0));
        }
    }

    /// Gives up if the kernel has disabled the work queue, which ends what is in flight there.
    #[cold]
    fn look(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        if self.opened.fork.is_child() {
            self.give_up(FORKED);
        } else if device::is_disabled(&self.opened.wq.dir) {
            self.give_up("the work queue was disabled");
        }
    }

    /// Frees the places of reported descriptors.
    #[inline]
    fn reclaim(&mut self) {
        if self.in_flight == 0 {
            // A ring that starts anew has room for whole lists.
            (self.head, self.open, self.tail) = (0, 0, 0);
            return;
        }
        while self.tail < self.head && !self.entries[self.index(self.tail)].live {
            self.tail += 1;
        }
    }
}

const FORKED: &str = "the work queue belongs to the parent process";

fn failed(token: u64, status: u8) -> Completion {
    Completion::ended(token, Outcome::Failed(error::kind(status)), i32::from(status))
}

/// The address of a record for the device, which writes it.
#[inline]
fn address(record: &Record) -> u64 {
    std::ptr::from_ref(record).expose_provenance() as u64
}

// SAFETY: a place is reported once: its list's `at` passes it once, and it comes into another list only if it
// was not reported. The device touches memory until it has written the record, or until the kernel has
// disabled the work queue, which waits for the device. Only destinations are written. A drop leaks the
// descriptors and records that a device may still use.
unsafe impl RawQueue for DsaQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if self.opened.fork.is_child() {
            self.lost = Some(FORKED);
        }
        if let Some(why) = self.lost {
            return Err(error::lost(why));
        }
        let longest = if self.opened.batch > 1 { self.opened.batch as u64 } else { SINGLES };
        let room = (self.depth - self.in_flight).min((self.tail + self.mask + 1 - self.head) as usize);
        let mut taken = 0;
        for descriptor in batch.iter().take(room) {
            // A list that the work queue refused comes first.
            if self.unsent > 0 || !self.again.is_empty() {
                break;
            }
            match self.build(descriptor) {
                Ok(()) => {}
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
            let begins = self.head == self.open || self.opened.batch == 1;
            if begins && self.opened.entries.as_ref().is_some_and(|entries| !entries.take()) {
                let at = self.index(self.head);
                self.entries[at].live = false;
                break;
            }
            self.head += 1;
            self.in_flight += 1;
            taken += 1;
            // A list is contiguous.
            if self.head - self.open == longest || self.head & self.mask == 0 {
                self.close_list();
                self.send();
            }
        }
        Ok(taken)
    }

    fn flush(&mut self) {
        self.close_list();
        self.send();
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.in_flight == 0 || completions.is_empty() {
            return 0;
        }
        self.send();
        let (mut n, mut at) = (0, 0);
        while at < self.lists.len() && n < completions.len() {
            n += self.report(at, &mut completions[n..]);
            let list = &self.lists[at];
            if list.at < list.len {
                at += 1;
                continue;
            }
            if let Some(entries) = &self.opened.entries {
                entries.give(list.entries);
            }
            self.lists.remove(at);
        }
        if !self.again.is_empty() {
            if self.stopped || self.lost.is_some() {
                self.abort_unsent();
            } else {
                self.send_again();
            }
        }
        self.reclaim();
        if n > 0 {
            self.idle = 0;
        } else {
            self.idle = self.idle.wrapping_add(1);
            if self.idle.is_multiple_of(IDLE_POLLS) {
                self.look();
            }
        }
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        error::native(native)
    }

    fn stop(&mut self) {
        // Descriptors at the device cannot be taken back: they complete, and later polls report them.
        if !mem::replace(&mut self.stopped, true) {
            self.abort_unsent();
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

impl Drop for DsaQueue {
    fn drop(&mut self) {
        self.stop();
        let until = Instant::now() + DRAIN;
        let mut ended = [Completion::done(0); 64];
        while self.in_flight > 0 && Instant::now() < until {
            self.poll(&mut ended);
            std::thread::yield_now();
        }
        if self.in_flight > 0 {
            // The device may still read descriptors and write records.
            mem::forget(mem::take(&mut self.descriptors));
            mem::forget(mem::take(&mut self.records));
            mem::forget(mem::take(&mut self.batch_records));
        }
    }
}
