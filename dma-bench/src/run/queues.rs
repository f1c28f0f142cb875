//! One sample of a cell, on all its queues at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::cpu_time;
use super::drive::{CellError, Counts, Extent, Rate, Worker};
use super::sample::Sample;

/// The result of one sample of a cell, on all its queues.
pub(crate) struct QueuesRun {
    pub(crate) counts: Vec<Counts>,
    /// CPU time of the process, in nanoseconds.
    cpu_ns: f64,
    /// The samples of a run at a rate; empty for other runs.
    pub(crate) samples_at_rate: Vec<Sample>,
    /// Fraction of the time during which threads waited for a CPU, or during which not all queues had begun:
    /// the greater of the two.
    pub(crate) run_delay: f64,
}

impl QueuesRun {
    /// Returns the number of timed operations of all queues, and the nanoseconds that they took.
    pub(crate) fn ops_and_ns(&self) -> (u64, u64) {
        let from = self.counts.iter().map(|c| c.span.0).min().unwrap_or(0);
        let to = self.counts.iter().map(|c| c.span.1).max().unwrap_or(0);
        (self.counts.iter().map(|c| c.ops).sum(), to.saturating_sub(from))
    }

    pub(crate) fn sample(&self) -> Sample {
        let (ops, ns) = self.ops_and_ns();
        let all_ops = self.counts.iter().map(|c| c.all_ops).sum::<u64>().max(1);
        Sample::new(ops as f64 / (ns.max(1) as f64 / 1e9), self.cpu_ns / all_ops as f64, self.run_delay)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.counts.iter().any(|c| c.interrupted)
    }
}

/// Divides a run at a rate into its samples. A sample ends when it has ended on all queues. `cpu` is the
/// process's CPU time at the start, in nanoseconds.
fn samples_at_rate(workers: &[Worker], ops_per_sample: u64, cpu: f64, run_delay: f64) -> Vec<Sample> {
    let (mut from, mut before) = (workers.iter().map(Worker::started_at).min().unwrap_or(0), cpu);
    let whole = workers.iter().map(|w| w.sample_ends().len()).min().unwrap_or(0);
    let ops = (ops_per_sample * workers.len() as u64) as f64;
    let mut samples = Vec::with_capacity(whole);
    for at in 0..whole {
        let ends = workers.iter().map(|w| w.sample_ends()[at]);
        let (to, cpu) = ends.fold((0, 0.0_f64), |(to, cpu), end| (end.time.max(to), end.cpu.max(cpu)));
        let seconds = to.saturating_sub(from).max(1) as f64 / 1e9;
        samples.push(Sample::new(ops / seconds, (cpu - before) / ops, run_delay));
        (from, before) = (to, cpu);
    }
    samples
}

/// Returns the fraction of the time since `begun` that threads waited for a CPU, from their run delays
/// `before` and `now` in nanoseconds.
pub(crate) fn run_delay_since(before: u64, now: u64, begun: Instant) -> f64 {
    now.saturating_sub(before) as f64 / begun.elapsed().as_nanos().max(1) as f64
}

/// Runs all queues of a cell for one sample.
pub(crate) fn run(
    workers: &mut [Worker],
    extent: Extent,
    rate: Option<Rate>,
) -> Result<QueuesRun, CellError> {
    for worker in &mut *workers {
        worker.prepare(extent)?;
    }
    // Let threads that wait for this CPU run now, so that they interrupt the sample less often.
    std::thread::yield_now();
    let (threads, before) = cpu_time::threads();
    let (mut cpu, begun) = (cpu_time::of_process(&threads), Instant::now());
    let mut delay = 0;
    if let [worker] = &mut *workers {
        let _pinned = worker.pinned();
        worker.start();
        worker.run_loop(rate)?;
    } else if workers.first().is_some_and(Worker::virtual_clock) {
        run_in_turns(workers)?;
    } else {
        let (of_queues, early) = run_in_threads(workers, rate)?;
        (delay, cpu) = (of_queues, cpu + early);
    }
    let cpu_ns = cpu_time::of_process(&threads) - cpu;
    let run_delay = run_delay_since(before, cpu_time::threads().1 + delay, begun).max(start_skew(workers));
    let counts: Result<Vec<Counts>, CellError> = workers.iter_mut().map(Worker::finish).collect();
    let samples_at_rate =
        rate.map_or_else(Vec::new, |rate| samples_at_rate(workers, rate.ops_per_sample, cpu, run_delay));
    Ok(QueuesRun { counts: counts?, cpu_ns, samples_at_rate, run_delay })
}

/// Returns the fraction of the time during which not all queues had begun.
fn start_skew(workers: &[Worker]) -> f64 {
    let (first, last) =
        workers.iter().map(Worker::started_at).fold((u64::MAX, 0), |(f, l), at| (f.min(at), l.max(at)));
    let end = workers.iter().map(Worker::ended_at).max().unwrap_or(0);
    last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64
}

/// Polls all queues in turn on one thread, because polling advances their common clock.
fn run_in_turns(workers: &mut [Worker]) -> Result<(), CellError> {
    workers.iter_mut().for_each(Worker::start);
    let mut running: Vec<&mut Worker> = workers.iter_mut().collect();
    while !running.is_empty() {
        if running[0].is_stopped() {
            return running.into_iter().try_for_each(Worker::interrupt);
        }
        let mut still = Vec::with_capacity(running.len());
        for worker in running {
            if !worker.burst(1)? {
                still.push(worker);
            }
        }
        running = still;
    }
    Ok(())
}

/// Number of arrived threads that is stored if a thread cannot be started, so that all others stop waiting.
const INCOMPLETE: usize = usize::MAX / 2;
/// Number of spins between two yields of the CPU.
const SPINS_PER_YIELD: u32 = 256;

/// Waits until `all` threads have called this function. The threads spin, because a woken thread would start
/// late. Returns false once `arrived` is at least [`INCOMPLETE`].
fn start_together(arrived: &AtomicUsize, all: usize) -> bool {
    arrived.fetch_add(1, Ordering::AcqRel);
    for spins in 1_u32.. {
        match arrived.load(Ordering::Acquire) {
            n if n >= all => return n == all,
            _ if spins.is_multiple_of(SPINS_PER_YIELD) => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
    false
}

/// Runs all queues at once, each on its own thread. Returns, in nanoseconds, the threads' run delay, and the
/// CPU time that was spent before they began, which belongs to no operation.
fn run_in_threads(workers: &mut [Worker], rate: Option<Rate>) -> Result<(u64, f64), CellError> {
    let (arrived, all, own) = (&AtomicUsize::new(0), workers.len(), cpu_time::of_thread());
    let (delay, early) = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(all);
        let mut missing = None;
        for worker in workers {
            let queue = std::thread::Builder::new().name("dma-bench-queue".to_owned());
            let started = queue.spawn_scoped(scope, move || {
                if !start_together(arrived, all) {
                    return Ok((0, 0.0));
                }
                let _pinned = worker.pinned();
                let (before, early) = (cpu_time::run_delay(), cpu_time::of_thread());
                worker.start();
                worker.run_loop(rate)?;
                // Reading the clock adds this thread's time since its last tick to the time of the process.
                let _ = cpu_time::of_thread();
                Ok((cpu_time::run_delay().saturating_sub(before), early))
            });
            match started {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    arrived.store(INCOMPLETE, Ordering::Release);
                    let queue = threads.len() + 1;
                    missing = Some(CellError::Failed(format!(
                        "no thread can be started for queue {queue}: {e}; use fewer --queues"
                    )));
                    break;
                }
            }
        }
        let panicked = || Err(CellError::Failed("a thread panicked".to_owned()));
        let ended: Vec<_> = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect();
        missing.map_or(Ok(()), Err)?;
        ended.into_iter().try_fold((0, 0.0), |sum, of| of.map(|of| (sum.0 + of.0, sum.1 + of.1)))
    })?;
    Ok((delay, early + cpu_time::of_thread() - own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_begin_together_or_not_at_all() {
        let all = |arrived: &AtomicUsize, threads: usize| {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..threads).map(|_| scope.spawn(|| start_together(arrived, 3))).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!(all(&AtomicUsize::new(0), 3), [true; 3]);
        // Only two of the three threads can be started.
        assert_eq!(all(&AtomicUsize::new(INCOMPLETE), 2), [false; 2]);
    }
}
