//! One slice of time of one cell, on all its queues at once.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::drive::{Extent, Pace, Slice, Trouble, Worker};
use crate::pairs::Slot;
use crate::{cpu_clock, interrupt, run_delay};

/// Result of a slice.
pub(crate) struct Sliced {
    /// The slice of each queue.
    pub(crate) slices: Vec<Slice>,
    /// CPU time of the process, in nanoseconds.
    pub(crate) cpu_ns: f64,
    /// The repetitions of a run at a rate; empty otherwise.
    pub(crate) parts: Vec<Part>,
    /// Fraction of the time during which threads waited for a CPU.
    pub(crate) waited: f64,
    /// The CPU of the thread that helped, if one did.
    pub(crate) beside: Option<usize>,
}

/// A thread that runs for at least this fraction of the time takes part.
const TAKES_PART: f64 = 0.1;

impl Sliced {
    /// Returns the timed operations of all queues, and the nanoseconds that they took.
    pub(crate) fn ops_and_ns(&self) -> (u64, u64) {
        let from = self.slices.iter().map(|s| s.span.0).min().unwrap_or(0);
        let to = self.slices.iter().map(|s| s.span.1).max().unwrap_or(0);
        (self.slices.iter().map(|s| s.ops).sum(), to.saturating_sub(from))
    }

    /// Returns the figures of the whole slice.
    pub(crate) fn slot(&self) -> Slot {
        let (ops, ns) = self.ops_and_ns();
        Slot {
            rate: ops as f64 / (ns.max(1) as f64 / 1e9),
            cpu_ns: self.cpu_ns / self.all_ops().max(1) as f64,
            waited: self.waited,
            beside: None,
        }
    }

    /// Returns true if the user stopped the slice early.
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
///
/// # Errors
///
/// An engine refuses or fails, or a byte or result is wrong.
pub(crate) fn run(workers: &mut [Worker], extent: Extent, pace: Option<Pace>) -> Result<Sliced, Trouble> {
    for worker in &mut *workers {
        worker.prepare(extent)?;
    }
    // Threads that wait for this CPU run now, so that they interrupt the slice less often.
    std::thread::yield_now();
    let before = run_delay::of_process();
    let cpu_now = || cpu_clock::of_process(before.iter().map(|t| t.id));
    let (own, mut cpu, begun) = (cpu_clock::of_thread(), cpu_now(), Instant::now());
    let mut threads = 0;
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
        let known: Vec<u32> = before.iter().map(|t| t.id).collect();
        (threads, cpu) = in_threads(workers, pace, &known)?;
    }
    let (cpu_ns, own_ns) = (cpu_now() - cpu, cpu_clock::of_thread() - own);
    let now = run_delay::of_process();
    let sum = |threads: &[run_delay::Thread]| threads.iter().map(|t| t.waited).sum::<u64>();
    let waited = part(sum(&before), sum(&now) + threads, begun).max(apart(workers));
    // With a thread for each queue, the calling thread only waits.
    let took_part = workers.len() == 1 && cpu_ns - own_ns > TAKES_PART * begun.elapsed().as_nanos() as f64;
    let other = took_part.then(|| run_delay::busiest(&before, &now)).flatten();
    let beside = other.and_then(run_delay::cpu_of);
    let slices: Result<Vec<Slice>, Trouble> = workers.iter_mut().map(Worker::finish).collect();
    let parts = pace.map_or_else(Vec::new, |pace| parts(workers, pace.each, cpu));
    Ok(Sliced { slices: slices?, parts, cpu_ns, waited, beside })
}

/// Returns the fraction of the time during which not all queues had begun.
fn apart(workers: &[Worker]) -> f64 {
    let (first, last) =
        workers.iter().map(|w| w.marks().0).fold((u64::MAX, 0), |(f, l), at| (f.min(at), l.max(at)));
    let end = workers.iter().map(Worker::ended_at).max().unwrap_or(0);
    last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64
}

/// Rendezvous of threads before a slice. They spin, because a thread that is woken starts late.
struct Rendezvous {
    /// Thread IDs of those that have arrived; 0 for the others.
    threads: Vec<AtomicU32>,
    here: AtomicUsize,
    /// CPU time of the process when all had arrived, in nanoseconds.
    cpu: AtomicU64,
    state: AtomicU32,
}

/// State: some have not arrived.
const WAIT: u32 = 0;
/// State: all have arrived.
const GO: u32 = 1;
/// State: some will not arrive.
const OFF: u32 = 2;
/// Spins between two yields of the CPU.
const SPINS: u32 = 256;

impl Rendezvous {
    fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| AtomicU32::new(0)).collect(),
            here: AtomicUsize::new(0),
            cpu: AtomicU64::new(0),
            state: AtomicU32::new(WAIT),
        }
    }

    /// Waits for the other threads. Returns false if some will not arrive. `known` are the threads of the
    /// process before.
    fn wait(&self, known: &[u32]) -> bool {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let at = self.here.fetch_add(1, Ordering::AcqRel);
        self.threads[at].store(own, Ordering::Release);
        if at + 1 == self.threads.len() {
            // Time up to now, waiting included, belongs to no operation.
            let here = self.threads.iter().map(|t| t.load(Ordering::Acquire)).filter(|id| *id != 0);
            let cpu = cpu_clock::of_process(known.iter().copied().chain(here));
            self.cpu.store(cpu.to_bits(), Ordering::Relaxed);
            self.state.store(GO, Ordering::Release);
            return true;
        }
        for spins in 1_u32.. {
            match self.state.load(Ordering::Acquire) {
                WAIT if spins.is_multiple_of(SPINS) => std::thread::yield_now(),
                WAIT => std::hint::spin_loop(),
                state => return state == GO,
            }
        }
        false
    }
}

/// Runs each queue on a thread of its own, all at once. Returns their run delay in nanoseconds from the
/// start, and the process's CPU time at the start in nanoseconds.
fn in_threads(workers: &mut [Worker], pace: Option<Pace>, known: &[u32]) -> Result<(u64, f64), Trouble> {
    let meet = Rendezvous::new(workers.len());
    let waited = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(workers.len());
        let mut missing = None;
        for worker in workers {
            let meet = &meet;
            let queue = std::thread::Builder::new().name("dma-bench-queue".to_owned());
            let started = queue.spawn_scoped(scope, move || {
                if !meet.wait(known) {
                    return Ok(0);
                }
                let _pinned = worker.pinned();
                let before = run_delay::of_thread();
                worker.start();
                let ended = worker.go(pace);
                // Reading the clock adds this thread's time since its last tick to that of the process.
                let _ = cpu_clock::of_thread();
                ended.map(|()| run_delay::of_thread().saturating_sub(before))
            });
            match started {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    meet.state.store(OFF, Ordering::Release);
                    let text = format!(
                        "no thread can be started for queue {}: {e}; use fewer --queues",
                        threads.len() + 1
                    );
                    missing = Some(Trouble::Failed(text));
                    break;
                }
            }
        }
        let panicked = || Err(Trouble::Failed("a thread panicked".to_owned()));
        let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect();
        match missing {
            Some(trouble) => Err(trouble),
            None => outcomes.into_iter().sum::<Result<u64, Trouble>>(),
        }
    })?;
    Ok((waited, f64::from_bits(meet.cpu.load(Ordering::Relaxed))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::contender::Contender;
    use crate::drive::COMPARE_LITTLE;
    use crate::layout::Layout;
    use crate::memory::Memory;
    use crate::plan::{Cell, Direction, Footprint, Op, Verify};

    const SIZE: usize = 1 << 20;

    /// Returns the CPU of the helping thread in a slice of a few large copies.
    fn beside(engine: &str) -> Option<usize> {
        let cell = Cell {
            engine: engine.to_owned(),
            op: Op::Copy,
            size: SIZE as u64,
            depth: 4,
            batch: 4,
            queues: 1,
            segments: 1,
            footprint: Footprint::Hot,
            direction: Direction::Local,
        };
        let contender = Contender::open(engine).unwrap();
        let bytes = Layout::bytes(&cell, SIZE);
        let memory = Memory::new(&contender.engine, None, bytes, Direction::Local).unwrap();
        let layout = Layout::new(&cell, 0, SIZE);
        let timeout = Duration::from_secs(60);
        let worker = Worker::new(&contender, &cell, memory, layout, Verify::Sample, timeout).unwrap();
        let extent = Extent { warm: 4, ops: 64, sample_every: 1, compare: COMPARE_LITTLE, each: false };
        run(&mut [worker], extent, None).unwrap().beside
    }

    #[test]
    fn threads_begin_together_or_not_at_all() {
        let meet = Rendezvous::new(3);
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| meet.wait(&[]))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(all, [true; 3]);
        assert!(f64::from_bits(meet.cpu.load(Ordering::Relaxed)) > 0.0);
        // One of three threads cannot be started.
        let meet = Rendezvous::new(3);
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| meet.wait(&[]))).collect();
            meet.state.store(OFF, Ordering::Release);
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(all, [false; 2]);
    }

    #[test]
    fn a_partner_is_found_on_another_cpu() {
        const ALONE: &str = "DMA_BENCH_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            // Other tests are threads of this process, so this test runs in a process of its own.
            let name = "slices::tests::a_partner_is_found_on_another_cpu";
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let ran = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(
                ran.status.success() && said.contains("1 passed"),
                "{said}{}",
                String::from_utf8_lossy(&ran.stderr)
            );
            return;
        }
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        assert_eq!(beside("cpu:threads=0"), None, "nobody else copies");
        if allowed.count() > 1 {
            // The helper may be late if the other core is busy.
            let until = Instant::now() + Duration::from_secs(60);
            let mut cpu = None;
            while cpu.is_none() && Instant::now() < until {
                cpu = beside("cpu:threads=1");
            }
            assert!(cpu.is_some_and(|cpu| allowed.is_set(cpu)), "{cpu:?}");
        }
    }
}
