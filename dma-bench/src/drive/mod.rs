//! The closed loop: keeps a queue full, counts, times, and verifies.
//!
//! It drives the raw queue, so that what is measured is the engine. Each of `depth` places has buffers of its own, so no two operations
//! in flight ever meet, in whatever order they end.
#![expect(unsafe_code, reason = "submits to the raw queue")]

mod completions;
mod free;
mod place;
#[cfg(test)]
mod tests;

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use dma::{
    Capabilities, Completion, Descriptor, DmaEngine, EngineInfo, ErrorKind, Limits, Listed, Outcome,
    QueueOptions, RawQueue, Retry, Segment,
};
use hdrhistogram::Histogram;

use self::completions::{all_ended, row};
use self::free::FreePlaces;
use self::place::Place;
use crate::contender::{Clock, Contender};
use crate::layout::{Layout, Offsets};
use crate::memory::{Difference, Memory, PATTERN};
use crate::plan::{Cell, Op, Verify};
use crate::{cpu_clock, interrupt};

/// Why a cell has no figures, or not all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// The engine cannot do that.
    #[error("not possible: {0}")]
    Unsupported(String),
    /// The engine refused or failed.
    #[error("{0}")]
    Failed(String),
    /// Bytes did not arrive.
    #[error("WRONG BYTES: operation of {size} B at {at:#x}: first difference at offset {}: {:#04x} instead of {:#04x}", .difference.offset, .difference.found, .difference.expected)]
    Verification {
        /// Where in the destination the operation wrote.
        at: usize,
        /// Bytes of the operation.
        size: usize,
        /// The first difference, counted from the operation's first byte.
        difference: Difference,
    },
}

impl From<dma::Error> for Trouble {
    fn from(error: dma::Error) -> Self {
        if error.kind() == ErrorKind::Unsupported {
            Self::Unsupported(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// What one repetition on one queue came to.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Operations that were timed.
    pub ops: u64,
    /// When the first began and the last ended, on the contender's clock, in nanoseconds.
    pub span: (u64, u64),
    /// All operations, the warm-up of a simulated device's included.
    pub all_ops: u64,
    /// Polls, over all operations.
    pub polls: u64,
    /// Doorbells, over all operations.
    pub doorbells: u64,
    /// Comparisons of an operation's bytes.
    pub verified: u64,
    /// The user stopped it before its end.
    pub cut: bool,
}

impl Slice {
    /// The time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.span.1.saturating_sub(self.span.0).max(1) as f64 / 1e9
    }
}

/// A histogram for latencies in nanoseconds: three digits, no bounds. It is small as long as they are short, so that it does not push out of the
/// caches what is measured.
///
/// # Panics
///
/// Never: the number of digits is a constant, and right.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits")
}

/// How long one repetition is to go on.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Operations before the clock starts.
    pub warm: u64,
    /// Operations that are timed.
    pub ops: u64,
    /// One in so many doorbells is timed.
    pub sample_every: u64,
    /// How many bytes are spoilt before and compared afterwards, in whole buffers: with [`COMPARE_MUCH`] one at least.
    pub compare: usize,
    /// The bytes of every operation are compared as soon as it completes, before its buffer is used again: not for what is timed.
    pub each: bool,
}

/// Operations at a rate instead of as many as go.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Operations a second.
    pub rate: f64,
    /// Operations of each repetition: a run at a rate is one schedule, and is cut into repetitions afterwards.
    pub each: u64,
}

/// When a repetition of a run at a rate was over.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// On the contender's clock, in nanoseconds.
    pub time: u64,
    /// CPU time of the process by then, in nanoseconds.
    pub cpu: f64,
}

/// What is compared now and then.
pub const COMPARE_MUCH: usize = 1 << 20;
/// What is compared in between, so that the time goes into measuring.
pub const COMPARE_LITTLE: usize = 16 << 10;

/// One queue with its memory.
#[derive(Debug)]
pub struct Worker {
    /// `None` once it has been given up on.
    queue: Option<Box<dyn RawQueue>>,
    memory: Memory,
    layout: Layout,
    clock: Clock,
    cell: Cell,
    verify: Verify,
    stall: Duration,
    places: Vec<Place>,
    /// The descriptor of each place, for copies of one segment in one piece.
    ready: Vec<Descriptor<'static>>,
    /// When the operation of each place was submitted or due; 0 if nobody asks.
    stamps: Vec<u64>,
    free: FreePlaces,
    /// Of which places an operation has begun and has not ended.
    flying: Vec<bool>,
    /// Descriptors that the queue has taken and not reported.
    out: u64,
    /// The places of operations that are being made, for those that are more than copies from one segment to another.
    making: Vec<u32>,
    /// Descriptors of one operation.
    pieces: usize,
    max_piece: usize,
    /// Polls between two looks at whether the user asked to stop.
    polls_at_once: u32,
    /// Operations that completed on this queue in the repetitions before.
    done_before: u64,
    /// Submissions that the engine has refused in a row, saying that they may be tried again.
    refusals: u32,
    pending: Vec<Descriptor<'static>>,
    /// What polls write to: made once, since to fill it costs as much as dozens of short copies.
    completions: Vec<Completion>,
    /// Of the repetition.
    extent: Extent,
    started: u64,
    ended: u64,
    /// Operations that had completed by then.
    timed: u64,
    cut: bool,
    /// Every operation is compared when it completes.
    checking: bool,
    marks: Vec<Mark>,
    submitted: u64,
    completed: u64,
    polls: u64,
    /// Doorbells until the next one that is timed.
    untimed: u64,
    rung_before: u64,
    sampling: u32,
    from: Option<(u64, u64)>,
    histogram: Histogram<u64>,
    spoilt: Vec<usize>,
    checked: u64,
    idle: u32,
    progress: Instant,
}

/// How many completions one poll takes.
const POLL: usize = 64;
/// How many buffers are compared at most.
pub(crate) const COMPARE_OPS: usize = 16;
/// How much is moved at most, in bytes, between two looks at whether the user asked to stop.
pub(crate) const AT_ONCE: u64 = 64 << 20;
/// How long what is in flight is waited for when the user asked to stop.
const DRAIN: Duration = Duration::from_millis(200);
/// How often in a row an engine may say "try again" and take nothing.
const REFUSALS: u32 = 4096;

impl Worker {
    /// A queue for `cell`, on its part of `memory`.
    ///
    /// # Errors
    ///
    /// The engine cannot do that, or does not now.
    pub fn new(
        contender: &Contender,
        cell: &Cell,
        memory: Memory,
        layout: Layout,
        verify: Verify,
        stall: Duration,
    ) -> Result<Self, Trouble> {
        let info = contender.engine.info();
        let (pieces, max_piece) = pieces(info, cell)?;
        let descriptors = cell.depth as usize * pieces;
        if descriptors > info.limits.max_queue_depth && cell.depth as usize > info.limits.max_queue_depth {
            return Err(Trouble::Unsupported(format!(
                "a depth of {}; this engine's queues hold {}",
                cell.depth, info.limits.max_queue_depth
            )));
        }
        let options = QueueOptions::new().with_depth(descriptors.min(info.limits.max_queue_depth));
        let queue = contender.engine.open_queue_raw(&options)?;
        let places =
            (0..cell.depth as usize).map(|index| Place::new(&memory, &layout, cell, index)).collect();
        let ready = (0_u64..)
            .zip(&places)
            .map(|(token, p): (u64, &Place)| Descriptor::copy(token, p.src, p.dst))
            .collect();
        Ok(Self {
            queue: Some(queue),
            memory,
            layout,
            clock: contender.clock.clone(),
            cell: cell.clone(),
            verify,
            stall,
            places,
            ready,
            stamps: vec![0; cell.depth as usize],
            flying: vec![false; cell.depth as usize],
            out: 0,
            free: FreePlaces::new(cell.depth),
            making: Vec::with_capacity(cell.batch as usize),
            pieces,
            max_piece,
            polls_at_once: (AT_ONCE / (cell.size * u64::from(cell.batch)).max(1)).clamp(1, 4096) as u32,
            done_before: 0,
            refusals: 0,
            pending: Vec::with_capacity(cell.batch as usize * pieces),
            completions: vec![Completion::done(0); POLL],
            extent: Extent { warm: 0, ops: 1, sample_every: 1, compare: 0, each: false },
            started: 0,
            ended: 0,
            timed: 0,
            cut: false,
            checking: false,
            marks: Vec::new(),
            submitted: 0,
            completed: 0,
            polls: 0,
            untimed: 0,
            rung_before: 0,
            sampling: 0,
            from: None,
            histogram: histogram(),
            spoilt: Vec::new(),
            checked: 0,
            idle: 0,
            progress: Instant::now(),
        })
    }

    /// Goes on with buffers elsewhere in its memory. Nothing is in flight.
    pub fn move_to(&mut self, layout: Layout) {
        self.layout = layout;
        self.free = FreePlaces::new(self.cell.depth);
        for (index, (place, ready)) in self.places.iter_mut().zip(&mut self.ready).enumerate() {
            *place = Place::new(&self.memory, &self.layout, &self.cell, index);
            *ready = Descriptor::copy(ready.token(), place.src, place.dst);
        }
    }

    /// Gets ready for a repetition: spoils what will be compared.
    ///
    /// # Errors
    ///
    /// Memory is gone.
    pub fn prepare(&mut self, extent: Extent) -> Result<(), Trouble> {
        self.extent = extent;
        self.done_before += self.completed;
        (self.submitted, self.completed, self.polls, self.untimed) = (0, 0, 0, 0);
        (self.from, self.checked, self.idle, self.sampling) = (None, 0, 0, 0);
        (self.timed, self.cut, self.refusals) = (0, false, 0);
        self.rung_before = self.queue.as_ref().map_or(0, |q| q.stats().doorbells);
        self.spoilt.clear();
        self.marks.clear();
        // Each operation is then spoilt before it is submitted.
        self.checking = extent.each || self.verify == Verify::All;
        if self.checking {
            return Ok(());
        }
        let total = (extent.warm + extent.ops).min(self.places.len() as u64) as usize;
        let fewest = usize::from(extent.compare >= COMPARE_MUCH);
        let most = (extent.compare / self.layout.size()).clamp(fewest, COMPARE_OPS);
        // These places are handed out first, each for its next buffer.
        let next = |place: u32| self.layout.next(self.places[place as usize].index, self.places.len());
        self.spoilt.extend(self.free.iter().take(total.min(most)).map(next));
        self.spoilt.iter().try_for_each(|&index| self.spoil(index))
    }

    /// Forgets the latencies so far: those of the warm-up are not the cell's.
    pub fn forget(&mut self) {
        self.histogram.reset();
    }

    /// Starts the clock.
    pub fn start(&mut self) {
        self.progress = Instant::now();
        self.started = self.clock.now();
        if self.extent.warm == 0 {
            self.from = Some((self.started, 0));
        }
    }

    /// Goes on for up to `polls` polls; whether the repetition is over.
    ///
    /// # Errors
    ///
    /// The engine refused or failed an operation, or completes nothing any more.
    #[inline]
    pub fn burst(&mut self, polls: u32) -> Result<bool, Trouble> {
        let total = self.extent.warm + self.extent.ops;
        let batch = u64::from(self.cell.batch);
        let simple = self.is_simple();
        let mut left = polls;
        while left > 0 {
            if simple && self.pending.is_empty() {
                left -= self.usual(left - 1)?;
            }
            left -= 1;
            while self.pending.is_empty() {
                let want = batch.min(total - self.submitted);
                if want == 0 || u64::from(self.free.len()) < want {
                    break;
                }
                self.submit(want as u32, simple, 0)?;
            }
            if !self.pending.is_empty() {
                self.submit_pending()?;
            }
            if self.poll()? {
                self.end();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`burst`](Self::burst), as long as nothing happens but the usual, which this does with the fewest instructions: each doorbell is rung
    /// for all places, none is timed, and one poll reports that all of it ended well. How many polls that were.
    fn usual(&mut self, polls: u32) -> Result<u32, Trouble> {
        let Some(queue) = self.queue.as_deref_mut() else { return Err(closed()) };
        let all = self.ready.len();
        let waits = self.completed < self.submitted || self.from.is_none();
        if waits || self.cell.batch as usize != all || all > POLL || self.layout.turns() {
            return Ok(0);
        }
        // What is timed, and what comes last, is for those who know how.
        let left = (self.extent.warm + self.extent.ops - self.submitted) / all as u64;
        let most = u64::from(polls).min(self.untimed).min(left.saturating_sub(1));
        let (mut whole, mut odd) = (0, None);
        while whole < most {
            // SAFETY: as in `submit_pending`.
            let taken = taken(unsafe { queue.submit(&self.ready) }, &mut self.refusals);
            queue.flush();
            if !matches!(taken, Ok(n) if n == all) {
                odd = Some((taken, None));
                break;
            }
            let n = queue.poll(&mut self.completions);
            if n != all || !all_ended(&self.completions[..n]) {
                odd = Some((taken, Some(n)));
                break;
            }
            whole += 1;
        }
        let ops = whole * all as u64;
        (self.submitted, self.completed) = (self.submitted + ops, self.completed + ops);
        (self.polls, self.untimed) = (self.polls + whole, self.untimed - whole);
        let Some((taken, polled)) = odd else { return Ok(whole as u32) };
        let taken = taken?;
        self.out += taken as u64;
        self.pending.extend_from_slice(&self.ready[taken..]);
        self.free.take_all();
        self.flying.fill(true);
        (self.submitted, self.untimed) = (self.submitted + all as u64, self.untimed - 1);
        match polled {
            Some(n) => self.settle(n).map(|_| whole as u32 + 1),
            None => Ok(whole as u32),
        }
    }

    /// Whether an operation is one descriptor that is always the same but for its addresses.
    fn is_simple(&self) -> bool {
        self.pieces == 1 && self.cell.op == Op::Copy && self.cell.segments == 1 && !self.checking
    }

    /// Stops the clock.
    fn end(&mut self) {
        (self.ended, self.timed) = (self.clock.now(), self.completed);
    }

    /// Ends a repetition that the user stopped: what has completed counts. What is in flight is waited for a little, since only then what
    /// was spoilt can be compared.
    pub(crate) fn cut(&mut self) -> Result<(), Trouble> {
        self.end();
        self.cut = true;
        let (polls, until) = (self.polls, Instant::now() + DRAIN);
        while self.completed < self.submitted && Instant::now() < until {
            if !self.pending.is_empty() {
                self.submit_pending()?;
            }
            self.poll()?;
        }
        self.polls = polls;
        Ok(())
    }

    /// Makes `count` operations and rings the doorbell for them. `due` is when the first was due, 0 for now.
    fn submit(&mut self, count: u32, simple: bool, due: u64) -> Result<(), Trouble> {
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
        // The usual case: places in a row, whose descriptors are ready.
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

    /// As [`submit`](Self::submit), for free places that are not in a row: their descriptors are gathered.
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

    /// Goes on to the next buffers of places.
    fn turn(&mut self, row: Range<usize>) {
        for (place, descriptor) in self.places[row.clone()].iter_mut().zip(&mut self.ready[row]) {
            place.advance(&self.memory, &self.layout, self.cell.depth as usize);
            *descriptor = Descriptor::copy(descriptor.token(), place.src, place.dst);
        }
    }

    /// Hands over what is pending, as far as the queue has room.
    fn submit_pending(&mut self) -> Result<(), Trouble> {
        let Some(queue) = &mut self.queue else { return Err(closed()) };
        // SAFETY: the segments lie within this worker's memory, which belongs to the queue's engine and is leaked if a descriptor never
        // comes back; lengths keep to the limits that the engine states; each place in flight has a source and a destination of
        // its own, in different regions, that nobody else uses until it has ended.
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

    /// As [`submit`](Self::submit), for what is more than one segment to one segment, and for what is compared on completion.
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
                    let piece =
                        |s: Segment| Segment { addr: s.addr.map_addr(|a| a.saturating_add(at)), len, ..s };
                    self.pending.push(Descriptor::copy(token, piece(place.src), piece(place.dst)));
                    at += len;
                }
                continue;
            }
            let Some(queue) = &mut self.queue else { continue };
            let mut at = 0;
            for _ in 0..self.pieces {
                let len = self.max_piece.min(place.dst.len - at);
                let dst =
                    [Segment { addr: place.dst.addr.map_addr(|a| a.saturating_add(at)), len, ..place.dst }];
                let listed = match self.cell.op {
                    Op::Fill => Listed::Fill { pattern: PATTERN, dst: &dst },
                    _ => Listed::Copy { src: &place.lists.0, dst: &place.lists.1 },
                };
                at += len;
                loop {
                    let refused = self.refusals;
                    // SAFETY: as in `submit_pending`; the queue reads the lists before this returns, and they name parts of the place's ranges
                    // that do not overlap.
                    let answer = unsafe { queue.submit(&[Descriptor::listed(token, &listed)]) };
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

    /// Sets the places whose turn it is to their next buffers, and spoils these if they are to be compared; the stamp for them, taken afterwards,
    /// since to spoil is no part of an operation.
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

    /// Takes what has completed; whether that was all.
    fn poll(&mut self) -> Result<bool, Trouble> {
        let Some(queue) = &mut self.queue else { return Err(closed()) };
        let n = queue.poll(&mut self.completions);
        self.settle(n)
    }

    /// Takes the first `n` of the completions; whether that was all.
    fn settle(&mut self, n: usize) -> Result<bool, Trouble> {
        self.polls += 1;
        self.out = self.out.saturating_sub(n as u64);
        if n == 0 {
            return self.nothing();
        }
        (self.idle, self.refusals) = (0, 0);
        match row(&self.completions[..n], self.cell.depth) {
            Some(row)
                if self.pieces == 1
                    && !self.checking
                    && self.flying[row.start as usize..row.end as usize].iter().all(|flying| *flying)
                    && self.timed_together(&row) =>
            {
                self.flying[row.start as usize..row.end as usize].fill(false);
                self.free.put(row);
                self.completed += n as u64;
            }
            _ => {
                let completions = std::mem::take(&mut self.completions);
                let ended = self.ended(&completions[..n]);
                self.completions = completions;
                ended?;
            }
        }
        if self.completed > self.submitted {
            return Err(Trouble::Failed("more completions than operations".to_owned()));
        }
        if self.from.is_none() && self.completed >= self.extent.warm {
            self.from = Some((self.clock.now(), self.completed));
        }
        Ok(self.completed >= self.extent.warm + self.extent.ops)
    }

    /// Records the latency of operations that ended together, if they are timed and were submitted together too; whether these were all that are
    /// timed among them.
    fn timed_together(&mut self, row: &Range<u32>) -> bool {
        if self.sampling == 0 {
            return true;
        }
        let stamps = &mut self.stamps[row.start as usize..row.end as usize];
        let stamp = stamps[0];
        if self.completed < self.extent.warm || stamps.iter().any(|&other| other != stamp) {
            return false;
        }
        if stamp != 0 {
            stamps.fill(0);
            self.sampling -= row.end - row.start;
            record(
                &mut self.histogram,
                self.clock.now().saturating_sub(stamp),
                u64::from(row.end - row.start),
            );
        }
        true
    }

    /// Completions in any order, that may be timed, may be one piece of several, and may have to be verified.
    fn ended(&mut self, completions: &[Completion]) -> Result<(), Trouble> {
        let now = if self.sampling > 0 { self.clock.now() } else { 0 };
        for completion in completions {
            if completion.outcome != Outcome::Done {
                return Err(self.failure(completion));
            }
            let at = completion.token as usize;
            let Some(place) = self.places.get_mut(at) else {
                return Err(Trouble::Failed(format!(
                    "a completion with the unknown token {}",
                    completion.token
                )));
            };
            if !self.flying[at] {
                return Err(Trouble::Failed(format!(
                    "a completion with the token {}, of which no operation is in flight",
                    completion.token
                )));
            }
            if self.pieces > 1 {
                place.left = place.left.saturating_sub(1);
                if place.left > 0 {
                    continue;
                }
            }
            let stamp = std::mem::take(&mut self.stamps[at]);
            if stamp != 0 {
                self.sampling -= 1;
                if self.completed >= self.extent.warm {
                    record(&mut self.histogram, now.saturating_sub(stamp), 1);
                }
            }
            if self.checking {
                let index = place.index;
                self.compare(index)?;
            }
            self.flying[at] = false;
            let number = completion.token as u32;
            self.free.put(number..number + 1);
            self.completed += 1;
        }
        Ok(())
    }

    /// Nothing completed: sooner or later that is too long.
    fn nothing(&mut self) -> Result<bool, Trouble> {
        std::hint::spin_loop();
        if self.idle == 0 {
            self.progress = Instant::now();
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle.is_multiple_of(1024) {
            let since = self.progress.elapsed();
            // A device on its own clock that a million polls did not wake does nothing any more.
            if since > self.stall || (self.clock.is_virtual() && self.idle > 1 << 20) {
                let missing = self.submitted - self.completed;
                return Err(Trouble::Failed(format!(
                    "{missing} operations in flight, and none completed for {since:.1?}; lost, or the device is stuck"
                )));
            }
        }
        Ok(false)
    }

    #[cold]
    fn failure(&self, completion: &Completion) -> Trouble {
        let native = self.queue.as_ref().map(|q| q.explain(completion.native));
        let native = native.filter(|_| completion.native != 0).map(|n| format!(" ({n})")).unwrap_or_default();
        let what = match completion.outcome {
            Outcome::Failed(kind) => kind.as_str(),
            _ => ErrorKind::Aborted.as_str(),
        };
        Trouble::Failed(format!("an operation failed: {what}{native}, after {} on this queue", self.done()))
    }

    /// Whose queue it is.
    #[cfg(test)]
    pub(crate) fn engine_id(&self) -> Option<dma::EngineId> {
        self.queue.as_ref().map(|queue| queue.engine_id())
    }

    /// Operations that completed on this queue so far.
    pub(crate) fn done(&self) -> u64 {
        self.done_before + self.completed
    }

    /// Goes on to the end of a repetition that was started, or until the user asks to stop.
    ///
    /// # Errors
    ///
    /// As [`burst`](Self::burst).
    pub fn go(&mut self, pace: Option<Pace>) -> Result<(), Trouble> {
        if let Some(pace) = pace {
            return self.go_at(pace);
        }
        while !self.burst(self.polls_at_once)? {
            if interrupt::stopped() {
                return self.cut();
            }
        }
        Ok(())
    }

    /// Ends the repetition: compares what was spoilt before.
    ///
    /// # Errors
    ///
    /// Bytes did not arrive.
    pub fn finish(&mut self) -> Result<Slice, Trouble> {
        let (from, before) = self.from.unwrap_or((self.ended, self.timed));
        // In a repetition that was cut off, operations may still be in flight or may never have begun.
        let whole = self.completed == self.submitted && self.submitted >= self.spoilt.len() as u64;
        for index in std::mem::take(&mut self.spoilt).into_iter().filter(|_| whole) {
            self.compare(index)?;
        }
        let rung = self.queue.as_ref().map_or(0, |q| q.stats().doorbells) - self.rung_before;
        Ok(Slice {
            ops: black_box(self.timed.saturating_sub(before)),
            span: (from, self.ended),
            all_ops: self.timed,
            polls: self.polls,
            doorbells: rung,
            verified: self.checked,
            cut: self.cut,
        })
    }

    /// From submission (or from when it was due) to completion, in nanoseconds, of all repetitions
    /// since [`forget`](Self::forget).
    #[must_use]
    pub fn latency(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Whether its time is a simulated device's own.
    #[must_use]
    pub fn virtual_clock(&self) -> bool {
        self.clock.is_virtual()
    }

    /// One repetition, alone on this thread.
    ///
    /// # Errors
    ///
    /// As [`burst`](Self::burst) and [`finish`](Self::finish).
    pub fn run(&mut self, extent: Extent) -> Result<Slice, Trouble> {
        self.prepare(extent)?;
        self.start();
        self.go(None)?;
        self.finish()
    }

    /// When a run at a rate began, and when each of its repetitions was over.
    #[must_use]
    pub fn marks(&self) -> (u64, &[Mark]) {
        (self.started, &self.marks)
    }

    /// When the repetition was over, on the contender's clock.
    #[must_use]
    pub fn ended_at(&self) -> u64 {
        self.ended
    }

    /// Goes on at a rate: each operation is due at its time whether or not the one before has ended, and its latency counts from when it
    /// was due. The last repetition is over when an operation after it would be due: so many operations take so many gaps.
    fn go_at(&mut self, pace: Pace) -> Result<(), Trouble> {
        let simple = self.is_simple();
        let (started, gap) = (self.started, 1e9 / pace.rate);
        let due = |number: u64| started + (number as f64 * gap) as u64;
        let mut over = pace.each.min(self.extent.ops);
        for turn in 1_u64.. {
            let more = self.submitted < self.extent.ops && self.pending.is_empty() && self.free.len() > 0;
            if more && self.clock.now() >= due(self.submitted) {
                self.submit(1, simple, due(self.submitted).max(1))?;
            }
            if !self.pending.is_empty() {
                self.submit_pending()?;
            }
            if self.completed < self.submitted {
                self.poll()?;
            }
            while self.completed >= over && self.clock.now() >= due(over) {
                self.marks.push(Mark { time: self.clock.now(), cpu: cpu_clock::of_process([]) });
                if over == self.extent.ops {
                    self.end();
                    return Ok(());
                }
                over = (over + pace.each).min(self.extent.ops);
            }
            if turn.is_multiple_of(64) && interrupt::stopped() {
                return self.cut();
            }
        }
        Ok(())
    }

    /// Stops the queue and waits for what it has, for two seconds at most; whether all came back.
    fn drain(&mut self) -> bool {
        let Some(queue) = self.queue.as_mut().filter(|_| self.out > 0) else { return true };
        queue.stop();
        let until = Instant::now() + Duration::from_secs(2);
        let mut completions = [Completion::done(0); POLL];
        let mut idle = 0;
        while self.out > 0 && idle < 1 << 20 && Instant::now() < until {
            let n = queue.poll(&mut completions);
            self.out = self.out.saturating_sub(n as u64);
            idle = if n == 0 { idle + 1 } else { 0 };
        }
        self.out == 0
    }

    /// Makes every byte of a buffer wrong, so that what arrives there can be told from what was there.
    fn spoil(&self, index: usize) -> Result<(), Trouble> {
        self.each_piece(index, |memory, at, len, fill| memory.spoil(at, len, fill).map(|()| None)).map(|_| ())
    }

    fn compare(&mut self, index: usize) -> Result<(), Trouble> {
        self.checked += 1;
        let (at, size) = (self.layout.at(index).dst, self.layout.size());
        let found = self.each_piece(index, |memory, at, len, fill| memory.verify(at, len, fill))?;
        match found {
            None => Ok(()),
            Some(difference) => Err(Trouble::Verification { at, size, difference }),
        }
    }

    /// Calls `f` with each part of a buffer; the first difference, counted from the operation's first byte.
    fn each_piece(
        &self,
        index: usize,
        mut f: impl FnMut(&Memory, Offsets, usize, bool) -> dma::Result<Option<Difference>>,
    ) -> Result<Option<Difference>, Trouble> {
        let mut before = 0;
        for (at, len) in self.layout.parts(index) {
            if let Some(found) = f(&self.memory, at, len, self.cell.op == Op::Fill)? {
                return Ok(Some(Difference { offset: before + found.offset, ..found }));
            }
            before += len;
        }
        Ok(None)
    }
}

#[cold]
fn closed() -> Trouble {
    Trouble::Failed("the queue is closed".to_owned())
}

/// Records `count` latencies of `time` nanoseconds.
fn record(histogram: &mut Histogram<u64>, time: u64, count: u64) {
    // Without bounds, every value fits.
    let _ = histogram.record_n(time.max(1), count);
}

/// How many descriptors an engine has taken. One that refuses and says that it may be tried again has taken none, as long as it does not
/// say so for ever.
#[inline]
fn taken(answer: dma::Result<usize>, refusals: &mut u32) -> Result<usize, Trouble> {
    answer.or_else(|error| refused(error, refusals))
}

#[cold]
fn refused(error: dma::Error, refusals: &mut u32) -> Result<usize, Trouble> {
    *refusals += 1;
    if error.retry() == Retry::Never || *refusals > REFUSALS { Err(error.into()) } else { Ok(0) }
}

/// Into how many descriptors an operation is cut, and how long each is at most.
fn pieces(info: &EngineInfo, cell: &Cell) -> Result<(usize, usize), Trouble> {
    let Limits { max_transfer, max_segments, max_queue_depth, .. } = info.limits;
    let pieces = cell.size.div_ceil(max_transfer).max(1);
    let unsupported = |what: String| Err(Trouble::Unsupported(what));
    match cell.op {
        Op::Fill if !info.capabilities.contains(Capabilities::FILL) => {
            unsupported("this device has no fill".to_owned())
        }
        Op::Sg if cell.segments as usize > max_segments => {
            unsupported(format!("{} segments; this device takes {max_segments}", cell.segments))
        }
        // Each piece of a fill begins with the first byte of the pattern.
        Op::Fill
            if pieces > 1
                && (!max_transfer.is_multiple_of(PATTERN.len() as u64)
                    || pieces.saturating_mul(cell.depth.into()) > max_queue_depth as u64) =>
        {
            unsupported(format!("{} B at once; this device takes {max_transfer}", cell.size))
        }
        Op::Sg if pieces > 1 => {
            unsupported(format!("{} B at once; this device takes {max_transfer}", cell.size))
        }
        _ => Ok((pieces as usize, usize::try_from(max_transfer).unwrap_or(usize::MAX))),
    }
}

impl Drop for Worker {
    /// Whatever is in flight is waited for or given up on; memory that a device may still be at is never given back.
    fn drop(&mut self) {
        if !self.drain() {
            std::mem::forget(self.queue.take());
            std::mem::forget(self.memory.clone());
        }
    }
}
