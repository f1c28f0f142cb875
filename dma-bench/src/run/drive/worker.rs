//! [`Worker`]: the loop that drives one queue, as fast as possible or at a rate, until the sample ends or the
//! user stops it.
#![expect(unsafe_code, reason = "submits to the raw queue")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use apps_shared::hold;
use dma::contract::{Completion, Descriptor, Outcome, Segment};
use dma::{ErrorKind, QueueOptions};
use hdrhistogram::Histogram;

use super::channel::{Channel, MAX_COMPLETIONS, Stopped, consecutive};
use super::checks::Checks;
use super::places::{Places, pieces};
use super::progress::Progress;
use super::timer::LatencyTimer;
use super::{BYTES_PER_CHECK, CellError, Counts, Extent, Rate, SampleEnd};
use crate::interrupt;
use crate::plan::{Cell, Op, Verify};
use crate::run::contender::Contender;
use crate::run::cpu_time;
use crate::run::layout::Layout;
use crate::run::memory::{Memory, PATTERN};
use crate::run::placement::Pinned;

/// Time limit for operations in flight after an interrupt.
const INTERRUPT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// One queue, its memory, and the state of its measurement.
#[derive(Debug)]
pub struct Worker {
    cell: Cell,
    /// The CPUs for the threads that drive queues, and the number of this queue.
    cpus: (Vec<usize>, usize),
    pub(super) channel: Channel,
    pub(super) places: Places,
    pub(super) timer: LatencyTimer,
    pub(super) progress: Progress,
    pub(super) checks: Checks,
    /// Number of polls between two checks for an interrupt.
    polls_at_once: u32,
    /// Buffer for the places of one doorbell, used if the operations need more than their `ready` descriptor.
    doorbell_places: Vec<usize>,
}

impl Worker {
    /// Opens a queue for `cell` on the queue's part of `memory`.
    pub fn new(
        contender: &Contender,
        cell: &Cell,
        memory: Memory,
        layout: Layout,
        verify: Verify,
        stall: Duration,
    ) -> Result<Self, CellError> {
        let info = contender.engine.info();
        let pieces = pieces(info, cell)?;
        let (depth, most) = (cell.depth as usize, info.limits.max_queue_depth);
        let descriptors = depth * pieces.0;
        if descriptors > most && depth > most {
            return Err(CellError::Unsupported(format!(
                "a depth of {depth}; this engine's queues hold {most}"
            )));
        }
        let options = QueueOptions::new().with_depth(descriptors.min(most));
        let pending = cell.batch as usize * pieces.0;
        let bytes = (cell.size * u64::from(cell.batch)).max(1);
        Ok(Self {
            cell: cell.clone(),
            cpus: (Vec::new(), 0),
            channel: Channel::open(&*contender.engine, &options, memory.clone(), pending)?,
            places: Places::new(cell, memory, layout, pieces),
            timer: LatencyTimer::new(contender.clock.clone(), depth),
            progress: Progress::new(stall),
            checks: Checks::new(verify, cell.op.has_result(), depth),
            polls_at_once: (BYTES_PER_CHECK / bytes).clamp(1, 4096) as u32,
            doorbell_places: Vec::with_capacity(cell.batch as usize),
        })
    }

    /// Sets that this queue, which has the number `queue`, is driven on one of `cpus`.
    pub fn on(mut self, cpus: &[usize], queue: usize) -> Self {
        self.cpus = (cpus.to_vec(), queue);
        self
    }

    /// Pins the calling thread to the CPU of this queue, if the queue has a CPU, until the result is dropped.
    pub(crate) fn pinned(&self) -> Pinned {
        Pinned::to(&self.cpus.0, self.cpus.1)
    }

    /// Moves the buffers to another layout. No operation may be in flight.
    pub fn move_to(&mut self, layout: Layout) {
        self.places.move_to(&self.cell, layout);
    }

    /// Prepares a sample: resets the counts, and corrupts the buffers that will be compared.
    pub fn prepare(&mut self, extent: Extent) -> Result<(), CellError> {
        self.progress.begin_sample(extent);
        self.timer.begin_sample(extent.timed_every);
        self.channel.begin_sample();
        self.checks.begin_sample(extent, &self.places)
    }

    /// Clears the latencies, for example those of a warm-up.
    pub fn clear_latency(&mut self) {
        self.timer.histogram.reset();
    }

    /// Starts the clock of the sample.
    pub fn start(&mut self) {
        self.progress.start(self.timer.clock.now());
    }

    /// Runs one sample on the calling thread.
    pub fn run(&mut self, extent: Extent) -> Result<Counts, CellError> {
        self.prepare(extent)?;
        self.start();
        self.run_loop(None)?;
        self.finish()
    }

    /// Continues a sample until its end or an interrupt.
    pub fn run_loop(&mut self, rate: Option<Rate>) -> Result<(), CellError> {
        if let Some(rate) = rate {
            return self.run_at(rate);
        }
        while !self.burst(self.polls_at_once)? {
            if self.is_stopped() {
                return self.interrupt();
            }
        }
        Ok(())
    }

    /// Submits and polls, up to `polls` times. Returns true when the sample is over.
    #[inline]
    pub fn burst(&mut self, polls: u32) -> Result<bool, CellError> {
        let batch = u64::from(self.cell.batch);
        let simple = self.is_simple();
        let mut left = polls;
        while left > 0 {
            if simple && self.channel.pending.is_empty() {
                left -= self.fast_path(left - 1)?;
            }
            left -= 1;
            while self.channel.pending.is_empty() {
                let count = batch.min(self.progress.left());
                if count == 0 || u64::from(self.places.free.len()) < count {
                    break;
                }
                self.submit(count as u32, simple, 0)?;
            }
            self.submit_pending()?;
            if self.poll()? {
                self.progress.end(self.timer.clock.now());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs at a rate: each operation has a scheduled time, which does not depend on earlier completions, and
    /// its latency counts from that time. The last sample ends at the scheduled time of one more operation,
    /// so that n operations take n intervals.
    fn run_at(&mut self, rate: Rate) -> Result<(), CellError> {
        let (simple, ops) = (self.is_simple(), self.progress.extent.ops);
        let (started, interval) = (self.progress.started, 1e9 / rate.ops_per_second);
        let due = |number: u64| started + (number as f64 * interval) as u64;
        let mut sample_end = rate.ops_per_sample.min(ops);
        for polls in 1_u64.. {
            let submitted = self.progress.submitted;
            let may_submit = self.channel.pending.is_empty() && self.places.free.len() > 0;
            if submitted < ops && may_submit && self.timer.clock.now() >= due(submitted) {
                self.submit(1, simple, due(submitted).max(1))?;
            }
            self.submit_pending()?;
            if self.progress.in_flight() > 0 {
                self.poll()?;
            }
            while self.progress.completed >= sample_end && self.timer.clock.now() >= due(sample_end) {
                let end = SampleEnd { time: self.timer.clock.now(), cpu: cpu_time::of_process(&[]) };
                self.progress.sample_ends.push(end);
                if sample_end == ops {
                    self.progress.end(self.timer.clock.now());
                    return Ok(());
                }
                sample_end = (sample_end + rate.ops_per_sample).min(ops);
            }
            if polls.is_multiple_of(64) && self.is_stopped() {
                return self.interrupt();
            }
        }
        Ok(())
    }

    /// Returns true if the user stopped the run. A test may hold it here as soon as operations count.
    pub(crate) fn is_stopped(&self) -> bool {
        if self.progress.counted() > 0 {
            hold::reached("operations", interrupt::stopped);
        }
        interrupt::stopped()
    }

    /// Ends a sample that the user stopped. Completed operations count. Waits for operations in flight for up
    /// to [`INTERRUPT_DRAIN_TIMEOUT`], because the corrupted buffers can be compared only after that.
    pub(crate) fn interrupt(&mut self) -> Result<(), CellError> {
        self.progress.end(self.timer.clock.now());
        self.progress.interrupted = true;
        let (polls, until) = (self.progress.polls, Instant::now() + INTERRUPT_DRAIN_TIMEOUT);
        while self.progress.in_flight() > 0 && Instant::now() < until {
            self.submit_pending()?;
            self.poll()?;
        }
        self.progress.polls = polls;
        Ok(())
    }

    /// Ends the sample: compares the buffers that were corrupted before it, and returns its counts.
    pub fn finish(&mut self) -> Result<Counts, CellError> {
        let Progress { first_timed, ended, completed_at_end, submitted, .. } = self.progress;
        // After an early stop, operations may still be in flight. In that case no bytes are compared.
        if self.progress.in_flight() == 0 {
            self.checks.end_sample(&self.places, submitted)?;
        }
        let (from, before) = first_timed.unwrap_or((ended, completed_at_end));
        Ok(Counts {
            ops: black_box(completed_at_end.saturating_sub(before)),
            span: (from, ended),
            all_ops: completed_at_end,
            polls: self.progress.polls,
            doorbells: self.channel.doorbells(),
            verified: self.checks.verified,
            interrupted: self.progress.interrupted,
        })
    }

    /// Returns true if each operation is one descriptor, in which only the addresses change.
    fn is_simple(&self) -> bool {
        let one_descriptor = self.places.pieces == 1 && !self.cell.op.has_lists() && self.cell.segments == 1;
        one_descriptor && !self.checks.compares_each
    }

    /// Does the same as [`burst`](Self::burst), as long as every doorbell is for all places, no doorbell is
    /// timed, and one poll reports all operations as done. Returns the number of polls. The general loop
    /// handles all other cases.
    fn fast_path(&mut self, polls: u32) -> Result<u32, CellError> {
        let all = self.places.ready.len();
        let waits = self.progress.in_flight() > 0 || self.progress.first_timed.is_none();
        let partial = self.cell.batch as usize != all || all > MAX_COMPLETIONS;
        if waits || partial || self.places.buffers.layout.rotates() {
            return Ok(0);
        }
        // The general loop rings the last doorbell, because it ends the sample.
        let left = (self.progress.left() / all as u64).saturating_sub(1);
        let most = u64::from(polls).min(self.timer.until_next).min(left);
        let keep = |completions: &[Completion]| self.checks.keep_results(completions);
        // SAFETY: the ready descriptors refer to the buffers of their places, which lie within the channel's
        // memory and do not overlap. No operation is in flight.
        let (whole, stopped) = unsafe { self.channel.run_whole_batches(&self.places.ready, most, keep) };
        let ops = whole * all as u64;
        self.progress.submitted += ops;
        self.progress.completed += ops;
        self.progress.polls += whole;
        self.timer.until_next -= whole;
        match stopped {
            Stopped::AllDone => return Ok(whole as u32),
            Stopped::Failed(error) => return Err(error),
            Stopped::PartlyTaken | Stopped::Polled(_) => {}
        }
        self.places.take_all();
        self.progress.submitted += all as u64;
        self.timer.until_next -= 1;
        match stopped {
            Stopped::Polled(n) => self.settle(n).map(|_| whole as u32 + 1),
            _ => Ok(whole as u32),
        }
    }

    /// Submits `count` operations and rings the doorbell for them. `due` is the scheduled time of the first
    /// operation; 0 means now.
    fn submit(&mut self, count: u32, simple: bool, due: u64) -> Result<(), CellError> {
        let stamp = self.timer.next_stamp(count, due);
        self.progress.submitted += u64::from(count);
        if !simple {
            return self.submit_composed(count, stamp, due);
        }
        // In the usual case the places are consecutive, and their descriptors are ready.
        if let Some(row) = self.places.take_row(count) {
            self.timer.stamp(row.clone(), stamp);
            // SAFETY: the descriptors refer to the buffers of places that were free. These buffers lie within
            // the channel's memory, and do not overlap the buffers of other places.
            return unsafe { self.channel.submit(&self.places.ready[row]) };
        }
        for _ in 0..count {
            let Some(place) = self.places.take() else { break };
            self.timer.stamp(place..place + 1, stamp);
            self.channel.pending.push(self.places.ready[place]);
        }
        self.submit_pending()
    }

    /// Submits `count` operations that have lists or several pieces or are compared on completion, and rings
    /// the doorbell for them.
    fn submit_composed(&mut self, count: u32, stamp: u64, due: u64) -> Result<(), CellError> {
        self.doorbell_places.clear();
        for _ in 0..count {
            let Some(place) = self.places.take() else { break };
            if self.checks.compares_each {
                self.places.buffers.corrupt(self.places.all[place].index)?;
            }
            self.doorbell_places.push(place);
        }
        // The time for corrupting the buffers must not count for an operation.
        let again = self.checks.compares_each && stamp != 0 && due == 0;
        let stamp = if again { self.timer.clock.now().max(1) } else { stamp };
        for at in 0..self.doorbell_places.len() {
            let place = self.doorbell_places[at];
            self.timer.stamp(place..place + 1, stamp);
            self.submit_pieces(place)?;
        }
        if self.channel.pending.is_empty() {
            self.channel.queue().flush();
        }
        self.submit_pending()
    }

    /// Builds the descriptors of an operation. Descriptors without lists become pending. Descriptors with
    /// lists are submitted at once.
    fn submit_pieces(&mut self, number: usize) -> Result<(), CellError> {
        let (op, max_piece, token) = (self.cell.op, self.places.max_piece, number as u64);
        let place = &self.places.all[number];
        if !op.has_lists() && op != Op::Copy {
            self.channel.pending.push(place.descriptor(op, token));
            return Ok(());
        }
        for piece in 0..self.places.pieces {
            let at = piece * max_piece;
            let cut = |whole: Segment| Segment {
                addr: whole.addr.offset(at),
                len: max_piece.min(whole.len - at),
                ..whole
            };
            let dst = [cut(place.dst)];
            let descriptor = match op {
                Op::Copy => {
                    self.channel.pending.push(Descriptor::copy(token, cut(place.src), dst[0]));
                    continue;
                }
                Op::Fill => Descriptor::fill(token, PATTERN, &dst),
                Op::CopyToBoth => Descriptor::copy_to_both(token, place.src, &place.both),
                _ => Descriptor::copy_lists(token, &place.lists.0, &place.lists.1),
            };
            // SAFETY: the lists refer to parts of the buffer of a place that was free. The parts lie within
            // the channel's memory, and overlap neither each other nor the buffers of other places.
            unsafe { self.channel.submit_one(descriptor) }?;
        }
        Ok(())
    }

    /// Submits pending descriptors, as far as the queue has room.
    #[inline]
    fn submit_pending(&mut self) -> Result<(), CellError> {
        if self.channel.pending.is_empty() {
            return Ok(());
        }
        // SAFETY: pending descriptors refer to the buffers of places that were free when the descriptors were
        // built. These buffers lie within the channel's memory, and do not overlap the buffers of other
        // places.
        unsafe { self.channel.submit_pending() }
    }

    /// Polls the queue once. Returns true when all operations of the sample have completed.
    fn poll(&mut self) -> Result<bool, CellError> {
        let n = self.channel.poll();
        self.settle(n)
    }

    /// Processes the first `n` completions of the last poll. Returns true when all operations of the sample
    /// have completed.
    fn settle(&mut self, n: usize) -> Result<bool, CellError> {
        self.progress.count_poll(n);
        self.channel.count_completed(n);
        if n == 0 {
            self.progress.check_stall(self.timer.clock.is_virtual())?;
            return Ok(false);
        }
        let completions = &self.channel.completions[..n];
        self.checks.keep_results(completions);
        match consecutive(completions, self.places.len()) {
            Some(row)
                if self.places.pieces == 1
                    && !self.checks.compares_each
                    && self.places.are_in_flight(&row)
                    && self
                        .timer
                        .record_together(row.start as usize..row.end as usize, self.progress.is_warm()) =>
            {
                self.places.put(row);
                self.progress.completed += n as u64;
            }
            _ => self.complete_each(n)?,
        }
        if self.progress.completed > self.progress.submitted {
            return Err(CellError::Failed("more completions than operations".to_owned()));
        }
        if self.progress.first_timed.is_none() && self.progress.is_warm() {
            self.progress.first_timed = Some((self.timer.clock.now(), self.progress.completed));
        }
        Ok(self.progress.completed >= self.progress.total())
    }

    /// Handles completions in any order. Each completion may be timed, belong to one of several pieces, or
    /// require a comparison.
    fn complete_each(&mut self, n: usize) -> Result<(), CellError> {
        let now = if self.timer.in_flight > 0 { self.timer.clock.now() } else { 0 };
        for at in 0..n {
            let completion = self.channel.completions[at];
            if completion.outcome != Outcome::Done {
                return Err(self.failure(&completion));
            }
            let number = completion.token as usize;
            let Some(place) = self.places.all.get_mut(number) else {
                return Err(CellError::Failed(format!(
                    "a completion with the unknown token {}",
                    completion.token
                )));
            };
            if !self.places.in_flight[number] {
                return Err(CellError::Failed(format!(
                    "a completion with the token {}, which no operation in flight has",
                    completion.token
                )));
            }
            if self.places.pieces > 1 {
                place.pieces_left = place.pieces_left.saturating_sub(1);
                if place.pieces_left > 0 {
                    continue;
                }
            }
            self.timer.record_one(number, now, self.progress.is_warm());
            if self.checks.compares_each {
                self.checks.verified += 1;
                self.places.buffers.compare(place.index, completion.result)?;
            }
            self.places.put(number as u32..number as u32 + 1);
            self.progress.completed += 1;
        }
        Ok(())
    }

    #[cold]
    fn failure(&mut self, completion: &Completion) -> CellError {
        let native = (completion.native != 0).then(|| self.channel.queue().explain(completion.native));
        let native = native.map(|n| format!(" ({n})")).unwrap_or_default();
        let what = match completion.outcome {
            Outcome::Failed(kind) => kind.as_str(),
            _ => ErrorKind::Aborted.as_str(),
        };
        let completed = self.progress.all_completed();
        CellError::Failed(format!("an operation failed: {what}{native}, after {completed} on this queue"))
    }

    /// Returns the latencies since [`clear_latency`](Self::clear_latency), in nanoseconds: from an
    /// operation's submission, or its scheduled time, to its completion.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.timer.histogram
    }

    /// Returns true if the queue is timed by a simulated device's virtual clock.
    pub fn virtual_clock(&self) -> bool {
        self.timer.clock.is_virtual()
    }

    /// Returns the start of the sample, in nanoseconds on the contender's clock.
    pub fn started_at(&self) -> u64 {
        self.progress.started
    }

    /// Returns the end of the sample, in nanoseconds on the contender's clock.
    pub fn ended_at(&self) -> u64 {
        self.progress.ended
    }

    /// Returns the ends of the samples at a rate.
    pub fn sample_ends(&self) -> &[SampleEnd] {
        &self.progress.sample_ends
    }

    #[cfg(test)]
    pub(crate) fn engine_id(&self) -> dma::EngineId {
        self.channel.queue.as_ref().expect("it is open").engine_id()
    }

    /// Returns the number of operations that have completed on this queue.
    #[cfg(test)]
    pub(crate) fn all_completed(&self) -> u64 {
        self.progress.all_completed()
    }
}
