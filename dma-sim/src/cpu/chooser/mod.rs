//! Which kernel copies how much: told by a hint, or learned from timings.

#![expect(unsafe_code, reason = "copies between raw addresses; reads the time stamp counter")]

#[cfg(test)]
mod tests;
mod trial;

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dma_core::CacheHint;

use super::Kernel;
use super::kernel::{SHORT, second_level_cache};
use trial::Trial;

/// From this length on, a caller that says [`CacheHint::Cold`] gets the streaming kernel: below it, `memcpy` is as fast
/// whatever the caller knows.
pub(super) const STREAM_MIN: usize = 4 << 10;
/// From this length on, timings are taken. Shorter copies pay for nothing but the comparison with it.
const LEARN_MIN: usize = 1 << LEARN_MIN_LOG2;
const LEARN_MIN_LOG2: u32 = 14;
/// One class per power of two: 16 KiB to 64 MiB, the last one with everything longer.
const CLASSES: usize = 13;

/// Chooses the kernel for each copy, by its length and a hint.
///
/// With no hint it learns: for each power of two of the length it keeps the smoothed cost per byte of the kernel in
/// use, tries the other one now and then, ever more rarely while that changes nothing, and soon again once the
/// speed of the kernel in use shifts, as it does when the working set moves into the cache or out of it. In the same way
/// an engine with threads finds out whether copies within a cache are faster if cores share them.
/// Lengths below 16 KiB are never timed.
///
/// One thread's: it allocates nothing and shares nothing. Copies and fills differ in cost, so give each its own.
#[derive(Debug)]
pub struct Chooser {
    streaming: Option<Kernel>,
    /// What is known to be as fast as a core's own cache, in ticks per byte.
    hot_cost: f32,
    /// How many picks may be made before the first of them is recorded.
    in_flight: u32,
    /// [`OLD`] in ticks.
    old: u64,
    classes: [Class; CLASSES],
}

impl Default for Chooser {
    fn default() -> Self {
        Self::new()
    }
}

impl Chooser {
    /// A chooser between `memcpy` and the best streaming kernel of this CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::with_streaming(Kernel::streaming())
    }

    /// A chooser between `memcpy` and `streaming`; with `None`, everything is `memcpy`.
    #[must_use]
    pub fn with_streaming(streaming: Option<Kernel>) -> Self {
        let alone_max = alone_max(second_level_cache());
        let classes = std::array::from_fn(|index| Class::new(index, alone_max));
        Self { streaming, hot_cost: hot_cost(), in_flight: 1, old: ticks_in(OLD), classes }
    }

    /// The same for a queue of this depth: up to so many copies are in flight, and their times come as late.
    pub(super) fn for_depth(self, depth: usize) -> Self {
        Self { in_flight: u32::try_from(depth).unwrap_or(u32::MAX / 2), ..self }
    }

    /// The same where so many cores, the caller's among them, share what is not done alone.
    pub(super) fn for_cores(self, cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        Self { classes: self.classes.map(|class| Class { cores, ..class }), ..self }
    }

    /// Copies `len` bytes from `src` to `dst` with the kernel that `hint` or experience suggests.
    ///
    /// Like [`Kernel::copy`] in everything else.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::copy`].
    #[inline]
    pub unsafe fn copy(&mut self, dst: *mut u8, src: *const u8, len: usize, hint: CacheHint) {
        if len <= SHORT {
            // SAFETY: the caller's promise.
            return unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
        }
        if len < STREAM_MIN {
            // SAFETY: as above.
            return unsafe { Kernel::memcpy().copy(dst, src, len) };
        }
        let pick = self.pick(len, hint);
        let Ok(()) = self.run(pick, len, |kernel| {
            // SAFETY: the caller's promise.
            unsafe { kernel.copy(dst, src, len) };
            Ok::<_, Infallible>(())
        });
    }

    /// Fills the `len` bytes at `dst` with `pattern`, with the kernel that `hint` or experience suggests.
    ///
    /// Like [`Kernel::fill`] in everything else.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::fill`].
    #[inline]
    pub unsafe fn fill(&mut self, dst: *mut u8, pattern: [u8; 8], len: usize, hint: CacheHint) {
        let pick = self.pick(len, hint);
        let Ok(()) = self.run(pick, len, |kernel| {
            // SAFETY: the caller's promise.
            unsafe { kernel.fill(dst, pattern, len) };
            Ok::<_, Infallible>(())
        });
    }

    /// Has `work` move `len` bytes with the kernel that was picked for them, and learns from it, unless it fails: then it has not moved all of them.
    #[inline]
    pub(super) fn run<E>(
        &mut self,
        pick: Pick,
        len: usize,
        work: impl FnOnce(Kernel) -> Result<(), E>,
    ) -> Result<(), E> {
        let kernel = self.kernel(pick);
        if !pick.is_timed() {
            return work(kernel);
        }
        let start = ticks();
        let result = work(kernel);
        if result.is_ok() {
            self.record(pick, ticks().wrapping_sub(start), len);
            self.remind(pick, start);
        }
        result
    }

    /// A timed pick was done by who asked for it, and begun at `now`.
    fn remind(&mut self, pick: Pick, now: u64) {
        if pick.alone {
            let index = usize::from(pick.class);
            self.classes[index].remind(index, now, self.old);
        }
    }

    /// What to use for a copy of `len` bytes. Where [`Pick::is_timed`], tell [`Self::record`] how long it took.
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

    /// The kernel that a pick stands for.
    #[inline]
    pub(crate) fn kernel(&self, pick: Pick) -> Kernel {
        match self.streaming {
            Some(streaming) if pick.streaming => streaming,
            _ => Kernel::memcpy(),
        }
    }

    /// Learns from a timed pick: `len` bytes took `ticks`, of whatever clock, always the same, of all cores together.
    ///
    /// Picks may be recorded late and in any order, as when other threads do the work, and some never at all.
    #[inline]
    pub(crate) fn record(&mut self, pick: Pick, ticks: u64, len: usize) {
        if pick.is_timed() && len > 0 {
            let index = usize::from(pick.class);
            self.classes[index].record(pick, ticks as f32 / len as f32, index, self.hot_cost);
        }
    }

    /// A pick that [`Pick::is_shared_trial`] is made while nobody who is to share it is awake: it shows nothing, and another one takes its place. `first`: of
    /// those since the last doorbell, which is what wakes them, if anybody `sleeps`. A trial to which they do not come for long is dropped.
    pub(crate) fn put_off(&mut self, pick: Pick, first: bool, sleeps: bool) -> Pick {
        let index = usize::from(pick.class);
        self.classes[index].put_off(index, first, sleeps);
        Pick { role: Role::Untimed, ..pick }
    }

    /// Learns from a pick that [`Pick::is_shared_trial`]: for its `len` bytes all cores together took `ticks`, and the queue was busy for
    /// `busy` of them, which belong to no other copy.
    pub(crate) fn record_shared(&mut self, pick: Pick, busy: u64, ticks: u64, len: usize) {
        if pick.is_timed() && len > 0 {
            let (index, len) = (usize::from(pick.class), len as f32);
            self.classes[index].record_shared(busy as f32 / len, ticks as f32 / len, index, self.hot_cost);
        }
    }
}

/// One choice made; by default, of `memcpy` without a hint or a thought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pick {
    pub(crate) streaming: bool,
    /// Best done by the core that asks, at once: the data is in its own cache, or is to be found out to be.
    pub(crate) alone: bool,
    /// Part of a [`Trial`].
    trial: bool,
    role: Role,
    class: u8,
}

impl Pick {
    /// Whether the chooser wants to know how long this one takes.
    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        self.role != Role::Untimed
    }

    /// Whether it is to show how fast cores are that share it, or to go before those that are.
    #[inline]
    pub(crate) fn is_shared_trial(self) -> bool {
        self.trial && !self.alone
    }

    /// The same pick where it cannot be done at once, but is to be shared whatever it says.
    pub(crate) fn shared(self) -> Self {
        // It shows nothing of being alone.
        if self.trial && self.alone { Self { trial: false, role: Role::Untimed, ..self } } else { self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Untimed,
    /// A sample of the kernel in use.
    Sample,
    /// A sample of what is being tried.
    Probe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Using what was found best; `left` picks until the next probe.
    Settled,
    /// Trying something else; `left` picks of it to go.
    Probing,
    /// All probes are picked, not all are recorded; `left` picks before giving up on the missing ones.
    Awaiting,
}

/// What is known about one power of two of lengths. Costs are ticks per byte; zero is "not known".
#[derive(Clone, Copy, Debug)]
struct Class {
    /// Up to this length, copies within a core's own cache are left to it.
    alone_max: usize,
    /// How many cores share what is not done alone.
    cores: u32,
    phase: Phase,
    streaming: bool,
    /// Using `memcpy`, at about the speed of a core's own cache.
    hot: bool,
    /// A trial has shown that cores which share are faster than one alone.
    together: bool,
    /// The last trial was the first to show that the other way is better: the next one decides.
    doubted: bool,
    left: u32,
    /// So many of these pay nothing back: they are left out once it is long ago that something was tried.
    spare: u32,
    /// When the first copy after that was begun, in ticks; 0: none was yet.
    since: u64,
    /// Smoothed cost of the kernel in use.
    cost: f32,
    /// The cost when it had settled, to see a shift by.
    reference: f32,
    /// Samples since the last decision, up to `REFERENCE`.
    age: u8,
    /// Samples in a row faster (positive) or slower (negative) than the reference, up to `SHIFT`: while probes are awaited there
    /// may be any number of them.
    drift: i8,
    /// Probes in a row that changed nothing, up to a limit.
    backoff: u8,
    /// The next probe is because of a shift.
    alarm: bool,
    /// Such probes in a row that changed nothing, up to `ALARMS_MAX`.
    alarms: u8,
    /// Where in the order of probes the next one is, up to `ODD_TURN`.
    turn: u8,
    /// Which kernel is being tried. If that is `memcpy`, and in use: a trial.
    probe_streaming: bool,
    probe_sum: f32,
    probe_min: f32,
    probe_seen: u32,
    trial: Trial,
    /// Doorbells of this trial before which picks were put off,
    late: u32,
    /// and those of them that had to wake somebody.
    calls: u32,
}

/// Classes from 4 MiB on start with the streaming kernel: what does not fit a second level cache gains little from it.
const STREAM_FIRST: usize = 8;
/// Picks of a new class before it probes.
const FIRST_PROBE_AFTER: u32 = 5;
/// Samples until the smoothed cost is to be relied on,
const SETTLE: u8 = 8;
/// and until it serves as reference: the first ones after a probe are slower, or faster, than those to come.
const REFERENCE: u8 = 24;
/// Samples in a row off the reference that make a shift.
const SHIFT: i8 = 6;
/// Where shifts have meant nothing so many times, as on a core that others use too, the probe for the next one is as rare as after so many probes without one.
const ALARMS_MAX: u8 = 5;
const FASTER: f32 = 0.85;
const SLOWER: f32 = 1.35;
/// A probe is followed by at least this many times its length of ordinary copies; doubled with each step of `backoff`.
const REST: u32 = 8;
/// A probe of the streaming kernel is three to sixteen copies, or one if that shows enough, and one before them: of 16 KiB 33,000 copies lie between
/// two at most, of more than 64 KiB 6000.
const BACKOFF_MAX_MEMCPY: u8 = 8;
/// A probe of `memcpy` is up to 16 MiB: 8 GiB lie between two at most.
const BACKOFF_MAX_STREAMING: u8 = 6;
/// Bytes in a row that try the streaming kernel, behind one copy that does not count. They pay for the change, since what `memcpy` left in the
/// cache has to go to memory meanwhile: the one copy most, those after it ever less.
const STREAMING_BURST: usize = 256 << 10;
/// But so many copies, however long they are.
const STREAMING_COPIES: u32 = 3;
/// Bytes in a row that try `memcpy`: streaming keeps the destination out of the cache, so `memcpy` shows its speed
/// only after it has been through the working set once. This covers a second level cache; grows with `backoff`
/// to cover a third.
const MEMCPY_BURST: usize = 2 << 20;
/// How often it doubles at most, to 16 MiB.
const BURST_GROWTH: u8 = 3;
/// Up to this length at most, copies that are found to be within a core's own cache are left to that core, if trials do not show that it is
/// faster to share them: another one would have to fetch the data from it first. See [`alone_max`].
const ALONE_MAX: usize = 1 << 20;
/// Up to this length, copies that may be are as well: from memory, they do not keep the core for long either.
const MAYBE_ALONE_MAX: usize = 256 << 10;
/// Classes below that of 64 KiB are done alone anyway, mostly: no trials for that.
const ALONE_FIRST: usize = 2;
/// Where both are worth it, so many probes of the streaming kernel, which are short, come before a trial, which is not; at the speed of a cache, where
/// streaming hardly ever is, so many trials before a probe.
const ODD_TURN: u8 = 4;
/// A trial is a burst of copies done alone, and then so many bursts that are shared, once other cores are awake: these have to fetch what they are to copy
/// first.
const TRIAL_SHARED: u32 = 3;
/// Once copies within a cache are faster or slower than they were, the next trial is this rare at most.
const BACKOFF_SHIFTED: u8 = ODD_TURN + 2;
/// What a trial has shown may be different by then, however few copies there were: a host moves the virtual CPUs of a machine, some times a second, to
/// the hardware threads of one core, behind different caches, and back.
const OLD: Duration = Duration::from_millis(100);
/// How much slower than the core's own cache at its best still counts as that.
const HOT: f32 = 1.5;
/// A probe that is this many times slower than the kernel in use ends at once.
const HOPELESS: f32 = 1.5;
/// What a probe of the streaming kernel, or a trial, takes longer than the copies would have taken comes to one part in so many of what lies between it and the next
/// one: of data in the cache, streaming takes up to 45 times as long as `memcpy` (16 KiB on a Zen 3, `cargo bench -p dma-sim --bench cpu_copy`).
const PAID_BACK: f32 = 32.0;
/// But no more than so many times as long is believed: it may have been an interrupt.
const BELIEVED: f32 = 16.0;
/// What is published takes so many times as long at most, if who published it does it all, and nobody has to be woken.
const PUBLISHED: f32 = 1.25;
/// Streaming has to win by this much, since it leaves the destination outside the cache for whoever reads it next ...
const STREAMING_WINS: f32 = 0.92;
/// ... and `memcpy` is taken even when it is a little slower.
const MEMCPY_WINS: f32 = 1.03;

impl Class {
    fn new(index: usize, alone_max: usize) -> Self {
        Self {
            alone_max,
            cores: 1,
            phase: Phase::Settled,
            streaming: index >= STREAM_FIRST,
            hot: false,
            together: false,
            doubted: false,
            left: FIRST_PROBE_AFTER,
            spare: 0,
            since: 0,
            cost: 0.0,
            reference: 0.0,
            age: 0,
            drift: 0,
            backoff: 0,
            alarm: false,
            alarms: 0,
            turn: 0,
            probe_streaming: false,
            probe_sum: 0.0,
            probe_min: f32::INFINITY,
            probe_seen: 0,
            trial: Trial::default(),
            late: 0,
            calls: 0,
        }
    }

    #[inline]
    fn pick(&mut self, index: usize, len: usize, in_flight: u32) -> Pick {
        if self.left == 0 {
            self.advance(index, in_flight);
        }
        if len > self.alone_max && self.is_trial() {
            // Of its class, but never alone.
            self.settle(index);
        }
        self.left -= 1;
        let probing = self.phase == Phase::Probing;
        let trial = self.is_trial();
        let shared = if trial { TRIAL_SHARED * self.memcpy_burst(index) } else { 0 };
        let role = if probing {
            // The first ones of each kind warm the cache.
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
        let unknown = !self.streaming && !self.together && self.age < SETTLE;
        let (sure, maybe) = if trial {
            // What is awaited is to have all cores.
            (probing && self.left >= shared, false)
        } else {
            ((self.hot && !self.together) || (probing && !streaming), probing || unknown)
        };
        let alone = (sure && len <= self.alone_max) || (maybe && len <= MAYBE_ALONE_MAX);
        Pick { streaming, alone, trial, role, class: index as u8 }
    }

    /// Whether a trial is under way.
    #[inline]
    fn is_trial(&self) -> bool {
        self.phase != Phase::Settled && !self.streaming && !self.probe_streaming
    }

    /// Whether this is the very first pick, which may fault pages in.
    fn is_new(&self) -> bool {
        self.cost == 0.0 && self.left == FIRST_PROBE_AFTER - 1
    }

    /// `left` has run out: on to the next phase.
    #[cold]
    fn advance(&mut self, index: usize, in_flight: u32) {
        match self.phase {
            Phase::Settled => {
                self.phase = Phase::Probing;
                self.probe_streaming = !self.streaming && !self.turn_of_trial(index);
                self.left = self.burst(index);
                (self.probe_sum, self.probe_min, self.probe_seen) = (0.0, f32::INFINITY, 0);
                (self.trial, self.late, self.calls) = (Trial::default(), 0, 0);
            }
            Phase::Probing => {
                self.phase = Phase::Awaiting;
                // The last probe is behind all that was submitted before it.
                self.left = (REST * self.burst(index)).saturating_add(in_flight);
            }
            Phase::Awaiting if self.is_trial() => self.settle(index),
            Phase::Awaiting => self.decide(index, 0.0),
        }
    }

    /// Whether it depends on what is in which cache if a copy is to be shared.
    fn may_be_alone(&self, index: usize) -> bool {
        self.cores > 1 && (ALONE_FIRST..=class_of(self.alone_max)).contains(&index)
    }

    /// Whether the next probe is a trial, where `memcpy` is in use: at the speed of a cache most are, otherwise few.
    fn turn_of_trial(&self, index: usize) -> bool {
        !self.streaming && (self.turn == ODD_TURN) != self.hot && self.may_be_alone(index)
    }

    /// After a probe that is over, the next one.
    fn next_turn(&mut self) {
        self.turn = if self.turn == ODD_TURN { 0 } else { self.turn + 1 };
    }

    /// `memcpy` is in use, and settled: has the next probe be a trial, if any can be, and soon.
    fn hasten_trial(&mut self, index: usize) {
        if self.may_be_alone(index) {
            self.turn = if self.hot { 0 } else { ODD_TURN };
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
            Role::Probe if pick.trial || self.is_trial() => {} // of another probe
            Role::Probe if pick.streaming == self.probe_streaming && self.phase != Phase::Settled => {
                self.probe_sum += cost;
                self.probe_min = self.probe_min.min(cost);
                self.probe_seen += 1;
                if self.probe_seen == self.judged(index) || (self.cost > 0.0 && cost > HOPELESS * self.cost) {
                    self.decide(index, hot_cost);
                }
            }
            _ => {} // of a choice since abandoned
        }
    }

    fn record_shared(&mut self, busy: f32, work: f32, index: usize, hot_cost: f32) {
        if self.is_trial() {
            self.trial.add_shared(busy, work, self.judged(index));
            self.try_to_judge(index, hot_cost);
        }
    }

    /// Ends a trial that has shown enough: whether copies are done alone from now on.
    fn try_to_judge(&mut self, index: usize, hot_cost: f32) {
        if !self.trial.is_complete(self.judged(index)) {
            return;
        }
        let were_alone = self.hot && !self.together;
        let verdict = self.trial.verdict(!were_alone, self.cores);
        let alone = verdict.alone < HOT * hot_cost && !verdict.share;
        let changes = if were_alone { verdict.share } else { self.together && !verdict.share };
        self.doubted = changes && !self.doubted;
        if self.doubted {
            // It may have been others, who use a core: they are gone after a while.
            let rest = REST * self.trial_burst(index);
            self.settle(index);
            self.hasten_trial(index);
            self.left = self.left.min(rest);
            return;
        }
        self.together = verdict.share;
        self.hot = alone || (self.together && verdict.work < HOT * hot_cost);
        // The way that is not taken from now on, how many copies went it, and at how many doorbells somebody was woken who is not from now on.
        let (dearer, bursts, calls) = if alone {
            (verdict.shared / verdict.alone, TRIAL_SHARED, self.calls)
        } else {
            (verdict.alone / verdict.shared, 1, 0)
        };
        let owed = paid_back(dearer, bursts * self.memcpy_burst(index)) + paid_back(BELIEVED, calls);
        if alone != were_alone {
            (self.cost, self.age) = (if alone { verdict.alone } else { verdict.work }, 0);
            // What has changed may change again.
            self.backoff = self.backoff.min(BACKOFF_SHIFTED);
        }
        self.settle(index);
        self.rest_for(self.left, owed);
    }

    /// The last pick was to be shared and there was nobody to share it with: that may be so for as many doorbells as the trial has copies.
    fn put_off(&mut self, index: usize, first: bool, sleeps: bool) {
        if self.phase != Phase::Probing || !self.is_trial() {
            return;
        }
        self.late += u32::from(first);
        self.calls += u32::from(first && sleeps);
        if self.late <= TRIAL_SHARED * self.memcpy_burst(index) {
            self.left += 1;
            return;
        }
        // Whoever sleeps that often is no help; but it may have been others, who use a core.
        let doubted = self.together && !self.doubted;
        (self.together, self.doubted) = (doubted, doubted);
        self.settle(index);
        self.rest_for(self.left, paid_back(BELIEVED, self.calls) + paid_back(PUBLISHED, self.late));
    }

    /// The trial is over, whatever came of it.
    fn settle(&mut self, index: usize) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX_MEMCPY);
        (self.phase, self.drift) = (Phase::Settled, 0);
        self.next_turn();
        self.rest_for(self.rest(index), 0);
    }

    /// The next probe comes after so many copies, of which so many pay back what the last one took; others are added if these are more.
    fn rest_for(&mut self, copies: u32, owed: u32) {
        self.left = copies.max(owed);
        (self.spare, self.since) = (self.left - owed, 0);
    }

    /// A copy was begun at `now` and left to one core. Whether it should be is tried again as soon as that was found out long ago and is paid for.
    fn remind(&mut self, index: usize, now: u64, old: u64) {
        let is_left_alone = self.hot && !self.together && self.phase == Phase::Settled;
        if !is_left_alone || !self.may_be_alone(index) {
            return;
        }
        if self.since == 0 {
            self.since = now;
        } else if self.spare > 0 && now.saturating_sub(self.since) > old {
            self.left = self.left.saturating_sub(self.spare);
            // A short one will do, and if it contradicts, the next one is soon.
            (self.spare, self.backoff) = (0, self.backoff.min(ODD_TURN));
        }
    }

    fn sample(&mut self, cost: f32, index: usize, hot_cost: f32) {
        // The mean at first. One preempted copy must not outweigh the rest.
        let clipped = if self.age == 0 { cost } else { cost.min(2.0 * self.cost) };
        self.cost += (clipped - self.cost) / f32::from(self.age.min(SETTLE - 1) + 1);
        let hot = !self.streaming && self.cost < HOT * hot_cost;
        if std::mem::replace(&mut self.hot, hot) != hot && self.phase == Phase::Settled {
            if hot && !self.together {
                self.hasten_trial(index);
            } else if !hot {
                // It was to be left in peace for long for being hot.
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
        // By what it takes now: the smoothed cost lags behind, and data that has just left the cache would pass for being in it.
        self.hot = !self.streaming && cost < HOT * hot_cost;
        // `memcpy` that is faster than it was, or as fast as a core's own cache, gives no reason to try anything else.
        let content = !self.streaming && (self.drift > 0 || self.hot);
        (self.cost, self.age, self.drift) = (cost, 0, 0);
        if content {
            // What is in a cache may have come to be in another one.
            if self.may_be_alone(index) {
                self.backoff = self.backoff.min(BACKOFF_SHIFTED);
            }
            self.hasten_trial(index);
        } else {
            let since_probe = self.rest(index).saturating_sub(self.left);
            // The other kernel is tried first, and at once if such a shift is not usual here.
            (self.backoff, self.turn, self.alarm) = (self.backoff.min(self.alarms), 0, true);
            self.left = self.rest(index).saturating_sub(since_probe);
        }
    }

    /// Compares the probe with the kernel in use, and settles for the better one.
    #[cold]
    fn decide(&mut self, index: usize, hot_cost: f32) {
        let probe = (self.probe_sum / self.probe_seen as f32).min(2.0 * self.probe_min);
        let known = self.probe_seen > 0 && self.cost > 0.0;
        let better = known && probe < if self.streaming { MEMCPY_WINS } else { STREAMING_WINS } * self.cost;
        let mut owed = 0;
        if better {
            self.streaming = self.probe_streaming;
            self.hot = !self.streaming && probe < HOT * hot_cost;
            (self.together, self.cost, self.age, self.backoff, self.turn) = (false, probe, 0, 0, 0);
            self.alarms = 0;
        } else if known {
            let max = if self.streaming { BACKOFF_MAX_STREAMING } else { BACKOFF_MAX_MEMCPY };
            self.backoff = (self.backoff + 1).min(max);
            self.alarms = (self.alarms + u8::from(self.alarm)).min(ALARMS_MAX);
            self.next_turn();
            if self.probe_streaming {
                owed = paid_back(probe / self.cost, self.probe_seen + 1);
            }
        }
        (self.phase, self.alarm) = (Phase::Settled, false);
        // If nothing is known, soon again, and the same.
        self.rest_for(if known { self.rest(index) } else { FIRST_PROBE_AFTER }, owed);
        self.drift = 0;
    }

    /// Copies in one probe.
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
        // Away from streaming, a probe is to go through the third level of a cache soon; a trial is about the second.
        let doublings = if self.streaming { self.backoff } else { self.backoff / 2 };
        let bytes = MEMCPY_BURST << doublings.min(BURST_GROWTH);
        ((bytes >> (LEARN_MIN_LOG2 as usize + index)) as u32).max(2)
    }

    /// How many of them count: for `memcpy` the second half, the first one warms the cache.
    fn judged(&self, index: usize) -> u32 {
        if self.probe_streaming { streaming_copies(index) } else { self.memcpy_burst(index) / 2 }
    }

    /// Copies until the next probe.
    fn rest(&self, index: usize) -> u32 {
        let (burst, backoff) = if self.turn_of_trial(index) {
            // What came before has delayed it enough.
            (self.trial_burst(index), self.backoff.saturating_sub(ODD_TURN))
        } else if self.streaming {
            (self.memcpy_burst(index), self.backoff)
        } else {
            (streaming_copies(index), if self.hot { BACKOFF_MAX_MEMCPY } else { self.backoff })
        };
        (REST * burst) << backoff
    }

    /// Mask on `left`: how many samples to skip. Short copies are sampled rarely, so that reading the clock stays
    /// below a hundredth of their time; a class that has just decided is sampled fully.
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

/// How many copies pay back that so many took so many times as long.
fn paid_back(dearer: f32, copies: u32) -> u32 {
    ((dearer.min(BELIEVED) - 1.0) * copies as f32 * PAID_BACK) as u32
}

/// Copies of a probe of the streaming kernel that count.
fn streaming_copies(index: usize) -> u32 {
    ((STREAMING_BURST >> (LEARN_MIN_LOG2 as usize + index)) as u32).max(STREAMING_COPIES)
}

#[inline]
fn class_of(len: usize) -> usize {
    (len.ilog2().saturating_sub(LEARN_MIN_LOG2) as usize).min(CLASSES - 1)
}

/// What `memcpy` takes within a core's second level cache, in ticks per byte: measured once, which takes some 20 us.
pub(super) fn hot_cost() -> f32 {
    static COST: OnceLock<f32> = OnceLock::new();
    *COST.get_or_init(|| {
        /// Beyond any first level cache, and within any second level one with its twin.
        const LEN: usize = 64 << 10;
        /// Between them, half a page: at a distance of few bytes within a page, which two allocations may have, CPUs take loads and stores for being of
        /// the same bytes.
        const GAP: usize = 2 << 10;
        let mut bytes = vec![1_u8; LEN + GAP + LEN];
        let (src, rest) = bytes.split_at_mut(LEN);
        let dst = &mut rest[GAP..];
        let times = (0..10).map(|_| {
            let start = ticks();
            // SAFETY: `LEN` bytes each, that do not overlap.
            unsafe { Kernel::memcpy().copy(dst.as_mut_ptr(), src.as_ptr(), LEN) };
            let ticks = ticks().wrapping_sub(start);
            // Opaque: a copy whose result nobody reads need not happen.
            std::hint::black_box(&mut *dst);
            ticks
        });
        times.min().unwrap_or(0) as f32 / LEN as f32
    })
}

/// So long on the clock of [`ticks`]. The first call measures that, which takes 60 us.
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
        // This thread may not run between the one clock and the other.
        let mut measured = [measure(), measure(), measure()];
        measured.sort_unstable_by(f64::total_cmp);
        measured[1]
    });
    (per_second * time.as_secs_f64()) as u64
}

/// Up to which length copies can be within a core's own cache of this size, source and destination both: what is copied as fast as there and is longer is in
/// one that cores share, which is nearly as fast on some CPUs (a Zen 3 copies 1 MiB at 36 GB/s and 64 KiB at 50).
fn alone_max(cache: Option<usize>) -> usize {
    cache.map_or(ALONE_MAX, |bytes| (bytes / 2).min(ALONE_MAX))
}

/// A clock that is cheap to read. Its unit does not matter here: only costs are compared.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has a time stamp counter.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads the virtual counter, which Linux leaves open to user space.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // No streaming kernel, so nothing is ever timed.
        0
    }
}
