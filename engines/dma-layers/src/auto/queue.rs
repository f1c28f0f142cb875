//! [`AutoQueue`]: combines a queue of the CPU and a queue of the device.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result,
};

use super::cpu_streak::CpuStreak;
use super::cpu_times::CpuTimes;
use super::device::{DeviceQueue, Repeat};
use super::learner::{Class, Engine, Learner};
use super::options::Prefer;
use super::report::Counts;
use super::shared::AutoShared;

/// Maximum number of copies that go to the CPU without a call of the learner.
const MAX_STREAK: u32 = 4096;
/// Maximum number of such copies if the device cannot reach the memory.
const MAX_STREAK_UNREACHED: u32 = 256;

#[derive(Debug)]
pub(super) struct AutoQueue {
    shared: Arc<AutoShared>,
    counts: Arc<Counts>,
    cpu: Box<dyn RawQueue>,
    device: DeviceQueue,
    depth: usize,
    /// Number of descriptors in flight on the CPU's queue, which have the caller's tokens.
    on_cpu: usize,
    learner: Learner,
    streak: CpuStreak,
    /// Number of descriptors that are not on the CPU's queue: see [`count_off_cpu`](Self::count_off_cpu).
    off_cpu: usize,
    watched: CpuTimes,
    repeats: VecDeque<Repeat>,
    /// Completions of copies that were waiting to be repeated when the queue was stopped.
    ended: VecDeque<Completion>,
    /// True if the next poll polls the device before the CPU. The value alternates, so that neither engine's
    /// completions wait for the other's.
    device_first: bool,
    stopped: bool,
    armed: bool,
}

impl AutoQueue {
    pub(super) fn new(shared: &Arc<AutoShared>, cpu: Box<dyn RawQueue>, device: DeviceQueue) -> Self {
        Self {
            counts: shared.ledger.open(),
            shared: Arc::clone(shared),
            depth: if shared.gives_memory { cpu.depth().min(device.depth()) } else { cpu.depth() },
            cpu,
            on_cpu: 0,
            learner: Learner::new(),
            streak: CpuStreak::new(Class::new(0, 0), 0),
            off_cpu: 0,
            watched: CpuTimes::new(),
            repeats: VecDeque::with_capacity(device.depth()),
            device,
            ended: VecDeque::new(),
            device_first: false,
            stopped: false,
            armed: false,
        }
    }

    /// Updates `off_cpu` after a call that may have changed the number of descriptors outside of the CPU's
    /// queue.
    fn count_off_cpu(&mut self) {
        self.off_cpu = self.device.in_flight() + self.repeats.len() + self.ended.len();
    }

    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    #[inline]
    unsafe fn submit_cpu(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        // SAFETY: the caller promises valid descriptors of this engine. The descriptors have the CPU's keys,
        // and this engine's limits and capabilities do not exceed the CPU's.
        let submitted = unsafe { self.cpu.submit(batch) };
        if !matches!(submitted, Ok(taken) if taken == batch.len()) {
            // No copy is watched any more, because some of the descriptors that were not accepted may be
            // timed copies.
            self.watched.clear();
        }
        let taken = submitted?;
        self.on_cpu += taken;
        self.counts.took(Engine::Cpu, taken);
        Ok(taken)
    }

    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    #[inline(never)]
    unsafe fn submit_slowly(&mut self, batch: &[Descriptor<'_>], in_flight: usize) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if batch.is_empty() {
            return Ok(0);
        }
        if !self.device.is_used() {
            self.device.probe_device(&self.counts);
        }
        if self.device.is_used() || self.shared.keys.have_device_only() {
            // SAFETY: `share` has the same requirements for `batch` as this function.
            return unsafe { self.share(batch, in_flight) };
        }
        // SAFETY: `submit_cpu` has the same requirements for `batch` as this function.
        unsafe { self.submit_cpu(batch) }
    }

    /// Submits the descriptors before `at` to the CPU, unless they were submitted already. Then submits the
    /// descriptor at `at`, which only the device can execute, to the device. If a queue is full, returns the
    /// number of descriptors of the batch that were accepted.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn submit_device_only(
        &mut self,
        batch: &[Descriptor<'_>],
        first: usize,
        at: usize,
    ) -> Option<Result<usize>> {
        // SAFETY: this is a part of `batch`, for which the caller meets the requirements of `submit_cpu`.
        match unsafe { self.submit_cpu(&batch[first..at]) } {
            Ok(taken) if taken == at - first => {}
            short => return Some(self.taken(first, short)),
        }
        let Self { device, learner, counts, .. } = self;
        // SAFETY: the caller promises that the descriptor is valid until the completion.
        match unsafe { device.submit_device_only(&batch[at], learner, counts) } {
            Ok(true) => None,
            short => Some(self.taken(at, short.map(|_| 0))),
        }
    }

    /// Submits each descriptor to one of the engines.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn share(&mut self, batch: &[Descriptor<'_>], in_flight: usize) -> Result<usize> {
        self.learner.return_streak(self.streak.class, std::mem::take(&mut self.streak.remaining));
        let all = Class::new(in_flight + batch.len(), batch[0].len());
        let (mut settled, mut unreached) = (true, false);
        let mut now = None;
        // Descriptors before `first` have been submitted. Later descriptors go to the CPU unless the device
        // accepts them.
        let mut first = 0;
        let have_device_only = self.shared.keys.have_device_only();
        for (at, descriptor) in batch.iter().enumerate() {
            if have_device_only && self.device.is_device_only(descriptor.operation()) {
                // SAFETY: this function has the same requirements for `batch`.
                if let Some(taken) = unsafe { self.submit_device_only(batch, first, at) } {
                    return taken;
                }
                (first, settled) = (at + 1, false);
                continue;
            }
            let Operation::Copy { src, dst } = descriptor.operation() else {
                settled = false;
                continue;
            };
            let class = Class::new(in_flight + batch.len(), src.len);
            let (engine, timed) = match self.shared.options.prefer {
                _ if !self.device.is_used() => (Engine::Cpu, false),
                Prefer::Device => (Engine::Device, false),
                Prefer::Measured => self.learner.choose(class),
            };
            settled &= class == all && !timed && engine == Engine::Cpu;
            if engine == Engine::Cpu {
                let timed = timed.then(|| (class, *now.get_or_insert_with(Instant::now)));
                self.watched.push(descriptor.token(), src.len, timed);
                continue;
            }
            // Earlier descriptors are submitted before the device accepts this one, because the result is
            // only the number of first descriptors that were accepted.
            // SAFETY: this is a part of `batch`, for which the caller meets the requirements of `submit_cpu`.
            first += match unsafe { self.submit_cpu(&batch[first..at]) } {
                Ok(taken) if taken == at - first => taken,
                short => return self.taken(first, short),
            };
            if self.device.is_pending_full() {
                self.submit_device();
            }
            let copy = Repeat { token: descriptor.token(), src, dst };
            let now = *now.get_or_insert_with(Instant::now);
            // SAFETY: the caller promises that both segments are valid until the completion.
            if self.device.is_used() && unsafe { self.device.take(copy, class, now) } {
                first += 1;
            } else {
                unreached = true;
            }
        }
        self.watched.forget_unless_timed();
        // SAFETY: this is a part of `batch`, for which the caller meets the requirements of `submit_cpu`.
        let rest = unsafe { self.submit_cpu(&batch[first..]) };
        if settled {
            self.streak = CpuStreak::new(all, self.learner.reserve_streak(all, MAX_STREAK));
        } else if unreached && self.device.in_flight() == 0 {
            self.streak = CpuStreak::new(all, MAX_STREAK_UNREACHED);
        }
        self.taken(first, rest)
    }

    /// Ends a submission. The first `first` descriptors were accepted, and then those of `rest`.
    fn taken(&mut self, first: usize, rest: Result<usize>) -> Result<usize> {
        self.submit_device();
        if !self.repeats.is_empty() {
            self.repeat();
        }
        self.count_off_cpu();
        // If earlier descriptors were accepted, the error is returned when the caller submits this one again.
        if first > 0 { Ok(first + rest.unwrap_or(0)) } else { rest }
    }

    fn submit_device(&mut self) {
        self.device.submit(&mut self.repeats, &mut self.learner, &self.counts);
    }

    /// Submits to the CPU the copies that the device did not finish.
    fn repeat(&mut self) {
        while let Some(Repeat { token, src, dst }) = self.repeats.front().copied() {
            if self.stopped {
                self.ended.push_back(Completion::ended(token, Outcome::Aborted, 0));
            } else {
                // SAFETY: the caller of `submit` promised that both segments are valid until the completion,
                // which was not reported yet. The device has reported the copy, so it does not access them
                // any more.
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
        if self.device.in_flight() == 0 { 0 } else { self.poll_any_device(completions) }
    }

    /// Polls the device, also if it is idle.
    fn poll_any_device(&mut self, completions: &mut [Completion]) -> usize {
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
        self.count_off_cpu();
        n
    }
}

// SAFETY: each accepted descriptor is in exactly one of four places: the CPU's queue, the device's queue,
// `repeats` and `ended`. A descriptor moves to `repeats` only after the device has reported it, so the device
// no longer accesses its memory. A descriptor that the device never reports is never reported here. Both
// queues keep the other promises.
unsafe impl RawQueue for AutoQueue {
    fn engine_id(&self) -> EngineId {
        self.shared.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        let in_flight = self.on_cpu + self.off_cpu;
        let batch = &batch[..batch.len().min(self.depth - in_flight)];
        if !self.shared.keys.have_device_only() && self.streak.takes(in_flight, batch) {
            // SAFETY: `submit_cpu` has the same requirements for `batch` as this function.
            return unsafe { self.submit_cpu(batch) };
        }
        // SAFETY: `submit_slowly` has the same requirements for `batch` as this function.
        unsafe { self.submit_slowly(batch, in_flight) }
    }

    #[inline]
    fn flush(&mut self) {
        self.device.flush(self.armed);
        self.cpu.flush();
    }

    #[inline]
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.off_cpu == 0 && self.watched.is_empty() {
            let n = self.cpu.poll(completions);
            self.on_cpu -= n;
            return n;
        }
        self.poll_all(completions)
    }

    fn explain(&self, native: i32) -> NativeError {
        // The CPU repeats copies that the device fails, except for work in the device's memory.
        self.device.explain(native).unwrap_or_else(|| self.cpu.explain(native))
    }

    fn stop(&mut self) {
        (self.stopped, self.streak.remaining) = (true, 0);
        self.cpu.stop();
        self.device.stop();
        self.repeat();
        self.count_off_cpu();
    }

    fn stats(&self) -> QueueStats {
        let (cpu, device) = (self.cpu.stats(), self.device.stats());
        QueueStats::new(cpu.doorbells + device.doorbells, cpu.resets + device.resets)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        if self.device.events().is_some() { Some(self) } else { None }
    }

    fn abandoned(&mut self) {
        self.shared.ledger.close(&self.counts);
        self.cpu.abandoned();
        self.device.abandoned();
    }
}

impl QueueEvents for AutoQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.device.events().expect("the queue has events, because `events` returned it").fd()
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
        if matches!(armed, Ok(false)) && self.device.in_flight() == 0 {
            // The owner's polls leave out an idle device. It may need polls to restart, or be lost.
            self.poll_any_device(&mut [Completion::done(0)]);
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
