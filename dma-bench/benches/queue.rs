//! The cost of the library itself: dispatch, the safe API, splitting operations and scatter-gather. The
//! engine reports every copy as done at once and moves no bytes.
//!
//! `cargo bench -p dma-bench --bench queue` prints Criterion's figures and then a table, for which generic
//! and dynamic dispatch run in turns. `-- --table` prints only the table.

#![expect(unsafe_code, reason = "implements and drives the raw queue")]

use std::hint::black_box;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use dma::contract::{
    Completion, Descriptor, QueueEvents, QueueStats, RawExport, RawQueue, RawRegion, RegionInfo, RegionKey,
    Segment,
};
use dma::prelude::*;
use dma::{
    Capabilities, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor, HostMemory, Limits,
    MemoryRequest, NativeError,
};

const LEN: usize = 64;
/// Maximum number of completions that one poll returns.
const POLL: usize = 64;

/// An engine that reports every copy as done, and moves no bytes.
#[derive(Debug)]
struct Nothing {
    id: EngineId,
    info: EngineInfo,
}

impl Nothing {
    fn new(max_transfer: u64, max_segments: usize) -> Self {
        let limits = Limits::default()
            .with_max_transfer(max_transfer)
            .with_max_segments(max_segments)
            .with_queue_depth(256, 256);
        let info = EngineInfo::new("nothing", "no device", "0")
            .with_capabilities(Capabilities::ALLOCATE)
            .with_limits(limits);
        Self { id: EngineId::unique(), info }
    }

    fn queue(&self) -> NothingQueue {
        NothingQueue { engine: self.id, tokens: [0; 256], submitted: 0, reported: 0, doorbells: 0 }
    }
}

// SAFETY: the queue accepts every descriptor and accesses no memory, so it stays within the declared
// capabilities and limits.
unsafe impl DmaEngine for Nothing {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    fn id(&self) -> EngineId {
        self.id
    }
    fn allocate_raw(&self, request: &MemoryRequest) -> dma::Result<Box<dyn RawRegion>> {
        let memory = vec![0_u128; request.len.div_ceil(16)].leak();
        let base = NonNull::from(memory).cast();
        let info = RegionInfo::local(self.id, RegionKey::unique(), base, request.len, request.access);
        Ok(Box::new(Leaked { info }))
    }
    unsafe fn register_raw(&self, _: &HostMemory, _: &MemoryRequest) -> dma::Result<Box<dyn RawRegion>> {
        Err(Error::new(ErrorKind::Unsupported, "this engine registers nothing"))
    }
    fn import_raw(&self, _: &ExportDescriptor) -> dma::Result<Box<dyn RawRegion>> {
        Err(Error::new(ErrorKind::Unsupported, "this engine imports nothing"))
    }
    fn open_queue_raw(&self, _: &QueueOptions) -> dma::Result<Box<dyn RawQueue>> {
        Ok(Box::new(self.queue()))
    }
}

/// Memory that is never freed.
#[derive(Debug)]
struct Leaked {
    info: RegionInfo,
}

// SAFETY: the region's information never changes, and its key is unique. Its memory is initialised and never
// freed, and the engine does not access it.
unsafe impl RawRegion for Leaked {
    fn info(&self) -> &RegionInfo {
        &self.info
    }
    unsafe fn export(&self, _: usize, _: usize, _: Access) -> dma::Result<Box<dyn RawExport>> {
        Err(Error::new(ErrorKind::Unsupported, "this engine exports nothing"))
    }
}

#[derive(Debug)]
struct NothingQueue {
    engine: EngineId,
    tokens: [u64; 256],
    submitted: usize,
    reported: usize,
    doorbells: u64,
}

// SAFETY: every accepted descriptor is reported once. The queue accesses no memory, and the engine's memory
// is initialised when it is allocated.
unsafe impl RawQueue for NothingQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }
    fn depth(&self) -> usize {
        self.tokens.len()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> dma::Result<usize> {
        let room = self.tokens.len() - (self.submitted - self.reported);
        for descriptor in batch.iter().take(room) {
            self.tokens[self.submitted % 256] = descriptor.token();
            self.submitted += 1;
        }
        Ok(room.min(batch.len()))
    }
    fn flush(&mut self) {
        self.doorbells += 1;
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = completions.len().min(self.submitted - self.reported);
        for completion in &mut completions[..n] {
            *completion = Completion::done(self.tokens[self.reported % 256]);
            self.reported += 1;
        }
        n
    }
    fn explain(&self, native: i32) -> NativeError {
        NativeError { code: native, name: "".into(), description: "".into() }
    }
    fn stop(&mut self) {}
    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

/// Descriptors of copies between two buffers of the engine.
fn descriptors(engine: &Nothing, n: usize) -> Vec<Descriptor<'static>> {
    let region = engine.allocate_raw(&MemoryRequest::new(2 * LEN)).unwrap();
    let segment = |at| Segment { key: region.info().key, addr: region.info().addr.offset(at), len: LEN };
    (0..n as u64).map(|token| Descriptor::copy(token, segment(0), segment(LEN))).collect()
}

/// Submits the descriptors, rings the doorbell, and polls until all have completed. `Q` is the queue's type,
/// or `dyn RawQueue`.
#[inline(never)]
fn drive<Q: RawQueue + ?Sized>(
    queue: &mut Q,
    batch: &[Descriptor<'_>],
    completions: &mut [Completion; POLL],
) {
    // SAFETY: the segments are within memory that is never freed, and the queue does not access it.
    assert_eq!(unsafe { queue.submit(batch) }.unwrap(), batch.len());
    queue.flush();
    let mut done = 0;
    while done < batch.len() {
        done += queue.poll(completions);
    }
    black_box(completions);
}

fn dispatch(criterion: &mut Criterion, engine: &Nothing) {
    let mut completions = [Completion::done(0); POLL];
    let mut group = criterion.benchmark_group("dispatch: submit, flush, poll");
    for n in [1, 32] {
        let batch = descriptors(engine, n);
        group.throughput(Throughput::Elements(n as u64));
        let mut queue = engine.queue();
        group.bench_function(BenchmarkId::new("generic", n), |b| {
            b.iter(|| drive(&mut queue, black_box(&batch), &mut completions))
        });
        let mut queue: Box<dyn RawQueue> = Box::new(engine.queue());
        group.bench_function(BenchmarkId::new("dyn", n), |b| {
            b.iter(|| drive(black_box(&mut *queue), black_box(&batch), &mut completions));
        });
    }
    group.finish();
}

fn safe_api(criterion: &mut Criterion, engine: &Nothing) {
    let mut group = criterion.benchmark_group("safe API");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut pair = Some((engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap()));
    group.throughput(Throughput::Elements(1));
    group.bench_function("copy and wait", |b| {
        b.iter(|| {
            let (src, dst) = pair.take().unwrap();
            pair = Some(queue.copy(src, dst).unwrap().wait().unwrap());
        });
    });
    let pairs = (0..32).map(|_| (engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap()));
    let mut batch: Option<Batch<BufferMut, BufferMut>> = Some(pairs.collect());
    group.throughput(Throughput::Elements(32));
    group.bench_function("batch of 32", |b| {
        b.iter(|| batch = Some(queue.submit(batch.take().unwrap()).unwrap().wait().unwrap()));
    });
    group.finish();
}

/// One operation, split into chunks within the device's limit.
fn cutting(criterion: &mut Criterion) {
    const PIECE: usize = 4096;
    let engine = Nothing::new(PIECE as u64, 1);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut group = criterion.benchmark_group("cutting into 4 KiB");
    for pieces in [1, 16, 256] {
        let mut pair =
            Some((engine.allocate(pieces * PIECE).unwrap(), engine.allocate(pieces * PIECE).unwrap()));
        group.throughput(Throughput::Elements(pieces as u64));
        group.bench_function(BenchmarkId::from_parameter(format!("{pieces} pieces")), |b| {
            b.iter(|| {
                let (src, dst) = pair.take().unwrap();
                pair = Some(queue.copy(src, dst).unwrap().wait().unwrap());
            });
        });
    }
    group.finish();
}

/// Gathers sixteen buffers into one: as one list, and segment by segment for a device without lists.
fn gathering(criterion: &mut Criterion) {
    const SEGMENTS: usize = 16;
    let mut group = criterion.benchmark_group("gathering 16 segments");
    group.throughput(Throughput::Elements(SEGMENTS as u64));
    for (name, most) in [("as a list", SEGMENTS), ("one by one", 1)] {
        let engine = Nothing::new(1 << 20, most);
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let segments: Vec<BufferMut> = (0..SEGMENTS).map(|_| engine.allocate(LEN).unwrap()).collect();
        let mut operands = Some((segments, engine.allocate(SEGMENTS * LEN).unwrap()));
        group.bench_function(name, |b| {
            b.iter(|| {
                let (src, dst) = operands.take().unwrap();
                operands = Some(queue.copy(src, dst).unwrap().wait().unwrap());
            });
        });
    }
    group.finish();
}

/// Prints the cost of dynamic dispatch. Generic and dynamic dispatch run in turns, and the median over the
/// rounds counts.
fn table(engine: &Nothing, rounds: usize, batches: usize) {
    println!("\nsubmit, flush and poll on a queue that does nothing; median of {rounds} rounds in turns");
    println!("{:>6}{:>12}{:>12}{:>18}", "batch", "generic ns", "dyn ns", "dyn costs ns/copy");
    let mut completions = [Completion::done(0); POLL];
    for n in [1, 32] {
        let batch = descriptors(engine, n);
        let mut concrete = engine.queue();
        let mut dynamic: Box<dyn RawQueue> = Box::new(engine.queue());
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..rounds + 2 {
            for turn in 0..2 {
                let who = (round + turn) % 2;
                let begun = Instant::now();
                for _ in 0..batches {
                    match who {
                        0 => drive(&mut concrete, black_box(&batch), &mut completions),
                        _ => drive(black_box(&mut *dynamic), black_box(&batch), &mut completions),
                    }
                }
                // The first rounds warm up.
                if round >= 2 {
                    times[who].push(begun.elapsed().as_secs_f64() * 1e9 / batches as f64);
                }
            }
        }
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let costs =
            median(times[1].iter().zip(&times[0]).map(|(dynamic, generic)| dynamic - generic).collect());
        let [generic, dynamic] = times.map(median);
        println!("{n:>6}{generic:>12.2}{dynamic:>12.2}{:>18.3}", costs / n as f64);
    }
}

fn main() {
    let engine = Nothing::new(u64::MAX, 1);
    if !std::env::args().any(|arg| arg == "--table") {
        let mut criterion = Criterion::default()
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_millis(500))
            .sample_size(20)
            .without_plots() // Criterion's plots need fonts, which are not linked in
            .configure_from_args();
        dispatch(&mut criterion, &engine);
        safe_api(&mut criterion, &engine);
        cutting(&mut criterion);
        gathering(&mut criterion);
        criterion.final_summary();
    }
    if std::env::args().any(|arg| arg == "--test") {
        table(&engine, 1, 10);
    } else {
        table(&engine, 31, 100_000);
    }
}
