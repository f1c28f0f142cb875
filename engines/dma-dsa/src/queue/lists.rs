//! Lists of descriptors that are submitted with one doorbell, and their reports.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use dma_core::{Completion, Outcome};

use super::resume::failed;
use super::ring::DescriptorRing;
use super::state::ResultKind;
use dsa_sys::{flag, status};

/// Descriptors in consecutive places, which are submitted with one doorbell.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// The first place.
    pub(super) first: u64,
    pub(super) len: u32,
    /// Number of descriptors that are reported or wait for resubmission.
    pub(super) at: u32,
    /// Number of descriptors submitted.
    pub(super) sent: u32,
    /// Number of work queue entries to release at the end.
    pub(super) entries: u32,
    /// True if the list is submitted as a batch descriptor.
    pub(super) batch: bool,
    /// True if the list has a fence after its first descriptor.
    pub(super) fenced: bool,
    /// True if the list has only unfenced copies.
    pub(super) plain: bool,
    /// Status of the batch once it has ended.
    pub(super) ended: Option<BatchEnd>,
    /// The outcome of descriptors that will not be sent.
    pub(super) over: Option<(Outcome, i32)>,
}

impl List {
    pub(super) const fn new(first: u64, len: u32, batch: bool) -> Self {
        Self {
            first,
            len,
            at: 0,
            sent: 0,
            entries: 0,
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
    /// Number of descriptors that the device has run.
    pub(super) run: u32,
}

/// The closed lists of a queue, in the order of their submission, and the places to submit again.
#[derive(Debug)]
pub(super) struct Lists {
    lists: VecDeque<List>,
    /// Number of lists at the end that are not, or not completely, submitted.
    unsent: usize,
    /// Places to submit again.
    again: VecDeque<u64>,
    /// Places from a fence on (the first place, and their number) that wait for the places before them.
    rest: Option<(u64, u32)>,
}

impl Lists {
    /// Makes the lists for a ring of `places`.
    pub(super) fn new(places: usize) -> Self {
        Self {
            lists: VecDeque::with_capacity(2 * places),
            unsent: 0,
            again: VecDeque::with_capacity(places),
            rest: None,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.lists.len()
    }

    /// Returns true if accepted descriptors have to be submitted again.
    #[inline]
    pub(super) fn has_resubmissions(&self) -> bool {
        !self.again.is_empty() || self.rest.is_some()
    }

    /// Returns true if the list in flight has a fence, which later descriptors must wait for. No other list
    /// is in flight then.
    #[inline]
    pub(super) fn is_fenced(&self) -> bool {
        self.lists.front().is_some_and(|list| list.fenced)
    }

    /// Appends a list to be sent.
    #[inline]
    pub(super) fn push(&mut self, list: List, ring: &mut DescriptorRing) {
        if !list.batch {
            ring.ready_singles(list.first, list.len);
        }
        self.lists.push_back(list);
        self.unsent += 1;
    }

    /// Returns true if some lists are not sent.
    #[inline]
    pub(super) const fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Returns the first list that is not sent.
    #[inline]
    pub(super) fn first_unsent(&mut self) -> Option<&mut List> {
        let at = self.lists.len() - self.unsent;
        self.lists.get_mut(at)
    }

    /// Records that the first unsent list was sent.
    #[inline]
    pub(super) const fn mark_sent(&mut self) {
        self.unsent -= 1;
    }

    /// Returns the next list to submit again: first the descriptors that met a page fault, and after their
    /// end the descriptors that a fence held back.
    pub(super) fn next_again(&self) -> Option<List> {
        match (self.again.front(), self.rest) {
            _ if self.unsent > 0 => None,
            (Some(&place), _) => Some(List::new(place, 1, false)),
            (None, Some((first, len))) if self.lists.is_empty() => {
                Some(List { fenced: len > 1, ..List::new(first, len, len > 1) })
            }
            _ => None,
        }
    }

    /// Moves the list that [`next_again`](Self::next_again) returned to the lists to be sent.
    pub(super) fn push_again(&mut self, list: List, ring: &mut DescriptorRing) {
        if self.again.pop_front().is_none() {
            self.rest = None;
            let at = ring.index(list.first);
            ring.descriptors[at].command &= !flag::FENCE;
        }
        self.push(list, ring);
    }

    /// Aborts the descriptors that are not sent.
    pub(super) fn abort_unsent(&mut self, ring: &mut DescriptorRing) {
        while let Some(place) = self.again.pop_front() {
            self.push(List::new(place, 1, false), ring);
        }
        if let Some((first, len)) = self.rest.take() {
            self.push(List::new(first, len, false), ring);
        }
        for list in self.lists.iter_mut().rev().take(self.unsent) {
            list.over = Some((Outcome::Aborted, 0));
        }
        self.unsent = 0;
    }

    /// Aborts the descriptors that the device has not ended, and will not end.
    pub(super) fn abort_sent(&mut self) {
        for list in self.lists.iter_mut().filter(|list| list.ended.is_none()) {
            list.sent = list.at;
            list.over.get_or_insert((Outcome::Aborted, 0));
        }
    }

    /// Removes a list if all its descriptors are reported, and returns its number of work queue entries.
    #[inline]
    pub(super) fn remove_ended(&mut self, number: usize) -> Option<u32> {
        let list = &self.lists[number];
        let entries = list.entries;
        if list.at < list.len {
            return None;
        }
        if number == 0 {
            self.lists.pop_front();
        } else {
            self.lists.remove(number);
        }
        Some(entries)
    }

    /// Returns the first place that is in use, if the open list begins at `open`.
    #[inline]
    pub(super) fn first_place(&self, open: u64) -> u64 {
        let lists = self.lists.iter().map(|list| list.first + u64::from(list.at));
        let rest = self.rest.map(|(first, _)| first);
        lists.chain(self.again.iter().copied()).chain(rest).fold(open, u64::min)
    }

    /// Reports ended descriptors of a list, and returns their number.
    #[inline]
    pub(super) fn report(
        &mut self,
        number: usize,
        ring: &mut DescriptorRing,
        completions: &mut [Completion],
    ) -> usize {
        let list = &mut self.lists[number];
        if list.batch && list.ended.is_none() && list.sent > list.at {
            let record = &ring.batch_records[ring.index(list.first)];
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
            let from = ring.index(list.first + u64::from(list.at));
            let n = completions.len().min((list.len - list.at) as usize);
            for (completion, token) in completions.iter_mut().zip(&ring.tokens[from..from + n]) {
                *completion = Completion::done(*token);
            }
            list.at += n as u32;
            return n;
        }
        self.report_each(number, ring, completions)
    }

    /// Reports descriptors of a list by their own records, or by the status of the batch.
    #[inline(never)]
    fn report_each(
        &mut self,
        number: usize,
        ring: &mut DescriptorRing,
        completions: &mut [Completion],
    ) -> usize {
        let List { first, len, sent, ended, over, fenced, mut at, .. } = self.lists[number];
        let mut n = 0;
        while at < len && n < completions.len() {
            let place = first + u64::from(at);
            let index = ring.index(place);
            let (token, kind) = (ring.tokens[index], ring.entries[index].kind);
            let completion = if at >= sent {
                let Some((outcome, native)) = over else { break };
                Some(Completion::ended(token, outcome, native))
            } else if let Some(BatchEnd { status: status::SUCCESS, .. }) = ended
                && kind == ResultKind::Plain
                && !fenced
            {
                Some(Completion::done(token))
            } else {
                match (ring.records[index].take(), ended) {
                    (Some(status), _) => self.end(place, status, ring),
                    (None, None) => break,
                    (None, Some(end)) if fenced && is_abandoned(ring, index, at, end) => {
                        // The device could not read the list. Its first descriptor is submitted alone, so
                        // that the queue makes progress.
                        if at == 0 {
                            self.again.push_back(place);
                            at = 1;
                        }
                        self.rest = (at < len).then(|| (first + u64::from(at), len - at));
                        self.lists[number].len = at;
                        break;
                    }
                    // The device writes the record of a success only on request, so this descriptor has
                    // succeeded.
                    (None, Some(end)) if at < end.run && !kind.has_result() => {
                        self.end(place, status::SUCCESS, ring)
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
                ring.free(index);
            }
            at += 1;
        }
        self.lists[number].at = at;
        n
    }

    /// Ends a descriptor with a status. Returns `None` if it has to be submitted again.
    fn end(&mut self, place: u64, status: u8, ring: &mut DescriptorRing) -> Option<Completion> {
        let completion = ring.end(place, status);
        if completion.is_none() {
            self.again.push_back(place);
        }
        completion
    }
}

/// Returns true if a descriptor without a record, in a batch with a fence, was abandoned.
fn is_abandoned(ring: &DescriptorRing, index: usize, at: u32, end: BatchEnd) -> bool {
    let reports = ring.descriptors[index].command & flag::REPORT != 0;
    matches!(end.status & status::CODE, status::BATCH_FAILED | status::LIST_FAULT)
        && (reports || at >= end.run)
}
