//! Submission: makes descriptors for free places, hands them to the queue, and rings the doorbell.
#![expect(unsafe_code, reason = "submits to the raw queue")]

use std::ops::Range;

use dma::{Descriptor, Retry, Segment};

use super::{Trouble, Worker, closed};
use crate::memory::PATTERN;
use crate::plan::Op;

/// Consecutive refusals with "try again" after which an engine has failed.
const REFUSALS: u32 = 4096;

impl Worker {
    /// Makes `count` operations and rings the doorbell for them. `due` is the time at which the first was
    /// due; 0 for now.
    pub(super) fn submit(&mut self, count: u32, simple: bool, due: u64) -> Result<(), Trouble> {
        let stamp = if due == 0 && self.untimed == 0 { self.clock.now().max(1) } else { due };
        self.untimed = self.untimed.checked_sub(1).unwrap_or(self.extent.sample_every.saturating_sub(1));
        if stamp != 0 {
            self.sampling += count;
        }
        self.submitted += u64::from(count);
        if !simple {
            return self.submit_listed(count, stamp, due);
        }
        let Some(row) = self.free.take_row(count) else { return self.submit_scattered(count, stamp) };
        // The usual case: consecutive places, whose descriptors are ready.
        let row = row.start as usize..row.end as usize;
        if self.layout.turns() {
            self.turn(row.clone());
        }
        if stamp != 0 {
            self.stamps[row.clone()].fill(stamp);
        }
        self.flying[row.clone()].fill(true);
        let Some(queue) = &mut self.queue else { return Err(closed()) };
        let batch = &self.ready[row];
        // SAFETY: as in `submit_pending`.
        let taken = taken(unsafe { queue.submit(batch) }, &mut self.refusals)?;
        queue.flush();
        self.out += taken as u64;
        if taken < batch.len() {
            self.pending.extend_from_slice(&batch[taken..]);
        }
        Ok(())
    }

    /// Does what [`submit`](Self::submit) does, for free places that are not consecutive.
    fn submit_scattered(&mut self, count: u32, stamp: u64) -> Result<(), Trouble> {
        for _ in 0..count {
            let Some(number) = self.free.take() else { break };
            let at = number as usize;
            if self.layout.turns() {
                self.turn(at..at + 1);
            }
            self.stamps[at] = stamp;
            self.flying[at] = true;
            self.pending.push(self.ready[at]);
        }
        self.submit_pending()
    }

    /// Moves places on to their next buffers.
    fn turn(&mut self, row: Range<usize>) {
        for (place, descriptor) in self.places[row.clone()].iter_mut().zip(&mut self.ready[row]) {
            place.advance(&self.memory, &self.layout, self.cell.depth as usize);
            *descriptor = place.descriptor(self.cell.op, descriptor.token());
        }
    }

    /// Submits the pending descriptors, as far as the queue has room, and rings the doorbell.
    pub(super) fn submit_pending(&mut self) -> Result<(), Trouble> {
        let Some(queue) = &mut self.queue else { return Err(closed()) };
        // SAFETY: the segments lie within this worker's memory, which belongs to the queue's engine and is
        // leaked if a descriptor never comes back; lengths keep to the limits that the engine states; each
        // place in flight has a source and a destination of its own, in different regions, that nobody else
        // uses until it has ended.
        let taken = taken(unsafe { queue.submit(&self.pending) }, &mut self.refusals)?;
        queue.flush();
        self.out += taken as u64;
        if taken == self.pending.len() {
            self.pending.clear();
        } else {
            self.pending.drain(..taken);
        }
        Ok(())
    }

    /// Does what [`submit`](Self::submit) does, for operations with lists or several pieces, and for those
    /// that are compared on completion.
    fn submit_listed(&mut self, count: u32, stamp: u64, due: u64) -> Result<(), Trouble> {
        self.making.clear();
        self.making.extend((0..count).map_while(|_| self.free.take()));
        let stamp = self.ready_places(stamp, due)?;
        for at in 0..self.making.len() {
            let number = self.making[at];
            let place = &mut self.places[number as usize];
            self.stamps[number as usize] = stamp;
            self.flying[number as usize] = true;
            place.left = self.pieces as u32;
            let token = u64::from(number);
            if self.cell.op == Op::Copy {
                let mut at = 0;
                while at < place.src.len {
                    let len = self.max_piece.min(place.src.len - at);
                    let piece = |s: Segment| Segment { addr: s.addr.offset(at), len, ..s };
                    self.pending.push(Descriptor::copy(token, piece(place.src), piece(place.dst)));
                    at += len;
                }
                continue;
            }
            if !self.cell.op.has_lists() {
                self.pending.push(place.descriptor(self.cell.op, token));
                continue;
            }
            let Some(queue) = &mut self.queue else { continue };
            let mut at = 0;
            for _ in 0..self.pieces {
                let len = self.max_piece.min(place.dst.len - at);
                let dst = [Segment { addr: place.dst.addr.offset(at), len, ..place.dst }];
                let descriptor = match self.cell.op {
                    Op::Fill => Descriptor::fill(token, PATTERN, &dst),
                    Op::CopyToBoth => Descriptor::copy_to_both(token, place.src, &place.both),
                    _ => Descriptor::copy_lists(token, &place.lists.0, &place.lists.1),
                };
                at += len;
                loop {
                    let refused = self.refusals;
                    // SAFETY: as in `submit_pending`; the queue reads the lists before this returns, and they
                    // name parts of the place's ranges that do not overlap.
                    let answer = unsafe { queue.submit(&[descriptor]) };
                    match taken(answer, &mut self.refusals)? {
                        1 => {
                            self.out += 1;
                            break;
                        }
                        _ if self.refusals > refused => queue.flush(),
                        _ => return Err(Trouble::Failed("the queue is full before its depth".to_owned())),
                    }
                }
            }
        }
        match &mut self.queue {
            Some(queue) if self.pending.is_empty() => queue.flush(),
            _ => self.submit_pending()?,
        }
        Ok(())
    }

    /// Moves the places in `making` on to their next buffers, and spoils these if they are compared. Returns
    /// the time stamp of the operations, taken after the spoiling, which belongs to no operation.
    fn ready_places(&mut self, stamp: u64, due: u64) -> Result<u64, Trouble> {
        for at in 0..self.making.len() {
            let place = &mut self.places[self.making[at] as usize];
            if self.layout.turns() {
                place.advance(&self.memory, &self.layout, self.cell.depth as usize);
            }
            if self.checking {
                let index = place.index;
                self.spoil(index)?;
            }
        }
        Ok(if self.checking && stamp != 0 && due == 0 { self.clock.now().max(1) } else { stamp })
    }
}

/// Returns the number of descriptors that the engine has taken. A refusal that allows a retry counts as none,
/// up to [`REFUSALS`] times in a row.
#[inline]
pub(super) fn taken(answer: dma::Result<usize>, refusals: &mut u32) -> Result<usize, Trouble> {
    answer.or_else(|error| refused(error, refusals))
}

#[cold]
fn refused(error: dma::Error, refusals: &mut u32) -> Result<usize, Trouble> {
    *refusals += 1;
    if error.retry() == Retry::Never || *refusals > REFUSALS { Err(error.into()) } else { Ok(0) }
}
