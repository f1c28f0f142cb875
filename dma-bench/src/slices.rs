//! One slice of time of one cell: all its queues at once.

use std::sync::Barrier;
use std::time::Instant;

use crate::drive::{Extent, Slice, Trouble, Worker, cpu_time};
use crate::waits;

/// What a slice came to.
pub(crate) struct Sliced {
    /// Of each queue.
    pub(crate) slices: Vec<Slice>,
    /// CPU time of the process, in nanoseconds.
    pub(crate) cpu_ns: f64,
    /// The part of the time in which threads waited for a CPU.
    pub(crate) waited: f64,
}

impl Sliced {
    /// Operations that were timed, and the nanoseconds that they took.
    pub(crate) fn ops_and_ns(&self) -> (u64, u64) {
        let from = self.slices.iter().map(|s| s.span.0).min().unwrap_or(0);
        let to = self.slices.iter().map(|s| s.span.1).max().unwrap_or(0);
        (self.slices.iter().map(|s| s.ops).sum(), to.saturating_sub(from))
    }

    /// All operations.
    pub(crate) fn all_ops(&self) -> u64 {
        self.slices.iter().map(|s| s.all_ops).sum()
    }
}

/// The part of the time since `begun` that waiting from `before` to `now` nanoseconds is.
pub(crate) fn part(before: u64, now: u64, begun: Instant) -> f64 {
    now.saturating_sub(before) as f64 / begun.elapsed().as_nanos().max(1) as f64
}

/// Runs the queues of a cell for one slice.
///
/// # Errors
///
/// An engine refuses or fails, or bytes did not arrive.
pub(crate) fn run(workers: &mut [Worker], extent: Extent, rate: Option<f64>) -> Result<Sliced, Trouble> {
    for worker in &mut *workers {
        worker.prepare(extent)?;
    }
    // Whoever waits for this CPU goes first: what follows is then less likely to be cut in two.
    std::thread::yield_now();
    let (before, cpu, begun) = (waits::of_process(), cpu_time(), Instant::now());
    let mut threads = 0;
    if let [worker] = &mut *workers {
        worker.start();
        worker.go(rate)?;
    } else if workers.first().is_some_and(Worker::virtual_clock) {
        // One thread polls all: polling is what passes their common time.
        workers.iter_mut().for_each(Worker::start);
        let mut going: Vec<&mut Worker> = workers.iter_mut().collect();
        while !going.is_empty() {
            let mut still = Vec::with_capacity(going.len());
            for worker in going {
                if !worker.burst(1)? {
                    still.push(worker);
                }
            }
            going = still;
        }
    } else {
        threads = in_threads(workers, rate)?;
    }
    let cpu_ns = cpu_time() - cpu;
    let waited = part(before, waits::of_process() + threads, begun);
    let slices: Result<Vec<Slice>, Trouble> = workers.iter_mut().map(Worker::finish).collect();
    Ok(Sliced { slices: slices?, cpu_ns, waited })
}

/// Each queue on a thread of its own, all at once; how long these waited for a CPU once they had begun, in nanoseconds.
fn in_threads(workers: &mut [Worker], rate: Option<f64>) -> Result<u64, Trouble> {
    let barrier = Barrier::new(workers.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let before = waits::of_thread();
                    worker.start();
                    worker.go(rate).map(|()| waits::of_thread().saturating_sub(before))
                })
            })
            .collect();
        let panicked = || Err(Trouble::Failed("a thread panicked".to_owned()));
        let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect();
        outcomes.into_iter().sum()
    })
}
