//! A timeless device executes tasks within the doorbell. Its results must equal those of the same device
//! with a calendar of events.

use std::sync::Arc;

use dma_sim::model::*;
use proptest::prelude::*;

const LEN: u64 = 512;
const REGIONS: usize = 5;
const DEPTH: u32 = 6;

/// An operation, without its segments.
#[derive(Clone, Copy, Debug)]
enum Work {
    Copy,
    Fill(u64),
    CopyToBoth,
    Compare,
    Crc32c(u32),
    CopyCrc32c(u32),
}

/// A call of the device.
#[derive(Clone, Debug)]
enum Step {
    Submit { src: Vec<(usize, u64, u64)>, dst: Vec<(usize, u64, u64)>, operation: Work, marks: (bool, bool) },
    Copy { from: (usize, u64), to: (usize, u64), len: u64, coalesce: bool },
    Doorbell,
    Poll(usize),
    Stop,
    Restart,
    Unregister(usize),
    Wait(u64),
    SecondChannel(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0..REGIONS, 0..LEN + 2);
    let segment = || (0..REGIONS, 0..LEN, 0..80_u64);
    let list = move || proptest::collection::vec(segment(), 0..4);
    let operation = prop_oneof![
        4 => Just(Work::Copy),
        2 => any::<u64>().prop_map(Work::Fill),
        1 => Just(Work::CopyToBoth),
        1 => Just(Work::Compare),
        1 => any::<u32>().prop_map(Work::Crc32c),
        1 => any::<u32>().prop_map(Work::CopyCrc32c),
    ];
    let step = prop_oneof![
        4 => (list(), list(), operation, any::<(bool, bool)>())
            .prop_map(|(src, dst, operation, marks)| Step::Submit { src, dst, operation, marks }),
        12 => (place(), place(), 0..100_u64, any::<bool>())
            .prop_map(|(from, to, len, coalesce)| Step::Copy { from, to, len, coalesce }),
        6 => Just(Step::Doorbell),
        6 => (0..8_usize).prop_map(Step::Poll),
        1 => Just(Step::Stop),
        2 => Just(Step::Restart),
        1 => (0..REGIONS).prop_map(Step::Unregister),
        1 => (0..9_u64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::SecondChannel),
    ];
    proptest::collection::vec(step, 1..60)
}

fn profiles() -> impl Strategy<Value = Profile> {
    let found = || prop_oneof![Just(Found::AtSubmit), Just(Found::InEngine)];
    let zero = prop_oneof![Just(ZeroLength::Completes), found().prop_map(ZeroLength::Mistake)];
    let reporting = prop_oneof![
        any::<bool>().prop_map(|coalescing| Reporting::Each { coalescing }),
        Just(Reporting::PerDoorbell)
    ];
    let halts = prop_oneof![Just(OnFailure::Halt), Just(OnFailure::Continue)];
    (found(), found(), zero, reporting, halts, any::<(bool, bool)>()).prop_map(
        |(oversize, protection, zero_length, reporting, on_failure, (fill, results))| Profile {
            oversize,
            protection,
            zero_length,
            reporting,
            on_failure,
            fill,
            results,
            max_task: 90,
            max_segments: 3,
            ..Profile::ideal().timeless()
        },
    )
}

/// A peer that grants access, or that has revoked its memory.
#[derive(Debug)]
struct Peer(bool);

impl PeerAccess for Peer {
    fn acquire(&self) -> Result<(), PeerError> {
        if self.0 { Ok(()) } else { Err(PeerError::Revoked) }
    }

    fn release(&self) {}
}

/// A device with a region of each kind, and the record of all its answers.
struct Run {
    device: Device,
    regions: Vec<(RegionKey, u64)>,
    channels: Vec<ChannelId>,
    current: usize,
    steps: u64,
    record: Vec<String>,
}

impl Run {
    fn new(profile: Profile, trace: TraceMode) -> Self {
        // Timeless tasks do not move in parts.
        let config = DeviceConfig { tearing: false, trace, ..DeviceConfig::new(profile) };
        let mut device = Device::new(config).unwrap();
        let peer = |there| Some(Arc::new(Peer(there)) as _);
        let kinds = [
            (Rights::all(), None),
            (Rights::all(), None),
            (Rights::LOCAL_READ, None),
            (Rights::all(), peer(true)),
            (Rights::all(), peer(false)),
        ];
        let mut regions = Vec::new();
        for (i, (rights, peer)) in (0_u8..).zip(kinds) {
            let key = device.allocate(LEN, rights, peer).unwrap();
            let addr = device.range(key).unwrap().0;
            let bytes: Vec<_> = (0..LEN).map(|at| (at as u8).wrapping_mul(7).wrapping_add(i * 50)).collect();
            device.write(key, addr, &bytes).unwrap();
            regions.push((key, addr));
        }
        let channels = vec![device.open_channel(DEPTH).unwrap()];
        Self { device, regions, channels, current: 0, steps: 0, record: Vec::new() }
    }

    fn segment(&self, (region, offset, len): (usize, u64, u64)) -> Segment {
        let (key, base) = self.regions[region];
        Segment { key, addr: DeviceAddr(base + offset), len: len as usize }
    }

    fn say(&mut self, what: impl std::fmt::Debug) {
        self.record.push(format!("{what:?}"));
    }

    fn submit(&mut self, channel: ChannelId, task: Descriptor<'_>, coalesce: bool) {
        let answer = match coalesce {
            true => self.device.submit_coalesced(channel, &task),
            false => self.device.submit(channel, &task),
        };
        self.say(answer);
    }

    fn step(&mut self, step: &Step) {
        let channel = self.channels[self.current];
        self.steps += 1;
        let token = self.steps;
        match step {
            Step::Copy { from, to, len, coalesce } => {
                let (src, dst) = (self.segment((from.0, from.1, *len)), self.segment((to.0, to.1, *len)));
                self.submit(channel, Descriptor::copy(token, src, dst), *coalesce);
            }
            Step::Submit { src, dst, operation, marks: (fence, coalesce) } => {
                let list =
                    |list: &[(usize, u64, u64)]| list.iter().map(|s| self.segment(*s)).collect::<Vec<_>>();
                let (mut src, mut dst) = (list(src), list(dst));
                // Copies with a fence get two lists of equal length, because random lists mostly differ in
                // length.
                if matches!(operation, Work::Copy) && *fence {
                    let len = src.iter().map(|s| s.len).sum::<usize>().min(dst.iter().map(|s| s.len).sum());
                    for list in [&mut src, &mut dst] {
                        let mut left = len;
                        for segment in list {
                            segment.len = segment.len.min(left);
                            left -= segment.len;
                        }
                    }
                }
                let one = |list: &[Segment]| list.first().copied().unwrap_or(self.segment((0, 0, 8)));
                let (first, second) = (one(&src), one(&dst));
                let both =
                    [second, self.segment((1, 7, 0))].map(|segment| Segment { len: first.len, ..segment });
                let task = match *operation {
                    Work::Copy => Descriptor::copy_lists(token, &src, &dst),
                    Work::Fill(pattern) => Descriptor::fill(token, pattern.to_le_bytes(), &dst),
                    Work::CopyToBoth => Descriptor::copy_to_both(token, first, &both),
                    Work::Compare => Descriptor::compare(token, first, second),
                    Work::Crc32c(seed) => Descriptor::crc32c(token, first, seed),
                    Work::CopyCrc32c(seed) => Descriptor::copy_crc32c(token, first, second, seed),
                };
                self.submit(channel, task.with_fence(*fence), *coalesce);
            }
            Step::Doorbell => {
                let tasks = self.device.doorbell(channel);
                // Only the device with a calendar needs this.
                self.device.advance(self.device.now());
                self.say(tasks);
            }
            Step::Poll(max) => {
                let mut polled = Vec::new();
                let count = self.device.poll_each(channel, *max, |completion| polled.push(completion));
                assert_eq!(count, polled.len());
                self.say(polled);
            }
            Step::Stop => {
                let answer = self.device.stop(channel);
                self.say(answer);
            }
            Step::Restart => {
                let answer = self.device.restart(channel);
                self.say(answer);
            }
            Step::Unregister(region) => {
                let answer = self.device.unregister(self.regions[*region].0);
                self.say(answer);
            }
            Step::Wait(ns) => self.device.advance(self.device.now() + Time::from_ns(*ns)),
            Step::SecondChannel(open) => {
                if *open && self.channels.len() == 1 {
                    self.channels.push(self.device.open_channel(DEPTH).unwrap());
                }
                self.current = self.channels.len() - 1;
                if !*open {
                    let closed = self.device.close_channel(channel);
                    self.say(closed);
                    self.current = 0;
                }
            }
        }
        for channel in self.channels.clone() {
            let device = &self.device;
            let state = (device.state(channel), device.in_flight(channel), device.running(channel));
            let counts = (device.stats(channel), device.has_completion(channel), device.now());
            self.say((state, counts));
        }
        let memory = self.regions.iter().map(|&(key, addr)| {
            let mut bytes = vec![0; LEN as usize];
            self.device.read(key, addr, &mut bytes).map(|()| bytes)
        });
        let memory: Vec<_> = memory.collect();
        self.say(memory);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, ..Default::default() })]

    #[test]
    fn the_doorbell_does_what_the_calendar_does(profile in profiles(), steps in steps()) {
        let mut instant = Run::new(profile.clone(), TraceMode::Off);
        // A device with a trace uses the calendar.
        let mut timed = Run::new(profile, TraceMode::Digest);
        for (at, step) in steps.iter().enumerate() {
            instant.step(step);
            timed.step(step);
            prop_assert_eq!(&instant.record, &timed.record, "step {} of {}", at, steps.len());
            instant.record.clear();
            timed.record.clear();
        }
    }
}

#[test]
fn it_is_done_when_the_doorbell_returns() {
    let mut run = Run::new(Profile::ideal().timeless(), TraceMode::Off);
    let (src, dst) = (run.segment((0, 0, 64)), run.segment((1, 3, 64)));
    let channel = run.channels[0];
    run.device.submit(channel, &Descriptor::copy(9, src, dst)).unwrap();
    assert_eq!(run.device.unregister(src.key), Err(RegionError::InUse { key: src.key, segments: 1 }));
    assert!(!run.device.has_completion(channel));
    run.device.doorbell(channel).unwrap();
    let completion = run.device.poll(channel).unwrap();
    assert_eq!((completion.token, completion.status, completion.touched), (9, Status::Done, true));
    run.device.unregister(src.key).unwrap();
}

#[test]
fn a_ring_grows_to_its_depth() {
    let mut device = Device::new(DeviceConfig::new(Profile::ideal().timeless())).unwrap();
    let key = device.allocate(LEN, Rights::all(), None).unwrap();
    let addr = device.range(key).unwrap().0;
    let channel = device.open_channel(Profile::DEPTH_MAX - 1).unwrap();
    let [src, dst] = [addr, addr + 8].map(|addr| Segment { key, addr: DeviceAddr(addr), len: 8 });
    let mut next = 0;
    for round in 0..3 {
        for i in 0..Profile::DEPTH_MAX - 1 {
            device.submit(channel, &Descriptor::copy(u64::from(round * 100_000 + i), src, dst)).unwrap();
        }
        let full = device.submit(channel, &Descriptor::copy(0, src, dst));
        assert_eq!(full, Err(Refused::Full { depth: Profile::DEPTH_MAX - 1 }));
        device.doorbell(channel).unwrap();
        let mut completions = Vec::new();
        // The first poll leaves some completions, so that the ring wraps at another entry.
        device.poll_each(channel, 60_000, |completion| completions.push(completion));
        device.poll_each(channel, usize::MAX, |completion| completions.push(completion));
        for completion in completions {
            assert_eq!(completion.token, next);
            next = if next % 100_000 == u64::from(Profile::DEPTH_MAX) - 2 {
                (next / 100_000 + 1) * 100_000
            } else {
                next + 1
            };
        }
    }
}
