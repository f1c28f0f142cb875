//! [`LatencyTimer`]: times the operations of some doorbells.

use std::ops::Range;

use hdrhistogram::Histogram;

use super::histogram;
use crate::run::contender::Clock;

/// Times operations from their submission, or their scheduled time, to their completion.
#[derive(Debug)]
pub(super) struct LatencyTimer {
    pub(super) clock: Clock,
    /// For each place, the time at which its operation was submitted or scheduled; 0 if it is not timed.
    pub(super) stamps: Vec<u64>,
    /// Number of operations in flight that are timed.
    pub(super) in_flight: u32,
    timed_every: u64,
    /// Number of doorbells until the next timed one.
    pub(super) until_next: u64,
    /// Latencies in nanoseconds.
    pub(super) histogram: Histogram<u64>,
}

impl LatencyTimer {
    pub(super) fn new(clock: Clock, places: usize) -> Self {
        let (stamps, histogram) = (vec![0; places], histogram());
        Self { clock, stamps, in_flight: 0, timed_every: 1, until_next: 0, histogram }
    }

    pub(super) fn begin_sample(&mut self, timed_every: u64) {
        (self.in_flight, self.timed_every, self.until_next) = (0, timed_every, 0);
    }

    /// Returns the time stamp of the next doorbell's `count` operations; 0 if they are not timed. `due` is
    /// the scheduled time of the first operation; 0 means now.
    #[inline]
    pub(super) fn next_stamp(&mut self, count: u32, due: u64) -> u64 {
        let stamp = if due == 0 && self.until_next == 0 { self.clock.now().max(1) } else { due };
        self.until_next = self.until_next.checked_sub(1).unwrap_or(self.timed_every.saturating_sub(1));
        if stamp != 0 {
            self.in_flight += count;
        }
        stamp
    }

    /// Sets the time stamp of places.
    #[inline]
    pub(super) fn stamp(&mut self, places: Range<usize>, stamp: u64) {
        if stamp != 0 {
            self.stamps[places].fill(stamp);
        }
    }

    /// Records the same latency for all `places`, whose operations were submitted together and completed
    /// together. Returns false and records nothing if some may be timed and [`record_one`](Self::record_one)
    /// must handle them, because their stamps differ or their latencies do not count.
    #[inline]
    pub(super) fn record_together(&mut self, places: Range<usize>, counts: bool) -> bool {
        if self.in_flight == 0 {
            return true;
        }
        let len = places.len() as u32;
        let stamps = &mut self.stamps[places];
        let stamp = stamps[0];
        if !counts || stamps.iter().any(|&other| other != stamp) {
            return false;
        }
        if stamp != 0 {
            stamps.fill(0);
            self.in_flight -= len;
            let latency = self.clock.now().saturating_sub(stamp);
            record(&mut self.histogram, latency, u64::from(len));
        }
        true
    }

    /// Records the latency of one place whose operation completed at time `now`, if it is timed and `counts`.
    pub(super) fn record_one(&mut self, place: usize, now: u64, counts: bool) {
        let stamp = std::mem::take(&mut self.stamps[place]);
        if stamp != 0 {
            self.in_flight -= 1;
            if counts {
                record(&mut self.histogram, now.saturating_sub(stamp), 1);
            }
        }
    }
}

/// Records `count` latencies of `time` nanoseconds each.
fn record(histogram: &mut Histogram<u64>, time: u64, count: u64) {
    // This cannot fail, because the histogram has no bounds.
    let _ = histogram.record_n(time.max(1), count);
}
