//! [`MeterEngine`]: latencies, sizes and counts of another engine's descriptors.
//!
//! - Each queue has a histogram of latencies, from `submit` to the poll that reports the descriptor, and one
//!   of lengths, both with an error of at most 3.2 %. Histograms have a fixed size, so copies do not
//!   allocate.
//! - Times are those of the machine's clock, even if a simulated device has a clock of its own.
//! - [`MeterEngine::report`] can be called at any time from any thread, and does not stop a queue.
//! - Opening, registering, importing, exporting and closing are `tracing` spans of level `INFO`: `dma.open`,
//!   `dma.allocate`, `dma.register`, `dma.import`, `dma.export`, `dma.deregister` and `dma.close`. A call
//!   within a lock of the library, such as the close of a queue, has its span after the lock was released,
//!   with the call's duration as the field `elapsed_us`. So a log subscriber may use the library.
//! - With the feature `metrics`, `publish` passes the counts to the recorder of the crate `metrics`, for
//!   example Prometheus', and `histograms` returns latencies and lengths as text for Prometheus.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dma_core::{DmaEngineExt, QueueOptions};
//! use dma_layers::meter::{MeterEngine, MeterOptions};
//! use dma_sim::sim::{SimEngine, SimOptions};
//!
//! let device = SimEngine::open(&SimOptions::from_name(&"sim:seed=1".parse()?)?)?;
//! let engine = MeterEngine::new(Arc::new(device), &MeterOptions::new());
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! queue.copy(engine.allocate(4096)?, engine.allocate(4096)?)?.wait()?;
//! let report = engine.report();
//! assert_eq!((report.queues[0].done, report.queues[0].bytes), (1, 4096));
//! assert_eq!(report.queues[0].sizes.quantile(0.5), Some(4096));
//! # Ok::<(), dma_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "implements the contract")]

#[cfg(feature = "metrics")]
mod publish;
mod report;

use std::sync::Arc;
use std::time::Instant;

use dma_core::{
    Completion, Descriptor, DeviceAddr, DmaEngine, InlineCopy, InlineExecutor, Operation, QueueOptions,
    QueueStats, RawQueue, Result, guarded,
};
use dma_process::ProcessLock;
use tracing::{Span, info_span};

#[cfg(feature = "metrics")]
pub use publish::{histograms, publish};
use report::{Counts, Start};
pub use report::{Distribution, MeterReport, QueueReport};

use crate::in_flight::InFlight;
use crate::os_clock;
use crate::wrapper::{Call, Layered, QueueHook, Wrapper, copy_all, forked, operation_len};

dma_core::options! {
    /// The options of a [`MeterEngine`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MeterOptions {
        /// The engine's name in spans and metrics. Default: empty, which means the name of its backend.
        pub label: String, with_label(impl Into<String>),
            "label": text("TEXT"), "the engine's name in spans and metrics", default "the backend",
            serde String, "The engine's name in spans and metrics. Empty: the name of its backend.";
    }
    names "meter";
    serde "options of a meter";
}

/// An engine whose descriptors are counted and timed: see the [module](self).
#[derive(Debug)]
pub struct MeterEngine {
    layered: Layered<Meter>,
}

impl MeterEngine {
    /// Makes an engine that measures `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn DmaEngine>, options: &MeterOptions) -> Self {
        let mut info = inner.info().clone();
        info.device.push_str(", metered");
        let label = if options.label.is_empty() { info.backend } else { &options.label };
        let (label, queues) = (Arc::from(label), Arc::default());
        let meter = Meter {
            #[cfg(feature = "metrics")]
            source: publish::add(&label, &queues),
            label,
            queues,
        };
        Self { layered: Layered::new(inner, info, meter) }
    }

    /// Returns the counts and histograms so far. In a forked child, the report of the parent's engine is
    /// empty.
    #[must_use]
    pub fn report(&self) -> MeterReport {
        self.layered.wrapper.queues.report()
    }
}

// SAFETY: the result is always the engine in the field `layered`, which is never replaced.
unsafe impl dma_core::ForwardEngine for MeterEngine {
    type Inner = dyn DmaEngine;
    fn forward_to(&self) -> &Self::Inner {
        &self.layered
    }
}
dma_core::forward_engine!([] MeterEngine);

/// The state that the engine's queues and regions share.
#[derive(Debug)]
struct Meter {
    label: Arc<str>,
    queues: Arc<Queues>,
    #[cfg(feature = "metrics")]
    source: Arc<publish::Source>,
}

#[derive(Debug, Default)]
struct Queues(
    /// The counts of each queue number, and true if an open queue has the number. A new queue gets the first
    /// free number and adds to its counts, so the number of entries is the maximum number of queues that were
    /// open at once.
    ProcessLock<Vec<(Arc<Counts>, bool)>>,
);

impl Queues {
    /// Returns the counts, or no counts in a forked child.
    fn report(&self) -> MeterReport {
        let queues = self.0.lock();
        let queues = queues.iter().flat_map(|queues| queues.iter());
        MeterReport { queues: queues.map(|(counts, _)| counts.report()).collect() }
    }
}

impl Wrapper for Meter {
    type Queue = MeterQueue;

    fn open(this: &Arc<Self>, _: &QueueOptions, depth: usize) -> Result<MeterQueue> {
        let mut queues = this.queues.0.lock().ok_or_else(forked)?;
        let free = queues.iter().position(|(_, taken)| !taken);
        let number = free.unwrap_or_else(|| {
            queues.push(Default::default());
            queues.len() - 1
        });
        let (counts, taken) = &mut queues[number];
        *taken = true;
        Ok(MeterQueue {
            in_flight: InFlight::new(depth),
            stats: QueueStats::default(),
            number,
            counts: Arc::clone(counts),
            meter: Arc::clone(this),
        })
    }

    fn explain(&self) -> String {
        self.queues.report().to_string()
    }

    fn instrument<T>(&self, call: Call, run: impl FnOnce() -> T) -> T {
        if dma_core::defers_log() {
            let (label, began) = (Arc::clone(&self.label), Instant::now());
            let result = run();
            let elapsed = began.elapsed().as_micros() as u64;
            dma_core::log_event(move || span(&label, call, Some(elapsed)).in_scope(|| ()));
            return result;
        }
        // A panic of the log subscriber must not lose the result.
        let span = guarded("the log", || span(&self.label, call, None)).unwrap_or_else(Span::none);
        let entered = guarded("the log", || span.enter());
        let result = run();
        guarded("the log", || drop(entered));
        guarded("the log", || drop(span));
        result
    }
}

/// Makes the span of a call. `elapsed_us` is the duration of a call that has ended, in microseconds.
fn span(engine: &str, call: Call, elapsed_us: Option<u64>) -> Span {
    match call {
        Call::Allocate { len } => info_span!("dma.allocate", engine, bytes = len, elapsed_us),
        Call::Register { len } => info_span!("dma.register", engine, bytes = len, elapsed_us),
        Call::Import => info_span!("dma.import", engine, elapsed_us),
        Call::Export { len } => info_span!("dma.export", engine, bytes = len, elapsed_us),
        Call::OpenQueue { depth } => info_span!("dma.open", engine, depth, elapsed_us),
        Call::CloseRegion { len } => info_span!("dma.deregister", engine, bytes = len, elapsed_us),
        Call::CloseQueue => info_span!("dma.close", engine, elapsed_us),
    }
}

/// The meter of one queue.
#[derive(Debug)]
struct MeterQueue {
    in_flight: InFlight<Start>,
    /// The device counters that are already included in `counts`.
    stats: QueueStats,
    number: usize,
    counts: Arc<Counts>,
    meter: Arc<Meter>,
}

impl MeterQueue {
    fn count_stats(&mut self, stats: QueueStats) {
        self.counts.doorbells.add(stats.doorbells - self.stats.doorbells);
        self.counts.resets.add(stats.resets - self.stats.resets);
        self.stats = stats;
    }
}

// SAFETY: all calls go to the inner queue unchanged, so its promises hold.
unsafe impl QueueHook for MeterQueue {
    unsafe fn submit(&mut self, inner: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> Result<usize> {
        let submitted = os_clock::nanoseconds();
        // SAFETY: `batch` is unchanged, and the caller meets the requirements of `inner` for it.
        let n = unsafe { inner.submit(batch) }?;
        let start = |descriptor: &Descriptor<'_>| Start { submitted, len: descriptor.len() as u64 };
        self.in_flight.push(&batch[..n], start);
        self.counts.submitted.add(n as u64);
        Ok(n)
    }

    fn flush(&mut self, inner: &mut dyn RawQueue) {
        inner.flush();
        self.count_stats(inner.stats());
    }

    fn poll(&mut self, inner: &mut dyn RawQueue, completions: &mut [Completion]) -> usize {
        let n = inner.poll(completions);
        if n == 0 {
            return 0;
        }
        let now = os_clock::nanoseconds();
        let Self { in_flight, counts, .. } = self;
        in_flight.take(&completions[..n], |ended| counts.count(&ended, now));
        n
    }

    fn inline_executor(&self, inner: Arc<dyn InlineExecutor>) -> Option<Arc<dyn InlineExecutor>> {
        Some(Arc::new(MeteredExecutor { inner, counts: Arc::clone(&self.counts) }))
    }

    fn closing(&mut self, stats: QueueStats) {
        self.count_stats(stats);
        self.counts.lose_in_flight();
        if let Some(mut queues) = self.meter.queues.0.lock() {
            queues[self.number].1 = false;
        }
    }
}

/// Counts and times operations that the CPU executes within the call that submits them.
#[derive(Debug)]
struct MeteredExecutor {
    inner: Arc<dyn InlineExecutor>,
    counts: Arc<Counts>,
}

/// Runs `work`, and returns its result and its time in nanoseconds.
#[inline]
fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let began = os_clock::nanoseconds();
    let result = work();
    (result, os_clock::nanoseconds().saturating_sub(began))
}

// SAFETY: all calls go to the inner executor unchanged, so its promises hold. The counts do not depend on the
// queue.
unsafe impl InlineExecutor for MeteredExecutor {
    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    fn selects_copies(&self) -> bool {
        self.inner.selects_copies()
    }

    fn admits_copies(&self, count: u64, bytes: usize) -> bool {
        self.inner.admits_copies(count, bytes)
    }

    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        // SAFETY: the inner method has the same requirements, which the caller meets.
        let (result, time) = timed(|| unsafe { self.inner.execute(operation) });
        self.counts.count_inline(1, operation_len(operation), time);
        result
    }

    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        // SAFETY: the inner method has the same requirements, which the caller meets.
        let ((), time) = timed(|| unsafe { self.inner.copy(src, dst, len) });
        self.counts.count_inline(1, len, time);
    }

    fn batches_short_copies(&self) -> bool {
        // The clock is read once for all copies.
        true
    }

    unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        // SAFETY: the inner methods have the same requirements, which the caller meets.
        let ((), time) = timed(|| unsafe { copy_all(&*self.inner, copies) });
        // The copies are reported together, so the latency of each is that of all.
        for equal in copies.chunk_by(|a, b| a.len == b.len) {
            self.counts.count_inline(equal.len() as u64, equal[0].len, time);
        }
    }

    fn copy_slice(&self, src: &[u8], dst: &mut [u8]) {
        self.inner.copy_slice(src, dst);
    }
}

#[cfg(test)]
mod tests {
    use dma_core::DmaEngineExt;

    use super::*;

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_opens_a_queue() {
        let engine = MeterEngine::new(Arc::new(dma_conformance::doc_engine()), &MeterOptions::new());
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        assert_eq!(engine.report().queues.len(), 1);
        // The lock stays held, as by a thread that the child does not have.
        std::mem::forget(engine.layered.wrapper.queues.0.lock());
        assert!(test_support::in_child::in_child(|| {
            engine.report().queues.is_empty()
                && engine.explain().is_none()
                && engine.open_queue(&QueueOptions::new()).is_err()
        }));
        // Closing it would wait for the lock.
        std::mem::forget(queue);
    }
}
