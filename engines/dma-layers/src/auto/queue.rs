//! [`AutoQueue`]: a queue of each member.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result,
};

use super::cpu_times::CpuTimes;
use super::device::{DeviceQueue, Repeat};
use super::fast::Fast;
use super::learner::{Class, Learner, Member};
use super::report::Counts;
use super::{Prefer, Shared};

/// Most copies that go to the CPU without a question to the learner.
const CREDIT: u32 = 4096;
/// The same, of memory that the device does not reach.
const CREDIT_UNREACHED: u32 = 256;

#[derive(Debug)]
pub(super) struct AutoQueue {
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    cpu: Box<dyn RawQueue>,
    device: DeviceQueue,
    depth: usize,
    /// Descriptors in flight on the CPU's queue. They have the caller's tokens.
    on_cpu: usize,
    learner: Learner,
    fast: Fast,
    /// Descriptors that are not on the CPU's queue: see [`count_elsewhere`](Self::count_elsewhere).
    elsewhere: usize,
    watched: CpuTimes,
    repeats: VecDeque<Repeat>,
    /// Ended without a member: repeats of a queue that was stopped.
    ended: VecDeque<Completion>,
    /// The device is polled first, at every second poll.
    device_first: bool,
    stopped: bool,
    armed: bool,
}

impl AutoQueue {
    pub(super) fn new(shared: &Arc<Shared>, cpu: Box<dyn RawQueue>, device: DeviceQueue) -> Self {
        Self {
            counts: shared.ledger.open(),
            shared: Arc::clone(shared),
            depth: cpu.depth(),
            cpu,
            on_cpu: 0,
            learner: Learner::new(),
            fast: Fast::new(Class::new(0, 0), 0),
            elsewhere: 0,
            watched: CpuTimes::new(),
            repeats: VecDeque::with_capacity(device.depth()),
            device,
            ended: VecDeque::new(),
            device_first: false,
            stopped: false,
            armed: false,
        }
    }

    /// Counts the descriptors that are not on the CPU's queue, after a call that may have changed that.
    fn count_elsewhere(&mut self) {
        self.elsewhere = self.device.in_flight() + self.repeats.len() + self.ended.len();
    }

    /// # Safety
    ///
    /// As [`RawQueue::submit`].
    #[inline]
    unsafe fn submit_cpu(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        // SAFETY: the caller's promise; regions, limits and capabilities are the CPU's.
        let submitted = unsafe { self.cpu.submit(batch) };
        if !matches!(submitted, Ok(taken) if taken == batch.len()) {
            // Those that are timed may be among the others.
            self.watched.clear();
        }
        let taken = submitted?;
        self.on_cpu += taken;
        self.counts.took(Member::Cpu, taken);
        Ok(taken)
    }

    /// # Safety
    ///
    /// As [`RawQueue::submit`].
    #[inline(never)]
    unsafe fn submit_slowly(&mut self, batch: &[Descriptor<'_>], in_flight: usize) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if batch.is_empty() {
            return Ok(0);
        }
        if self.device.is_used() {
            // SAFETY: the caller's promise.
            return unsafe { self.share(batch, in_flight) };
        }
        self.device.look_again(&self.counts);
        // SAFETY: the caller's promise.
        unsafe { self.submit_cpu(batch) }
    }

    /// Gives each descriptor to one member.
    ///
    /// # Safety
    ///
    /// As [`RawQueue::submit`].
    unsafe fn share(&mut self, batch: &[Descriptor<'_>], in_flight: usize) -> Result<usize> {
        self.learner.give_credit(self.fast.class, std::mem::take(&mut self.fast.credit));
        let all = Class::new(in_flight + batch.len(), batch[0].len());
        let (mut settled, mut unreached) = (true, false);
        let mut now = None;
        // All before it are with a member; those from it on are the CPU's, unless the device takes one.
        let mut first = 0;
        for (at, descriptor) in batch.iter().enumerate() {
            let Operation::Copy { src, dst } = descriptor.operation() else {
                settled = false;
                continue;
            };
            let class = Class::new(in_flight + batch.len(), src.len);
            let (member, timed) = match self.shared.options.prefer {
                Prefer::Device => (Member::Device, false),
                Prefer::Measured => self.learner.choose(class),
            };
            settled &= class == all && !timed && member == Member::Cpu;
            if member == Member::Cpu {
                let timed = timed.then(|| (class, *now.get_or_insert_with(Instant::now)));
                self.watched.push(descriptor.token(), src.len, timed);
                continue;
            }
            // In this order: once the device has a descriptor, all before it have been taken.
            // SAFETY: the caller's promise.
            first += match unsafe { self.submit_cpu(&batch[first..at]) } {
                Ok(taken) if taken == at - first => taken,
                short => return self.taken(first, short),
            };
            if self.device.is_pending_full() {
                self.submit_device();
            }
            let copy = Repeat { token: descriptor.token(), src, dst };
            let now = *now.get_or_insert_with(Instant::now);
            // SAFETY: the caller's promise.
            if self.device.is_used() && unsafe { self.device.take(copy, class, now) } {
                first += 1;
            } else {
                unreached = true;
            }
        }
        self.watched.forget_unless_timed();
        // SAFETY: the caller's promise.
        let rest = unsafe { self.submit_cpu(&batch[first..]) };
        if settled {
            self.fast = Fast::new(all, self.learner.take_credit(all, CREDIT));
        } else if unreached && self.device.in_flight() == 0 {
            self.fast = Fast::new(all, CREDIT_UNREACHED);
        }
        self.taken(first, rest)
    }

    /// Ends a submission of which `first` descriptors and then `rest` were taken.
    fn taken(&mut self, first: usize, rest: Result<usize>) -> Result<usize> {
        self.submit_device();
        if !self.repeats.is_empty() {
            self.repeat();
        }
        self.count_elsewhere();
        // A refusal behind others is returned when that descriptor comes again, as the first.
        if first > 0 { Ok(first + rest.unwrap_or(0)) } else { rest }
    }

    fn submit_device(&mut self) {
        self.device.submit(&mut self.repeats, &mut self.learner, &self.counts);
    }

    /// Hands to the CPU what the device did not do.
    fn repeat(&mut self) {
        while let Some(Repeat { token, src, dst }) = self.repeats.front().copied() {
            if self.stopped {
                self.ended.push_back(Completion::ended(token, Outcome::Aborted, 0));
            } else {
                // SAFETY: `submit`'s caller promised it until the completion, which was not reported. The
                // device has ended the copy.
                match unsafe { self.submit_cpu(&[Descriptor::copy(token, src, dst)]) } {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) => {
                        let outcome = Outcome::Failed(error.kind());
                        self.ended.push_back(Completion::ended(token, outcome, 0));
                    }
                }
            }
            self.repeats.pop_front();
        }
    }

    fn poll_cpu(&mut self, completions: &mut [Completion]) -> usize {
        if completions.is_empty() {
            return 0;
        }
        let n = self.cpu.poll(completions);
        self.on_cpu -= n;
        if n > 0 && !self.watched.is_empty() {
            self.watched.take(&completions[..n], &mut self.learner);
        }
        n
    }

    fn poll_device(&mut self, completions: &mut [Completion]) -> usize {
        if self.device.in_flight() == 0 {
            return 0;
        }
        let (stopped, counts) = (self.stopped, &self.counts);
        self.device.poll(completions, stopped, &mut self.repeats, &mut self.learner, counts)
    }

    fn poll_all(&mut self, completions: &mut [Completion]) -> usize {
        let mut n = 0;
        self.device_first ^= true;
        if self.device_first {
            n += self.poll_device(completions);
        }
        if !self.repeats.is_empty() {
            self.repeat();
            self.cpu.flush();
        }
        n += self.poll_cpu(&mut completions[n..]);
        if !self.device_first {
            n += self.poll_device(&mut completions[n..]);
        }
        while n < completions.len()
            && let Some(ended) = self.ended.pop_front()
        {
            completions[n] = ended;
            n += 1;
        }
        self.count_elsewhere();
        n
    }
}

// SAFETY: every descriptor that was taken is with one member's queue, or in `repeats` or `ended`, once. It is
// repeated only when the device has reported it, after which the device does not access its memory. A
// descriptor that the device never reports is never reported here either. The members' queues keep the rest
// of the promises.
unsafe impl RawQueue for AutoQueue {
    fn engine_id(&self) -> EngineId {
        self.shared.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        let in_flight = self.on_cpu + self.elsewhere;
        let batch = &batch[..batch.len().min(self.depth - in_flight)];
        if self.fast.takes(in_flight, batch) {
            // SAFETY: the caller's promise.
            return unsafe { self.submit_cpu(batch) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.submit_slowly(batch, in_flight) }
    }

    #[inline]
    fn flush(&mut self) {
        self.device.flush(self.armed);
        self.cpu.flush();
    }

    #[inline]
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.elsewhere == 0 && self.watched.is_empty() {
            let n = self.cpu.poll(completions);
            self.on_cpu -= n;
            return n;
        }
        self.poll_all(completions)
    }

    fn explain(&self, native: i32) -> NativeError {
        // The device's failures are not reported.
        self.cpu.explain(native)
    }

    fn stop(&mut self) {
        (self.stopped, self.fast.credit) = (true, 0);
        self.cpu.stop();
        self.device.stop();
        self.repeat();
        self.count_elsewhere();
    }

    fn stats(&self) -> QueueStats {
        let (cpu, device) = (self.cpu.stats(), self.device.stats());
        QueueStats::new(cpu.doorbells + device.doorbells, cpu.resets + device.resets)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        if self.device.events().is_some() { Some(self) } else { None }
    }
}

impl QueueEvents for AutoQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.device.events().expect("`events` returns a queue that has them").fd()
    }

    fn arm(&mut self) -> Result<bool> {
        self.fd()?;
        if !self.ended.is_empty() || !self.repeats.is_empty() {
            return Ok(false);
        }
        if let Some(cpu) = self.cpu.events()
            && !cpu.arm()?
        {
            return Ok(false);
        }
        let armed = self.device.arm();
        self.armed = matches!(armed, Ok(true));
        if !self.armed
            && let Some(cpu) = self.cpu.events()
        {
            cpu.disarm();
        }
        armed
    }

    fn disarm(&mut self) {
        self.armed = false;
        if let Some(cpu) = self.cpu.events() {
            cpu.disarm();
        }
        self.device.disarm();
    }
}

impl Drop for AutoQueue {
    fn drop(&mut self) {
        self.shared.ledger.close(&self.counts);
    }
}
