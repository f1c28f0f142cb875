//! Compares `AutoEngine` with the faster of its two engines, for each size, depth and footprint, and for a
//! mix of sizes.
//!
//! `cargo bench -p dma-layers --bench auto [-- dsa|bluefield3|timer]` prints for each device: the nanoseconds
//! per copy of the CPU alone, of the device alone and of `AutoEngine`; the share of copies that the device
//! executed; and the time of `AutoEngine` divided by that of the faster engine. The three run in turns, and
//! each figure is the median over the rounds. Two devices are models with published times in real time.
//! Unlike real devices, they use CPU time for each copy. The third device is a timer: it completes copies
//! after 1.5 us and at 30 GB/s without moving bytes. The timer represents a device that is faster than the
//! CPU.
#![expect(unsafe_code, reason = "uses raw queues, and implements one")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{
    Completion, Descriptor, DmaEngine, EngineId, MemoryRequest, NativeError, QueueEvents, QueueOptions,
    QueueStats, RawQueue, RawRegion, Result,
};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions};
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::with_queues::WithQueues;

const SIZES: [usize; 6] = [64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 2 << 20];
/// Bytes of memory for the sources, and the same number for the destinations: `COLD` for cold copies; `HOT`
/// for hot copies, or the length of a copy if that is more.
const COLD: usize = 256 << 20;
const HOT: usize = 256 << 10;
const LATENCY: Duration = Duration::from_nanos(1500);
const BYTES_PER_NS: u64 = 30;

/// A queue that completes copies by the clock alone.
#[derive(Debug)]
struct TimerQueue {
    inner: Box<dyn RawQueue>,
    due: VecDeque<(u64, Instant)>,
    free_at: Instant,
    doorbells: u64,
}

impl TimerQueue {
    fn around(inner: Box<dyn RawQueue>) -> Box<dyn RawQueue> {
        Box::new(Self { inner, due: VecDeque::new(), free_at: Instant::now(), doorbells: 0 })
    }
}

// SAFETY: each descriptor is reported once, and the queue accesses no memory.
unsafe impl RawQueue for TimerQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        let taken = batch.len().min(self.depth() - self.due.len());
        let now = Instant::now();
        for descriptor in &batch[..taken] {
            let moved = Duration::from_nanos(descriptor.len() as u64 / BYTES_PER_NS);
            self.free_at = self.free_at.max(now) + moved;
            self.due.push_back((descriptor.token(), self.free_at + LATENCY));
        }
        Ok(taken)
    }
    fn flush(&mut self) {
        self.doorbells += 1;
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let (now, mut n) = (Instant::now(), 0);
        while n < completions.len()
            && let Some((token, _)) = self.due.front().filter(|(_, at)| *at <= now).copied()
        {
            self.due.pop_front();
            completions[n] = Completion::done(token);
            n += 1;
        }
        n
    }
    fn explain(&self, native: i32) -> NativeError {
        self.inner.explain(native)
    }
    fn stop(&mut self) {}
    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

/// An engine with its memory and a queue.
struct Contender {
    src: Box<dyn RawRegion>,
    dst: Box<dyn RawRegion>,
    queue: Box<dyn RawQueue>,
    batch: Vec<Descriptor<'static>>,
    at: usize,
    token: u64,
}

impl Contender {
    fn new(engine: &dyn DmaEngine, len: usize) -> Self {
        let memory = || engine.allocate_raw(&MemoryRequest::new(len)).expect("memory");
        let (src, dst) = (memory(), memory());
        // The destinations are written as well, because the first access to a page costs more than a copy.
        for (region, word) in [(&src, 0_u64), (&dst, u64::MAX)] {
            for at in 0..len / 8 {
                let place = region.info().segment(at * 8, 8).addr.as_ptr().cast::<u64>();
                // SAFETY: the CPU reaches the region, and no operation is in flight.
                unsafe { place.write_unaligned(at as u64 ^ word) };
            }
        }
        let queue = engine.open_queue_raw(&QueueOptions::new()).expect("a queue");
        Self { src, dst, queue, batch: Vec::new(), at: 0, token: 0 }
    }

    /// Keeps `depth` copies in flight, with each of the lengths in turn, for `time` and for at least `least`
    /// copies. Returns the nanoseconds per copy.
    fn run(&mut self, lens: &[usize], depth: usize, span: usize, time: Duration, least: u64) -> f64 {
        let (mut submitted, mut done) = (0_u64, 0_u64);
        let mut completions = [Completion::done(0); 32];
        let begin = Instant::now();
        let mut open = true;
        while open || done < submitted {
            let room = depth - (submitted - done) as usize;
            self.batch.clear();
            for _ in 0..if open { room } else { 0 } {
                let len = lens[self.token as usize % lens.len()];
                if self.at + len > span {
                    self.at = 0;
                }
                let (src, dst) =
                    (self.src.info().segment(self.at, len), self.dst.info().segment(self.at, len));
                self.batch.push(Descriptor::copy(self.token, src, dst));
                self.at += len;
                self.token += 1;
            }
            if !self.batch.is_empty() {
                // SAFETY: the ranges are within this engine's regions, which outlive the queue's work.
                // Overlapping copies write the same bytes.
                let taken = unsafe { self.queue.submit(&self.batch) }.expect("taken");
                assert_eq!(taken, self.batch.len(), "there is room");
                submitted += taken as u64;
                self.queue.flush();
            }
            let n = self.queue.poll(&mut completions);
            assert!(completions[..n].iter().all(|done| done.outcome == dma_core::Outcome::Done));
            done += n as u64;
            open = done < least || begin.elapsed() < time;
        }
        begin.elapsed().as_nanos() as f64 / done as f64
    }

    /// Compares the first `len` bytes of the destination with the source.
    fn verify(&self, len: usize) {
        let bytes = |region: &dyn RawRegion| {
            let base = region.info().cpu.expect("the CPU reaches it");
            // SAFETY: the bytes are within the region, and no operation is in flight.
            unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
        };
        assert!(bytes(&*self.src) == bytes(&*self.dst), "a copy is wrong");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn size(len: usize) -> String {
    match len {
        _ if len >= 1 << 20 => format!("{} MiB", len >> 20),
        _ if len >= 1 << 10 => format!("{} KiB", len >> 10),
        _ => format!("{len} B"),
    }
}

fn simulated(options: &str) -> SimEngine {
    let name = format!("sim:{options}").parse().expect("a name");
    SimEngine::open(&SimOptions::from_name(&name).expect("options")).expect("it opens")
}

fn main() {
    let test = std::env::args().any(|arg| arg == "--test");
    let (rounds, slice, cold) =
        if test { (1, Duration::ZERO, 4 << 20) } else { (9, Duration::from_millis(10), COLD) };
    let devices: [(&str, bool, Arc<dyn DmaEngine>); 3] = [
        ("model of dsa", true, Arc::new(simulated("profile=dsa,clock=real"))),
        ("model of bluefield3", true, Arc::new(simulated("profile=bluefield3,clock=real"))),
        (
            "timer",
            false,
            Arc::new(WithQueues::new(Arc::new(simulated("profile=dsa,clock=real")), TimerQueue::around)),
        ),
    ];
    let wanted: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, moves, device) in devices {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.ends_with(wanted)) {
            continue;
        }
        println!("\n{name}: nanoseconds a copy\n");
        println!(
            "{:>11}  {:>4} {:>9} {:>11} {:>11} {:>11} {:>8} {:>11}",
            "in flight", "", "size", "cpu", "device", "auto", "device's", "auto/better"
        );
        let cpu: Arc<dyn DmaEngine> = Arc::new(CpuEngine::open(&CpuOptions::new()).expect("the CPU"));
        let auto = AutoEngine::new(Arc::clone(&cpu), Arc::clone(&device), &AutoOptions::new());
        let auto = Arc::new(auto.expect("both fit"));
        let mut contenders =
            [&*cpu, &*device, &*auto as &dyn DmaEngine].map(|engine| Contender::new(engine, cold));
        let mut worst = 0.0_f64;
        for (footprint, span) in [("hot", HOT.min(cold)), ("cold", cold)] {
            for depth in [1, 32] {
                let each = SIZES.iter().map(std::slice::from_ref);
                for lens in each.chain([&SIZES[..]]) {
                    let span = span.max(*lens.iter().max().expect("not empty"));
                    let least = if test { 2 } else { depth as u64 };
                    // A warm-up: `AutoEngine` learns which engine to use, and all contenders touch their
                    // memory.
                    let warm = if test { 2 } else { 150 * lens.len() as u64 };
                    for contender in &mut contenders {
                        contender.run(lens, depth, span, slice * 6, warm);
                    }
                    let before = auto.report();
                    let mut times = [const { Vec::new() }; 3];
                    for _ in 0..rounds {
                        for (contender, times) in contenders.iter_mut().zip(&mut times) {
                            times.push(contender.run(lens, depth, span, slice, least));
                        }
                    }
                    let after = auto.report();
                    let given = (after.device - before.device) as f64;
                    let share = given / (given + (after.cpu - before.cpu) as f64);
                    let [cpu, device, auto] = times.map(median);
                    let ratio = auto / cpu.min(device);
                    worst = worst.max(ratio);
                    let lens = if lens.len() == 1 { size(lens[0]) } else { "mix".to_owned() };
                    println!(
                        "{depth:11}  {footprint:>4} {lens:>9} {cpu:11.0} {device:11.0} {auto:11.0} {:7.1}% {ratio:11.2}",
                        100.0 * share
                    );
                }
            }
        }
        if moves {
            // The longest hot copies began at the first byte, so at least this number of bytes was copied.
            let copied = SIZES[SIZES.len() - 1];
            contenders.iter().for_each(|contender| contender.verify(copied));
        }
        println!("worst: {worst:.2} times the better engine");
        println!("\n{}", auto.report());
    }
}
