//! [`CopyTuner`]: chooses the kernel for each copy, by a hint or by measured times.

#![expect(unsafe_code, reason = "copies between raw addresses; reads the time stamp counter")]

#[cfg(test)]
mod tests;
mod trial;

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dma_core::{CacheHint, InlineCopy};

use super::Kernel;
use super::kernel::{SHORT, second_level_cache};
use trial::Trial;

/// From this length, [`CacheHint::Cold`] selects the streaming kernel. Shorter copies are as fast with
/// `memcpy`.
pub(super) const STREAM_MIN: usize = 4 << 10;
/// From this length, copies are timed.
pub(super) const LEARN_MIN: usize = 1 << LEARN_MIN_LOG2;
const LEARN_MIN_LOG2: u32 = 14;
/// One class per power of two: 16 KiB to 64 MiB. The last class also holds longer copies.
const LENGTH_CLASSES: usize = 13;

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
    pub(super) fn for_cores(self, cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        Self { classes: self.classes.map(|class| LengthClass { cores, ..class }), ..self }
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
        let class = &mut self.classes[index];
        let skipped = match class.phase {
            Phase::Settled => class.left & class.skip(index) & !1,
            Phase::Probing | Phase::Awaiting => 0,
        };
        class.left -= skipped;
        (skipped, class.streaming)
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
    /// True if the copy is part of a [`Trial`].
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The current kernel is used. The next probe begins after `left` picks.
    #[default]
    Settled,
    /// A probe or trial runs, and has `left` picks left.
    Probing,
    /// All copies of the probe are picked, but some are not recorded yet. After `left` picks, the missing
    /// ones are abandoned.
    Awaiting,
}

/// State of one class of lengths, a power of two. Costs are in ticks per byte; 0 means unknown.
#[derive(Clone, Copy, Debug, Default)]
struct LengthClass {
    /// Maximum length of a copy that fits a core's own cache.
    alone_max: usize,
    /// Number of cores that share a copy.
    cores: u32,
    phase: Phase,
    streaming: bool,
    /// True if `memcpy` is in use, at about the speed of a core's own cache.
    hot: bool,
    /// True if the last trial showed that sharing is faster.
    share_is_faster: bool,
    /// True if the last trial contradicted the current choice for the first time. The next trial decides.
    contradicted: bool,
    left: u32,
    /// Part of `left` that only keeps a distance between probes, and does not pay back the last one. This
    /// part is dropped once the last trial is older than [`RETRY_AFTER`].
    droppable: u32,
    /// Start of the first copy after the last trial, in ticks. 0 if there was no copy yet.
    since: u64,
    /// Smoothed cost of the current kernel.
    cost: f32,
    /// The settled cost, from which shifts are measured.
    reference: f32,
    /// Number of samples since the last decision, up to `REFERENCE`.
    age: u8,
    /// Number of consecutive samples faster (positive) or slower (negative) than the reference, up to
    /// `SHIFT`.
    drift: i8,
    /// Number of consecutive probes that changed nothing, up to a limit.
    backoff: u8,
    /// True if the next probe is caused by a shift.
    shift_detected: bool,
    /// Number of consecutive probes after shifts that changed nothing, up to `FUTILE_SHIFTS_MAX`.
    futile_shifts: u8,
    /// Position of the next probe in the cycle of probes and trials, up to `PROBES_PER_TRIAL`.
    cycle_pos: u8,
    /// True if the probe uses the streaming kernel. False while `memcpy` is in use means a trial.
    probe_streaming: bool,
    probe_sum: f32,
    probe_min: f32,
    probe_seen: u32,
    trial: Trial,
    /// Number of doorbells in this trial before which picks were postponed.
    postponed: u32,
    /// Number of doorbells in this trial that woke a helper.
    wake_ups: u32,
}

/// Classes from 4 MiB on start with the streaming kernel, because data larger than the second level cache
/// gains little from that cache.
const STREAM_FIRST: usize = 8;
/// Number of picks of a new class before its first probe.
const FIRST_PROBE_AFTER: u32 = 5;
/// Number of samples until the smoothed cost is reliable.
const SETTLE: u8 = 8;
/// Number of samples until the cost becomes the reference. The number is high because the first samples after
/// a probe differ from later ones.
const REFERENCE: u8 = 24;
/// Number of consecutive samples away from the reference that count as a shift.
const SHIFT: i8 = 6;
/// Limit of `futile_shifts`. Shifts are frequent on a core that other processes also use, so probes after
/// shifts become rarer, up to this limit.
const FUTILE_SHIFTS_MAX: u8 = 5;
const FASTER: f32 = 0.85;
const SLOWER: f32 = 1.35;
/// Number of ordinary copies between probes, as a multiple of the probe's length. Each step of `backoff`
/// doubles this number.
const PROBE_SPACING: u32 = 8;
/// Maximum `backoff` while `memcpy` is used and probes try streaming. A probe has 2 to 17 copies. Between two
/// probes there are at most 33,000 copies of 16 KiB, or 6,000 copies longer than 64 KiB.
const BACKOFF_MAX_MEMCPY: u8 = 8;
/// Maximum `backoff` while streaming is used and probes try `memcpy`. A probe copies at most 16 MiB. Between
/// two probes, at most 8 GiB are copied.
const BACKOFF_MAX_STREAMING: u8 = 6;
/// Number of bytes in a streaming probe, after one copy that is not counted. The first copy does not count,
/// because it also writes back lines that `memcpy` left dirty.
const STREAMING_BURST: usize = 256 << 10;
/// Minimum number of copies in a streaming probe.
const STREAMING_COPIES: u32 = 3;
/// Number of bytes in a `memcpy` probe. Streaming keeps the destination out of the cache, so `memcpy` reaches
/// its speed only after one pass through the working set. The probe covers a second level cache, and grows
/// with `backoff` to cover a third level cache.
const MEMCPY_BURST: usize = 2 << 20;
/// If the cost ratio of two consecutive copies of a `memcpy` probe is below this, the cache is still warming
/// up, and two more copies follow. After streaming, `memcpy` reaches its speed after 3 copies of one pair of
/// 4 MiB, or 7 copies of 16 MiB; each copy is 5 to 40 % faster than the previous one. With data that is not
/// cached, all copies take the same time (measured on a Xeon with 480 MiB of third level cache).
const WARMS: f32 = 0.95;
/// Number of copies that still cost about [`HOPELESS`] times as much after a streaming probe of long cached
/// data, because the cache has to warm up again.
const REWARMING: u32 = 4;
/// Maximum number of doublings of [`MEMCPY_BURST`], to 16 MiB.
const BURST_GROWTH: u8 = 3;
/// Maximum length of a copy that one core executes alone if the data is in its own cache, because other cores
/// would have to fetch the data from this cache. Trials may override it. See [`alone_max`].
const ALONE_MAX: usize = 1 << 20;
/// Maximum length of a copy that one core executes alone if the data may be in its own cache. Even if the
/// data comes from memory, such a copy takes little time.
const MAYBE_ALONE_MAX: usize = 256 << 10;
/// The first class with trials, 64 KiB. Most shorter copies are executed during submission anyway.
const ALONE_FIRST: usize = 2;
/// Number of probes for each trial, because trials are long. With cached data, the roles are swapped: number
/// of trials for each probe, because streaming almost never wins there.
const PROBES_PER_TRIAL: u8 = 4;
/// Number of shared bursts per trial, after one burst by one core. More than one, because the helpers have to
/// fetch the data first.
const TRIAL_SHARED: u32 = 3;
/// Backoff limit after the speed of cached copies has shifted.
const BACKOFF_SHIFTED: u8 = PROBES_PER_TRIAL + 2;
/// Age at which the result of a trial is checked again. The result may be outdated by then, because the
/// hypervisor migrates vCPUs several times a second, to sibling threads or behind other caches.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Maximum cost of a cached copy, relative to the cost in the core's own cache.
const HOT: f32 = 1.5;
/// If a copy of a probe costs more than this, relative to the current kernel, the probe ends at once.
const HOPELESS: f32 = 1.5;
/// The extra time of a probe or trial is at most 1/`PAID_BACK` of the time until the next one. Streaming
/// cached data takes up to 45 times as long as `memcpy` (16 KiB on a Zen 3,
/// `cargo bench -p dma-cpu --bench copy`).
const PAID_BACK: f32 = 32.0;
/// Maximum plausible cost ratio. A larger one may be caused by an interrupt.
const BELIEVED: f32 = 16.0;
/// Cost ratio of a copy that is published but executed by its owner alone, without waking a helper.
const PUBLISHED: f32 = 1.25;
/// Streaming is chosen if it costs at most this ratio of `memcpy`. The ratio is less than 1, because
/// streaming leaves the destination outside the cache of its next reader.
const STREAMING_WINS: f32 = 0.92;
/// `memcpy` is chosen if it costs at most this ratio of streaming, even if it is slightly slower.
const MEMCPY_WINS: f32 = 1.03;

impl LengthClass {
    fn new(index: usize, alone_max: usize) -> Self {
        Self {
            alone_max,
            cores: 1,
            streaming: index >= STREAM_FIRST,
            left: FIRST_PROBE_AFTER,
            probe_min: f32::INFINITY,
            ..Self::default()
        }
    }

    #[inline]
    fn pick(&mut self, index: usize, len: usize, in_flight: u32) -> Pick {
        if self.left == 0 {
            self.advance(index, in_flight);
        }
        if len > self.alone_max && self.is_trial() {
            // The copy is too long for one core's cache, so it cannot be part of the trial.
            self.settle(index);
        }
        self.left -= 1;
        let probing = self.phase == Phase::Probing;
        let trial = self.is_trial();
        let shared = if trial { TRIAL_SHARED * self.memcpy_burst(index) } else { 0 };
        let role = if probing {
            // The first copies of each kind warm the cache.
            let left = if trial && self.left >= shared { self.left - shared } else { self.left };
            if left < self.judged(index) { Role::Probe } else { Role::Untimed }
        } else if trial {
            Role::Untimed
        } else if self.left & self.skip(index) == 0 && !self.is_new() {
            Role::Sample
        } else {
            Role::Untimed
        };
        let streaming = if probing { self.probe_streaming } else { self.streaming };
        let unknown = !self.streaming && !self.share_is_faster && self.age < SETTLE;
        let (sure, maybe) = if trial {
            // The trial's shared copies are still running.
            (probing && self.left >= shared, false)
        } else {
            ((self.hot && !self.share_is_faster) || (probing && !streaming), probing || unknown)
        };
        let alone = (sure && len <= self.alone_max) || (maybe && len <= MAYBE_ALONE_MAX);
        Pick { streaming, alone, trial, role, class: index as u8 }
    }

    /// Returns true while a trial runs.
    #[inline]
    fn is_trial(&self) -> bool {
        self.phase != Phase::Settled && !self.streaming && !self.probe_streaming
    }

    /// Returns true for the very first pick, which may fault pages in.
    fn is_new(&self) -> bool {
        self.cost == 0.0 && self.left == FIRST_PROBE_AFTER - 1
    }

    /// Enters the next phase. Called when `left` is 0.
    #[cold]
    fn advance(&mut self, index: usize, in_flight: u32) {
        match self.phase {
            Phase::Settled => {
                self.phase = Phase::Probing;
                self.probe_streaming = !self.streaming && !self.is_trial_next(index);
                self.left = self.burst(index);
                (self.probe_sum, self.probe_min, self.probe_seen) = (0.0, f32::INFINITY, 0);
                (self.trial, self.postponed, self.wake_ups) = (Trial::default(), 0, 0);
            }
            Phase::Probing => {
                self.phase = Phase::Awaiting;
                // The queue's depth is added, because all earlier submissions complete before the last copy
                // of the probe.
                self.left = (PROBE_SPACING * self.burst(index)).saturating_add(in_flight);
            }
            Phase::Awaiting if self.is_trial() => self.settle(index),
            Phase::Awaiting => self.decide(index, 0.0),
        }
    }

    /// Returns true for lengths at which helper threads may or may not make a copy faster, depending on the
    /// cache.
    fn may_be_alone(&self, index: usize) -> bool {
        self.cores > 1 && (ALONE_FIRST..=class_of(self.alone_max)).contains(&index)
    }

    /// Returns true if the next probe is a trial. With cached data most probes are trials, otherwise few.
    fn is_trial_next(&self, index: usize) -> bool {
        !self.streaming && (self.cycle_pos == PROBES_PER_TRIAL) != self.hot && self.may_be_alone(index)
    }

    /// Advances in the cycle of probes.
    fn advance_cycle(&mut self) {
        self.cycle_pos = if self.cycle_pos == PROBES_PER_TRIAL { 0 } else { self.cycle_pos + 1 };
    }

    /// Makes the next probe a trial and schedules it soon, if the class has trials. `memcpy` must be in use.
    fn schedule_trial_soon(&mut self, index: usize) {
        if self.may_be_alone(index) {
            self.cycle_pos = if self.hot { 0 } else { PROBES_PER_TRIAL };
            self.left = self.left.min(self.rest(index));
        }
    }

    #[inline]
    fn record(&mut self, pick: Pick, cost: f32, index: usize, hot_cost: f32) {
        match pick.role {
            Role::Sample if pick.streaming == self.streaming => self.sample(cost, index, hot_cost),
            Role::Probe if pick.trial && pick.alone && self.is_trial() => {
                self.trial.add_alone(cost, self.judged(index));
                self.try_to_judge(index, hot_cost);
            }
            Role::Probe if pick.trial || self.is_trial() => {} // belongs to another probe
            Role::Probe if pick.streaming == self.probe_streaming && self.phase != Phase::Settled => {
                self.probe_sum += cost;
                self.probe_min = self.probe_min.min(cost);
                self.probe_seen += 1;
                let judged = self.judged(index);
                // A `memcpy` probe of long copies continues until a copy is not much faster than the previous
                // one.
                let in_pairs = self.streaming && judged == 2;
                if in_pairs && self.probe_seen == 2 && cost < WARMS * (self.probe_sum - cost) {
                    (self.phase, self.left) = (Phase::Probing, judged);
                    (self.probe_sum, self.probe_min, self.probe_seen) = (0.0, f32::INFINITY, 0);
                    return;
                }
                let hopeless = self.cost > 0.0 && cost > HOPELESS * self.cost && !in_pairs;
                if self.probe_seen == judged || hopeless {
                    self.decide(index, hot_cost);
                }
            }
            _ => {} // belongs to a choice that was abandoned since
        }
    }

    fn record_shared(&mut self, busy: f32, work: f32, index: usize, hot_cost: f32) {
        if self.is_trial() {
            self.trial.add_shared(busy, work, self.judged(index));
            self.try_to_judge(index, hot_cost);
        }
    }

    /// Ends a complete trial, and decides about sharing.
    fn try_to_judge(&mut self, index: usize, hot_cost: f32) {
        if !self.trial.is_complete(self.judged(index)) {
            return;
        }
        let were_alone = self.hot && !self.share_is_faster;
        let verdict = self.trial.verdict(!were_alone, self.cores);
        let alone = verdict.alone < HOT * hot_cost && !verdict.share;
        let changes = if were_alone { verdict.share } else { self.share_is_faster && !verdict.share };
        self.contradicted = changes && !self.contradicted;
        if self.contradicted {
            // Other users of a core may have caused this result temporarily.
            let rest = PROBE_SPACING * self.trial_burst(index);
            self.settle(index);
            self.schedule_trial_soon(index);
            self.left = self.left.min(rest);
            return;
        }
        self.share_is_faster = verdict.share;
        self.hot = alone || (self.share_is_faster && verdict.work < HOT * hot_cost);
        // Cost ratio of the rejected choice, its number of bursts, and the wake-ups that it needed.
        let (slower, bursts, wake_ups) = if alone {
            (verdict.shared / verdict.alone, TRIAL_SHARED, self.wake_ups)
        } else {
            (verdict.alone / verdict.shared, 1, 0)
        };
        let owed = paid_back(slower, bursts * self.memcpy_burst(index)) + paid_back(BELIEVED, wake_ups);
        if alone != were_alone {
            (self.cost, self.age) = (if alone { verdict.alone } else { verdict.work }, 0);
            // After a change, another change is likely.
            self.backoff = self.backoff.min(BACKOFF_SHIFTED);
        }
        self.settle(index);
        self.schedule_probe(self.left, owed);
    }

    /// Postpones the last pick, because no helper could share it. The number of doorbells with postponed
    /// picks is limited to the trial's number of shared copies.
    fn postpone_trial(&mut self, index: usize, first: bool, sleeps: bool) {
        if self.phase != Phase::Probing || !self.is_trial() {
            return;
        }
        self.postponed += u32::from(first);
        self.wake_ups += u32::from(first && sleeps);
        if self.postponed <= TRIAL_SHARED * self.memcpy_burst(index) {
            self.left += 1;
            return;
        }
        // Helpers that sleep this often do not help. Other users of a core may have caused this, so the
        // choice changes only the second time.
        let contradicted = self.share_is_faster && !self.contradicted;
        (self.share_is_faster, self.contradicted) = (contradicted, contradicted);
        self.settle(index);
        self.schedule_probe(
            self.left,
            paid_back(BELIEVED, self.wake_ups) + paid_back(PUBLISHED, self.postponed),
        );
    }

    /// Ends the trial.
    fn settle(&mut self, index: usize) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX_MEMCPY);
        (self.phase, self.drift) = (Phase::Settled, 0);
        self.advance_cycle();
        self.schedule_probe(self.rest(index), 0);
    }

    /// Schedules the next probe after `copies` copies, or after `owed` copies if that is more, to pay back
    /// the last probe.
    fn schedule_probe(&mut self, copies: u32, owed: u32) {
        self.left = copies.max(owed);
        (self.droppable, self.since) = (self.left - owed, 0);
    }

    /// Records that one core made a copy at `now`. Schedules another trial once the last trial is old and
    /// paid back.
    fn schedule_retry(&mut self, index: usize, now: u64, retry_after: u64) {
        let is_left_alone = self.hot && !self.share_is_faster && self.phase == Phase::Settled;
        if !is_left_alone || !self.may_be_alone(index) {
            return;
        }
        if self.since == 0 {
            self.since = now;
        } else if self.droppable > 0 && now.saturating_sub(self.since) > retry_after {
            self.left = self.left.saturating_sub(self.droppable);
            // A short trial suffices: if it contradicts the choice, the next trial follows soon.
            (self.droppable, self.backoff) = (0, self.backoff.min(PROBES_PER_TRIAL));
        }
    }

    fn sample(&mut self, cost: f32, index: usize, hot_cost: f32) {
        // The smoothed cost starts as a mean. One preempted copy must not outweigh the rest.
        let clipped = if self.age == 0 { cost } else { cost.min(2.0 * self.cost) };
        self.cost += (clipped - self.cost) / f32::from(self.age.min(SETTLE - 1) + 1);
        let hot = !self.streaming && self.cost < HOT * hot_cost;
        if std::mem::replace(&mut self.hot, hot) != hot && self.phase == Phase::Settled {
            if hot && !self.share_is_faster {
                self.schedule_trial_soon(index);
            } else if !hot {
                // While the data was cached, the next probe was scheduled far ahead. Now it has to come
                // sooner.
                self.left = self.left.min(self.rest(index));
            }
        }
        if self.age < REFERENCE {
            self.age += 1;
            self.reference = self.cost;
            return;
        }
        self.drift = if cost < self.reference * FASTER {
            (self.drift.max(0) + 1).min(SHIFT)
        } else if cost > self.reference * SLOWER {
            (self.drift.min(0) - 1).max(-SHIFT)
        } else {
            0
        };
        if self.drift.abs() < SHIFT || self.phase != Phase::Settled {
            return;
        }
        // This sample is used, because the smoothed cost lags behind.
        self.hot = !self.streaming && cost < HOT * hot_cost;
        // If `memcpy` became faster or is cached, there is no reason to probe streaming.
        let content = !self.streaming && (self.drift > 0 || self.hot);
        (self.cost, self.age, self.drift) = (cost, 0, 0);
        if content {
            // The data may be in another cache now.
            if self.may_be_alone(index) {
                self.backoff = self.backoff.min(BACKOFF_SHIFTED);
            }
            self.schedule_trial_soon(index);
        } else {
            let since_probe = self.rest(index).saturating_sub(self.left);
            // Probes the other kernel first, and at once if shifts are rare here.
            (self.backoff, self.cycle_pos, self.shift_detected) =
                (self.backoff.min(self.futile_shifts), 0, true);
            self.left = self.rest(index).saturating_sub(since_probe);
        }
    }

    /// Compares the probe with the current kernel, and keeps the better one.
    #[cold]
    fn decide(&mut self, index: usize, hot_cost: f32) {
        let probe = (self.probe_sum / self.probe_seen as f32).min(2.0 * self.probe_min);
        let known = self.probe_seen > 0 && self.cost > 0.0;
        let better = known && probe < if self.streaming { MEMCPY_WINS } else { STREAMING_WINS } * self.cost;
        let mut owed = 0;
        if better {
            self.streaming = self.probe_streaming;
            self.hot = !self.streaming && probe < HOT * hot_cost;
            (self.share_is_faster, self.cost, self.age, self.backoff, self.cycle_pos) =
                (false, probe, 0, 0, 0);
            self.futile_shifts = 0;
        } else if known {
            let max = if self.streaming { BACKOFF_MAX_STREAMING } else { BACKOFF_MAX_MEMCPY };
            self.backoff = (self.backoff + 1).min(max);
            self.futile_shifts = (self.futile_shifts + u8::from(self.shift_detected)).min(FUTILE_SHIFTS_MAX);
            self.advance_cycle();
            if self.probe_streaming {
                owed = paid_back(probe / self.cost, self.probe_seen + 1);
                if index >= STREAM_FIRST {
                    owed += paid_back(HOPELESS, REWARMING);
                }
            }
        }
        (self.phase, self.shift_detected) = (Phase::Settled, false);
        // A probe without a result is repeated soon.
        self.schedule_probe(if known { self.rest(index) } else { FIRST_PROBE_AFTER }, owed);
        self.drift = 0;
    }

    /// Returns the number of copies in a probe.
    fn burst(&self, index: usize) -> u32 {
        match (self.probe_streaming, self.streaming) {
            (true, _) => streaming_copies(index) + 1,
            (false, true) => self.memcpy_burst(index),
            (false, false) => self.trial_burst(index),
        }
    }

    fn trial_burst(&self, index: usize) -> u32 {
        (1 + TRIAL_SHARED) * self.memcpy_burst(index)
    }

    fn memcpy_burst(&self, index: usize) -> u32 {
        // A `memcpy` probe has to pass through the third level cache, but a trial only through the second.
        let doublings = if self.streaming { self.backoff } else { self.backoff / 2 };
        let bytes = MEMCPY_BURST << doublings.min(BURST_GROWTH);
        // 3 while `memcpy` is probed, so that two copies count: see `WARMS`.
        let least = if self.streaming { 3 } else { 2 };
        ((bytes >> (LEARN_MIN_LOG2 as usize + index)) as u32).max(least)
    }

    /// Returns the number of copies whose times count. The first half of a `memcpy` burst warms the cache.
    fn judged(&self, index: usize) -> u32 {
        if self.probe_streaming { streaming_copies(index) } else { self.memcpy_burst(index).div_ceil(2) }
    }

    /// Returns the number of copies until the next probe.
    fn rest(&self, index: usize) -> u32 {
        let (burst, backoff) = if self.is_trial_next(index) {
            // The back-off of a trial is shorter by the other probes of the cycle, because those have
            // already delayed it.
            (self.trial_burst(index), self.backoff.saturating_sub(PROBES_PER_TRIAL))
        } else if self.streaming {
            (self.memcpy_burst(index), self.backoff)
        } else {
            (streaming_copies(index), if self.hot { BACKOFF_MAX_MEMCPY } else { self.backoff })
        };
        (PROBE_SPACING * burst) << backoff
    }

    /// Returns a mask: a pick is a sample if these bits of `left` are 0. Short copies are sampled rarely, so
    /// that reading the clock takes less than 1 % of their time. After a decision, every copy is sampled at
    /// first.
    fn skip(&self, index: usize) -> u32 {
        match index {
            _ if self.age < SETTLE && self.backoff < 2 => 0,
            0 => 31,
            1 => 7,
            2 | 3 => 3,
            _ => 0,
        }
    }
}

/// Returns the number of normal copies after which the extra time of `copies` copies, each `slower` times as
/// long, is paid back.
fn paid_back(slower: f32, copies: u32) -> u32 {
    ((slower.min(BELIEVED) - 1.0) * copies as f32 * PAID_BACK) as u32
}

/// Returns the number of copies that count in a streaming probe.
fn streaming_copies(index: usize) -> u32 {
    ((STREAMING_BURST >> (LEARN_MIN_LOG2 as usize + index)) as u32).max(STREAMING_COPIES)
}

#[inline]
fn class_of(len: usize) -> usize {
    (len.ilog2().saturating_sub(LEARN_MIN_LOG2) as usize).min(LENGTH_CLASSES - 1)
}

/// Returns the cost of `memcpy` within a core's second level cache, in ticks per byte. The cost is measured
/// once, which takes some 20 us.
pub(super) fn hot_cost() -> f32 {
    static COST: OnceLock<f32> = OnceLock::new();
    *COST.get_or_init(|| {
        /// Larger than any first level cache, and small enough for two of them to fit any second level cache.
        /// Miri has no caches, and copies each byte.
        const LEN: usize = if cfg!(miri) { 64 } else { 64 << 10 };
        /// Source and destination are half a page apart. At a distance of few bytes within a page, CPUs
        /// mistake loads and stores for aliases.
        const GAP: usize = 2 << 10;
        let mut bytes = vec![1_u8; LEN + GAP + LEN];
        let (src, rest) = bytes.split_at_mut(LEN);
        let dst = &mut rest[GAP..];
        let times = (0..10).map(|_| {
            let start = ticks();
            // SAFETY: both vectors have `LEN` bytes and do not overlap.
            unsafe { Kernel::memcpy().copy(dst.as_mut_ptr(), src.as_ptr(), LEN) };
            let ticks = ticks().wrapping_sub(start);
            // Prevents the compiler from removing the copy.
            std::hint::black_box(&mut *dst);
            ticks
        });
        times.min().unwrap_or(0) as f32 / LEN as f32
    })
}

/// Converts a time to ticks of [`ticks`]. The first call measures the rate, which takes 60 us.
pub(crate) fn ticks_in(time: Duration) -> u64 {
    const MEASURED: Duration = Duration::from_micros(20);
    static PER_SECOND: OnceLock<f64> = OnceLock::new();
    let measure = || {
        let (since, start) = (Instant::now(), ticks());
        loop {
            let (took, now) = (since.elapsed(), ticks());
            if took >= MEASURED {
                return now.wrapping_sub(start) as f64 / took.as_secs_f64();
            }
        }
    };
    let per_second = PER_SECOND.get_or_init(|| {
        // The median is used, because the thread may be preempted between the two clock readings.
        let mut measured = [measure(), measure(), measure()];
        measured.sort_unstable_by(f64::total_cmp);
        measured[1]
    });
    (per_second * time.as_secs_f64()) as u64
}

/// Returns the maximum length of a copy whose source and destination fit a core's own cache of this size.
/// Longer copies at the same speed are in a shared cache, which is almost as fast on some CPUs (a Zen 3
/// copies 1 MiB at 36 GB/s and 64 KiB at 50 GB/s).
fn alone_max(cache: Option<usize>) -> usize {
    cache.map_or(ALONE_MAX, |bytes| (bytes / 2).min(ALONE_MAX))
}

/// Reads a cheap clock. The unit of the clock does not matter, because only ratios are used.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 CPU has a time stamp counter.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let ticks: u64;
        // SAFETY: this reads the virtual counter, which Linux makes accessible to user space.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        // On these architectures, and in Miri, there is no streaming kernel, so nothing is timed.
        0
    }
}
