//! [`VerifyEngine`]: checks that the copies of another engine are correct.
//!
//! - The CRC-32C of a copy's source is computed when the copy is submitted, and the CRC-32C of each
//!   destination when the engine reports the copy as done. If they differ, the copy ends with
//!   [`ErrorKind::DeviceFault`], and the error names the first byte that is wrong.
//! - [`VerifyOptions`] choose the copies: all, one in N copies, or one for every N bytes.
//! - All copies are verified, including those with a CRC-32C and those to two destinations. Fills,
//!   comparisons and checksums are not verified. [`VerifyReport`] counts verified and unverified descriptors.
//! - Copies from or to device memory that the CPU cannot reach are verified when they are done. With device
//!   memory, each queue has a second queue, which copies source and destination to host memory, piece by
//!   piece, where they are compared. Polls do not wait for these copies, so later operations may be reported
//!   earlier, and a waiting thread polls instead of sleeping while such copies are in flight. If the second
//!   queue cannot be opened, or one of its copies fails, the operation counts as not verified. Copies of
//!   imported memory also count as not verified.
//! - Operations that the CPU executes within the call that submits them are not copies by a device. Such
//!   copies pass through the queue if they are to be verified, and are executed within the call otherwise.
//!   Copies of several threads on one `SharedQueue` at the same time may delay a verification by one copy of
//!   each thread.
//! - The planner keeps fences, so that no later operation writes the bytes before they are verified.
//! - If the program writes a window's bytes while they are copied, a mismatch may be reported, because the
//!   write looks like a wrong byte of the device.
//! - The thread that submits and polls computes the checksums, so polls take longer in proportion to the
//!   bytes that they verify.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dma_core::{DmaEngineExt, ErrorKind, QueueOptions};
//! use dma_layers::verify::{VerifyEngine, VerifyOptions};
//! use dma_sim::sim::{SimEngine, SimOptions};
//!
//! let device = SimEngine::open(&SimOptions::from_name(&"sim:faults=corrupt@1".parse()?)?)?;
//! let engine = VerifyEngine::new(Arc::new(device), &VerifyOptions::new());
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! let (src, dst) = (engine.allocate(4096)?, engine.allocate(4096)?);
//! let error = queue.copy(src, dst)?.wait().unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::DeviceFault);
//! assert!(error.to_string().contains("of 4096 is wrong"), "{error}");
//! # Ok::<(), dma_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "implements the contract, and reads the bytes of copies")]

mod checked;
mod sampling;
mod staging;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arrayvec::ArrayVec;
#[cfg(feature = "serde")]
use dma_core::configuration::{Bytes, in_range};
use dma_core::{
    Access, Capabilities, Completion, Descriptor, DmaEngine, Error, ErrorKind, InlineExecutor, NativeError,
    Outcome, Place, QueueOptions, RawQueue, RegionInfo, RegionKey, Result, Segment,
};
use dma_process::ProcessLock;

use crate::wrapper::{Layered, QueueHook, Wrapper, forked};
use checked::CheckedCopy;
use sampling::{SampledExecutor, Sampler};
use staging::{Cursor, Pieces, Staging};

/// Maximum number of descriptors in one submission to the inner queue.
const CHUNK: usize = 32;
/// Number of the latest mismatches that a queue can explain.
const EXPLAINED: usize = 64;
/// Maximum number of pieces that are compared or fetched in one poll.
const STAGING_STEPS: usize = 16;
/// The first code of a mismatch within a queue. Each mismatch has its own, by which its error is made.
const FIRST_CODE: i32 = NativeError::VERIFY_MISMATCH;

dma_core::options! {
    /// The options of a [`VerifyEngine`]. A copy is verified once both numbers, of copies and of bytes, are
    /// reached since the queue's last verified copy. By default, every copy is verified.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct VerifyOptions {
        /// Number of copies from one verified copy of a queue to the next; at least 1. Default: 1.
        pub sample: u64 = 1, with_sample(u64),
            "sample": number(1..=u64::MAX), "copies from one verified copy of a queue to the next",
            default "1",
            serde u64, "Copies from one verified copy of a queue to the next; at least 1.",
            check |copies| in_range(*copies, 1..=u64::MAX);
        /// Number of bytes from one verified copy of a queue to the next; at least 1. Default: 1.
        pub sample_bytes: u64 = 1, with_sample_bytes(u64),
            "sample_bytes": size(1..=u64::MAX), "bytes from one verified copy of a queue to the next",
            default "1",
            serde Bytes, "Bytes from one verified copy of a queue to the next; at least 1.",
            check |bytes| in_range(bytes.0, 1..=u64::MAX);
    }
    names "verify";
    serde "options of verified copies";
}

/// Counts of a [`VerifyEngine`]'s descriptors that ended as done. An operation that exceeds the engine's
/// limits is split into several descriptors. An operation that the CPU executes within the call that submits
/// it counts as one, and each copy of a batch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Descriptors that were verified and correct.
    pub verified: u64,
    /// Descriptors that were not verified: [`VerifyOptions`] excluded them, their memory cannot be read, or
    /// they are not copies.
    pub unverified: u64,
    /// Descriptors that were verified and wrong.
    pub mismatches: u64,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verified, unverified, mismatches } = self;
        write!(f, "{verified} verified, {unverified} not verified, {mismatches} wrong")
    }
}

/// The state that the engine's queues and regions share.
#[derive(Debug)]
struct Verify {
    options: VerifyOptions,
    /// The counts of a [`VerifyReport`]: verified, not verified, wrong. Operations that executors executed
    /// are counted in `samplers`, until their queue and its executor are dropped.
    counts: [AtomicU64; 3],
    samplers: ProcessLock<Vec<Arc<Sampler>>>,
    /// Keys of the regions that the CPU cannot reach; true if their bytes can be copied to host memory.
    hidden: RwLock<HashMap<RegionKey, bool>>,
    /// The number of keys in `hidden`, which is read without the lock.
    hidden_len: AtomicUsize,
    /// The inner engine, if it has device memory.
    stages: Option<Arc<dyn DmaEngine>>,
}

/// The way to read the bytes of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reach {
    /// The bytes cannot be read, or are not verified.
    #[default]
    None,
    /// The CPU reads the bytes.
    Cpu,
    /// The bytes are copied to host memory.
    Staging,
}

impl Verify {
    /// Returns `None` in a forked child.
    fn report(&self) -> Option<VerifyReport> {
        let samplers = self.samplers.lock()?;
        let executed: u64 = samplers.iter().map(|sampler| sampler.executed.load(Ordering::Relaxed)).sum();
        let [verified, unverified, mismatches] = self.counts.each_ref().map(|n| n.load(Ordering::Relaxed));
        Some(VerifyReport { verified, unverified: unverified + executed, mismatches })
    }

    /// Makes the sampler of a new queue. Returns `None` in a forked child.
    fn sampler(&self) -> Option<Arc<Sampler>> {
        let sampler = Arc::new(Sampler::default());
        let mut samplers = self.samplers.lock()?;
        samplers.retain(|old| {
            let is_used = Arc::strong_count(old) > 1;
            if !is_used {
                self.counts[1].fetch_add(old.executed.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            is_used
        });
        samplers.push(Arc::clone(&sampler));
        Some(sampler)
    }

    fn change_hidden(&self, change: impl FnOnce(&mut HashMap<RegionKey, bool>)) {
        let mut hidden = self.hidden.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut hidden);
        self.hidden_len.store(hidden.len(), Ordering::Release);
    }

    /// Returns the way to read the bytes of all segments.
    #[inline]
    fn reach(&self, lists: [&[Segment]; 2]) -> Reach {
        if self.hidden_len.load(Ordering::Acquire) == 0 {
            return Reach::Cpu;
        }
        let hidden = self.hidden.read().unwrap_or_else(PoisonError::into_inner);
        let mut reach = Reach::Cpu;
        for segment in lists.into_iter().flatten() {
            match hidden.get(&segment.key) {
                None => {}
                Some(true) => reach = Reach::Staging,
                Some(false) => return Reach::None,
            }
        }
        reach
    }
}

impl Wrapper for Verify {
    type Queue = VerifyQueue;

    fn explain(&self) -> String {
        self.report().map_or_else(String::new, |report| format!("copies: {report}\n"))
    }

    fn open(this: &Arc<Self>, _: &QueueOptions, depth: usize) -> Result<VerifyQueue> {
        let staging = this.stages.as_ref().and_then(|engine| {
            Staging::open(&**engine)
                .map_err(
                    |error| dma_core::deferred_log!(warn, %error, "copies of device memory are not verified"),
                )
                .ok()
        });
        let sampler = this.sampler().ok_or_else(forked)?;
        let staged = if staging.is_some() { depth } else { 0 };
        Ok(VerifyQueue {
            slots: std::iter::repeat_with(CheckedCopy::default).take(depth).collect(),
            free: (0..depth).rev().collect(),
            sampler,
            mismatches: VecDeque::with_capacity(EXPLAINED),
            next_code: 0,
            stopped: false,
            staging,
            staged: VecDeque::with_capacity(staged),
            compared: VecDeque::with_capacity(staged),
            shared: Arc::clone(this),
        })
    }

    fn region_opened(&self, region: &RegionInfo, _: Place) {
        if region.cpu.is_none() {
            // A device may reset a queue that requests a right which the memory does not have.
            let can_stage = self.stages.is_some() && region.access.contains(Access::READ);
            self.change_hidden(|hidden| {
                hidden.insert(region.key, can_stage);
            });
        }
    }

    fn region_closing(&self, region: &RegionInfo) {
        if region.cpu.is_none() {
            self.change_hidden(|hidden| {
                hidden.remove(&region.key);
            });
        }
    }
}

/// An engine whose copies are verified: see the [module](self).
///
/// The inner engine makes regions, exports and imports. The backend name is the inner engine's.
#[derive(Debug)]
pub struct VerifyEngine {
    layered: Layered<Verify>,
}

impl VerifyEngine {
    /// Makes an engine that verifies copies of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn DmaEngine>, options: &VerifyOptions) -> Self {
        let mut info = inner.info().clone();
        info.device.push_str(", with verified copies");
        info.capabilities -= Capabilities::FENCE;
        let device_memory =
            Capabilities::ALLOCATE_DEVICE | Capabilities::REGISTER_DEVICE | Capabilities::REGISTER_DMABUF;
        let has_device_memory = inner.info().capabilities.intersects(device_memory);
        if has_device_memory {
            info.capabilities -= Capabilities::IN_ORDER;
        }
        let verify = Verify {
            stages: has_device_memory.then(|| Arc::clone(&inner)),
            options: *options,
            counts: Default::default(),
            samplers: ProcessLock::default(),
            hidden: RwLock::default(),
            hidden_len: AtomicUsize::new(0),
        };
        Self { layered: Layered::new(inner, info, verify) }
    }

    /// Returns the counts so far, of all queues. In a forked child, the counts of the parent's engine are 0.
    #[must_use]
    pub fn report(&self) -> VerifyReport {
        self.layered.wrapper.report().unwrap_or_default()
    }
}

// SAFETY: the result is always the engine in the field `layered`, which is never replaced.
unsafe impl dma_core::ForwardEngine for VerifyEngine {
    type Inner = dyn DmaEngine;
    fn forward_to(&self) -> &Self::Inner {
        &self.layered
    }
}
dma_core::forward_engine!([] VerifyEngine);

/// A copy that is done and not compared yet.
#[derive(Debug)]
struct StagedCopy {
    /// The completion of the inner queue, whose token is the slot.
    completion: Completion,
    cursor: Cursor,
}

/// The error of a copy whose bytes cannot be compared.
#[derive(Debug)]
struct Unreadable;

/// A wrong copy.
#[derive(Clone, Copy, Debug)]
struct Mismatch {
    code: i32,
    len: usize,
    /// The offset and the address of the first wrong byte. `None` if source and destination are equal, but
    /// the source has changed since the submission.
    wrong: Option<(usize, usize)>,
}

#[derive(Debug)]
struct VerifyQueue {
    slots: Vec<CheckedCopy>,
    /// Free slots, which are used from the end.
    free: Vec<usize>,
    sampler: Arc<Sampler>,
    /// The latest mismatches, oldest first.
    mismatches: VecDeque<Mismatch>,
    next_code: u16,
    /// True after a stop. Submissions to a stopped queue fail with `Closed` even if it is full.
    stopped: bool,
    /// `None` if the engine has no device memory, or if the second queue could not be opened.
    staging: Option<Staging>,
    /// Copies that are done, in memory that the CPU cannot reach. The first one is being compared.
    staged: VecDeque<StagedCopy>,
    /// Completions of staged copies whose comparison has ended.
    compared: VecDeque<Completion>,
    shared: Arc<Verify>,
}

impl VerifyQueue {
    /// Makes progress with the comparisons of copies in memory that the CPU cannot reach. Moves the copies
    /// whose comparison has ended to `compared`.
    fn compare_staged(&mut self, counts: &mut VerifyReport) {
        for _ in 0..STAGING_STEPS {
            let Some(StagedCopy { completion, cursor }) = self.staged.front_mut() else { return };
            let Some(staging) = &mut self.staging else {
                self.end_staged(Err(Unreadable), counts);
                continue;
            };
            let CheckedCopy { src, dst, both, .. } = &self.slots[completion.token as usize];
            match staging.poll() {
                Pieces::None => {}
                Pieces::InFlight => return,
                Pieces::Fetched => {
                    if let Some(differs) = staging.first_difference() {
                        let piece = cursor.pieces(src, dst, *both, 1);
                        let addr = piece.map_or(0, |[_, to]| to.addr.offset(differs).0 as usize);
                        let wrong = (cursor.offset() + differs, addr);
                        let each = if *both { 1 } else { dst.len() };
                        let len = dst[..each].iter().map(|segment| segment.len).sum();
                        self.end_staged(Ok(Some(Mismatch { code: 0, len, wrong: Some(wrong) })), counts);
                        continue;
                    }
                    cursor.advance(staging.len());
                }
                Pieces::Failed => {
                    self.end_staged(Err(Unreadable), counts);
                    continue;
                }
                Pieces::Lost => {
                    // The copy is not reported and keeps its slot, because the device may still read its
                    // operands. Dropping the staging queue leaks it.
                    (self.staging, _) = (None, self.staged.pop_front());
                    dma_core::deferred_log!(
                        error,
                        "a copy of device memory to host memory does not end, so its queue is leaked"
                    );
                    continue;
                }
            }
            match cursor.pieces(src, dst, *both, staging.max_piece()) {
                // SAFETY: the copy is done but not reported, so the caller does not write source or
                // destination yet. `Reach::Staging` means that the device may read both.
                Some(pieces) => unsafe { staging.fetch(pieces) },
                None => self.end_staged(Ok(None), counts),
            }
        }
    }

    /// Ends the comparison of the first copy of `staged`.
    fn end_staged(&mut self, checked: Result<Option<Mismatch>, Unreadable>, counts: &mut VerifyReport) {
        if let Some(StagedCopy { completion, .. }) = self.staged.pop_front() {
            let completion = self.end(completion, checked, counts);
            self.compared.push_back(completion);
        }
    }

    /// Frees the slot of a descriptor that the inner queue has reported, and returns the completion for the
    /// caller.
    fn end(
        &mut self,
        completion: Completion,
        checked: Result<Option<Mismatch>, Unreadable>,
        counts: &mut VerifyReport,
    ) -> Completion {
        let at = completion.token as usize;
        let token = self.slots[at].token;
        self.free.push(at);
        let is_done = u64::from(completion.outcome == Outcome::Done);
        match checked {
            Ok(Some(mismatch)) => {
                counts.mismatches += 1;
                let code = self.note(mismatch);
                return Completion::ended(token, Outcome::Failed(ErrorKind::DeviceFault), code);
            }
            Ok(None) => counts.verified += is_done,
            Err(Unreadable) => counts.unverified += is_done,
        }
        Completion { token, ..completion }
    }

    /// Stores a mismatch, and returns its code.
    fn note(&mut self, mismatch: Mismatch) -> i32 {
        let code = FIRST_CODE + i32::from(self.next_code);
        self.next_code = self.next_code.wrapping_add(1);
        if self.mismatches.len() == EXPLAINED {
            self.mismatches.pop_front();
        }
        self.mismatches.push_back(Mismatch { code, ..mismatch });
        code
    }
}

// SAFETY: each descriptor of the inner queue has its own slot, whose token is reported once: when the
// descriptor is reported, or after its comparison. This code only reads memory: the source before `submit`
// returns, and both sides before the copy is reported.
unsafe impl QueueHook for VerifyQueue {
    unsafe fn submit(&mut self, inner: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let Self { slots, free, sampler, shared, .. } = self;
        let mut taken = 0;
        for chunk in batch[..batch.len().min(free.len())].chunks(CHUNK) {
            let mut renamed = ArrayVec::<_, CHUNK>::new();
            for (descriptor, &at) in chunk.iter().zip(free.iter().rev()) {
                let slot = &mut slots[at];
                slot.token = descriptor.token();
                let choose = |lists: [&[Segment]; 2]| {
                    let len = descriptor.len() as u64;
                    let is_due = sampler.is_due(&shared.options, 1, len);
                    let reach = if is_due { shared.reach(lists) } else { Reach::None };
                    if reach == Reach::None {
                        sampler.skip(1, len);
                    } else {
                        sampler.restart();
                    }
                    reach
                };
                // SAFETY: the caller promises valid segments, and `choose` returns `Cpu` only if the CPU can
                // reach them.
                slot.verify = unsafe { slot.fill(descriptor.operation(), choose) };
                renamed.push(descriptor.with_token(at as u64));
            }
            // SAFETY: the operations are those of `batch`, for which the caller meets the requirements of
            // `inner`.
            match unsafe { inner.submit(&renamed) } {
                Ok(n) => {
                    free.truncate(free.len() - n);
                    taken += n;
                    if n < chunk.len() {
                        break;
                    }
                }
                // The error is returned when the caller submits this descriptor again.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    fn poll(&mut self, inner: &mut dyn RawQueue, completions: &mut [Completion]) -> usize {
        let reported = inner.poll(completions);
        let (mut n, mut counts) = (0, VerifyReport::default());
        for at in 0..reported {
            let completion = completions[at];
            let slot = &self.slots[completion.token as usize];
            let checked = match slot.verify {
                _ if completion.outcome != Outcome::Done => Err(Unreadable),
                Reach::None => Err(Unreadable),
                // SAFETY: the device has reported the copy as done, and the caller learns this only when this
                // function returns.
                Reach::Cpu => Ok(unsafe { slot.check() }),
                Reach::Staging => {
                    self.staged.push_back(StagedCopy { completion, cursor: Cursor::default() });
                    continue;
                }
            };
            completions[n] = self.end(completion, checked, &mut counts);
            n += 1;
        }
        self.compare_staged(&mut counts);
        while n < completions.len()
            && let Some(compared) = self.compared.pop_front()
        {
            completions[n] = compared;
            n += 1;
        }
        let VerifyReport { verified, unverified, mismatches } = counts;
        for (count, of) in [verified, unverified, mismatches].into_iter().zip(&self.shared.counts) {
            if count > 0 {
                of.fetch_add(count, Ordering::Relaxed);
            }
        }
        n
    }

    fn may_need_polls(&self) -> bool {
        self.shared.stages.is_some()
    }

    fn needs_polls(&self) -> bool {
        !self.staged.is_empty() || !self.compared.is_empty()
    }

    fn stop(&mut self, inner: &mut dyn RawQueue) {
        self.stopped = true;
        inner.stop();
    }

    fn inline_executor(&self, inner: Arc<dyn InlineExecutor>) -> Option<Arc<dyn InlineExecutor>> {
        let (sampler, options) = (Arc::clone(&self.sampler), self.shared.options);
        Some(Arc::new(SampledExecutor { inner, sampler, options }))
    }

    fn explain(&self, native: i32) -> Option<NativeError> {
        if !(FIRST_CODE..=FIRST_CODE + i32::from(u16::MAX)).contains(&native) {
            return None;
        }
        let known = self.mismatches.iter().rev().find(|mismatch| mismatch.code == native);
        let description = match known.map(|known| (known.wrong, known.len)) {
            Some((Some((offset, addr)), len)) => {
                format!("byte {offset} of {len} is wrong, at address {addr:#x} of the destination")
            }
            Some((None, len)) => format!("the {len} bytes of the source changed while they were copied"),
            None => format!(
                "some byte is wrong; a queue knows the place only for its latest {EXPLAINED} mismatches"
            ),
        };
        let (code, name) = (NativeError::VERIFY_MISMATCH, "VERIFY_MISMATCH".into());
        Some(NativeError { code, name, description: description.into() })
    }
}

#[cfg(test)]
mod tests {
    use dma_core::DmaEngineExt;

    use super::*;

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_opens_a_queue() {
        let engine = VerifyEngine::new(Arc::new(dma_conformance::doc_engine()), &VerifyOptions::new());
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let memory = || engine.allocate(64).expect("memory");
        queue.copy(memory(), memory()).expect("accepted").wait().expect("it completes");
        assert_ne!(engine.report(), VerifyReport::default());
        // The lock stays held, as by a thread that the child does not have.
        std::mem::forget(engine.layered.wrapper.samplers.lock());
        assert!(test_support::in_child::in_child(|| {
            engine.report() == VerifyReport::default() && engine.explain().is_none()
        }));
    }
}
