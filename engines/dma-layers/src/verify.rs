//! [`VerifyEngine`]: checks that the copies of another engine are right.
//!
//! - The CRC-32C of a copy's source is computed when the copy is submitted, and that of each destination when
//!   the engine reports it as done. If they differ, the copy ends with [`ErrorKind::DeviceFault`], and the
//!   error names the first byte that is wrong.
//! - [`VerifyOptions`] choose the copies: all, one in N copies, or one in N bytes.
//! - All copies are verified, including those with a CRC-32C and those to two destinations. Fills,
//!   comparisons and checksums are not verified, nor are copies from or to memory that the CPU cannot reach.
//!   [`VerifyReport`] counts both.
//! - The planner keeps fences, so that no later operation writes the bytes before they are verified.
//! - If a window's bytes are written while they are copied, that can be reported as a mismatch, because such
//!   a write looks like a wrong byte of the device.
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

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arrayvec::ArrayVec;
use dma_core::{
    Capabilities, Completion, Descriptor, DmaEngine, Error, ErrorKind, NativeError, Operation, OptionInfo,
    OptionValue, Outcome, QueueOptions, RawQueue, RegionInfo, RegionKey, Result, Segment, racy_copy,
};

use crate::wrapper::{Layered, QueueHook, Wrapper, for_each_pair};

/// Maximum number of descriptors in one submission to the inner queue.
const CHUNK: usize = 32;
/// Number of mismatches that a queue can explain: the latest ones.
const EXPLAINED: usize = 64;
/// The first code of a mismatch. It is far from errno values and the codes of vendors' libraries.
const FIRST_CODE: i32 = i32::MIN;

/// The options of a [`VerifyEngine`]. A copy is verified once both numbers are reached. With the defaults,
/// every copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Number of copies of a queue for each one that is verified; at least 1. Default: 1.
    pub sample: u64,
    /// Number of bytes of a queue for each copy that is verified; at least 1. Default: 1.
    pub sample_bytes: u64,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { sample: 1, sample_bytes: 1 }
    }
}

impl VerifyOptions {
    /// The options in engine names.
    pub const INFO: &'static [OptionInfo] = &[
        OptionInfo::new("sample", "N", "1", "copies of a queue for each one that is verified"),
        OptionInfo::new("sample_bytes", "BYTES", "1", "bytes of a queue for each copy that is verified"),
    ];

    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_sample(sample: u64);
        with_sample_bytes(sample_bytes: u64);
    }

    /// Reads options of an engine name.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` or `OutOfRange` for an option or value that does not exist.
    pub fn from_options<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut read = Self::new();
        for (key, text) in options {
            let value = OptionValue::new(key, text);
            match key {
                "sample" => read.sample = value.number(1..=u64::MAX)?,
                "sample_bytes" => read.sample_bytes = value.size(1..=u64::MAX)?,
                _ => return Err(value.not_read()),
            }
        }
        Ok(read)
    }
}

/// Counts of a [`VerifyEngine`]'s descriptors that ended as done. An operation is cut into several
/// descriptors if it is beyond the engine's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Verified and correct.
    pub verified: u64,
    /// Not verified: left out by [`VerifyOptions`], in memory that the CPU cannot reach, or not a copy.
    pub unverified: u64,
    /// Verified and wrong.
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
    /// The counts of a [`VerifyReport`]: verified, not verified, wrong.
    counts: [AtomicU64; 3],
    /// Keys of the regions that the CPU cannot reach.
    hidden: RwLock<HashSet<RegionKey>>,
    /// The number of keys in `hidden`, to be read without the lock.
    hidden_len: AtomicUsize,
}

impl Verify {
    fn report(&self) -> VerifyReport {
        let [verified, unverified, mismatches] = self.counts.each_ref().map(|n| n.load(Ordering::Relaxed));
        VerifyReport { verified, unverified, mismatches }
    }

    fn change_hidden(&self, change: impl FnOnce(&mut HashSet<RegionKey>)) {
        let mut hidden = self.hidden.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut hidden);
        self.hidden_len.store(hidden.len(), Ordering::Release);
    }

    /// Returns whether the CPU can reach all segments.
    #[inline]
    fn reaches(&self, lists: [&[Segment]; 2]) -> bool {
        if self.hidden_len.load(Ordering::Acquire) == 0 {
            return true;
        }
        let hidden = self.hidden.read().unwrap_or_else(PoisonError::into_inner);
        !lists.into_iter().flatten().any(|segment| hidden.contains(&segment.key))
    }
}

impl Wrapper for Verify {
    type Queue = VerifyQueue;

    fn explain(&self) -> String {
        format!("copies: {}\n", self.report())
    }

    fn open(this: &Arc<Self>, _: &QueueOptions, depth: usize) -> Result<VerifyQueue> {
        Ok(VerifyQueue {
            slots: std::iter::repeat_with(CheckedCopy::default).take(depth).collect(),
            free: (0..depth).rev().collect(),
            skipped: (0, 0),
            mismatches: VecDeque::with_capacity(EXPLAINED),
            next_code: 0,
            stopped: false,
            shared: Arc::clone(this),
        })
    }

    fn region_opened(&self, region: &RegionInfo) {
        if region.cpu.is_none() {
            self.change_hidden(|hidden| {
                hidden.insert(region.key);
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
/// Regions, exports and imports are made by the inner engine, and it has the name of that engine's backend.
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
        let verify = Verify {
            options: *options,
            counts: Default::default(),
            hidden: RwLock::default(),
            hidden_len: AtomicUsize::new(0),
        };
        Self { layered: Layered::new(inner, info, verify) }
    }

    /// Returns the counts so far, of all queues.
    #[must_use]
    pub fn report(&self) -> VerifyReport {
        self.layered.wrapper.report()
    }
}

// SAFETY: always the engine in the field `layered`, which is never replaced.
unsafe impl dma_core::ForwardEngine for VerifyEngine {
    type Inner = dyn DmaEngine;
    fn forward_to(&self) -> &Self::Inner {
        &self.layered
    }
}
dma_core::forward_engine!([] VerifyEngine);

/// A descriptor in flight. Its index is the token of the inner descriptor.
#[derive(Debug, Default)]
struct CheckedCopy {
    token: u64,
    verify: bool,
    /// The CRC-32C of the source before the copy.
    sum: u32,
    src: Vec<Segment>,
    dst: Vec<Segment>,
    /// Each segment of `dst` is a separate destination.
    both: bool,
}

/// Returns the CRC-32C of all bytes.
///
/// # Safety
///
/// The CPU can reach the segments, and nobody writes them during the call, except peers that share them.
unsafe fn sum(segments: &[Segment]) -> u32 {
    segments.iter().fold(0, |sum, segment| {
        // SAFETY: the caller promises that the segment can be read.
        unsafe { racy_copy::crc32c(sum, segment.addr.as_ptr(), segment.len) }
    })
}

impl CheckedCopy {
    /// Keeps the operands of a copy, and computes the checksum of its source. Returns false if `operation` is
    /// not a copy or `choose` does.
    ///
    /// # Safety
    ///
    /// As [`RawQueue::submit`], for an operation that has not been submitted yet. If `choose` returns true,
    /// the CPU can reach its memory.
    unsafe fn fill(
        &mut self,
        operation: Operation<'_>,
        choose: impl FnOnce([&[Segment]; 2]) -> bool,
    ) -> bool {
        let (src, dst): (&[Segment], &[Segment]) = match &operation {
            Operation::Copy { src, dst } | Operation::CopyCrc32c { src, dst, .. } => {
                (std::slice::from_ref(src), std::slice::from_ref(dst))
            }
            Operation::CopyLists { src, dst } => (src, dst),
            Operation::CopyToBoth { src, dst } => (std::slice::from_ref(src), dst.as_slice()),
            _ => return false,
        };
        if !choose([src, dst]) {
            return false;
        }
        self.src.clear();
        self.src.extend_from_slice(src);
        self.dst.clear();
        self.dst.extend_from_slice(dst);
        self.both = matches!(operation, Operation::CopyToBoth { .. });
        // SAFETY: the CPU can reach the source, because `choose` returned true. From `submit` on nobody
        // writes it.
        self.sum = unsafe { sum(src) };
        true
    }

    /// Compares the copy's bytes with its source.
    ///
    /// # Safety
    ///
    /// The device has reported the copy as done, and the caller of `poll` was not told yet.
    unsafe fn check(&self) -> Option<Mismatch> {
        let each = if self.both { 1 } else { self.dst.len() };
        for dst in self.dst.chunks(each) {
            // SAFETY: nobody writes the destination before the caller is told, and `fill` made sure that the
            // CPU can reach it.
            if unsafe { sum(dst) } != self.sum {
                let wrong = for_each_pair(&[(&self.src, dst)], |offset, src, dst, len| {
                    // SAFETY: both parts lie in segments that the CPU can reach, and nobody writes source or
                    // destination before the caller is told.
                    let at = unsafe { racy_copy::first_difference(src?, dst, len) }?;
                    Some((offset + at, dst.addr() + at))
                });
                let len = dst.iter().map(|segment| segment.len).sum();
                return Some(Mismatch { code: 0, len, wrong });
            }
        }
        None
    }
}

/// A copy that went wrong.
#[derive(Clone, Copy, Debug)]
struct Mismatch {
    code: i32,
    len: usize,
    /// The offset and the address of the first wrong byte. `None` if the destination has the same bytes as
    /// the source, but the source has changed since the submission.
    wrong: Option<(usize, usize)>,
}

#[derive(Debug)]
struct VerifyQueue {
    slots: Vec<CheckedCopy>,
    /// Free slots, used from the end.
    free: Vec<usize>,
    /// Copies and bytes since the last copy that was chosen.
    skipped: (u64, u64),
    /// The latest mismatches, oldest first.
    mismatches: VecDeque<Mismatch>,
    next_code: u16,
    /// Submissions to a stopped queue fail with `Closed` even if it is full.
    stopped: bool,
    shared: Arc<Verify>,
}

impl VerifyQueue {
    /// Keeps a mismatch, and returns the code that explains it.
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

// SAFETY: each descriptor of the inner queue has its own slot, and the slot's token is reported when the
// descriptor is. This code only reads memory: the source before `submit` returns, and both sides before the
// copy is reported.
unsafe impl QueueHook for VerifyQueue {
    unsafe fn submit(&mut self, inner: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let Self { slots, free, skipped, shared, .. } = self;
        let mut taken = 0;
        for chunk in batch[..batch.len().min(free.len())].chunks(CHUNK) {
            let mut renamed = ArrayVec::<_, CHUNK>::new();
            for (descriptor, &at) in chunk.iter().zip(free.iter().rev()) {
                let slot = &mut slots[at];
                slot.token = descriptor.token();
                let choose = |lists: [&[Segment]; 2]| {
                    skipped.0 = skipped.0.saturating_add(1);
                    skipped.1 = skipped.1.saturating_add(descriptor.len() as u64);
                    let due = skipped.0 >= shared.options.sample && skipped.1 >= shared.options.sample_bytes;
                    due && shared.reaches(lists) && {
                        *skipped = (0, 0);
                        true
                    }
                };
                // SAFETY: the caller promises valid segments, and `choose` returns true only if the CPU can
                // reach them.
                slot.verify = unsafe { slot.fill(descriptor.operation(), choose) };
                renamed.push(descriptor.with_token(at as u64));
            }
            // SAFETY: the same operations as in `batch`, for which the caller promises what `inner` asks for.
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
        let n = inner.poll(completions);
        let (mut verified, mut unverified, mut mismatches) = (0, 0, 0);
        for completion in &mut completions[..n] {
            let at = completion.token as usize;
            let slot = &self.slots[at];
            completion.token = slot.token;
            self.free.push(at);
            if completion.outcome != Outcome::Done {
                continue;
            }
            if !slot.verify {
                unverified += 1;
                continue;
            }
            // SAFETY: the device has reported it as done, and the caller is told only when this function
            // returns.
            if let Some(mismatch) = unsafe { slot.check() } {
                mismatches += 1;
                let code = self.note(mismatch);
                let outcome = Outcome::Failed(ErrorKind::DeviceFault);
                *completion = Completion::ended(completion.token, outcome, code);
            } else {
                verified += 1;
            }
        }
        for (count, of) in [verified, unverified, mismatches].into_iter().zip(&self.shared.counts) {
            if count > 0 {
                of.fetch_add(count, Ordering::Relaxed);
            }
        }
        n
    }

    fn stop(&mut self, inner: &mut dyn RawQueue) {
        self.stopped = true;
        inner.stop();
    }

    fn explain(&self, native: i32) -> Option<NativeError> {
        let mismatch = self.mismatches.iter().rev().find(|mismatch| mismatch.code == native)?;
        let len = mismatch.len;
        let description = match mismatch.wrong {
            Some((offset, addr)) => {
                format!("byte {offset} of {len} is wrong, at address {addr:#x} of the destination")
            }
            None => format!("the {len} bytes of the source changed while they were copied"),
        };
        Some(NativeError { code: native, name: "VERIFY_MISMATCH".into(), description: description.into() })
    }
}
