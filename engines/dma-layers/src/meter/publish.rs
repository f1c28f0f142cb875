//! Publishes the counts of all meters to the recorder of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dma_core::{PoolClass, PoolReport};
use metrics::{counter, describe_counter, describe_gauge, gauge};

use super::Meter;
use super::report::{Distribution, QueueReport};

/// All meters of the process.
static METERS: Mutex<Vec<Weak<Meter>>> = Mutex::new(Vec::new());

/// Upper bounds of the buckets of latencies, as powers of two: 128 ns to 17 s.
const LATENCIES: &[u32] =
    &[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 30, 32, 34];
/// Upper bounds of the buckets of sizes, as powers of two: 64 B to 16 GiB.
const SIZES: &[u32] = &[6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// Adds a meter to the meters that [`publish`] reads.
pub(super) fn add(meter: &Arc<Meter>) {
    let mut meters = METERS.lock().unwrap_or_else(PoisonError::into_inner);
    meters.retain(|meter| meter.strong_count() > 0);
    meters.push(Arc::downgrade(meter));
}

/// Published counts of pools, by the pool's number and the length of the buffers: requests that found no free
/// buffer, and added buffers.
static PUBLISHED_POOLS: Mutex<BTreeMap<(u64, usize), Published>> = Mutex::new(BTreeMap::new());

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
/// number):
///
/// | name | counts |
/// |---|---|
/// | `dma_descriptors_total` | descriptors that ended, by `outcome`: `done`, `failed`, `aborted`, `lost` |
/// | `dma_bytes_total` | bytes of the descriptors done |
/// | `dma_doorbells_total`, `dma_resets_total` | doorbells rung; device resets |
/// | `dma_latency_seconds_bucket`, `_count` | latencies up to `le` seconds, as in a histogram |
/// | `dma_latency_nanoseconds_total` | sum of the latencies in nanoseconds; counters are integers |
/// | `dma_size_bytes_bucket`, `_sum`, `_count` | lengths up to `le` bytes, as in a histogram |
///
/// The gauge `dma_in_flight` is the number of descriptors in flight. The buckets are counters, because the
/// recorder's own histograms would need a call for every descriptor. Prometheus' `histogram_quantile` reads
/// these counters.
///
/// When a meter is dropped, its remaining counts are published.
///
/// Metrics of each buffer size of each pool, with the labels `pool` (the
/// [label](dma_core::PoolOptions::with_label), or the pool's number) and `len` (the buffer length in bytes).
/// Pools with the same label are added up, except waits: the longest wait is published.
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
    let meters = METERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The recorder is called without a lock held.
    meters.iter().filter_map(Weak::upgrade).for_each(|meter| meter.publish());
    publish_pools(&dma_core::pools());
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
        let mut published = PUBLISHED_POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        published.retain(|(number, len), published| {
            let exists = pools.iter().any(|pool| pool.number == *number);
            if !exists {
                // The gauges of a dropped pool are set to 0.
                sums.entry((std::mem::take(&mut published.label), *len)).or_default();
            }
            exists
        });
        for pool in pools {
            for class in &pool.classes {
                let label = pool.label.clone();
                let now = Published { label, exhausted: class.exhausted, grown: class.grown as u64 };
                let before = published.insert((pool.number, class.len), now).unwrap_or_default();
                sums.entry((pool.label.clone(), class.len)).or_default().add(class, &before);
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

impl Meter {
    fn publish(&self) {
        let now = self.report();
        let before = {
            let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *published, now.clone())
        };
        describe();
        for (number, queue) in now.queues.iter().enumerate() {
            publish_queue(&self.label, number, before.queues.get(number), queue);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.publish();
    }
}

fn describe() {
    describe_counter!("dma_descriptors_total", "Descriptors that ended, by outcome.");
    describe_counter!("dma_bytes_total", "Bytes of the descriptors done.");
    describe_counter!("dma_doorbells_total", "Doorbells rung.");
    describe_counter!("dma_resets_total", "Device resets that queues recovered from.");
    describe_counter!("dma_latency_seconds_bucket", "Descriptors done within `le` seconds.");
    describe_counter!("dma_latency_seconds_count", "Descriptors whose latency was measured.");
    describe_counter!("dma_latency_nanoseconds_total", "Sum of the latencies, in nanoseconds.");
    describe_counter!("dma_size_bytes_bucket", "Descriptors done of at most `le` bytes.");
    describe_counter!("dma_size_bytes_sum", "Sum of the lengths of the descriptors done, in bytes.");
    describe_counter!("dma_size_bytes_count", "Descriptors whose length was measured.");
    describe_gauge!("dma_in_flight", "Descriptors in flight.");
}

fn publish_queue(label: &Arc<str>, number: usize, before: Option<&QueueReport>, now: &QueueReport) {
    let labels = [("engine", label.to_string()), ("queue", number.to_string())];
    let add = |name: &'static str, more: Option<(&'static str, String)>, of: &dyn Fn(&QueueReport) -> u64| {
        let labels: Vec<_> = labels.iter().cloned().chain(more).collect();
        // If another meter has the same labels, the counter is the sum of both.
        counter!(name, &labels).increment(of(now).saturating_sub(before.map_or(0, of)));
    };
    let ended = |outcome: &str, of: fn(&QueueReport) -> u64| {
        add("dma_descriptors_total", Some(("outcome", outcome.to_owned())), &of);
    };
    ended("done", |q| q.done);
    ended("failed", |q| q.failed);
    ended("aborted", |q| q.aborted);
    ended("lost", |q| q.lost);
    add("dma_bytes_total", None, &|q| q.bytes);
    add("dma_doorbells_total", None, &|q| q.doorbells);
    add("dma_resets_total", None, &|q| q.resets);
    let buckets = |name, powers: &[u32], unit: f64, of: fn(&QueueReport) -> &Distribution| {
        for &power in powers {
            let le = (1_u64 << power) as f64 * unit;
            add(name, Some(("le", le.to_string())), &|q| up_to(of(q), 1 << power));
        }
        add(name, Some(("le", "+Inf".to_owned())), &|q| of(q).count());
    };
    buckets("dma_latency_seconds_bucket", LATENCIES, 1e-9, |q| &q.latencies);
    add("dma_latency_nanoseconds_total", None, &|q| q.nanoseconds);
    add("dma_latency_seconds_count", None, &|q| q.latencies.count());
    buckets("dma_size_bytes_bucket", SIZES, 1.0, |q| &q.sizes);
    add("dma_size_bytes_sum", None, &|q| q.bytes);
    add("dma_size_bytes_count", None, &|q| q.sizes.count());
    gauge!("dma_in_flight", &labels).set(now.in_flight as f64);
}

/// Returns the number of values up to `bound`, a power of two.
fn up_to(values: &Distribution, bound: u64) -> u64 {
    values.buckets().take_while(|(range, _)| *range.end() <= bound).map(|(_, count)| count).sum()
}
