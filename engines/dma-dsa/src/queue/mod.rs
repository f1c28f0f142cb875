//! A queue: lists of descriptors, submitted with one doorbell each, and their completions.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{
    CacheHint, Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, QueueEvents, QueueStats,
    RawQueue, Result,
};

use self::lists::List;
use crate::error;
use crate::hardware::{HwDescriptor, Record, flag, op};
use crate::opened::Opened;

mod build;
mod lists;
mod lost;
mod resume;

/// Longest list of descriptors that are submitted one by one.
const SINGLES: u64 = 64;
/// The work queue's state is looked at after so many polls without a completion,
const IDLE_POLLS: u32 = 256;
/// if the last look was this long ago.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time limit for descriptors in flight when a queue is dropped.
const DRAIN: Duration = Duration::from_secs(1);

/// Facts about a descriptor besides its 64 bytes and its token. Those of a free place are the default.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Bytes that earlier parts of a comparison found equal.
    base: u64,
    kind: Kind,
    /// Page faults in a row without progress.
    stuck: u8,
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

/// A queue on a work queue of DSA.
///
/// Places are numbers that only grow; a place's number modulo the ring's length is its index. The list that
/// gathers until the doorbell is `open..head`, and `tail..head` are the places that may be in use.
#[derive(Debug)]
pub(crate) struct DsaQueue {
    opened: Arc<Opened>,
    generation: u64,
    engine: EngineId,
    depth: usize,
    /// Longest list.
    longest: u64,
    /// The flags of all descriptors, and those of descriptors that write.
    flags: u32,
    write_flags: u32,
    /// The ring's length is a power of two, and this is one less.
    mask: u64,
    descriptors: Box<[HwDescriptor]>,
    records: Box<[Record]>,
    /// The record of a batch, at the index of its first descriptor.
    batch_records: Box<[Record]>,
    tokens: Box<[u64]>,
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
    /// Places from a fence on, the first and their number, that wait for those before them.
    rest: Option<(u64, u32)>,
    /// The list that gathers has a fence behind its first descriptor, or a copy to two destinations that goes
    /// out as two.
    fenced: bool,
    split: bool,
    /// It has copies without a fence only.
    plain: bool,
    stopped: bool,
    lost: Option<&'static str>,
    idle: u32,
    looked: Option<Instant>,
    doorbells: u64,
    resets: u64,
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
            longest: if opened.batch > 1 { opened.batch as u64 } else { SINGLES },
            flags,
            write_flags: flags | cache,
            mask: ring as u64 - 1,
            descriptors,
            records,
            batch_records: boxed(ring),
            tokens: boxed(ring),
            entries: boxed(ring),
            seconds: boxed(if opened.wq.has(op::DUALCAST) { ring } else { 0 }),
            head: 0,
            open: 0,
            tail: 0,
            in_flight: 0,
            lists: VecDeque::with_capacity(2 * ring),
            unsent: 0,
            again: VecDeque::with_capacity(ring),
            rest: None,
            fenced: false,
            split: false,
            plain: true,
            stopped: false,
            lost: None,
            idle: 0,
            looked: None,
            doorbells: 0,
            resets: 0,
            generation: opened.generation(),
            opened: Arc::clone(opened),
        }
    }

    #[inline]
    const fn index(&self, place: u64) -> usize {
        (place & self.mask) as usize
    }

    /// Returns whether descriptors that were taken before are to be submitted again.
    #[inline]
    fn is_behind(&self) -> bool {
        !self.again.is_empty() || self.rest.is_some()
    }

    /// Returns whether a list in flight has a fence, which holds for all later descriptors. There is no other
    /// list then.
    #[inline]
    fn is_fenced(&self) -> bool {
        self.lists.front().is_some_and(|list| list.fenced)
    }

    /// Leaves a place as [`build_copies`](Self::build_copies) relies on.
    #[inline]
    fn free(&mut self, at: usize) {
        self.entries[at] = Entry::default();
        self.descriptors[at].extra = 0;
    }
}

const DISABLED: &str = "the work queue was disabled";
const FORKED: &str = "the work queue belongs to the parent process";

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
            self.recover(why)?;
        }
        let (longest, batches) = (self.longest, self.opened.batch > 1);
        let mut taken = 0;
        while taken < batch.len() && self.in_flight < self.depth {
            if self.head & self.mask == 0 && self.head > self.open && !self.wrap() {
                self.flush();
            }
            // A list that the work queue refused comes first.
            if self.head > self.tail + self.mask || self.unsent > 0 || self.is_behind() {
                break;
            }
            let begins = self.head == self.open || !batches;
            if begins && self.is_fenced() {
                break;
            }
            let mut n = 0;
            if batches && !self.fenced {
                n = self.build_copies(&batch[taken..]);
            }
            if n == 0 {
                match self.build_one(&batch[taken], begins) {
                    Ok(true) => n = 1,
                    Ok(false) => break,
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            if begins && self.opened.entries.as_ref().is_some_and(|entries| !entries.take()) {
                self.free(self.index(self.head));
                break;
            }
            self.head += n as u64;
            self.in_flight += n;
            taken += n;
            if self.head - self.open == longest {
                self.flush();
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
        if self.unsent > 0 {
            self.send();
        }
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
            if at == 0 {
                self.lists.pop_front();
            } else {
                self.lists.remove(at);
            }
        }
        if self.is_behind() {
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
        QueueStats::new(self.doorbells, self.resets)
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
