//! [`Probe`]: measures the kernel that is not in use.

use super::class_index::LEARN_MIN_LOG2;
use super::schedule::paid_back;

/// Classes from 4 MiB on start with the streaming kernel, because data larger than the second level cache
/// gains little from that cache.
pub(super) const STREAM_FIRST: usize = 8;
/// Number of bytes in a streaming probe, after one copy that is not counted. The first copy does not count,
/// because it also writes back lines that `memcpy` left dirty.
const STREAMING_BURST: usize = 256 << 10;
/// Minimum number of copies in a streaming probe.
const STREAMING_COPIES: u32 = 3;
/// Number of bytes in a `memcpy` probe. Streaming keeps the destination out of the cache, so `memcpy` reaches
/// its speed only after one pass through the working set. The probe covers a second level cache, and grows
/// with `backoff` to cover a third level cache.
const MEMCPY_BURST: usize = 2 << 20;
/// Maximum number of doublings of [`MEMCPY_BURST`], to 16 MiB.
const BURST_GROWTH: u8 = 3;
/// If the cost ratio of two consecutive copies of a `memcpy` probe is below this, the cache is still warming
/// up, and two more copies follow. After streaming, `memcpy` reaches its speed after 3 copies of one pair of
/// 4 MiB, or 7 copies of 16 MiB; each copy is 5 to 40 % faster than the previous one. With data that is not
/// cached, all copies take the same time (measured on a Xeon with 480 MiB of third level cache).
const WARMS: f32 = 0.95;
/// If a copy of a probe costs more than this, relative to the current kernel, the probe ends at once.
const HOPELESS: f32 = 1.5;
/// Number of copies that still cost about [`HOPELESS`] times as much after a streaming probe of long cached
/// data, because the cache has to warm up again.
const REWARMING: u32 = 4;
/// Streaming is chosen if it costs at most this ratio of `memcpy`. The ratio is less than 1, because
/// streaming leaves the destination outside the cache of its next reader.
const STREAMING_WINS: f32 = 0.92;
/// `memcpy` is chosen if it costs at most this ratio of streaming, even if it is slightly slower.
const MEMCPY_WINS: f32 = 1.03;

/// Costs of the copies of a probe, in ticks per byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// True if the probe uses the streaming kernel. False while `memcpy` is in use means a trial.
    pub(super) streaming: bool,
    sum: f32,
    min: f32,
    pub(super) seen: u32,
}

impl Probe {
    pub(super) fn new(streaming: bool) -> Self {
        Self { streaming, sum: 0.0, min: f32::INFINITY, seen: 0 }
    }

    pub(super) fn add(&mut self, cost: f32) {
        self.sum += cost;
        self.min = self.min.min(cost);
        self.seen += 1;
    }

    /// Returns true if the cache is still warming up after the last two copies. `cost` is that of the last
    /// copy.
    pub(super) fn warms(&self, cost: f32) -> bool {
        self.seen == 2 && cost < WARMS * (self.sum - cost)
    }

    /// Returns the cost of a copy, which one preempted copy does not increase much.
    pub(super) fn cost(&self) -> f32 {
        (self.sum / self.seen as f32).min(2.0 * self.min)
    }

    /// Returns true if the probed kernel is to replace the current one, which costs `current`.
    pub(super) fn wins(&self, current: f32) -> bool {
        self.cost() < if self.streaming { STREAMING_WINS } else { MEMCPY_WINS } * current
    }

    /// Returns the number of copies that pay back this probe, if the current kernel, which costs `current`,
    /// stays in use.
    pub(super) fn owed(&self, current: f32, index: usize) -> u32 {
        if !self.streaming {
            return 0;
        }
        let rewarming = if index >= STREAM_FIRST { paid_back(HOPELESS, REWARMING) } else { 0 };
        paid_back(self.cost() / current, self.seen + 1) + rewarming
    }
}

/// Returns true if a copy of a probe costs too much to continue the probe.
pub(super) fn is_hopeless(cost: f32, current: f32) -> bool {
    current > 0.0 && cost > HOPELESS * current
}

/// Returns the number of copies that count in a streaming probe.
pub(super) fn streaming_copies(index: usize) -> u32 {
    ((STREAMING_BURST >> (LEARN_MIN_LOG2 as usize + index)) as u32).max(STREAMING_COPIES)
}

/// Returns the number of copies in a burst with `memcpy`: a probe while streaming is in use, and otherwise a
/// part of a trial.
pub(super) fn memcpy_copies(index: usize, streaming: bool, backoff: u8) -> u32 {
    // A `memcpy` probe has to pass through the third level cache, but a trial only through the second.
    let doublings = if streaming { backoff } else { backoff / 2 };
    let bytes = MEMCPY_BURST << doublings.min(BURST_GROWTH);
    // 3 while `memcpy` is probed, so that two copies count: see `WARMS`.
    let least = if streaming { 3 } else { 2 };
    ((bytes >> (LEARN_MIN_LOG2 as usize + index)) as u32).max(least)
}
