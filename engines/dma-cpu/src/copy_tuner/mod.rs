//! [`CopyTuner`]: chooses the kernel for each copy, by a hint or by measured times.

#![expect(unsafe_code, reason = "copies between raw addresses; reads the time stamp counter")]

mod class_index;
mod core_cache;
mod drift;
mod estimate;
mod length_class;
mod probe;
mod schedule;
mod sharing;
#[cfg(test)]
mod tests;
mod trial;

use std::convert::Infallible;

use dma_core::{CacheHint, InlineCopy};

use super::Kernel;
use super::clock::{ticks, ticks_in};
use super::kernel::{SHORT, hot_cost, second_level_cache};
use class_index::LENGTH_CLASSES;
pub(super) use class_index::{LEARN_MIN, class_of};
use core_cache::{MAYBE_ALONE_MAX, alone_max};
use length_class::LengthClass;
use schedule::RETRY_AFTER;

/// From this length, [`CacheHint::Cold`] selects the streaming kernel. Shorter copies are as fast with
/// `memcpy`.
pub(super) const STREAM_MIN: usize = 4 << 10;

/// Chooses the kernel for each copy, by its length and a hint.
///
/// Without a hint, the tuner learns. For each power of two of the length, it keeps the smoothed cost per byte
/// of the current kernel. The tuner probes the other kernel, more and more rarely while probes change
/// nothing. It probes again soon after the speed of the current kernel has shifted, for example when the
/// working set enters or leaves the cache. An engine with threads uses the same method to learn if sharing
/// copies among cores is faster within a cache. Lengths below 16 KiB are never timed.
///
/// A tuner belongs to one thread, and neither allocates nor shares memory. Use separate tuners for copies and
/// fills, because their costs differ.
#[derive(Debug)]
pub struct CopyTuner {
    streaming: Option<Kernel>,
    /// Cost of a copy within a core's own cache, in ticks per byte.
    hot_cost: f32,
    /// Maximum number of picks in flight before the first of them is recorded.
    in_flight: u32,
    /// [`RETRY_AFTER`] in ticks.
    retry_after: u64,
    classes: [LengthClass; LENGTH_CLASSES],
}

impl Default for CopyTuner {
    fn default() -> Self {
        Self::new()
    }
}

impl CopyTuner {
    /// Makes a tuner that chooses between `memcpy` and the best streaming kernel of this CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::with_streaming(Kernel::streaming())
    }

    /// Makes a tuner that chooses between `memcpy` and `streaming`. With `None`, every copy uses `memcpy`.
    #[must_use]
    pub fn with_streaming(streaming: Option<Kernel>) -> Self {
        let alone_max = alone_max(second_level_cache());
        let classes = std::array::from_fn(|index| LengthClass::new(index, alone_max));
        Self { streaming, hot_cost: hot_cost(), in_flight: 1, retry_after: ticks_in(RETRY_AFTER), classes }
    }

    /// Sets the queue depth: the number of copies that may be in flight before their times are known.
    pub(super) fn for_depth(self, depth: usize) -> Self {
        Self { in_flight: u32::try_from(depth).unwrap_or(u32::MAX / 2), ..self }
    }

    /// Sets the number of cores that share work, including the caller's.
    pub(super) fn for_cores(mut self, cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        self.classes.iter_mut().for_each(|class| class.sharing.cores = cores);
        self
    }

    /// Copies `len` bytes from `src` to `dst` with the kernel that `hint` or measurements select.
    ///
    /// Otherwise behaves like [`Kernel::copy`].
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy`].
    #[inline]
    pub unsafe fn copy(&mut self, dst: *mut u8, src: *const u8, len: usize, hint: CacheHint) {
        if len <= SHORT {
            // SAFETY: the caller meets the requirements of the kernel for these ranges.
            return unsafe { dma_core::racy_copy::copy(dst, src, len) };
        }
        if len < STREAM_MIN {
            // SAFETY: the caller meets the requirements of the kernel for these ranges.
            return unsafe { Kernel::memcpy().copy(dst, src, len) };
        }
        let pick = self.pick(len, hint);
        let Ok(()) = self.run(pick, len, |kernel| {
            // SAFETY: the caller meets the requirements of the kernel for these ranges.
            unsafe { kernel.copy(dst, src, len) };
            Ok::<_, Infallible>(())
        });
    }

    /// Copies all ranges, with the kernel that `hint` or measurements select for the sum of their lengths.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy_all`].
    pub(super) unsafe fn copy_all(&mut self, copies: &[InlineCopy], hint: CacheHint) {
        let len = copies.iter().map(|copy| copy.len).sum();
        let pick = self.pick(len, hint);
        let Ok(()) = self.run(pick, len, |kernel| {
            // SAFETY: the caller meets the requirements of the kernel for these ranges.
            unsafe { kernel.copy_all(copies) };
            Ok::<_, Infallible>(())
        });
    }

    /// Fills the `len` bytes at `dst` with `pattern`, with the kernel that `hint` or measurements select.
    ///
    /// Otherwise behaves like [`Kernel::fill`].
    ///
    /// # Safety
    ///
    /// See [`Kernel::fill`].
    #[inline]
    pub unsafe fn fill(&mut self, dst: *mut u8, pattern: [u8; 8], len: usize, hint: CacheHint) {
        let pick = self.pick(len, hint);
        let Ok(()) = self.run(pick, len, |kernel| {
            // SAFETY: the caller meets the requirements of the kernel for these ranges.
            unsafe { kernel.fill(dst, pattern, len) };
            Ok::<_, Infallible>(())
        });
    }

    /// Runs `work` with the picked kernel, and records its time. A failed run is not recorded because it has
    /// not moved all of the `len` bytes.
    #[inline]
    pub(super) fn run<T, E>(
        &mut self,
        pick: Pick,
        len: usize,
        work: impl FnOnce(Kernel) -> Result<T, E>,
    ) -> Result<T, E> {
        let kernel = self.kernel(pick);
        if !pick.is_timed() {
            return work(kernel);
        }
        let start = ticks();
        let result = work(kernel);
        if result.is_ok() {
            self.record(pick, ticks().wrapping_sub(start), len);
            self.schedule_retry(pick, start);
        }
        result
    }

    /// Records that the submitter executed a timed copy that started at `now`. May schedule another trial.
    fn schedule_retry(&mut self, pick: Pick, now: u64) {
        if pick.alone {
            let index = usize::from(pick.class);
            self.classes[index].schedule_retry(index, now, self.retry_after);
        }
    }

    /// Picks the kernel for a copy of `len` bytes. If [`Pick::is_timed`] returns true, the caller passes the
    /// time taken to [`Self::record`].
    #[inline]
    pub(crate) fn pick(&mut self, len: usize, hint: CacheHint) -> Pick {
        let untimed = |streaming, alone| Pick { streaming, alone, ..Pick::default() };
        match hint {
            CacheHint::Hot => untimed(false, len <= MAYBE_ALONE_MAX),
            _ if self.streaming.is_none() || len < STREAM_MIN => untimed(false, false),
            CacheHint::Cold => untimed(true, false),
            CacheHint::Auto if len < LEARN_MIN => untimed(false, false),
            CacheHint::Auto => {
                let index = class_of(len);
                self.classes[index].pick(index, len, self.in_flight)
            }
        }
    }

    /// Skips picks for copies of `len` bytes that would not be timed. Returns the number of skipped picks,
    /// which is even, and true if these copies are streamed.
    pub(super) fn skip_untimed(&mut self, len: usize) -> (u32, bool) {
        let index = class_of(len);
        self.classes[index].skip_untimed(index)
    }

    /// Returns the kernel for other work on `len` bytes: the current kernel of copies of this length.
    pub(super) fn untimed(&self, len: usize, hint: CacheHint) -> Pick {
        let streaming = match hint {
            _ if self.streaming.is_none() || len < STREAM_MIN => false,
            CacheHint::Hot => false,
            CacheHint::Cold => true,
            CacheHint::Auto => len >= LEARN_MIN && self.classes[class_of(len)].streaming,
        };
        Pick { streaming, ..Pick::default() }
    }

    /// Returns the kernel of a pick.
    #[inline]
    pub(crate) fn kernel(&self, pick: Pick) -> Kernel {
        match self.streaming {
            Some(streaming) if pick.streaming => streaming,
            _ => Kernel::memcpy(),
        }
    }

    /// Records that the `len` bytes of a timed pick took `ticks`, summed over all cores.
    ///
    /// Picks may be recorded late, in any order, or never.
    #[inline]
    pub(crate) fn record(&mut self, pick: Pick, ticks: u64, len: usize) {
        if pick.is_timed() && len > 0 {
            let index = usize::from(pick.class);
            self.classes[index].record(pick, ticks as f32 / len as f32, index, self.hot_cost);
        }
    }

    /// Replaces a [shared trial](Pick::is_shared_trial) by an untimed pick, because no helper thread is
    /// awake. A later pick takes its place. `first` is true for the first such pick since the last doorbell;
    /// the next doorbell wakes a helper if `sleeps` is true. The trial is dropped if helpers stay asleep.
    pub(crate) fn postpone_trial(&mut self, pick: Pick, first: bool, sleeps: bool) -> Pick {
        let index = usize::from(pick.class);
        self.classes[index].postpone_trial(index, first, sleeps);
        Pick { role: Role::Untimed, ..pick }
    }

    /// Records a [shared trial](Pick::is_shared_trial) of `len` bytes: all cores together took `ticks`, and
    /// the queue was busy for `busy` ticks that belong to no other copy.
    pub(crate) fn record_shared(&mut self, pick: Pick, busy: u64, ticks: u64, len: usize) {
        if pick.is_timed() && len > 0 {
            let (index, len) = (usize::from(pick.class), len as f32);
            self.classes[index].record_shared(busy as f32 / len, ticks as f32 / len, index, self.hot_cost);
        }
    }
}

/// The choice for one copy. The default is an untimed `memcpy`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pick {
    pub(crate) streaming: bool,
    /// True if the submitting core executes the copy at once, because the data is, or may be, in its own
    /// cache.
    pub(crate) alone: bool,
    /// True if the copy is part of a [`Trial`](trial::Trial).
    trial: bool,
    role: Role,
    class: u8,
}

impl Pick {
    /// Returns true if the time of this copy has to be recorded.
    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        self.role != Role::Untimed
    }

    /// Returns true for the shared copies of a trial, including those that only warm the caches.
    #[inline]
    pub(crate) fn is_shared_trial(self) -> bool {
        self.trial && !self.alone
    }

    /// Returns the pick for a copy that cannot be executed at once, and is shared instead.
    pub(crate) fn shared(self) -> Self {
        // The time of a shared copy does not measure one core's speed.
        if self.trial && self.alone { Self { trial: false, role: Role::Untimed, ..self } } else { self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Untimed,
    /// A timed copy with the current kernel.
    Sample,
    /// A timed copy of a probe or trial.
    Probe,
}
