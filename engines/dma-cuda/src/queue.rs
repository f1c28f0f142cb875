//! [`CudaQueue`]: executes descriptors as copies and fills of one stream.
//!
//! Copies are collected until the doorbell, and then submitted together, in the way that [`Ways`] chooses. An
//! event that is recorded after the copies shows when they have ended. A stream keeps order between calls and
//! launches, but not within one, so a fence begins a new one.
//!
//! [`Ways`]: crate::pieces::Ways
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use crate::calls::{between, copy};
use crate::driver::{Driver, Handle};
use crate::error;
use crate::event::Signal;
use crate::fill::fill;
use crate::options::Pieces;
use crate::pending::Pending;
use crate::pieces::{Decision, Table, Trial, Way, Ways, entries_of};
use crate::stream::{self, Stream};
use crate::timings::{EventPair, Timings};
use crate::tokens::Tokens;
use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result, Segment,
};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Length of the ring of tables, as a multiple of the number of copies that the queue collects.
const TABLE_SHARE: usize = 4;

/// Consecutive descriptors that end together, with the same result.
#[derive(Clone, Copy, Debug)]
struct Group {
    number: usize,
    /// The event that was recorded after these descriptors.
    event: Handle,
    /// The driver's error code if it refused these descriptors; 0 if it accepted them.
    code: c_int,
    /// True if a function was queued after the event. This function runs only after the event has happened.
    signals: bool,
    /// Number of entries of the table that the kernels of these descriptors read.
    entries: usize,
}

/// A queue of a CUDA device.
#[derive(Debug)]
pub(crate) struct CudaQueue {
    engine: EngineId,
    stream: Arc<Stream>,
    ways: Arc<Ways>,
    depth: usize,
    /// Tokens of unreported descriptors: first those of the groups, then the `submitted` ones, then the
    /// pending ones.
    tokens: Tokens,
    groups: VecDeque<Group>,
    /// Number of descriptors that were submitted to the driver since the last recorded event.
    submitted: usize,
    /// Copies for the next call.
    pending: Pending,
    /// The tables that kernels read. `None` without the kernel.
    table: Option<Table>,
    /// Number of entries of the table that were submitted since the last recorded event.
    entries: usize,
    timings: Timings,
    /// Unused events.
    events: Vec<Handle>,
    signal: Option<Signal>,
    /// True if the next completion must signal the owner, and the signal is not queued yet.
    armed: bool,
    /// The result that ended the context.
    lost: Option<c_int>,
    stopped: bool,
    doorbells: u64,
}

impl CudaQueue {
    pub(crate) fn open(ways: &Arc<Ways>, engine: EngineId, depth: usize) -> Result<Self> {
        let device = &ways.device;
        let stream = Arc::new(Stream::new(device)?);
        let pending = Pending::new(depth);
        let may_launch = matches!(ways.wanted(), Pieces::Auto | Pieces::Kernel);
        let table = match may_launch.then(|| ways.kernel()).transpose() {
            Ok(None) => None,
            Ok(Some(_)) => Table::new(device, TABLE_SHARE * pending.len_max()),
            Err(error) => {
                let (device, why) = (device.name.clone(), error.to_string());
                dma_core::deferred_log!(
                    debug,
                    device,
                    error = why,
                    "many copies are not submitted by a kernel"
                );
                None
            }
        };
        Ok(Self {
            engine,
            stream,
            ways: Arc::clone(ways),
            depth,
            tokens: Tokens::new(depth),
            groups: VecDeque::with_capacity(depth),
            submitted: 0,
            pending,
            table,
            entries: 0,
            timings: Timings::new(),
            events: Vec::with_capacity(depth),
            signal: None,
            armed: false,
            lost: None,
            stopped: false,
            doorbells: 0,
        })
    }

    pub(crate) const fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Adds the unfenced copies at the start of `batch` to the next call, at most up to the end of the token
    /// array. Returns the number of copies added.
    #[inline]
    fn push_copies(&mut self, batch: &[Descriptor<'_>]) -> usize {
        let Pending { number, tokens, bytes, places, dsts, srcs, lens, .. } = &mut self.pending;
        let free = dsts[*number..].iter_mut().zip(&mut srcs[*number..]).zip(&mut lens[*number..]);
        let entries = self.tokens.free().iter_mut().zip(free);
        let (mut pushed, mut added, mut reached) = (0, 0, *places);
        for (descriptor, (token, ((to, from), len))) in batch.iter().zip(entries) {
            let Some((src, dst)) = descriptor.as_unfenced_copy() else { break };
            *token = descriptor.token();
            (*to, *from, *len) = (dst.addr.0, src.addr.0, dst.len);
            reached.add(src.key, dst.key);
            added += dst.len;
            pushed += 1;
        }
        (*number, *tokens, *bytes, *places) = (*number + pushed, *tokens + pushed, *bytes + added, reached);
        self.tokens.number += pushed;
        pushed
    }

    /// Submits pending copies to the driver.
    fn issue(&mut self) {
        if self.pending.number == 0 {
            return;
        }
        let ways = Arc::clone(&self.ways);
        let Decision { way, trial } = ways.choose(self.pending.load());
        let (mut taken, mut outcome) = (0, None);
        if way == Way::Kernel {
            outcome = self.launch(&ways, trial);
            taken = if outcome == Some(Ok(())) { self.pending.number } else { 0 };
        }
        // Without room in the table, the driver copies.
        let issued = match outcome {
            Some(issued) => issued,
            None => self.copy(&ways, way, trial, &mut taken),
        };
        let tokens = self.pending.tokens;
        let accepted = if taken == self.pending.number { tokens } else { self.pending.tokens_of(taken) };
        self.pending.clear();
        self.submitted += accepted;
        if let Err(code) = issued {
            self.refused(tokens - accepted, code);
        }
    }

    /// Makes the driver copy the pending copies. Adds the number of accepted copies to `taken`.
    fn copy(&mut self, ways: &Ways, way: Way, trial: Option<Trial>, taken: &mut usize) -> Result<(), c_int> {
        // A load that does not take the way of its trial has no time to report.
        let trial = if way == Way::Kernel { self.untimed(ways, trial) } else { trial };
        let timed = self.begin_timing(ways, trial);
        let Pending { number, dsts, srcs, lens, .. } = &mut self.pending;
        let (dsts, srcs, lens) = (&mut dsts[..*number], &mut srcs[..*number], &mut lens[..*number]);
        let (stream, is_batch) = (self.stream.handle, way != Way::Loop);
        let mut is_recorded = false;
        let issued = ways.device.call(|driver| {
            // SAFETY: the arrays have the same length, which is not 0. The caller of `submit` ensures that
            // both sides of each copy are memory that the device reaches. `call` makes the context of the
            // stream current.
            let copies = || unsafe { copy(driver, dsts, srcs, lens, stream, is_batch, taken) };
            // SAFETY: the events and the stream belong to this device and exist.
            unsafe { between(driver, timed.map(|(pair, _)| pair), stream, &mut is_recorded, copies) }
        });
        self.end_timing(ways, timed, is_recorded);
        issued
    }

    /// Launches the kernel for the pending copies. Returns `None` if the table has no room.
    fn launch(&mut self, ways: &Ways, trial: Option<Trial>) -> Option<Result<(), c_int>> {
        let (kernel, table) = (*ways.compiled()?, self.table.as_mut()?);
        let Pending { number, dsts, srcs, lens, .. } = &self.pending;
        let entries = lens[..*number].iter().map(|len| entries_of(*len)).sum();
        let (first, reserved) = table.reserve(entries)?;
        let pieces = dsts.iter().zip(srcs).zip(lens).take(*number);
        let entry = table.fill(first, pieces.map(|((dst, src), len)| (*dst, *src, *len)));
        let timed = self.begin_timing(ways, trial);
        let (stream, blocks) = (self.stream.handle, ways.blocks());
        let mut is_recorded = false;
        let launched = ways.device.call(|driver| {
            // SAFETY: the entries are in pinned memory, and are freed only after an event behind the launch
            // has happened. The caller of `submit` ensures that the device reaches both sides of each copy,
            // and `choose` that its kernels do. `call` makes the context of the stream current.
            let launch = || unsafe { kernel.launch(driver, entry, entries as u32, blocks, stream) };
            // SAFETY: the events and the stream belong to this device and exist.
            unsafe { between(driver, timed.map(|(pair, _)| pair), stream, &mut is_recorded, launch) }
        });
        self.end_timing(ways, timed, is_recorded);
        match launched {
            Ok(()) => self.entries += reserved,
            // The driver has refused the launch, so no kernel reads the entries.
            Err(_) => {
                if let Some(table) = &mut self.table {
                    table.cancel(reserved);
                }
            }
        }
        Some(launched)
    }

    fn begin_timing(&mut self, ways: &Ways, trial: Option<Trial>) -> Option<(EventPair, Trial)> {
        let trial = trial?;
        match self.timings.begin(&ways.device) {
            Some(pair) => Some((pair, trial)),
            None => {
                self.untimed(ways, Some(trial));
                None
            }
        }
    }

    /// Ends a trial without a time.
    #[cold]
    fn untimed(&self, ways: &Ways, trial: Option<Trial>) -> Option<Trial> {
        if let Some(trial) = trial {
            ways.learn(trial, 0);
        }
        None
    }

    fn end_timing(&mut self, ways: &Ways, timed: Option<(EventPair, Trial)>, is_recorded: bool) {
        match timed {
            Some((pair, trial)) if is_recorded => self.timings.run(pair, trial),
            Some((pair, trial)) => {
                self.timings.cancel(pair);
                self.untimed(ways, Some(trial));
            }
            None => {}
        }
    }

    /// Ends `number` descriptors that the driver refused.
    ///
    /// A refused call may have executed some of its copies. Therefore its descriptors are reported only after
    /// an event that is recorded now has happened.
    #[cold]
    fn refused(&mut self, number: usize, code: c_int) {
        self.close_group(0);
        self.submitted += number;
        self.close_group(code);
    }

    /// Records an event after all descriptors that were submitted to the driver. They end with the result
    /// `code`.
    fn close_group(&mut self, code: c_int) {
        if self.submitted == 0 || self.lost.is_some() {
            return;
        }
        let recorded = match self.events.pop() {
            Some(event) => Ok(event),
            None => stream::event(&self.stream.device),
        }
        .and_then(|event| {
            // SAFETY: the event and the stream belong to this device and exist.
            let record = |driver: &Driver| unsafe { (driver.cuEventRecord)(event, self.stream.handle) };
            self.stream.device.call(record).map(|()| event)
        });
        match recorded {
            Ok(event) => {
                let entries = std::mem::take(&mut self.entries);
                self.groups.push_back(Group { number: self.submitted, event, code, signals: false, entries });
                self.submitted = 0;
                if self.armed {
                    self.signal_first();
                }
            }
            // Without an event, the end of these descriptors cannot be observed.
            Err(code) => self.lose(code),
        }
    }

    /// Marks the context as lost. Descriptors in flight are never reported, because the device may still
    /// access their memory.
    #[cold]
    fn lose(&mut self, code: c_int) {
        if self.lost.is_none() {
            let device = &self.stream.device;
            let why = crate::device::explain(&device.driver, code);
            let (device, in_flight) = (device.name.clone(), self.tokens.number);
            dma_core::deferred_log!(error, device, %why, in_flight, "a CUDA context is lost");
            self.lost = Some(code);
            if let Some(signal) = &self.signal {
                signal.set();
            }
        }
    }

    /// Submits fills of all segments of a list.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn fill(&self, pattern: [u8; 8], list: &[Segment]) -> Result<(), c_int> {
        let mut answer = Ok(());
        let called = self.stream.device.call(|driver| {
            let mut phase = 0;
            for segment in list {
                // SAFETY: `call` makes the context of the stream current. The caller of `submit` ensures that
                // the device reaches the segment, and that no other code accesses it until the completion.
                answer =
                    unsafe { fill(driver, segment.addr.0, segment.len, pattern, phase, self.stream.handle) };
                if answer.is_err() {
                    break;
                }
                phase = (phase + segment.len) % 8;
            }
            0
        });
        called.and(answer)
    }

    /// Writes ended descriptors to the front of `completions`.
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let mut reported = 0;
        while reported < completions.len() && self.lost.is_none() {
            let Some(Group { number, event, code, entries, .. }) = self.groups.front_mut() else { break };
            // SAFETY: the event belongs to this device and exists.
            match self.stream.device.call(|driver| unsafe { (driver.cuEventQuery)(*event) }) {
                Ok(()) => {}
                Err(error::NOT_READY) => break,
                Err(code) => {
                    self.lose(code);
                    break;
                }
            }
            let most = (*number).min(completions.len() - reported);
            let code = *code;
            let outcome = if code == 0 { Outcome::Done } else { Outcome::Failed(error::kind(code)) };
            let mut left = &mut completions[reported..reported + most];
            while !left.is_empty() {
                // The loop runs twice if the range passes the end of the array.
                let tokens = self.tokens.first(left.len());
                let (now, later) = left.split_at_mut(tokens.len());
                for (completion, token) in now.iter_mut().zip(tokens) {
                    *completion = Completion::ended(*token, outcome, code);
                }
                self.tokens.remove_first(now.len());
                left = later;
            }
            reported += most;
            *number -= most;
            if *number == 0 {
                self.events.push(*event);
                if let (Some(table), entries @ 1..) = (&mut self.table, *entries) {
                    table.free(entries);
                }
                self.timings.report(&self.ways);
                self.groups.pop_front();
            }
        }
        reported
    }

    /// Reports the descriptors that were never passed to the driver as aborted, once all earlier ones are
    /// reported or the context is lost.
    #[cold]
    fn report_unissued(&mut self, completions: &mut [Completion]) -> usize {
        let had: usize = self.groups.iter().map(|group| group.number).sum::<usize>() + self.submitted;
        if had > 0 && self.lost.is_none() {
            return 0;
        }
        let most = (self.tokens.number - had).min(completions.len());
        for (at, completion) in (had..).zip(&mut completions[..most]) {
            let token = self.tokens.get(at);
            *completion = Completion::ended(token, Outcome::Aborted, 0);
        }
        self.tokens.remove(had, most);
        most
    }

    /// Queues the signal of the first transfers in flight.
    fn signal_first(&mut self) {
        let (Some(signal), Some(group)) = (&self.signal, self.groups.front_mut()) else { return };
        self.armed = false;
        if group.signals {
            return;
        }
        match signal.signal_after(group.event) {
            Ok(()) => group.signals = true,
            Err(code) => {
                // The signal wakes the owner, whose poll finds the failure.
                dma_core::deferred_log!(debug, code, "the driver refuses to queue a host function");
                signal.set();
            }
        }
    }

    fn lost_error(&self, code: c_int) -> Error {
        self.stream.device.failed("the device's context is lost", code)
    }
}

// SAFETY: descriptors are reported in order, each once: after an event that was recorded after them has
// happened, or if the driver never had them. After such an event the device no longer accesses their memory,
// and its writes are visible. Descriptors in flight when the context is lost are never reported.
unsafe impl RawQueue for CudaQueue {
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
        if let Some(code) = self.lost {
            return Err(self.lost_error(code));
        }
        let batch = &batch[..batch.len().min(self.depth - self.tokens.number)];
        let mut at = 0;
        loop {
            at += self.push_copies(&batch[at..]);
            let Some(descriptor) = batch.get(at) else { return Ok(at) };
            if descriptor.as_unfenced_copy().is_some() {
                // The token ring wraps at the end of its array, or the pending copies fill theirs.
                if self.pending.number == self.pending.len_max() {
                    self.issue();
                }
                continue;
            }
            if let Operation::CopyLists { src, dst } = descriptor.operation() {
                if descriptor.fence() || !self.pending.is_room_for(src, dst) {
                    self.issue();
                }
                self.tokens.push(descriptor.token());
                self.pending.push_lists(src, dst);
                at += 1;
                continue;
            }
            // Calls are executed in order, but copies of one call are not.
            self.issue();
            match descriptor.operation() {
                Operation::Copy { .. } => _ = self.push_copies(&[descriptor.with_fence(false)]),
                Operation::Fill { pattern, dst } => {
                    self.tokens.push(descriptor.token());
                    // SAFETY: the caller meets the requirements of this function for the descriptor.
                    match unsafe { self.fill(pattern, dst) } {
                        Ok(()) => self.submitted += 1,
                        Err(code) => self.refused(1, code),
                    }
                }
                _ if at == 0 => {
                    return Err(error::error(
                        ErrorKind::Unsupported,
                        "an operation that the engine does not declare",
                    ));
                }
                _ => return Ok(at),
            }
            at += 1;
        }
    }

    fn flush(&mut self) {
        if self.stopped || self.lost.is_some() || (self.pending.number == 0 && self.submitted == 0) {
            return;
        }
        self.doorbells += 1;
        self.issue();
        self.close_group(0);
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let reported = self.report(completions);
        if self.stopped || self.lost.is_some() {
            return reported + self.report_unissued(&mut completions[reported..]);
        }
        reported
    }

    fn explain(&self, native: i32) -> NativeError {
        crate::device::explain(&self.stream.device.driver, native)
    }

    fn stop(&mut self) {
        if !self.stopped {
            // The driver cannot cancel work: descriptors in flight end by themselves.
            self.close_group(0);
            self.pending.clear();
            self.stopped = true;
            if let Some(signal) = &self.signal {
                signal.set();
            }
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }

    fn lost(&self) -> Option<Error> {
        self.lost.map(|code| self.lost_error(code))
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        if self.signal.is_none() {
            self.stream.device.driver.cuLaunchHostFunc?;
            match Stream::new(&self.stream.device).and_then(Signal::new) {
                Ok(signal) => self.signal = Some(signal),
                Err(error) => {
                    dma_core::deferred_log!(warn, %error, "a queue cannot signal its completions, so its users have to poll");
                }
            }
        }
        self.signal.is_some().then_some(self as &mut dyn QueueEvents)
    }
}

impl QueueEvents for CudaQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.signal.as_ref().map(Signal::fd).expect("`events` made it"))
    }

    fn arm(&mut self) -> Result<bool> {
        if self.stopped || self.lost.is_some() {
            return Ok(false);
        }
        self.armed = true;
        let Some(group) = self.groups.front() else { return Ok(true) };
        // SAFETY: the event belongs to this device and exists.
        match self.stream.device.call(|driver| unsafe { (driver.cuEventQuery)(group.event) }) {
            Err(error::NOT_READY) => {
                self.signal_first();
                Ok(true)
            }
            // The work has ended, or the next poll reports the failure.
            _ => {
                self.armed = false;
                Ok(false)
            }
        }
    }

    fn disarm(&mut self) {
        self.armed = false;
        if let Some(signal) = &self.signal {
            signal.clear();
        }
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if !self.groups.is_empty() || self.submitted > 0 {
            // Leaks the stream, the kernel, the tables and the events, because transfers in flight continue.
            std::mem::forget((Arc::clone(&self.stream), Arc::clone(&self.ways), self.table.take()));
            self.timings.abandon(&self.ways);
            return;
        }
        self.timings.close(&self.ways);
        for event in self.events.drain(..) {
            stream::destroy(&self.stream.device, event);
        }
    }
}
