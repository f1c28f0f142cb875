//! Copies do not allocate once the device and the queue are warm.

use dma_core::{Access, Batch, Capabilities, DmaEngine, DmaEngineExt, MemoryRequest, QueueOptions};
use dma_sim::model::*;
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Keeps windows of copies in flight on two channels. The copies are gathered, torn, fenced and
/// coalesced.
fn run_device(device: &mut Device, channels: &[ChannelId], src: &[Segment], dst: &[Segment], tasks: u64) {
    let mut token = 0;
    while token < tasks {
        for &channel in channels {
            for i in 0..32 {
                let task = Descriptor::copy_lists(token, src, dst).with_fence(i == 7);
                let submitted = match i % 4 {
                    1 => device.submit_coalesced(channel, &task),
                    _ => device.submit(channel, &task),
                };
                if submitted.is_ok() {
                    token += 1;
                }
            }
            device.doorbell(channel).unwrap();
        }
        let next = device.next_event().unwrap();
        device.advance(next + Time::from_us(3));
        for &channel in channels {
            while let Some(completion) = device.poll(channel) {
                assert_eq!(completion.status, Status::Done);
            }
        }
    }
    device.run();
    channels.iter().for_each(|channel| while device.poll(*channel).is_some() {});
}

/// Returns the number of allocations of `work`, after one run to warm up. Counts those of this thread, which
/// runs the whole device by virtual time. The harness's own thread allocates, too.
fn allocations_when_warm(mut work: impl FnMut()) -> u64 {
    work();
    let before = counting::of_thread();
    work();
    counting::of_thread() - before
}

fn model(profile: Profile) -> u64 {
    let pieces = u64::from(profile.max_segments.min(4));
    let config = DeviceConfig { trace: TraceMode::Digest, ..DeviceConfig::new(profile) };
    let mut device = Device::new(config).unwrap();
    let key = device.allocate(1 << 16, Rights::all(), None).unwrap();
    let (base, _) = device.range(key).unwrap();
    let cut = |from: u64, parts: u64| -> Vec<_> {
        let piece = |i| Segment { key, addr: DeviceAddr(from + i * 256), len: 1_024 / parts as usize };
        (0..parts).map(piece).collect()
    };
    let (src, dst) = (cut(base, pieces), cut(base + (1 << 15), pieces.min(2)));
    let channels = [device.open_channel(64).unwrap(), device.open_channel(64).unwrap()];
    allocations_when_warm(|| run_device(&mut device, &channels, &src, &dst, 5_000))
}

fn engine(profile: Profile) -> u64 {
    let engine = SimEngine::open(&SimOptions::new().with_profile(profile)).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut operands = Some((engine.allocate(4_096).unwrap(), engine.allocate(4_096).unwrap()));
    let pair = |_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let mut batch = Some((0..32).map(pair).collect::<Batch<_, _>>());
    let export = engine.info().capabilities.contains(Capabilities::EXPORT).then(|| {
        let request = MemoryRequest::new(4_096).exportable(Access::READ);
        engine.allocate_window(&request).unwrap().export(Access::READ).unwrap()
    });
    let remote = export.as_ref().map(|export| engine.import(export.descriptor()).unwrap());
    allocations_when_warm(|| {
        for i in 0..500 {
            if i % 5 == 0 {
                queue.fence();
            }
            let (src, dst) = operands.take().unwrap();
            let (src, mut dst) = queue.copy(src, dst).unwrap().wait().unwrap();
            if let Some(remote) = &remote {
                (_, dst) = queue.copy(remote.clone(), dst).unwrap().wait().unwrap();
            }
            operands = Some((src, dst));
            batch = batch.take().map(|batch| queue.submit(batch).unwrap().wait().unwrap());
        }
    })
}

#[test]
fn warm_copies_allocate_nothing() {
    for name in Profile::NAMES {
        let profile = Profile::by_name(name).unwrap();
        assert_eq!(model(profile.clone()), 0, "the model of {name}");
        assert_eq!(engine(profile), 0, "the engine of {name}");
    }
}
