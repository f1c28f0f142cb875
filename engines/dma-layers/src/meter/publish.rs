//! Publishes the counts of all meters: counters and gauges to the recorder of the crate `metrics`, and
//! histograms as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use dma_core::{PoolClass, PoolReport};
use dma_process::{ForkLock, ForkMark, lock};
use metrics::{counter, describe_counter, describe_gauge, gauge};

use super::report::{Distribution, QueueReport};
use super::{Meter, MeterReport, Queues};

/// The meters of the process, and the counts that remain of dropped meters.
#[derive(Default)]
struct Registry {
    meters: Vec<Arc<Source>>,
    /// Histograms of dropped meters, because a histogram must never decrease.
    dropped: BTreeMap<Labels, Histograms>,
    /// The labels for which `dma_in_flight` was published.
    in_flight: BTreeMap<Labels, u64>,
}

/// An engine's label and the number of a queue.
type Labels = (Arc<str>, usize);

/// The counts of one meter.
#[derive(Debug)]
pub(super) struct Source {
    label: Arc<str>,
    queues: Arc<Queues>,
    published: Mutex<MeterReport>,
    /// The process whose operations the meter counts.
    process: ForkMark,
}

static REGISTRY: ForkLock<Registry> =
    ForkLock::new(|| Registry { meters: Vec::new(), dropped: BTreeMap::new(), in_flight: BTreeMap::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

/// Upper bounds of the buckets of latencies, as powers of two: 128 ns to 17 s.
const LATENCIES: &[u32] =
    &[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 30, 32, 34];
/// Upper bounds of the buckets of sizes, as powers of two: 64 B to 16 GiB.
const SIZES: &[u32] = &[6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// Adds a meter to the meters that [`publish`] reads.
pub(super) fn add(label: &Arc<str>, queues: &Arc<Queues>) -> Arc<Source> {
    let source = Arc::new(Source {
        label: Arc::clone(label),
        queues: Arc::clone(queues),
        published: Mutex::default(),
        process: ForkMark::new(),
    });
    registry().meters.push(Arc::clone(&source));
    source
}

/// Published counts of pools, by the pool's number and the length of the buffers: requests that found no free
/// buffer, and added buffers.
static PUBLISHED_POOLS: ForkLock<BTreeMap<(u64, usize), Published>> = ForkLock::new(BTreeMap::new);

#[derive(Default)]
struct Published {
    label: String,
    exhausted: u64,
    grown: u64,
}

/// Passes the counts of all meters and pools of this process to the recorder of the crate `metrics`. Call
/// this before metrics are read, for example when Prometheus asks for them. Copies are not delayed. Without a
/// recorder the counts are lost, so install a recorder first.
///
/// Counters of meters, with the labels `engine` (the [label](super::MeterOptions::label)) and `queue` (a
/// number). Meters with the same label are added up.
///
/// | name | counts |
/// |---|---|
/// | `dma_descriptors_total` | descriptors that ended, by `outcome`: `done`, `failed`, `aborted`, `lost` |
/// | `dma_bytes_total` | bytes of the descriptors done |
/// | `dma_doorbells_total`, `dma_resets_total` | doorbells rung; device resets |
///
/// The gauge `dma_in_flight` is the number of descriptors in flight, with the same labels. [`histograms`]
/// returns latencies and lengths.
///
/// When a meter is dropped, its remaining counts are published.
///
/// Metrics of each buffer size of each pool, with the labels `pool` (the
/// [label](dma_core::PoolOptions::with_label), or the backend of the pool's engine) and `len` (the buffer
/// length in bytes). Pools with the same label are added up, except waits: the longest wait is published.
///
/// | name | is |
/// |---|---|
/// | `dma_pool_buffers`, `dma_pool_max_buffers` | number of buffers; maximum number of buffers |
/// | `dma_pool_in_use` | buffers in use |
/// | `dma_pool_waiting` | tasks that wait for a buffer |
/// | `dma_pool_current_wait_seconds` | the longest wait of a task that is waiting, 0 if none is |
/// | `dma_pool_longest_wait_seconds` | the longest wait so far |
/// | `dma_pool_exhausted_total` | requests that found no free buffer |
/// | `dma_pool_grown_total` | buffers that were added when all were in use |
///
/// `docs/metrics` in the repository contains a dashboard for Grafana and alert rules for Prometheus.
pub fn publish() {
    let meters = registry().meters.clone();
    // The recorder is called without a lock held.
    let mut in_flight = BTreeMap::<Labels, u64>::new();
    for meter in meters {
        for (number, queue) in meter.publish().queues.iter().enumerate() {
            *in_flight.entry((Arc::clone(&meter.label), number)).or_default() += queue.in_flight;
        }
    }
    let before = std::mem::replace(&mut registry().in_flight, in_flight.clone());
    // The gauges of dropped meters are set to 0.
    before.into_keys().for_each(|labels| _ = in_flight.entry(labels).or_default());
    for ((label, number), count) in in_flight {
        gauge!("dma_in_flight", &labels(&label, number)).set(count as f64);
    }
    publish_pools(&dma_core::pools());
}

/// Returns the histograms of all meters, in Prometheus' text format. Append the text to the text of the
/// recorder. The crate `metrics` cannot pass on counts of buckets: its histograms need a call for every
/// descriptor.
///
/// | name | is |
/// |---|---|
/// | `dma_latency_seconds` | latencies of the descriptors done, in 25 buckets up to 17 s |
/// | `dma_size_bytes` | lengths of the descriptors done, in 16 buckets up to 16 GiB |
///
/// The labels are those of [`publish`].
#[must_use]
pub fn histograms() -> String {
    let sums = {
        let registry = registry();
        let mut sums = registry.dropped.clone();
        registry.meters.iter().for_each(|meter| meter.add_histograms(&mut sums));
        sums
    };
    let mut text = String::new();
    let mut family = |name: &str, help: &str, of: fn(&Histograms) -> &Buckets, powers: &[u32], unit: f64| {
        _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for ((label, number), histograms) in &sums {
            let Buckets { up_to, count, sum } = of(histograms);
            let labels = format!("engine=\"{}\",queue=\"{number}\"", escaped(label));
            for (power, up_to) in powers.iter().zip(up_to) {
                let le = (1_u64 << power) as f64 * unit;
                _ = writeln!(text, "{name}_bucket{{{labels},le=\"{le}\"}} {up_to}");
            }
            _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            _ = writeln!(text, "{name}_sum{{{labels}}} {}", *sum as f64 * unit);
            _ = writeln!(text, "{name}_count{{{labels}}} {count}");
        }
    };
    family("dma_latency_seconds", "Latencies of the descriptors done.", |h| &h.latencies, LATENCIES, 1e-9);
    family("dma_size_bytes", "Lengths of the descriptors done.", |h| &h.sizes, SIZES, 1.0);
    text
}

/// Returns a label's value as it is written between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The histograms of the queues with the same labels.
#[derive(Clone, Debug, Default)]
struct Histograms {
    latencies: Buckets,
    sizes: Buckets,
}

#[derive(Clone, Debug, Default)]
struct Buckets {
    /// For each upper bound, the number of values up to it.
    up_to: Vec<u64>,
    count: u64,
    /// Sum of the values, in nanoseconds or bytes.
    sum: u64,
}

impl Buckets {
    fn add(&mut self, powers: &[u32], values: &Distribution, sum: u64) {
        self.up_to.resize(powers.len(), 0);
        for (power, count) in powers.iter().zip(&mut self.up_to) {
            *count += up_to(values, 1 << power);
        }
        self.count += values.count();
        self.sum = self.sum.saturating_add(sum);
    }
}

/// The metrics of the buffers of one size, of all pools with one label.
#[derive(Default)]
struct PoolSum {
    buffers: usize,
    max: usize,
    in_use: usize,
    waiting: usize,
    current_wait: f64,
    longest_wait: f64,
    exhausted: u64,
    grown: u64,
}

impl PoolSum {
    /// Adds the counts of one buffer size of a pool, less the counts that were published `before`.
    fn add(&mut self, class: &PoolClass, before: &Published) {
        self.buffers += class.count;
        self.max += class.max;
        self.in_use += class.in_use;
        self.waiting += class.waiting;
        self.current_wait = self.current_wait.max(class.current_wait.as_secs_f64());
        self.longest_wait = self.longest_wait.max(class.longest_wait.as_secs_f64());
        self.exhausted += class.exhausted.saturating_sub(before.exhausted);
        self.grown += (class.grown as u64).saturating_sub(before.grown);
    }
}

fn publish_pools(pools: &[PoolReport]) {
    let mut sums = BTreeMap::<(String, usize), PoolSum>::new();
    {
        let mut published = PUBLISHED_POOLS.lock();
        published.retain(|(number, len), published| {
            let exists = pools.iter().any(|pool| pool.number == *number);
            if !exists {
                // The gauges of a dropped pool are set to 0.
                sums.entry((std::mem::take(&mut published.label), *len)).or_default();
            }
            exists
        });
        for pool in pools {
            // Without a label, each short-lived pool would leave series that never end.
            let has_label = pool.label != pool.number.to_string();
            let label = if has_label { &pool.label } else { pool.backend };
            for class in &pool.classes {
                let (label, grown) = (label.to_owned(), class.grown as u64);
                let now = Published { label: label.clone(), exhausted: class.exhausted, grown };
                let before = published.insert((pool.number, class.len), now).unwrap_or_default();
                sums.entry((label, class.len)).or_default().add(class, &before);
            }
        }
    }
    describe_pools();
    for ((pool, len), sum) in sums {
        let labels = [("pool", pool), ("len", len.to_string())];
        gauge!("dma_pool_buffers", &labels).set(sum.buffers as f64);
        gauge!("dma_pool_max_buffers", &labels).set(sum.max as f64);
        gauge!("dma_pool_in_use", &labels).set(sum.in_use as f64);
        gauge!("dma_pool_waiting", &labels).set(sum.waiting as f64);
        gauge!("dma_pool_current_wait_seconds", &labels).set(sum.current_wait);
        gauge!("dma_pool_longest_wait_seconds", &labels).set(sum.longest_wait);
        counter!("dma_pool_exhausted_total", &labels).increment(sum.exhausted);
        counter!("dma_pool_grown_total", &labels).increment(sum.grown);
    }
}

fn describe_pools() {
    describe_gauge!("dma_pool_buffers", "Buffers of the pool.");
    describe_gauge!("dma_pool_max_buffers", "Buffers that the pool may grow to.");
    describe_gauge!("dma_pool_in_use", "Buffers in use.");
    describe_gauge!("dma_pool_waiting", "Tasks that wait for a buffer.");
    describe_gauge!(
        "dma_pool_current_wait_seconds",
        "The longest wait of a task that is waiting for a buffer; 0 if none is."
    );
    describe_gauge!("dma_pool_longest_wait_seconds", "The longest wait for a buffer so far.");
    describe_counter!("dma_pool_exhausted_total", "Requests that found no free buffer.");
    describe_counter!("dma_pool_grown_total", "Buffers that were added when all were in use.");
}

impl Source {
    /// Publishes the counters, and returns the report from which they were made.
    fn publish(&self) -> MeterReport {
        let (before, now) = {
            let mut published = lock(&self.published);
            // The report is read under the lock, so that no other call publishes a later one before.
            let now = self.queues.report();
            (std::mem::replace(&mut *published, now.clone()), now)
        };
        describe();
        for (number, queue) in now.queues.iter().enumerate() {
            publish_queue(&self.label, number, before.queues.get(number), queue);
        }
        now
    }

    fn add_histograms(&self, sums: &mut BTreeMap<Labels, Histograms>) {
        for (number, queue) in self.queues.report().queues.iter().enumerate() {
            let Histograms { latencies, sizes } = sums.entry((Arc::clone(&self.label), number)).or_default();
            latencies.add(LATENCIES, &queue.latencies, queue.nanoseconds);
            sizes.add(SIZES, &queue.sizes, queue.bytes);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.source.process.is_child() {
            // The counts are the parent's, which publishes them.
            return;
        }
        {
            let mut registry = registry();
            let Registry { meters, dropped, .. } = &mut *registry;
            meters.retain(|meter| !Arc::ptr_eq(meter, &self.source));
            self.source.add_histograms(dropped);
        }
        // The recorder is called without a lock held.
        self.source.publish();
    }
}

fn describe() {
    describe_counter!("dma_descriptors_total", "Descriptors that ended, by outcome.");
    describe_counter!("dma_bytes_total", "Bytes of the descriptors done.");
    describe_counter!("dma_doorbells_total", "Doorbells rung.");
    describe_counter!("dma_resets_total", "Device resets that queues recovered from.");
    describe_gauge!("dma_in_flight", "Descriptors in flight.");
}

fn labels(label: &str, number: usize) -> [(&'static str, String); 2] {
    [("engine", label.to_owned()), ("queue", number.to_string())]
}

fn publish_queue(label: &str, number: usize, before: Option<&QueueReport>, now: &QueueReport) {
    let labels = labels(label, number);
    let add = |name: &'static str, more: Option<(&'static str, String)>, of: fn(&QueueReport) -> u64| {
        let labels: Vec<_> = labels.iter().cloned().chain(more).collect();
        // If another meter has the same labels, the counter is the sum of both.
        counter!(name, &labels).increment(of(now).saturating_sub(before.map_or(0, of)));
    };
    let ended = |outcome: &str, of: fn(&QueueReport) -> u64| {
        add("dma_descriptors_total", Some(("outcome", outcome.to_owned())), of);
    };
    ended("done", |q| q.done);
    ended("failed", |q| q.failed);
    ended("aborted", |q| q.aborted);
    ended("lost", |q| q.lost);
    add("dma_bytes_total", None, |q| q.bytes);
    add("dma_doorbells_total", None, |q| q.doorbells);
    add("dma_resets_total", None, |q| q.resets);
}

/// Returns the number of values up to `bound`, a power of two.
fn up_to(values: &Distribution, bound: u64) -> u64 {
    values.buckets().take_while(|(range, _)| *range.end() <= bound).map(|(_, count)| count).sum()
}
