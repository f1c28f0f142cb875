//! Set-up costs: opening a queue, registering memory, deregistering it.

use std::time::{Duration, Instant};

use dma::{DmaEngine as _, DmaEngineExt as _, MemoryRequest, QueueOptions};
use hdrhistogram::Histogram;

use crate::contender::Contender;
use crate::drive::histogram;
use crate::interrupt;
use crate::results::{Cost, Latency};

/// Sizes of memory that is registered, in bytes.
const SIZES: [usize; 3] = [4 << 10, 1 << 20, 16 << 20];
/// The most measurements of each cost.
const TIMES: u32 = 100;
/// The longest time for the measurements of each cost.
const LONGEST: Duration = Duration::from_millis(60);

/// Returns the costs of engines on the computer's clock. A step that the engine refuses has no row.
pub(crate) fn costs(contenders: &[Contender]) -> Vec<Cost> {
    let mut all = Vec::new();
    for contender in contenders.iter().filter(|c| !c.clock.is_virtual()) {
        let mut add = |what: &str, size: usize, times: &Histogram<u64>| {
            let (engine, what) = (contender.name.clone(), what.to_owned());
            let model = contender.is_model();
            all.extend(Latency::of(times).map(|time| Cost { engine, model, what, size: size as u64, time }));
        };
        add("open-queue", 0, &opening(contender));
        for size in SIZES {
            let (register, deregister) = registering(contender, size);
            add("register", size, &register);
            add("deregister", size, &deregister);
        }
    }
    all
}

/// Returns true if another measurement may begin.
fn goes_on(turn: u32, begun: Instant) -> bool {
    turn < TIMES && (turn == 0 || begun.elapsed() < LONGEST) && !interrupt::stopped()
}

fn record(times: &mut Histogram<u64>, since: Instant) {
    // A histogram without bounds takes every value.
    let _ = times.record((since.elapsed().as_nanos() as u64).max(1));
}

fn opening(contender: &Contender) -> Histogram<u64> {
    let (mut times, all) = (histogram(), Instant::now());
    let mut turn = 0;
    while goes_on(turn, all) {
        let begun = Instant::now();
        let Ok(queue) = contender.engine.open_queue_raw(&QueueOptions::new()) else { break };
        record(&mut times, begun);
        drop(queue);
        turn += 1;
    }
    times
}

/// Measures how long it takes to allocate and register memory of `size` bytes, and to give it back. Page
/// faults of the allocation are part of the first.
fn registering(contender: &Contender, size: usize) -> (Histogram<u64>, Histogram<u64>) {
    let (mut register, mut deregister, all) = (histogram(), histogram(), Instant::now());
    let mut turn = 0;
    while goes_on(turn, all) {
        let begun = Instant::now();
        let Ok(window) = contender.engine.allocate_window(&MemoryRequest::new(size)) else { break };
        record(&mut register, begun);
        let begun = Instant::now();
        drop(window);
        record(&mut deregister, begun);
        turn += 1;
    }
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
        assert_eq!(rows.len(), 1 + 2 * SIZES.len(), "a clock of its own measures nothing here: {rows:?}");
        assert_eq!(rows[0], ("cpu", "open-queue", 0));
        assert!(found.iter().all(|c| c.time.samples > 0 && c.time.p50 > 0 && c.engine == "cpu"));
    }
}
