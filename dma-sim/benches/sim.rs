//! Speed of the simulator: copies from submission to completion, in CPU time of one core, so that other
//! processes on that core have no influence.

use std::time::Duration;

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dma_core::{Batch, DmaEngineExt, QueueOptions};
use dma_sim::model::*;
use dma_sim::sim::{SimEngine, SimOptions};
use rustix::time::{ClockId, clock_gettime};

fn measure(b: &mut Bencher<'_>, mut work: impl FnMut()) {
    let cpu_time = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
    };
    b.iter_custom(|times| {
        let begun = cpu_time();
        (0..times).for_each(|_| work());
        cpu_time() - begun
    });
}

/// A device and a channel on which a window of tasks is kept in flight.
struct Loop {
    device: Device,
    channel: ChannelId,
    src: Segment,
    dst: Segment,
}

impl Loop {
    fn new(profile: Profile, size: u64, window: u32, trace: TraceMode) -> Self {
        let config = DeviceConfig::new(profile).with_seed(1).with_trace(trace);
        let mut device = Device::new(config).unwrap();
        let mut region = || {
            let key = device.allocate(size, Rights::all(), None).unwrap();
            Segment { key, addr: DeviceAddr(device.range(key).unwrap().0), len: size as usize }
        };
        let (src, dst) = (region(), region());
        let channel = device.open_channel(window).unwrap();
        let mut this = Self { device, channel, src, dst };
        (0..window).for_each(|_| this.submit());
        this.device.doorbell(channel).unwrap();
        this
    }

    fn submit(&mut self) {
        self.device.submit(self.channel, &Descriptor::copy(0, self.src, self.dst)).unwrap();
    }

    /// Runs until this number of tasks has completed.
    fn run(&mut self, tasks: u64) {
        let mut done = 0;
        while done < tasks {
            let next = self.device.next_event().unwrap();
            self.device.advance(next);
            let before = done;
            while self.device.poll(self.channel).is_some() {
                done += 1;
                self.submit();
            }
            if done > before {
                self.device.doorbell(self.channel).unwrap();
            }
        }
    }
}

fn model(c: &mut Criterion) {
    const TASKS: u64 = 10_000;
    let mut group = c.benchmark_group("model");
    group.throughput(Throughput::Elements(TASKS));
    for (profile, size, window, trace) in [
        (Profile::ideal(), 64, 32, TraceMode::Off),
        (Profile::bluefield3(), 64, 32, TraceMode::Off),
        (Profile::bluefield3(), 64, 256, TraceMode::Off),
        (Profile::ioat(), 64, 256, TraceMode::Off),
        (Profile::dsa(), 64, 128, TraceMode::Off),
        (Profile::bluefield3(), 4_096, 32, TraceMode::Off),
        (Profile::bluefield3(), 64, 32, TraceMode::Digest),
    ] {
        let name = format!("{} {size} B, {window} in flight, trace {trace:?}", profile.name);
        let mut work = Loop::new(profile, size, window, trace);
        group.bench_function(BenchmarkId::from_parameter(name), |b| measure(b, || work.run(TASKS)));
    }
    group.finish();
}

/// Tasks on a timeless device: submission, doorbell, poll.
fn instant(c: &mut Criterion) {
    const TASKS: u64 = 10_000;
    let mut group = c.benchmark_group("instant");
    group.throughput(Throughput::Elements(TASKS));
    for (size, batch) in [(64, 1), (64, 32), (64, 1_024), (4_096, 32)] {
        let mut work = Loop::new(Profile::ideal().timeless(), size, 1_024, TraceMode::Off);
        work.device.poll_each(work.channel, 1_024, |_| {});
        group.bench_function(BenchmarkId::from_parameter(format!("{size} B, batches of {batch}")), |b| {
            measure(b, || {
                for _ in 0..TASKS / batch {
                    (0..batch).for_each(|_| work.submit());
                    work.device.doorbell(work.channel).unwrap();
                    let done = |report: TaskReport| assert_eq!(report.status, Status::Done);
                    assert_eq!(work.device.poll_each(work.channel, 1_024, done), batch as usize);
                }
            });
        });
    }
    group.finish();
}

/// Copies through the contract and through the safe API: batches of 32 copies of 64 bytes.
fn engine(c: &mut Criterion) {
    const COPIES: usize = 32;
    let mut group = c.benchmark_group("engine");
    group.throughput(Throughput::Elements(COPIES as u64));
    for name in ["ideal", "bluefield3"] {
        let profile = Profile::by_name(name).unwrap();
        let engine = SimEngine::open(&SimOptions::new().with_profile(profile)).unwrap();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let pair = |_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
        let mut batch = Some((0..COPIES).map(pair).collect::<Batch<_, _>>());
        group.bench_function(format!("{name} 64 B, batches of {COPIES}"), |b| {
            measure(b, || batch = batch.take().map(|batch| queue.submit(batch).unwrap().wait().unwrap()));
        });
    }
    group.finish();
}

criterion_group!(benches, model, instant, engine);
criterion_main!(benches);
