//! A queue: lists of descriptors, submitted with one doorbell each, and their completions.
#![expect(unsafe_code, reason = "implements `RawQueue`, and passes descriptors with addresses to the portal")]

mod build;
mod lists;
mod resume;
mod ring;
mod state;
mod watch;

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use dma_core::{
    CacheHint, Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Outcome, QueueEvents,
    QueueStats, RawQueue, Result, STOP_GRACE,
};

use self::build::{Before, Builder};
use self::lists::{List, Lists};
use self::ring::{DescriptorRing, address};
use self::watch::{DISABLED, FORKED, Watch};
use crate::error;
use crate::opened::Opened;
use dsa_sys::{HwDescriptor, flag, op};

/// Maximum length of a list whose descriptors are submitted one by one.
const SINGLES_MAX: u64 = 64;
const REFUSED: &str =
    "the kernel refuses descriptors: the work queue is disabled or gone, or belongs to a parent process";

/// A queue on a DSA work queue.
#[derive(Debug)]
pub(crate) struct DsaQueue {
    opened: Arc<Opened>,
    engine: EngineId,
    depth: usize,
    /// Maximum length of a list.
    list_max: u64,
    builder: Builder,
    ring: DescriptorRing,
    lists: Lists,
    watch: Watch,
    in_flight: usize,
    stopped: bool,
    doorbells: u64,
}

impl DsaQueue {
    pub(crate) fn open(opened: &Arc<Opened>, engine: EngineId, depth: usize, hint: CacheHint) -> Self {
        let ring = DescriptorRing::new(depth, opened.wq.has(op::DUALCAST));
        Self {
            engine,
            depth,
            list_max: if opened.batch > 1 { opened.batch as u64 } else { SINGLES_MAX },
            builder: Builder::new(opened.wq.block_on_fault, hint),
            lists: Lists::new(ring.len()),
            ring,
            watch: Watch::new(opened.generation()),
            in_flight: 0,
            stopped: false,
            doorbells: 0,
            opened: Arc::clone(opened),
        }
    }

    /// Closes the open list, so that it can be sent.
    #[inline]
    fn close_list(&mut self) {
        if self.ring.open_len() == 0 {
            return;
        }
        let batches = self.opened.batch > 1;
        let list = self.builder.close(&mut self.ring, batches);
        let entries = match &self.opened.entries {
            None => 0,
            Some(_) if batches => 1,
            Some(_) => list.len,
        };
        self.lists.push(List { entries, ..list }, &mut self.ring);
    }

    /// Submits the lists that are not sent, until the work queue is full.
    #[inline]
    fn send(&mut self) {
        while let Some(list) = self.lists.first_unsent() {
            if self.opened.fork.is_child() {
                return self.give_up(FORKED);
            }
            // If another queue is opening the work queue again, the lists are sent later.
            let Ok(live) = self.opened.live.try_read() else { return };
            let portal = live.portal.as_ref().filter(|_| live.generation == self.watch.generation());
            let Some(portal) = portal else {
                drop(live);
                return self.give_up(DISABLED);
            };
            let first = self.ring.index(list.first);
            let members = &self.ring.descriptors[first..first + list.len as usize];
            let taken = if list.batch {
                let record = address(&self.ring.batch_records[first]);
                let batch = HwDescriptor {
                    command: flag::RECORD_VALID | flag::REPORT | u32::from(op::BATCH) << 24,
                    record,
                    src: members.as_ptr().expose_provenance() as u64,
                    len: list.len,
                    ..HwDescriptor::default()
                };
                // SAFETY: the ring's descriptors and records stay until the queue is dropped, or are leaked.
                // The caller of `submit` keeps the memory that they name valid until they are reported.
                unsafe { portal.submit(&[batch]) }.map(|taken| taken as u32 * list.len)
            } else {
                // SAFETY: records stay until the queue is dropped, or are leaked. The caller of `submit`
                // keeps the memory that the descriptors name valid until they are reported.
                unsafe { portal.submit(&members[list.sent as usize..]) }.map(|taken| taken as u32)
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
                    let queue = self.opened.wq.name.clone();
                    dma_core::deferred_log!(warn, queue, %errno, "a work queue refuses descriptors");
                    if kind == ErrorKind::DeviceLost {
                        self.watch.lose(REFUSED);
                    }
                }
            }
            self.lists.mark_sent();
        }
    }

    /// Submits descriptors again: those that met a page fault, and then those that a fence held back. Stops
    /// when the work queue has no free entry.
    #[cold]
    fn send_again(&mut self) {
        while let Some(list) = self.lists.next_again() {
            let entries = self.opened.entries.as_ref();
            if entries.is_some_and(|entries| !entries.acquire()) {
                return;
            }
            let list = List { entries: u32::from(entries.is_some()), ..list };
            self.lists.push_again(list, &mut self.ring);
            self.send();
        }
    }

    /// Aborts the descriptors that are not sent.
    #[cold]
    fn abort_unsent(&mut self) {
        self.close_list();
        self.lists.abort_unsent(&mut self.ring);
    }

    /// Marks the work queue as lost, so that all descriptors in flight are reported as aborted. The work
    /// queue must no longer access this process's memory.
    #[cold]
    fn give_up(&mut self, why: &'static str) {
        let (queue, in_flight) = (self.opened.wq.name.clone(), self.in_flight);
        dma_core::deferred_log!(error, queue, in_flight, why, "a work queue is lost");
        self.watch.lose(why);
        self.abort_unsent();
        self.lists.abort_sent();
    }

    /// Uses the work queue again if it is enabled again.
    ///
    /// # Errors
    ///
    /// `DeviceLost`: the work queue is still disabled, or some descriptors are not reported yet.
    #[cold]
    fn recover(&mut self, why: &'static str) -> Result<()> {
        self.watch.recover(why, self.in_flight > 0, &self.opened)?;
        self.ring.clear_records();
        self.reclaim();
        Ok(())
    }

    /// Frees the places of reported descriptors.
    #[inline]
    fn reclaim(&mut self) {
        if self.in_flight == 0 {
            self.ring.restart();
        } else {
            self.ring.tail = self.lists.first_place(self.ring.open);
        }
    }
}

// SAFETY: each place is reported once: its list's `at` passes it once, and a place enters another list only
// if it was not reported. The device accesses memory only until it has written the record, or until the
// kernel has disabled the work queue, which waits for the device. Only destinations are written. A drop leaks
// the descriptors and records that a device may still use.
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
            self.watch.lose(FORKED);
        }
        if let Some(why) = self.watch.lost() {
            self.recover(why)?;
        }
        let batches = self.opened.batch > 1;
        let mut taken = 0;
        while taken < batch.len() && self.in_flight < self.depth {
            if self.ring.is_at_end() && !self.ring.wrap() {
                self.flush();
            }
            // A list that the work queue refused earlier is submitted first.
            if self.ring.is_full() || self.lists.has_unsent() || self.lists.has_resubmissions() {
                break;
            }
            let begins = self.ring.open_len() == 0 || !batches;
            if begins && self.lists.is_fenced() {
                break;
            }
            let mut n = 0;
            if batches && !self.builder.is_fenced() {
                let room = (self.depth - self.in_flight).min((self.list_max - self.ring.open_len()) as usize);
                n = self.builder.build_copies(&mut self.ring, &batch[taken..], room);
            }
            if n == 0 {
                let before = match self.in_flight {
                    0 => Before::Nothing,
                    _ if begins || self.lists.len() > 0 => Before::OtherLists,
                    _ => Before::SameList,
                };
                match self.builder.build_one(&mut self.ring, &batch[taken], before) {
                    Ok(true) => n = 1,
                    Ok(false) => break,
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            if begins && self.opened.entries.as_ref().is_some_and(|entries| !entries.acquire()) {
                self.ring.free(self.ring.index(self.ring.head));
                break;
            }
            self.ring.head += n as u64;
            self.in_flight += n;
            taken += n;
            if self.ring.open_len() == self.list_max {
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
        self.send();
        let (mut n, mut at) = (0, 0);
        while at < self.lists.len() && n < completions.len() {
            n += self.lists.report(at, &mut self.ring, &mut completions[n..]);
            match (self.lists.remove_ended(at), &self.opened.entries) {
                (None, _) => at += 1,
                (Some(entries), Some(free)) => free.release(entries),
                (Some(_), None) => {}
            }
        }
        self.in_flight -= n;
        if self.lists.has_resubmissions() {
            if self.stopped || self.watch.lost().is_some() {
                self.abort_unsent();
            } else {
                self.send_again();
            }
        }
        self.reclaim();
        if self.watch.count_poll(n > 0)
            && let Some(why) = self.watch.check(&self.opened)
        {
            self.give_up(why);
        }
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        error::native(native)
    }

    fn stop(&mut self) {
        // Descriptors cannot be cancelled in the device: they complete, and later polls report them.
        if !mem::replace(&mut self.stopped, true) {
            self.abort_unsent();
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, self.watch.resets())
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

impl Drop for DsaQueue {
    fn drop(&mut self) {
        self.stop();
        let until = Instant::now() + STOP_GRACE;
        let mut ended = [Completion::done(0); 64];
        while self.in_flight > 0 && Instant::now() < until {
            self.poll(&mut ended);
            std::thread::yield_now();
        }
        if self.in_flight > 0 {
            // The memory is leaked, because the device may still read descriptors and write records.
            self.ring.leak();
        }
    }
}
