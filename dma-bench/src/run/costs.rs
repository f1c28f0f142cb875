//! Set-up costs: opening a queue, registering memory, deregistering it.

use std::time::{Duration, Instant};

use dma::{DmaEngine as _, DmaEngineExt as _, MemoryRequest, QueueOptions};
use hdrhistogram::Histogram;

use crate::interrupt;
use crate::results::{Cost, Latency};
use crate::run::contender::Contender;
use crate::run::drive::histogram;

/// Sizes of memory that is registered, in bytes.
const REGISTERED_SIZES: [usize; 3] = [4 << 10, 1 << 20, 16 << 20];
/// Maximum number of measurements of each cost.
const MAX_MEASUREMENTS: u32 = 100;
/// Time limit for the measurements of each cost.
const MAX_TIME: Duration = Duration::from_millis(60);

/// Returns the set-up costs of the engines that run on the computer's clock. A step that the engine
/// refuses has no row.
pub(crate) fn costs(contenders: &[Contender]) -> Vec<Cost> {
    let mut all = Vec::new();
    for contender in contenders.iter().filter(|c| !c.clock.is_virtual()) {
        let mut add = |what: &str, size: usize, times: &Histogram<u64>| {
            let (engine, what) = (contender.name.clone(), what.to_owned());
            let model = contender.is_model();
            all.extend(Latency::of(times).map(|time| Cost { engine, model, what, size: size as u64, time }));
        };
        add("open-queue", 0, &opening(contender));
        for size in REGISTERED_SIZES {
            let (register, deregister) = registering(contender, size);
            add("register", size, &register);
            add("deregister", size, &deregister);
        }
    }
    all
}

/// Repeats a measurement, which adds to histograms, until the time is over or it fails.
fn repeat(mut once: impl FnMut() -> dma::Result<()>) {
    let begun = Instant::now();
    for number in 0..MAX_MEASUREMENTS {
        if (number > 0 && begun.elapsed() >= MAX_TIME) || interrupt::stopped() || once().is_err() {
            break;
        }
    }
}

/// Adds the time that `step` takes, unless it fails.
fn timed<T>(times: &mut Histogram<u64>, step: impl FnOnce() -> dma::Result<T>) -> dma::Result<T> {
    let begun = Instant::now();
    let done = step()?;
    // This cannot fail, because the histogram has no bounds.
    let _ = times.record((begun.elapsed().as_nanos() as u64).max(1));
    Ok(done)
}

fn opening(contender: &Contender) -> Histogram<u64> {
    let mut times = histogram();
    repeat(|| timed(&mut times, || contender.engine.open_queue_raw(&QueueOptions::new())).map(drop));
    times
}

/// Measures the time to allocate and register memory of `size` bytes, and the time to free it. The
/// first time includes the page faults of the allocation.
fn registering(contender: &Contender, size: usize) -> (Histogram<u64>, Histogram<u64>) {
    let (mut register, mut deregister) = (histogram(), histogram());
    repeat(|| {
        let window = timed(&mut register, || contender.engine.allocate_window(&MemoryRequest::new(size)))?;
        timed(&mut deregister, || {
            drop(window);
            Ok(())
        })
    });
    (register, deregister)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_up_has_a_row_for_each_step_and_size() {
        let contenders = ["cpu", "sim:profile=dsa"].map(|name| Contender::open(name).unwrap());
        let found = costs(&contenders);
        let rows: Vec<_> = found.iter().map(|c| (c.engine.as_str(), c.what.as_str(), c.size)).collect();
        assert_eq!(
            rows.len(),
            1 + 2 * REGISTERED_SIZES.len(),
            "a device on a virtual clock has no costs: {rows:?}"
        );
        assert_eq!(rows[0], ("cpu", "open-queue", 0));
        assert!(found.iter().all(|c| c.time.count > 0 && c.time.p50 > 0 && c.engine == "cpu"));
    }
}
