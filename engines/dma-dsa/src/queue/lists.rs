//! Lists of descriptors that go out with one doorbell, and their reports.
#![expect(unsafe_code, reason = "passes descriptors with addresses to the portal")]

use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use dma_core::{Completion, ErrorKind, Outcome};

use super::resume::failed;
use super::{DISABLED, DsaQueue, FORKED, Kind, address};
use crate::error;
use crate::hardware::{HwDescriptor, flag, op, status};

/// Descriptors with consecutive places, which go out with one doorbell.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// The first place.
    pub(super) first: u64,
    pub(super) len: u32,
    /// Descriptors that are reported, or wait to be submitted again.
    pub(super) at: u32,
    /// Descriptors submitted.
    pub(super) sent: u32,
    /// Entries of the work queue to give back.
    pub(super) entries: u32,
    /// It is submitted as a batch descriptor.
    pub(super) batch: bool,
    /// It has a fence behind its first descriptor.
    pub(super) fenced: bool,
    /// It has copies without a fence only.
    plain: bool,
    /// The end of a batch.
    pub(super) ended: Option<BatchEnd>,
    /// The end of descriptors that are not sent.
    pub(super) over: Option<(Outcome, i32)>,
}

impl List {
    pub(super) const fn new(first: u64, len: u32, entries: u32, batch: bool) -> Self {
        Self {
            first,
            len,
            at: 0,
            sent: 0,
            entries,
            batch,
            fenced: false,
            plain: false,
            ended: None,
            over: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BatchEnd {
    pub(super) status: u8,
    /// Descriptors that the device has run.
    pub(super) run: u32,
}

impl DsaQueue {
    /// Closes the list that gathers, so that it can be sent.
    #[inline]
    pub(super) fn close_list(&mut self) {
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
        let fenced = mem::take(&mut self.fenced);
        let plain = mem::replace(&mut self.plain, true);
        self.push_list(List { fenced, plain, ..List::new(self.open, len, entries, batch) });
        (self.open, self.split) = (self.head, false);
    }

    #[inline]
    pub(super) fn push_list(&mut self, list: List) {
        let at = self.index(list.first);
        if !list.batch {
            // Outside of a batch, a fence means nothing.
            self.descriptors[at].command &= !flag::FENCE;
            for descriptor in &mut self.descriptors[at..at + list.len as usize] {
                descriptor.command |= flag::REPORT;
            }
        }
        self.lists.push_back(list);
        self.unsent += 1;
    }

    /// Submits the lists that are not sent, as far as the work queue takes them.
    #[inline]
    pub(super) fn send(&mut self) {
        while self.unsent > 0 {
            let at = self.lists.len() - self.unsent;
            if self.opened.fork.is_child() {
                return self.give_up(FORKED);
            }
            // Another queue opens the work queue again: what is left is sent later.
            let Ok(live) = self.opened.live.try_read() else { return };
            let portal = live.portal.as_ref().filter(|_| live.generation == self.generation);
            let Some(portal) = portal else {
                drop(live);
                return self.give_up(DISABLED);
            };
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
                unsafe { portal.submit(&[batch]) }.map(|taken| taken as u32 * list.len)
            } else {
                // SAFETY: as above.
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

    /// Submits again what met a page fault, and then what a fence held back for that, as far as there are
    /// entries.
    #[cold]
    pub(super) fn send_again(&mut self) {
        while self.unsent == 0 {
            let list = match (self.again.front(), self.rest) {
                (Some(&place), _) => List::new(place, 1, 0, false),
                (None, Some((first, len))) if self.lists.is_empty() => {
                    List { fenced: len > 1, ..List::new(first, len, 0, len > 1) }
                }
                _ => return,
            };
            let entries = self.opened.entries.as_ref();
            if entries.is_some_and(|entries| !entries.take()) {
                return;
            }
            if self.again.pop_front().is_none() {
                self.rest = None;
                let at = self.index(list.first);
                self.descriptors[at].command &= !flag::FENCE;
            }
            self.push_list(List { entries: u32::from(entries.is_some()), ..list });
            self.send();
        }
    }

    /// Reports ended descriptors of a list, and returns their number.
    #[inline]
    pub(super) fn report(&mut self, number: usize, completions: &mut [Completion]) -> usize {
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
        if list.plain
            && let Some(BatchEnd { status: status::SUCCESS, .. }) = list.ended
        {
            let from = ((list.first + u64::from(list.at)) & self.mask) as usize;
            let n = completions.len().min((list.len - list.at) as usize);
            for (completion, token) in completions.iter_mut().zip(&self.tokens[from..from + n]) {
                *completion = Completion::done(*token);
            }
            list.at += n as u32;
            self.in_flight -= n;
            return n;
        }
        self.report_each(number, completions)
    }

    /// Reports descriptors of a list by their own records, or by its end.
    #[inline(never)]
    fn report_each(&mut self, number: usize, completions: &mut [Completion]) -> usize {
        let List { first, len, sent, ended, over, fenced, mut at, .. } = self.lists[number];
        let mut n = 0;
        while at < len && n < completions.len() {
            let place = first + u64::from(at);
            let index = self.index(place);
            let (token, kind) = (self.tokens[index], self.entries[index].kind);
            let completion = if at >= sent {
                let Some((outcome, native)) = over else { break };
                Some(Completion::ended(token, outcome, native))
            } else if let Some(BatchEnd { status: status::SUCCESS, .. }) = ended
                && kind == Kind::Plain
                && !fenced
            {
                Some(Completion::done(token))
            } else {
                match (self.records[index].take(), ended) {
                    (Some(status), _) => self.end(place, status),
                    (None, None) => break,
                    (None, Some(end)) if fenced && self.is_abandoned(index, at, end) => {
                        // A list that cannot be read: its first descriptor goes alone, so that there is
                        // progress.
                        if at == 0 {
                            self.again.push_back(place);
                            at = 1;
                        }
                        self.rest = (at < len).then(|| (first + u64::from(at), len - at));
                        self.lists[number].len = at;
                        break;
                    }
                    // Without a request to report it, the record of a success is not written.
                    (None, Some(end)) if at < end.run && !kind.has_result() => {
                        self.end(place, status::SUCCESS)
                    }
                    (None, Some(end)) if end.status & status::CODE == status::LIST_FAULT => {
                        self.again.push_back(place);
                        None
                    }
                    (None, Some(end)) => Some(failed(token, end.status)),
                }
            };
            if let Some(completion) = completion {
                completions[n] = completion;
                n += 1;
                self.free(index);
            }
            at += 1;
        }
        self.lists[number].at = at;
        self.in_flight -= n;
        n
    }

    /// Frees the places of reported descriptors.
    #[inline]
    pub(super) fn reclaim(&mut self) {
        if self.in_flight == 0 {
            // A ring that starts anew has room for whole lists.
            (self.head, self.open, self.tail) = (0, 0, 0);
            return;
        }
        let lists = self.lists.iter().map(|list| list.first + u64::from(list.at));
        let rest = self.rest.map(|(first, _)| first);
        self.tail = lists.chain(self.again.iter().copied()).chain(rest).fold(self.open, u64::min);
    }

    /// Returns whether a descriptor without a record, in a batch with a fence, was not run.
    fn is_abandoned(&self, index: usize, at: u32, end: BatchEnd) -> bool {
        let reports = self.descriptors[index].command & flag::REPORT != 0;
        matches!(end.status & status::CODE, status::BATCH_FAILED | status::LIST_FAULT)
            && (reports || at >= end.run)
    }
}
