//! [`Player`]: makes the calls of one queue of a trace on a queue of another engine.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dma_core::{
    Capabilities, Completion, Descriptor, DmaEngine, Error, ErrorKind, Limits, Outcome, QueueOptions,
    RawQueue, Result, STOP_GRACE,
};

use super::clock::Clock;
use super::memory::{Check, ReplayMemory, Staging};
use super::options::ReplayOptions;
use super::result::Replayed;
use super::split::Pieces;
use super::tokens::Tokens;
use crate::record::{Events, QueueTrace, Span, Trace, TraceEvent};

/// Number of polls without a report before the thread yields.
const SPINS: u32 = 1000;

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Checks all bytes, without the program's pauses.
    Verify,
    /// Runs with the program's pauses.
    Recorded,
}

pub(super) struct Player<'a> {
    trace: QueueTrace,
    number: usize,
    events: Events<'a>,
    memory: &'a ReplayMemory,
    limits: Limits,
    fences: bool,
    cpu_copies: bool,
    pace: Pace,
    stall: Duration,
    /// `None` once the queue is closed or leaked.
    queue: Option<Box<dyn RawQueue>>,
    reports: Box<[Completion]>,
    pieces: Pieces,
    /// The vector of the last call's descriptors, reused for the next call.
    batch: Vec<Descriptor<'static>>,
    /// Number of pieces of each operation that is gathered for the next call.
    gathered: Vec<usize>,
    /// Operations that are in flight in the trace: first token and number of tokens.
    in_trace: VecDeque<(u64, usize)>,
    tokens: Tokens,
    operations: u64,
    clock: Clock,
    /// Reads and writes device memory in a run that checks bytes.
    staging: Option<Staging<'a>>,
    /// The error of a transfer of `staging`.
    unreadable: Option<Error>,
    /// The result so far, without the time.
    ran: Replayed,
}

impl<'a> Player<'a> {
    /// Opens a queue to replay queue `number` of the trace.
    pub(super) fn open(
        trace: &'a Trace,
        number: usize,
        engine: &Arc<dyn DmaEngine>,
        memory: &'a ReplayMemory,
        options: &ReplayOptions,
        pace: Pace,
    ) -> Result<Self> {
        let queue = trace.queues()[number];
        let depth = queue.depth.min(engine.info().limits.max_queue_depth);
        let wanted = QueueOptions::new().with_depth(depth).with_hint(queue.hint);
        let opened =
            engine.open_queue_raw(&wanted).map_err(|e| e.with_operation(format!("queue {number}")))?;
        let capabilities = engine.info().capabilities;
        Ok(Self {
            trace: queue,
            number,
            events: trace.events(number),
            memory,
            limits: engine.info().limits,
            fences: capabilities.contains(Capabilities::FENCE),
            cpu_copies: capabilities.contains(Capabilities::CPU_COPIES),
            pace,
            stall: options.stall,
            queue: Some(opened),
            reports: vec![Completion::done(0); 128].into(),
            pieces: Pieces::default(),
            batch: Vec::new(),
            gathered: Vec::new(),
            in_trace: VecDeque::with_capacity(queue.depth),
            tokens: Tokens::new(queue.depth),
            operations: 0,
            clock: Clock::new(pace == Pace::Recorded),
            staging: if pace == Pace::Verify { Staging::open(engine, memory)? } else { None },
            unreadable: None,
            ran: Replayed::default(),
        })
    }

    /// Makes all calls of the queue. Returns early if `stop` is set.
    pub(super) fn play(&mut self, stop: &AtomicBool) -> Result<Replayed> {
        let ended = self.calls(stop).and_then(|()| self.drain(stop));
        if ended.is_err() || stop.load(Ordering::Relaxed) {
            self.give_up();
        }
        self.ran.doorbells = self.queue.as_ref().map_or(0, |queue| queue.stats().doorbells);
        ended
            .and(self.unreadable.take().map_or(Ok(()), Err))
            .map_err(|e| e.with_operation(format!("queue {}", self.number)))?;
        Ok(std::mem::take(&mut self.ran))
    }

    fn calls(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut traced = self.trace.opened;
        self.clock.pass();
        while let Some(event) = self.events.next() {
            if stop.load(Ordering::Relaxed) || self.ran.mismatch.is_some() || self.unreadable.is_some() {
                return Ok(());
            }
            match event {
                TraceEvent::Submit { before, call, count } => {
                    traced += before + call;
                    for _ in 0..count {
                        self.gather(stop)?;
                    }
                    self.submit(before, stop)?;
                }
                TraceEvent::Flush { before, call } => {
                    traced += before + call;
                    self.clock.pause(before, stop);
                    self.queue().flush();
                    self.count();
                }
                TraceEvent::Poll { time } => {
                    traced += time;
                    self.clock.pause(time, stop);
                    self.poll();
                }
                TraceEvent::Ended { before, wait, count, older, .. } => {
                    traced += before + wait;
                    self.clock.pause(before, stop);
                    if self.tokens.in_flight > 0 && before + wait > Duration::ZERO {
                        self.poll();
                    }
                    let older = older as usize;
                    for _ in 0..count {
                        let (first, tokens) = self.in_trace.remove(older).expect("the trace was checked");
                        self.wait_for(first + tokens as u64, first, stop)?;
                    }
                }
                TraceEvent::Operation { .. } => unreachable!("operations are gathered with their call"),
            }
        }
        self.clock.pause(self.trace.closed.saturating_sub(traced), stop);
        Ok(())
    }

    fn queue(&mut self) -> &mut dyn RawQueue {
        &mut **self.queue.as_mut().expect("the queue is open until all calls are made")
    }

    /// Adds the time since the last call to the engine's time.
    fn count(&mut self) {
        let time = self.clock.pass();
        self.ran.cpu += time;
    }

    /// Gathers the next operation of a call.
    fn gather(&mut self, stop: &AtomicBool) -> Result<()> {
        let Some(TraceEvent::Operation { kind, mut fence, .. }) = self.events.next() else {
            unreachable!("the trace has all operations of a call");
        };
        // Destinations after a fence may be overwritten only once the operations before the fence have ended.
        if fence && (!self.fences || self.pace == Pace::Verify) {
            self.submit(Duration::ZERO, stop)?;
            self.drain(stop)?;
            fence = self.fences;
        }
        let before = self.pieces.len();
        if let (&[src], &[dst]) = (self.events.src(), self.events.dst()) {
            let (src, dst) = (self.memory.segment(&src), self.memory.segment(&dst));
            self.pieces.add(kind, fence, &[src], &[dst], &self.limits);
        } else {
            let place =
                |spans: &[Span]| spans.iter().map(|span| self.memory.segment(span)).collect::<Vec<_>>();
            let (src, dst) = (place(self.events.src()), place(self.events.dst()));
            self.pieces.add(kind, fence, &src, &dst, &self.limits);
        }
        self.gathered.push(self.pieces.len() - before);
        Ok(())
    }

    /// Waits for the program's own time, and submits the gathered operations, in one call if the queue has
    /// room.
    fn submit(&mut self, before: Duration, stop: &AtomicBool) -> Result<()> {
        let first = self.tokens.next();
        let mut token = first;
        for tokens in self.gathered.drain(..) {
            self.in_trace.push_back((token, tokens));
            token += tokens as u64;
        }
        let pieces = std::mem::take(&mut self.pieces);
        let byte = if self.pace == Pace::Verify { first as u8 | 1 } else { 0 };
        if self.pace == Pace::Verify {
            self.spoil(&pieces, byte);
        }
        let mut batch: Vec<Descriptor<'_>> = std::mem::take(&mut self.batch);
        pieces.descriptors(first, byte, &mut batch);
        self.tokens.add(batch.len());
        self.clock.pause(before, stop);
        let (mut rest, mut since) = (&batch[..], Instant::now());
        let mut outcome = Ok(());
        while !rest.is_empty() && !stop.load(Ordering::Relaxed) {
            // SAFETY: `Requirements` has checked that segments lie within the memory and that no operation
            // overlaps itself. The memory stays registered until the queue is closed, and its bytes have no
            // references. If operations in flight overlap, which a sound program does not submit, the bytes
            // are unspecified.
            match unsafe { self.queue().submit(rest) } {
                Ok(n) => {
                    self.tokens.in_flight += n;
                    self.ran.descriptors += n as u64;
                    rest = &rest[n..];
                    if n > 0 {
                        since = Instant::now();
                        continue;
                    }
                }
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
            self.count();
            self.queue().flush();
            if self.poll() == 0 && since.elapsed() > self.stall {
                outcome = Err(self.hangs());
                break;
            }
        }
        self.count();
        batch.clear();
        // Reuses the memory of the vector. The vector is empty, because its descriptors named lists that no
        // longer exist.
        self.batch = batch.into_iter().map(|_| unreachable!("it is empty")).collect();
        self.pieces = pieces;
        self.pieces.clear();
        outcome
    }

    fn spoil(&mut self, pieces: &Pieces, byte: u8) {
        for piece in 0..pieces.len() {
            let (kind, src, dst) = pieces.operands(piece);
            let check = Check { operation: self.operations, kind, src: src.into(), dst: dst.into(), byte };
            match &self.staging {
                None => check.spoil(),
                Some(staging) => {
                    let spoilt = staging.spoil(&check);
                    self.unreadable = self.unreadable.take().or(spoilt.err());
                }
            }
            self.tokens.add_check(check);
            self.operations += 1;
        }
    }

    /// Polls once. Returns the number of reports.
    fn poll(&mut self) -> usize {
        let Self { queue: Some(queue), reports, .. } = self else { return 0 };
        let n = queue.poll(reports);
        let time = self.clock.pass();
        self.ran.wait += time;
        if self.cpu_copies {
            self.ran.cpu += time;
        }
        for at in 0..n {
            let Completion { token, result, outcome, .. } = self.reports[at];
            let Some(check) = self.tokens.end(token) else { continue };
            if outcome != Outcome::Done {
                self.ran.failed += 1;
            } else if let Some(check) = check {
                let checked = match &self.staging {
                    None => Ok(check.mismatch(self.number, result)),
                    Some(staging) => staging.on_host(&check).map(|check| check.mismatch(self.number, result)),
                };
                match checked {
                    Ok(None) => self.ran.verified += 1,
                    Ok(wrong) => self.ran.mismatch = self.ran.mismatch.or(wrong),
                    Err(error) => self.unreadable = self.unreadable.take().or(Some(error)),
                }
            }
        }
        n
    }

    /// Waits until the submitted descriptors in `from..to` have ended.
    fn wait_for(&mut self, to: u64, from: u64, stop: &AtomicBool) -> Result<()> {
        let (mut since, mut polls) = (Instant::now(), 0_u32);
        let mut next = from.max(self.tokens.oldest().min(to));
        loop {
            let end = to.min(self.tokens.next());
            while next < end && !self.tokens.is_in_flight(next) {
                next += 1;
            }
            if next >= end || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if self.poll() > 0 {
                (since, polls) = (self.clock.now(), 0);
                continue;
            }
            polls = polls.wrapping_add(1);
            if polls == SPINS {
                // The program's doorbell was replayed. Pieces and operations that had to wait for room may
                // need another doorbell.
                self.queue().flush();
            }
            if polls > SPINS {
                std::thread::yield_now();
            }
            if self.clock.now() - since > self.stall {
                return Err(self.hangs());
            }
        }
    }

    /// Waits for the operations that the trace left in flight.
    fn drain(&mut self, stop: &AtomicBool) -> Result<()> {
        if self.tokens.in_flight > 0 {
            self.queue().flush();
        }
        self.wait_for(u64::MAX, 0, stop)
    }

    fn hangs(&self) -> Error {
        let message = format!(
            "none of {} descriptors completed within {} s",
            self.tokens.in_flight,
            self.stall.as_secs_f64()
        );
        Error::new(ErrorKind::TimedOut, message)
            .with_hint("allow more time if the engine is slow, or see what `dma-bench doctor` says of it")
    }

    /// Stops the queue. If the queue does not report all descriptors in flight, it is leaked.
    fn give_up(&mut self) {
        self.queue().stop();
        let since = Instant::now();
        while self.tokens.in_flight > 0 && since.elapsed() < STOP_GRACE {
            if self.poll() == 0 {
                std::thread::yield_now();
            }
        }
        if self.tokens.in_flight > 0 {
            // The device may still use the memory, so a clone of its windows is leaked.
            let _ = ManuallyDrop::new(self.queue.take());
            self.memory.leak();
        }
    }
}
