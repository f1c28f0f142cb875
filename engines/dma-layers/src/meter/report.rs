//! [`MeterReport`]: counts and histograms, and the atomic counters from which it is made.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::Outcome;
use histogram::{AtomicHistogram, Histogram};

use crate::in_flight::Ended;
use crate::wrapper::Count;

/// Each power of two has 32 buckets, so that a bucket is at most 3.2 % wide. All values fit.
const GROUPING: (u8, u8) = (5, 64);

#[derive(Debug)]
struct Buckets(AtomicHistogram);

impl Default for Buckets {
    fn default() -> Self {
        Self(AtomicHistogram::new(GROUPING.0, GROUPING.1).expect("these powers are valid"))
    }
}

/// A descriptor in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The time of the descriptor's submission, in nanoseconds.
    pub(super) submitted: u64,
    pub(super) len: u64,
}

/// The counts of a queue, including earlier queues with the same number.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) submitted: Count,
    done: Count,
    failed: Count,
    aborted: Count,
    /// Descriptors that had not been reported when their queue was closed or abandoned.
    lost: Count,
    bytes: Count,
    pub(super) doorbells: Count,
    pub(super) resets: Count,
    nanoseconds: Count,
    latencies: Buckets,
    /// The lengths less 1, so that a power of two is the last value of its bucket.
    sizes: Buckets,
    inline: InlineCounts,
}

/// The counts of operations that the CPU executed within the calls that submitted them. Several threads may
/// make such calls on one queue.
#[derive(Debug, Default)]
struct InlineCounts {
    done: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Counts {
    /// Counts the descriptors that ended at `now`.
    #[inline]
    pub(super) fn count(&self, ended: &Ended<Start>, now: u64) {
        let &Ended { state: Start { submitted, len }, count, .. } = ended;
        match ended.outcome {
            Outcome::Done => {}
            Outcome::Failed(_) => return self.failed.add(count),
            Outcome::Aborted => return self.aborted.add(count),
        }
        let latency = now.saturating_sub(submitted);
        // All values fit.
        let _ = self.latencies.0.add(latency, count);
        let _ = self.sizes.0.add(len.saturating_sub(1), count);
        self.nanoseconds.add(latency.saturating_mul(count));
        self.bytes.add(len.saturating_mul(count));
        self.done.add(count);
    }

    /// Counts operations of `len` bytes that were executed within `latency` nanoseconds. Any thread may call
    /// this.
    #[inline]
    pub(super) fn count_inline(&self, count: u64, len: usize, latency: u64) {
        let len = len as u64;
        // All values fit.
        let _ = self.latencies.0.add(latency, count);
        let _ = self.sizes.0.add(len.saturating_sub(1), count);
        self.inline.nanoseconds.fetch_add(latency.saturating_mul(count), Ordering::Relaxed);
        self.inline.bytes.fetch_add(len.saturating_mul(count), Ordering::Relaxed);
        self.inline.done.fetch_add(count, Ordering::Relaxed);
    }

    fn in_flight(&self) -> u64 {
        let ended = [&self.done, &self.failed, &self.aborted, &self.lost];
        self.submitted.get().saturating_sub(ended.into_iter().map(Count::get).sum())
    }

    /// Counts the descriptors that are still in flight when the queue is closed or abandoned.
    pub(super) fn lose_in_flight(&self) {
        self.lost.add(self.in_flight());
    }

    pub(super) fn report(&self) -> QueueReport {
        let InlineCounts { done, bytes, nanoseconds } = &self.inline;
        let [done, bytes, nanoseconds] = [done, bytes, nanoseconds].map(|n| n.load(Ordering::Relaxed));
        QueueReport {
            in_flight: self.in_flight(),
            submitted: self.submitted.get() + done,
            done: self.done.get() + done,
            failed: self.failed.get(),
            aborted: self.aborted.get(),
            lost: self.lost.get(),
            bytes: self.bytes.get().saturating_add(bytes),
            doorbells: self.doorbells.get(),
            resets: self.resets.get(),
            nanoseconds: self.nanoseconds.get().saturating_add(nanoseconds),
            latencies: Distribution { histogram: self.latencies.0.load(), shift: 0 },
            sizes: Distribution { histogram: self.sizes.0.load(), shift: 1 },
        }
    }
}

/// Values counted in buckets. Its [`Debug`](fmt::Debug) has the number of values and some quantiles.
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution {
    histogram: Histogram,
    /// Offset that is added to the histogram's values.
    shift: u64,
}

impl Distribution {
    /// Returns the non-empty buckets in ascending order: the range of values, and the number of values.
    pub fn buckets(&self) -> impl Iterator<Item = (RangeInclusive<u64>, u64)> + '_ {
        let values = |range: RangeInclusive<u64>| {
            range.start().saturating_add(self.shift)..=range.end().saturating_add(self.shift)
        };
        let buckets = self.histogram.iter().filter(|bucket| bucket.count() > 0);
        buckets.map(move |bucket| (values(bucket.range()), bucket.count()))
    }

    /// Returns the quantile `q`: the upper bound of its bucket, which is at most 3.2 % too large. `None` if
    /// no value was counted, or if `q` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let bucket = self.histogram.quantile_bucket(q).ok().flatten()?;
        Some(bucket.end().saturating_add(self.shift))
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.as_slice().iter().sum()
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distribution")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.quantile(1.0))
            .finish_non_exhaustive()
    }
}

/// Counts of the descriptors of a queue of a [`MeterEngine`](super::MeterEngine) so far. An operation that
/// exceeds the engine's limits is split into several descriptors, and an operation that the CPU executes
/// within the call that submits it counts as one, or as one for each of its rows. A queue that is opened
/// after another queue was closed gets the number of the closed queue, and adds to its counts.
///
/// The counts are read one after the other while the queue is running, so descriptors that end at this time
/// may be missing in some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// Descriptors accepted.
    pub submitted: u64,
    /// Descriptors done.
    pub done: u64,
    /// Descriptors that failed.
    pub failed: u64,
    /// Descriptors that ended because the device was reset or stopped.
    pub aborted: u64,
    /// Descriptors that had not been reported when their queue was closed or abandoned.
    pub lost: u64,
    /// Descriptors in flight.
    pub in_flight: u64,
    /// Bytes of the descriptors done. Each descriptor counts its length once.
    pub bytes: u64,
    /// Doorbells rung, as the engine counts them.
    pub doorbells: u64,
    /// Device resets that the queue recovered from.
    pub resets: u64,
    /// Sum of the latencies, in nanoseconds.
    pub nanoseconds: u64,
    /// Latencies of the descriptors done, in nanoseconds, from `submit` to the poll that reported them, or of
    /// the call that executed them.
    pub latencies: Distribution,
    /// Lengths of the descriptors done, in bytes.
    pub sizes: Distribution,
}

/// The counts of all queues of a [`MeterEngine`](super::MeterEngine), by number.
///
/// Its [`Display`](fmt::Display) has one line for each queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeterReport {
    /// One entry for each queue number.
    pub queues: Vec<QueueReport>,
}

impl fmt::Display for MeterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, queue) in self.queues.iter().enumerate() {
            let QueueReport { done, failed, aborted, in_flight, bytes, doorbells, .. } = queue;
            write!(
                f,
                "queue {number}: {done} done, {failed} failed, {aborted} aborted, {in_flight} in flight, "
            )?;
            write!(f, "{bytes} B, {doorbells} doorbells")?;
            let quantiles = [0.5, 0.99].map(|q| (queue.latencies.quantile(q), queue.sizes.quantile(q)));
            if let [(Some(p50), Some(size50)), (Some(p99), Some(size99))] = quantiles {
                write!(f, "; latency p50 {p50} ns, p99 {p99} ns; size p50 {size50} B, p99 {size99} B")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn done(submitted: u64, len: u64, count: u64) -> Ended<Start> {
        Ended { state: Start { submitted, len }, outcome: Outcome::Done, count, before: 0 }
    }

    proptest! {
        /// Quantiles equal those of the sorted values, within the width of a bucket.
        #[test]
        fn quantiles_are_those_of_the_values(values in proptest::collection::vec(1_u64..1 << 40, 1..200), q in 0.0..=1.0_f64) {
            let counts = Counts::default();
            for &value in &values {
                counts.count(&done(7, value, 1), 7 + value);
            }
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = sorted[rank - 1];
            let report = counts.report();
            for of in [&report.latencies, &report.sizes] {
                let found = of.quantile(q).expect("values were counted");
                prop_assert!(found >= exact && found as f64 <= exact as f64 * 1.032 + 1.0, "{found} for {exact}");
                prop_assert_eq!(of.count(), values.len() as u64);
                let within = |range: &RangeInclusive<u64>| values.iter().filter(|v| range.contains(v)).count() as u64;
                prop_assert!(of.buckets().all(|(range, count)| within(&range) == count));
            }
            prop_assert_eq!(report.nanoseconds, values.iter().sum::<u64>());
        }
    }

    #[test]
    fn the_debug_text_of_a_report_has_a_few_words_for_each_count() {
        let counts = Counts::default();
        (0..40).for_each(|power| counts.count(&done(0, 1 << power, 1), 1 << power));
        let text = format!("{:?}", MeterReport { queues: vec![counts.report()] });
        assert!(text.len() < 600, "{} bytes: {text}", text.len());
        let sizes = "sizes: Distribution { count: 40, p50: Some(524288), p99: Some(549755813888), max: ";
        assert!(text.contains(sizes), "{text}");
    }

    #[test]
    fn powers_of_two_are_exact_sizes() {
        for power in 0..63 {
            let counts = Counts::default();
            counts.count(&done(0, 1 << power, 3), 0);
            assert_eq!(counts.report().sizes.quantile(0.5), Some(1 << power));
        }
        assert_eq!(Counts::default().report().sizes.quantile(0.5), None);
    }
}
