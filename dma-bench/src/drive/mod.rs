//! The measuring loop: keeps a queue full, counts, times and verifies.
//!
//! It drives the raw queue, so that the engine is measured without the safe API. Each of the `depth` places
//! has buffers of its own, so operations in flight never overlap.

mod completions;
mod fast_path;
mod free;
mod pieces;
mod place;
mod polling;
mod repetition;
mod run_loop;
mod submit;
#[cfg(test)]
mod tests;
mod trouble;
mod verify;

use std::hint::black_box;
use std::time::{Duration, Instant};

use dma::{Completion, Descriptor, QueueOptions, RawQueue};
use hdrhistogram::Histogram;

use self::free::FreePlaces;
use self::pieces::pieces;
use self::place::Place;
pub(crate) use self::repetition::COMPARE_OPS;
pub use self::repetition::{COMPARE_LITTLE, COMPARE_MUCH, Extent, Mark, Pace, Slice, histogram};
pub use self::trouble::Trouble;
use crate::contender::{Clock, Contender};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::placement::Pinned;
use crate::plan::{Cell, Verify};

/// One queue with its memory and the state of its measurement.
#[derive(Debug)]
pub struct Worker {
    /// `None` once the queue has been abandoned.
    queue: Option<Box<dyn RawQueue>>,
    memory: Memory,
    layout: Layout,
    clock: Clock,
    cell: Cell,
    /// The CPUs that drive queues in turn, and the number of this queue.
    cpus: (Vec<usize>, usize),
    verify: Verify,
    stall: Duration,
    places: Vec<Place>,
    /// The descriptor of each place, if an operation is one descriptor without lists.
    ready: Vec<Descriptor<'static>>,
    /// Time at which the operation of each place was submitted or due; 0 if it is not timed.
    stamps: Vec<u64>,
    /// The last result of each place in this repetition. Empty if operations have no result.
    answers: Vec<Option<u64>>,
    free: FreePlaces,
    /// For each place: an operation is in flight.
    flying: Vec<bool>,
    /// Descriptors in the queue: taken, and not completed.
    out: u64,
    /// Places whose operations are being made. Only for operations with lists, pieces or comparisons.
    making: Vec<u32>,
    /// Descriptors of one operation.
    pieces: usize,
    max_piece: usize,
    /// Polls between two checks for an interrupt.
    polls_at_once: u32,
    /// Operations that completed on this queue in earlier repetitions.
    done_before: u64,
    /// Consecutive submissions that the engine refused with an error that allows a retry.
    refusals: u32,
    pending: Vec<Descriptor<'static>>,
    /// Buffer for polls. It is allocated once, because filling it costs as much as dozens of short copies.
    completions: Vec<Completion>,
    /// The current repetition.
    extent: Extent,
    started: u64,
    ended: u64,
    /// Operations that had completed when the clock stopped.
    timed: u64,
    cut: bool,
    /// Every operation is compared when it completes.
    checking: bool,
    marks: Vec<Mark>,
    submitted: u64,
    completed: u64,
    polls: u64,
    /// Doorbells until the next timed one.
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

/// The most completions of one poll.
const POLL: usize = 64;
/// The most bytes that are moved between two checks for an interrupt.
pub(crate) const AT_ONCE: u64 = 64 << 20;

impl Worker {
    /// Opens a queue for `cell` on its part of `memory`.
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
        let ready =
            (0_u64..).zip(&places).map(|(token, p): (u64, &Place)| p.descriptor(cell.op, token)).collect();
        Ok(Self {
            queue: Some(queue),
            memory,
            layout,
            clock: contender.clock.clone(),
            cell: cell.clone(),
            cpus: (Vec::new(), 0),
            verify,
            stall,
            places,
            ready,
            stamps: vec![0; cell.depth as usize],
            answers: vec![None; if cell.op.has_result() { cell.depth as usize } else { 0 }],
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

    /// Drives this queue, which has number `queue`, on one of `cpus`.
    pub fn on(mut self, cpus: &[usize], queue: usize) -> Self {
        self.cpus = (cpus.to_vec(), queue);
        self
    }

    /// Pins the calling thread to the CPU of this queue, if it has one, until the result is dropped.
    pub(crate) fn pinned(&self) -> Pinned {
        Pinned::to(&self.cpus.0, self.cpus.1)
    }

    /// Moves the buffers to another layout. No operation may be in flight.
    pub fn move_to(&mut self, layout: Layout) {
        self.layout = layout;
        self.free = FreePlaces::new(self.cell.depth);
        for (index, (place, ready)) in self.places.iter_mut().zip(&mut self.ready).enumerate() {
            *place = Place::new(&self.memory, &self.layout, &self.cell, index);
            *ready = place.descriptor(self.cell.op, ready.token());
        }
    }

    /// Prepares a repetition: resets the counts, and spoils the buffers that will be compared.
    pub fn prepare(&mut self, extent: Extent) -> Result<(), Trouble> {
        self.extent = extent;
        self.done_before += self.completed;
        (self.submitted, self.completed, self.polls, self.untimed) = (0, 0, 0, 0);
        (self.from, self.checked, self.idle, self.sampling) = (None, 0, 0, 0);
        (self.timed, self.cut, self.refusals) = (0, false, 0);
        self.rung_before = self.queue.as_ref().map_or(0, |q| q.stats().doorbells);
        self.spoilt.clear();
        self.marks.clear();
        self.answers.fill(None);
        // Each operation is then spoilt right before it is submitted.
        self.checking = extent.each || self.verify == Verify::All;
        if self.checking || !self.cell.op.writes() {
            return Ok(());
        }
        let total = (extent.warm + extent.ops).min(self.places.len() as u64) as usize;
        let most = self.compared();
        // The places that are used first, each with its next buffer.
        let next = |place: u32| self.layout.next(self.places[place as usize].index, self.places.len());
        self.spoilt.extend(self.free.iter().take(total.min(most)).map(next));
        self.spoilt.iter().try_for_each(|&index| self.spoil(index))
    }

    /// Returns the most operations of this repetition that are compared.
    fn compared(&self) -> usize {
        let fewest = usize::from(self.extent.compare >= COMPARE_MUCH);
        (self.extent.compare / self.layout.size()).clamp(fewest, COMPARE_OPS)
    }

    /// Clears the latencies, for example those of a warm-up.
    pub fn forget(&mut self) {
        self.histogram.reset();
    }

    pub fn start(&mut self) {
        self.progress = Instant::now();
        self.started = self.clock.now();
        if self.extent.warm == 0 {
            self.from = Some((self.started, 0));
        }
    }

    #[cfg(test)]
    pub(crate) fn engine_id(&self) -> Option<dma::EngineId> {
        self.queue.as_ref().map(|queue| queue.engine_id())
    }

    /// Returns the number of operations that have completed on this queue.
    pub(crate) fn done(&self) -> u64 {
        self.done_before + self.completed
    }

    /// Ends the repetition: compares the buffers that were spoilt before it, and returns its counts.
    pub fn finish(&mut self) -> Result<Slice, Trouble> {
        let (from, before) = self.from.unwrap_or((self.ended, self.timed));
        // After an early stop operations may still be in flight, or may never have begun; then nothing is
        // compared.
        let whole = self.completed == self.submitted && self.submitted >= self.spoilt.len() as u64;
        for index in std::mem::take(&mut self.spoilt).into_iter().filter(|_| whole) {
            self.compare_bytes(index)?;
            self.checked += 1;
        }
        if whole && !self.checking {
            self.check_answers()?;
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

    /// Returns the latencies since [`forget`](Self::forget), in nanoseconds: from submission, or from when an
    /// operation was due, to its completion.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Returns true if its time is a simulated device's own.
    pub fn virtual_clock(&self) -> bool {
        self.clock.is_virtual()
    }

    /// Runs one repetition on the calling thread.
    pub fn run(&mut self, extent: Extent) -> Result<Slice, Trouble> {
        self.prepare(extent)?;
        self.start();
        self.go(None)?;
        self.finish()
    }

    /// Returns the start of a run at a rate, and the end of each of its repetitions.
    pub fn marks(&self) -> (u64, &[Mark]) {
        (self.started, &self.marks)
    }

    /// Returns the end of the repetition, in nanoseconds on the contender's clock.
    pub fn ended_at(&self) -> u64 {
        self.ended
    }

    /// Stops the queue and polls until all descriptors have come back, for two seconds at most. Returns false
    /// if some have not.
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
}

#[cold]
fn closed() -> Trouble {
    Trouble::Failed("the queue is closed".to_owned())
}

impl Drop for Worker {
    /// Waits for operations in flight. If they do not come back, the queue and its memory are leaked, because
    /// the device may still access them.
    fn drop(&mut self) {
        if !self.drain() {
            std::mem::forget(self.queue.take());
            std::mem::forget(self.memory.clone());
        }
    }
}
