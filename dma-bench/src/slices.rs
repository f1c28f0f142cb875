//! One slice of time of one cell, on all its queues at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::drive::{Extent, Pace, Slice, Trouble, Worker};
use crate::pairs::Slot;
use crate::{cpu_time, interrupt};

pub(crate) struct Sliced {
    pub(crate) slices: Vec<Slice>,
    /// CPU time of the process, in nanoseconds.
    pub(crate) cpu_ns: f64,
    /// The repetitions of a run at a rate; empty otherwise.
    pub(crate) parts: Vec<Part>,
    /// Fraction of the time during which threads waited for a CPU.
    pub(crate) waited: f64,
}

impl Sliced {
    /// Returns the timed operations of all queues, and the nanoseconds that they took.
    pub(crate) fn ops_and_ns(&self) -> (u64, u64) {
        let from = self.slices.iter().map(|s| s.span.0).min().unwrap_or(0);
        let to = self.slices.iter().map(|s| s.span.1).max().unwrap_or(0);
        (self.slices.iter().map(|s| s.ops).sum(), to.saturating_sub(from))
    }

    pub(crate) fn slot(&self) -> Slot {
        let (ops, ns) = self.ops_and_ns();
        Slot {
            rate: ops as f64 / (ns.max(1) as f64 / 1e9),
            cpu_ns: self.cpu_ns / self.all_ops().max(1) as f64,
            waited: self.waited,
        }
    }

    pub(crate) fn cut(&self) -> bool {
        self.slices.iter().any(|s| s.cut)
    }

    /// Returns the operations of all queues, timed or not.
    pub(crate) fn all_ops(&self) -> u64 {
        self.slices.iter().map(|s| s.all_ops).sum()
    }
}

/// A repetition of a run at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) ops: u64,
    /// Their duration in nanoseconds.
    pub(crate) ns: u64,
    /// CPU time of the process meanwhile, in nanoseconds.
    pub(crate) cpu_ns: f64,
}

/// Cuts a run at a rate into its repetitions. Each one ends when it has ended on all queues. `cpu` is the
/// process's CPU time at the start, in nanoseconds.
pub(crate) fn parts(workers: &[Worker], each: u64, cpu: f64) -> Vec<Part> {
    let (mut from, mut before) = (workers.iter().map(|w| w.marks().0).min().unwrap_or(0), cpu);
    let whole = workers.iter().map(|w| w.marks().1.len()).min().unwrap_or(0);
    let mut parts = Vec::with_capacity(whole);
    for at in 0..whole {
        let marks = workers.iter().map(|w| w.marks().1[at]);
        let (to, cpu) = marks.fold((0, 0.0_f64), |(to, cpu), m| (m.time.max(to), m.cpu.max(cpu)));
        parts.push(Part {
            ops: each * workers.len() as u64,
            ns: to.saturating_sub(from),
            cpu_ns: cpu - before,
        });
        (from, before) = (to, cpu);
    }
    parts
}

/// Returns the fraction of the time since `begun` that threads waited, from their run delays `before` and
/// `now` in nanoseconds.
pub(crate) fn part(before: u64, now: u64, begun: Instant) -> f64 {
    now.saturating_sub(before) as f64 / begun.elapsed().as_nanos().max(1) as f64
}

/// Runs all queues of a cell for one slice.
pub(crate) fn run(workers: &mut [Worker], extent: Extent, pace: Option<Pace>) -> Result<Sliced, Trouble> {
    for worker in &mut *workers {
        worker.prepare(extent)?;
    }
    // Threads that wait for this CPU run now, so that they interrupt the slice less often.
    std::thread::yield_now();
    let (threads, before) = cpu_time::threads();
    let (mut cpu, begun) = (cpu_time::of_process(&threads), Instant::now());
    let mut delay = 0;
    if let [worker] = &mut *workers {
        let _pinned = worker.pinned();
        worker.start();
        worker.go(pace)?;
    } else if workers.first().is_some_and(Worker::virtual_clock) {
        // One thread polls all queues, because polling advances their common clock.
        workers.iter_mut().for_each(Worker::start);
        let mut going: Vec<&mut Worker> = workers.iter_mut().collect();
        while !going.is_empty() {
            if interrupt::stopped() {
                going.into_iter().try_for_each(Worker::cut)?;
                break;
            }
            let mut still = Vec::with_capacity(going.len());
            for worker in going {
                if !worker.burst(1)? {
                    still.push(worker);
                }
            }
            going = still;
        }
    } else {
        let (of_queues, early) = in_threads(workers, pace)?;
        (delay, cpu) = (of_queues, cpu + early);
    }
    let cpu_ns = cpu_time::of_process(&threads) - cpu;
    let waited = part(before, cpu_time::threads().1 + delay, begun).max(apart(workers));
    let slices: Result<Vec<Slice>, Trouble> = workers.iter_mut().map(Worker::finish).collect();
    let parts = pace.map_or_else(Vec::new, |pace| parts(workers, pace.each, cpu));
    Ok(Sliced { slices: slices?, parts, cpu_ns, waited })
}

/// Returns the fraction of the time during which not all queues had begun.
fn apart(workers: &[Worker]) -> f64 {
    let (first, last) =
        workers.iter().map(|w| w.marks().0).fold((u64::MAX, 0), |(f, l), at| (f.min(at), l.max(at)));
    let end = workers.iter().map(Worker::ended_at).max().unwrap_or(0);
    last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64
}

/// Number of threads that stands for: some will not arrive.
const OFF: usize = usize::MAX / 2;
/// Spins between two yields of the CPU.
const SPINS: u32 = 256;

/// Waits until `all` threads have called this. They spin, because a thread that is woken starts late. Returns
/// false once `here` is [`OFF`].
fn meet(here: &AtomicUsize, all: usize) -> bool {
    here.fetch_add(1, Ordering::AcqRel);
    for spins in 1_u32.. {
        match here.load(Ordering::Acquire) {
            n if n >= all => return n == all,
            _ if spins.is_multiple_of(SPINS) => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
    false
}

/// Runs each queue on a thread of its own, all at once. Returns, in nanoseconds, their run delay, and the CPU
/// time that was spent before they began, which belongs to no operation.
fn in_threads(workers: &mut [Worker], pace: Option<Pace>) -> Result<(u64, f64), Trouble> {
    let (here, all, own) = (&AtomicUsize::new(0), workers.len(), cpu_time::of_thread());
    let (delay, early) = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(all);
        let mut missing = None;
        for worker in workers {
            let queue = std::thread::Builder::new().name("dma-bench-queue".to_owned());
            let started = queue.spawn_scoped(scope, move || {
                if !meet(here, all) {
                    return Ok((0, 0.0));
                }
                let _pinned = worker.pinned();
                let (before, early) = (cpu_time::waited(), cpu_time::of_thread());
                worker.start();
                worker.go(pace)?;
                // Reading the clock adds this thread's time since its last tick to that of the process.
                let _ = cpu_time::of_thread();
                Ok((cpu_time::waited().saturating_sub(before), early))
            });
            match started {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    here.store(OFF, Ordering::Release);
                    let queue = threads.len() + 1;
                    missing = Some(Trouble::Failed(format!(
                        "no thread can be started for queue {queue}: {e}; use fewer --queues"
                    )));
                    break;
                }
            }
        }
        let panicked = || Err(Trouble::Failed("a thread panicked".to_owned()));
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
        let all = |here: &AtomicUsize, threads: usize| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| meet(here, 3))).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!(all(&AtomicUsize::new(0), 3), [true; 3]);
        // One of three threads cannot be started.
        assert_eq!(all(&AtomicUsize::new(OFF), 2), [false; 2]);
    }
}
